//! The `dibo` command.
mod bench;
mod check;
mod data;
mod device;
#[cfg(any(test, feature = "download"))]
mod download;
mod experiment;
mod memory;
#[cfg(feature = "net")]
mod net;
#[cfg(not(feature = "net"))]
#[path = "no_net.rs"]
mod net;
mod pictures;
mod runner;
#[cfg(feature = "bert")]
mod text;
mod tune;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use dibo_paper::claims;
use dibo_report::{report, results};
use experiment::Experiment;
use results::{Curves, Manifest};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

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
    /// Find steps (and FAB's penalty) for an experiment, and write the best setting as a file that `dibo run`
    /// takes
    Tune(tune::Options),
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
        #[arg(long, global = true)]
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
    /// Where to compute
    #[arg(long, value_enum, default_value_t)]
    device: device::Device,
    /// How a GPU computes matrix products
    #[arg(long, value_enum, default_value_t)]
    precision: device::Precision,
    /// Show no progress bar
    #[arg(long)]
    quiet: bool,
    /// Do everything anew instead of going on where an earlier run stopped
    #[arg(long)]
    fresh: bool,
    /// Record more along the runs: `theory` for the proof's errors, distances, Lyapunov function and
    /// invariants
    #[arg(long, value_name = "WHAT", value_parser = ["theory"])]
    watch: Option<String>,
}

fn main() -> ExitCode {
    // Whoever stops reading (`dibo list | head`) ends the program quietly, as with other commands, instead of
    // making it panic.
    #[cfg(unix)]
    // SAFETY: nothing else has touched signals yet.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(asked) if !asked.use_stderr() => asked.exit(),
        Err(wrong) => {
            let text = wrong.to_string();
            let what = text.split("\n\nUsage").next().unwrap_or(&text).trim_start_matches("error: ");
            eprintln!(
                "dibo: {}; `dibo --help` shows what there is",
                what.split_whitespace().collect::<Vec<_>>().join(" ")
            );
            return ExitCode::from(2);
        }
    };
    match act(command) {
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
            println!(
                "dibo {}: the quick start. `dibo --help` shows all commands.\n",
                env!("CARGO_PKG_VERSION")
            );
            let options = RunOptions {
                set: Vec::new(),
                seeds: None,
                out: None,
                threads: None,
                data: None,
                device: device::Device::Cpu,
                precision: device::Precision::Tf32,
                quiet: false,
                fresh: true,
                watch: None,
            };
            run("quickstart", options)
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
        Some(Command::Tune(options)) => tune::run(options),
        Some(Command::Report { folder }) => {
            let manifest = Manifest::read(&folder)?;
            let curves = Curves::read_csv(&folder.join("curves.csv"))?;
            finish(&folder, &manifest, &curves)?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Trace { input }) => {
            let text = std::fs::read_to_string(&input)
                .with_context(|| format!("cannot read {}", input.display()))?;
            let iterates =
                dibo::trace::trace(&text).map_err(|e| anyhow::anyhow!("{}: {e}", input.display()))?;
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
    let engine = match options.device {
        device::Device::Cpu => None,
        device::Device::Cuda => Some(device::Engine::new(options.precision)?),
    };
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
        std::fs::remove_dir_all(out.join("runs"))
            .with_context(|| format!("cannot clear {}", out.display()))?;
    }
    check::before(&mut experiment)?;
    if options.watch.is_some() {
        experiment.watch = true;
        experiment.figures.extend(watched_figures());
    }
    runner::watch_for_stop()?;
    println!("{}: {}", experiment.name, experiment.title);
    for warning in warnings(&experiment) {
        println!("  warning: {warning}");
    }
    let (manifest, curves) = runner::run(
        &experiment,
        &runner::Options { out: out.clone(), overrides: options.set, threads, engine, quiet: options.quiet },
    )?;
    keep(&experiment, &out, &manifest, &curves)?;
    for run in manifest.runs.iter().filter(|r| r.outcome == "broken") {
        println!(
            "{}, seed {}: stopped, {}",
            manifest.series[run.series].label,
            run.seed,
            run.reason.as_deref().unwrap_or("an invariant is broken")
        );
    }
    if runner::STOP.load(Relaxed) {
        println!("stopped early; the same command goes on from here");
        return Ok(ExitCode::from(130));
    }
    Ok(ExitCode::SUCCESS)
}

/// The plots of what `--watch theory` records.
fn watched_figures() -> Vec<results::Figure> {
    let about = [
        ("V_D", "Consensus error V_D: distance of the agents from their α-weighted averages"),
        ("V_S", "Tracking error V_S: distance of the trackers from the sum of directions"),
        ("y_gap", "Distance of ŷ from y_λ*(x̂)"),
        ("z_gap", "Distance of ẑ from y*(x̂)"),
        ("lyapunov", "Lyapunov function Φ; inside the proved conditions it falls at every step"),
        ("penalty_bias", "The penalty's bias: distance between ∇L_λ* and ∇F* at x̂"),
    ];
    let figure = |(name, title): (&str, &str)| results::Figure {
        title: title.into(),
        name: format!("theory-{}", name.to_lowercase().replace('_', "-")),
        ..results::Figure::line(name, "y")
    };
    about.map(figure).into()
}

/// Each warning once, with the series it belongs to.
fn warnings(experiment: &Experiment) -> Vec<String> {
    experiment
        .settings
        .iter()
        .flat_map(|s| s.series.warnings.iter().map(|w| format!("{}: {w}", s.series.label)))
        .collect()
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
    extras.extend(report::memory::extra(manifest));
    extras.extend(
        pictures::kept(out, manifest)
            .into_iter()
            .map(|(title, svg)| report::Extra { title, body: report::Body::Svg(svg) }),
    );
    let page = report::write(out, manifest, curves, &judged, &extras)?;
    println!("\n{}", report::terminal_table(manifest));
    if !judged.is_empty() {
        println!("{}", claims::terminal(&judged));
    }
    println!("{:.1} s; report: {}", manifest.seconds, page.display());
    Ok(())
}
