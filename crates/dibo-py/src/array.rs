//! Arrays in a GPU's memory as others see them without a copy: PyTorch through the CUDA array interface, JAX
//! through DLPack. One of the two rooms of this crate with `unsafe`.
use crate::keep::Keep;
use dibo_cuda::Gpu;
use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};
use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

/// An array in a GPU's memory: columns of rows, whole rows, or one vector.
#[pyclass(frozen, module = "dibo._core")]
pub struct DeviceArray {
    pub address: u64,
    pub shape: Vec<usize>,
    /// Bytes from one entry of an axis to the next.
    pub strides: Vec<usize>,
    pub bytes: usize,
    /// Its first column in whole rows.
    pub column: usize,
    pub gpu: Arc<Gpu>,
    /// While this array is alive, so is the memory behind it.
    pub keep: Keep,
}

impl DeviceArray {
    /// How many bytes it has, if nothing lies between its numbers.
    fn compact(&self) -> Option<usize> {
        let mut size = self.bytes;
        for (count, stride) in self.shape.iter().zip(&self.strides).rev() {
            if *count > 1 && *stride != size {
                return None;
            }
            size *= count;
        }
        Some(size)
    }

    fn health(&self) -> PyResult<()> {
        self.gpu.health().map_err(PyRuntimeError::new_err)
    }
}

#[pymethods]
impl DeviceArray {
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let about = PyDict::new(py);
        about.set_item("version", 3)?;
        about.set_item("typestr", format!("<f{}", self.bytes))?;
        about.set_item("shape", self.shape(py)?)?;
        about.set_item("strides", PyTuple::new(py, &self.strides)?)?;
        about.set_item("data", (self.address, false))?;
        about.set_item("stream", self.gpu.stream_address())?;
        Ok(about)
    }

    /// CUDA (2 in DLPack) and the GPU's number.
    fn __dlpack_device__(&self) -> (i32, usize) {
        (DLPACK_CUDA, self.gpu.ordinal())
    }

    /// The array for whoever asks, in whichever stream: what was begun in dibo's is done when this returns.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<Bound<'py, PyAny>>,
        dl_device: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = (stream, max_version, dl_device);
        if copy == Some(true) {
            return Err(PyBufferError::new_err("rows are lent without a copy"));
        }
        self.wait(py)?;
        Lent::capsule(self, py)
    }

    /// Where it begins.
    #[getter]
    fn address(&self) -> u64 {
        self.address
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// Its first column in whole rows.
    #[getter]
    fn column(&self) -> usize {
        self.column
    }

    /// The whole rows of which this array is columns, with their padding; nothing lies between their numbers.
    fn padded(&self) -> DeviceArray {
        let mut shape = self.shape.clone();
        if let ([_, width], [stride, _]) = (&mut shape[..], &self.strides[..]) {
            *width = stride / self.bytes;
        }
        DeviceArray {
            address: self.address - (self.bytes * self.column) as u64,
            shape,
            strides: self.strides.clone(),
            bytes: self.bytes,
            column: 0,
            gpu: self.gpu.clone(),
            keep: self.keep.clone(),
        }
    }

    /// Waits until dibo's stream has done all it was given.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.gpu.synchronize());
        self.health()
    }

    /// Copies so many bytes from an address in the same GPU's memory to this array, in the order of dibo's
    /// stream. What lies there must be ready, and stay until `wait` has returned.
    fn write(&self, address: u64, bytes: usize) -> PyResult<()> {
        if address == 0 || self.compact() != Some(bytes) {
            let shape = &self.shape;
            return Err(PyValueError::new_err(format!(
                "{bytes} bytes do not fill an array of shape {shape:?}"
            )));
        }
        // SAFETY: the array lies in memory that it keeps, and has so many bytes with nothing
        // between; the caller vouches for what it copies from.
        unsafe { self.gpu.copy(self.address, address, bytes) };
        self.health()
    }
}

const DLPACK_CUDA: i32 = 2;
const NAME: &CStr = c"dltensor";

/// DLPack's own structures, version 0: dlpack.h.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    /// The kind of device and its number.
    device: [i32; 2],
    ndim: i32,
    kind: Kind,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Kind {
    /// 2 for floating-point numbers.
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// What a capsule holds, until whoever took it calls the deleter.
struct Lent {
    managed: Managed,
    /// Shape and strides, in numbers, where the tensor points to.
    #[allow(dead_code)]
    axes: (Box<[i64]>, Box<[i64]>),
    /// Nothing of Python's: JAX lets go of arrays with Python's lock let go, too, also in threads that hold
    /// it as far as anybody here could tell.
    #[allow(dead_code)]
    keep: Keep,
}

impl Lent {
    fn capsule<'py>(array: &DeviceArray, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let numbers = |list: &[usize], per: usize| list.iter().map(|v| (v / per) as i64).collect();
        let mut axes: (Box<[i64]>, Box<[i64]>) =
            (numbers(&array.shape, 1), numbers(&array.strides, array.bytes));
        let tensor = Tensor {
            data: array.address as *mut c_void,
            device: [DLPACK_CUDA, array.gpu.ordinal() as i32],
            ndim: array.shape.len() as i32,
            kind: Kind { code: 2, bits: 8 * array.bytes as u8, lanes: 1 },
            shape: axes.0.as_mut_ptr(),
            strides: axes.1.as_mut_ptr(),
            byte_offset: 0,
        };
        let managed = Managed { tensor, context: std::ptr::null_mut(), deleter: Some(delete) };
        let lent = Box::into_raw(Box::new(Lent { managed, axes, keep: array.keep.clone() }));
        // SAFETY: `lent` was made above and is nobody else's; what the tensor points to are boxes, which stay
        // where they are when they move. The capsule frees it unless somebody took it, who then does.
        unsafe {
            (*lent).managed.context = lent.cast();
            let pointer = NonNull::new_unchecked((&raw mut (*lent).managed).cast());
            let capsule = PyCapsule::new_with_pointer_and_destructor(py, pointer, NAME, Some(release));
            capsule.inspect_err(|_| drop(Box::from_raw(lent)))
        }
    }
}

/// Frees what was lent; from any thread, whether it holds Python's lock or not.
unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: DLPack's deleter is called once, with what the capsule held.
    drop(unsafe { Box::from_raw((*managed).context.cast::<Lent>()) });
}

/// A capsule dies: if nobody took what it holds, which renames it, that is freed.
unsafe extern "C" fn release(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule, whose pointer was set when it was made.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) == 1 {
            delete(ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast());
        }
    }
}
