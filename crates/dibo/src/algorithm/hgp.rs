//! HGP (Terashita and Hara, arXiv 2210.02129; agrees with the authors' code): y by T rounds of gradient push,
//! then the hypergradient by M Neumann terms, each averaged by S rounds of push-sum. x is each agent's own:
//! min Σ f_i(x_i, y*), and no x is sent.
use super::afar::Afar;
use super::direction::products;
use super::looks::lower_gradients;
use super::loops::{descend, variables};
use super::mixer::Mix;
use super::mover::Mover;
use super::neumann_push::{NeumannPush, OnDevice};
use super::stacks::like;
use super::{Algorithm, State, View, Workspaces};
use super::{memory, own_start, views};
use crate::error::Result;
use crate::network::Network;
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

/// x, y with its start, and the hypergradient.
struct HgpState<T> {
    p: Hgp,
    x: Stack<T, 1>,
    y: Mover<T>,
    begin: Stack<T, 1>,
    hyper: NeumannPush<T>,
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
        let afar = Afar::new(problem, network, y.on_device());
        let hyper = NeumannPush {
            there: afar.as_ref().map(|_| OnDevice { fx: like(&x), fy: like(&y), a: like(&y) }),
            h: like(&x),
            a: y.clone(),
            weight: Rows::zeros(y.count(), 1),
            workspaces: Workspaces::new(network.threads().count()).and(afar),
        };
        Ok(Box::new(HgpState { p: self.clone(), x, begin: y.clone(), y: Mover::new(mix, 1.0, y), hyper }))
    }
}

impl<T: Real> State<T> for HgpState<T> {
    fn step(&mut self, k: usize, problem: &dyn Bilevel<T>, network: &mut dyn Network<T>) -> Result<()> {
        let Self { p, x, y, begin, hyper } = self;
        // 1. y⁺ = B (y − ηy ∇ᵧg(x, y)), T times
        if !p.warm {
            y.v.shared.copy_from(&begin.shared);
            y.restart();
        }
        for t in 0..p.inner {
            let (here, sample) = ((&*x, &y.v), k * p.inner + t);
            lower_gradients(&mut y.d, here, sample, problem, network, &hyper.workspaces)?;
            y.go(k, p.eta_y.at(k), network)?;
        }
        // 2. h = ∇ₓf / n, a = ∇ᵧf / n; then a is averaged and h −= α ∇²ₓᵧg a, a −= α ∇²ᵧᵧg a, M times
        let here = (&*x, &y.v);
        hyper.begin(k, here, problem, network)?;
        if let Some(weight) = y.weight() {
            hyper.weight.copy_from(weight);
        }
        for _ in 0..p.terms {
            if !p.keep_weight {
                hyper.weigh_evenly();
            }
            hyper.push(p.pushes, network)?;
            hyper.add(p.alpha, k, here, problem, network)?;
        }
        // 3. x −= ηx h
        descend(x, p.eta_x.at(k), &hyper.h, network);
        Ok(())
    }

    fn views(&mut self) -> Vec<View<'_, T>> {
        let y = self.y.views(["y", "", ""]).into_iter().filter(|v| v.name == "y");
        views(&self.x, ["x"]).chain(y).chain(views(&self.hyper.h, ["dx"])).collect()
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        let Self { x, y, begin, hyper, .. } = self;
        let mut all = y.memory();
        all.extend(memory(x).chain(memory(&mut hyper.h)).chain(memory(begin)));
        all
    }
}
