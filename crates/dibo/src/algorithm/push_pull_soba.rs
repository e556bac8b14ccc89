//! PushPull_SOBA, Algorithm 4 of the paper: SOBA's directions (with second-order products) moved by
//! AB/Push-Pull.
use super::direction::ON_DEVICE;
use super::stacks::{at, zeros};
use super::tracking::Tracked;
use super::{Algorithm, Mixes, Needs, Parameters, State, Tier, Vectors, View, fill, own_start, step_tiers};
use crate::error::{Error, Result};
use crate::network::Network;
use crate::problem::{Bilevel, Products, Start};
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

/// x, y, v with trackers and directions, and room for the products.
pub struct PushPullSobaState<T> {
    soba: PushPullSoba,
    rows: Tracked<T, 3>,
    products: Vec<T>,
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
        let mut state = PushPullSobaState { soba: self.clone(), rows: Tracked::new(v), products: Vec::new() };
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
        if problem.soba_directions(at(k, network), Products::Exact, None, v, d)? {
            return Ok(());
        }
        if v.on_device() {
            return Err(Error::Unsupported(ON_DEVICE));
        }
        let products = problem.second_order().ok_or(Error::Unsupported(Needs::SecondOrder.words()))?;
        for (row, agent) in network.owned().iter().enumerate() {
            let ([x, y, v], [dx, dy, dv]) = (self.rows.v.row(row), self.rows.d.row_mut(row));
            self.products.resize(x.len().max(y.len()), T::ZERO);
            // ∇f goes to dx and dv, then the products; ∇ᵧg last, as its ∇ₓg is not used.
            problem.grad_f(*agent, k, x, y, dx, dv)?;
            products.xy(*agent, k, x, y, v, &mut self.products[..x.len()])?;
            dx.iter_mut().zip(&self.products).for_each(|(d, p)| *d -= *p);
            products.yy(*agent, k, x, y, v, &mut self.products[..y.len()])?;
            dv.iter_mut().zip(&self.products).for_each(|(d, p)| *d = *p - *d);
            problem.grad_g(*agent, k, x, y, &mut self.products[..x.len()], dy)?;
        }
        Ok(())
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
