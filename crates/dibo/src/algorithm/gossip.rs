//! The mixing rules as methods on a single-level objective: DGD, diffusion, gradient tracking in its orders,
//! Exact Diffusion, EXTRA.
use super::Mixes;
use super::mixer::Mix;
use super::one_rule::OneRule;
use crate::schedule::Schedule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Methods by name.
macro_rules! methods {
    ($($(#[$about:meta])* $name:ident: $mix:ident;)*) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// Step.
            pub eta: Schedule,
        }

        impl OneRule for $name {
            fn rule(&self) -> Mix {
                Mix::$mix
            }

            fn step(&self) -> Schedule {
                self.eta
            }
        }
    )*};
}

methods! {
    /// x⁺ = W x − η ∇F.
    Dgd: DgdCta;
    /// x⁺ = W (x − η ∇F).
    Diffusion: DgdAtc;
    /// x⁺ = W x − η t, t⁺ = W t + ∇F⁺ − ∇F.
    Diging: Gt;
    /// x⁺ = W (x − η t), t⁺ = W t + ∇F⁺ − ∇F.
    AtcTracking: GtXatc;
    /// x⁺ = W (x − η t), t⁺ = W (t + ∇F⁺ − ∇F).
    AugDgm: GtAtcRaw;
    /// ψ⁺ = x − η ∇F, x⁺ = W̃ (x + ψ⁺ − ψ).
    ExactDiffusion: Ed;
    /// x⁺ = W̃ (2x − x₋) − η (∇F − ∇F₋).
    Extra: Extra;
}

/// Any mixing rule by its name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Chosen {
    /// The rule.
    pub mixing: Mix,
    /// Step.
    pub eta: Schedule,
    /// (I + W)/2 instead of W; ED and EXTRA have it unless told otherwise.
    pub lazy: Option<bool>,
}

impl OneRule for Chosen {
    fn rule(&self) -> Mix {
        self.mixing
    }

    fn step(&self) -> Schedule {
        self.eta
    }

    fn share(&self) -> Result<f64, String> {
        match self.lazy {
            Some(true) if self.mixing.mixes() == Mixes::PushSum => {
                Err("lazy belongs to rules that pull; push-sum has no A to soften".into())
            }
            Some(lazy) => Ok(if lazy { 0.5 } else { 1.0 }),
            None => Ok(self.mixing.share()),
        }
    }
}
