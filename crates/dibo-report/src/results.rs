//! What a run leaves behind: a folder with `manifest.json` (settings, machine, outcome of each run) and the
//! curves as `curves.csv` and `curves.parquet`. Reports are made from this folder alone.
use anyhow::{Context, Result, bail, ensure};
use parquet::basic::{Compression, Repetition, Type as Physical};
use parquet::data_type::{DoubleType, Int64Type};
use parquet::file::{properties::WriterProperties, writer::SerializedFileWriter};
use parquet::schema::types::Type;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Columns of the curves before the metrics.
pub const COLUMNS: [&str; 7] = ["series", "seed", "iteration", "seconds", "bytes", "gradients", "products"];

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
    /// `finished`, `reached`, `diverged`, `stopped` or `broken`.
    pub outcome: String,
    /// Why a broken run was stopped.
    #[serde(default)]
    pub reason: Option<String>,
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
    /// What else is known of its memory.
    #[serde(default)]
    pub memory: Memory,
    /// Last value of each metric, where it has one.
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
pub struct Memory {
    /// The state's vectors in words, such as `3 × 4070600 (y z, ty tz, dy dz) + 2 × 54000 (x, dx) numbers of
    /// 4 bytes`.
    pub vectors: String,
    /// Bytes of the data, 0 where there is none.
    pub data_bytes: u64,
    /// Most bytes that were allocated at once during the run; 0 where other runs went on beside it.
    pub peak_bytes: u64,
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
    /// Column on the horizontal axis: `iteration`, `seconds`, `bytes`, `gradients`, or `setting:KEY` for a
    /// swept setting (then each point is one series' last value).
    #[serde(default = "iteration")]
    pub x: String,
    /// Column on the vertical axis: a metric, or for `kind = "bar"` also `seconds`, `bytes`, `state_bytes`,
    /// `peak_bytes`, `iterations`, `bytes_per_iteration`; with `min:` or `mean:` before a metric, its
    /// smallest value or its mean along the run.
    pub y: String,
    /// A second metric drawn dotted on the right axis.
    #[serde(default)]
    pub y2: Option<String>,
    /// `line` (mean and standard deviation over seeds), `bar` (one bar per series with its deviation),
    /// `points`, or `graphs` (the topology picture).
    #[serde(default = "line")]
    pub kind: String,
    /// Logarithmic axes, any of `x` and `y`, such as `"xy"`.
    #[serde(default)]
    pub log: String,
    /// Only series whose settings have these values; `"0.15|0.2"` allows several, and an empty one stands for
    /// a setting that is not given.
    #[serde(default)]
    pub only: BTreeMap<String, String>,
    /// One panel for each value of this setting, side by side.
    #[serde(default)]
    pub panels: Option<String>,
    /// First iteration shown, where the beginning would flatten the rest.
    #[serde(default)]
    pub from: usize,
}

impl Figure {
    /// The mean curve of a metric against iterations.
    pub fn line(y: &str, log: &str) -> Self {
        Figure {
            name: y.replace('_', "-"),
            title: String::new(),
            x: iteration(),
            y: y.into(),
            y2: None,
            kind: line(),
            log: log.into(),
            only: BTreeMap::new(),
            panels: None,
            from: 0,
        }
    }
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

/// Writes a file so that a reader sees the old content or the new, never a part: to a temporary name, then
/// renamed.
pub fn write_file(path: &Path, content: &[u8]) -> Result<()> {
    write_file_with(path, |file| file.write_all(content))
}

/// The same for content that is written piece by piece.
pub fn write_file_with(
    path: &Path,
    write: impl FnOnce(&mut std::fs::File) -> std::io::Result<()>,
) -> Result<()> {
    let name = path.file_name().with_context(|| format!("{} is not a file name", path.display()))?;
    let mut temporary = name.to_os_string();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(temporary);
    let written = std::fs::File::create(&temporary).and_then(|mut file| write(&mut file));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written.with_context(|| format!("cannot write {}", temporary.display()))?;
    std::fs::rename(&temporary, path).with_context(|| format!("cannot write {}", path.display())).inspect_err(
        |_| {
            let _ = std::fs::remove_file(&temporary);
        },
    )
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
        let manifest: Manifest =
            serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))?;
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

impl Curves {
    /// The curves as text: one line per row, an empty field where a metric has no value.
    pub fn write_csv(&self, path: &Path) -> Result<()> {
        let fail = || format!("cannot write {}", path.display());
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer
            .write_record(COLUMNS.iter().copied().chain(self.metrics.iter().map(String::as_str)))
            .with_context(fail)?;
        // `{:?}` is the shortest text that reads back to the same bits, with an exponent where that is
        // shorter.
        let number = |value: f64| if value.is_nan() { String::new() } else { format!("{value:?}") };
        for row in &self.rows {
            let mut fields = vec![
                row.series.to_string(),
                row.seed.to_string(),
                row.iteration.to_string(),
                number(row.seconds),
            ];
            fields.extend([row.bytes, row.gradients, row.products].map(|count| count.to_string()));
            fields.extend(row.values.iter().map(|&value| number(value)));
            writer.write_record(&fields).with_context(fail)?;
        }
        let text = writer.into_inner().map_err(|error| error.into_error()).with_context(fail)?;
        write_file(path, &text)
    }

    /// Reads what `write_csv` wrote; an error names the file, the line and the column.
    pub fn read_csv(path: &Path) -> Result<Curves> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        // A cut inside the last number would else pass unseen.
        ensure!(text.ends_with('\n'), "{} is damaged: its end is missing", path.display());
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let damaged = || format!("{} is damaged", path.display());
        let header = reader.headers().with_context(damaged)?.clone();
        ensure!(
            header.len() >= COLUMNS.len() && COLUMNS.iter().zip(&header).all(|(want, have)| *want == have),
            "{} is damaged: its first line must begin with {}",
            path.display(),
            COLUMNS.join(",")
        );
        let metrics: Vec<String> = header.iter().skip(COLUMNS.len()).map(String::from).collect();
        let mut rows = Vec::new();
        for (index, record) in reader.records().enumerate() {
            let record = record.with_context(damaged)?;
            let place = |column: usize| {
                format!("{} is damaged: line {}, column {}", path.display(), index + 2, &header[column])
            };
            let count = |column: usize| record[column].parse::<u64>().with_context(|| place(column));
            let number = |column: usize| match &record[column] {
                "" => Ok(f64::NAN),
                text => text.parse::<f64>().with_context(|| place(column)),
            };
            rows.push(CurveRow {
                series: count(0)? as usize,
                seed: count(1)?,
                iteration: count(2)? as usize,
                seconds: number(3)?,
                bytes: count(4)?,
                gradients: count(5)?,
                products: count(6)?,
                values: (COLUMNS.len()..header.len()).map(number).collect::<Result<_>>()?,
            });
        }
        Ok(Curves { metrics, rows })
    }

    /// The same table as a Parquet file (Snappy); a metric without value is null.
    pub fn write_parquet(&self, path: &Path) -> Result<()> {
        write_file(path, &self.parquet().with_context(|| format!("cannot write {}", path.display()))?)
    }

    fn parquet(&self) -> Result<Vec<u8>> {
        let column = |name: &str, kind, repetition| -> Result<Arc<Type>> {
            Ok(Arc::new(Type::primitive_type_builder(name, kind).with_repetition(repetition).build()?))
        };
        let mut fields = Vec::new();
        for name in COLUMNS {
            let kind = if name == "seconds" { Physical::DOUBLE } else { Physical::INT64 };
            fields.push(column(name, kind, Repetition::REQUIRED)?);
        }
        for name in &self.metrics {
            fields.push(column(name, Physical::DOUBLE, Repetition::OPTIONAL)?);
        }
        let schema = Arc::new(Type::group_type_builder("curves").with_fields(fields).build()?);
        let properties = Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).build());
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties)?;
        let mut group = writer.next_row_group()?;
        let integers: [fn(&CurveRow) -> i64; 6] = [
            |row| row.series as i64,
            |row| row.seed as i64,
            |row| row.iteration as i64,
            |row| row.bytes as i64,
            |row| row.gradients as i64,
            |row| row.products as i64,
        ];
        let mut integers = integers.iter();
        let mut index = 0;
        while let Some(mut column) = group.next_column()? {
            if index >= COLUMNS.len() {
                let values =
                    self.rows.iter().filter_map(|row| row.values.get(index - COLUMNS.len()).copied());
                let present: Vec<f64> = values.clone().filter(|value| !value.is_nan()).collect();
                let levels: Vec<i16> = values.map(|value| i16::from(!value.is_nan())).collect();
                column.typed::<DoubleType>().write_batch(&present, Some(&levels), None)?;
            } else if COLUMNS[index] == "seconds" {
                let values: Vec<f64> = self.rows.iter().map(|row| row.seconds).collect();
                column.typed::<DoubleType>().write_batch(&values, None, None)?;
            } else if let Some(get) = integers.next() {
                let values: Vec<i64> = self.rows.iter().map(get).collect();
                column.typed::<Int64Type>().write_batch(&values, None, None)?;
            }
            column.close()?;
            index += 1;
        }
        group.close()?;
        Ok(writer.into_inner()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};

    fn folder(name: &str) -> std::path::PathBuf {
        let dir = std::env::temp_dir().join(format!("dibo-results-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn curves() -> Curves {
        let row = |iteration, value| CurveRow {
            series: 0,
            seed: u64::MAX,
            iteration,
            seconds: 0.1 * iteration as f64,
            bytes: 7,
            gradients: 8,
            products: 9,
            values: vec![value, 1e-300],
        };
        Curves {
            metrics: vec!["loss".into(), "a, \"odd\" name".into()],
            rows: vec![row(0, f64::INFINITY), row(10, 0.1 + 0.2)],
        }
    }

    #[test]
    fn curves_survive_a_round_trip() {
        let dir = folder("trip");
        let mut written = curves();
        written.write_csv(&dir.join("curves.csv")).unwrap();
        assert_eq!(Curves::read_csv(&dir.join("curves.csv")).unwrap(), written);
        written.rows[0].values[0] = f64::NAN;
        written.write_csv(&dir.join("curves.csv")).unwrap();
        assert!(Curves::read_csv(&dir.join("curves.csv")).unwrap().rows[0].values[0].is_nan());
        written.write_parquet(&dir.join("curves.parquet")).unwrap();
        let reader =
            SerializedFileReader::new(std::fs::File::open(dir.join("curves.parquet")).unwrap()).unwrap();
        let rows: Vec<String> =
            reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
        assert_eq!(rows.len(), 2);
        assert!(rows[0].contains("loss: null") && rows[1].contains("iteration: 10"), "{rows:?}");
        Curves::default().write_parquet(&dir.join("empty.parquet")).unwrap();
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn damage_gives_one_clear_line() {
        let dir = folder("damage");
        let path = dir.join("curves.csv");
        curves().write_csv(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        for (damage, says) in [
            (text.replace(",7,", ",seven,"), "column bytes"),
            (text.replace("seed", "sead"), "first line"),
            (text[..text.len() - 3].into(), "its end is missing"),
        ] {
            std::fs::write(&path, damage).unwrap();
            let error = format!("{:#}", Curves::read_csv(&path).unwrap_err());
            assert!(error.contains("curves.csv") && error.contains(says) && !error.contains('\n'), "{error}");
        }
        std::fs::write(dir.join("manifest.json"), "{\"version\": 3}").unwrap();
        let error = format!("{:#}", Manifest::read(&dir).unwrap_err());
        assert!(error.contains("manifest.json is damaged"), "{error}");
        assert!(
            format!("{:#}", Manifest::read(&dir.join("none")).unwrap_err()).contains("a results folder?")
        );
        std::fs::remove_dir_all(dir).unwrap();
    }
}
