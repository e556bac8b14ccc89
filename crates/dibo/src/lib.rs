//! dibo: distributed bilevel optimisation over directed networks that change at every step.
//!
//! Many agents, each with private data, minimise `F(x, y*(x))` where `y*(x)` minimises `G(x, ·)`. An
//! algorithm acts on the rows that this process owns and talks through one verb, [`network::Network::round`].
//!
//! ```
//! use dibo::{Run, algorithm::fab::Fab, graph::Cycle, problem::PolicyEvaluation};
//!
//! # fn main() -> dibo::Result<()> {
//! let problem = PolicyEvaluation::random(10, 20, 5, 0).normalised();
//! let end = Run::new(&problem, &Fab::normalised(0.1)).graphs(Cycle::new(10, 0.3,
//! 0)).iterations(6000).run()?; assert!(end.record.last("relative_error").unwrap() < 0.05);
//! # Ok(())
//! # }
//! ```
//!
//! Where to begin: [`Run`] runs something; [`problem::Bilevel`] is what a problem of your own implements (two
//! gradients); [`algorithm::Algorithm`] what a method does; [`graph::GraphSequence`] who hears whom and when;
//! [`network::Network`] how rows are mixed, here or between processes; [`engine::run`] is the loop with
//! checkpoints.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod agreement;
pub mod algorithm;
pub mod data;
pub mod engine;
mod error;
pub mod graph;
pub(crate) mod kernels;
mod memory;
pub mod metrics;
pub mod mixing;
pub mod network;
pub mod problem;
pub mod rng;
pub mod rows;
pub mod schedule;
pub mod theory;
pub mod trace;

pub use engine::Run;
pub use error::{Error, Result};
#[doc(hidden)]
pub use kernels::gains;
