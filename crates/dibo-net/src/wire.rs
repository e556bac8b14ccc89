//! Packets between machines, by Zenoh: peers that know each other's endpoints, or clients of a router. TLS
//! with certificates on both sides, unless all stay on this machine or the user insists.
use crate::transport::{To, Transport};
use bytes::Bytes;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use zenoh::Wait;
use zenoh::bytes::ZBytes;
use zenoh::config::Config;
use zenoh::qos::CongestionControl;
use zenoh::sample::{Locality, SampleKind};

/// How to reach the others.
#[derive(Clone, Debug, Default)]
pub struct Endpoints {
    /// Where this process listens, such as `tls/0.0.0.0:7447`.
    pub listen: Vec<String>,
    /// Where the others listen.
    pub connect: Vec<String>,
    /// What `connect` names: other agents, or a router that passes everything on.
    pub role: Role,
    /// Files for TLS.
    pub tls: Option<Tls>,
    /// Plain TCP also to other machines.
    pub insecure: bool,
    /// Tells several runs on one router apart.
    pub network: String,
}

/// A process's place in the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Talks to the others directly.
    #[default]
    Peer,
    /// Talks to a router.
    Client,
    /// Passes on what others say.
    Router,
}

/// Files for TLS: the authority that both sides trust, and this process's certificate with its key.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The authority's certificate.
    pub authority: PathBuf,
    /// This process's certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Tls {
    /// The files `ca.pem`, `NAME.pem` and `NAME.key` of a folder.
    pub fn in_folder(folder: &Path, name: &str) -> Self {
        Tls {
            authority: folder.join("ca.pem"),
            certificate: folder.join(format!("{name}.pem")),
            key: folder.join(format!("{name}.key")),
        }
    }
}

/// Whether an endpoint such as `tcp/127.0.0.1:7447` cannot be reached from another machine.
fn is_local(endpoint: &str) -> bool {
    let address = endpoint.split_once('/').map_or(endpoint, |e| e.1);
    let host = address.rsplit_once(':').map_or(address, |a| a.0).trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

impl Endpoints {
    /// Says what is wrong with the endpoints; the first of all rules is that nothing leaves this machine in
    /// plain text unless asked for.
    pub fn check(&self) -> Result<(), String> {
        if self.listen.is_empty() && self.connect.is_empty() {
            return Err(
                "no endpoint is given: say where to --listen or whom to --connect, such as tls/HOST:7447"
                    .into(),
            );
        }
        for endpoint in self.listen.iter().chain(&self.connect) {
            let known = ["tls/", "tcp/"].iter().any(|p| endpoint.starts_with(p));
            let port = endpoint.rsplit_once(':').and_then(|e| e.1.parse::<u16>().ok());
            if !known || port.is_none() {
                return Err(format!("the endpoint '{endpoint}' must be tls/HOST:PORT or tcp/HOST:PORT"));
            }
            if endpoint.starts_with("tcp/") && !is_local(endpoint) && !self.insecure {
                return Err(format!(
                    "'{endpoint}' would send everything in plain text to other machines: use tls/ with \
                    --certificates, or say --insecure"
                ));
            }
            if endpoint.starts_with("tls/") && self.tls.is_none() {
                return Err(format!(
                    "'{endpoint}' needs --certificates FOLDER; `dibo certificates` makes one for tests"
                ));
            }
        }
        for file in self.tls.iter().flat_map(|t| [&t.authority, &t.certificate, &t.key]) {
            if !file.is_file() {
                return Err(format!(
                    "there is no file {}; `dibo certificates` makes such files for tests",
                    file.display()
                ));
            }
        }
        if self.network.is_empty()
            || !self.network.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
        {
            return Err(format!(
                "the network's name '{}' must be made of letters, digits, - and _",
                self.network
            ));
        }
        Ok(())
    }

    /// What is wrong with the endpoints to connect to, as far as it can be seen: names that nobody knows,
    /// ports where nobody listens.
    pub fn unreachable(&self) -> Vec<String> {
        let look = |endpoint: &String| {
            let address = endpoint.split_once('/').map_or(endpoint.as_str(), |e| e.1);
            let found = match address.to_socket_addrs() {
                Ok(found) => found,
                Err(e) => return Some(format!("{endpoint}: nobody knows this name ({e})")),
            };
            let tried: Vec<_> =
                found.map(|a| TcpStream::connect_timeout(&a, Duration::from_millis(500))).collect();
            match tried.into_iter().reduce(|one, other| one.or(other)) {
                Some(Ok(_)) => None,
                Some(Err(e)) => Some(format!("{endpoint}: nobody answers there ({e})")),
                None => Some(format!("{endpoint}: this name has no address")),
            }
        };
        self.connect.iter().filter_map(look).collect()
    }

    fn config(&self) -> Result<Config, String> {
        let mut config = Config::default();
        let text = |s: &str| format!("{s:?}");
        let path = |p: &Path| text(&p.to_string_lossy());
        let mut set = |key: &str, value: String| {
            config.insert_json5(key, &value).map_err(|e| format!("zenoh: {key} = {value}: {e}"))
        };
        set(
            "mode",
            text(match self.role {
                Role::Peer => "peer",
                Role::Client => "client",
                Role::Router => "router",
            }),
        )?;
        set("listen/endpoints", format!("{:?}", self.listen))?;
        set("connect/endpoints", format!("{:?}", self.connect))?;
        set("connect/timeout_ms", "-1".into())?;
        set("connect/exit_on_failure", "false".into())?;
        set(
            "connect/retry",
            "{ period_init_ms: 100, period_max_ms: 1000, period_increase_factor: 1.5 }".into(),
        )?;
        // Only endpoints that were named.
        set("scouting/multicast/enabled", "false".into())?;
        set("scouting/gossip/enabled", "false".into())?;
        set("open/return_conditions/connect_scouted", "false".into())?;
        // A slow receiver is waited for, but a link that is stuck must be made anew (microseconds); soon by a
        // router, whose only thread waits there and which has nothing to wait for but greetings.
        let stuck = if self.role == Role::Router { 200_000 } else { 30_000_000 };
        set("transport/link/tx/queue/congestion_control/block/wait_before_close", stuck.to_string())?;
        // Where a hundred processes meet on a few cores, opening a link takes longer than Zenoh's default.
        set("transport/unicast/open_timeout", "60000".into())?;
        set("transport/unicast/accept_timeout", "60000".into())?;
        set("transport/unicast/accept_pending", "1000".into())?;
        // What Zenoh says of itself comes from the thread that sends: it must not find this queue full.
        set("transport/link/tx/queue/size/control", "16".into())?;
        if self.role != Role::Peer {
            // A router's only thread must not find a queue full: packets would be dropped, and what it must
            // not drop would stop it.
            for kind in [
                "real_time",
                "interactive_high",
                "interactive_low",
                "data_high",
                "data",
                "data_low",
                "background",
            ] {
                set(&format!("transport/link/tx/queue/size/{kind}"), "16".into())?;
            }
        }
        if let Some(tls) = &self.tls {
            set("transport/link/tls/root_ca_certificate", path(&tls.authority))?;
            set("transport/link/tls/listen_certificate", path(&tls.certificate))?;
            set("transport/link/tls/listen_private_key", path(&tls.key))?;
            set("transport/link/tls/connect_certificate", path(&tls.certificate))?;
            set("transport/link/tls/connect_private_key", path(&tls.key))?;
            set("transport/link/tls/enable_mtls", "true".into())?;
            set("transport/link/tls/verify_name_on_connect", "true".into())?;
            set("transport/link/tls/close_link_on_expiration", "true".into())?;
        }
        Ok(config)
    }

    /// Opens a Zenoh session.
    pub fn open(&self) -> Result<zenoh::Session, String> {
        self.check()?;
        // A router without TLS has nothing to race, and would wait for itself with large messages.
        if self.role != Role::Router || self.tls.is_some() {
            one_thread();
        }
        zenoh::open(self.config()?).wait().map_err(|e| format!("cannot open the network: {e}"))
    }
}

/// Closes a session. What takes longer than a moment is left to the background and to the end of the process:
/// where a hundred processes leave at once, Zenoh closes one link after the other for seconds, while all that
/// was said has long left.
pub fn close(session: zenoh::Session) {
    let closing = std::thread::spawn(move || drop(session.close().wait()));
    let until = Instant::now() + CLOSING;
    while !closing.is_finished() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Zenoh's TLS links read and write one connection from two threads without a lock, and processes die of it
/// in rustls within seconds (Zenoh 1.10). With one thread for both there is nothing to race; it is faster
/// here as well. Whoever sets `ZENOH_RUNTIME` decides otherwise.
fn one_thread() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        if std::env::var_os("ZENOH_RUNTIME").is_none() {
            // SAFETY: Rust's own readers of the environment take turns with this, and Zenoh reads it through
            // them, after this.
            unsafe { std::env::set_var("ZENOH_RUNTIME", "(rx: (handover: tx), tx: (worker_threads: 1))") };
        }
    });
}

/// One process's line to the others.
pub struct Wire {
    session: zenoh::Session,
    network: String,
    /// A router that waits for a slow client waits for ever (Zenoh 1.10, its issue 1876): there packets are
    /// rather lost, and asked for again.
    congestion: CongestionControl,
    inbox: Arc<Inbox>,
    writers: HashMap<To, Writer>,
    began: Instant,
    _subscribers: [zenoh::pubsub::Subscriber<()>; 3],
    /// Shows the others that this process is there, for as long as they are connected with it.
    _alive: zenoh::liveliness::LivelinessToken,
}

/// Packets that wait to be looked at. When they are many, Zenoh waits, and so do the senders; once nobody
/// looks any more, they are dropped, or the senders would wait for ever.
#[derive(Default)]
struct Inbox {
    packets: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    queue: VecDeque<Bytes>,
    bytes: usize,
    closed: bool,
    /// Processes whose connection has closed, until somebody asks.
    gone: BTreeSet<u32>,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.packets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, packet: Bytes) {
        let mut inside = self.lock();
        while inside.bytes > WAITING && !inside.closed {
            inside = self.changed.wait(inside).unwrap_or_else(PoisonError::into_inner);
        }
        if !inside.closed {
            inside.bytes += packet.len() + ENTRY;
            inside.queue.push_back(packet);
            drop(inside);
            self.changed.notify_all();
        }
    }

    fn notice(&self, process: u32, gone: bool) {
        let mut inside = self.lock();
        match gone {
            true => inside.gone.insert(process),
            false => inside.gone.remove(&process),
        };
    }

    fn take(&self, wait: Duration) -> Option<Bytes> {
        let until = Instant::now() + wait;
        let mut inside = self.lock();
        loop {
            if let Some(packet) = inside.queue.pop_front() {
                let full = inside.bytes > WAITING;
                inside.bytes -= packet.len() + ENTRY;
                drop(inside);
                if full {
                    self.changed.notify_all();
                }
                return Some(packet);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            inside = self.changed.wait_timeout(inside, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn close(&self) {
        let mut inside = self.lock();
        *inside = Waiting { closed: true, ..Waiting::default() };
        drop(inside);
        self.changed.notify_all();
    }
}

/// Longest packet that is sent at once: it fits into one of Zenoh's batches.
const EXPRESS: usize = 32 << 10;
/// Longest packet that leaves without the writer's thread, and how many of them: a link's queue in Zenoh
/// holds as many, so that nobody waits unless the link is stuck.
const SMALL: usize = 4 << 10;
const QUEUE: usize = 2;

/// Bytes of packets that wait to be looked at, more or less at most.
const WAITING: usize = 32 << 20;
/// What a packet costs beside its bytes.
const ENTRY: usize = 64;
/// How long what was said last may take to leave.
const LEAVING: Duration = Duration::from_secs(2);
/// How long a session's closing is waited for.
const CLOSING: Duration = Duration::from_millis(300);

impl Wire {
    /// The line of the process with this lowest agent.
    pub fn new(session: &zenoh::Session, network: &str, role: Role, process: u32) -> Result<Self, String> {
        let inbox = Arc::new(Inbox::default());
        let subscribe = |key: String| {
            let arrived = inbox.clone();
            let declared = session.declare_subscriber(key.clone()).allowed_origin(Locality::Remote).callback(
                move |sample| {
                    arrived.put(Bytes::from(sample.payload().to_bytes().into_owned()));
                },
            );
            declared.wait().map_err(|e| format!("cannot listen to {key}: {e}"))
        };
        let (all, own) = (format!("dibo/{network}/all"), format!("dibo/{network}/to/{process}"));
        let (alive, noticed) = (format!("dibo/{network}/alive"), inbox.clone());
        let others = session
            .liveliness()
            .declare_subscriber(format!("{alive}/*"))
            .callback(move |sample| {
                let name = sample.key_expr().as_str();
                let process = name.rsplit('/').next().and_then(|name| name.parse().ok());
                process.into_iter().for_each(|p| noticed.notice(p, sample.kind() == SampleKind::Delete));
            })
            .wait()
            .map_err(|e| format!("cannot listen to {alive}: {e}"))?;
        let subscribers = [subscribe(all)?, subscribe(own)?, others];
        let token = session.liveliness().declare_token(format!("{alive}/{process}")).wait();
        let token = token.map_err(|e| format!("cannot say that this process is there: {e}"))?;
        let (session, network) = (session.clone(), network.to_string());
        let congestion =
            if role == Role::Client { CongestionControl::Drop } else { CongestionControl::Block };
        Ok(Wire {
            session,
            network,
            congestion,
            inbox,
            writers: HashMap::new(),
            began: Instant::now(),
            _subscribers: subscribers,
            _alive: token,
        })
    }
}

/// The way to one process, with a thread that sends: large messages leave while gradients are computed, and
/// one slow link does not hold up the others.
struct Writer {
    key: String,
    congestion: CongestionControl,
    outbox: Sender<ZBytes>,
    thread: std::thread::JoinHandle<()>,
    /// Packets that the thread has not sent yet.
    waiting: Arc<AtomicUsize>,
    /// Packets that left without the thread since this process last listened.
    direct: usize,
}

impl Writer {
    fn start(session: &zenoh::Session, key: String, congestion: CongestionControl) -> Self {
        let (outbox, leaving) = channel::<ZBytes>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let (session, to, left) = (session.clone(), key.clone(), waiting.clone());
        let thread = std::thread::spawn(move || {
            for packet in leaving {
                put(&session, &to, packet, congestion);
                left.fetch_sub(1, Ordering::Release);
            }
        });
        Writer { key, congestion, outbox, thread, waiting, direct: 0 }
    }

    /// A few small packets leave at once, which saves waking the thread; what might have to wait for a slow
    /// link, or must not overtake what waits already, is the thread's.
    fn send(&mut self, session: &zenoh::Session, packet: ZBytes) {
        let small = packet.len() <= SMALL && self.direct < QUEUE;
        if small && self.waiting.load(Ordering::Acquire) == 0 {
            self.direct += 1;
            put(session, &self.key, packet, self.congestion);
        } else {
            self.waiting.fetch_add(1, Ordering::Release);
            let _ = self.outbox.send(packet);
        }
    }
}

/// Without declared publishers, of which every process would have to be told: among a hundred these are a
/// million packets that must not be dropped.
fn put(session: &zenoh::Session, key: &str, packet: ZBytes, congestion: CongestionControl) {
    // Small packets leave at once; large ones, which Zenoh cuts up, must not hurry: express fragments can
    // get stuck.
    let express = packet.len() <= EXPRESS;
    let put = session.put(key, packet).congestion_control(congestion).express(express);
    // A packet that cannot be sent is a packet lost: it will be asked for again.
    let _ = put.allowed_destination(Locality::Remote).wait();
}

impl Drop for Wire {
    fn drop(&mut self) {
        // Nobody looks any more: what still comes must not hold up Zenoh, which sends with the same thread.
        self.inbox.close();
        // What was said last should leave before the session closes; but not at any price.
        let threads: Vec<_> = self.writers.drain().map(|(_, w)| w.thread).collect();
        let until = Instant::now() + LEAVING;
        while threads.iter().any(|t| !t.is_finished()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Transport for Wire {
    fn send(&mut self, to: To, head: &[u8], body: &Bytes) {
        let mut packet = ZBytes::writer();
        packet.append(ZBytes::from(head));
        if !body.is_empty() {
            packet.append(ZBytes::from(body.clone()));
        }
        let Self { session, network, congestion, writers, .. } = self;
        let writer = writers.entry(to).or_insert_with(|| {
            // What is said to everybody is said again: one slow receiver must not hold up the others.
            let (key, congestion) = match to {
                To::All => (format!("dibo/{network}/all"), CongestionControl::Drop),
                To::Process(p) => (format!("dibo/{network}/to/{p}"), *congestion),
            };
            Writer::start(session, key, congestion)
        });
        writer.send(session, packet.finish());
    }

    fn receive(&mut self, wait: Duration) -> Option<Bytes> {
        self.writers.values_mut().for_each(|w| w.direct = 0);
        self.inbox.take(wait)
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn closed(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.inbox.lock().gone).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_stays_at_home() {
        let check = |listen: &str, insecure| {
            Endpoints {
                listen: vec![listen.into()],
                insecure,
                network: "dibo".into(),
                ..Endpoints::default()
            }
            .check()
        };
        for local in ["tcp/127.0.0.1:7447", "tcp/localhost:1", "tcp/[::1]:7447"] {
            check(local, false).unwrap();
        }
        for open in ["tcp/0.0.0.0:7447", "tcp/10.0.0.1:7447", "tcp/example.org:7447", "tcp/[::]:7447"] {
            assert!(check(open, false).unwrap_err().contains("plain text"));
            check(open, true).unwrap();
        }
        assert!(check("tls/127.0.0.1:7447", false).unwrap_err().contains("--certificates"));
        assert!(check("udp/127.0.0.1:7447", true).unwrap_err().contains("must be tls/HOST:PORT"));
    }
}
