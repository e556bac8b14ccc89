//! Graphs as Python describes them.
use dibo::graph::{self, DiGraph, Disconnected, GraphSequence, List, Loss, Redraw};
use dibo::mixing::{Matrix, Mixing, Rule, Sequence};
use numpy::PyArray2;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::Deserialize;
use std::sync::Arc;

/// A sequence of graphs with weights and losses.
#[derive(Deserialize)]
pub struct Graph {
    agents: usize,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    weights: Option<Vec<f64>>,
    #[serde(default)]
    loss: f64,
    #[serde(default)]
    burst: Option<f64>,
    /// Iterations whose links together must connect all agents; 0 asks for nothing.
    #[serde(default)]
    window: Option<usize>,
    #[serde(flatten)]
    kind: Kind,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Kind {
    Cycle { nu: f64, phases: [usize; 3], redraw: Redraw },
    ErdosRenyi { nu: f64, connected: bool, redraw: Redraw },
    Ring,
    Complete,
    Exponential,
    OnePeerExponential,
    None,
    Edges { graphs: Vec<Vec<(usize, usize)>> },
    Matrices { matrices: Vec<(Matrix, Matrix)> },
}

fn wrong(what: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(what.to_string())
}

fn share(name: &str, value: f64) -> PyResult<f64> {
    match (0.0..=1.0).contains(&value) {
        true => Ok(value),
        false => Err(wrong(format!("{name} is {value}; it must lie between 0 and 1"))),
    }
}

impl Graph {
    /// Reads a description.
    pub fn read(text: &str) -> PyResult<Self> {
        let graph: Graph = serde_json::from_str(text).map_err(wrong)?;
        match graph.agents {
            0 => Err(wrong("agents is 0; it must be 1 or more")),
            n if n > u32::MAX as usize => Err(wrong(format!("agents is {n}; that is too many"))),
            _ => Ok(graph),
        }
    }

    /// Which messages are lost.
    pub fn loss(&self) -> PyResult<Option<Loss>> {
        let loss = Loss::new(self.loss, self.burst, self.seed).map_err(wrong)?;
        Ok((self.loss > 0.0).then_some(loss))
    }

    /// The sequence; one whose links do not connect the agents is refused.
    pub fn build(&self, iterations: usize) -> PyResult<Sequence> {
        let n = self.agents;
        let graphs: Arc<dyn GraphSequence> = match &self.kind {
            Kind::Cycle { nu, phases, redraw } => {
                if phases.iter().sum::<usize>() == 0 {
                    return Err(wrong("phases are all 0; at least one must be longer"));
                }
                let cycle = graph::Cycle::new(n, share("nu", *nu)?, self.seed);
                Arc::new(cycle.phases(*phases).redraw(*redraw))
            }
            Kind::ErdosRenyi { nu, connected, redraw } => {
                let graphs = graph::ErdosRenyi::new(n, share("nu", *nu)?, self.seed, *connected);
                Arc::new(graphs.redraw(*redraw))
            }
            Kind::Ring => Arc::new(graph::Static::ring(n)),
            Kind::Complete => Arc::new(graph::Static::complete(n)),
            Kind::Exponential => Arc::new(graph::Static::exponential(n)),
            Kind::OnePeerExponential => Arc::new(graph::OnePeerExponential::new(n)),
            Kind::None => Arc::new(graph::ErdosRenyi::new(n, 0.0, self.seed, false)),
            Kind::Edges { graphs } => Arc::new(List::new(by_edges(n, graphs)?)),
            Kind::Matrices { matrices } => {
                let sequence = Sequence::given(matrices.clone()).map_err(wrong)?;
                if sequence.agents() != n {
                    return Err(wrong(format!("matrices are for {} agents, not {n}", sequence.agents())));
                }
                return self.connected(sequence, iterations);
            }
        };
        let rule = self.weights.clone().map_or(Rule::Uniform, Rule::BySender);
        self.connected(Sequence::new(graphs, rule).map_err(wrong)?, iterations)
    }

    fn connected(&self, sequence: Sequence, iterations: usize) -> PyResult<Sequence> {
        let window = self.window.unwrap_or(match self.kind {
            Kind::OnePeerExponential => sequence.period().unwrap_or(1),
            Kind::None => 0,
            _ => 1,
        });
        let checked: Result<(), Disconnected> = match window {
            0 => Ok(()),
            window => sequence.check_connected(window, iterations),
        };
        let advice = "give window= (iterations whose links together connect all agents), or window=0 to run \
            all the same";
        checked.map_err(|e| wrong(format!("{e}; {advice}")))?;
        Ok(sequence)
    }
}

fn by_edges(n: usize, graphs: &[Vec<(usize, usize)>]) -> PyResult<Vec<DiGraph>> {
    if graphs.is_empty() {
        return Err(wrong("no graph is given; at least one is needed"));
    }
    for (number, edges) in graphs.iter().enumerate() {
        if let Some((s, r)) = edges.iter().find(|(s, r)| *s >= n || *r >= n) {
            return Err(wrong(format!(
                "graph {number}: edge ({s}, {r}) names an agent that is not there; there are {n}, from 0"
            )));
        }
    }
    Ok(graphs.iter().map(|edges| DiGraph::from_edges(n, edges.iter().copied())).collect())
}

/// The links (sender, receiver) of a graph at iteration k.
#[pyfunction]
pub fn edges(description: &str, k: usize) -> PyResult<Vec<(usize, usize)>> {
    Ok(Graph::read(description)?.build(1)?.graphs().at(k).edges().collect())
}

/// The matrices A and B at iteration k.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "two arrays")]
pub fn weights<'py>(
    py: Python<'py>,
    description: &str,
    k: usize,
) -> PyResult<(Bound<'py, PyArray2<f64>>, Bound<'py, PyArray2<f64>>)> {
    let sequence = Graph::read(description)?.build(1)?;
    let (n, mixing): (usize, Mixing<f64>) = (sequence.agents(), sequence.at(k));
    let (mut a, mut b) = (vec![vec![0.0; n]; n], vec![vec![0.0; n]; n]);
    mixing.for_each_entry(|i, j, wa, wb| (a[i][j], b[i][j]) = (wa, wb));
    Ok((PyArray2::from_vec2(py, &a).map_err(wrong)?, PyArray2::from_vec2(py, &b).map_err(wrong)?))
}
