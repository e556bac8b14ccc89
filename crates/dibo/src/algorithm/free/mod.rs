//! A cell by hand: `name = "cell"` with `direction`, `mixing`, `estimator` and `sweep`.
mod words;

pub use words::{DirectionWord, EstimatorWord};

use super::cell::{Recipe, Spec, Sweep};
use super::fab::PenaltyForm;
use super::mixer::Mix;
use crate::schedule::Schedule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// All that can be said of a cell.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Free {
    /// Direction rule.
    pub direction: DirectionWord,
    /// Mixing rule of all variables.
    pub mixing: Mix,
    /// Of x alone.
    pub mixing_x: Option<Mix>,
    /// Of y alone.
    pub mixing_y: Option<Mix>,
    /// Of z alone.
    pub mixing_z: Option<Mix>,
    /// Estimator of all variables; plain if not given.
    #[serde(default)]
    pub estimator: EstimatorWord,
    /// Of x alone.
    pub estimator_x: Option<EstimatorWord>,
    /// Of y alone.
    pub estimator_y: Option<EstimatorWord>,
    /// Of z alone.
    pub estimator_z: Option<EstimatorWord>,
    /// Sweep; simultaneous if not given.
    #[serde(default)]
    pub sweep: Sweep,
    /// Step of x.
    pub eta_x: Schedule,
    /// Step of y.
    pub eta_y: Schedule,
    /// Step of z; that of y if not given.
    pub eta_z: Option<Schedule>,
    /// `penalty`: λ.
    pub lambda: Option<Schedule>,
    /// `penalty`: as written, or divided by λ.
    pub penalty_form: Option<PenaltyForm>,
    /// `moreau`: factor μ of f.
    pub mu: Option<Schedule>,
    /// `moreau`: γ.
    pub gamma: Option<f64>,
    /// `soba-fd`: step of the finite difference.
    pub delta: Option<f64>,
    /// `soba-fd`: the step is relative, ‖δz‖ = delta (1 + ‖y‖).
    pub relative: Option<bool>,
    /// `neumann-local`: L.
    pub curvature: Option<f64>,
    /// `neumann-local`: J.
    pub terms: Option<usize>,
    /// `momentum`: share of the new direction.
    pub theta: Option<f64>,
    /// `momentum`: begin with the first direction instead of 0.
    pub warm: Option<bool>,
    /// `storm`: a.
    pub a: Option<Schedule>,
    /// (I + W)/2 instead of W; ED and EXTRA have it unless told otherwise.
    pub lazy: Option<bool>,
    /// c of (1 − c) I + c W for the decisions.
    pub damping: Option<f64>,
    /// Radius of a ball that z is kept in.
    pub radius_z: Option<f64>,
}

impl Recipe for Free {
    const ABOUT: &'static str = "any direction, mixing, estimator and sweep, chosen by their keys";

    fn spec(&self) -> Result<Spec, String> {
        let mixing = [self.mixing_x, self.mixing_y, self.mixing_z].map(|m| m.unwrap_or(self.mixing));
        if self.lazy == Some(true) && self.damping.is_some() {
            return Err("lazy and damping are two ways to soften W; give one".into());
        }
        let share = |m: Mix| match (self.lazy, self.damping) {
            (_, Some(c)) => c,
            (Some(true), _) => 0.5,
            (Some(false), _) => 1.0,
            (None, None) => m.share(),
        };
        Ok(Spec {
            direction: self.rule()?,
            mixing,
            share: mixing.map(share),
            estimator: self.estimators()?,
            sweep: self.sweep,
            eta: [self.eta_x, self.eta_y, self.eta_z.unwrap_or(self.eta_y)],
            radius_z: self.radius_z,
        })
    }
}
