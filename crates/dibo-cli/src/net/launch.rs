//! `dibo launch`: all agents of an experiment as processes on this machine, one progress bar, one report.
use super::gather::Gathered;
use super::{Common, KEEP, STOP, digest, folder_of, status};
use crate::live::{Graphs, watched};
use crate::stopped;
use anyhow::{Context, Result, bail, ensure};
use dibo::engine::Sample;
use dibo::rng::{Purpose, stream};
use dibo_net::certificates::Subject;
use dibo_report::live::{Feed, Live, Network};
use dibo_report::results::Folder;
use dibo_report::results::store::{self, STOPPED};
use dibo_run::progress::Progress;
use dibo_run::{Experiment, Registry, runner, say, stop};
use rand::{Rng, RngExt};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// What a user can choose about a launch.
#[derive(clap::Args)]
pub struct LaunchOptions {
    #[command(flatten)]
    common: Common,
    /// How many processes share the agents, in order
    #[arg(long, default_value_t = 2)]
    processes: usize,
    /// Plain TCP instead of TLS between the processes, which all live on this machine
    #[arg(long)]
    tcp: bool,
    /// Run in the simulator afterwards and compare every bit
    #[arg(long)]
    verify: bool,
    /// Kill so many processes on the way, at random, and start them again
    #[arg(long, default_value_t = 0)]
    kills: usize,
    /// Mean seconds between kills
    #[arg(long, default_value_t = 1.0)]
    kill_every: f64,
    /// Connect all processes through one router instead of directly
    #[arg(long)]
    router: bool,
    /// Show no progress bar
    #[arg(long)]
    quiet: bool,
    /// Do everything anew instead of going on where an earlier launch was stopped, and take over a folder of
    /// other results of dibo
    #[arg(long)]
    fresh: bool,
    /// Show progress, curves and the network on a page of this machine while it runs
    #[arg(long)]
    live: bool,
}

/// What the process of agent 0 tells: iterations that are done, and evaluations with their jobs' numbers.
#[derive(Default)]
struct Told {
    done: AtomicU64,
    samples: Mutex<Vec<(usize, Sample)>>,
}

/// An evaluation for [`Told`], as two words.
pub fn told(job: u32, sample: &Sample) -> String {
    let bytes = postcard::to_stdvec(sample).unwrap_or_default();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{job} {hex}")
}

/// The evaluation in [`told`]'s second word.
fn sample(hex: &str) -> Option<Sample> {
    let byte = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(byte).collect();
    postcard::from_bytes(&bytes?).ok()
}

impl Told {
    /// Takes a line in; gives whether it is one.
    fn hear(&self, line: &str) -> bool {
        let mut words = line.split_whitespace();
        let Some(done) = words.next().and_then(|word| word.parse().ok()) else { return false };
        self.done.store(done, Relaxed);
        let job = words.next().and_then(|word| word.parse().ok());
        let heard = job.zip(words.next().and_then(sample));
        self.samples().extend(heard);
        true
    }

    fn samples(&self) -> std::sync::MutexGuard<'_, Vec<(usize, Sample)>> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One process of the launch.
struct Running {
    arguments: Vec<String>,
    lowest: usize,
    log: PathBuf,
    child: Child,
    ended: bool,
    /// How often it was started again after it had ended by itself.
    restarts: usize,
}

/// How often a router that ends is started again.
const RESTARTS: usize = 20;

impl Running {
    fn start(
        program: &Path,
        arguments: Vec<String>,
        lowest: usize,
        log: PathBuf,
        progress: &Arc<Told>,
    ) -> Result<Self> {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("cannot write {}", log.display()))?;
        let mut said = file.try_clone().with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(program);
        // Its input ends with this process, so that no agent is left behind (--leash).
        command.args(&arguments).arg("--leash").stdin(Stdio::piped()).stderr(file).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        if let Some(out) = child.stdout.take() {
            let progress = progress.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    // What Zenoh has to say, it says on standard output.
                    if !progress.hear(&line) {
                        drop(writeln!(said, "{line}"));
                    }
                }
            });
        }
        Ok(Running { arguments, lowest, log, child, ended: false, restarts: 0 })
    }

    /// Says a word on the leash.
    fn tell(&mut self, word: &str) {
        // One that has ended hears nothing.
        let _ = self.child.stdin.as_mut().map(|leash| writeln!(leash, "{word}"));
    }

    /// The last line that it wrote about itself.
    fn last_words(&self, status: ExitStatus) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let words = text.lines().rev().find_map(|l| l.strip_prefix("dibo: "));
        words.map_or_else(|| format!("{status}; see {}", self.log.display()), String::from)
    }
}

/// The one signal that cannot be caught.
#[cfg(unix)]
const SIGKILL: i32 = 9;

/// Whether a process ended by SIGKILL, the one death that is not its own doing.
fn killed_off(status: ExitStatus) -> bool {
    #[cfg(unix)]
    return std::os::unix::process::ExitStatusExt::signal(&status) == Some(SIGKILL);
    // Elsewhere a killed process has exit code 1; those of ours that fail have 2.
    #[cfg(not(unix))]
    return status.code() == Some(1);
}

/// What a launch is, for [`STOPPED`].
fn mark(experiment: &Experiment, options: &LaunchOptions) -> Result<String> {
    let (agreed, _) = digest(experiment, &options.common, true)?;
    let hex: String = agreed.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{hex}, {} processes\n", options.processes))
}

/// Locks the results folder, before the work and not when its results are to be written. The folder of the
/// processes is as the same launch left it when it was stopped, else empty; gives whether it goes on.
fn prepare(out: &Path, experiment: &Experiment, options: &LaunchOptions) -> Result<(Folder, bool)> {
    let root = out.join("agents");
    if let Some(name) = store::foreign_in_agents(&root) {
        bail!("{} has a {name} that dibo did not write; give another folder with --out", root.display());
    }
    let left = std::fs::read_to_string(root.join(STOPPED)).ok();
    let goes_on =
        !options.fresh && left.is_some_and(|left| mark(experiment, options).is_ok_and(|m| m == left));
    // Another launch that left no results is in nobody's way.
    let fresh = options.fresh || !goes_on && !store::has_results(out);
    let folder = Folder::open(out, &experiment.name, &runner::identity(experiment)?, fresh)?;
    let clear = |path: &Path| match std::fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("cannot clear {}", path.display()))
        }
        _ => Ok(()),
    };
    if goes_on {
        // Certificates run out within days: there will be new ones.
        clear(&root.join("certificates"))?;
        std::fs::remove_file(root.join(STOPPED)).context("cannot take up the launch that was stopped")?;
    } else {
        clear(&root)?;
        std::fs::create_dir_all(&root)
            .with_context(|| format!("cannot make the folder {}", root.display()))?;
    }
    Ok((folder, goes_on))
}

/// The number of agents, which must suit the other options.
fn agents(experiment: &Experiment, options: &LaunchOptions) -> Result<usize> {
    let jobs = runner::jobs(experiment);
    let mut agents = jobs.iter().map(|(s, _)| experiment.settings[*s].agents(&experiment.folder));
    let n = agents.next().context("the experiment has no runs")??;
    ensure!(
        agents.all(|a| a.is_ok_and(|a| a == n)),
        "the number of agents changes within the experiment; launch one number at a time with --set"
    );
    ensure!(
        options.processes >= 1 && options.processes <= n,
        "--processes is {}; it must be between 1 and {n}, the number of agents",
        options.processes
    );
    let every = options.kill_every;
    ensure!(every > 0.0 && every < 1e6, "--kill-every is {every}; it must be a number of seconds above 0");
    Ok(n)
}

/// Shows a page the network that the processes' statuses tell of: the links of the round that the first of
/// them is in.
fn show_network(live: &Live, experiment: &Arc<Experiment>, root: &Path, n: usize) {
    let (graphs, jobs) = (Graphs::new(experiment.clone()), runner::jobs(experiment));
    let root = root.to_path_buf();
    live.set_network(move |_| {
        let all = status::read_all(&root).ok()?;
        let first = &all.iter().max_by_key(|s| (s.board.job, s.board.round))?.board;
        let (part, parts) = (first.job as usize / 2, jobs.len());
        // Even numbers are talks before a part, over links of their own.
        let job = jobs.get(part).filter(|_| first.job % 2 == 1);
        let links = job.and_then(|(s, seed)| graphs.links(*s, *seed, first.graph)).map_or(vec![], |g| g.1);
        let about = format!("Part {} of {parts}, round {}", (part + 1).min(parts), first.round);
        Some(Network { processes: status::members(&all), ..Network::new(n, about, links) })
    });
}

/// The ways to the page of the jobs that go on, by their numbers.
type Feeds = BTreeMap<usize, Feed>;

/// Shows evaluations of jobs that go on.
fn show(
    live: &Arc<Live>,
    experiment: &Experiment,
    jobs: &[(usize, u64)],
    samples: impl Iterator<Item = (usize, Sample)>,
    feeds: &mut Feeds,
) {
    for (job, sample) in samples {
        let Some((s, seed)) = jobs.get(job).copied() else { continue };
        let begin = || live.begin(s, seed, experiment.settings[s].run.iterations);
        runner::show(feeds.entry(job).or_insert_with(begin), &sample);
    }
}

/// Runs all agents of an experiment on this machine.
pub fn launch(registry: &Registry, options: LaunchOptions) -> Result<ExitCode> {
    let (began, started) = (Instant::now(), SystemTime::now());
    let experiment = Arc::new(options.common.load(registry, false)?);
    let jobs = runner::jobs(&experiment);
    let n = agents(&experiment, &options)?;
    let out = options.common.out(&experiment)?;
    let (folder, goes_on) = prepare(&out, &experiment, &options)?;
    let root = out.join("agents");
    stop::watch()?;
    say!("{}: {}", experiment.name, experiment.title);
    if goes_on {
        say!("going on where it was stopped; --fresh begins anew");
    }
    // The first of them get one more where the agents cannot be shared equally.
    let groups: Vec<Vec<usize>> = shares(n, options.processes);
    let total: usize = jobs.iter().map(|(s, _)| experiment.settings[*s].run.iterations).sum();
    let (live, server) = options.live.then(|| watched(&experiment, 1, &out)).transpose()?.unzip();
    if let Some(live) = &live {
        show_network(live, &experiment, &root, n);
    }
    let bar = Progress::new(total as u64, options.quiet).with_live(live.clone());
    bar.set_message(format!("{n} agents in {} processes", options.processes));
    let all = Gathered {
        registry,
        experiment: &experiment,
        out: &out,
        processes: groups.iter().map(|g| g[0]).collect(),
        agents: n,
    };
    let (mut ended, mut last, mut feeds) = (0, Instant::now(), Feeds::new());
    // The first that is heard of where others were stopped is where they were.
    let mut goes_on = goes_on;
    let killed = Fate { options: &options, groups: &groups, out: &out }.run(&root, |told| {
        match told.done.load(Relaxed) {
            done if done > 0 && std::mem::take(&mut goes_on) => bar.found(done),
            done => bar.set_position(done),
        }
        let samples = std::mem::take(&mut *told.samples());
        let Some(live) = &live else { return };
        show(live, &experiment, &jobs, samples.into_iter().filter(|(job, _)| *job >= ended), &mut feeds);
        if last.elapsed() > Duration::from_secs(1) {
            all.tell(live, &mut ended);
            last = Instant::now();
        }
    })?;
    let ending = all.since_last_result();
    bar.finish();
    if stop::asked() {
        let file = root.join(STOPPED);
        std::fs::write(&file, mark(&experiment, &options)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
        say!("{}", stopped(options.fresh));
        if let Some(server) = server {
            server.stopped();
        }
        return Ok(ExitCode::from(130));
    }
    if killed > 0 {
        say!("{killed} processes were killed and started again (the wire counts what their last lives sent)");
    }
    all.report(began, started, Some(folder))?;
    if let Some(seconds) = ending {
        say!("end:     {seconds:.1} s from the last result until all processes had ended");
    }
    if let Some(server) = server {
        server.finish(&out.join("report.html"))?;
    }
    if options.verify {
        all.verify()?;
    }
    Ok(ExitCode::SUCCESS)
}

fn shares(n: usize, processes: usize) -> Vec<Vec<usize>> {
    let mut next = 0;
    let size = |p: usize| n / processes + usize::from(p < n % processes);
    (0..processes)
        .map(|p| {
            next += size(p);
            (next - size(p)..next).collect()
        })
        .collect()
}

/// Where the processes of a launch listen, and the folder of certificates that they show each other (none
/// over plain TCP).
struct Addresses {
    ports: Vec<u16>,
    certificates: Option<PathBuf>,
}

impl Addresses {
    /// So many addresses; the certificates are made in a folder below `root`.
    fn new(root: &Path, groups: &[Vec<usize>], tcp: bool) -> Result<Self> {
        let count = groups.len() + 1;
        let certificates = (!tcp).then(|| root.join("certificates"));
        if let Some(folder) = &certificates {
            let from = SystemTime::now() - Duration::from_secs(3600);
            // Each speaks for its own agents; the last is the router's.
            let own = |g: &Vec<usize>| vec![(g[0], g[g.len() - 1])];
            let agents = groups.iter().map(own).chain([Vec::new()]);
            let hosts: Vec<Subject> = agents
                .enumerate()
                .map(|(p, agents)| Subject { host: format!("process-{p}"), agents })
                .collect();
            dibo_net::certificates::make(folder, &hosts, from, 2).map_err(anyhow::Error::msg)?;
        }
        // Free ports: bound all at once so that they differ, and let go.
        let bound: Vec<TcpListener> = (0..count)
            .map(|_| TcpListener::bind("127.0.0.1:0"))
            .collect::<Result<_, _>>()
            .context("cannot find free ports")?;
        let ports: Vec<u16> = bound.iter().filter_map(|l| Some(l.local_addr().ok()?.port())).collect();
        Ok(Addresses { ports, certificates })
    }

    /// The address of one process, as Zenoh writes it.
    fn endpoint(&self, p: usize) -> String {
        let protocol = if self.certificates.is_some() { "tls" } else { "tcp" };
        format!("{protocol}/localhost:{}", self.ports[p])
    }

    /// Arguments that tell process `p` its certificate.
    fn security(&self, p: usize) -> Vec<String> {
        let (folder, host) = (self.certificates.iter(), format!("process-{p}"));
        folder
            .flat_map(|c| ["--certificates".into(), c.display().to_string(), "--host".into(), host.clone()])
            .collect()
    }
}

/// All that a launch has started.
struct Processes {
    program: PathBuf,
    running: Vec<Running>,
    /// One or none.
    routers: Vec<Running>,
    /// What the first process tells.
    told: Arc<Told>,
}

/// Where process `p` enters how far it is: only the first one is listened to.
fn progress_of(p: usize, told: &Arc<Told>) -> Arc<Told> {
    if p == 0 { told.clone() } else { Arc::default() }
}

impl Processes {
    /// Starts those again that were killed; gives the last words of one that failed.
    fn look_after(&mut self) -> Result<Option<String>> {
        let mut failed = None;
        for (p, process) in self.running.iter_mut().enumerate().filter(|(_, r)| !r.ended) {
            let Some(status) = process.child.try_wait().context("cannot wait for a process")? else {
                continue;
            };
            if !killed_off(status) || stop::asked() {
                process.ended = true;
                failed = failed.or_else(|| (!status.success()).then(|| process.last_words(status)));
            } else {
                // By us or by somebody else.
                *process = Running::start(
                    &self.program,
                    process.arguments.clone(),
                    process.lowest,
                    process.log.clone(),
                    &progress_of(p, &self.told),
                )?;
            }
        }
        for router in &mut self.routers {
            let Some(status) = router.child.try_wait().context("cannot wait for the router")? else {
                continue;
            };
            // The agents wait for one that died, and go on through a new one.
            if router.restarts >= RESTARTS {
                let words = router.last_words(status);
                failed = failed.or_else(|| Some(format!("the router ended again and again: {words}")));
                continue;
            }
            let (arguments, log) = (router.arguments.clone(), router.log.clone());
            let restarts = router.restarts + 1;
            *router = Running::start(&self.program, arguments, 0, log, &Arc::default())?;
            router.restarts = restarts;
        }
        Ok(failed)
    }

    /// After a failure: the others hear of it and stop by themselves, for which they get five seconds.
    fn let_stop(&mut self) {
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until
            && self.running.iter_mut().any(|r| matches!(r.child.try_wait(), Ok(None)))
        {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills one of those that have not ended, at random; false if it could not be killed.
    fn kill_one(&mut self, chance: &mut impl Rng) -> bool {
        let victims: Vec<usize> = (0..self.running.len()).filter(|p| !self.running[*p].ended).collect();
        let victim = &mut self.running[victims[chance.random_range(0..victims.len())]];
        // SIGKILL: it has no chance to say goodbye.
        victim.child.kill().is_ok()
    }

    /// Ends whatever is still there.
    fn end(&mut self) {
        for process in self.running.iter_mut().chain(&mut self.routers) {
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}

/// The processes of a launch and what becomes of them.
struct Fate<'a> {
    options: &'a LaunchOptions,
    groups: &'a [Vec<usize>],
    out: &'a Path,
}

impl Fate<'_> {
    /// Starts all, waits for all; gives how many were killed.
    fn run(&self, root: &Path, mut progress: impl FnMut(&Told)) -> Result<usize> {
        let LaunchOptions { common, kills, kill_every, .. } = self.options;
        let mut processes = self.start(root)?;
        let mut chance = stream(common.faults.map_or(0, |f| f.seed), Purpose::Start, 4, 0);
        let wait = |chance: &mut dyn Rng| Duration::from_secs_f64(kill_every * 2.0 * chance.random::<f64>());
        let (mut killed, mut next_kill) = (0, Instant::now() + wait(&mut chance));
        let (mut told, mut keeps) = (false, stop::keeps());
        let outcome = loop {
            // A terminal's Ctrl-C reaches all processes; a wish of the page or of `kill` only this one.
            if stop::asked() && !std::mem::replace(&mut told, true) {
                processes.running.iter_mut().for_each(|process| process.tell(STOP));
            }
            let wished = stop::keeps();
            if std::mem::replace(&mut keeps, wished) != wished {
                processes.running.iter_mut().for_each(|process| process.tell(KEEP));
            }
            let failed = processes.look_after()?;
            progress(&processes.told);
            if let Some(words) = failed.filter(|_| !stop::asked()) {
                processes.let_stop();
                break Err(anyhow::anyhow!(words));
            }
            if processes.running.iter().all(|r| r.ended) {
                break Ok(killed);
            }
            if killed < *kills && !told && Instant::now() >= next_kill {
                if processes.kill_one(&mut chance) {
                    killed += 1;
                }
                next_kill = Instant::now() + wait(&mut chance);
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        processes.end();
        outcome
    }

    /// Starts the router, if there is one, and a process for each group of agents.
    fn start(&self, root: &Path) -> Result<Processes> {
        let program = std::env::current_exe().context("cannot find the path of dibo")?;
        // One for each process, and the last for the router.
        let addresses = Addresses::new(root, self.groups, self.options.tcp)?;
        let told = Arc::new(Told::default());
        let mut routers = Vec::new();
        if self.options.router {
            let mut arguments: Vec<String> =
                ["router".into(), "--listen".into(), addresses.endpoint(self.groups.len())].into();
            arguments.extend(addresses.security(self.groups.len()));
            routers.push(Running::start(&program, arguments, 0, root.join("router.log"), &Arc::default())?);
        }
        let mut running = Vec::new();
        for (p, group) in self.groups.iter().enumerate() {
            // What an earlier life showed is old.
            let _ = std::fs::remove_file(folder_of(self.out, group[0]).join(status::FILE));
            running.push(Running::start(
                &program,
                self.agent_arguments(p, &addresses),
                group[0],
                root.join(format!("{}.log", group[0])),
                &progress_of(p, &told),
            )?);
        }
        Ok(Processes { program, running, routers, told })
    }

    /// The command line of process `p`: `dibo agent` with what the user chose for the launch.
    fn agent_arguments(&self, p: usize, addresses: &Addresses) -> Vec<String> {
        let common = &self.options.common;
        let list = |items: Vec<String>| items.join(",");
        let mut arguments: Vec<String> = vec![
            "agent".into(),
            common.experiment.experiment.clone(),
            "--own".into(),
            list(self.groups[p].iter().map(|i| i.to_string()).collect()),
        ];
        if self.options.router {
            arguments.extend(["--client".into(), "--connect".into(), addresses.endpoint(self.groups.len())]);
        } else {
            arguments.extend(["--listen".into(), addresses.endpoint(p)]);
            // One connection for each pair: of two, one can survive a cut, and Zenoh then forgets what the
            // other side listens to.
            let earlier = list((0..p).map(|earlier| addresses.endpoint(earlier)).collect());
            arguments.extend(if p == 0 { vec![] } else { vec!["--connect".into(), earlier] });
        }
        arguments.extend(addresses.security(p));
        arguments.extend(common.experiment.set.iter().flat_map(|set| ["--set".into(), set.clone()]));
        arguments.extend(common.experiment.seeds.iter().flat_map(|n| ["--seeds".into(), n.to_string()]));
        arguments
            .extend(common.experiment.data.iter().flat_map(|d| ["--data".into(), d.display().to_string()]));
        arguments.extend(common.lossy.iter().flat_map(|ms| ["--lossy".into(), ms.to_string()]));
        arguments.extend(common.faults.iter().flat_map(|f| {
            [
                "--faults".into(),
                format!("drop={},duplicate={},delay={},seed={}", f.drop, f.duplicate, f.delay, f.seed),
            ]
        }));
        arguments.extend(["--out".into(), self.out.display().to_string()]);
        arguments.extend([
            "--patience".into(),
            common.patience.to_string(),
            "--wait".into(),
            common.wait.to_string(),
            "--checkpoint".into(),
            common.checkpoint.to_string(),
        ]);
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        arguments.extend(["--threads".into(), (cores / self.groups.len()).max(1).to_string()]);
        // All of them live on the machine of one user: nothing is shown to anybody else.
        arguments.push("--show-private".into());
        if p == 0 {
            arguments.push("--progress".into());
        }
        arguments
    }
}
