//! What an algorithm is to the rest of dibo: parameters that say what they are and start a state, and a state
//! that steps.
use super::{GraphNeeds, Mixes, Needs, PenaltySteps, Theorem, Tier, Vectors};
use crate::error::Result;
use crate::network::{Network, Wishes};
use crate::problem::{Bilevel, Start};
use crate::rows::{Real, Rows, View};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// An algorithm's parameters, and what they say about the method.
pub trait Parameters: Send + Sync {
    /// Says which parameter is out of range; the message begins with its key.
    fn check(&self) -> Result<(), String>;
    /// What it needs of a problem.
    fn needs(&self) -> Needs {
        Needs::FirstOrder
    }
    /// How it brings the agents together.
    fn mixes(&self) -> Mixes;
    /// What it asks of graphs and weights.
    fn graph_needs(&self) -> GraphNeeds {
        GraphNeeds::default()
    }
    /// Rounds of an iteration.
    fn rounds(&self) -> usize {
        1
    }
    /// What it asks of the network.
    fn wishes(&self) -> Wishes {
        Wishes::default()
    }
    /// Vectors that its state keeps; a method with memory of past gradients keeps one for each of `blocks`
    /// parts of the data.
    fn vectors(&self, blocks: usize) -> Vectors;
    /// What `tune` looks for, tier by tier.
    fn tiers(&self) -> Vec<Tier> {
        Vec::new()
    }
    /// The theorem that covers it, if one does.
    fn theorem(&self) -> Option<Theorem> {
        None
    }
    /// The steps (ηx, ηy, ηz) and λ at iteration k, of the methods that have them.
    fn penalty_steps(&self, _k: usize) -> Option<PenaltySteps> {
        None
    }
    /// The step at iteration k of a method on a single-level objective.
    fn single_step(&self, _k: usize) -> Option<f64> {
        None
    }
    /// Vectors like y that it needs beside its state where that lies on a device.
    fn more_on_device(&self) -> usize {
        0
    }
    /// What it is in a line, and how surely, where the name does not say it.
    fn about() -> &'static str
    where
        Self: Sized,
    {
        ""
    }
    /// Raised when the method's numbers are changed on purpose: results of earlier versions are then not
    /// taken for those of this one.
    fn version(&self) -> u32 {
        1
    }
}

/// An algorithm on numbers of one type.
pub trait Algorithm<T: Real>: Parameters {
    /// Prepares the state at iteration 0; without a start the problem's own is taken.
    fn start(
        &self,
        problem: &dyn Bilevel<T>,
        network: &mut dyn Network<T>,
        start: Option<&Start>,
    ) -> Result<Box<dyn State<T>>>;
}

/// An algorithm on either type of numbers.
pub trait AnyAlgorithm: Algorithm<f32> + Algorithm<f64> {}

impl<A: Algorithm<f32> + Algorithm<f64>> AnyAlgorithm for A {}

/// An algorithm whose parameters can be read from a file and say which keys they have.
pub trait Readable: AnyAlgorithm + Serialize + DeserializeOwned + JsonSchema + 'static {}

impl<A: AnyAlgorithm + Serialize + DeserializeOwned + JsonSchema + 'static> Readable for A {}

/// An algorithm at work: the rows of the agents that this process owns.
pub trait State<T: Real>: Send {
    /// One iteration. After an error the state is worth nothing.
    fn step(&mut self, k: usize, problem: &dyn Bilevel<T>, network: &mut dyn Network<T>) -> Result<()>;
    /// What can be looked at: decision variables (`x`, `y`, `z`, `v`), trackers (`tx`, …), directions (`dx`,
    /// …), push-sum weight (`w`).
    fn views(&mut self) -> Vec<View<'_, T>>;
    /// All memory that lives from one iteration to the next, in a fixed order: for checkpoints and to count
    /// bytes.
    fn memory(&mut self) -> Vec<&mut Rows<T>>;
}
