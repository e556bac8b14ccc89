//! Agents as processes: `dibo agent` runs some of them, `dibo launch` all of them on this machine.
mod agent;
mod gather;
mod launch;
mod log;
mod status;

use crate::run::out_folder;
use anyhow::{Context, Result, bail, ensure};
use dibo::algorithm::Mixes;
use dibo::mixing::Mixing;
use dibo_net::certificates::Subject;
use dibo_net::packet;
use dibo_net::transport::Faults;
use dibo_net::wire::{Endpoints, Role, Tls};
use dibo_run::{Experiment, Registry, check, runner, say, stop};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

pub use agent::agent;
pub use gather::{GatherOptions, gather};
pub use launch::{LaunchOptions, launch};
pub use status::{StatusOptions, status};

/// What all processes of a run must be told alike.
#[derive(clap::Args, Clone)]
pub struct Common {
    #[command(flatten)]
    experiment: crate::ExperimentOptions,
    /// Folder for results and checkpoints [default: results/NAME]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Seconds without any sign, or without progress, of those who are waited for, after which a process
    /// stops; who computes may take longer
    #[arg(long, default_value_t = 60.0)]
    patience: f64,
    /// Seconds that processes which have not appeared yet are waited for
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0)]
    wait: f64,
    /// Seconds between checkpoints; they come earlier when much is kept for them
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    checkpoint: f64,
    /// Links that cannot be asked again: what has not come after so many milliseconds of a round is lost. For
    /// algorithms with running sums
    #[arg(long, value_name = "MILLISECONDS")]
    lossy: Option<u64>,
    /// Spoil packets on purpose: drop=0.2,duplicate=0.2,delay=0.2,seed=1
    #[arg(long)]
    faults: Option<Faults>,
}

/// Who may connect.
#[derive(clap::Args)]
struct Security {
    /// Folder with ca.pem and this host's certificate and key
    #[arg(long, value_name = "FOLDER")]
    certificates: Option<PathBuf>,
    /// Name of this host's certificate in the folder, if it holds several
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Allow plain TCP to other machines
    #[arg(long)]
    insecure: bool,
}

#[derive(clap::Args)]
pub struct AgentOptions {
    #[command(flatten)]
    common: Common,
    /// Agents of this process, such as 3,7 or 0-4
    #[arg(long)]
    own: String,
    /// Files with the rows of these agents, in order, instead of those that the experiment names
    #[arg(long, value_name = "FILES", value_delimiter = ',')]
    local: Vec<PathBuf>,
    /// Files with their checked rows
    #[arg(long, value_name = "FILES", value_delimiter = ',')]
    local_checked: Vec<PathBuf>,
    /// Endpoint to listen on, such as tls/0.0.0.0:7447 (may be repeated)
    #[arg(long, value_delimiter = ',')]
    listen: Vec<String>,
    /// Endpoints of the other processes, or of a router with --client
    #[arg(long, value_delimiter = ',')]
    connect: Vec<String>,
    /// File with endpoints, one a line: `listen tls/0.0.0.0:7447` or `connect tls/alpha:7447`; # begins a
    /// remark
    #[arg(long, value_name = "FILE")]
    endpoints: Option<PathBuf>,
    /// The endpoints to connect to are routers (see `dibo router`)
    #[arg(long)]
    client: bool,
    #[command(flatten)]
    security: Security,
    /// Tells several runs on one router apart
    #[arg(long, value_name = "NAME", default_value = "run")]
    network: String,
    /// Show private variables to the process that computes metrics, and get the metrics made of them
    #[arg(long)]
    show_private: bool,
    /// Threads to use [default: all cores]
    #[arg(long)]
    threads: Option<usize>,
    /// What is said on standard error: lines for people, or json
    #[arg(long, value_name = "FORM", default_value = "lines")]
    log: log::Form,
    /// Serve figures for Prometheus at http://ADDRESS/metrics, such as 127.0.0.1:9464
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<std::net::SocketAddr>,
    /// Print progress and now and then an evaluation in a form for programs
    #[arg(long, hide = true)]
    progress: bool,
    /// End when standard input ends
    #[arg(long, hide = true)]
    leash: bool,
}

#[derive(clap::Args)]
pub struct CertificateOptions {
    /// Folder to write to; an authority that lies there signs
    folder: PathBuf,
    /// Names or addresses of the hosts, as the others will call them [default: those of --agents, else
    /// localhost]
    #[arg(long, value_delimiter = ',')]
    hosts: Vec<String>,
    /// Agents that each host may speak for: alpha=0-4,beta=5-9; a router's host needs none
    #[arg(long, value_delimiter = ',', value_name = "HOST=AGENTS")]
    agents: Vec<String>,
    /// Days until they expire
    #[arg(long, default_value_t = 365)]
    days: u64,
}

#[derive(clap::Args)]
pub struct RouterOptions {
    /// Endpoint to listen on, such as tls/0.0.0.0:7447 (may be repeated)
    #[arg(long, value_delimiter = ',')]
    listen: Vec<String>,
    #[command(flatten)]
    security: Security,
    /// End when standard input ends
    #[arg(long, hide = true)]
    leash: bool,
}

/// Makes an authority and certificates.
pub fn certificates(options: CertificateOptions) -> Result<ExitCode> {
    ensure!(
        options.days > 0 && options.days < 36_500,
        "--days is {}; it must be between 1 and 36499",
        options.days
    );
    // A little earlier, for clocks that are not quite right.
    let from = SystemTime::now() - std::time::Duration::from_secs(3600);
    let subjects = subjects(&options)?;
    let written = dibo_net::certificates::make(&options.folder, &subjects, from, options.days)
        .map_err(anyhow::Error::msg)?;
    written.iter().for_each(|file| say!("{}", file.display()));
    say!(
        "Give each host ca.pem and its own two files; keep ca.key here. A test authority is for tests: a \
        deployment brings its own."
    );
    Ok(ExitCode::SUCCESS)
}

/// The hosts, each with its agents.
fn subjects(options: &CertificateOptions) -> Result<Vec<Subject>> {
    let mut subjects: Vec<Subject> = options.hosts.iter().map(|h| Subject::from(h.as_str())).collect();
    for part in &options.agents {
        let wrong =
            || anyhow::anyhow!("--agents {part}: write HOST=AGENT or HOST=FIRST-LAST, such as alpha=0-4");
        let (host, agents) = part.split_once('=').ok_or_else(wrong)?;
        let (from, to) = agents.split_once('-').unwrap_or((agents, agents));
        let number = |text: &str| text.trim().parse::<usize>().ok().ok_or_else(wrong);
        let range = (number(from)?, number(to)?);
        ensure!(range.0 <= range.1, "--agents {part}: the first agent comes before the last");
        match subjects.iter_mut().find(|s| s.host == host) {
            Some(subject) => subject.agents.push(range),
            None => subjects.push(Subject { host: host.into(), agents: vec![range] }),
        }
    }
    if subjects.is_empty() {
        subjects.push("localhost".into());
    }
    Ok(subjects)
}

/// What `dibo launch` says on the leash to a process that shall stop.
const STOP: &str = "stop";
/// And to one that shall keep a checkpoint.
const KEEP: &str = "keep";

/// With `--leash`, ends this process when its standard input does: `dibo launch` holds the other end and is
/// gone, however it died. A wish to stop or to keep a checkpoint comes the same way.
fn leash(wanted: bool) {
    if wanted {
        std::thread::spawn(|| {
            let said = std::io::stdin().lines().map_while(Result::ok);
            said.for_each(|line| match line.as_str() {
                STOP => stop::ask(),
                KEEP => stop::ask_to_keep(),
                _ => (),
            });
            eprintln!("dibo: the process that started this one is gone");
            std::process::exit(1);
        });
    }
}

/// Passes packets on until it is stopped.
pub fn router(options: RouterOptions) -> Result<ExitCode> {
    leash(options.leash);
    let endpoints = Endpoints {
        tls: tls(&options.security)?,
        listen: options.listen,
        role: Role::Router,
        insecure: options.security.insecure,
        network: "run".into(),
        ..Endpoints::default()
    };
    stop::watch()?;
    log::begin(log::Form::Lines);
    let _session = endpoints.open().map_err(anyhow::Error::msg)?;
    say!("router on {}; Ctrl-C ends it", endpoints.listen.join(", "));
    while !stop::asked() {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    Ok(ExitCode::SUCCESS)
}

/// The files for TLS in a folder: those of the named host, or of the only one that it holds.
fn tls(security: &Security) -> Result<Option<Tls>> {
    let Some(folder) = security.certificates.as_deref() else { return Ok(None) };
    if let Some(host) = &security.host {
        return Ok(Some(Tls::in_folder(folder, host)));
    }
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("cannot read the folder {}", folder.display()))?;
    let mut names: Vec<String> = entries
        .filter_map(|e| e.ok()?.file_name().to_str()?.strip_suffix(".key").map(String::from))
        .collect();
    names.retain(|n| n != "ca");
    names.sort();
    match names.as_slice() {
        [name] => Ok(Some(Tls::in_folder(folder, name))),
        [] => bail!(
            "{} holds no certificate with its key; `dibo certificates` makes them for tests",
            folder.display()
        ),
        _ => bail!(
            "{} holds certificates of {}; say with --host which is this host's",
            folder.display(),
            names.join(", ")
        ),
    }
}

impl Common {
    /// The experiment; `apart` in a process that may have nothing but its own agents' data.
    fn load(&self, registry: &Registry, apart: bool) -> Result<Experiment> {
        let mut experiment = registry.load(&self.experiment.request())?;
        for (name, value) in
            [("patience", self.patience), ("wait", self.wait), ("checkpoint", self.checkpoint)]
        {
            ensure!(
                value > 0.0 && value < 1e6,
                "--{name} is {value}; it must be a number of seconds above 0"
            );
        }
        for setting in &experiment.settings {
            let label = &setting.series.label;
            if setting.parameters().mixes() == Mixes::Centrally {
                bail!(
                    "{label} averages all gradients in one place and needs all agents in one process: use \
                    `dibo run`"
                );
            }
            if self.lossy.is_some() && !setting.parameters().wishes().running_sums {
                bail!(
                    "--lossy loses what {label} pushes: use running-sum-fab on links that cannot be asked \
                    again"
                );
            }
        }
        check::before_at(&mut experiment, apart)?;
        Ok(experiment)
    }

    fn out(&self, experiment: &Experiment) -> Result<PathBuf> {
        out_folder(self.out.clone(), experiment)
    }
}

/// The folder of the process with this lowest agent.
fn folder_of(out: &Path, process: usize) -> PathBuf {
    out.join("agents").join(process.to_string())
}

/// Entries of the graphs that are compared before a run, at most.
const COMPARED: usize = 200_000;

/// A digest of the whole, and one of each part by name.
type Agreed = ([u8; 32], Vec<(String, u64)>);

/// What all processes must agree on, and its parts by name: version, format, file, settings with the contents
/// of the files that they name, seeds, graphs with their weights, options, kind of CPU.
fn digest(experiment: &Experiment, common: &Common, show_private: bool) -> Result<Agreed> {
    let mut parts: Vec<(String, blake3::Hash)> = Vec::new();
    let mut part = |name: &str, hash: blake3::Hash| parts.push((name.into(), hash));
    let version = [&[packet::VERSION][..], env!("CARGO_PKG_VERSION").as_bytes()].concat();
    part("the version of dibo", blake3::hash(&version));
    part("the experiment file", blake3::hash(experiment.text.as_bytes()));
    let (mut settings, mut graphs) = (blake3::Hasher::new(), blake3::Hasher::new());
    let mut left = COMPARED;
    for (s, seed) in runner::jobs(experiment) {
        let setting = &experiment.settings[s];
        settings.update(setting.digest(&experiment.folder)?.finalize().as_bytes());
        settings.update(&seed.to_le_bytes());
        let sequence = setting.graphs(seed, &experiment.folder)?;
        let mut mixing = Mixing::<f64>::default();
        for k in 0..sequence.period().unwrap_or(usize::MAX).min(setting.run.iterations) {
            // Some of each, and all of those that come from files, which are few.
            if k >= 30 && left == 0 {
                break;
            }
            sequence.fill(k, &mut mixing);
            mixing.for_each_entry(|receiver, sender, a, b| {
                left = left.saturating_sub(1);
                for number in [receiver as u64, sender as u64, a.to_bits(), b.to_bits()] {
                    graphs.update(&number.to_le_bytes());
                }
            });
        }
    }
    part("settings, seeds or the contents of files", settings.finalize());
    part("graphs or weights", graphs.finalize());
    let options = format!("{:?} {show_private}", common.lossy);
    part("the options --lossy or --show-private", blake3::hash(options.as_bytes()));
    let cpu = "the kind of CPU, on which bits depend (DIBO_CPU=baseline on all machines makes them alike)";
    part(cpu, blake3::hash(dibo::rows::cpu().as_bytes()));
    let mut all = blake3::Hasher::new();
    for (_, hash) in &parts {
        all.update(hash.as_bytes());
    }
    let short =
        |hash: &blake3::Hash| u64::from_le_bytes(hash.as_bytes()[..8].try_into().expect("eight bytes"));
    Ok((*all.finalize().as_bytes(), parts.iter().map(|(name, hash)| (name.clone(), short(hash))).collect()))
}

/// Endpoints from a file, as (listen, connect).
fn read_endpoints(file: &Path) -> Result<(Vec<String>, Vec<String>)> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let (mut listen, mut connect) = (Vec::new(), Vec::new());
    for (nth, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            [] => {}
            ["listen", endpoint] => listen.push(endpoint.to_string()),
            ["connect", endpoint] => connect.push(endpoint.to_string()),
            _ => bail!(
                "{}:{}: '{line}' must be listen or connect, and an endpoint such as tls/alpha:7447",
                file.display(),
                nth + 1
            ),
        }
    }
    Ok((listen, connect))
}

/// "3,7" or "0-4" as a list in order.
fn own(text: &str) -> Result<Vec<usize>> {
    let wrong = || anyhow::anyhow!("--own {text}: write agents as 3,7 or 0-4");
    let mut list = Vec::new();
    for part in text.split(',') {
        let number = |t: &str| t.trim().parse::<usize>().ok().filter(|i| *i < 1_000_000).ok_or_else(wrong);
        match part.split_once('-') {
            Some((from, to)) => list.extend(number(from)?..=number(to)?),
            None => list.push(number(part)?),
        }
    }
    list.sort_unstable();
    if list.windows(2).any(|w| w[0] == w[1]) || list.is_empty() {
        return Err(wrong());
    }
    Ok(list)
}
