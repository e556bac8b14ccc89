//! PushPull_SOBA, Algorithm 4 of the paper: SOBA's directions (with second-order products) moved by
//! AB/Push-Pull.
use super::direction::{Direction, Soba};
use super::stacks::{at, zeros};
use super::tracking::Tracked;
use super::{Algorithm, Mixes, Needs, Parameters, State, Tier, Vectors, View, Workspaces};
use super::{fill, own_start, step_tiers};
use crate::error::Result;
use crate::network::Network;
use crate::problem::{Bilevel, Start};
use crate::rows::{Real, Rows};
use crate::schedule::Schedule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Input of Algorithm 4.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PushPullSoba {
    /// Step of x.
    pub eta_x: Schedule,
    /// Step of y.
    pub eta_y: Schedule,
    /// Step of the auxiliary variable v; that of y if not given.
    pub eta_v: Option<Schedule>,
}

/// x, y, v with trackers and directions.
pub struct PushPullSobaState<T> {
    soba: PushPullSoba,
    rows: Tracked<T, 3>,
    workspaces: Workspaces<T>,
}

impl<T: Real> Algorithm<T> for PushPullSoba {
    fn start(
        &self,
        problem: &dyn Bilevel<T>,
        network: &mut dyn Network<T>,
        start: Option<&Start>,
    ) -> Result<Box<dyn State<T>>> {
        let start = own_start(problem, start);
        let mut v = zeros(&problem.upper(), &[problem.lower(), problem.lower()], network.owned());
        fill(network, &mut v, [&start.x, &start.y, &start.v]);
        let workspaces = Workspaces::new(network.threads().count());
        let mut state = PushPullSobaState { soba: self.clone(), rows: Tracked::new(v), workspaces };
        state.directions(0, problem, network)?;
        state.rows.absorb();
        Ok(Box::new(state))
    }
}

impl Parameters for PushPullSoba {
    fn check(&self) -> Result<(), String> {
        self.eta_x.check("eta_x", false)?;
        self.eta_y.check("eta_y", false)?;
        self.eta_v.unwrap_or(self.eta_y).check("eta_v", false)
    }

    fn needs(&self) -> Needs {
        Needs::SecondOrder
    }

    fn mixes(&self) -> Mixes {
        Mixes::PullAndPush
    }

    fn vectors(&self, _blocks: usize) -> Vectors {
        Vectors { upper: 3, lower: 6, single: 0 }
    }

    fn tiers(&self) -> Vec<Tier> {
        step_tiers(["eta_x", "eta_y"], None)
    }
}

impl<T: Real> PushPullSobaState<T> {
    /// dy = ∇ᵧg, dv = ∇²ᵧᵧg v − ∇ᵧf, dx = ∇ₓf − ∇²ₓᵧg v, all at (x, y, v).
    fn directions(&mut self, k: usize, problem: &dyn Bilevel<T>, network: &dyn Network<T>) -> Result<()> {
        let Tracked { v, d, .. } = &mut self.rows;
        Soba.of_all(problem, at(k, network), None, v, d, &self.workspaces)
    }
}

impl<T: Real> State<T> for PushPullSobaState<T> {
    fn step(&mut self, k: usize, problem: &dyn Bilevel<T>, network: &mut dyn Network<T>) -> Result<()> {
        let eta = [&self.soba.eta_x, &self.soba.eta_y, self.soba.eta_v.as_ref().unwrap_or(&self.soba.eta_y)]
            .map(|s| s.at(k));
        self.rows.mix(k, eta, network)?;
        self.directions(k + 1, problem, network)?;
        self.rows.absorb();
        Ok(())
    }

    fn views(&mut self) -> Vec<View<'_, T>> {
        self.rows.views(["x", "y", "v"], ["tx", "ty", "tv"], ["dx", "dy", "dv"])
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        self.rows.memory()
    }
}
