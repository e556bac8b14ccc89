//! Methods along a penalty's directions or the Moreau envelope's: DSGDA-GT, SUN-DSBO.
use super::{GtOrder, mix};
use crate::algorithm::cell::{Recipe, Spec, Sweep};
use crate::algorithm::direction::{Penalised, Rule};
use crate::algorithm::estimator::Estimator;
use crate::algorithm::mixer::Mix;
use crate::schedule::Schedule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

fn moreau(mu: Schedule, gamma: f64) -> Rule {
    Rule::Penalised(Penalised { f: mu, g: 1.0.into(), gamma: Some(gamma) })
}

fn penalty(lambda: Schedule) -> Rule {
    Rule::Penalised(Penalised { f: 1.0.into(), g: lambda, gamma: None })
}

recipes! {
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
