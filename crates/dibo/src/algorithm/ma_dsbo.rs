//! MA-DSBO (Chen, Huang, Ma and Balasubramanian, ICML 2023; the paper's own algorithm box): y by T rounds of
//! DGD, z by N rounds of gradient tracking on ½ zᵀ∇²ᵧᵧg z − zᵀ∇ᵧf from 0, x by DGD along a moving average.
use super::direction::{Rooms, products, take_off};
use super::inner::{check_rounds, each, variables};
use super::mixer::Mix;
use super::mover::Mover;
use super::{
    Algorithm, Axis, FINE, GraphNeeds, Mixes, Needs, Parameters, State, Tier, Vectors, View, own_start,
};
use crate::error::Result;
use crate::network::Network;
use crate::problem::{Bilevel, Start};
use crate::rows::{Real, Rows, Stack};
use crate::schedule::Schedule;
use serde::{Deserialize, Serialize};

/// Parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    rooms: Rooms<T>,
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
        let mut z = y.clone();
        z.shared.clear();
        let mix = if self.tracked { Mix::Gt } else { Mix::DgdCta };
        Ok(Box::new(MaDsboState {
            p: self.clone(),
            u: x.clone(),
            b: y.clone(),
            x: Mover::new(mix, 1.0, x),
            y: Mover::new(mix, 1.0, y),
            z: Mover::new(Mix::Gt, 1.0, z),
            rooms: Rooms::new(network.threads().count()),
        }))
    }
}

impl<T: Real> State<T> for MaDsboState<T> {
    fn step(&mut self, k: usize, problem: &dyn Bilevel<T>, network: &mut dyn Network<T>) -> Result<()> {
        let Self { p, x, y, z, b, u, rooms } = self;
        let (second, eta_z) = (products(problem)?, p.eta_z.unwrap_or(p.eta_y).at(k));
        // 1. y⁺ = W y − ηy ∇ᵧg(x, y), T times
        for t in 0..p.inner {
            let (xs, ys, sample) = (&x.v, &y.v, k * p.inner + t);
            let width = |row: usize| xs.row(row)[0].len();
            each(&mut y.d, network, rooms, width, |row, agent, d, gx| {
                problem.grad_g(agent, sample, xs.row(row)[0], ys.row(row)[0], gx, d)
            })?;
            y.renewed();
            y.go(k, p.eta_y.at(k), network)?;
        }
        // 2. z = 0; z⁺ = W z − ηz t with t the tracker of ∇²ᵧᵧg z − ∇ᵧf, N times
        let (xs, ys) = (&x.v, &y.v);
        let width = |row: usize| xs.row(row)[0].len();
        each(b, network, rooms, width, |row, agent, b, gx| {
            problem.grad_f(agent, k, xs.row(row)[0], ys.row(row)[0], gx, b)
        })?;
        z.v.shared.clear();
        z.restart();
        for t in 0..p.inner_z {
            let zs = &z.v;
            each(
                &mut z.d,
                network,
                rooms,
                |_| 0,
                |row, agent, d, _| {
                    // At z = 0 the product is 0.
                    match t {
                        0 => d.fill(T::ZERO),
                        _ => second.yy(agent, k, xs.row(row)[0], ys.row(row)[0], zs.row(row)[0], d)?,
                    }
                    take_off(d, b.row(row)[0]);
                    Ok(())
                },
            )?;
            z.renewed();
            z.go(k, eta_z, network)?;
        }
        // 3. u = ∇ₓf − ∇²ₓᵧg z; x⁺ = W x − ηx r; r⁺ = (1 − θ) r + θ u
        let (zs, room) = (&z.v, |row: usize| xs.row(row)[0].len() + ys.row(row)[0].len());
        each(u, network, rooms, room, |row, agent, u, room| {
            let ([x], [y]) = (xs.row(row), ys.row(row));
            let (product, gy) = room.split_at_mut(x.len());
            problem.grad_f(agent, k, x, y, u, gy)?;
            second.xy(agent, k, x, y, zs.row(row)[0], product)?;
            take_off(u, product);
            Ok(())
        })?;
        x.renewed();
        x.go(k, p.eta_x.at(k), network)?;
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

impl Parameters for MaDsbo {
    fn check(&self) -> Result<(), String> {
        self.eta_x.check("eta_x", false)?;
        self.eta_y.check("eta_y", false)?;
        self.eta_z.unwrap_or(self.eta_y).check("eta_z", false)?;
        check_rounds("inner", self.inner)?;
        check_rounds("inner_z", self.inner_z)?;
        match self.theta > 0.0 && self.theta <= 1.0 {
            true => Ok(()),
            false => Err(format!("theta is {}; it must be above 0 and at most 1", self.theta)),
        }
    }

    fn needs(&self) -> Needs {
        Needs::SecondOrder
    }

    fn mixes(&self) -> Mixes {
        Mixes::PullAndPushInLoops
    }

    fn graph_needs(&self) -> GraphNeeds {
        Mix::needs_of(&[Mix::Gt])
    }

    fn rounds(&self) -> usize {
        self.inner + self.inner_z + 1
    }

    fn vectors(&self, _blocks: usize) -> Vectors {
        Vectors { upper: 4, lower: 7, single: 0 }
    }

    fn tiers(&self) -> Vec<Tier> {
        let axes = |factors: &[f64]| ["eta_x", "eta_y"].map(|key| Axis::around(key, factors, 0.01));
        let coarse = axes(&[0.03, 0.1, 0.3, 1.0, 3.0, 10.0]).map(Axis::or_listed);
        vec![Tier { axes: coarse.into(), fine: false }, Tier { axes: axes(&FINE).into(), fine: true }]
    }

    fn on_device(&self) -> bool {
        false
    }

    fn about() -> &'static str {
        "as published; with tracked = true a variant rebuilt from a name in others' legends"
    }
}
