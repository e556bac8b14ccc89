//! What a run of dibo leaves behind, and what is made of it: results folders, verdicts on claims, plots and
//! one page; and a page to watch it while it runs.
//!
//! It knows no algorithm, no problem and no claim: a results folder is all it reads, and whoever has claims
//! brings their judges along (`judge::Judge`).
pub mod judge;
pub mod live;
pub mod report;
pub mod results;
