//! Exact iterates of a small explicit problem, for debugging and for cross-checking other programs: JSON in,
//! JSON out.
//!
//! The input holds `problem` (features, transition, rewards, gamma, tau), `graphs` (each with `edges` as
//! [sender, receiver] or with matrices `A` and `B`; iteration k uses number k mod their count), `init` (x, y,
//! z, v by agent), `snapshots` (iterations to print) and `algorithms` (each with its `name`, `f_weight`,
//! `g_weight` and parameters). The output holds, for each algorithm and snapshot, the decision variables, the
//! push-sum weight and the trackers after so many iterations.
//!
//! An input with `agents` instead is a table of runs of cells and published methods on a quadratic or curved
//! problem; see [`table`].
pub mod table;

use crate::algorithm::{Algorithm, AnyAlgorithm, MakeAny, NAMES, Readable, Visitor, visit_all};
use crate::error::Error;
use crate::graph::{DiGraph, Disconnected, List};
use crate::mixing::{Matrix, Sequence};
use crate::network::Simulator;
use crate::problem::{Bilevel, PolicyEvaluation, Start};
use crate::rows::Threads;
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    problem: Tables,
    graphs: Vec<Graph>,
    #[serde(default)]
    init: Init,
    snapshots: Vec<usize>,
    algorithms: Map<String, Value>,
    #[serde(default)]
    allow_disconnected: bool,
}

/// An explicit policy-evaluation problem.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tables {
    kind: String,
    features: Matrix,
    transition: Matrix,
    rewards: Matrix,
    gamma: f64,
    tau: f64,
}

impl Tables {
    /// The problem itself; says what is wrong with its tables.
    pub fn build(&self) -> Result<PolicyEvaluation, String> {
        if self.kind != "policy-evaluation" {
            return Err(format!("problem.kind is '{}'; only policy-evaluation is known here", self.kind));
        }
        PolicyEvaluation::from_tables(
            &[&self.features],
            &self.transition,
            &self.rewards,
            self.gamma,
            self.tau,
        )
        .map_err(|e| format!("problem: {e}"))
    }
}

/// A graph by its links, or by its two matrices.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Graph {
    edges: Option<Vec<(usize, usize)>>,
    #[serde(rename = "A")]
    a: Option<Matrix>,
    #[serde(rename = "B")]
    b: Option<Matrix>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Init {
    x: Matrix,
    y: Matrix,
    z: Matrix,
    v: Matrix,
}

/// The mixing that a list of graphs describes, for `n` agents; all by links (uniform weights) or all by
/// matrices.
pub fn mixing(graphs: &[Graph], n: usize) -> Result<Sequence, String> {
    if graphs.is_empty() {
        return Err("graphs is empty; at least one graph is needed".into());
    }
    if graphs.iter().all(|g| g.a.is_some() && g.b.is_some() && g.edges.is_none()) {
        let sequence =
            Sequence::given(graphs.iter().filter_map(|g| Some((g.a.clone()?, g.b.clone()?))).collect())?;
        return if sequence.agents() == n {
            Ok(sequence)
        } else {
            Err(format!("matrices are for {} agents, the problem has {n}", sequence.agents()))
        };
    }
    let mut all = Vec::new();
    for (number, graph) in graphs.iter().enumerate() {
        let Graph { edges: Some(edges), a: None, b: None } = graph else {
            return Err(format!("graph {number}: give edges in every graph, or A and B in every graph"));
        };
        if let Some((s, r)) = edges.iter().find(|(s, r)| *s >= n || *r >= n) {
            return Err(format!(
                "graph {number}: edge [{s}, {r}] names an agent that is not there; there are {n}, counted \
                from 0"
            ));
        }
        all.push(DiGraph::from_edges(n, edges.iter().copied()));
    }
    Ok(Sequence::uniform(List::new(all)))
}

/// Reads the parameters of one algorithm from a JSON object.
struct Find {
    name: String,
    object: Map<String, Value>,
    found: Option<Result<Box<dyn AnyAlgorithm>, String>>,
}

impl Visitor for Find {
    fn visit<A: Readable>(&mut self, name: &'static str, _label: &'static str, any: MakeAny<A>) {
        if name == self.name {
            let object = Value::Object(std::mem::take(&mut self.object));
            let read = serde_json::from_value::<A>(object).map_err(|e| e.to_string());
            self.found = Some(read.map(any));
        }
    }
}

/// An algorithm by its name in experiment files, with parameters as JSON.
pub fn algorithm(name: &str, parameters: Map<String, Value>) -> Result<Box<dyn AnyAlgorithm>, String> {
    let mut find = Find { name: name.into(), object: parameters, found: None };
    visit_all(&mut find);
    find.found.unwrap_or_else(|| {
        let known = NAMES.iter().map(|n| n.0).collect::<Vec<_>>().join(", ");
        Err(format!("there is no algorithm '{}'; known are {known}", find.name))
    })
}

/// The iterates that an input asks for.
pub fn trace(input: &str) -> Result<Value, String> {
    let whole: Value = serde_json::from_str(input).map_err(|e| e.to_string())?;
    if whole.get("agents").is_some() {
        return table::trace(input);
    }
    // Read from the text, not from the value: its errors have lines.
    let input: Input = serde_json::from_str(input).map_err(|e| e.to_string())?;
    let problem = input.problem.build()?;
    let (n, nx, ny) = (Bilevel::agents(&problem), problem.features(), problem.states());
    let sequence = mixing(&input.graphs, n)?;
    if !input.allow_disconnected {
        sequence.check_connected(1, usize::MAX).map_err(|e: Disconnected| e.to_string())?;
    }
    for (name, rows, width) in [
        ("x", &input.init.x, nx),
        ("y", &input.init.y, ny),
        ("z", &input.init.z, ny),
        ("v", &input.init.v, ny),
    ] {
        if !rows.is_empty() && (rows.len() != n || rows.iter().any(|r| r.len() != width)) {
            return Err(format!("init.{name} must have {n} rows of {width} numbers"));
        }
    }
    let last = input.snapshots.iter().copied().max().unwrap_or(0);
    if last > 10_000_000 {
        return Err(format!("snapshots ask for iteration {last}; at most 10,000,000 are allowed"));
    }
    let start = Start { x: input.init.x, y: input.init.y, z: input.init.z, v: input.init.v };
    let mut output = Map::new();
    for (label, settings) in input.algorithms {
        let wrong = |e: String| format!("algorithms.{label}: {e}");
        let Value::Object(mut object) = settings else {
            return Err(wrong("an object with a name is needed".into()));
        };
        let name = object
            .remove("name")
            .and_then(|n| n.as_str().map(String::from))
            .ok_or_else(|| wrong("name is missing".into()))?;
        let mut weight = |key: &str, default: f64| match object.remove(key) {
            None => Ok(default),
            Some(v) => v
                .as_f64()
                .filter(|w| *w > 0.0 && w.is_finite())
                .ok_or_else(|| wrong(format!("{key} must be a number above 0"))),
        };
        let (f, g) = (weight("f_weight", 1.0 / ny as f64)?, weight("g_weight", 1.0)?);
        let algorithm = algorithm(&name, object).map_err(wrong)?;
        algorithm.check().map_err(wrong)?;
        let problem = problem.clone().try_weights(f, g).map_err(wrong)?;
        let mut network = Simulator::<f64>::new(sequence.clone(), Threads::one());
        let failed = |e: Error| wrong(e.to_string());
        let algorithm: &dyn Algorithm<f64> = &*algorithm;
        let mut state = algorithm.start(&problem, &mut network, Some(&start)).map_err(failed)?;
        let mut snapshots = Map::new();
        for k in 0..=last {
            if input.snapshots.contains(&k) {
                let mut values = Map::new();
                for view in state.views().iter().filter(|v| !v.name.starts_with('d')) {
                    let rows = (0..n)
                        .map(|i| if view.name == "w" { json!(view.row(i)[0]) } else { json!(view.row(i)) });
                    values.insert(view.name.into(), rows.collect());
                }
                snapshots.insert(k.to_string(), Value::Object(values));
            }
            if k < last {
                state.step(k, &problem, &mut network).map_err(failed)?;
            }
        }
        output.insert(label, Value::Object(snapshots));
    }
    Ok(Value::Object(output))
}
