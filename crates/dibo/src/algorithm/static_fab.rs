//! Static_FAB: FAB with the weights of iteration 0 for ever, while links really come and go (ablation 2 of
//! the paper).
//!
//! The network loses what is sent over a missing link; here only the wish for frozen weights is stated.
use super::fab::Fab;
use super::{Algorithm, Mixes, Parameters, PenaltySteps, State, Tier, Vectors};
use crate::error::Result;
use crate::network::{Network, Wishes};
use crate::problem::{Bilevel, Start};
use crate::rows::Real;
use serde::{Deserialize, Serialize};

/// FAB's input; A⁰ and B⁰ are used at every iteration.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StaticFab(pub Fab);

impl<T: Real> Algorithm<T> for StaticFab {
    fn start(
        &self,
        problem: &dyn Bilevel<T>,
        network: &mut dyn Network<T>,
        start: Option<&Start>,
    ) -> Result<Box<dyn State<T>>> {
        network.prepare(self.wishes())?;
        self.0.start(problem, network, start)
    }
}

impl Parameters for StaticFab {
    fn check(&self) -> Result<(), String> {
        self.0.check()
    }

    fn mixes(&self) -> Mixes {
        Mixes::PullAndPush
    }

    fn wishes(&self) -> Wishes {
        Wishes { frozen_weights: true, ..Wishes::default() }
    }

    fn vectors(&self, blocks: usize) -> Vectors {
        self.0.vectors(blocks)
    }

    fn tiers(&self) -> Vec<Tier> {
        self.0.tiers()
    }

    fn penalty_steps(&self, k: usize) -> Option<PenaltySteps> {
        self.0.penalty_steps(k)
    }
}
