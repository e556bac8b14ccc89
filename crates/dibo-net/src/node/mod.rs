//! The protocol of one process: who the others are, which messages have come, which are kept for those who
//! may ask again.
//!
//! It knows time and packets only through its [`Transport`], so every rule here is tested without a socket.
//! Each wait knows what it waits for and since when: [`Node::wait`] ends with the messages or with a reason
//! that names who is missing and what to do.
mod end;
mod letters;
mod peer;
mod take;

use crate::keys::{Identity, Secret};
use crate::packet::{self, EVERYBODY, From, HEAD, HEADER, Kind, Name, Run, Secured};
use crate::transport::{To, Transport};
use bytes::Bytes;
use dibo::rows::Real;
use letters::Letters;
use peer::{Hello, LATE, Peer, SOON};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use end::Rejoined;

/// What a process knows before it meets the others.
#[derive(Clone)]
pub struct Settings {
    /// Agents of the experiment.
    pub agents: usize,
    /// Those that this process runs, in order.
    pub owned: Vec<usize>,
    /// Digest of the experiment: file, settings, seeds, graph and version.
    pub digest: [u8; 32],
    /// What the digest is made of, by name, each with a digest of its own: to say what differs.
    pub parts: Vec<(String, u64)>,
    /// Which setting and seed of the experiment.
    pub job: u32,
    /// Differs between any two lives of a process.
    pub incarnation: u64,
    /// Earlier lives of this process that are certainly over.
    pub after: Vec<u64>,
    /// How long an answer may take before anything is known about it.
    pub retry: Duration,
    /// After this time without progress of those who are waited for, a process stops.
    pub patience: Duration,
    /// How long processes that have not appeared are waited for.
    pub wait: Duration,
    /// Longest message.
    pub limit: usize,
    /// Bytes of each other process's messages that may wait for their round.
    pub buffer: usize,
    /// Whether this process may come back from checkpoints: the others keep what it would need.
    pub returns: bool,
    /// Who this process is and whom it believes; without, anybody who reaches the network is believed.
    pub identity: Option<Arc<dyn Identity>>,
}

impl Settings {
    /// The usual times and sizes.
    pub fn new(agents: usize, owned: Vec<usize>, digest: [u8; 32], job: u32, incarnation: u64) -> Self {
        let (retry, patience) = (Duration::from_millis(100), Duration::from_secs(60));
        Settings {
            agents,
            owned,
            digest,
            parts: Vec::new(),
            job,
            incarnation,
            after: Vec::new(),
            retry,
            patience,
            wait: Duration::from_secs(600),
            limit: 1 << 30,
            buffer: 64 << 20,
            returns: true,
            identity: None,
        }
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
    /// Messages that were sent again because they had been lost.
    pub resent: u64,
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
        self.resent += other.resent;
        self.duplicates += other.duplicates;
        other.refused.iter().for_each(|(why, n)| *self.refused.entry(why.clone()).or_default() += n);
    }
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
    /// The newest packet that the asker has from the one who is asked: what was sent after it may still be
    /// under way.
    newest: u64,
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
    /// The process that sends it.
    from: u32,
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

    /// Whether all its numbers are finite.
    pub fn is_finite<T: Real>(&self) -> bool {
        const F32: u32 = 0x7f80_0000;
        const F64: u64 = 0x7ff0_0000_0000_0000;
        let four = |c: &[u8; 4]| u32::from_le_bytes(*c) & F32 != F32;
        let eight = |c: &[u8; 8]| u64::from_le_bytes(*c) & F64 != F64;
        self.0.iter().all(|part| match size_of::<T>() {
            4 => part.as_chunks().0.iter().all(four),
            _ => part.as_chunks().0.iter().all(eight),
        })
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
    /// Processes that may ask for it, and the number of its last packet to each; 0 where none was sent.
    to: Vec<(u32, u64)>,
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
    /// This process's side of the keys, where there are any.
    secret: Option<Secret>,
    peers: BTreeMap<u32, Peer>,
    /// The process of each agent.
    owner: Vec<Option<u32>>,
    inbox: BTreeMap<Name, Incoming>,
    /// What messages of the last rounds were, shortly: one that comes again must be the same.
    seen: BTreeMap<Name, u64>,
    kept: BTreeMap<Name, Kept>,
    kept_bytes: usize,
    /// Bytes of messages since the last checkpoint: others keep them for this process.
    taken_bytes: usize,
    values: BTreeMap<u64, Bytes>,
    round: u64,
    graph: usize,
    /// Digests of the graphs of the last parts of the run.
    graphs: BTreeMap<u64, u64>,
    /// When this round began; nothing before the first.
    begun: Option<Duration>,
    posted: u64,
    safe: u64,
    done: bool,
    leaves: bool,
    /// What this process is to pass on at the end.
    letters: Letters,
    met: bool,
    /// Processes that are waited for now, and since when.
    waits: (Vec<u32>, Duration),
    next_hello: Duration,
    failure: Option<String>,
    /// Whether somebody else told of it, and whether the others were told.
    second_hand: bool,
    told: bool,
    /// When it was first said that another process runs these agents.
    taken: Option<Duration>,
    /// Signatures that may be looked at before this second ends: a flood of them must not stop the run.
    cards: (Duration, u32),
    /// Why this process begins where it begins, for those who read its errors.
    origin: String,
    counts: Counts,
    board: Arc<Mutex<Board>>,
    next_board: Duration,
    /// The shortest of the last waits: what a wait takes when nothing is lost.
    usual: Duration,
}

/// Rounds that a message may be ahead.
const AHEAD: u64 = 1 << 12;
/// Rounds back for which a message that comes again is compared.
const COMPARED: u64 = 64;
/// Rounds of one part of the graphs, and parts that are remembered.
pub const PART_ROUNDS: u64 = 16;
const PARTS: usize = 256;
/// Messages in one question.
const ASKED_AT_ONCE: usize = 256;
/// Bytes and messages that follow an answer to one who catches up.
const FOLLOWING: (usize, usize) = (1 << 20, 512);
/// Time between greetings.
const GREETING: Duration = Duration::from_secs(1);
/// An agent belongs to a life of a process that was heard within this time.
const LEASE: Duration = Duration::from_secs(3);
/// How long a process that stops tells the others so.
const STOPPING: Duration = Duration::from_secs(5);

/// "agent 3" or "agents 3, 7"; of many in a row the first and the last: "agents 0-99".
pub fn agents(list: impl IntoIterator<Item = usize>) -> String {
    let list: Vec<usize> = list.into_iter().collect();
    let (Some(first), Some(last)) = (list.first(), list.last()) else { return "no agent".into() };
    let text = if list.len() > 4 && last - first + 1 == list.len() {
        format!("{first}-{last}")
    } else {
        list.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
    };
    format!("{} {text}", if list.len() == 1 { "agent" } else { "agents" })
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// How far another process is, for people.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Contact {
    /// Its agents.
    pub agents: Vec<usize>,
    /// The round it is in.
    pub round: u64,
    /// Seconds since it was heard.
    pub heard: f64,
    /// Seconds since it came further.
    pub moved: f64,
    /// Lowest agents of the processes that it waits for.
    pub waits: Vec<u32>,
    /// It has finished this part of the experiment.
    pub done: bool,
}

/// What a process shows of itself and of the others, anew every second.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Board {
    /// Which part of the experiment.
    pub job: u32,
    /// Its agents.
    pub agents: Vec<usize>,
    /// The round it is in.
    pub round: u64,
    /// Which graph of the sequence this round uses.
    #[serde(default)]
    pub graph: usize,
    /// Agents whose processes have not appeared yet.
    pub missing: Vec<usize>,
    /// Lowest agents of the processes that it waits for, and for how many seconds.
    pub waits: Vec<u32>,
    /// See `waits`.
    pub waited: f64,
    /// Bytes that are kept for others.
    pub kept: usize,
    /// It has finished this part.
    pub done: bool,
    /// The other processes, as this one sees them.
    pub contacts: Vec<Contact>,
    /// What it sent and refused.
    pub counts: Counts,
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
        // A system without random numbers is met with the first packet, which then cannot be signed.
        let (secret, failure) = match settings.identity.as_ref().map(|_| Secret::new()) {
            Some(Ok(secret)) => (Some(secret), None),
            Some(Err(why)) => (None, Some(why)),
            None => (None, None),
        };
        Node {
            line,
            log: Box::new(log),
            stop,
            run,
            secret,
            peers: BTreeMap::new(),
            owner,
            inbox: BTreeMap::new(),
            seen: BTreeMap::new(),
            kept: BTreeMap::new(),
            kept_bytes: 0,
            taken_bytes: 0,
            values: BTreeMap::new(),
            round: 0,
            graph: 0,
            graphs: BTreeMap::new(),
            begun: None,
            posted: 0,
            safe: 0,
            done: false,
            leaves: false,
            letters: Letters::default(),
            met: false,
            waits: (Vec::new(), Duration::ZERO),
            next_hello: Duration::ZERO,
            failure,
            second_hand: false,
            told: false,
            taken: None,
            cards: (Duration::ZERO, 0),
            origin: String::new(),
            counts: Counts::default(),
            board: Arc::default(),
            next_board: Duration::ZERO,
            usual: settings.retry / 4,
            settings,
        }
    }

    /// Says why this process begins where it begins, such as that its checkpoint is damaged.
    pub fn begins(&mut self, origin: String) {
        self.origin = origin;
    }

    /// Time since some beginning.
    pub fn now(&self) -> Duration {
        self.line.now()
    }

    /// Where this process shows how far it is: it can be looked at while the node waits.
    pub fn board(&self) -> Arc<Mutex<Board>> {
        self.board.clone()
    }

    fn show(&mut self) {
        let (waits, waited) = self.waits();
        let board = Board {
            job: self.settings.job,
            agents: self.settings.owned.clone(),
            round: self.round,
            graph: self.graph,
            missing: self.strangers().unwrap_or_default(),
            waits: waits.to_vec(),
            waited: if waits.is_empty() { 0.0 } else { waited.as_secs_f64() },
            kept: self.kept_bytes,
            done: self.done,
            contacts: self.contacts(),
            counts: self.counts.clone(),
        };
        *self.board.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = board;
    }

    /// The round that this process is in.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// The processes that are waited for now, and for how long.
    pub fn waits(&self) -> (&[u32], Duration) {
        (&self.waits.0, self.line.now().saturating_sub(self.waits.1))
    }

    /// The other processes, for people.
    pub fn contacts(&self) -> Vec<Contact> {
        let now = self.line.now();
        let since = |then: Duration| now.saturating_sub(then).as_secs_f64();
        self.peers
            .values()
            .map(|p| Contact {
                agents: p.owned.clone(),
                round: p.round,
                heard: since(p.heard),
                moved: since(p.moved),
                waits: p.waits.clone(),
                done: p.done,
            })
            .collect()
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

    /// Bytes that others keep for this process: they grow until its next checkpoint.
    pub fn taken_bytes(&self) -> usize {
        self.taken_bytes
    }

    /// Meets the processes of all other agents; refuses to start if one of them runs something else.
    pub fn meet(&mut self) -> Result<(), String> {
        let began = self.line.now();
        let mut word = began + GREETING;
        while let Some(missing) = self.strangers() {
            self.check_stop()?;
            if let Some(why) = self.failure.clone() {
                // The other side must hear what we run, to refuse as well.
                (0..3).for_each(|_| self.greet(To::All, None, None));
                return Err(self.give_up(why));
            }
            let now = self.line.now();
            let waited = now.saturating_sub(began);
            if waited > self.settings.wait {
                let why = format!(
                    "{} did not appear within {} (--wait)",
                    agents(missing),
                    seconds(self.settings.wait)
                );
                return Err(self.give_up(why));
            }
            if now >= word {
                let (who, since) = (agents(missing), seconds(waited));
                (self.log)(&match self.peers.is_empty() {
                    true => format!("nobody has been met; waiting for {who} since {since}"),
                    false => format!("waiting for {who} since {since}"),
                });
                word = now + waited.max(GREETING);
            }
            if now >= self.next_hello {
                self.ask_greeting();
                self.next_hello = now + self.many() * (GREETING / 5);
            }
            self.pump(GREETING / 5);
        }
        self.met = true;
        self.taken = None;
        self.ask_greeting();
        Ok(())
    }

    fn strangers(&self) -> Option<Vec<usize>> {
        let known = |p: u32| p == self.me() || self.peers.get(&p).is_some_and(|p| p.proven);
        let list: Vec<usize> =
            (0..self.settings.agents).filter(|i| !self.owner[*i].is_some_and(known)).collect();
        (!list.is_empty()).then_some(list)
    }

    fn check_stop(&self) -> Result<(), String> {
        if self.stop.load(Relaxed) { Err("asked to stop".into()) } else { Ok(()) }
    }

    /// Says that this process begins a round: what belongs to earlier ones is forgotten.
    pub fn begin(&mut self, round: u64) {
        self.round = round;
        if !self.settings.returns {
            self.safe = round;
        }
        self.begun = Some(self.line.now());
        let Self { inbox, peers, taken_bytes, .. } = self;
        inbox.retain(|name, message| {
            let stays = name.round >= round || name.kind != Kind::Round;
            if !stays {
                *taken_bytes += message.total;
                if let Some(peer) = peers.get_mut(&message.from) {
                    peer.waiting = peer.waiting.saturating_sub(message.total);
                }
            }
            stays
        });
        while let Some(entry) = self.seen.first_entry()
            && entry.key().round + COMPARED < round
        {
            entry.remove();
        }
    }

    /// Says which graph of the sequence this round uses, for people.
    pub fn uses(&mut self, graph: usize) {
        self.graph = graph;
    }

    /// Says what the graphs of [`PART_ROUNDS`] rounds were: all processes must have used the same.
    pub fn graphs(&mut self, part: u64, digest: u64) {
        self.graphs.insert(part, digest);
        if self.graphs.len() > PARTS {
            self.graphs.pop_first();
        }
    }

    /// Says that all messages of this round have been posted.
    pub fn said(&mut self, round: u64) {
        self.posted = self.posted.max(round + 1);
    }

    /// Says that this process will never go back behind the beginning of this round: two checkpoints lie on
    /// the disk, and the older one is of this round.
    pub fn checkpointed(&mut self, round: u64) {
        self.safe = self.safe.max(round);
        self.taken_bytes = 0;
        self.greet_all();
    }

    /// Sends a message to these processes and, if `keep`, keeps it for those who ask again.
    pub fn post(&mut self, name: Name, body: Bytes, to: &[u32], keep: bool) {
        if name.kind == Kind::Round {
            self.posted = self.posted.max(name.round);
        }
        let mut last = Vec::with_capacity(to.len());
        for process in to {
            // A process that starts again does its rounds anew; the others are already past them.
            if name.kind == Kind::Round && self.peers.get(process).is_some_and(|p| p.round > name.round) {
                last.push((*process, 0));
                continue;
            }
            if name.kind == Kind::Round {
                self.counts.messages += 1;
                self.counts.payload += body.len() as u64;
            } else {
                self.counts.overhead += body.len() as u64;
            }
            last.push((*process, self.send(*process, name, &body, &[])));
        }
        if keep {
            self.kept_bytes += body.len();
            if let Some(old) = self.kept.insert(name, Kept { body, to: last }) {
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
        for gone in old.iter().filter_map(|n| self.inbox.remove(n)) {
            if let Some(peer) = self.peers.get_mut(&gone.from) {
                peer.waiting = peer.waiting.saturating_sub(gone.total);
            }
        }
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
        let waited = self.wait_since(began, wanted, at_most);
        self.waits = (Vec::new(), self.line.now());
        waited
    }

    fn wait_since(
        &mut self,
        began: Duration,
        wanted: &[Name],
        at_most: Option<Duration>,
    ) -> Result<(), String> {
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
            if let Some(why) = self.failure.clone() {
                return Err(self.give_up(why));
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
            self.waits = (by_process.keys().copied().collect(), began);
            if now - began > long {
                let who = self.who_is_waited_for(now);
                (self.log)(&format!(
                    "round {}: waiting for {who} since {}",
                    self.round,
                    seconds(now - began)
                ));
                long *= 2;
            }
            let mut wake = now + GREETING;
            for (process, names) in &by_process {
                let Some(peer) = self.peers.get(process) else { continue };
                if let Some(why) = self.out_of_patience(*process, began, now) {
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

    fn who_is_waited_for(&self, now: Duration) -> String {
        let one = |process: &u32| match self.peers.get(process) {
            Some(p) => self.state_of(p, now),
            None => format!("agent {process}"),
        };
        self.waits.0.iter().take(4).map(one).collect::<Vec<_>>().join("; ")
    }

    /// What another process is doing, as far as it is known.
    fn state_of(&self, peer: &Peer, now: Duration) -> String {
        let (who, silent) = (agents(peer.owned.iter().copied()), now.saturating_sub(peer.heard));
        let owned = |p: &u32| match self.peers.get(p) {
            Some(p) => agents(p.owned.iter().copied()),
            None if *p == self.me() => "this process".into(),
            None => format!("agent {p}"),
        };
        if peer.closed {
            format!("{who} (its connection has closed; no sign of it for {})", seconds(silent))
        } else if silent > 3 * GREETING {
            format!("{who} (no sign of it for {})", seconds(silent))
        } else if peer.waits.is_empty() {
            format!("{who} (computing in round {})", peer.round)
        } else {
            let whom: Vec<String> = peer.waits.iter().take(4).map(owned).collect();
            format!("{who} (in round {}, waiting for {})", peer.round, whom.join(" and "))
        }
    }

    /// Why it is no longer worth waiting for a process, if so: it is silent, or it waits itself, in the end
    /// for somebody who is silent or for this process. Who computes may take as long as it likes.
    fn out_of_patience(&self, process: u32, began: Duration, now: Duration) -> Option<String> {
        let (peer, patience) = (self.peers.get(&process)?, self.settings.patience);
        let silent = now.saturating_sub(peer.heard.max(began));
        let who = agents(peer.owned.iter().copied());
        if silent > patience {
            return Some(format!(
                "no sign of {who} for {} (--patience); stopping in round {}",
                seconds(silent),
                self.round
            ));
        }
        let still = now.saturating_sub(peer.moved.max(began));
        if still <= patience {
            return None;
        }
        let stuck = self.stuck(process, now, &mut BTreeSet::new())?;
        Some(format!(
            "no progress of {who} for {} (--patience): {stuck}; stopping in round {}",
            seconds(still),
            self.round
        ))
    }

    /// Follows who waits for whom to somebody who will not move; none if one of them computes.
    fn stuck(&self, process: u32, now: Duration, passed: &mut BTreeSet<u32>) -> Option<String> {
        let peer = self.peers.get(&process)?;
        let state = self.state_of(peer, now);
        if now.saturating_sub(peer.heard) > self.settings.patience {
            return Some(state);
        }
        if peer.waits.is_empty() || now.saturating_sub(peer.moved) <= self.settings.patience {
            return None;
        }
        if !passed.insert(process) || peer.waits.contains(&self.me()) {
            return Some(state);
        }
        let further = peer.waits.iter().find_map(|p| self.stuck(*p, now, passed))?;
        Some(if further == state { state } else { format!("{state}; {further}") })
    }

    /// When a process is to be asked for messages that have not come: at once if it is known to have sent
    /// them; else when they would usually have come. Then again when the answer is late, and less and less
    /// often the longer it shows no progress.
    fn due(&self, peer: &Peer, names: &[Name], began: Duration, asked: Option<Duration>) -> Duration {
        let late = peer.late();
        let due = match asked {
            Some(asked) => asked + late.max((asked.saturating_sub(began.max(peer.moved)) / 4).min(LATE)),
            None if names.iter().any(|n| n.kind == Kind::Round && n.round < peer.posted) => began,
            // A little later than its messages usually come, by the clock of this very process.
            None => began + (2 * self.usual).max(peer.lag + 4 * peer.spread).min(2 * GREETING) + late,
        };
        // What is still arriving is not asked for.
        let arriving =
            names.iter().filter_map(|n| self.inbox.get(n)).map(|m| m.last + 3 * m.gap + late).max();
        arriving.map_or(due, |a| a.max(due))
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
        let newest = self.peers.get(&process).map_or(0, |p| p.window.newest);
        let name = self.word(Kind::Need);
        for some in names.chunks(ASKED_AT_ONCE) {
            let need = Need { asked: now, posted: self.posted, later, newest, names: some.to_vec() };
            let body = Bytes::from(postcard::to_stdvec(&need).expect("names can be written"));
            self.counts.overhead += body.len() as u64;
            self.send(process, name, &body, &[]);
        }
    }

    /// The name of something that this process says about itself.
    fn word(&self, kind: Kind) -> Name {
        Name { round: self.round, kind, sender: self.me(), receiver: EVERYBODY }
    }

    /// Sends these parts of a message, or all of them; gives the number of the last packet.
    fn send(&mut self, to: u32, name: Name, body: &Bytes, some: &[u32]) -> u64 {
        let all = packet::parts(body.len());
        let every: Vec<u32> = if some.is_empty() {
            (0..all).collect()
        } else {
            some.iter().copied().filter(|p| *p < all).collect()
        };
        for part in every {
            let begin = part as usize * packet::PART;
            let piece = body.slice(begin..(begin + packet::PART).min(body.len()));
            // One whose key is not known yet asks again when it is.
            if let Some((header, piece)) = self.pack(to, name, body.len(), part, piece) {
                self.line.send(To::Process(to), &header, &piece);
            }
        }
        self.peers.get(&to).map_or(0, |p| p.sent)
    }

    /// The next packet to a process: its header and its body; none to one whose key is not known.
    fn pack(
        &mut self,
        to: u32,
        name: Name,
        total: usize,
        part: u32,
        piece: Bytes,
    ) -> Option<([u8; HEADER], Bytes)> {
        let peer = self.peers.get_mut(&to)?;
        peer.sent += 1;
        let from = From { incarnation: self.settings.incarnation, counter: peer.sent };
        self.counts.overhead += HEADER as u64;
        if self.settings.identity.is_none() {
            return Some((packet::header(self.run, from, name, total, part, &piece), piece));
        }
        let head = packet::head(self.run, from, name, Secured::Sealed, total, part, piece.len());
        let (sealed, seal) = peer.pair.as_ref()?.seal(from, &head, &piece)?;
        let mut header = [0; HEADER];
        header[..HEAD].copy_from_slice(&head);
        header[HEAD..].copy_from_slice(&seal);
        Some((header, sealed))
    }

    /// Says something that needs no key: signed where there are identities.
    fn say(&mut self, to: To, kind: Kind, said: Vec<u8>) {
        let (name, from) = (self.word(kind), From { incarnation: self.settings.incarnation, counter: 0 });
        let Some(identity) = &self.settings.identity else {
            self.counts.overhead += (HEADER + said.len()) as u64;
            let header = packet::header(self.run, from, name, said.len(), 0, &said);
            return self.line.send(to, &header, &Bytes::from(said));
        };
        let Some(secret) = &self.secret else { return };
        // Lengths are not signed: they follow from the words.
        let bare = packet::head(self.run, from, name, Secured::Signed, 0, 0, 0);
        let card = secret.card(&**identity, &bare, said);
        let body = postcard::to_stdvec(&card).expect("bytes can be written");
        let head = packet::head(self.run, from, name, Secured::Signed, body.len(), 0, body.len());
        let seal = packet::checksum(&head, &body);
        self.counts.overhead += (HEADER + body.len()) as u64;
        self.line.send(to, &[&head[..], &seal].concat(), &Bytes::from(body));
    }

    /// How much rarer than among a few everybody is greeted: all hear it, and all answer.
    fn many(&self) -> u32 {
        u32::try_from(self.peers.len() / 10).unwrap_or(10).clamp(1, 10)
    }

    /// Greets all others, who are to greet back.
    fn ask_greeting(&mut self) {
        let now = self.line.now();
        self.greet(To::All, Some(now), None);
    }

    /// Greets everybody who is known, each by its own key.
    fn greet_all(&mut self) {
        let all: Vec<u32> = self.peers.keys().copied().collect();
        all.into_iter().for_each(|p| self.greet(To::Process(p), None, None));
    }

    /// Greets: all of them with a signature, one that is known by the key of the two.
    fn greet(&mut self, to: To, answer: Option<Duration>, asked: Option<Duration>) {
        let body = self.greeting(to, answer, asked);
        match to {
            To::Process(p) if self.peers.contains_key(&p) => {
                self.counts.overhead += body.len() as u64;
                self.send(p, self.word(Kind::Hello), &Bytes::from(body), &[]);
            }
            _ => self.say(to, Kind::Hello, body),
        }
    }

    /// Greets somebody who may not know this process, nor have its key.
    fn introduce(&mut self, to: u32, asked: Option<Duration>) {
        let answer = self.line.now();
        let body = self.greeting(To::Process(to), Some(answer), asked);
        self.say(To::Process(to), Kind::Hello, body);
        if self.settings.identity.is_some() {
            // It shows that this process holds the key that it has just signed.
            self.greet(To::Process(to), None, asked);
        }
    }

    fn greeting(&self, to: To, answer: Option<Duration>, asked: Option<Duration>) -> Vec<u8> {
        let peer = match to {
            To::Process(p) => self.peers.get(&p),
            To::All => None,
        };
        let hello = Hello {
            digest: self.settings.digest,
            // Those who know this process have compared them.
            parts: if peer.is_none() { self.settings.parts.clone() } else { Vec::new() },
            version: env!("CARGO_PKG_VERSION").into(),
            owned: self.settings.owned.iter().map(|i| *i as u32).collect(),
            after: self.settings.after.clone(),
            round: self.round,
            posted: self.posted,
            safe: self.safe,
            done: self.done,
            leaves: self.leaves,
            waits: self.waits.0.clone(),
            graphs: self.graphs.last_key_value().map(|(part, digest)| (*part, *digest)),
            known: peer.map_or(0, |p| p.incarnation),
            newest: peer.map_or(0, |p| p.window.newest),
            answer,
            asked,
        };
        postcard::to_stdvec(&hello).expect("numbers can be written")
    }

    /// Takes in what has come, waiting for the first packet at most this long; greets the others when it is
    /// time to.
    pub fn pump(&mut self, wait: Duration) {
        let now = self.line.now();
        if now >= self.next_board {
            self.show();
            self.next_board = now + GREETING;
        }
        if self.met && now >= self.next_hello {
            self.greet_all();
            self.next_hello = now + GREETING;
        }
        let mut packet = self.line.receive(wait.min(GREETING / 5));
        while let Some(bytes) = packet {
            let length = bytes.len();
            if let Err(why) = self.take(bytes) {
                self.refuse(why, length);
            }
            packet = self.line.receive(Duration::ZERO);
        }
        self.note_closed();
    }

    /// Says at once whose connection has closed. They may come back, so they are waited for all the same.
    fn note_closed(&mut self) {
        let mut gone = Vec::new();
        for process in self.line.closed() {
            if let Some(peer) = self.peers.get_mut(&process).filter(|p| !p.leaves) {
                peer.closed = true;
                gone.extend_from_slice(&peer.owned);
            }
        }
        // While all meet, two that connect to each other close one connection of the two.
        if gone.is_empty() || !self.met || self.failure.is_some() || self.told || self.leaves {
            return;
        }
        gone.sort_unstable();
        let (who, patience) = (agents(gone), seconds(self.settings.patience));
        (self.log)(&format!(
            "round {}: the connection to {who} has closed: the process has ended, or the link is down; \
            waiting for it up to {patience} (--patience)",
            self.round
        ));
    }

    /// For a checkpoint: what others may still ask for, and the metrics so far.
    pub fn memory(&self) -> Vec<u8> {
        let rounds = self.kept.iter().filter(|(n, _)| n.kind == Kind::Round);
        let to = |kept: &Kept| kept.to.iter().map(|t| t.0).collect();
        let kept = rounds.map(|(n, k)| (*n, k.body.to_vec(), to(k))).collect();
        let values = self.values.iter().map(|(k, v)| (*k, v.to_vec())).collect();
        postcard::to_stdvec(&Memory { kept, values }).expect("numbers can be written")
    }

    /// Takes up what [`memory`](Self::memory) gave, at the beginning of this round.
    pub fn restore(&mut self, memory: &[u8], round: u64) -> Result<(), String> {
        let Memory { kept, values } =
            postcard::from_bytes(memory).map_err(|e| format!("damaged checkpoint: {e}"))?;
        self.kept_bytes = kept.iter().map(|(_, body, _)| body.len()).sum();
        let unsent = |to: Vec<u32>| to.into_iter().map(|p| (p, 0)).collect();
        self.kept = kept
            .into_iter()
            .map(|(name, body, to)| (name, Kept { body: Bytes::from(body), to: unsent(to) }))
            .collect();
        self.values = values.into_iter().map(|(k, v)| (k, Bytes::from(v))).collect();
        (self.round, self.posted) = (round, round);
        Ok(())
    }

    /// Why this process cannot go on, if it cannot.
    pub fn failure(&self) -> Option<&String> {
        self.failure.as_ref()
    }
}
