//! Push-ASGD (Chen, Hashemi and Vikalo): push-sum, gradient tracking and a recursive momentum estimate of the
//! gradient.
use super::push_diging::TrackedPushSum;
use super::stacks::pairs;
use super::{Descent, Method, Mixes, Oracle, View, memory};
use crate::error::Result;
use crate::network::Network;
use crate::rows::{Real, Rows, Stack};
use crate::schedule::Schedule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PushAsgd {
    /// Step.
    pub eta: Schedule,
    /// Momentum: 1 is plain gradient tracking, small values average over many samples.
    pub beta: f64,
}

/// The rows, the point before the step and room for the gradient there.
pub struct PushAsgdState<T> {
    method: PushAsgd,
    rows: TrackedPushSum<T>,
    before: Stack<T, 1>,
    old: Stack<T, 1>,
}

impl Method for PushAsgd {
    fn begin<T: Real>(
        &self,
        x: Stack<T, 1>,
        _blocks: usize,
        network: &mut dyn Network<T>,
        oracle: &mut Oracle<'_, T>,
    ) -> Result<Box<dyn Descent<T>>> {
        let (before, old) = (x.clone(), x.clone());
        Ok(Box::new(PushAsgdState {
            method: self.clone(),
            rows: TrackedPushSum::new(x, network, oracle)?,
            before,
            old,
        }))
    }

    fn check(&self) -> Result<(), String> {
        if !(self.beta > 0.0 && self.beta <= 1.0) {
            return Err(format!("beta is {}; it must be above 0 and at most 1", self.beta));
        }
        self.eta.check("eta", false)
    }

    fn mixes(&self) -> Mixes {
        Mixes::PushSum
    }

    fn vectors(&self, _blocks: usize) -> usize {
        6
    }

    fn eta(&self, k: usize) -> f64 {
        self.eta.at(k)
    }

    fn looks_back(&self) -> bool {
        true
    }
}

impl<T: Real> Descent<T> for PushAsgdState<T> {
    fn step(&mut self, k: usize, network: &mut dyn Network<T>, oracle: &mut Oracle<'_, T>) -> Result<()> {
        let Self { method, rows, before, old } = self;
        pairs(before, &rows.sum.v).for_each(|(before, x)| before.copy_from(x));
        let beta = T::of(method.beta);
        rows.mix(method.eta.at(k), network)?;
        // d⁺ = ∇F(x⁺; ξ⁺) + (1 − β)(d − ∇F(x; ξ⁺)): both gradients with the new sample
        oracle(network, k + 1, before, old)?;
        pairs(old, &rows.d).for_each(|(old, d)| old.scale_difference(T::ONE - beta, d, network.threads()));
        oracle(network, k + 1, &rows.sum.v, &mut rows.d)?;
        pairs(&mut rows.d, old).for_each(|(d, old)| d.add(old, network.threads()));
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
        self.rows.memory().chain(memory(&mut self.before)).collect()
    }
}
