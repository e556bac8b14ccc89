//! The published sets and the digests of their files.
use super::{DataError, Dataset, parse_images, parse_labels, read_bytes};
use md5::{Digest, Md5};
use std::path::{Path, PathBuf};

/// A published image set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Official {
    /// Handwritten digits (LeCun, Cortes and Burges).
    Mnist,
    /// Pieces of clothing (Xiao, Rasul and Vollgraf).
    FashionMnist,
}

/// The four files of either set: training images and labels, test images and labels.
pub const FILES: [&str; 4] = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
];

impl Official {
    /// All of them.
    pub const ALL: [Official; 2] = [Official::Mnist, Official::FashionMnist];

    /// Its name, which is that of its folder.
    pub fn name(self) -> &'static str {
        match self {
            Official::Mnist => "mnist",
            Official::FashionMnist => "fashion-mnist",
        }
    }

    /// MD5 digests of the four unpacked files.
    pub fn digests(self) -> [&'static str; 4] {
        match self {
            Official::Mnist => [
                "6bbc9ace898e44ae57da46a324031adb",
                "a25bea736e30d166cdddb491f175f624",
                "2646ac647ad5339dbf082846283269ea",
                "27ae3e4e09519cfbb04c329615203637",
            ],
            Official::FashionMnist => [
                "f4a8712d7a061bf5bd6d2ca38dc4d50a",
                "9018921c3c673c538a1fc5bad174d6f9",
                "8181f5470baa50b63fa0f6fddb340f0a",
                "15d484375f8d13e6eb1aabb0c3f46965",
            ],
        }
    }

    /// Reads training and test set from `folder/name`, raw or gzipped, and checks every digest.
    pub fn read(self, folder: &Path) -> Result<(Dataset, Dataset), DataError> {
        let part = |first: usize| -> Result<Dataset, DataError> {
            let (images, pixels) = self.checked(folder, first)?;
            let (labels, given) = self.checked(folder, first + 1)?;
            let (count, width, pixels) = parse_images(&images, pixels)?;
            let given = parse_labels(&labels, given)?;
            if count != given.len() {
                return Err(DataError::new(&labels, format!("{} labels for {count} images", given.len())));
            }
            Dataset::new(pixels, given, width, 10).map_err(|what| DataError::new(&images, what))
        };
        Ok((part(0)?, part(2)?))
    }

    fn checked(self, folder: &Path, which: usize) -> Result<(PathBuf, Vec<u8>), DataError> {
        let folder = folder.join(self.name());
        let file = find_file(&folder, FILES[which]).ok_or_else(|| {
            DataError::new(
                &folder,
                format!(
                    "{} (or the same with .gz) is not here; {} has four files: {}",
                    FILES[which],
                    self.name(),
                    FILES.join(", ")
                ),
            )
        })?;
        let bytes = read_bytes(&file)?;
        let (found, right) = (md5_hex(&bytes), self.digests()[which]);
        if found != right {
            return Err(DataError::new(
                &file,
                format!("MD5 of its unpacked bytes is {found}; that of {}'s file is {right}", self.name()),
            ));
        }
        Ok((file, bytes))
    }
}

/// The file of this name in a folder, or its gzipped form.
pub fn find_file(folder: &Path, name: &str) -> Option<PathBuf> {
    [folder.join(name), folder.join(format!("{name}.gz"))].into_iter().find(|f| f.is_file())
}

/// The MD5 digest in hexadecimal.
pub fn md5_hex(bytes: &[u8]) -> String {
    Md5::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_checked_and_absent_files_named() {
        assert_eq!(md5_hex(b"abc"), "900150983cd24fb0d6963f7d28e17f72");
        let folder = std::env::temp_dir().join(format!("dibo-official-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("mnist")).unwrap();
        let message = Official::Mnist.read(&folder).unwrap_err().to_string();
        assert!(message.contains("train-images-idx3-ubyte") && message.contains("is not here"), "{message}");
        std::fs::write(folder.join("mnist").join(FILES[0]), b"something else").unwrap();
        let message = Official::Mnist.read(&folder).unwrap_err().to_string();
        assert!(message.contains("MD5") && message.contains("6bbc9ace898e44ae57da46a324031adb"), "{message}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
