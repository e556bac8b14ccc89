//! `tune`: the options of the command; the work is done in `dibo_run::tune`.
use crate::{ExperimentOptions, stopped, threads};
use anyhow::Result;
use dibo_run::{Registry, say, tune};
use std::path::PathBuf;
use std::process::ExitCode;

/// What a user can choose.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    experiment: ExperimentOptions,
    /// Which algorithm of the file to tune [default: the first]
    #[arg(long, value_name = "NAME")]
    algorithm: Option<String>,
    /// In which named case of the file [default: the first that the algorithm names]
    #[arg(long, value_name = "NAME")]
    case: Option<String>,
    /// What is to become better; where [run] has a target, its iterations count first [default: the file's
    /// metric, else the problem's first]
    #[arg(long)]
    metric: Option<String>,
    /// Folder for the results [default: results/NAME-tune]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Threads to use [default: all cores]
    #[arg(long)]
    threads: Option<usize>,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
    /// Forget what an earlier call found
    #[arg(long)]
    fresh: bool,
    /// Run every setting to the end instead of halving: the plain grid, to compare with
    #[arg(long)]
    full: bool,
}

/// Tunes and writes what was found. `--seeds` are those of the settings that come to the end.
pub fn tune(registry: &Registry, options: Options) -> Result<ExitCode> {
    let mut request = options.experiment.request();
    let seeds = request.seeds.take().unwrap_or(3);
    let done = tune::tune(
        registry,
        &tune::Options {
            request,
            algorithm: options.algorithm,
            case: options.case,
            metric: options.metric,
            seeds,
            out: options.out,
            threads: threads(options.threads)?,
            quiet: options.quiet,
            fresh: options.fresh,
            full: options.full,
        },
    )?;
    if done {
        return Ok(ExitCode::SUCCESS);
    }
    say!("{}", stopped(options.fresh));
    Ok(ExitCode::from(130))
}
