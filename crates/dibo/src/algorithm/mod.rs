//! Algorithms: one short file each, written as the paper's pseudo-code. A file's struct is the Input line (what an experiment file gives);
//! its state is apart; `step` is one iteration with the paper's equation numbers.
//!
//! A new algorithm is one file and one line in the registry below.
pub mod ab;
pub mod centralized_fab;
mod descent;
pub mod double_loop;
pub mod fab;
pub mod push_asgd;
pub mod push_diging;
pub mod push_pull_soba;
pub mod push_saga;
pub mod push_sgd;
pub mod push_sum_fab;
pub mod running_sum_fab;
pub mod static_fab;
pub mod subgradient_push;
mod tracking;

use crate::network::Network;
use crate::problem::{At, Bilevel, Start};
pub use crate::rows::View;
use crate::rows::{Real, Rows, Stack};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use descent::{Descent, Method, Oracle, Single};

/// Writes the starting points of the owned agents into a stack of zeros, and the stack to where the network's rows lie.
fn fill<T: Real, const N: usize>(network: &dyn Network<T>, stack: &mut Stack<T, N>, values: [&Vec<Vec<f64>>; N]) {
    for (row, agent) in network.owned().iter().enumerate() {
        for (to, from) in stack.row_mut(row).into_iter().zip(values) {
            if let Some(from) = Start::row(from, *agent) {
                to.iter_mut().zip(from).for_each(|(t, f)| *t = T::of(*f));
            }
        }
    }
    let ends: Vec<usize> = (0..N).map(|v| stack.cut(v).end).collect();
    network.place(&mut stack.shared, &ends);
    if let Some(private) = &mut stack.private {
        network.place(private, &[]);
    }
}

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
    fn start(&self, problem: &dyn Bilevel<T>, network: &mut dyn Network<T>, start: &Start) -> Box<dyn State<T>>;
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
    /// The steps (ηx, ηy, ηz) and λ at iteration k, of the methods that have them: what warnings before a run look at.
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
    /// What can be looked at: decision variables (`x`, `y`, `z`, `v`), trackers (`tx`, …), directions (`dx`, …), push-sum weight (`w`).
    fn views(&mut self) -> Vec<View<'_, T>>;
    /// All memory that lives from one iteration to the next, in a fixed order: for checkpoints and to count bytes.
    fn memory(&mut self) -> Vec<&mut Rows<T>>;
}

fn views<'a, T: Real, const N: usize>(stack: &'a Stack<T, N>, names: [&'static str; N]) -> impl Iterator<Item = View<'a, T>> {
    names.into_iter().enumerate().map(move |(v, name)| match (&stack.private, v) {
        (Some(private), 0) => View::whole(name, private),
        _ => View { name, rows: &stack.shared, columns: Some(stack.cut(v)) },
    })
}

fn memory<T: Real, const N: usize>(stack: &mut Stack<T, N>) -> impl Iterator<Item = &mut Rows<T>> {
    std::iter::once(&mut stack.shared).chain(&mut stack.private)
}

fn at<T: Real>(k: usize, network: &dyn Network<T>) -> At<'_> {
    At { k, owned: network.owned(), threads: network.threads() }
}

/// Makes the one list of all algorithms.
macro_rules! registry {
    ($($name:literal, $label:literal => $type:ty;)*) => {
        /// Names of all algorithms, as experiment files use them, with their names in the paper.
        pub const NAMES: &[(&str, &str)] = &[$(($name, $label)),*];

        /// Looks an algorithm up; `read` turns the caller's text into its parameters.
        pub fn find<T: Real, R: Reader>(name: &str, read: R) -> Result<Box<dyn Algorithm<T>>, R::Error> {
            match name {
                $($name => Ok(Box::new(read.read::<$type>()?)),)*
                _ => Err(read.unknown(NAMES.iter().map(|n| n.0).collect::<Vec<_>>().join(", "))),
            }
        }
    };
}

/// Where parameters come from: a section of an experiment file, a JSON object.
pub trait Reader {
    /// What goes wrong.
    type Error;
    /// Parses the parameters.
    fn read<P: DeserializeOwned + Serialize>(self) -> Result<P, Self::Error>;
    /// The name is not in the list.
    fn unknown(self, known: String) -> Self::Error;
}

registry! {
    "fab", "FAB" => fab::Fab;
    "centralized-fab", "Centralized_FAB" => centralized_fab::CentralizedFab;
    "static-fab", "Static_FAB" => static_fab::StaticFab;
    "running-sum-fab", "FAB with running sums" => running_sum_fab::RunningSumFab;
    "push-sum-fab", "PushSum_FAB" => push_sum_fab::PushSumFab;
    "push-pull-soba", "PushPull_SOBA" => push_pull_soba::PushPullSoba;
    "push-pull", "AB/Push-Pull" => descent::Single<ab::PushPull>;
    "subgradient-push", "subgradient-push" => descent::Single<subgradient_push::SubgradientPush>;
    "push-sgd", "Push-SGD" => descent::Single<push_sgd::PushSgd>;
    "push-diging", "Push-DIGing" => descent::Single<push_diging::PushDiging>;
    "push-saga", "Push-SAGA" => descent::Single<push_saga::PushSaga>;
    "push-asgd", "Push-ASGD" => descent::Single<push_asgd::PushAsgd>;
    "dl-push-pull", "DL-Push-Pull" => double_loop::DoubleLoop<ab::PushPull>;
    "dl-push-sgd", "DL-Push-SGD" => double_loop::DoubleLoop<push_sgd::PushSgd>;
    "dl-push-saga", "DL-Push-SAGA" => double_loop::DoubleLoop<push_saga::PushSaga>;
    "dl-push-asgd", "DL-Push-ASGD" => double_loop::DoubleLoop<push_asgd::PushAsgd>;
}
