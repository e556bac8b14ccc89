//! JSON Lines: one flat object a line.
use super::table::{Part, Table, Value, line};
use super::{cannot, open, size};
use crate::samples::{ReadError, Roles, Samples, short};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::io::{BufRead, Read};
use std::path::Path;

/// So many bytes one line may have.
const LINE: usize = 64 << 20;

/// A file of objects; the columns are all keys that come.
pub(super) fn read(file: &Path, roles: &Roles) -> Result<Samples, ReadError> {
    let mut input = open(file)?;
    let mut table = Table::new(file, roles, size(file)?)?;
    let (mut row, mut bytes, mut numbers) = (0, Vec::new(), Vec::new());
    loop {
        bytes.clear();
        let read = input.by_ref().take(LINE as u64 + 1).read_until(b'\n', &mut bytes);
        if read.map_err(|e| cannot(file, e).row(row + 1))? == 0 {
            break;
        }
        if bytes.len() > LINE {
            let what = format!("longer than {} MiB: put one object on each line", LINE >> 20);
            return Err(ReadError::new(file, what).row(row + 1));
        }
        let text = bytes.strip_prefix(b"\xef\xbb\xbf").filter(|_| row == 0).unwrap_or(&bytes);
        if text.trim_ascii().is_empty() {
            continue;
        }
        let mut wrong = None;
        let object = Object { table: &mut table, row, numbers: &mut numbers, wrong: &mut wrong };
        let mut json = serde_json::Deserializer::from_slice(text);
        let result = object.deserialize(&mut json).and_then(|()| json.end());
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        result.map_err(|e| {
            let what = format!("no flat JSON object: {}", place(&e));
            ReadError::new(file, what).row(row + 1)
        })?;
        row += 1;
    }
    table.done(row, true)
}

/// The message without its line, which is always the first, as rows are read one by one.
fn place(error: &serde_json::Error) -> String {
    line(&error.to_string()).replace("at line 1 column", "at character")
}

/// One line's object on its way into the table.
struct Object<'t, 'a> {
    table: &'t mut Table<'a>,
    row: usize,
    numbers: &'t mut Vec<f32>,
    /// A mistake that has a column, which the error of the format cannot carry.
    wrong: &'t mut Option<ReadError>,
}

impl<'de> DeserializeSeed<'de> for Object<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_, '_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter) -> fmt::Result {
        to.write_str("an object such as {\"x\": 1.5, \"label\": \"cat\"}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Object { table, row, numbers, wrong } = self;
        while let Some(column) = map.next_key_seed(Key { table: &mut *table, wrong: &mut *wrong })? {
            if table.part(column) == Part::Unused {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let cell = Cell { table: &mut *table, row, column, numbers: &mut *numbers, wrong: &mut *wrong };
            map.next_value_seed(cell)?;
        }
        Ok(())
    }
}

/// A key, which is the name of a column.
struct Key<'t, 'a> {
    table: &'t mut Table<'a>,
    wrong: &'t mut Option<ReadError>,
}

impl<'de> DeserializeSeed<'de> for Key<'_, '_> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<usize, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_, '_> {
    type Value = usize;

    fn expecting(&self, to: &mut fmt::Formatter) -> fmt::Result {
        to.write_str("a key")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<usize, E> {
        let place = self.table.find(name).map_or_else(|| self.table.add(name), Ok);
        place.map_err(|e| {
            *self.wrong = Some(e);
            E::custom("")
        })
    }
}

/// A value on its way into its column.
struct Cell<'t, 'a> {
    table: &'t mut Table<'a>,
    row: usize,
    column: usize,
    numbers: &'t mut Vec<f32>,
    wrong: &'t mut Option<ReadError>,
}

impl Cell<'_, '_> {
    fn put<E: Error>(self, value: Value) -> Result<(), E> {
        self.table.push(self.column, self.row, value).map_err(|e| {
            *self.wrong = Some(e);
            E::custom("")
        })
    }
}

impl<'de> DeserializeSeed<'de> for Cell<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Cell<'_, '_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter) -> fmt::Result {
        let name = short(self.table.name(self.column));
        write!(to, "a number, a word, true, false, null or a list of numbers for '{name}'")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.put(Value::Missing)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.put(Value::Flag(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.put(Value::Whole(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.put(Value::Whole(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.put(Value::Number(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.put(Value::Word(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut numbers = std::mem::take(self.numbers);
        numbers.clear();
        while let Some(number) = list.next_element::<Option<f64>>()? {
            numbers.push(number.map_or(f32::NAN, |n| n as f32));
        }
        let Cell { table, row, column, wrong, .. } = self;
        let cell = Cell { table, row, column, numbers: &mut Vec::new(), wrong };
        let result = cell.put(Value::Numbers(&numbers));
        *self.numbers = numbers;
        result
    }
}
