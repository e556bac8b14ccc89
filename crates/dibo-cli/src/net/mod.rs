//! Agents as processes: `dibo agent` runs some of them, `dibo launch` all of them on this machine.
mod agent;
mod gather;
mod launch;

use crate::experiment::spec::Problem;
use crate::experiment::{self, Experiment, Setting};
use crate::runner;
use anyhow::{Context, Result, bail, ensure};
use dibo::algorithm::Algorithm;
use dibo::mixing::Mixing;
use dibo::problem::Bilevel;
use dibo::rows::{Real, Threads, View};
use dibo_net::packet;
use dibo_net::transport::Faults;
use dibo_net::wire::{Endpoints, Role, Tls};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

pub use agent::agent;
pub use gather::{GatherOptions, gather};
pub use launch::{LaunchOptions, launch};

/// What all processes of a run must be told alike.
#[derive(clap::Args, Clone)]
pub struct Common {
    /// Path of a TOML file, or the name of a built-in experiment
    experiment: String,
    /// Change a value of the file: key=value, the same for all processes (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// How many seeds to run (0, 1, …) instead of what the file says
    #[arg(long)]
    seeds: Option<u64>,
    /// Folder for results and checkpoints [default: results/NAME]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Folder of the data sets [default: DIBO_DATA, else the platform's data folder]
    #[arg(long)]
    data: Option<PathBuf>,
    /// Seconds without any sign of an agent after which the others stop
    #[arg(long, default_value_t = 60.0)]
    patience: f64,
    /// Seconds between checkpoints
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
    /// Endpoint to listen on, such as tls/0.0.0.0:7447 (may be repeated)
    #[arg(long, value_delimiter = ',')]
    listen: Vec<String>,
    /// Endpoints of the other processes, or of a router with --client
    #[arg(long, value_delimiter = ',')]
    connect: Vec<String>,
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
    /// Print progress in a form for programs
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
    /// Names or addresses of the hosts, as the others will call them
    #[arg(long, value_delimiter = ',', default_value = "localhost")]
    hosts: Vec<String>,
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
    let written = dibo_net::certificates::make(&options.folder, &options.hosts, from, options.days)
        .map_err(anyhow::Error::msg)?;
    written.iter().for_each(|file| println!("{}", file.display()));
    println!(
        "Give each host ca.pem and its own two files; keep ca.key here. A test authority is for tests: a \
        deployment brings its own."
    );
    Ok(ExitCode::SUCCESS)
}

/// With `--leash`, ends this process when its standard input does: `dibo launch` holds the other end and is
/// gone, however it died.
fn leash(wanted: bool) {
    if wanted {
        std::thread::spawn(|| {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            eprintln!("dibo: the process that started this one is gone");
            std::process::exit(1);
        });
    }
}

/// For processes that talk to others: one that goes away is an error to live with, not the end of this one.
/// (TLS writes in a way that raises SIGPIPE.)
fn outlive_others() {
    #[cfg(unix)]
    // SAFETY: only says what a signal does, before there are other threads.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
}

/// A line on standard output, if anybody still reads it.
fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Passes packets on until it is stopped.
pub fn router(options: RouterOptions) -> Result<ExitCode> {
    outlive_others();
    leash(options.leash);
    let endpoints = Endpoints {
        tls: tls(&options.security)?,
        listen: options.listen,
        role: Role::Router,
        insecure: options.security.insecure,
        network: "run".into(),
        ..Endpoints::default()
    };
    crate::runner::watch_for_stop()?;
    let _session = endpoints.open().map_err(anyhow::Error::msg)?;
    say(format_args!("router on {}; Ctrl-C ends it", endpoints.listen.join(", ")));
    while !runner::STOP.load(std::sync::atomic::Ordering::Relaxed) {
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
    fn load(&self) -> Result<Experiment> {
        crate::data::set_folder(self.data.clone());
        let mut experiment = experiment::load(&self.experiment, &self.set)?;
        if let Some(seeds) = self.seeds {
            ensure!(seeds > 0, "--seeds is 0; at least one seed is needed");
            experiment.seeds = (0..seeds).collect();
        }
        for (name, value) in [("patience", self.patience), ("checkpoint", self.checkpoint)] {
            ensure!(
                value > 0.0 && value < 1e6,
                "--{name} is {value}; it must be a number of seconds above 0"
            );
        }
        for setting in &experiment.settings {
            let label = &setting.series.label;
            if setting.series.algorithm == "centralized-fab" {
                bail!(
                    "{label} averages all gradients in one place and needs all agents in one process: use \
                    `dibo run`"
                );
            }
            if self.lossy.is_some() && !setting.algorithm.running_sums() {
                bail!(
                    "--lossy loses what {label} pushes: use running-sum-fab on links that cannot be asked \
                    again"
                );
            }
        }
        crate::check::before(&mut experiment)?;
        Ok(experiment)
    }

    fn out(&self, experiment: &Experiment) -> PathBuf {
        self.out.clone().unwrap_or_else(|| Path::new("results").join(&experiment.name))
    }
}

/// The folder of the process with this lowest agent.
fn folder_of(out: &Path, process: usize) -> PathBuf {
    out.join("agents").join(process.to_string())
}

/// What all processes must agree on: version, format, settings, seeds, and the first graphs with their
/// weights.
fn digest(experiment: &Experiment) -> Result<[u8; 32]> {
    let mut hash = blake3::Hasher::new();
    hash.update(&[packet::VERSION]).update(experiment.text.as_bytes());
    for (s, seed) in runner::jobs(experiment) {
        let setting = &experiment.settings[s];
        hash.update(&runner::digest(experiment, setting, seed, None));
        let agents = setting.agents(seed, &experiment.folder)?;
        let graphs = setting.graphs(agents, seed, &experiment.folder)?;
        let mut mixing = Mixing::<f64>::default();
        for k in 0..graphs.period().unwrap_or(30).min(30) {
            graphs.fill(k, &mut mixing);
            for (sender, receiver) in mixing.graph.edges() {
                hash.update(&(sender as u64).to_le_bytes()).update(&(receiver as u64).to_le_bytes());
                hash.update(&mixing.a(receiver, sender).to_le_bytes())
                    .update(&mixing.b(receiver, sender).to_le_bytes());
            }
        }
    }
    Ok(*hash.finalize().as_bytes())
}

/// Rows at the end of a run: variable, agent, bytes.
type EndRows = Vec<(String, usize, Vec<u8>)>;

fn end_rows<T: Real>(owned: &[usize], views: &[View<'_, T>]) -> EndRows {
    let bytes = |v: &View<'_, T>, row: usize| {
        let mut bytes = Vec::new();
        T::to_bytes(v.row(row), &mut bytes);
        bytes
    };
    views
        .iter()
        .flat_map(|v| {
            owned.iter().enumerate().map(|(row, agent)| (v.name.to_string(), *agent, bytes(v, row)))
        })
        .collect()
}

/// Something to do with a problem of either kind of numbers.
trait Visit {
    type Out;
    fn visit<T: Real>(self, algorithm: &dyn Algorithm<T>, problem: &dyn Bilevel<T>) -> Result<Self::Out>;
}

fn visit<V: Visit>(
    setting: &Setting,
    seed: u64,
    folder: &Path,
    threads: &Threads,
    visitor: V,
) -> Result<V::Out> {
    match &setting.problem(seed, folder, threads)? {
        Problem::PolicyEvaluation(p) => visitor.visit(&*setting.algorithm, &**p),
        Problem::Quadratic(p) => visitor.visit(&*setting.algorithm, &**p),
        Problem::Robust(p) => visitor.visit(&*setting.algorithm, &**p),
        Problem::Learning64(p) => visitor.visit(&*setting.algorithm, &**p),
        Problem::Learning32(p) => visitor.visit(&*setting.algorithm32, &**p),
    }
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
