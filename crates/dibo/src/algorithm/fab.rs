//! FAB, Algorithm 1 of the paper: AB/Push-Pull on the penalty function min_{x,y} max_z f(x,y) + λ(g(x,y) −
//! g(x,z)).
use super::tracking::{Tracked, zeros};
use super::{Algorithm, Axis, FINE, Mixes, Parameters, PenaltySteps, State, Theorem, Tier, Vectors, View};
use super::{at, fill, own_start};
use crate::error::Result;
use crate::network::Network;
use crate::problem::{Bilevel, Penalty, Start};
use crate::rows::{Real, Rows};
use crate::schedule::Schedule;
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
#[derive(Clone, Debug, Serialize, Deserialize)]
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
