//! Successive halving: all candidates run a little, the better ones run on, and so forth; runs go on from
//! where they stopped, to the bit. Everything is kept in a folder, so that the same command after Ctrl-C goes
//! on from there.
use crate::door::{Place, Ready, Visit, open};
use crate::progress::Progress;
use crate::setting::Setting;
use crate::stop;
use anyhow::{Context, Result};
use dibo::engine::{Checkpoint, Outcome, Sample, Watch};
use dibo::rows::{Real, Threads};
use dibo_report::results::{Kept, seal, unseal};
use serde::{Deserialize, Deserializer, Serialize};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// One setting that is tried.
pub struct Candidate {
    /// Its parameters by key.
    pub parameters: Vec<(String, f64)>,
    /// Ready to run.
    pub setting: Setting,
    /// Why it is not run at all.
    pub refused: Option<String>,
}

/// How far one candidate has come with one seed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Track {
    /// The metric at each evaluation.
    #[serde(deserialize_with = "with_gaps")]
    pub values: Vec<(usize, f64)>,
    /// Whether it is over: reached, diverged or all iterations done.
    pub over: bool,
    /// The iteration at which the target was reached.
    pub reached: Option<usize>,
    /// Whether it diverged.
    pub diverged: bool,
}

/// JSON has no NaN: it is written as null.
fn with_gaps<'de, D: Deserializer<'de>>(reader: D) -> Result<Vec<(usize, f64)>, D::Error> {
    let values = Vec::<(usize, Option<f64>)>::deserialize(reader)?;
    Ok(values.into_iter().map(|(k, value)| (k, value.unwrap_or(f64::NAN))).collect())
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
    pub progress: &'a Progress,
    /// Iterations done now, without those found in the folder.
    pub spent: AtomicUsize,
}

/// So many come to the end at least.
const FINALISTS: usize = 3;

/// Each candidate's iterations, over its seeds, and score at the last rung it ran to; `None` for those that
/// were refused.
pub type Scores = Vec<Option<(usize, Score)>>;

/// Those that came further first, then the better ones.
fn further(scores: &Scores, a: usize, b: usize) -> std::cmp::Ordering {
    match (&scores[a], &scores[b]) {
        (Some((far_a, a)), Some((far_b, b))) => far_b.cmp(far_a).then(a.order(b)),
        _ => std::cmp::Ordering::Equal,
    }
}

impl Race<'_> {
    /// Races all candidates; gives their scores at the last rung they ran to, or `None` if it was stopped.
    /// One seed tells the bad ones: after a short run the best third goes on, then runs become twice as long
    /// from rung to rung and the better half goes on; of those that come to the end, the best third runs with
    /// all seeds. Where all of these diverge with some seed, those that were left behind get their turn, the
    /// best first. With `full`, everyone runs to the end with all seeds.
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
        let mut behind: Vec<usize> = Vec::new();
        // Runs are looked at at multiples of `every` only; two looks are the least that tells anything.
        let every = candidates.first().map_or(1, |c| c.setting.run.every());
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
                let sound = alive.iter().any(|i| scores[*i].is_some_and(|s| s.1.metric.is_finite()));
                behind.retain(|i| scores[*i].is_some_and(|s| s.1.metric.is_finite()));
                if sound || behind.is_empty() {
                    return Ok(Some(scores));
                }
                behind.sort_by(|a, b| further(&scores, *a, *b));
                alive = behind.drain(..FINALISTS.min(behind.len())).collect();
                continue;
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
                let digest = self.digest(&candidates[i], seeds[0])?;
                drop(std::fs::remove_file(self.file(&digest, "checkpoint")));
                behind.push(i);
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

    /// What a track belongs to: the candidate with everything that it depends on, the seed and the metric.
    fn digest(&self, candidate: &Candidate, seed: u64) -> Result<[u8; 32]> {
        let mut hash = candidate.setting.digest(self.files)?;
        candidate.setting.add_private(self.files, &mut hash)?;
        hash.update(self.metric.as_bytes()).update(&seed.to_le_bytes()).update(dibo::rows::cpu().as_bytes());
        Ok(*hash.finalize().as_bytes())
    }

    fn file(&self, digest: &[u8; 32], ending: &str) -> PathBuf {
        let name: String = digest.iter().take(12).map(|b| format!("{b:02x}")).collect();
        self.folder.join(format!("{name}.{ending}"))
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
                        if stop::asked() {
                            return;
                        }
                        match self.one(&candidates[*i], *seed, until) {
                            Ok(track) => *tracks[at].lock().unwrap_or_else(PoisonError::into_inner) = track,
                            Err(e) => *error.lock().unwrap_or_else(PoisonError::into_inner) = Some(e),
                        }
                    }
                });
            }
        });
        if let Some(e) = error.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(e);
        }
        let tracks =
            tracks.into_iter().map(|t| t.into_inner().unwrap_or_else(PoisonError::into_inner)).collect();
        Ok((!stop::asked()).then_some(tracks))
    }

    fn one(&self, candidate: &Candidate, seed: u64, until: usize) -> Result<Track> {
        let digest = self.digest(candidate, seed)?;
        match unseal(&self.file(&digest, "track"), &digest) {
            Kept::Found(bytes) => {
                let track = serde_json::from_slice::<Track>(&bytes).context("a track cannot be read")?;
                if track.over || track.done() >= until {
                    return Ok(track);
                }
            }
            Kept::Damaged(what) => self.progress.say(&format!("{what}: it is done again")),
            Kept::Missing | Kept::Another => {}
        }
        let one = Threads::one();
        let place = Place::new(self.files, &one);
        let opened = open(&candidate.setting, seed, place)?;
        opened.visit(Going { race: self, digest, until })
    }
}

/// One candidate with one seed on its way to the end of a rung.
struct Going<'a> {
    race: &'a Race<'a>,
    digest: [u8; 32],
    until: usize,
}

impl Visit for Going<'_> {
    type Out = Track;

    fn visit<T: Real>(self, ready: Ready<'_, T>) -> Result<Track> {
        let Going { race, digest, until } = self;
        let half = race.file(&digest, "checkpoint");
        let resume = match unseal(&half, &digest) {
            Kept::Found(bytes) => Checkpoint::<T>::from_bytes(&bytes).ok().map(Checkpoint::into_owned),
            _ => None,
        };
        let from = resume.as_ref().map_or(0, |c| c.k);
        let mut rung = Rung { until, checkpoint: None, progress: race.progress, seen: from };
        let mut network = ready.network()?;
        let record = ready.run(&mut *network, resume, &mut rung)?;
        let last = record.samples.last().map_or(0, |s| s.k);
        race.spent.fetch_add(last - from, Relaxed);
        let value = |s: &Sample| (s.k, s.get(race.metric).unwrap_or(f64::NAN));
        let track = Track {
            values: record.samples.iter().map(value).collect(),
            over: !matches!(record.outcome, Outcome::Stopped(_)),
            reached: if let Outcome::Reached(k) = record.outcome { Some(k) } else { None },
            diverged: matches!(record.outcome, Outcome::Diverged(_)),
        };
        if let Some(checkpoint) = rung.checkpoint {
            seal(&half, &digest, &checkpoint.to_bytes())?;
        }
        // A run that Ctrl-C cut short keeps its checkpoint; its track would say more than the rung asked for.
        if track.over || last >= until {
            let text = serde_json::to_vec(&track).context("cannot write a track")?;
            seal(&race.file(&digest, "track"), &digest, &text)?;
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
    progress: &'a Progress,
    seen: usize,
}

impl<T: Real> Watch<T> for Rung<'_, T> {
    fn go_on(&mut self, k: usize) -> bool {
        self.progress.inc((k - self.seen) as u64);
        self.seen = k;
        k < self.until && !stop::asked()
    }

    fn checkpoint(&mut self, checkpoint: Checkpoint<'_, T>) -> dibo::Result<()> {
        self.checkpoint = Some(checkpoint.into_owned());
        Ok(())
    }
}
