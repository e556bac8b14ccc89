//! The simulated network for algorithms that are written in Python.
use crate::graph::Graph;
use dibo::network::{Lane, Lossy, Simulator, Wishes};
use dibo::rows::{Rows, Threads};
use numpy::{PyArray2, PyReadonlyArray2};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// All agents in this process: one verb, `round`, by which they pull and push.
#[pyclass(module = "dibo._core", unsendable)]
pub struct Network {
    network: Box<dyn dibo::network::Network<f64>>,
}

fn rows(array: &PyReadonlyArray2<'_, f64>, agents: usize) -> PyResult<Rows<f64>> {
    let array = array.as_array();
    if array.nrows() != agents {
        let what = format!("an array has {} rows; there are {agents} agents", array.nrows());
        return Err(PyValueError::new_err(what));
    }
    let mut rows = Rows::zeros(agents, array.ncols());
    for i in 0..agents {
        rows.row_mut(i).iter_mut().zip(array.row(i)).for_each(|(to, from)| *to = *from);
    }
    Ok(rows)
}

type Mixed<'py> = Vec<Bound<'py, PyArray2<f64>>>;

fn array<'py>(py: Python<'py>, rows: &Rows<f64>) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let all: Vec<Vec<f64>> = (0..rows.count()).map(|i| rows.row(i).to_vec()).collect();
    PyArray2::from_vec2(py, &all).map_err(|e| PyValueError::new_err(e.to_string()))
}

#[pymethods]
impl Network {
    #[new]
    #[pyo3(signature = (graph, iterations, frozen_weights = false, running_sums = false))]
    fn new(graph: &str, iterations: usize, frozen_weights: bool, running_sums: bool) -> PyResult<Self> {
        let graph = Graph::read(graph)?;
        let (sequence, threads) = (graph.build(iterations)?, Threads::one());
        let mut network: Box<dyn dibo::network::Network<f64>> = match graph.loss()? {
            Some(loss) => Box::new(Lossy::new(sequence, loss, threads)),
            None => Box::new(Simulator::new(sequence, threads)),
        };
        let wishes = Wishes { frozen_weights, running_sums };
        network.prepare(wishes).map_err(|e| PyValueError::new_err(e.to_string()))?;
        Ok(Network { network })
    }

    /// Number of agents.
    #[getter]
    fn agents(&self) -> usize {
        self.network.agents()
    }

    /// Rounds, messages and bytes so far.
    #[getter]
    fn traffic(&self) -> (u64, u64, u64) {
        let traffic = self.network.traffic();
        (traffic.rounds, traffic.messages, traffic.bytes)
    }

    /// Round k: gives `A v` for each v that is pulled and `B t` for each t that is pushed.
    fn round<'py>(
        &mut self,
        py: Python<'py>,
        k: usize,
        pull: Vec<PyReadonlyArray2<'py, f64>>,
        push: Vec<PyReadonlyArray2<'py, f64>>,
    ) -> PyResult<(Mixed<'py>, Mixed<'py>)> {
        let n = self.network.agents();
        let mut pull = pull.iter().map(|v| rows(v, n)).collect::<PyResult<Vec<_>>>()?;
        let mut push = push.iter().map(|t| rows(t, n)).collect::<PyResult<Vec<_>>>()?;
        let mut lanes: Vec<Lane<'_, f64>> =
            pull.iter_mut().map(Lane::pull).chain(push.iter_mut().map(Lane::push)).collect();
        self.network.round(k, &mut lanes).map_err(|e| PyValueError::new_err(e.to_string()))?;
        drop(lanes);
        let arrays = |all: &[Rows<f64>]| all.iter().map(|rows| array(py, rows)).collect::<PyResult<_>>();
        Ok((arrays(&pull)?, arrays(&push)?))
    }
}
