//! The transport between machines, on this one: who has no valid certificate is not let in.
#![cfg(feature = "zenoh")]
use bytes::Bytes;
use dibo_net::certificates::make;
use dibo_net::transport::{To, Transport};
use dibo_net::wire::{Endpoints, Role, Tls, Wire, close};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn endpoints(listen: Vec<String>, connect: Vec<String>, tls: Option<Tls>) -> Endpoints {
    Endpoints { listen, connect, tls, network: "test".into(), ..Endpoints::default() }
}

/// Sends until something comes, at most so long.
fn hears(from: &mut Wire, to: &mut Wire, wait: Duration) -> bool {
    let until = Instant::now() + wait;
    while Instant::now() < until {
        from.send(To::Process(0), b"head", &Bytes::from_static(b"body"));
        if to.receive(Duration::from_millis(50)).is_some() {
            return true;
        }
    }
    false
}

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        Folder(std::env::temp_dir().join(format!("dibo-wire-{name}-{}", std::process::id())))
    }
    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn hour_ago() -> SystemTime {
    SystemTime::now() - Duration::from_secs(3600)
}

/// Whether a process with these certificates is let in by one with `good`.
fn let_in(good: &Path, theirs: Option<Tls>, scheme: &str) -> bool {
    let listen = format!("tls/localhost:{}", free_port());
    let mine =
        endpoints(vec![listen.clone()], vec![], Some(Tls::in_folder(good, "localhost"))).open().unwrap();
    let mut to = Wire::new(&mine, "test", Role::Peer, 0).unwrap();
    let connect = listen.replace("tls/", scheme);
    let Ok(other) = endpoints(vec![], vec![connect], theirs).open() else { return false };
    let mut from = Wire::new(&other, "test", Role::Peer, 1).unwrap();
    hears(&mut from, &mut to, Duration::from_secs(3))
}

#[test]
fn only_valid_certificates_are_let_in() {
    let folder = Folder::new("certificates");
    let [good, other, old] = ["good", "other", "old"].map(|n| folder.path().join(n));
    let hosts = ["localhost".into(), "second".into()];
    make(&good, &hosts, hour_ago(), 2).unwrap();
    make(&other, &hosts, hour_ago(), 2).unwrap();
    // Same authority, but the certificate ended yesterday.
    std::fs::create_dir_all(&old).unwrap();
    for file in ["ca.pem", "ca.key"] {
        std::fs::copy(good.join(file), old.join(file)).unwrap();
    }
    make(&old, &hosts, SystemTime::now() - Duration::from_secs(3 * 86_400), 1).unwrap();
    assert!(
        let_in(&good, Some(Tls::in_folder(&good, "second")), "tls/"),
        "a valid certificate must be let in, or this tests nothing"
    );
    // Another authority signed theirs; they would trust ours.
    let mut stranger = Tls::in_folder(&other, "localhost");
    stranger.authority = good.join("ca.pem");
    assert!(!let_in(&good, Some(stranger), "tls/"));
    assert!(!let_in(&good, Some(Tls::in_folder(&other, "localhost")), "tls/"));
    assert!(!let_in(&good, Some(Tls::in_folder(&old, "localhost")), "tls/"));
    // No TLS at all.
    assert!(!let_in(&good, None, "tcp/"));
}

/// A session that knows the authority but has no certificate of its own.
#[test]
fn a_peer_without_a_certificate_is_refused() {
    use dibo_net::zenoh::{self, Wait};
    let folder = Folder::new("without");
    make(folder.path(), &["localhost".into()], hour_ago(), 2).unwrap();
    let listen = format!("tls/localhost:{}", free_port());
    let mine = endpoints(vec![listen.clone()], vec![], Some(Tls::in_folder(folder.path(), "localhost")))
        .open()
        .unwrap();
    let mut to = Wire::new(&mine, "test", Role::Peer, 0).unwrap();
    let mut config = zenoh::config::Config::default();
    config.insert_json5("connect/endpoints", &format!("[{listen:?}]")).unwrap();
    config.insert_json5("scouting/multicast/enabled", "false").unwrap();
    config
        .insert_json5(
            "transport/link/tls/root_ca_certificate",
            &format!("{:?}", folder.path().join("ca.pem").display().to_string()),
        )
        .unwrap();
    let other = zenoh::open(config).wait().unwrap();
    let mut from = Wire::new(&other, "test", Role::Peer, 1).unwrap();
    assert!(!hears(&mut from, &mut to, Duration::from_secs(3)));
}

/// What a process says last arrives, although it closes its session at once.
#[test]
fn last_words_arrive() {
    let listen = format!("tcp/localhost:{}", free_port());
    let mine = endpoints(vec![listen.clone()], vec![], None).open().unwrap();
    let mut to = Wire::new(&mine, "test", Role::Peer, 0).unwrap();
    let other = endpoints(vec![], vec![listen], None).open().unwrap();
    let mut from = Wire::new(&other, "test", Role::Peer, 1).unwrap();
    assert!(hears(&mut from, &mut to, Duration::from_secs(10)));
    (0..100).for_each(|_| from.send(To::Process(0), b"", &Bytes::from_static(b"last words")));
    drop(from);
    close(other);
    let until = Instant::now() + Duration::from_secs(10);
    let mut heard = 0;
    while heard < 100 && Instant::now() < until {
        let packet = to.receive(Duration::from_millis(50));
        heard += usize::from(packet.is_some_and(|p| p == "last words"));
    }
    assert_eq!(heard, 100);
}

#[test]
fn a_closed_connection_is_noticed() {
    let listen = format!("tcp/localhost:{}", free_port());
    let mine = endpoints(vec![listen.clone()], vec![], None).open().unwrap();
    let mut to = Wire::new(&mine, "test", Role::Peer, 0).unwrap();
    let other = endpoints(vec![], vec![listen], None).open().unwrap();
    let mut from = Wire::new(&other, "test", Role::Peer, 7).unwrap();
    assert!(hears(&mut from, &mut to, Duration::from_secs(10)));
    assert_eq!(to.closed(), [0; 0]);
    drop(from);
    close(other);
    let until = Instant::now() + Duration::from_secs(10);
    let mut closed = Vec::new();
    while closed.is_empty() && Instant::now() < until {
        to.receive(Duration::from_millis(10));
        closed = to.closed();
    }
    assert_eq!(closed, [7]);
    assert_eq!(to.closed(), [0; 0], "it is said once");
}
