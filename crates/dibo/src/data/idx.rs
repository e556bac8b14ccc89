//! IDX files: a magic number, the sizes, then bytes. Strict: what is short, long or of another kind is an
//! error.
use super::DataError;
use std::io::Read;
use std::path::Path;

/// A file's bytes; a name that ends in `.gz` is unpacked.
pub fn read_bytes(file: &Path) -> Result<Vec<u8>, DataError> {
    let bytes = std::fs::read(file).map_err(|e| DataError::new(file, e.to_string()))?;
    if file.extension().is_none_or(|e| e != "gz") {
        return Ok(bytes);
    }
    let mut unpacked = Vec::new();
    let mut reader = flate2::read::MultiGzDecoder::new(&bytes[..]);
    reader
        .read_to_end(&mut unpacked)
        .map_err(|e| DataError::new(file, format!("not a whole gzip file ({e})")))?;
    Ok(unpacked)
}

/// Checks magic number and length; gives the sizes and the number of header bytes.
fn header<const D: usize>(
    file: &Path,
    bytes: &[u8],
    magic: u32,
    kind: &str,
) -> Result<([usize; D], usize), DataError> {
    let word =
        |i: usize| bytes.get(4 * i..4 * i + 4).map(|w| u32::from_be_bytes(w.try_into().expect("four bytes")));
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return Err(DataError::new(file, "this is a gzip file; its name must end in .gz"));
    }
    match word(0) {
        Some(found) if found == magic => {}
        Some(found) => {
            return Err(DataError::new(
                file,
                format!("begins with {found:#010x}; an IDX file of {kind} begins with {magic:#010x}"),
            ));
        }
        None => {
            return Err(DataError::new(
                file,
                format!("{} bytes; an IDX file begins with 4 bytes of magic number", bytes.len()),
            ));
        }
    }
    let mut sizes = [0; D];
    for (d, size) in sizes.iter_mut().enumerate() {
        *size = word(d + 1)
            .ok_or_else(|| DataError::new(file, format!("ends in its header; {} sizes are expected", D)))?
            as usize;
    }
    let (start, body) = (4 * (D + 1), sizes.iter().try_fold(1usize, |a, s| a.checked_mul(*s)));
    let expected = body.and_then(|b| b.checked_add(start));
    let expected = expected.ok_or_else(|| DataError::new(file, format!("sizes {sizes:?} are impossible")))?;
    match bytes.len() {
        found if found < expected => Err(DataError::new(
            file,
            format!("truncated: {found} bytes, but sizes {sizes:?} need {expected}"),
        )),
        found if found > expected => Err(DataError::new(
            file,
            format!("{} bytes too many: sizes {sizes:?} need {expected}", found - expected),
        )),
        _ => Ok((sizes, start)),
    }
}

/// The number of images, pixels of each and all pixels of an image file.
pub fn parse_images(file: &Path, mut bytes: Vec<u8>) -> Result<(usize, usize, Vec<u8>), DataError> {
    let ([count, rows, columns], start) = header::<3>(file, &bytes, 0x0803, "images")?;
    if count == 0 || rows * columns == 0 {
        return Err(DataError::new(file, "holds no images"));
    }
    bytes.drain(..start);
    Ok((count, rows * columns, bytes))
}

/// The labels of a label file, which must lie in 0..=9.
pub fn parse_labels(file: &Path, mut bytes: Vec<u8>) -> Result<Vec<u8>, DataError> {
    let (_, start) = header::<1>(file, &bytes, 0x0801, "labels")?;
    bytes.drain(..start);
    match bytes.iter().position(|l| *l > 9) {
        Some(at) => {
            Err(DataError::new(file, format!("label {} of sample {at}; labels are 0 to 9", bytes[at])))
        }
        None => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dataset;
    use std::io::Write;

    fn images(count: u32, body: usize) -> Vec<u8> {
        let mut b = Vec::new();
        [0x0803u32, count, 2, 3].iter().for_each(|w| b.extend(w.to_be_bytes()));
        b.extend((0..body).map(|i| i as u8));
        b
    }

    fn labels(given: &[u8]) -> Vec<u8> {
        let mut b = Vec::new();
        [0x0801u32, given.len() as u32].iter().for_each(|w| b.extend(w.to_be_bytes()));
        b.extend(given);
        b
    }

    #[test]
    fn reads_raw_and_gzipped_and_refuses_the_rest() {
        let folder = std::env::temp_dir().join(format!("dibo-idx-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let file = folder.join(name);
            std::fs::write(&file, bytes).unwrap();
            file
        };
        let gz = |bytes: &[u8]| {
            let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            e.write_all(bytes).unwrap();
            e.finish().unwrap()
        };
        let (good, twos) = (write("i", &images(2, 12)), write("l", &labels(&[9, 0])));
        let data = Dataset::read(&good, &twos).unwrap();
        assert_eq!((data.len(), data.pixels(), data.image(1)[0], data.labels()), (2, 6, 6, &[9, 0][..]));
        let packed = write("i.gz", &gz(&images(2, 12)));
        assert_eq!(Dataset::read(&packed, &twos).unwrap(), data);

        let bad = |images: &Path, labels: &Path, file: &str, what: &str| {
            let message = Dataset::read(images, labels).unwrap_err().to_string();
            assert!(message.contains(file) && message.contains(what), "{message}");
        };
        bad(&write("short", &images(2, 11)), &twos, "short", "truncated: 27 bytes");
        bad(&write("long", &images(2, 14)), &twos, "long", "2 bytes too many");
        bad(&write("empty", &[]), &twos, "empty", "4 bytes of magic");
        bad(&write("head", &images(2, 0)[..10]), &twos, "head", "ends in its header");
        bad(&twos, &twos, "l", "begins with 0x00000801; an IDX file of images begins with 0x00000803");
        bad(&good, &good, "i", "begins with 0x00000801");
        bad(&good, &write("ten", &labels(&[1, 10])), "ten", "label 10 of sample 1; labels are 0 to 9");
        bad(&good, &write("three", &labels(&[1, 2, 3])), "three", "3 labels, but");
        bad(&write("cut.gz", &gz(&images(2, 12))[..20]), &twos, "cut.gz", "not a whole gzip file");
        bad(&write("hidden", &gz(&images(2, 12))), &twos, "hidden", "must end in .gz");
        bad(&folder.join("absent"), &twos, "absent", "");
        let mut huge = images(2, 12);
        huge[4..16].fill(0xff);
        bad(&write("huge", &huge), &twos, "huge", "");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
