//! Runs of cells and published methods on a small problem, as a table gives them.
//!
//! The input holds `agents` (P, Q, S, p, q, H, C, h and a of each), `kappa` (by name of a problem), `start`
//! (x, y and z of all), `networks` (by name: `kind` `undirected`, with Metropolis weights, or `directed`,
//! with uniform ones, and `graphs`, used in turn, one a round), `noise` (rows by variable, added to the
//! directions of iteration k), `snapshots` and `runs` (`name`, `function`, `network`, `problem`,
//! `parameters`). The output holds x, y and z of every run at every snapshot. Whatever is asked is run:
//! nothing is refused here for the graphs that it needs.
use crate::algorithm::cell::{Cell, Recipe, Spec, Sweep};
use crate::algorithm::direction::{NeumannLocal, Penalised, Rule, SobaFd};
use crate::algorithm::estimator::Estimator;
use crate::algorithm::gossip::Chosen;
use crate::algorithm::mixer::Mix;
use crate::algorithm::{Algorithm, Single};
use crate::graph::{DiGraph, List};
use crate::mixing::{Matrix, Rule as Weights, Sequence};
use crate::network::Simulator;
use crate::problem::{At, Bilevel, Curved, Matrices, Penalty, SecondOrder, SingleLevel, Start};
use crate::rows::{Stack, Threads, Upper};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    agents: Vec<Matrices>,
    kappa: BTreeMap<String, f64>,
    start: Point,
    networks: BTreeMap<String, Links>,
    snapshots: Vec<usize>,
    #[serde(default)]
    noise: BTreeMap<String, Vec<Matrix>>,
    runs: Vec<Run>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Point {
    x: Vec<f64>,
    y: Vec<f64>,
    z: Vec<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Links {
    kind: Kind,
    graphs: Vec<Vec<(usize, usize)>>,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Undirected,
    Directed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    name: String,
    function: String,
    network: String,
    problem: String,
    parameters: Map<String, Value>,
}

/// The parameters of a cell, variable by variable.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CellKeys {
    direction: String,
    mixing: BTreeMap<String, Mix>,
    eta: BTreeMap<String, f64>,
    #[serde(default)]
    estimator: BTreeMap<String, EstimatorKeys>,
    #[serde(default)]
    sweep: Sweep,
    #[serde(default)]
    lazy: BTreeMap<String, bool>,
    #[serde(default)]
    damp: BTreeMap<String, f64>,
    radius_z: Option<f64>,
    lambda: Option<f64>,
    form: Option<String>,
    mu: Option<f64>,
    gamma: Option<f64>,
    delta: Option<f64>,
    #[serde(rename = "L")]
    curvature: Option<f64>,
    #[serde(rename = "J")]
    terms: Option<usize>,
}

#[derive(Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
enum EstimatorKeys {
    Plain {},
    Momentum { theta: f64, start: String, when: String },
    Storm { a: f64 },
}

impl EstimatorKeys {
    fn estimator(&self) -> Estimator {
        match self {
            EstimatorKeys::Plain {} => Estimator::Plain,
            EstimatorKeys::Momentum { theta, start, when } => {
                Estimator::Momentum { theta: *theta, late: when == "delayed", warm: start == "direction" }
            }
            EstimatorKeys::Storm { a } => Estimator::Storm { a: (*a).into() },
        }
    }
}

impl Recipe for Spec {
    const ABOUT: &'static str = "a cell of a table";

    fn spec(&self) -> Result<Spec, String> {
        Ok(self.clone())
    }
}

const VARIABLES: [&str; 3] = ["x", "y", "z"];

impl CellKeys {
    fn rule(&self) -> Result<Rule, String> {
        let asked = |value: Option<f64>, name: &str| value.ok_or_else(|| format!("{name} is missing"));
        Ok(match self.direction.as_str() {
            "soba" => Rule::Soba,
            "soba-fd" => Rule::SobaFd(SobaFd { delta: asked(self.delta, "delta")?, relative: false }),
            "penalty" => {
                let lambda = asked(self.lambda, "lambda")?;
                let normalised = self.form.as_deref() == Some("normalised");
                let (f, g) = if normalised { (1.0 / lambda, 1.0) } else { (1.0, lambda) };
                Rule::Penalised(Penalised { f: f.into(), g: g.into(), gamma: None })
            }
            "moreau" => {
                let (f, g) = (asked(self.mu, "mu")?.into(), 1.0.into());
                Rule::Penalised(Penalised { f, g, gamma: Some(asked(self.gamma, "gamma")?) })
            }
            "neumann-local" => Rule::NeumannLocal(NeumannLocal {
                curvature: asked(self.curvature, "L")?,
                terms: self.terms.ok_or("J is missing")?,
            }),
            other => {
                return Err(format!(
                    "direction is '{other}'; known are lower, soba, soba-fd, penalty, moreau, neumann-local"
                ));
            }
        })
    }

    fn spec(&self) -> Result<Spec, String> {
        let rule = self.rule()?;
        let of = |v: usize| VARIABLES[if v == 2 && !rule.has_z() { 1 } else { v }];
        let mixing =
            |v: usize| self.mixing.get(of(v)).copied().ok_or_else(|| format!("mixing has no {}", of(v)));
        let eta = |v: usize| self.eta.get(of(v)).copied().ok_or_else(|| format!("eta has no {}", of(v)));
        let share = |v: &str| match (self.lazy.get(v), self.damp.get(v)) {
            (Some(true), _) => 0.5,
            (_, Some(c)) => *c,
            _ => 1.0,
        };
        let estimator = |v: &str| self.estimator.get(v).map_or(Estimator::Plain, EstimatorKeys::estimator);
        let spec = Spec {
            mixing: [mixing(0)?, mixing(1)?, mixing(2)?],
            share: [share(of(0)), share(of(1)), share(of(2))],
            estimator: VARIABLES.map(estimator),
            sweep: self.sweep,
            eta: [eta(0)?.into(), eta(1)?.into(), eta(2)?.into()],
            radius_z: self.radius_z,
            direction: rule,
        };
        spec.check().map(|()| spec)
    }
}

/// A method by its name, with the table's words for its parameters.
fn method(run: &Run) -> Result<Box<dyn Algorithm<f64>>, String> {
    let mut keys = run.parameters.clone();
    keys.remove("noise");
    let mut rename = |pairs: &[(&str, &str)]| {
        pairs.iter().for_each(|(from, to)| {
            if let Some(value) = keys.remove(*from) {
                keys.insert((*to).into(), value);
            }
        });
    };
    match run.function.as_str() {
        "cell" => {
            let keys: CellKeys = read(keys)?;
            if keys.direction != "lower" {
                return Ok(Box::new(Cell(keys.spec()?)));
            }
            let find = |missing: &'static str| format!("{missing} has no y");
            let mixing = *keys.mixing.get("y").ok_or_else(|| find("mixing"))?;
            let eta = (*keys.eta.get("y").ok_or_else(|| find("eta"))?).into();
            Ok(Box::new(Single(Chosen { mixing, eta, lazy: Some(keys.lazy.get("y") == Some(&true)) })))
        }
        "dsoba" => named(if keys.contains_key("delta") { "d-soba-fo" } else { "d-soba" }, keys),
        "mdbo" => {
            rename(&[("L", "curvature"), ("J", "terms")]);
            let storm = keys.remove("storm").is_some_and(|s| s == json!(true));
            named(if storm { "vrdbo" } else { "mdbo" }, keys)
        }
        "madsbo" | "madsbo_gt" => {
            rename(&[("T", "inner"), ("N", "inner_z")]);
            keys.insert("tracked".into(), json!(run.function == "madsbo_gt"));
            named("ma-dsbo", keys)
        }
        "c2dfb" => named("c2dfb", keys),
        "hgp" => {
            rename(&[("T", "inner"), ("M", "terms"), ("S", "pushes")]);
            let reset = keys.remove("reset_weight").is_some_and(|s| s == json!(true));
            keys.insert("keep_weight".into(), json!(!reset));
            named("hgp", keys)
        }
        other => {
            Err(format!("function is '{other}'; known are cell, dsoba, mdbo, madsbo, madsbo_gt, c2dfb, hgp"))
        }
    }
}

fn read<P: DeserializeOwned>(keys: Map<String, Value>) -> Result<P, String> {
    serde_json::from_value(Value::Object(keys)).map_err(|e| e.to_string())
}

fn named(name: &str, keys: Map<String, Value>) -> Result<Box<dyn Algorithm<f64>>, String> {
    let found = super::algorithm(name, keys)?;
    let algorithm: &dyn Algorithm<f64> = &*found;
    algorithm.check()?;
    Ok(found)
}

/// A problem with given rows added to the directions, and with g(x⁰, ·) as its single-level objective.
struct Disturbed {
    inner: Curved,
    x: Vec<f64>,
    noise: BTreeMap<String, Vec<Matrix>>,
    /// Whether a rule takes ∇ᵧf into z's direction, and not elsewhere.
    soba: bool,
}

impl Disturbed {
    fn add(&self, variable: &str, agent: usize, k: usize, sign: f64, to: &mut [f64]) {
        if let Some(rows) = self.noise.get(variable) {
            let row = &rows[k % rows.len()][agent];
            to.iter_mut().zip(row).for_each(|(t, n)| *t += sign * n);
        }
    }
}

impl Bilevel<f64> for Disturbed {
    fn agents(&self) -> usize {
        Bilevel::agents(&self.inner)
    }

    fn upper(&self) -> Upper {
        self.inner.upper()
    }

    fn lower(&self) -> usize {
        self.inner.lower()
    }

    fn grad_f(
        &self,
        agent: usize,
        k: usize,
        x: &[f64],
        y: &[f64],
        gx: &mut [f64],
        gy: &mut [f64],
    ) -> crate::error::Result<()> {
        self.inner.grad_f(agent, k, x, y, gx, gy)?;
        self.add("x", agent, k, 1.0, gx);
        if self.soba {
            self.add("z", agent, k, -1.0, gy);
        }
        Ok(())
    }

    fn grad_g(
        &self,
        agent: usize,
        k: usize,
        x: &[f64],
        y: &[f64],
        gx: &mut [f64],
        gy: &mut [f64],
    ) -> crate::error::Result<()> {
        self.inner.grad_g(agent, k, x, y, gx, gy)?;
        self.add("y", agent, k, 1.0, gy);
        Ok(())
    }

    fn penalty_directions(
        &self,
        at: At<'_>,
        penalty: Penalty,
        v: &Stack<f64, 3>,
        d: &mut Stack<f64, 3>,
    ) -> crate::error::Result<()> {
        self.inner.penalty_directions(at, penalty, v, d)?;
        for (row, agent) in at.owned.iter().enumerate() {
            for (variable, d) in VARIABLES.into_iter().zip(d.row_mut(row)) {
                self.add(variable, *agent, at.k, 1.0, d);
            }
        }
        Ok(())
    }

    fn second_order(&self) -> Option<&dyn SecondOrder<f64>> {
        self.inner.second_order()
    }

    fn single_level(&self) -> Option<&dyn SingleLevel<f64>> {
        Some(self)
    }
}

impl SingleLevel<f64> for Disturbed {
    fn agents(&self) -> usize {
        Bilevel::agents(&self.inner)
    }

    fn width(&self) -> usize {
        self.inner.lower()
    }

    fn start_from<'a>(&self, start: &'a Start) -> &'a Vec<Vec<f64>> {
        &start.y
    }

    fn gradients(&self, at: At<'_>, y: &Stack<f64, 1>, d: &mut Stack<f64, 1>) -> crate::error::Result<()> {
        let mut gx = self.x.clone();
        for (row, agent) in at.owned.iter().enumerate() {
            self.grad_g(*agent, at.k, &self.x, y.row(row)[0], &mut gx, d.row_mut(row)[0])?;
        }
        Ok(())
    }
}

fn sequence(links: &Links, n: usize) -> Result<Sequence, String> {
    if links.graphs.is_empty() {
        return Err("graphs is empty; at least one graph is needed".into());
    }
    let both = links.kind == Kind::Undirected;
    let mut all = Vec::new();
    for (number, edges) in links.graphs.iter().enumerate() {
        if let Some((s, r)) = edges.iter().find(|(s, r)| *s >= n || *r >= n) {
            return Err(format!(
                "graph {number}: edge [{s}, {r}] names an agent that is not there; there are {n}"
            ));
        }
        let back = edges.iter().filter(|_| both).map(|(s, r)| (*r, *s));
        all.push(DiGraph::from_edges(n, edges.iter().copied().chain(back)));
    }
    let rule = if both { Weights::Metropolis { lazy: false } } else { Weights::Uniform };
    Sequence::new(Arc::new(List::new(all)), rule)
}

/// The iterates of one run.
fn iterates(table: &Table, run: &Run) -> Result<Value, String> {
    let n = table.agents.len();
    let kappa = table.kappa.get(&run.problem).ok_or_else(|| format!("kappa has no '{}'", run.problem))?;
    let links =
        table.networks.get(&run.network).ok_or_else(|| format!("there is no network '{}'", run.network))?;
    let inner = Curved::from_matrices(&table.agents, *kappa)?;
    let Upper::Shared(dx) = inner.upper() else { return Err("x must be shared".into()) };
    let widths = [dx, inner.lower(), inner.lower()];
    let Point { x, y, z } = &table.start;
    for ((name, rows), width) in VARIABLES.iter().zip([x, y, z]).zip(widths) {
        if rows.len() != width {
            return Err(format!("start.{name} must have {width} numbers"));
        }
    }
    let noisy = run.parameters.get("noise").is_some_and(|v| *v == json!(true));
    for (name, width) in VARIABLES.into_iter().zip(widths).filter(|_| noisy) {
        let rows = table.noise.get(name).into_iter().flatten();
        if rows.clone().any(|m| m.len() != n || m.iter().any(|r| r.len() != width)) {
            return Err(format!("noise.{name} must hold tables of {n} rows of {width} numbers"));
        }
    }
    let direction = run.parameters.get("direction").and_then(Value::as_str).unwrap_or_default();
    let (soba, sweep) = (direction.starts_with("soba"), run.parameters.get("sweep"));
    if noisy && !soba && run.function == "cell" && sweep.is_some_and(|s| s == "sequential") {
        return Err("noise in a sequential sweep is known for soba alone".into());
    }
    let noise = if noisy { table.noise.clone() } else { BTreeMap::new() };
    let problem = Disturbed { inner, x: x.clone(), noise, soba };
    let start = Start { x: vec![x.clone()], y: vec![y.clone()], z: vec![z.clone()], v: vec![z.clone()] };
    let algorithm = method(run)?;
    let mut network = Simulator::<f64>::new(sequence(links, n)?, Threads::one());
    let mut state = algorithm.start(&problem, &mut network, Some(&start)).map_err(|e| e.to_string())?;
    let (last, mut snapshots) = (table.snapshots.iter().copied().max().unwrap_or(0), Map::new());
    for k in 0..=last {
        if table.snapshots.contains(&k) {
            let constant = |row: &Vec<f64>| json!(vec![row; n]);
            let mut values = Map::from_iter([("x".to_string(), constant(x)), ("z".to_string(), constant(z))]);
            for view in state.views().iter() {
                // What x moves along is h or r of the methods that average it, and HGP's v.
                let name = match (view.name, run.function.as_str()) {
                    ("x", _) if direction == "lower" => "y",
                    ("dx", "dsoba") => "h",
                    ("dx", "madsbo" | "madsbo_gt") => "r",
                    ("dx", "hgp") => "v",
                    (name @ ("x" | "y" | "z"), _) => name,
                    _ => continue,
                };
                values.insert(name.into(), json!((0..n).map(|i| view.row(i)).collect::<Vec<_>>()));
            }
            snapshots.insert(k.to_string(), Value::Object(values));
        }
        if k < last {
            state.step(k, &problem, &mut network).map_err(|e| e.to_string())?;
        }
    }
    Ok(Value::Object(snapshots))
}

/// The iterates that a table asks for.
pub fn trace(input: &str) -> Result<Value, String> {
    let table: Table = serde_json::from_str(input).map_err(|e| e.to_string())?;
    if let Some(last) = table.snapshots.iter().max().filter(|last| **last > 10_000_000) {
        return Err(format!("snapshots ask for iteration {last}; at most 10,000,000 are allowed"));
    }
    let mut runs = Map::new();
    for run in &table.runs {
        let iterates = iterates(&table, run).map_err(|e| format!("runs.{}: {e}", run.name))?;
        runs.insert(run.name.clone(), iterates);
    }
    Ok(json!({ "runs": runs }))
}
