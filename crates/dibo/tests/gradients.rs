//! Every gradient and product of the problems against central finite differences of values written here from
//! the formulas, the fused kernel against the gradients, closed forms as stationary points, and FAB's fixed
//! point against them.
mod common;
#[path = "gradients/said.rs"]
mod said;

use common::*;
use dibo::algorithm::Algorithm;
use dibo::algorithm::direction::{Call, Direction, NeumannLocal};
use dibo::algorithm::fab::{Fab, PenaltyForm};
use dibo::engine;
use dibo::network::Simulator;
use dibo::problem::{
    At, Bilevel, ClosedForms, Counted, Curved, Matrices, NoiseOn, Penalty, PolicyEvaluation, Products,
    Quadratic, Robust, Waves,
};
use dibo::rows::{Stack, Threads, Upper};

const AGENTS: usize = 4;

/// A policy-evaluation instance whose tables this test knows: Φ differs between agents.
struct Tables {
    phi: Vec<Matrix>,
    p: Matrix,
    r: Matrix,
    gamma: f64,
    tau: f64,
    f_weight: f64,
    g_weight: f64,
}

impl Tables {
    fn random(agents: usize, states: usize, features: usize, seed: u64) -> Self {
        let mut p = random_rows(&vec![states; states], seed);
        for row in &mut p {
            row.iter_mut().for_each(|v| *v += 1.1);
            let sum: f64 = row.iter().sum();
            row.iter_mut().for_each(|v| *v /= sum);
        }
        Tables {
            phi: (0..agents as u64).map(|i| random_rows(&vec![features; states], seed + 100 + i)).collect(),
            p,
            r: random_rows(&vec![states; agents], seed + 50),
            gamma: 0.8,
            tau: 0.15,
            f_weight: 0.7,
            g_weight: 1.3,
        }
    }

    fn problem(&self) -> PolicyEvaluation {
        let features: Vec<&Matrix> = self.phi.iter().collect();
        PolicyEvaluation::from_tables(&features, &self.p, &self.r, self.gamma, self.tau)
            .unwrap()
            .weights(self.f_weight, self.g_weight)
    }

    fn phi_x(&self, i: usize, s: usize, x: &[f64]) -> f64 {
        (0..x.len()).map(|q| self.phi[i][s][q] * x[q]).sum()
    }

    /// (γPΦ_i x)_s.
    fn next_value(&self, i: usize, s: usize, x: &[f64]) -> f64 {
        (0..self.p.len()).map(|next| self.gamma * self.p[s][next] * self.phi_x(i, next, x)).sum()
    }

    /// f_weight/2 ‖Φx − y‖² + τ/2 ‖x‖².
    fn f(&self, i: usize, x: &[f64], y: &[f64]) -> f64 {
        let fit: f64 = (0..y.len()).map(|s| (self.phi_x(i, s, x) - y[s]).powi(2)).sum();
        self.f_weight / 2.0 * fit + self.tau / 2.0 * x.iter().map(|x| x * x).sum::<f64>()
    }

    /// g_weight ‖y − r − γPΦx‖².
    fn g(&self, i: usize, r: &[f64], x: &[f64], y: &[f64]) -> f64 {
        self.g_weight * (0..y.len()).map(|s| (y[s] - r[s] - self.next_value(i, s, x)).powi(2)).sum::<f64>()
    }

    /// f_weight/2 ‖(Φ − γPΦ)x − r‖² + τ/2 ‖x‖².
    fn single(&self, i: usize, r: &[f64], x: &[f64]) -> f64 {
        let fit: f64 =
            (0..r.len()).map(|s| (self.phi_x(i, s, x) - self.next_value(i, s, x) - r[s]).powi(2)).sum();
        self.f_weight / 2.0 * fit + self.tau / 2.0 * x.iter().map(|x| x * x).sum::<f64>()
    }

    /// y*(x): the mean over agents of r_i + γPΦ_i x.
    fn lower_solution(&self, x: &[f64]) -> Vec<f64> {
        let n = self.r.len();
        (0..self.p.len())
            .map(|s| (0..n).map(|i| self.r[i][s] + self.next_value(i, s, x)).sum::<f64>() / n as f64)
            .collect()
    }

    /// F(x, y*(x)).
    fn objective(&self, x: &[f64]) -> f64 {
        let (n, y) = (self.r.len(), self.lower_solution(x));
        (0..n).map(|i| self.f(i, x, &y)).sum::<f64>() / n as f64
    }
}

/// Central differences of a function; exact for quadratics up to rounding.
fn differences(at: &[f64], value: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let h = 1e-3;
    let shifted = |c: usize, by: f64| {
        let mut point = at.to_vec();
        point[c] += by;
        value(&point)
    };
    (0..at.len()).map(|c| (shifted(c, h) - shifted(c, -h)) / (2.0 * h)).collect()
}

fn assert_near(got: &[f64], expected: &[f64], tolerance: f64, place: &str) {
    assert_eq!(got.len(), expected.len(), "{place}: length");
    let scale = expected.iter().fold(1.0, |m: f64, v| m.max(v.abs()));
    for (c, (g, e)) in got.iter().zip(expected).enumerate() {
        assert!((g - e).abs() <= tolerance * scale, "{place}, column {c}: {g} instead of {e}");
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt()
}

fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

#[test]
fn policy_evaluation_gradients_are_those_of_the_formulas() {
    for (states, features) in [(3, 2), (8, 5), (13, 4)] {
        let tables = Tables::random(AGENTS, states, features, 1);
        let problem = tables.problem();
        for i in 0..AGENTS {
            let [x, y, v] =
                [features, states, states].map(|w| random_rows(&[w], 7 + i as u64 + w as u64).remove(0));
            let r = &tables.r[i];
            let (fx, fy) = grad_f(&problem, i, 3, &x, &y);
            assert_near(&fx, &differences(&x, |x| tables.f(i, x, &y)), 1e-9, "∇ₓf");
            assert_near(&fy, &differences(&y, |y| tables.f(i, &x, y)), 1e-9, "∇ᵧf");
            let (gx, gy) = grad_g(&problem, i, 3, &x, &y);
            assert_near(&gx, &differences(&x, |x| tables.g(i, r, x, &y)), 1e-9, "∇ₓg");
            assert_near(&gy, &differences(&y, |y| tables.g(i, r, &x, y)), 1e-9, "∇ᵧg");
            assert_near(
                &single_level_gradient(&problem, i, 3, &x),
                &differences(&x, |x| tables.single(i, r, x)),
                1e-9,
                "∇F",
            );
            // A product with second derivatives is the gradient of ⟨∇ᵧg, v⟩.
            let along_v = |x: &[f64], y: &[f64]| dot(&differences(y, |y| tables.g(i, r, x, y)), &v);
            let (xy, yy) = products(&problem, i, 3, &x, &y, &v);
            assert_near(&xy, &differences(&x, |x| along_v(x, &y)), 1e-7, "∇²ₓᵧg v");
            assert_near(&yy, &differences(&y, |y| along_v(&x, y)), 1e-7, "∇²ᵧᵧg v");
        }
    }
}

#[test]
fn noise_is_one_draw_for_an_agent_and_iteration_with_the_right_spread() {
    let (states, features, omega) = (9, 3, 0.4);
    let tables = Tables::random(AGENTS, states, features, 2);
    let [x, y] = [features, states].map(|w| random_rows(&[w], 9).remove(0));
    let zeros = (vec![0.0; features], vec![0.0; states]);
    for on in [NoiseOn::State, NoiseOn::Transition] {
        let problem = tables.problem().noise(omega, on, 11);
        // At x = y = 0, ∇ᵧg = −2 g_weight r: the observed reward can be read off.
        let observed = |i: usize, k: usize| -> Vec<f64> {
            grad_g(&problem, i, k, &zeros.0, &zeros.1)
                .1
                .iter()
                .map(|g| -g / (2.0 * tables.g_weight))
                .collect()
        };
        for (i, k) in [(0, 0), (1, 5), (3, 1000)] {
            let r = observed(i, k);
            let (gx, gy) = grad_g(&problem, i, k, &x, &y);
            assert_near(&gx, &differences(&x, |x| tables.g(i, &r, x, &y)), 1e-9, "∇ₓg with noise");
            assert_near(&gy, &differences(&y, |y| tables.g(i, &r, &x, y)), 1e-9, "∇ᵧg with noise");
            assert_near(
                &single_level_gradient(&problem, i, k, &x),
                &differences(&x, |x| tables.single(i, &r, x)),
                1e-9,
                "∇F with noise",
            );
        }
        let draws = 4000;
        for s in 0..states {
            let deviation = match on {
                NoiseOn::State => omega,
                NoiseOn::Transition => omega * norm(&tables.p[s]),
            };
            let errors: Vec<f64> =
                (0..draws).map(|k| (observed(2, k)[s] - tables.r[2][s]) / deviation).collect();
            let (mean, square) =
                (errors.iter().sum::<f64>() / draws as f64, dot(&errors, &errors) / draws as f64);
            // Five standard errors of a standard normal's mean and mean square.
            assert!(mean.abs() < 5.0 / (draws as f64).sqrt(), "{on:?}, state {s}: mean {mean}");
            assert!(
                (square - 1.0).abs() < 5.0 * (2.0 / draws as f64).sqrt(),
                "{on:?}, state {s}: variance {square}"
            );
        }
        assert!(
            distance(&observed(0, 1), &observed(0, 2)) > 1e-3
                && distance(&observed(0, 1), &tables.r[0]) > 1e-3
        );
        // f and the closed forms do not see the noise.
        assert_eq!(problem.solution(), tables.problem().solution());
    }
}

/// f_i or g_i of the quadratic problem, from its gradients: along a straight line from 0 a quadratic changes
/// by the mean of the two end slopes.
fn quadratic_value(gradient: impl Fn(&[f64], &[f64]) -> (Vec<f64>, Vec<f64>), x: &[f64], y: &[f64]) -> f64 {
    let ((ax, ay), (bx, by)) = (gradient(&vec![0.0; x.len()], &vec![0.0; y.len()]), gradient(x, y));
    0.5 * (dot(&ax, x) + dot(&bx, x) + dot(&ay, y) + dot(&by, y))
}

/// Gradients and products of the problems whose lower level is not quadratic, from their values.
#[test]
fn curved_and_wavy_lower_levels_are_finite_differences() {
    let input: serde_json::Value = serde_json::from_str(include_str!("data/table-input.json")).unwrap();
    let agents: Vec<Matrices> = serde_json::from_value(input["agents"].clone()).unwrap();
    let (curved, waves) = (Curved::from_matrices(&agents, 0.3).unwrap(), Waves::random(3, 4, 1));
    let problems: [(&dyn Bilevel<f64>, [usize; 2]); 2] = [(&curved, [2, 3]), (&waves, [4, 4])];
    assert_eq!(problems.map(|p| p.0.agents()), [agents.len(), 3]);
    for (problem, [dx, dy]) in problems {
        for i in 0..3 {
            let [x, y, v] = [dx, dy, dy].map(|w| random_rows(&[w], 40 + i as u64 + w as u64).remove(0));
            // A gradient field is one of a function if its derivative is symmetric.
            let along = |x: &[f64], y: &[f64]| dot(&grad_g(problem, i, 0, x, y).1, &v);
            let (xy, yy) = products(problem, i, 0, &x, &y, &v);
            assert_near(&xy, &differences(&x, |x| along(x, &y)), 1e-5, "∇²ₓᵧg v");
            assert_near(&yy, &differences(&y, |y| along(&x, y)), 1e-5, "∇²ᵧᵧg v");
            let u = random_rows(&[dx], 60).remove(0);
            let across = |y: &[f64]| dot(&grad_g(problem, i, 0, &x, y).0, &u);
            assert!((dot(&differences(&y, across), &v) - dot(&xy, &u)).abs() < 1e-5, "∇ₓg belongs to ∇ᵧg");
        }
    }
    // The mean of g is w(y − x − h), and its mean gradient is 0 at y*(x).
    let forms = waves.closed_forms().unwrap();
    let (x, n) = (random_rows(&[4], 61).remove(0), 3);
    let y = forms.lower_solution(&x);
    let mean = |of: &dyn Fn(usize) -> Vec<f64>| -> Vec<f64> {
        (0..4).map(|c| (0..n).map(|i| of(i)[c]).sum::<f64>() / n as f64).collect()
    };
    assert_near(&mean(&|i| grad_g(&waves, i, 0, &x, &y).1), &[0.0; 4], 1e-14, "y*(x)");
    assert_near(&forms.hypergradient(&waves.solution()), &[0.0; 4], 1e-14, "x*");
    let y = random_rows(&[4], 62).remove(0);
    let slope = mean(&|i| grad_g(&waves, i, 0, &x, &y).1);
    assert_near(&slope, &differences(&y, |y| forms.values(&x, y).1), 1e-5, "∇ᵧg");
}

/// The kernel's directions of SOBA are those of gradients and products, agent by agent, with and without
/// noise, and are counted as an agent would take them.
#[test]
fn fused_soba_directions_are_gradients_and_products() {
    for (states, omega) in [(8, 0.0), (20, 0.0), (37, 0.4)] {
        let problem = PolicyEvaluation::random(5, states, 4, 9).noise(omega, NoiseOn::State, 3);
        let counted = Counted::new(&problem, Default::default());
        let mut v: Stack<f64, 3> = Stack::zeros(5, &Upper::Shared(4), &[states, states]);
        for i in 0..5 {
            let rows = random_rows(&[4, states, states], 90 + i as u64);
            v.row_mut(i).into_iter().zip(&rows).for_each(|(to, from)| to.copy_from_slice(from));
        }
        let mut d = v.clone();
        let at = At { k: 3, owned: &[0, 1, 2, 3, 4], threads: &Threads::one() };
        assert!(counted.soba_directions(at, Products::Exact, None, &v, &mut d).unwrap());
        assert!(
            counted
                .soba_directions(at, Products::Differences { delta: 1e-3, relative: true }, None, &v, &mut d)
                .unwrap()
        );
        assert_eq!((counted.calls().gradients, counted.calls().products), (5 * 2 + 5 * 4, 5 * 2));
        for i in 0..5 {
            let ([x, y, z], [dx, dy, dz]) = (v.row(i), d.row(i));
            let ((fx, fy), gy) = (grad_f(&problem, i, 3, x, y), grad_g(&problem, i, 3, x, y).1);
            let (xy, yy) = products(&problem, i, 3, x, y, z);
            let minus = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<_>>();
            assert_near(dx, &minus(&fx, &xy), 1e-13, "dx");
            assert_near(dy, &gy, 1e-13, "dy");
            assert_near(dz, &minus(&yy, &fy), 1e-13, "dz");
        }
        // A series takes no z: rows that have none will do.
        let (curvature, terms) = (3.0, 4);
        let (by, rule) = (Products::Series { curvature, terms }, NeumannLocal { curvature, terms });
        let mut short: Stack<f64, 3> = Stack::zeros(5, &Upper::Shared(4), &[states, 0]);
        for i in 0..5 {
            short
                .row_mut(i)
                .into_iter()
                .zip(v.row(i))
                .for_each(|(to, from)| to.copy_from_slice(&from[..to.len()]));
        }
        let (before, mut series) = (counted.calls(), short.clone());
        assert!(counted.soba_directions(at, by, None, &short, &mut series).unwrap());
        let fused = counted.calls();
        assert_eq!((fused.gradients - before.gradients, fused.products - before.products), (5 * 2, 5 * 4));
        for i in 0..5 {
            let (mut expected, mut workspace) = (short.clone(), vec![0.0; 4 + 3 * states]);
            let call = Call { agent: i, k: 3, only: None };
            rule.of_agent(&counted, call, short.row(i), expected.row_mut(i), &mut workspace).unwrap();
            series
                .row(i)
                .into_iter()
                .zip(expected.row(i))
                .for_each(|(d, e)| assert_near(d, e, 1e-13, "series"));
        }
        let agents = counted.calls();
        assert_eq!((agents.gradients - fused.gradients, agents.products - fused.products), (5 * 2, 5 * 4));
        for wanted in 0..3 {
            let mut alone = v.clone();
            assert!(problem.soba_directions(at, Products::Exact, Some(wanted), &v, &mut alone).unwrap());
            (0..5)
                .for_each(|i| assert_eq!(alone.row(i)[wanted], d.row(i)[wanted], "variable {wanted} alone"));
        }
    }
}

/// Moreau's rule reaches the solution of a problem whose lower level is not convex, from a start where it
/// curves down, up to a bias that falls with μ; SOBA's directions make no sense there.
#[test]
fn moreaus_rule_goes_through_waves() {
    let problem = Waves::random(6, 4, 3);
    let error = |parameters: serde_json::Value| {
        let algorithm = algorithm("cell", parameters);
        let mut network = Simulator::new(unbalanced(6, 12), Threads::one());
        let plan =
            engine::Plan { iterations: 30_000, every: 1000, target: None, diverged_above: 1e6, best: None };
        let record = engine::run(&*algorithm, &problem, &mut network, None, &plan, None, &mut ()).unwrap();
        record.last("relative_error").unwrap()
    };
    let moreau = |mu: f64| {
        error(serde_json::json!({"direction": "moreau", "mixing": "ab", "mu": mu, "gamma": 0.4,
            "eta_x": 0.03, "eta_y": 0.03, "eta_z": 0.03}))
    };
    let (coarse, fine) = (moreau(0.1), moreau(0.03));
    assert!(coarse < 0.1 && fine < 0.5 * coarse, "{coarse} {fine}");
}

#[test]
fn quadratic_gradients_belong_to_one_quadratic_function() {
    for (dx, dy, indefinite) in [(3, 4, false), (5, 2, true), (1, 1, false)] {
        let problem = Quadratic::random(AGENTS, dx, dy, 3, indefinite);
        let mut sizes = Vec::new();
        for i in 0..AGENTS {
            let [x, y, v] = [dx, dy, dy].map(|w| random_rows(&[w], 17 + i as u64 + w as u64).remove(0));
            // If the Hessian were not symmetric (Sᵢ in ∇ₓf but another matrix in ∇ᵧf, say) these would
            // differ.
            let f = |x: &[f64], y: &[f64]| quadratic_value(|x, y| grad_f(&problem, i, 0, x, y), x, y);
            let g = |x: &[f64], y: &[f64]| quadratic_value(|x, y| grad_g(&problem, i, 0, x, y), x, y);
            let (fx, fy) = grad_f(&problem, i, 0, &x, &y);
            assert_near(&fx, &differences(&x, |x| f(x, &y)), 1e-9, "∇ₓf");
            assert_near(&fy, &differences(&y, |y| f(&x, y)), 1e-9, "∇ᵧf");
            let (gx, gy) = grad_g(&problem, i, 0, &x, &y);
            assert_near(&gx, &differences(&x, |x| g(x, &y)), 1e-9, "∇ₓg");
            assert_near(&gy, &differences(&y, |y| g(&x, y)), 1e-9, "∇ᵧg");
            let (xy, yy) = products(&problem, i, 0, &x, &y, &v);
            let along_v = |x: &[f64], y: &[f64]| dot(&grad_g(&problem, i, 0, x, y).1, &v);
            assert_near(&xy, &differences(&x, |x| along_v(x, &y)), 1e-9, "∇²ₓᵧg v");
            assert_near(&yy, &differences(&y, |y| along_v(&x, y)), 1e-9, "∇²ᵧᵧg v");
            assert!(dot(&yy, &v) >= dot(&v, &v) * 0.999, "Hᵢ is at least the identity");
            // g has no term in x alone, f(x, 0) is the single-level objective.
            assert_near(&grad_g(&problem, i, 0, &x, &vec![0.0; dy]).0, &vec![0.0; dx], 1e-15, "∇ₓg(x, 0)");
            assert_near(
                &single_level_gradient(&problem, i, 0, &x),
                &grad_f(&problem, i, 0, &x, &vec![0.0; dy]).0,
                1e-14,
                "∇F",
            );
            sizes.push(norm(&fx));
        }
        assert!(sizes.windows(2).all(|s| s[0] != s[1]), "agents differ");
        // The objective is the mean of f_i at the lower solution.
        let x = random_rows(&[dx], 23).remove(0);
        let y = problem.lower_solution(&x);
        let value = |x: &[f64]| {
            (0..AGENTS).map(|i| quadratic_value(|x, y| grad_f(&problem, i, 0, x, y), x, &y)).sum::<f64>()
                / AGENTS as f64
        };
        assert!((problem.objective(&x) - value(&x)).abs() < 1e-12);
        let slope: Vec<f64> =
            (0..dy).map(|c| (0..AGENTS).map(|i| grad_g(&problem, i, 0, &x, &y).1[c]).sum()).collect();
        assert!(norm(&slope) < 1e-12, "y*(x) is stationary");
    }
}

/// FAB's directions from the gradients, agent by agent, against one call for all.
fn check_directions(problem: &dyn Bilevel<f64>, threads: usize, place: &str) {
    let (n, k, start) = (problem.agents(), 6, random_start(problem, 31));
    let mut v: Stack<f64, 3> = Stack::zeros(n, &problem.upper(), &[problem.lower(), problem.lower()]);
    for i in 0..n {
        v.row_mut(i)
            .into_iter()
            .zip([&start.x[i], &start.y[i], &start.z[i]])
            .for_each(|(to, from)| to.copy_from_slice(from));
    }
    for penalty in [Penalty { f: 1.0, g: 7.0 }, Penalty { f: 1.0 / 60.0, g: 1.0 }] {
        let mut d = v.clone();
        d.shared.data_mut().fill(f64::NAN);
        let owned: Vec<usize> = (0..n).collect();
        problem
            .penalty_directions(At { k, owned: &owned, threads: &Threads::new(threads) }, penalty, &v, &mut d)
            .unwrap();
        for i in 0..n {
            let (x, y, z) = (&start.x[i], &start.y[i], &start.z[i]);
            let ((fx, fy), (gx, gy)) = (grad_f(problem, i, k, x, y), grad_g(problem, i, k, x, y));
            let (gx_z, gy_z) = grad_g(problem, i, k, x, z);
            let [dx, dy, dz] = d.row(i);
            let expected: Vec<f64> =
                (0..x.len()).map(|c| penalty.f * fx[c] + penalty.g * (gx[c] - gx_z[c])).collect();
            assert_near(dx, &expected, 1e-12, &format!("{place}, agent {i}: dx"));
            let expected: Vec<f64> = (0..y.len()).map(|c| penalty.f * fy[c] + penalty.g * gy[c]).collect();
            assert_near(dy, &expected, 1e-12, &format!("{place}, agent {i}: dy"));
            let expected: Vec<f64> = (0..y.len()).map(|c| penalty.g * gy_z[c]).collect();
            assert_near(dz, &expected, 1e-12, &format!("{place}, agent {i}: dz"));
        }
    }
}

#[test]
fn fused_directions_are_the_agents_gradients() {
    // Fewer states than a register, whole registers, overlapping last ones, one and several blocks of four
    // registers; all remainders of features.
    for states in [3, 8, 11, 20, 33, 70] {
        for features in [1, 4, 6, 9] {
            let tables = Tables::random(AGENTS, states, features, 4);
            let place = format!("{states} states, {features} features");
            check_directions(&tables.problem(), 1, &place);
            check_directions(
                &tables.problem().noise(0.3, NoiseOn::Transition, 5),
                1,
                &format!("{place}, noise"),
            );
        }
        let tables = Tables::random(50, states, 5, 6);
        check_directions(&tables.problem(), 3, &format!("{states} states on three threads"));
    }
    check_directions(&Quadratic::random(AGENTS, 3, 5, 7, true), 2, "quadratic");
}

/// A closed form of both problems by one name.
struct Closed<'a> {
    name: &'a str,
    problem: &'a dyn Bilevel<f64>,
    objective: &'a dyn Fn(&[f64]) -> f64,
    hypergradient: &'a dyn Fn(&[f64]) -> Vec<f64>,
    solution: Vec<f64>,
    penalty_solution: &'a dyn Fn(f64) -> Vec<f64>,
}

fn with_closed_forms(check: impl Fn(Closed<'_>)) {
    for features in [1, 5] {
        let tables = Tables::random(AGENTS, 12, features, 8);
        let problem = tables.problem();
        check(Closed {
            name: "policy evaluation",
            problem: &problem,
            // Not the library's: the mean of f_i at the mean lower solution, written above.
            objective: &|x| tables.objective(x),
            hypergradient: &|x| problem.hypergradient(x),
            solution: problem.solution().to_vec(),
            penalty_solution: &|lambda| problem.penalty_solution(lambda),
        });
        let x = random_rows(&[features], 41).remove(0);
        assert!((problem.objective(&x) - tables.objective(&x)).abs() < 1e-12);
    }
    let problem = Quadratic::random(AGENTS, 3, 5, 9, false);
    check(Closed {
        name: "quadratic",
        problem: &problem,
        objective: &|x| problem.objective(x),
        hypergradient: &|x| problem.hypergradient(x),
        solution: problem.solution(),
        penalty_solution: &|lambda| problem.penalty_solution(lambda),
    });
}

/// The mean over agents of a gradient.
fn mean(n: usize, of: impl Fn(usize) -> Vec<f64>) -> Vec<f64> {
    let mut sum = of(0);
    (1..n).for_each(|i| sum.iter_mut().zip(of(i)).for_each(|(s, v)| *s += v));
    sum.iter().map(|s| s / n as f64).collect()
}

/// The minimiser over y of f·F(x, y) + g·G(x, y), by plain descent with the agents' gradients.
fn lower_minimiser(problem: &dyn Bilevel<f64>, x: &[f64], f: f64, g: f64) -> Vec<f64> {
    let (n, mut y) = (problem.agents(), vec![0.0; problem.lower()]);
    let step = 0.2 / (f + g);
    for _ in 0..2000 {
        let slope = mean(n, |i| {
            let (of_f, of_g) = (grad_f(problem, i, 0, x, &y).1, grad_g(problem, i, 0, x, &y).1);
            of_f.iter().zip(&of_g).map(|(a, b)| f * a + g * b).collect()
        });
        y.iter_mut().zip(slope).for_each(|(y, s)| *y -= step * s);
    }
    y
}

#[test]
fn hypergradients_are_slopes_of_the_objective_and_vanish_at_the_solution() {
    with_closed_forms(|c| {
        let x = random_rows(&[c.solution.len()], 42).remove(0);
        assert_near(&(c.hypergradient)(&x), &differences(&x, c.objective), 1e-9, c.name);
        assert!(norm(&(c.hypergradient)(&c.solution)) < 1e-12, "{}: x* is stationary", c.name);
        let best = (c.objective)(&c.solution);
        for at in 0..c.solution.len() {
            for by in [-0.1, 0.1] {
                let mut other = c.solution.clone();
                other[at] += by;
                assert!((c.objective)(&other) > best, "{}: x* is a minimum", c.name);
            }
        }
    });
}

#[test]
fn penalty_solutions_are_stationary_points_of_the_penalty_function() {
    with_closed_forms(|c| {
        for lambda in [1.5, 10.0, 200.0] {
            let x = (c.penalty_solution)(lambda);
            let y = lower_minimiser(c.problem, &x, 1.0, lambda);
            let z = lower_minimiser(c.problem, &x, 0.0, 1.0);
            let slope = mean(c.problem.agents(), |i| {
                let (f, gy, gz) = (
                    grad_f(c.problem, i, 0, &x, &y).0,
                    grad_g(c.problem, i, 0, &x, &y).0,
                    grad_g(c.problem, i, 0, &x, &z).0,
                );
                (0..x.len()).map(|q| f[q] + lambda * (gy[q] - gz[q])).collect()
            });
            assert!(norm(&slope) < 1e-9, "{} with λ = {lambda}: slope {slope:?}", c.name);
        }
    });
}

#[test]
fn the_penalty_bias_falls_like_one_over_lambda() {
    with_closed_forms(|c| {
        let bias = |lambda: f64| distance(&(c.penalty_solution)(lambda), &c.solution);
        assert!(bias(10.0) > 1e-6, "{}: there is a bias", c.name);
        for lambda in [1e3, 1e4] {
            let ratio = bias(lambda) / bias(10.0 * lambda);
            assert!((ratio - 10.0).abs() < 0.1, "{}: ten times the penalty, {ratio} times less bias", c.name);
        }
    });
}

#[test]
fn fab_reaches_the_penalty_solution() {
    with_closed_forms(|c| {
        for (lambda, form) in [(4.0, PenaltyForm::Written), (10.0, PenaltyForm::Normalised)] {
            let step = if form == PenaltyForm::Written { 0.02 / lambda } else { 0.02 };
            let fab = Fab {
                lambda: lambda.into(),
                eta_x: step.into(),
                eta_y: step.into(),
                eta_z: None,
                penalty_form: form,
            };
            let mut network = Simulator::new(unbalanced(AGENTS, 12), Threads::one());
            let mut state = fab.start(c.problem, &mut network, Some(&random_start(c.problem, 13))).unwrap();
            for k in 0..60_000 {
                state.step(k, c.problem, &mut network).unwrap();
            }
            let (x, expected) = (engine::mean(&mut *state, "x").unwrap(), (c.penalty_solution)(lambda));
            let error = distance(&x, &expected) / norm(&expected);
            assert!(error < 1e-9, "{} {form:?} with λ = {lambda}: x is {error} away from x_λ", c.name);
            assert!(
                distance(&c.solution, &expected) / norm(&expected) > 1e-4,
                "x_λ differs from x*, or this says little"
            );
            // All agents are there, and z is at the lower solution.
            let z = lower_minimiser(c.problem, &expected, 0.0, 1.0);
            for (x, agent_z) in
                variable(&mut *state, "x").unwrap().iter().zip(variable(&mut *state, "z").unwrap())
            {
                assert!(distance(x, &expected) < 1e-8 && distance(&agent_z, &z) < 1e-8, "{}", c.name);
            }
        }
    });
}

/// Agents that are computed together, apart, or in other registers get the same bits, whatever the number of
/// states.
#[test]
fn directions_do_not_depend_on_who_is_computed_with_whom() {
    for states in [20, 8, 37] {
        let (n, features) = (300, 5);
        let problem = PolicyEvaluation::random(n, states, features, 3).normalised();
        let (threads, penalty) = (Threads::one(), Penalty { f: 0.3, g: 1.7 });
        let stack = |n: usize| Stack::<f64, 3>::zeros(n, &problem.upper(), &[states, states]);
        let (mut v, mut all, mut single) = (stack(n), stack(n), (stack(1), stack(1)));
        let rows = random_rows(&vec![features + 2 * states; n], 9);
        (0..n).for_each(|i| v.shared.row_mut(i).copy_from_slice(&rows[i]));
        let owned: Vec<usize> = (0..n).collect();
        problem
            .penalty_directions(At { k: 0, owned: &owned, threads: &threads }, penalty, &v, &mut all)
            .unwrap();
        for (i, row) in rows.iter().enumerate() {
            single.0.shared.row_mut(0).copy_from_slice(row);
            problem
                .penalty_directions(
                    At { k: 0, owned: &[i], threads: &threads },
                    penalty,
                    &single.0,
                    &mut single.1,
                )
                .unwrap();
            assert_eq!(single.1.shared.row(0), all.shared.row(i), "agent {i} of {n}, {states} states");
        }
    }
}

#[test]
fn single_level_values_have_the_mean_gradient_as_slope() {
    let (policy, quadratic) = (Tables::random(3, 4, 2, 5).problem(), Quadratic::random(3, 2, 3, 5, false));
    let problems: [&dyn Bilevel<f64>; 3] = [&policy, &quadratic, &Robust::random(3, 2, 4, 5)];
    for (at, problem) in problems.into_iter().enumerate() {
        let single = problem.single_level().unwrap();
        let x = [0.3, -0.8];
        let slope = differences(&x, |x| single.value(x).unwrap());
        let gradient = mean(3, |i| single_level_gradient(problem, i, 0, &x));
        assert_near(&slope, &gradient, 1e-5, &format!("problem {at}"));
    }
    // Waves have no value; y = x + h moves as x does.
    let (waves, x) = (Waves::random(3, 2, 5), [0.3, -0.8]);
    for i in 0..3 {
        let (gx, gy) = grad_f(&waves, i, 0, &x, &waves.lower_solution(&x));
        let expected: Vec<f64> = gx.iter().zip(&gy).map(|(a, b)| a + b).collect();
        assert_near(&single_level_gradient(&waves, i, 0, &x), &expected, 1e-12, "waves");
    }
}

/// All that is linear twice as large: solutions and slopes there are, too, and curvatures stay.
#[test]
fn constants_scale_with_the_problem() {
    let tables = Tables::random(3, 4, 2, 7);
    let r = tables.r.iter().map(|row| row.iter().map(|v| 2.0 * v).collect()).collect();
    let (one, two) = (tables.problem().constants().unwrap(), Tables { r, ..tables }.problem().constants());
    let two = two.unwrap();
    assert!((two.l_f0 / one.l_f0 - 2.0).abs() < 1e-9 && (two.l_f1 - one.l_f1).abs() < 1e-12);
    // x* = −2 and y* = 2: ∇ᵧf is 3·2 − 2 + 1 = 5 there and changes by |3·(−1) + 1|·‖x*‖ = 4 on the ball.
    let one = |v: f64| vec![vec![v]];
    let matrices = Matrices {
        xx: one(2.0),
        yy: one(3.0),
        xy: one(1.0),
        p: vec![7.0],
        q: vec![1.0],
        g_yy: one(1.0),
        g_xy: one(1.0),
        h: vec![0.0],
        a: vec![],
    };
    let problem = Quadratic::from_matrices(&[matrices]).unwrap();
    assert!((problem.solution()[0] + 2.0).abs() < 1e-12, "{:?}", problem.solution());
    assert!((problem.constants().unwrap().l_f0 - 9.0).abs() < 1e-12);
}

/// Every closed form of the problem whose lower level is not convex, against the agents' gradients.
#[test]
fn closed_forms_of_waves_are_those_of_their_gradients() {
    let problem = Waves::random(3, 4, 6);
    let forms: &dyn ClosedForms = &problem;
    for seed in 0..5 {
        let [x, y] = <[Vec<f64>; 2]>::try_from(random_rows(&[4, 4], seed)).unwrap();
        let of = |y: &[f64], f: f64, g: f64| {
            let mean_f = mean(3, |i| grad_f(&problem, i, 0, &x, y).1);
            let mean_g = mean(3, |i| grad_g(&problem, i, 0, &x, y).1);
            mean_f.iter().zip(&mean_g).map(|(a, b)| f * a + g * b).collect::<Vec<f64>>()
        };
        for (f, g) in [(1.0, 0.0), (0.0, 1.0)] {
            let value = |x: &[f64], y: &[f64]| f * forms.values(x, y).0 + g * forms.values(x, y).1;
            let in_x = mean(3, |i| match f > 0.0 {
                true => grad_f(&problem, i, 0, &x, &y).0,
                false => grad_g(&problem, i, 0, &x, &y).0,
            });
            assert_near(&differences(&y, |y| value(&x, y)), &of(&y, f, g), 1e-5, "in y");
            assert_near(&differences(&x, |x| value(x, &y)), &in_x, 1e-5, "in x");
        }
        let zero = [0.0; 4];
        assert_near(&of(&forms.lower_solution(&x), 0.0, 1.0), &zero, 1e-12, "y*");
        for lambda in [3.0, 10.0, 40.0] {
            let y = forms.penalty_lower_solution(&x, lambda);
            assert_near(&of(&y, 1.0, lambda), &zero, 1e-9, &format!("y of λ = {lambda}"));
        }
        let best = |x: &[f64]| forms.values(x, &forms.lower_solution(x)).0;
        assert_near(&differences(&x, best), &forms.hypergradient(&x), 1e-5, "∇F*");
    }
}

/// ∇ᵧf_i at (x, y*(x)) is affine in x for quadratics: its size at x* and its largest slope times ‖x*‖.
#[test]
fn the_largest_slope_of_f_is_that_on_the_ball() {
    let (policy, quadratic) = (PolicyEvaluation::random(3, 9, 3, 2), Quadratic::random(3, 3, 4, 2, false));
    let normalised = policy.clone().normalised();
    let problems: [(&dyn Bilevel<f64>, Vec<f64>); 3] = [
        (&policy, policy.solution().to_vec()),
        (&normalised, normalised.solution().to_vec()),
        (&quadratic, quadratic.solution()),
    ];
    for (at, (problem, best)) in problems.into_iter().enumerate() {
        let forms = problem.closed_forms().unwrap();
        let slope = |i: usize, x: &[f64]| {
            nalgebra::DVector::from_vec(grad_f(problem, i, 0, x, &forms.lower_solution(x)).1)
        };
        let of_agent = |i: usize| {
            let here = slope(i, &best);
            let columns: Vec<_> = (0..best.len())
                .map(|j| {
                    let mut x = best.clone();
                    x[j] += 1.0;
                    slope(i, &x) - &here
                })
                .collect();
            let steepest = nalgebra::DMatrix::from_columns(&columns).singular_values().max();
            here.norm() + steepest * best.iter().map(|x| x * x).sum::<f64>().sqrt()
        };
        let largest = (0..3).map(of_agent).fold(0.0, f64::max);
        let said = problem.constants().unwrap().l_f0;
        assert!((said - largest).abs() < 1e-8 * largest, "problem {at}: {said}, found {largest}");
    }
}

#[test]
fn random_quadratics_are_as_curved_as_they_say() {
    for seed in 0..20 {
        let constants = Quadratic::random(1, 1, 1, seed, false).constants().unwrap();
        assert!((0.5..=1.5).contains(&constants.l_single.unwrap()) && (1.0..=2.0).contains(&constants.mu));
    }
}
