//! Centralized_FAB: the same descent-ascent with all gradients averaged in one place (ablation 1 of the
//! paper). It is not F²SA: x moves together with y and z instead of after inner steps on them, and λ stays.
use super::fab::Fab;
use super::stacks::{Steps, like, step_private, zeros};
use super::{Algorithm, State, View};
use super::{at, fill, memory, own_start, views};
use crate::error::{Error, Result};
use crate::network::Network;
use crate::problem::{Bilevel, Start};
use crate::rows::{Real, Rows, Stack};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// FAB's input; no graph is used.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct CentralizedFab(pub Fab);

/// All rows of v are equal; row i of d is agent i's gradient there.
pub struct CentralizedFabState<T> {
    fab: Fab,
    v: Stack<T, 3>,
    d: Stack<T, 3>,
    mean: Vec<f64>,
    steps: Steps<T, 3>,
}

impl<T: Real> Algorithm<T> for CentralizedFab {
    fn start(
        &self,
        problem: &dyn Bilevel<T>,
        network: &mut dyn Network<T>,
        start: Option<&Start>,
    ) -> Result<Box<dyn State<T>>> {
        if network.owned().len() != network.agents() {
            return Err(Error::Network(
                "Centralized_FAB needs all agents in one process: use the simulator".into(),
            ));
        }
        let start = own_start(problem, start);
        let mut v: Stack<T, 3> =
            zeros(&problem.upper(), &[problem.lower(), problem.lower()], network.owned());
        fill(network, &mut v, [&start.x, &start.y, start.twin()]);
        let d = like(&v);
        // One point: the agents' mean start.
        let (mean, mut numbers) = (v.shared.mean(), v.shared.to_vec());
        for row in numbers.chunks_mut(v.shared.stride().max(1)) {
            row.iter_mut().zip(&mean).for_each(|(v, m)| *v = T::of(*m));
        }
        v.shared.restore(&numbers).map_err(Error::Invalid)?;
        Ok(Box::new(CentralizedFabState { fab: self.0.clone(), v, d, mean, steps: Steps::default() }))
    }
}

impl<T: Real> State<T> for CentralizedFabState<T> {
    fn step(&mut self, k: usize, problem: &dyn Bilevel<T>, network: &mut dyn Network<T>) -> Result<()> {
        let Self { fab, v, d, mean, steps } = self;
        problem.penalty_directions(at(k, network), fab.penalty(k), v, d)?;
        // v⁺ = v − η · (1/n) Σ dᵢ, one point for all
        step_private(v, fab.eta(k)[0], d, network);
        if v.on_device() {
            steps.set(v, fab.eta(k));
            v.shared.sub_scaled_mean_on_device(&steps.columns, &d.shared);
            return Ok(());
        }
        mean.fill(0.0);
        let n = v.count();
        for i in 0..n {
            mean.iter_mut().zip(d.shared.row(i)).for_each(|(m, d)| *m += d.f64());
        }
        let eta = fab.eta(k);
        for (variable, eta) in eta.iter().enumerate() {
            let cut = v.cut(variable);
            mean[cut].iter_mut().for_each(|m| *m *= eta / n as f64);
        }
        for i in 0..n {
            v.shared.row_mut(i).iter_mut().zip(&*mean).for_each(|(v, m)| *v -= T::of(*m));
        }
        Ok(())
    }

    fn views(&mut self) -> Vec<View<'_, T>> {
        views(&self.v, ["x", "y", "z"]).chain(views(&self.d, ["dx", "dy", "dz"])).collect()
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        memory(&mut self.v).chain(memory(&mut self.d)).collect()
    }
}
