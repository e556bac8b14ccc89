//! What a run leaves behind: a folder with `manifest.json` (settings, machine, outcome of each run) and the
//! curves as `curves.csv` and `curves.parquet`. Reports are made from this folder alone.
mod curves;
mod figure;
mod metric;
pub mod store;
mod table;
mod value;

use anyhow::{Context, Result, bail};
pub use curves::{COLUMNS, CurveRow, Curves};
pub use figure::Figure;
pub use metric::MetricInfo;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
pub use store::{
    Folder, Kept, check_name, seal, seal_with, unseal, verify, write_checksums, write_file, write_file_with,
};
pub use table::{Column, write_table};
pub use value::Value;

/// What a manifest means by its keys: 2 since settings are typed.
pub const FORMAT: u32 = 2;

/// Everything about an experiment but its curves; `manifest.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`]; 0 in manifests from before there was one.
    #[serde(default)]
    pub format: u32,
    /// Version of dibo.
    pub version: String,
    /// The commit that it was built of, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The command line, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
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
    /// Seconds from start to end, metrics and files included; of all sittings, if it was stopped in between.
    pub seconds: f64,
    /// Peak memory of the process in bytes, where the system tells.
    pub peak_memory: Option<u64>,
    /// Columns of the curves after the fixed ones, with the words for readers.
    pub metrics: Vec<MetricInfo>,
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
    /// The device that runs were made on, if it was not the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

/// One setting of an experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// What the method is called, such as `FAB`.
    pub name: String,
    /// For legends and tables: the name and what is swept, such as `FAB λ=60`.
    pub label: String,
    /// Registry name of the algorithm, such as `fab`.
    pub algorithm: String,
    /// Every setting by its dotted key, such as `graph.nu` or `algorithm.eta_x`.
    pub settings: BTreeMap<String, Value>,
    /// Keys whose values differ between series.
    pub swept: Vec<String>,
    /// Warnings that were printed before the run.
    #[serde(default)]
    pub warnings: Vec<String>,
}

impl Series {
    /// A setting in words; empty if it is not given.
    pub fn words(&self, key: &str) -> String {
        self.settings.get(key).map(Value::words).unwrap_or_default()
    }
}

/// How one run ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    /// Index into `series`.
    pub series: usize,
    /// Its seed.
    pub seed: u64,
    /// `finished`, `reached`, `diverged`, `stopped` or `broken`.
    pub outcome: String,
    /// Why a broken run was stopped.
    #[serde(default)]
    pub reason: Option<String>,
    /// Iterations done.
    pub iterations: usize,
    /// The evaluation whose state was kept, where it is not the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<usize>,
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
    /// What else is known of its memory.
    #[serde(default)]
    pub memory: MemoryUse,
    /// Value of each metric at the end, where it has one: of the state that was kept.
    pub last: BTreeMap<String, f64>,
    /// Smallest value of each metric over all evaluations.
    #[serde(default)]
    pub smallest: BTreeMap<String, f64>,
    /// Mean of each metric over all evaluations.
    #[serde(default)]
    pub mean: BTreeMap<String, f64>,
}

/// The memory of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// The state's vectors in words, such as `3 × 4070600 (y z, ty tz, dy dz) + 2 × 54000 (x, dx) numbers of
    /// 4 bytes`.
    pub vectors: String,
    /// Bytes of the data, 0 where there is none.
    pub data_bytes: u64,
    /// Most bytes that were allocated at once during the run; 0 where other runs went on beside it.
    pub peak_bytes: u64,
}

impl Manifest {
    /// Writes `manifest.json` into the folder.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let path = dir.join("manifest.json");
        let mut text =
            serde_json::to_string_pretty(self).with_context(|| format!("cannot write {}", path.display()))?;
        text.push('\n');
        write_file(&path, text.as_bytes())
    }

    /// Reads `manifest.json` from the folder and checks that its parts fit each other.
    pub fn read(dir: &Path) -> Result<Manifest> {
        let path = dir.join("manifest.json");
        let text = std::fs::read_to_string(&path).with_context(|| {
            format!("cannot read {}; is {} a results folder?", path.display(), dir.display())
        })?;
        let damaged = || format!("{} is damaged", path.display());
        /// What can be read of a manifest of any format.
        #[derive(Deserialize)]
        struct Age {
            #[serde(default)]
            format: u32,
            version: String,
        }
        let age: Age = serde_json::from_str(&text).with_context(damaged)?;
        if age.format != FORMAT {
            bail!(
                "{} was written by dibo {} in format {}, and this one reads format {FORMAT}; `dibo run` with \
                its experiment file writes it anew",
                path.display(),
                age.version,
                age.format
            );
        }
        let manifest: Manifest = serde_json::from_str(&text).with_context(damaged)?;
        if let Some(run) = manifest.runs.iter().find(|run| run.series >= manifest.series.len()) {
            bail!(
                "{} is damaged: a run names series {} but there are {}",
                path.display(),
                run.series,
                manifest.series.len()
            );
        }
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_manifest_gives_one_clear_line() {
        let dir = std::env::temp_dir().join(format!("dibo-manifest-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        // Settings were text once: what a judge would read out of them is nothing.
        std::fs::write(dir.join("manifest.json"), "{\"version\": \"0.1.0\", \"runs\": []}").unwrap();
        let error = format!("{:#}", Manifest::read(&dir).unwrap_err());
        assert!(error.contains("written by dibo 0.1.0 in format 0") && error.contains("dibo run"), "{error}");
        std::fs::write(dir.join("manifest.json"), "{\"version\": 3}").unwrap();
        let error = format!("{:#}", Manifest::read(&dir).unwrap_err());
        assert!(error.contains("manifest.json is damaged") && !error.contains('\n'), "{error}");
        let error = format!("{:#}", Manifest::read(&dir.join("none")).unwrap_err());
        assert!(error.contains("a results folder?"), "{error}");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
