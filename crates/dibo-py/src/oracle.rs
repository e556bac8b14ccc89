//! A problem whose functions are Python's. It is entered once an iteration for all agents.
use crate::keep::{Keep, Lender};
use crate::memory::{Arrays, Number, all_finite, is_lent, on_device, shown};
use dibo::problem::{At, Better, Bilevel, Metric, Penalty, SecondOrder, SingleLevel, Start, Values};
use dibo::rows::{Rows, Stack, Upper, View};
use dibo::{Error, Result};
use numpy::{PyArray1, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// A direction that is not a finite number.
#[derive(Debug)]
pub struct NotFinite {
    /// Where.
    pub k: usize,
    agent: usize,
    variable: &'static str,
    value: f64,
}

impl std::fmt::Display for NotFinite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let NotFinite { k, agent, variable, value } = self;
        write!(f, "{variable} of agent {agent} holds {value} at iteration {k}")
    }
}

impl std::error::Error for NotFinite {}

/// An exception of Python's on its way through the engine.
pub fn raised(error: PyErr) -> Error {
    Error::Watcher(Box::new(error))
}

/// The exception inside an error, if there is one.
pub fn exception(error: Error) -> Result<PyErr, Error> {
    match error {
        Error::Watcher(source) => match source.downcast::<PyErr>() {
            Ok(error) => Ok(*error),
            Err(other) => Err(Error::Watcher(other)),
        },
        other => Err(other),
    }
}

/// Arrays of a stack of points and of the stack that directions are written to, and the function of Python's
/// that was bound to them.
struct Bond<T> {
    points: Arrays<T>,
    directions: Arrays<T>,
    call: Py<PyAny>,
}

/// The last second-order products: methods ask for both, one after the other.
struct Products<T> {
    at: (usize, usize, Vec<T>, Vec<T>, Vec<T>),
    xy: Vec<T>,
    yy: Vec<T>,
}

/// A problem in Python.
pub struct Oracle<T> {
    python: Py<PyAny>,
    agents: usize,
    upper: Upper,
    lower: usize,
    start: Start,
    measures: Vec<Metric>,
    single: Option<(usize, bool)>,
    second_order: bool,
    /// Its one metric is the mean of the agents' own losses, which each can tell of its own data.
    own_losses: bool,
    /// Whether rows are lent; `None` where their length decides.
    lend: Option<bool>,
    keep: Keep,
    lender: Py<Lender>,
    penalty: Mutex<Vec<Bond<T>>>,
    descent: Mutex<Vec<Bond<T>>>,
    products: Mutex<Option<Products<T>>>,
}

/// A text that lives as long as the process: names of metrics are few.
pub fn name(text: String) -> &'static str {
    static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    match known.get(text.as_str()) {
        Some(name) => name,
        None => {
            let name: &'static str = text.leak();
            known.insert(name);
            name
        }
    }
}

fn vectors(list: Vec<PyReadonlyArray1<'_, f64>>) -> Vec<Vec<f64>> {
    list.iter().map(|row| row.as_array().to_vec()).collect()
}

impl<T: Number> Oracle<T> {
    /// Reads what an object of Python's says about itself. Rows are lent to it where they are long and
    /// whoever runs it puts state and network into `keep` at the end.
    pub fn new(python: &Bound<'_, PyAny>, keep: Option<&Keep>) -> PyResult<Self> {
        let py = python.py();
        let about = python.call_method0(intern!(py, "about"))?;
        let about = about.cast::<PyDict>().map_err(PyErr::from)?;
        let get = |key: &str| -> PyResult<Bound<'_, PyAny>> {
            about.get_item(key)?.ok_or_else(|| PyTypeError::new_err(format!("about() lacks '{key}'")))
        };
        let widths: Vec<usize> = get("upper")?.extract()?;
        let upper = match get("private")?.extract()? {
            true => Upper::Private(widths),
            false => Upper::Shared(widths.first().copied().unwrap_or(0)),
        };
        let metrics: Vec<(String, String, i8)> = get("measures")?.extract()?;
        let metric = |(n, label, better): (String, String, i8)| Metric {
            name: name(n),
            label: name(label),
            unit: "",
            better: match better {
                -1 => Better::Lower,
                1 => Better::Higher,
                _ => Better::Neither,
            },
        };
        let start =
            Start { x: vectors(get("x")?.extract()?), y: vectors(get("y")?.extract()?), ..Start::default() };
        // Whoever does not keep what was lent gets copies.
        let lend = if keep.is_some() { get("lend")?.extract()? } else { Some(false) };
        let keep = keep.cloned().unwrap_or_default();
        Ok(Oracle {
            agents: get("agents")?.extract()?,
            upper,
            lower: get("lower")?.extract()?,
            start,
            measures: metrics.into_iter().map(metric).collect(),
            single: get("single")?.extract()?,
            second_order: get("second_order")?.extract()?,
            own_losses: get("own_losses")?.extract()?,
            lend,
            lender: Py::new(py, Lender::new(&keep))?,
            keep,
            python: python.clone().unbind(),
            penalty: Mutex::default(),
            descent: Mutex::default(),
            products: Mutex::default(),
        })
    }

    /// Where what was lent is kept.
    pub fn keep(&self) -> &Keep {
        &self.keep
    }

    /// Calls the function that Python bound to these stacks; binds one first where that is new.
    fn enter<const N: usize>(
        &self,
        (bonds, method): (&Mutex<Vec<Bond<T>>>, &str),
        at: At<'_>,
        (v, d): (&Stack<T, N>, &mut Stack<T, N>),
        call: impl Fn(Python<'_>, &Py<PyAny>) -> PyResult<Py<PyAny>>,
    ) -> Result<()> {
        Python::attach(|py| -> Result<()> {
            let mut bonds = bonds.lock().unwrap_or_else(PoisonError::into_inner);
            let known = bonds.iter().position(|b| b.points.show(v) && b.directions.show(d));
            let bond = match known {
                Some(known) => &bonds[known],
                None => {
                    // The simulator swaps two buffers; more are a sign that rows move for good.
                    if bonds.len() >= 4 {
                        bonds.clear();
                    }
                    bonds.push(self.bind(py, method, at, v, d).map_err(raised)?);
                    bonds.last().expect("pushed above")
                }
            };
            bond.points.copy_in(py, v);
            call(py, &bond.call).map_err(raised)?;
            bond.directions.copy_out(py, d);
            Ok(())
        })?;
        // On a GPU Python looks itself, where the numbers are.
        match !on_device(d) && (at.k == 0 || !self.lends(&d.shared)) {
            true => finite(at, d),
            false => Ok(()),
        }
    }

    fn lends(&self, rows: &Rows<T>) -> bool {
        self.lend.unwrap_or_else(|| is_lent(rows))
    }

    fn bind<const N: usize>(
        &self,
        py: Python<'_>,
        method: &str,
        at: At<'_>,
        v: &Stack<T, N>,
        d: &Stack<T, N>,
    ) -> PyResult<Bond<T>> {
        let (lender, lent) = (self.lender.bind(py), self.lends(&v.shared));
        let (points, directions) = match on_device(v) {
            true => (Arrays::on_device(v, lender)?, Arrays::on_device(d, lender)?),
            false => (Arrays::new(v, lent, lender), Arrays::new(d, lent, lender)),
        };
        let (inputs, outputs) = (PyList::new(py, points.all())?, PyList::new(py, directions.all())?);
        let rows = (points.rows.as_ref(), directions.rows.as_ref());
        let call = self.python.call_method1(py, method, (at.owned.to_vec(), inputs, outputs, rows))?;
        Ok(Bond { points, directions, call })
    }

    fn gradients_of(
        &self,
        level: u8,
        (agent, k): (usize, usize),
        (x, y): (&[T], &[T]),
        (gx, gy): (&mut [T], &mut [T]),
    ) -> Result<()> {
        Python::attach(|py| {
            let (px, py_) = (PyArray1::from_slice(py, x), PyArray1::from_slice(py, y));
            let args = (level, agent, k, px, py_);
            let out = self.python.call_method1(py, intern!(py, "gradients"), args)?;
            take(out.bind(py), [gx, gy])
        })
        .map_err(raised)
    }
}

/// Copies two vectors that Python gave.
fn take<T: Number>(pair: &Bound<'_, PyAny>, to: [&mut [T]; 2]) -> PyResult<()> {
    let pair: (PyReadonlyArray1<'_, T>, PyReadonlyArray1<'_, T>) = pair.extract()?;
    for (from, to) in [pair.0.as_array(), pair.1.as_array()].into_iter().zip(to) {
        if from.len() != to.len() {
            let what = format!("a gradient has {} numbers; {} are needed", from.len(), to.len());
            return Err(PyTypeError::new_err(what));
        }
        to.iter_mut().zip(from).for_each(|(t, f)| *t = *f);
    }
    Ok(())
}

/// Says whose direction is not finite.
fn finite<T: Number, const N: usize>(at: At<'_>, d: &Stack<T, N>) -> Result<()> {
    const NAMES: [&str; 3] = ["the direction of x", "the direction of y", "the direction of z"];
    if all_finite(d.shared.data()) && d.private.as_ref().is_none_or(|rows| all_finite(rows.data())) {
        return Ok(());
    }
    for (row, agent) in at.owned.iter().enumerate() {
        for (variable, numbers) in NAMES.into_iter().zip(d.row(row)) {
            if let Some(value) = numbers.iter().map(|v| v.f64()).find(|v| !v.is_finite()) {
                return Err(Error::of_agent(*agent, NotFinite { k: at.k, agent: *agent, variable, value }));
            }
        }
    }
    Ok(())
}

/// The decision variables by their names.
fn variables<'py, T: Number>(
    lender: &Bound<'py, Lender>,
    views: &[View<'_, T>],
) -> PyResult<Bound<'py, PyDict>> {
    let variables = PyDict::new(lender.py());
    for view in views.iter().filter(|v| v.name == "x" || v.name == "y") {
        variables.set_item(view.name, shown(lender, view)?)?;
    }
    Ok(variables)
}

impl<T: Number> Bilevel<T> for Oracle<T> {
    fn agents(&self) -> usize {
        self.agents
    }

    fn upper(&self) -> Upper {
        self.upper.clone()
    }

    fn lower(&self) -> usize {
        self.lower
    }

    fn grad_f(&self, agent: usize, k: usize, x: &[T], y: &[T], gx: &mut [T], gy: &mut [T]) -> Result<()> {
        self.gradients_of(0, (agent, k), (x, y), (gx, gy))
    }

    fn grad_g(&self, agent: usize, k: usize, x: &[T], y: &[T], gx: &mut [T], gy: &mut [T]) -> Result<()> {
        self.gradients_of(1, (agent, k), (x, y), (gx, gy))
    }

    fn penalty_directions(
        &self,
        at: At<'_>,
        penalty: Penalty,
        v: &Stack<T, 3>,
        d: &mut Stack<T, 3>,
    ) -> Result<()> {
        self.enter((&self.penalty, "bind"), at, (v, d), |py, call| {
            call.call1(py, (at.k, penalty.f, penalty.g))
        })
    }

    fn second_order(&self) -> Option<&dyn SecondOrder<T>> {
        self.second_order.then_some(self)
    }

    fn single_level(&self) -> Option<&dyn SingleLevel<T>> {
        self.single.is_some().then_some(self)
    }

    fn start(&self) -> Start {
        self.start.clone()
    }

    fn measures(&self) -> Vec<Metric> {
        self.measures.clone()
    }

    fn own_sums(&self, agents: &[usize], views: &[View<'_, T>]) -> Result<Option<Vec<Vec<f64>>>> {
        if !self.own_losses {
            return Ok(None);
        }
        let losses = Python::attach(|py| -> PyResult<Vec<f64>> {
            let arguments = (agents.to_vec(), variables(self.lender.bind(py), views)?);
            self.python.call_method1(py, intern!(py, "losses"), arguments)?.extract(py)
        });
        Ok(Some(losses.map_err(raised)?.into_iter().map(|loss| vec![loss]).collect()))
    }

    fn metrics_of_sums(&self, sums: &[f64]) -> Values {
        let mean = |sum: &f64| sum / self.agents as f64;
        self.measures.iter().zip(sums).map(|(metric, sum)| (metric.name, mean(sum))).collect()
    }

    fn state_metrics(&self, views: &[View<'_, T>]) -> Result<Values> {
        if self.measures.is_empty() {
            return Ok(Values::new());
        }
        let values = Python::attach(|py| -> PyResult<Vec<(String, f64)>> {
            let variables = variables(self.lender.bind(py), views)?;
            self.python.call_method1(py, intern!(py, "evaluate"), (variables,))?.extract(py)
        });
        Ok(values.map_err(raised)?.into_iter().map(|(n, value)| (name(n), value)).collect())
    }
}

impl<T: Number> Oracle<T> {
    /// Both products at a point, from memory where they were asked for just now.
    fn both<R>(
        &self,
        (agent, k): (usize, usize),
        (x, y, v): (&[T], &[T], &[T]),
        with: impl FnOnce(&Products<T>) -> R,
    ) -> Result<R> {
        let mut last = self.products.lock().unwrap_or_else(PoisonError::into_inner);
        let same =
            |p: &Products<T>| (p.at.0, p.at.1) == (agent, k) && p.at.2 == x && p.at.3 == y && p.at.4 == v;
        if let Some(products) = last.as_ref().filter(|p| same(p)) {
            return Ok(with(products));
        }
        let (mut xy, mut yy) = (vec![T::ZERO; x.len()], vec![T::ZERO; y.len()]);
        Python::attach(|py| {
            let [px, py_, pv] = [x, y, v].map(|slice| PyArray1::from_slice(py, slice));
            let args = (agent, k, px, py_, pv);
            let out = self.python.call_method1(py, intern!(py, "products"), args)?;
            take(out.bind(py), [&mut xy, &mut yy])
        })
        .map_err(raised)?;
        let at = (agent, k, x.to_vec(), y.to_vec(), v.to_vec());
        Ok(with(last.insert(Products { at, xy, yy })))
    }
}

impl<T: Number> SecondOrder<T> for Oracle<T> {
    fn yy(&self, agent: usize, k: usize, x: &[T], y: &[T], v: &[T], out: &mut [T]) -> Result<()> {
        self.both((agent, k), (x, y, v), |p| out.copy_from_slice(&p.yy))
    }

    fn xy(&self, agent: usize, k: usize, x: &[T], y: &[T], v: &[T], out: &mut [T]) -> Result<()> {
        self.both((agent, k), (x, y, v), |p| out.copy_from_slice(&p.xy))
    }
}

impl<T: Number> SingleLevel<T> for Oracle<T> {
    fn agents(&self) -> usize {
        self.agents
    }

    fn width(&self) -> usize {
        self.single.map_or(0, |(width, _)| width)
    }

    fn start_from<'a>(&self, start: &'a Start) -> &'a Vec<Vec<f64>> {
        if self.single.is_some_and(|(_, of_y)| of_y) { &start.y } else { &start.x }
    }

    fn gradients(&self, at: At<'_>, x: &Stack<T, 1>, d: &mut Stack<T, 1>) -> Result<()> {
        self.enter((&self.descent, "bind_single"), at, (x, d), |py, call| call.call1(py, (at.k,)))
    }
}

/// An array's rows.
pub fn rows(array: &PyReadonlyArray2<'_, f64>) -> Vec<Vec<f64>> {
    array.as_array().rows().into_iter().map(|row| row.to_vec()).collect()
}
