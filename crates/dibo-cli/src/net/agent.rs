//! `dibo agent`: the agents that this process owns, through all settings and seeds of an experiment.
use super::launch;
use super::status::Shown;
use super::{AgentOptions, Common, digest, folder_of, leash, log, own, read_endpoints, tls};
use anyhow::{Context, Result, ensure};
use dibo::engine::{Checkpoint, Sample, Watch};
use dibo::mixing::Sequence;
use dibo::problem::Bilevel;
use dibo::rows::{Real, Threads, View};
use dibo_net::agents::{Agents, Links, Shared, lock};
use dibo_net::disk::{Disk, Folder, Found, Lives, Store};
use dibo_net::gather;
use dibo_net::identity::Certificate;
use dibo_net::keys::Identity;
use dibo_net::life::{EndRows, Ended, Keeper, Often, end_rows, live};
use dibo_net::node::{Node, Rejoined, Settings, agents};
use dibo_net::transport::{Faulty, Transport};
use dibo_net::wire::{Endpoints, Role, Tls, Wire, close};
use dibo_net::zenoh;
use dibo_run::door::{Place, Ready, Visit, open};
use dibo_run::problems::{Local, Meeting, Talk};
use dibo_run::setting;
use dibo_run::sites::Files;
use dibo_run::{Experiment, Registry, runner, say, stop};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Between two evaluations that are told to `dibo launch`.
const BETWEEN: Duration = Duration::from_millis(200);
/// Checkpoint earlier if so many bytes are kept for others, or by others for this process.
const KEPT: usize = 256 << 20;

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
    log::begin(options.log);
    let (mut listen, mut connect) = (options.listen.clone(), options.connect.clone());
    if let Some(file) = &options.endpoints {
        let more = read_endpoints(file)?;
        listen.extend(more.0);
        connect.extend(more.1);
    }
    let endpoints = Endpoints {
        tls: tls(&options.security)?,
        listen,
        connect,
        role: if options.client { Role::Client } else { Role::Peer },
        insecure: options.security.insecure,
        network: options.network.clone(),
    };
    endpoints.check().map_err(anyhow::Error::msg)?;
    let identity = endpoints.tls.as_ref().map(|tls| identity(tls, &owned)).transpose()?;
    let folder = folder_of(&options.common.out(&experiment)?, owned[0]);
    let disk = Folder::hold(&folder).map_err(anyhow::Error::msg)?;
    let random = u32::from_le_bytes(random()?);
    let lives = Lives::begin(&disk, random).map_err(anyhow::Error::msg)?;
    let threads = crate::threads(options.threads)?;
    stop::watch()?;
    let local = Local {
        files: Files { rows: options.local.clone(), checked: options.local_checked.clone(), bert: None },
        owned: owned.clone(),
    };
    let (digest, parts) = digest(&experiment, &options.common, options.show_private)?;
    let shown = Shown::new(owned.clone(), jobs.len());
    shown.tell(&folder, !options.progress);
    let served = options.metrics.map(|address| shown.serve(address)).transpose();
    let session = served.and_then(|_| endpoints.open().map_err(anyhow::Error::msg));
    let session = session.inspect_err(|why| shown.end(&folder, failed(why)))?;
    say_connected(&endpoints, &options);
    let process = Process {
        local,
        digest,
        parts,
        session,
        endpoints,
        threads: Threads::new(threads),
        lives,
        identity,
        experiment: &experiment,
        options: &options,
        owned,
        disk,
        folder,
        shown,
    };
    let ended = process.all(&jobs);
    process.shown.end(&process.folder, in_words(&ended));
    close(process.session);
    ended
}

/// How a process ended, for its status.
fn in_words(ended: &Result<ExitCode>) -> String {
    match ended {
        Ok(code) if *code == ExitCode::SUCCESS => "done".into(),
        Ok(_) => "stopped early".into(),
        Err(why) => failed(why),
    }
}

fn failed(why: &anyhow::Error) -> String {
    format!("failed: {why:#}")
}

/// Four bytes that nobody can foresee.
fn random() -> Result<[u8; 4]> {
    // The standard library's own randomness: the keys of its hash maps come from the system.
    use std::hash::{BuildHasher, RandomState};
    let hash = RandomState::new().hash_one(std::process::id());
    Ok((hash as u32).to_le_bytes())
}

fn say_connected(endpoints: &Endpoints, options: &AgentOptions) {
    let (listen, connect) = (endpoints.listen.join(", "), endpoints.connect.join(", "));
    let mut words = Vec::new();
    if !listen.is_empty() {
        words.push(format!("listening on {listen}"));
    }
    if !connect.is_empty() {
        words.push(format!("connecting to {connect}"));
    }
    tracing::info!("agents {}: {}", options.own, words.join(", "));
}

/// This process's certificate, which must name its agents.
fn identity(tls: &Tls, owned: &[usize]) -> Result<Arc<dyn Identity>> {
    let certificate = Certificate::read(tls).map_err(anyhow::Error::msg)?;
    let not_named: Vec<usize> =
        owned.iter().copied().filter(|i| !certificate.named().iter().any(|r| r.contains(i))).collect();
    ensure!(
        not_named.is_empty(),
        "{} does not name {}: a certificate says which agents its owner may speak for; `dibo certificates \
        --agents HOST=FIRST-LAST` makes one, and one of your own authority needs a DNS name such as \
        agents-0-4.example.org",
        tls.certificate.display(),
        agents(not_named)
    );
    Ok(Arc::new(certificate))
}

struct Process<'a> {
    local: Local,
    experiment: &'a Experiment,
    options: &'a AgentOptions,
    owned: Vec<usize>,
    digest: [u8; 32],
    parts: Vec<(String, u64)>,
    lives: Lives,
    identity: Option<Arc<dyn Identity>>,
    session: zenoh::Session,
    endpoints: Endpoints,
    threads: Threads,
    disk: Folder,
    folder: PathBuf,
    shown: Shown,
}

/// The beginning of the names of one job's files.
pub fn job_name(s: usize, seed: u64) -> String {
    format!("{s}-{seed}")
}

/// What the files of one job belong to.
pub fn job_digest(experiment: &Experiment, s: usize, seed: u64) -> Result<[u8; 32]> {
    runner::shared_digest(experiment, &experiment.settings[s], seed, None)
}

impl Process<'_> {
    /// All settings and seeds.
    fn all(&self, jobs: &[(usize, u64)]) -> Result<ExitCode> {
        let (mut found, mut kept) = (0, false);
        for (job, (s, seed)) in jobs.iter().enumerate() {
            let store = self.store(*s, *seed)?;
            if matches!(store.read("left"), Found::Whole(_)) {
                found += 1;
                continue;
            }
            match self.job(job as u32, *s, *seed)? {
                Ended::Left => {
                    store.write_value("memory", &runner::peak_memory()).map_err(anyhow::Error::msg)?;
                    tracing::info!("part {} of {} is done", job + 1, jobs.len());
                }
                Ended::Kept => kept = true,
                Ended::Stopped => {
                    say!("stopped early; the same command goes on from here");
                    return Ok(ExitCode::from(130));
                }
            }
        }
        if found == jobs.len() {
            tracing::info!("all is done already; telling those who may still wait for this process");
            lock(&self.node(2 * jobs.len() as u32, jobs_agents(self.experiment, jobs)?)?).rejoin();
        }
        if kept {
            say!(
                "the results of this process are written; not all others were heard, so what they may need \
                is kept in {}: the same command serves them",
                self.disk.place()
            );
        }
        tracing::info!("done");
        Ok(ExitCode::SUCCESS)
    }

    fn store(&self, s: usize, seed: u64) -> Result<Store<'_>> {
        Ok(Store::new(&self.disk, job_digest(self.experiment, s, seed)?, job_name(s, seed)))
    }

    /// One setting with one seed.
    fn job(&self, job: u32, s: usize, seed: u64) -> Result<Ended> {
        let setting = &self.experiment.settings[s];
        let digest = job_digest(self.experiment, s, seed)?;
        let meeting = Before { process: self, job, digest, name: job_name(s, seed) };
        let place = Place {
            local: Some(&self.local),
            meeting: Some(&meeting),
            ..Place::new(&self.experiment.folder, &self.threads)
        };
        let opened = open(setting, seed, place)?;
        opened.built.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let agents = opened.graphs.agents();
        let node = self.node(2 * job + 1, agents)?;
        opened.visit(Going {
            process: self,
            node,
            store: self.store(s, seed)?,
            name: job_name(s, seed),
            agents,
            job,
            before: self.before(job),
        })
    }

    /// Iterations of the jobs before this one.
    fn before(&self, job: u32) -> usize {
        let jobs = runner::jobs(self.experiment).into_iter().take(job as usize);
        jobs.map(|(s, _)| self.experiment.settings[s].run.iterations).sum()
    }

    /// A node of this process for one part of the experiment: an even number for the talk before a job, an
    /// odd one for the job, so that later parts have higher numbers.
    fn node(&self, job: u32, agents: usize) -> Result<Shared> {
        let me = self.owned[0] as u32;
        let role = if self.options.client { Role::Client } else { Role::Peer };
        let wire = Wire::new(&self.session, &self.options.network, role, me).map_err(anyhow::Error::msg)?;
        let line: Box<dyn Transport> = match self.options.common.faults {
            Some(faults) => Box::new(Faulty::new(wire, faults, me)),
            None => Box::new(wire),
        };
        let seconds = Duration::from_secs_f64;
        let settings = Settings {
            patience: seconds(self.options.common.patience),
            wait: seconds(self.options.common.wait),
            after: self.lives.after.clone(),
            parts: self.parts.clone(),
            identity: self.identity.clone(),
            ..Settings::new(agents, self.owned.clone(), self.digest, job, self.lives.incarnation)
        };
        let (stop, endpoints) = (Arc::new(AtomicBool::new(false)), self.endpoints.clone());
        let log = move |line: &str| {
            tracing::info!(agent = me, "{line}");
            // To look costs the other side a refused connection: only while nothing else is known.
            if line.starts_with("nobody has been met") {
                endpoints.unreachable().iter().for_each(|why| tracing::warn!("{why}"));
            }
        };
        let node: Shared = Arc::new(Mutex::new(Node::new(line, settings, stop.clone(), log)));
        self.shown.follow(lock(&node).board());
        serve(&node, &stop);
        Ok(node)
    }
}

/// How many agents an experiment has.
fn jobs_agents(experiment: &Experiment, jobs: &[(usize, u64)]) -> Result<usize> {
    let (s, _) = jobs.first().context("the experiment has no runs")?;
    experiment.settings[*s].agents(&experiment.folder)
}

/// Where the agents of all processes agree on something before a job.
struct Before<'a> {
    process: &'a Process<'a>,
    job: u32,
    digest: [u8; 32],
    name: String,
}

impl Meeting for Before<'_> {
    fn meet(&self, links: &Sequence, talk: &mut Talk<'_>) -> Result<Vec<u8>> {
        let Before { process, job, digest, name } = self;
        let mut own = blake3::Hasher::new();
        own.update(digest);
        for data in process.local.files.rows.iter().chain(&process.local.files.checked) {
            own.update(&setting::contents(data)?);
        }
        let store = Store::new(&process.disk, *own.finalize().as_bytes(), name.clone());
        let kept = match store.read("agreed") {
            Found::Whole(bytes) => Some(bytes),
            Found::Another => anyhow::bail!(
                "{name}.agreed in {}: this process's data is not that with which the run began; choose \
                another --out",
                process.disk.place()
            ),
            Found::Missing => None,
            Found::Damaged(what) => {
                tracing::warn!("{what}; agreeing again");
                None
            }
        };
        let node = process.node(2 * job, links.agents())?;
        // Others may still need what this process said before it was started again.
        if let Some(bytes) = kept.filter(|_| lock(&node).rejoin() != Rejoined::Needed) {
            return Ok(bytes);
        }
        lock(&node).meet().map_err(dibo::Error::Network)?;
        let (owned, threads) = (process.owned.clone(), process.threads.clone());
        let mut network = Agents::new(node.clone(), links.clone(), owned, Links::default(), threads);
        let agreed = talk(&mut network).map_err(|e| {
            lock(&node).give_up(format!("{e:#}"));
            e
        })?;
        store.write("agreed", &agreed).map_err(|why| anyhow::anyhow!(lock(&node).give_up(why)))?;
        lock(&node).finish().map_err(anyhow::Error::msg)?;
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
    store: Store<'a>,
    name: String,
    agents: usize,
    job: u32,
    before: usize,
}

impl Visit for Going<'_> {
    type Out = Ended;

    fn visit<T: Real>(self, ready: Ready<'_, T>) -> Result<Ended> {
        let Going { process, node, store, name, agents, job, before } = self;
        let Common { lossy, checkpoint, .. } = process.options.common;
        let links = Links { loss: ready.loss(), wait: lossy.map(Duration::from_millis) };
        let (graphs, threads) = (ready.graphs().clone(), process.threads.clone());
        let network = Agents::new(node.clone(), graphs, process.owned.clone(), links, threads);
        let often = Often { every: Duration::from_secs_f64(checkpoint), bytes: KEPT };
        let mut exported = Ok(());
        let ended = live(&node, &store, often, network, |network, resume, keeper| {
            tracing::info!("all others are here; beginning in round {}", lock(&node).round());
            let mut watch = Watcher {
                process,
                node: node.clone(),
                agents,
                job,
                before,
                told: None,
                keeper,
                keeps: stop::keeps(),
                rows: EndRows::new(),
                ready: &ready,
                taken: process.folder.join("taken").join(&name),
                exported: Ok(()),
            };
            let record = ready.run(network, resume, &mut watch)?;
            exported = watch.exported;
            Ok((record, watch.rows))
        });
        exported?;
        match ended {
            Err(_) if stop::asked() => Ok(Ended::Stopped),
            ended => ended.map_err(anyhow::Error::msg),
        }
    }
}

struct Watcher<'a, 'b, T: Real> {
    ready: &'a Ready<'a, T>,
    /// Where this process's labels and model go.
    taken: PathBuf,
    exported: Result<()>,
    process: &'a Process<'a>,
    node: Shared,
    agents: usize,
    job: u32,
    /// Iterations of the jobs before this one.
    before: usize,
    /// When an evaluation was last told.
    told: Option<Instant>,
    keeper: &'a mut Keeper<'b>,
    /// Wishes for a checkpoint that are fulfilled.
    keeps: usize,
    rows: EndRows,
}

impl<T: Real> Watcher<'_, '_, T> {
    /// Whether a checkpoint is to be made.
    fn due(&self) -> bool {
        self.keeper.due() || self.keeps != stop::keeps()
    }
}

impl<T: Real> Watch<T> for Watcher<'_, '_, T> {
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
        if !self.process.options.progress {
            return;
        }
        let done = self.before + sample.k;
        match self.told.is_none_or(|told| told.elapsed() > BETWEEN) {
            true => {
                self.told = Some(Instant::now());
                say!("{done} {}", launch::told(self.job, sample));
            }
            false => say!("{done}"),
        }
    }

    fn pause(&mut self, _k: usize) -> bool {
        stop::asked() || self.due()
    }

    fn checkpoint_due(&mut self) -> bool {
        self.due()
    }

    fn checkpoint(&mut self, checkpoint: Checkpoint<'_, T>) -> dibo::Result<()> {
        self.keeps = stop::keeps();
        self.keeper.keep(&checkpoint)
    }

    fn finished(&mut self, views: &[View<'_, T>]) {
        self.rows = end_rows(&self.process.owned, views);
        if let Some(export) = &self.ready.finale.export {
            self.exported = export(views, &self.process.owned, &self.taken);
        }
    }
}
