//! What an algorithm is to the rest of dibo: parameters that start a state, and a state that steps.
use crate::network::Network;
use crate::problem::{Bilevel, Start};
use crate::rows::{Real, Rows, View};

/// What an algorithm asks of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Gradients of f and g.
    FirstOrder,
    /// Also products with second derivatives of g.
    SecondOrder,
    /// A single-level objective.
    SingleLevel,
}

/// An algorithm's parameters.
pub trait Algorithm<T: Real>: Send + Sync {
    /// Prepares the state at iteration 0.
    fn start(
        &self,
        problem: &dyn Bilevel<T>,
        network: &mut dyn Network<T>,
        start: &Start,
    ) -> Box<dyn State<T>>;
    /// Says which parameter is out of range.
    fn check(&self) -> Result<(), String>;
    /// What it needs of a problem.
    fn needs(&self) -> Needs {
        Needs::FirstOrder
    }
    /// True if it keeps the weights of iteration 0 although links change.
    fn frozen_weights(&self) -> bool {
        false
    }
    /// True if links that lose messages are to carry running sums of what is pushed.
    fn running_sums(&self) -> bool {
        false
    }
    /// The steps (ηx, ηy, ηz) and λ at iteration k, of the methods that have them: what warnings before a run
    /// look at.
    fn penalty_steps(&self, _k: usize) -> Option<PenaltySteps> {
        None
    }
    /// The step at iteration k of a method on a single-level objective.
    fn single_step(&self, _k: usize) -> Option<f64> {
        None
    }
}

/// FAB's steps at one iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PenaltySteps {
    /// Penalty.
    pub lambda: f64,
    /// Steps of x, y and z.
    pub eta: [f64; 3],
    /// Factor of g in the directions: λ as written, 1 normalised.
    pub g: f64,
}

/// An algorithm at work: the rows of the agents that this process owns.
pub trait State<T: Real>: Send {
    /// One iteration.
    fn step(&mut self, k: usize, problem: &dyn Bilevel<T>, network: &mut dyn Network<T>);
    /// What can be looked at: decision variables (`x`, `y`, `z`, `v`), trackers (`tx`, …), directions (`dx`,
    /// …), push-sum weight (`w`).
    fn views(&mut self) -> Vec<View<'_, T>>;
    /// All memory that lives from one iteration to the next, in a fixed order: for checkpoints and to count
    /// bytes.
    fn memory(&mut self) -> Vec<&mut Rows<T>>;
}
