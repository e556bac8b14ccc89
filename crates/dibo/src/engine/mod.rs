//! The loop around an algorithm: checks, metrics with the clock stopped, stopping rules, checkpoints that
//! resume to the bit.
mod best;
mod builder;
mod checkpoint;

pub use crate::metrics::mean;
pub use crate::problem::Oracle;
pub use best::Best;
pub use builder::{End, Run};
pub use checkpoint::Checkpoint;

use crate::algorithm::{Algorithm, State};
use crate::error::{Error, Result};
use crate::metrics::{ALWAYS, Values, evaluate};
use crate::network::{Network, Traffic};
use crate::problem::{Better, Bilevel, Counted, Start};
use crate::rows::{Real, View};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::time::{Duration, Instant};

/// How a run is to go.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Iterations at most.
    pub iterations: usize,
    /// Metrics are computed at 0, at each multiple of this, and at the end.
    pub every: usize,
    /// Stop when this metric is better than this value: below it for an error, above it for an accuracy.
    pub target: Option<(String, f64)>,
    /// The run has diverged when the watched metric (the target's, else the problem's first) is not finite
    /// or, for an error, above this.
    pub diverged_above: f64,
    /// A run that comes to its end goes back to the evaluation where this metric was best.
    pub best: Option<String>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// All iterations were done.
    Finished,
    /// The target was reached at this iteration.
    Reached(usize),
    /// It was seen at this iteration that the run diverges.
    Diverged(usize),
    /// It was asked to stop; a checkpoint can carry on from here.
    Stopped(usize),
    /// An invariant was seen not to hold at this iteration; the record says which.
    Broken(usize),
}

impl Outcome {
    /// One word.
    pub fn word(&self) -> &'static str {
        match self {
            Outcome::Finished => "finished",
            Outcome::Reached(_) => "reached",
            Outcome::Diverged(_) => "diverged",
            Outcome::Stopped(_) => "stopped",
            Outcome::Broken(_) => "broken",
        }
    }
}

/// One evaluation along a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Iterations done.
    pub k: usize,
    /// Seconds of iterations so far; metrics are not counted.
    pub seconds: f64,
    /// What was sent so far.
    pub traffic: Traffic,
    /// Oracle calls so far.
    pub oracle: Oracle,
    /// Metrics by name.
    pub values: Vec<(String, f64)>,
}

impl Sample {
    /// A metric's value.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|v| v.0 == name).map(|v| v.1)
    }
}

/// What a run gives.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// How it ended.
    pub outcome: Outcome,
    /// Evaluations in order.
    pub samples: Vec<Sample>,
    /// Bytes of the algorithm's state.
    pub state_bytes: u64,
    /// Why a broken run was stopped.
    pub reason: Option<String>,
    /// The evaluation whose state is that of the end, where it is not the last.
    pub best: Option<usize>,
}

impl Record {
    /// The evaluation of the state at the end.
    pub fn end(&self) -> Option<&Sample> {
        let best = self.samples.iter().find(|s| Some(s.k) == self.best);
        best.or(self.samples.last())
    }

    /// The last value of a metric.
    pub fn last(&self, metric: &str) -> Option<f64> {
        self.samples.last().and_then(|s| s.get(metric))
    }
}

/// What the caller hears and says while a run goes on.
pub trait Watch<T: Real> {
    /// Called between iterations, at least every [`Plan::every`]: return false to stop.
    fn go_on(&mut self, _k: usize) -> bool {
        true
    }
    /// More metrics of a state at an evaluation, and the invariant that it breaks, if any: then the run
    /// stops.
    fn measure(&mut self, _k: usize, _views: &[View<'_, T>]) -> Result<(Values, Option<String>)> {
        Ok((Values::new(), None))
    }
    /// The metrics of a state: where a process owns some agents only, whoever watches must fetch the others'
    /// rows first.
    fn values(
        &mut self,
        _k: usize,
        problem: &dyn Bilevel<T>,
        views: &[View<'_, T>],
    ) -> Result<Vec<(String, f64)>> {
        Ok(evaluate(problem, views)?.into_iter().map(|(name, v)| (name.to_string(), v)).collect())
    }
    /// Called after each evaluation.
    fn sample(&mut self, _sample: &Sample) {}
    /// Called after each iteration: return true to be asked whether to go on, and whether a checkpoint is
    /// due, before the next evaluation.
    fn pause(&mut self, _k: usize) -> bool {
        false
    }
    /// Called now and then; make a checkpoint if it is time to.
    fn checkpoint_due(&mut self) -> bool {
        false
    }
    /// The state at the end.
    fn finished(&mut self, _views: &[View<'_, T>]) {}
    /// A checkpoint; one that cannot be kept ends the run.
    fn checkpoint(&mut self, _checkpoint: Checkpoint<'_, T>) -> Result<()> {
        Ok(())
    }
}

/// Nobody watches.
impl<T: Real> Watch<T> for () {}

/// Says why an algorithm cannot run on a problem over a network: a value out of range, something that the
/// problem does not have, numbers of agents that differ, a metric that nobody reports.
pub fn check<T: Real>(
    algorithm: &dyn Algorithm<T>,
    problem: &dyn Bilevel<T>,
    network: &dyn Network<T>,
    plan: &Plan,
) -> Result<()> {
    algorithm.check()?;
    if !algorithm.needs().met_by(problem) {
        return Err(Error::Unsupported(algorithm.needs().words()));
    }
    let (asked, there) = (problem.agents(), network.agents());
    if asked != there || asked == 0 {
        return Err(Error::Invalid(format!("agents: the problem has {asked}, the network {there}")));
    }
    if plan.iterations == 0 {
        return Err("iterations is 0; it must be 1 or more".into());
    }
    let known = problem.measures();
    let has = |name: &str| known.iter().chain(&ALWAYS).any(|m| m.name == name);
    match &plan.target {
        Some((metric, _)) if !known.is_empty() && !has(metric) => {
            let names: Vec<&str> = known.iter().chain(&ALWAYS).map(|m| m.name).collect();
            Err(Error::Invalid(format!("metric is '{metric}'; this problem reports {}", names.join(", "))))
        }
        _ => Ok(()),
    }
}

/// Runs an algorithm on a problem over a network, from the beginning or from a checkpoint. Without a start
/// the problem's own is taken.
pub fn run<T: Real>(
    algorithm: &dyn Algorithm<T>,
    problem: &dyn Bilevel<T>,
    network: &mut dyn Network<T>,
    start: Option<&Start>,
    plan: &Plan,
    resume: Option<Checkpoint<'_, T>>,
    watch: &mut dyn Watch<T>,
) -> Result<Record> {
    drive(algorithm, problem, network, start, plan, resume, watch).map(|(record, _)| record)
}

/// The same, with the state at the end.
fn drive<T: Real>(
    algorithm: &dyn Algorithm<T>,
    problem: &dyn Bilevel<T>,
    network: &mut dyn Network<T>,
    start: Option<&Start>,
    plan: &Plan,
    resume: Option<Checkpoint<'_, T>>,
    watch: &mut dyn Watch<T>,
) -> Result<(Record, Box<dyn State<T>>)> {
    check(algorithm, problem, network, plan)?;
    let counted = Counted::new(problem, resume.as_ref().map_or_else(Oracle::default, |c| c.oracle));
    let mut state = algorithm.start(&counted, network, start)?;
    let (mut k, mut clock, mut samples, mut best) = (0, Duration::ZERO, Vec::new(), None);
    let counted = match resume {
        None => counted,
        Some(c) => {
            restore(&mut *state, &c.memory)?;
            network.set_traffic(c.traffic);
            network.restore(&c.network)?;
            let damaged = |e| Error::Checkpoint(format!("damaged checkpoint: {} seconds: {e}", c.seconds));
            let seconds = Duration::try_from_secs_f64(c.seconds).map_err(damaged)?;
            (k, clock, samples, best) = (c.k, seconds, c.samples, c.best.map(Best::into_owned));
            Counted::new(problem, c.oracle)
        }
    };
    let state_bytes = state.memory().iter().map(|r| r.bytes() as u64).sum();
    let (every, judge) = (plan.every.max(1), Judge::new(problem, plan));
    let mut keeper = best::Keeper::new(problem, plan, best)?;
    let mut reason = None;
    let outcome = loop {
        let evaluates = k % every == 0 || k >= plan.iterations;
        if evaluates && samples.last().is_none_or(|s: &Sample| s.k < k) {
            let (more, broken) = watch.measure(k, &state.views())?;
            reason = broken;
            let mut values = watch.values(k, problem, &state.views())?;
            values.extend(more.into_iter().map(|(name, v)| (name.to_string(), v)));
            let (traffic, oracle) = (network.traffic(), counted.calls());
            let sample = Sample { k, seconds: clock.as_secs_f64(), traffic, oracle, values };
            watch.sample(&sample);
            keeper.see(&sample, &mut *state);
            samples.push(sample);
        }
        let judged = samples.last().filter(|last| last.k == k);
        if let Some(outcome) = judged.and_then(|last| judge.outcome(last, reason.is_some())) {
            break outcome;
        }
        let stop = !watch.go_on(k);
        if stop || watch.checkpoint_due() {
            watch.checkpoint(Checkpoint {
                k,
                digest: [0; 32],
                samples: samples.clone(),
                seconds: clock.as_secs_f64(),
                traffic: network.traffic(),
                oracle: counted.calls(),
                memory: state.memory().into_iter().map(|r| r.numbers()).collect(),
                network: network.memory(),
                best: keeper.best.as_ref().map(Best::borrowed),
            })?;
        }
        if stop {
            break Outcome::Stopped(k);
        }
        let until = (k + every - k % every).min(plan.iterations);
        let from = Instant::now();
        while k < until {
            state.step(k, &counted, network)?;
            k += 1;
            if k < until && watch.pause(k) {
                break;
            }
        }
        network.wait()?;
        clock += from.elapsed();
    };
    let best = keeper.go_back(outcome, &mut *state)?;
    watch.finished(&state.views());
    let reason = reason.filter(|_| matches!(outcome, Outcome::Broken(_)));
    Ok((Record { outcome, samples, state_bytes, reason, best }, state))
}

/// Tells from an evaluation whether a run is over.
struct Judge<'a> {
    plan: &'a Plan,
    /// The problem's metrics that are better when higher.
    higher: Vec<&'static str>,
    /// The metric that divergence is seen in, where no target names one.
    first: Option<&'static str>,
}

impl<'a> Judge<'a> {
    fn new<T: Real>(problem: &dyn Bilevel<T>, plan: &'a Plan) -> Self {
        let known = problem.measures();
        let higher = known.iter().filter(|m| m.better == Better::Higher).map(|m| m.name).collect();
        Judge { plan, higher, first: known.first().map(|m| m.name) }
    }

    fn outcome(&self, last: &Sample, broken: bool) -> Option<Outcome> {
        let (plan, k) = (self.plan, last.k);
        let target = plan.target.as_ref().map(|t| t.0.as_str());
        // A problem that does not describe its metrics is watched by the first that it reports.
        let any = last.values.first().map(|v| v.0.as_str());
        let watched = target.into_iter().chain(self.first).chain(any).find(|m| last.get(m).is_some());
        let bad = |name: &str, value: f64| {
            !value.is_finite() || value > plan.diverged_above && !self.higher.contains(&name)
        };
        // Agents that are infinitely far apart, or nowhere, have diverged whatever is watched.
        let apart = ALWAYS.iter().take(3).any(|m| last.get(m.name).is_some_and(|v| !v.is_finite()));
        if apart || watched.is_some_and(|name| last.get(name).is_some_and(|v| bad(name, v))) {
            return Some(Outcome::Diverged(k));
        }
        if broken {
            return Some(Outcome::Broken(k));
        }
        let reached = |(metric, value): &(String, f64)| {
            let higher = self.higher.contains(&metric.as_str());
            last.get(metric).is_some_and(|v| if higher { v > *value } else { v < *value })
        };
        if plan.target.as_ref().is_some_and(reached) {
            return Some(Outcome::Reached(k));
        }
        (k >= plan.iterations).then_some(Outcome::Finished)
    }
}

fn restore<T: Real>(state: &mut dyn State<T>, from: &[Cow<'_, [T]>]) -> Result<()> {
    let other = "the checkpoint belongs to another experiment: its vectors have other sizes";
    let mut memory = state.memory();
    if memory.len() != from.len() {
        return Err(Error::Checkpoint(other.into()));
    }
    let restored = memory.iter_mut().zip(from).try_for_each(|(m, s)| m.restore(s));
    restored.map_err(|e| Error::Checkpoint(format!("{other}: {e}")))
}
