//! MA-DSBO (Chen, Huang, Ma and Balasubramanian, ICML 2023; the paper's own algorithm box): y by T rounds of
//! DGD, z by N rounds of gradient tracking on ½ zᵀ∇²ᵧᵧg z − zᵀ∇ᵧf from 0, x by DGD along a moving average.
use super::afar::Afar;
use super::direction::products;
use super::linear_system::LinearSystem;
use super::looks::lower_gradients;
use super::loops::{average, variables};
use super::mixer::Mix;
use super::mover::Mover;
use super::stacks::like;
use super::{Algorithm, State, View, Workspaces, own_start};
use crate::error::Result;
use crate::network::Network;
use crate::problem::{Bilevel, Start};
use crate::rows::{Real, Rows};
use crate::schedule::Schedule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MaDsbo {
    /// Step of x.
    pub eta_x: Schedule,
    /// Step of y.
    pub eta_y: Schedule,
    /// Step of z; that of y if not given.
    pub eta_z: Option<Schedule>,
    /// Share θ of the new hypergradient in the moving average; the paper has θ = ηx.
    pub theta: f64,
    /// Rounds T for y.
    pub inner: usize,
    /// Rounds N for z.
    pub inner_z: usize,
    /// Trackers for y and for the moving average: a name in others' legends, rebuilt here.
    #[serde(default)]
    pub tracked: bool,
}

/// x along r, y, z, and the system that z solves.
struct MaDsboState<T> {
    p: MaDsbo,
    x: Mover<T>,
    y: Mover<T>,
    z: Mover<T>,
    system: LinearSystem<T>,
}

impl<T: Real> Algorithm<T> for MaDsbo {
    fn start(
        &self,
        problem: &dyn Bilevel<T>,
        network: &mut dyn Network<T>,
        start: Option<&Start>,
    ) -> Result<Box<dyn State<T>>> {
        products(problem)?;
        let (x, y) = variables(problem, network, &own_start(problem, start));
        let mix = if self.tracked { Mix::Gt } else { Mix::DgdCta };
        let afar = Afar::new(problem, network, y.on_device());
        let workspaces = Workspaces::new(network.threads().count()).and(afar);
        Ok(Box::new(MaDsboState {
            p: self.clone(),
            system: LinearSystem { u: x.clone(), b: y.clone(), workspaces },
            x: Mover::new(mix, 1.0, x),
            z: Mover::new(Mix::Gt, 1.0, like(&y)),
            y: Mover::new(mix, 1.0, y),
        }))
    }
}

impl<T: Real> State<T> for MaDsboState<T> {
    fn step(&mut self, k: usize, problem: &dyn Bilevel<T>, network: &mut dyn Network<T>) -> Result<()> {
        let Self { p, x, y, z, system } = self;
        let (eta_y, eta_z) = (p.eta_y.at(k), p.eta_z.unwrap_or(p.eta_y).at(k));
        // 1. y⁺ = W y − ηy ∇ᵧg(x, y), T times
        for t in 0..p.inner {
            let sample = k * p.inner + t;
            lower_gradients(&mut y.d, (&x.v, &y.v), sample, problem, network, &system.workspaces)?;
            y.renewed();
            y.go(k, eta_y, network)?;
        }
        // 2. z = 0; z⁺ = W z − ηz t with t the tracker of ∇²ᵧᵧg z − ∇ᵧf, N times
        let here = (&x.v, &y.v);
        system.begin(k, here, problem, network)?;
        z.v.shared.clear();
        z.restart();
        for t in 0..p.inner_z {
            system.residual((k, t == 0), here, (&z.v, &mut z.d), problem, network)?;
            z.renewed();
            z.go(k, eta_z, network)?;
        }
        // 3. u = ∇ₓf − ∇²ₓᵧg z; x⁺ = W x − ηx r; r⁺ = (1 − θ) r + θ u
        system.end(k, here, &z.v, problem, network)?;
        x.renewed();
        x.go(k, p.eta_x.at(k), network)?;
        average(&mut x.d, p.theta, &system.u, network);
        Ok(())
    }

    fn views(&mut self) -> Vec<View<'_, T>> {
        // Its trackers belong to directions that are gone by the end of a step.
        let all = self.x.views(["x", "", "dx"]).into_iter().chain(self.y.views(["y", "", ""]));
        all.chain(self.z.views(["z", "", ""])).filter(|v| !v.name.is_empty()).collect()
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        let mut all = self.x.memory();
        all.extend(self.y.memory());
        all.extend(self.z.memory());
        all
    }
}
