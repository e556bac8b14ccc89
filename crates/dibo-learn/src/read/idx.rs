//! IDX: images in one file, their labels in another beside it, as MNIST has them.
use super::scale::scale;
use super::table::{empty, most_values, named};
use super::{cannot, open, size};
use crate::samples::{Choice, Feature, ReadError, Roles, Samples, Words, short};
use std::io::Read;
use std::path::{Path, PathBuf};

/// So many numbers one image may have.
const IMAGE: usize = 64 << 20;

/// Whether a file's name, without `.gz`, is that of an IDX file.
pub(super) fn is(name: &str) -> bool {
    name.contains("idx") && name.ends_with("ubyte")
}

/// Images, and where a label is asked for, those of the file beside them.
pub(super) fn read(file: &Path, roles: &Roles) -> Result<Samples, ReadError> {
    let other = named(roles).find(|(_, name)| roles.label.as_deref() != Some(name));
    if let Some((_, name)) = other {
        let what = "IDX files have images and labels only: name no other column";
        return Err(ReadError::new(file, what).column(name));
    }
    only_image(file, &roles.features)?;
    let (shape, mut input) = start(file)?;
    let (rows, height, width, channels) = match shape[..] {
        [rows, height, width] => (rows, height, width, 1),
        [rows, height, width, channels] => (rows, height, width, channels),
        _ => {
            let what = format!("{} dimensions, but images have 3 or 4: name the file of images", shape.len());
            return Err(ReadError::new(file, what));
        }
    };
    let numbers = [height, width, channels].iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    let numbers = numbers.filter(|n| (1..=IMAGE).contains(n));
    let numbers = numbers.ok_or_else(|| {
        ReadError::new(file, format!("images of {width} x {height} x {channels}: none, or too large"))
    })?;
    if rows == 0 {
        return Err(ReadError::new(file, "there are no images: at least one is needed"));
    }
    if rows.saturating_mul(numbers) > most_values(size(file)?) {
        let what =
            format!("{rows} images of {numbers} numbers are far more than a file of this size may have");
        return Err(ReadError::new(file, what));
    }
    let to = roles.image_size.unwrap_or((width, height));
    let (mut values, mut bytes, mut image) = (Vec::new(), Vec::new(), Vec::new());
    for row in 0..rows {
        bytes.clear();
        let read = input.by_ref().take(numbers as u64).read_to_end(&mut bytes);
        if read.map_err(|e| cannot(file, e).row(row + 1))? < numbers {
            let what = format!("the file ends in this image; it says that it has {rows}");
            return Err(ReadError::new(file, what).row(row + 1));
        }
        image.clear();
        image.extend(bytes.iter().map(|&b| f32::from(b)));
        if to == (width, height) {
            values.extend_from_slice(&image);
        } else {
            values.extend(scale(&image, (width, height, channels), to));
        }
    }
    let mut samples = empty(file, rows);
    let count = to.0 * to.1 * channels;
    samples.features.push(Feature::Numbers { name: "image".into(), width: count, values });
    samples.image = Some((to.0, to.1, channels));
    if roles.label.is_some() {
        samples.labels = labels(file, rows)?;
    }
    Ok(samples)
}

/// Images are the only feature: no other may be chosen.
pub(super) fn only_image(file: &Path, features: &Choice) -> Result<(), ReadError> {
    if let Choice::Some(names) = features
        && names.iter().any(|n| n != "image")
    {
        return Err(ReadError::new(file, "images have one feature, 'image': choose no other"));
    }
    Ok(())
}

/// The dimensions, and what follows them.
fn start(file: &Path) -> Result<(Vec<usize>, impl Read), ReadError> {
    let mut input = open(file)?;
    let cut = |e| cannot(file, e);
    let mut magic = [0; 4];
    input.read_exact(&mut magic).map_err(cut)?;
    let [0, 0, 8, dimensions] = magic else {
        let what = "no IDX file of bytes: it should begin with 0, 0, 8 and the number of dimensions";
        return Err(ReadError::new(file, what));
    };
    let mut shape = Vec::new();
    for _ in 0..dimensions {
        let mut size = [0; 4];
        input.read_exact(&mut size).map_err(cut)?;
        shape.push(u32::from_be_bytes(size) as usize);
    }
    Ok((shape, input))
}

/// The file of labels, packed or not.
pub(super) fn beside(file: &Path) -> Result<PathBuf, ReadError> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let labels = name.replace("images-idx3", "labels-idx1").replace("images-idx4", "labels-idx1");
    let labels = labels.replace("images.idx3", "labels.idx1").replace("images.idx4", "labels.idx1");
    let plain = labels.strip_suffix(".gz").unwrap_or(&labels);
    let candidates = [labels.clone(), plain.into(), format!("{plain}.gz")];
    let found =
        candidates.iter().filter(|c| **c != name).map(|c| file.with_file_name(c)).find(|p| p.is_file());
    found.ok_or_else(|| {
        let what = format!("no labels beside it: there is no '{}'", short(&labels));
        ReadError::new(file, what)
    })
}

fn labels(file: &Path, rows: usize) -> Result<Words, ReadError> {
    let file = &beside(file)?;
    let (shape, input) = start(file)?;
    if shape != [rows] {
        let what = format!("labels of the shape {shape:?} for {rows} images: one each is needed");
        return Err(ReadError::new(file, what));
    }
    let mut bytes = Vec::new();
    input.take(rows as u64).read_to_end(&mut bytes).map_err(|e| cannot(file, e))?;
    if bytes.len() < rows {
        return Err(ReadError::new(file, format!("{} labels for {rows} images: it is cut off", bytes.len())));
    }
    let mut words = Words::default();
    let mut codes = [Words::MISSING; 256];
    for byte in bytes {
        let code = &mut codes[usize::from(byte)];
        if *code == Words::MISSING {
            *code = words.words.len() as u32;
            words.words.push(byte.to_string());
        }
        words.codes.push(*code);
    }
    Ok(words)
}
