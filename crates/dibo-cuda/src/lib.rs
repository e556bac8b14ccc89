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
mod labels;
mod learning;
mod memory;
mod mlp;
mod network;
mod products;
mod rows;
mod sticky;

pub use gpu::Gpu;
pub use labels::{DeviceLabels, DeviceTexts, labels_need};
pub use learning::{DeviceLearning, Need, Precision, need};
pub use network::DeviceNetwork;
pub use rows::{Lent, lent};

/// Compiles every kernel, which needs NVRTC but no GPU; tells how many modules there are.
pub fn check_kernels() -> Result<usize, String> {
    // SAFETY: it only looks for the library.
    if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
        return Err("libnvrtc is not found".into());
    }
    use kernels::{BERT, LEARNING, MIX, ROWS, compile, mix_options};
    let mut all = vec![(ROWS, vec![]), (LEARNING, vec![])];
    all.extend([1, 3, 10, 16, 32].map(|agents| (MIX, mix_options(agents))));
    all.extend(bert::some_options().into_iter().map(|options| (BERT, options)));
    let count = all.len();
    for (source, options) in all {
        compile(source, "compute_90", options)?;
    }
    Ok(count)
}
