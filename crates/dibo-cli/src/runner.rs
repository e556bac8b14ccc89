//! Runs all settings of an experiment with all seeds: on all cores, with progress, and so that it can be
//! stopped and taken up again.
use crate::device::Engine;
use crate::experiment::spec::Problem;
use crate::experiment::{Experiment, Setting};
use crate::results::{CurveRow, Curves, Machine, Manifest, Memory, MetricInfo, RunRecord};
use crate::results::{write_file, write_file_with};
use crate::{memory, pictures};
use anyhow::{Context, Result};
use dibo::algorithm::Algorithm;
use dibo::engine::{self, Checkpoint, Outcome, Record, Sample, Watch};
use dibo::graph::Loss;
use dibo::mixing::Sequence;
use dibo::network::{Lossy, Network, Simulator};
use dibo::problem::{Bilevel, estimate};
use dibo::rows::{Real, Threads, View};
use dibo::theory;
use dibo::theory::watch::{Observer, Seen};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

/// Set by Ctrl-C: every run stops at its next evaluation and writes a checkpoint.
pub static STOP: AtomicBool = AtomicBool::new(false);

/// Lets Ctrl-C set [`STOP`]; a second one leaves at once.
pub fn watch_for_stop() -> Result<()> {
    let handler = || {
        if STOP.swap(true, Relaxed) {
            std::process::exit(130);
        }
        eprintln!("\nstopping: what is done is kept (Ctrl-C again to leave at once)");
    };
    ctrlc::set_handler(handler).context("cannot watch for Ctrl-C")
}

/// What a user can choose about a run.
pub struct Options {
    /// Folder for the results.
    pub out: PathBuf,
    /// `--set` as given, for the record.
    pub overrides: Vec<String>,
    /// Cores to use.
    pub threads: usize,
    /// The GPU, if the runs go there: one after another.
    pub engine: Option<Engine>,
    /// Draw no progress bar.
    pub quiet: bool,
}

/// Runs an experiment and gives its results; finished and half-finished runs found in the folder are not done
/// again.
pub fn run(experiment: &Experiment, options: &Options) -> Result<(Manifest, Curves)> {
    let (began, started) = (Instant::now(), SystemTime::now());
    let jobs = jobs(experiment);
    let kept = options.out.join("runs");
    std::fs::create_dir_all(&kept).with_context(|| format!("cannot make the folder {}", kept.display()))?;
    let total: usize = jobs.iter().map(|(s, _)| experiment.settings[*s].run.iterations).sum();
    let bar = progress(total as u64, options.quiet);
    bar.set_message(format!("{} runs", jobs.len()));
    // Seeds fan out over the cores; only where there are fewer runs than cores does one run use several.
    let alone = experiment.settings.iter().any(|s| s.run.alone);
    let workers = if alone || options.engine.is_some() { 1 } else { options.threads.min(jobs.len()).max(1) };
    let inside = (options.threads / workers).max(1);
    let (next, done, reused, error) =
        (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(None));
    let records: Vec<Mutex<Option<Kept>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let threads = Threads::new(inside);
                while let Some((job, (s, seed))) = jobs.get(next.fetch_add(1, Relaxed)).map(|j| (j, *j)) {
                    let job = jobs.iter().position(|j| j == job).expect("it comes from the list");
                    if STOP.load(Relaxed) || error.lock().is_ok_and(|e| e.is_some()) {
                        return;
                    }
                    match one(
                        experiment,
                        s,
                        seed,
                        &kept,
                        &threads,
                        &bar,
                        &reused,
                        workers == 1,
                        options.engine.as_ref(),
                    ) {
                        Ok(record) => {
                            bar.set_message(format!(
                                "{}/{} runs",
                                done.fetch_add(1, Relaxed) + 1,
                                jobs.len()
                            ));
                            *records[job].lock().expect("no panic while held") = Some(record);
                        }
                        Err(e) => *error.lock().expect("no panic while held") = Some(e),
                    }
                }
            });
        }
    });
    bar.finish_and_clear();
    let kept_runs = reused.load(Relaxed);
    if kept_runs > 0 {
        println!(
            "{kept_runs} of {} runs were found finished in {} (--fresh does all anew)",
            jobs.len(),
            options.out.display()
        );
    }
    if let Some(e) = error.into_inner().expect("all threads are done") {
        return Err(e);
    }
    let records = records.into_iter().map(|r| r.into_inner().expect("all threads are done")).collect();
    Ok(results(experiment, options, &jobs, records, began, started))
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
    records: Vec<Option<Kept>>,
    began: Instant,
    started: SystemTime,
) -> (Manifest, Curves) {
    let (runs, curves) = gather(experiment, jobs, records.into_iter());
    let manifest = Manifest {
        version: env!("CARGO_PKG_VERSION").into(),
        name: experiment.name.clone(),
        title: experiment.title.clone(),
        about: experiment.about.clone(),
        file: experiment.text.clone(),
        overrides: options.overrides.clone(),
        seeds: experiment.seeds.clone(),
        machine: machine(options.threads),
        started: started.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        seconds: began.elapsed().as_secs_f64(),
        peak_memory: peak_memory(),
        metrics: curves.metrics.iter().map(|name| MetricInfo::plain(name)).collect(),
        series: experiment.settings.iter().map(|s| s.series.clone()).collect(),
        runs,
        figures: experiment.figures.clone(),
        claims: experiment.claims.clone(),
    };
    (manifest, curves)
}

/// A bar over `total` iterations.
pub fn progress(total: u64, quiet: bool) -> ProgressBar {
    let bar = ProgressBar::new(total);
    if quiet {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template(
        "{bar:32.cyan/dim} {percent:>3} %  {msg}  {per_sec}  {elapsed} gone, {eta} to go",
    );
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// A run's record and what is known of its memory.
pub type Kept = (Record, Memory);

/// One setting with one seed, from where it was left.
#[allow(clippy::too_many_arguments)]
fn one(
    experiment: &Experiment,
    s: usize,
    seed: u64,
    kept: &Path,
    threads: &Threads,
    bar: &ProgressBar,
    reused: &AtomicUsize,
    alone: bool,
    engine: Option<&Engine>,
) -> Result<Kept> {
    let setting = &experiment.settings[s];
    let job = Job {
        setting,
        s,
        seed,
        kept,
        digest: digest(experiment, setting, seed, engine),
        bar,
        alone,
        watch: experiment.watch,
    };
    if let Some((found, record)) =
        std::fs::read(job.finished()).ok().and_then(|b| postcard::from_bytes::<([u8; 32], Kept)>(&b).ok())
        && found == job.digest
    {
        bar.inc(setting.run.iterations as u64);
        reused.fetch_add(1, Relaxed);
        return Ok(record);
    }
    memory::begin();
    let problem = setting.problem(seed, &experiment.folder, threads)?;
    let graphs = setting.graphs(setting.agents(seed, &experiment.folder)?, seed, &experiment.folder)?;
    if let Some(engine) = engine {
        return job.run_on(engine, problem, graphs, threads);
    }
    let loss = setting.loss(seed);
    match &problem {
        Problem::PolicyEvaluation(p) => job.run(
            &*setting.algorithm,
            &**p,
            &graphs,
            &mut *network(graphs.clone(), loss, threads),
            0,
            |_| None,
        ),
        Problem::Quadratic(p) => job.run(
            &*setting.algorithm,
            &**p,
            &graphs,
            &mut *network(graphs.clone(), loss, threads),
            0,
            |_| None,
        ),
        Problem::Robust(p) => job.run(
            &*setting.algorithm,
            &**p,
            &graphs,
            &mut *network(graphs.clone(), loss, threads),
            0,
            |_| None,
        ),
        Problem::Learning64(p) => {
            let look = |views: &[View<'_, f64>]| pictures::lowest(p, views);
            job.run(
                &*setting.algorithm,
                &**p,
                &graphs,
                &mut *network(graphs.clone(), loss, threads),
                p.dealt().bytes(),
                look,
            )
        }
        Problem::Learning32(p) => {
            let look = |views: &[View<'_, f32>]| pictures::lowest(p, views);
            job.run(
                &*setting.algorithm32,
                &**p,
                &graphs,
                &mut *network(graphs.clone(), loss, threads),
                p.dealt().bytes(),
                look,
            )
        }
    }
}

struct Job<'a> {
    setting: &'a Setting,
    s: usize,
    seed: u64,
    kept: &'a Path,
    digest: [u8; 32],
    bar: &'a ProgressBar,
    /// No other run goes on beside it, so that its peak memory can be told.
    alone: bool,
    watch: bool,
}

impl Job<'_> {
    fn finished(&self) -> PathBuf {
        self.kept.join(format!("{}-{}.done", self.s, self.seed))
    }

    /// The same on a GPU.
    #[cfg(feature = "cuda")]
    fn run_on(&self, engine: &Engine, problem: Problem, graphs: Sequence, threads: &Threads) -> Result<Kept> {
        let Problem::Learning32(host) = problem else {
            anyhow::bail!(
                "{}: only cleaning with 32-bit numbers runs on the GPU; leave --device away",
                self.setting.series.label
            );
        };
        engine.guard(|| {
            let blocks = dibo::problem::SingleLevel::blocks(&*host);
            let say = |need: String| self.bar.suspend(|| println!("{}: {need}", self.setting.series.label));
            let bytes = host.dealt().bytes();
            let problem = engine.problem(*host, &self.setting.series.algorithm, blocks, say)?;
            let mut network = engine.network(graphs.clone(), threads.clone());
            self.run(&*self.setting.algorithm32, &problem, &graphs, &mut network, bytes, |_| None)
        })
    }

    #[cfg(not(feature = "cuda"))]
    fn run_on(
        &self,
        engine: &Engine,
        _problem: Problem,
        _graphs: Sequence,
        _threads: &Threads,
    ) -> Result<Kept> {
        match *engine {}
    }

    /// Runs, keeps the result, and lets `look` make a picture of the state at the end of the first seed.
    fn run<T: Real>(
        &self,
        algorithm: &dyn Algorithm<T>,
        problem: &dyn Bilevel<T>,
        graphs: &Sequence,
        network: &mut dyn Network<T>,
        data_bytes: usize,
        look: impl Fn(&[View<'_, T>]) -> Option<String>,
    ) -> Result<Kept> {
        let half = self.kept.join(format!("{}-{}.checkpoint", self.s, self.seed));
        let resume = std::fs::read(&half)
            .ok()
            .and_then(|b| Checkpoint::<T>::from_bytes(&b).ok())
            .filter(|c| c.digest == self.digest);
        // A checkpoint of a large state takes long: they must not become the work.
        let patience = Duration::from_secs(20 + (6 * problem.agents() * problem.lower() / 5_000_000) as u64);
        let theory = (self.watch && self.setting.mixes_by_pulling()).then(|| {
            let plan = self.setting.run.plan();
            let facts = theory::graph::constants(graphs, plan.iterations.min(90));
            let constants = problem.constants().unwrap_or_else(|| estimate(problem));
            Theory {
                observer: Observer::new(
                    graphs,
                    facts.mixing.as_ref(),
                    Some(constants),
                    plan.every,
                    plan.iterations,
                ),
                algorithm,
                problem,
            }
        });
        let mut watch = Watcher {
            bar: self.bar,
            seen: 0,
            digest: self.digest,
            half: &half,
            last: Instant::now(),
            patience,
            error: None,
            look,
            picture: None,
            vectors: String::new(),
            theory,
        };
        watch.moved_to(resume.as_ref().map_or(0, |c| c.k));
        let record = engine::run(
            algorithm,
            problem,
            network,
            &problem.start(),
            &self.setting.run.plan(),
            resume,
            &mut watch,
        )
        .map_err(|e| {
            anyhow::anyhow!("{}: {e}; remove {} to start anew", self.setting.series.label, half.display())
        })?;
        if let Some(e) = watch.error.take() {
            return Err(e);
        }
        let memory = Memory {
            vectors: std::mem::take(&mut watch.vectors),
            data_bytes: data_bytes as u64,
            peak_bytes: if self.alone { memory::peak() as u64 } else { 0 },
        };
        let kept = (record, memory);
        if !matches!(kept.0.outcome, Outcome::Stopped(_)) {
            self.bar.inc((self.setting.run.iterations - watch.seen) as u64);
            if let Some(picture) = watch.picture.filter(|_| self.seed == 0) {
                write_file(&self.kept.join(format!("{}.svg", self.s)), picture.as_bytes())?;
            }
            write_file(
                &self.finished(),
                &postcard::to_stdvec(&(self.digest, &kept)).context("cannot write a run")?,
            )?;
            let _ = std::fs::remove_file(&half);
        }
        Ok(kept)
    }
}

/// The simulator, with links that lose messages where the experiment says so.
pub fn network<T: Real>(
    graphs: Sequence,
    loss: Option<(Loss, bool)>,
    threads: &Threads,
) -> Box<dyn Network<T>> {
    match loss {
        Some((loss, sums)) => Box::new(Lossy::new(graphs, loss, sums, threads.clone())),
        None => Box::new(Simulator::new(graphs, threads.clone())),
    }
}

/// A checkpoint belongs to one text, version, setting and seed.
pub fn digest(experiment: &Experiment, setting: &Setting, seed: u64, engine: Option<&Engine>) -> [u8; 32] {
    let mut hash = blake3::Hasher::new();
    hash.update(env!("CARGO_PKG_VERSION").as_bytes());
    for (key, value) in &setting.series.settings {
        hash.update(format!("{key}={value}\n").as_bytes());
    }
    hash.update(&seed.to_le_bytes()).update(experiment.name.as_bytes());
    if experiment.watch {
        hash.update(b"watch theory");
    }
    if let Some(engine) = engine {
        hash.update(engine.name().as_bytes());
    }
    *hash.finalize().as_bytes()
}

/// The theory's eye on one run.
struct Theory<'a, T: Real> {
    observer: Observer,
    algorithm: &'a dyn Algorithm<T>,
    problem: &'a dyn Bilevel<T>,
}

impl<T: Real> Theory<'_, T> {
    fn look(&mut self, k: usize, views: &[View<'_, T>]) -> Seen {
        let penalty = self.algorithm.penalty_steps(k).map(|s| theory::watch::Steps::Penalty {
            lambda: s.lambda,
            eta: s.eta,
            g: s.g,
        });
        let steps = penalty.or_else(|| self.algorithm.single_step(k).map(theory::watch::Steps::Single));
        self.observer.look(k, self.problem, steps, views)
    }
}

struct Watcher<'a, T: Real, L> {
    bar: &'a ProgressBar,
    seen: usize,
    digest: [u8; 32],
    half: &'a Path,
    last: Instant,
    patience: Duration,
    error: Option<anyhow::Error>,
    look: L,
    picture: Option<String>,
    vectors: String,
    theory: Option<Theory<'a, T>>,
}

impl<T: Real, L> Watcher<'_, T, L> {
    fn moved_to(&mut self, k: usize) {
        self.bar.inc((k - self.seen) as u64);
        self.seen = k;
    }
}

impl<T: Real, L: Fn(&[View<'_, T>]) -> Option<String>> Watch<T> for Watcher<'_, T, L> {
    fn measure(&mut self, k: usize, views: &[View<'_, T>]) -> (Vec<(&'static str, f64)>, Option<String>) {
        let seen = self.theory.as_mut().map(|t| t.look(k, views)).unwrap_or_default();
        (seen.values, seen.broken)
    }

    fn go_on(&mut self, _k: usize) -> bool {
        !STOP.load(Relaxed)
    }

    fn sample(&mut self, sample: &Sample) {
        if sample.k >= self.seen + 200 {
            self.moved_to(sample.k);
        }
    }

    fn checkpoint_due(&mut self) -> bool {
        self.last.elapsed() > self.patience
    }

    fn finished(&mut self, views: &[View<'_, T>]) {
        self.picture = (self.look)(views);
        self.vectors = vectors(views);
    }

    fn checkpoint(&mut self, mut checkpoint: Checkpoint<'_, T>) {
        checkpoint.digest = self.digest;
        self.last = Instant::now();
        if let Err(e) = write_file_with(self.half, |file| checkpoint.write(file)) {
            self.error = Some(e);
        }
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
    records: impl Iterator<Item = Option<Kept>>,
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
        let Some(last) = record.samples.last() else { continue };
        runs.push(RunRecord {
            series,
            seed,
            outcome: record.outcome.word().into(),
            reason: record.reason.clone(),
            iterations: last.k,
            seconds: last.seconds,
            bytes: last.traffic.bytes,
            gradients: last.oracle.gradients,
            products: last.oracle.products,
            state_bytes: record.state_bytes,
            memory,
            last: last.values.iter().filter(|v| v.1.is_finite()).cloned().collect(),
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
    }
}

/// Peak memory of this process, where the system tells.
pub fn peak_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|l| l.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kb| kb * 1024)
}
