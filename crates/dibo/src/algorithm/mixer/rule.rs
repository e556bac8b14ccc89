//! What a mixing rule is: phases of local work, one round, local work.
use crate::network::Lane;
use crate::rows::{Real, Rows, Threads};
use std::ops::Range;

/// Rows to move: decisions v along directions m, with one step per column.
pub struct Step<'a, T> {
    /// Decisions.
    pub v: &'a mut Rows<T>,
    /// What they move along.
    pub m: &'a Rows<T>,
    /// Steps.
    pub eta: &'a [T],
    /// Threads to use.
    pub threads: &'a Threads,
}

/// A mixing rule at work. A step has one phase or more; each is local work, one round, local work.
pub trait Mixer<T: Real>: Send {
    /// The phases of iteration `k`.
    fn phases(&self, _k: usize) -> Range<usize> {
        0..1
    }
    /// What every agent does alone before the round of a phase.
    fn before(&mut self, _phase: usize, _step: Step<'_, T>) {}
    /// c of (1 − c) v + c A v, which stands for A v.
    fn share(&self) -> f64 {
        1.0
    }
    /// What is sent in it: decisions, unless a rule says more.
    fn send<'a>(
        &'a mut self,
        _phase: usize,
        v: &'a mut Rows<T>,
        _m: &'a Rows<T>,
        _eta: &'a [T],
        out: &mut Lanes<'a, T>,
    ) {
        out.put(Lane::pull(v).share(self.share()));
    }
    /// What every agent does alone after it.
    fn after(&mut self, _phase: usize, _step: Step<'_, T>) {}
    /// Hears that m holds new directions.
    fn renewed(&mut self) {}
    /// Adds what is still to be added of m to the tracker.
    fn settle(&mut self, _m: &Rows<T>, _threads: &Threads) {}
    /// The tracker.
    fn tracker(&self) -> Option<&Rows<T>> {
        None
    }
    /// Push-sum's weight.
    fn weight(&self) -> Option<&Rows<T>> {
        None
    }
    /// Begins anew at `v`.
    fn restart(&mut self, _v: &Rows<T>) {}
    /// What it remembers, in a fixed order.
    fn memory(&mut self) -> Vec<&mut Rows<T>>;
}

/// The most lanes of a round: three variables, each with u, its weight and a tracker.
const MOST: usize = 9;

/// What is sent in one round, gathered without taking memory.
pub struct Lanes<'a, T> {
    lanes: [Lane<'a, T>; MOST],
    count: usize,
}

impl<T> Default for Lanes<'_, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a, T> Lanes<'a, T> {
    /// Nothing yet.
    pub fn new() -> Self {
        let nothing = |_| Lane { pull: None, push: None, d: None, pending: false, share: 1.0 };
        Lanes { lanes: std::array::from_fn(nothing), count: 0 }
    }

    /// Adds a lane.
    pub fn put(&mut self, lane: Lane<'a, T>) {
        self.lanes[self.count] = lane;
        self.count += 1;
    }

    /// All of them.
    pub fn all(&mut self) -> &mut [Lane<'a, T>] {
        &mut self.lanes[..self.count]
    }
}
