//! A page to watch a run while it goes on: on this machine only, behind a token, with the plots of the report
//! that follows.
//!
//! A run tells [`Live`] what it evaluates, which costs it a comparison, and now and then a short lock; all
//! else is done by the server's thread when a page asks, and not more often than once in a hundred times as
//! long as it takes.
mod network;
mod server;

use crate::report::average;
use crate::report::data::Data;
use crate::report::words;
use crate::results::{CurveRow, Curves, Figure, Manifest, MetricInfo, RunRecord};
use network::Look;
pub use network::{Member, Network};
pub use server::Server;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Points that a run shows of itself at most.
const POINTS: usize = 150;
/// Numbers in one answer.
const ROOM: usize = 30_000;
/// Lines of what was said that are kept.
const SAID: usize = 20;
/// Between two answers: how many times as long as making one took, but within these bounds.
const SHARE: u32 = 100;
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(3);

/// What is known of a run while it goes on.
pub struct Live {
    known: Mutex<Known>,
    total: AtomicU64,
    done: AtomicU64,
    /// Of these, what an earlier run had done.
    found: AtomicU64,
    stopping: AtomicBool,
    wishes: Wishes,
    network: OnceLock<Box<Look>>,
    began: Instant,
}

/// Where a page's wishes go.
pub struct Wishes {
    /// To stop.
    pub stop: Box<dyn Fn() + Send + Sync>,
    /// That every run keeps a checkpoint and goes on.
    pub keep: Box<dyn Fn() + Send + Sync>,
}

/// How a run has ended, for its pages.
#[derive(Clone, Copy, Default, PartialEq)]
enum End {
    /// It goes on.
    #[default]
    Open,
    /// It has left a report, to which pages go on.
    Report,
    /// It was stopped and has left none.
    Stopped,
}

struct Known {
    manifest: Manifest,
    curves: Curves,
    /// Iteration and last value of each run that goes on, by series and seed.
    going: BTreeMap<(usize, u64), (usize, f64)>,
    message: String,
    said: Vec<String>,
    /// When a run last kept a checkpoint.
    kept: Option<Instant>,
}

/// One run's way to the page.
pub struct Feed {
    live: Arc<Live>,
    series: usize,
    seed: u64,
    stride: usize,
    next: AtomicUsize,
}

impl Live {
    /// Nothing yet; `manifest` says what runs, without runs and metrics.
    pub fn new(mut manifest: Manifest, wishes: Wishes) -> Self {
        // Bars and points show how runs end; lines can be drawn from the first evaluation on.
        manifest.figures.retain(|figure| figure.kind == "line");
        let (curves, going, said) = Default::default();
        Live {
            known: Mutex::new(Known { manifest, curves, going, message: String::new(), said, kept: None }),
            total: AtomicU64::new(0),
            done: AtomicU64::new(0),
            found: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            wishes,
            network: OnceLock::new(),
            began: Instant::now(),
        }
    }

    /// So many iterations are to be done in all.
    pub fn set_total(&self, iterations: u64) {
        self.total.store(iterations, Relaxed);
    }

    /// So many iterations more were done.
    pub fn advance(&self, iterations: u64) {
        self.done.fetch_add(iterations, Relaxed);
    }

    /// So many of those that are done took none of this run's time.
    pub fn found(&self, iterations: u64) {
        self.found.fetch_add(iterations, Relaxed);
    }

    /// So many iterations are done in all.
    pub fn set_done(&self, iterations: u64) {
        self.done.store(iterations, Relaxed);
    }

    /// What is going on, in a few words.
    pub fn set_message(&self, message: &str) {
        self.known().message = message.into();
    }

    /// Something a reader should know; the last ones are kept.
    pub fn say(&self, line: &str) {
        let mut known = self.known();
        known.said.push(line.into());
        let more = known.said.len().saturating_sub(SAID);
        known.said.drain(..more);
    }

    /// A run of so many iterations begins; what was known of it is forgotten.
    pub fn begin(self: &Arc<Self>, series: usize, seed: u64, iterations: usize) -> Feed {
        self.known().curves.rows.retain(|row| (row.series, row.seed) != (series, seed));
        let stride = (iterations / POINTS).max(1);
        Feed { live: self.clone(), series, seed, stride, next: AtomicUsize::new(0) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wish_to_stop(&self) {
        self.stopping.store(true, Relaxed);
        (self.wishes.stop)();
    }

    fn wish_to_keep(&self) {
        (self.wishes.keep)();
    }

    /// The news as JSON.
    fn news(&self, end: End, pause: Duration) -> String {
        let (manifest, curves, going, message, said, kept) = {
            let known = self.known();
            let Known { manifest, curves, going, message, said, kept } = &*known;
            (manifest.clone(), curves.clone(), going.clone(), message.clone(), said.clone(), *kept)
        };
        let state = match (end, self.stopping.load(Relaxed)) {
            (End::Report, _) => "ended",
            (End::Stopped, _) => "stopped",
            (End::Open, true) => "stopping",
            (End::Open, false) => "running",
        };
        let runs: Vec<[String; 4]> = going
            .iter()
            .map(|((series, seed), (iteration, value))| {
                let label = manifest.series.get(*series).map_or("", |series| &series.label);
                [label.into(), seed.to_string(), iteration.to_string(), words::number(*value)]
            })
            .collect();
        let news = serde_json::json!({
            "state": state,
            "report": end == End::Report,
            "done": self.done.load(Relaxed),
            "found": self.found.load(Relaxed),
            "total": self.total.load(Relaxed),
            "seconds": self.began.elapsed().as_secs_f64(),
            "message": message,
            "said": said,
            "kept": kept.map(|kept| kept.elapsed().as_secs_f64()),
            "runs": runs,
            "network": self.look(going.iter().next().map(|((series, seed), now)| (*series, *seed, now.0))),
            "pause": pause.as_millis() as u64,
            "data": Data::new(&manifest, &curves, ROOM),
        });
        news.to_string()
    }
}

impl Feed {
    /// Whether the evaluation at this iteration is one to show; then it comes with [`Feed::show`].
    pub fn wants(&self, iteration: usize) -> bool {
        iteration >= self.next.load(Relaxed)
    }

    /// One evaluation: a row of the curves, whose values come with their metrics' names.
    pub fn show(&self, row: CurveRow, values: &[(String, f64)]) {
        self.next.store(row.iteration + self.stride, Relaxed);
        let mut known = self.live.known();
        for (name, _) in values {
            if !known.curves.metrics.contains(name) {
                known.curves.metrics.push(name.clone());
                known.manifest.metrics.push(MetricInfo::plain(name));
                if known.manifest.figures.is_empty() {
                    known.manifest.figures.push(Figure::line(name, ""));
                }
            }
        }
        let value = |name: &String| values.iter().find(|value| value.0 == *name).map_or(f64::NAN, |v| v.1);
        let values: Vec<f64> = known.curves.metrics.iter().map(value).collect();
        let shown = known.manifest.figures.first().map(|figure| figure.y.clone());
        let last = shown.map_or(f64::NAN, |name| value(&name));
        known.going.insert((self.series, self.seed), (row.iteration, last));
        known.curves.rows.push(CurveRow { series: self.series, seed: self.seed, values, ..row });
    }

    /// The run has kept a checkpoint.
    pub fn kept(&self) {
        self.live.known().kept = Some(Instant::now());
    }

    /// The run is over.
    pub fn end(&self, outcome: &str) {
        let mut known = self.live.known();
        let iterations = known.going.remove(&(self.series, self.seed)).map_or(0, |going| going.0);
        known.manifest.runs.push(RunRecord {
            series: self.series,
            seed: self.seed,
            outcome: outcome.into(),
            reason: None,
            best: None,
            iterations,
            seconds: 0.0,
            bytes: 0,
            gradients: 0,
            products: 0,
            state_bytes: 0,
            memory: Default::default(),
            last: BTreeMap::new(),
            smallest: BTreeMap::new(),
            mean: BTreeMap::new(),
        });
        let (lost, all) = average::diverged(&known.manifest, self.series);
        if outcome == "diverged" {
            let label = known.manifest.series.get(self.series).map_or("", |series| &series.label);
            let line = format!("{label}, seed {}: diverged ({lost} of {all} so far)", self.seed);
            drop(known);
            self.live.say(&line);
        }
    }
}

#[cfg(test)]
mod tests;
