//! `run`: an experiment with all its settings and seeds, its results and its report.
use crate::live::{Graphs, watched};
use crate::{ExperimentOptions, peer, stopped, threads};
use anyhow::Result;
use dibo_report::judge;
use dibo_report::report::{self, Body, Extra};
use dibo_report::results::{Curves, Figure, Folder, Manifest};
use dibo_run::device::{Accelerator, Device, Precision};
use dibo_run::runner::{self, identity};
use dibo_run::{Experiment, Registry, check, fold, pictures, say, stop, taken};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// What a user can choose about a run.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    experiment: ExperimentOptions,
    /// Folder for the results [default: results/NAME]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Threads to use [default: all cores]
    #[arg(long)]
    threads: Option<usize>,
    #[command(flatten)]
    on: On,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
    /// Do everything anew instead of going on where an earlier run stopped
    #[arg(long)]
    fresh: bool,
    /// Show curves and progress on a page of this machine while it runs
    #[arg(long)]
    live: bool,
    /// Record more along the runs: `theory` for the proof's errors, distances, Lyapunov function and
    /// invariants
    #[arg(long, value_name = "WHAT", value_parser = ["theory"])]
    watch: Option<String>,
    /// Another program to compare with on the same rows, for experiments on labels (may be repeated)
    #[arg(long, value_name = "COMMAND")]
    peer: Vec<String>,
}

/// Where a run computes.
#[derive(Clone, Copy, Default, clap::Args)]
pub struct On {
    /// Where to compute: cpu or cuda
    #[arg(long, default_value = "cpu", value_parser = device)]
    device: Device,
    /// How a GPU computes matrix products: tf32 or bf16
    #[arg(long, default_value = "tf32", value_parser = precision)]
    precision: Precision,
}

impl On {
    /// The GPU, if one is asked for.
    pub fn accelerator(&self) -> Result<Option<Accelerator>> {
        match self.device {
            Device::Cpu => Ok(None),
            Device::Cuda => Accelerator::new(self.precision).map(Some),
        }
    }
}

fn device(word: &str) -> Result<Device, String> {
    match word {
        "cpu" => Ok(Device::Cpu),
        "cuda" => Ok(Device::Cuda),
        _ => Err("known are cpu and cuda".into()),
    }
}

fn precision(word: &str) -> Result<Precision, String> {
    match word {
        "tf32" => Ok(Precision::Tf32),
        "bf16" => Ok(Precision::Bf16),
        _ => Err("known are tf32 and bf16".into()),
    }
}

/// The first built-in experiment: the quick start.
pub fn first(registry: &Registry, name: &str) -> Result<ExitCode> {
    let Some((first, _)) = registry.experiments.first() else {
        anyhow::bail!("no experiment is given; `{name} --help` shows all commands");
    };
    say!("{name} {}: {first}. `{name} --help` shows all commands.\n", env!("CARGO_PKG_VERSION"));
    let experiment = ExperimentOptions {
        experiment: first.to_string(),
        set: Vec::new(),
        seeds: None,
        data: None,
        yes: false,
    };
    let options = Options {
        experiment,
        out: None,
        threads: None,
        on: On::default(),
        quiet: false,
        fresh: true,
        live: false,
        watch: None,
        peer: Vec::new(),
    };
    let code = run(registry, options)?;
    if stop::asked() {
        say!("(that is `{name} run {first}`)");
    }
    Ok(code)
}

/// Where results go: a folder of its own for what `--set` changes.
pub fn out_folder(out: Option<PathBuf>, experiment: &Experiment) -> Result<PathBuf> {
    if let Some(out) = out {
        return Ok(out);
    }
    let name = match experiment.overrides.is_empty() && !experiment.watch {
        true => experiment.name.clone(),
        false => {
            let digest = identity(experiment)?;
            let short: String = digest.iter().take(3).map(|b| format!("{b:02x}")).collect();
            format!("{}-{short}", experiment.name)
        }
    };
    Ok(Path::new("results").join(name))
}

/// Runs an experiment and writes its report.
pub fn run(registry: &Registry, options: Options) -> Result<ExitCode> {
    let mut experiment = registry.load(&options.experiment.request())?;
    experiment.watch = options.watch.is_some();
    let how = How {
        threads: threads(options.threads)?,
        device: options.on.accelerator()?,
        quiet: options.quiet,
        fresh: options.fresh,
        live: options.live,
    };
    let out = out_folder(options.out, &experiment)?;
    go(registry, experiment, &out, how, &options.peer, |_| Ok(()))
}

/// How an experiment is to be run.
pub struct How {
    /// Threads to use.
    pub threads: usize,
    /// The device, if any.
    pub device: Option<Accelerator>,
    /// Show no progress.
    pub quiet: bool,
    /// Do everything anew.
    pub fresh: bool,
    /// Serve a page that watches.
    pub live: bool,
}

/// Runs an experiment that has been read; `then` sees its results before the report is made.
pub fn go(
    registry: &Registry,
    mut experiment: Experiment,
    out: &Path,
    how: How,
    peers: &[String],
    then: impl FnOnce(&Manifest) -> Result<()>,
) -> Result<ExitCode> {
    let How { threads, device, quiet, fresh, live } = how;
    let title = if experiment.title.is_empty() { String::new() } else { format!(": {}", experiment.title) };
    say!("{}", fold(&format!("{}{title}", experiment.name)));
    let needed = check::needed(&experiment, threads, device.is_some(), out)?;
    check::before(&mut experiment)?;
    if experiment.watch {
        experiment.figures.extend(watched_figures());
    }
    let folder = Folder::open(out, &experiment.name, &identity(&experiment)?, fresh)?;
    stop::watch()?;
    say!("{}", fold(&check::announce(&experiment, needed, threads, device.is_some())?));
    for line in warnings(&experiment) {
        say!("{}", fold(&format!("  warning: {line}")));
    }
    let experiment = Arc::new(experiment);
    let watched = live.then(|| watched(&experiment, threads, out)).transpose()?;
    let (live, server) = watched.unzip();
    if let Some(live) = &live {
        let graphs = Graphs::new(experiment.clone());
        live.set_network(move |going| going.and_then(|(s, seed, k)| graphs.of_run(s, seed, k)));
    }
    let options = runner::Options { out: out.to_path_buf(), threads, device, quiet, live };
    let (manifest, curves) = runner::run(&experiment, &options)?;
    if !stop::asked() {
        then(&manifest)?;
    }
    // A program that fails costs its own lines of the report, not those of runs that are done.
    let compared = if stop::asked() { Ok(()) } else { peer::compare(&experiment, peers, out) };
    keep(registry, &experiment, out, &manifest, &curves)?;
    folder.finish()?;
    if let Some(server) = server {
        server.finish(&out.join("report.html"))?;
    }
    for run in manifest.runs.iter().filter(|r| r.outcome == "broken") {
        let reason = run.reason.as_deref().unwrap_or("an invariant is broken");
        say!("{}, seed {}: stopped, {reason}", manifest.series[run.series].label, run.seed);
    }
    compared?;
    if stop::asked() {
        say!("{}", stopped(fresh));
        return Ok(ExitCode::from(130));
    }
    Ok(ExitCode::SUCCESS)
}

/// The warnings of all settings, those that all have once.
fn warnings(experiment: &Experiment) -> Vec<String> {
    let settings = || experiment.settings.iter().map(|s| &s.series);
    let mut lines = Vec::new();
    for series in settings() {
        for warning in &series.warnings {
            let of_all = experiment.settings.len() > 1 && settings().all(|s| s.warnings.contains(warning));
            lines.push(if of_all { warning.clone() } else { format!("{}: {warning}", series.label) });
        }
    }
    let mut told = BTreeSet::new();
    lines.retain(|line| told.insert(line.clone()));
    lines
}

/// The plots of what `--watch theory` records.
fn watched_figures() -> Vec<Figure> {
    let about = [
        ("V_D", "Consensus error V_D: distance of the agents from their α-weighted averages"),
        ("V_S", "Tracking error V_S: distance of the trackers from the sum of directions"),
        ("y_gap", "Distance of ŷ from y_λ*(x̂)"),
        ("z_gap", "Distance of ẑ from y*(x̂)"),
        ("lyapunov", "Lyapunov function Φ; inside the proved conditions it falls at every step"),
        ("penalty_bias", "The penalty's bias: distance between ∇L_λ* and ∇F* at x̂"),
    ];
    let figure = |(name, title): (&str, &str)| Figure {
        title: title.into(),
        name: format!("theory-{}", name.to_lowercase().replace('_', "-")),
        ..Figure::line(name, "y")
    };
    about.map(figure).into()
}

/// Writes the results and the report.
pub fn keep(
    registry: &Registry,
    experiment: &Experiment,
    out: &Path,
    manifest: &Manifest,
    curves: &Curves,
) -> Result<()> {
    manifest.write(out)?;
    curves.write_csv(&out.join("curves.csv"))?;
    curves.write_parquet(&out.join("curves.parquet"))?;
    pictures::topology(experiment, out)?;
    finish(registry, out, manifest, curves)
}

/// Judges, draws and writes the page, and says what came out.
pub fn finish(registry: &Registry, out: &Path, manifest: &Manifest, curves: &Curves) -> Result<()> {
    let judged = judge::judge(&registry.judges, manifest, curves);
    let mut extras = judge::extras(&registry.judges, manifest, curves);
    let chosen = taken::shown(out, manifest);
    let kept = pictures::kept(out, manifest).into_iter();
    // Of ways that were tried side by side, the one that was taken shows its picture.
    let kept = kept.filter(|(series, _, _)| chosen.is_none_or(|c| c == *series));
    let again = |series, svg| Body::Svg(taken::picture(out, series).unwrap_or(svg));
    let kept = kept.map(|(series, title, svg)| Extra::new(title, again(series, svg))).collect();
    extras.extend(taken::extras(out, manifest, kept)?);
    extras.extend(peer::extra(out)?);
    extras.extend(report::memory::extra(manifest));
    let page = report::write(out, manifest, curves, &judged, &extras)?;
    say!("\n{}", report::terminal_table(manifest));
    if !judged.is_empty() {
        say!("{}", judge::terminal(&judged));
    }
    // Where results were gathered or only drawn again, no seconds are known.
    let took =
        if manifest.seconds >= 0.05 { format!("{:.1} s in all; ", manifest.seconds) } else { String::new() };
    say!("{took}report: {}", page.display());
    Ok(())
}
