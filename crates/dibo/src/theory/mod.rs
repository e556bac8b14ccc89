//! The paper's analysis as tools: constants of a graph sequence and of a problem, the steps that are proved
//! to work and those known not to, and the quantities of the proof along a run.
pub mod graph;
pub mod problem;
pub mod steps;
pub mod watch;
