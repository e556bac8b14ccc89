//! The protocol of one process: who the others are, which messages have come, which are kept for those who
//! may ask again.
//!
//! It knows time and packets only through its [`Transport`], so every rule here is tested without a socket.
use crate::packet::{self, EVERYBODY, Kind, Name, Packet, Refusal, Run};
use crate::transport::{To, Transport};
use bytes::Bytes;
use dibo::rows::Real;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
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
    /// How long an answer may take before anything is known about it.
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
        let (retry, patience) = (Duration::from_millis(100), Duration::from_secs(60));
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
    /// Its messages of rounds before this one have left.
    posted: u64,
    /// When it last came further, or back.
    moved: Duration,
    /// It will never ask for rounds before this one: its checkpoint.
    safe: u64,
    done: bool,
    /// How long it takes to answer: a smoothed mean.
    answers: Duration,
    /// How long after this process has begun a round its messages come: a smoothed mean.
    lag: Duration,
}

impl Peer {
    /// A process as its first greeting shows it. Nothing is known about its answers yet: half of `retry` is
    /// taken.
    fn new(hello: &Hello, owned: Vec<usize>, now: Duration, retry: Duration) -> Self {
        let Hello { incarnation, round, posted, safe, done, .. } = *hello;
        Peer {
            owned,
            incarnation,
            heard: now,
            round,
            posted,
            moved: now,
            safe,
            done,
            answers: retry / 2,
            lag: Duration::ZERO,
        }
    }

    /// A further greeting of the same life.
    fn greets_again(&mut self, hello: &Hello, now: Duration) {
        self.heard = now;
        self.round = self.round.max(hello.round);
        self.safe = self.safe.max(hello.safe);
        self.done |= hello.done;
        self.has_posted(hello.posted, now);
        if let Some(took) = hello.asked.and_then(|asked| now.checked_sub(asked)) {
            // Down fast, up slowly: a few slow answers, while all were starting or one was held up, are soon
            // forgotten.
            self.answers =
                if took < self.answers { (self.answers + took) / 2 } else { (7 * self.answers + took) / 8 };
        }
    }

    /// It says, or shows, that its messages of rounds before this one have left.
    fn has_posted(&mut self, before: u64, now: Duration) {
        if before > self.posted {
            (self.posted, self.moved) = (before, now);
        }
    }

    /// After this time an answer is late. To ask once too often costs little, so this is less careful than
    /// TCP.
    fn late(&self) -> Duration {
        (2 * self.answers).clamp(SOON, LATE)
    }
}

#[derive(Serialize, Deserialize)]
struct Hello {
    digest: [u8; 32],
    version: String,
    owned: Vec<u32>,
    incarnation: u64,
    round: u64,
    posted: u64,
    safe: u64,
    done: bool,
    /// The sender wants to be greeted back, with this time of its clock.
    answer: Option<Duration>,
    /// Such a time, from the one who is greeted.
    asked: Option<Duration>,
}

/// A question for messages that have not come.
#[derive(Serialize, Deserialize)]
struct Need {
    /// When it was asked, by the clock of who asks: the answer brings it back.
    asked: Duration,
    /// The asker's own messages of rounds before this one have left.
    posted: u64,
    /// Whether later rounds are wanted too, as far as they are there: the asker has to catch up.
    later: bool,
    /// Messages, and which parts of them (all, if none is named).
    names: Vec<(Name, Vec<u32>)>,
}

struct Incoming {
    /// Its parts as they came: they are not copied together.
    parts: Vec<Bytes>,
    total: usize,
    /// Parts that have not come.
    missing: BTreeSet<u32>,
    /// When the last part came, and the longest time between two.
    last: Duration,
    gap: Duration,
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

    /// Reads numbers that begin at byte `at`. All numbers of a message have one size, so none lies on the
    /// border of two parts.
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
    /// When this round and the one before began.
    begun: [Duration; 2],
    posted: u64,
    safe: u64,
    done: bool,
    met: bool,
    next_hello: Duration,
    failure: Option<String>,
    counts: Counts,
    /// The shortest of the last waits: what a wait takes when nothing is lost.
    usual: Duration,
}

/// Rounds that a message may be ahead.
const AHEAD: u64 = 1 << 16;
/// Messages in one question.
const ASKED_AT_ONCE: usize = 256;
/// Bytes and messages that follow an answer to one who catches up.
const FOLLOWING: (usize, usize) = (1 << 20, 512);
/// Time between greetings.
const GREETING: Duration = Duration::from_secs(1);
/// Nothing is asked for again earlier than this, nor later.
const SOON: Duration = Duration::from_millis(2);
const LATE: Duration = Duration::from_secs(1);

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
    pub fn new(
        line: Box<dyn Transport>,
        settings: Settings,
        stop: Arc<AtomicBool>,
        log: impl FnMut(&str) + Send + 'static,
    ) -> Self {
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
            begun: [Duration::ZERO; 2],
            posted: 0,
            safe: 0,
            done: false,
            met: false,
            next_hello: Duration::ZERO,
            failure: None,
            counts: Counts::default(),
            usual: settings.retry / 4,
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
            if let Some(why) = self.failure.take() {
                // The other side must hear what we run, to refuse as well.
                (0..3).for_each(|_| self.greet(To::All, None, None));
                return Err(why);
            }
            let now = self.line.now();
            if now.saturating_sub(began) > self.settings.patience {
                return Err(format!(
                    "{} did not appear within {} (--patience)",
                    agents(missing),
                    seconds(self.settings.patience)
                ));
            }
            if now >= self.next_hello {
                self.ask_greeting();
                self.next_hello = now + GREETING / 5;
            }
            self.pump(GREETING / 5);
        }
        self.met = true;
        self.ask_greeting();
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
        self.begun = [self.line.now(), self.begun[0]];
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
        self.greet(To::All, None, None);
    }

    /// Sends a message to these processes and, if `keep`, keeps it for those who ask again.
    pub fn post(&mut self, name: Name, body: Bytes, to: &[u32], keep: bool) {
        if name.kind == Kind::Round {
            self.posted = self.posted.max(name.round + 1);
        }
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
            Kind::Views | Kind::Values => {
                self.values.contains_key(&name.round) || self.message(name).is_some()
            }
            _ => self.message(name).is_some(),
        }
    }

    /// Waits until all these messages have come, asking again for those that do not; or until `at_most` has
    /// passed, without asking.
    pub fn wait(&mut self, wanted: &[Name], at_most: Option<Duration>) -> Result<(), String> {
        let began = self.line.now();
        // When each process was last asked, and how long a wait is worth a word.
        let (mut asked, mut long) = (BTreeMap::<u32, Duration>::new(), GREETING);
        let mut missing: Vec<Name> = wanted.to_vec();
        loop {
            missing.retain(|name| !self.has(name));
            let now = self.line.now();
            if missing.is_empty() {
                // Losses make waits longer: only the shortest tell how long one must take. It is believed
                // less and less.
                self.usual = (now - began).min(self.usual + self.usual / 8 + SOON / 2);
                return Ok(());
            }
            self.check_stop()?;
            if let Some(why) = &self.failure {
                return Err(why.clone());
            }
            if let Some(most) = at_most {
                // Who lost something in the last round waited for it and is late in this one: up to twice the
                // time for those who lag.
                let lag = |name: &Name| {
                    self.peers.get(&self.owner(name.sender as usize)).map_or(most, |p| p.lag.min(most))
                };
                let until = began + most + missing.iter().map(lag).max().unwrap_or_default();
                if now >= until {
                    return Ok(());
                }
                self.pump(until - now);
                continue;
            }
            let mut by_process: BTreeMap<u32, Vec<Name>> = BTreeMap::new();
            missing
                .iter()
                .for_each(|name| by_process.entry(self.owner(name.sender as usize)).or_default().push(*name));
            if now - began > long {
                let who = agents(missing.iter().map(|n| n.sender as usize).collect::<BTreeSet<_>>());
                (self.log)(&format!(
                    "round {}: still asking {who} after {}",
                    self.round,
                    seconds(now - began)
                ));
                long *= 2;
            }
            let mut wake = now + GREETING;
            for (process, names) in &by_process {
                let Some(peer) = self.peers.get(process) else { continue };
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
                let mut due = self.due(peer, names, began, asked.get(process).copied());
                if now >= due {
                    self.ask(*process, names, now);
                    asked.insert(*process, now);
                    due = now + SOON;
                }
                wake = wake.min(due);
            }
            self.pump(wake - now);
        }
    }

    /// When a process is to be asked for messages that have not come: at once if it is known to have sent
    /// them; else when they would usually have come. Then again when the answer is late, and less and less
    /// often the longer it shows no progress.
    fn due(&self, peer: &Peer, names: &[Name], began: Duration, asked: Option<Duration>) -> Duration {
        let late = peer.late();
        let due = match asked {
            Some(asked) => asked + late.max((asked.saturating_sub(began.max(peer.moved)) / 4).min(LATE)),
            None if names.iter().any(|n| n.kind == Kind::Round && n.round < peer.posted) => began,
            None => began + 2 * self.usual + late,
        };
        // What is still arriving is not asked for.
        let arriving =
            names.iter().filter_map(|n| self.inbox.get(n)).map(|m| m.last + 3 * m.gap + late).max();
        arriving.map_or(due, |a| a.max(due))
    }

    /// Stops this process for good, and tells the others why.
    pub fn give_up(&mut self, why: String) -> String {
        if self.failure.is_none() {
            self.failure = Some(why.clone());
            let name = Name { round: self.round, kind: Kind::Stop, sender: self.me(), receiver: EVERYBODY };
            self.send(To::All, name, &Bytes::from(why.clone().into_bytes()), &[]);
        }
        why
    }

    fn ask(&mut self, process: u32, missing: &[Name], now: Duration) {
        self.counts.asked += missing.len() as u64;
        let parts = |name: &Name| {
            self.inbox.get(name).map_or_else(Vec::new, |m| m.missing.iter().copied().take(64).collect())
        };
        let names: Vec<(Name, Vec<u32>)> = missing.iter().map(|name| (*name, parts(name))).collect();
        // One that is far ahead has sent all that this process needs to catch up; unless that is already
        // here.
        let next = Name { round: self.round + 1, kind: Kind::Hello, sender: 0, receiver: 0 };
        let ahead = self.peers.get(&process).is_some_and(|p| p.posted > self.round + 2);
        let later = ahead && !self.inbox.range(next..).any(|(n, _)| self.owner(n.sender as usize) == process);
        let name = Name { round: self.round, kind: Kind::Need, sender: self.me(), receiver: EVERYBODY };
        for some in names.chunks(ASKED_AT_ONCE) {
            let need = Need { asked: now, posted: self.posted, later, names: some.to_vec() };
            let body = Bytes::from(postcard::to_stdvec(&need).expect("names can be written"));
            self.counts.overhead += body.len() as u64;
            self.send(To::Process(process), name, &body, &[]);
        }
    }

    /// Sends these parts of a message, or all of them.
    fn send(&mut self, to: To, name: Name, body: &Bytes, some: &[u32]) {
        let all = packet::parts(body.len());
        let every: Vec<u32> = if some.is_empty() {
            (0..all).collect()
        } else {
            some.iter().copied().filter(|p| *p < all).collect()
        };
        for part in every {
            let begin = part as usize * packet::PART;
            let piece = body.slice(begin..(begin + packet::PART).min(body.len()));
            let head = packet::header(self.run, name, body.len(), part, &piece);
            self.counts.overhead += head.len() as u64;
            self.line.send(to, &head, &piece);
        }
    }

    /// Greets all others, who are to greet back.
    fn ask_greeting(&mut self) {
        let now = self.line.now();
        self.greet(To::All, Some(now), None);
    }

    fn greet(&mut self, to: To, answer: Option<Duration>, asked: Option<Duration>) {
        let hello = Hello {
            digest: self.settings.digest,
            version: env!("CARGO_PKG_VERSION").into(),
            owned: self.settings.owned.iter().map(|i| *i as u32).collect(),
            incarnation: self.settings.incarnation,
            round: self.round,
            posted: self.posted,
            safe: self.safe,
            done: self.done,
            answer,
            asked,
        };
        let body = Bytes::from(postcard::to_stdvec(&hello).expect("numbers can be written"));
        self.counts.overhead += body.len() as u64;
        let name = Name { round: self.round, kind: Kind::Hello, sender: self.me(), receiver: EVERYBODY };
        self.send(to, name, &body, &[]);
    }

    /// Takes in what has come, waiting for the first packet at most this long; greets the others when it is
    /// time to.
    pub fn pump(&mut self, wait: Duration) {
        let now = self.line.now();
        if self.met && now >= self.next_hello {
            self.greet(To::All, None, None);
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
        let from =
            self.owner.get(packet.name.sender as usize).copied().flatten().ok_or(Refusal::UnknownAgent)?;
        let now = self.line.now();
        let peer = self.peers.get_mut(&from).ok_or(Refusal::UnknownAgent)?;
        peer.heard = now;
        if packet.run.job != self.run.job {
            return Ok(());
        }
        if packet.name.kind == Kind::Round {
            peer.has_posted(packet.name.round.saturating_add(1), now);
            let came = match packet.name.round.cmp(&self.round) {
                Ordering::Less => now - self.begun[1],
                Ordering::Equal => now - self.begun[0],
                Ordering::Greater => Duration::ZERO,
            };
            peer.lag = (3 * peer.lag + came) / 4;
        }
        match packet.name.kind {
            Kind::Need => self.answer(from, packet.body),
            Kind::Stop => {
                let why = String::from_utf8_lossy(packet.body)
                    .chars()
                    .filter(|c| !c.is_control())
                    .take(300)
                    .collect::<String>();
                if !self.done && self.failure.is_none() {
                    self.failure =
                        Some(format!("{} stopped: {why}", agents(self.peers[&from].owned.iter().copied())));
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
            if name.round > self.round + AHEAD
                || (self.inbox_bytes + packet.total > self.settings.room && name.round > self.round)
            {
                return Err(Refusal::TooEarly);
            }
            let count = packet::parts(packet.total);
            self.inbox_bytes += packet.total;
            let (parts, last) = (vec![Bytes::new(); count as usize], self.line.now());
            self.inbox.insert(
                name,
                Incoming {
                    parts,
                    total: packet.total,
                    missing: (0..count).collect(),
                    last,
                    gap: Duration::ZERO,
                },
            );
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
        let now = self.line.now();
        message.gap = message.gap.max(now - message.last);
        message.last = now;
        Ok(())
    }

    /// Sends again what a process asks for, as far as it is there, and greets it.
    fn answer(&mut self, from: u32, body: &[u8]) -> Result<(), Refusal> {
        let Need { asked, posted, later, names } =
            postcard::from_bytes(body).map_err(|_| Refusal::Nonsense)?;
        if names.len() > ASKED_AT_ONCE || names.iter().any(|n| n.1.len() > 64) {
            return Err(Refusal::Nonsense);
        }
        let now = self.line.now();
        self.peers.get_mut(&from).ok_or(Refusal::UnknownAgent)?.has_posted(posted, now);
        let busy = self.line.busy(To::Process(from));
        for (name, parts) in &names {
            let known = matches!(name.kind, Kind::Views | Kind::Values)
                .then(|| self.values.get(&name.round).cloned())
                .flatten();
            if let Some(values) = known {
                let name = Name { kind: Kind::Values, sender: self.me(), ..*name };
                self.counts.overhead += values.len() as u64;
                self.send(To::Process(from), name, &values, &[]);
            } else if let Some(kept) = self.kept.get(name).filter(|k| k.to.contains(&from) && !busy).cloned()
            {
                self.again(from, *name, &kept.body, parts);
            }
        }
        if let Some(last) = names.iter().map(|n| n.0).filter(|_| later && !busy).max() {
            let next =
                Name { round: last.round.saturating_add(1), kind: Kind::Hello, sender: 0, receiver: 0 };
            let theirs =
                self.kept.range(next..).filter(|(n, k)| n.kind == Kind::Round && k.to.contains(&from));
            let mut bytes = 0;
            let fits = |(_, kept): &(&Name, &Kept)| {
                bytes += kept.body.len();
                bytes <= FOLLOWING.0
            };
            let some: Vec<(Name, Bytes)> =
                theirs.take_while(fits).take(FOLLOWING.1).map(|(n, k)| (*n, k.body.clone())).collect();
            some.iter().for_each(|(name, body)| self.again(from, *name, body, &[]));
        }
        self.greet(To::Process(from), None, Some(asked));
        Ok(())
    }

    fn again(&mut self, to: u32, name: Name, body: &Bytes, parts: &[u32]) {
        self.counts.again += body.len() as u64;
        self.send(To::Process(to), name, body, parts);
    }

    /// Takes a greeting: who is there, how far it is, and whether it lives a new life.
    fn hello(&mut self, packet: &Packet<'_>) -> Result<(), Refusal> {
        let hello: Hello = postcard::from_bytes(packet.body).map_err(|_| Refusal::Nonsense)?;
        let owned: Vec<usize> = hello.owned.iter().map(|i| *i as usize).collect();
        self.check_hello(packet, &hello, &owned)?;
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
        self.claim(name, &owned)?;
        let mut greet = hello.answer.is_some();
        match self.peers.get_mut(&name) {
            None => {
                self.peers.insert(name, Peer::new(&hello, owned, now, self.settings.retry));
                greet = true;
            }
            Some(old) if hello.incarnation < old.incarnation => return Ok(()),
            Some(old) if hello.incarnation > old.incarnation => {
                let kept_from = old.safe;
                let new = Peer::new(&hello, owned, now, self.settings.retry);
                *old = Peer { safe: new.safe.max(kept_from), ..new };
                self.came_back(name, &hello, kept_from);
                greet = true;
            }
            Some(old) => old.greets_again(&hello, now),
        }
        self.forget();
        if greet {
            self.greet(To::Process(name), None, hello.answer);
        }
        Ok(())
    }

    /// Whether a greeting makes sense and is of this experiment; before all have met, a greeting of another
    /// experiment is trouble.
    fn check_hello(&mut self, packet: &Packet<'_>, hello: &Hello, owned: &[usize]) -> Result<(), Refusal> {
        if owned.is_empty()
            || owned.len() > 1 << 20
            || !owned.is_sorted_by(|a, b| a < b)
            || packet.name.sender != hello.owned[0]
        {
            return Err(Refusal::Nonsense);
        }
        if hello.digest != self.settings.digest {
            let hex = |d: &[u8; 32]| d[..4].iter().map(|b| format!("{b:02x}")).collect::<String>();
            if !self.met {
                self.failure = Some(format!(
                    "another experiment at {}: digest {} (dibo {}), here {} (dibo {}); give all processes \
                    the same file, --set, seeds and version",
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

    /// Enters a process as the owner of its agents, unless another one, or another share, owns one of them.
    fn claim(&mut self, name: u32, owned: &[usize]) -> Result<(), Refusal> {
        let clash = owned.iter().find(|i| {
            self.owner[**i].is_some_and(|p| p != name || self.peers.get(&p).is_none_or(|p| p.owned != owned))
        });
        if let Some(agent) = clash {
            if !self.met {
                self.failure = Some(format!(
                    "agent {agent} is owned by two processes; give each agent to one of them (--own)"
                ));
            }
            return Err(Refusal::UnknownAgent);
        }
        owned.iter().for_each(|i| self.owner[*i] = Some(name));
        Ok(())
    }

    /// A process was started again. It must stop if its checkpoint is older than the messages that are still
    /// kept for it.
    fn came_back(&mut self, name: u32, hello: &Hello, kept_from: u64) {
        (self.log)(&format!(
            "{} came back in round {}",
            agents(hello.owned.iter().map(|i| *i as usize)),
            hello.round
        ));
        if hello.safe < kept_from {
            let why = format!(
                "its checkpoint is of round {}, but messages before round {kept_from} are no longer kept",
                hello.safe
            );
            let stop = Name { round: self.round, kind: Kind::Stop, sender: self.me(), receiver: EVERYBODY };
            self.send(To::Process(name), stop, &Bytes::from(why.into_bytes()), &[]);
        }
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
                || message.to.iter().any(|p| peers.get(p).is_none_or(|p| p.safe <= name.round));
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
        self.ask_greeting();
        let mut next = began + GREETING / 4;
        loop {
            let now = self.line.now();
            let waiting =
                |p: &Peer| !p.done && now.saturating_sub(p.heard.max(began)) < self.settings.patience;
            if !self.peers.values().any(waiting) || self.check_stop().is_err() {
                break;
            }
            if now >= next {
                self.ask_greeting();
                next = now + GREETING / 4;
            }
            self.pump(GREETING / 4);
        }
        // Whoever has not heard it yet would wait in vain.
        (0..5).for_each(|_| self.greet(To::All, None, None));
    }

    /// For a process that had finished and was started again: waits until nobody is there any more, or
    /// somebody who needs its messages (true).
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
                self.ask_greeting();
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
        let Memory { kept, values } =
            postcard::from_bytes(memory).map_err(|e| format!("damaged checkpoint: {e}"))?;
        self.kept_bytes = kept.iter().map(|(_, body, _)| body.len()).sum();
        self.kept =
            kept.into_iter().map(|(name, body, to)| (name, Kept { body: Bytes::from(body), to })).collect();
        self.values = values.into_iter().map(|(k, v)| (k, Bytes::from(v))).collect();
        (self.round, self.posted, self.safe) = (round, round, round);
        Ok(())
    }

    /// Why this process cannot go on, if it cannot.
    pub fn failure(&self) -> Option<&String> {
        self.failure.as_ref()
    }
}
