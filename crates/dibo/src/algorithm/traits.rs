//! What an algorithm is to the rest of dibo: parameters that say what they are and start a state, and a state
//! that steps.
use crate::error::Result;
use crate::network::{Network, Wishes};
use crate::problem::{Bilevel, Start};
use crate::rows::{Real, Rows, View};
use serde::Serialize;
use serde::de::DeserializeOwned;

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

/// A parameter that can be tuned.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Its key in an experiment file.
    pub key: &'static str,
    /// Where to look.
    pub grid: Grid,
    /// Whether a list in the file is taken instead of the grid.
    pub listed: bool,
}

/// Values of a parameter to try.
#[derive(Clone, Debug, PartialEq)]
pub enum Grid {
    /// These.
    Values(Vec<f64>),
    /// Multiples of what the file says; of `otherwise`, if it says nothing.
    Around {
        /// The factors.
        factors: Vec<f64>,
        /// Where there is no value.
        otherwise: f64,
    },
}

impl Axis {
    /// These values, unless the file has a list.
    pub fn values(key: &'static str, values: &[f64]) -> Self {
        Axis { key, grid: Grid::Values(values.into()), listed: true }
    }

    /// Multiples of the file's value.
    pub fn around(key: &'static str, factors: &[f64], otherwise: f64) -> Self {
        Axis { key, grid: Grid::Around { factors: factors.into(), otherwise }, listed: false }
    }

    /// The same, unless the file has a list.
    pub fn or_listed(self) -> Self {
        Axis { listed: true, ..self }
    }
}

/// Axes that are searched together; later tiers start from the best of the earlier ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Tier {
    /// One or two.
    pub axes: Vec<Axis>,
    /// It only refines what an earlier tier found.
    pub fine: bool,
}

/// Three values close to what was found.
pub const FINE: [f64; 3] = [1.0 / 1.7, 1.0, 1.7];

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
    /// Whether its state can lie on a device.
    fn on_device(&self) -> bool {
        true
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

/// An algorithm whose parameters can be read from a file.
pub trait Readable: AnyAlgorithm + Serialize + DeserializeOwned + 'static {}

impl<A: AnyAlgorithm + Serialize + DeserializeOwned + 'static> Readable for A {}

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
