//! Double-loop (DL) variants: T inner iterations of a single-level method on g for y, then one outer
//! iteration of the same method on x along the hypergradient that differentiates the inner iterations (ITD).
//!
//! Each agent differentiates its own chain of y-updates as if mixing kept the derivative (the agents agree in
//! the limit); the truncation then leaves the factor 1 − (1 − α∇²ᵧᵧg)^T on the hypergradient's second part.
use super::descent::STEPS;
use super::tracking::zeros;
use super::{Algorithm, Axis, Descent, Method, Mixes, Needs, Parameters, State, Tier, Vectors, View};
use super::{fill, own_start};
use crate::error::{Error, Result};
use crate::network::Network;
use crate::problem::{Bilevel, Start};
use crate::rows::{Real, Rows, Stack, Upper};
use serde::{Deserialize, Serialize};

/// Parameters: those of the method for both loops, and the number of inner iterations.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "M: Method")]
pub struct DoubleLoop<M> {
    /// Inner iterations T.
    #[serde(default = "twenty")]
    pub inner: usize,
    /// The method, for x and for y.
    #[serde(flatten)]
    pub method: M,
}

fn twenty() -> usize {
    20
}

/// x, y, and y's path through the last inner loop.
pub struct DoubleLoopState<T, M> {
    parameters: DoubleLoop<M>,
    outer: Box<dyn Descent<T>>,
    inner: Inner<T>,
}

struct Inner<T> {
    y: Box<dyn Descent<T>>,
    path: Vec<Stack<T, 1>>,
    scratch: Vec<T>,
}

impl<T: Real, M: Method> Algorithm<T> for DoubleLoop<M> {
    fn start(
        &self,
        problem: &dyn Bilevel<T>,
        network: &mut dyn Network<T>,
        start: Option<&Start>,
    ) -> Result<Box<dyn State<T>>> {
        if problem.second_order().is_none() {
            return Err(Error::Unsupported(self.needs().words()));
        }
        let start = own_start(problem, start);
        let mut x: Stack<T, 1> = zeros(&problem.upper(), &[], network.owned());
        let mut y: Stack<T, 1> = zeros(&Upper::Shared(problem.lower()), &[], network.owned());
        fill(network, &mut x, [&start.x]);
        fill(network, &mut y, [&start.y]);
        let path = vec![y.clone(); self.inner + 1];
        let mut scratch = Vec::new();
        let descent = self.method.begin(y, 1, network, &mut lower_gradient(problem, &x, &mut scratch))?;
        let mut inner = Inner { y: descent, path, scratch };
        let outer = self.method.begin(x, 1, network, &mut |network, _, x, d| {
            inner.run(self, 0, x, problem, network)?;
            inner.hypergradient(self, 0, x, d, problem, network)
        })?;
        Ok(Box::new(DoubleLoopState { parameters: self.clone(), outer, inner }))
    }
}

impl<M: Method> Parameters for DoubleLoop<M> {
    fn check(&self) -> Result<(), String> {
        if self.inner == 0 {
            return Err("inner is 0; at least one inner iteration is needed".into());
        }
        // The path of an inner loop is kept in memory.
        if self.inner > 1_000_000 {
            return Err(format!("inner is {}; at most 1,000,000 inner iterations are allowed", self.inner));
        }
        self.method.check()
    }

    fn needs(&self) -> Needs {
        Needs::SecondOrder
    }

    fn mixes(&self) -> Mixes {
        match self.method.mixes() {
            Mixes::PullAndPush => Mixes::PullAndPushInLoops,
            other => other,
        }
    }

    /// The path of the inner loop is kept as well.
    fn vectors(&self, _blocks: usize) -> Vectors {
        let each = self.method.vectors(1);
        Vectors { upper: each, lower: each + self.inner + 1, single: 0 }
    }

    fn tiers(&self) -> Vec<Tier> {
        vec![Tier { axes: vec![Axis::values("eta", &STEPS)], fine: false }]
    }

    fn on_device(&self) -> bool {
        false
    }
}

/// ∇ᵧg at the agents' y for their fixed x.
fn lower_gradient<'a, T: Real>(
    problem: &'a dyn Bilevel<T>,
    x: &'a Stack<T, 1>,
    scratch: &'a mut Vec<T>,
) -> impl FnMut(&mut dyn Network<T>, usize, &Stack<T, 1>, &mut Stack<T, 1>) -> Result<()> + 'a {
    move |network, k, y, d| {
        for (row, agent) in network.owned().iter().enumerate() {
            let ([x], [y], [d]) = (x.row(row), y.row(row), d.row_mut(row));
            scratch.resize(x.len(), T::ZERO);
            problem.grad_g(*agent, k, x, y, scratch, d)?;
        }
        Ok(())
    }
}

impl<T: Real> Inner<T> {
    /// T iterations on y at these x, keeping the path. Every message goes over the links of its own round.
    fn run<M: Method>(
        &mut self,
        p: &DoubleLoop<M>,
        k: usize,
        x: &Stack<T, 1>,
        problem: &dyn Bilevel<T>,
        network: &mut dyn Network<T>,
    ) -> Result<()> {
        for t in 0..p.inner {
            self.path[t].shared.copy_from(&self.y.point().shared);
            self.y.step(k * p.inner + t, network, &mut lower_gradient(problem, x, &mut self.scratch))?;
        }
        self.path[p.inner].shared.copy_from(&self.y.point().shared);
        Ok(())
    }

    /// h = ∇ₓf(x, y_T) and p = ∇ᵧf(x, y_T); then backwards through y_{t+1} = y_t − α∇ᵧg(x, y_t):
    /// h −= α∇²ₓᵧg p, p −= α∇²ᵧᵧg p.
    fn hypergradient<M: Method>(
        &mut self,
        p: &DoubleLoop<M>,
        k: usize,
        x: &Stack<T, 1>,
        d: &mut Stack<T, 1>,
        problem: &dyn Bilevel<T>,
        network: &dyn Network<T>,
    ) -> Result<()> {
        let products = problem.second_order().ok_or(Error::Unsupported(Needs::SecondOrder.words()))?;
        for (row, agent) in network.owned().iter().enumerate() {
            let ([x], [h]) = (x.row(row), d.row_mut(row));
            let (nx, ny) = (x.len(), problem.lower());
            self.scratch.resize(nx.max(ny) + ny, T::ZERO);
            let (product, adjoint) = self.scratch.split_at_mut(nx.max(ny));
            problem.grad_f(*agent, k, x, self.path[p.inner].row(row)[0], h, adjoint)?;
            for t in (0..p.inner).rev() {
                let (sample, alpha, [y]) =
                    (k * p.inner + t, T::of(p.method.eta(k * p.inner + t)), self.path[t].row(row));
                products.xy(*agent, sample, x, y, adjoint, &mut product[..nx])?;
                h.iter_mut().zip(&product[..nx]).for_each(|(h, q)| *h -= alpha * *q);
                products.yy(*agent, sample, x, y, adjoint, &mut product[..ny])?;
                adjoint.iter_mut().zip(&product[..ny]).for_each(|(a, q)| *a -= alpha * *q);
            }
        }
        Ok(())
    }
}

impl<T: Real, M: Method> State<T> for DoubleLoopState<T, M> {
    fn step(&mut self, k: usize, problem: &dyn Bilevel<T>, network: &mut dyn Network<T>) -> Result<()> {
        let Self { parameters, outer, inner } = self;
        // A method that asks for gradients at two points (Push-ASGD) shares one inner loop between them.
        let mut ran = false;
        outer.step(k, network, &mut |network, sample, x, d| {
            if !ran {
                inner.run(parameters, sample, x, problem, network)?;
                ran = true;
            }
            inner.hypergradient(parameters, sample, x, d, problem, network)
        })
    }

    fn views(&mut self) -> Vec<View<'_, T>> {
        let mut views = self.outer.views();
        views.extend(
            self.inner
                .y
                .views()
                .into_iter()
                .filter_map(|v| (v.name == "x").then_some(View { name: "y", ..v })),
        );
        views
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        let mut all = self.outer.memory();
        all.extend(self.inner.y.memory());
        all
    }
}
