//! The inner loops, and all of the library's `unsafe` but for [`memory`](crate::memory): SIMD, matrix
//! products, mixing, and the team of threads.
//!
//! What other rooms call takes slices and is safe, whatever they hand in: places are checked here, once a
//! call. What cannot be checked is an `unsafe fn` that says what its caller owes.
//!
//! A kernel is written once as plain Rust and compiled for AVX-512, AVX2 and the baseline ([`cpu`]); the CPU
//! is asked at run time. Element-wise work gives the same bits at every width, and mixing never sums across
//! lanes.
mod bellman;
mod cpu;
mod disjoint;
mod elementwise;
mod exchange;
mod gains;
mod mixing;
mod products;
mod real;
mod simd;
mod table;
mod team;
mod tuning;

pub(crate) use bellman::{Block, Factors, PENALTY, SERIES, SOBA, SOBA_ONLY, Tables, directions};
pub(crate) use cpu::cpu_name;
pub(crate) use disjoint::{Layout, for_each_part, for_each_row, for_each_rows, for_each_together, update};
pub(crate) use elementwise::*;
pub(crate) use exchange::{Cut, Exchange, Links, Mixes, New};
pub use gains::gains;
pub(crate) use mixing::{Csr, Pair, Weights};
pub(crate) use products::product_in_place;
pub use products::{Matrix, product};
pub use real::{GROUP, Real};
pub(crate) use simd::LANES;
pub(crate) use table::{add_transposed, times};
pub use team::Threads;
