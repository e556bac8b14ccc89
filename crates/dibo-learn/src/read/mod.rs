//! Files and folders that become [`Samples`]: one room for each format, and one for what all have in common.
#[cfg(feature = "parquet")]
mod arrow;
mod csv;
#[cfg(test)]
mod fuzz;
mod idx;
#[cfg(feature = "images")]
mod images;
#[cfg(feature = "parquet")]
mod ipc;
mod json;
mod npy;
mod scale;
mod table;
#[cfg(test)]
mod tests;

use crate::samples::{ReadError, Roles, Samples};
use flate2::read::MultiGzDecoder;
use std::fmt::Display;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Reads a file or a folder of images. Its name says what it is: `.csv`, `.tsv`, `.jsonl`, `.ndjson` (each
/// may end in `.gz`), `.parquet`, `.arrow`, `.feather`, `.ipc`, `.npy`, `.npz`, or `…-idx3-ubyte` for IDX.
pub fn read(file: &Path, roles: &Roles) -> Result<Samples, ReadError> {
    let about = std::fs::metadata(file).map_err(|e| cannot(file, e))?;
    if let Some((width, height)) = roles.image_size
        && width.checked_mul(height).is_none_or(|n| n == 0 || n > 1 << 26)
    {
        let what =
            format!("the image size {width} x {height}: give at least 1 x 1, at most 64 million pixels");
        return Err(ReadError::new(file, what));
    }
    if about.is_dir() {
        #[cfg(feature = "images")]
        return images::folder(file, roles);
        #[cfg(not(feature = "images"))]
        return without(file, "images");
    }
    if about.len() == 0 {
        return Err(ReadError::new(file, "the file is empty"));
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let plain = name.strip_suffix(".gz").unwrap_or(&name);
    // Those that may be packed, then those that may not.
    match plain.rsplit_once('.').map_or("", |(_, end)| end) {
        "csv" => return csv::read(file, roles, b',', true),
        "tsv" | "tab" => return csv::read(file, roles, b'\t', true),
        "jsonl" | "ndjson" => return json::read(file, roles),
        _ if idx::is(plain) => return idx::read(file, roles),
        _ => {}
    }
    match name.rsplit_once('.').map_or("", |(_, end)| end) {
        "npy" => npy::lone(file, roles),
        "npz" => npy::several(file, roles),
        #[cfg(feature = "parquet")]
        "parquet" => guarded(file, || arrow::parquet(file, roles)),
        #[cfg(feature = "parquet")]
        "arrow" | "feather" | "ipc" => guarded(file, || ipc::read(file, roles)),
        #[cfg(not(feature = "parquet"))]
        "parquet" | "arrow" | "feather" | "ipc" => without(file, "parquet"),
        _ => Err(ReadError::new(
            file,
            "no known kind of file: use .csv, .tsv, .jsonl, .ndjson, .parquet, .arrow, .feather, .npy, .npz, \
             IDX (…-idx3-ubyte) or a folder of PNG or JPEG images",
        )),
    }
}

/// Every file that [`read`] looks at, in an order that is the same on all systems: the file itself, with IDX
/// the labels beside it, of a folder the images and the table that lists them.
pub fn parts(file: &Path) -> Result<Vec<PathBuf>, ReadError> {
    if file.is_dir() {
        #[cfg(feature = "images")]
        return images::parts(file);
        #[cfg(not(feature = "images"))]
        return without(file, "images");
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let mut parts = vec![file.to_path_buf()];
    if idx::is(name.strip_suffix(".gz").unwrap_or(&name)) {
        parts.extend(idx::beside(file).ok());
    }
    Ok(parts)
}

#[cfg(not(all(feature = "images", feature = "parquet")))]
fn without<T>(file: &Path, feature: &str) -> Result<T, ReadError> {
    Err(ReadError::new(file, format!("this program was built without the feature '{feature}'")))
}

/// A file that the system or a decoder does not let us read.
fn cannot(file: &Path, why: impl Display) -> ReadError {
    ReadError::new(file, format!("cannot be read: {}", table::line(&why.to_string())))
}

/// Decoders of Parquet and Arrow panic on one damaged file in some 7,000: that is an error like others.
#[cfg(feature = "parquet")]
fn guarded(file: &Path, read: impl FnOnce() -> Result<Samples, ReadError>) -> Result<Samples, ReadError> {
    // Nothing that the decoder has touched is used afterwards.
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read));
    result.unwrap_or_else(|_| Err(cannot(file, "the decoder gave up: the file is damaged")))
}

/// A file for reading, unpacked on the way if its name ends in `.gz`.
fn open(file: &Path) -> Result<Box<dyn BufRead>, ReadError> {
    const BUFFER: usize = 1 << 16;
    let packed = file.extension().is_some_and(|e| e.eq_ignore_ascii_case("gz"));
    let raw = BufReader::with_capacity(BUFFER, File::open(file).map_err(|e| cannot(file, e))?);
    Ok(if packed {
        Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(raw)))
    } else {
        Box::new(raw)
    })
}

/// Bytes of a file.
fn size(file: &Path) -> Result<u64, ReadError> {
    Ok(std::fs::metadata(file).map_err(|e| cannot(file, e))?.len())
}
