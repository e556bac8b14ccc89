//! Push-SAGA (Qureshi and others): push-sum with SAGA's variance-reduced gradients, and gradient tracking.
//!
//! The data of an agent is cut into blocks; iteration k uses block k mod blocks. With one block (full
//! batches) SAGA's estimate is the gradient itself: the paper then finds Push-SAGA and Push-SGD to coincide,
//! which is so without tracking (`tracking = false`).
use super::push_diging::TrackedPushSum;
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
        let gradient = x.clone();
        // Without tracking the first gradient is asked for in the first iteration, as in Push-SGD: inside the
        // double loop each question costs an inner loop, and the two methods are to coincide there as well.
        let rows = match self.tracking {
            true => TrackedPushSum::new(x, network, oracle)?,
            false => TrackedPushSum::new(x, network, &mut |_, _, _, d| {
                memory(d).for_each(|d| d.clear());
                Ok(())
            })?,
        };
        // The table starts with the first gradient everywhere, so that no block begins from nothing.
        let table = vec![rows.d.shared.clone(); blocks.max(1)];
        Ok(Box::new(PushSagaState {
            method: self.clone(),
            mean: rows.d.shared.clone(),
            table,
            gradient,
            rows,
        }))
    }

    fn check(&self) -> Result<(), String> {
        self.eta.check("eta", false)
    }

    fn mixes(&self) -> Mixes {
        Mixes::PushSum
    }

    fn vectors(&self, blocks: usize) -> usize {
        5 + blocks
    }

    fn eta(&self, k: usize) -> f64 {
        self.eta.at(k)
    }
}

impl<T: Real> Descent<T> for PushSagaState<T> {
    fn step(&mut self, k: usize, network: &mut dyn Network<T>, oracle: &mut Oracle<'_, T>) -> Result<()> {
        let Self { method, rows, table, mean, gradient } = self;
        if !method.tracking {
            // Push-SGD's order: the estimate at x, then u⁺ = B(u − η d), w⁺ = B w
            oracle(network, k, &rows.sum.v, gradient)?;
            if k == 0 {
                table.iter_mut().chain([&mut *mean]).for_each(|g| g.copy_from(&gradient.shared));
            }
            estimate(k, gradient, table, mean, &mut rows.d, network);
            rows.sum.descend([method.eta.at(k)], &rows.d, network);
            step_private(&mut rows.sum.v, method.eta.at(k), &rows.d, network);
            rows.sum.push(network.next_round(), network, None)?;
            return Ok(());
        }
        rows.mix(method.eta.at(k), network)?;
        oracle(network, k + 1, &rows.sum.v, gradient)?;
        estimate(k + 1, gradient, table, mean, &mut rows.d, network);
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

/// d = ∇F_block(x) − table[block] + mean(table), then table[block] = ∇F_block(x).
fn estimate<T: Real>(
    k: usize,
    gradient: &Stack<T, 1>,
    table: &mut [Rows<T>],
    mean: &mut Rows<T>,
    d: &mut Stack<T, 1>,
    network: &dyn Network<T>,
) {
    let (threads, share) = (network.threads(), T::ONE / T::of(table.len() as f64));
    let old = &mut table[k % table.len()];
    // Private entries occur only in the double loop, whose one block is all data: the estimate is the
    // gradient.
    if let (Some(d), Some(gradient)) = (&mut d.private, &gradient.private) {
        d.copy_from(gradient);
    }
    d.shared.copy_from(&gradient.shared);
    d.shared.add_scaled(-T::ONE, old, threads);
    // The change of the mean is the difference that d holds now, divided by the number of blocks.
    old.copy_from(&d.shared);
    d.shared.add(mean, threads);
    mean.add_scaled(share, old, threads);
    old.copy_from(&gradient.shared);
}
