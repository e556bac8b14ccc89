//! What the judges ask of a run.
use crate::report::average::{Point, mean_line};
use crate::results::{Curves, Manifest, RunRecord, Value};

/// A run's results.
pub struct Run<'a> {
    /// Settings and outcomes.
    pub manifest: &'a Manifest,
    /// Curves.
    pub curves: &'a Curves,
}

/// How a series ended with most of its seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The target was reached.
    Converges,
    /// It was not, within the iterations.
    NotReached,
    /// The error exceeded all bounds.
    Diverges,
}

impl Class {
    /// In words.
    pub fn word(self) -> &'static str {
        match self {
            Class::Converges => "converges",
            Class::NotReached => "not reached",
            Class::Diverges => "diverges",
        }
    }
}

/// Series of one problem, graph and plan: what a panel compares.
pub struct Cell {
    /// Such as `ω=1 ν=0.3`.
    pub name: String,
    /// Indices of the series.
    pub series: Vec<usize>,
}

impl Run<'_> {
    /// Series that have runs and satisfy a condition.
    pub fn series(&self, wanted: impl Fn(usize) -> bool) -> Vec<usize> {
        (0..self.manifest.series.len()).filter(|i| self.runs(*i).next().is_some() && wanted(*i)).collect()
    }

    /// Series of one algorithm, by its registry name.
    pub fn of(&self, algorithm: &str) -> Vec<usize> {
        self.series(|i| self.algorithm(i) == algorithm)
    }

    /// Registry name of a series' algorithm.
    pub fn algorithm(&self, series: usize) -> &str {
        &self.manifest.series[series].algorithm
    }

    /// A setting's value, if it is given.
    pub fn value(&self, series: usize, key: &str) -> Option<&Value> {
        self.manifest.series[series].settings.get(key)
    }

    /// A setting that is a text; empty if it is not given.
    pub fn text(&self, series: usize, key: &str) -> &str {
        self.value(series, key).and_then(Value::text).unwrap_or_default()
    }

    /// A setting as a number; the first one of a list.
    pub fn number(&self, series: usize, key: &str) -> Option<f64> {
        self.value(series, key)?.number()
    }

    /// A setting that is true or false.
    pub fn flag(&self, series: usize, key: &str) -> Option<bool> {
        match self.value(series, key)? {
            Value::Flag(flag) => Some(*flag),
            _ => None,
        }
    }

    /// A setting in words; empty if it is not given.
    pub fn words(&self, series: usize, key: &str) -> String {
        self.manifest.series[series].words(key)
    }

    /// The runs of a series.
    pub fn runs(&self, series: usize) -> impl Iterator<Item = &RunRecord> + Clone {
        self.manifest.runs.iter().filter(move |run| run.series == series)
    }

    /// How many runs of a series ended in this word, and how many there are.
    pub fn count(&self, series: usize, outcome: &str) -> (usize, usize) {
        (self.runs(series).filter(|run| run.outcome == outcome).count(), self.runs(series).count())
    }

    /// How most runs of a series ended.
    pub fn class(&self, series: usize) -> Class {
        let (reached, all) = self.count(series, "reached");
        let (diverged, _) = self.count(series, "diverged");
        if 2 * reached > all {
            Class::Converges
        } else if 2 * diverged > all {
            Class::Diverges
        } else {
            Class::NotReached
        }
    }

    /// True if a run of the series diverged or is broken: it has no end to compare.
    pub fn failed(&self, series: usize) -> bool {
        self.runs(series).any(|run| run.outcome == "diverged" || run.outcome == "broken")
    }

    /// Refuses to compare ends where one of these series has none.
    pub fn sound(&self, series: impl IntoIterator<Item = usize>) -> Result<(), String> {
        match series.into_iter().find(|i| self.failed(*i)) {
            Some(i) => Err(format!("{} diverged: it has no end to compare", self.manifest.series[i].label)),
            None => Ok(()),
        }
    }

    /// True if every run reached the target.
    pub fn all_reached(&self, series: usize) -> bool {
        let (reached, all) = self.count(series, "reached");
        reached == all
    }

    /// Mean over the runs of a series.
    pub fn mean(&self, series: usize, of: impl Fn(&RunRecord) -> f64) -> f64 {
        self.runs(series).map(of).sum::<f64>() / self.runs(series).count() as f64
    }

    /// Mean iterations of a series.
    pub fn iterations(&self, series: usize) -> f64 {
        self.mean(series, |run| run.iterations as f64)
    }

    /// Mean iterations to the target, over the runs that reached it; NaN if none did.
    pub fn to_target(&self, series: usize) -> f64 {
        let reached: Vec<f64> =
            self.runs(series).filter(|r| r.outcome == "reached").map(|r| r.iterations as f64).collect();
        reached.iter().sum::<f64>() / reached.len() as f64
    }

    /// The mean curve of a metric, over the runs that did not diverge (over all if all did).
    pub fn curve(&self, series: usize, x: &str, metric: &str) -> Vec<Point> {
        mean_line(self.manifest, self.curves, series, x, metric)
    }

    /// Mean of a metric over the last tenth of the mean curve, so that noise counts little; infinite where
    /// most runs diverged.
    pub fn end(&self, series: usize, metric: &str) -> f64 {
        if self.class(series) == Class::Diverges {
            return f64::INFINITY;
        }
        let curve = self.curve(series, "iteration", metric);
        let from = curve.last().map_or(0.0, |p| 0.9 * p.x);
        let tail: Vec<f64> = curve.iter().filter(|p| p.x >= from).map(|p| p.y).collect();
        tail.iter().sum::<f64>() / tail.len() as f64
    }

    /// Where the mean curve first falls below a level.
    pub fn first_below(&self, series: usize, x: &str, metric: &str, level: f64) -> Option<f64> {
        self.curve(series, x, metric).iter().find(|p| p.y < level).map(|p| p.x)
    }

    /// Series of the same problem, graph and plan together, in order of appearance.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells: Vec<(Vec<(&String, &Value)>, Cell)> = Vec::new();
        for i in self.series(|_| true) {
            let series = &self.manifest.series[i];
            let key: Vec<_> =
                series.settings.iter().filter(|(key, _)| !key.starts_with("algorithm.")).collect();
            let swept = series.swept.iter().filter(|key| !key.starts_with("algorithm."));
            let name = swept
                .map(|key| format!("{}={}", crate::report::words::symbol(key), self.words(i, key)))
                .collect::<Vec<_>>()
                .join(" ");
            match cells.iter_mut().find(|(known, _)| *known == key) {
                Some((_, cell)) => cell.series.push(i),
                None => cells.push((key, Cell { name, series: vec![i] })),
            }
        }
        cells.into_iter().map(|(_, cell)| cell).collect()
    }

    /// The label of a series without what is swept.
    pub fn name(&self, series: usize) -> String {
        self.manifest.series[series].name.clone()
    }
}

/// A least-squares line: slope, its standard error, and the rms of what is left.
#[derive(Clone, Copy, Debug)]
pub struct Fit {
    /// Slope.
    pub slope: f64,
    /// Standard error of the slope.
    pub error: f64,
    /// Root mean square of the residuals.
    pub rms: f64,
}

/// Fits y = a + slope·x; None for fewer than three points or where some are not finite.
pub fn fit(points: &[(f64, f64)]) -> Option<Fit> {
    let n = points.len() as f64;
    if points.len() < 3 || points.iter().any(|(x, y)| !x.is_finite() || !y.is_finite()) {
        return None;
    }
    let (mx, my) = (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
    let sxx: f64 = points.iter().map(|p| (p.0 - mx).powi(2)).sum();
    let slope = points.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum::<f64>() / sxx;
    let left: f64 = points.iter().map(|p| (p.1 - my - slope * (p.0 - mx)).powi(2)).sum();
    (sxx > 0.0).then(|| Fit { slope, error: (left / (n - 2.0) / sxx).sqrt(), rms: (left / n).sqrt() })
}

/// Fits a power law y ~ x^slope.
pub fn power(points: &[(f64, f64)]) -> Option<Fit> {
    fit(&points.iter().map(|(x, y)| (x.ln(), y.ln())).collect::<Vec<_>>())
}

/// The mean of several slopes and the standard error of that mean; `None` for fewer than two.
pub fn over_instances(slopes: &[f64]) -> Option<(f64, f64)> {
    let n = slopes.len() as f64;
    let mean = slopes.iter().sum::<f64>() / n;
    let variance = slopes.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (slopes.len() > 1 && mean.is_finite()).then(|| (mean, (variance / n).sqrt()))
}

/// `a, b, c`.
pub fn list(items: impl IntoIterator<Item = String>) -> String {
    items.into_iter().collect::<Vec<_>>().join(", ")
}
