//! Somebody with a valid certificate of the authority, but for another agent, on a real network: directly and
//! through a router. `DIBO_ATTACK=100000` says how many packets of each kind it sends.
#![cfg(feature = "zenoh")]
use bytes::Bytes;
use dibo_net::certificates::{Subject, make};
use dibo_net::identity::Certificate;
use dibo_net::node::{Counts, Node, Settings};
use dibo_net::packet::{EVERYBODY, From, Kind, Name, Run, Secured, checksum, head, header};
use dibo_net::wire::{Endpoints, Role, Tls, Wire};
use dibo_net::zenoh::qos::CongestionControl;
use dibo_net::zenoh::{self, Wait};
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

const DIGEST: [u8; 32] = [5; 32];

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn number() -> u64 {
    std::env::var("DIBO_ATTACK").ok().and_then(|n| n.parse().ok()).unwrap_or(2_000)
}

/// Bytes of memory that this program uses.
fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// A message of an agent in a round, the same for everybody who knows the rule.
fn message(agent: u32, round: u64) -> Bytes {
    let number = |i: u64| (round as f64 + 0.1 * f64::from(agent) + 0.001 * i as f64).to_le_bytes();
    Bytes::from((0..50).flat_map(number).collect::<Vec<u8>>())
}

/// An honest process of two: exchanges messages until the attack is over, and some rounds more.
fn honest(folder: &Path, endpoints: Endpoints, agent: u32, over: &AtomicBool, reached: &AtomicU64) -> Counts {
    let session = endpoints.open().unwrap();
    let wire = Wire::new(&session, "test", endpoints.role, agent).unwrap();
    let tls = Tls::in_folder(folder, &format!("host-{agent}"));
    let identity = Arc::new(Certificate::read(&tls).unwrap());
    let settings = Settings {
        identity: Some(identity),
        ..Settings::new(2, vec![agent as usize], DIGEST, 1, 100 + u64::from(agent))
    };
    let mut node = Node::new(Box::new(wire), settings, Arc::default(), |_| {});
    node.meet().unwrap();
    let name = |sender: u32, round: u64| Name { round, kind: Kind::Round, sender, receiver: EVERYBODY };
    let mut last = None;
    for round in 0.. {
        node.begin(round);
        node.post(name(agent, round), message(agent, round), &[1 - agent], true);
        node.said(round);
        node.wait(&[name(1 - agent, round)], None).unwrap();
        let came = node.message(&name(1 - agent, round)).unwrap().to_vec();
        assert!(came == message(1 - agent, round), "round {round}: other bits");
        node.checkpointed(round);
        reached.fetch_max(round, Relaxed);
        // Both must end with the same round: the first to see the end says which.
        if agent == 0 && last.is_none() && over.load(Relaxed) {
            last = Some(round + 50);
            reached.store(u64::MAX - (round + 50), Relaxed);
        }
        let told = reached.load(Relaxed);
        if told > u64::MAX / 2 {
            last = Some(u64::MAX - told);
        }
        if last.is_some_and(|l| round >= l) {
            break;
        }
    }
    node.finish().unwrap();
    node.counts().clone()
}

/// Everything that the attacker says, of each kind so many. A router drops what is too much for it; directly
/// all of it arrives, at the one process that is reached.
fn attack(session: &zenoh::Session, count: u64, heard: &Mutex<Vec<Vec<u8>>>, routed: bool) {
    let run = Run { digest: DIGEST[..16].try_into().unwrap(), job: 1 };
    let congestion = if routed { CongestionControl::Drop } else { CongestionControl::Block };
    let publisher = |key: &str| {
        let key = key.to_string();
        session.declare_publisher(key).congestion_control(congestion).wait().unwrap()
    };
    let mut keys: Vec<_> =
        ["dibo/test/to/0", "dibo/test/all", "dibo/test/to/1"].into_iter().map(publisher).collect();
    keys.truncate(if routed { 3 } else { 2 });
    let put = |n: u64, packet: Vec<u8>| drop(keys[n as usize % keys.len()].put(packet).wait());
    let kinds = [
        Kind::Round,
        Kind::Views,
        Kind::Values,
        Kind::Stop,
        Kind::Hello,
        Kind::Need,
        Kind::Lack,
        Kind::Taken,
        Kind::Letters,
    ];
    for n in 0..count {
        for kind in kinds {
            let (sender, round) = ((n % 2) as u32, n / 7 + u64::from(kind == Kind::Round) * 500);
            let name = Name { round, kind, sender, receiver: EVERYBODY };
            let from =
                From { incarnation: 100 + u64::from(sender), counter: if n % 5 == 0 { 0 } else { 1 << 30 } };
            let body = match kind {
                Kind::Stop => b"forged".to_vec(),
                _ => vec![(n % 251) as u8; (n % 600) as usize],
            };
            match n % 2 {
                0 => put(n, [&header(run, from, name, body.len(), 0, &body)[..], &body].concat()),
                _ => {
                    let head = head(run, from, name, Secured::Sealed, body.len(), 0, body.len());
                    put(n, [&head[..], &checksum(&head, &body), &body].concat());
                }
            }
        }
        // Lengths that are not those of the packet: of the part, of the whole, beyond all memory.
        let name = Name { round: n, kind: Kind::Round, sender: (n % 2) as u32, receiver: EVERYBODY };
        let from = From { incarnation: 100 + n % 2, counter: 1 << 30 };
        let (whole, part) = [(10, 9), (usize::MAX >> 1, 10), (1 << 29, 10), (10, 1 << 20)][n as usize % 4];
        let head = head(run, from, name, Secured::Sealed, whole, 0, part);
        put(n, [&head[..], &checksum(&head, b"ten bytes."), b"ten bytes."].concat());
        // What was heard, again.
        let again = heard.lock().unwrap().get(n as usize % 1000).cloned();
        again.into_iter().for_each(|packet| put(n, packet));
    }
    // Long ones, of rounds far ahead.
    let long = vec![1; 1 << 20];
    for n in 0..(count / 200).clamp(10, 300) {
        let name =
            Name { round: (1 << 40) + n, kind: Kind::Round, sender: (n % 2) as u32, receiver: EVERYBODY };
        let from = From { incarnation: 100 + n % 2, counter: 1 << 31 };
        let head = head(run, from, name, Secured::Sealed, 4 << 20, 0, 1 << 20);
        put(n, [&head[..], &checksum(&head, &long), &long].concat());
    }
}

fn trial(routed: bool) {
    let folder = std::env::temp_dir().join(format!("dibo-attack-{routed}-{}", std::process::id()));
    let host = |name: &str, agents: &[(usize, usize)]| Subject { host: name.into(), agents: agents.to_vec() };
    let hosts = [
        host("host-0", &[(0, 0)]),
        host("host-1", &[(1, 1)]),
        host("attacker", &[(99, 99)]),
        host("router", &[]),
    ];
    make(&folder, &hosts, SystemTime::now() - Duration::from_secs(3600), 2).unwrap();
    let endpoint = format!("tls/localhost:{}", free_port());
    let side = |name: &str, role: Role, listens: bool| {
        let (listen, connect) =
            if listens { (vec![endpoint.clone()], vec![]) } else { (vec![], vec![endpoint.clone()]) };
        Endpoints {
            listen,
            connect,
            role,
            tls: Some(Tls::in_folder(&folder, name)),
            insecure: false,
            network: "test".into(),
        }
    };
    let role = if routed { Role::Client } else { Role::Peer };
    let _router = routed.then(|| side("router", Role::Router, true).open().unwrap());
    let (over, reached, heard) =
        (AtomicBool::new(false), AtomicU64::new(0), Arc::new(Mutex::new(Vec::new())));
    let counts: Vec<Counts> = std::thread::scope(|scope| {
        let (over, reached, folder) = (&over, &reached, &folder);
        let honest: Vec<_> = (0..2)
            .map(|agent| {
                let endpoints = side(&format!("host-{agent}"), role, agent == 0 && !routed);
                scope.spawn(move || honest(folder, endpoints, agent, over, reached))
            })
            .collect();
        while reached.load(Relaxed) < 20 {
            std::thread::sleep(Duration::from_millis(10));
        }
        let session = side("attacker", role, false).open().unwrap();
        let ears = heard.clone();
        let _hears = session
            .declare_subscriber("dibo/**")
            .callback(move |sample| {
                let mut heard = ears.lock().unwrap();
                if heard.len() < 1000 {
                    heard.push(sample.payload().to_bytes().to_vec());
                }
            })
            .wait()
            .unwrap();
        std::thread::sleep(Duration::from_millis(500));
        let (before, began) = (memory(), Instant::now());
        attack(&session, number(), &heard, routed);
        let (now, seconds) = (memory(), began.elapsed().as_secs());
        let grown = now.saturating_sub(before);
        println!(
            "routed: {routed}; {} of each kind in {seconds} s; {} rounds; memory grew by {} MB to {} MB",
            number(),
            reached.load(Relaxed),
            grown >> 20,
            now >> 20
        );
        assert!(grown < 100 << 20, "memory grew by {grown} bytes");
        over.store(true, Relaxed);
        honest.into_iter().map(|t| t.join().unwrap()).collect()
    });
    counts.iter().for_each(|c| println!("{:?}", c.refused));
    // Forged or played again, all of them: the honest ones have seen plenty.
    let forged: u64 = counts.iter().filter_map(|c| c.refused.get("Forged")).sum();
    assert!(forged >= number(), "{counts:?}");
    let all: u64 = counts.iter().flat_map(|c| c.refused.values()).sum();
    // Nine kinds and wrong lengths.
    assert!(routed || all >= 10 * number(), "{all} refused: {counts:?}");
    let heard = heard.lock().unwrap();
    // The attacker hears packets, but no numbers.
    for agent in 0..2u32 {
        let said = message(agent, 100);
        assert!(!heard.iter().any(|p| p.windows(64).any(|w| w == &said[..64])), "numbers in plain text");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_certificate_for_another_agent_changes_nothing() {
    for routed in [false, true] {
        trial(routed);
    }
}
