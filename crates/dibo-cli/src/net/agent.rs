//! `dibo agent`: the agents that this process owns, through all settings and seeds of an experiment.
use super::{AgentOptions, Common, EndRows, digest, end_rows, folder_of, leash, own, tls};
use anyhow::{Context, Result, ensure};
use dibo::engine::{Checkpoint, Outcome, Record, Sample, Watch};
use dibo::mixing::Sequence;
use dibo::problem::Bilevel;
use dibo::rows::{Real, Threads, View};
use dibo_net::agents::{Agents, Links, Shared, lock};
use dibo_net::gather;
use dibo_net::node::{Node, Settings};
use dibo_net::transport::{Faulty, Transport};
use dibo_net::wire::{Endpoints, Role, Wire};
use dibo_net::zenoh;
use dibo_report::results::{Kept, seal, unseal};
use dibo_run::door::{Place, Ready, Visit, open};
use dibo_run::problems::{Local, Meeting, Talk};
use dibo_run::setting;
use dibo_run::sites::Files;
use dibo_run::{Experiment, Registry, runner, say, stop};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// Checkpoint earlier if others may ask for this many bytes.
const KEPT: usize = 512 << 20;

/// Runs some agents of an experiment.
pub fn agent(registry: &Registry, options: AgentOptions) -> Result<ExitCode> {
    leash(options.leash);
    let owned = own(&options.own)?;
    let experiment = options.common.load(registry, true)?;
    let jobs = runner::jobs(&experiment);
    for (s, _) in &jobs {
        let agents = experiment.settings[*s].agents(&experiment.folder)?;
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
    let folder = folder_of(&options.common.out(&experiment)?, owned[0]);
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let threads = crate::threads(options.threads)?;
    stop::watch()?;
    let local = Local {
        files: Files { rows: options.local.clone(), checked: options.local_checked.clone(), bert: None },
        owned: owned.clone(),
    };
    let process = Process {
        local,
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
            say!("stopped early; the same command goes on from here");
            return Ok(ExitCode::from(130));
        }
    }
    Ok(ExitCode::SUCCESS)
}

struct Process<'a> {
    local: Local,
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
pub struct JobFiles {
    /// Where to go on.
    checkpoint: PathBuf,
    /// The record of a run that was done.
    pub done: PathBuf,
    /// Rows at the end.
    pub rows: PathBuf,
    /// What was agreed on before the run.
    agreed: PathBuf,
    /// What went over the wire; written when nobody needs this process any more.
    pub left: PathBuf,
}

impl JobFiles {
    /// The job's name in file names.
    fn name(&self) -> String {
        self.done.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// In the folder of a process.
    pub fn new(folder: &Path, s: usize, seed: u64) -> Self {
        let file = |ending: &str| folder.join(format!("{s}-{seed}.{ending}"));
        JobFiles {
            checkpoint: file("checkpoint"),
            done: file("done"),
            rows: file("rows"),
            agreed: file("agreed"),
            left: file("left"),
        }
    }
}

/// Reads a file of this job; one that is damaged is as good as none, and is said to be.
pub fn read_kept<P: serde::de::DeserializeOwned>(file: &Path, digest: &[u8; 32]) -> Option<P> {
    match unseal(file, digest) {
        Kept::Found(bytes) => postcard::from_bytes(&bytes).ok(),
        Kept::Damaged(what) => {
            eprintln!("{what}");
            None
        }
        Kept::Missing | Kept::Another => None,
    }
}

fn write_kept(file: &Path, digest: &[u8; 32], what: &impl serde::Serialize) -> Result<()> {
    let body = postcard::to_stdvec(what).with_context(|| format!("cannot write {}", file.display()))?;
    seal(file, digest, &body)
}

/// What the files of one job belong to.
pub fn job_digest(experiment: &Experiment, s: usize, seed: u64) -> Result<[u8; 32]> {
    runner::shared_digest(experiment, &experiment.settings[s], seed, None)
}

impl Process<'_> {
    /// One setting with one seed; false if it was stopped.
    fn job(&self, job: u32, s: usize, seed: u64) -> Result<bool> {
        let setting = &self.experiment.settings[s];
        let digest = job_digest(self.experiment, s, seed)?;
        let files = JobFiles::new(&self.folder, s, seed);
        if read_kept::<dibo_net::node::Counts>(&files.left, &digest).is_some() {
            return Ok(true);
        }
        let meeting = Before { process: self, job, digest, file: files.agreed.clone() };
        let place = Place {
            local: Some(&self.local),
            meeting: Some(&meeting),
            ..Place::new(&self.experiment.folder, &self.threads)
        };
        let opened = open(setting, seed, place)?;
        let agents = opened.graphs.agents();
        let node = self.node(job, agents)?;
        opened.visit(Going { process: self, node, digest, files, agents })
    }

    /// A node of this process for one job of all agents.
    fn node(&self, job: u32, agents: usize) -> Result<Shared> {
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
        Ok(node)
    }
}

/// Where the agents of all processes agree on something before a job.
struct Before<'a> {
    process: &'a Process<'a>,
    job: u32,
    digest: [u8; 32],
    file: PathBuf,
}

/// Tells the talk before a job from the job itself.
const TALK: u32 = 1 << 31;

impl Meeting for Before<'_> {
    fn meet(&self, links: &Sequence, talk: &mut Talk<'_>) -> Result<Vec<u8>> {
        let Before { process, job, digest, file } = self;
        let mut own = blake3::Hasher::new();
        own.update(digest);
        for data in process.local.files.rows.iter().chain(&process.local.files.checked) {
            own.update(&setting::contents(data)?);
        }
        let own = *own.finalize().as_bytes();
        let kept = match unseal(file, &own) {
            Kept::Found(bytes) => Some(bytes),
            Kept::Another => anyhow::bail!(
                "{}: this process's data is not that with which the run began; choose another --out",
                file.display()
            ),
            _ => None,
        };
        let node = process.node(job | TALK, links.agents())?;
        // Others may still need what this process said before it was started again.
        if let Some(bytes) = kept.filter(|_| !lock(&node).rejoin()) {
            return Ok(bytes);
        }
        lock(&node).meet().map_err(dibo::Error::Network)?;
        let (owned, threads) = (process.owned.clone(), process.threads.clone());
        let mut network = Agents::new(node.clone(), links.clone(), owned, Links::default(), threads);
        let agreed = talk(&mut network)?;
        seal(file, &own, &agreed)?;
        lock(&node).finish();
        Ok(agreed)
    }
}

/// Answers others while this process computes, and passes on the wish to stop.
fn serve(node: &Shared, stop: &Arc<AtomicBool>) {
    let (node, stop) = (Arc::downgrade(node), stop.clone());
    std::thread::spawn(move || {
        while let Some(node) = node.upgrade() {
            stop.fetch_or(stop::asked(), Relaxed);
            if let Ok(mut node) = node.try_lock() {
                node.pump(Duration::ZERO);
            }
            drop(node);
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

struct Going<'a> {
    process: &'a Process<'a>,
    node: Shared,
    digest: [u8; 32],
    files: JobFiles,
    agents: usize,
}

impl Visit for Going<'_> {
    type Out = bool;

    fn visit<T: Real>(self, ready: Ready<'_, T>) -> Result<bool> {
        let Going { process, node, digest, files, agents } = self;
        let Common { lossy, checkpoint, .. } = process.options.common;
        let links = Links { loss: ready.loss(), wait: lossy.map(Duration::from_millis) };
        let (graphs, threads) = (ready.graphs().clone(), process.threads.clone());
        let mut network = Agents::new(node.clone(), graphs, process.owned.clone(), links, threads);
        let resume = match unseal(&files.checkpoint, &digest) {
            Kept::Found(bytes) => Checkpoint::<T>::from_bytes(&bytes).ok().map(Checkpoint::into_owned),
            _ => None,
        };
        if let Some(checkpoint) = &resume {
            network
                .take_up(checkpoint)
                .map_err(|e| anyhow::anyhow!("{e}; remove {} to start anew", files.checkpoint.display()))?;
        }
        let finished = read_kept::<Record>(&files.done, &digest).is_some();
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
                rows: EndRows::new(),
                ready: &ready,
                taken: process.folder.join("taken").join(files.name()),
                exported: Ok(()),
            };
            let met = lock(&node).meet().map_err(dibo::Error::Network);
            let record = met.and_then(|()| ready.run(&mut network, resume, &mut watch));
            let record = match record {
                Ok(record) if matches!(record.outcome, Outcome::Stopped(_)) => return Ok(false),
                Ok(record) => record,
                Err(_) if stop::asked() => return Ok(false),
                Err(e @ dibo::Error::Watcher(_)) => return Err(e.into()),
                Err(e) => anyhow::bail!(
                    "{e}; a checkpoint is kept in {}: the same command goes on from there",
                    process.folder.display()
                ),
            };
            watch.exported?;
            write_kept(&files.rows, &digest, &watch.rows)?;
            write_kept(&files.done, &digest, &record)?;
            lock(&node).finish();
        }
        write_kept(&files.left, &digest, lock(&node).counts())?;
        let _ = std::fs::remove_file(&files.checkpoint);
        Ok(!stop::asked())
    }
}

struct Watcher<'a, T: Real> {
    ready: &'a Ready<'a, T>,
    /// Where this process's labels and model go.
    taken: PathBuf,
    exported: Result<()>,
    process: &'a Process<'a>,
    node: Shared,
    agents: usize,
    digest: [u8; 32],
    file: &'a Path,
    every: Duration,
    last: Option<Instant>,
    rows: EndRows,
}

impl<T: Real> Watch<T> for Watcher<'_, T> {
    fn go_on(&mut self, _k: usize) -> bool {
        !stop::asked()
    }

    fn values(
        &mut self,
        k: usize,
        problem: &dyn Bilevel<T>,
        views: &[View<'_, T>],
    ) -> dibo::Result<gather::Values> {
        gather::values(&self.node, k, self.agents, problem, views, self.process.options.show_private)
    }

    fn sample(&mut self, sample: &Sample) {
        if self.process.options.progress {
            say!("{}", sample.k);
        }
    }

    fn checkpoint_due(&mut self) -> bool {
        // The first at once, so that there always is one.
        self.last.is_none_or(|l| l.elapsed() > self.every) || lock(&self.node).kept_bytes() > KEPT
    }

    fn checkpoint(&mut self, checkpoint: Checkpoint<'_, T>) -> dibo::Result<()> {
        self.last = Some(Instant::now());
        // One that cannot be written ends the run: the others would forget what this process may need again.
        let sealed = seal(self.file, &self.digest, &checkpoint.to_bytes());
        sealed.map_err(|e| dibo::Error::Watcher(format!("{e:#}").into()))?;
        lock(&self.node).checkpointed(checkpoint.traffic.rounds);
        Ok(())
    }

    fn finished(&mut self, views: &[View<'_, T>]) {
        self.rows = end_rows(&self.process.owned, views);
        if let Some(export) = &self.ready.finale.export {
            self.exported = export(views, &self.process.owned, &self.taken);
        }
    }
}
