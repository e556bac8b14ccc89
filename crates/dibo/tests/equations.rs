//! Every algorithm against the paper's equations, written out index by index: plain loops, dense matrices, no
//! kernel of dibo's. Only the weights a_ij, b_ij and the problems' gradients and products are taken from the
//! library (tests/gradients.rs checks those).
mod common;
use common::*;
use dibo::mixing::{Mixing, Sequence};
use dibo::network::{Network, Simulator};
use dibo::problem::{At, Bilevel, Instance, NoiseOn, PolicyEvaluation, Quadratic, SingleLevel, Start};
use dibo::rng::{Purpose, stream};
use dibo::rows::{Stack, Threads, Upper};
use rand::RngExt;
use serde_json::{Value, json};

const ITERATIONS: usize = 30;

/// How far apart numbers may be, relatively. FAB's dx is a difference of gradients times λ: rounding counts
/// more there.
fn rtol(name: &str) -> f64 {
    if name.ends_with("fab") { 1e-10 } else { 1e-12 }
}

/// A problem over graphs from a start.
struct Case {
    name: &'static str,
    problem: Box<dyn Bilevel<f64>>,
    sequence: Sequence,
    start: Start,
}

fn case(name: &'static str, problem: impl Bilevel<f64> + 'static, sequence: Sequence, seed: u64) -> Case {
    let start = random_start(&problem, seed);
    Case { name, problem: Box::new(problem), sequence, start }
}

fn cases() -> Vec<Case> {
    vec![
        case("policy evaluation", PolicyEvaluation::random(6, 11, 4, 1), unbalanced(6, 1), 1),
        case("policy evaluation with few states", PolicyEvaluation::random(5, 3, 2, 2), unbalanced(5, 2), 2),
        case(
            "policy evaluation, own features, noise on states",
            Instance { agents: 7, states: 9, feature_patterns: 7, ..Instance::default() }
                .random(3)
                .unwrap()
                .noise(0.3, NoiseOn::State, 5),
            unbalanced(7, 3),
            3,
        ),
        case(
            "policy evaluation, noise on transitions",
            PolicyEvaluation::random(5, 20, 3, 4).noise(0.5, NoiseOn::Transition, 6),
            unbalanced(5, 4),
            4,
        ),
        case("quadratic", Quadratic::random(5, 3, 4, 5, false), unbalanced(5, 5), 5),
        case("indefinite quadratic", Quadratic::random(7, 4, 2, 6, true), unbalanced(7, 6), 6),
        case("quadratic, given matrices", Quadratic::random(6, 2, 9, 7, false), given_matrices(6, 7), 7),
    ]
}

/// Three pairs of random stochastic matrices with different weights on every link.
fn given_matrices(n: usize, seed: u64) -> Sequence {
    let graphs = unbalanced(n, seed);
    let mut r = stream(seed, Purpose::Graph, 1, 0);
    let pairs = (0..3).map(|k| {
        let graph = graphs.graphs().at(k);
        let mut random = || -> Matrix {
            let linked = |i: usize, j: usize| graph.senders(i).contains(&(j as u32));
            (0..n)
                .map(|i| (0..n).map(|j| if linked(i, j) { r.random_range(0.2..1.0) } else { 0.0 }).collect())
                .collect()
        };
        let (mut a, mut b) = (random(), random());
        for i in 0..n {
            let row: f64 = a[i].iter().sum();
            a[i].iter_mut().for_each(|w| *w /= row);
            let column: f64 = (0..n).map(|l| b[l][i]).sum();
            (0..n).for_each(|l| b[l][i] /= column);
        }
        (a, b)
    });
    Sequence::given(pairs.collect()).unwrap()
}

/// A^k and B^k as dense matrices.
type Weights<'a> = dyn Fn(usize) -> (Matrix, Matrix) + 'a;

fn weights(sequence: &Sequence) -> impl Fn(usize) -> (Matrix, Matrix) {
    move |k| {
        let (m, n): (Mixing<f64>, _) = (sequence.at(k), sequence.agents());
        let dense = |entry: &dyn Fn(usize, usize) -> f64| {
            (0..n).map(|i| (0..n).map(|j| entry(i, j)).collect()).collect()
        };
        (dense(&|i, j| m.a(i, j)), dense(&|i, j| m.b(i, j)))
    }
}

/// Σ_j w_ij v_j for every i.
fn mixed(w: &Matrix, v: &Matrix) -> Matrix {
    let mut out = v.clone();
    for i in 0..v.len() {
        for c in 0..v[i].len() {
            let mut sum = 0.0;
            for j in 0..v.len() {
                sum += w[i][j] * v[j][c];
            }
            out[i][c] = sum;
        }
    }
    out
}

/// a + s·b.
fn plus(a: &Matrix, s: f64, b: &Matrix) -> Matrix {
    a.iter().zip(b).map(|(a, b)| a.iter().zip(b).map(|(a, b)| a + s * b).collect()).collect()
}

fn divided(u: &Matrix, w: &Matrix) -> Matrix {
    u.iter().zip(w).map(|(u, w)| u.iter().map(|u| u / w[0]).collect()).collect()
}

/// What the equations say a state holds.
type Expected = Vec<(&'static str, Matrix)>;

/// Runs the algorithm next to the equations; `next(k)` gives the variables after k iterations.
fn compare(case: &Case, name: &str, parameters: Value, mut next: impl FnMut(usize) -> Expected) {
    let algorithm = algorithm(name, parameters);
    let mut network = Simulator::new(as_wanted(&*algorithm, &case.sequence), Threads::one());
    let mut state = algorithm.start(&*case.problem, &mut network, Some(&case.start)).unwrap();
    for k in 0..=ITERATIONS {
        for (variable_name, expected) in next(k) {
            let place = format!("{name} on {} after {k} iterations: {variable_name}", case.name);
            let got = variable(&mut *state, variable_name).unwrap_or_else(|| panic!("{place} is missing"));
            assert_close(&got, &expected, rtol(name), &place);
        }
        if k < ITERATIONS {
            state.step(k, &*case.problem, &mut network).unwrap();
        }
    }
    let moved = plus(&variable(&mut *state, "x").unwrap(), -1.0, &case.start.x)
        .iter()
        .flatten()
        .fold(0.0, |m: f64, v| m.max(v.abs()));
    assert!(
        moved > 1e-4 && moved < 1e3,
        "{name} on {}: x moved by {moved}, so the comparison means little",
        case.name
    );
}

/// (5): the directions at (x, y, z); `lambda` is that of the iteration.
fn penalty_directions(
    problem: &dyn Bilevel<f64>,
    k: usize,
    lambda: f64,
    normalised: bool,
    [x, y, z]: &[Matrix; 3],
) -> [Matrix; 3] {
    let mut d = [x.clone(), y.clone(), z.clone()];
    for i in 0..x.len() {
        let (fx, fy) = grad_f(problem, i, k, &x[i], &y[i]);
        let (gx, gy) = grad_g(problem, i, k, &x[i], &y[i]);
        let (gx_z, gy_z) = grad_g(problem, i, k, &x[i], &z[i]);
        let scale = if normalised { lambda } else { 1.0 };
        for c in 0..x[i].len() {
            d[0][i][c] = (fx[c] + lambda * (gx[c] - gx_z[c])) / scale;
        }
        for c in 0..y[i].len() {
            d[1][i][c] = (fy[c] + lambda * gy[c]) / scale;
            d[2][i][c] = lambda * gy_z[c] / scale;
        }
    }
    d
}

/// A step or penalty as a function of k with its JSON: constants, start/(1 + decay·k), start·(k+1)^power.
struct Steps {
    json: Value,
    lambda: fn(usize) -> f64,
    eta: [fn(usize) -> f64; 3],
}

fn steps() -> Vec<Steps> {
    vec![
        Steps {
            json: json!({"lambda": 3.0, "eta_x": 0.05, "eta_y": 0.03, "eta_z": 0.04}),
            lambda: |_| 3.0,
            eta: [|_| 0.05, |_| 0.03, |_| 0.04],
        },
        // Without eta_z, z takes y's step.
        Steps {
            json: json!({
                "lambda": {"start": 2.0, "power": 0.25},
                "eta_x": {"start": 0.05, "decay": 0.1},
                "eta_y": {"start": 0.04, "power": -0.33}
            }),
            lambda: |k| 2.0 * ((k + 1) as f64).powf(0.25),
            eta: [
                |k| 0.05 / (1.0 + 0.1 * k as f64),
                |k| 0.04 * ((k + 1) as f64).powf(-0.33),
                |k| 0.04 * ((k + 1) as f64).powf(-0.33),
            ],
        },
    ]
}

/// All of FAB's settings: schedules and penalty forms.
fn fab_settings() -> Vec<(Steps, bool, Value)> {
    let mut all = Vec::new();
    for normalised in [false, true] {
        for steps in steps() {
            let mut json = steps.json.clone();
            json["penalty_form"] = json!(if normalised { "normalised" } else { "written" });
            all.push((steps, normalised, json));
        }
    }
    all
}

/// FAB, Algorithm 1, over any matrices.
fn fab<'a>(
    case: &'a Case,
    steps: Steps,
    normalised: bool,
    weights: &'a Weights<'a>,
) -> impl FnMut(usize) -> Expected + 'a {
    let problem = &*case.problem;
    let mut v = [case.start.x.clone(), case.start.y.clone(), case.start.z.clone()];
    let mut d = penalty_directions(problem, 0, (steps.lambda)(0), normalised, &v);
    let mut t = d.clone();
    move |after| {
        if after > 0 {
            let k = after - 1;
            let (a, b) = weights(k);
            // (4)
            let mut new_v = v.clone();
            for xi in 0..3 {
                new_v[xi] = plus(&mixed(&a, &v[xi]), -(steps.eta[xi])(k), &t[xi]);
            }
            // (5)
            let new_d = penalty_directions(problem, k + 1, (steps.lambda)(k + 1), normalised, &new_v);
            // (6)
            for xi in 0..3 {
                t[xi] = plus(&plus(&mixed(&b, &t[xi]), 1.0, &new_d[xi]), -1.0, &d[xi]);
            }
            (v, d) = (new_v, new_d);
        }
        let names = ["x", "y", "z", "tx", "ty", "tz", "dx", "dy", "dz"];
        names.into_iter().zip(v.iter().chain(&t).chain(&d).cloned()).collect()
    }
}

#[test]
fn fab_is_algorithm_1() {
    for case in cases() {
        for (steps, normalised, json) in fab_settings() {
            compare(&case, "fab", json, fab(&case, steps, normalised, &weights(&case.sequence)));
        }
    }
}

#[test]
fn static_fab_keeps_the_first_weights_and_loses_messages() {
    let mut lost = 0;
    for case in cases() {
        let (a0, b0) = weights(&case.sequence)(0);
        // A message over a link that is missing at k does not arrive; every agent still hears itself.
        let surviving = |k: usize| {
            let (graph, mut a, mut b) = (case.sequence.graphs().at(k), a0.clone(), b0.clone());
            for i in 0..a.len() {
                for j in 0..a.len() {
                    if !graph.senders(i).contains(&(j as u32)) {
                        (a[i][j], b[i][j]) = (0.0, 0.0);
                    }
                }
            }
            (a, b)
        };
        lost += usize::from((0..ITERATIONS).any(|k| surviving(k) != (a0.clone(), b0.clone())));
        for (steps, normalised, json) in fab_settings() {
            compare(&case, "static-fab", json, fab(&case, steps, normalised, &surviving));
        }
    }
    assert!(lost > 3, "links fail in most cases, or this tests nothing");
}

#[test]
fn centralized_fab_descends_along_the_mean_direction() {
    for case in cases() {
        for (steps, normalised, json) in fab_settings() {
            let n = case.problem.agents();
            let mean = |rows: &Matrix| -> Vec<f64> {
                (0..rows[0].len()).map(|c| (0..n).map(|i| rows[i][c]).sum::<f64>() / n as f64).collect()
            };
            let everywhere = |row: Vec<f64>| vec![row; n];
            let mut v = [&case.start.x, &case.start.y, &case.start.z].map(|start| everywhere(mean(start)));
            compare(&case, "centralized-fab", json, |after| {
                if after > 0 {
                    let k = after - 1;
                    let d = penalty_directions(&*case.problem, k, (steps.lambda)(k), normalised, &v);
                    for xi in 0..3 {
                        v[xi] = plus(&v[xi], -(steps.eta[xi])(k), &everywhere(mean(&d[xi])));
                    }
                }
                ["x", "y", "z"].into_iter().zip(v.iter().cloned()).collect()
            });
        }
    }
}

#[test]
fn push_sum_fab_is_algorithm_3_with_its_three_weights() {
    for case in cases() {
        for (steps, normalised, json) in fab_settings() {
            let (problem, weights) = (&*case.problem, weights(&case.sequence));
            let mut v = [case.start.x.clone(), case.start.y.clone(), case.start.z.clone()];
            let mut w = [0, 1, 2].map(|_| vec![vec![1.0]; v[0].len()]);
            let mut corrected = v.clone();
            let mut d = penalty_directions(problem, 0, (steps.lambda)(0), normalised, &corrected);
            let mut t = d.clone();
            compare(&case, "push-sum-fab", json, |after| {
                if after > 0 {
                    let k = after - 1;
                    let (_, b) = weights(k);
                    for xi in 0..3 {
                        v[xi] = mixed(&b, &plus(&v[xi], -(steps.eta[xi])(k), &t[xi]));
                        w[xi] = mixed(&b, &w[xi]);
                        corrected[xi] = divided(&v[xi], &w[xi]);
                    }
                    let new_d =
                        penalty_directions(problem, k + 1, (steps.lambda)(k + 1), normalised, &corrected);
                    for xi in 0..3 {
                        t[xi] = plus(&mixed(&b, &t[xi]), 1.0, &plus(&new_d[xi], -1.0, &d[xi]));
                    }
                    d = new_d;
                }
                let names = ["x", "y", "z", "w", "w", "w", "tx", "ty", "tz", "dx", "dy", "dz"];
                names.into_iter().zip(corrected.iter().chain(&w).chain(&t).chain(&d).cloned()).collect()
            });
        }
    }
}

#[test]
fn push_pull_soba_is_algorithm_4() {
    let directions = |problem: &dyn Bilevel<f64>, k: usize, [x, y, v]: &[Matrix; 3]| -> [Matrix; 3] {
        let mut d = [x.clone(), y.clone(), v.clone()];
        for i in 0..x.len() {
            let (fx, fy) = grad_f(problem, i, k, &x[i], &y[i]);
            let (xy, yy) = products(problem, i, k, &x[i], &y[i], &v[i]);
            d[0][i] = fx.iter().zip(&xy).map(|(f, p)| f - p).collect();
            d[1][i] = grad_g(problem, i, k, &x[i], &y[i]).1;
            d[2][i] = yy.iter().zip(&fy).map(|(p, f)| p - f).collect();
        }
        d
    };
    for case in cases() {
        let given = json!({"eta_x": 0.03, "eta_y": {"start": 0.06, "decay": 0.05}, "eta_v": 0.05});
        let without = json!({"eta_x": 0.03, "eta_y": {"start": 0.06, "decay": 0.05}});
        for (json, eta_v) in [(given, None), (without, Some(()))] {
            let eta_y = |k: usize| 0.06 / (1.0 + 0.05 * k as f64);
            let eta = |k: usize| [0.03, eta_y(k), eta_v.map_or(0.05, |()| eta_y(k))];
            let (problem, weights) = (&*case.problem, weights(&case.sequence));
            let mut v = [case.start.x.clone(), case.start.y.clone(), case.start.v.clone()];
            let mut d = directions(problem, 0, &v);
            let mut t = d.clone();
            compare(&case, "push-pull-soba", json, |after| {
                if after > 0 {
                    let k = after - 1;
                    let (a, b) = weights(k);
                    for xi in 0..3 {
                        v[xi] = plus(&mixed(&a, &v[xi]), -eta(k)[xi], &t[xi]);
                    }
                    let new_d = directions(problem, k + 1, &v);
                    for xi in 0..3 {
                        t[xi] = plus(&mixed(&b, &t[xi]), 1.0, &plus(&new_d[xi], -1.0, &d[xi]));
                    }
                    d = new_d;
                }
                let names = ["x", "y", "v", "tx", "ty", "tv", "dx", "dy", "dv"];
                names.into_iter().zip(v.iter().chain(&t).chain(&d).cloned()).collect()
            });
        }
    }
}

/// The single-level methods, each as its authors write it.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// x⁺ = A x − η t, t⁺ = B t + ∇F(x⁺) − ∇F(x).
    PushPull,
    /// u⁺ = B(u − η t), w⁺ = B w, x⁺ = u⁺/w⁺, t⁺ = B t + ∇F(x⁺) − ∇F(x).
    PushDiging,
    /// u⁺ = B s, w⁺ = B w, x⁺ = u⁺/w⁺, s⁺ = u⁺ − η/√(k+1) ∇F(x⁺).
    SubgradientPush,
    /// u⁺ = B(u − η ∇F(x)), w⁺ = B w, x⁺ = u⁺/w⁺.
    PushSgd,
    /// Push-DIGing (with tracking) or Push-SGD (without) on SAGA's estimate.
    PushSaga { tracking: bool },
    /// Push-DIGing on d⁺ = ∇F(x⁺;ξ⁺) + (1 − β)(d − ∇F(x;ξ⁺)).
    PushAsgd { beta: f64 },
}

/// Gradients of all agents: `gradient(network, k, points)`. The double loop sends messages while it finds
/// them.
type Gradient<'a> = dyn FnMut(&mut Links<'_>, usize, &Matrix) -> Matrix + 'a;

/// Hands out the matrices of one round after another.
struct Links<'a> {
    weights: &'a Weights<'a>,
    round: usize,
}

impl Links<'_> {
    fn next(&mut self) -> (Matrix, Matrix) {
        self.round += 1;
        (self.weights)(self.round - 1)
    }
}

/// One method with its memory.
struct Method {
    kind: Kind,
    eta: fn(usize) -> f64,
    x: Matrix,
    /// Numerator of push-sum; s in subgradient-push.
    u: Matrix,
    w: Matrix,
    t: Matrix,
    d: Matrix,
    /// SAGA's last gradient of each block.
    table: Vec<Matrix>,
}

impl Method {
    fn new(
        kind: Kind,
        eta: fn(usize) -> f64,
        x: Matrix,
        blocks: usize,
        links: &mut Links<'_>,
        gradient: &mut Gradient<'_>,
    ) -> Self {
        // Only methods with a memory of gradients need one before the first iteration; SAGA's table has the
        // gradient of every block there.
        let mut table = Vec::new();
        let d = match kind {
            Kind::PushSgd | Kind::SubgradientPush => Vec::new(),
            Kind::PushSaga { tracking: false } if blocks == 1 => Vec::new(),
            Kind::PushSaga { .. } => {
                table = (0..blocks).map(|b| gradient(links, b, &x)).collect();
                let zero = plus(&x, -1.0, &x);
                table.iter().fold(zero, |sum, g| plus(&sum, 1.0 / blocks as f64, g))
            }
            _ => gradient(links, 0, &x),
        };
        table.resize(blocks, Vec::new());
        let w = vec![vec![1.0]; x.len()];
        Method { kind, eta, u: x.clone(), w, x, t: d.clone(), table, d }
    }

    /// u⁺ = B u, w⁺ = B w, x⁺ = u⁺/w⁺.
    fn push(&mut self, b: &Matrix) {
        self.u = mixed(b, &self.u);
        self.w = mixed(b, &self.w);
        self.x = divided(&self.u, &self.w);
    }

    fn track(&mut self, b: &Matrix, new_d: Matrix) {
        self.t = plus(&plus(&mixed(b, &self.t), 1.0, &new_d), -1.0, &self.d);
        self.d = new_d;
    }

    /// The sample of iteration k: of SAGA's blocks one is drawn, the same number by all agents.
    fn sample(&self, k: usize) -> usize {
        let blocks = self.table.len();
        k / blocks * blocks + stream(0, Purpose::Batch, 0, k as u64).random_range(0..blocks)
    }

    /// SAGA: ∇F_b(x) − table_b + mean(table), then table_b = ∇F_b(x), where b is the block of sample k.
    fn saga(&mut self, k: usize, gradient: Matrix) -> Matrix {
        let blocks = self.table.len();
        if self.table[0].is_empty() {
            self.table = vec![gradient.clone(); blocks];
        }
        let mut estimate = plus(&gradient, -1.0, &self.table[k % blocks]);
        for old in &self.table {
            estimate = plus(&estimate, 1.0 / blocks as f64, old);
        }
        self.table[k % blocks] = gradient;
        estimate
    }

    fn step(&mut self, k: usize, links: &mut Links<'_>, gradient: &mut Gradient<'_>) {
        let eta = (self.eta)(k);
        match self.kind {
            Kind::PushPull => {
                let (a, b) = links.next();
                self.x = plus(&mixed(&a, &self.x), -eta, &self.t);
                let new_d = gradient(links, k + 1, &self.x);
                self.track(&b, new_d);
            }
            Kind::PushDiging => {
                let (_, b) = links.next();
                self.u = plus(&self.u, -eta, &self.t);
                self.push(&b);
                let new_d = gradient(links, k + 1, &self.x);
                self.track(&b, new_d);
            }
            Kind::SubgradientPush => {
                let (_, b) = links.next();
                self.push(&b);
                let d = gradient(links, k + 1, &self.x);
                self.u = plus(&self.u, -eta / ((k + 1) as f64).sqrt(), &d);
            }
            Kind::PushSgd => {
                let d = gradient(links, k, &self.x);
                let (_, b) = links.next();
                self.u = plus(&self.u, -eta, &d);
                self.push(&b);
            }
            Kind::PushSaga { tracking: false } => {
                let sample = self.sample(k);
                let d = gradient(links, sample, &self.x);
                let d = self.saga(sample, d);
                let (_, b) = links.next();
                self.u = plus(&self.u, -eta, &d);
                self.d = d;
                self.push(&b);
            }
            Kind::PushSaga { tracking: true } => {
                let (_, b) = links.next();
                self.u = plus(&self.u, -eta, &self.t);
                self.push(&b);
                let sample = self.sample(k + 1);
                let new_d = gradient(links, sample, &self.x);
                let new_d = self.saga(sample, new_d);
                self.track(&b, new_d);
            }
            Kind::PushAsgd { beta } => {
                let (_, b) = links.next();
                let before = self.x.clone();
                self.u = plus(&self.u, -eta, &self.t);
                self.push(&b);
                let old = gradient(links, k + 1, &before);
                let new = gradient(links, k + 1, &self.x);
                self.track(&b, plus(&new, 1.0 - beta, &plus(&self.d, -1.0, &old)));
            }
        }
    }

    fn expected(&self) -> Expected {
        let mut all = vec![("x", self.x.clone())];
        if self.kind != Kind::PushPull {
            all.push(("w", self.w.clone()));
        }
        match self.kind {
            Kind::SubgradientPush | Kind::PushSgd => {}
            Kind::PushSaga { tracking: false } if self.d.is_empty() => {}
            Kind::PushSaga { tracking: false } => all.push(("dx", self.d.clone())),
            _ => all.extend([("tx", self.t.clone()), ("dx", self.d.clone())]),
        }
        all
    }
}

/// Name, equations, JSON and step of every single-level method.
type Setting = (&'static str, Kind, Value, fn(usize) -> f64);

fn single_level_settings() -> Vec<Setting> {
    let falling = json!({"start": 0.1, "decay": 0.05});
    let eta: fn(usize) -> f64 = |k| 0.1 / (1.0 + 0.05 * k as f64);
    vec![
        ("push-pull", Kind::PushPull, json!({"eta": falling}), eta),
        ("push-diging", Kind::PushDiging, json!({"eta": falling}), eta),
        ("subgradient-push", Kind::SubgradientPush, json!({"eta": falling}), eta),
        ("push-sgd", Kind::PushSgd, json!({"eta": falling}), eta),
        ("push-saga", Kind::PushSaga { tracking: true }, json!({"eta": falling}), eta),
        ("push-saga", Kind::PushSaga { tracking: false }, json!({"eta": 0.07, "tracking": false}), |_| 0.07),
        ("push-asgd", Kind::PushAsgd { beta: 0.3 }, json!({"eta": falling, "beta": 0.3}), eta),
        ("push-asgd", Kind::PushAsgd { beta: 1.0 }, json!({"eta": falling, "beta": 1.0}), eta),
    ]
}

#[test]
fn single_level_methods_are_as_their_authors_write_them() {
    let mut all = cases();
    all.push(case("blocks", Blocks::random(6, 3, 4), unbalanced(6, 8), 8));
    for case in all {
        for (name, kind, json, eta) in single_level_settings() {
            let weights = weights(&case.sequence);
            let mut links = Links { weights: &weights, round: 0 };
            let mut gradient = |_: &mut Links<'_>, k: usize, x: &Matrix| -> Matrix {
                x.iter().enumerate().map(|(i, x)| single_level_gradient(&*case.problem, i, k, x)).collect()
            };
            let blocks = case.problem.single_level().unwrap().blocks();
            let mut method = Method::new(kind, eta, case.start.x.clone(), blocks, &mut links, &mut gradient);
            compare(&case, name, json, |after| {
                if after > 0 {
                    method.step(after - 1, &mut links, &mut gradient);
                }
                method.expected()
            });
        }
    }
}

/// Data in blocks: F_i is the mean over b of q_ib/2 ‖x − c_ib‖², and iteration k sees block k mod their
/// number.
struct Blocks {
    q: Matrix,
    c: Vec<Matrix>,
}

impl Blocks {
    fn random(agents: usize, blocks: usize, width: usize) -> Self {
        let q = random_rows(&vec![blocks; agents], 70)
            .iter()
            .map(|row| row.iter().map(|q| 1.5 + q).collect())
            .collect();
        Blocks { q, c: (0..agents).map(|i| random_rows(&vec![width; blocks], 80 + i as u64)).collect() }
    }
}

impl Bilevel<f64> for Blocks {
    fn agents(&self) -> usize {
        self.q.len()
    }
    fn upper(&self) -> Upper {
        Upper::Shared(self.c[0][0].len())
    }
    fn lower(&self) -> usize {
        1
    }
    fn grad_f(
        &self,
        _: usize,
        _: usize,
        _: &[f64],
        _: &[f64],
        _: &mut [f64],
        _: &mut [f64],
    ) -> dibo::Result<()> {
        unreachable!("a single-level problem has no f and g")
    }
    fn grad_g(
        &self,
        _: usize,
        _: usize,
        _: &[f64],
        _: &[f64],
        _: &mut [f64],
        _: &mut [f64],
    ) -> dibo::Result<()> {
        unreachable!("a single-level problem has no f and g")
    }
    fn single_level(&self) -> Option<&dyn SingleLevel<f64>> {
        Some(self)
    }
}

impl SingleLevel<f64> for Blocks {
    fn agents(&self) -> usize {
        self.q.len()
    }
    fn width(&self) -> usize {
        self.c[0][0].len()
    }
    fn blocks(&self) -> usize {
        self.q[0].len()
    }
    fn gradients(&self, at: At<'_>, x: &Stack<f64, 1>, d: &mut Stack<f64, 1>) -> dibo::Result<()> {
        for (row, agent) in at.owned.iter().enumerate() {
            let block = at.k % self.blocks();
            let ([x], [d]) = (x.row(row), d.row_mut(row));
            (0..d.len()).for_each(|c| d[c] = self.q[*agent][block] * (x[c] - self.c[*agent][block][c]));
        }
        Ok(())
    }
}

/// The double loop: T iterations of the method on ∇ᵧg(x, ·), then the hypergradient through the agent's own
/// path y_0 … y_T: h = ∇ₓf(x, y_T), p = ∇ᵧf(x, y_T); for t = T−1 … 0: h −= α ∇²ₓᵧg(x, y_t) p, p −= α ∇²ᵧᵧg(x,
/// y_t) p.
#[test]
fn double_loops_differentiate_their_inner_iterations() {
    const INNER: usize = 4;
    let all = [true, false].into_iter().flat_map(|fresh| cases().into_iter().map(move |case| (case, fresh)));
    for (case, fresh) in all {
        for (name, kind, json, eta) in single_level_settings() {
            if matches!(kind, Kind::PushDiging | Kind::SubgradientPush) {
                continue; // The paper has no double loop of these.
            }
            let mut json = json;
            json["inner"] = json!(INNER);
            // A fresh start is what is taken where nothing is said.
            if !fresh {
                json["inner_start"] = json!("kept");
            }
            let (problem, weights) = (&*case.problem, weights(&case.sequence));
            let mut links = Links { weights: &weights, round: 0 };
            let lower_gradient = |x: &Matrix, k: usize, y: &Matrix| -> Matrix {
                (0..x.len()).map(|i| grad_g(problem, i, k, &x[i], &y[i]).1).collect()
            };
            let start_x = case.start.x.clone();
            let mut inner = Method::new(kind, eta, case.start.y.clone(), 1, &mut links, &mut |_, k, y| {
                lower_gradient(&start_x, k, y)
            });
            let hypergradient = |of: usize, sample: usize, x: &Matrix, path: &[Matrix]| -> Matrix {
                let mut h = x.clone();
                for i in 0..x.len() {
                    let (hi, mut p) = grad_f(problem, i, sample, &x[i], &path[INNER][i]);
                    h[i] = hi;
                    for t in (0..INNER).rev() {
                        let (xy, yy) = products(problem, i, sample * INNER + t, &x[i], &path[t][i], &p);
                        let alpha = eta(of * INNER + t);
                        (0..h[i].len()).for_each(|c| h[i][c] -= alpha * xy[c]);
                        (0..p.len()).for_each(|c| p[c] -= alpha * yy[c]);
                    }
                }
                h
            };
            // Every point has an inner loop of its own; who asks again at the same point, with another
            // sample (Push-ASGD), gets the derivative along the path that was found there.
            let mut path: Vec<Matrix> = Vec::new();
            let (mut place, mut of) = (None, 0);
            let mut gradient =
                |links: &mut Links<'_>, sample: usize, x: &Matrix, inner: &mut Method| -> Matrix {
                    if place.as_ref() != Some(x) {
                        (place, of) = (Some(x.clone()), sample);
                        let mut lower = |_: &mut Links<'_>, k: usize, y: &Matrix| lower_gradient(x, k, y);
                        if fresh {
                            *inner =
                                Method::new(kind, eta, case.start.y.clone(), 1, links, &mut |l, k, y| {
                                    lower(l, sample * INNER + k, y)
                                });
                        }
                        path = vec![inner.x.clone()];
                        for t in 0..INNER {
                            inner.step(sample * INNER + t, links, &mut lower);
                            path.push(inner.x.clone());
                        }
                    }
                    hypergradient(of, sample, x, &path)
                };
            let mut outer = Method::new(kind, eta, case.start.x.clone(), 1, &mut links, &mut |l, k, x| {
                gradient(l, k, x, &mut inner)
            });
            compare(&case, &format!("dl-{name}"), json, |after| {
                if after > 0 {
                    outer.step(after - 1, &mut links, &mut |l, k, x| gradient(l, k, x, &mut inner));
                }
                let mut all = outer.expected();
                all.push(("y", inner.x.clone()));
                all
            });
        }
    }
}

#[test]
fn with_full_batches_untracked_push_saga_is_push_sgd() {
    for case in cases() {
        for (saga, sgd) in [("push-saga", "push-sgd"), ("dl-push-saga", "dl-push-sgd")] {
            let algorithm = algorithm(sgd, json!({"eta": 0.1}));
            let mut network = Simulator::new(case.sequence.clone(), Threads::one());
            let mut state = algorithm.start(&*case.problem, &mut network, Some(&case.start)).unwrap();
            compare(&case, saga, json!({"eta": 0.1, "tracking": false}), |after| {
                if after > 0 {
                    state.step(after - 1, &*case.problem, &mut network).unwrap();
                }
                vec![("x", variable(&mut *state, "x").unwrap())]
            });
        }
    }
}

#[test]
fn the_graphs_are_unbalanced() {
    for case in cases() {
        let n = case.sequence.agents();
        let uneven = (0..ITERATIONS).filter(|k| {
            let (a, b) = weights(&case.sequence)(*k);
            (0..n).any(|i| ((0..n).map(|j| a[j][i]).sum::<f64>() - 1.0).abs() > 0.1)
                && (0..n).any(|i| (b[i].iter().sum::<f64>() - 1.0).abs() > 0.1)
        });
        assert!(
            uneven.count() > ITERATIONS * 3 / 4,
            "{}: A must not be column-stochastic, nor B row-stochastic",
            case.name
        );
        let network: Simulator<f64> = Simulator::new(case.sequence.clone(), Threads::one());
        assert_eq!(network.agents(), n);
    }
}
