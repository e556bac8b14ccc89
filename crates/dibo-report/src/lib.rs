//! What a run of dibo leaves behind, and what is made of it: results folders, the paper's claims judged on
//! them, plots and one page.
//!
//! It knows no algorithm and no problem: a results folder is all it reads.
pub mod claims;
pub mod report;
pub mod results;
