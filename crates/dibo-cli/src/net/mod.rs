//! Agents as processes: `dibo agent` runs some of them, `dibo launch` all of them on this machine.
mod agent;
mod gather;
mod launch;

use crate::run::out_folder;
use anyhow::{Context, Result, bail, ensure};
use dibo::algorithm::Mixes;
use dibo::mixing::Mixing;
use dibo::rows::{Real, View};
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

/// What all processes of a run must be told alike.
#[derive(clap::Args, Clone)]
pub struct Common {
    #[command(flatten)]
    experiment: crate::ExperimentOptions,
    /// Folder for results and checkpoints [default: results/NAME]
    #[arg(long)]
    out: Option<PathBuf>,
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
    written.iter().for_each(|file| say!("{}", file.display()));
    say!(
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
        for (name, value) in [("patience", self.patience), ("checkpoint", self.checkpoint)] {
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

/// What all processes must agree on: version, format, settings with the files that they name, seeds, and the
/// first graphs with their weights. The width of the CPU's registers may differ.
fn digest(experiment: &Experiment) -> Result<[u8; 32]> {
    let mut hash = blake3::Hasher::new();
    hash.update(&[packet::VERSION]).update(experiment.text.as_bytes());
    for (s, seed) in runner::jobs(experiment) {
        let setting = &experiment.settings[s];
        hash.update(setting.digest(&experiment.folder)?.finalize().as_bytes()).update(&seed.to_le_bytes());
        let graphs = setting.graphs(seed, &experiment.folder)?;
        let mut mixing = Mixing::<f64>::default();
        for k in 0..graphs.period().unwrap_or(30).min(30) {
            graphs.fill(k, &mut mixing);
            mixing.for_each_entry(|receiver, sender, a, b| {
                for number in [receiver as u64, sender as u64, a.to_bits(), b.to_bits()] {
                    hash.update(&number.to_le_bytes());
                }
            });
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
