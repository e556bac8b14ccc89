//! The seam between the protocol and what carries its bytes, and a layer that spoils what it carries.
use bytes::Bytes;
use dibo::rng::{Purpose, stream};
use rand::RngExt;
use std::collections::VecDeque;
use std::time::Duration;

/// Who is to get a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum To {
    /// Everybody who listens.
    All,
    /// The process whose lowest agent this is.
    Process(u32),
}

/// Carries packets between processes. It may lose, double, delay and reorder them; it may not change them.
pub trait Transport: Send {
    /// Sends `head` and `body` as one packet; does not wait for it to arrive.
    fn send(&mut self, to: To, head: &[u8], body: &Bytes);
    /// The next packet, waiting for it at most this long.
    fn receive(&mut self, wait: Duration) -> Option<Bytes>;
    /// Time since some beginning.
    fn now(&self) -> Duration;
    /// Processes whose connection has closed since this was last asked and is not back, as far as the carrier
    /// notices: hints, not proofs.
    fn closed(&mut self) -> Vec<u32> {
        Vec::new()
    }
}

impl<Tr: Transport + ?Sized> Transport for Box<Tr> {
    fn send(&mut self, to: To, head: &[u8], body: &Bytes) {
        (**self).send(to, head, body);
    }
    fn receive(&mut self, wait: Duration) -> Option<Bytes> {
        (**self).receive(wait)
    }
    fn now(&self) -> Duration {
        (**self).now()
    }
    fn closed(&mut self) -> Vec<u32> {
        (**self).closed()
    }
}

/// How packets are spoilt: the share of each fault.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Lost.
    pub drop: f64,
    /// Delivered twice.
    pub duplicate: f64,
    /// Held back while up to eight later ones overtake it, or for two milliseconds.
    pub delay: f64,
    /// Where the random numbers begin.
    pub seed: u64,
}

impl std::str::FromStr for Faults {
    type Err = String;

    /// `drop=0.2,duplicate=0.2,delay=0.2,seed=1`, any of them.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut faults = Faults::default();
        for part in text.split(',') {
            let wrong = || {
                format!(
                    "faults: '{part}' must be drop=, duplicate= or delay= with a share below 1, or seed= \
                    with a whole number"
                )
            };
            let (key, value) = part.split_once('=').ok_or_else(wrong)?;
            let share = || value.parse::<f64>().ok().filter(|s| (0.0..1.0).contains(s)).ok_or_else(wrong);
            match key.trim() {
                "drop" => faults.drop = share()?,
                "duplicate" => faults.duplicate = share()?,
                "delay" => faults.delay = share()?,
                "seed" => faults.seed = value.parse().map_err(|_| wrong())?,
                _ => return Err(wrong()),
            }
        }
        Ok(faults)
    }
}

/// A transport that spoils what it receives.
pub struct Faulty<Tr> {
    inner: Tr,
    faults: Faults,
    process: u64,
    count: u64,
    /// To be delivered when so many packets have come, or at this time.
    held: VecDeque<(u64, Duration, Bytes)>,
}

/// Longest time that a packet is held back.
const HELD: Duration = Duration::from_millis(2);

impl<Tr: Transport> Faulty<Tr> {
    /// Spoils what process `process` receives through `inner`.
    pub fn new(inner: Tr, faults: Faults, process: u32) -> Self {
        Faulty { inner, faults, process: process.into(), count: 0, held: VecDeque::new() }
    }
}

impl<Tr: Transport> Transport for Faulty<Tr> {
    fn send(&mut self, to: To, head: &[u8], body: &Bytes) {
        self.inner.send(to, head, body);
    }

    fn receive(&mut self, wait: Duration) -> Option<Bytes> {
        let until = self.now() + wait;
        loop {
            let now = self.now();
            if let Some(due) = self.held.iter().position(|h| h.0 <= self.count || h.1 <= now) {
                return self.held.remove(due).map(|h| h.2);
            }
            let next = self.held.front().map_or(until, |h| h.1.min(until));
            let Some(packet) = self.inner.receive(next.saturating_sub(now)) else {
                if next < until {
                    continue;
                }
                return None;
            };
            self.count += 1;
            let mut r = stream(self.faults.seed, Purpose::Loss, self.process << 32 | 0xfa, self.count);
            let [drop, duplicate, delay]: [f64; 3] = std::array::from_fn(|_| r.random());
            if drop < self.faults.drop {
                continue;
            }
            if duplicate < self.faults.duplicate {
                self.held.push_back((self.count + r.random_range(0..8u64), now + HELD, packet.clone()));
            }
            if delay < self.faults.delay {
                self.held.push_back((self.count + r.random_range(1..9u64), now + HELD, packet));
                continue;
            }
            return Some(packet);
        }
    }

    fn now(&self) -> Duration {
        self.inner.now()
    }

    fn closed(&mut self) -> Vec<u32> {
        self.inner.closed()
    }
}
