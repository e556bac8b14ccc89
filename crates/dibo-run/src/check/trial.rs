//! A short trial: how long an iteration takes, and whether the run goes wrong at once.
use crate::door::{Ready, Visit};
use anyhow::Result;
use dibo::metrics::evaluate;
use dibo::problem::Better;
use dibo::rows::Real;
use std::time::{Duration, Instant};

/// What a trial showed.
#[derive(Clone, Copy, Debug)]
pub struct Tried {
    /// Iterations done.
    pub iterations: usize,
    /// Seconds of an iteration.
    pub seconds: f64,
    /// Whether it was seen to diverge.
    pub diverged: bool,
    /// The watched metric before and after.
    pub metric: Option<(&'static str, f64, f64)>,
}

/// Runs for so long at most.
pub struct Trial {
    /// How long; not at all if zero.
    pub time: Duration,
    /// Look at the metrics, too: they may be dear.
    pub look: bool,
}

impl Visit for Trial {
    type Out = Tried;

    fn visit<T: Real>(self, ready: Ready<'_, T>) -> Result<Tried> {
        if self.time.is_zero() {
            return Ok(Tried { iterations: 0, seconds: 0.0, diverged: false, metric: None });
        }
        let (mut network, from) = (ready.network()?, Instant::now());
        let mut state = ready.algorithm.start(ready.problem, &mut *network, None)?;
        if self.look {
            // Where an iteration takes long, as a BERT's does, metrics of all data would take far longer.
            state.step(0, ready.problem, &mut *network)?;
            network.wait()?;
            let seconds = from.elapsed().as_secs_f64();
            if 10.0 * seconds > self.time.as_secs_f64() {
                return Ok(Tried { iterations: 1, seconds, diverged: false, metric: None });
            }
            network = ready.network()?;
            state = ready.algorithm.start(ready.problem, &mut *network, None)?;
        }
        let first = ready.problem.measures().first().copied();
        let look = |state: &mut dyn dibo::algorithm::State<T>| -> Result<Option<f64>> {
            if !self.look {
                return Ok(None);
            }
            let values = evaluate(ready.problem, &state.views())?;
            let name = first.map(|m| m.name).or(values.first().map(|v| v.0));
            Ok(values.iter().find(|v| Some(v.0) == name).map(|v| v.1))
        };
        let before = look(&mut *state)?;
        let (began, mut k, mut next) = (Instant::now(), 0, 1);
        let (mut spent, mut value) = (Duration::ZERO, before);
        let bad = |v: f64| {
            let error = first.is_none_or(|m| m.better != Better::Higher);
            !v.is_finite() || error && v > ready.plan.diverged_above
        };
        while k < ready.plan.iterations && began.elapsed() < self.time && !value.is_some_and(bad) {
            let from = Instant::now();
            while k < next.min(ready.plan.iterations) && began.elapsed() < self.time {
                state.step(k, ready.problem, &mut *network)?;
                k += 1;
            }
            network.wait()?;
            spent += from.elapsed();
            // Looks become rarer: metrics may be dear.
            next = 2 * k.max(1);
            value = look(&mut *state)?;
        }
        let metric = first.and_then(|m| Some((m.name, before?, value?)));
        let seconds = spent.as_secs_f64() / k.max(1) as f64;
        Ok(Tried { iterations: k, seconds, diverged: value.is_some_and(bad), metric })
    }
}
