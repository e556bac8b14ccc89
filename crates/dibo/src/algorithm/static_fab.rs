//! Static_FAB: FAB with the weights of iteration 0 for ever, while links really come and go (ablation 2 of
//! the paper).
//!
//! The network loses what is sent over a missing link; here only the wish for frozen weights is stated.
use super::fab::Fab;
use super::{Algorithm, Parameters, State};
use crate::error::Result;
use crate::network::Network;
use crate::problem::{Bilevel, Start};
use crate::rows::Real;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// FAB's input; A⁰ and B⁰ are used at every iteration.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
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
