//! The loop around an algorithm: metrics with the clock stopped, stopping rules, checkpoints that resume to
//! the bit.
use crate::algorithm::{Algorithm, State};
use crate::metrics::evaluate;
pub use crate::metrics::mean;
use crate::network::{Network, Traffic};
use crate::problem::{Bilevel, Counted, Oracle, Start};
use crate::rows::{Real, View};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::io::Write;
use std::time::{Duration, Instant};

/// How a run is to go.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Iterations at most.
    pub iterations: usize,
    /// Metrics are computed at 0, at each multiple of this, and at the end.
    pub every: usize,
    /// Stop when this metric falls below this value.
    pub target: Option<(String, f64)>,
    /// The run has diverged when the watched metric (the target's, else `relative_error`, else `loss`)
    /// exceeds this or is not finite.
    pub diverged_above: f64,
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
}

/// Everything needed to go on later with the same bits. While a run goes on it borrows the state's memory
/// instead of copying it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "T: Real")]
pub struct Checkpoint<'a, T: Clone> {
    /// Iterations done.
    pub k: usize,
    /// Digest of the experiment it belongs to.
    pub digest: [u8; 32],
    /// Evaluations so far.
    pub samples: Vec<Sample>,
    /// Seconds of iterations.
    pub seconds: f64,
    /// What was sent.
    pub traffic: Traffic,
    /// Oracle calls.
    pub oracle: Oracle,
    /// The state's memory.
    pub memory: Vec<Cow<'a, [T]>>,
    /// The network's memory.
    pub network: Vec<u8>,
}

/// Identifies a checkpoint file and its layout.
const MAGIC: &[u8; 8] = b"dibo-ck3";

/// FNV-1a: no single changed byte goes unseen, and it is the same on every machine.
fn checksum(before: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(before, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}

/// What the checksum of nothing is.
const EMPTY: u64 = 0xcbf2_9ce4_8422_2325;

/// Hands on what is written and keeps its checksum.
struct Summed<W> {
    to: W,
    sum: u64,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.sum = checksum(self.sum, &bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}

impl<T: Real> Checkpoint<'_, T> {
    /// Writes the file's bytes, piece by piece: no copy of the state is made.
    pub fn write(&self, to: impl Write) -> std::io::Result<()> {
        let mut to = Summed { to: std::io::BufWriter::new(to), sum: EMPTY };
        to.to.write_all(MAGIC)?;
        let mut to = postcard::to_io(self, to).map_err(std::io::Error::other)?;
        let sum = to.sum.to_le_bytes();
        to.to.write_all(&sum)?;
        to.to.flush()
    }

    /// The file's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(&mut bytes).expect("memory can be written");
        bytes
    }

    /// The same with a copy of the state's memory, to keep beyond the run.
    pub fn into_owned(self) -> Checkpoint<'static, T> {
        let memory = self.memory.into_iter().map(|m| Cow::Owned(m.into_owned())).collect();
        let Checkpoint { k, digest, samples, seconds, traffic, oracle, network, .. } = self;
        Checkpoint { k, digest, samples, seconds, traffic, oracle, memory, network }
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote; says what is wrong with anything else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let rest = bytes.strip_prefix(MAGIC).ok_or("not a checkpoint of this version of dibo")?;
        let (body, sum) = rest.split_last_chunk::<8>().ok_or("damaged checkpoint: it is cut off")?;
        if *sum != checksum(EMPTY, body).to_le_bytes() {
            return Err("damaged checkpoint: its bytes are not those that were written".into());
        }
        postcard::from_bytes(body).map_err(|e| format!("damaged checkpoint: {e}"))
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
    fn measure(&mut self, _k: usize, _views: &[View<'_, T>]) -> (Vec<(&'static str, f64)>, Option<String>) {
        (Vec::new(), None)
    }
    /// The metrics of a state: where a process owns some agents only, whoever watches must fetch the others'
    /// rows first.
    fn values(
        &mut self,
        _k: usize,
        problem: &dyn Bilevel<T>,
        views: &[View<'_, T>],
    ) -> Result<Vec<(String, f64)>, String> {
        Ok(evaluate(problem, views).into_iter().map(|(name, v)| (name.to_string(), v)).collect())
    }
    /// Called after each evaluation.
    fn sample(&mut self, _sample: &Sample) {}
    /// Called now and then; make a checkpoint if it is time to.
    fn checkpoint_due(&mut self) -> bool {
        false
    }
    /// The state at the end.
    fn finished(&mut self, _views: &[View<'_, T>]) {}
    /// A checkpoint.
    fn checkpoint(&mut self, _checkpoint: Checkpoint<'_, T>) {}
}

/// Nobody watches.
impl<T: Real> Watch<T> for () {}

/// Runs an algorithm on a problem over a network, from the beginning or from a checkpoint.
pub fn run<T: Real>(
    algorithm: &dyn Algorithm<T>,
    problem: &dyn Bilevel<T>,
    network: &mut dyn Network<T>,
    start: &Start,
    plan: &Plan,
    resume: Option<Checkpoint<'_, T>>,
    watch: &mut dyn Watch<T>,
) -> Result<Record, String> {
    let before = network.traffic();
    let counted = Counted::new(problem, resume.as_ref().map_or_else(Oracle::default, |c| c.oracle));
    let mut state = algorithm.start(&counted, network, start);
    if let Some(why) = network.trouble() {
        return Err(why);
    }
    let (mut k, mut clock, mut samples) = (0, Duration::ZERO, Vec::new());
    let counted = match resume {
        None => counted,
        Some(c) => {
            restore(&mut *state, &c)?;
            network.set_traffic(c.traffic);
            network.restore(&c.network)?;
            let seconds = Duration::try_from_secs_f64(c.seconds)
                .map_err(|e| format!("damaged checkpoint: {} seconds: {e}", c.seconds))?;
            (k, clock, samples) = (c.k, seconds, c.samples);
            Counted::new(problem, c.oracle)
        }
    };
    debug_assert!(before.rounds == 0, "a network serves one run");
    let state_bytes = state.memory().iter().map(|r| r.bytes() as u64).sum();
    let every = plan.every.max(1);
    let mut reason = None;
    let outcome = loop {
        if samples.last().is_none_or(|s: &Sample| s.k < k) {
            let (more, broken) = watch.measure(k, &state.views());
            reason = broken;
            let mut values = watch.values(k, problem, &state.views())?;
            values.extend(more.into_iter().map(|(name, v)| (name.to_string(), v)));
            let sample = Sample {
                k,
                seconds: clock.as_secs_f64(),
                traffic: network.traffic(),
                oracle: counted.calls(),
                values,
            };
            watch.sample(&sample);
            samples.push(sample);
        }
        let last = samples.last().expect("pushed above");
        let watched = plan
            .target
            .as_ref()
            .map(|t| t.0.as_str())
            .into_iter()
            .chain(["relative_error", "loss"])
            .find_map(|m| last.get(m));
        if watched.is_some_and(|v| !v.is_finite() || v > plan.diverged_above) {
            break Outcome::Diverged(k);
        }
        if reason.is_some() {
            break Outcome::Broken(k);
        }
        if plan.target.as_ref().is_some_and(|(metric, below)| last.get(metric).is_some_and(|v| v < *below)) {
            break Outcome::Reached(k);
        }
        if k >= plan.iterations {
            break Outcome::Finished;
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
            });
        }
        if stop {
            break Outcome::Stopped(k);
        }
        let until = (k + every - k % every).min(plan.iterations);
        let from = Instant::now();
        while k < until {
            state.step(k, &counted, network);
            k += 1;
            if let Some(why) = network.trouble() {
                return Err(why);
            }
        }
        network.wait();
        clock += from.elapsed();
    };
    watch.finished(&state.views());
    Ok(Record {
        outcome,
        samples,
        state_bytes,
        reason: reason.filter(|_| matches!(outcome, Outcome::Broken(_))),
    })
}

fn restore<T: Real>(state: &mut dyn State<T>, from: &Checkpoint<'_, T>) -> Result<(), String> {
    let other = "the checkpoint belongs to another experiment: its vectors have other sizes";
    let mut memory = state.memory();
    if memory.len() != from.memory.len() {
        return Err(other.into());
    }
    memory
        .iter_mut()
        .zip(&from.memory)
        .try_for_each(|(m, s)| m.restore(s))
        .map_err(|e| format!("{other}: {e}"))
}
