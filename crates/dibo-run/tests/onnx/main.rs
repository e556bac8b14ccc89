//! What other programs make of `model.onnx` is what dibo says itself, for every kind of model.
mod interpreter;

use dibo::problem::learning::bert::{self, Bert, Pool};
use dibo_learn::{Encoded, Encoding, SavedModel, Shape};
use dibo_run::saved;
use interpreter::Array;
use std::collections::BTreeMap;

/// Numbers in ±1 that look random.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

fn model(shape: Shape, columns: Vec<Encoded>, classes: usize) -> SavedModel {
    let encoding = Encoding { columns, image: None };
    let (count, mut r) = (shape.weights(encoding.width(), classes).unwrap(), Numbers(classes as u64));
    SavedModel {
        shape,
        encoding,
        classes: (0..classes).map(|c| c.to_string()).collect(),
        weights: (0..count).map(|_| r.next() as f32).collect(),
        about: BTreeMap::new(),
    }
}

fn numbers(width: usize, mean: f64, factor: f64) -> Encoded {
    Encoded::Numbers { name: "numbers".into(), mean: vec![mean; width], factor: vec![factor; width] }
}

fn onnx(model: &SavedModel) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    saved::save(model, folder.path()).unwrap();
    std::fs::read(folder.path().join("model.onnx")).unwrap()
}

/// The same probabilities, and the class of the largest.
fn same(found: &std::collections::HashMap<String, Array>, own: &[f32], classes: usize) {
    let (probabilities, labels) = (&found["probabilities"], &found["label"]);
    assert_eq!(probabilities.shape, [own.len() / classes, classes]);
    assert_eq!(labels.shape, [own.len() / classes]);
    let far = probabilities.values.iter().zip(own).map(|(a, b)| (a - f64::from(*b)).abs());
    let far = far.fold(0.0, f64::max);
    assert!(far < 2e-6, "{far}");
    for (label, row) in labels.values.iter().zip(own.chunks(classes)) {
        assert!(row.iter().all(|p| *p <= row[*label as usize] + 2e-6), "{label} of {row:?}");
    }
}

#[test]
fn a_linear_model_and_an_mlp_compute_the_same() {
    let mut r = Numbers(5);
    let rows: Vec<f32> = (0..7 * 6).map(|_| r.next() as f32).collect();
    for shape in [Shape::Linear { bias: true }, Shape::Linear { bias: false }, Shape::Mlp { hidden: 5 }] {
        let words = Encoded::OneHot { name: "words".into(), words: vec!["a".into(), "b".into()] };
        let mixed = model(shape, vec![numbers(4, 3.0, 2.0), words], 3);
        let encoded = Array::new(&[7, 6], rows.iter().map(|v| f64::from(*v)).collect());
        same(&interpreter::run(&onnx(&mixed), &[("encoded", encoded)]), &mixed.probabilities(&rows), 3);
        // Numbers alone come as they are, and may be missing.
        let plain = model(shape, vec![numbers(6, 100.0, 0.25)], 3);
        let mut raw: Vec<f64> = rows.iter().map(|v| 100.0 + 4.0 * f64::from(*v)).collect();
        raw[9] = f64::NAN;
        let scaled = |v: &f64| if v.is_nan() { 0.0 } else { ((v - 100.0) * 0.25) as f32 };
        let own = plain.probabilities(&raw.iter().map(scaled).collect::<Vec<_>>());
        let features = Array::new(&[7, 6], raw);
        same(&interpreter::run(&onnx(&plain), &[("features", features)]), &own, 3);
    }
}

/// Token numbers of texts, zeros behind them.
fn texts(lengths: &[usize], width: usize, vocabulary: usize) -> Vec<f32> {
    let mut r = Numbers(9);
    let mut word = || (1.0 + (0.5 + 0.5 * r.next()) * (vocabulary - 1) as f64).floor() as f32;
    let mut text = |length: usize| (0..width).map(|t| if t < length { word() } else { 0.0 }).collect();
    lengths.iter().map(|length| text(*length)).collect::<Vec<Vec<f32>>>().concat()
}

/// Texts of different lengths in one batch, padded as far as dibo pads them or no farther than the longest.
#[test]
fn a_bert_computes_the_same() {
    const LENGTHS: [usize; 5] = [3, 7, 1, 5, 2];
    let (width, longest, classes) = (10, 7, 3);
    for (pool, layers, heads) in [(Pool::Mean, 2, 2), (Pool::First, 2, 4), (Pool::Mean, 1, 1)] {
        let bert = Bert {
            vocabulary: 30,
            positions: 12,
            types: 2,
            hidden: 16,
            layers,
            heads,
            intermediate: 20,
            epsilon: 1e-2,
            pool,
        };
        let model = model(Shape::Bert(saved::sizes(&bert)), vec![numbers(width, 0.0, 1.0)], classes);
        let texts = texts(&LENGTHS, width, bert.vocabulary);
        let own: Vec<f32> = bert::scores(bert, &model.weights, classes, width, &texts);
        let spread =
            own.iter().fold(f32::MIN, |a, b| a.max(*b)) - own.iter().fold(f32::MAX, |a, b| a.min(*b));
        assert!(spread > 1.0, "scores that differ: {own:?}");
        let own: Vec<f32> = own.chunks(classes).flat_map(softmax).collect();
        let file = onnx(&model);
        for tokens in [width, longest] {
            let cut = texts.chunks(width).flat_map(|text| &text[..tokens]).map(|t| f64::from(*t));
            let ids: Vec<f64> = cut.collect();
            let mask = ids.iter().map(|id| f64::from(*id > 0.0)).collect();
            let shape = [LENGTHS.len(), tokens];
            // What stands behind a text does not matter, as the mask says where it ends.
            let ids = ids.iter().map(|id| if *id > 0.0 { *id } else { 29.0 }).collect();
            let inputs =
                [("input_ids", Array::new(&shape, ids)), ("attention_mask", Array::new(&shape, mask))];
            same(&interpreter::run(&file, &inputs), &own, classes);
        }
    }
}

fn softmax(row: &[f32]) -> Vec<f32> {
    let sum: f64 = row.iter().map(|v| f64::from(*v).exp()).sum();
    row.iter().map(|v| (f64::from(*v).exp() / sum) as f32).collect()
}
