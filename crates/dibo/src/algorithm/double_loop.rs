//! Double-loop (DL) variants: T inner iterations of a single-level method on g for y, then one outer
//! iteration of the same method on x along the hypergradient that differentiates the inner iterations (ITD).
//!
//! Each agent differentiates its own chain of y-updates as if mixing kept the derivative (the agents agree in
//! the limit); the truncation then leaves the factor 1 − (1 − α∇²ᵧᵧg)^T on the hypergradient's second part.
//! That is the derivative of y_T where y_0 does not depend on x: so each inner loop starts anew, as iterative
//! differentiation has it, unless `inner_start = "kept"` lets y go on from where the last one left it.
use super::adjoint::Adjoint;
use super::direction::products;
use super::itd::{Inner, lower_gradient};
use super::loops::variables;
use super::{Algorithm, Descent, Method, State, View, memory, own_start};
use crate::error::Result;
use crate::network::Network;
use crate::problem::{Bilevel, Start};
use crate::rows::{Real, Rows};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters: those of the method for both loops, and the number of inner iterations.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(bound = "M: Method")]
pub struct DoubleLoop<M> {
    /// Inner iterations T.
    #[serde(default = "twenty")]
    pub inner: usize,
    /// Where an inner loop starts.
    #[serde(default)]
    pub inner_start: InnerStart,
    /// The method, for x and for y.
    #[serde(flatten)]
    pub method: M,
}

/// Where each inner loop starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InnerStart {
    /// At y's own start, with no memory of the loop before.
    #[default]
    Fresh,
    /// Where the loop before ended, with trackers and weights as they are.
    Kept,
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

impl<T: Real, M: Method> Algorithm<T> for DoubleLoop<M> {
    fn start(
        &self,
        problem: &dyn Bilevel<T>,
        network: &mut dyn Network<T>,
        start: Option<&Start>,
    ) -> Result<Box<dyn State<T>>> {
        products(problem)?;
        let start = own_start(problem, start);
        let (x, y) = variables(problem, network, &start);
        let adjoint = Adjoint::new(&y, problem, network);
        let path = vec![y.clone(); self.inner + 1];
        let descent =
            self.method.begin(y, 1, network, &mut lower_gradient(problem, &x, &adjoint.workspaces))?;
        let start = (self.inner_start == InnerStart::Fresh).then(|| path[0].clone());
        let mut inner = Inner { y: descent, path, start, adjoint };
        let outer = self.method.begin(x, 1, network, &mut |network, _, x, d| {
            inner.run(self, 0, x, problem, network)?;
            inner.hypergradient(self, [0, 0], x, d, problem, network)
        })?;
        Ok(Box::new(DoubleLoopState { parameters: self.clone(), outer, inner }))
    }
}

impl<T: Real, M: Method> State<T> for DoubleLoopState<T, M> {
    fn step(&mut self, k: usize, problem: &dyn Bilevel<T>, network: &mut dyn Network<T>) -> Result<()> {
        let Self { parameters, outer, inner } = self;
        // The gradient at the point that a step leaves (Push-ASGD) goes along the path that was found there.
        let mut back = parameters.method.looks_back();
        outer.step(k, network, &mut |network, sample, x, d| {
            if std::mem::take(&mut back) {
                return inner.hypergradient(parameters, [sample - 1, sample], x, d, problem, network);
            }
            inner.run(parameters, sample, x, problem, network)?;
            inner.hypergradient(parameters, [sample, sample], x, d, problem, network)
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
        if self.parameters.method.looks_back() {
            all.extend(self.inner.path.iter_mut().flat_map(memory));
        }
        all
    }
}
