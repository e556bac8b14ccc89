//! A run that goes back to its best evaluation: the state is that of a run that ended there, to the bit, also
//! after a checkpoint.
mod common;

use common::*;
use dibo::engine::{self, Checkpoint, Outcome, Plan, Record, Watch};
use dibo::network::Simulator;
use dibo::problem::{NoiseOn, PolicyEvaluation};
use dibo::rows::{Threads, View};
use serde_json::json;

/// Keeps the state at the end, and a checkpoint at an iteration where it stops.
#[derive(Default)]
struct Eye {
    stop: Option<usize>,
    saved: Option<Checkpoint<'static, f64>>,
    end: Vec<(String, Matrix)>,
}

impl Watch<f64> for Eye {
    fn go_on(&mut self, k: usize) -> bool {
        self.stop.is_none_or(|stop| k < stop)
    }
    fn checkpoint(&mut self, checkpoint: Checkpoint<'_, f64>) -> dibo::Result<()> {
        self.saved = Some(checkpoint.into_owned());
        Ok(())
    }
    fn finished(&mut self, views: &[View<'_, f64>]) {
        self.end = views.iter().map(|v| (v.name.to_string(), v.to_vecs())).collect();
    }
}

fn go(plan: &Plan, eye: &mut Eye, resume: Option<Checkpoint<'_, f64>>) -> dibo::Result<Record> {
    // With noise the error goes up and down.
    let problem = PolicyEvaluation::random(6, 11, 4, 3).noise(2.0, NoiseOn::State, 4);
    let parameters = json!({"lambda": 20.0, "eta_x": 0.1, "eta_y": 0.1, "penalty_form": "normalised"});
    let mut network = Simulator::new(unbalanced(6, 44), Threads::one());
    engine::run(&*algorithm("fab", parameters), &problem, &mut network, None, plan, resume, eye)
}

fn plan(iterations: usize, best: Option<&str>) -> Plan {
    let best = best.map(String::from);
    Plan { iterations, every: 5, target: None, diverged_above: 1e9, best }
}

#[test]
fn the_end_is_the_best_evaluation() {
    let mut eye = Eye::default();
    let record = go(&plan(600, Some("relative_error")), &mut eye, None).unwrap();
    let errors = record.samples[1..].iter().map(|s| (s.get("relative_error").unwrap(), s.k));
    let (smallest, k) = errors.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
    assert!(k < 600, "the last evaluation is the best: nothing is tested");
    assert_eq!((record.outcome, record.best, record.samples.len()), (Outcome::Finished, Some(k), 121));
    assert_eq!(record.end().unwrap().get("relative_error"), Some(smallest));
    let mut shorter = Eye::default();
    let record = go(&plan(k, None), &mut shorter, None).unwrap();
    assert_eq!((record.best, record.end().unwrap().k), (None, k));
    assert_eq!(eye.end, shorter.end);
    // Stopped before and after it, and taken up again from what a file would hold.
    for stop in [k - 5, k, k + 5, 595] {
        let mut half = Eye { stop: Some(stop), ..Eye::default() };
        go(&plan(600, Some("relative_error")), &mut half, None).unwrap();
        let bytes = half.saved.unwrap().to_bytes();
        let mut resumed = Eye::default();
        let resume = Checkpoint::from_bytes(&bytes).unwrap();
        let record = go(&plan(600, Some("relative_error")), &mut resumed, Some(resume)).unwrap();
        assert_eq!((record.best, &resumed.end), (Some(k), &eye.end), "stopped at {stop}");
    }
}

#[test]
fn a_metric_that_has_no_best_is_refused() {
    let error = go(&plan(20, Some("relative_eror")), &mut Eye::default(), None).err().unwrap();
    assert!(error.to_string().contains("best is 'relative_eror'"), "{error}");
}
