//! What is kept of a run of the zoo: how every method ended over every network, and what it cost to be good
//! enough.
use super::{TASKS, Task};
use crate::kept::short;
use dibo_report::report::date;
use dibo_report::results::{CurveRow, Curves, Manifest};
use serde::{Deserialize, Serialize};

/// A task's results in small.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZooKept {
    /// The experiment's name.
    pub name: String,
    /// Version of dibo.
    pub version: String,
    /// When it ran.
    pub date: String,
    /// Where it ran.
    pub machine: String,
    /// Seconds from start to end.
    pub seconds: f64,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// Iterations of a run.
    pub iterations: usize,
    /// One for each method and network that ran.
    pub cells: Vec<Cell>,
}

/// A method over a network.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// The method's name in files.
    pub method: String,
    /// Its name for readers.
    pub label: String,
    /// The network.
    pub network: String,
    /// Runs that diverged or broke.
    pub diverged: usize,
    /// The metric at the end over the other runs: median, lowest, highest.
    pub end: Option<[f64; 3]>,
    /// Runs that were good enough at some time.
    pub reached: usize,
    /// What that cost, where all runs were: the median of each.
    pub cost: Option<Cost>,
}

/// What it cost all agents together to be good enough.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Iterations.
    pub iterations: f64,
    /// Bytes sent.
    pub bytes: f64,
    /// Gradients, and products with second derivatives.
    pub gradients: f64,
    /// Seconds of the simulator, on one core.
    pub seconds: f64,
}

impl ZooKept {
    /// What is kept of a results folder; `None` if it is none of the zoo's.
    pub fn of(manifest: &Manifest, curves: &Curves) -> Option<Self> {
        let task = TASKS.iter().find(|t| t.name == manifest.name)?;
        let cells = (0..manifest.series.len()).map(|series| cell(task, manifest, curves, series));
        let machine = &manifest.machine;
        Some(ZooKept {
            name: manifest.name.clone(),
            version: manifest.version.clone(),
            date: date(manifest.started),
            machine: format!("{}, {} threads, {}", machine.cpu, machine.threads, machine.system),
            seconds: short(manifest.seconds),
            seeds: manifest.seeds.clone(),
            iterations: manifest.runs.iter().map(|run| run.iterations).max().unwrap_or(0),
            cells: cells.collect(),
        })
    }

    /// As text for a file.
    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

/// The middle of some numbers, which must not be empty.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 }
}

fn cell(task: &Task, manifest: &Manifest, curves: &Curves, series: usize) -> Cell {
    let about = &manifest.series[series];
    let network = about.words("algorithm.case");
    let runs = || manifest.runs.iter().filter(|run| run.series == series);
    let sound = || runs().filter(|run| run.outcome == "finished" || run.outcome == "reached");
    let mut ends: Vec<f64> = sound().filter_map(|run| run.last.get(task.metric).copied()).collect();
    let column = curves.metrics.iter().position(|name| name == task.metric);
    let good = |row: &&CurveRow| match column.map(|c| row.values[c]) {
        Some(value) if task.upwards => value >= task.target,
        Some(value) => value <= task.target,
        None => false,
    };
    let first: Vec<&CurveRow> = sound()
        .filter_map(|run| curves.rows.iter().find(|r| r.series == series && r.seed == run.seed && good(r)))
        .collect();
    let of = |what: &dyn Fn(&CurveRow) -> f64| {
        short(median(&mut first.iter().map(|r| what(r)).collect::<Vec<_>>()))
    };
    let cost = (first.len() == runs().count() && !first.is_empty()).then(|| Cost {
        iterations: of(&|r| r.iteration as f64),
        bytes: of(&|r| r.bytes as f64),
        gradients: of(&|r| (r.gradients + r.products) as f64),
        seconds: of(&|r| r.seconds),
    });
    ends.retain(|end| end.is_finite());
    let end = (!ends.is_empty()).then(|| {
        let middle = median(&mut ends);
        [middle, ends[0], ends[ends.len() - 1]].map(short)
    });
    let label = about.name.clone();
    let diverged = runs().count() - sound().count();
    Cell { method: about.algorithm.clone(), label, network, diverged, end, reached: first.len(), cost }
}
