//! FAB with running sums, for links that lose messages: every link carries the sum of all it was ever given
//! to push, so a later message brings what earlier ones lost, and Σt + what is in flight = Σd.
//!
//! The network keeps the sums; here only the wish for them is stated. Without losses this is FAB.
use super::fab::Fab;
use super::{Algorithm, Parameters, State};
use crate::error::Result;
use crate::network::Network;
use crate::problem::{Bilevel, Start};
use crate::rows::Real;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// FAB's input.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct RunningSumFab(pub Fab);

impl<T: Real> Algorithm<T> for RunningSumFab {
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
