//! The mixing rules as methods on a single-level objective: DGD, diffusion, gradient tracking in its orders,
//! Exact Diffusion, EXTRA.
use super::mixer::Mix;
use super::mover::Mover;
use super::{Descent, GraphNeeds, Method, Mixes, Oracle, View};
use crate::error::Result;
use crate::network::Network;
use crate::rows::{Real, Rows, Stack};
use crate::schedule::Schedule;
use serde::{Deserialize, Serialize};

/// A mixing rule at work alone.
pub struct Gossip<T> {
    eta: Schedule,
    rows: Mover<T>,
}

/// Methods by name: the rule, and c of (1 − c) v + c W v.
macro_rules! methods {
    ($($(#[$about:meta])* $name:ident: $mix:ident, $share:expr;)*) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// Step.
            pub eta: Schedule,
        }

        impl Method for $name {
            fn begin<T: Real>(
                &self,
                x: Stack<T, 1>,
                _blocks: usize,
                network: &mut dyn Network<T>,
                oracle: &mut Oracle<'_, T>,
            ) -> Result<Box<dyn Descent<T>>> {
                Ok(Box::new(Gossip::begin(Mix::$mix, $share, self.eta, x, network, oracle)?))
            }

            fn check(&self) -> Result<(), String> {
                self.eta.check("eta", false)
            }

            fn mixes(&self) -> Mixes {
                Mix::$mix.mixes()
            }

            fn graph_needs(&self) -> GraphNeeds {
                Mix::needs_of(&[Mix::$mix])
            }

            fn rounds(&self) -> usize {
                Mix::$mix.rounds()
            }

            fn vectors(&self, _blocks: usize) -> usize {
                2 + Mix::$mix.vectors() + usize::from($share != 1.0)
            }

            fn eta(&self, k: usize) -> f64 {
                self.eta.at(k)
            }
        }
    )*};
}

methods! {
    /// x⁺ = W x − η ∇F.
    Dgd: DgdCta, 1.0;
    /// x⁺ = W (x − η ∇F).
    Diffusion: DgdAtc, 1.0;
    /// x⁺ = W x − η t, t⁺ = W t + ∇F⁺ − ∇F.
    Diging: Gt, 1.0;
    /// x⁺ = W (x − η t), t⁺ = W t + ∇F⁺ − ∇F.
    AtcTracking: GtXatc, 1.0;
    /// x⁺ = W (x − η t), t⁺ = W (t + ∇F⁺ − ∇F).
    AugDgm: GtAtcRaw, 1.0;
    /// ψ⁺ = x − η ∇F, x⁺ = W̃ (x + ψ⁺ − ψ).
    ExactDiffusion: Ed, 0.5;
    /// x⁺ = W̃ (2x − x₋) − η (∇F − ∇F₋).
    Extra: Extra, 0.5;
}

/// Any mixing rule by its name.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chosen {
    /// The rule.
    pub mixing: Mix,
    /// Step.
    pub eta: Schedule,
    /// (I + W)/2 instead of W; ED and EXTRA have it unless told otherwise.
    pub lazy: Option<bool>,
}

impl Chosen {
    fn share(&self) -> f64 {
        if self.lazy.unwrap_or(self.mixing.one_graph()) { 0.5 } else { 1.0 }
    }
}

impl Method for Chosen {
    fn begin<T: Real>(
        &self,
        x: Stack<T, 1>,
        _blocks: usize,
        network: &mut dyn Network<T>,
        oracle: &mut Oracle<'_, T>,
    ) -> Result<Box<dyn Descent<T>>> {
        Ok(Box::new(Gossip::begin(self.mixing, self.share(), self.eta, x, network, oracle)?))
    }

    fn check(&self) -> Result<(), String> {
        if self.lazy == Some(true) && self.mixing.mixes() == Mixes::PushSum {
            return Err("lazy belongs to rules that pull; push-sum has no A to soften".into());
        }
        self.eta.check("eta", false)
    }

    fn mixes(&self) -> Mixes {
        self.mixing.mixes()
    }

    fn graph_needs(&self) -> GraphNeeds {
        Mix::needs_of(&[self.mixing])
    }

    fn rounds(&self) -> usize {
        self.mixing.rounds()
    }

    fn vectors(&self, _blocks: usize) -> usize {
        2 + self.mixing.vectors() + usize::from(self.share() != 1.0)
    }

    fn eta(&self, k: usize) -> f64 {
        self.eta.at(k)
    }
}

impl<T: Real> Gossip<T> {
    /// At x, with the first gradients.
    pub fn begin(
        mix: Mix,
        share: f64,
        eta: Schedule,
        x: Stack<T, 1>,
        network: &mut dyn Network<T>,
        oracle: &mut Oracle<'_, T>,
    ) -> Result<Self> {
        let mut rows = Mover::new(mix, share, x);
        oracle(network, 0, &rows.v, &mut rows.d)?;
        rows.renewed();
        Ok(Gossip { eta, rows })
    }
}

impl<T: Real> Descent<T> for Gossip<T> {
    fn step(&mut self, k: usize, network: &mut dyn Network<T>, oracle: &mut Oracle<'_, T>) -> Result<()> {
        let Self { eta, rows } = self;
        rows.go(k, eta.at(k), network)?;
        oracle(network, k + 1, &rows.v, &mut rows.d)?;
        rows.renewed();
        Ok(())
    }

    fn point(&self) -> &Stack<T, 1> {
        &self.rows.v
    }

    fn views(&mut self) -> Vec<View<'_, T>> {
        self.rows.views(["x", "tx", "dx"])
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        self.rows.memory()
    }
}
