//! What FAB and its variants say of themselves: they share the Input of Algorithm 1, its grid and its steps.
use super::centralized_fab::CentralizedFab;
use super::fab::Fab;
use super::push_sum_fab::PushSumFab;
use super::running_sum_fab::RunningSumFab;
use super::static_fab::StaticFab;
use super::{Axis, FINE, Mixes, Parameters, PenaltySteps, Theorem, Tier, Vectors};
use crate::network::Wishes;

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
        let lambda = Axis::lambda();
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

const NONE: Wishes = Wishes { frozen_weights: false, running_sums: false };

/// Each variant: how it mixes, vectors of x and of y it keeps, what it asks of the network.
macro_rules! variants {
    ($($name:ident: $mixes:ident, ($upper:expr, $lower:expr), $wishes:expr;)*) => {$(
        impl Parameters for $name {
            fn check(&self) -> Result<(), String> {
                self.0.check()
            }

            fn mixes(&self) -> Mixes {
                Mixes::$mixes
            }

            fn vectors(&self, _blocks: usize) -> Vectors {
                Vectors { upper: $upper, lower: $lower, single: 0 }
            }

            fn wishes(&self) -> Wishes {
                $wishes
            }

            fn tiers(&self) -> Vec<Tier> {
                self.0.tiers()
            }

            fn penalty_steps(&self, k: usize) -> Option<PenaltySteps> {
                self.0.penalty_steps(k)
            }
        }
    )*};
}

variants! {
    StaticFab: PullAndPush, (3, 6), Wishes { frozen_weights: true, ..NONE };
    RunningSumFab: PullAndPush, (3, 6), Wishes { running_sums: true, ..NONE };
    PushSumFab: PushSum, (4, 8), NONE;
    CentralizedFab: Centrally, (2, 4), NONE;
}
