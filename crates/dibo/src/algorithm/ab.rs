//! AB/Push-Pull, Algorithm 2 of the paper (TV-AB): pull the variable through A, push the gradient tracker
//! through B.
use super::tracking::Tracked;
use super::{Descent, Method, Mixes, Oracle, Theorem, View};
use crate::error::Result;
use crate::network::Network;
use crate::rows::{Real, Rows, Stack};
use crate::schedule::Schedule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Input of Algorithm 2.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PushPull {
    /// Step.
    pub eta: Schedule,
}

/// x with tracker and gradient.
pub struct PushPullState<T> {
    eta: Schedule,
    rows: Tracked<T, 1>,
}

impl Method for PushPull {
    fn begin<T: Real>(
        &self,
        x: Stack<T, 1>,
        _blocks: usize,
        network: &mut dyn Network<T>,
        oracle: &mut Oracle<'_, T>,
    ) -> Result<Box<dyn Descent<T>>> {
        let mut rows = Tracked::new(x);
        oracle(network, 0, &rows.v, &mut rows.d)?;
        rows.absorb();
        Ok(Box::new(PushPullState { eta: self.eta, rows }))
    }

    fn check(&self) -> Result<(), String> {
        self.eta.check("eta", false)
    }

    fn mixes(&self) -> Mixes {
        Mixes::PullAndPush
    }

    fn theorem(&self) -> Option<Theorem> {
        Some(Theorem::SingleLevel)
    }

    fn vectors(&self, _blocks: usize) -> usize {
        3
    }

    fn eta(&self, k: usize) -> f64 {
        self.eta.at(k)
    }
}

impl<T: Real> Descent<T> for PushPullState<T> {
    fn step(&mut self, k: usize, network: &mut dyn Network<T>, oracle: &mut Oracle<'_, T>) -> Result<()> {
        let Self { eta, rows } = self;
        // Step 1: x⁺ = A x − η t; and the mixing of step 3
        rows.mix(network.next_round(), [eta.at(k)], network)?;
        // Step 2: ∇f(x⁺)
        oracle(network, k + 1, &rows.v, &mut rows.d)?;
        // Step 3: t⁺ = B t + ∇f(x⁺) − ∇f(x)
        rows.absorb();
        Ok(())
    }

    fn point(&self) -> &Stack<T, 1> {
        &self.rows.v
    }

    fn views(&mut self) -> Vec<View<'_, T>> {
        self.rows.views(["x"], ["tx"], ["dx"])
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        self.rows.memory()
    }
}
