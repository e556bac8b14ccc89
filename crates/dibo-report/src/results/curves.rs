//! The curves of all runs as a table: text and Parquet.
use super::write_file;
use anyhow::{Context, Result, ensure};
use parquet::basic::{Compression, Repetition, Type as Physical};
use parquet::data_type::{DoubleType, Int64Type};
use parquet::file::{properties::WriterProperties, writer::SerializedFileWriter};
use parquet::schema::types::Type;
use std::path::Path;
use std::sync::Arc;

/// Columns of the curves before the metrics.
pub const COLUMNS: [&str; 7] = ["series", "seed", "iteration", "seconds", "bytes", "gradients", "products"];

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
        std::fs::remove_dir_all(dir).unwrap();
    }
}
