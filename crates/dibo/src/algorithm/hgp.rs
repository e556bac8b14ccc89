//! HGP (Terashita and Hara, arXiv 2210.02129; agrees with the authors' code): y by T rounds of gradient push,
//! then the hypergradient by M Neumann terms, each averaged by S rounds of push-sum. x is each agent's own:
//! min Σ f_i(x_i, y*), and no x is sent.
use super::direction::products;
use super::loops::{each, scale, variables};
use super::mixer::Mix;
use super::mover::Mover;
use super::stacks::like;
use super::{Algorithm, State, View, Workspaces};
use super::{memory, own_start, views};
use crate::error::Result;
use crate::network::{Lane, Network};
use crate::problem::{Bilevel, Start};
use crate::rows::{Real, Rows, Stack};
use crate::schedule::Schedule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the gradient step of y stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Adapt {
    /// u⁺ = B (u − η ∇ᵧg).
    #[default]
    Before,
    /// u⁺ = B u − η ∇ᵧg.
    After,
}

/// Parameters.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hgp {
    /// Step of x.
    pub eta_x: Schedule,
    /// Step of y.
    pub eta_y: Schedule,
    /// α of the Neumann terms: α times the largest curvature of g should stay below 1.
    pub alpha: f64,
    /// Rounds T for y.
    pub inner: usize,
    /// Neumann terms M.
    pub terms: usize,
    /// Rounds S of push-sum for each term.
    pub pushes: usize,
    /// Where the gradient step of y stands.
    #[serde(default)]
    pub adapt: Adapt,
    /// y goes on where it was; the authors begin anew.
    #[serde(default)]
    pub warm: bool,
    /// The push-sum weight of the terms goes on from y's; the authors begin with 1.
    #[serde(default)]
    pub keep_weight: bool,
}

/// x with its hypergradient, y with its start, the term and its weight.
struct HgpState<T> {
    p: Hgp,
    x: Stack<T, 1>,
    h: Stack<T, 1>,
    y: Mover<T>,
    begin: Stack<T, 1>,
    term: Stack<T, 1>,
    weight: Rows<T>,
    workspaces: Workspaces<T>,
}

impl<T: Real> Algorithm<T> for Hgp {
    fn start(
        &self,
        problem: &dyn Bilevel<T>,
        network: &mut dyn Network<T>,
        start: Option<&Start>,
    ) -> Result<Box<dyn State<T>>> {
        products(problem)?;
        let (x, y) = variables(problem, network, &own_start(problem, start));
        let mix = if self.adapt == Adapt::Before { Mix::Sgp } else { Mix::SgpCta };
        Ok(Box::new(HgpState {
            p: self.clone(),
            h: like(&x),
            x,
            begin: y.clone(),
            term: y.clone(),
            weight: Rows::zeros(y.count(), 1),
            y: Mover::new(mix, 1.0, y),
            workspaces: Workspaces::new(network.threads().count()),
        }))
    }
}

impl<T: Real> HgpState<T> {
    /// T rounds of gradient push on g(x, ·).
    fn lower(&mut self, k: usize, problem: &dyn Bilevel<T>, network: &mut dyn Network<T>) -> Result<()> {
        let Self { p, x, y, begin, workspaces, .. } = self;
        if !p.warm {
            y.v.shared.copy_from(&begin.shared);
            y.restart();
        }
        for t in 0..p.inner {
            let (here, sample) = ((&*x, &y.v), k * p.inner + t);
            each(&mut y.d, here, network, workspaces, |i, d| {
                problem.grad_g(i.agent, sample, i.x, i.y, i.gx, d)
            })?;
            y.go(k, p.eta_y.at(k), network)?;
        }
        Ok(())
    }
}

impl<T: Real> State<T> for HgpState<T> {
    fn step(&mut self, k: usize, problem: &dyn Bilevel<T>, network: &mut dyn Network<T>) -> Result<()> {
        self.lower(k, problem, network)?;
        let Self { p, x, h, y, term, weight, workspaces, .. } = self;
        let (second, n, alpha) = (products(problem)?, network.agents() as f64, T::of(p.alpha));
        let here = (&*x, &y.v);
        // a = ∇ᵧf / n, h = ∇ₓf / n
        each(term, here, network, workspaces, |i, a| problem.grad_f(i.agent, k, i.x, i.y, i.gx, a))?;
        each(h, here, network, workspaces, |i, h| problem.grad_f(i.agent, k, i.x, i.y, h, i.gy))?;
        scale(term, 1.0 / n, network);
        scale(h, 1.0 / n, network);
        if let Some(w) = y.weight() {
            weight.copy_from(w);
        }
        for _ in 0..p.terms {
            // s = B…B a, ω = B…B 1
            if !p.keep_weight {
                (0..weight.count()).for_each(|i| weight.row_mut(i)[0] = T::ONE);
            }
            for _ in 0..p.pushes {
                let lanes = &mut [Lane::push(&mut term.shared), Lane::push(weight)];
                network.round(network.next_round(), lanes)?;
            }
            // h −= α ∇²ₓᵧg s/ω
            let weight = &*weight;
            each(h, here, network, workspaces, |i, h| {
                second.xy(i.agent, k, i.x, i.y, term.row(i.row)[0], i.gx)?;
                let share = alpha / weight.row(i.row)[0];
                h.iter_mut().zip(&*i.gx).for_each(|(h, p)| *h -= share * *p);
                Ok(())
            })?;
            // a = (s − α ∇²ᵧᵧg s)/ω
            each(term, here, network, workspaces, |i, a| {
                second.yy(i.agent, k, i.x, i.y, a, i.gy)?;
                let w = weight.row(i.row)[0];
                a.iter_mut().zip(&*i.gy).for_each(|(a, p)| *a = (*a - alpha * *p) / w);
                Ok(())
            })?;
        }
        // x −= ηx h
        let eta = T::of(p.eta_x.at(k));
        x.for_each_row(network.threads(), 16, |_, row, [x]| {
            x.iter_mut().zip(h.row(row)[0]).for_each(|(x, h)| *x -= eta * *h);
        });
        Ok(())
    }

    fn views(&mut self) -> Vec<View<'_, T>> {
        let y = self.y.views(["y", "", ""]).into_iter().filter(|v| v.name == "y");
        views(&self.x, ["x"]).chain(y).chain(views(&self.h, ["dx"])).collect()
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        let Self { x, h, y, begin, .. } = self;
        let mut all = y.memory();
        all.extend(memory(x).chain(memory(h)).chain(memory(begin)));
        all
    }
}
