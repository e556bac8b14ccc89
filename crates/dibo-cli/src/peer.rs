//! Other programs on the same rows: all data in one place, which is more than dibo's agents have.
use anyhow::{Context, Result, bail, ensure};
use dibo::problem::learning::Cleaning;
use dibo::rows::{Real, Threads};
use dibo_report::report::{Body, Extra};
use dibo_run::door::{Place, Ready, Visit, open};
use dibo_run::{Experiment, Setting, fold, say, stop};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What a peer writes of itself.
#[derive(Deserialize)]
struct Said {
    name: String,
    test_accuracy: Option<f64>,
    seconds: f64,
}

/// What came out of a peer for all seeds.
#[derive(Serialize, Deserialize)]
struct Peer {
    name: String,
    /// What tells these rows from others of the experiment, such as `checked = 10`; empty if there are none.
    #[serde(default)]
    case: String,
    auc: Vec<f64>,
    test_accuracy: Vec<f64>,
    seconds: Vec<f64>,
}

const FILE: &str = "peers.json";

/// A new folder for the rows that a program gets, removed when it has ended: arrays are large, and made again
/// in no time.
struct Rows(PathBuf);

impl Rows {
    /// Under a name that nothing has in the results folder, so that nothing of a user's is removed with it.
    fn new(out: &Path) -> Result<Rows> {
        for number in 0..1000 {
            let folder = out.join(format!(".peer-{}-{number}", std::process::id()));
            match std::fs::create_dir(&folder) {
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                made => {
                    made.with_context(|| format!("cannot make {}", folder.display()))?;
                    return Ok(Rows(folder));
                }
            }
        }
        bail!("--peer: {} has a thousand folders .peer-*; remove them", out.display())
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Puts the rows of an opened setting into a folder.
struct Pool<'a>(&'a Path);

impl Visit for Pool<'_> {
    type Out = Vec<Option<bool>>;

    fn visit<T: Real>(self, ready: Ready<'_, T>) -> Result<Self::Out> {
        let Some(pool) = &ready.finale.pool else {
            bail!("--peer: this problem has no rows of numbers to compare on")
        };
        pool(self.0)
    }
}

/// What is swept of a setting's problem: settings that share it have the same rows.
fn case(setting: &Setting) -> String {
    let series = &setting.series;
    let swept = series.swept.iter().filter_map(|key| Some((key, key.strip_prefix("problem.")?)));
    Vec::from_iter(swept.map(|(key, name)| format!("{name} = {}", series.words(key)))).join(", ")
}

/// Runs other programs on the rows of an experiment, seed by seed; where its settings have different rows, on
/// all of them.
pub fn compare(experiment: &Experiment, peers: &[String], out: &Path) -> Result<()> {
    let mut firsts: Vec<(String, &Setting)> = Vec::new();
    for setting in &experiment.settings {
        let case = case(setting);
        if firsts.iter().all(|(known, _)| *known != case) {
            firsts.push((case, setting));
        }
    }
    let mut results = Vec::new();
    for command in peers {
        for (case, setting) in firsts.iter().take_while(|_| !stop::asked()) {
            let peer = on_rows(command, case, setting, experiment, out)?;
            say!("{}", fold(&words(&peer)));
            results.push(peer);
        }
    }
    if !results.is_empty() {
        let file = out.join(FILE);
        let text = serde_json::to_string_pretty(&results)?;
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// A program on the rows of one setting.
fn on_rows(
    command: &str,
    case: &str,
    setting: &Setting,
    experiment: &Experiment,
    out: &Path,
) -> Result<Peer> {
    let (auc, test_accuracy, seconds) = (Vec::new(), Vec::new(), Vec::new());
    let mut peer = Peer { name: command.into(), case: case.into(), auc, test_accuracy, seconds };
    for seed in experiment.seeds.iter().take_while(|_| !stop::asked()) {
        let (folder, threads) = (Rows::new(out)?, Threads::one());
        let place = Place::new(&experiment.folder, &threads);
        let wrong = open(setting, *seed, place)?.visit(Pool(&folder.0))?;
        let (said, scores) = run(command, &folder.0, wrong.len())?;
        peer.name = said.name;
        if wrong.contains(&Some(true)) {
            let known = scores.into_iter().zip(wrong).filter_map(|(score, wrong)| Some((score, wrong?)));
            peer.auc.push(Cleaning::of(known.collect()).auc);
        }
        peer.test_accuracy.extend(said.test_accuracy.map(|a| if a <= 1.0 { 100.0 * a } else { a }));
        peer.seconds.push(said.seconds);
    }
    Ok(peer)
}

/// One run of a program: what it says of itself, and its score of each row.
fn run(command: &str, folder: &Path, rows: usize) -> Result<(Said, Vec<f64>)> {
    let mut parts = command.split_whitespace();
    let program = parts.next().context("--peer is empty; it must be a command")?;
    let status = std::process::Command::new(program)
        .args(parts)
        .arg(folder)
        .stdout(std::process::Stdio::null())
        .status()
        .with_context(|| format!("--peer: cannot start {program}"))?;
    ensure!(status.success(), "--peer: {command} ended with {status}");
    let read = |name: &str| {
        std::fs::read_to_string(folder.join(name))
            .with_context(|| format!("--peer: {command} left no {name}"))
    };
    let said: Said = serde_json::from_str(&read("peer.json")?).context("--peer: peer.json")?;
    let text = read("peer.csv")?;
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let head = reader.headers().context("--peer: peer.csv")?.clone();
    let column = |name: &str| {
        head.iter().position(|h| h == name).with_context(|| format!("--peer: peer.csv has no column {name}"))
    };
    let (row, score) = (column("row")?, column("label_score")?);
    let mut scores = vec![f64::NAN; rows];
    for record in reader.records() {
        let record = record.context("--peer: peer.csv")?;
        let number = |at: usize| record.get(at).and_then(|v| v.parse::<f64>().ok());
        let (Some(row), Some(score)) = (number(row), number(score)) else {
            bail!("--peer: peer.csv: a row or a score is no number");
        };
        *scores.get_mut(row as usize).with_context(|| format!("--peer: there is no row {row}"))? = score;
    }
    ensure!(scores.iter().all(|s| !s.is_nan()), "--peer: peer.csv does not score every row");
    Ok((said, scores))
}

fn mean(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0).max(1.0);
    (mean, variance.sqrt())
}

/// A number with its deviation over seeds.
fn shown(values: &[f64], digits: usize) -> String {
    match values.len() {
        0 => "–".into(),
        1 => format!("{:.digits$}", values[0]),
        _ => {
            let (mean, deviation) = mean(values);
            format!("{mean:.digits$} ± {deviation:.digits$}")
        }
    }
}

fn words(peer: &Peer) -> String {
    let case = if peer.case.is_empty() { String::new() } else { format!(" ({})", peer.case) };
    format!(
        "{}{case} with all rows in one place: AUC {}, test accuracy {} %, {} s",
        peer.name,
        shown(&peer.auc, 4),
        shown(&peer.test_accuracy, 2),
        shown(&peer.seconds, 1)
    )
}

/// The part of a report about other programs, if there were any.
pub fn extra(out: &Path) -> Result<Option<Extra>> {
    let file = out.join(FILE);
    let Ok(text) = std::fs::read_to_string(&file) else { return Ok(None) };
    let peers: Vec<Peer> =
        serde_json::from_str(&text).with_context(|| format!("cannot read {}", file.display()))?;
    let head = ["program", "rows", "AUC", "test accuracy, %", "seconds"].map(String::from).to_vec();
    let row = |p: &Peer| {
        let (auc, accuracy) = (shown(&p.auc, 4), shown(&p.test_accuracy, 2));
        vec![p.name.clone(), p.case.clone(), auc, accuracy, shown(&p.seconds, 1)]
    };
    let mut table: Vec<Vec<String>> = std::iter::once(head).chain(peers.iter().map(row)).collect();
    if peers.iter().all(|p| p.case.is_empty()) {
        table.iter_mut().for_each(|row| drop(row.remove(1)));
    }
    let title = "Other programs on the same rows, all in one place";
    Ok(Some(Extra::new(title, Body::Table(table))))
}
