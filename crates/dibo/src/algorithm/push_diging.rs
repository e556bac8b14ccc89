//! Push-DIGing: gradient tracking over push-sum. Its rows also carry Push-SAGA and Push-ASGD, which track
//! other estimates.
use super::push_sum::PushSum;
use super::stacks::step_private;
use super::{Descent, Method, Mixes, Oracle, View, memory, views};
use crate::error::Result;
use crate::network::Network;
use crate::rows::{Real, Rows, Stack};
use crate::schedule::Schedule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PushDiging {
    /// Step.
    pub eta: Schedule,
}

/// Push-sum with a tracker t of the directions d.
pub(super) struct TrackedPushSum<T> {
    pub sum: PushSum<T, 1>,
    pub t: Stack<T, 1>,
    pub d: Stack<T, 1>,
}

impl<T: Real> TrackedPushSum<T> {
    pub fn new(x: Stack<T, 1>, network: &mut dyn Network<T>, oracle: &mut Oracle<'_, T>) -> Result<Self> {
        let mut d = x.clone();
        oracle(network, 0, &x, &mut d)?;
        let mut t = d.clone();
        // A private variable meets no other agent, so its tracker is its direction.
        t.private = None;
        Ok(TrackedPushSum { sum: PushSum::new(x), t, d })
    }

    /// u⁺ = B(u − η t), w⁺ = B w, x⁺ = u⁺/w⁺; and t = B t − d in the same message.
    pub fn mix(&mut self, eta: f64, network: &mut dyn Network<T>) -> Result<()> {
        self.sum.descend([eta], &self.t, network);
        step_private(&mut self.sum.v, eta, &self.d, network);
        self.sum.push(network.next_round(), network, Some((&mut self.t, &self.d)))?;
        Ok(())
    }

    /// t⁺ = t + d⁺.
    pub fn absorb(&mut self, network: &dyn Network<T>) {
        self.t.shared.add(&self.d.shared, network.threads());
    }

    pub fn views(&mut self) -> Vec<View<'_, T>> {
        let mut all: Vec<_> =
            self.sum.views(["x"]).chain(views(&self.t, ["tx"])).chain(views(&self.d, ["dx"])).collect();
        if self.d.private.is_some() {
            all.retain(|v| v.name != "tx");
        }
        all
    }

    pub fn memory(&mut self) -> impl Iterator<Item = &mut Rows<T>> {
        self.sum.memory().chain(memory(&mut self.t)).chain(memory(&mut self.d))
    }
}

/// The rows and the step.
pub struct PushDigingState<T> {
    eta: Schedule,
    rows: TrackedPushSum<T>,
}

impl Method for PushDiging {
    fn begin<T: Real>(
        &self,
        x: Stack<T, 1>,
        _blocks: usize,
        network: &mut dyn Network<T>,
        oracle: &mut Oracle<'_, T>,
    ) -> Result<Box<dyn Descent<T>>> {
        Ok(Box::new(PushDigingState { eta: self.eta, rows: TrackedPushSum::new(x, network, oracle)? }))
    }

    fn check(&self) -> Result<(), String> {
        self.eta.check("eta", false)
    }

    fn mixes(&self) -> Mixes {
        Mixes::PushSum
    }

    fn vectors(&self, _blocks: usize) -> usize {
        4
    }

    fn eta(&self, k: usize) -> f64 {
        self.eta.at(k)
    }
}

impl<T: Real> Descent<T> for PushDigingState<T> {
    fn step(&mut self, k: usize, network: &mut dyn Network<T>, oracle: &mut Oracle<'_, T>) -> Result<()> {
        let Self { eta, rows } = self;
        rows.mix(eta.at(k), network)?;
        // d⁺ = ∇F(x⁺), t⁺ = B t + d⁺ − d
        oracle(network, k + 1, &rows.sum.v, &mut rows.d)?;
        rows.absorb(network);
        Ok(())
    }

    fn point(&self) -> &Stack<T, 1> {
        &self.rows.sum.v
    }

    fn views(&mut self) -> Vec<View<'_, T>> {
        self.rows.views()
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        self.rows.memory().collect()
    }
}
