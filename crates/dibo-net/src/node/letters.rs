//! Greetings to everybody in a few packets. Each process gives the process of agent 0 its greetings, one for
//! each of the others and sealed for it alone; once it has those of all, it hands every process what is meant
//! for it: four packets a process tell all that all are done, and that all know it, where everybody greeting
//! everybody takes as many packets as there are pairs.
//!
//! The one that passes letters on can hold them back, as a router can, but not make, change or play any
//! again: they are packets like others. Who does not get its letters in time hears the others directly.
use super::Node;
use crate::packet::{HEADER, Kind, PART, Refusal};
use crate::transport::To;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Letters, and what they say: that their senders are done, or also that they leave.
#[derive(Serialize, Deserialize)]
struct Bag<'a> {
    leaves: bool,
    /// Each with the process that it is for.
    #[serde(borrow)]
    letters: Vec<(u32, &'a [u8])>,
}

/// Letters that wait to be passed on, by sender and receiver.
#[derive(Default)]
struct Pile {
    by: BTreeMap<u32, BTreeMap<u32, Bytes>>,
    /// They are passed on once: whatever comes later goes directly.
    passed: bool,
}

/// What the process of agent 0 has been given: letters that say done, and letters that say leaves.
#[derive(Default)]
pub(super) struct Letters([Pile; 2]);

impl Letters {
    /// A process lives a new life: it cannot open what was sealed for the old one, nor is it bound by what
    /// that one said.
    pub fn forget(&mut self, process: u32) {
        for pile in &mut self.0 {
            pile.by.remove(&process);
            pile.by.values_mut().for_each(|letters| drop(letters.remove(&process)));
        }
    }
}

impl Node {
    /// Tells all others how far this process is; by way of the process of agent 0 if there are several.
    pub(super) fn tell_all(&mut self) {
        if self.peers.len() < 2 {
            return self.greet_all();
        }
        let collector = self.gatherer();
        if collector == self.me() {
            return self.pass_on(self.leaves);
        }
        let names: Vec<u32> = self.peers.keys().copied().collect();
        let letters: Vec<(u32, Vec<u8>)> =
            names.into_iter().filter_map(|p| Some((p, self.letter(p)?))).collect();
        let letters = letters.iter().map(|(p, letter)| (*p, letter.as_slice())).collect();
        if !self.send_bag(collector, letters) {
            self.greet_all();
        }
    }

    /// A greeting that somebody else is to deliver.
    fn letter(&mut self, to: u32) -> Option<Vec<u8>> {
        let body = Bytes::from(self.greeting(To::Process(to), None, None));
        let (header, body) = self.pack(to, self.word(Kind::Hello), body.len(), 0, body)?;
        Some([&header[..], &body].concat())
    }

    /// Sends letters in one packet; false if they are too many for one.
    fn send_bag(&mut self, to: u32, letters: Vec<(u32, &[u8])>) -> bool {
        let bag = Bag { leaves: self.leaves, letters };
        let body = Bytes::from(postcard::to_stdvec(&bag).expect("bytes can be written"));
        let fits = body.len() <= PART;
        if fits {
            self.counts.overhead += body.len() as u64;
            self.send(to, self.word(Kind::Letters), &body, &[]);
        }
        fits
    }

    /// Takes letters for this process as if they had come by themselves, and keeps those that it is to pass
    /// on.
    pub(super) fn take_letters(&mut self, from: u32, body: &Bytes) -> Result<(), Refusal> {
        let Bag { leaves, letters } = postcard::from_bytes(body).map_err(|_| Refusal::Nonsense)?;
        let (me, collector) = (self.me(), self.gatherer());
        let collects = me == collector;
        if letters.len() > self.settings.agents || !collects && from != collector {
            return Err(Refusal::Nonsense);
        }
        let mut others = BTreeMap::new();
        for (to, letter) in letters {
            let bytes = body.slice_ref(letter);
            if to != me {
                others.insert(to, bytes);
            } else if letter.len() < HEADER || letter[5] != Kind::Hello as u8 {
                // Nothing else is said by letter, letters of letters least of all.
                return Err(Refusal::Nonsense);
            } else if let Err(why) = self.take(bytes) {
                self.refuse(why, letter.len());
            }
        }
        if collects {
            self.letters.0[usize::from(leaves)].by.insert(from, others);
            self.pass_on(leaves);
        }
        Ok(())
    }

    /// Hands all others their letters, once there are some of each of them and this process can say the same.
    fn pass_on(&mut self, leaves: bool) {
        let says = if leaves { self.leaves } else { self.done };
        let pile = &mut self.letters.0[usize::from(leaves)];
        if !says || pile.passed || !self.peers.keys().all(|p| pile.by.contains_key(p)) {
            return;
        }
        pile.passed = true;
        let by = std::mem::take(&mut pile.by);
        let names: Vec<u32> = self.peers.keys().copied().collect();
        for to in names {
            let own = self.letter(to);
            let theirs = by.values().filter_map(|letters| letters.get(&to)).map(|letter| &letter[..]);
            self.send_bag(to, own.iter().map(Vec::as_slice).chain(theirs).map(|l| (to, l)).collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::Hub;
    use crate::keys::{Identity, Named};
    use crate::node::Settings;
    use crate::packet::{self, EVERYBODY, From, Name, Secured};
    use std::sync::Arc;
    use std::time::Duration;

    /// A certificate for everything: here nobody lies about names.
    struct Anybody;

    impl Identity for Anybody {
        fn sign(&self, _: &[u8]) -> Vec<u8> {
            Vec::new()
        }
        fn verify(&self, _: &[u8], _: &[u8]) -> Result<Named, String> {
            Ok(vec![0..=9])
        }
    }

    /// Three processes that have met, with keys.
    fn three() -> [Node; 3] {
        let hub = Hub::default();
        let mut nodes = [0, 1, 2].map(|p| {
            let identity: Option<Arc<dyn Identity>> = Some(Arc::new(Anybody));
            let settings = Settings { identity, ..Settings::new(3, vec![p], [9; 32], 0, 7 + p as u64) };
            Node::new(Box::new(hub.line(p as u32)), settings, Arc::default(), |_| {})
        });
        nodes.iter_mut().for_each(Node::ask_greeting);
        (0..8).for_each(|_| nodes.iter_mut().for_each(|n| n.pump(Duration::ZERO)));
        assert!(nodes.iter().all(|n| n.strangers().is_none()));
        nodes
    }

    /// The process of agent 0 says that agent 1 is done: agent 2 believes it only in agent 1's own words,
    /// once, and takes no letters of anybody else.
    #[test]
    fn who_passes_letters_on_cannot_write_them() {
        let [mut zero, mut one, mut two] = three();
        let from = From { incarnation: 8, counter: 1000 };
        let name = Name { round: 0, kind: Kind::Hello, sender: 1, receiver: EVERYBODY };
        (zero.done, zero.leaves) = (true, true);
        let said = zero.greeting(To::Process(2), None, None);
        let head = packet::head(zero.run, from, name, Secured::Sealed, said.len(), 0, said.len());
        let (sealed, seal) = zero.peers[&2].pair.as_ref().unwrap().seal(from, &head, &said).unwrap();
        let forged = [&head[..], &seal, &sealed].concat();
        zero.send_bag(2, vec![(2, &forged)]);
        two.pump(Duration::ZERO);
        assert_eq!((two.counts.refused["Forged"], two.peers[&1].done), (1, false));

        one.done = true;
        let letter = one.letter(2).unwrap();
        one.send_bag(2, vec![(2, &letter)]);
        two.pump(Duration::ZERO);
        assert_eq!((two.counts.refused["Nonsense"], two.peers[&1].done), (1, false));
        for again in [0, 1] {
            zero.send_bag(2, vec![(2, &letter)]);
            two.pump(Duration::ZERO);
            assert!(two.peers[&1].done);
            assert_eq!(two.counts.refused.get("Replayed").copied().unwrap_or(0), again);
        }
    }

    /// Letters in letters, cut ones and those that are for nobody do nothing.
    #[test]
    fn nothing_but_greetings_goes_by_letter() {
        let [mut zero, mut one, _] = three();
        let stop = Bytes::from_static(b"stop");
        let (header, body) = one.pack(0, one.word(Kind::Stop), stop.len(), 0, stop).unwrap();
        let stop = [&header[..], &body].concat();
        for letters in [vec![(0, &stop[..])], vec![(0, &[1, 2, 3][..])], vec![(7, &b""[..]); 4]] {
            one.send_bag(0, letters);
            zero.pump(Duration::ZERO);
        }
        assert_eq!((zero.counts.refused["Nonsense"], zero.failure.clone()), (3, None));
        assert!(!zero.letters.0[0].passed);
    }
}
