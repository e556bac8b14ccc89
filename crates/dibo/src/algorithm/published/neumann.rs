//! MDBO and VRDBO: each agent's own Neumann series, momentum or STORM, tracking.
use crate::algorithm::cell::{Recipe, Spec};
use crate::algorithm::direction::{NeumannLocal, Rule};
use crate::algorithm::estimator::Estimator;
use crate::algorithm::mixer::Mix;
use crate::schedule::Schedule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of MDBO and VRDBO.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Neumann {
    /// η: decisions are mixed by (1 − η) I + η W, and all steps carry it.
    pub eta: f64,
    /// Momentum of x: α₁η (MDBO) or α₁η² (VRDBO) is the share of the new direction.
    pub alpha_1: f64,
    /// Momentum of y.
    pub alpha_2: f64,
    /// Step of x is β₁η.
    pub beta_1: f64,
    /// Step of y is β₂η.
    pub beta_2: f64,
    /// L of the Neumann series, at least the largest curvature of g.
    pub curvature: f64,
    /// Its number of terms J.
    pub terms: usize,
}

impl Neumann {
    fn spec(&self, estimator: impl Fn(f64) -> Estimator) -> Result<Spec, String> {
        let Neumann { eta, alpha_1, alpha_2, beta_1, beta_2, curvature, terms } = *self;
        if !(eta > 0.0 && eta < 1.0) {
            return Err(format!("eta is {eta}; it must be above 0 and below 1"));
        }
        let all = [("alpha_1", alpha_1), ("alpha_2", alpha_2), ("beta_1", beta_1), ("beta_2", beta_2)];
        if let Some((name, value)) = all.into_iter().find(|(_, v)| !(*v > 0.0 && v.is_finite())) {
            return Err(format!("{name} is {value}; it must be above 0"));
        }
        let rule = Rule::NeumannLocal(NeumannLocal { curvature, terms });
        let steps = [beta_1 * eta, beta_2 * eta, beta_2 * eta].map(Schedule::from);
        let estimator = [estimator(alpha_1), estimator(alpha_2), Estimator::Plain];
        Ok(Spec { share: [eta; 3], estimator, ..Spec::new(rule, Mix::Gt, steps) })
    }
}

/// MDBO.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Mdbo(pub Neumann);

impl Recipe for Mdbo {
    const ABOUT: &'static str =
        "MDBO (Gao, Gu and Thai, AISTATS 2023) with the mean of its random Neumann terms";

    fn spec(&self) -> Result<Spec, String> {
        self.0.spec(|alpha| Estimator::Momentum { theta: alpha * self.0.eta, late: false, warm: true })
    }

    fn keys(&self) -> [&'static str; 2] {
        ["beta_1", "beta_2"]
    }
}

/// VRDBO.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Vrdbo(pub Neumann);

impl Recipe for Vrdbo {
    const ABOUT: &'static str =
        "VRDBO (Gao, Gu and Thai, AISTATS 2023) with the mean of its random Neumann terms";

    fn spec(&self) -> Result<Spec, String> {
        self.0.spec(|alpha| Estimator::Storm { a: (alpha * self.0.eta * self.0.eta).into() })
    }

    fn keys(&self) -> [&'static str; 2] {
        ["beta_1", "beta_2"]
    }
}
