//! Push-SAGA (Qureshi and others): push-sum with SAGA's variance-reduced gradients, and gradient tracking.
//!
//! The data of an agent is cut into blocks, of which every iteration draws one; the table starts with the
//! gradient of each block at x⁰, as its authors have it. With one block (full batches) SAGA's estimate is the
//! gradient itself: the paper then finds Push-SAGA and Push-SGD to coincide, which is so without tracking
//! (`tracking = false`).
use super::push_diging::TrackedPushSum;
use super::saga::{drawn, estimate};
use super::stacks::step_private;
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
pub struct PushSaga {
    /// Step.
    pub eta: Schedule,
    /// Gradient tracking, as its authors have it.
    #[serde(default = "yes")]
    pub tracking: bool,
}

fn yes() -> bool {
    true
}

/// The rows, the last gradient of each block and their mean.
pub struct PushSagaState<T> {
    method: PushSaga,
    rows: TrackedPushSum<T>,
    table: Vec<Rows<T>>,
    mean: Rows<T>,
    gradient: Stack<T, 1>,
}

impl Method for PushSaga {
    fn begin<T: Real>(
        &self,
        x: Stack<T, 1>,
        blocks: usize,
        network: &mut dyn Network<T>,
        oracle: &mut Oracle<'_, T>,
    ) -> Result<Box<dyn Descent<T>>> {
        let (mut gradient, mut table) = (x.clone(), Vec::with_capacity(blocks));
        let share = T::ONE / T::of(blocks.max(1) as f64);
        let rows = TrackedPushSum::new(x, network, &mut |network, _, x, d| {
            memory(d).for_each(|d| d.clear());
            for block in 0..blocks.max(1) {
                memory(&mut gradient).for_each(|g| g.clear());
                // A single block's table changes nothing, so without tracking it waits for the first
                // iteration: inside the double loop each question costs an inner loop.
                if self.tracking || blocks > 1 {
                    oracle(network, block, x, &mut gradient)?;
                }
                memory(d).zip(memory(&mut gradient)).for_each(|(d, g)| {
                    d.add_scaled(share, g, network.threads());
                });
                table.push(gradient.shared.clone());
            }
            Ok(())
        })?;
        let mean = rows.d.shared.clone();
        Ok(Box::new(PushSagaState { method: self.clone(), mean, table, gradient, rows }))
    }

    fn check(&self) -> Result<(), String> {
        self.eta.check("eta", false)
    }

    fn mixes(&self) -> Mixes {
        Mixes::PushSum
    }

    /// u, x, t, d, the mean of the table, room for a gradient, and the table.
    fn vectors(&self, blocks: usize) -> usize {
        6 + blocks
    }

    fn eta(&self, k: usize) -> f64 {
        self.eta.at(k)
    }

    fn version(&self) -> u32 {
        2
    }
}

impl<T: Real> Descent<T> for PushSagaState<T> {
    fn step(&mut self, k: usize, network: &mut dyn Network<T>, oracle: &mut Oracle<'_, T>) -> Result<()> {
        let Self { method, rows, table, mean, gradient } = self;
        if !method.tracking {
            // Push-SGD's order: the estimate at x, then u⁺ = B(u − η d), w⁺ = B w
            let sample = drawn(k, table.len());
            oracle(network, sample, &rows.sum.v, gradient)?;
            estimate(sample, gradient, table, mean, &mut rows.d, network);
            rows.sum.descend([method.eta.at(k)], &rows.d, network);
            step_private(&mut rows.sum.v, method.eta.at(k), &rows.d, network);
            rows.sum.push(network.next_round(), network, None)?;
            return Ok(());
        }
        rows.mix(method.eta.at(k), network)?;
        let next = drawn(k + 1, table.len());
        oracle(network, next, &rows.sum.v, gradient)?;
        estimate(next, gradient, table, mean, &mut rows.d, network);
        rows.absorb(network);
        Ok(())
    }

    fn point(&self) -> &Stack<T, 1> {
        &self.rows.sum.v
    }

    fn views(&mut self) -> Vec<View<'_, T>> {
        let mut views = self.rows.views();
        if !self.method.tracking {
            views.retain(|v| v.name != "tx");
        }
        views
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        self.rows.memory().chain(&mut self.table).chain(std::iter::once(&mut self.mean)).collect()
    }
}
