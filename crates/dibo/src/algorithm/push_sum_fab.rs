//! PushSum_FAB, Algorithm 3 of the paper: FAB with push-sum (B alone) instead of AB/Push-Pull.
//!
//! The paper keeps three weights w_x, w_y, w_z; they are always equal, so there is one.
use super::fab::Fab;
use super::push_sum::PushSum;
use super::stacks::{step_private, zeros};
use super::{Algorithm, State, View};
use super::{at, fill, memory, own_start, views};
use crate::error::Result;
use crate::network::Network;
use crate::problem::{Bilevel, Start};
use crate::rows::{Real, Rows, Stack};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// FAB's input; A is not used.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct PushSumFab(pub Fab);

/// u with weight w, the estimate v = u/w, trackers and directions.
pub struct PushSumFabState<T> {
    fab: Fab,
    sum: PushSum<T, 3>,
    t: Stack<T, 3>,
    d: Stack<T, 3>,
}

impl<T: Real> Algorithm<T> for PushSumFab {
    fn start(
        &self,
        problem: &dyn Bilevel<T>,
        network: &mut dyn Network<T>,
        start: Option<&Start>,
    ) -> Result<Box<dyn State<T>>> {
        let start = own_start(problem, start);
        let mut v: Stack<T, 3> =
            zeros(&problem.upper(), &[problem.lower(), problem.lower()], network.owned());
        fill(network, &mut v, [&start.x, &start.y, start.twin()]);
        // After v has its place, which may be a GPU.
        let mut d = v.clone();
        memory(&mut d).for_each(Rows::clear);
        problem.penalty_directions(at(0, network), self.0.penalty(0), &v, &mut d)?;
        let mut t = d.clone();
        t.private = None;
        Ok(Box::new(PushSumFabState { fab: self.0.clone(), sum: PushSum::new(v), t, d }))
    }
}

impl<T: Real> State<T> for PushSumFabState<T> {
    fn step(&mut self, k: usize, problem: &dyn Bilevel<T>, network: &mut dyn Network<T>) -> Result<()> {
        let Self { fab, sum, t, d } = self;
        // u⁺ = B(u − η t), w⁺ = B w, v⁺ = u⁺/w⁺; and t = B t − d in the same message
        sum.descend(fab.eta(k), t, network);
        step_private(&mut sum.v, fab.eta(k)[0], d, network);
        sum.push(k, network, Some((t, d)))?;
        // d⁺ at the corrected point, t⁺ = B t + d⁺ − d
        problem.penalty_directions(at(k + 1, network), fab.penalty(k + 1), &sum.v, d)?;
        t.shared.add(&d.shared, network.threads());
        Ok(())
    }

    fn views(&mut self) -> Vec<View<'_, T>> {
        let mut all: Vec<_> =
            self.sum.views(["x", "y", "z"]).chain(views(&self.t, ["tx", "ty", "tz"])).collect();
        if self.d.private.is_some() {
            all.retain(|v| v.name != "tx");
        }
        all.extend(views(&self.d, ["dx", "dy", "dz"]));
        all
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        self.sum.memory().chain(memory(&mut self.t)).chain(memory(&mut self.d)).collect()
    }
}
