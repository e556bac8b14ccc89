//! The protocol of one process: who the others are, which messages have come, which are kept for those who may ask again.
//!
//! It knows time and packets only through its [`Transport`], so every rule here is tested without a socket.
use crate::packet::{self, EVERYBODY, Kind, Name, Packet, Refusal, Run};
use crate::transport::{To, Transport};
use bytes::Bytes;
use dibo::rows::Real;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// What a process knows before it meets the others.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Agents of the experiment.
    pub agents: usize,
    /// Those that this process runs, in order.
    pub owned: Vec<usize>,
    /// Digest of the experiment: file, settings, seeds, graph and version.
    pub digest: [u8; 32],
    /// Which setting and seed of the experiment.
    pub job: u32,
    /// Grows with every start of a process, so that the newest of several is known.
    pub incarnation: u64,
    /// After this time at the latest a message that has not come is asked for again; then after twice as long, up to two seconds.
    pub retry: Duration,
    /// After this time without any sign of an agent the others stop.
    pub patience: Duration,
    /// Longest message.
    pub limit: usize,
    /// Bytes of messages that may wait for their round.
    pub room: usize,
}

impl Settings {
    /// The usual times and sizes.
    pub fn new(agents: usize, owned: Vec<usize>, digest: [u8; 32], job: u32, incarnation: u64) -> Self {
        let (retry, patience) = (Duration::from_millis(250), Duration::from_secs(60));
        Settings { agents, owned, digest, job, incarnation, retry, patience, limit: 1 << 30, room: 2 << 30 }
    }
}

/// What went over the wire, from this process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Messages of rounds sent for the first time, and the bytes of numbers in them.
    pub messages: u64,
    /// See `messages`.
    pub payload: u64,
    /// Bytes of numbers sent again because somebody asked.
    pub again: u64,
    /// All other bytes: headers, greetings, questions, evaluations.
    pub overhead: u64,
    /// Messages asked for again.
    pub asked: u64,
    /// Packets that had already come.
    pub duplicates: u64,
    /// Packets refused, by reason.
    pub refused: BTreeMap<String, u64>,
}

impl Counts {
    /// Adds another process's counts.
    pub fn add(&mut self, other: &Counts) {
        self.messages += other.messages;
        self.payload += other.payload;
        self.again += other.again;
        self.overhead += other.overhead;
        self.asked += other.asked;
        self.duplicates += other.duplicates;
        other.refused.iter().for_each(|(why, n)| *self.refused.entry(why.clone()).or_default() += n);
    }
}

/// Another process.
#[derive(Clone, Debug)]
struct Peer {
    owned: Vec<usize>,
    incarnation: u64,
    /// When it was last heard.
    heard: Duration,
    /// The round it is in.
    round: u64,
    /// It will never ask for rounds before this one: its checkpoint.
    safe: u64,
    done: bool,
}

#[derive(Serialize, Deserialize)]
struct Hello {
    digest: [u8; 32],
    version: String,
    owned: Vec<u32>,
    incarnation: u64,
    round: u64,
    safe: u64,
    done: bool,
    /// The sender wants to be greeted back.
    answer: bool,
}

struct Incoming {
    /// Its parts as they came: they are not copied together.
    parts: Vec<Bytes>,
    total: usize,
    /// Parts that have not come.
    missing: BTreeSet<u32>,
}

/// A message that has come as a whole.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a>(&'a [Bytes]);

impl Message<'_> {
    /// Its length in bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Its bytes in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        self.0.concat()
    }

    /// Reads numbers that begin at byte `at`. All numbers of a message have one size, so none lies on the border of two parts.
    pub fn read<T: Real>(&self, at: usize, mut numbers: &mut [T]) {
        let mut at = at;
        while !numbers.is_empty() {
            let piece = &self.0[at / packet::PART][at % packet::PART..];
            let count = (piece.len() / size_of::<T>()).min(numbers.len());
            let now = numbers.split_off_mut(..count).expect("not more than there are");
            T::from_bytes(&piece[..count * size_of::<T>()], now);
            at += count * size_of::<T>();
        }
    }
}

#[derive(Clone)]
struct Kept {
    body: Bytes,
    /// Processes that may ask for it.
    to: Vec<u32>,
}

/// What a checkpoint remembers of a node.
#[derive(Serialize, Deserialize)]
struct Memory {
    /// Messages that others may ask for, and who.
    kept: Vec<(Name, Vec<u8>, Vec<u32>)>,
    values: Vec<(u64, Vec<u8>)>,
}

/// One process's end of the protocol.
pub struct Node {
    line: Box<dyn Transport>,
    settings: Settings,
    log: Box<dyn FnMut(&str) + Send>,
    stop: Arc<AtomicBool>,
    run: Run,
    peers: BTreeMap<u32, Peer>,
    /// The process of each agent.
    owner: Vec<Option<u32>>,
    inbox: BTreeMap<Name, Incoming>,
    inbox_bytes: usize,
    kept: BTreeMap<Name, Kept>,
    kept_bytes: usize,
    values: BTreeMap<u64, Bytes>,
    round: u64,
    safe: u64,
    done: bool,
    met: bool,
    next_hello: Duration,
    trouble: Option<String>,
    counts: Counts,
    /// How long a wait usually takes when nothing is lost.
    usual: Duration,
}

/// Rounds that a message may be ahead.
const AHEAD: u64 = 1 << 16;
/// Messages in one question.
const ASKED_AT_ONCE: usize = 256;
/// Time between greetings.
const GREETING: Duration = Duration::from_secs(1);

/// "agent 3" or "agents 3, 7".
fn agents(list: impl IntoIterator<Item = usize>) -> String {
    let list: Vec<String> = list.into_iter().map(|a| a.to_string()).collect();
    format!("{} {}", if list.len() == 1 { "agent" } else { "agents" }, list.join(", "))
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

impl Node {
    /// A process that has met nobody yet. `stop` makes it give up; `log` hears what a person should know.
    pub fn new(line: Box<dyn Transport>, settings: Settings, stop: Arc<AtomicBool>, log: impl FnMut(&str) + Send + 'static) -> Self {
        let mut owner = vec![None; settings.agents];
        settings.owned.iter().for_each(|i| owner[*i] = Some(settings.owned[0] as u32));
        let run = Run { digest: settings.digest[..16].try_into().expect("half of it"), job: settings.job };
        Node {
            line,
            log: Box::new(log),
            stop,
            run,
            peers: BTreeMap::new(),
            owner,
            inbox: BTreeMap::new(),
            inbox_bytes: 0,
            kept: BTreeMap::new(),
            kept_bytes: 0,
            values: BTreeMap::new(),
            round: 0,
            safe: 0,
            done: false,
            met: false,
            next_hello: Duration::ZERO,
            trouble: None,
            counts: Counts::default(),
            usual: settings.retry / 8,
            settings,
        }
    }

    /// This process's name: its lowest agent.
    pub fn me(&self) -> u32 {
        self.settings.owned[0] as u32
    }

    /// The process that computes metrics: that of agent 0.
    pub fn gatherer(&self) -> u32 {
        self.owner[0].unwrap_or(0)
    }

    /// The process of an agent.
    pub fn owner(&self, agent: usize) -> u32 {
        self.owner[agent].unwrap_or(EVERYBODY)
    }

    /// The other processes: their names and agents.
    pub fn others(&self) -> impl Iterator<Item = (u32, &[usize])> {
        self.peers.iter().map(|(name, p)| (*name, p.owned.as_slice()))
    }

    /// What was sent and refused so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Bytes kept for others who may ask again.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Meets the processes of all other agents; refuses to start if one of them runs something else.
    pub fn meet(&mut self) -> Result<(), String> {
        let began = self.line.now();
        while let Some(missing) = self.strangers() {
            self.check_stop()?;
            if let Some(why) = self.trouble.take() {
                // The other side must hear what we run, to refuse as well.
                (0..3).for_each(|_| self.greet(To::All, false));
                return Err(why);
            }
            let now = self.line.now();
            if now.saturating_sub(began) > self.settings.patience {
                return Err(format!("{} did not appear within {} (--patience)", agents(missing), seconds(self.settings.patience)));
            }
            if now >= self.next_hello {
                self.greet(To::All, true);
                self.next_hello = now + GREETING / 5;
            }
            self.pump(GREETING / 5);
        }
        self.met = true;
        self.greet(To::All, false);
        Ok(())
    }

    fn strangers(&self) -> Option<Vec<usize>> {
        let list: Vec<usize> = (0..self.settings.agents).filter(|i| self.owner[*i].is_none()).collect();
        (!list.is_empty()).then_some(list)
    }

    fn check_stop(&self) -> Result<(), String> {
        if self.stop.load(Relaxed) { Err("stopped".into()) } else { Ok(()) }
    }

    /// Says that this process begins a round: what belongs to earlier ones is forgotten.
    pub fn begin(&mut self, round: u64) {
        self.round = round;
        let Self { inbox, inbox_bytes, .. } = self;
        inbox.retain(|name, message| {
            let stays = name.round >= round || name.kind != Kind::Round;
            if !stays {
                *inbox_bytes -= message.total;
            }
            stays
        });
    }

    /// Says that a checkpoint at the beginning of this round lies on the disk.
    pub fn checkpointed(&mut self, round: u64) {
        self.safe = self.safe.max(round);
        self.greet(To::All, false);
    }

    /// Sends a message to these processes and, if `keep`, keeps it for those who ask again.
    pub fn post(&mut self, name: Name, body: Bytes, to: &[u32], keep: bool) {
        for process in to {
            // A process that starts again does its rounds anew; the others are already past them.
            if name.kind == Kind::Round && self.peers.get(process).is_some_and(|p| p.round > name.round) {
                continue;
            }
            if name.kind == Kind::Round {
                self.counts.messages += 1;
                self.counts.payload += body.len() as u64;
            } else {
                self.counts.overhead += body.len() as u64;
            }
            self.send(To::Process(*process), name, &body, &[]);
        }
        if keep {
            self.kept_bytes += body.len();
            if let Some(old) = self.kept.insert(name, Kept { body, to: to.to_vec() }) {
                self.kept_bytes -= old.body.len();
            }
        }
    }

    /// The message of this name, once it has come as a whole.
    pub fn message(&self, name: &Name) -> Option<Message<'_>> {
        self.inbox.get(name).filter(|m| m.missing.is_empty()).map(|m| Message(&m.parts))
    }

    /// The metrics of an evaluation, once known.
    pub fn values(&self, k: u64) -> Option<&Bytes> {
        self.values.get(&k)
    }

    /// Makes the metrics of an evaluation known to all others; what was kept for it is no longer needed.
    pub fn publish(&mut self, k: u64, values: Bytes) {
        let name = Name { round: k, kind: Kind::Values, sender: self.me(), receiver: EVERYBODY };
        self.learn(k, values.clone());
        let others: Vec<u32> = self.peers.keys().copied().collect();
        self.post(name, values, &others, false);
    }

    fn learn(&mut self, k: u64, values: Bytes) {
        self.values.insert(k, values);
        let views = |n: &Name| n.kind == Kind::Views && n.round <= k;
        let old: Vec<Name> = self.kept.keys().filter(|n| views(n)).copied().collect();
        old.iter().filter_map(|n| self.kept.remove(n)).for_each(|gone| self.kept_bytes -= gone.body.len());
        let old: Vec<Name> = self.inbox.keys().filter(|n| views(n)).copied().collect();
        old.iter().filter_map(|n| self.inbox.remove(n)).for_each(|gone| self.inbox_bytes -= gone.total);
    }

    fn has(&self, name: &Name) -> bool {
        match name.kind {
            // Metrics that are known make the views they come from unnecessary.
            Kind::Views | Kind::Values => self.values.contains_key(&name.round) || self.message(name).is_some(),
            _ => self.message(name).is_some(),
        }
    }

    /// Waits until all these messages have come, asking again for those that do not; or until `at_most` has passed, without asking.
    pub fn wait(&mut self, wanted: &[Name], at_most: Option<Duration>) -> Result<(), String> {
        let began = self.line.now();
        let mut pause = (8 * self.usual).clamp(Duration::from_millis(5).min(self.settings.retry), self.settings.retry);
        let (mut ask, mut asked) = (began + pause, false);
        let mut missing: Vec<Name> = wanted.to_vec();
        loop {
            missing.retain(|name| !self.has(name));
            if missing.is_empty() {
                let waited = self.line.now() - began;
                if !asked {
                    self.usual = (7 * self.usual + waited) / 8;
                }
                return Ok(());
            }
            self.check_stop()?;
            if let Some(why) = &self.trouble {
                return Err(why.clone());
            }
            let now = self.line.now();
            if let Some(most) = at_most {
                if now >= began + most {
                    return Ok(());
                }
                self.pump(began + most - now);
                continue;
            }
            for name in &missing {
                let Some(peer) = self.owner[name.sender as usize].and_then(|p| self.peers.get(&p)) else { continue };
                let silent = now.saturating_sub(peer.heard.max(began));
                if silent > self.settings.patience {
                    let why = format!(
                        "no sign of {} for {} (--patience); stopping in round {}",
                        agents(peer.owned.iter().copied()),
                        seconds(silent),
                        self.round
                    );
                    return Err(self.give_up(why));
                }
            }
            // Whoever has sent its next round already has sent this one too: it is lost or late.
            if now >= ask || (!asked && missing.iter().any(|name| self.overtaken(name))) {
                asked = true;
                self.ask(&missing, now - began);
                pause = (pause * 2).min(Duration::from_secs(2));
                ask = now + pause;
            }
            self.pump(ask - now);
        }
    }

    fn overtaken(&self, name: &Name) -> bool {
        let later = Name { round: name.round + 1, ..*name };
        name.kind == Kind::Round
            && self.inbox.range(later..).take_while(|(n, _)| n.round < name.round + 3).any(|(n, _)| n.sender == name.sender)
    }

    /// Stops this process for good, and tells the others why.
    pub fn give_up(&mut self, why: String) -> String {
        if self.trouble.is_none() {
            self.trouble = Some(why.clone());
            let name = Name { round: self.round, kind: Kind::Stop, sender: self.me(), receiver: EVERYBODY };
            self.send(To::All, name, &Bytes::from(why.clone().into_bytes()), &[]);
        }
        why
    }

    fn ask(&mut self, missing: &[Name], waited: Duration) {
        let mut by_process: BTreeMap<u32, Vec<(Name, Vec<u32>)>> = BTreeMap::new();
        for name in missing {
            let parts = self.inbox.get(name).map_or_else(Vec::new, |m| m.missing.iter().copied().take(64).collect());
            by_process.entry(self.owner(name.sender as usize)).or_default().push((*name, parts));
        }
        self.counts.asked += missing.len() as u64;
        if waited > Duration::from_secs(1) {
            let who = by_process.values().flatten().map(|(n, _)| n.sender as usize).collect::<BTreeSet<_>>();
            (self.log)(&format!("round {}: asking {} again after {}", self.round, agents(who), seconds(waited)));
        }
        let name = Name { round: self.round, kind: Kind::Need, sender: self.me(), receiver: EVERYBODY };
        for (process, names) in by_process {
            for some in names.chunks(ASKED_AT_ONCE) {
                let body = Bytes::from(postcard::to_stdvec(some).expect("names can be written"));
                self.counts.overhead += body.len() as u64;
                self.send(To::Process(process), name, &body, &[]);
            }
        }
    }

    /// Sends these parts of a message, or all of them.
    fn send(&mut self, to: To, name: Name, body: &Bytes, some: &[u32]) {
        let all = packet::parts(body.len());
        let every: Vec<u32> = if some.is_empty() { (0..all).collect() } else { some.iter().copied().filter(|p| *p < all).collect() };
        for part in every {
            let begin = part as usize * packet::PART;
            let piece = body.slice(begin..(begin + packet::PART).min(body.len()));
            let head = packet::header(self.run, name, body.len(), part, &piece);
            self.counts.overhead += head.len() as u64;
            self.line.send(to, &head, &piece);
        }
    }

    fn greet(&mut self, to: To, answer: bool) {
        let hello = Hello {
            digest: self.settings.digest,
            version: env!("CARGO_PKG_VERSION").into(),
            owned: self.settings.owned.iter().map(|i| *i as u32).collect(),
            incarnation: self.settings.incarnation,
            round: self.round,
            safe: self.safe,
            done: self.done,
            answer,
        };
        let body = Bytes::from(postcard::to_stdvec(&hello).expect("numbers can be written"));
        self.counts.overhead += body.len() as u64;
        let name = Name { round: self.round, kind: Kind::Hello, sender: self.me(), receiver: EVERYBODY };
        self.send(to, name, &body, &[]);
    }

    /// Takes in what has come, waiting for the first packet at most this long; greets the others when it is time to.
    pub fn pump(&mut self, wait: Duration) {
        let now = self.line.now();
        if self.met && now >= self.next_hello {
            self.greet(To::All, false);
            self.next_hello = now + GREETING;
        }
        let mut packet = self.line.receive(wait.min(GREETING / 5));
        while let Some(bytes) = packet {
            if let Err(why) = self.take(&bytes) {
                self.refuse(why, bytes.len());
            }
            packet = self.line.receive(Duration::ZERO);
        }
    }

    fn refuse(&mut self, why: Refusal, length: usize) {
        let count = self.counts.refused.entry(format!("{why:?}")).or_default();
        *count += 1;
        // The first, the tenth, the hundredth …: a flood of packets is no flood of lines.
        if count.ilog10() != (*count - 1).checked_ilog10().unwrap_or(99) && why != Refusal::TooEarly {
            let count = *count;
            (self.log)(&format!("dropped a packet of {length} bytes: {why:?} ({count} so far)"));
        }
    }

    fn take(&mut self, bytes: &Bytes) -> Result<(), Refusal> {
        let packet = packet::read(bytes, self.settings.limit)?;
        if packet.name.kind == Kind::Hello {
            return self.hello(&packet);
        }
        if packet.run.digest != self.run.digest {
            return Err(Refusal::WrongRun);
        }
        let from = self.owner.get(packet.name.sender as usize).copied().flatten().ok_or(Refusal::UnknownAgent)?;
        let now = self.line.now();
        let peer = self.peers.get_mut(&from).ok_or(Refusal::UnknownAgent)?;
        peer.heard = now;
        if packet.run.job != self.run.job {
            return Ok(());
        }
        match packet.name.kind {
            Kind::Need => self.answer(from, packet.body),
            Kind::Stop => {
                let why = String::from_utf8_lossy(packet.body).chars().filter(|c| !c.is_control()).take(300).collect::<String>();
                if !self.done && self.trouble.is_none() {
                    self.trouble = Some(format!("{} stopped: {why}", agents(self.peers[&from].owned.iter().copied())));
                }
                Ok(())
            }
            Kind::Values if packet.part == 0 && packet.total == packet.body.len() => {
                if !self.values.contains_key(&packet.name.round) {
                    self.learn(packet.name.round, Bytes::copy_from_slice(packet.body));
                } else {
                    self.counts.duplicates += 1;
                }
                Ok(())
            }
            Kind::Round | Kind::Views => self.store(&packet, bytes.slice_ref(packet.body)),
            _ => Err(Refusal::Malformed),
        }
    }

    fn store(&mut self, packet: &Packet<'_>, body: Bytes) -> Result<(), Refusal> {
        let name = packet.name;
        if name.receiver != EVERYBODY && self.owner.get(name.receiver as usize) != Some(&Some(self.me())) {
            return Err(Refusal::UnknownAgent);
        }
        let past = match name.kind {
            Kind::Views => self.values.contains_key(&name.round),
            _ => name.round < self.round,
        };
        if past {
            self.counts.duplicates += 1;
            return Ok(());
        }
        if !self.inbox.contains_key(&name) {
            if name.round > self.round + AHEAD || (self.inbox_bytes + packet.total > self.settings.room && name.round > self.round) {
                return Err(Refusal::TooEarly);
            }
            let count = packet::parts(packet.total);
            self.inbox_bytes += packet.total;
            let parts = vec![Bytes::new(); count as usize];
            self.inbox.insert(name, Incoming { parts, total: packet.total, missing: (0..count).collect() });
        }
        let message = self.inbox.get_mut(&name).expect("inserted above");
        if message.total != packet.total {
            return Err(Refusal::Nonsense);
        }
        if !message.missing.remove(&packet.part) {
            self.counts.duplicates += 1;
            return Ok(());
        }
        message.parts[packet.part as usize] = body;
        Ok(())
    }

    /// Sends again what a process asks for, as far as it is there.
    fn answer(&mut self, from: u32, body: &[u8]) -> Result<(), Refusal> {
        let names: Vec<(Name, Vec<u32>)> = postcard::from_bytes(body).map_err(|_| Refusal::Nonsense)?;
        if names.len() > ASKED_AT_ONCE || names.iter().any(|n| n.1.len() > 64) {
            return Err(Refusal::Nonsense);
        }
        for (name, parts) in names {
            let known = matches!(name.kind, Kind::Views | Kind::Values).then(|| self.values.get(&name.round).cloned()).flatten();
            if let Some(values) = known {
                let name = Name { kind: Kind::Values, sender: self.me(), ..name };
                self.counts.overhead += values.len() as u64;
                self.send(To::Process(from), name, &values, &[]);
            } else if let Some(kept) = self.kept.get(&name).filter(|k| k.to.contains(&from) && !self.line.busy(To::Process(from))).cloned()
            {
                self.counts.again += kept.body.len() as u64;
                self.send(To::Process(from), name, &kept.body, &parts);
            }
        }
        Ok(())
    }

    fn hello(&mut self, packet: &Packet<'_>) -> Result<(), Refusal> {
        let hello: Hello = postcard::from_bytes(packet.body).map_err(|_| Refusal::Nonsense)?;
        let owned: Vec<usize> = hello.owned.iter().map(|i| *i as usize).collect();
        if owned.is_empty() || owned.len() > 1 << 20 || !owned.is_sorted_by(|a, b| a < b) || packet.name.sender != hello.owned[0] {
            return Err(Refusal::Nonsense);
        }
        if hello.digest != self.settings.digest {
            let hex = |d: &[u8; 32]| d[..4].iter().map(|b| format!("{b:02x}")).collect::<String>();
            if !self.met {
                self.trouble = Some(format!(
                    "another experiment at {}: digest {} (dibo {}), here {} (dibo {}); give all processes the same file, --set, seeds and version",
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
        if hello.incarnation == self.settings.incarnation && owned == self.settings.owned {
            return Ok(());
        }
        let (name, now) = (hello.owned[0], self.line.now());
        if packet.run.job != self.run.job {
            // A process that is further in the experiment has done this part; one that is behind is alive.
            if let Some(peer) = self.peers.get_mut(&name).filter(|p| p.owned == owned) {
                peer.heard = now;
                peer.done |= packet.run.job > self.run.job;
            }
            return Ok(());
        }
        let clash =
            owned.iter().find(|i| self.owner[**i].is_some_and(|p| p != name || self.peers.get(&p).is_none_or(|p| p.owned != owned)));
        if let Some(agent) = clash {
            if !self.met {
                self.trouble = Some(format!("agent {agent} is owned by two processes; give each agent to one of them (--own)"));
            }
            return Err(Refusal::UnknownAgent);
        }
        owned.iter().for_each(|i| self.owner[*i] = Some(name));
        let new = Peer { owned, incarnation: hello.incarnation, heard: now, round: hello.round, safe: hello.safe, done: hello.done };
        let mut greet = hello.answer;
        match self.peers.get_mut(&name) {
            None => {
                self.peers.insert(name, new);
                greet = true;
            }
            Some(old) if hello.incarnation < old.incarnation => return Ok(()),
            Some(old) if hello.incarnation > old.incarnation => {
                (self.log)(&format!("{} came back in round {}", agents(new.owned.iter().copied()), hello.round));
                let kept_from = old.safe;
                *old = Peer { safe: new.safe.max(kept_from), ..new };
                if hello.safe < kept_from {
                    let why =
                        format!("its checkpoint is of round {}, but messages before round {kept_from} are no longer kept", hello.safe);
                    let stop = Name { round: self.round, kind: Kind::Stop, sender: self.me(), receiver: EVERYBODY };
                    self.send(To::Process(name), stop, &Bytes::from(why.into_bytes()), &[]);
                }
                greet = true;
            }
            Some(old) => {
                old.heard = now;
                old.round = old.round.max(hello.round);
                old.safe = old.safe.max(hello.safe);
                old.done |= hello.done;
            }
        }
        self.forget();
        if greet {
            self.greet(To::Process(name), false);
        }
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
            let stays = name.kind != Kind::Round || message.to.iter().any(|p| peers.get(p).is_none_or(|p| p.safe <= name.round));
            if !stays {
                *kept_bytes -= message.body.len();
            }
            stays
        });
    }

    /// Stays until all others are done too, since they may still ask for messages.
    pub fn finish(&mut self) {
        self.done = true;
        let began = self.line.now();
        self.greet(To::All, true);
        let mut next = began + GREETING / 4;
        loop {
            let now = self.line.now();
            let waiting = |p: &Peer| !p.done && now.saturating_sub(p.heard.max(began)) < self.settings.patience;
            if !self.peers.values().any(waiting) || self.check_stop().is_err() {
                break;
            }
            if now >= next {
                self.greet(To::All, true);
                next = now + GREETING / 4;
            }
            self.pump(GREETING / 4);
        }
        // Whoever has not heard it yet would wait in vain.
        (0..5).for_each(|_| self.greet(To::All, false));
    }

    /// For a process that had finished and was started again: waits until nobody is there any more, or somebody who needs its messages
    /// (true).
    pub fn rejoin(&mut self) -> bool {
        self.done = true;
        let began = self.line.now();
        let mut next = began;
        loop {
            let now = self.line.now();
            if self.peers.values().any(|p| !p.done) {
                return true;
            }
            let heard = self.peers.values().map(|p| p.heard).max().unwrap_or(began);
            if now.saturating_sub(heard.max(began)) > 3 * GREETING || self.check_stop().is_err() {
                return false;
            }
            if now >= next {
                self.greet(To::All, true);
                next = now + GREETING / 4;
            }
            self.pump(GREETING / 4);
        }
    }

    /// For a checkpoint: what others may still ask for, and the metrics so far.
    pub fn memory(&self) -> Vec<u8> {
        let rounds = self.kept.iter().filter(|(n, _)| n.kind == Kind::Round);
        let kept = rounds.map(|(n, k)| (*n, k.body.to_vec(), k.to.clone())).collect();
        let values = self.values.iter().map(|(k, v)| (*k, v.to_vec())).collect();
        postcard::to_stdvec(&Memory { kept, values }).expect("numbers can be written")
    }

    /// Takes up what [`memory`](Self::memory) gave, at the beginning of this round.
    pub fn restore(&mut self, memory: &[u8], round: u64) -> Result<(), String> {
        let Memory { kept, values } = postcard::from_bytes(memory).map_err(|e| format!("damaged checkpoint: {e}"))?;
        self.kept_bytes = kept.iter().map(|(_, body, _)| body.len()).sum();
        self.kept = kept.into_iter().map(|(name, body, to)| (name, Kept { body: Bytes::from(body), to })).collect();
        self.values = values.into_iter().map(|(k, v)| (k, Bytes::from(v))).collect();
        (self.round, self.safe) = (round, round);
        Ok(())
    }

    /// Why this process cannot go on, if it cannot.
    pub fn trouble(&self) -> Option<&String> {
        self.trouble.as_ref()
    }
}
