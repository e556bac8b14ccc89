//! What comes in: who may say what, what is kept of it, and what is answered.
use super::peer::{Hello, Peer};
use super::{
    AHEAD, ASKED_AT_ONCE, FOLLOWING, GREETING, Incoming, Kept, LEASE, Need, Node, PART_ROUNDS, agents,
    seconds,
};
use crate::keys::{self, Card};
use crate::packet::{self, EVERYBODY, HEADER, Kind, Name, Packet, Refusal, Secured};
use crate::transport::To;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::time::Duration;
use xxhash_rust::xxh3::Xxh3;

/// Somebody else runs these agents.
#[derive(Serialize, Deserialize)]
pub(super) struct Taken {
    /// The life that is refused.
    refused: u64,
    /// How long ago the one that holds the agents was heard.
    heard: Duration,
}

/// Messages up to this length are sent again without second thoughts.
const SHORT: usize = 16 << 10;
/// Lives of a process that are remembered as over.
const FORMER: usize = 1000;

fn fingerprint<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut hash = Xxh3::new();
    parts.into_iter().for_each(|p| hash.update(p));
    hash.digest()
}

impl Node {
    pub(super) fn refuse(&mut self, why: Refusal, length: usize) {
        let count = self.counts.refused.entry(format!("{why:?}")).or_default();
        *count += 1;
        let count = *count;
        if why == Refusal::Replayed {
            self.counts.duplicates += 1;
        }
        let quiet = matches!(why, Refusal::TooEarly | Refusal::Replayed);
        // The first, the tenth, the hundredth …: a flood of packets is no flood of lines.
        if count.ilog10() != (count - 1).checked_ilog10().unwrap_or(99) && !quiet {
            (self.log)(&format!("dropped a packet of {length} bytes: {why:?} ({count} so far)"));
        }
    }

    pub(super) fn take(&mut self, bytes: Bytes) -> Result<(), Refusal> {
        let packet = packet::read(&bytes, self.settings.limit)?;
        if (packet.secured == Secured::Open) != self.settings.identity.is_none() {
            return Err(Refusal::Forged);
        }
        if packet.from.counter == 0 {
            return self.take_word(&packet);
        }
        if packet.run.digest != self.run.digest {
            return Err(Refusal::WrongRun);
        }
        let from =
            self.owner.get(packet.name.sender as usize).copied().flatten().ok_or(Refusal::UnknownAgent)?;
        let now = self.line.now();
        let peer = self.peers.get_mut(&from).ok_or(Refusal::UnknownAgent)?;
        if packet.run.job != self.run.job {
            return Ok(());
        }
        if packet.from.incarnation != peer.incarnation {
            if peer.former.contains(&packet.from.incarnation) {
                self.tell_taken(from, packet.from.incarnation);
            } else if peer.told.is_none_or(|t| now.saturating_sub(t) >= GREETING / 10) {
                // A life that is not known, or no longer: it is to greet, to be let in if it may.
                peer.told = Some(now);
                self.introduce(from, None);
            }
            return Err(Refusal::Former);
        }
        if !peer.window.is_new(packet.from.counter) {
            return Err(Refusal::Replayed);
        }
        let packet = packet.without_bytes();
        let body = match packet.secured {
            Secured::Open => bytes.slice(HEADER..),
            Secured::Signed => return Err(Refusal::Forged),
            Secured::Sealed => {
                let pair = peer.pair.as_ref().ok_or(Refusal::Forged)?;
                pair.open(packet.from, bytes).ok_or(Refusal::Forged)?
            }
        };
        peer.window.enter(packet.from.counter);
        (peer.heard, peer.closed) = (now, false);
        peer.proven |= packet.secured == Secured::Sealed;
        self.hear(from, &packet, body)
    }

    /// Takes a genuine packet of a known process.
    fn hear(&mut self, from: u32, packet: &Packet<'_>, body: Bytes) -> Result<(), Refusal> {
        let (name, now) = (packet.name, self.line.now());
        let peer = self.peers.get_mut(&from).ok_or(Refusal::UnknownAgent)?;
        match name.kind {
            Kind::Hello => {
                let hello: Hello = postcard::from_bytes(&body).map_err(|_| Refusal::Nonsense)?;
                peer.greets_again(&hello, now);
                peer.proven |= hello.known == self.settings.incarnation;
                self.compare_graphs(from, &hello);
                self.forget();
                if let Some(asked) = hello.answer {
                    self.greet(To::Process(from), None, Some(asked));
                }
                Ok(())
            }
            Kind::Need => self.answer(from, &body),
            Kind::Lack => self.lacks(from, &body),
            Kind::Stop => {
                let why = String::from_utf8_lossy(&body);
                let why = why.chars().filter(|c| !c.is_control()).take(1000).collect::<String>();
                // It knows why, and leaves: it need not be told in turn.
                peer.heard_stop = true;
                // One that has finished needs nothing of this process, and this one nothing of it.
                if !(self.done && peer.done) && self.failure.is_none() {
                    (self.failure, self.second_hand) = (Some(why), true);
                }
                self.send(from, self.word(Kind::Heard), &Bytes::new(), &[]);
                Ok(())
            }
            Kind::Heard => {
                peer.heard_stop = true;
                Ok(())
            }
            Kind::Values if packet.part == 0 && packet.total == body.len() => {
                self.take_values(from, name.round, body)
            }
            Kind::Round => {
                // Those of a process go out together; that one has come says that all before it have left.
                peer.has_posted(name.round, now);
                match name.round.cmp(&self.round) {
                    Ordering::Less => {}
                    // Before its first round this process has no clock to compare with.
                    Ordering::Equal => {
                        self.begun.iter().for_each(|begun| peer.came(now.saturating_sub(*begun)));
                    }
                    Ordering::Greater => peer.came(Duration::ZERO),
                }
                self.store(from, packet, body)
            }
            Kind::Views => self.store(from, packet, body),
            Kind::Letters if packet.total == body.len() => self.take_letters(from, &body),
            _ => Err(Refusal::Malformed),
        }
    }

    /// Whether another process has used the same graphs as this one.
    fn compare_graphs(&mut self, from: u32, hello: &Hello) {
        let Some((part, digest)) = hello.graphs else { return };
        if self.graphs.get(&part).is_none_or(|ours| *ours == digest) || self.failure.is_some() {
            return;
        }
        let first = part * PART_ROUNDS;
        self.failure = Some(format!(
            "the graphs of rounds {first} to {} are not those of {}: give all processes the same graphs",
            first + PART_ROUNDS - 1,
            agents(self.peers[&from].owned.iter().copied()),
        ));
    }

    /// Metrics come from the process of agent 0, or from any other that had them from there.
    fn take_values(&mut self, from: u32, k: u64, body: Bytes) -> Result<(), Refusal> {
        match self.values.get(&k) {
            None => self.learn(k, body),
            Some(known) if *known == body => self.counts.duplicates += 1,
            Some(_) => {
                let who = agents(self.peers[&from].owned.iter().copied());
                self.alarm(format!("{who} tells other metrics of iteration {k} than are known"));
            }
        }
        Ok(())
    }

    /// Something that only a forger, or an ill machine, can have done.
    fn alarm(&mut self, what: String) {
        (self.log)(&format!("alarm: {what}"));
        if self.failure.is_none() {
            self.failure = Some(format!(
                "{what}: a process computes other bits than before (another kind of CPU?), or somebody else \
                speaks for it; the run stops"
            ));
        }
    }

    fn store(&mut self, from: u32, packet: &Packet<'_>, body: Bytes) -> Result<(), Refusal> {
        let (name, now) = (packet.name, self.line.now());
        if name.receiver != EVERYBODY && self.owner.get(name.receiver as usize) != Some(&Some(self.me())) {
            return Err(Refusal::UnknownAgent);
        }
        let past = match name.kind {
            Kind::Views => self.values.contains_key(&name.round),
            _ => name.round < self.round,
        };
        if past {
            self.counts.duplicates += 1;
            let whole = packet.total == body.len();
            if whole && self.seen.get(&name).is_some_and(|f| *f != fingerprint([&*body])) {
                self.alarm(format!(
                    "two different messages of agent {} in round {}",
                    name.sender, name.round
                ));
            }
            return Ok(());
        }
        if !self.inbox.contains_key(&name) {
            self.make_space(from, &name, packet.total)?;
            let count = packet::parts(packet.total);
            let (parts, missing) = (vec![Bytes::new(); count as usize], (0..count).collect());
            let gap = Duration::ZERO;
            self.inbox.insert(name, Incoming { parts, total: packet.total, missing, last: now, gap, from });
        }
        let message = self.inbox.get_mut(&name).expect("inserted above");
        let differs = message.total != packet.total
            || !message.missing.contains(&packet.part) && message.parts[packet.part as usize] != body;
        if differs {
            self.alarm(format!("two different messages of agent {} in round {}", name.sender, name.round));
            return Err(Refusal::Nonsense);
        }
        if !message.missing.remove(&packet.part) {
            self.counts.duplicates += 1;
            return Ok(());
        }
        message.parts[packet.part as usize] = body;
        message.gap = message.gap.max(now - message.last);
        message.last = now;
        self.peers.entry(from).and_modify(|p| p.moved = now);
        if message.missing.is_empty() && name.kind == Kind::Round {
            let print = fingerprint(message.parts.iter().map(|p| &**p));
            self.seen.insert(name, print);
        }
        Ok(())
    }

    /// Whether a message may wait for its round: only so many rounds and bytes of each process.
    fn make_space(&mut self, from: u32, name: &Name, total: usize) -> Result<(), Refusal> {
        if name.round > self.round + AHEAD {
            return Err(Refusal::TooEarly);
        }
        let mut others = self.inbox.iter().filter(|(_, m)| m.from == from);
        let early = match name.kind {
            // A process shows one state at a time.
            Kind::Views => others.any(|(n, _)| n.kind == Kind::Views && n.sender == name.sender),
            _ => name.round > self.round && self.peers[&from].waiting + total > self.settings.buffer,
        };
        if early {
            return Err(Refusal::TooEarly);
        }
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.waiting += total;
        }
        Ok(())
    }

    /// Sends again what a process asks for, as far as it is there and not still under way, and greets it.
    /// What is not there and never will be is said at once.
    fn answer(&mut self, from: u32, body: &[u8]) -> Result<(), Refusal> {
        let Need { asked, posted, later, newest, names } =
            postcard::from_bytes(body).map_err(|_| Refusal::Nonsense)?;
        if names.len() > ASKED_AT_ONCE || names.iter().any(|n| n.1.len() > 64) {
            return Err(Refusal::Nonsense);
        }
        let now = self.line.now();
        self.peers.get_mut(&from).ok_or(Refusal::UnknownAgent)?.has_posted(posted, now);
        let mut lacking = Vec::new();
        for (name, parts) in &names {
            let known = matches!(name.kind, Kind::Views | Kind::Values)
                .then(|| self.values.get(&name.round).cloned())
                .flatten();
            if let Some(values) = known {
                let name = Name { kind: Kind::Values, sender: self.me(), ..*name };
                self.counts.overhead += values.len() as u64;
                self.send(from, name, &values, &[]);
                continue;
            }
            match self.kept.get(name).and_then(|k| k.to.iter().find(|t| t.0 == from)) {
                // Nothing that was sent later has come, so neither could this have. A short one costs little.
                Some((_, last)) if *last > newest && self.kept[name].body.len() > SHORT => {}
                Some(_) => self.again(from, *name, parts),
                // This process has said it and no longer has it: it never will.
                None if name.kind == Kind::Round && name.round < self.posted => lacking.push(*name),
                None => {}
            }
        }
        if !lacking.is_empty() {
            let body = postcard::to_stdvec(&(lacking, &self.origin)).expect("names can be written");
            self.counts.overhead += body.len() as u64;
            self.send(from, self.word(Kind::Lack), &Bytes::from(body), &[]);
        }
        if let Some(last) = names.iter().map(|n| n.0).filter(|_| later).max() {
            self.follow(from, last.round.saturating_add(1), newest);
        }
        self.greet(To::Process(from), None, Some(asked));
        Ok(())
    }

    /// Sends some of the messages from this round on, for one who catches up.
    fn follow(&mut self, from: u32, round: u64, newest: u64) {
        let next = Name { round, kind: Kind::Hello, sender: 0, receiver: 0 };
        let theirs = |k: &Kept| k.to.iter().any(|(p, last)| *p == from && *last <= newest);
        let mut bytes = 0;
        let some: Vec<Name> = self
            .kept
            .range(next..)
            .filter(|(n, k)| n.kind == Kind::Round && theirs(k))
            .take_while(|(_, kept)| {
                bytes += kept.body.len();
                bytes <= FOLLOWING.0
            })
            .take(FOLLOWING.1)
            .map(|(n, _)| *n)
            .collect();
        some.into_iter().for_each(|name| self.again(from, name, &[]));
    }

    fn again(&mut self, to: u32, name: Name, parts: &[u32]) {
        let Some(body) = self.kept.get(&name).map(|k| k.body.clone()) else { return };
        let bytes = if parts.is_empty() { body.len() } else { (parts.len() * packet::PART).min(body.len()) };
        self.counts.again += bytes as u64;
        self.counts.resent += 1;
        let last = self.send(to, name, &body, parts);
        let sent = self.kept.get_mut(&name).and_then(|k| k.to.iter_mut().find(|t| t.0 == to));
        sent.into_iter().for_each(|t| t.1 = last);
    }

    /// A process no longer has what this one needs: one of the two has lost its checkpoints.
    fn lacks(&mut self, from: u32, body: &[u8]) -> Result<(), Refusal> {
        let (names, origin): (Vec<Name>, String) =
            postcard::from_bytes(body).map_err(|_| Refusal::Nonsense)?;
        let Some(name) = names.into_iter().find(|n| {
            n.kind == Kind::Round && n.round >= self.round && self.owner(n.sender as usize) == from
        }) else {
            return Ok(());
        };
        if self.failure.is_none() && !self.has(&name) {
            let clean: String = origin.chars().filter(|c| !c.is_control()).take(300).collect();
            let theirs = if clean.is_empty() { clean } else { format!(" (there: {clean})") };
            if !self.settings.returns {
                self.failure = Some(format!(
                    "{} began anew, but keeps no checkpoints: {} no longer has its messages of round {}; \
                    start all processes again",
                    agents(self.settings.owned.iter().copied()),
                    agents([name.sender as usize]),
                    name.round
                ));
                return Ok(());
            }
            let ours =
                if self.origin.is_empty() { String::new() } else { format!(" (here: {})", self.origin) };
            self.failure = Some(format!(
                "{} no longer has the message of round {} that {} needs to go on from round {}: a checkpoint \
                is lost{ours}{theirs}; put it back, or begin anew: remove the folders `agents` of all",
                agents([name.sender as usize]),
                name.round,
                agents(self.settings.owned.iter().copied()),
                self.round,
            ));
        }
        Ok(())
    }

    /// Takes something that was said to everybody, or before there was a key: a greeting, or a refusal.
    fn take_word(&mut self, packet: &Packet<'_>) -> Result<(), Refusal> {
        let card: Option<Card> = match packet.secured {
            Secured::Sealed => return Err(Refusal::Forged),
            Secured::Signed => Some(postcard::from_bytes(packet.body).map_err(|_| Refusal::Nonsense)?),
            Secured::Open => None,
        };
        let said = card.as_ref().map_or(packet.body, |c| &c.said);
        match packet.name.kind {
            Kind::Hello => {
                let hello: Hello = postcard::from_bytes(said).map_err(|_| Refusal::Nonsense)?;
                self.hello(packet, &hello, card.as_ref())
            }
            Kind::Taken => {
                let taken: Taken = postcard::from_bytes(said).map_err(|_| Refusal::Nonsense)?;
                self.is_taken(packet, &taken, card.as_ref())
            }
            _ => Err(Refusal::Malformed),
        }
    }

    /// Checks the signature of a word, where there must be one.
    fn check_card(
        &mut self,
        packet: &Packet<'_>,
        card: Option<&Card>,
        owned: &[usize],
    ) -> Result<(), Refusal> {
        let (Some(identity), Some(card)) = (&self.settings.identity, card) else { return Ok(()) };
        // Signatures cost time: so many a second, and the rest is said again anyway.
        let now = self.line.now();
        if now.saturating_sub(self.cards.0) >= GREETING {
            self.cards = (now, 0);
        }
        self.cards.1 += 1;
        if self.cards.1 as usize > 100 + 4 * self.settings.agents {
            return Err(Refusal::TooEarly);
        }
        let mut bare = packet.head.to_vec();
        bare[44..60].fill(0);
        keys::check(&**identity, card, &bare, owned)
    }

    /// Takes a greeting of somebody who may be new: who is there, and whether it lives a new life.
    fn hello(&mut self, packet: &Packet<'_>, hello: &Hello, card: Option<&Card>) -> Result<(), Refusal> {
        let owned: Vec<usize> = hello.owned.iter().map(|i| *i as usize).collect();
        let (incarnation, now) = (packet.from.incarnation, self.line.now());
        if owned.is_empty()
            || owned.len() > self.settings.agents
            || hello.after.len() > FORMER
            || !owned.is_sorted_by(|a, b| a < b)
            || packet.name.sender != hello.owned[0]
        {
            return Err(Refusal::Nonsense);
        }
        if incarnation == self.settings.incarnation && owned == self.settings.owned {
            return Ok(());
        }
        let name = hello.owned[0];
        let same_job = packet.run.job == self.run.job;
        if let Some(peer) = self.peers.get_mut(&name)
            && peer.incarnation == incarnation
            && peer.owned == owned
            && same_job
        {
            if card.is_none() {
                (peer.heard, peer.closed) = (now, false);
                peer.greets_again(hello, now);
                peer.proven |= hello.known == self.settings.incarnation;
                self.forget();
            }
            // What it says is believed when it comes by its key; that it may not have ours is believed here.
            let due = |p: &&mut Peer| p.told.is_none_or(|t| now.saturating_sub(t) >= GREETING / 10);
            if hello.answer.is_some()
                && let Some(peer) = self.peers.get_mut(&name).filter(due)
            {
                peer.told = Some(now);
                // One that names this life, and has shown its key, needs no introduction: a word by that key
                // costs neither side a signature and asks for nothing. Where answers take long, two that
                // introduce themselves to each other again and again would never end, and many such pairs
                // hold up all.
                let known = hello.known != 0 && hello.known == self.settings.incarnation;
                match peer.proven && known {
                    true => self.greet(To::Process(name), None, hello.answer),
                    false => self.introduce(name, hello.answer),
                }
            }
            return Ok(());
        }
        self.check_card(packet, card, &owned)?;
        self.check_hello(hello, &owned)?;
        if owned == self.settings.owned {
            self.twin(name, incarnation);
            return Err(Refusal::Former);
        }
        if !same_job && packet.run.job < self.run.job {
            // One that is behind in the experiment is alive, and needs nothing of this part of it.
            return Ok(());
        }
        self.admit(name, incarnation, owned, hello, card)?;
        if !same_job {
            // One that is further in the experiment has done this part.
            if let Some(peer) = self.peers.get_mut(&name) {
                (peer.done, peer.leaves, peer.proven) = (true, true, true);
            }
            return Ok(());
        }
        self.forget();
        self.introduce(name, hello.answer);
        Ok(())
    }

    /// Another process claims the very same agents. Once this one has met the others, the newcomer is the one
    /// to stop. Before that the one with fewer lives behind it does, which both see alike.
    fn twin(&mut self, name: u32, incarnation: u64) {
        if self.met {
            self.tell_taken(name, incarnation);
        } else if incarnation > self.settings.incarnation && self.failure.is_none() {
            self.failure = Some(format!(
                "another process runs {}: it was started at the same time; this one stops",
                agents(self.settings.owned.iter().copied())
            ));
            self.told = true;
        }
    }

    /// Whether a greeting is of this experiment; before all have met, one of another experiment is trouble.
    fn check_hello(&mut self, hello: &Hello, owned: &[usize]) -> Result<(), Refusal> {
        if hello.digest != self.settings.digest {
            let hex = |d: &[u8; 32]| d[..4].iter().map(|b| format!("{b:02x}")).collect::<String>();
            if !self.met && self.failure.is_none() {
                let others =
                    |part: &&(String, u64)| hello.parts.iter().any(|p| p.0 == part.0 && p.1 != part.1);
                let differ: Vec<&str> =
                    self.settings.parts.iter().filter(others).map(|p| p.0.as_str()).collect();
                let differ =
                    if differ.is_empty() { String::new() } else { format!(" in {}", differ.join(", ")) };
                self.failure = Some(format!(
                    "another experiment at {}: it differs{differ}: digest {} (dibo {}), here {} (dibo {}); \
                    give all processes the same file, --set, seeds, options and version",
                    agents(owned.iter().copied().take(20)),
                    hex(&hello.digest),
                    hello.version.chars().filter(|c| !c.is_control()).take(20).collect::<String>(),
                    hex(&self.settings.digest),
                    env!("CARGO_PKG_VERSION")
                ));
            }
            return Err(Refusal::WrongRun);
        }
        if owned.iter().any(|i| *i >= self.settings.agents) {
            return Err(Refusal::UnknownAgent);
        }
        Ok(())
    }

    /// Lets a life of a process have its agents, unless another life or another process holds them.
    fn admit(
        &mut self,
        name: u32,
        incarnation: u64,
        owned: Vec<usize>,
        hello: &Hello,
        card: Option<&Card>,
    ) -> Result<(), Refusal> {
        self.claim(name, &owned)?;
        let now = self.line.now();
        let pair = match (&self.secret, card) {
            (Some(secret), Some(card)) => {
                let run = [&self.settings.digest[..], &self.run.job.to_le_bytes()].concat();
                Some(secret.pair(card.key, &run).ok_or(Refusal::Forged)?)
            }
            _ => None,
        };
        let mut new = Peer::new(hello, incarnation, owned, now, self.settings.retry);
        new.pair = pair;
        new.proven = card.is_none() && hello.known == self.settings.incarnation;
        let Some(old) = self.peers.get_mut(&name) else {
            self.peers.insert(name, new);
            return Ok(());
        };
        if old.incarnation == incarnation {
            // The same life, in another part of the experiment.
            return Ok(());
        }
        let silent = now.saturating_sub(old.heard);
        let over = hello.after.contains(&old.incarnation) || !old.proven || silent > LEASE;
        if old.former.contains(&incarnation) || !over {
            self.tell_taken(name, incarnation);
            return Err(Refusal::Former);
        }
        new.former = std::mem::take(&mut old.former);
        // One that never was let in by this process as well may still be.
        if old.proven {
            new.former.insert(old.incarnation);
        }
        if new.former.len() > FORMER {
            new.former.pop_first();
        }
        // Messages before this round are no longer there, whatever the new life says.
        new.safe = new.safe.max(old.safe);
        new.waiting = old.waiting;
        let (back, round) = (old.proven, new.round);
        *old = new;
        self.letters.forget(name);
        for kept in self.kept.values_mut() {
            kept.to.iter_mut().filter(|t| t.0 == name).for_each(|t| t.1 = 0);
        }
        if back {
            let who = agents(hello.owned.iter().map(|i| *i as usize));
            (self.log)(&format!("{who} came back in round {round}"));
        }
        Ok(())
    }

    /// Tells a life of a process that another one holds its agents; not more often than it greets.
    fn tell_taken(&mut self, name: u32, refused: u64) {
        let now = self.line.now();
        let mut heard = Duration::ZERO;
        if let Some(peer) = self.peers.get_mut(&name) {
            if peer.told.is_some_and(|t| now.saturating_sub(t) < GREETING / 10) {
                return;
            }
            peer.told = Some(now);
            heard = now.saturating_sub(peer.heard);
        }
        let said = postcard::to_stdvec(&Taken { refused, heard }).expect("numbers can be written");
        self.say(To::Process(name), Kind::Taken, said);
    }

    /// Somebody says that another process runs this one's agents. If that is so for longer than a process
    /// that is gone is remembered, this one stops.
    fn is_taken(&mut self, packet: &Packet<'_>, taken: &Taken, card: Option<&Card>) -> Result<(), Refusal> {
        if taken.refused != self.settings.incarnation || packet.run.digest != self.run.digest {
            return Ok(());
        }
        self.check_card(packet, card, &[packet.name.sender as usize])?;
        let now = self.line.now();
        let since = *self.taken.get_or_insert(now);
        // The other one may be gone, and this one let in when that is sure.
        let there = taken.heard < 2 * GREETING;
        // Its own word that it runs them and has met the others is enough; of two that have, one must go on.
        let older = packet.from.incarnation > self.settings.incarnation;
        let itself = packet.name.sender == self.me() && (older || !self.met);
        let sure = itself || there && now.saturating_sub(since) > LEASE + GREETING;
        if sure && self.failure.is_none() {
            self.failure = Some(format!(
                "another process runs {}: it was heard {} ago by agent {}; this one, which came later or was \
                away, stops",
                agents(self.settings.owned.iter().copied()),
                seconds(taken.heard),
                packet.name.sender
            ));
            // The others hold with the other one, and need not be told.
            self.told = true;
        }
        Ok(())
    }

    /// Enters a process as the owner of its agents, unless another one, or another share, owns one of them.
    fn claim(&mut self, name: u32, owned: &[usize]) -> Result<(), Refusal> {
        let clash = owned.iter().find(|i| {
            self.owner[**i].is_some_and(|p| p != name || self.peers.get(&p).is_none_or(|p| p.owned != owned))
        });
        if let Some(agent) = clash {
            if !self.met && self.failure.is_none() {
                self.failure = Some(format!(
                    "agent {agent} is owned by two processes; give each agent to one of them (--own)"
                ));
            }
            return Err(Refusal::UnknownAgent);
        }
        owned.iter().for_each(|i| self.owner[*i] = Some(name));
        Ok(())
    }

    /// Forgets kept rounds that nobody can ask for any more.
    fn forget(&mut self) {
        let Self { kept, kept_bytes, peers, .. } = self;
        let least = peers.values().map(|p| p.safe).min().unwrap_or(u64::MAX);
        // Names are in the order of rounds, so the old ones come first.
        if kept.keys().next().is_none_or(|n| n.round >= least) {
            return;
        }
        kept.retain(|name, message| {
            let stays = name.kind != Kind::Round
                || message.to.iter().any(|(p, _)| peers.get(p).is_none_or(|p| p.safe <= name.round));
            if !stays {
                *kept_bytes -= message.body.len();
            }
            stays
        });
    }
}
