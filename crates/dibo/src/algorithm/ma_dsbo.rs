//! MA-DSBO (Chen, Huang, Ma and Balasubramanian, ICML 2023; the paper's own algorithm box): y by T rounds of
//! DGD, z by N rounds of gradient tracking on ½ zᵀ∇²ᵧᵧg z − zᵀ∇ᵧf from 0, x by DGD along a moving average.
use super::afar::Afar;
use super::direction::{X, Y, Z, products, take_off};
use super::loops::{each, lower_gradients, variables};
use super::mixer::Mix;
use super::mover::Mover;
use super::stacks::like;
use super::{Algorithm, State, View, Workspaces, at, own_start};
use crate::error::Result;
use crate::network::Network;
use crate::problem::{Bilevel, Start};
use crate::rows::{Real, Rows, Stack};
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

/// x along r, y, z, and ∇ᵧf at (x, y).
struct MaDsboState<T> {
    p: MaDsbo,
    x: Mover<T>,
    y: Mover<T>,
    z: Mover<T>,
    b: Stack<T, 1>,
    u: Stack<T, 1>,
    workspaces: Workspaces<T>,
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
        Ok(Box::new(MaDsboState {
            p: self.clone(),
            u: x.clone(),
            b: y.clone(),
            x: Mover::new(mix, 1.0, x),
            z: Mover::new(Mix::Gt, 1.0, like(&y)),
            y: Mover::new(mix, 1.0, y),
            workspaces: Workspaces::new(network.threads().count()).and(afar),
        }))
    }
}

impl<T: Real> MaDsboState<T> {
    /// b = ∇ᵧf and u = ∇ₓf at (x, y).
    fn upper(&mut self, k: usize, problem: &dyn Bilevel<T>, network: &dyn Network<T>) -> Result<()> {
        let Self { x, y, b, u, workspaces, .. } = self;
        // A device has them with what they are taken from.
        if let Some(mut afar) = workspaces.afar() {
            afar.put(Y, (&y.v, 0));
            return Ok(());
        }
        let owned = network.owned();
        u.try_for_each_pair(b, network.threads(), |_, row, u, b| {
            problem.grad_f(owned[row], k, x.v.row(row)[0], y.v.row(row)[0], u, b)
        })
    }

    /// z's direction ∇²ᵧᵧg z − b, in round t.
    fn linear(
        &mut self,
        t: usize,
        k: usize,
        problem: &dyn Bilevel<T>,
        network: &dyn Network<T>,
    ) -> Result<()> {
        let Self { x, y, z, b, workspaces, .. } = self;
        if let Some(mut afar) = workspaces.afar() {
            afar.put(Z, (&z.v, 0));
            afar.soba(problem, at(k, network), Some(Z))?;
            afar.give(Z, (&mut z.d, 0), 0.0, 1.0);
            return Ok(());
        }
        let second = products(problem)?;
        each(&mut z.d, (&x.v, &y.v), network, workspaces, |i, d| {
            // At z = 0 the product is 0.
            match t {
                0 => d.fill(T::ZERO),
                _ => second.yy(i.agent, k, i.x, i.y, z.v.row(i.row)[0], d)?,
            }
            take_off(d, b.row(i.row)[0]);
            Ok(())
        })
    }

    /// u −= ∇²ₓᵧg z.
    fn hypergradient(&mut self, k: usize, problem: &dyn Bilevel<T>, network: &dyn Network<T>) -> Result<()> {
        let Self { x, y, z, u, workspaces, .. } = self;
        if let Some(mut afar) = workspaces.afar() {
            afar.put(Z, (&z.v, 0));
            afar.soba(problem, at(k, network), Some(X))?;
            afar.give(X, (u, 0), 0.0, 1.0);
            return Ok(());
        }
        let second = products(problem)?;
        each(u, (&x.v, &y.v), network, workspaces, |i, u| {
            second.xy(i.agent, k, i.x, i.y, z.v.row(i.row)[0], i.gx)?;
            take_off(u, i.gx);
            Ok(())
        })
    }
}

impl<T: Real> State<T> for MaDsboState<T> {
    fn step(&mut self, k: usize, problem: &dyn Bilevel<T>, network: &mut dyn Network<T>) -> Result<()> {
        let eta_z = self.p.eta_z.unwrap_or(self.p.eta_y).at(k);
        // 1. y⁺ = W y − ηy ∇ᵧg(x, y), T times
        for t in 0..self.p.inner {
            let Self { p, x, y, workspaces, .. } = self;
            let sample = k * p.inner + t;
            lower_gradients(&mut y.d, (&x.v, &y.v), sample, problem, network, workspaces)?;
            y.renewed();
            y.go(k, p.eta_y.at(k), network)?;
        }
        // 2. z = 0; z⁺ = W z − ηz t with t the tracker of ∇²ᵧᵧg z − ∇ᵧf, N times
        self.upper(k, problem, network)?;
        self.z.v.shared.clear();
        self.z.restart();
        for t in 0..self.p.inner_z {
            self.linear(t, k, problem, network)?;
            self.z.renewed();
            self.z.go(k, eta_z, network)?;
        }
        // 3. u = ∇ₓf − ∇²ₓᵧg z; x⁺ = W x − ηx r; r⁺ = (1 − θ) r + θ u
        self.hypergradient(k, problem, network)?;
        let Self { p, x, u, workspaces, .. } = self;
        x.renewed();
        x.go(k, p.eta_x.at(k), network)?;
        if workspaces.afar().is_some() {
            x.d.blend_on_device(0, 1.0 - p.theta, p.theta, (u, 0));
            return Ok(());
        }
        let (stay, new) = (T::of(1.0 - p.theta), T::of(p.theta));
        x.d.for_each_row(network.threads(), 16, |_, row, [r]| {
            r.iter_mut().zip(u.row(row)[0]).for_each(|(r, u)| *r = stay * *r + new * *u);
        });
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
