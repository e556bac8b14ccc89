//! Methods along SOBA's directions: D-SOBA, SPARKLE, SLDBO, and Push-SOBA, which is ours.
use super::{GtOrder, mix};
use crate::algorithm::cell::{Recipe, Spec, Sweep};
use crate::algorithm::direction::{Rule, SobaFd};
use crate::algorithm::estimator::Estimator;
use crate::algorithm::mixer::Mix;
use crate::schedule::Schedule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
}
