//! Results kept in the repository, in small: what ran where and when, the verdicts, the ends and the averaged
//! curves. The pages for readers are made of these files.
use dibo_report::judge;
use dibo_report::report::average::{ending, mean_line, mean_sd, thin};
use dibo_report::report::{Body, date};
use dibo_report::results::{Curves, Manifest};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// An experiment's results in small.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// The experiment's name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// What makes them again.
    pub command: String,
    /// Version of dibo.
    pub version: String,
    /// When it ran.
    pub date: String,
    /// Where it ran.
    pub machine: String,
    /// Seconds from start to end.
    pub seconds: f64,
    /// How many seeds.
    pub seeds: usize,
    /// The experiment's first metric, with its unit.
    pub metric: String,
    /// The claims that it judges.
    pub claims: Vec<Judgement>,
    /// How every series ended.
    pub ends: Vec<End>,
    /// Tables that go with the claims: a title, then rows.
    pub tables: Vec<(String, Vec<Vec<String>>)>,
    /// The experiment's first metric along the mean of each series: iterations and values.
    pub curves: Vec<Vec<(f64, f64)>>,
}

/// A claim with its verdict.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Judgement {
    /// Its id.
    pub id: String,
    /// The verdict in words.
    pub verdict: String,
    /// The number, with its interval.
    pub number: String,
    /// How to read it.
    pub reading: String,
}

/// How the runs of a series ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// The series.
    pub label: String,
    /// Outcomes with their numbers, such as `60 reached`.
    pub outcomes: String,
    /// Iterations, mean.
    pub iterations: f64,
    /// The first metric at the end: mean and standard deviation over the runs that did not diverge.
    pub last: Option<(f64, f64)>,
    /// The same of its other metrics.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<String, (f64, f64)>,
}

/// Four digits are enough for a page.
pub(crate) fn short(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

impl Kept {
    /// What is kept of a results folder; `device` where its manifest does not say it.
    pub fn of(manifest: &Manifest, curves: &Curves, device: Option<&str>) -> Self {
        const POINTS: usize = 40;
        let device = device.or(manifest.machine.device.as_deref());
        let judged = judge::judge(crate::claims::JUDGES, manifest, curves);
        let extras = judge::extras(crate::claims::JUDGES, manifest, curves);
        let tables = extras.into_iter().filter_map(|extra| match extra.body {
            Body::Table(rows) => Some((extra.title, rows)),
            Body::Svg(_) | Body::Text(..) => None,
        });
        let metric = manifest.metrics.first().map_or("", |metric| metric.name.as_str());
        let curve = |series: usize| {
            let line = mean_line(manifest, curves, series, "iteration", metric);
            let kept = thin(&line.iter().map(|p| p.x).collect::<Vec<_>>(), POINTS, true);
            kept.into_iter().map(|at| (short(line[at].x), short(line[at].y))).collect()
        };
        let set = manifest.overrides.iter().map(|change| format!(" --set {change}"));
        let seeds = manifest.seeds.len();
        // `--seeds` counts from 0; others stand in the file.
        let counted = manifest.seeds.iter().copied().eq(0..seeds as u64);
        let machine = &manifest.machine;
        // Manifests of old have the seconds of their last sitting, but those of all runs, which go one after
        // the other on a device.
        let at_once = if device.is_some() { 1 } else { machine.threads.max(1) };
        let runs = manifest.runs.iter().map(|run| run.seconds).sum::<f64>() / at_once as f64;
        Kept {
            name: manifest.name.clone(),
            title: manifest.title.clone(),
            command: format!(
                "dibo run {}{}{}{}",
                manifest.name,
                if counted { format!(" --seeds {seeds}") } else { String::new() },
                set.collect::<String>(),
                if device.is_some() { " --device cuda" } else { "" }
            ),
            version: manifest.version.clone(),
            date: date(manifest.started),
            machine: format!(
                "{}{}, {} threads, {}",
                device.map(|name| format!("{name}, ")).unwrap_or_default(),
                machine.cpu,
                machine.threads,
                machine.system
            ),
            seconds: short(manifest.seconds.max(runs)),
            seeds,
            metric: manifest.metrics.first().map_or(String::new(), |metric| match metric.unit.as_str() {
                "" => metric.label.clone(),
                unit => format!("{} ({unit})", metric.label),
            }),
            claims: judged
                .into_iter()
                .map(|claim| Judgement {
                    id: claim.id,
                    verdict: claim.verdict.words(),
                    number: claim.number,
                    reading: claim.reading,
                })
                .collect(),
            ends: (0..manifest.series.len()).map(|series| end(manifest, series)).collect(),
            tables: tables.collect(),
            curves: (0..manifest.series.len()).map(curve).collect(),
        }
    }

    /// All that is kept in a folder, by name.
    pub fn read_all(folder: &Path) -> Result<Vec<Kept>, String> {
        let mut all: Vec<Kept> = read_all(folder)?;
        all.sort_by(|a: &Kept, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// As text for a file.
    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

/// A speed that README tells of.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Speed {
    /// What was measured.
    pub what: String,
    /// What measures it again.
    pub command: String,
    /// Where it ran.
    pub machine: String,
    /// When.
    pub date: String,
    /// What the values are: seconds, or times as fast.
    pub unit: String,
    /// What came out, time after time.
    pub values: Vec<f64>,
    /// README's words, with `{least}`, `{middle}` and `{most}` for the values'.
    pub says: String,
}

impl Speed {
    /// The words with their numbers.
    pub fn words(&self) -> String {
        let mut values = self.values.clone();
        values.sort_by(f64::total_cmp);
        let last = values.len().saturating_sub(1);
        let places = [("{least}", 0), ("{middle}", values.len() / 2), ("{most}", last)];
        places.iter().fold(self.says.clone(), |words, (mark, at)| {
            words.replace(mark, &values.get(*at).map_or("–".into(), |value| format!("{value:.1}")))
        })
    }
}

/// Every JSON file of a folder.
pub fn read_all<K: serde::de::DeserializeOwned>(folder: &Path) -> Result<Vec<K>, String> {
    let fail = |e: std::io::Error| format!("cannot read {}: {e}", folder.display());
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.extension().is_some_and(|end| end == "json") {
            let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            all.push(serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?);
        }
    }
    Ok(all)
}

fn end(manifest: &Manifest, series: usize) -> End {
    let runs = || manifest.runs.iter().filter(|run| run.series == series);
    let words = ["reached", "finished", "diverged", "stopped", "broken"];
    let outcomes = words.iter().filter_map(|word| {
        let count = runs().filter(|run| run.outcome == *word).count();
        (count > 0).then(|| format!("{count} {word}"))
    });
    let last = |metric: &str| {
        let sound: Vec<f64> =
            runs().filter(|run| run.outcome != "diverged").map(|run| ending(run, metric)).collect();
        let (mean, sd) = mean_sd(&sound);
        // JSON has no NaN.
        mean.is_finite().then(|| (short(mean), if sd.is_finite() { short(sd) } else { 0.0 }))
    };
    let mut metrics = manifest.metrics.iter().map(|metric| metric.name.as_str());
    let first = metrics.next().unwrap_or_default();
    let count = runs().count().max(1) as f64;
    End {
        label: manifest.series[series].label.clone(),
        outcomes: outcomes.collect::<Vec<_>>().join(", "),
        iterations: short(runs().map(|run| run.iterations as f64).sum::<f64>() / count),
        last: last(first),
        others: metrics.filter_map(|metric| Some((metric.to_string(), last(metric)?))).collect(),
    }
}
