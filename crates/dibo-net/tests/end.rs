//! How many processes end together: in a few packets each, and also if those are lost.
use bytes::Bytes;
use dibo_net::hub::{Hub, Line};
use dibo_net::node::{Node, Settings};
use dibo_net::packet::Kind;
use dibo_net::transport::{To, Transport};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
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
