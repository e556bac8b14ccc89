//! A table of a user's own rows as a Parquet file.
use super::write_file;
use anyhow::{Context, Result};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType};
use parquet::file::{properties::WriterProperties, writer::SerializedFileWriter};
use parquet::schema::types::Type;
use std::path::Path;
use std::sync::Arc;

/// So many texts are copied at a time.
const AT_A_TIME: usize = 4096;

/// One column.
pub enum Column<'a> {
    /// Words.
    Texts(Vec<&'a str>),
    /// Numbers.
    Numbers(Vec<f64>),
    /// Yes or no.
    Flags(Vec<bool>),
}

/// Writes named columns of one length (Snappy).
pub fn write_table(path: &Path, columns: &[(&str, Column<'_>)]) -> Result<()> {
    write_file(path, &encoded(columns).with_context(|| format!("cannot write {}", path.display()))?)
}

fn encoded(columns: &[(&str, Column<'_>)]) -> Result<Vec<u8>> {
    let field = |(name, column): &(&str, Column<'_>)| -> Result<Arc<Type>> {
        let (kind, logical) = match column {
            Column::Texts(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Column::Numbers(_) => (Physical::DOUBLE, None),
            Column::Flags(_) => (Physical::BOOLEAN, None),
        };
        let builder = Type::primitive_type_builder(name, kind).with_repetition(Repetition::REQUIRED);
        Ok(Arc::new(builder.with_logical_type(logical).build()?))
    };
    let fields = columns.iter().map(field).collect::<Result<_>>()?;
    let schema = Arc::new(Type::group_type_builder("table").with_fields(fields).build()?);
    let properties = Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties)?;
    let mut group = writer.next_row_group()?;
    for (_, column) in columns {
        let mut out = group.next_column()?.context("a column too many")?;
        match column {
            // Texts are copied for the writer, some at a time.
            Column::Texts(texts) => texts.chunks(AT_A_TIME).try_for_each(|texts| {
                let texts: Vec<ByteArray> = texts.iter().map(|t| ByteArray::from(*t)).collect();
                out.typed::<ByteArrayType>().write_batch(&texts, None, None).map(drop)
            })?,
            Column::Numbers(numbers) => {
                out.typed::<DoubleType>().write_batch(numbers, None, None).map(drop)?
            }
            Column::Flags(flags) => out.typed::<BoolType>().write_batch(flags, None, None).map(drop)?,
        }
        out.close()?;
    }
    group.close()?;
    Ok(writer.into_inner()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    #[test]
    fn comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.parquet");
        let columns = [
            ("id", Column::Texts(vec!["a", "ü"])),
            ("score", Column::Numbers(vec![0.5, -1e300])),
            ("wrong", Column::Flags(vec![true, false])),
        ];
        write_table(&file, &columns).unwrap();
        let reader = SerializedFileReader::new(std::fs::File::open(&file).unwrap()).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[1].get_string(0).unwrap(), "ü");
        assert_eq!(rows[1].get_double(1).unwrap(), -1e300);
        assert!(rows[0].get_bool(2).unwrap());
    }
}
