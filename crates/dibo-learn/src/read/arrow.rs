//! Parquet, batch by batch, and how arrays of Arrow become columns.
use super::table::{Part, Table, Value, line};
use super::{cannot, size};
use crate::samples::{ReadError, Roles, Samples};
use arrow_array::types::{
    Decimal128Type, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch, cast::AsArray};
use arrow_schema::{ArrowError, DataType, Schema};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::ParquetMetaData;
use std::fs::File;
use std::path::Path;

/// Rows of a batch where the reader decides.
const BATCH: usize = 4096;

/// A Parquet file.
pub(super) fn parquet(file: &Path, roles: &Roles) -> Result<Samples, ReadError> {
    let mut table = Table::new(file, roles, size(file)?)?;
    let input = File::open(file).map_err(|e| cannot(file, e))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(input).map_err(|e| cannot(file, e))?;
    ranges(builder.metadata(), size(file)?).map_err(|what| cannot(file, what))?;
    let used = columns(&mut table, builder.schema())?;
    let mask = ProjectionMask::roots(builder.parquet_schema(), used.iter().copied());
    let reader = builder.with_projection(mask).with_batch_size(BATCH).build();
    batches(file, table, &used, reader.map_err(|e| cannot(file, e))?)
}

/// All parts of the file lie in it: the decoder takes that for granted.
fn ranges(about: &ParquetMetaData, bytes: u64) -> Result<(), &'static str> {
    for group in about.row_groups() {
        for column in group.columns() {
            let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
            let end = u64::try_from(start).ok().zip(u64::try_from(column.compressed_size()).ok());
            if end.and_then(|(start, length)| start.checked_add(length)).is_none_or(|end| end > bytes) {
                return Err("it ends too early or its sizes are wrong");
            }
        }
    }
    Ok(())
}

/// The columns of a file; which of them are used.
pub(super) fn columns(table: &mut Table, schema: &Schema) -> Result<Vec<usize>, ReadError> {
    let mut used = Vec::new();
    for field in schema.fields() {
        let column = table.add(field.name())?;
        if table.part(column) != Part::Unused {
            used.push(column);
        }
    }
    table.check()?;
    Ok(used)
}

/// All batches of the used columns.
pub(super) fn batches(
    file: &Path,
    mut table: Table,
    used: &[usize],
    all: impl Iterator<Item = Result<RecordBatch, ArrowError>>,
) -> Result<Samples, ReadError> {
    let mut rows = 0;
    for batch in all {
        let batch = batch.map_err(|e| cannot(file, e).row(rows + 1))?;
        for (array, &column) in batch.columns().iter().zip(used) {
            each(array, &Some, array.len(), &mut |row, value| match value {
                Ok(value) => table.push(column, rows + row, value),
                Err(what) => Err(table.wrong(rows + row, column, what)),
            })?;
        }
        rows += batch.num_rows();
    }
    table.done(rows, true)
}

/// Takes a value, or what is wrong with it, in a row.
type Put<'p> = &'p mut dyn FnMut(usize, Result<Value, String>) -> Result<(), ReadError>;

/// All values of an array, whose places are picked by row.
fn each(
    array: &dyn Array,
    pick: &dyn Fn(usize) -> Option<usize>,
    rows: usize,
    put: Put,
) -> Result<(), ReadError> {
    macro_rules! all {
        ($array:ident => $value:expr) => {{
            let value = $value;
            for row in 0..rows {
                match pick(row).filter(|&at| $array.is_valid(at)) {
                    Some(at) => put(row, Ok(value(at)))?,
                    None => put(row, Ok(Value::Missing))?,
                }
            }
        }};
    }
    macro_rules! whole {
        ($kind:ty) => {{
            let array = array.as_primitive::<$kind>();
            all!(array => |at| Value::Whole(array.value(at).into()))
        }};
    }
    macro_rules! words {
        ($array:expr) => {{
            let array = $array;
            all!(array => |at| Value::Word(array.value(at)))
        }};
    }
    match array.data_type() {
        DataType::Null => (0..rows).try_for_each(|row| put(row, Ok(Value::Missing)))?,
        DataType::Int8 => whole!(Int8Type),
        DataType::Int16 => whole!(Int16Type),
        DataType::Int32 => whole!(Int32Type),
        DataType::Int64 => whole!(Int64Type),
        DataType::UInt8 => whole!(UInt8Type),
        DataType::UInt16 => whole!(UInt16Type),
        DataType::UInt32 => whole!(UInt32Type),
        DataType::UInt64 => whole!(UInt64Type),
        DataType::Float16 => {
            let array = array.as_primitive::<Float16Type>();
            all!(array => |at| Value::Short(array.value(at).to_f32()))
        }
        DataType::Float32 => {
            let array = array.as_primitive::<Float32Type>();
            all!(array => |at| Value::Short(array.value(at)))
        }
        DataType::Float64 => {
            let array = array.as_primitive::<Float64Type>();
            all!(array => |at| Value::Number(array.value(at)))
        }
        DataType::Decimal128(_, behind) => {
            let (array, ten) = (array.as_primitive::<Decimal128Type>(), 10f64.powi(i32::from(*behind)));
            all!(array => |at| Value::Number(array.value(at) as f64 / ten))
        }
        DataType::Boolean => {
            let array = array.as_boolean();
            all!(array => |at| Value::Flag(array.value(at)))
        }
        DataType::Utf8 => words!(array.as_string::<i32>()),
        DataType::LargeUtf8 => words!(array.as_string::<i64>()),
        DataType::Utf8View => words!(array.as_string_view()),
        DataType::Dictionary(..) => return dictionary(array, pick, rows, put),
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => {
            return lists(array, pick, rows, put);
        }
        other if rows > 0 => return put(0, Err(unknown(other))),
        _ => {}
    }
    Ok(())
}

fn unknown(kind: &DataType) -> String {
    let kind = line(&kind.to_string());
    format!(
        "values of type {kind}: use numbers, bool, text or lists of numbers, or name the features without it"
    )
}

/// Words by number.
fn dictionary(
    array: &dyn Array,
    pick: &dyn Fn(usize) -> Option<usize>,
    rows: usize,
    put: Put,
) -> Result<(), ReadError> {
    let array = array.as_any_dictionary();
    let (keys, values) = (array.keys(), array.values());
    // Keys of an empty dictionary are all missing, and asking for them panics.
    let places = if values.is_empty() { Vec::new() } else { array.normalized_keys() };
    let pick = |row: usize| places.get(pick(row).filter(|&at| keys.is_valid(at))?).copied();
    each(values, &pick, rows, put)
}

/// Lists of numbers.
fn lists(
    array: &dyn Array,
    pick: &dyn Fn(usize) -> Option<usize>,
    rows: usize,
    put: Put,
) -> Result<(), ReadError> {
    // Where the list of each place ends, after where the first begins.
    let (values, ends): (_, Vec<usize>) = match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            (list.values(), list.value_offsets().iter().map(|&o| o as usize).collect())
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            (list.values(), list.value_offsets().iter().map(|&o| o as usize).collect())
        }
        _ => {
            let list = array.as_fixed_size_list();
            (list.values(), (0..=list.len()).map(|at| at * list.value_length() as usize).collect())
        }
    };
    let mut numbers = Vec::with_capacity(values.len());
    let mut wrong = None;
    if matches!(values.data_type(), DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))
    {
        wrong = Some(unknown(array.data_type()));
    } else {
        each(values, &Some, values.len(), &mut |_, value| {
            match value {
                Ok(Value::Whole(v)) => numbers.push(v as f32),
                Ok(Value::Number(v)) => numbers.push(v as f32),
                Ok(Value::Short(v)) => numbers.push(v),
                Ok(Value::Flag(v)) => numbers.push(f32::from(u8::from(v))),
                Ok(Value::Missing) => numbers.push(f32::NAN),
                _ => wrong = Some(unknown(array.data_type())),
            }
            Ok(())
        })?;
    }
    for row in 0..rows {
        let list = match (&wrong, pick(row).filter(|&at| array.is_valid(at))) {
            (Some(what), _) => Err(what.clone()),
            (None, None) => Ok(Value::Missing),
            (None, Some(at)) => match numbers.get(ends[at]..ends[at + 1]) {
                Some(list) => Ok(Value::Numbers(list)),
                None => Err("a list without its numbers".into()),
            },
        };
        put(row, list)?;
    }
    Ok(())
}
