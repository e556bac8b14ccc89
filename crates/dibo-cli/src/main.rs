//! The `dibo` command.
mod bench;
mod check;
mod claims;
mod data;
mod experiment;
#[cfg(feature = "net")]
mod net;
#[cfg(not(feature = "net"))]
#[path = "no_net.rs"]
mod net;
mod pictures;
mod report;
mod results;
mod runner;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use experiment::Experiment;
use results::{Curves, Manifest};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;

/// Distributed bilevel optimisation over directed networks that change at every step.
#[derive(Parser)]
#[command(version, about, after_help = "With no command, dibo runs the quick start.")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run an experiment: a TOML file or a name from `dibo list`
    Run {
        /// Path of a TOML file, or the name of a built-in experiment
        experiment: String,
        #[command(flatten)]
        options: RunOptions,
    },
    /// List the built-in experiments and the algorithms
    List,
    /// Say what can be expected of an experiment before it runs: graph, smallest weights, step sizes
    Check {
        /// Path of a TOML file, or the name of a built-in experiment
        experiment: String,
        /// Change a value of the file: key=value, such as problem.omega=1
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<String>,
    },
    /// Make the plots and the report of a results folder again
    Report {
        /// A folder that `dibo run` made
        folder: PathBuf,
    },
    /// Print exact iterates of a small explicit problem, to cross-check another program
    Trace {
        /// A JSON file with problem, graphs, starts and settings
        input: PathBuf,
    },
    /// List the data sets, or get one: `dibo data get mnist`
    Data {
        #[command(subcommand)]
        action: Option<DataAction>,
        /// Folder of the data sets [default: DIBO_DATA, else the platform's data folder]
        #[arg(long)]
        data: Option<PathBuf>,
    },
    /// Run some agents of an experiment in this process, with the others elsewhere on the network
    Agent(net::AgentOptions),
    /// Run all agents of an experiment as processes on this machine, connected like machines
    Launch(net::LaunchOptions),
    /// Make the report of a run from the folders of its processes
    Gather(net::GatherOptions),
    /// Make a test authority and certificates for the hosts of a network
    Certificates(net::CertificateOptions),
    /// Pass packets on between agents that cannot reach each other
    Router(net::RouterOptions),
    /// Measure iterations a second, and the ratio to other programs if they are given
    Bench(bench::Options),
}

#[derive(Subcommand)]
enum DataAction {
    /// Download a data set and check its digests
    Get {
        /// mnist or fashion-mnist
        name: String,
    },
}

#[derive(clap::Args)]
struct RunOptions {
    /// Change a value of the file: key=value, such as run.iterations=100 (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// How many seeds to run (0, 1, …) instead of what the file says
    #[arg(long)]
    seeds: Option<u64>,
    /// Folder for the results [default: results/NAME]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Threads to use [default: all cores]
    #[arg(long)]
    threads: Option<usize>,
    /// Folder of the data sets [default: DIBO_DATA, else the platform's data folder]
    #[arg(long)]
    data: Option<PathBuf>,
    /// Show no progress bar
    #[arg(long)]
    quiet: bool,
    /// Do everything anew instead of going on where an earlier run stopped
    #[arg(long)]
    fresh: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match act(cli.command) {
        Ok(code) => code,
        Err(e) => {
            // One line that says what, where and what would be right.
            eprintln!("dibo: {}", format!("{e:#}").replace('\n', " "));
            ExitCode::from(2)
        }
    }
}

fn act(command: Option<Command>) -> Result<ExitCode> {
    match command {
        None => {
            println!("dibo {}: the quick start. `dibo --help` shows all commands.\n", env!("CARGO_PKG_VERSION"));
            run("quickstart", RunOptions { set: Vec::new(), seeds: None, out: None, threads: None, data: None, quiet: false, fresh: true })
        }
        Some(Command::Run { experiment, options }) => run(&experiment, options),
        Some(Command::List) => {
            list()?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Check { experiment, set }) => {
            let experiment = experiment::load(&experiment, &set)?;
            print!("{}", check::explain(&experiment)?);
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Report { folder }) => {
            let manifest = Manifest::read(&folder)?;
            let curves = Curves::read_csv(&folder.join("curves.csv"))?;
            finish(&folder, &manifest, &curves)?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Trace { input }) => {
            let text = std::fs::read_to_string(&input).with_context(|| format!("cannot read {}", input.display()))?;
            let iterates = dibo::trace::trace(&text).map_err(|e| anyhow::anyhow!("{}: {e}", input.display()))?;
            println!("{iterates:#}");
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Data { action, data }) => {
            data::set_folder(data);
            match action {
                None => print!("{}", data::list()),
                Some(DataAction::Get { name }) => data::get(&name)?,
            }
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Agent(options)) => net::agent(options),
        Some(Command::Launch(options)) => net::launch(options),
        Some(Command::Gather(options)) => net::gather(options),
        Some(Command::Certificates(options)) => net::certificates(options),
        Some(Command::Router(options)) => net::router(options),
        Some(Command::Bench(options)) => {
            bench::run(&options)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn list() -> Result<()> {
    println!("Experiments (dibo run NAME):");
    for (name, _) in experiment::BUILT_IN {
        let e = experiment::load(name, &[])?;
        println!("  {name:<22} {}", e.title);
    }
    println!("\nAlgorithms (name = \"…\" in an [[algorithm]]):");
    for (name, label) in dibo::algorithm::NAMES {
        println!("  {name:<22} {label}");
    }
    Ok(())
}

fn run(name: &str, options: RunOptions) -> Result<ExitCode> {
    data::set_folder(options.data);
    let mut experiment = experiment::load(name, &options.set)?;
    if let Some(seeds) = options.seeds {
        anyhow::ensure!(seeds > 0, "--seeds is 0; at least one seed is needed");
        experiment.seeds = (0..seeds).collect();
    }
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let threads = options.threads.unwrap_or(cores);
    anyhow::ensure!(threads > 0 && threads <= 1024, "--threads is {threads}; it must be between 1 and 1024");
    let out = options.out.unwrap_or_else(|| Path::new("results").join(&experiment.name));
    if options.fresh && out.join("runs").is_dir() {
        std::fs::remove_dir_all(out.join("runs")).with_context(|| format!("cannot clear {}", out.display()))?;
    }
    check::before(&mut experiment)?;
    watch_for_stop()?;
    println!("{}: {}", experiment.name, experiment.title);
    for warning in warnings(&experiment) {
        println!("  warning: {warning}");
    }
    let (manifest, curves) =
        runner::run(&experiment, &runner::Options { out: out.clone(), overrides: options.set, threads, quiet: options.quiet })?;
    keep(&experiment, &out, &manifest, &curves)?;
    if runner::STOP.load(Relaxed) {
        println!("stopped early; the same command goes on from here");
        return Ok(ExitCode::from(130));
    }
    Ok(ExitCode::SUCCESS)
}

/// The first Ctrl-C stops the runs with what they have, the second leaves.
fn watch_for_stop() -> Result<()> {
    ctrlc::set_handler(|| {
        if runner::STOP.swap(true, Relaxed) {
            std::process::exit(130);
        }
        eprintln!("\nstopping: what is done is kept (Ctrl-C again to leave at once)");
    })
    .context("cannot watch for Ctrl-C")
}

/// Each warning once, with the series it belongs to.
fn warnings(experiment: &Experiment) -> Vec<String> {
    experiment.settings.iter().flat_map(|s| s.series.warnings.iter().map(|w| format!("{}: {w}", s.series.label))).collect()
}

/// Writes the results and the report.
fn keep(experiment: &Experiment, out: &Path, manifest: &Manifest, curves: &Curves) -> Result<()> {
    manifest.write(out)?;
    curves.write_csv(&out.join("curves.csv"))?;
    curves.write_parquet(&out.join("curves.parquet"))?;
    check::pictures(experiment, out)?;
    finish(out, manifest, curves)
}

fn finish(out: &Path, manifest: &Manifest, curves: &Curves) -> Result<()> {
    let judged = claims::judge(manifest, curves);
    let mut extras = claims::extras(manifest, curves);
    extras.extend(pictures::kept(out, manifest).into_iter().map(|(title, svg)| report::Extra { title, body: report::Body::Svg(svg) }));
    let page = report::write(out, manifest, curves, &judged, &extras)?;
    println!("\n{}", report::terminal_table(manifest));
    if !judged.is_empty() {
        println!("{}", claims::terminal(&judged));
    }
    println!("{:.1} s; report: {}", manifest.seconds, page.display());
    Ok(())
}
