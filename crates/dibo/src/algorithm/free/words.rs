//! The names that a cell by hand is made of, and the numbers that belong to each.
use super::Free;
use crate::algorithm::direction::{NeumannLocal, Penalised, Rule, SobaFd};
use crate::algorithm::estimator::Estimator;
use crate::algorithm::fab::PenaltyForm;
use crate::schedule::Schedule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The direction rules by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// The direction rule, with the numbers that it needs and no others.
    pub fn rule(&self) -> Result<Rule, String> {
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

    /// The estimators of x, y and z, likewise.
    pub fn estimators(&self) -> Result<[Estimator; 3], String> {
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
