//! How rows move over the network: one file a rule. A rule knows neither what its rows mean nor how many
//! variables they hold, so the same rules serve cells, single-level methods and inner loops.
mod dgd;
mod ed;
mod extra;
mod gt;
mod push_diging;
mod sgp;
mod soft;

use super::{GraphNeeds, Mixes};
use crate::network::Lane;
use crate::rows::{Real, Rows, Threads};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use soft::Soft;
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
    /// What is sent in it: decisions, unless a rule says more.
    fn send<'a>(
        &'a mut self,
        _phase: usize,
        v: &'a mut Rows<T>,
        _m: &'a Rows<T>,
        _eta: &'a [T],
        out: &mut Lanes<'a, T>,
    ) {
        out.put(Lane::pull(v));
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
        let nothing = |_| Lane { pull: None, push: None, d: None, pending: false };
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

/// The mixing rules by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mix {
    /// v⁺ = W v − η m (DGD).
    #[serde(alias = "dgd")]
    DgdCta,
    /// v⁺ = W (v − η m) (diffusion).
    DgdAtc,
    /// v⁺ = W v − η t, t⁺ = W t + m⁺ − m (DIGing).
    Gt,
    /// v⁺ = W (v − η t), t⁺ = W t + m⁺ − m (ATC tracking, NEXT, SONATA).
    GtXatc,
    /// t = W (t + m − m₋), v⁺ = W (v − η t): two rounds.
    GtAtc,
    /// The same with t⁰ = m⁰ (Aug-DGM, ATC-DIGing).
    GtAtcRaw,
    /// ψ⁺ = v − η m, v⁺ = W (v + ψ⁺ − ψ) (Exact Diffusion, D²).
    Ed,
    /// v⁺ = W (2v − v₋) − η (m − m₋).
    Extra,
    /// u⁺ = B (u − η m), w⁺ = B w, v = u/w (gradient push).
    Sgp,
    /// u⁺ = B u − η m, w⁺ = B w, v = u/w.
    SgpCta,
    /// u⁺ = B (u − η t), w⁺ = B w, v = u/w, t⁺ = B t + m⁺ − m.
    PushDiging,
    /// v⁺ = A v − η t, t⁺ = B t + m⁺ − m (AB/Push-Pull).
    Ab,
    /// v⁺ = A (v − η t), t⁺ = B t + m⁺ − m (AB/Push-Pull, adapt then combine).
    AbAtc,
}

impl Mix {
    /// The rule for rows that start at `v`; where a decision is mixed, (1 − share) v + share A v stands for
    /// A v.
    pub fn make<T: Real>(self, v: &Rows<T>, share: f64) -> Box<dyn Mixer<T>> {
        let soft = Soft::new(share, v);
        match self {
            Mix::DgdCta | Mix::DgdAtc => Box::new(dgd::Dgd { adapt_first: self == Mix::DgdAtc, soft }),
            Mix::Gt | Mix::Ab => Box::new(gt::Gt::new(gt::Order::Combine, v, soft)),
            Mix::GtXatc | Mix::AbAtc => Box::new(gt::Gt::new(gt::Order::Adapt, v, soft)),
            Mix::GtAtc => Box::new(gt::Gt::new(gt::Order::Both { raw: false }, v, soft)),
            Mix::GtAtcRaw => Box::new(gt::Gt::new(gt::Order::Both { raw: true }, v, soft)),
            Mix::Ed => Box::new(ed::Ed::new(v, soft)),
            Mix::Extra => Box::new(extra::Extra::new(v, soft)),
            Mix::Sgp | Mix::SgpCta => Box::new(sgp::Sgp::new(v, self == Mix::Sgp)),
            Mix::PushDiging => Box::new(push_diging::PushDiging::new(v)),
        }
    }

    /// Whether it asks for doubly stochastic weights.
    pub fn doubly_stochastic(self) -> bool {
        !matches!(self, Mix::Sgp | Mix::SgpCta | Mix::PushDiging | Mix::Ab | Mix::AbAtc)
    }

    /// Whether it asks for one graph for ever.
    pub fn one_graph(self) -> bool {
        matches!(self, Mix::Ed | Mix::Extra)
    }

    /// c of (1 − c) I + c W, unless told otherwise: ED and EXTRA need the eigenvalues of their matrix above
    /// −1/3, which the lazy (I + W)/2 always has.
    pub fn share(self) -> f64 {
        if self.one_graph() { 0.5 } else { 1.0 }
    }

    /// What these rules ask of graphs and weights together.
    pub fn needs_of(rules: &[Mix]) -> GraphNeeds {
        GraphNeeds {
            doubly_stochastic: rules.iter().any(|m| m.doubly_stochastic()),
            one_graph: rules.iter().any(|m| m.one_graph()),
        }
    }

    /// Rounds of one step.
    pub fn rounds(self) -> usize {
        if matches!(self, Mix::GtAtc | Mix::GtAtcRaw) { 2 } else { 1 }
    }

    /// Vectors that it keeps beside v and m.
    pub fn vectors(self) -> usize {
        match self {
            Mix::DgdCta | Mix::DgdAtc => 0,
            Mix::Ed | Mix::PushDiging => 2,
            Mix::Extra => 3,
            _ => 1,
        }
    }

    /// How it brings the agents together.
    pub fn mixes(self) -> Mixes {
        match self {
            Mix::DgdCta | Mix::DgdAtc | Mix::Ed | Mix::Extra => Mixes::Pull,
            Mix::Gt | Mix::Ab => Mixes::PullAndPush,
            Mix::GtXatc | Mix::AbAtc | Mix::GtAtc | Mix::GtAtcRaw => Mixes::PullAndPushInLoops,
            Mix::Sgp | Mix::SgpCta | Mix::PushDiging => Mixes::PushSum,
        }
    }
}
