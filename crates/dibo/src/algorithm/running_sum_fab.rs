//! FAB with running sums, for links that lose messages: every link carries the sum of all it was ever given
//! to push, so a later message brings what earlier ones lost, and Σt + what is in flight = Σd.
//!
//! The network keeps the sums; here only the wish for them is stated. Without losses this is FAB.
use super::fab::Fab;
use super::{Algorithm, PenaltySteps, State};
use crate::network::Network;
use crate::problem::{Bilevel, Start};
use crate::rows::Real;
use serde::{Deserialize, Serialize};

/// FAB's input.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunningSumFab(pub Fab);

impl<T: Real> Algorithm<T> for RunningSumFab {
    fn start(
        &self,
        problem: &dyn Bilevel<T>,
        network: &mut dyn Network<T>,
        start: &Start,
    ) -> Box<dyn State<T>> {
        self.0.start(problem, network, start)
    }

    fn check(&self) -> Result<(), String> {
        self.0.check_values()
    }

    fn running_sums(&self) -> bool {
        true
    }

    fn penalty_steps(&self, k: usize) -> Option<PenaltySteps> {
        Algorithm::<T>::penalty_steps(&self.0, k)
    }
}
