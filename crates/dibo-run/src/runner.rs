//! Runs all settings of an experiment with all seeds: on all cores, with progress, and so that it can be
//! stopped and taken up again.
use crate::device::Accelerator;
use crate::door::{Place, Ready, Visit, open};
use crate::experiment::Experiment;
use crate::progress::Progress;
use crate::setting::Setting;
use crate::{allocator, origin, stop};
use anyhow::{Context, Result};
use dibo::algorithm::Algorithm;
use dibo::engine::{Checkpoint, Outcome, Record, Sample, Watch};
use dibo::metrics::Values;
use dibo::problem::{Better, Bilevel, Metric, estimate};
use dibo::rows::{Real, Threads, View};
use dibo::theory;
use dibo::theory::watch::{Observer, Seen};
use dibo_report::live::{Feed, Live};
use dibo_report::results::{CurveRow, Curves, FORMAT, Kept, Machine, Manifest};
use dibo_report::results::{MemoryUse, MetricInfo, RunRecord};
use dibo_report::results::{seal, seal_with, unseal, write_file};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// What a user can choose about a run.
pub struct Options {
    /// Folder for the results.
    pub out: PathBuf,
    /// Cores to use.
    pub threads: usize,
    /// The GPU, if the runs go there: one after another.
    pub device: Option<Accelerator>,
    /// Draw no progress bar.
    pub quiet: bool,
    /// The page that watches, if any.
    pub live: Option<Arc<Live>>,
}

/// A run's record and what is known of its memory.
pub type Finished = (Record, MemoryUse);

/// Runs an experiment and gives its results; finished and half-finished runs found in the folder are not done
/// again.
pub fn run(experiment: &Experiment, options: &Options) -> Result<(Manifest, Curves)> {
    let (began, started) = (Instant::now(), SystemTime::now());
    let jobs = jobs(experiment);
    let kept = options.out.join("runs");
    std::fs::create_dir_all(&kept).with_context(|| format!("cannot make the folder {}", kept.display()))?;
    let total: usize = jobs.iter().map(|(s, _)| experiment.settings[*s].run.iterations).sum();
    let progress = Progress::new(total as u64, options.quiet).with_live(options.live.clone());
    progress.set_message(format!("{} runs", jobs.len()));
    // Seeds fan out over the cores; only where there are fewer runs than cores does one run use several.
    let workers = workers(experiment, options.threads, options.device.is_some());
    let inside = (options.threads / workers).max(1);
    let (next, done, reused) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let error = Mutex::new(None);
    let failed = || error.lock().is_ok_and(|e: std::sync::MutexGuard<'_, Option<anyhow::Error>>| e.is_some());
    let records: Vec<Mutex<Option<Finished>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let device = options.device.as_ref();
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let threads = Threads::new(inside);
                loop {
                    let at = next.fetch_add(1, Relaxed);
                    let Some((s, seed)) = jobs.get(at).copied().filter(|_| !failed()) else { return };
                    let (kept, progress, alone) = (kept.as_path(), &progress, workers == 1);
                    let iterations = experiment.settings[s].run.iterations;
                    let live = options.live.as_ref().filter(|_| !stop::asked());
                    let feed = live.map(|live| live.begin(s, seed, iterations));
                    let job = Job { experiment, s, seed, kept, progress, alone, feed };
                    let result = job.go(&threads, device, &reused);
                    let mut error = error.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    match result {
                        Ok(None) => {}
                        Ok(Some(record)) => {
                            let count = done.fetch_add(1, Relaxed) + 1;
                            progress.set_message(format!("{count}/{} runs", jobs.len()));
                            *records[at].lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
                                Some(record);
                        }
                        Err(e) => *error = error.take().or(Some(e)),
                    }
                }
            });
        }
    });
    progress.finish();
    let found = reused.load(Relaxed);
    if found > 0 {
        let (all, out) = (jobs.len(), options.out.display());
        crate::say!("{found} of {all} runs were found finished in {out} (--fresh does all anew)");
    }
    if let Some(e) = error.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        return Err(e);
    }
    let records =
        records.into_iter().map(|r| r.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner));
    let (mut manifest, curves) = results(experiment, options, &jobs, records.collect(), began, started)?;
    add_earlier(&mut manifest, &options.out, found);
    Ok((manifest, curves))
}

/// Earlier sittings count where their runs do, of which so many were found finished; one that finds all done
/// adds nothing.
fn add_earlier(manifest: &mut Manifest, out: &Path, found: usize) {
    let stopped = |m: &Manifest| m.runs.iter().any(|r| r.outcome == "stopped");
    let Some(earlier) = Manifest::read(out).ok().filter(|m| found > 0 || stopped(m)) else { return };
    let now = if found == manifest.runs.len() { 0.0 } else { manifest.seconds };
    (manifest.started, manifest.seconds) = (earlier.started, earlier.seconds + now);
}

/// Runs that go on side by side.
pub fn workers(experiment: &Experiment, threads: usize, device: bool) -> usize {
    let alone = device || experiment.settings.iter().any(|s| s.run.alone);
    if alone { 1 } else { threads.min(experiment.settings.len() * experiment.seeds.len()).max(1) }
}

/// Every setting with every seed, in order.
pub fn jobs(experiment: &Experiment) -> Vec<(usize, u64)> {
    (0..experiment.settings.len()).flat_map(|s| experiment.seeds.iter().map(move |seed| (s, *seed))).collect()
}

/// What a run leaves behind.
pub fn results(
    experiment: &Experiment,
    options: &Options,
    jobs: &[(usize, u64)],
    records: Vec<Option<Finished>>,
    began: Instant,
    started: SystemTime,
) -> Result<(Manifest, Curves)> {
    let (runs, curves) = gather(experiment, jobs, records.into_iter());
    let known = metrics(experiment, options)?;
    let about = |name: &String| metric_info(name, known.iter().find(|m| m.name == name));
    let mut manifest = Manifest {
        seconds: began.elapsed().as_secs_f64(),
        peak_memory: peak_memory(),
        metrics: curves.metrics.iter().map(about).collect(),
        runs,
        ..before(experiment, options.threads, started)
    };
    manifest.machine.device = options.device.as_ref().map(|d| d.name());
    Ok((manifest, curves))
}

/// What can be said of an experiment before it has run.
pub fn before(experiment: &Experiment, threads: usize, started: SystemTime) -> Manifest {
    Manifest {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").into(),
        commit: origin::commit(),
        command: origin::command(),
        name: experiment.name.clone(),
        title: experiment.title.clone(),
        about: experiment.about.clone(),
        file: experiment.text.clone(),
        overrides: experiment.overrides.clone(),
        seeds: experiment.seeds.clone(),
        machine: machine(threads),
        started: started.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        seconds: 0.0,
        peak_memory: None,
        metrics: Vec::new(),
        series: experiment.settings.iter().map(|s| s.series.clone()).collect(),
        runs: Vec::new(),
        figures: experiment.figures.clone(),
        claims: experiment.claims.clone(),
    }
}

/// A metric's words for the results.
fn metric_info(name: &str, known: Option<&Metric>) -> MetricInfo {
    let Some(m) = known else { return MetricInfo::plain(name) };
    let better = match m.better {
        Better::Lower => "lower",
        Better::Higher => "higher",
        Better::Neither => "",
    };
    MetricInfo { name: name.into(), label: m.label.into(), unit: m.unit.into(), better: better.into() }
}

/// The metrics of all settings' problems.
fn metrics(experiment: &Experiment, options: &Options) -> Result<Vec<Metric>> {
    let (mut all, mut seen) = (dibo::metrics::ALWAYS.to_vec(), std::collections::BTreeSet::new());
    let (threads, folder) = (Threads::one(), experiment.folder.as_path());
    for setting in &experiment.settings {
        if seen.insert(setting.series.words("problem.kind")) {
            let place = Place { device: options.device.as_ref(), ..Place::new(folder, &threads) };
            all.extend(open(setting, experiment.seeds[0], place)?.measures());
        }
    }
    Ok(all)
}

/// One setting with one seed.
struct Job<'a> {
    experiment: &'a Experiment,
    s: usize,
    seed: u64,
    kept: &'a Path,
    progress: &'a Progress,
    /// No other run goes on beside it, so that its peak memory can be told.
    alone: bool,
    /// Its way to a page that watches.
    feed: Option<Feed>,
}

impl Job<'_> {
    fn setting(&self) -> &Setting {
        &self.experiment.settings[self.s]
    }

    /// From where it was left. One that was asked to stop begins nothing, but what was finished before is
    /// there.
    fn go(
        &self,
        threads: &Threads,
        device: Option<&Accelerator>,
        reused: &AtomicUsize,
    ) -> Result<Option<Finished>> {
        let digest = digest(self.experiment, self.setting(), self.seed, device)?;
        match unseal(&self.file("done"), &digest) {
            // What was taken home may have been moved away; then it is made again.
            Kept::Found(_) if self.leaves_files(device.is_some()) && !self.taken().exists() => {}
            Kept::Found(bytes) => {
                if let Ok(record) = postcard::from_bytes::<Finished>(&bytes) {
                    self.progress.found(self.setting().run.iterations as u64);
                    if let Some(feed) = &self.feed {
                        show_whole(feed, &record.0);
                    }
                    reused.fetch_add(1, Relaxed);
                    return Ok(Some(record));
                }
            }
            _ if stop::asked() => {}
            Kept::Damaged(what) => self.progress.say(&format!("{what}: this run is done again")),
            Kept::Missing | Kept::Another => {}
        }
        if stop::asked() {
            return Ok(None);
        }
        allocator::begin();
        let place = Place { device, ..Place::new(&self.experiment.folder, threads) };
        let opened = open(self.setting(), self.seed, place)?;
        if let Some(note) = &opened.built.note {
            self.progress.say(&format!("{}: {note}", self.setting().series.label));
        }
        opened.visit(Going { job: self, digest, data_bytes: opened.built.data_bytes }).map(Some)
    }

    /// Whether this run leaves models and labels: of each setting the first seed's does.
    fn exports(&self) -> bool {
        self.setting().problem.exports() && self.seed == self.experiment.seeds[0]
    }

    /// Whether it leaves them from where it computes, too.
    fn leaves_files(&self, on_device: bool) -> bool {
        self.exports() && (!on_device || self.setting().problem.exports_from_device())
    }

    /// Where models and labels of this setting go.
    fn taken(&self) -> PathBuf {
        self.kept.with_file_name("taken").join(self.s.to_string())
    }

    fn file(&self, ending: &str) -> PathBuf {
        self.kept.join(format!("{}-{}.{ending}", self.s, self.seed))
    }
}

/// A job on its way through the door.
struct Going<'a> {
    job: &'a Job<'a>,
    digest: [u8; 32],
    data_bytes: u64,
}

impl Visit for Going<'_> {
    type Out = Finished;

    /// Runs, keeps the result and, of the first seed, a picture of the state at the end.
    fn visit<T: Real>(self, ready: Ready<'_, T>) -> Result<Finished> {
        let Going { job, digest, data_bytes } = self;
        let (setting, half) = (job.setting(), job.file("checkpoint"));
        let label = &setting.series.label;
        let resume = match unseal(&half, &digest) {
            Kept::Found(bytes) => Checkpoint::<T>::from_bytes(&bytes).ok().map(Checkpoint::into_owned),
            Kept::Damaged(what) => {
                job.progress.say(&format!("{what}: the run begins anew"));
                None
            }
            Kept::Missing | Kept::Another => None,
        };
        let mut watch = Watcher {
            progress: job.progress,
            feed: job.feed.as_ref(),
            seen: 0,
            digest,
            half: &half,
            last: Instant::now(),
            keeps: stop::keeps(),
            // A checkpoint of a large state takes long: they must not become the work.
            patience: {
                let numbers = 6 * ready.problem.agents() * ready.problem.lower();
                Duration::from_secs(20 + (numbers / 5_000_000) as u64)
            },
            ready: &ready,
            picture: None,
            vectors: String::new(),
            taken: job.exports().then(|| job.taken()),
            exported: Ok(()),
            theory: job.experiment.watch.then(|| Theory::new(&ready)).transpose()?.flatten(),
        };
        if let Some(checkpoint) = &resume {
            watch.seen = checkpoint.k;
            job.progress.found(checkpoint.k as u64);
        }
        let mut network = ready.network()?;
        let record = ready.run(&mut *network, resume, &mut watch).with_context(|| label.clone())?;
        std::mem::replace(&mut watch.exported, Ok(())).with_context(|| label.clone())?;
        if let Some(folder) = &watch.taken {
            // A run that has nothing to take home is not one whose files were moved away.
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let memory = MemoryUse {
            vectors: std::mem::take(&mut watch.vectors),
            data_bytes,
            peak_bytes: if job.alone { allocator::peak() as u64 } else { 0 },
        };
        let finished = (record, memory);
        if let Some(feed) = &job.feed {
            feed.end(finished.0.outcome.word());
        }
        if !matches!(finished.0.outcome, Outcome::Stopped(_)) {
            job.progress.inc((setting.run.iterations - watch.seen) as u64);
            if let Some(picture) = watch.picture.filter(|_| job.seed == job.experiment.seeds[0]) {
                write_file(&job.kept.join(format!("{}.svg", job.s)), picture.as_bytes())?;
            }
            let bytes = postcard::to_stdvec(&finished).context("cannot write a run")?;
            seal(&job.file("done"), &digest, &bytes)?;
            let _ = std::fs::remove_file(&half);
        }
        Ok(finished)
    }
}

/// A run that has ended, for a page that watches.
pub fn show_whole(feed: &Feed, record: &Record) {
    record.samples.iter().for_each(|sample| show(feed, sample));
    feed.end(record.outcome.word());
}

/// An evaluation for a page that watches, where it is time for one.
pub fn show(feed: &Feed, sample: &Sample) {
    if !feed.wants(sample.k) {
        return;
    }
    let row = CurveRow {
        series: 0,
        seed: 0,
        iteration: sample.k,
        seconds: sample.seconds,
        bytes: sample.traffic.bytes,
        gradients: sample.oracle.gradients,
        products: sample.oracle.products,
        values: Vec::new(),
    };
    feed.show(row, &sample.values);
}

/// What a run depends on: its setting with the files that it names, the seed, what is watched, the device,
/// and the width of the CPU's registers, on which last bits depend.
pub fn digest(
    experiment: &Experiment,
    setting: &Setting,
    seed: u64,
    device: Option<&Accelerator>,
) -> Result<[u8; 32]> {
    let mut hash = blake3::Hasher::new();
    hash.update(&shared_digest(experiment, setting, seed, device)?);
    setting.add_private(&experiment.folder, &mut hash)?;
    Ok(*hash.finalize().as_bytes())
}

/// The same without what single agents own, which nobody else can know.
pub fn shared_digest(
    experiment: &Experiment,
    setting: &Setting,
    seed: u64,
    device: Option<&Accelerator>,
) -> Result<[u8; 32]> {
    let mut hash = setting.digest(&experiment.folder)?;
    let place = device.map_or_else(|| dibo::rows::cpu().to_string(), |d| d.name());
    hash.update(&seed.to_le_bytes()).update(&[u8::from(experiment.watch)]).update(place.as_bytes());
    Ok(*hash.finalize().as_bytes())
}

/// What an experiment is, whatever its seeds: a results folder belongs to it.
pub fn identity(experiment: &Experiment) -> Result<[u8; 32]> {
    let mut hash = blake3::Hasher::new();
    hash.update(&[u8::from(experiment.watch)]);
    for setting in &experiment.settings {
        hash.update(setting.series.label.as_bytes());
        for (key, value) in &setting.series.settings {
            let value = serde_json::to_string(value)?;
            hash.update(key.as_bytes()).update(b"=").update(value.as_bytes()).update(b"\n");
        }
    }
    Ok(*hash.finalize().as_bytes())
}

/// The theory's eye on one run.
struct Theory<'a, T: Real> {
    observer: Observer,
    algorithm: &'a dyn Algorithm<T>,
    problem: &'a dyn Bilevel<T>,
}

impl<'a, T: Real> Theory<'a, T> {
    /// For the methods that the theory is about.
    fn new(ready: &Ready<'a, T>) -> Result<Option<Self>> {
        if !ready.setting().mixes_by_pulling() {
            return Ok(None);
        }
        let Ready { algorithm, problem, plan, .. } = ready;
        let facts = theory::graph::constants(ready.graphs(), plan.iterations.min(90));
        let constants = match problem.constants() {
            Some(exact) => exact,
            None => estimate(*problem)?,
        };
        let mixing = facts.mixing.as_ref();
        let observer = Observer::new(ready.graphs(), mixing, Some(constants), plan.every, plan.iterations);
        Ok(Some(Theory { observer, algorithm: *algorithm, problem: *problem }))
    }

    fn look(&mut self, k: usize, views: &[View<'_, T>]) -> dibo::Result<Seen> {
        let penalty = self.algorithm.penalty_steps(k).map(|s| theory::watch::Steps::Penalty {
            lambda: s.lambda,
            eta: s.eta,
            g: s.g,
        });
        let steps = penalty.or_else(|| self.algorithm.single_step(k).map(theory::watch::Steps::Single));
        self.observer.look(k, self.problem, steps, views)
    }
}

struct Watcher<'a, T: Real> {
    progress: &'a Progress,
    feed: Option<&'a Feed>,
    seen: usize,
    digest: [u8; 32],
    half: &'a Path,
    last: Instant,
    /// Wishes for a checkpoint that are fulfilled.
    keeps: usize,
    patience: Duration,
    ready: &'a Ready<'a, T>,
    picture: Option<String>,
    vectors: String,
    /// Where the first seed's model and labels go.
    taken: Option<PathBuf>,
    exported: Result<()>,
    theory: Option<Theory<'a, T>>,
}

impl<T: Real> Watcher<'_, T> {
    fn moved_to(&mut self, k: usize) {
        self.progress.inc((k - self.seen) as u64);
        self.seen = k;
    }
}

/// Iterations after which the bar moves and the clock is looked at.
const SEEN: usize = 200;

impl<T: Real> Watch<T> for Watcher<'_, T> {
    fn measure(&mut self, k: usize, views: &[View<'_, T>]) -> dibo::Result<(Values, Option<String>)> {
        let seen = self.theory.as_mut().map(|t| t.look(k, views)).transpose()?.unwrap_or_default();
        Ok((seen.values, seen.broken))
    }

    fn go_on(&mut self, _k: usize) -> bool {
        !stop::asked()
    }

    fn sample(&mut self, sample: &Sample) {
        if let Some(feed) = self.feed {
            show(feed, sample);
        }
        if sample.k >= self.seen + SEEN {
            self.moved_to(sample.k);
        }
    }

    /// Wishes are heard after every iteration, however rare evaluations are; the clock is looked at now and
    /// then, since an iteration may take less time than that.
    fn pause(&mut self, k: usize) -> bool {
        if k >= self.seen + SEEN {
            self.moved_to(k);
        }
        stop::asked() || self.keeps != stop::keeps() || k.is_multiple_of(SEEN) && self.checkpoint_due()
    }

    fn checkpoint_due(&mut self) -> bool {
        self.last.elapsed() > self.patience || self.keeps != stop::keeps()
    }

    fn finished(&mut self, views: &[View<'_, T>]) {
        self.picture = self.ready.finale.picture.as_ref().and_then(|draw| draw(views));
        if let (Some(export), Some(folder)) = (&self.ready.finale.export, &self.taken) {
            let agents: Vec<usize> = (0..self.ready.problem.agents()).collect();
            self.exported = export(views, &agents, folder);
        }
        self.vectors = vectors(views);
    }

    fn checkpoint(&mut self, checkpoint: Checkpoint<'_, T>) -> dibo::Result<()> {
        (self.last, self.keeps) = (Instant::now(), stop::keeps());
        let sealed = seal_with(self.half, &self.digest, |file| checkpoint.write(file));
        sealed.map_err(|e| dibo::Error::Watcher(format!("{e:#}").into()))?;
        if let Some(feed) = self.feed {
            feed.kept();
        }
        Ok(())
    }
}

/// The state's vectors that can be looked at, those of the same size together.
fn vectors<T: Real>(views: &[View<'_, T>]) -> String {
    // Variables that lie side by side in one stack are one vector.
    let mut stacks: Vec<(*const dibo::rows::Rows<T>, usize, String)> = Vec::new();
    for view in views {
        match stacks.iter_mut().find(|s| std::ptr::eq(s.0, view.rows)) {
            Some(known) => known.2 += &format!(" {}", view.name),
            None => stacks.push((view.rows, view.rows.data().len(), view.name.into())),
        }
    }
    let mut sizes: Vec<(usize, Vec<String>)> = Vec::new();
    for (_, numbers, names) in stacks {
        match sizes.iter_mut().find(|s| s.0 == numbers) {
            Some(known) => known.1.push(names),
            None => sizes.push((numbers, vec![names])),
        }
    }
    let parts =
        sizes.iter().map(|(numbers, names)| format!("{} × {numbers} ({})", names.len(), names.join(", ")));
    format!("{} numbers of {} bytes", parts.collect::<Vec<_>>().join(" + "), size_of::<T>())
}

fn gather(
    experiment: &Experiment,
    jobs: &[(usize, u64)],
    records: impl Iterator<Item = Option<Finished>>,
) -> (Vec<RunRecord>, Curves) {
    let records: Vec<_> = jobs.iter().zip(records).filter_map(|(job, r)| r.map(|r| (*job, r))).collect();
    let mut metrics: Vec<String> = Vec::new();
    // Some metrics compare with the iteration before, so the first evaluation has none of them.
    let ends = records.iter().flat_map(|(_, (r, _))| r.samples.first().into_iter().chain(r.samples.last()));
    for value in ends.flat_map(|s| &s.values) {
        if !metrics.contains(&value.0) {
            metrics.push(value.0.clone());
        }
    }
    let (mut runs, mut rows) = (Vec::new(), Vec::new());
    for ((series, seed), (record, memory)) in records {
        let keep = experiment.settings[series].run.keep_every();
        let count = record.samples.len();
        for (i, s) in record.samples.iter().enumerate().filter(|(i, s)| s.k % keep == 0 || i + 1 == count) {
            debug_assert!(i < count);
            rows.push(CurveRow {
                series,
                seed,
                iteration: s.k,
                seconds: s.seconds,
                bytes: s.traffic.bytes,
                gradients: s.oracle.gradients,
                products: s.oracle.products,
                values: metrics.iter().map(|m| s.get(m).unwrap_or(f64::NAN)).collect(),
            });
        }
        let (Some(last), Some(end)) = (record.samples.last(), record.end()) else { continue };
        runs.push(RunRecord {
            series,
            seed,
            outcome: record.outcome.word().into(),
            reason: record.reason.clone(),
            best: record.best,
            iterations: last.k,
            seconds: last.seconds,
            bytes: last.traffic.bytes,
            gradients: last.oracle.gradients,
            products: last.oracle.products,
            state_bytes: record.state_bytes,
            memory,
            last: end.values.iter().filter(|v| v.1.is_finite()).cloned().collect(),
            smallest: over_run(&record.samples, |values| {
                values.iter().copied().fold(f64::INFINITY, f64::min)
            }),
            mean: over_run(&record.samples, |values| values.iter().sum::<f64>() / values.len() as f64),
        });
    }
    (runs, Curves { metrics, rows })
}

/// One number per metric from its values at all evaluations.
fn over_run(samples: &[Sample], of: impl Fn(&[f64]) -> f64) -> BTreeMap<String, f64> {
    let names = samples.last().into_iter().flat_map(|s| s.values.iter().map(|v| v.0.clone()));
    let number = |name: &String| of(&samples.iter().filter_map(|s| s.get(name)).collect::<Vec<_>>());
    names.map(|name| (name.clone(), number(&name))).filter(|(_, v)| v.is_finite()).collect()
}

fn machine(threads: usize) -> Machine {
    let read = |path: &str, key: &str| {
        let text = std::fs::read_to_string(path).ok()?;
        let line = text.lines().find(|l| l.starts_with(key))?.split_once(':')?.1.trim().to_string();
        Some(line)
    };
    let memory =
        read("/proc/meminfo", "MemTotal").and_then(|m| m.split(' ').next()?.parse::<u64>().ok()).unwrap_or(0)
            * 1024;
    Machine {
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        cpu: read("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown CPU".into()),
        threads,
        memory,
        device: None,
    }
}

/// Peak memory of this process, where the system tells.
pub fn peak_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|l| l.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kb| kb * 1024)
}
