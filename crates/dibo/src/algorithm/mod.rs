//! Algorithms: one short file each, written as the paper's pseudo-code. A file's struct is the Input line
//! (what an experiment file gives); its state is apart; `step` is one iteration with the paper's equation
//! numbers.
//!
//! A new algorithm is one file and one line in the registry below.
pub mod ab;
mod adjoint;
mod afar;
pub mod c2dfb;
pub mod cell;
mod cells;
pub mod centralized_fab;
mod compressed;
mod descent;
mod describe;
pub mod direction;
pub mod double_loop;
pub mod estimator;
pub mod fab;
mod fab_family;
pub mod free;
pub mod gossip;
pub mod hgp;
mod itd;
mod linear_system;
mod looks;
mod looped;
mod loops;
pub mod ma_dsbo;
pub mod mixer;
mod movement;
mod mover;
mod neumann_push;
mod one_penalty;
mod one_rule;
mod part;
mod penalty;
pub mod published;
pub mod push_asgd;
pub mod push_diging;
pub mod push_pull_soba;
pub mod push_saga;
pub mod push_sgd;
mod push_sum;
pub mod push_sum_fab;
pub mod running_sum_fab;
mod saga;
mod spec;
mod stacks;
pub mod static_fab;
pub mod subgradient_push;
mod tracking;
mod traits;
mod tunable;
mod workspace;

pub use crate::rows::View;
pub use descent::{Descent, Method, Oracle, Single};
pub use describe::*;
use stacks::{at, fill, memory, own_start, views};
pub use traits::*;
pub use tunable::*;
use workspace::Workspaces;

/// Sees the type of every algorithm.
pub trait Visitor {
    /// An algorithm with its name in files, its name in the paper, and what makes it one of any kind.
    fn visit<A: Readable>(&mut self, name: &'static str, label: &'static str, any: MakeAny<A>);
}

/// Forgets an algorithm's type. Where this function stands, all of the algorithm is compiled.
pub type MakeAny<A> = fn(A) -> Box<dyn AnyAlgorithm>;

/// Makes the one list of all algorithms.
macro_rules! registry {
    ($($name:literal, $label:literal => $type:ty;)*) => {
        /// Names of all algorithms, as experiment files use them, with their names in the paper.
        pub const NAMES: &[(&str, &str)] = &[$(($name, $label)),*];

        /// Shows every algorithm of dibo to a visitor.
        pub fn visit_all(visitor: &mut impl Visitor) {
            $({
                // A function without type parameters: compiled here, once, and not by every crate that asks.
                fn any(algorithm: $type) -> Box<dyn AnyAlgorithm> {
                    Box::new(algorithm)
                }
                visitor.visit::<$type>($name, $label, any);
            })*
        }
    };
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
    "push-soba", "Push-SOBA" => cell::Cell<published::PushSoba>;
    "cell", "cell" => cell::Cell<free::Free>;
    "d-soba", "D-SOBA" => cell::Cell<published::DSoba>;
    "d-soba-fo", "D-SOBA-FO" => cell::Cell<published::DSobaFo>;
    "sparkle-gt", "SPARKLE-GT" => cell::Cell<published::SparkleGt>;
    "sparkle-ed", "SPARKLE-ED" => cell::Cell<published::SparkleEd>;
    "sparkle-extra", "SPARKLE-EXTRA" => cell::Cell<published::SparkleExtra>;
    "sparkle-ed-gt", "SPARKLE-ED-GT" => cell::Cell<published::SparkleEdGt>;
    "sldbo", "SLDBO" => cell::Cell<published::Sldbo>;
    "mdbo", "MDBO" => cell::Cell<published::Mdbo>;
    "vrdbo", "VRDBO" => cell::Cell<published::Vrdbo>;
    "dsgda-gt", "DSGDA-GT" => cell::Cell<published::DsgdaGt>;
    "penalty-storm", "penalty, tracking and STORM" => cell::Cell<published::PenaltyStorm>;
    "sun-dsbo-gt", "SUN-DSBO-GT" => cell::Cell<published::SunDsboGt>;
    "sun-dsbo-se", "SUN-DSBO-SE" => cell::Cell<published::SunDsboSe>;
    "ma-dsbo", "MA-DSBO" => ma_dsbo::MaDsbo;
    "hgp", "HGP" => hgp::Hgp;
    "c2dfb", "C2DFB" => c2dfb::C2dfb;
    "dgd", "DGD" => descent::Single<gossip::Dgd>;
    "diffusion", "diffusion" => descent::Single<gossip::Diffusion>;
    "diging", "DIGing" => descent::Single<gossip::Diging>;
    "atc-tracking", "ATC tracking" => descent::Single<gossip::AtcTracking>;
    "aug-dgm", "Aug-DGM" => descent::Single<gossip::AugDgm>;
    "exact-diffusion", "Exact Diffusion" => descent::Single<gossip::ExactDiffusion>;
    "single-cell", "single-level cell" => descent::Single<gossip::Chosen>;
    "extra", "EXTRA" => descent::Single<gossip::Extra>;
}
