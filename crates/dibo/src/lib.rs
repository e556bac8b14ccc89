//! dibo: distributed bilevel optimisation over directed networks that change at every step.
//!
//! Many agents, each with private data, minimise `F(x, y*(x))` where `y*(x)` minimises `G(x, ·)`. An
//! algorithm acts on the rows that this process owns and talks through one verb, [`network::Network::round`].
//!
//! ```
//! use dibo::{algorithm::{Algorithm, fab::Fab}, engine, graph, mixing, network::Simulator,
//! problem::PolicyEvaluation, rows::Threads};
//!
//! let problem = PolicyEvaluation::random(10, 20, 5, 0).normalised();
//! let graphs = graph::Cycle::new(10, 0.3, 0);
//! let mut network = Simulator::new(mixing::Sequence::uniform(graphs), Threads::one());
//! let fab = Fab { lambda: 60.0.into(), ..Fab::normalised(0.1) };
//! let mut state = fab.start(&problem, &mut network, &Default::default());
//! for k in 0..6000 {
//!     state.step(k, &problem, &mut network);
//! }
//! assert!(problem.relative_error(&engine::mean(&mut *state, "x").unwrap()) < 0.05);
//! ```
#![deny(unsafe_op_in_unsafe_fn)]

pub mod algorithm;
pub mod data;
pub mod engine;
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
