//! The paper: its experiments as files to run, and its claims with the judges that read them off a results
//! folder.
//!
//! This is the one crate beside the methods' own that may name methods.
pub mod claims;
mod experiments;
pub mod kept;
pub mod page;
pub mod zoo;

pub use experiments::EXPERIMENTS;
