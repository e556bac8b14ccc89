//! Links that lose messages: FAB with running sums keeps Σt + what is in flight = Σd and finds the solution;
//! plain FAB does not.
mod common;

use common::*;
use dibo::engine::{self, Checkpoint, Outcome, Plan, Watch};
use dibo::graph::{Cycle, Loss};
use dibo::mixing::{Mixing, Sequence};
use dibo::network::{Lane, Lossy, Network, Simulator, Wishes};
use dibo::problem::PolicyEvaluation;
use dibo::rows::{Rows, Threads};
use serde_json::{Value, json};

fn steps() -> Value {
    json!({"lambda": 60.0, "eta_x": 0.1, "eta_y": 0.1, "penalty_form": "normalised"})
}

fn problem(seed: u64) -> PolicyEvaluation {
    PolicyEvaluation::random(10, 20, 5, seed).weights(1.0, 0.5)
}

fn graphs(seed: u64) -> Sequence {
    Sequence::uniform(Cycle::new(10, 0.3, seed))
}

fn lossy(burst: Option<f64>, seed: u64) -> Lossy<f64> {
    Lossy::new(graphs(seed), Loss::new(0.3, burst, seed).unwrap(), Threads::one())
}

/// Σt + in flight − Σd relative to Σ‖d‖, the worst column.
fn mass_gap(state: &mut dyn dibo::algorithm::State<f64>, in_flight: &[f64]) -> f64 {
    let (mut at, mut gap, mut size) = (0, 0.0f64, 0.0);
    let views = state.views();
    for (t, d) in [("tx", "dx"), ("ty", "dy"), ("tz", "dz")] {
        let [t, d] = [t, d].map(|name| views.iter().find(|v| v.name == name).unwrap());
        for c in 0..t.row(0).len() {
            let sum: f64 = (0..t.rows.count()).map(|i| t.row(i)[c] - d.row(i)[c]).sum();
            gap = gap.max((sum + in_flight.get(at).unwrap_or(&0.0)).abs());
            at += 1;
        }
        size += (0..d.rows.count()).map(|i| d.row(i).iter().map(|d| d * d).sum::<f64>().sqrt()).sum::<f64>();
    }
    gap / size.max(1.0)
}

#[test]
fn mass_is_conserved_with_running_sums_and_lost_without() {
    let (problem, plain) = (problem(1), algorithm("fab", steps()));
    let algorithm = algorithm("running-sum-fab", steps());
    for burst in [None, Some(5.0)] {
        let mut network = lossy(burst, 2);
        let mut state = algorithm.start(&problem, &mut network, Some(&random_start(&problem, 3))).unwrap();
        let mut flying = 0.0f64;
        for k in 0..3000 {
            state.step(k, &problem, &mut network).unwrap();
            let gap = mass_gap(&mut *state, &network.in_flight());
            assert!(gap < 1e-10, "{burst:?}: {gap} after {k}");
            flying = flying.max(mass_gap(&mut *state, &[]));
        }
        assert!(flying > 1e-3, "nothing was ever in flight: this tests nothing");
        let mut network = lossy(burst, 2);
        let mut state = plain.start(&problem, &mut network, Some(&random_start(&problem, 3))).unwrap();
        (0..100).for_each(|k| state.step(k, &problem, &mut network).unwrap());
        assert!(mass_gap(&mut *state, &network.in_flight()) > 1e-2);
    }
}

/// Iterations until the relative error falls below 1 %, and the error at the end.
fn reach(name: &str, network: &mut dyn Network<f64>, iterations: usize, seed: u64) -> (Outcome, f64) {
    let plan = Plan {
        iterations,
        every: 5,
        target: Some(("relative_error".into(), 0.01)),
        diverged_above: 1e6,
        best: None,
    };
    let problem = problem(seed);
    let record =
        engine::run(&*algorithm(name, steps()), &problem, network, None, &plan, None, &mut ()).unwrap();
    (record.outcome, record.samples.last().unwrap().get("relative_error").unwrap())
}

#[test]
fn running_sums_find_the_solution_and_plain_fab_does_not() {
    for seed in [1] {
        let (Outcome::Reached(free), _) =
            reach("fab", &mut Simulator::new(graphs(seed), Threads::one()), 20_000, seed)
        else {
            panic!()
        };
        for (burst, most) in [(None, 2.2), (Some(5.0), 4.0)] {
            let (outcome, _) = reach("running-sum-fab", &mut lossy(burst, seed), 5 * free, seed);
            let Outcome::Reached(k) = outcome else { panic!("{burst:?}: {outcome:?}") };
            let (plain, stalled) = reach("fab", &mut lossy(burst, seed), 5 * free, seed);
            println!(
                "seed {seed}, burst {burst:?}: {k} of {free} = {:.2}×; plain FAB stalls at {stalled:.3}",
                k as f64 / free as f64
            );
            assert!((k as f64) < most * free as f64);
            assert!(plain == Outcome::Finished && stalled > 0.5);
        }
    }
}

/// A round against the definition, with messages lost: found again later by running sums, else for good.
#[test]
fn a_round_is_the_definition() {
    [true, false].into_iter().for_each(a_round);
}

fn a_round(running_sums: bool) {
    let (n, width, loss) = (10, 5, Loss::new(0.4, None, 8).unwrap());
    let rows = |seed| Rows::<f64>::from_vectors(&random_rows(&vec![width; n], seed));
    let (mut v, mut t, d, eta) = (rows(1), rows(2), rows(3), [0.1; 16]);
    let mut network = Lossy::new(graphs(4), loss, Threads::one());
    network.prepare(Wishes { running_sums, ..Wishes::default() }).unwrap();
    let mut sums = vec![vec![(vec![0.0; width], vec![0.0; width]); n]; n];
    for k in 0..90 {
        let (m, old_v, old_t): (Mixing<f64>, _, _) = (graphs(4).at(k), v.clone(), t.clone());
        network.round(k, &mut [Lane::push_pull(&mut v, &eta, &mut t, &d, false)]).unwrap();
        for (i, sums) in sums.iter_mut().enumerate() {
            let heard: Vec<usize> = m
                .graph
                .senders(i)
                .iter()
                .map(|j| *j as usize)
                .filter(|j| *j == i || loss.arrives(k, *j, i))
                .collect();
            let weight: f64 = heard.iter().map(|j| m.a(i, *j)).sum();
            for c in 0..width {
                let pulled: f64 = heard.iter().map(|j| m.a(i, *j) * old_v.row(*j)[c]).sum();
                assert!((v.row(i)[c] - (pulled / weight - 0.1 * old_t.row(i)[c])).abs() < 1e-12);
                let mut pushed = -d.row(i)[c];
                for j in m.graph.senders(i).iter().map(|j| *j as usize) {
                    let (sent, had) = &mut sums[j];
                    if !running_sums {
                        (sent[c], had[c]) = (0.0, 0.0);
                    }
                    sent[c] += m.b(i, j) * old_t.row(j)[c];
                    if heard.contains(&j) {
                        pushed += sent[c] - had[c];
                        had[c] = sent[c];
                    }
                }
                assert!((t.row(i)[c] - pushed).abs() < 1e-10, "k {k}, agent {i}, column {c}");
            }
        }
    }
}

#[test]
fn a_checkpoint_holds_what_is_in_flight() {
    struct Half(Option<Checkpoint<'static, f64>>, Vec<u64>);
    impl Watch<f64> for Half {
        fn go_on(&mut self, k: usize) -> bool {
            k != 100 || self.0.is_some()
        }
        fn checkpoint(&mut self, checkpoint: Checkpoint<'_, f64>) -> dibo::Result<()> {
            self.0 = Some(Checkpoint::from_bytes(&checkpoint.to_bytes()).unwrap());
            Ok(())
        }
        fn finished(&mut self, views: &[dibo::rows::View<'_, f64>]) {
            self.1 = views.iter().flat_map(|v| v.rows.data()).map(|x| x.to_bits()).collect();
        }
    }
    let (problem, algorithm, plan) = (
        problem(1),
        algorithm("running-sum-fab", steps()),
        Plan { iterations: 200, every: 10, target: None, diverged_above: 1e6, best: None },
    );
    let run = |watch: &mut Half, resume| {
        engine::run(&*algorithm, &problem, &mut lossy(Some(5.0), 1), None, &plan, resume, watch).unwrap()
    };
    let mut half = Half(None, Vec::new());
    assert_eq!(run(&mut half, None).outcome, Outcome::Stopped(100));
    let resume = half.0.clone();
    run(&mut half, resume);
    let mut whole = Half(half.0.clone(), Vec::new());
    run(&mut whole, None);
    assert_eq!(half.1, whole.1);
}

/// Pulling alone against the definition, with messages lost and their bytes counted; nothing is in flight.
#[test]
fn a_pull_alone_is_the_definition() {
    let (n, width, loss) = (10, 5, Loss::new(0.4, None, 8).unwrap());
    for (sums, share) in [(false, 1.0), (true, 1.0), (false, 0.4)] {
        let mut v = Rows::<f64>::from_vectors(&random_rows(&vec![width; n], 1));
        let mut network = Lossy::new(graphs(4), loss, Threads::one());
        network.prepare(Wishes { running_sums: sums, ..Wishes::default() }).unwrap();
        let mut links = 0;
        for k in 0..30 {
            let (m, old): (Mixing<f64>, _) = (graphs(4).at(k), v.clone());
            network.round(k, &mut [Lane::pull(&mut v).share(share)]).unwrap();
            links += m.graph.links();
            for i in 0..n {
                let senders = m.graph.senders(i).iter().map(|j| *j as usize);
                let heard: Vec<usize> = senders.filter(|j| *j == i || loss.arrives(k, *j, i)).collect();
                let weight: f64 = heard.iter().map(|j| m.a(i, *j)).sum();
                for c in 0..width {
                    let pulled: f64 = heard.iter().map(|j| m.a(i, *j) * old.row(*j)[c]).sum();
                    let expected = (1.0 - share) * old.row(i)[c] + share * pulled / weight;
                    assert!((v.row(i)[c] - expected).abs() < 1e-15);
                }
            }
        }
        assert_eq!(network.traffic().bytes, (links * width * size_of::<f64>()) as u64);
        assert!(network.in_flight().is_empty());
    }
}
