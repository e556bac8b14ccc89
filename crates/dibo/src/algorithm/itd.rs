//! The inner loop of a double-loop method and its derivative (ITD), and what such a method says about itself.
use super::descent::STEPS;
use super::double_loop::{DoubleLoop, InnerStart};
use super::{Axis, Descent, GraphNeeds, Method, Mixes, Needs, Parameters, Tier, Vectors};
use crate::error::{Error, Result};
use crate::network::Network;
use crate::problem::Bilevel;
use crate::rows::{Real, Stack};

/// y and its path through the last inner loop.
pub struct Inner<T> {
    pub y: Box<dyn Descent<T>>,
    pub path: Vec<Stack<T, 1>>,
    /// Where each inner loop begins, unless y is kept.
    pub start: Option<Stack<T, 1>>,
    pub scratch: Vec<T>,
}

/// ∇ᵧg at the agents' y for their fixed x.
pub fn lower_gradient<'a, T: Real>(
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
    /// Before the first loop y is at its start anyway.
    pub fn run<M: Method>(
        &mut self,
        p: &DoubleLoop<M>,
        k: usize,
        x: &Stack<T, 1>,
        problem: &dyn Bilevel<T>,
        network: &mut dyn Network<T>,
    ) -> Result<()> {
        if let Some(start) = self.start.as_ref().filter(|_| k > 0) {
            let mut gradient = lower_gradient(problem, x, &mut self.scratch);
            self.y = p.method.begin(start.clone(), 1, network, &mut |network, sample, y, d| {
                gradient(network, k * p.inner + sample, y, d)
            })?;
        }
        for t in 0..p.inner {
            self.path[t].shared.copy_from(&self.y.point().shared);
            self.y.step(k * p.inner + t, network, &mut lower_gradient(problem, x, &mut self.scratch))?;
        }
        self.path[p.inner].shared.copy_from(&self.y.point().shared);
        Ok(())
    }

    /// h = ∇ₓf(x, y_T) and p = ∇ᵧf(x, y_T); then backwards through y_{t+1} = y_t − α∇ᵧg(x, y_t):
    /// h −= α∇²ₓᵧg p, p −= α∇²ᵧᵧg p. The path is that of outer iteration `of`, the samples those of `k`.
    pub fn hypergradient<M: Method>(
        &mut self,
        p: &DoubleLoop<M>,
        [of, k]: [usize; 2],
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
                    (k * p.inner + t, T::of(p.method.eta(of * p.inner + t)), self.path[t].row(row));
                products.xy(*agent, sample, x, y, adjoint, &mut product[..nx])?;
                h.iter_mut().zip(&product[..nx]).for_each(|(h, q)| *h -= alpha * *q);
                products.yy(*agent, sample, x, y, adjoint, &mut product[..ny])?;
                adjoint.iter_mut().zip(&product[..ny]).for_each(|(a, q)| *a -= alpha * *q);
            }
        }
        Ok(())
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

    fn graph_needs(&self) -> GraphNeeds {
        self.method.graph_needs()
    }

    fn rounds(&self) -> usize {
        (self.inner + 1) * self.method.rounds()
    }

    /// The path of the inner loop is kept as well, and where a fresh one begins.
    fn vectors(&self, _blocks: usize) -> Vectors {
        let (each, fresh) = (self.method.vectors(1), self.inner_start == InnerStart::Fresh);
        Vectors { upper: each, lower: each + self.inner + 1 + usize::from(fresh), single: 0 }
    }

    fn tiers(&self) -> Vec<Tier> {
        vec![Tier { axes: vec![Axis::values("eta", &STEPS)], fine: false }]
    }

    fn on_device(&self) -> bool {
        false
    }

    fn version(&self) -> u32 {
        1 + self.method.version()
    }
}
