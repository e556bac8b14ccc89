//! Data: image sets in IDX files, and how their samples are dealt out to agents with some training labels
//! made wrong on purpose.
//!
//! Each random choice has its own stream of the seed: who gets a sample, what is validation, which labels are
//! wrong.
mod deal;
mod idx;
mod official;

pub use deal::{Dealt, Hand, Noise, Partition, Recipe, Split};
pub use idx::{parse_images, parse_labels, read_bytes};
pub use official::{FILES, Official, find_file, md5_hex};

use crate::memory::{Buffer, copied};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What is wrong with a data file, and what would be right.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", file.display())]
pub struct DataError {
    /// The file.
    pub file: PathBuf,
    /// What is wrong and what is expected.
    pub what: String,
}

impl DataError {
    fn new(file: &Path, what: impl Into<String>) -> Self {
        DataError { file: file.to_path_buf(), what: what.into() }
    }
}

/// Labelled images, one byte a pixel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataset {
    images: Buffer<u8>,
    labels: Vec<u8>,
    pixels: usize,
    classes: usize,
}

impl Dataset {
    /// Labelled images from memory: `images` holds `pixels` bytes for each label.
    pub fn new(images: Vec<u8>, labels: Vec<u8>, pixels: usize, classes: usize) -> Result<Self, String> {
        if pixels == 0 || classes == 0 || classes > 256 || labels.is_empty() {
            return Err(format!(
                "{} labels, {pixels} pixels and {classes} classes; each must be 1 or more",
                labels.len()
            ));
        }
        if images.len() != labels.len() * pixels {
            return Err(format!(
                "{} bytes of images for {} labels; {} are needed",
                images.len(),
                labels.len(),
                labels.len() * pixels
            ));
        }
        if let Some(at) = labels.iter().position(|l| *l as usize >= classes) {
            return Err(format!("label {} of sample {at} is not below {classes}", labels[at]));
        }
        Ok(Dataset { images: copied([&images[..]], images.len()), labels, pixels, classes })
    }

    /// Reads an image file and its label file (IDX, raw or gzipped), of ten classes.
    pub fn read(images: &Path, labels: &Path) -> Result<Self, DataError> {
        let ((count, pixels, bytes), given) =
            (parse_images(images, read_bytes(images)?)?, parse_labels(labels, read_bytes(labels)?)?);
        if count != given.len() {
            return Err(DataError::new(
                labels,
                format!("{} labels, but {} holds {count} images", given.len(), images.display()),
            ));
        }
        Self::new(bytes, given, pixels, 10).map_err(|what| DataError::new(images, what))
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// True if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Bytes of one image.
    pub fn pixels(&self) -> usize {
        self.pixels
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// The true labels.
    pub fn labels(&self) -> &[u8] {
        &self.labels
    }

    /// Image `i`.
    pub fn image(&self, i: usize) -> &[u8] {
        &self.images[i * self.pixels..(i + 1) * self.pixels]
    }

    /// The samples with these numbers, in this order.
    pub fn subset(&self, samples: &[u32]) -> Dataset {
        let images = copied(samples.iter().map(|i| self.image(*i as usize)), samples.len() * self.pixels);
        let labels = samples.iter().map(|i| self.labels[*i as usize]).collect();
        Dataset { images, labels, ..*self }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.images.len() + self.labels.len()
    }
}

/// How a pixel becomes a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scaling {
    /// pixel / 255.
    Unit,
    /// Minus the mean and divided by the deviation of all pixels of the data.
    #[default]
    Standardised,
    /// Minus the mean and divided by the deviation of this pixel over the data (a pixel that never changes
    /// becomes 0).
    PerPixel,
}

impl Scaling {
    /// The numbers (a, b) of each pixel such that it enters as a·byte + b, from these samples of the data.
    pub fn fit(self, data: &Dataset, samples: impl IntoIterator<Item = u32>) -> Vec<(f64, f64)> {
        let pixels = data.pixels;
        let (mut sum, mut squares) = (vec![0u64; pixels], vec![0u64; pixels]);
        let mut count = 0;
        for i in samples {
            count += 1;
            for ((v, s), q) in data.image(i as usize).iter().zip(&mut sum).zip(&mut squares) {
                let v = u64::from(*v);
                *s += v;
                *q += v * v;
            }
        }
        // Bytes minus mean over deviation: dividing by 255 first changes nothing.
        let affine = |sum: u64, squares: u64, count: usize| {
            let mean = sum as f64 / count as f64;
            let deviation = (squares as f64 / count as f64 - mean * mean).max(0.0).sqrt();
            if deviation < 1e-9 { (1.0, -mean) } else { (1.0 / deviation, -mean / deviation) }
        };
        match self {
            Scaling::Unit => vec![(1.0 / 255.0, 0.0); pixels],
            Scaling::Standardised => {
                vec![affine(sum.iter().sum(), squares.iter().sum(), count * pixels); pixels]
            }
            Scaling::PerPixel => (0..pixels).map(|p| affine(sum[p], squares[p], count)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalings_standardise() {
        let data = Dataset::new(vec![0, 10, 7, 4, 30, 7, 8, 20, 7], vec![0, 1, 2], 3, 3).unwrap();
        assert_eq!(Scaling::Unit.fit(&data, 0..3)[1], (1.0 / 255.0, 0.0));
        let moments = |values: &[f64]| {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            (mean, values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / values.len() as f64)
        };
        let all = |fit: &[(f64, f64)]| -> Vec<f64> {
            (0..9).map(|i| fit[i % 3].0 * f64::from(data.images[i]) + fit[i % 3].1).collect()
        };
        let (mean, variance) = moments(&all(&Scaling::Standardised.fit(&data, 0..3)));
        assert!(mean.abs() < 1e-12 && (variance - 1.0).abs() < 1e-12);
        let each = all(&Scaling::PerPixel.fit(&data, 0..3));
        for p in 0..2 {
            let (mean, variance) = moments(&[each[p], each[3 + p], each[6 + p]]);
            assert!(mean.abs() < 1e-12 && (variance - 1.0).abs() < 1e-12);
        }
        assert_eq!([each[2], each[5], each[8]], [0.0; 3]);
    }

    #[test]
    fn wrong_shapes_are_refused() {
        assert!(Dataset::new(vec![0; 5], vec![0, 1], 3, 10).unwrap_err().contains("6 are needed"));
        assert!(Dataset::new(vec![0; 6], vec![0, 3], 3, 3).unwrap_err().contains("sample 1"));
    }
}
