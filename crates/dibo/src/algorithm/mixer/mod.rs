//! How rows move over the network: one file a rule. A rule knows neither what its rows mean nor how many
//! variables they hold, so the same rules serve cells, single-level methods and inner loops.
mod dgd;
mod ed;
mod extra;
mod gt;
mod push_diging;
mod rule;
mod sgp;

pub use rule::{Lanes, Mixer, Step};

use super::{GraphNeeds, Mixes};
use crate::rows::{Real, Rows};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The mixing rules by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mix {
    /// v⁺ = W v − η m (DGD).
    #[serde(alias = "dgd")]
    DgdCta,
    /// v⁺ = W (v − η m) (diffusion).
    DgdAtc,
    /// v⁺ = W v − η t, t⁺ = W t + m⁺ − m (DIGing).
    Gt,
    /// v⁺ = W (v − η t), t⁺ = W t + m⁺ − m (ATC tracking, NEXT, SONATA).
    GtXatc,
    /// t = W (t + m − m₋), v⁺ = W (v − η t): two rounds.
    GtAtc,
    /// The same with t⁰ = m⁰ (Aug-DGM, ATC-DIGing).
    GtAtcRaw,
    /// ψ⁺ = v − η m, v⁺ = W (v + ψ⁺ − ψ) (Exact Diffusion, D²).
    Ed,
    /// v⁺ = W (2v − v₋) − η (m − m₋).
    Extra,
    /// u⁺ = B (u − η m), w⁺ = B w, v = u/w (gradient push).
    Sgp,
    /// u⁺ = B u − η m, w⁺ = B w, v = u/w.
    SgpCta,
    /// u⁺ = B (u − η t), w⁺ = B w, v = u/w, t⁺ = B t + m⁺ − m.
    PushDiging,
    /// v⁺ = A v − η t, t⁺ = B t + m⁺ − m (AB/Push-Pull).
    Ab,
    /// v⁺ = A (v − η t), t⁺ = B t + m⁺ − m (AB/Push-Pull, adapt then combine).
    AbAtc,
}

impl Mix {
    /// The rule for rows that start at `v`; where a decision is mixed, (1 − share) v + share A v stands for
    /// A v.
    pub fn make<T: Real>(self, v: &Rows<T>, share: f64) -> Box<dyn Mixer<T>> {
        match self {
            Mix::DgdCta | Mix::DgdAtc => Box::new(dgd::Dgd { adapt_first: self == Mix::DgdAtc, share }),
            Mix::Gt | Mix::Ab => Box::new(gt::Gt::new(gt::Order::Combine, v, share)),
            Mix::GtXatc | Mix::AbAtc => Box::new(gt::Gt::new(gt::Order::Adapt, v, share)),
            Mix::GtAtc => Box::new(gt::Gt::new(gt::Order::Both { raw: false }, v, share)),
            Mix::GtAtcRaw => Box::new(gt::Gt::new(gt::Order::Both { raw: true }, v, share)),
            Mix::Ed => Box::new(ed::Ed::new(v, share)),
            Mix::Extra => Box::new(extra::Extra::new(v, share)),
            Mix::Sgp | Mix::SgpCta => Box::new(sgp::Sgp::new(v, self == Mix::Sgp)),
            Mix::PushDiging => Box::new(push_diging::PushDiging::new(v)),
        }
    }

    /// Whether it asks for doubly stochastic weights.
    pub fn doubly_stochastic(self) -> bool {
        !matches!(self, Mix::Sgp | Mix::SgpCta | Mix::PushDiging | Mix::Ab | Mix::AbAtc)
    }

    /// Whether it asks for one graph for ever.
    pub fn one_graph(self) -> bool {
        matches!(self, Mix::Ed | Mix::Extra)
    }

    /// c of (1 − c) I + c W, unless told otherwise: ED and EXTRA need the eigenvalues of their matrix above
    /// −1/3, which the lazy (I + W)/2 always has.
    pub fn share(self) -> f64 {
        if self.one_graph() { 0.5 } else { 1.0 }
    }

    /// What these rules ask of graphs and weights together.
    pub fn needs_of(rules: &[Mix]) -> GraphNeeds {
        GraphNeeds {
            doubly_stochastic: rules.iter().any(|m| m.doubly_stochastic()),
            one_graph: rules.iter().any(|m| m.one_graph()),
        }
    }

    /// Rounds of one step.
    pub fn rounds(self) -> usize {
        if matches!(self, Mix::GtAtc | Mix::GtAtcRaw) { 2 } else { 1 }
    }

    /// Vectors that it keeps beside v and m.
    pub fn vectors(self) -> usize {
        match self {
            Mix::DgdCta | Mix::DgdAtc => 0,
            Mix::Ed | Mix::PushDiging => 2,
            Mix::Extra => 3,
            _ => 1,
        }
    }

    /// How it brings the agents together.
    pub fn mixes(self) -> Mixes {
        match self {
            Mix::DgdCta | Mix::DgdAtc | Mix::Ed | Mix::Extra => Mixes::Pull,
            Mix::Gt | Mix::Ab => Mixes::PullAndPush,
            Mix::GtXatc | Mix::AbAtc | Mix::GtAtc | Mix::GtAtcRaw => Mixes::PullAndPushInLoops,
            Mix::Sgp | Mix::SgpCta | Mix::PushDiging => Mixes::PushSum,
        }
    }
}
