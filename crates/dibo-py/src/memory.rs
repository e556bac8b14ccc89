//! What Python sees of rows: arrays without a copy where rows are long, contiguous copies where they are
//! short; rows on a GPU stay there. One of the two rooms of this crate with `unsafe`.
use crate::device;
use crate::keep::Lender;
use dibo::rows::{Real, Rows, Stack, View};
use numpy::ndarray::{ArrayViewMut2, ShapeBuilder};
use numpy::{Element, PyArray2, PyArrayMethods};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Numbers that dibo and NumPy both know.
pub trait Number: Real + Element {}

impl Number for f32 {}
impl Number for f64 {}

/// Bytes of a stack above which rows are lent. Below, copies are cheap, and contiguous ones are faster for
/// whoever computes with them.
const LENT: usize = 256 << 10;

/// Whether the rows of a stack of this shape are lent.
pub fn is_lent<T: Real>(rows: &Rows<T>) -> bool {
    rows.bytes() > LENT
}

/// Whether the rows of a stack lie on a GPU.
pub fn on_device<T: Real, const N: usize>(stack: &Stack<T, N>) -> bool {
    stack.shared.device().is_some()
}

/// Columns of rectangular rows as an array without a copy.
fn lend<'py, T: Number>(
    numbers: *mut T,
    (count, stride): (usize, usize),
    columns: std::ops::Range<usize>,
    lender: &Bound<'py, Lender>,
) -> Bound<'py, PyArray2<T>> {
    let shape = (count, columns.len()).strides((stride, 1));
    // SAFETY: the columns lie inside the stride, so the view inside the rows. NumPy keeps the lender, which
    // gets the rows at the end of the run; until then the run holds them. Rust does not touch rows while a
    // function of Python runs, but for other threads of Python, which may see old or new numbers.
    unsafe {
        let view = ArrayViewMut2::from_shape_ptr(shape, numbers.add(columns.start));
        PyArray2::borrow_from_array(&view, lender.clone().into_any())
    }
}

/// A variable of a stack as Python sees it.
struct Shown<T> {
    array: Py<PyAny>,
    copy: Option<Py<PyArray2<T>>>,
}

impl<T: Number> Shown<T> {
    fn new(array: Bound<'_, PyArray2<T>>, copied: bool) -> Self {
        let copy = copied.then(|| array.clone().unbind());
        Shown { array: array.into_any().unbind(), copy }
    }
}

/// The variables of a stack as arrays, one row an agent; rows of different lengths are filled up with zeros.
pub struct Arrays<T> {
    shown: Vec<Shown<T>>,
    /// Whole rows with their padding, where they are lent.
    pub rows: Option<Py<PyAny>>,
    address: (usize, usize),
}

/// Where the numbers of a stack lie.
fn address<T: Real, const N: usize>(stack: &Stack<T, N>) -> (usize, usize) {
    let of = |rows: &Rows<T>| device::address(rows).unwrap_or_else(|| rows.data().as_ptr() as usize);
    (of(&stack.shared), stack.private.as_ref().map_or(0, of))
}

/// The width of a private variable, if all agents have the same.
fn common_width<T: Real>(rows: &Rows<T>) -> Option<usize> {
    let width = rows.width();
    rows.widths().iter().all(|w| *w == width).then_some(width)
}

impl<T: Number> Arrays<T> {
    /// Arrays for a stack, lent or new.
    pub fn new<const N: usize>(stack: &Stack<T, N>, lent: bool, lender: &Bound<'_, Lender>) -> Self {
        let (py, count) = (lender.py(), stack.count());
        let shape = (count, stack.shared.stride());
        // Whoever writes through an array does so while this run lends its rows out and does not use them.
        let shared = stack.shared.data().as_ptr().cast_mut();
        let mut shown = Vec::new();
        for v in 0..N {
            let (array, copied) = match &stack.private {
                Some(private) if v == 0 => match common_width(private) {
                    Some(width) if lent && count > 0 => {
                        let numbers = private.data().as_ptr().cast_mut();
                        (lend(numbers, (count, private.stride()), 0..width, lender), false)
                    }
                    _ => {
                        let width = (0..count).map(|i| private.row(i).len()).max().unwrap_or(0);
                        (PyArray2::zeros(py, [count, width], false), true)
                    }
                },
                _ if lent => (lend(shared, shape, stack.cut(v), lender), false),
                _ => (PyArray2::zeros(py, [count, stack.cut(v).len()], false), true),
            };
            shown.push(Shown::new(array, copied));
        }
        let rows = lent.then(|| lend(shared, shape, 0..shape.1, lender).into_any().unbind());
        Arrays { shown, rows, address: address(stack) }
    }

    /// Arrays for a stack on a GPU, lent.
    pub fn on_device<const N: usize>(stack: &Stack<T, N>, lender: &Bound<'_, Lender>) -> PyResult<Self> {
        let mut shown = Vec::new();
        for v in 0..N {
            let (rows, columns) = match &stack.private {
                Some(private) if v == 0 => (private, None),
                _ => (&stack.shared, Some(stack.cut(v))),
            };
            let array = device::lent(rows, columns, lender)?;
            let array = array.ok_or_else(|| PyRuntimeError::new_err("rows lie partly on the host"))?;
            shown.push(Shown { array, copy: None });
        }
        let rows = device::lent(&stack.shared, Some(0..stack.shared.stride()), lender)?;
        Ok(Arrays { shown, rows, address: address(stack) })
    }

    /// Whether these arrays still show this stack: copies always do, lent rows while they stay where they
    /// are.
    pub fn show<const N: usize>(&self, stack: &Stack<T, N>) -> bool {
        self.rows.is_none() && self.shown.iter().all(|s| s.copy.is_some()) || self.address == address(stack)
    }

    /// The arrays.
    pub fn all(&self) -> impl Iterator<Item = &Py<PyAny>> {
        self.shown.iter().map(|s| &s.array)
    }

    /// Copies the variables of a stack to where Python sees them, unless they are lent.
    pub fn copy_in<const N: usize>(&self, py: Python<'_>, stack: &Stack<T, N>) {
        for (v, copy) in self.shown.iter().enumerate().filter_map(|(v, s)| Some((v, s.copy.as_ref()?))) {
            let array = copy.bind(py);
            let (width, to) = (columns(array), array.data());
            each(stack, v, |i, from| {
                // SAFETY: the array was made for this stack: as many rows, each as long or longer; short rows
                // are copied faster without a call.
                let to = unsafe { std::slice::from_raw_parts_mut(to.add(i * width), from.len()) };
                to.iter_mut().zip(from).for_each(|(t, f)| *t = *f);
            });
        }
    }

    /// Copies what Python wrote to the variables of a stack, unless they are lent.
    pub fn copy_out<const N: usize>(&self, py: Python<'_>, stack: &mut Stack<T, N>) {
        for (v, copy) in self.shown.iter().enumerate().filter_map(|(v, s)| Some((v, s.copy.as_ref()?))) {
            let array = copy.bind(py);
            let (width, from) = (columns(array), array.data());
            each_mut(stack, v, |i, to| {
                // SAFETY: as above.
                let from = unsafe { std::slice::from_raw_parts(from.add(i * width), to.len()) };
                to.iter_mut().zip(from).for_each(|(t, f)| *t = *f);
            });
        }
    }
}

/// A view as Python sees it, one row an agent: a copy, filled up with zeros; lent where it lies on a GPU.
pub fn shown<T: Number>(lender: &Bound<'_, Lender>, view: &View<'_, T>) -> PyResult<Py<PyAny>> {
    if let Some(array) = device::lent(view.rows, view.columns.clone(), lender)? {
        return Ok(array);
    }
    let rows = view.to_vecs();
    let width = rows.iter().map(Vec::len).max().unwrap_or(0);
    let array = PyArray2::zeros(lender.py(), [rows.len(), width], false);
    {
        let mut to = array.readwrite();
        for (row, numbers) in rows.iter().enumerate() {
            to.as_array_mut().row_mut(row).iter_mut().zip(numbers).for_each(|(t, n)| *t = *n);
        }
    }
    Ok(array.into_any().unbind())
}

/// Variable `v` of every agent.
#[inline]
fn each<T: Real, const N: usize>(stack: &Stack<T, N>, v: usize, mut with: impl FnMut(usize, &[T])) {
    match &stack.private {
        Some(private) if v == 0 => (0..private.count()).for_each(|i| with(i, private.row(i))),
        _ => {
            let (cut, stride) = (stack.cut(v), stack.shared.stride().max(1));
            let rows = stack.shared.data().chunks_exact(stride).enumerate();
            rows.for_each(|(i, row)| with(i, &row[cut.clone()]));
        }
    }
}

/// The same, to write.
#[inline]
fn each_mut<T: Real, const N: usize>(
    stack: &mut Stack<T, N>,
    v: usize,
    mut with: impl FnMut(usize, &mut [T]),
) {
    let cut = stack.cut(v);
    match &mut stack.private {
        Some(private) if v == 0 => (0..private.count()).for_each(|i| with(i, private.row_mut(i))),
        _ => {
            let stride = stack.shared.stride().max(1);
            let rows = stack.shared.data_mut().chunks_exact_mut(stride).enumerate();
            rows.for_each(|(i, row)| with(i, &mut row[cut.clone()]));
        }
    }
}

/// Whether all numbers are finite: sums of zeros, side by side.
pub fn all_finite<T: Real>(numbers: &[T]) -> bool {
    let mut sums = [T::ZERO; 16];
    let parts = numbers.chunks_exact(16);
    let rest = parts.remainder().iter().fold(T::ZERO, |sum, v| sum + *v * T::ZERO);
    parts.for_each(|part| sums.iter_mut().zip(part).for_each(|(s, v)| *s += *v * T::ZERO));
    sums.iter().fold(rest, |sum, s| sum + *s).f64() == 0.0
}

fn columns<T: Number>(array: &Bound<'_, PyArray2<T>>) -> usize {
    use numpy::PyUntypedArrayMethods;
    array.shape()[1]
}
