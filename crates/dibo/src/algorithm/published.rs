//! The published methods as names for cells, each with its own parameters. Where only an abstract or a
//! review was to be had, the description says so.
use super::cell::{Recipe, Spec, Sweep};
use super::direction::{NeumannLocal, Penalised, Rule, SobaFd};
use super::estimator::Estimator;
use super::mixer::Mix;
use crate::schedule::Schedule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A method with three steps: its own parameters, its description, its cell.
macro_rules! recipes {
    ($(
        $(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $field:ident: $type:ty,)* } $words:literal
        |$r:ident, $eta:ident| $spec:expr;
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// Step of x.
            pub eta_x: Schedule,
            /// Step of y.
            pub eta_y: Schedule,
            /// Step of z; that of y if not given.
            pub eta_z: Option<Schedule>,
            $($(#[$about])* pub $field: $type,)*
        }

        impl Recipe for $name {
            const ABOUT: &'static str = $words;

            fn spec(&self) -> Result<Spec, String> {
                let $r = self;
                let $eta = [self.eta_x, self.eta_y, self.eta_z.unwrap_or(self.eta_y)];
                Ok($spec)
            }
        }
    )*};
}

/// The orders of gradient tracking that a method may be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GtOrder {
    /// v⁺ = W v − η t.
    Gt,
    /// v⁺ = W (v − η t).
    GtXatc,
    /// The tracker is combined as well: two rounds.
    GtAtc,
}

fn mix(order: Option<GtOrder>, otherwise: Mix) -> Mix {
    match order {
        None => otherwise,
        Some(GtOrder::Gt) => Mix::Gt,
        Some(GtOrder::GtXatc) => Mix::GtXatc,
        Some(GtOrder::GtAtc) => Mix::GtAtc,
    }
}

/// Momentum for x, used one iteration late or at once; y and z move along their directions.
fn x_momentum(theta: f64, late: bool) -> [Estimator; 3] {
    [Estimator::Momentum { theta, late, warm: false }, Estimator::Plain, Estimator::Plain]
}

fn soba(mixing: Mix, eta: [Schedule; 3]) -> Spec {
    Spec::new(Rule::Soba, mixing, eta)
}

/// SPARKLE: SOBA's directions in a sequential sweep, momentum for x.
fn sparkle(mixing: [Mix; 3], theta: f64, eta: [Schedule; 3]) -> Spec {
    let estimator = x_momentum(theta, false);
    Spec {
        mixing,
        share: mixing.map(Mix::share),
        estimator,
        sweep: Sweep::Sequential,
        ..soba(mixing[0], eta)
    }
}

fn moreau(mu: Schedule, gamma: f64) -> Rule {
    Rule::Penalised(Penalised { f: mu, g: 1.0.into(), gamma: Some(gamma) })
}

fn penalty(lambda: Schedule) -> Rule {
    Rule::Penalised(Penalised { f: 1.0.into(), g: lambda, gamma: None })
}

recipes! {
    /// D-SOBA-SO.
    DSoba {
        /// Share of the new direction in x's moving average.
        theta: f64,
    } "D-SOBA-SO (Kong, Zhu, Lu, Huang and Yuan, JMLR 2025), as published"
    |r, eta| Spec { estimator: x_momentum(r.theta, true), ..soba(Mix::DgdAtc, eta) };

    /// D-SOBA-FO.
    DSobaFo {
        /// Share of the new direction in x's moving average.
        theta: f64,
        /// Step of the finite difference.
        delta: f64,
    } "D-SOBA-FO (Kong, Zhu, Lu, Huang and Yuan, JMLR 2025), as published"
    |r, eta| Spec {
        direction: Rule::SobaFd(SobaFd { delta: r.delta, relative: false }),
        estimator: x_momentum(r.theta, true),
        ..soba(Mix::DgdAtc, eta)
    };

    /// SPARKLE-GT.
    SparkleGt {
        /// Share of the new direction in x's moving average.
        theta: f64,
        /// Order of tracking; `gt-atc` if not given.
        order: Option<GtOrder>,
    } "SPARKLE-GT (Zhu, Kong, Lu, Huang and Yuan, NeurIPS 2024), a reading: the order of its sweep is rebuilt"
    |r, eta| sparkle([mix(r.order, Mix::GtAtc); 3], r.theta, eta);

    /// SPARKLE-ED.
    SparkleEd {
        /// Share of the new direction in x's moving average.
        theta: f64,
    } "SPARKLE-ED (Zhu, Kong, Lu, Huang and Yuan, NeurIPS 2024), a reading: the order of its sweep is rebuilt"
    |r, eta| sparkle([Mix::Ed; 3], r.theta, eta);

    /// SPARKLE-EXTRA.
    SparkleExtra {
        /// Share of the new direction in x's moving average.
        theta: f64,
    } "SPARKLE-EXTRA (Zhu, Kong, Lu, Huang and Yuan, NeurIPS 2024), a reading: the order of its sweep is \
    rebuilt"
    |r, eta| sparkle([Mix::Extra; 3], r.theta, eta);

    /// SPARKLE-ED-GT.
    SparkleEdGt {
        /// Share of the new direction in x's moving average.
        theta: f64,
    } "SPARKLE with ED for y, z and GT for x (NeurIPS 2024), a reading: the order of its sweep is rebuilt"
    |r, eta| sparkle([Mix::GtAtc, Mix::Ed, Mix::Ed], r.theta, eta);

    /// SLDBO.
    Sldbo {
        /// Radius of the ball that z is kept in.
        radius_z: f64,
        /// Order of tracking; `gt` if not given.
        order: Option<GtOrder>,
    } "SLDBO (Dong, Ma, Yang and Yin, 2025), a reading of its abstract: order of mixing and place of the \
    projection are ours"
    |r, eta| Spec { radius_z: Some(r.radius_z), ..soba(mix(r.order, Mix::Gt), eta) };

    /// DSGDA-GT.
    DsgdaGt {
        /// Penalty λ.
        lambda: Schedule,
        /// Order of tracking; `gt-xatc` if not given.
        order: Option<GtOrder>,
    } "DSGDA-GT (Wang, Chen, Ma and Zhang, IEEE TSP), a reading of its abstract: order of mixing and \
    schedule of λ are ours"
    |r, eta| Spec::new(penalty(r.lambda), mix(r.order, Mix::GtXatc), eta);

    /// Penalty, tracking and STORM.
    PenaltyStorm {
        /// Penalty λ.
        lambda: Schedule,
        /// STORM's a.
        a: Schedule,
    } "penalty with tracking and STORM, as in training code of H. Gao's group; no paper is known to us"
    |r, eta| Spec {
        estimator: [Estimator::Storm { a: r.a }; 3],
        ..Spec::new(penalty(r.lambda), Mix::Gt, eta)
    };

    /// Push-SOBA: FAB's gradients and links with SOBA's directions, tracked over push-sum.
    PushSoba {
        /// Step of the finite difference, of 1 + ‖y‖; 10⁻³ if not given.
        delta: Option<f64>,
        /// STORM's a, for noisy gradients; plain directions if not given.
        a: Option<Schedule>,
    } "SOBA's directions by differences of gradients, tracked over push-sum: first order, no penalty, for \
    links that change and go one way; ours"
    |r, eta| Spec {
        estimator: [r.a.map_or(Estimator::Plain, |a| Estimator::Storm { a }); 3],
        ..Spec::new(
            Rule::SobaFd(SobaFd { delta: r.delta.unwrap_or(1e-3), relative: true }),
            Mix::PushDiging,
            eta,
        )
    };

    /// SUN-DSBO-GT.
    SunDsboGt {
        /// Factor μ of f.
        mu: Schedule,
        /// γ of the Moreau envelope.
        gamma: f64,
        /// Order of tracking; `gt-xatc` if not given.
        order: Option<GtOrder>,
        /// Sweep; simultaneous if not given.
        sweep: Option<Sweep>,
    } "SUN-DSBO-GT (Ma, Wang, Yao and Zhang, 2026), a reading of public reviews: the order is ours"
    |r, eta| Spec {
        sweep: r.sweep.unwrap_or_default(),
        ..Spec::new(moreau(r.mu, r.gamma), mix(r.order, Mix::GtXatc), eta)
    };

    /// SUN-DSBO-SE.
    SunDsboSe {
        /// Factor μ of f.
        mu: Schedule,
        /// γ of the Moreau envelope.
        gamma: f64,
    } "SUN-DSBO-SE (Ma, Wang, Yao and Zhang, 2026), a reading of public reviews"
    |r, eta| Spec::new(moreau(r.mu, r.gamma), Mix::DgdAtc, eta);
}

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
