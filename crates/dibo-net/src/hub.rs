//! Processes as threads of one program, with a clock that jumps when all of them wait: tests of the protocol
//! never sleep.
use crate::transport::{To, Transport};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Where the threads meet.
#[derive(Clone, Default)]
pub struct Hub(Arc<(Mutex<Inside>, Condvar)>);

#[derive(Default)]
struct Inside {
    now: Duration,
    queues: BTreeMap<u32, VecDeque<Bytes>>,
    /// For each process that waits, until when.
    waiting: BTreeMap<u32, Duration>,
    lines: u64,
    /// The line that speaks for each process: a process that starts again may have its new line before the
    /// old one is gone.
    newest: BTreeMap<u32, u64>,
}

impl Hub {
    /// The transport of the process with this lowest agent. The clock stands still until all processes that
    /// have a line wait.
    pub fn line(&self, process: u32) -> Line {
        let mut inside = self.inside();
        inside.queues.insert(process, VecDeque::new());
        inside.lines += 1;
        let number = inside.lines;
        inside.newest.insert(process, number);
        drop(inside);
        Line { hub: self.clone(), process, number }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.0.lock().expect("no thread panics with the lock")
    }
}

/// One process's transport. When it is dropped the process is gone: what is sent to it is lost.
pub struct Line {
    hub: Hub,
    process: u32,
    number: u64,
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Ok(mut inside) = self.hub.0.0.lock()
            && inside.newest.get(&self.process) == Some(&self.number)
        {
            inside.queues.remove(&self.process);
            inside.waiting.remove(&self.process);
            inside.jump();
        }
        self.hub.0.1.notify_all();
    }
}

impl Inside {
    /// If everybody waits, it is as late as the first of them is ready to be told so.
    fn jump(&mut self) {
        if !self.queues.is_empty()
            && self.waiting.len() == self.queues.len()
            && self.queues.values().all(VecDeque::is_empty)
        {
            self.now = self.now.max(self.waiting.values().min().copied().unwrap_or_default());
        }
    }
}

impl Transport for Line {
    fn send(&mut self, to: To, head: &[u8], body: &Bytes) {
        let packet = Bytes::from([head, body].concat());
        let mut inside = self.hub.inside();
        match to {
            To::Process(to) => inside.queues.entry(to).and_modify(|q| q.push_back(packet)),
            To::All => {
                inside
                    .queues
                    .iter_mut()
                    .filter(|(p, _)| **p != self.process)
                    .for_each(|(_, q)| q.push_back(packet.clone()));
                return self.hub.0.1.notify_all();
            }
        };
        self.hub.0.1.notify_all();
    }

    fn receive(&mut self, wait: Duration) -> Option<Bytes> {
        let mut inside = self.hub.inside();
        let until = inside.now + wait;
        loop {
            if let Some(packet) = inside.queues.get_mut(&self.process).and_then(VecDeque::pop_front) {
                inside.waiting.remove(&self.process);
                return Some(packet);
            }
            if inside.now >= until {
                inside.waiting.remove(&self.process);
                return None;
            }
            inside.waiting.insert(self.process, until);
            let before = inside.now;
            inside.jump();
            if inside.now > before {
                self.hub.0.1.notify_all();
            } else {
                inside = self.hub.0.1.wait(inside).expect("no thread panics with the lock");
            }
        }
    }

    fn now(&self) -> Duration {
        self.hub.inside().now
    }
}
