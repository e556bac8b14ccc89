//! What a run leaves behind: a folder with `manifest.json` (settings, machine, outcome of each run) and the curves as
//! `curves.csv` and `curves.parquet`. Reports are made from this folder alone.
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything about an experiment but its curves; `manifest.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of dibo.
    pub version: String,
    /// Short name: the experiment file's, and the folder's.
    pub name: String,
    /// One line that says what the experiment shows.
    pub title: String,
    /// What a reader should know, in plain text paragraphs.
    #[serde(default)]
    pub about: String,
    /// The experiment file as it ran, after `--set`.
    pub file: String,
    /// `--set key=value` as given.
    pub overrides: Vec<String>,
    /// Seeds that ran.
    pub seeds: Vec<u64>,
    /// Where it ran.
    pub machine: Machine,
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// Seconds from start to end, metrics and files included.
    pub seconds: f64,
    /// Peak memory of the process in bytes, where the system tells.
    pub peak_memory: Option<u64>,
    /// Columns of the curves after the fixed ones.
    pub metrics: Vec<String>,
    /// One per setting: an algorithm with its parameters and swept values.
    pub series: Vec<Series>,
    /// One per series and seed.
    pub runs: Vec<RunRecord>,
    /// Plots the file asks for.
    pub figures: Vec<Figure>,
    /// Claims the file asks to judge.
    pub claims: Vec<String>,
}

/// Where a run took place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// Operating system and architecture.
    pub system: String,
    /// The CPU's own name.
    pub cpu: String,
    /// Threads the run could use.
    pub threads: usize,
    /// Memory in bytes.
    pub memory: u64,
}

/// One setting of an experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// For legends and tables: the algorithm and what is swept, such as `FAB λ=60`.
    pub label: String,
    /// Registry name of the algorithm, such as `fab`.
    pub algorithm: String,
    /// Every setting by its dotted key, such as `graph.nu` or `algorithm.eta_x`, as text.
    pub settings: BTreeMap<String, String>,
    /// Keys whose values differ between series.
    pub swept: Vec<String>,
    /// Warnings that were printed before the run.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// How one run ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    /// Index into `series`.
    pub series: usize,
    /// Its seed.
    pub seed: u64,
    /// `finished`, `reached`, `diverged` or `stopped`.
    pub outcome: String,
    /// Iterations done.
    pub iterations: usize,
    /// Seconds of iterations, metrics not counted.
    pub seconds: f64,
    /// Bytes that all agents sent.
    pub bytes: u64,
    /// Gradients computed over all agents.
    pub gradients: u64,
    /// Second-order products computed over all agents.
    pub products: u64,
    /// Bytes of the algorithm's state vectors.
    pub state_bytes: u64,
    /// Last value of each metric, where it has one.
    pub last: BTreeMap<String, f64>,
}

/// One plot, as the experiment file asks for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// File name without ending, and anchor in the report.
    pub name: String,
    /// Caption.
    #[serde(default)]
    pub title: String,
    /// Column on the horizontal axis: `iteration`, `seconds`, `bytes`, `gradients`, or `setting:KEY` for a swept setting
    /// (then each point is one series' last value).
    #[serde(default = "iteration")]
    pub x: String,
    /// Column on the vertical axis: a metric, or for `kind = "bar"` also `seconds`, `bytes`, `state_bytes`, `iterations`, `bytes_per_iteration`.
    pub y: String,
    /// A second metric drawn dotted on the right axis.
    #[serde(default)]
    pub y2: Option<String>,
    /// `line` (mean and standard deviation over seeds), `bar` (one bar per series with its deviation), `points`, or `graphs` (the topology picture).
    #[serde(default = "line")]
    pub kind: String,
    /// Logarithmic axes, any of `x` and `y`, such as `"xy"`.
    #[serde(default)]
    pub log: String,
    /// Only series whose settings have these values.
    #[serde(default)]
    pub only: BTreeMap<String, String>,
    /// One panel for each value of this setting, side by side.
    #[serde(default)]
    pub panels: Option<String>,
}

fn iteration() -> String {
    "iteration".into()
}

fn line() -> String {
    "line".into()
}

/// The curves of all runs, row by row: `curves.csv`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curves {
    /// Names of the metric columns.
    pub metrics: Vec<String>,
    /// Rows in order of series, seed and iteration.
    pub rows: Vec<CurveRow>,
}

/// One evaluation of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct CurveRow {
    /// Index of the series.
    pub series: usize,
    /// Seed of the run.
    pub seed: u64,
    /// Iterations done.
    pub iteration: usize,
    /// Seconds of iterations so far.
    pub seconds: f64,
    /// Bytes sent so far by all agents.
    pub bytes: u64,
    /// Gradients so far.
    pub gradients: u64,
    /// Second-order products so far.
    pub products: u64,
    /// One value per metric; NaN where there is none.
    pub values: Vec<f64>,
}
