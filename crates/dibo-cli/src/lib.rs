//! The `dibo` command as a library: whoever brings a registry with problems or algorithms of its own gets
//! every subcommand for them.
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     dibo_cli::main(dibo_cli::standard())
//! }
//! ```
//!
//! `examples/own_command.rs` is such a command with a problem of its own.
mod bench;
#[cfg(doctest)]
mod book;
mod clean;
mod keys;
mod list;
mod live;
#[cfg(feature = "net")]
mod net;
#[cfg(not(feature = "net"))]
#[path = "no_net.rs"]
mod net;
mod new;
mod paper;
mod peer;
mod predict;
mod report;
mod run;
mod shell;
mod tune;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use dibo_run::{Registry, Request, check, data, fold, origin, say, unsaid};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// What comes with dibo: its problems, algorithms and graphs, the paper's experiments and claims.
pub fn standard() -> Registry {
    Registry::new().experiments(dibo_paper::EXPERIMENTS).judges(dibo_paper::claims::JUDGES)
}

/// Distributed bilevel optimisation over directed networks that change at every step.
#[derive(Parser)]
#[command(version, about, after_help = "With no command, the first experiment of `list` runs.")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run an experiment: a TOML file or a name from `list`
    Run(run::Options),
    /// Find wrong labels in your own files, one a site, with few checked rows: a list, a model and a report
    Clean(Box<clean::Options>),
    /// Tell the classes of a file's rows by a model that `clean` or `run` left
    Predict(predict::Options),
    /// List the built-in experiments with what they need, problems, graphs and algorithms
    List(list::Options),
    /// Write an experiment file with every key explained; asks a few questions if nothing is chosen
    New(new::Options),
    /// Explain the keys of experiment files: all, or those of a section, kind or algorithm
    Keys(keys::Options),
    /// Say what can be expected of an experiment before it runs: graph, steps, time, memory, and a short
    /// trial
    Check {
        #[command(flatten)]
        experiment: ExperimentOptions,
        /// Seconds for the trials of all settings together
        #[arg(long, default_value_t = 20.0)]
        seconds: f64,
    },
    /// Find steps (and FAB's penalty) for an experiment, and write the best setting as a file that `run`
    /// takes
    Tune(tune::Options),
    /// Check a results folder's checksums and make its plots and report again; or compare several folders
    Report(report::Options),
    /// Make the page about the paper from the results that are kept in the repository
    Paper(paper::Options),
    /// Print exact iterates of a small explicit problem, to cross-check another program
    Trace {
        /// A JSON file with problem, graphs, starts and settings
        input: PathBuf,
    },
    /// List the data sets, or get one: `data get mnist`
    Data {
        #[command(subcommand)]
        action: Option<DataAction>,
        /// Folder of the data sets [default: DIBO_DATA, else the platform's data folder]
        #[arg(long, global = true)]
        data: Option<PathBuf>,
    },
    /// Run some agents of an experiment in this process, with the others elsewhere on the network
    Agent(Box<net::AgentOptions>),
    /// Run all agents of an experiment as processes on this machine, connected like machines
    Launch(Box<net::LaunchOptions>),
    /// Make the report of a run from the folders of its processes
    Gather(net::GatherOptions),
    /// Show every process of a run: its agents, round, last contact, bytes, and who waits for whom
    Status(net::StatusOptions),
    /// Make a test authority and certificates for the hosts of a network
    Certificates(net::CertificateOptions),
    /// Pass packets on between agents that cannot reach each other
    Router(net::RouterOptions),
    /// Measure iterations a second, and the ratio to other programs if they are given
    Bench(bench::Options),
    /// Print what a shell needs to complete words: `dibo completions bash >> ~/.bash_completion`
    Completions {
        /// bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write one a subcommand into a folder
    Man {
        /// Where pages go
        folder: Option<PathBuf>,
    },
}

/// Which experiment, and what is changed of it.
#[derive(clap::Args, Clone)]
struct ExperimentOptions {
    /// Path of a TOML file, or the name of a built-in experiment
    experiment: String,
    /// Change a value of the file: key=value, such as run.iterations=100 (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// How many seeds to run (0, 1, …) instead of what the file says
    #[arg(long)]
    seeds: Option<u64>,
    /// Folder of the data sets [default: DIBO_DATA, else the platform's data folder]
    #[arg(long)]
    data: Option<PathBuf>,
    /// Allow sweeps of more than 2,000 settings
    #[arg(long)]
    yes: bool,
}

impl ExperimentOptions {
    fn request(&self) -> Request {
        data::set_folder(self.data.clone());
        Request { file: self.experiment.clone(), set: self.set.clone(), seeds: self.seeds, large: self.yes }
    }
}

#[derive(Subcommand)]
enum DataAction {
    /// Download a data set and check its digests
    Get {
        /// mnist or fashion-mnist
        name: String,
    },
}

/// The command with these arguments, its name first, for programs that call it: what is wrong comes back, and
/// what is asked for (`--help`) is said.
pub fn command(registry: &Registry, arguments: impl IntoIterator<Item = OsString>) -> Result<ExitCode> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    from("dibo", arguments.iter().skip(1).cloned());
    match Cli::try_parse_from(arguments) {
        Ok(cli) => act(registry, "dibo", cli.command),
        Err(asked) if !asked.use_stderr() => {
            say!("{asked}");
            Ok(ExitCode::SUCCESS)
        }
        Err(wrong) => Err(anyhow::Error::msg(in_a_line(&wrong))),
    }
}

/// Notes for results what they come from.
fn from(name: &str, arguments: impl Iterator<Item = OsString>) {
    let arguments = arguments.map(|word| word.to_string_lossy().into_owned());
    origin::set_command(std::iter::once(name.to_string()).chain(arguments));
    if let Some(commit) = option_env!("DIBO_COMMIT") {
        origin::set_commit(commit);
    }
}

/// What is wrong with the arguments.
fn in_a_line(wrong: &clap::Error) -> String {
    let text = wrong.to_string();
    let what = text.split("\n\nUsage").next().unwrap_or(&text).trim_start_matches("error: ");
    what.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The whole command.
pub fn main(registry: Registry) -> ExitCode {
    let name = std::env::args_os().next().map(PathBuf::from);
    let name =
        name.and_then(|p| Some(p.file_stem()?.to_string_lossy().into_owned())).unwrap_or("dibo".into());
    from(&name, std::env::args_os().skip(1));
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(asked) if !asked.use_stderr() => {
            say!("{asked}");
            return ending(&name, Ok(ExitCode::SUCCESS));
        }
        Err(wrong) => {
            eprintln!("{name}: {}; `{name} --help` shows what there is", in_a_line(&wrong));
            return ExitCode::from(2);
        }
    };
    let result = act(&registry, &name, command);
    ending(&name, result)
}

/// One line that says what, where and what would be right.
fn ending(name: &str, result: Result<ExitCode>) -> ExitCode {
    match (result, unsaid()) {
        (Err(e), _) => {
            eprintln!("{name}: {}", format!("{e:#}").replace('\n', " "));
            ExitCode::from(2)
        }
        // Whoever stops reading (`dibo list | head`) has what it wanted.
        (Ok(code), Some(e)) if e.kind() == std::io::ErrorKind::BrokenPipe => code,
        (Ok(_), Some(e)) => {
            eprintln!("{name}: cannot write to standard output: {e}");
            ExitCode::from(2)
        }
        (Ok(code), None) => code,
    }
}

fn act(registry: &Registry, name: &str, command: Option<Command>) -> Result<ExitCode> {
    match command {
        None => run::first(registry, name),
        Some(Command::Run(options)) => run::run(registry, options),
        Some(Command::Clean(options)) => clean::clean(registry, *options),
        Some(Command::Predict(options)) => predict::predict(options),
        Some(Command::List(options)) => list::list(registry, options).map(|()| ExitCode::SUCCESS),
        Some(Command::New(options)) => new::new(registry, options).map(|()| ExitCode::SUCCESS),
        Some(Command::Completions { shell }) => shell::completions(name, shell).map(|()| ExitCode::SUCCESS),
        Some(Command::Man { folder }) => shell::man(folder).map(|()| ExitCode::SUCCESS),
        Some(Command::Keys(options)) => keys::keys(registry, &options),
        Some(Command::Check { experiment, seconds }) => {
            anyhow::ensure!((0.0..=1e6).contains(&seconds), "--seconds is {seconds}; it must be 0 or more");
            let experiment = registry.load(&experiment.request())?;
            let (text, good) = check::explain(&experiment, cores(), Duration::from_secs_f64(seconds))?;
            say!("{}", fold(text.trim_end()));
            Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(2) })
        }
        Some(Command::Tune(options)) => tune::tune(registry, options),
        Some(Command::Report(options)) => report::report(registry, &options),
        Some(Command::Paper(options)) => paper::paper(&options),
        Some(Command::Trace { input }) => {
            let fail = || format!("cannot read {}", input.display());
            let text = std::fs::read_to_string(&input).with_context(fail)?;
            let iterates =
                dibo::trace::trace(&text).map_err(|e| anyhow::anyhow!("{}: {e}", input.display()))?;
            say!("{iterates:#}");
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Data { action, data }) => {
            data::set_folder(data);
            match action {
                None => say!("{}", fold(data::list().trim_end())),
                Some(DataAction::Get { name }) => say!("{}", data::get(&name)?),
            }
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Agent(options)) => net::agent(registry, *options),
        Some(Command::Launch(options)) => net::launch(registry, *options),
        Some(Command::Gather(options)) => net::gather(registry, options),
        Some(Command::Status(options)) => net::status(registry, options),
        Some(Command::Certificates(options)) => net::certificates(options),
        Some(Command::Router(options)) => net::router(options),
        Some(Command::Bench(options)) => {
            bench::run(registry, &options)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// All cores.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// The number of threads that was asked for.
fn threads(asked: Option<usize>) -> Result<usize> {
    let threads = asked.unwrap_or_else(cores);
    anyhow::ensure!(threads > 0 && threads <= 1024, "--threads is {threads}; it must be between 1 and 1024");
    Ok(threads)
}

/// What is said of a command that was stopped: with `--fresh` it would begin anew.
fn stopped(fresh: bool) -> String {
    let without = if fresh { " without --fresh" } else { "" };
    format!("stopped early; the same command{without} goes on from here")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_command_that_would_begin_anew_does_not_promise_to_go_on() {
        assert!(super::stopped(true).contains("the same command without --fresh goes on"));
        assert!(super::stopped(false).contains("the same command goes on"));
    }
}
