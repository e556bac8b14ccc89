//! `dibo agent`: the agents that this process owns, through all settings and seeds of an experiment.
use super::{
    AgentOptions, Common, EndRows, Visit, digest, end_rows, folder_of, leash, outlive_others, own, say, tls,
    visit,
};
use crate::experiment::{Experiment, Setting};
use crate::results::write_file;
use crate::runner::{self, STOP};
use anyhow::{Context, Result, ensure};
use dibo::algorithm::Algorithm;
use dibo::engine::{self, Checkpoint, Outcome, Sample, Watch};
use dibo::mixing::Sequence;
use dibo::problem::Bilevel;
use dibo::rows::{Real, Threads, View};
use dibo_net::agents::{Agents, Links, Shared, lock};
use dibo_net::gather;
use dibo_net::node::{Node, Settings};
use dibo_net::transport::{Faulty, Transport};
use dibo_net::wire::{Endpoints, Role, Wire};
use dibo_net::zenoh;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// Checkpoint earlier if others may ask for this many bytes.
const KEPT: usize = 512 << 20;

/// Runs some agents of an experiment.
pub fn agent(options: AgentOptions) -> Result<ExitCode> {
    outlive_others();
    leash(options.leash);
    let owned = own(&options.own)?;
    let experiment = options.common.load()?;
    let jobs = runner::jobs(&experiment);
    for (s, seed) in &jobs {
        let agents = experiment.settings[*s].agents(*seed, &experiment.folder)?;
        ensure!(
            owned[owned.len() - 1] < agents,
            "--own {}: the experiment has agents 0 to {}",
            options.own,
            agents - 1
        );
    }
    let endpoints = Endpoints {
        tls: tls(&options.security)?,
        listen: options.listen.clone(),
        connect: options.connect.clone(),
        role: if options.client { Role::Client } else { Role::Peer },
        insecure: options.security.insecure,
        network: options.network.clone(),
    };
    endpoints.check().map_err(anyhow::Error::msg)?;
    let folder = folder_of(&options.common.out(&experiment), owned[0]);
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let threads = options.threads.unwrap_or(cores);
    ensure!(threads > 0 && threads <= 1024, "--threads is {threads}; it must be between 1 and 1024");
    crate::runner::watch_for_stop()?;
    let process = Process {
        digest: digest(&experiment)?,
        session: endpoints.open().map_err(anyhow::Error::msg)?,
        threads: Threads::new(threads),
        incarnation: SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |d| d.as_nanos() as u64),
        experiment: &experiment,
        options: &options,
        owned,
        folder,
    };
    for (job, (s, seed)) in jobs.iter().enumerate() {
        if !process.job(job as u32, *s, *seed)? {
            say(format_args!("stopped early; the same command goes on from here"));
            return Ok(ExitCode::from(130));
        }
    }
    Ok(ExitCode::SUCCESS)
}

struct Process<'a> {
    experiment: &'a Experiment,
    options: &'a AgentOptions,
    owned: Vec<usize>,
    digest: [u8; 32],
    incarnation: u64,
    session: zenoh::Session,
    threads: Threads,
    folder: PathBuf,
}

/// The files of one job.
pub struct Files {
    /// Where to go on.
    checkpoint: PathBuf,
    /// The record of a run that was done.
    pub done: PathBuf,
    /// Rows at the end.
    pub rows: PathBuf,
    /// What went over the wire; written when nobody needs this process any more.
    pub left: PathBuf,
}

impl Files {
    /// In the folder of a process.
    pub fn new(folder: &Path, s: usize, seed: u64) -> Self {
        let file = |ending: &str| folder.join(format!("{s}-{seed}.{ending}"));
        Files { checkpoint: file("checkpoint"), done: file("done"), rows: file("rows"), left: file("left") }
    }
}

/// Reads a file that begins with this job's digest.
pub fn read_kept<P: serde::de::DeserializeOwned>(file: &Path, digest: &[u8; 32]) -> Option<P> {
    let bytes = std::fs::read(file).ok()?;
    postcard::from_bytes(bytes.strip_prefix(digest)?).ok()
}

fn write_kept(file: &Path, digest: &[u8; 32], what: &impl serde::Serialize) -> Result<()> {
    let body = postcard::to_stdvec(what).with_context(|| format!("cannot write {}", file.display()))?;
    write_file(file, &[&digest[..], &body].concat())
}

impl Process<'_> {
    /// One setting with one seed; false if it was stopped.
    fn job(&self, job: u32, s: usize, seed: u64) -> Result<bool> {
        let (setting, folder) = (&self.experiment.settings[s], &self.experiment.folder);
        let digest = runner::digest(self.experiment, setting, seed, None);
        let files = Files::new(&self.folder, s, seed);
        if read_kept::<dibo_net::node::Counts>(&files.left, &digest).is_some() {
            return Ok(true);
        }
        let agents = setting.agents(seed, folder)?;
        let graphs = setting.graphs(agents, seed, folder)?;
        let me = self.owned[0] as u32;
        let role = if self.options.client { Role::Client } else { Role::Peer };
        let wire = Wire::new(&self.session, &self.options.network, role, me).map_err(anyhow::Error::msg)?;
        let line: Box<dyn Transport> = match self.options.common.faults {
            Some(faults) => Box::new(Faulty::new(wire, faults, me)),
            None => Box::new(wire),
        };
        let settings = Settings {
            patience: Duration::from_secs_f64(self.options.common.patience),
            ..Settings::new(agents, self.owned.clone(), self.digest, job, self.incarnation)
        };
        let (began, stop) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let log = move |line: &str| eprintln!("[{:8.2} s] agent {me}: {line}", began.elapsed().as_secs_f64());
        let node: Shared = Arc::new(Mutex::new(Node::new(line, settings, stop.clone(), log)));
        serve(&node, &stop);
        visit(
            setting,
            seed,
            folder,
            &self.threads,
            Run { process: self, setting, seed, node, graphs, digest, files, agents },
        )
    }
}

/// Answers others while this process computes, and passes on the wish to stop.
fn serve(node: &Shared, stop: &Arc<AtomicBool>) {
    let (node, stop) = (Arc::downgrade(node), stop.clone());
    std::thread::spawn(move || {
        while let Some(node) = node.upgrade() {
            stop.fetch_or(STOP.load(Relaxed), Relaxed);
            if let Ok(mut node) = node.try_lock() {
                node.pump(Duration::ZERO);
            }
            drop(node);
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

struct Run<'a> {
    process: &'a Process<'a>,
    setting: &'a Setting,
    seed: u64,
    node: Shared,
    graphs: Sequence,
    digest: [u8; 32],
    files: Files,
    agents: usize,
}

impl Visit for Run<'_> {
    type Out = bool;

    fn visit<T: Real>(self, algorithm: &dyn Algorithm<T>, problem: &dyn Bilevel<T>) -> Result<bool> {
        let Run { process, setting, seed, node, graphs, digest, files, agents } = self;
        let Common { lossy, checkpoint, .. } = process.options.common;
        let links = Links { loss: setting.loss(seed), wait: lossy.map(Duration::from_millis) };
        let mut network =
            Agents::new(node.clone(), graphs, process.owned.clone(), links, process.threads.clone());
        let resume = std::fs::read(&files.checkpoint)
            .ok()
            .and_then(|b| Checkpoint::<T>::from_bytes(&b).ok())
            .filter(|c| c.digest == digest);
        if let Some(checkpoint) = &resume {
            network
                .take_up(checkpoint)
                .map_err(|e| anyhow::anyhow!("{e}; remove {} to start anew", files.checkpoint.display()))?;
        }
        let finished = read_kept::<engine::Record>(&files.done, &digest).is_some();
        // A process that was killed after it had finished: only if somebody still needs it does it run again.
        if !finished || lock(&node).rejoin() {
            let mut watch = Watcher {
                process,
                node: node.clone(),
                agents,
                digest,
                file: &files.checkpoint,
                every: Duration::from_secs_f64(checkpoint),
                last: None,
                error: None,
                rows: EndRows::new(),
            };
            let met = lock(&node).meet();
            let record = met.and_then(|()| {
                engine::run(
                    algorithm,
                    problem,
                    &mut network,
                    &problem.start(),
                    &setting.run.plan(),
                    resume,
                    &mut watch,
                )
            });
            if let Some(e) = watch.error {
                return Err(e);
            }
            let record = match record {
                Ok(record) if matches!(record.outcome, Outcome::Stopped(_)) => return Ok(false),
                Ok(record) => record,
                Err(_) if STOP.load(Relaxed) => return Ok(false),
                Err(e) => anyhow::bail!(
                    "{e}; a checkpoint is kept in {}: the same command goes on from there",
                    process.folder.display()
                ),
            };
            write_kept(&files.rows, &digest, &watch.rows)?;
            write_kept(&files.done, &digest, &record)?;
            lock(&node).finish();
        }
        write_kept(&files.left, &digest, lock(&node).counts())?;
        let _ = std::fs::remove_file(&files.checkpoint);
        Ok(!STOP.load(Relaxed))
    }
}

struct Watcher<'a> {
    process: &'a Process<'a>,
    node: Shared,
    agents: usize,
    digest: [u8; 32],
    file: &'a Path,
    every: Duration,
    last: Option<Instant>,
    error: Option<anyhow::Error>,
    rows: EndRows,
}

impl<T: Real> Watch<T> for Watcher<'_> {
    fn go_on(&mut self, _k: usize) -> bool {
        !STOP.load(Relaxed)
    }

    fn values(
        &mut self,
        k: usize,
        problem: &dyn Bilevel<T>,
        views: &[View<'_, T>],
    ) -> Result<gather::Values, String> {
        gather::values(&self.node, k, self.agents, problem, views, self.process.options.show_private)
    }

    fn sample(&mut self, sample: &Sample) {
        if self.process.options.progress {
            say(format_args!("{}", sample.k));
        }
    }

    fn checkpoint_due(&mut self) -> bool {
        // The first at once, so that there always is one.
        self.last.is_none_or(|l| l.elapsed() > self.every) || lock(&self.node).kept_bytes() > KEPT
    }

    fn checkpoint(&mut self, mut checkpoint: Checkpoint<'_, T>) {
        checkpoint.digest = self.digest;
        self.last = Some(Instant::now());
        match write_file(self.file, &checkpoint.to_bytes()) {
            Ok(()) => lock(&self.node).checkpointed(checkpoint.traffic.rounds),
            Err(e) => self.error = Some(e),
        }
    }

    fn finished(&mut self, views: &[View<'_, T>]) {
        self.rows = end_rows(&self.process.owned, views);
    }
}
