//! Several results folders side by side: one page with their series on the same axes, what differs in the
//! results, and which settings differ.
use super::{Body, Extra, average, page, table, words};
use crate::results::{CurveRow, Curves, Manifest, Series, Value, check_name, write_file};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The setting by which series say of which folder they are.
pub(super) const FOLDER: &str = "folder";

/// A results folder under the name that the page gives it.
pub struct Part {
    /// Such as `policy-3fa2b1`.
    pub name: String,
    /// What it says of itself.
    pub manifest: Manifest,
    /// Its curves.
    pub curves: Curves,
}

impl Part {
    /// Reads results folders; each gets the shortest name that tells it from the others.
    pub fn read(folders: &[PathBuf]) -> Result<Vec<Part>> {
        ensure!(folders.len() > 1, "one folder alone cannot be compared; give two or more");
        let parts = names(folders).into_iter().zip(folders).map(|(name, folder)| {
            let manifest = Manifest::read(folder)?;
            let curves = Curves::read_csv(&folder.join("curves.csv"))?;
            Ok(Part { name, manifest, curves })
        });
        parts.collect()
    }
}

/// The last parts of the paths, as many as tell them apart; numbered where one folder is given twice.
fn names(folders: &[PathBuf]) -> Vec<String> {
    let whole = |folder: &PathBuf| std::fs::canonicalize(folder).unwrap_or_else(|_| folder.clone());
    let folders: Vec<PathBuf> = folders.iter().map(whole).collect();
    let last = |folder: &PathBuf, parts: usize| {
        let all: Vec<String> = folder.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        all[all.len().saturating_sub(parts)..].join("/")
    };
    let longest = folders.iter().map(|folder| folder.iter().count()).max().unwrap_or(1);
    for parts in 1..=longest {
        let names: Vec<String> = folders.iter().map(|folder| last(folder, parts)).collect();
        if names.iter().collect::<BTreeSet<_>>().len() == names.len() {
            return names;
        }
    }
    folders.iter().enumerate().map(|(nth, folder)| format!("{} ({})", last(folder, 1), nth + 1)).collect()
}

/// Writes `report.html` and its plots into the folder `out`; returns the page's path.
pub fn write(out: &Path, parts: &[Part]) -> Result<PathBuf> {
    ensure!(
        !out.join("manifest.json").exists(),
        "{} holds results of a run; give another folder for the comparison with --out",
        out.display()
    );
    let (manifest, curves) = merged(parts)?;
    let extras: Vec<Extra> = [differences(parts), settings(parts)].into_iter().flatten().collect();
    let sources: Vec<String> = parts.iter().map(|part| part.name.clone()).collect();
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let page = page::page(out, &manifest, &curves, &[], &extras, &sources)?;
    let path = out.join("report.html");
    write_file(&path, page.as_bytes())?;
    Ok(path)
}

/// All parts as if one experiment had run them: a series of each folder, with the folder as a setting.
fn merged(parts: &[Part]) -> Result<(Manifest, Curves)> {
    let mut whole = parts.first().context("nothing to compare")?.manifest.clone();
    let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
    whole.title = names.join(" and ");
    let titles: BTreeSet<&str> = parts.iter().map(|part| part.manifest.title.as_str()).collect();
    whole.about = titles.into_iter().collect::<Vec<_>>().join("\n\n");
    (whole.name, whole.file) = ("comparison".into(), String::new());
    whole.started = parts.iter().map(|part| part.manifest.started).max().unwrap_or(0);
    whole.seconds = parts.iter().map(|part| part.manifest.seconds).sum();
    (whole.peak_memory, whole.overrides, whole.claims) = (None, Vec::new(), Vec::new());
    let seeds: BTreeSet<u64> = parts.iter().flat_map(|part| part.manifest.seeds.iter().copied()).collect();
    whole.seeds = seeds.into_iter().collect();
    let (mut series, mut runs, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    let mut metrics: Vec<String> = Vec::new();
    for name in parts.iter().flat_map(|part| &part.curves.metrics) {
        if !metrics.contains(name) {
            metrics.push(name.clone());
        }
    }
    (whole.metrics, whole.figures) = (Vec::new(), Vec::new());
    for part in parts {
        let first = series.len();
        series.extend(part.manifest.series.iter().map(|one| of_folder(one, &part.name)));
        runs.extend(part.manifest.runs.iter().cloned().map(|mut run| {
            run.series += first;
            run
        }));
        let places: Vec<Option<usize>> =
            metrics.iter().map(|name| part.curves.metrics.iter().position(|own| own == name)).collect();
        let value = |row: &CurveRow, place: &Option<usize>| {
            place.and_then(|place| row.values.get(place).copied()).unwrap_or(f64::NAN)
        };
        rows.extend(part.curves.rows.iter().map(|row| CurveRow {
            series: row.series + first,
            values: places.iter().map(|place| value(row, place)).collect(),
            ..row.clone()
        }));
        for metric in &part.manifest.metrics {
            if whole.metrics.iter().all(|known| known.name != metric.name) {
                whole.metrics.push(metric.clone());
            }
        }
        // The topology is drawn while an experiment runs, into its own folder.
        for figure in part.manifest.figures.iter().filter(|figure| figure.kind != "graphs") {
            check_name("a figure's name", &figure.name)?;
            if whole.figures.iter().all(|known| known.name != figure.name) {
                whole.figures.push(figure.clone());
            }
        }
    }
    (whole.series, whole.runs) = (series, runs);
    Ok((whole, Curves { metrics, rows }))
}

/// The series with its folder; what was its label is its kind here, so that it keeps its colour in all
/// folders, and the dashes tell the folders apart.
fn of_folder(series: &Series, folder: &str) -> Series {
    let mut one = series.clone();
    one.algorithm = series.label.clone();
    one.name = format!("{} · {folder}", series.name);
    one.label = words::labelled(&one, |_| false);
    one.settings.insert(FOLDER.into(), folder.into());
    one.swept.push(FOLDER.into());
    one
}

/// What the same series came to in each folder, and how much more that is than in the first.
fn differences(parts: &[Part]) -> Option<Extra> {
    let mut head = vec!["series".to_string(), "what".into()];
    head.extend(parts.iter().map(|part| part.name.clone()));
    head.extend(parts[1..].iter().map(|part| format!("{} − {}", part.name, parts[0].name)));
    let mut rows = vec![head];
    let mut measures = table::main_metrics(&parts[0].manifest);
    measures.extend(["iterations", "seconds", "bytes"].map(String::from));
    let labels = parts[0].manifest.series.iter().map(|series| &series.label);
    for (at, label) in labels.clone().enumerate() {
        // Of series that are called alike, the first goes with the first, the second with the second.
        let before = labels.clone().take(at).filter(|earlier| *earlier == label).count();
        let place = |part: &Part| {
            let alike = part.manifest.series.iter().enumerate().filter(|(_, series)| series.label == *label);
            alike.map(|(place, _)| place).nth(before)
        };
        let Some(places) = parts.iter().map(place).collect::<Option<Vec<usize>>>() else { continue };
        for measure in &measures {
            let ends: Vec<BTreeMap<u64, f64>> =
                parts.iter().zip(&places).map(|(part, at)| endings(part, *at, measure)).collect();
            let mut row = vec![label.clone(), words::heading(&parts[0].manifest, measure)];
            row.extend(ends.iter().map(|ends| shown(measure, ends.values().copied())));
            row.extend(ends[1..].iter().map(|ends_here| difference(measure, &ends[0], ends_here)));
            rows.push(row);
        }
    }
    let title = "Differences (mean ± standard deviation over seeds; seed by seed where both have it)";
    (rows.len() > 1).then(|| Extra::new(title, Body::Table(rows)))
}

/// What the runs of a series end with, by their seeds; those that diverged have no value.
fn endings(part: &Part, series: usize, measure: &str) -> BTreeMap<u64, f64> {
    let runs = part.manifest.runs.iter().filter(|run| run.series == series && run.outcome != "diverged");
    let ends = runs.map(|run| (run.seed, average::ending(run, measure)));
    ends.filter(|(_, value)| value.is_finite()).collect()
}

/// Mean and deviation in the measure's own unit.
fn shown(measure: &str, values: impl Iterator<Item = f64>) -> String {
    let values: Vec<f64> = values.collect();
    if values.is_empty() {
        return "–".into();
    }
    let (mean, deviation) = average::mean_sd(&values);
    match measure {
        "seconds" | "bytes" => words::quantity(measure, mean),
        _ => words::mean_and_deviation(mean, deviation),
    }
}

/// The second less the first, over the seeds that both have, else of their means.
fn difference(measure: &str, first: &BTreeMap<u64, f64>, second: &BTreeMap<u64, f64>) -> String {
    if first.is_empty() || second.is_empty() {
        return "–".into();
    }
    let pairs = || second.iter().filter_map(|(seed, value)| Some((*first.get(seed)?, *value)));
    let mean = |ends: &BTreeMap<u64, f64>| ends.values().sum::<f64>() / ends.len() as f64;
    // A part is one of what it is compared with: where seeds are paired, of the same seeds.
    let (values, from) = match pairs().count() {
        0 => (vec![mean(second) - mean(first)], mean(first)),
        count => (pairs().map(|(a, b)| b - a).collect(), pairs().map(|(a, _)| a).sum::<f64>() / count as f64),
    };
    let by = average::mean_sd(&values).0;
    let sign = if by > 0.0 { "+" } else { "" };
    let part = match from != 0.0 && by != 0.0 {
        true => format!(" ({sign}{} %)", percent(100.0 * by / from.abs())),
        false => String::new(),
    };
    format!("{sign}{}{part}", shown(measure, values.into_iter()))
}

/// Two digits of a small part, whole numbers of a large one.
fn percent(part: f64) -> String {
    let decimals = (1 - part.abs().log10().floor() as i32).clamp(0, 3) as usize;
    format!("{part:.decimals$}")
}

/// Settings, versions and machines that are not the same in all folders.
fn settings(parts: &[Part]) -> Option<Extra> {
    let of_series = |part: &Part, key: &str| {
        let values = part.manifest.series.iter().filter_map(|series| series.settings.get(key));
        let mut kept: Vec<String> = Vec::new();
        for value in values.map(Value::to_string) {
            if !kept.contains(&value) {
                kept.push(value);
            }
        }
        if kept.is_empty() { "–".to_string() } else { kept.join(", ") }
    };
    let series = parts.iter().flat_map(|part| &part.manifest.series);
    let keys: BTreeSet<&str> = series.flat_map(|series| series.settings.keys().map(String::as_str)).collect();
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: &str, values: Vec<String>| {
        if values.iter().any(|value| *value != values[0]) {
            rows.push(std::iter::once(name.to_string()).chain(values).collect());
        }
    };
    for key in keys {
        row(key, parts.iter().map(|part| of_series(part, key)).collect());
    }
    type Get = fn(&Manifest) -> String;
    let others: [(&str, Get); 6] = [
        ("experiment", |m| m.name.clone()),
        ("seeds", |m| m.seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
        ("overrides", |m| m.overrides.join(", ")),
        ("version", |m| m.version.clone()),
        ("CPU", |m| m.machine.cpu.clone()),
        ("threads", |m| m.machine.threads.to_string()),
    ];
    for (name, get) in others {
        row(name, parts.iter().map(|part| get(&part.manifest)).collect());
    }
    let head = std::iter::once("setting".to_string()).chain(parts.iter().map(|part| part.name.clone()));
    let all: Vec<Vec<String>> = std::iter::once(head.collect()).chain(rows).collect();
    let title = "Settings that differ";
    (all.len() > 1).then(|| Extra::new(title, Body::Table(all)))
}
