//! Arrow files and streams; Feather is such a file.
use super::arrow::{batches, columns};
use super::table::Table;
use super::{cannot, size};
use crate::samples::{ReadError, Roles, Samples};
use arrow_ipc::reader::{FileReader, StreamReader, read_footer_length};
use arrow_ipc::{Block, Message, root_as_footer, root_as_message};
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// So many bytes a file may have once unpacked, however small it is.
const UNPACKED: u64 = 1 << 30;
/// So many bytes a file may have unpacked for each of its own.
const UNPACKED_A_BYTE: u64 = 64;

/// A file, which its first bytes tell from a stream.
pub(super) fn read(file: &Path, roles: &Roles) -> Result<Samples, ReadError> {
    let wrong = |e: arrow_schema::ArrowError| cannot(file, e);
    let open = || File::open(file).map_err(|e| cannot(file, e));
    let mut scan = Scan { input: BufReader::new(open()?), size: size(file)?, unpacked: 0 };
    let mut magic = [0; 8];
    scan.input.read_exact(&mut magic).map_err(|e| cannot(file, e))?;
    let mut table = Table::new(file, roles, scan.size)?;
    match &magic {
        [b'F', b'E', b'A', b'1', ..] => {
            Err(ReadError::new(file, "Feather of the first version: write it anew as Feather 2 or Parquet"))
        }
        [b'A', b'R', b'R', b'O', b'W', b'1', ..] => {
            scan.file().map_err(|e| cannot(file, e))?;
            let used =
                columns(&mut table, &FileReader::try_new_buffered(open()?, None).map_err(wrong)?.schema())?;
            let reader = FileReader::try_new_buffered(open()?, Some(used.clone())).map_err(wrong)?;
            batches(file, table, &used, reader)
        }
        _ => {
            scan.stream().map_err(|e| cannot(file, e))?;
            let schema = StreamReader::try_new_buffered(open()?, None).map_err(wrong)?.schema();
            let used = columns(&mut table, &schema)?;
            let reader = StreamReader::try_new_buffered(open()?, Some(used.clone())).map_err(wrong)?;
            batches(file, table, &used, reader)
        }
    }
}

/// A look at the sizes that a file claims, before a reader reserves memory for them: it would end the process
/// if there is less, which nobody can catch.
struct Scan {
    input: BufReader<File>,
    size: u64,
    unpacked: u64,
}

type Checked<T> = Result<T, String>;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Scan {
    fn bytes(&mut self, at: u64, count: u64) -> Checked<Vec<u8>> {
        if at.checked_add(count).is_none_or(|end| end > self.size) {
            return Err("it ends too early or its sizes are wrong".into());
        }
        self.input.seek(SeekFrom::Start(at)).map_err(text)?;
        let mut bytes = vec![0; usize::try_from(count).map_err(text)?];
        self.input.read_exact(&mut bytes).map_err(text)?;
        Ok(bytes)
    }

    /// A file lists its messages at its end.
    fn file(&mut self) -> Checked<()> {
        let end = self.size.checked_sub(10).ok_or("it is too short")?;
        let last = self.bytes(end, 10)?;
        let length = read_footer_length(last.try_into().map_err(|_| "it is too short")?).map_err(text)?;
        let start = end.checked_sub(length as u64).ok_or("its footer is longer than the file")?;
        let bytes = self.bytes(start, length as u64)?;
        let footer = root_as_footer(&bytes).map_err(text)?;
        let blocks: Vec<&Block> =
            footer.dictionaries().into_iter().chain(footer.recordBatches()).flatten().collect();
        for block in blocks {
            let number = |n: i64| u64::try_from(n).map_err(|_| "a size below zero");
            let (at, about) = (number(block.offset())?, number(block.metaDataLength().into())?);
            let body = number(block.bodyLength())?;
            let bytes = self.bytes(at, about)?;
            // Before the message its length, and in newer files a mark of four bytes before that.
            let skip = if bytes.starts_with(&[255; 4]) { 8 } else { 4 };
            let message = root_as_message(bytes.get(skip..).unwrap_or_default()).map_err(text)?;
            self.message(message, at + about, body)?;
        }
        Ok(())
    }

    /// In a stream they follow each other.
    fn stream(&mut self) -> Checked<()> {
        let mut at = 0;
        while at < self.size {
            let mut length = self.bytes(at, 4)?;
            at += 4;
            if length == [255; 4] {
                length = self.bytes(at, 4)?;
                at += 4;
            }
            let length = u32::from_le_bytes(length.try_into().map_err(|_| "it is too short")?);
            if length == 0 {
                break;
            }
            let bytes = self.bytes(at, length.into())?;
            at += u64::from(length);
            let message = root_as_message(&bytes).map_err(text)?;
            let body = u64::try_from(message.bodyLength()).map_err(text)?;
            self.message(message, at, body)?;
            at += body;
        }
        Ok(())
    }

    /// The buffers of a message: those that are packed say how long they are.
    fn message(&mut self, message: Message, at: u64, body: u64) -> Checked<()> {
        if at.checked_add(body).is_none_or(|end| end > self.size) {
            return Err("it ends too early or its sizes are wrong".into());
        }
        let batch = message
            .header_as_record_batch()
            .or_else(|| message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data()));
        let Some(batch) = batch else { return Ok(()) };
        for buffer in batch.buffers().into_iter().flatten() {
            let (start, length) = (u64::try_from(buffer.offset()), u64::try_from(buffer.length()));
            let (start, length) = (start.map_err(text)?, length.map_err(text)?);
            if start.checked_add(length).is_none_or(|end| end > body) {
                return Err("a buffer is outside of its message".into());
            }
            if batch.compression().is_none() || length == 0 {
                continue;
            }
            let prefix = self.bytes(at + start, 8.min(length))?;
            let prefix: [u8; 8] = prefix.try_into().map_err(|_| "a packed buffer without its length")?;
            // -1 stands for a buffer that is not packed after all.
            self.unpacked =
                self.unpacked.saturating_add(u64::try_from(i64::from_le_bytes(prefix)).unwrap_or(0));
            if self.unpacked > UNPACKED.max(self.size.saturating_mul(UNPACKED_A_BYTE)) {
                return Err("far more data than a file of this size may have: split it into several".into());
            }
        }
        Ok(())
    }
}
