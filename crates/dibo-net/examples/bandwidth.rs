//! Bandwidth of the protocol against that of Zenoh alone, in the same run: messages go to and fro between two
//! sessions on this machine; with a checksum alone, and sealed by the keys of the two (authenticated and
//! encrypted, beside TLS).
//!
//! `cargo run --release -p dibo-net --example bandwidth -- MEGABYTES TIMES [RUNS] [tls]`
#[cfg(not(feature = "zenoh"))]
fn main() {}

/// What this program has used of all cores; 0 where the system does not say.
#[cfg(feature = "zenoh")]
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // User and system time, in hundredths, are the 12th and 13th after the name, which may hold anything.
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|t| t.parse::<f64>().ok()).sum::<f64>() / 100.0
}

#[cfg(feature = "zenoh")]
fn main() {
    use bytes::Bytes;
    use dibo_net::certificates::Subject;
    use dibo_net::identity::Certificate;
    use dibo_net::keys::Identity;
    use dibo_net::node::{Node, Settings};
    use dibo_net::packet::{EVERYBODY, Kind, Name};
    use dibo_net::transport::{To, Transport};
    use dibo_net::wire::{Endpoints, Role, Tls, Wire};
    use std::sync::Arc;
    use std::time::{Duration, Instant, SystemTime};

    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, or: f64| arguments.get(i).and_then(|a| a.parse().ok()).unwrap_or(or);
    let (bytes, times) = ((number(0, 100.0) * 1e6) as usize, number(1, 10.0) as u64);
    let secure = arguments.iter().any(|a| a == "tls");
    let folder = std::env::temp_dir().join(format!("dibo-bandwidth-{}", std::process::id()));
    dibo_net::certificates::make(
        &folder,
        &[Subject { host: "localhost".into(), agents: vec![(0, 1)] }],
        SystemTime::now() - Duration::from_secs(3600),
        1,
    )
    .expect("a writable folder");
    let free = || {
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port()
    };
    let scheme = if secure { "tls" } else { "tcp" };
    let ports: Vec<String> = (0..2).map(|_| format!("{scheme}/localhost:{}", free())).collect();
    let session = |listen: &String, connect: Vec<String>| {
        let tls = secure.then(|| Tls::in_folder(&folder, "localhost"));
        let endpoints = Endpoints {
            listen: vec![listen.clone()],
            connect,
            tls,
            network: "run".into(),
            ..Endpoints::default()
        };
        endpoints.open().expect("loopback works")
    };
    let sessions = [session(&ports[0], vec![]), session(&ports[1], vec![ports[0].clone()])];

    // Zenoh alone: one put per message, as large as it is.
    let body = Bytes::from(vec![7u8; bytes]);
    let raw = |p: usize| {
        let mut wire = Wire::new(&sessions[p], "raw", Role::Peer, p as u32).expect("a session");
        let to = To::Process(1 - p as u32);
        // Until both are there, and know it.
        let greeting = Wire::new(&sessions[p], "hello", Role::Peer, p as u32).expect("a session");
        let mut node =
            Node::new(Box::new(greeting), Settings::new(2, vec![p], [1; 32], 0, 0), Arc::default(), |_| {});
        node.meet().expect("both are there");
        node.finish().unwrap();
        std::thread::sleep(Duration::from_millis(500));
        let began = Instant::now();
        for _ in 0..times {
            if p == 0 {
                wire.send(to, b"", &body);
            }
            while wire.receive(Duration::from_secs(10)).is_none_or(|b| b.len() != bytes) {}
            if p == 1 {
                wire.send(to, b"", &body);
            }
        }
        began.elapsed().as_secs_f64()
    };
    // The same with headers, checksums or seals, parts and all.
    let ours = |p: usize, sealed: bool| {
        let wire = Wire::new(&sessions[p], "ours", Role::Peer, p as u32).expect("a session");
        let certificate = || Certificate::read(&Tls::in_folder(&folder, "localhost")).expect("just made");
        let identity = sealed.then(|| Arc::new(certificate()) as Arc<dyn Identity>);
        // Two runs that follow each other are two parts of an experiment.
        let settings = Settings { identity, ..Settings::new(2, vec![p], [1; 32], u32::from(sealed), 7) };
        let mut node = Node::new(Box::new(wire), settings, Arc::default(), |line| eprintln!("{line}"));
        node.meet().expect("both are there");
        let name = |round: u64, sender: usize| Name {
            round,
            kind: Kind::Round,
            sender: sender as u32,
            receiver: EVERYBODY,
        };
        let began = Instant::now();
        for round in 0..times {
            node.begin(round);
            if p == 0 {
                node.post(name(round, 0), body.clone(), &[1], false);
            }
            node.wait(&[name(round, 1 - p)], Some(Duration::from_secs(60))).expect("the other is there");
            if p == 1 {
                node.post(name(round, 1), body.clone(), &[0], false);
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        node.finish().unwrap();
        seconds
    };
    // Seconds, and seconds of all cores.
    let both = |side: &(dyn Fn(usize) -> f64 + Sync)| {
        let before = cpu_seconds();
        let seconds = std::thread::scope(|s| {
            let other = s.spawn(|| side(1));
            let seconds = side(0);
            other.join().expect("no panic");
            seconds
        });
        (seconds, cpu_seconds() - before)
    };
    let megabytes = 2.0 * times as f64 * bytes as f64 / 1e6;
    println!(
        "{scheme}, {:.3} MB a message; CPU in milliseconds a MB, both sides together",
        bytes as f64 / 1e6
    );
    for _ in 0..number(2, 3.0) as u64 {
        let (alone, open, sealed) = (both(&raw), both(&|p| ours(p, false)), both(&|p| ours(p, true)));
        let speed = |(seconds, cpu): (f64, f64)| {
            format!("{:.0} MB/s, CPU {:.2}", megabytes / seconds, 1e3 * cpu / megabytes)
        };
        println!(
            "Zenoh {}; dibo {} ({:.0} % of Zenoh's speed); sealed {} ({:.0} % of unsealed)",
            speed(alone),
            speed(open),
            100.0 * alone.0 / open.0,
            speed(sealed),
            100.0 * open.0 / sealed.0
        );
    }
    let _ = std::fs::remove_dir_all(&folder);
}
