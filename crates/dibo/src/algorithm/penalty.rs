//! What FAB and its variants say about themselves: they share the Input of Algorithm 1.
use super::centralized_fab::CentralizedFab;
use super::fab::Fab;
use super::push_sum_fab::PushSumFab;
use super::running_sum_fab::RunningSumFab;
use super::static_fab::StaticFab;
use super::{Axis, FINE, Mixes, Parameters, PenaltySteps, Theorem, Tier, Vectors};
use crate::network::Wishes;
use crate::problem::Penalty;
use crate::schedule::Schedule;
use serde::{Deserialize, Serialize};

/// Whether directions are ∇f + λ∇g or ∇f/λ + ∇g.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

impl Parameters for Fab {
    fn check(&self) -> Result<(), String> {
        self.lambda.check("lambda", false)?;
        // ηx = 0 freezes the upper variable: the baseline "frozen weights".
        self.eta_x.check("eta_x", true)?;
        self.eta_y.check("eta_y", false)?;
        self.eta_z.unwrap_or(self.eta_y).check("eta_z", false)
    }

    fn mixes(&self) -> Mixes {
        Mixes::PullAndPush
    }

    fn vectors(&self, _blocks: usize) -> Vectors {
        Vectors { upper: 3, lower: 6, single: 0 }
    }

    /// Coarse λ with the file's steps and a tenth of them, should those be too large; then ηx and ηy, which
    /// ηz follows.
    fn tiers(&self) -> Vec<Tier> {
        let lambda = Axis::values("lambda", &[1.0, 3.0, 10.0, 30.0, 100.0, 300.0]);
        let x = Axis::around("eta_x", &[0.1, 0.3, 1.0, 3.0, 10.0, 30.0], 0.1).or_listed();
        let y = Axis::around("eta_y", &[0.1, 0.3, 1.0, 3.0, 10.0], 0.1).or_listed();
        vec![
            Tier { axes: vec![lambda, Axis::around("eta_y", &[0.1, 1.0], 0.1)], fine: false },
            Tier { axes: vec![x, y], fine: false },
            Tier {
                axes: vec![Axis::around("eta_x", &FINE, 0.1), Axis::around("eta_y", &FINE, 0.1)],
                fine: true,
            },
        ]
    }

    fn theorem(&self) -> Option<Theorem> {
        Some(Theorem::Penalty)
    }

    fn penalty_steps(&self, k: usize) -> Option<PenaltySteps> {
        Some(PenaltySteps { lambda: self.lambda.at(k), eta: self.eta(k), g: self.penalty(k).g })
    }
}

/// A variant: FAB's values, grid and steps, and what it does otherwise.
macro_rules! variant {
    ($name:ident { $($own:tt)* }) => {
        impl Parameters for $name {
            fn check(&self) -> Result<(), String> {
                self.0.check()
            }

            fn tiers(&self) -> Vec<Tier> {
                self.0.tiers()
            }

            fn penalty_steps(&self, k: usize) -> Option<PenaltySteps> {
                self.0.penalty_steps(k)
            }

            $($own)*
        }
    };
}

variant!(StaticFab {
    fn mixes(&self) -> Mixes {
        Mixes::PullAndPush
    }

    fn wishes(&self) -> Wishes {
        Wishes { frozen_weights: true, ..Wishes::default() }
    }

    fn vectors(&self, blocks: usize) -> Vectors {
        self.0.vectors(blocks)
    }
});

variant!(RunningSumFab {
    fn mixes(&self) -> Mixes {
        Mixes::PullAndPush
    }

    fn wishes(&self) -> Wishes {
        Wishes { running_sums: true, ..Wishes::default() }
    }

    fn vectors(&self, blocks: usize) -> Vectors {
        self.0.vectors(blocks)
    }
});

variant!(PushSumFab {
    fn mixes(&self) -> Mixes {
        Mixes::PushSum
    }

    fn vectors(&self, _blocks: usize) -> Vectors {
        Vectors { upper: 4, lower: 8, single: 0 }
    }
});

variant!(CentralizedFab {
    fn mixes(&self) -> Mixes {
        Mixes::Centrally
    }

    fn vectors(&self, _blocks: usize) -> Vectors {
        Vectors { upper: 2, lower: 4, single: 0 }
    }

    fn on_device(&self) -> bool {
        false
    }
});
