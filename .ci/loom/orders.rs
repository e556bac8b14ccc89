//! Every order in which the team's threads can run: `RUSTFLAGS="--cfg loom" cargo test --release` here.
#![allow(dead_code)]
#[path = "../../crates/dibo/src/kernels/team.rs"]
mod team;
#[path = "../../crates/dibo/src/kernels/tuning.rs"]
mod tuning;
