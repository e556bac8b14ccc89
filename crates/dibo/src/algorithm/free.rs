//! A cell by hand: `name = "cell"` with `direction`, `mixing`, `estimator` and `sweep`.
use super::cell::{Recipe, Spec, Sweep};
use super::direction::{NeumannLocal, Penalised, Rule, SobaFd};
use super::estimator::Estimator;
use super::fab::PenaltyForm;
use super::mixer::Mix;
use crate::schedule::Schedule;
use serde::{Deserialize, Serialize};

/// The direction rules by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirectionWord {
    /// ∇f + λ∇g.
    Penalty,
    /// μ∇f + ∇g with a spring 1/γ.
    Moreau,
    /// SOBA's, with products.
    Soba,
    /// SOBA's, with differences of gradients.
    SobaFd,
    /// Each agent's own Neumann series.
    NeumannLocal,
}

/// The estimators by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EstimatorWord {
    /// The direction itself.
    #[default]
    Plain,
    /// A moving average.
    Momentum,
    /// A moving average that is used one iteration late.
    LateMomentum,
    /// Recursive momentum.
    Storm,
}

/// All that can be said of a cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
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

/// A number that a choice needs, or has no use for.
fn taken<V>(value: Option<V>, used: bool, key: &str, choice: &str) -> Result<Option<V>, String> {
    match (value, used) {
        (None, true) => Err(format!("{key} is missing; {choice} needs it")),
        (Some(_), false) => Err(format!("{key} belongs to {choice}, which is not chosen")),
        (value, _) => Ok(value),
    }
}

/// A number that may be given with a choice, and with no other.
fn allowed<V>(value: Option<V>, used: bool, key: &str, choice: &str) -> Result<Option<V>, String> {
    if value.is_some() { taken(value, used, key, choice) } else { Ok(None) }
}

impl Free {
    fn rule(&self) -> Result<Rule, String> {
        use DirectionWord::*;
        let is = |word| self.direction == word;
        let lambda = taken(self.lambda, is(Penalty), "lambda", "direction \"penalty\"")?;
        let form = allowed(self.penalty_form, is(Penalty), "penalty_form", "direction \"penalty\"")?;
        let mu = taken(self.mu, is(Moreau), "mu", "direction \"moreau\"")?;
        let gamma = taken(self.gamma, is(Moreau), "gamma", "direction \"moreau\"")?;
        let delta = taken(self.delta, is(SobaFd), "delta", "direction \"soba-fd\"")?;
        let relative = allowed(self.relative, is(SobaFd), "relative", "direction \"soba-fd\"")?;
        let curvature = taken(self.curvature, is(NeumannLocal), "curvature", "direction \"neumann-local\"")?;
        let terms = taken(self.terms, is(NeumannLocal), "terms", "direction \"neumann-local\"")?;
        let one = Schedule::from(1.0);
        Ok(match self.direction {
            Penalty => {
                let lambda = lambda.unwrap_or(one);
                let (f, g) = match (form.unwrap_or_default(), lambda) {
                    (PenaltyForm::Written, lambda) => (one, lambda),
                    (PenaltyForm::Normalised, Schedule::Constant(lambda)) => ((1.0 / lambda).into(), one),
                    _ => return Err("penalty_form \"normalised\" takes a constant lambda in a cell".into()),
                };
                Rule::Penalised(Penalised { f, g, gamma: None })
            }
            Moreau => Rule::Penalised(Penalised { f: mu.unwrap_or(one), g: one, gamma }),
            Soba => Rule::Soba,
            SobaFd => Rule::SobaFd(self::SobaFd {
                delta: delta.unwrap_or_default(),
                relative: relative.unwrap_or_default(),
            }),
            NeumannLocal => Rule::NeumannLocal(self::NeumannLocal {
                curvature: curvature.unwrap_or_default(),
                terms: terms.unwrap_or_default(),
            }),
        })
    }

    fn estimators(&self) -> Result<[Estimator; 3], String> {
        let words =
            [self.estimator_x, self.estimator_y, self.estimator_z].map(|w| w.unwrap_or(self.estimator));
        let some = |which: &[EstimatorWord]| words.iter().any(|w| which.contains(w));
        let momentum = some(&[EstimatorWord::Momentum, EstimatorWord::LateMomentum]);
        let theta = taken(self.theta, momentum, "theta", "estimator \"momentum\"")?.unwrap_or_default();
        let warm = allowed(self.warm, momentum, "warm", "estimator \"momentum\"")?.unwrap_or_default();
        let a = taken(self.a, some(&[EstimatorWord::Storm]), "a", "estimator \"storm\"")?
            .unwrap_or(Schedule::Constant(1.0));
        Ok(words.map(|word| match word {
            EstimatorWord::Plain => Estimator::Plain,
            EstimatorWord::Momentum => Estimator::Momentum { theta, late: false, warm },
            EstimatorWord::LateMomentum => Estimator::Momentum { theta, late: true, warm },
            EstimatorWord::Storm => Estimator::Storm { a },
        }))
    }
}

impl Recipe for Free {
    const ABOUT: &'static str = "any direction, mixing, estimator and sweep, chosen by their keys";

    fn spec(&self) -> Result<Spec, String> {
        let mixing = [self.mixing_x, self.mixing_y, self.mixing_z].map(|m| m.unwrap_or(self.mixing));
        if self.lazy == Some(true) && self.damping.is_some() {
            return Err("lazy and damping are two ways to soften W; give one".into());
        }
        let softened = mixing.map(|m| match (self.lazy, self.damping) {
            (_, Some(c)) => c,
            (Some(true), _) => 0.5,
            (Some(false), _) => 1.0,
            (None, None) => {
                if m.one_graph() {
                    0.5
                } else {
                    1.0
                }
            }
        });
        Ok(Spec {
            direction: self.rule()?,
            mixing,
            share: softened,
            estimator: self.estimators()?,
            sweep: self.sweep,
            eta: [self.eta_x, self.eta_y, self.eta_z.unwrap_or(self.eta_y)],
            radius_z: self.radius_z,
        })
    }
}
