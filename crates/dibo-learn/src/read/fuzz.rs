//! Damaged files of every format: an error or samples that hold together, never a panic
//! (`DIBO_FUZZ=100000 cargo test --release -p dibo-learn fuzz`).
use super::tests::{Folder, LINES, TABLE, every_role, gz, idx, npy, npz};
use crate::samples::{Feature, Roles, Samples};

/// A small generator for damage: no need for more than speed here.
struct Damage(u64);

impl Damage {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n.max(1)
    }

    fn to(&mut self, good: &[u8]) -> Vec<u8> {
        const PIECES: &[&[u8]] = &[
            b",",
            b"\"",
            b"\n",
            b"\t",
            b"{",
            b"}",
            b"[",
            b"]",
            b"NA",
            b"inf",
            b"-1",
            b"1e999",
            b"99999999999",
            b"0",
            b"\xff\xff\xff\xff",
            b"\x00\x00\x00\x00",
            b"\xff\xff\xff\x7f",
            b"\x80",
            b"\xc3",
            b"\x7f",
            b"\x01",
            b"(9,",
            b"\xff\xff\xff\xff\xff\xff\xff\x7f",
            b"\x00\x00\x00\x00\x00\x10\x00\x00",
            b"<U9",
            b"True",
            b"\"y\":",
        ];
        let mut bytes = good.to_vec();
        for _ in 0..1 + self.below(4) {
            let at = self.below(bytes.len() + 1);
            let piece = PIECES[self.below(PIECES.len())];
            match self.below(7) {
                0 => bytes.truncate(at),
                1 => drop(bytes.splice(at..at, piece.iter().copied())),
                // As many bytes as before, so that what follows stays where it was.
                2 => bytes.iter_mut().skip(at).zip(piece).for_each(|(b, p)| *b = *p),
                3 if at < bytes.len() => bytes[at] = self.below(256) as u8,
                4 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                5 => {
                    let end = (at + self.below(30)).min(bytes.len());
                    drop(bytes.splice(at..end, piece.iter().copied()));
                }
                _ => {
                    let end = (at + self.below(200)).min(bytes.len());
                    let piece = bytes[at..end].to_vec();
                    let to = self.below(bytes.len() + 1);
                    drop(bytes.splice(to..to, piece));
                }
            }
        }
        bytes
    }
}

/// Files that can be read, by name, and the roles of their columns.
fn good() -> Vec<(&'static str, Vec<u8>, Roles)> {
    let only = |label: &str, id: Option<&str>| Roles {
        label: Some(label.into()),
        id: id.map(String::from),
        ..Roles::default()
    };
    let matrix: Vec<u8> = (0..24u8).flat_map(|v| f32::from(v).to_le_bytes()).collect();
    let arrays = npz(&[
        ("x", npy("<f4", true, "4, 3, 2", &matrix)),
        ("y", npy("<i8", false, "4,", &[1; 32])),
        ("s", npy("<U1", false, "4,", &[97, 0, 0, 0].repeat(4))),
    ]);
    let images = idx(&[3, 2, 2], &[7; 12]);
    #[allow(unused_mut, reason = "some formats are features of the crate")]
    let mut all = vec![
        ("t.csv", TABLE.as_bytes().to_vec(), every_role()),
        ("p.csv.gz", gz(TABLE.as_bytes()), every_role()),
        ("t.jsonl", LINES.as_bytes().to_vec(), only("y", Some("id"))),
        ("w.csv", TABLE.as_bytes().to_vec(), Roles { words: vec!["a".into(), "c".into()], ..every_role() }),
        ("t.npy", npy("<f4", false, "4, 6", &matrix), Roles::default()),
        ("t.npz", arrays, only("y", None)),
        ("n.npz", include_bytes!("../../tests/numpy.npz").to_vec(), only("y", Some("name"))),
        ("t-images-idx3-ubyte", images.clone(), only("y", None)),
        ("p-images-idx3-ubyte.gz", gz(&images), Roles { image_size: Some((3, 1)), ..Roles::default() }),
        ("t-labels-idx1-ubyte", idx(&[3], &[7, 2, 7]), only("y", None)),
    ];
    #[cfg(feature = "parquet")]
    {
        let roles = only("label", Some("id"));
        let (parquet, feather) =
            (include_bytes!("../../tests/pandas.parquet"), include_bytes!("../../tests/pandas.feather"));
        all.push(("t.parquet", parquet.to_vec(), roles.clone()));
        all.push(("t.feather", feather.to_vec(), roles));
        let (plain, stream) = super::tests::arrow::small();
        all.push(("s.parquet", plain, only("y", None)));
        all.push(("s.arrow", stream, only("y", None)));
    }
    #[cfg(feature = "images")]
    {
        let pixels: Vec<u8> = (0..150).collect();
        let colour = super::tests::png(10, 5, png::ColorType::Rgb, &pixels);
        all.push(("a/c/t.png", colour, only("y", None)));
        all.push(("b/c/t.jpg", include_bytes!("../../tests/colour.jpg").to_vec(), only("y", None)));
        all.push(("c/c/t.jpg", include_bytes!("../../tests/grey.jpg").to_vec(), Roles::default()));
    }
    all
}

/// Every column has as many values as there are rows.
fn holds_together(samples: &Samples) {
    for feature in &samples.features {
        match feature {
            Feature::Numbers { width, values, .. } => assert_eq!(values.len(), width * samples.rows),
            Feature::Category { words, .. } => assert_eq!(words.codes.len(), samples.rows),
        }
    }
    assert!(samples.labels.codes.is_empty() || samples.labels.codes.len() == samples.rows);
    assert!(samples.clean.as_ref().is_none_or(|c| c.len() == samples.rows));
}

#[test]
fn fuzz_readers() {
    let count: usize = std::env::var("DIBO_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(2_000);
    let folder = Folder::new();
    let files = good();
    // Where a file is read from: an image by its folder, labels by their images.
    let from = |name: &str| match name {
        "t-labels-idx1-ubyte" => folder.path().join("t-images-idx3-ubyte"),
        name if name.contains('/') => folder.path().join(&name[..1]),
        name => folder.path().join(name),
    };
    files.iter().for_each(|(name, bytes, _)| drop(folder.write(name, bytes)));
    for (name, _, roles) in &files {
        holds_together(&super::read(&from(name), roles).unwrap_or_else(|e| panic!("{e}")));
    }
    let mut damage = Damage(1);
    let mut slowest = (std::time::Duration::ZERO, "", 0);
    let mut fine = vec![0; files.len()];
    for i in 0..count {
        let (name, bytes, roles) = &files[i % files.len()];
        folder.write(name, damage.to(bytes));
        let start = std::time::Instant::now();
        match super::read(&from(name), roles) {
            Ok(samples) => {
                holds_together(&samples);
                fine[i % files.len()] += 1;
            }
            Err(e) => assert!(!e.to_string().contains('\n'), "{e}"),
        }
        slowest = slowest.max((start.elapsed(), name, i));
        folder.write(name, bytes);
    }
    println!("{count} damaged files; read all the same: {fine:?}; slowest {slowest:?}");
}
