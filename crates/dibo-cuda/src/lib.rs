//! The GPU engine: rows, mixing and learning problems on an NVIDIA GPU, behind the seams of the library
//! (rows `OnDevice`, `Network::place`), so that the same algorithm files run there.
//!
//! Driver, NVRTC and cuBLAS are loaded when [`Gpu::new`] is called; building needs no CUDA toolkit. All state
//! stays on the device; what comes back is small. All work goes through one stream, in order.
//!
//! Failures travel as values: a GPU keeps its first one, skips everything after it, and [`Gpu::health`] tells
//! it.
mod batches;
mod bert;
mod gpu;
mod kernels;
mod learning;
mod memory;
mod mlp;
mod network;
mod products;
mod rows;
mod sticky;

pub use gpu::Gpu;
pub use kernels::check_kernels;
pub use learning::{DeviceLearning, Need, Precision, need};
pub use network::DeviceNetwork;
