//! How a process ends: with the others, or alone and for a reason that the others hear.
use super::peer::Peer;
use super::{GREETING, LEASE, Node, STOPPING, agents};
use crate::packet::Kind;
use crate::transport::To;
use bytes::Bytes;
use std::time::Duration;

/// What a process that had finished finds when it is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejoined {
    /// Somebody needs its messages: it must run again.
    Needed,
    /// All others have finished too.
    AllDone,
    /// Not all others were heard: they may be gone, or yet to come.
    Alone,
}

impl Node {
    /// Stops this process for good, and tells the others why until they have heard it.
    pub fn give_up(&mut self, why: String) -> String {
        let why = self.failure.get_or_insert(why).clone();
        if std::mem::replace(&mut self.told, true) {
            return why;
        }
        let text = match self.second_hand {
            true => why.clone(),
            false => format!("{} stopped: {why}", agents(self.settings.owned.iter().copied())),
        };
        let text = Bytes::from(text.into_bytes());
        let until = self.line.now() + STOPPING;
        self.waits.0.clear();
        loop {
            let now = self.line.now();
            // Those who are gone themselves are not waited for.
            let there = |p: &Peer| !p.closed && now.saturating_sub(p.heard) < LEASE + GREETING;
            let is_unaware = |p: &Peer| !p.heard_stop && !p.leaves && there(p);
            let unaware: Vec<u32> =
                self.peers.iter().filter(|(_, p)| is_unaware(p)).map(|(name, _)| *name).collect();
            if unaware.is_empty() || now >= until {
                return why;
            }
            for process in unaware {
                self.send(process, self.word(Kind::Stop), &text, &[]);
            }
            let again = (now + GREETING / 5).min(until);
            while self.line.now() < again && self.peers.values().any(is_unaware) {
                let left = again.saturating_sub(self.line.now());
                self.pump(left);
            }
        }
    }

    /// Stays until all others are done too, since they may still ask for messages. If one of them stops or
    /// is gone before, what it may need must be kept.
    pub fn finish(&mut self) -> Result<(), String> {
        self.done = true;
        let began = self.line.now();
        // Everybody is greeted directly only if letters take long; soon enough that nobody takes this process
        // for gone.
        let pause = self.many() * (GREETING / 5);
        let (mut next, mut next_all, mut all_done) = (began + pause, began + self.many() * GREETING, None);
        self.next_hello = next + GREETING;
        self.tell_all();
        loop {
            self.check_stop()?;
            let now = self.line.now();
            if self.peers.values().all(|p| p.done) {
                if !std::mem::replace(&mut self.leaves, true) {
                    self.tell_all();
                    (all_done, next) = (Some(now), now + pause);
                }
                // Whoever has not heard that all are done would wait in vain for a while.
                let since = all_done.map_or(Duration::ZERO, |then| now.saturating_sub(then));
                if self.peers.values().all(|p| p.leaves) || since > LEASE {
                    // In case that it was lost; among many this would be what they wait for.
                    if self.many() == 1 {
                        (0..2).for_each(|_| self.greet_all());
                    }
                    return Ok(());
                }
            } else if let Some(why) = self.failure.clone() {
                return Err(self.give_up(why));
            }
            self.waits = (self.peers.iter().filter(|(_, p)| !p.done).map(|(n, _)| *n).collect(), began);
            let lost = self.waits.0.iter().find_map(|p| self.out_of_patience(*p, began, now));
            if let Some(why) = lost {
                return Err(self.give_up(why));
            }
            if now >= next {
                // Whoever leaves has heard enough; and who was started again does not know this process.
                // Who is waited for is to answer.
                let asked = |done: bool| (!done || self.leaves).then_some(now);
                let stay = self.peers.iter().filter(|(_, p)| !p.leaves).map(|(n, p)| (*n, asked(p.done)));
                let stay: Vec<(u32, Option<Duration>)> = stay.collect();
                stay.into_iter().for_each(|(p, answer)| self.greet(To::Process(p), answer, None));
                next = now + pause;
                self.next_hello = next + GREETING;
            }
            if now >= next_all {
                self.ask_greeting();
                next_all = now + self.many() * GREETING;
            }
            self.pump(next.saturating_sub(now));
        }
    }

    /// For a process that had finished and was started again: tells the others, and finds out whether
    /// somebody needs its messages.
    pub fn rejoin(&mut self) -> Rejoined {
        self.done = true;
        let began = self.line.now();
        let mut next = began;
        loop {
            let now = self.line.now();
            if self.peers.values().any(|p| p.proven && !p.done) {
                return Rejoined::Needed;
            }
            let everybody = self.strangers().is_none();
            self.leaves = everybody;
            let heard = self.peers.values().map(|p| p.heard).max().unwrap_or(began);
            let quiet = now.saturating_sub(heard.max(began)) > 3 * GREETING;
            if everybody && self.peers.values().all(|p| p.leaves) {
                (0..2).for_each(|_| self.greet_all());
                return Rejoined::AllDone;
            }
            // Several that have finished and miss the same one keep each other company only so long.
            let long = now.saturating_sub(began) > self.settings.patience.max(3 * GREETING);
            if quiet || long || self.check_stop().is_err() || self.failure.is_some() {
                return if everybody { Rejoined::AllDone } else { Rejoined::Alone };
            }
            if now >= next {
                self.ask_greeting();
                self.greet_all();
                next = now + GREETING / 4;
            }
            self.pump(next.saturating_sub(now));
        }
    }
}
