//! What a process knows of another one.
use crate::keys::Pair;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// Nothing is asked for again earlier than this, nor later.
pub(super) const SOON: Duration = Duration::from_millis(2);
pub(super) const LATE: Duration = Duration::from_secs(1);

/// A greeting: who is there, what it runs, how far it is and whom it waits for.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Hello {
    pub digest: [u8; 32],
    pub parts: Vec<(String, u64)>,
    pub version: String,
    pub owned: Vec<u32>,
    /// Earlier lives of this process that are certainly over: it holds the lock of their folder.
    pub after: Vec<u64>,
    pub round: u64,
    pub posted: u64,
    pub safe: u64,
    pub done: bool,
    /// It knows that all are done, and leaves.
    pub leaves: bool,
    /// Processes that it waits for; none while it computes.
    pub waits: Vec<u32>,
    /// The newest part of the graphs that it has used, and their digest: see [`super::Node::graphs`].
    pub graphs: Option<(u64, u64)>,
    /// The life of the one who is greeted that it knows; 0 if it knows none.
    pub known: u64,
    /// The newest packet that it has from the one who is greeted.
    pub newest: u64,
    /// The sender wants to be greeted back, with this time of its clock.
    pub answer: Option<Duration>,
    /// Such a time, from the one who is greeted.
    pub asked: Option<Duration>,
}

/// Numbers of packets that have come: none is taken twice.
pub(super) struct Window {
    pub newest: u64,
    bits: [u64; Window::WORDS],
}

impl Default for Window {
    fn default() -> Self {
        Window { newest: 0, bits: [0; Window::WORDS] }
    }
}

impl Window {
    const WORDS: usize = 32;
    /// How far back a packet may come late.
    pub const WIDTH: u64 = 64 * Window::WORDS as u64;

    fn bit(number: u64) -> (usize, u64) {
        ((number % Window::WIDTH / 64) as usize, 1 << (number % 64))
    }

    /// Whether a packet of this number may be new.
    pub fn is_new(&self, number: u64) -> bool {
        let (word, bit) = Window::bit(number);
        number > self.newest || (self.newest - number < Window::WIDTH && self.bits[word] & bit == 0)
    }

    /// Enters a packet that is genuine.
    pub fn enter(&mut self, number: u64) {
        let gone = number.saturating_sub(self.newest).min(Window::WIDTH);
        for old in number + 1 - gone.max(1)..=number {
            let (word, bit) = Window::bit(old);
            self.bits[word] &= !bit;
        }
        let (word, bit) = Window::bit(number);
        self.bits[word] |= bit;
        self.newest = self.newest.max(number);
    }
}

/// Another process.
pub(super) struct Peer {
    pub owned: Vec<usize>,
    /// The life that holds these agents.
    pub incarnation: u64,
    /// Lives that held them before: they never do again.
    pub former: BTreeSet<u64>,
    /// It has shown that it knows this life of this process, and holds the key of its greeting if there are
    /// keys.
    pub proven: bool,
    /// When it was last heard.
    pub heard: Duration,
    /// Its connection has closed, and nothing has come of it since.
    pub closed: bool,
    /// The round it is in.
    pub round: u64,
    /// Its messages of rounds before this one have left.
    pub posted: u64,
    /// When it last came further, or back.
    pub moved: Duration,
    /// It will never ask for rounds before this one: the older of its checkpoints.
    pub safe: u64,
    pub done: bool,
    pub leaves: bool,
    /// Processes that it waits for; none while it computes.
    pub waits: Vec<u32>,
    /// How long it takes to answer: a smoothed mean.
    pub answers: Duration,
    /// How long after this process has begun a round its messages come: a smoothed mean, and the mean
    /// distance from it.
    pub lag: Duration,
    pub spread: Duration,
    /// Packets to it so far.
    pub sent: u64,
    /// Packets from it.
    pub window: Window,
    /// Bytes of its messages that wait for their round.
    pub waiting: usize,
    /// It has heard that this process stops.
    pub heard_stop: bool,
    /// When somebody was last told that this one holds the agents.
    pub told: Option<Duration>,
    pub pair: Option<Pair>,
}

impl Peer {
    /// A process as its first greeting shows it. Nothing is known about its answers yet: half of `retry` is
    /// taken.
    pub fn new(hello: &Hello, incarnation: u64, owned: Vec<usize>, now: Duration, retry: Duration) -> Self {
        Peer {
            owned,
            incarnation,
            former: BTreeSet::new(),
            proven: false,
            heard: now,
            closed: false,
            round: hello.round,
            posted: hello.posted,
            moved: now,
            safe: hello.safe,
            done: hello.done,
            leaves: hello.leaves,
            waits: hello.waits.clone(),
            answers: retry / 2,
            lag: Duration::ZERO,
            spread: retry / 4,
            sent: 0,
            window: Window::default(),
            waiting: 0,
            heard_stop: false,
            told: None,
            pair: None,
        }
    }

    /// A further greeting of the same life.
    pub fn greets_again(&mut self, hello: &Hello, now: Duration) {
        if hello.round > self.round {
            (self.round, self.moved) = (hello.round, now);
        }
        if hello.waits != self.waits {
            // A wait begins, ends or becomes shorter when something has come: that is progress too.
            self.moved = now;
        }
        self.waits.clone_from(&hello.waits);
        self.safe = self.safe.max(hello.safe);
        self.done |= hello.done;
        self.leaves |= hello.leaves;
        self.has_posted(hello.posted, now);
        if let Some(took) = hello.asked.and_then(|asked| now.checked_sub(asked)) {
            // Down fast, up slowly: a few slow answers, while all were starting or one was held up, are soon
            // forgotten.
            self.answers =
                if took < self.answers { (self.answers + took) / 2 } else { (7 * self.answers + took) / 8 };
        }
    }

    /// It says, or shows, that its messages of rounds before this one have left.
    pub fn has_posted(&mut self, before: u64, now: Duration) {
        if before > self.posted {
            (self.posted, self.moved) = (before, now);
        }
    }

    /// A message of it came so long after this process had begun the round.
    pub fn came(&mut self, after: Duration) {
        self.spread = (3 * self.spread + self.lag.abs_diff(after)) / 4;
        self.lag = (7 * self.lag + after) / 8;
    }

    /// After this time an answer is late. To ask once too often costs little, so this is less careful than
    /// TCP.
    pub fn late(&self) -> Duration {
        (2 * self.answers).clamp(SOON, LATE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_packet_is_new_twice() {
        let mut window = Window::default();
        for number in [1, 3, 2, 2000, 1999, 5000, 5000 - Window::WIDTH + 1] {
            assert!(window.is_new(number), "{number}");
            window.enter(number);
            assert!(!window.is_new(number), "{number}");
        }
        // Too old to be told from one that has come.
        assert!(!window.is_new(5000 - Window::WIDTH) && !window.is_new(1));
        assert!(window.is_new(4999) && window.is_new(5001));
        window.enter(1 << 40);
        assert!(!window.is_new(5001) && window.is_new((1 << 40) - 1));
    }
}
