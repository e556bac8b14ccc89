//! The words of a cell: sweep, direction, estimator and mixing, and what follows from them.
use super::direction::{Rule, X, Z};
use super::estimator::Estimator;
use super::loops::check_share;
use super::mixer::Mix;
use super::{Mixes, Vectors};
use crate::schedule::Schedule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When directions are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Sweep {
    /// All at the old point.
    #[default]
    Simultaneous,
    /// One variable after the other, each with the newest values of the others.
    Sequential,
}

/// Everything that makes a cell; arrays run over x, y and z.
#[derive(Clone, Debug)]
pub struct Spec {
    /// What the directions are.
    pub direction: Rule,
    /// How each variable moves.
    pub mixing: [Mix; 3],
    /// c of (1 − c) v + c A v, where a decision is mixed.
    pub share: [f64; 3],
    /// How noise is treated.
    pub estimator: [Estimator; 3],
    /// When directions are taken.
    pub sweep: Sweep,
    /// Steps.
    pub eta: [Schedule; 3],
    /// Each agent keeps its z in the ball of this radius.
    pub radius_z: Option<f64>,
}

impl Spec {
    /// Plain estimators, a simultaneous sweep, one mixing rule for all.
    pub fn new(direction: Rule, mixing: Mix, eta: [Schedule; 3]) -> Self {
        let (share, estimator, sweep) = ([1.0; 3], [Estimator::Plain; 3], Sweep::Simultaneous);
        Spec { direction, mixing: [mixing; 3], share, estimator, sweep, eta, radius_z: None }
    }

    /// (ηx, ηy, ηz) at iteration k.
    pub fn eta(&self, k: usize) -> [f64; 3] {
        self.eta.map(|eta| eta.at(k))
    }

    /// Says which number is out of range; the message begins with its key.
    pub fn check(&self) -> Result<(), String> {
        self.direction.check()?;
        self.estimator.iter().try_for_each(Estimator::check)?;
        // ηx = 0 freezes the upper variable.
        self.eta[0].check("eta_x", true)?;
        self.eta[1].check("eta_y", false)?;
        self.eta[2].check("eta_z", false)?;
        self.share.iter().try_for_each(|c| check_share("damping", *c))?;
        let push_sum = |m: &Mix| m.mixes() == Mixes::PushSum;
        if self.mixing.iter().zip(self.share).any(|(m, c)| push_sum(m) && c != 1.0) {
            return Err("damping belongs to rules that pull; push-sum has no A to soften".into());
        }
        match self.radius_z {
            Some(r) if !(r > 0.0 && r.is_finite()) => Err(format!("radius_z is {r}; it must be above 0")),
            Some(_) if push_sum(&self.mixing[Z]) => {
                Err("radius_z belongs to rules that pull; push-sum's estimate cannot be projected".into())
            }
            _ => Ok(()),
        }
    }

    /// Rounds of one iteration.
    pub fn rounds(&self) -> usize {
        let each = self.direction.order().iter().map(|v| self.mixing[*v].rounds());
        if self.sweep == Sweep::Sequential { each.sum() } else { each.max().unwrap_or(1) }
    }

    /// One rule for all variables, in a simultaneous sweep.
    pub fn together(&self) -> bool {
        let same = |v: usize| self.mixing[v] == self.mixing[X] && self.share[v] == self.share[X];
        self.sweep == Sweep::Simultaneous && (0..3).all(same)
    }

    /// Vectors that it keeps.
    pub fn vectors(&self) -> Vectors {
        let plain = self.estimator.iter().all(|e| *e == Estimator::Plain);
        let storm = self.estimator.iter().any(Estimator::looks_back);
        let points = if self.sweep == Sweep::Sequential { 3 } else { 1 };
        let of = |v: usize| {
            let own = if self.together() { 0 } else { 2 };
            let estimates = if plain { 0 } else { 1 } + if storm { 1 + points } else { 0 };
            2 + own + estimates + self.mixing[v].vectors()
        };
        let z = if self.direction.has_z() { of(2) } else { 0 };
        Vectors { upper: of(0), lower: of(1) + z, single: 0 }
    }
}

/// What a file says of a cell: all of it, or the parameters of a published method.
pub trait Recipe: Send + Sync {
    /// The cell.
    fn spec(&self) -> Result<Spec, String>;
    /// What it is, and how surely.
    const ABOUT: &'static str;
    /// The keys of the steps of x and y.
    fn keys(&self) -> [&'static str; 2] {
        ["eta_x", "eta_y"]
    }
}
