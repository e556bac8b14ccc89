//! The GPU engine: rows, mixing and learning problems on an NVIDIA GPU, behind the seams of the library
//! (rows `OnDevice`, `Network::place`), so that the same algorithm files run there.
//!
//! Driver, NVRTC and cuBLAS are loaded when [`Gpu::new`] is called; building needs no CUDA toolkit. All state
//! stays on the device; what comes back is small. All work goes through one stream, in order.
mod batches;
mod bert;
mod gpu;
mod learning;
mod mlp;
mod network;
mod products;
mod rows;

pub use gpu::{Failure, Gpu, check_kernels, kernel_failure};
pub use learning::{DeviceLearning, Need, Precision, need};
pub use network::DeviceNetwork;
pub use rows::DeviceRows;
