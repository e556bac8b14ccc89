//! The penalty's two forms, and FAB's numbers at an iteration.
use super::fab::Fab;
use crate::problem::Penalty;
use crate::schedule::Schedule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether directions are ∇f + λ∇g or ∇f/λ + ∇g.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PenaltyForm {
    /// ∇f + λ∇g.
    #[default]
    Written,
    /// ∇f/λ + ∇g: the same as steps η/λ.
    Normalised,
}

impl PenaltyForm {
    /// The factors of f and g.
    pub fn factors(self, lambda: f64) -> Penalty {
        match self {
            PenaltyForm::Written => Penalty { f: 1.0, g: lambda },
            PenaltyForm::Normalised => Penalty { f: 1.0 / lambda, g: 1.0 },
        }
    }
}

impl Fab {
    /// The normalised form with λ = 60 and one step for all three variables.
    pub fn normalised(eta: f64) -> Self {
        let eta: Schedule = eta.into();
        Fab {
            lambda: 60.0.into(),
            eta_x: eta,
            eta_y: eta,
            eta_z: None,
            penalty_form: PenaltyForm::Normalised,
        }
    }

    /// (ηx, ηy, ηz) at iteration k.
    pub fn eta(&self, k: usize) -> [f64; 3] {
        [self.eta_x.at(k), self.eta_y.at(k), self.eta_z.unwrap_or(self.eta_y).at(k)]
    }

    /// The factors of f and g at iteration k.
    pub fn penalty(&self, k: usize) -> Penalty {
        self.penalty_form.factors(self.lambda.at(k))
    }
}
