//! A network whose agents live in several processes: the same rounds as the simulator's, to the bit.
use crate::node::{Message, Node, PART_ROUNDS};
use crate::packet::{EVERYBODY, Kind, Name};
use bytes::Bytes;
use dibo::engine::Checkpoint;
use dibo::graph::Loss;
use dibo::mixing::{Mixing, Sequence};
use dibo::network::{Ends, Lane, Network, Traffic, Wishes, Workspace, mix_received};
use dibo::rows::{Real, Threads};
use dibo::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use xxhash_rust::xxh3::Xxh3;

/// A node that several threads use.
pub type Shared = Arc<Mutex<Node>>;

/// The node, also after a thread has panicked with it.
pub fn lock(node: &Shared) -> MutexGuard<'_, Node> {
    node.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What links do to messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Links {
    /// Messages that the experiment file wants lost.
    pub loss: Option<Loss>,
    /// Real links that cannot be asked again: what has not come after this time of a round is lost. Implies
    /// running sums.
    pub wait: Option<Duration>,
}

/// What is wrong with a message of a round, if anything: its sender is named.
fn wrong<T: Real>(name: &Name, message: &Message<'_>, length: usize) -> Option<String> {
    let (sender, round, bytes) = (name.sender, name.round, message.len());
    if bytes != length {
        return Some(format!(
            "agent {sender}'s message of round {round} has {bytes} bytes instead of {length}"
        ));
    }
    (!message.is_finite::<T>()).then(|| {
        format!(
            "agent {sender}'s message of round {round} holds numbers that are not finite: its iterates \
            diverge (smaller steps may help), or its machine is ill"
        )
    })
}

/// The rows of the owned agents, mixed with those that come over the wire.
pub struct Agents<T> {
    node: Shared,
    sequence: Sequence,
    owned: Vec<usize>,
    threads: Threads,
    traffic: Traffic,
    mixing: Mixing<T>,
    links: Links,
    ends: Option<Ends<T>>,
    /// Between a start from a checkpoint and its taking up: an algorithm may do rounds to prepare a state
    /// that is overwritten.
    skipping: bool,
    /// The part of the graphs that is being used, how many rounds of it, and their digest.
    used: (u64, u64, Xxh3),
    workspace: Workspace<T>,
}

impl<T: Real> Agents<T> {
    /// The agents `owned` of a network that follows this sequence.
    pub fn new(node: Shared, sequence: Sequence, owned: Vec<usize>, links: Links, threads: Threads) -> Self {
        let sums = links.wait.is_some();
        let ends = (links.wait.is_some() || links.loss.is_some()).then(|| Ends::new(sums));
        Agents {
            node,
            sequence,
            owned,
            threads,
            traffic: Traffic::default(),
            mixing: Mixing::default(),
            links,
            ends,
            skipping: false,
            used: (0, 0, Xxh3::new()),
            workspace: Workspace::default(),
        }
    }

    /// Prepares to go on from a checkpoint, before the others are met.
    pub fn take_up(&mut self, checkpoint: &Checkpoint<T>) -> Result<(), String> {
        let (node, ends): (Vec<u8>, Option<Ends<T>>) =
            postcard::from_bytes(&checkpoint.network).map_err(|e| format!("damaged checkpoint: {e}"))?;
        lock(&self.node).restore(&node, checkpoint.traffic.rounds)?;
        self.ends = ends;
        self.skipping = true;
        Ok(())
    }

    /// The same arithmetic as the simulator's on the rows of those who send to the owned agents.
    fn mix(
        &mut self,
        lanes: &mut [Lane<'_, T>],
        messages: &BTreeMap<u32, Message<'_>>,
    ) -> Result<(), String> {
        let Self { mixing, owned, threads, workspace, .. } = self;
        let others = messages.keys().map(|sender| *sender as usize);
        let read = |sender: usize, at: usize, numbers: &mut [T]| {
            messages[&(sender as u32)].read(at * size_of::<T>(), numbers)
        };
        mix_received(mixing, owned, lanes, others, read, workspace, threads)
    }

    /// Sends what the owned agents say in this round, waits for what they are told, and mixes.
    fn exchange(&mut self, k: usize, lanes: &mut [Lane<'_, T>]) -> Result<(), String> {
        self.sequence.fill(k, &mut self.mixing);
        lanes.iter_mut().for_each(|lane| lane.settle(&self.threads));
        let round = self.traffic.rounds;
        self.note_graph(round);
        lock(&self.node).uses(k);
        if self.ends.is_some() { self.exchange_lossy(round, lanes) } else { self.exchange_all(round, lanes) }
    }

    /// Enters the graph of a round into the digest of its part; a whole part is compared with the others'.
    fn note_graph(&mut self, round: u64) {
        let (part, count, hash) = &mut self.used;
        if round / PART_ROUNDS != *part || round.is_multiple_of(PART_ROUNDS) {
            (*part, *count) = (round / PART_ROUNDS, 0);
            hash.reset();
        }
        self.mixing.for_each_entry(|receiver, sender, a, b| {
            for number in [receiver as u64, sender as u64, a.to_bits(), b.to_bits()] {
                hash.update(&number.to_le_bytes());
            }
        });
        *count += 1;
        if *count == PART_ROUNDS {
            lock(&self.node).graphs(*part, hash.digest());
        }
    }

    fn exchange_all(&mut self, round: u64, lanes: &mut [Lane<'_, T>]) -> Result<(), String> {
        let shared = self.node.clone();
        let mut node = lock(&shared);
        node.begin(round);
        let me = node.me();
        let (mut to, mut wanted) = (vec![BTreeSet::new(); self.owned.len()], BTreeSet::new());
        for receiver in 0..self.mixing.graph.agents() {
            let process = node.owner(receiver);
            for sender in self.mixing.graph.senders(receiver) {
                match (self.owned.binary_search(&(*sender as usize)), process == me) {
                    (Ok(row), false) => drop(to[row].insert(process)),
                    (Err(_), true) => drop(wanted.insert(*sender)),
                    _ => {}
                }
            }
        }
        let length = Ends::length(lanes) * size_of::<T>();
        for (row, processes) in to.into_iter().enumerate().filter(|(_, p)| !p.is_empty()) {
            // The tracker goes as it is: its weight b_ij is the receiver's to apply, so one message serves
            // all.
            let mut body = Vec::with_capacity(length);
            for lane in &*lanes {
                if let Some((v, _)) = &lane.pull {
                    T::to_bytes(v.row(row), &mut body);
                }
                if let Some(t) = &lane.push {
                    T::to_bytes(t.row(row), &mut body);
                }
            }
            let name = Name { round, kind: Kind::Round, sender: self.owned[row] as u32, receiver: EVERYBODY };
            node.post(name, Bytes::from(body), &Vec::from_iter(processes), true);
        }
        node.said(round);
        let names: Vec<Name> = wanted
            .iter()
            .map(|s| Name { round, kind: Kind::Round, sender: *s, receiver: EVERYBODY })
            .collect();
        node.wait(&names, None)?;
        let mut messages = BTreeMap::new();
        for name in &names {
            let Some(message) = node.message(name) else { continue };
            if let Some(why) = wrong::<T>(name, &message, length) {
                return Err(node.give_up(why));
            }
            messages.insert(name.sender, message);
        }
        self.mix(lanes, &messages)
    }

    fn exchange_lossy(&mut self, round: u64, lanes: &mut [Lane<'_, T>]) -> Result<(), String> {
        let Self { node, mixing, owned, links, ends: Some(ends), .. } = self else { return Ok(()) };
        let mut node = lock(node);
        node.begin(round);
        let arrives = |sender: usize, receiver: usize| {
            links.loss.is_none_or(|l| l.arrives(round as usize, sender, receiver))
        };
        let (mut local, mut names) = (BTreeMap::new(), Vec::new());
        for (sender, receiver) in mixing.graph.edges() {
            let name = Name { round, kind: Kind::Round, sender: sender as u32, receiver: receiver as u32 };
            let Ok(row) = owned.binary_search(&sender) else {
                if owned.binary_search(&receiver).is_ok() && arrives(sender, receiver) {
                    names.push(name);
                }
                continue;
            };
            let mut message = Vec::new();
            ends.message(mixing, (sender, row), receiver, lanes, &mut message);
            if !arrives(sender, receiver) {
                continue;
            }
            if owned.binary_search(&receiver).is_ok() {
                local.insert((sender, receiver), message);
            } else {
                let mut body = Vec::new();
                T::to_bytes(&message, &mut body);
                let to = node.owner(receiver);
                node.post(name, Bytes::from(body), &[to], links.wait.is_none());
            }
        }
        node.said(round);
        node.wait(&names, links.wait)?;
        let length = Ends::length(lanes);
        for name in &names {
            let Some(message) = node.message(name) else { continue };
            if let Some(why) = wrong::<T>(name, &message, length * size_of::<T>()) {
                return Err(node.give_up(why));
            }
            let mut numbers = vec![T::ZERO; length];
            message.read(0, &mut numbers);
            local.insert((name.sender as usize, name.receiver as usize), numbers);
        }
        ends.receive(mixing, owned, lanes, |sender, receiver| {
            local.get(&(sender, receiver)).map(Vec::as_slice)
        });
        Ok(())
    }
}

impl<T: Real> Network<T> for Agents<T> {
    fn agents(&self) -> usize {
        self.sequence.agents()
    }

    fn owned(&self) -> &[usize] {
        &self.owned
    }

    fn threads(&self) -> &Threads {
        &self.threads
    }

    fn prepare(&mut self, wishes: Wishes) -> Result<()> {
        if wishes.frozen_weights {
            self.sequence = self.sequence.clone().frozen();
        }
        // A run that goes on from a checkpoint has its sums already.
        if wishes.running_sums && !self.skipping && self.ends.is_some() {
            self.ends = Some(Ends::new(true));
        }
        Ok(())
    }

    fn round(&mut self, k: usize, lanes: &mut [Lane<'_, T>]) -> Result<()> {
        if self.skipping {
            return Ok(());
        }
        self.exchange(k, lanes).map_err(Error::Network)?;
        // The simulator's account: what all agents of the network send.
        let links = self.mixing.graph.links();
        self.traffic.rounds += 1;
        self.traffic.messages += links as u64;
        self.traffic.bytes += (links * Ends::length(lanes) * size_of::<T>()) as u64;
        Ok(())
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn set_traffic(&mut self, traffic: Traffic) {
        self.traffic = traffic;
    }

    fn memory(&self) -> Vec<u8> {
        postcard::to_stdvec(&(lock(&self.node).memory(), &self.ends)).expect("numbers can be written")
    }

    fn restore(&mut self, _memory: &[u8]) -> Result<()> {
        // Taken up before the others were met.
        let late = "a checkpoint must be taken up before the others are met";
        if std::mem::take(&mut self.skipping) { Ok(()) } else { Err(Error::Checkpoint(late.into())) }
    }
}
