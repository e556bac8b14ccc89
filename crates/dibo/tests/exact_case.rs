//! AB/Push-Pull on four agents with f_i = c_i/2 (x − p_i)², c = (1, 2, 3, 4), p = (4, −1, 2, ½), so x* = 1,
//! over one unbalanced graph: exact first iterates, the contraction factor, divergence at a large step, and
//! what one lost packet does.
mod common;
use common::*;
use dibo::engine::{self, Outcome, Plan};
use dibo::graph::{DiGraph, Static};
use dibo::metrics;
use dibo::mixing::{Mixing, Sequence};
use dibo::network::{Lane, Network, Simulator, Traffic};
use dibo::problem::{At, Bilevel, SingleLevel};
use dibo::rows::{Stack, Threads, Upper};
use nalgebra::DMatrix;
use serde_json::json;

const C: [f64; 4] = [1.0, 2.0, 3.0, 4.0];
const P: [f64; 4] = [4.0, -1.0, 2.0, 0.5];

struct Springs;

impl Bilevel<f64> for Springs {
    fn agents(&self) -> usize {
        4
    }
    fn upper(&self) -> Upper {
        Upper::Shared(1)
    }
    fn lower(&self) -> usize {
        0
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
    fn metrics(&self, x: &[f64], _: Option<&[f64]>) -> dibo::Result<metrics::Values> {
        Ok(vec![("relative_error", (x[0] - 1.0).abs())])
    }
}

impl SingleLevel<f64> for Springs {
    fn agents(&self) -> usize {
        4
    }
    fn width(&self) -> usize {
        1
    }
    fn gradients(&self, at: At<'_>, x: &Stack<f64, 1>, d: &mut Stack<f64, 1>) -> dibo::Result<()> {
        for (row, i) in at.owned.iter().enumerate() {
            d.row_mut(row)[0][0] = C[*i] * (x.row(row)[0][0] - P[*i]);
        }
        Ok(())
    }
}

fn links() -> Sequence {
    Sequence::uniform(Static::new(DiGraph::from_edges(4, [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)])))
}

/// A network that loses the push message from agent 0 to agent 2 in one round; the pull arrives.
struct Lossy {
    inner: Simulator<f64>,
    lost_at: usize,
}

impl Network<f64> for Lossy {
    fn agents(&self) -> usize {
        self.inner.agents()
    }
    fn owned(&self) -> &[usize] {
        self.inner.owned()
    }
    fn threads(&self) -> &Threads {
        self.inner.threads()
    }
    fn traffic(&self) -> Traffic {
        self.inner.traffic()
    }
    fn set_traffic(&mut self, traffic: Traffic) {
        self.inner.set_traffic(traffic);
    }
    fn round(&mut self, k: usize, lanes: &mut [Lane<'_, f64>]) -> dibo::Result<()> {
        let sent: Vec<f64> = lanes.iter().flat_map(|lane| &lane.push).map(|t| t.row(0)[0]).collect();
        self.inner.round(k, lanes)?;
        if k == self.lost_at {
            let weight = self.inner.sequence().at::<f64>(k).b(2, 0);
            let pushed = lanes.iter_mut().flat_map(|lane| &mut lane.push);
            pushed.zip(sent).for_each(|(t, sent)| t.row_mut(2)[0] -= weight * sent);
        }
        Ok(())
    }
}

/// x after each of so many iterations, and the relative gap |Σt − Σd| at the end.
fn run(network: &mut dyn Network<f64>, eta: f64, iterations: usize) -> (Vec<Vec<f64>>, f64) {
    let mut state = algorithm("push-pull", json!({"eta": eta})).start(&Springs, network, None).unwrap();
    let mut path = Vec::new();
    for k in 0..=iterations {
        path.push(variable(&mut *state, "x").unwrap().into_iter().flatten().collect());
        if k < iterations {
            state.step(k, &Springs, network).unwrap();
        }
    }
    let values = metrics::evaluate(&Springs, &state.views()).unwrap();
    (path, values.iter().find(|v| v.0 == "tracking_gap").expect("it is tracked").1)
}

#[test]
fn first_iterates_are_exact() {
    let (path, _) = run(&mut Simulator::new(links(), Threads::one()), 0.05, 2);
    let expected = [
        [0.0; 4],
        [1.0 / 5.0, -1.0 / 10.0, 3.0 / 10.0, 1.0 / 10.0],
        [77.0 / 300.0, 23.0 / 300.0, 51.0 / 200.0, 19.0 / 50.0],
    ];
    for (k, expected) in expected.iter().enumerate() {
        for i in 0..4 {
            // A few roundings of numbers below 10.
            assert!(
                (path[k][i] - expected[i]).abs() <= 1e-15,
                "x_{i} after {k}: {} instead of {}",
                path[k][i],
                expected[i]
            );
        }
    }
}

#[test]
fn contraction_is_the_second_eigenvalue_and_is_seen_in_a_run() {
    // The iteration is linear in (x − x*, t − t*); the conserved Σt − Σd is its eigenvalue 1.
    let (m, eta): (Mixing<f64>, f64) = (links().at(0), 0.05);
    let (a, b) = (DMatrix::from_fn(4, 4, |i, j| m.a(i, j)), DMatrix::from_fn(4, 4, |i, j| m.b(i, j)));
    let c = DMatrix::from_fn(4, 4, |i, j| if i == j { C[i] } else { 0.0 });
    let mut iteration = DMatrix::zeros(8, 8);
    iteration.view_mut((0, 0), (4, 4)).copy_from(&a);
    iteration.view_mut((0, 4), (4, 4)).copy_from(&(DMatrix::identity(4, 4) * -eta));
    iteration.view_mut((4, 0), (4, 4)).copy_from(&(&c * (&a - DMatrix::identity(4, 4))));
    iteration.view_mut((4, 4), (4, 4)).copy_from(&(&b - &c * eta));
    let mut moduli: Vec<f64> = iteration.complex_eigenvalues().iter().map(|e| e.norm_sqr().sqrt()).collect();
    moduli.sort_by(f64::total_cmp);
    assert!((moduli[7] - 1.0).abs() < 1e-12);
    assert!((moduli[6] - 0.868327549860).abs() < 1e-11, "{}", moduli[6]);
    let (path, gap) = run(&mut Simulator::new(links(), Threads::one()), eta, 220);
    let error = |k: usize| path[k].iter().map(|x: &f64| (x - 1.0) * (x - 1.0)).sum::<f64>().sqrt();
    // Between 60 and 140 iterations: the smaller eigenvalues have died out, and rounding is still far away.
    let seen = (error(140) / error(60)).powf(1.0 / 80.0);
    assert!((seen - 0.868327549860).abs() < 1e-4, "{seen}");
    assert!(error(220) < 1e-12 && gap < 1e-14);
}

#[test]
fn a_large_step_diverges_and_a_small_one_reaches_its_target() {
    let plan = |target| Plan { iterations: 2000, every: 10, target, diverged_above: 1e6, best: None };
    let go = |eta: f64, target| {
        let mut network = Simulator::new(links(), Threads::one());
        engine::run(
            &*algorithm("push-pull", json!({"eta": eta})),
            &Springs,
            &mut network,
            None,
            &plan(target),
            None,
            &mut (),
        )
    };
    let record = go(0.3, None).unwrap();
    assert!(matches!(record.outcome, Outcome::Diverged(k) if k < 2000), "{:?}", record.outcome);
    let record = go(0.05, Some(("relative_error".into(), 1e-9))).unwrap();
    assert!(matches!(record.outcome, Outcome::Reached(k) if k % 10 == 0 && k < 250), "{:?}", record.outcome);
    let errors: Vec<f64> = record.samples.iter().map(|s| s.get("relative_error").unwrap()).collect();
    assert!(
        errors[errors.len() - 1] < 1e-9 && errors[errors.len() - 2] >= 1e-9,
        "it stops as soon as it is there"
    );
}

#[test]
fn one_lost_packet_moves_the_agreement_and_only_the_sums_show_it() {
    let (path, gap) =
        run(&mut Lossy { inner: Simulator::new(links(), Threads::one()), lost_at: 20 }, 0.05, 400);
    for x in &path[400] {
        assert!((x - 0.995268).abs() < 5e-7, "{x}");
        assert!((x - path[400][0]).abs() < 1e-12, "all agree");
    }
    assert!(gap > 1e-3, "Σt ≠ Σd: {gap}");
    // Negative control: the same wrapper, losing nothing.
    let (path, gap) =
        run(&mut Lossy { inner: Simulator::new(links(), Threads::one()), lost_at: usize::MAX }, 0.05, 400);
    assert!((path[400][0] - 1.0).abs() < 1e-12 && gap < 1e-14);
}
