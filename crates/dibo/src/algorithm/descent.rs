//! What the single-level methods have in common: they move one variable along gradients that someone else
//! computes. So the same file serves alone (on a single-level objective) and inside the double loop (on g for
//! y, on the hypergradient for x).
use super::{Algorithm, Axis, GraphNeeds, Mixes, Needs, Parameters, State, Theorem, Tier, Vectors, View};
use super::{at, fill, own_start};
use crate::error::{Error, Result};
use crate::network::Network;
use crate::problem::{Bilevel, SingleLevel, Start};
use crate::rows::{Real, Rows, Stack, Upper};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Writes gradients at the given points with sample `k`: `oracle(network, k, points, gradients)`.
pub type Oracle<'a, T> =
    dyn FnMut(&mut dyn Network<T>, usize, &Stack<T, 1>, &mut Stack<T, 1>) -> Result<()> + 'a;

/// Parameters of a method that moves one variable.
pub trait Method: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Prepares its state at `x`. A method with memory of past gradients keeps one for each of `blocks` parts
    /// of the data.
    fn begin<T: Real>(
        &self,
        x: Stack<T, 1>,
        blocks: usize,
        network: &mut dyn Network<T>,
        oracle: &mut Oracle<'_, T>,
    ) -> Result<Box<dyn Descent<T>>>;
    /// Says which parameter is out of range.
    fn check(&self) -> Result<(), String>;
    /// How it brings the agents together.
    fn mixes(&self) -> Mixes;
    /// What it asks of graphs and weights.
    fn graph_needs(&self) -> GraphNeeds {
        GraphNeeds::default()
    }
    /// Rounds of a step.
    fn rounds(&self) -> usize {
        1
    }
    /// Vectors that it keeps for each agent.
    fn vectors(&self, blocks: usize) -> usize;
    /// The theorem that covers it on a single-level objective.
    fn theorem(&self) -> Option<Theorem> {
        None
    }
    /// The step at iteration k.
    fn eta(&self, k: usize) -> f64;
    /// Whether a step first asks for the gradient at the point that it leaves, with the new sample.
    fn looks_back(&self) -> bool {
        false
    }
    /// Raised when the method's numbers are changed on purpose.
    fn version(&self) -> u32 {
        1
    }
}

/// A method at work.
pub trait Descent<T: Real>: Send {
    /// Iteration `k`, over the links of the network's next round.
    fn step(&mut self, k: usize, network: &mut dyn Network<T>, oracle: &mut Oracle<'_, T>) -> Result<()>;
    /// Where the agents are.
    fn point(&self) -> &Stack<T, 1>;
    /// The variable, and with it trackers and weights, under the paper's names.
    fn views(&mut self) -> Vec<View<'_, T>>;
    /// All memory.
    fn memory(&mut self) -> Vec<&mut Rows<T>>;
}

/// A method on the problem's single-level objective.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Single<M>(pub M);

struct SingleState<T>(Box<dyn Descent<T>>);

/// The paper's grid of steps for the baselines.
pub(super) const STEPS: [f64; 9] = [1e-5, 5e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 0.1];

/// The objective, or that there is none.
fn objective<T: Real>(problem: &dyn Bilevel<T>) -> Result<&dyn SingleLevel<T>> {
    problem.single_level().ok_or(Error::Unsupported(Needs::SingleLevel.words()))
}

impl<M: Method> Parameters for Single<M> {
    fn check(&self) -> Result<(), String> {
        self.0.check()
    }

    fn needs(&self) -> Needs {
        Needs::SingleLevel
    }

    fn mixes(&self) -> Mixes {
        self.0.mixes()
    }

    fn graph_needs(&self) -> GraphNeeds {
        self.0.graph_needs()
    }

    fn rounds(&self) -> usize {
        self.0.rounds()
    }

    fn vectors(&self, blocks: usize) -> Vectors {
        Vectors { single: self.0.vectors(blocks), ..Vectors::default() }
    }

    fn tiers(&self) -> Vec<Tier> {
        vec![Tier { axes: vec![Axis::values("eta", &STEPS)], fine: false }]
    }

    fn theorem(&self) -> Option<Theorem> {
        self.0.theorem()
    }

    fn single_step(&self, k: usize) -> Option<f64> {
        Some(self.0.eta(k))
    }

    fn version(&self) -> u32 {
        self.0.version()
    }
}

impl<T: Real, M: Method> Algorithm<T> for Single<M> {
    fn start(
        &self,
        problem: &dyn Bilevel<T>,
        network: &mut dyn Network<T>,
        start: Option<&Start>,
    ) -> Result<Box<dyn State<T>>> {
        let (objective, start) = (objective(problem)?, own_start(problem, start));
        let mut x = Stack::zeros(network.owned().len(), &Upper::Shared(objective.width()), &[]);
        fill(network, &mut x, [objective.start_from(&start)]);
        let mut oracle = |network: &mut dyn Network<T>, k: usize, x: &Stack<T, 1>, d: &mut Stack<T, 1>| {
            objective.gradients(at(k, network), x, d)
        };
        Ok(Box::new(SingleState(self.0.begin(x, objective.blocks(), network, &mut oracle)?)))
    }
}

impl<T: Real> State<T> for SingleState<T> {
    fn step(&mut self, k: usize, problem: &dyn Bilevel<T>, network: &mut dyn Network<T>) -> Result<()> {
        let objective = objective(problem)?;
        self.0.step(k, network, &mut |network, k, x, d| objective.gradients(at(k, network), x, d))
    }

    fn views(&mut self) -> Vec<View<'_, T>> {
        self.0.views()
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        self.0.memory()
    }
}
