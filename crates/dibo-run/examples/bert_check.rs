//! Writes BERTs with random weights into a folder, together with texts and what dibo makes of them, for
//! `check_export.py` to compare with other programs:
//!
//! ```text
//! cargo run --release -p dibo-run --example bert_check -- FOLDER
//! python crates/dibo-learn/tests/python/check_export.py FOLDER
//! ```
use dibo::problem::learning::bert::{self, Bert, Pool};
use dibo_learn::{Encoded, Encoding, SavedModel, Shape};
use dibo_run::saved;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

const TEXTS: usize = 40;

/// Numbers between 0 and 1 that look random and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Nearly normal, which is normal enough.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.next()).sum::<f64>() - 6.0
    }
}

const SMALL: Bert = Bert {
    vocabulary: 50,
    positions: 20,
    types: 2,
    hidden: 32,
    layers: 2,
    heads: 4,
    intermediate: 64,
    epsilon: 1e-12,
    pool: Pool::Mean,
};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("give a folder to write to")?;
    let deep = Bert { layers: 6, heads: 12, hidden: 384, intermediate: 1536, positions: 512, ..SMALL };
    let cases = [
        ("mean", SMALL, 12, 2),
        ("first", Bert { pool: Pool::First, types: 1, epsilon: 1e-5, ..SMALL }, 20, 3),
        ("one-head", Bert { heads: 1, layers: 1, ..SMALL }, 7, 300),
        // As large as MiniLM but for its words.
        ("deep", Bert { vocabulary: 3000, ..deep }, 128, 2),
    ];
    for (name, bert, tokens, classes) in cases {
        write_case(&Path::new(&folder).join(format!("bert-{name}")), bert, tokens, classes)?;
    }
    Ok(())
}

fn write_case(to: &Path, bert: Bert, tokens: usize, classes: usize) -> Result<(), Box<dyn Error>> {
    let mut r = Numbers(tokens as u64);
    let sizes = saved::sizes(&bert);
    let mut weights = Vec::new();
    for (name, shape) in sizes.tensors() {
        let inputs = *shape.last().unwrap_or(&1) as f64;
        let (mean, deviation) = match name.as_str() {
            name if name.ends_with("LayerNorm.weight") => (1.0, 0.2),
            name if name.ends_with("bias") => (0.0, 0.2),
            name if name.starts_with("embeddings") => (0.0, 1.0),
            // Attention that looks at some tokens more than at others.
            _ => (0.0, 1.5 / inputs.sqrt()),
        };
        weights.extend((0..shape.iter().product()).map(|_| (mean + deviation * r.normal()) as f32));
    }
    let head = 2.0 / (bert.hidden as f64).sqrt();
    weights.extend((0..classes * (bert.hidden + 1)).map(|_| (head * r.normal()) as f32));
    weights.resize(bert.places(classes).width, 0.0);
    let text = Encoded::Numbers { name: "text".into(), mean: vec![0.0; tokens], factor: vec![1.0; tokens] };
    let model = SavedModel {
        shape: Shape::Bert(sizes),
        encoding: Encoding { columns: vec![text], image: None },
        classes: (0..classes).map(|c| format!("class \"{c}\"")).collect(),
        weights,
        about: BTreeMap::new(),
    };
    saved::save(&model, to)?;
    let mut texts = Vec::new();
    for _ in 0..TEXTS {
        let length = 1 + (r.next() * tokens as f64) as usize;
        let mut word = || (1.0 + r.next() * (bert.vocabulary - 1) as f64).floor() as f32;
        texts.extend((0..tokens).map(|t| if t < length { word() } else { 0.0 }));
    }
    let scores: Vec<f32> = bert::scores(bert, &model.weights, classes, tokens, &texts);
    let (mut probabilities, mut labels) = (Vec::new(), Vec::new());
    for row in scores.chunks(classes) {
        let top = row.iter().fold(f32::MIN, |a, b| a.max(*b));
        let powers: Vec<f64> = row.iter().map(|v| f64::from(v - top).exp()).collect();
        let sum: f64 = powers.iter().sum();
        probabilities.extend(powers.iter().map(|p| (p / sum) as f32));
        labels.extend((row.iter().position(|v| *v == top).unwrap_or(0) as u32).to_le_bytes());
    }
    let bytes = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    std::fs::write(to.join("encoded.f32"), bytes(&texts))?;
    std::fs::write(to.join("probabilities.f32"), bytes(&probabilities))?;
    std::fs::write(to.join("labels.u32"), labels)?;
    std::fs::write(to.join("column-0.name"), "text")?;
    std::fs::write(to.join("column-0.data"), bytes(&texts))?;
    Ok(())
}
