//! Writes models of all shapes with awkward encodings into a folder, together with rows and what they give
//! here, for `tests/python/check_export.py` to compare with other programs:
//!
//! ```text
//! cargo run -p dibo-learn --example export_check -- FOLDER
//! python crates/dibo-learn/tests/python/check_export.py FOLDER
//! ```
use dibo_learn::{Encoded, Encoding, Feature, Ids, Samples, SavedModel, Shape, Words};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

const ROWS: usize = 1500;

/// Numbers that look random and are the same each time (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Nearly normal, which is normal enough.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

/// A column of numbers with this mean and deviation, some missing.
fn numbers(r: &mut Numbers, name: &str, width: usize, mean: f64, deviation: f64) -> (Encoded, Feature) {
    let means: Vec<f64> = (0..width).map(|_| mean + deviation * r.normal()).collect();
    let factor: Vec<f64> = (0..width).map(|_| (0.5 + r.uniform()) / deviation).collect();
    let values = (0..ROWS * width).map(|i| {
        let value = means[i % width] + deviation * r.normal();
        if r.uniform() < 0.05 { f32::NAN } else { value as f32 }
    });
    let feature = Feature::Numbers { name: name.into(), width, values: values.collect() };
    (Encoded::Numbers { name: name.into(), mean: means, factor }, feature)
}

/// A column of words, some missing, some unknown to the model.
fn category(r: &mut Numbers, name: &str, known: usize) -> (Encoded, Feature) {
    let word = |i: usize| format!("{name} \"{i}\" ü,\n");
    let codes = (0..ROWS).map(|_| match r.next() % 20 {
        0 => Words::MISSING,
        _ => (r.next() % (known as u64 + 2)) as u32,
    });
    let codes = codes.collect();
    let words = Words { words: (0..known + 2).map(word).collect(), codes };
    let feature = Feature::Category { name: name.into(), words };
    // Not in the order of the file.
    (Encoded::OneHot { name: name.into(), words: (0..known).rev().map(word).collect() }, feature)
}

fn columns(r: &mut Numbers, kind: &str) -> Vec<(Encoded, Feature)> {
    match kind {
        "one" => vec![numbers(r, "x", 1, 0.0, 1.0)],
        "table" => (0..9).map(|i| numbers(r, &format!("number {i}"), 1, 3.0 * i as f64, 2.0)).collect(),
        "far" => vec![
            numbers(r, "year", 1, 1e4, 1.0),
            numbers(r, "seconds", 2, 1.7e9, 1e3),
            numbers(r, "tiny", 3, 1e-12, 1e-14),
            numbers(r, "huge", 1, -1e30, 1e27),
        ],
        "image" => vec![numbers(r, "image", 784, 127.0, 60.0)],
        "mixed" => vec![
            category(r, "colour", 3),
            numbers(r, "year", 1, 1e4, 1.0),
            category(r, "nothing", 0),
            numbers(r, "vector", 33, 0.1, 0.2),
            category(r, "town", 200),
        ],
        other => unreachable!("{other}"),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("give a folder to write to")?;
    let mut r = Numbers(1);
    for kind in ["one", "table", "far", "image", "mixed"] {
        for classes in [2, 10, 300] {
            let shapes = [
                ("linear", Shape::Linear { bias: true }),
                ("linear-no-bias", Shape::Linear { bias: false }),
                ("mlp", Shape::Mlp { hidden: 1 + (r.next() % 100) as usize }),
            ];
            for (name, shape) in shapes {
                let to = Path::new(&folder).join(format!("{kind}-{classes}-{name}"));
                write_case(&mut r, &to, shape, kind, classes)?;
            }
        }
    }
    Ok(())
}

fn write_case(
    r: &mut Numbers,
    to: &Path,
    shape: Shape,
    kind: &str,
    classes: usize,
) -> Result<(), Box<dyn Error>> {
    let (columns, mut features): (Vec<_>, Vec<_>) = columns(r, kind).into_iter().unzip();
    let encoding = Encoding { columns, image: None };
    let inputs = encoding.width();
    let count = shape.weights(inputs, classes).ok_or("too many weights")?;
    // Scores of a few units, so that probabilities are neither all alike nor all 0 and 1.
    let scale = |i: usize| match shape {
        Shape::Mlp { hidden } if i >= (inputs + 1) * hidden => 2.0 / (hidden as f64).sqrt(),
        _ => 2.0 / (inputs as f64).sqrt(),
    };
    let model = SavedModel {
        shape,
        encoding,
        classes: (0..classes).map(|c| format!("class \"{c}\"")).collect(),
        weights: (0..count).map(|i| (scale(i) * r.normal()) as f32).collect(),
        about: BTreeMap::from([("kind".into(), kind.into())]),
    };
    model.save(to)?;
    // The file's order of columns is not the model's.
    features.reverse();
    let samples = Samples {
        file: "rows".into(),
        rows: ROWS,
        ids: Ids::Numbers,
        labels: Words::default(),
        owners: None,
        clean: None,
        truth: None,
        texts: None,
        features,
        image: None,
        merged: Vec::new(),
    };
    let encoded = model.encoding.apply(&samples, 0..ROWS)?;
    let found = SavedModel::load(to)?.predict(&samples)?;
    let labels: Vec<u8> = found.iter().flat_map(|p| (p.class as u32).to_le_bytes()).collect();
    let bytes = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    std::fs::write(to.join("encoded.f32"), bytes(&encoded))?;
    std::fs::write(to.join("probabilities.f32"), bytes(&model.probabilities(&encoded)))?;
    std::fs::write(to.join("labels.u32"), labels)?;
    for (i, feature) in samples.features.iter().enumerate() {
        let (name, content) = match feature {
            Feature::Numbers { name, values, .. } => (name, bytes(values)),
            Feature::Category { name, words } => {
                let all: Vec<_> = (0..ROWS).map(|row| words.get(row)).collect();
                (name, serde_json::to_vec(&all)?)
            }
        };
        std::fs::write(to.join(format!("column-{i}.name")), name)?;
        std::fs::write(to.join(format!("column-{i}.data")), content)?;
    }
    Ok(())
}
