//! How many processes end together: in a few packets each, and also if those are lost.
use bytes::Bytes;
use dibo_net::hub::{Hub, Line};
use dibo_net::node::{Node, Settings};
use dibo_net::packet::{EVERYBODY, Kind, Name};
use dibo_net::transport::{To, Transport};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

/// A line that counts what is sent, and may lose letters.
struct Counted {
    line: Line,
    sent: Arc<AtomicUsize>,
    loses_letters: bool,
}

impl Transport for Counted {
    fn send(&mut self, to: To, head: &[u8], body: &Bytes) {
        self.sent.fetch_add(1, Relaxed);
        if !(self.loses_letters && head[5] == Kind::Letters as u8) {
            self.line.send(to, head, body);
        }
    }
    fn receive(&mut self, wait: Duration) -> Option<Bytes> {
        self.line.receive(wait)
    }
    fn now(&self) -> Duration {
        self.line.now()
    }
}

/// So many processes meet and end; gives the packets that the end takes, and its longest time.
fn end(processes: usize, loses_letters: bool) -> (usize, Duration) {
    let (hub, sent, all) = (Hub::default(), Arc::<AtomicUsize>::default(), Barrier::new(processes));
    let lines: Vec<Line> = (0..processes as u32).map(|p| hub.line(p)).collect();
    let longest = std::thread::scope(|scope| {
        let live = |(p, line): (usize, Line)| {
            let (all, sent) = (&all, sent.clone());
            scope.spawn(move || {
                let settings = Settings::new(processes, vec![p], [9; 32], 0, 7);
                let line = Counted { line, sent: sent.clone(), loses_letters };
                let mut node = Node::new(Box::new(line), settings, Arc::default(), |_| {});
                node.meet().unwrap();
                // What is left of the meeting: greetings, answers and nothing after them.
                for _ in 0..4 {
                    all.wait();
                    node.pump(Duration::ZERO);
                }
                all.wait();
                sent.store(0, Relaxed);
                all.wait();
                let began = node.now();
                node.finish().unwrap();
                node.now() - began
            })
        };
        let threads: Vec<_> = lines.into_iter().enumerate().map(live).collect();
        threads.into_iter().map(|t| t.join().unwrap()).max()
    });
    (sent.load(Relaxed), longest.unwrap())
}

#[test]
fn many_end_with_four_packets_each() {
    let (sent, took) = end(40, false);
    assert!(sent <= 4 * 40, "{sent} packets");
    assert!(took < Duration::from_millis(100), "{took:?}");
}

/// Nobody depends on the one that passes letters on.
#[test]
fn all_end_without_letters() {
    for processes in [3, 12, 40] {
        let (sent, took) = end(processes, true);
        assert!(sent > processes * (processes - 1), "{sent} packets");
        assert!(took < Duration::from_secs(4), "{processes} processes: {took:?}");
    }
}

/// A line whose carrier notices when this process's connection closes.
struct Noticing(Line, Arc<Mutex<Vec<u32>>>);

impl Transport for Noticing {
    fn send(&mut self, to: To, head: &[u8], body: &Bytes) {
        self.0.send(to, head, body);
    }
    fn receive(&mut self, wait: Duration) -> Option<Bytes> {
        self.0.receive(wait)
    }
    fn now(&self) -> Duration {
        self.0.now()
    }
    fn closed(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.1.lock().unwrap())
    }
}

/// Three processes meet; the last one ends by `last`, which the others wait for. Gives why each of those
/// stopped, how long that took, and what it had said.
fn stop(
    last: impl FnOnce(Node, &Mutex<Vec<u32>>) + Send,
    patience: Duration,
) -> Vec<(String, Duration, String)> {
    let (hub, all) = (Hub::default(), Barrier::new(3));
    let notices: Vec<Arc<Mutex<Vec<u32>>>> = (0..3).map(|_| Arc::default()).collect();
    let lines = (0..3u32).map(|p| Noticing(hub.line(p), notices[p as usize].clone()));
    let said: Vec<Arc<Mutex<String>>> = (0..3).map(|_| Arc::default()).collect();
    let mut nodes: Vec<Node> = lines
        .enumerate()
        .map(|(p, line)| {
            let settings = Settings { patience, ..Settings::new(3, vec![p], [9; 32], 0, 7) };
            let log = said[p].clone();
            Node::new(Box::new(line), settings, Arc::default(), move |what| {
                log.lock().unwrap().push_str(what);
            })
        })
        .collect();
    let third = nodes.pop().unwrap();
    let why = std::thread::scope(|scope| {
        let wait = |mut node: Node| {
            let all = &all;
            scope.spawn(move || {
                node.meet().unwrap();
                all.wait();
                let began = node.now();
                let name = Name { round: 0, kind: Kind::Round, sender: 2, receiver: EVERYBODY };
                let why = node.wait(&[name], None).unwrap_err();
                (why, node.now() - began)
            })
        };
        let threads: Vec<_> = nodes.into_iter().map(wait).collect();
        let (all, notice) = (&all, &notices[0]);
        scope.spawn(move || {
            let mut third = third;
            third.meet().unwrap();
            all.wait();
            last(third, notice);
        });
        threads.into_iter().map(|t| t.join().unwrap()).collect::<Vec<_>>()
    });
    why.into_iter().zip(said).map(|((why, took), said)| (why, took, said.lock().unwrap().clone())).collect()
}

/// Who has heard it tells those who may not have, and does not wait for those who have left with it.
#[test]
fn the_reason_of_one_ends_all_within_a_second() {
    let ends = stop(|mut third, _| drop(third.give_up("a sensor is off".into())), Duration::from_secs(60));
    for (why, took, _) in ends {
        assert_eq!(why, "agent 2 stopped: a sensor is off");
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
}

/// A closed connection is said at once and waited for all the same.
#[test]
fn a_closed_connection_is_said_at_once() {
    let died = |third: Node, notice: &Mutex<Vec<u32>>| {
        notice.lock().unwrap().push(2);
        drop(third);
    };
    let ends = stop(died, Duration::from_secs(20));
    let waits = "the connection to agent 2 has closed: the process has ended, or the link is down; waiting \
        for it up to 20.0 s (--patience)";
    let (_, _, first) = &ends[0];
    assert!(first.starts_with(&format!("round 0: {waits}")), "{first}");
    assert!(first.contains("agent 2 (its connection has closed; no sign of it for"), "{first}");
    assert_eq!(first.matches(waits).count(), 1, "{first}");
    for (why, took, _) in &ends {
        assert!(why.contains("no sign of agent 2 for 20."), "{why}");
        assert!(*took >= Duration::from_secs(20) && *took < Duration::from_secs(22), "{took:?}");
    }
}

/// Nobody keeps messages for processes that cannot come back.
#[test]
fn nothing_is_kept_for_those_who_never_return() {
    for (returns, most) in [(false, 40), (true, 1000)] {
        let (hub, all) = (Hub::default(), Barrier::new(2));
        let lines: Vec<Line> = (0..2).map(|p| hub.line(p)).collect();
        let kept = std::thread::scope(|scope| {
            let live = |(p, line): (usize, Line)| {
                let all = &all;
                scope.spawn(move || {
                    let settings = Settings { returns, ..Settings::new(2, vec![p], [9; 32], 0, 7) };
                    let mut node = Node::new(Box::new(line), settings, Arc::default(), |_| {});
                    node.meet().unwrap();
                    for round in 0..1000 {
                        node.begin(round);
                        let name = |sender| Name { round, kind: Kind::Round, sender, receiver: EVERYBODY };
                        node.post(name(p as u32), Bytes::from_static(b"12345678"), &[1 - p as u32], true);
                        node.said(round);
                        node.wait(&[name(1 - p as u32)], None).unwrap();
                        // A tenth of a second of work.
                        let until = node.now() + Duration::from_millis(100);
                        while node.now() < until {
                            node.pump(until - node.now());
                        }
                    }
                    all.wait();
                    node.kept_bytes() / 8
                })
            };
            let threads: Vec<_> = lines.into_iter().enumerate().map(live).collect();
            threads.into_iter().map(|t| t.join().unwrap()).max().unwrap()
        });
        assert!(kept <= most && kept + most >= 1000 * usize::from(returns), "{kept} messages");
    }
}
