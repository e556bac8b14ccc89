//! Push-SGD (SGP): stochastic gradient descent over push-sum.
use super::push_sum::PushSum;
use super::stacks::step_private;
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
pub struct PushSgd {
    /// Step.
    pub eta: Schedule,
}

/// u, w and x = u/w, with room for the gradient.
pub struct PushSgdState<T> {
    eta: Schedule,
    sum: PushSum<T, 1>,
    gradient: Stack<T, 1>,
}

impl Method for PushSgd {
    fn begin<T: Real>(
        &self,
        x: Stack<T, 1>,
        _blocks: usize,
        _network: &mut dyn Network<T>,
        _oracle: &mut Oracle<'_, T>,
    ) -> Result<Box<dyn Descent<T>>> {
        Ok(Box::new(PushSgdState { eta: self.eta, gradient: x.clone(), sum: PushSum::new(x) }))
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
        self.eta.at(k)
    }
}

impl<T: Real> Descent<T> for PushSgdState<T> {
    fn step(&mut self, k: usize, network: &mut dyn Network<T>, oracle: &mut Oracle<'_, T>) -> Result<()> {
        let Self { eta, sum, gradient } = self;
        // u⁺ = B(u − η ∇F(x)), w⁺ = B w, x⁺ = u⁺/w⁺
        oracle(network, k, &sum.v, gradient)?;
        sum.descend([eta.at(k)], gradient, network);
        step_private(&mut sum.v, eta.at(k), gradient, network);
        sum.push(network.next_round(), network, None)?;
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
