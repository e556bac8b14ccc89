//! From the rows of several seeds to one line with its band.
use crate::results::{CurveRow, Curves, Manifest, RunRecord};
use std::collections::{BTreeMap, BTreeSet};

/// One point of a line: the middle of the seeds and the edges of their band.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Mean of the horizontal column.
    pub x: f64,
    /// Mean or median of the metric.
    pub y: f64,
    /// Lower edge of the band.
    pub low: f64,
    /// Upper edge of the band.
    pub high: f64,
}

/// Mean and standard deviation (NaN for fewer than two values).
pub fn mean_sd(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let square: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, if values.len() < 2 { f64::NAN } else { (square / (n - 1.0)).sqrt() })
}

/// What a run ends with: `seconds`, `bytes`, `iterations`, …, or a metric's last value; NaN where it has
/// none.
pub fn ending(run: &RunRecord, name: &str) -> f64 {
    match name {
        "seconds" => run.seconds,
        "bytes" => run.bytes as f64,
        "gradients" => run.gradients as f64,
        "products" => run.products as f64,
        "state_bytes" => run.state_bytes as f64,
        // Where nothing was measured, nothing is drawn.
        "peak_bytes" => {
            if run.memory.peak_bytes > 0 {
                run.memory.peak_bytes as f64
            } else {
                f64::NAN
            }
        }
        "iterations" | "iteration" => run.iterations as f64,
        "bytes_per_iteration" => run.bytes as f64 / run.iterations.max(1) as f64,
        metric => {
            let (values, metric) = match metric.split_once(':') {
                Some(("min", metric)) => (&run.smallest, metric),
                Some(("mean", metric)) => (&run.mean, metric),
                _ => (&run.last, metric),
            };
            values.get(metric).copied().unwrap_or(f64::NAN)
        }
    }
}

/// How many runs of a series diverged, and how many there are.
pub fn diverged(manifest: &Manifest, series: usize) -> (usize, usize) {
    let runs = manifest.runs.iter().filter(|run| run.series == series);
    (runs.clone().filter(|run| run.outcome == "diverged").count(), runs.count())
}

/// The mean over seeds at each iteration that all running seeds have evaluated, with one standard deviation
/// around it.
///
/// A run that reached its target goes on with its last value at its own pace. Where only some seeds diverged
/// the mean is over the others (the legend says so); where all did, the line is theirs.
pub fn mean_line(manifest: &Manifest, curves: &Curves, series: usize, x: &str, y: &str) -> Vec<Point> {
    let point = |x, values: &mut Vec<f64>| {
        let (y, sd) = mean_sd(values);
        let sd = if sd.is_finite() { sd } else { 0.0 };
        Point { x, y, low: y - sd, high: y + sd }
    };
    line(manifest, curves, series, x, y, point)
}

/// The same with the median, and a band that holds the middle 80 % of the seeds: on no axis can it show what
/// no run had.
pub fn median_line(manifest: &Manifest, curves: &Curves, series: usize, x: &str, y: &str) -> Vec<Point> {
    let point = |x, values: &mut Vec<f64>| spread(x, values);
    line(manifest, curves, series, x, y, point)
}

/// The median of some values, and the range of their middle 80 %.
pub fn spread(x: f64, values: &mut [f64]) -> Point {
    values.sort_by(f64::total_cmp);
    let [low, y, high] = [0.1, 0.5, 0.9].map(|part| quantile(values, part));
    Point { x, y, low, high }
}

/// A quantile of sorted values, straight between neighbours; NaN of none.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = part * sorted.len().saturating_sub(1) as f64;
    let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
    let (below, above) = (at(place.floor() as usize), at(place.ceil() as usize));
    if below == above { below } else { below + (above - below) * place.fract() }
}

/// A column of a row by its name; iterations unless it is another.
fn column(row: &CurveRow, name: &str) -> f64 {
    match name {
        "seconds" => row.seconds,
        "bytes" => row.bytes as f64,
        "gradients" => row.gradients as f64,
        "products" => row.products as f64,
        _ => row.iteration as f64,
    }
}

fn line(
    manifest: &Manifest,
    curves: &Curves,
    series: usize,
    x: &str,
    y: &str,
    point: impl Fn(f64, &mut Vec<f64>) -> Point,
) -> Vec<Point> {
    let Some(metric) = curves.metrics.iter().position(|name| name == y) else { return Vec::new() };
    let (lost, all) = diverged(manifest, series);
    let outcome = |seed: u64| {
        manifest
            .runs
            .iter()
            .find(|run| run.series == series && run.seed == seed)
            .map_or("stopped", |run| run.outcome.as_str())
    };
    let mut runs: BTreeMap<u64, BTreeMap<usize, (f64, f64)>> = BTreeMap::new();
    let here = |seed: u64| manifest.seeds.contains(&seed);
    for row in curves.rows.iter().filter(|row| row.series == series && here(row.seed)) {
        let across = column(row, x);
        let value = row.values.get(metric).copied().unwrap_or(f64::NAN);
        if !value.is_nan() && across.is_finite() {
            runs.entry(row.seed).or_default().insert(row.iteration, (across, value));
        }
    }
    if lost < all {
        runs.retain(|seed, _| outcome(*seed) != "diverged");
    }
    let ends: Vec<(usize, bool)> = runs
        .iter()
        .map(|(seed, rows)| {
            (rows.last_key_value().map_or(0, |(iteration, _)| *iteration), outcome(*seed) == "reached")
        })
        .collect();
    let iterations: BTreeSet<usize> = runs.values().flat_map(|rows| rows.keys().copied()).collect();
    let mut line: Vec<Point> = Vec::new();
    'iterations: for k in iterations {
        let (mut across, mut values) = (Vec::new(), Vec::new());
        for (rows, &(end, reached)) in runs.values().zip(&ends) {
            match (rows.get(&k), rows.get(&end)) {
                (Some(&(x, y)), _) => {
                    across.push(x);
                    values.push(y);
                }
                (None, Some(&(x, last))) if k > end && reached => {
                    // As if it went on at its own pace, so that the mean of x does not jump.
                    across.push(x * k as f64 / end.max(1) as f64);
                    values.push(last);
                }
                (None, _) if k > end => {}
                // A running seed has no value here (another one stopped between two evaluations): not a
                // common iteration.
                _ => continue 'iterations,
            }
        }
        // When a slow seed leaves, the mean time of the others can step back; a line must not.
        let x = line.last().map_or(f64::NEG_INFINITY, |point| point.x).max(mean_sd(&across).0);
        line.push(point(x, &mut values));
    }
    line
}

/// Indices of at most `most` points spread evenly over `x` (in its logarithm for `log`), with the first and
/// the last.
pub fn thin(x: &[f64], most: usize, log: bool) -> Vec<usize> {
    if x.len() <= most.max(2) {
        return (0..x.len()).collect();
    }
    let smallest = x.iter().copied().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
    let at = |value: f64| if log && smallest.is_finite() { value.max(smallest).ln() } else { value };
    let (first, last) = (at(x[0]), at(x[x.len() - 1]));
    let step = (last - first) / (most.max(2) - 1) as f64;
    let slot = |index: usize| if step > 0.0 { ((at(x[index]) - first) / step).floor() } else { 0.0 };
    let mut kept = vec![0];
    for index in 1..x.len() - 1 {
        if slot(index) > slot(kept[kept.len() - 1]) {
            kept.push(index);
        }
    }
    kept.push(x.len() - 1);
    kept
}

/// Makes a line fit for a logarithmic axis: no point at or below zero, and a band that reaches there ends at
/// a tenth of the line.
pub fn positive(line: Vec<Point>) -> Vec<Point> {
    line.into_iter()
        .filter(|point| point.y > 0.0)
        .map(|point| Point { low: if point.low > 0.0 { point.low } else { point.y / 10.0 }, ..point })
        .collect()
}

/// Ends a line where it first leaves `[low, high]`, on the edge; used for runs that diverge.
pub fn cut(line: Vec<Point>, low: f64, high: f64) -> Vec<Point> {
    let mut kept = Vec::new();
    for point in line {
        let inside = (low..=high).contains(&point.y);
        let y = if point.y.is_nan() { high } else { point.y.clamp(low, high) };
        let edge = |value: f64| if value.is_finite() { value.clamp(low, high) } else { y };
        kept.push(Point { x: point.x, y, low: edge(point.low).min(y), high: edge(point.high).max(y) });
        if !inside {
            break;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_the_ends_and_the_limit() {
        let x: Vec<f64> = (0..10_000).map(|k| k as f64).collect();
        for log in [false, true] {
            let kept = thin(&x, 300, log);
            assert!(kept.len() <= 300 && kept.len() > 80, "{}", kept.len());
            assert_eq!((kept[0], kept[kept.len() - 1]), (0, 9999));
            assert!(kept.windows(2).all(|pair| pair[0] < pair[1]));
        }
        assert_eq!(thin(&x[..7], 300, false), (0..7).collect::<Vec<_>>());
        assert_eq!(thin(&[1.0; 9], 4, false), [0, 8]);
        assert!(thin(&[], 4, true).is_empty());
    }

    #[test]
    fn a_band_holds_values_that_runs_had() {
        let middle = |values: &mut [f64]| {
            let point = spread(0.0, values);
            (point.low, point.y, point.high)
        };
        assert_eq!(middle(&mut [5.0, 1.0, 3.0]), (1.4, 3.0, 4.6));
        assert_eq!(middle(&mut [7.0]), (7.0, 7.0, 7.0));
        assert_eq!(middle(&mut [1.0, f64::INFINITY, f64::INFINITY]).2, f64::INFINITY);
        assert!(spread(0.0, &mut []).y.is_nan());
    }

    #[test]
    fn bands_and_cuts_stay_on_the_page() {
        let point = |x, y, sd| Point { x, y, low: y - sd, high: y + sd };
        let line = positive(vec![point(0.0, 1.0, 5.0), point(1.0, 0.0, 0.0), point(2.0, 2.0, 0.5)]);
        assert_eq!(line.iter().map(|point| point.low).collect::<Vec<_>>(), [0.1, 1.5]);
        let line = cut(
            vec![point(0.0, 1.0, 0.0), point(1.0, f64::INFINITY, f64::INFINITY), point(2.0, 1.0, 0.0)],
            0.0,
            9.0,
        );
        assert_eq!(line.len(), 2);
        assert_eq!((line[1].y, line[1].high), (9.0, 9.0));
        assert_eq!(cut(vec![point(0.0, f64::NAN, 0.0)], 0.0, 9.0)[0].y, 9.0);
    }
}
