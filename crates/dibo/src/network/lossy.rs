//! Links that lose messages for good. What is pulled is averaged over what arrived. What is pushed is either
//! lost with its message, or, with running sums, brought by a later one: a link carries the sum of all that
//! was ever pushed over it, and the receiver takes the difference to what it has already had.
use super::{Lane, Network, Traffic, Wishes};
use crate::error::{Error, Result};
use crate::graph::Loss;
use crate::mixing::{Mixing, Sequence};
use crate::rows::{Real, Threads};
use std::collections::BTreeMap;

/// (sender, receiver).
type Link = (u32, u32);

/// The two ends of all links of some agents: how a round's messages are made and taken in.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(bound = "T: Real")]
pub struct Ends<T> {
    sums: bool,
    /// Sum of what was pushed over each link, at the sender …
    sent: BTreeMap<Link, Vec<T>>,
    /// … and the part of it that has arrived, at the receiver.
    arrived: BTreeMap<Link, Vec<T>>,
}

impl<T: Real> Ends<T> {
    /// With running sums, or without.
    pub fn new(sums: bool) -> Self {
        Ends { sums, sent: BTreeMap::new(), arrived: BTreeMap::new() }
    }

    /// Numbers in a message: for each lane what is pulled, then what is pushed.
    pub fn length(lanes: &[Lane<'_, T>]) -> usize {
        lanes.iter().map(|lane| lane.width()).sum()
    }

    fn pushed(lanes: &[Lane<'_, T>]) -> usize {
        lanes.iter().flat_map(|lane| &lane.push).map(|t| t.width()).sum()
    }

    /// Writes what agent `sender`, who lies in `row`, tells `receiver` in this round. Every link of a round's
    /// graph must be asked for once, before anything is received.
    pub fn message(
        &mut self,
        mixing: &Mixing<T>,
        (sender, row): (usize, usize),
        receiver: usize,
        lanes: &[Lane<'_, T>],
        message: &mut Vec<T>,
    ) {
        message.clear();
        let b = T::of(mixing.b(receiver, sender));
        let mut sums = match self.sums {
            true => {
                let sums = self.sent.entry((sender as u32, receiver as u32)).or_default();
                sums.resize(Self::pushed(lanes), T::ZERO);
                sums.as_mut_slice()
            }
            false => &mut [],
        };
        for lane in lanes {
            if let Some((v, _)) = &lane.pull {
                message.extend_from_slice(v.row(row));
            }
            let Some(t) = &lane.push else { continue };
            match sums.split_off_mut(..t.width()) {
                Some(sum) => {
                    sum.iter_mut().zip(t.row(row)).for_each(|(s, t)| *s += b * *t);
                    message.extend_from_slice(sum);
                }
                None => message.extend(t.row(row).iter().map(|t| b * *t)),
            }
        }
    }

    /// Mixes every lane of the owned agents with the messages that came: `v ← Σ a v / Σ a − η∘t` over what
    /// arrived, `t ← Σ b t − d`; without t nothing is taken off v.
    pub fn receive<'m>(
        &mut self,
        mixing: &Mixing<T>,
        owned: &[usize],
        lanes: &mut [Lane<'_, T>],
        message: impl Fn(usize, usize) -> Option<&'m [T]>,
    ) {
        let (mut pulled, mut pushed) = (Vec::new(), Vec::new());
        let all_pushed = Self::pushed(lanes);
        for (row, &receiver) in owned.iter().enumerate() {
            // What each sender brings, in agent order; the agent itself always arrives.
            let senders: Vec<(usize, Option<&[T]>)> = mixing
                .graph
                .senders(receiver)
                .iter()
                .map(|j| *j as usize)
                .filter_map(|j| {
                    if j == receiver { Some((j, None)) } else { message(j, receiver).map(|m| (j, Some(m))) }
                })
                .collect();
            let weight: T = senders.iter().fold(T::ZERO, |sum, (j, _)| sum + T::of(mixing.a(receiver, *j)));
            let (mut at, mut at_sum) = (0, 0);
            for lane in &mut *lanes {
                let [width, push_width] = lane.sent().map(|rows| rows.map_or(0, |rows| rows.width()));
                pulled.clear();
                pulled.resize(width, T::ZERO);
                pushed.clear();
                pushed.resize(push_width, T::ZERO);
                for (sender, told) in &senders {
                    let a = T::of(mixing.a(receiver, *sender));
                    let [v, t] = lane.sent().map(|rows| rows.map_or(&[] as &[T], |rows| rows.row(row)));
                    let v = told.map_or(v, |m| &m[at..at + width]);
                    pulled.iter_mut().zip(v).for_each(|(sum, v)| *sum += a * *v);
                    match told.map(|m| &m[at + width..at + width + push_width]) {
                        None => {
                            let b = T::of(mixing.b(receiver, *sender));
                            pushed.iter_mut().zip(t).for_each(|(sum, t)| *sum += b * *t);
                        }
                        Some(told) if self.sums => {
                            let had = self.arrived.entry((*sender as u32, receiver as u32)).or_default();
                            had.resize(all_pushed, T::ZERO);
                            let had = &mut had[at_sum..at_sum + push_width];
                            pushed.iter_mut().zip(told).zip(&*had).for_each(|((sum, t), h)| *sum += *t - *h);
                            had.copy_from_slice(told);
                        }
                        Some(told) => pushed.iter_mut().zip(told).for_each(|(sum, t)| *sum += *t),
                    }
                }
                if let Some((v, eta)) = &mut lane.pull {
                    let v = v.row_mut(row);
                    let share = T::of(lane.share);
                    for (v, p) in v.iter_mut().zip(&pulled) {
                        let p = *p / weight;
                        *v = if share == T::ONE { p } else { *v + share * (p - *v) };
                    }
                    if let Some(t) = &lane.push {
                        let steps = t.row(row).iter().zip(*eta);
                        v.iter_mut().zip(steps).for_each(|(v, (t, eta))| *v -= *eta * *t);
                    }
                }
                if let Some(t) = lane.push.as_mut().map(|t| t.row_mut(row)) {
                    t.copy_from_slice(&pushed);
                    if let Some(d) = lane.d {
                        t.iter_mut().zip(d.row(row)).for_each(|(t, d)| *t -= *d);
                    }
                }
                (at, at_sum) = (at + width + push_width, at_sum + push_width);
            }
        }
    }

    /// What was pushed and has not arrived, summed over the links whose two ends are here: a number for each
    /// column that is pushed.
    pub fn in_flight(&self) -> Vec<f64> {
        let mut sum = Vec::new();
        for (link, sent) in &self.sent {
            sum.resize(sent.len(), 0.0);
            let none = vec![T::ZERO; sent.len()];
            let arrived = self.arrived.get(link).unwrap_or(&none);
            sum.iter_mut()
                .zip(sent)
                .zip(arrived)
                .for_each(|((sum, s), a): ((&mut f64, _), _)| *sum += s.f64() - a.f64());
        }
        sum
    }
}

/// All agents in this process, over links that lose messages.
pub struct Lossy<T> {
    sequence: Sequence,
    loss: Loss,
    owned: Vec<usize>,
    threads: Threads,
    traffic: Traffic,
    mixing: Mixing<T>,
    ends: Ends<T>,
    messages: BTreeMap<Link, Vec<T>>,
}

impl<T: Real> Lossy<T> {
    /// A network that follows this sequence and loses what `loss` says. An algorithm that wishes
    /// for running sums gets them.
    pub fn new(sequence: Sequence, loss: Loss, threads: Threads) -> Self {
        Lossy {
            owned: (0..sequence.agents()).collect(),
            sequence,
            loss,
            threads,
            traffic: Traffic::default(),
            mixing: Mixing::default(),
            ends: Ends::new(false),
            messages: BTreeMap::new(),
        }
    }

    /// What was pushed and has not arrived yet; see [`Ends::in_flight`].
    pub fn in_flight(&self) -> Vec<f64> {
        self.ends.in_flight()
    }
}

impl<T: Real> Network<T> for Lossy<T> {
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
        if wishes.running_sums {
            self.ends = Ends::new(true);
        }
        Ok(())
    }

    fn round(&mut self, k: usize, lanes: &mut [Lane<'_, T>]) -> Result<()> {
        let Self { sequence, loss, owned, threads, traffic, mixing, ends, messages } = self;
        sequence.fill(k, mixing);
        lanes.iter_mut().for_each(|lane| lane.settle(threads));
        for (sender, receiver) in mixing.graph.edges() {
            let message = messages.entry((sender as u32, receiver as u32)).or_default();
            ends.message(mixing, (sender, sender), receiver, lanes, message);
        }
        let round = traffic.rounds as usize;
        traffic.rounds += 1;
        traffic.messages += mixing.graph.links() as u64;
        traffic.bytes += (mixing.graph.links() * Ends::length(lanes) * size_of::<T>()) as u64;
        let came = |sender: usize, receiver: usize| {
            loss.arrives(round, sender, receiver)
                .then(|| messages[&(sender as u32, receiver as u32)].as_slice())
        };
        ends.receive(mixing, owned, lanes, came);
        Ok(())
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn set_traffic(&mut self, traffic: Traffic) {
        self.traffic = traffic;
    }

    fn memory(&self) -> Vec<u8> {
        postcard::to_stdvec(&self.ends).expect("numbers can be written")
    }

    fn restore(&mut self, memory: &[u8]) -> Result<()> {
        let damaged = |e| Error::Checkpoint(format!("damaged checkpoint: {e}"));
        self.ends = postcard::from_bytes(memory).map_err(damaged)?;
        Ok(())
    }
}
