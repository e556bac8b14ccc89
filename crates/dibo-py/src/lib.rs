//! dibo as a Python extension module: `dibo._core`. What users see is in `python/dibo`; this crate lends rows
//! to Python, calls its functions from the engine and carries errors both ways.
#![deny(unsafe_op_in_unsafe_fn)]
#[cfg(feature = "net")]
mod agent;
#[cfg(feature = "cuda")]
mod array;
#[cfg(feature = "experiments")]
mod command;
mod device;
mod graph;
mod keep;
mod memory;
mod network;
mod oracle;
mod problems;
mod solve;

use pyo3::prelude::*;

/// Batches as a pure function of (seed, agent, k): for each agent `size` places below its count, drawn with
/// replacement.
#[pyfunction]
fn batch<'py>(
    py: Python<'py>,
    seed: u64,
    agents: Vec<u64>,
    k: u64,
    counts: Vec<u64>,
    size: usize,
) -> PyResult<Bound<'py, numpy::PyArray1<i64>>> {
    use rand::RngExt;
    if agents.len() != counts.len() || counts.contains(&0) {
        return Err(pyo3::exceptions::PyValueError::new_err("every agent needs one sample at least"));
    }
    let mut places = Vec::with_capacity(agents.len() * size);
    for (agent, count) in agents.iter().zip(&counts) {
        let mut draws = dibo::rng::stream(seed, dibo::rng::Purpose::Batch, *agent, k);
        places.extend((0..size).map(|_| draws.random_range(0..*count) as i64));
    }
    Ok(numpy::PyArray1::from_vec(py, places))
}

/// The algorithms by their names in files, with their names in the paper.
#[pyfunction]
fn algorithms() -> Vec<(&'static str, &'static str)> {
    dibo::algorithm::NAMES.to_vec()
}

#[pymodule]
mod _core {
    #[cfg(feature = "net")]
    #[pymodule_export]
    use super::agent::{agent, certificates};
    #[cfg(feature = "cuda")]
    #[pymodule_export]
    use super::array::DeviceArray;
    #[cfg(feature = "experiments")]
    #[pymodule_export]
    use super::command::{command, draw};
    #[pymodule_export]
    use super::device::gpu;
    #[pymodule_export]
    use super::graph::{edges, weights};
    #[pymodule_export]
    use super::keep::Lender;
    #[pymodule_export]
    use super::network::Network;
    #[pymodule_export]
    use super::problems::Builtin;
    #[pymodule_export]
    use super::solve::{check, describe, solve};
    #[pymodule_export]
    use super::{algorithms, batch};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("experiments", cfg!(feature = "experiments"))?;
        module.add("net", cfg!(feature = "net"))?;
        module.add("cuda", cfg!(feature = "cuda"))?;
        module.add("cpu", dibo::rows::cpu())
    }
}
