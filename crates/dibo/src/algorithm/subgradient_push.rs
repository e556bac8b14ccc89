//! Subgradient-push (Nedić and Olshevsky): push-sum, then a gradient step of size η/√(k+1).
use super::push_sum::PushSum;
use super::{Descent, Method, Mixes, Oracle, View};
use crate::error::Result;
use crate::network::Network;
use crate::rows::{Real, Rows, Stack};
use crate::schedule::Schedule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubgradientPush {
    /// Step before the division by √(k+1).
    pub eta: Schedule,
}

/// u, w and x = u/w, with room for the gradient. Between iterations u holds s, what is pushed next.
pub struct SubgradientPushState<T> {
    method: SubgradientPush,
    sum: PushSum<T, 1>,
    gradient: Stack<T, 1>,
}

impl Method for SubgradientPush {
    fn begin<T: Real>(
        &self,
        x: Stack<T, 1>,
        _blocks: usize,
        _network: &mut dyn Network<T>,
        _oracle: &mut Oracle<'_, T>,
    ) -> Result<Box<dyn Descent<T>>> {
        Ok(Box::new(SubgradientPushState { method: self.clone(), gradient: x.clone(), sum: PushSum::new(x) }))
    }

    fn check(&self) -> Result<(), String> {
        self.eta.check("eta", false)
    }

    fn mixes(&self) -> Mixes {
        Mixes::PushSum
    }

    fn vectors(&self, _blocks: usize) -> usize {
        3
    }

    fn eta(&self, k: usize) -> f64 {
        self.eta.at(k) / ((k + 1) as f64).sqrt()
    }
}

impl<T: Real> Descent<T> for SubgradientPushState<T> {
    fn step(&mut self, k: usize, network: &mut dyn Network<T>, oracle: &mut Oracle<'_, T>) -> Result<()> {
        let Self { method, sum, gradient } = self;
        // u⁺ = B s, w⁺ = B w, x⁺ = u⁺/w⁺
        sum.push(network.next_round(), network, None)?;
        // s⁺ = u⁺ − η/√(k+1) ∇F(x⁺)
        oracle(network, k + 1, &sum.v, gradient)?;
        sum.descend([method.eta(k)], gradient, network);
        Ok(())
    }

    fn point(&self) -> &Stack<T, 1> {
        &self.sum.v
    }

    fn views(&mut self) -> Vec<View<'_, T>> {
        self.sum.views(["x"]).collect()
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        self.sum.memory().collect()
    }
}
