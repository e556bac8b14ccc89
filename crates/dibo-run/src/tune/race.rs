//! Successive halving: all candidates run a little, the better ones run on, and so forth; runs go on from
//! where they stopped, to the bit. Everything is kept in a folder, so that the same command after Ctrl-C goes
//! on from there.
use crate::experiment::Setting;
use crate::experiment::spec::Problem;
use crate::results::write_file;
use crate::runner::STOP;
use anyhow::{Context, Result};
use dibo::algorithm::Algorithm;
use dibo::engine::{self, Checkpoint, Outcome, Sample, Watch};
use dibo::network::Simulator;
use dibo::problem::Bilevel;
use dibo::rows::{Real, Threads};
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// One setting that is tried.
pub struct Candidate {
    /// Its parameters by key, as text.
    pub parameters: Vec<(String, String)>,
    /// Ready to run.
    pub setting: Setting,
    /// Why it is not run at all.
    pub refused: Option<String>,
}

/// How far one candidate has come with one seed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Track {
    /// The metric at each evaluation.
    pub values: Vec<(usize, f64)>,
    /// Whether it is over: reached, diverged or all iterations done.
    pub over: bool,
    /// The iteration at which the target was reached.
    pub reached: Option<usize>,
    /// Whether it diverged.
    pub diverged: bool,
}

impl Track {
    fn done(&self) -> usize {
        self.values.last().map_or(0, |v| v.0)
    }

    /// As it stood after `k` iterations, so that a race that is taken up again decides as before.
    fn at(&self, k: usize) -> (Option<usize>, f64) {
        let value = self.values.iter().rev().find(|v| v.0 <= k).map_or(f64::NAN, |v| v.1);
        (self.reached.filter(|r| *r <= k), if self.diverged && self.done() <= k { f64::NAN } else { value })
    }
}

/// How a candidate is judged: fewer iterations to the target, else a better metric. Smaller is better.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Seeds that have not reached the target (all, where there is none).
    pub open: usize,
    /// Mean iterations of those that have.
    pub iterations: f64,
    /// Mean metric at the end, turned so that smaller is better; infinite if a run diverged.
    pub metric: f64,
}

impl Score {
    pub fn order(&self, other: &Score) -> std::cmp::Ordering {
        // Equal counts first; then speed, then the metric.
        self.open
            .cmp(&other.open)
            .then(self.iterations.total_cmp(&other.iterations))
            .then(self.metric.total_cmp(&other.metric))
    }
}

/// A race and where its memory lies.
pub struct Race<'a> {
    /// Folder of the tracks.
    pub folder: PathBuf,
    /// Beside which relative files lie.
    pub files: &'a Path,
    /// What is minimised or, if `upwards`, maximised.
    pub metric: &'a str,
    /// Larger is better.
    pub upwards: bool,
    /// Threads.
    pub threads: usize,
    /// Shows how far it is.
    pub bar: &'a ProgressBar,
    /// Iterations done now, without those found in the folder.
    pub spent: AtomicUsize,
}

/// So many come to the end at least.
const FINALISTS: usize = 3;

/// Each candidate's iterations, over its seeds, and score at the last rung it ran to; `None` for those that
/// were refused.
pub type Scores = Vec<Option<(usize, Score)>>;

impl Race<'_> {
    /// Races all candidates; gives their scores at the last rung they ran to, or `None` if it was stopped.
    /// One seed tells the bad ones: after a short run the best third goes on, then runs become twice as long
    /// from rung to rung and the better half goes on; of those that come to the end, the best third runs with
    /// all seeds. With `full`, everyone runs to the end with all seeds.
    pub fn run(
        &self,
        candidates: &[Candidate],
        seeds: &[u64],
        iterations: usize,
        full: bool,
    ) -> Result<Option<Scores>> {
        let mut alive: Vec<usize> =
            (0..candidates.len()).filter(|i| candidates[*i].refused.is_none()).collect();
        let mut scores: Scores = vec![None; candidates.len()];
        // Runs are looked at at multiples of `every` only; two looks are the least that tells anything.
        let every = candidates.first().map_or(1, |c| c.setting.run.plan().every);
        let mut until = (iterations / 27).next_multiple_of(every).max(2 * every).min(iterations);
        let mut share = 3;
        let mut seeds_now = &seeds[..1];
        if full || alive.len() <= FINALISTS {
            (until, seeds_now) = (iterations, seeds);
        }
        loop {
            let jobs: Vec<(usize, u64)> =
                alive.iter().flat_map(|i| seeds_now.iter().map(move |s| (*i, *s))).collect();
            let Some(tracks) = self.advance(candidates, &jobs, until)? else { return Ok(None) };
            for i in &alive {
                let mine = jobs.iter().zip(&tracks).filter(|(job, _)| job.0 == *i).map(|(_, t)| t.at(until));
                scores[*i] = Some((until * seeds_now.len(), self.score(mine.collect())));
            }
            if seeds_now.len() == seeds.len() && until == iterations {
                return Ok(Some(scores));
            }
            alive.sort_by(|a, b| match (&scores[*a], &scores[*b]) {
                (Some((_, a)), Some((_, b))) => a.order(b),
                _ => std::cmp::Ordering::Equal,
            });
            if until == iterations {
                (share, seeds_now) = (3, seeds);
            }
            let keep = alive.len().div_ceil(share).max(FINALISTS.min(alive.len()));
            for i in alive.split_off(keep) {
                drop(std::fs::remove_file(self.place(&candidates[i], seeds[0], "checkpoint")));
            }
            (until, share) = ((2 * until).min(iterations), 2);
        }
    }

    fn score(&self, seeds: Vec<(Option<usize>, f64)>) -> Score {
        let reached: Vec<f64> = seeds.iter().filter_map(|s| s.0.map(|k| k as f64)).collect();
        let sign = if self.upwards { -1.0 } else { 1.0 };
        let metric =
            seeds.iter().map(|s| if s.1.is_finite() { sign * s.1 } else { f64::INFINITY }).sum::<f64>()
                / seeds.len() as f64;
        let iterations = if reached.is_empty() {
            f64::INFINITY
        } else {
            reached.iter().sum::<f64>() / reached.len() as f64
        };
        Score { open: seeds.len() - reached.len(), iterations, metric }
    }

    fn place(&self, candidate: &Candidate, seed: u64, ending: &str) -> PathBuf {
        let mut hash = blake3::Hasher::new();
        hash.update(env!("CARGO_PKG_VERSION").as_bytes()).update(self.metric.as_bytes());
        for (key, value) in &candidate.setting.series.settings {
            hash.update(format!("{key}={value}\n").as_bytes());
        }
        self.folder.join(format!("{}-{seed}.{ending}", &hash.finalize().to_hex()[..24]))
    }

    /// Brings all jobs to `until` iterations, on all cores; `None` if it was asked to stop.
    fn advance(
        &self,
        candidates: &[Candidate],
        jobs: &[(usize, u64)],
        until: usize,
    ) -> Result<Option<Vec<Track>>> {
        let (next, error) = (AtomicUsize::new(0), Mutex::new(None));
        let tracks: Vec<Mutex<Track>> = jobs.iter().map(|_| Mutex::default()).collect();
        std::thread::scope(|scope| {
            for _ in 0..self.threads.min(jobs.len()).max(1) {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Relaxed);
                        let Some((i, seed)) = jobs.get(at) else { return };
                        if STOP.load(Relaxed) {
                            return;
                        }
                        match self.one(&candidates[*i], *seed, until) {
                            Ok(track) => *tracks[at].lock().expect("no panic while held") = track,
                            Err(e) => *error.lock().expect("no panic while held") = Some(e),
                        }
                    }
                });
            }
        });
        if let Some(e) = error.into_inner().expect("all threads are done") {
            return Err(e);
        }
        let tracks = tracks.into_iter().map(|t| t.into_inner().expect("all threads are done")).collect();
        Ok((!STOP.load(Relaxed)).then_some(tracks))
    }

    fn one(&self, candidate: &Candidate, seed: u64, until: usize) -> Result<Track> {
        let found = std::fs::read(self.place(candidate, seed, "track"))
            .ok()
            .and_then(|b| serde_json::from_slice::<Track>(&b).ok());
        if let Some(track) = found
            && (track.over || track.done() >= until)
        {
            return Ok(track);
        }
        let (setting, threads) = (&candidate.setting, Threads::one());
        let problem = setting.problem(seed, self.files, &threads)?;
        let network = setting.graphs(setting.agents(seed, self.files)?, seed, self.files)?;
        match &problem {
            Problem::PolicyEvaluation(p) => {
                self.go(candidate, seed, until, &*setting.algorithm, &**p, Simulator::new(network, threads))
            }
            Problem::Quadratic(p) => {
                self.go(candidate, seed, until, &*setting.algorithm, &**p, Simulator::new(network, threads))
            }
            Problem::Robust(p) => {
                self.go(candidate, seed, until, &*setting.algorithm, &**p, Simulator::new(network, threads))
            }
            Problem::Learning64(p) => {
                self.go(candidate, seed, until, &*setting.algorithm, &**p, Simulator::new(network, threads))
            }
            Problem::Learning32(p) => {
                self.go(candidate, seed, until, &*setting.algorithm32, &**p, Simulator::new(network, threads))
            }
        }
    }

    fn go<T: Real>(
        &self,
        candidate: &Candidate,
        seed: u64,
        until: usize,
        algorithm: &dyn Algorithm<T>,
        problem: &dyn Bilevel<T>,
        mut network: Simulator<T>,
    ) -> Result<Track> {
        let half = self.place(candidate, seed, "checkpoint");
        let resume = std::fs::read(&half).ok().and_then(|b| Checkpoint::<T>::from_bytes(&b).ok());
        let from = resume.as_ref().map_or(0, |c| c.k);
        let mut rung = Rung { until, checkpoint: None, bar: self.bar, seen: from };
        let plan = candidate.setting.run.plan();
        let record =
            engine::run(algorithm, problem, &mut network, &problem.start(), &plan, resume, &mut rung)
                .map_err(anyhow::Error::msg)?;
        let last = record.samples.last().map_or(0, |s| s.k);
        self.spent.fetch_add(last - from, Relaxed);
        let value = |s: &Sample| (s.k, s.get(self.metric).unwrap_or(f64::NAN));
        let track = Track {
            values: record.samples.iter().map(value).collect(),
            over: !matches!(record.outcome, Outcome::Stopped(_)),
            reached: if let Outcome::Reached(k) = record.outcome { Some(k) } else { None },
            diverged: matches!(record.outcome, Outcome::Diverged(_)),
        };
        if let Some(checkpoint) = rung.checkpoint {
            write_file(&half, &checkpoint.to_bytes())?;
        }
        // A run that Ctrl-C cut short keeps its checkpoint; its track would say more than the rung asked for.
        if track.over || last >= until {
            let text = serde_json::to_vec(&track).context("cannot write a track")?;
            write_file(&self.place(candidate, seed, "track"), &text)?;
        }
        if track.over {
            let _ = std::fs::remove_file(&half);
        }
        Ok(track)
    }
}

/// Stops a run at the end of its rung.
struct Rung<'a, T: Real> {
    until: usize,
    checkpoint: Option<Checkpoint<'static, T>>,
    bar: &'a ProgressBar,
    seen: usize,
}

impl<T: Real> Watch<T> for Rung<'_, T> {
    fn go_on(&mut self, k: usize) -> bool {
        self.bar.inc((k - self.seen) as u64);
        self.seen = k;
        k < self.until && !STOP.load(Relaxed)
    }

    fn checkpoint(&mut self, checkpoint: Checkpoint<'_, T>) {
        self.checkpoint = Some(checkpoint.into_owned());
    }
}
