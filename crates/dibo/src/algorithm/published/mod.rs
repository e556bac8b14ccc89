//! The published methods as names for cells, each with its own parameters. Where only an abstract or a
//! review was to be had, the description says so.
use super::mixer::Mix;
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

mod neumann;
mod penalty;
mod soba;

pub use neumann::*;
pub use penalty::*;
pub use soba::*;

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
