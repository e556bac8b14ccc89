//! Arrays of NumPy: one in a `.npy`, several by name in a `.npz`.
use super::table::{Part, Table, Value};
use super::{cannot, size};
use crate::samples::{ReadError, Roles, Samples, short};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// So many bytes the description of an array may have, and one of its values.
const HEADER: usize = 1 << 16;

/// The kinds of values.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Bool,
    Signed,
    Unsigned,
    Float,
    /// Text, four bytes a character.
    Wide,
    /// Text, one byte a character.
    Bytes,
}

/// What the header of an array says.
#[derive(Debug, PartialEq)]
struct Header {
    kind: Kind,
    /// Bytes of a value.
    size: usize,
    big_endian: bool,
    fortran: bool,
    shape: Vec<usize>,
}

/// A matrix of features, called "x": a row for each sample.
pub(super) fn lone(file: &Path, roles: &Roles) -> Result<Samples, ReadError> {
    if let Some((_, name)) = super::table::named(roles).next() {
        let what = "a .npy has one array, the features: put those and the labels into one .npz, \
                    numpy.savez(file, x=…, y=…)";
        return Err(ReadError::new(file, what).column(name));
    }
    let mut table = Table::new(file, roles, size(file)?)?;
    let input = BufReader::new(File::open(file).map_err(|e| cannot(file, e))?);
    let image = array(file, "x", input, &mut table)?;
    table.check()?;
    let mut samples = table.done(image.rows, true)?;
    samples.image = image.image;
    Ok(samples)
}

/// Arrays by name, with as many rows each.
pub(super) fn several(file: &Path, roles: &Roles) -> Result<Samples, ReadError> {
    let input = BufReader::new(File::open(file).map_err(|e| cannot(file, e))?);
    let mut zip = zip::ZipArchive::new(input).map_err(|e| cannot(file, e))?;
    let mut table = Table::new(file, roles, size(file)?)?;
    let (mut first, mut image): (Option<(String, usize)>, _) = (None, None);
    for place in 0..zip.len() {
        let entry = zip.by_index(place).map_err(|e| cannot(file, e))?;
        let path = entry.name().map_err(|e| cannot(file, e))?.into_owned();
        let Some(name) = path.strip_suffix(".npy") else {
            return Err(ReadError::new(file, format!("'{}' is no array", short(&path))));
        };
        let array = array(file, name, BufReader::new(entry), &mut table)?;
        if array.unused {
            continue;
        }
        image = image.or(array.image);
        match &first {
            Some((other, rows)) if *rows != array.rows => {
                let what = format!(
                    "{} rows, but '{}' has {rows}: name the features with --features to leave it out",
                    array.rows,
                    short(other)
                );
                return Err(ReadError::new(file, what).column(name));
            }
            Some(_) => {}
            None => first = Some((name.into(), array.rows)),
        }
    }
    table.check()?;
    let mut samples = table.done(first.map_or(0, |(_, rows)| rows), true)?;
    samples.image = image;
    Ok(samples)
}

/// What is known of an array that has been read.
#[derive(Default)]
struct Known {
    rows: usize,
    unused: bool,
    image: Option<(usize, usize, usize)>,
}

/// One array into one column.
fn array(file: &Path, name: &str, mut input: impl Read, table: &mut Table) -> Result<Known, ReadError> {
    let wrong = |what: String| ReadError::new(file, what).column(name);
    let column = table.add(name)?;
    let part = table.part(column);
    if part == Part::Unused {
        return Ok(Known { unused: true, ..Known::default() });
    }
    let header = header(&mut input).map_err(wrong)?;
    let Some((&rows, inner)) = header.shape.split_first() else {
        return Err(wrong("one value without rows: it needs a row for each sample".into()));
    };
    let width = inner.iter().try_fold(1usize, |w, &d| w.checked_mul(d)).unwrap_or(usize::MAX);
    let text = matches!(header.kind, Kind::Wide | Kind::Bytes);
    if width == 0 || width.checked_mul(rows).is_none_or(|n| n > isize::MAX as usize / 8) {
        return Err(wrong(format!("the shape {:?} has no values, or too many", header.shape)));
    }
    if width != 1 && (text || part != Part::Feature) {
        return Err(wrong(format!("the shape {:?}: this array needs one value a row", header.shape)));
    }
    if header.fortran && width > 1 {
        by_columns(&mut input, &header, rows, inner, |row, list| {
            table.push(column, row, Value::Numbers(list))
        })
        .map_err(|e| e.unwrap_or_else(|| wrong(ENDS.into())))?;
    } else {
        let mut bytes = vec![0; header.size];
        let mut list = Vec::with_capacity(width.min(HEADER));
        let mut word = String::new();
        for row in 0..rows {
            list.clear();
            for _ in 0..width {
                input.read_exact(&mut bytes).map_err(|e| ends(e, &wrong))?;
                if inner.is_empty() || width == 1 {
                    let value = value(&header, &bytes, &mut word);
                    table.push(column, row, value.map_err(|what| wrong(what).row(row + 1))?)?;
                } else {
                    list.push(number(&header, &bytes));
                }
            }
            if width > 1 {
                table.push(column, row, Value::Numbers(&list))?;
            }
        }
    }
    // What follows the last value is read too: a damaged archive is known by its sum at the end.
    std::io::copy(&mut input.take(1), &mut std::io::sink()).map_err(|e| ends(e, &wrong))?;
    Ok(Known { rows, unused: false, image: image(&header) })
}

const ENDS: &str = "the array ends before its last value: the file is cut off";

fn ends(error: std::io::Error, wrong: &impl Fn(String) -> ReadError) -> ReadError {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => wrong(ENDS.into()),
        _ => wrong(format!("cannot be read: {}", super::table::line(&error.to_string()))),
    }
}

/// Bytes of three or four dimensions are images: rows, columns, channels.
fn image(header: &Header) -> Option<(usize, usize, usize)> {
    match (header.kind, header.size, header.shape.as_slice()) {
        (Kind::Unsigned, 1, &[_, height, width]) => Some((width, height, 1)),
        (Kind::Unsigned, 1, &[_, height, width, channels @ (1 | 3 | 4)]) => Some((width, height, channels)),
        _ => None,
    }
}

/// An array whose first place runs fastest: all of it is needed before the first row is known.
fn by_columns(
    input: &mut impl Read,
    header: &Header,
    rows: usize,
    inner: &[usize],
    mut put: impl FnMut(usize, &[f32]) -> Result<(), ReadError>,
) -> Result<(), Option<ReadError>> {
    let width: usize = inner.iter().product();
    // Grows with what is there, not with what the header promises.
    let mut values = Vec::new();
    let mut bytes = vec![0; header.size];
    for _ in 0..rows * width {
        input.read_exact(&mut bytes).map_err(|_| None)?;
        values.push(number(header, &bytes));
    }
    // Where each number of a row lies, counted in rows: the first place of a row runs fastest.
    let place = |number: usize| {
        let (mut rest, mut step, mut place) = (number, width, 0);
        for &size in inner.iter().rev() {
            step /= size;
            place += rest % size * step;
            rest /= size;
        }
        place
    };
    let places: Vec<usize> = (0..width).map(place).collect();
    let mut list = vec![0.0; width];
    for row in 0..rows {
        list.iter_mut().zip(&places).for_each(|(to, place)| *to = values[place * rows + row]);
        put(row, &list).map_err(Some)?;
    }
    Ok(())
}

/// The header: a magic word, a version, and a dictionary as Python writes it.
fn header(input: &mut impl Read) -> Result<Header, String> {
    let broken = |_| "no NumPy array: its header is cut off".to_string();
    let mut start = [0; 8];
    input.read_exact(&mut start).map_err(broken)?;
    if &start[..6] != b"\x93NUMPY" {
        return Err("no NumPy array: it does not begin like one".into());
    }
    let mut length = [0; 4];
    let digits = if start[6] == 1 { 2 } else { 4 };
    input.read_exact(&mut length[..digits]).map_err(broken)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > HEADER {
        return Err(format!("the array's header has {length} bytes: at most {HEADER} are read"));
    }
    let mut bytes = vec![0; length];
    input.read_exact(&mut bytes).map_err(broken)?;
    let text = String::from_utf8_lossy(&bytes);
    let after = |key: &str| {
        let rest = text.split_once(&format!("'{key}'")).map(|(_, rest)| rest.trim_start());
        let rest = rest.and_then(|rest| rest.strip_prefix(':')).map(str::trim_start);
        rest.ok_or_else(|| format!("the array's header has no '{key}'"))
    };
    let fortran = after("fortran_order")?.starts_with("True");
    let shape = after("shape")?.strip_prefix('(').and_then(|s| s.split_once(')'));
    let shape = shape.ok_or("the array's header has no shape such as (3, 4)")?.0;
    let shape = shape.split(',').map(str::trim).filter(|s| !s.is_empty()).map(str::parse);
    let shape = shape.collect::<Result<Vec<usize>, _>>().map_err(|e| format!("the array's shape: {e}"))?;
    let kind = after("descr")?;
    let quoted = kind.strip_prefix('\'').and_then(|k| k.split_once('\''));
    let quoted = quoted.ok_or("an array of records: save its fields as arrays of their own")?.0;
    kind_of(quoted, fortran, shape)
}

/// The header with the kind of value that a word such as `<f4` names.
fn kind_of(word: &str, fortran: bool, shape: Vec<usize>) -> Result<Header, String> {
    let unknown = || {
        let hint = if word.contains('O') { " (Python objects cannot be read)" } else { "" };
        format!("values of kind '{}'{hint}: use numbers, bool or text", short(word))
    };
    let mut letters = word.chars();
    let big_endian = match letters.next() {
        Some('>') => true,
        Some('<' | '|' | '=') => false,
        _ => return Err(unknown()),
    };
    let kind = letters.next().ok_or_else(unknown)?;
    let count: usize = letters.as_str().parse().map_err(|_| unknown())?;
    let (kind, size) = match (kind, count) {
        ('b' | '?', 1) => (Kind::Bool, 1),
        ('i', 1 | 2 | 4 | 8) => (Kind::Signed, count),
        ('u', 1 | 2 | 4 | 8) => (Kind::Unsigned, count),
        ('f', 2 | 4 | 8) => (Kind::Float, count),
        ('U', 1..=HEADER) => (Kind::Wide, 4 * count),
        ('S', 1..=HEADER) => (Kind::Bytes, count),
        _ => return Err(unknown()),
    };
    Ok(Header { kind, size, big_endian, fortran, shape })
}

/// A value's bytes, the lowest first.
fn whole(header: &Header, bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    if header.big_endian {
        all[..bytes.len()].reverse();
    }
    u64::from_le_bytes(all)
}

/// Half precision: one bit of sign, five of exponent, ten of fraction.
fn half(bits: u16) -> f32 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
    let size = match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1024.0 + fraction) * 2f32.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -size } else { size }
}

fn value<'w>(header: &Header, bytes: &[u8], word: &'w mut String) -> Result<Value<'w>, String> {
    let bits = || whole(header, bytes);
    Ok(match (header.kind, header.size) {
        (Kind::Bool, _) => Value::Flag(bits() != 0),
        (Kind::Unsigned, _) => Value::Whole(bits().into()),
        // The sign is the highest bit of the bytes that there are.
        (Kind::Signed, size) => {
            let empty = 64 - 8 * size as u32;
            Value::Whole(((bits() << empty) as i64 >> empty).into())
        }
        (Kind::Float, 2) => Value::Short(half(bits() as u16)),
        (Kind::Float, 4) => Value::Short(f32::from_bits(bits() as u32)),
        (Kind::Float, _) => Value::Number(f64::from_bits(bits())),
        (Kind::Wide, _) => {
            word.clear();
            for letter in bytes.chunks_exact(4) {
                let code = whole(header, letter) as u32;
                word.push(char::from_u32(code).ok_or_else(|| format!("{code:#x} is no character"))?);
            }
            Value::Word(word.trim_end_matches('\0'))
        }
        (Kind::Bytes, _) => {
            word.clear();
            let text = std::str::from_utf8(bytes);
            word.push_str(text.map_err(|_| "the text is not UTF-8: save it as numpy.str_")?);
            Value::Word(word.trim_end_matches('\0'))
        }
    })
}

fn number(header: &Header, bytes: &[u8]) -> f32 {
    match value(header, bytes, &mut String::new()) {
        Ok(Value::Whole(v)) => v as f32,
        Ok(Value::Number(v)) => v as f32,
        Ok(Value::Short(v)) => v,
        Ok(Value::Flag(v)) => f32::from(u8::from(v)),
        _ => f32::NAN,
    }
}
