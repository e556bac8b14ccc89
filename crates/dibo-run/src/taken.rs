//! What a run leaves to take home, for whoever looks at it: tables of the report, and the files of the
//! setting that was chosen put in front.
use anyhow::{Context, Result};
use dibo_report::report::{Body, Extra};
use dibo_report::results::Manifest;
use std::collections::BTreeMap;
use std::path::Path;

/// Rows that a report shows.
const SHOWN: usize = 20;

/// The file that says which setting was chosen.
const CHOSEN: &str = "chosen.txt";

/// Where a setting of these results left its files.
pub fn folder(out: &Path, series: usize) -> std::path::PathBuf {
    out.join("taken").join(series.to_string())
}

/// Copies the files of one setting, or those that it left when it was done again, to the top of a results
/// folder.
pub fn put_in_front(out: &Path, series: usize, again: Option<&Path>) -> Result<()> {
    let folder = again.map_or_else(|| folder(out, series), |again| folder(again, 0));
    let what = || format!("cannot read {}", folder.display());
    for entry in std::fs::read_dir(&folder).with_context(what)? {
        let from = entry.with_context(what)?.path();
        let to = out.join(from.file_name().unwrap_or_default());
        std::fs::copy(&from, &to).with_context(|| format!("cannot write {}", to.display()))?;
    }
    let file = out.join("taken").join(CHOSEN);
    std::fs::write(&file, series.to_string()).with_context(|| format!("cannot write {}", file.display()))
}

type Lines = Vec<Vec<String>>;

/// The head and the lines of a CSV file, if it is there.
fn lines(file: &Path, most: usize) -> Result<Option<Lines>> {
    if !file.exists() {
        return Ok(None);
    }
    let what = || format!("cannot read {}", file.display());
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_path(file).with_context(what)?;
    let lines = reader.records().take(most).map(|r| Ok(r?.iter().map(String::from).collect()));
    lines.collect::<Result<Lines>>().with_context(what).map(Some)
}

/// How many labels are called wrong in all and by owner, in words.
pub fn summary(out: &Path) -> Result<String> {
    let Some(owners) = lines(&out.join("owners.csv"), usize::MAX)? else { return Ok(String::new()) };
    let number = |line: &[String], at: usize| line.get(at).and_then(|v| v.parse::<f64>().ok()).unwrap_or(0.0);
    let (mut rows, mut suspicious) = (0.0, 0.0);
    for line in owners.iter().skip(1) {
        rows += number(line, 1);
        suspicious += number(line, 3);
    }
    let mut text = format!(
        "{suspicious:.0} of {rows:.0} labels look wrong ({:.1} %).\n",
        100.0 * suspicious / f64::max(rows, 1.0)
    );
    for line in owners.iter().skip(1).take(SHOWN) {
        let share = 100.0 * number(line, 4);
        text += &format!("  {}: {} of {} rows ({share:.1} %)\n", line[0], line[3], line[1]);
    }
    if owners.len() > SHOWN + 1 {
        text += &format!("  … and {} more owners in owners.csv\n", owners.len() - SHOWN - 1);
    }
    Ok(text)
}

/// The setting whose files are shown: the chosen one, else the first that left any.
pub fn shown(out: &Path, manifest: &Manifest) -> Option<usize> {
    let taken = out.join("taken");
    let chosen = std::fs::read_to_string(taken.join(CHOSEN)).ok().and_then(|s| s.trim().parse().ok());
    chosen.or_else(|| (0..manifest.series.len()).find(|s| folder(out, *s).join("labels.csv").exists()))
}

/// The parts of a report that show what was found.
pub fn extras(out: &Path, manifest: &Manifest) -> Result<Vec<Extra>> {
    let Some(series) = shown(out, manifest) else { return Ok(Vec::new()) };
    // What stands in front is what was taken; it may have been done again with all checked rows.
    let folder = if out.join("labels.csv").exists() { out.to_path_buf() } else { folder(out, series) };
    let label = manifest.series.get(series).map_or("", |s| s.label.as_str());
    let mut extras = Vec::new();
    let mut add = |title: String, table: Option<Lines>| {
        extras.extend(table.filter(|t| t.len() > 1).map(|t| Extra { title, body: Body::Table(t) }));
    };
    let labels = lines(&folder.join("labels.csv"), usize::MAX)?;
    let most: Option<Lines> = labels.as_ref().map(|l| l.iter().take(SHOWN + 1).cloned().collect());
    add(format!("{label}: the most suspicious rows"), most);
    add(format!("{label}: labels by owner"), lines(&folder.join("owners.csv"), 201)?);
    add(format!("{label}: given labels (columns) and suggested ones (rows)"), labels.map(|l| confusion(&l)));
    Ok(extras)
}

/// How often each label was given where each was suggested.
fn confusion(labels: &Lines) -> Lines {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut names = std::collections::BTreeSet::new();
    for line in labels.iter().skip(1).filter(|l| l.len() > 3) {
        *counts.entry((&line[3], &line[2])).or_default() += 1;
        names.extend([line[2].as_str(), line[3].as_str()]);
    }
    let names: Vec<&str> = names.into_iter().take(SHOWN).collect();
    let mut table =
        vec![std::iter::once("suggested").chain(names.iter().copied()).map(String::from).collect()];
    for suggested in &names {
        let count = |given: &&str| counts.get(&(*suggested, *given)).copied().unwrap_or(0).to_string();
        table.push(std::iter::once(suggested.to_string()).chain(names.iter().map(count)).collect());
    }
    table
}
