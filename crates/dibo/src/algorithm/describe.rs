//! The words in which an algorithm says what it is: what it needs, how it mixes, what it keeps.
pub use crate::network::GraphNeeds;
use crate::problem::Bilevel;
use crate::rows::Real;

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

impl Needs {
    /// What it is called in messages.
    pub fn words(self) -> &'static str {
        match self {
            Needs::FirstOrder => "gradients of f and g",
            Needs::SecondOrder => "second-order products",
            Needs::SingleLevel => "a single-level objective",
        }
    }

    /// Whether a problem has it.
    pub fn met_by<T: Real>(self, problem: &dyn Bilevel<T>) -> bool {
        match self {
            Needs::FirstOrder => true,
            Needs::SecondOrder => problem.second_order().is_some(),
            Needs::SingleLevel => problem.single_level().is_some(),
        }
    }
}

/// How an algorithm brings the agents together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mixes {
    /// Decisions are pulled through A and trackers pushed through B, one round an iteration: what the theory
    /// is about.
    PullAndPush,
    /// The same in several rounds an iteration.
    PullAndPushInLoops,
    /// Decisions are pulled through A, and nothing is tracked.
    Pull,
    /// Everything is pushed through B, with push-sum's weight.
    PushSum,
    /// All gradients are averaged in one place; no link is used.
    Centrally,
}

/// The theorem that covers an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theorem {
    /// FAB's: conditions on λ, ηx, ηy, ηz.
    Penalty,
    /// AB/Push-Pull's: conditions on η.
    SingleLevel,
}

/// How many vectors a state keeps for each agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vectors {
    /// Of the upper variable's width.
    pub upper: usize,
    /// Of the lower variable's width.
    pub lower: usize,
    /// Of the single-level objective's width.
    pub single: usize,
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
