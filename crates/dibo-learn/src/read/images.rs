//! A folder of PNG and JPEG images: folders named by class, or a `labels.csv` beside the images.
use super::idx::only_image;
use super::scale::scale;
use super::table::{composed, empty, line, named};
use super::{cannot, csv};
use crate::samples::{Choice, Feature, Ids, ReadError, Roles, Samples, Words, short};
use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

/// So many pixels one image may have: a small file can say that it is a huge image.
const PIXELS: usize = 64 << 20;

/// A folder; names of files are the ids.
pub(super) fn folder(folder: &Path, roles: &Roles) -> Result<Samples, ReadError> {
    only_image(folder, &roles.features)?;
    let table = folder.join("labels.csv");
    if table.is_file() { listed(folder, &table, roles) } else { by_class(folder, roles) }
}

/// The files that [`folder`] reads.
pub(super) fn parts(folder: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let table = folder.join("labels.csv");
    if table.is_file() {
        let (id, features) = (Some("file".into()), Choice::Some(Vec::new()));
        let samples = csv::read(&table, &Roles { id, features, ..Roles::default() }, b',', false)?;
        let Ids::Own(files) = samples.ids else { return Ok(vec![table]) };
        return Ok(std::iter::once(table).chain(files.iter().map(|f| folder.join(f))).collect());
    }
    let mut all = Vec::new();
    for (name, is_folder) in entries(folder)? {
        let inside = if is_folder { entries(&folder.join(&name))? } else { Vec::new() };
        all.extend(
            inside.into_iter().filter(|(image, _)| is_image(image)).map(|(i, _)| folder.join(&name).join(i)),
        );
        all.extend((!is_folder && is_image(&name)).then(|| folder.join(&name)));
    }
    Ok(all)
}

/// Images that `labels.csv` lists, in its order.
fn listed(folder: &Path, table: &Path, roles: &Roles) -> Result<Samples, ReadError> {
    let features = Choice::Some(Vec::new());
    let inner = Roles { id: Some("file".into()), features, image_size: None, ..roles.clone() };
    let mut samples = csv::read(table, &inner, b',', false)?;
    let Ids::Own(files) = std::mem::replace(&mut samples.ids, Ids::Numbers) else {
        return Err(ReadError::new(table, "there is no column 'file'"));
    };
    for (row, file) in files.iter().enumerate() {
        // Only what lies in the folder: a table from elsewhere must not reach the rest of the disk.
        if !Path::new(file).components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir)) {
            let what = format!("'{}' is not in this folder", short(file));
            return Err(ReadError::new(table, what).row(row + 1).column("file"));
        }
    }
    let known: HashSet<&str> = files.iter().map(|f| f.trim_start_matches("./")).collect();
    for (name, _) in entries(folder)?.iter().filter(|(name, is_folder)| !is_folder && is_image(name)) {
        if !known.contains(name.as_str()) {
            let what = format!("'{}' has no row: add one or take the image away", short(name));
            return Err(ReadError::new(table, what));
        }
    }
    pictures(folder, &files, roles.image_size, &mut samples)?;
    samples.ids = match &roles.id {
        Some(id) if id != "file" => {
            csv::read(table, &Roles { id: roles.id.clone(), ..inner }, b',', false)?.ids
        }
        _ => Ids::Own(files),
    };
    samples.file = folder.into();
    Ok(samples)
}

/// Images in folders that are named by class, or in none if no label is asked for.
fn by_class(folder: &Path, roles: &Roles) -> Result<Samples, ReadError> {
    let other = named(roles).find(|(_, name)| roles.label.as_deref() != Some(name));
    if let Some((_, name)) = other {
        let what =
            "a folder of images has no such column: write a labels.csv with the columns 'file' and this";
        return Err(ReadError::new(folder, what).column(name));
    }
    let (mut files, mut labels) = (Vec::new(), Words::default());
    let (classes, loose): (Vec<_>, Vec<_>) =
        entries(folder)?.into_iter().partition(|(_, is_folder)| *is_folder);
    files.extend(loose.into_iter().map(|(name, _)| name).filter(|name| is_image(name)));
    if let Some(file) = files.first()
        && (roles.label.is_some() || !classes.is_empty())
    {
        let what = format!(
            "the image '{}' is in no class: put the images of each class into a folder of its name, or write \
             a labels.csv with the columns 'file' and the label's",
            short(file)
        );
        return Err(ReadError::new(folder, what));
    }
    for (class, _) in classes {
        let (inner, label) = (folder.join(&class), composed(&class));
        for (name, is_folder) in entries(&inner)? {
            if is_folder {
                let what = format!("the folder '{}' in a class: only images may be there", short(&name));
                return Err(ReadError::new(&inner, what));
            }
            if !is_image(&name) {
                continue;
            }
            if labels.words.last().is_none_or(|last| *last != label) {
                labels.words.push(label.clone().into_owned());
            }
            labels.codes.push(labels.words.len() as u32 - 1);
            files.push(format!("{class}/{name}"));
        }
    }
    let mut samples = empty(folder, files.len());
    pictures(folder, &files, roles.image_size, &mut samples)?;
    if roles.label.is_some() {
        samples.labels = labels;
    }
    samples.ids = Ids::Own(files);
    Ok(samples)
}

/// What a folder has, by name; hidden files are left out. The order is the same on all systems.
fn entries(folder: &Path) -> Result<Vec<(String, bool)>, ReadError> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|e| cannot(folder, e))? {
        let entry = entry.map_err(|e| cannot(folder, e))?;
        let name = entry.file_name().into_string().map_err(|name| {
            ReadError::new(folder, format!("the name {name:?} is not UTF-8: rename the file"))
        })?;
        if name.starts_with('.') {
            continue;
        }
        // Links count as what they lead to.
        let is_folder = std::fs::metadata(entry.path()).map_err(|e| cannot(&entry.path(), e))?.is_dir();
        if !is_folder && is_other_image(&name) {
            return Err(ReadError::new(&entry.path(), "images must be PNG or JPEG: convert it"));
        }
        all.push((name, is_folder));
    }
    all.sort();
    Ok(all)
}

fn ends_in(name: &str, ends: &[&str]) -> bool {
    let end = Path::new(name).extension().unwrap_or_default().to_string_lossy().to_lowercase();
    ends.contains(&end.as_str())
}

fn is_image(name: &str) -> bool {
    ends_in(name, &["png", "jpg", "jpeg"])
}

/// Images that would be silently left out otherwise.
fn is_other_image(name: &str) -> bool {
    ends_in(name, &["bmp", "gif", "webp", "tif", "tiff", "avif", "heic", "ppm", "pgm"])
}

/// All images as one feature: grey, or all in colour if one is.
fn pictures(
    folder: &Path,
    files: &[String],
    to: Option<(usize, usize)>,
    samples: &mut Samples,
) -> Result<(), ReadError> {
    let (mut values, mut channels, mut size) = (Vec::new(), 1, to);
    for name in files {
        let file = folder.join(name);
        let image = decode(&file)?;
        let (width, height) = *size.get_or_insert((image.width, image.height));
        if to.is_none() && (image.width, image.height) != (width, height) {
            let what = format!(
                "{} x {} pixels, but '{}' has {width} x {height}: give one image size to scale all to",
                image.width,
                image.height,
                short(&files[0])
            );
            return Err(ReadError::new(&file, what));
        }
        if image.channels == 3 && channels == 1 {
            values = coloured(values);
            channels = 3;
        }
        let mut pixels: Vec<f32> = image.bytes.iter().map(|&b| f32::from(b)).collect();
        if (image.width, image.height) != (width, height) {
            pixels = scale(&pixels, (image.width, image.height, image.channels), (width, height));
        }
        values.extend(if image.channels < channels { coloured(pixels) } else { pixels });
    }
    let Some((width, height)) = size.filter(|_| !files.is_empty()) else {
        return Err(ReadError::new(folder, "there are no PNG or JPEG images: at least one is needed"));
    };
    let name = "image".into();
    samples.features.push(Feature::Numbers { name, width: width * height * channels, values });
    samples.image = Some((width, height, channels));
    Ok(())
}

/// Grey as red, green and blue.
fn coloured(grey: Vec<f32>) -> Vec<f32> {
    grey.into_iter().flat_map(|v| [v; 3]).collect()
}

/// One image: bytes of one or three channels.
struct Image {
    width: usize,
    height: usize,
    channels: usize,
    bytes: Vec<u8>,
}

fn decode(file: &Path) -> Result<Image, ReadError> {
    let bytes = std::fs::read(file).map_err(|e| cannot(file, e))?;
    let image = match bytes.as_slice() {
        [0x89, b'P', b'N', b'G', ..] => png(&bytes),
        [0xff, 0xd8, ..] => jpeg(&bytes),
        _ => Err("neither PNG nor JPEG".into()),
    };
    image.map_err(|why| ReadError::new(file, format!("cannot be read as an image: {}", line(&why))))
}

/// Whether a file of so many bytes may have so many pixels, at most so many in a byte.
fn may_be(width: usize, height: usize, bytes: &[u8], most: usize) -> Result<(), String> {
    let most = bytes.len().saturating_mul(most).clamp(1 << 20, PIXELS);
    match width.checked_mul(height) {
        Some(pixels) if (1..=most).contains(&pixels) => Ok(()),
        _ => Err(format!("{width} x {height} pixels; {most} are the most in a file of its size")),
    }
}

fn png(bytes: &[u8]) -> Result<Image, String> {
    let text = |e: png::DecodingError| e.to_string();
    let limits = png::Limits { bytes: 8 * PIXELS };
    let mut decoder = png::Decoder::new_with_limits(std::io::Cursor::new(bytes), limits);
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let about = decoder.read_header_info().map_err(text)?;
    // Eight in a byte at best, and packing makes a thousandth of it.
    may_be(about.width as usize, about.height as usize, bytes, 8 * 1032)?;
    let mut reader = decoder.read_info().map_err(text)?;
    let mut pixels = vec![0; reader.output_buffer_size().ok_or("too large")?];
    let frame = reader.next_frame(&mut pixels).map_err(text)?;
    pixels.truncate(frame.buffer_size());
    // What is transparent counts as opaque.
    let (all, channels) = match frame.color_type {
        png::ColorType::Grayscale => (1, 1),
        png::ColorType::GrayscaleAlpha => (2, 1),
        png::ColorType::Rgb => (3, 3),
        png::ColorType::Rgba => (4, 3),
        png::ColorType::Indexed => return Err("colours by number without a table".into()),
    };
    if all != channels {
        pixels = pixels.chunks_exact(all).flat_map(|pixel| &pixel[..channels]).copied().collect();
    }
    image(frame.width as usize, frame.height as usize, channels, pixels)
}

fn jpeg(bytes: &[u8]) -> Result<Image, String> {
    use zune_jpeg::zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions};
    // The decoder fills up what is missing with grey: a file that has no end is known by that.
    let tail = &bytes[bytes.len().saturating_sub(4096)..];
    if !tail.windows(2).any(|pair| pair == [0xff, 0xd9]) {
        return Err("it is cut off".into());
    }
    let options = DecoderOptions::default().set_max_width(1 << 16).set_max_height(1 << 16);
    let mut decoder = zune_jpeg::JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(|e| e.to_string())?;
    let (width, height) = decoder.dimensions().ok_or("it has no size")?;
    // A square of 64 takes a bit at least.
    may_be(width, height, bytes, 512)?;
    let grey = decoder.input_colorspace() == Some(ColorSpace::Luma);
    let space = if grey { ColorSpace::Luma } else { ColorSpace::RGB };
    let options = options.jpeg_set_out_colorspace(space);
    let mut decoder = zune_jpeg::JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    let pixels = decoder.decode().map_err(|e| e.to_string())?;
    image(width, height, if grey { 1 } else { 3 }, pixels)
}

fn image(width: usize, height: usize, channels: usize, bytes: Vec<u8>) -> Result<Image, String> {
    if bytes.len() != width * height * channels {
        return Err(format!("{} bytes for {width} x {height} x {channels}", bytes.len()));
    }
    Ok(Image { width, height, channels, bytes })
}
