//! FAB, Algorithm 1 of the paper: AB/Push-Pull on the penalty function min_{x,y} max_z f(x,y) + λ(g(x,y) −
//! g(x,z)).
pub use super::penalty::PenaltyForm;
use super::stacks::zeros;
use super::tracking::Tracked;
use super::{Algorithm, State, View, at, fill, own_start};
use crate::error::Result;
use crate::network::Network;
use crate::problem::{Bilevel, Start};
use crate::rows::{Real, Rows};
use crate::schedule::Schedule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Input of Algorithm 1.
///
/// ```
/// use dibo::algorithm::{Parameters, fab::Fab};
///
/// let fab = Fab { lambda: 60.0.into(), eta_x: 0.2.into(), ..Fab::normalised(0.1) };
/// assert_eq!(fab.eta(0), [0.2, 0.1, 0.1]);
/// assert!(Fab { eta_y: 0.0.into(), ..fab }.check().unwrap_err().starts_with("eta_y"));
/// ```
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fab {
    /// Penalty λ.
    pub lambda: Schedule,
    /// Step of x.
    pub eta_x: Schedule,
    /// Step of y.
    pub eta_y: Schedule,
    /// Step of z; that of y if not given.
    pub eta_z: Option<Schedule>,
    /// Directions as written, or divided by λ.
    #[serde(default)]
    pub penalty_form: PenaltyForm,
}

/// x, y, z with trackers and directions.
pub struct FabState<T> {
    fab: Fab,
    rows: Tracked<T, 3>,
}

impl<T: Real> Algorithm<T> for Fab {
    fn start(
        &self,
        problem: &dyn Bilevel<T>,
        network: &mut dyn Network<T>,
        start: Option<&Start>,
    ) -> Result<Box<dyn State<T>>> {
        let start = own_start(problem, start);
        let mut v = zeros(&problem.upper(), &[problem.lower(), problem.lower()], network.owned());
        fill(network, &mut v, [&start.x, &start.y, start.twin()]);
        let mut rows = Tracked::new(v);
        // t⁰ = d⁰
        problem.penalty_directions(at(0, network), self.penalty(0), &rows.v, &mut rows.d)?;
        rows.absorb();
        Ok(Box::new(FabState { fab: self.clone(), rows }))
    }
}

impl<T: Real> State<T> for FabState<T> {
    fn step(&mut self, k: usize, problem: &dyn Bilevel<T>, network: &mut dyn Network<T>) -> Result<()> {
        let Self { fab, rows } = self;
        // (4) x⁺ = A x − ηx tx, y⁺ = A y − ηy ty, z⁺ = A z − ηz tz; and the mixing of (6)
        rows.mix(k, fab.eta(k), network)?;
        // (5) d⁺ = (∇ₓL, ∇ᵧL, −∇_zL) at (x⁺, y⁺, z⁺)
        problem.penalty_directions(at(k + 1, network), fab.penalty(k + 1), &rows.v, &mut rows.d)?;
        // (6) t⁺ = B t + d⁺ − d
        rows.absorb();
        Ok(())
    }

    fn views(&mut self) -> Vec<View<'_, T>> {
        self.rows.views(["x", "y", "z"], ["tx", "ty", "tz"], ["dx", "dy", "dz"])
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        self.rows.memory()
    }
}
