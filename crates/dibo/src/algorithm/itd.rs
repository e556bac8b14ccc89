//! The inner loop of a double-loop method and its derivative (ITD), and what such a method says about itself.
use super::adjoint::Adjoint;
use super::afar;
use super::descent::STEPS;
use super::double_loop::{DoubleLoop, InnerStart};
use super::looks::lower_gradients;
use super::{Axis, Descent, GraphNeeds, Method, Mixes, Needs, Parameters, Tier, Vectors, Workspaces};
use crate::error::Result;
use crate::network::Network;
use crate::problem::Bilevel;
use crate::rows::{Real, Stack};

/// y and its path through the last inner loop.
pub struct Inner<T> {
    pub y: Box<dyn Descent<T>>,
    pub path: Vec<Stack<T, 1>>,
    /// Where each inner loop begins, unless y is kept.
    pub start: Option<Stack<T, 1>>,
    pub adjoint: Adjoint<T>,
}

/// ∇ᵧg at the agents' y for their fixed x.
pub fn lower_gradient<'a, T: Real>(
    problem: &'a dyn Bilevel<T>,
    x: &'a Stack<T, 1>,
    workspaces: &'a Workspaces<T>,
) -> impl FnMut(&mut dyn Network<T>, usize, &Stack<T, 1>, &mut Stack<T, 1>) -> Result<()> + 'a {
    move |network, k, y, d| lower_gradients(d, (x, y), k, problem, network, workspaces)
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
        let Self { y, path, start, adjoint } = self;
        let mut gradient = lower_gradient(problem, x, &adjoint.workspaces);
        if let Some(start) = start.as_ref().filter(|_| k > 0) {
            *y = p.method.begin(start.clone(), 1, network, &mut |network, sample, y, d| {
                gradient(network, k * p.inner + sample, y, d)
            })?;
        }
        for (t, place) in path[..p.inner].iter_mut().enumerate() {
            place.shared.copy_from(&y.point().shared);
            y.step(k * p.inner + t, network, &mut gradient)?;
        }
        path[p.inner].shared.copy_from(&y.point().shared);
        Ok(())
    }

    /// h = ∇ₓf(x, y_T) and p = ∇ᵧf(x, y_T); then backwards through y_{t+1} = y_t − α∇ᵧg(x, y_t):
    /// h −= α∇²ₓᵧg p, p −= α∇²ᵧᵧg p. The path is that of outer iteration `of`, the samples those of `k`.
    pub fn hypergradient<M: Method>(
        &mut self,
        p: &DoubleLoop<M>,
        [of, k]: [usize; 2],
        x: &Stack<T, 1>,
        h: &mut Stack<T, 1>,
        problem: &dyn Bilevel<T>,
        network: &dyn Network<T>,
    ) -> Result<()> {
        let Self { path, adjoint, .. } = self;
        adjoint.begin(h, k, (x, &path[p.inner]), problem, network)?;
        let step = |t: usize| (k * p.inner + t, p.method.eta(of * p.inner + t));
        adjoint.back(h, x, &path[..p.inner], step, problem, network)
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

    /// The path of the inner loop is kept as well, p, and where a fresh loop begins.
    fn vectors(&self, _blocks: usize) -> Vectors {
        let (each, fresh) = (self.method.vectors(1), self.inner_start == InnerStart::Fresh);
        Vectors { upper: each, lower: each + self.inner + 2 + usize::from(fresh), single: 0 }
    }

    fn tiers(&self) -> Vec<Tier> {
        vec![Tier { axes: vec![Axis::values("eta", &STEPS)], fine: false }]
    }

    /// What p changes by.
    fn more_on_device(&self) -> usize {
        afar::VECTORS + 1
    }

    fn version(&self) -> u32 {
        1 + self.method.version()
    }
}
