//! The curves of a page, small enough to lie inside it: for each series the median over seeds, the band that
//! holds the middle 80 % of them, and the runs, at as many iterations as there is room for.
use super::average;
use super::plot::{Shown, shown};
use crate::results::{CurveRow, Curves, Figure, Manifest, MetricInfo};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Numbers that a page holds at most, about eight letters each.
pub const ROOM: usize = 120_000;
/// Points of a line: not fewer, and not more, than these.
const POINTS: (usize, usize) = (24, 240);

/// What the page's script draws.
#[derive(Serialize)]
pub struct Data<'a> {
    metrics: &'a [MetricInfo],
    series: Vec<Lines>,
    /// In the figures' order; nothing where one cannot be drawn.
    figures: Vec<Option<Shown>>,
}

/// One series: a place along every axis for each point, and the metrics there.
#[derive(Serialize)]
struct Lines {
    label: String,
    /// All its runs diverged.
    lost: bool,
    iteration: Vec<f64>,
    seconds: Vec<f64>,
    bytes: Vec<f64>,
    gradients: Vec<f64>,
    values: BTreeMap<String, Values>,
}

/// A metric at each point; NaN, which is null in the page, where there is none.
#[derive(Serialize)]
struct Values {
    middle: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    low: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    high: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    runs: Vec<Vec<f64>>,
}

impl<'a> Data<'a> {
    /// Everything that the figures of an experiment can show, in about so many numbers.
    pub fn new(manifest: &'a Manifest, curves: &Curves, room: usize) -> Self {
        // Pictures of networks have no numbers to draw; they stay as they are.
        let lively = |figure: &&Figure| figure.kind != "graphs";
        let drawn = |figure| Some(figure).filter(lively).and_then(|f| shown(f, manifest, curves).ok());
        let figures: Vec<Option<Shown>> = manifest.figures.iter().map(drawn).collect();
        let lines = manifest.figures.iter().any(|figure| figure.kind == "line");
        let mut rows: Vec<Vec<&CurveRow>> = vec![Vec::new(); manifest.series.len()];
        for row in curves.rows.iter().filter(|_| lines) {
            if let Some(own) = rows.get_mut(row.series) {
                own.push(row);
            }
        }
        // Metrics that a figure asks for come with their runs, the others with their bands.
        let asked: BTreeSet<&str> = manifest
            .figures
            .iter()
            .filter(|figure| figure.kind == "line")
            .flat_map(|figure| std::iter::once(figure.y.as_str()).chain(figure.y2.as_deref()))
            .collect();
        let several = manifest.seeds.len() > 1;
        let asked_for = if several { 3 + manifest.seeds.len() } else { 1 };
        let other = if several { 3 } else { 1 };
        let each = 4 + asked.len() * asked_for + curves.metrics.len().saturating_sub(asked.len()) * other;
        let points = (room / (each * rows.len().max(1))).clamp(POINTS.0, POINTS.1);
        let series = (0..rows.len()).map(|index| {
            let keep = kept(&rows[index], points);
            let rows = rows[index].iter().filter(|row| keep.contains(&row.iteration));
            let curves =
                Curves { metrics: curves.metrics.clone(), rows: rows.map(|row| (*row).clone()).collect() };
            one(manifest, &curves, index, &asked)
        });
        Data { metrics: &manifest.metrics, series: series.collect(), figures }
    }

    /// As text that may stand inside a script element: no tag can end it.
    pub fn text(&self) -> String {
        let text = serde_json::to_string(self).unwrap_or_else(|_| "null".into());
        text.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
    }
}

/// The iterations to show: evenly spread, half of them over the logarithm, and where runs end.
fn kept(rows: &[&CurveRow], points: usize) -> BTreeSet<usize> {
    let mut all: Vec<usize> = rows.iter().map(|row| row.iteration).collect();
    let ends = rows.chunk_by(|a, b| a.seed == b.seed).filter_map(|run| run.last()).map(|row| row.iteration);
    let ends: BTreeSet<usize> = ends.collect();
    all.sort_unstable();
    all.dedup();
    if all.len() <= points {
        return all.into_iter().collect();
    }
    let x: Vec<f64> = all.iter().map(|k| *k as f64).collect();
    let linear = average::thin(&x, points / 2, false);
    let log = average::thin(&x, points / 2, true);
    // The first after the start as well: a logarithmic axis begins there.
    linear.into_iter().chain(log).chain([1]).map(|index| all[index]).chain(ends).collect()
}

/// One series from its own rows.
fn one(manifest: &Manifest, curves: &Curves, index: usize, asked: &BTreeSet<&str>) -> Lines {
    let (lost, all) = average::diverged(manifest, index);
    let mut lines = Lines {
        label: manifest.series[index].label.clone(),
        lost: all > 0 && lost == all,
        iteration: Vec::new(),
        seconds: Vec::new(),
        bytes: Vec::new(),
        gradients: Vec::new(),
        values: BTreeMap::new(),
    };
    let along = |x: &str, metric: &String| average::median_line(manifest, curves, index, x, metric);
    let all: Vec<Vec<average::Point>> =
        curves.metrics.iter().map(|metric| along("iteration", metric)).collect();
    // The places are those of the metric that has most of them; the others are looked up there.
    let most = (0..all.len()).max_by_key(|nth| all[*nth].len());
    let Some(most) = most else { return lines };
    let column = |name: &str| {
        let line = along(name, &curves.metrics[most]);
        line.iter().map(|point| round(point.x)).collect::<Vec<_>>()
    };
    lines.iteration = all[most].iter().map(|point| point.x).collect();
    [lines.seconds, lines.bytes, lines.gradients] = ["seconds", "bytes", "gradients"].map(column);
    let seeds: BTreeSet<u64> = curves.rows.iter().map(|row| row.seed).collect();
    for (nth, (metric, line)) in curves.metrics.iter().zip(all).enumerate() {
        let line: BTreeMap<usize, average::Point> =
            line.into_iter().map(|point| (point.x as usize, point)).collect();
        let of = |get: fn(&average::Point) -> f64| -> Vec<f64> {
            let at = |k: &f64| line.get(&(*k as usize)).map_or(f64::NAN, |point| round(get(point)));
            lines.iteration.iter().map(at).collect()
        };
        let mut values = Values { middle: of(|p| p.y), low: vec![], high: vec![], runs: vec![] };
        if seeds.len() > 1 && line.values().any(|point| point.high > point.low) {
            (values.low, values.high) = (of(|p| p.low), of(|p| p.high));
            if asked.contains(metric.as_str()) {
                let run = |seed: &u64| {
                    let own = curves.rows.iter().filter(|row| row.seed == *seed);
                    let own: BTreeMap<usize, f64> = own
                        .map(|row| (row.iteration, row.values.get(nth).copied().unwrap_or(f64::NAN)))
                        .collect();
                    let at = |k: &f64| round(own.get(&(*k as usize)).copied().unwrap_or(f64::NAN));
                    lines.iteration.iter().map(at).collect()
                };
                values.runs = seeds.iter().map(run).collect();
            }
        }
        lines.values.insert(metric.clone(), values);
    }
    lines
}

/// Five digits: more than a screen can show.
fn round(value: f64) -> f64 {
    if !value.is_finite() || value == 0.0 {
        return value;
    }
    format!("{value:.4e}").parse().unwrap_or(value)
}
