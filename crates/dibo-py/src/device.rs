//! A GPU, and its rows as Python sees them: arrays by their addresses, without a copy. Without the feature
//! `cuda` there is none, which is said in one line.
#[cfg(feature = "cuda")]
use crate::array::DeviceArray;
use crate::keep::Lender;
use dibo::rows::{Real, Rows};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
#[cfg(feature = "cuda")]
use pyo3::types::PyList;
use std::ops::Range;

#[cfg(feature = "cuda")]
pub use dibo_cuda::{DeviceNetwork, Gpu};

fn missing(what: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(format!("{what}; give device='cpu' to run on the processor"))
}

/// These columns of rows on a GPU as an array, one row an agent; a list of vectors where rows have different
/// lengths. `None` if the rows lie on the host.
#[cfg(feature = "cuda")]
pub fn lent<T: Real>(
    rows: &Rows<T>,
    columns: Option<Range<usize>>,
    lender: &Bound<'_, Lender>,
) -> PyResult<Option<Py<PyAny>>> {
    let Some(device) = rows.device() else { return Ok(None) };
    let lent = dibo_cuda::lent(device).map_err(PyRuntimeError::new_err)?;
    let (py, bytes) = (lender.py(), size_of::<T>());
    let array = |address: u64, shape: Vec<usize>, strides: Vec<usize>, column: usize| {
        let (gpu, keep) = (lent.gpu.clone(), lender.get().0.clone());
        Py::new(py, DeviceArray { address, shape, strides, bytes, column, gpu, keep })
    };
    let widths = rows.widths();
    if columns.is_none() && widths.iter().any(|w| *w != rows.width()) {
        let all = lent.rows.iter().zip(widths);
        let vectors = all.map(|(at, width)| array(*at, vec![*width], vec![bytes], 0));
        return Ok(Some(PyList::new(py, vectors.collect::<PyResult<Vec<_>>>()?)?.into_any().unbind()));
    }
    let columns = columns.unwrap_or(0..rows.width());
    let address = lent.rows.first().map_or(0, |at| at + (bytes * columns.start) as u64);
    let (shape, strides) = (vec![rows.count(), columns.len()], vec![bytes * rows.stride(), bytes]);
    Ok(Some(array(address, shape, strides, columns.start)?.into_any()))
}

/// There are no such rows.
#[cfg(not(feature = "cuda"))]
pub fn lent<T: Real>(
    _rows: &Rows<T>,
    _columns: Option<Range<usize>>,
    _lender: &Bound<'_, Lender>,
) -> PyResult<Option<Py<PyAny>>> {
    Ok(None)
}

/// Where rows on a GPU begin.
#[cfg(feature = "cuda")]
pub fn address<T: Real>(rows: &Rows<T>) -> Option<usize> {
    dibo_cuda::lent(rows.device()?).ok()?.rows.first().map(|at| *at as usize)
}

/// There are no such rows.
#[cfg(not(feature = "cuda"))]
pub fn address<T: Real>(_rows: &Rows<T>) -> Option<usize> {
    None
}

/// The GPU with this number, opened once in a process: its kernels take a moment to compile. One that has
/// failed is opened anew.
#[cfg(feature = "cuda")]
pub fn open(ordinal: usize) -> PyResult<std::sync::Arc<Gpu>> {
    use std::collections::HashMap;
    use std::sync::{Arc, Mutex, PoisonError};
    static OPEN: Mutex<Option<HashMap<usize, Arc<Gpu>>>> = Mutex::new(None);
    let mut all = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let all = all.get_or_insert_default();
    if let Some(gpu) = all.get(&ordinal).filter(|gpu| gpu.health().is_ok()) {
        return Ok(gpu.clone());
    }
    let gpu = Gpu::new(ordinal).map_err(missing)?;
    all.insert(ordinal, gpu.clone());
    Ok(gpu)
}

/// The name of the GPU with this number; says in one line why there is none.
#[cfg(feature = "cuda")]
#[pyfunction]
pub fn gpu(py: Python<'_>, ordinal: usize) -> PyResult<String> {
    py.detach(|| open(ordinal)).map(|gpu| gpu.name().into())
}

/// Says in one line why there is no GPU.
#[cfg(not(feature = "cuda"))]
#[pyfunction]
pub fn gpu(_ordinal: usize) -> PyResult<String> {
    Err(missing("this dibo was built without CUDA: maturin build --release --features cuda"))
}
