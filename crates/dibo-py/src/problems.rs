//! The small problems that come with dibo, for learning and for tests.
use dibo::Result;
use dibo::problem::{At, Bilevel, Penalty, PolicyEvaluation, Quadratic, Robust};
use dibo::rows::{Stack, Upper};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;

/// A problem that is written in Rust.
#[pyclass(frozen, module = "dibo._core")]
pub struct Builtin(pub Arc<dyn Bilevel<f64>>);

/// A problem whose directions are zero, to measure what else an iteration costs.
struct Idle {
    agents: usize,
    upper: usize,
    lower: usize,
}

impl Bilevel<f64> for Idle {
    fn agents(&self) -> usize {
        self.agents
    }

    fn upper(&self) -> Upper {
        Upper::Shared(self.upper)
    }

    fn lower(&self) -> usize {
        self.lower
    }

    fn grad_f(&self, _: usize, _: usize, _: &[f64], _: &[f64], gx: &mut [f64], gy: &mut [f64]) -> Result<()> {
        gx.fill(0.0);
        gy.fill(0.0);
        Ok(())
    }

    fn grad_g(&self, i: usize, k: usize, x: &[f64], y: &[f64], gx: &mut [f64], gy: &mut [f64]) -> Result<()> {
        self.grad_f(i, k, x, y, gx, gy)
    }

    fn penalty_directions(
        &self,
        _: At<'_>,
        _: Penalty,
        _: &Stack<f64, 3>,
        _: &mut Stack<f64, 3>,
    ) -> Result<()> {
        Ok(())
    }
}

type Pair<'py> = (Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>);

impl Builtin {
    fn width(&self, agent: usize) -> PyResult<usize> {
        match self.0.upper() {
            _ if agent >= self.0.agents() => Err(PyValueError::new_err(format!(
                "there is no agent {agent}; there are {}",
                self.0.agents()
            ))),
            Upper::Shared(width) => Ok(width),
            Upper::Private(widths) => Ok(widths[agent]),
        }
    }
}

#[pymethods]
impl Builtin {
    #[staticmethod]
    fn policy_evaluation(agents: usize, states: usize, features: usize, seed: u64) -> PyResult<Self> {
        if agents == 0 || states == 0 || features == 0 || features > states {
            let what = "agents, states and features must be 1 or more, and features at most states";
            return Err(PyValueError::new_err(what));
        }
        let problem = PolicyEvaluation::random(agents, states, features, seed).normalised();
        Ok(Builtin(Arc::new(problem)))
    }

    #[staticmethod]
    fn quadratic(agents: usize, upper: usize, lower: usize, seed: u64) -> PyResult<Self> {
        if agents == 0 || upper == 0 || lower == 0 {
            return Err(PyValueError::new_err("agents, upper and lower must be 1 or more"));
        }
        Ok(Builtin(Arc::new(Quadratic::random(agents, upper, lower, seed, false))))
    }

    #[staticmethod]
    fn robust(agents: usize, upper: usize, lower: usize, seed: u64) -> PyResult<Self> {
        if agents == 0 || upper == 0 || lower == 0 {
            return Err(PyValueError::new_err("agents, upper and lower must be 1 or more"));
        }
        Ok(Builtin(Arc::new(Robust::random(agents, upper, lower, seed))))
    }

    /// Directions that are zero.
    #[staticmethod]
    fn idle(agents: usize, upper: usize, lower: usize) -> Self {
        Builtin(Arc::new(Idle { agents, upper, lower }))
    }

    #[getter]
    fn agents(&self) -> usize {
        self.0.agents()
    }

    /// Entries of each agent's upper variable.
    #[getter]
    fn upper(&self) -> Vec<usize> {
        match self.0.upper() {
            Upper::Shared(width) => vec![width],
            Upper::Private(widths) => widths,
        }
    }

    #[getter]
    fn lower(&self) -> usize {
        self.0.lower()
    }

    /// Names of what it measures, with their labels.
    #[getter]
    fn measures(&self) -> Vec<(&'static str, &'static str)> {
        self.0.measures().into_iter().map(|m| (m.name, m.label)).collect()
    }

    /// ∇f (level 0) or ∇g (level 1) of an agent.
    fn gradients<'py>(
        &self,
        py: Python<'py>,
        level: u8,
        agent: usize,
        k: usize,
        x: PyReadonlyArray1<'py, f64>,
        y: PyReadonlyArray1<'py, f64>,
    ) -> PyResult<Pair<'py>> {
        let (x, y) = (x.as_array().to_vec(), y.as_array().to_vec());
        if x.len() != self.width(agent)? || y.len() != self.0.lower() {
            return Err(PyValueError::new_err("x or y has another length than the problem's"));
        }
        let (mut gx, mut gy) = (vec![0.0; x.len()], vec![0.0; y.len()]);
        match level {
            0 => self.0.grad_f(agent, k, &x, &y, &mut gx, &mut gy),
            _ => self.0.grad_g(agent, k, &x, &y, &mut gx, &mut gy),
        }
        .map_err(|e| PyValueError::new_err(e.to_string()))?;
        Ok((PyArray1::from_vec(py, gx), PyArray1::from_vec(py, gy)))
    }

    /// The metrics at a point.
    #[pyo3(signature = (x, y = None))]
    fn metrics(
        &self,
        x: PyReadonlyArray1<'_, f64>,
        y: Option<PyReadonlyArray1<'_, f64>>,
    ) -> PyResult<Vec<(&'static str, f64)>> {
        let y = y.map(|y| y.as_array().to_vec());
        if x.as_array().len() != self.width(0)? {
            return Err(PyValueError::new_err("x has another length than the problem's"));
        }
        self.0.metrics(&x.as_array().to_vec(), y.as_deref()).map_err(|e| PyValueError::new_err(e.to_string()))
    }
}
