//! Tables as text: cells apart by commas or tabs, quoted where they must be.
use super::table::{COLUMNS, Part, Table, Value};
use super::{cannot, open, size};
use crate::samples::{ReadError, Roles, Samples, short};
use csv_core::{ReadRecordResult, Reader, ReaderBuilder};
use std::io::BufRead;
use std::path::Path;

/// So many bytes one row may have: a quote that nobody closed must not take the whole file for one.
const ROW: usize = 64 << 20;

/// Rows one after the other, all in the same memory.
struct Rows<'a> {
    file: &'a Path,
    input: Box<dyn BufRead>,
    core: Reader,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Cells and bytes of this row.
    cells: usize,
    length: usize,
    /// Rows read before this one, the header among them.
    count: usize,
}

impl<'a> Rows<'a> {
    fn new(file: &'a Path, delimiter: u8) -> Result<Self, ReadError> {
        let core = ReaderBuilder::new().delimiter(delimiter).build();
        let (bytes, ends) = (vec![0; 4096], vec![0; 64]);
        Ok(Rows { file, input: open(file)?, core, bytes, ends, cells: 0, length: 0, count: 0 })
    }

    fn here(&self, what: impl Into<String>) -> ReadError {
        let error = ReadError::new(self.file, what);
        if self.count == 0 { error } else { error.row(self.count) }
    }

    /// Goes to the next row; false at the end.
    fn next(&mut self) -> Result<bool, ReadError> {
        let (mut length, mut cells) = (0, 0);
        loop {
            let input = self.input.fill_buf().map_err(|e| cannot(self.file, e));
            let input = input.map_err(|e| if self.count == 0 { e } else { e.row(self.count) })?;
            let (result, read, written, ended) =
                self.core.read_record(input, &mut self.bytes[length..], &mut self.ends[cells..]);
            self.input.consume(read);
            length += written;
            cells += ended;
            match result {
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull if self.bytes.len() >= ROW => {
                    let what = format!("longer than {} MiB: is there a quote that is not closed?", ROW >> 20);
                    return Err(self.here(what));
                }
                ReadRecordResult::OutputFull => self.bytes.resize(self.bytes.len() * 2, 0),
                ReadRecordResult::OutputEndsFull if cells > COLUMNS => {
                    return Err(self.here(format!("more than {COLUMNS} cells: at most so many are read")));
                }
                ReadRecordResult::OutputEndsFull => self.ends.resize(self.ends.len() * 2, 0),
                ReadRecordResult::Record => break,
                ReadRecordResult::End => return Ok(false),
            }
        }
        (self.cells, self.length) = (cells, length);
        self.count += 1;
        Ok(true)
    }

    /// This row's text, cells one after the other.
    fn text(&self) -> Result<&str, ReadError> {
        std::str::from_utf8(&self.bytes[..self.length]).map_err(|_| self.no_text())
    }

    fn no_text(&self) -> ReadError {
        let error = ReadError::new(self.file, "the text is not UTF-8: save the file as UTF-8");
        if self.count <= 1 { error } else { error.row(self.count - 1) }
    }

    /// One cell of this row's text; none where its ends are no ends of characters.
    fn cell<'t>(&self, text: &'t str, cell: usize) -> Option<&'t str> {
        text.get(if cell == 0 { 0 } else { self.ends[cell - 1] }..self.ends[cell])
    }
}

/// A file of rows, the first one with the columns' names. Features may be left to the caller.
pub(super) fn read(file: &Path, roles: &Roles, delimiter: u8, features: bool) -> Result<Samples, ReadError> {
    let mut rows = Rows::new(file, delimiter)?;
    let mut table = Table::new(file, roles, size(file)?)?;
    if !rows.next()? {
        return Err(ReadError::new(file, "the file is empty: its first line should name the columns"));
    }
    header(&rows, &mut table)?;
    table.check()?;
    let used: Vec<usize> = (0..rows.cells).filter(|&c| table.part(c) != Part::Unused).collect();
    let count = all(&mut rows, &mut table, &used)?;
    let again = table.again();
    if !again.is_empty() {
        // Now these are known to have words, of which "1" and "01" are two.
        let mut rows = Rows::new(file, delimiter)?;
        rows.next()?;
        if all(&mut rows, &mut table, &again)? != count {
            return Err(ReadError::new(file, "the file has changed while it was read: read it again"));
        }
    }
    table.done(count, features)
}

fn header(rows: &Rows, table: &mut Table) -> Result<(), ReadError> {
    let text = rows.text()?;
    for cell in 0..rows.cells {
        let name = rows.cell(text, cell).ok_or_else(|| rows.no_text())?.trim();
        if rows.cells == 1 && name.contains([';', '\t', '|']) {
            let what = "the first line names one column: put commas between columns (.csv) or tabs (.tsv)";
            return Err(ReadError::new(rows.file, what).column(short(name)));
        }
        table.add(name)?;
    }
    Ok(())
}

/// All rows, these columns of them; how many there are.
fn all(rows: &mut Rows, table: &mut Table, columns: &[usize]) -> Result<usize, ReadError> {
    let cells = rows.cells;
    let mut row = 0;
    while rows.next()? {
        if rows.cells != cells {
            let what = format!("{} cells, but the first line names {cells} columns", rows.cells);
            return Err(ReadError::new(rows.file, what).row(row + 1));
        }
        let text = rows.text()?;
        for &column in columns {
            let cell = rows.cell(text, column).ok_or_else(|| rows.no_text())?;
            table.push(column, row, Value::Text(cell))?;
        }
        row += 1;
    }
    Ok(row)
}
