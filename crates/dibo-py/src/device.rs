//! A GPU, and its rows as Python sees them: arrays by their addresses, without a copy. Without the feature
//! `cuda` there is none, which is said in one line.
use dibo::rows::{Real, Rows};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
#[cfg(feature = "cuda")]
use pyo3::types::PyList;
use std::ops::Range;

#[cfg(feature = "cuda")]
pub use dibo_cuda::{DeviceNetwork, Gpu};

fn missing(what: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(format!("{what}; give device='cpu' to run on the processor"))
}

/// An array in a GPU's memory, which PyTorch and others see through the CUDA array interface.
#[pyclass(frozen, module = "dibo._core")]
pub struct DeviceArray {
    address: u64,
    shape: Vec<usize>,
    /// Bytes from one entry of an axis to the next.
    strides: Vec<usize>,
    bits: usize,
    stream: u64,
    /// While this array is alive, so is the memory behind it.
    #[allow(dead_code)]
    owner: Py<PyAny>,
}

#[pymethods]
impl DeviceArray {
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let about = PyDict::new(py);
        about.set_item("version", 3)?;
        about.set_item("typestr", format!("<f{}", self.bits / 8))?;
        about.set_item("shape", pyo3::types::PyTuple::new(py, &self.shape)?)?;
        about.set_item("strides", pyo3::types::PyTuple::new(py, &self.strides)?)?;
        about.set_item("data", (self.address, false))?;
        about.set_item("stream", self.stream)?;
        Ok(about)
    }
}

/// These columns of rows on a GPU as an array, one row an agent; a list of vectors where rows have different
/// lengths. `None` if the rows lie on the host.
#[cfg(feature = "cuda")]
pub fn lent<T: Real>(
    rows: &Rows<T>,
    columns: Option<Range<usize>>,
    owner: &Bound<'_, PyAny>,
) -> PyResult<Option<Py<PyAny>>> {
    let Some(device) = rows.device() else { return Ok(None) };
    let lent = dibo_cuda::lent(device).map_err(PyRuntimeError::new_err)?;
    let (py, bytes) = (owner.py(), size_of::<T>());
    let array = |address: u64, shape: Vec<usize>, strides: Vec<usize>| {
        let (stream, owner) = (lent.stream, owner.clone().unbind());
        Py::new(py, DeviceArray { address, shape, strides, bits: 8 * bytes, stream, owner })
    };
    let widths = rows.widths();
    if columns.is_none() && widths.iter().any(|w| *w != rows.width()) {
        let vectors = lent.rows.iter().zip(widths).map(|(at, width)| array(*at, vec![*width], vec![bytes]));
        return Ok(Some(PyList::new(py, vectors.collect::<PyResult<Vec<_>>>()?)?.into_any().unbind()));
    }
    let columns = columns.unwrap_or(0..rows.width());
    let address = lent.rows.first().map_or(0, |at| at + (bytes * columns.start) as u64);
    let shape = vec![rows.count(), columns.len()];
    Ok(Some(array(address, shape, vec![bytes * rows.stride(), bytes])?.into_any()))
}

/// There are no such rows.
#[cfg(not(feature = "cuda"))]
pub fn lent<T: Real>(
    _rows: &Rows<T>,
    _columns: Option<Range<usize>>,
    _owner: &Bound<'_, PyAny>,
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
