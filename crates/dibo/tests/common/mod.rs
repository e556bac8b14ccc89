//! What several test files need: random starts and graphs, algorithms out of JSON, states as plain nested
//! vectors.
// Every test file is a crate of its own and uses a part of this.
#![allow(dead_code)]
use dibo::algorithm::{Algorithm, State};
use dibo::graph::{ErdosRenyi, List};
use dibo::mixing::{Rule, Sequence};
use dibo::problem::{At, Bilevel, Start};
use dibo::rng::{Purpose, stream};
use dibo::rows::{Stack, Threads, Upper};
use dibo::trace;
use rand::RngExt;
use serde_json::Value;
use std::sync::Arc;

/// One row per agent.
pub type Matrix = Vec<Vec<f64>>;

/// Rows of these widths with numbers in (−1, 1).
pub fn random_rows(widths: &[usize], seed: u64) -> Matrix {
    let mut r = stream(seed, Purpose::Start, 0, 0);
    widths.iter().map(|w| (0..*w).map(|_| r.random_range(-1.0..1.0)).collect()).collect()
}

/// Different points for every agent and variable, so that nothing is hidden by a symmetric start.
pub fn random_start(problem: &dyn Bilevel<f64>, seed: u64) -> Start {
    let n = problem.agents();
    let upper = match problem.upper() {
        Upper::Shared(width) => vec![width; n],
        Upper::Private(widths) => widths,
    };
    let lower = vec![problem.lower(); n];
    let [x, y, z, v] = [(0, &upper), (1, &lower), (2, &lower), (3, &lower)]
        .map(|(part, w)| random_rows(w, 10 * seed + part));
    Start { x, y, z, v }
}

/// Strongly connected graphs that change at every iteration and are nowhere regular: unequal in- and
/// out-degrees.
pub fn unbalanced(n: usize, seed: u64) -> Sequence {
    Sequence::uniform(ErdosRenyi::new(n, 0.35, seed, true))
}

/// An algorithm of the registry with these parameters.
pub fn algorithm(name: &str, parameters: Value) -> Box<dyn Algorithm<f64>> {
    let Value::Object(parameters) = parameters else { panic!("{name}: parameters are an object") };
    let found = trace::algorithm(name, parameters).unwrap_or_else(|e| panic!("{name}: {e}"));
    found.check().unwrap_or_else(|e| panic!("{name}: {e}"));
    found
}

/// The graphs and weights an algorithm wants: those of iteration 0 for ever, undirected ones with Metropolis
/// weights, one graph for ever, or these as they are.
pub fn as_wanted(algorithm: &dyn Algorithm<f64>, sequence: &Sequence) -> Sequence {
    let needs = algorithm.graph_needs();
    if !needs.doubly_stochastic {
        return if algorithm.wishes().frozen_weights { sequence.clone().frozen() } else { sequence.clone() };
    }
    // A prime number of graphs: no method's rounds are a multiple of it.
    let count = if needs.one_graph { 1 } else { 151 };
    let both_ways = |k: usize| {
        let graph = sequence.graphs().at(k);
        graph.union(&graph.reversed())
    };
    let graphs = List::new((0..count).map(both_ways).collect());
    let wanted = Sequence::new(Arc::new(graphs), Rule::Metropolis { lazy: false }).unwrap();
    wanted.check(needs).unwrap();
    wanted
}

/// Whether a problem has what an algorithm asks for.
pub fn applies(algorithm: &dyn Algorithm<f64>, problem: &dyn Bilevel<f64>) -> bool {
    algorithm.needs().met_by(problem)
}

/// A variable of a state, one row per agent.
pub fn variable(state: &mut dyn State<f64>, name: &str) -> Option<Matrix> {
    let views = state.views();
    let view = views.iter().find(|v| v.name == name)?;
    Some((0..view.rows.count()).map(|i| view.row(i).to_vec()).collect())
}

/// Everything a state shows, by name.
pub fn variables(state: &mut dyn State<f64>) -> Vec<(&'static str, Matrix)> {
    state.views().iter().map(|v| (v.name, (0..v.rows.count()).map(|i| v.row(i).to_vec()).collect())).collect()
}

/// |got − expected| ≤ rtol·|expected| + rtol/100, number by number.
pub fn assert_close(got: &[Vec<f64>], expected: &[Vec<f64>], rtol: f64, place: &str) {
    assert_eq!(got.len(), expected.len(), "{place}: rows");
    for (i, (g, e)) in got.iter().zip(expected).enumerate() {
        assert_eq!(g.len(), e.len(), "{place}: width of row {i}");
        for (c, (g, e)) in g.iter().zip(e).enumerate() {
            assert!(
                (g - e).abs() <= rtol * e.abs() + rtol / 100.0,
                "{place}, agent {i}, column {c}: {g} instead of {e}"
            );
        }
    }
}

/// ∇F_i of the single-level objective at one agent's x.
pub fn single_level_gradient(problem: &dyn Bilevel<f64>, agent: usize, k: usize, x: &[f64]) -> Vec<f64> {
    let mut at_x: Stack<f64, 1> = Stack::zeros(1, &Upper::Shared(x.len()), &[]);
    at_x.row_mut(0)[0].copy_from_slice(x);
    let mut d = at_x.clone();
    let at = At { k, owned: &[agent], threads: &Threads::one() };
    problem.single_level().expect("the problem has one").gradients(at, &at_x, &mut d).unwrap();
    d.row(0)[0].to_vec()
}

/// (∇ₓf_i, ∇ᵧf_i).
pub fn grad_f(
    problem: &dyn Bilevel<f64>,
    agent: usize,
    k: usize,
    x: &[f64],
    y: &[f64],
) -> (Vec<f64>, Vec<f64>) {
    let (mut gx, mut gy) = (vec![f64::NAN; x.len()], vec![f64::NAN; y.len()]);
    problem.grad_f(agent, k, x, y, &mut gx, &mut gy).unwrap();
    (gx, gy)
}

/// (∇ₓg_i, ∇ᵧg_i).
pub fn grad_g(
    problem: &dyn Bilevel<f64>,
    agent: usize,
    k: usize,
    x: &[f64],
    y: &[f64],
) -> (Vec<f64>, Vec<f64>) {
    let (mut gx, mut gy) = (vec![f64::NAN; x.len()], vec![f64::NAN; y.len()]);
    problem.grad_g(agent, k, x, y, &mut gx, &mut gy).unwrap();
    (gx, gy)
}

/// (∇²ₓᵧg_i·v, ∇²ᵧᵧg_i·v).
pub fn products(
    problem: &dyn Bilevel<f64>,
    agent: usize,
    k: usize,
    x: &[f64],
    y: &[f64],
    v: &[f64],
) -> (Vec<f64>, Vec<f64>) {
    let (mut xy, mut yy) = (vec![f64::NAN; x.len()], vec![f64::NAN; y.len()]);
    let second = problem.second_order().expect("the problem has them");
    second.xy(agent, k, x, y, v, &mut xy).unwrap();
    second.yy(agent, k, x, y, v, &mut yy).unwrap();
    (xy, yy)
}
