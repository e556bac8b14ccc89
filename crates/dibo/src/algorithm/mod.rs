//! Algorithms: one short file each, written as the paper's pseudo-code. A file's struct is the Input line
//! (what an experiment file gives); its state is apart; `step` is one iteration with the paper's equation
//! numbers.
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
mod stacks;
pub mod static_fab;
pub mod subgradient_push;
mod tracking;
mod traits;

pub use crate::rows::View;
pub use descent::{Descent, Method, Oracle, Single};
use serde::Serialize;
use serde::de::DeserializeOwned;
use stacks::{at, fill, memory, views};
pub use traits::{Algorithm, Needs, PenaltySteps, State};

/// Makes the one list of all algorithms.
macro_rules! registry {
    ($($name:literal, $label:literal => $type:ty;)*) => {
        /// Names of all algorithms, as experiment files use them, with their names in the paper.
        pub const NAMES: &[(&str, &str)] = &[$(($name, $label)),*];

        /// Looks an algorithm up; `read` turns the caller's text into its parameters.
        pub fn find<T: crate::rows::Real, R: Reader>(name: &str, read: R) -> Result<Box<dyn Algorithm<T>>, R::Error> {
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
