use super::onnx::ModelProto;
use super::store::{JSON, KEY, ONNX, TENSORS, parse};
use super::*;
use crate::samples::{Choice, Feature, Ids, Words};
use prost::Message;
use std::path::Path;

/// Numbers that look random and are the same each time (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// In ±1.
    fn real(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

const SHAPES: [Shape; 3] =
    [Shape::Linear { bias: true }, Shape::Linear { bias: false }, Shape::Mlp { hidden: 5 }];

fn numbers(name: &str, mean: &[f64], factor: &[f64]) -> Encoded {
    Encoded::Numbers { name: name.into(), mean: mean.into(), factor: factor.into() }
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|w| w.to_string()).collect()
}

/// 21 inputs, 3 classes.
fn model(shape: Shape, seed: u64) -> SavedModel {
    let mut r = Numbers(seed);
    let columns = vec![
        numbers("age, \"years\"", &[10_000.1], &[1.0 / 3.0]),
        Encoded::OneHot { name: "colour\n".into(), words: words(&["red", "", "grün"]) },
        numbers("image", &[0.1; 17], &[1e-30; 17]),
    ];
    SavedModel {
        shape,
        encoding: Encoding { columns, image: None },
        classes: words(&["yes", "no\n", "\u{1f600}"]),
        weights: (0..shape.weights(21, 3).unwrap()).map(|_| r.real() as f32).collect(),
        about: BTreeMap::from([("method".into(), "a \"method\"".into())]),
    }
}

/// As the layout is described, with nothing clever.
fn plain_scores(model: &SavedModel, row: &[f32]) -> Vec<f64> {
    let (w, d) = (&model.weights, row.len());
    let w = |i: usize| f64::from(w[i]);
    let x = |i: usize| if i == d { 1.0 } else { f64::from(row[i]) };
    (0..model.classes.len())
        .map(|c| match model.shape {
            Shape::Linear { bias: true } => (0..=d).map(|i| x(i) * w(c * (d + 1) + i)).sum(),
            Shape::Linear { bias: false } => (0..d).map(|i| x(i) * w(c * d + i)).sum(),
            Shape::Bert(_) => f64::NAN,
            Shape::Mlp { hidden: h } => {
                let unit = |j: usize| (0..=d).map(|i| x(i) * w(i * h + j)).sum::<f64>().max(0.0);
                let second = |j: usize| w((d + 1) * h + c * (h + 1) + j);
                (0..h).map(|j| unit(j) * second(j)).sum::<f64>() + second(h)
            }
        })
        .collect()
}

fn samples(features: Vec<Feature>, rows: usize) -> Samples {
    Samples {
        file: "rows.csv".into(),
        rows,
        ids: Ids::Numbers,
        labels: Words::default(),
        owners: None,
        clean: None,
        truth: None,
        texts: None,
        features,
        image: None,
        merged: Vec::new(),
    }
}

#[test]
fn scores_follow_the_layout() {
    for (shape, width) in SHAPES.into_iter().flat_map(|s| [1, 15, 16, 63, 64, 65, 200].map(|w| (s, w))) {
        let mut m = model(shape, 1);
        m.encoding.columns = vec![numbers("x", &vec![0.0; width], &vec![1.0; width])];
        let mut r = Numbers(2);
        m.weights = (0..shape.weights(width, 3).unwrap()).map(|_| r.real() as f32).collect();
        m.check().unwrap();
        let rows: Vec<f32> =
            (0..width * 130).map(|i| if i % 5 == 0 { 0.0 } else { r.real() as f32 }).collect();
        let (scores, probabilities) = (m.scores(&rows), m.probabilities(&rows));
        for (i, row) in rows.chunks_exact(width).enumerate() {
            let plain = plain_scores(&m, row);
            let sum: f64 = plain.iter().map(|s| s.exp()).sum();
            for (c, plain) in plain.iter().enumerate() {
                assert!((f64::from(scores[i * 3 + c]) - plain).abs() < 1e-5, "{shape:?} {width}");
                assert!((f64::from(probabilities[i * 3 + c]) - plain.exp() / sum).abs() < 1e-6);
            }
        }
    }
}

#[test]
fn probabilities_of_large_scores_are_finite() {
    let mut m = model(SHAPES[1], 1);
    m.encoding.columns = vec![numbers("x", &[0.0], &[1.0])];
    m.weights = vec![1e6, 0.0, -1e6];
    assert_eq!(m.probabilities(&[1.0, -1.0, 0.0]), [1., 0., 0., 0., 0., 1., 1. / 3., 1. / 3., 1. / 3.]);
}

#[test]
fn tensors_are_in_the_order_of_pytorch() {
    let mut m = model(Shape::Mlp { hidden: 2 }, 1);
    m.encoding.columns = vec![numbers("x", &[0.0; 3], &[1.0; 3])];
    m.weights = (0..17).map(|i| i as f32).collect();
    m.check().unwrap();
    let tensors = m.tensors();
    let found: Vec<_> =
        tensors.iter().map(|t| (t.name.as_str(), t.shape.as_slice(), t.values.as_slice())).collect();
    let expected: [(&str, &[usize], &[f32]); 4] = [
        ("hidden.weight", &[2, 3], &[0., 2., 4., 1., 3., 5.]),
        ("hidden.bias", &[2], &[6., 7.]),
        ("output.weight", &[3, 2], &[8., 9., 11., 12., 14., 15.]),
        ("output.bias", &[3], &[10., 13., 16.]),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_model_comes_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    for shape in SHAPES {
        let (m, to) = (model(shape, 3), folder.path().join("a").join(format!("{shape:?}")));
        m.save(&to).unwrap();
        assert_eq!(SavedModel::load(&to).unwrap(), m);
        assert_eq!(SavedModel::load(&to.join(TENSORS)).unwrap(), m);
        let contents = || [TENSORS, JSON, ONNX].map(|name| std::fs::read(to.join(name)).unwrap());
        let first = contents();
        m.save(&to).unwrap();
        assert!(contents() == first, "the same model gives the same bytes");
        assert_eq!(std::fs::read_dir(&to).unwrap().count(), 3, "no temporary file stays");
        std::fs::remove_file(to.join(JSON)).unwrap();
        assert_eq!(SavedModel::load(&to).unwrap(), m);
    }
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let refused = |change: fn(&mut SavedModel), words: &str| {
        let mut m = model(SHAPES[2], 1);
        change(&mut m);
        let folder = tempfile::tempdir().unwrap();
        let error = m.save(folder.path()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    };
    refused(|m| m.weights.truncate(9), "9 weights; 21 inputs and 3 classes need 128 with Mlp");
    refused(|m| m.weights[7] = f32::NAN, "weight 7 is NaN");
    refused(|m| m.shape = Shape::Mlp { hidden: usize::MAX }, "more than memory can hold");
    refused(|m| m.shape = Shape::Mlp { hidden: 0 }, "hidden layer of 0");
    refused(|m| m.classes.clear(), "no classes");
    refused(|m| m.classes[1] = "yes".into(), "class \"yes\" is there twice");
    refused(|m| m.encoding.columns.clear(), "no inputs");
    refused(|m| m.encoding.columns[0] = numbers("x", &[1.0], &[]), "1 means and 0 factors");
    refused(|m| m.encoding.columns[0] = numbers("x", &[f64::INFINITY], &[1.0]), "scaled by inf");
}

#[test]
fn predictions_are_those_of_the_encoded_rows() {
    let (rows, m) = (2500, model(SHAPES[2], 4));
    let mut r = Numbers(5);
    let mut random = |n: usize| -> Vec<f32> { (0..n).map(|_| 10_000.0 + 3.0 * r.real() as f32).collect() };
    let mut ages = random(rows);
    ages[1100] = f32::NAN;
    let codes = (0..rows).map(|i| [0, 1, 2, Words::MISSING][i % 4]).collect();
    let all = samples(
        vec![
            Feature::Numbers { name: "image".into(), width: 17, values: random(rows * 17) },
            Feature::Numbers { name: "other".into(), width: 1, values: vec![0.0; rows] },
            Feature::Category {
                name: "colour\n".into(),
                words: Words { words: words(&["grün", "unknown", "red"]), codes },
            },
            Feature::Numbers { name: "age, \"years\"".into(), width: 1, values: ages },
        ],
        rows,
    );
    let found = m.predict(&all).unwrap();
    let probabilities = m.probabilities(&m.encoding.apply(&all, 0..rows).unwrap());
    assert_eq!(found.len(), rows);
    for (p, all) in found.iter().zip(probabilities.chunks_exact(3)) {
        assert!(all.iter().all(|other| *other <= all[p.class]));
        assert_eq!(p.probability, all[p.class]);
    }
    assert!(m.predict(&samples(vec![], 0)).unwrap().is_empty());

    let missing = m.predict(&samples(all.features[..3].to_vec(), rows)).unwrap_err().to_string();
    assert!(missing.contains("no such column"), "{missing}");
    let mut damaged = all.clone();
    let Feature::Numbers { values, .. } = &mut damaged.features[3] else { unreachable!() };
    values[2024] = f32::INFINITY;
    let infinite = m.predict(&damaged).unwrap_err().to_string();
    assert!(infinite.starts_with("rows.csv, row 2025: numbers too large"), "{infinite}");
}

/// The files of a model by hand, so that parts of them can be wrong.
fn file_of(header: &str, data: &[u8]) -> Vec<u8> {
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header.as_bytes());
    out.extend(data);
    out
}

fn saved(m: &SavedModel) -> [Vec<u8>; 3] {
    let folder = tempfile::tempdir().unwrap();
    m.save(folder.path()).unwrap();
    [TENSORS, JSON, ONNX].map(|name| std::fs::read(folder.path().join(name)).unwrap())
}

fn parsed(tensors: &[u8], json: Option<&[u8]>) -> Result<SavedModel, String> {
    let json = json.map(|json| (Path::new(JSON), json));
    let result = parse((Path::new(TENSORS), tensors), json);
    result.map_err(|e| {
        assert!(!e.to_string().contains('\n'), "one line: {e}");
        e.to_string()
    })
}

#[test]
fn damaged_files_say_what_is_wrong() {
    let m = model(SHAPES[0], 6);
    let [tensors, json, _] = saved(&m);
    let length = u64::from_le_bytes(*tensors.first_chunk().unwrap()) as usize;
    let (header, data) = (std::str::from_utf8(&tensors[8..8 + length]).unwrap(), &tensors[8 + length..]);
    let says = |tensors: &[u8], json: Option<&[u8]>, words: &str| {
        let error = parsed(tensors, json).unwrap_err();
        assert!(error.contains(words), "{error}");
    };
    let changed = |from: &str, to: &str| {
        assert!(header.contains(from), "{header}");
        file_of(&header.replace(from, to), data)
    };
    says(&[], None, "cut off");
    says(&tensors[..100], None, "cut off");
    says(&[0xff; 30], None, "no file of safetensors");
    says(&tensors[..tensors.len() - 1], None, "263 bytes of numbers; its header says 264");
    says(&changed("linear.bias", "linear.boas"), None, "\"linear.boas\" does not belong to Linear");
    says(&changed("\\\"version\\\":1", "\\\"version\\\":2"), None, "version 2 of the format");
    says(&changed("dibo-model", "dibo model"), None, "describes a \"dibo model\"");
    says(&changed("linear\\\"", "lin\\\\near\\\""), None, "unknown variant `lin ear`");
    says(&changed("\\\"inputs\\\":21", "\\\"inputs\\\":20"), None, "20 inputs, but its encoding makes 21");
    says(&changed("[3]", "[3,1]"), None, "\"linear.bias\" is F32 of [3, 1]; F32 of [3] is needed");
    let mut nan = tensors.clone();
    let end = nan.len();
    nan[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    says(&nan, None, "is NaN; a model has finite numbers only");

    let other = saved(&model(SHAPES[2], 6));
    says(&tensors, Some(&other[1]), "model.json: it describes another model than model.safetensors");
    says(&tensors, Some(&json[..70]), "model.json: the description of the model is damaged");
    let nameless = file_of(&header.replace("\"dibo\":", "\"other\":"), data);
    says(&nameless, None, "no description of the model");
    assert_eq!(parsed(&nameless, Some(&json)).unwrap(), m);
}

/// Lengths whose sum is larger than any number.
#[test]
fn lengths_too_large_to_add_are_refused() {
    let n = (1usize << 61) - 1;
    let tensor = |i: usize| {
        let (from, to) = (i * n, (i + 1) * n);
        format!("\"{i}\":{{\"dtype\":\"U8\",\"shape\":[{n}],\"data_offsets\":[{from},{to}]}}")
    };
    let header = format!("{{{}}}", (0..8).map(tensor).collect::<Vec<_>>().join(","));
    let error = parsed(&file_of(&header, &[]), None).unwrap_err();
    assert!(error.contains("0 bytes of numbers; its header says"), "{error}");
}

/// A copy with something wrong in it.
fn mutated(content: &[u8], r: &mut Numbers) -> Vec<u8> {
    let mut out = content.to_vec();
    for _ in 0..1 + r.below(3) {
        if out.is_empty() {
            return out;
        }
        let at = r.below(out.len());
        let end = (at + 1 + r.below(20)).min(out.len());
        match r.below(7) {
            0 => out[at] ^= 1 << r.below(8),
            1 => out[at] = r.next() as u8,
            2 => out.truncate(at),
            3 => drop(out.drain(at..end)),
            4 => {
                let copy = out[at..end].to_vec();
                out.splice(at..at, copy);
            }
            // Another number that is still one: the header's lengths stay readable.
            5 => {
                if let Some(digit) = out[at..].iter_mut().find(|b| b.is_ascii_digit()) {
                    *digit = b'0' + r.below(10) as u8;
                }
            }
            _ => {
                let odd: [&[u8]; 6] =
                    [b"1e999", b"-1", b"18446744073709551615", b"null", b"[[[[", b"\"\\n\""];
                if let Some(digit) = out[at..].iter().position(u8::is_ascii_digit) {
                    out.splice(at + digit..at + digit + 1, odd[r.below(6)].iter().copied());
                }
            }
        }
    }
    out
}

/// With the length of the header made right again: else few would get past it.
fn repaired(mut content: Vec<u8>, data: usize) -> Vec<u8> {
    if let Some(length) = content.len().checked_sub(8 + data) {
        content[..8].copy_from_slice(&(length as u64).to_le_bytes());
    }
    content
}

#[test]
fn no_damage_makes_it_panic() {
    let mut r = Numbers(7);
    let models = SHAPES.map(|shape| model(shape, 8));
    let files = models.each_ref().map(saved);
    let (mut whole, mut refused) = (0, 0);
    for i in 0..10_000 {
        let (m, [tensors, json, onnx]) = (&models[i % 3], &files[i % 3]);
        let result = match i % 4 {
            0 => parsed(&mutated(tensors, &mut r), None),
            1 => parsed(&repaired(mutated(tensors, &mut r), 4 * m.weights.len()), None),
            2 => parsed(tensors, Some(&mutated(json, &mut r))),
            _ => {
                // Nothing here reads them but tests.
                let _ = ModelProto::decode(mutated(onnx, &mut r).as_slice());
                parsed(&mutated(tensors, &mut r), Some(&mutated(json, &mut r)))
            }
        };
        match result {
            Ok(m) => {
                m.check().unwrap();
                assert_eq!(m.scores(&vec![1.0; 2 * m.encoding.width()]).len(), 2 * m.classes.len());
                whole += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(whole > 100 && refused > 5000, "{whole} {refused}");
}

#[test]
fn paths_that_are_no_models_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let says = |path: &Path, words: &str| {
        let error = SavedModel::load(path).unwrap_err().to_string();
        assert!(error.contains(words) && !error.contains('\n'), "{error}");
    };
    says(folder.path(), "model.safetensors: cannot be read");
    says(&folder.path().join("none"), "cannot be read");
    model(SHAPES[0], 1).save(folder.path()).unwrap();
    says(&folder.path().join(ONNX), "give its folder or its .safetensors file");
    let (inner, at) = (folder.path().join("inner"), folder.path().join("inner").join(TENSORS));
    std::fs::create_dir_all(&at).unwrap();
    says(&inner, "it is no file");
    let error = model(SHAPES[0], 1).save(&folder.path().join(JSON)).unwrap_err().to_string();
    assert!(error.contains("cannot be written"), "{error}");
}

#[test]
fn too_large_for_onnx_is_saved_without() {
    let folder = tempfile::tempdir().unwrap();
    model(SHAPES[0], 1).save(folder.path()).unwrap();
    let m = model(SHAPES[2], 1);
    // 512 bytes are weights: the first limit leaves no room for them, the second none for the rest.
    for most in [511, 1000] {
        std::fs::write(folder.path().join(ONNX), "of an older model").unwrap();
        let told = m.save_within(folder.path(), most).unwrap().unwrap();
        let part = format!("model.onnx: more than the format's {most} bytes; the model is saved");
        assert!(told.contains(&part) && !told.contains('\n'), "{told}");
        assert_eq!(SavedModel::load(folder.path()).unwrap(), m);
        assert!(!folder.path().join(ONNX).exists(), "no file of the older model stays");
    }
    assert_eq!(m.save(folder.path()).unwrap(), None);
}

#[test]
fn the_graph_has_the_nodes_of_the_shape() {
    let operators = |m: &SavedModel| {
        let file = ModelProto::decode(saved(m)[2].as_slice()).unwrap();
        let graph = file.graph.unwrap();
        let entry = |key: &str| file.metadata_props.iter().find(|e| e.key == key).unwrap().value.clone();
        assert_eq!(entry("input"), graph.input[0].name);
        assert_eq!(entry("classes"), serde_json::to_string(&m.classes).unwrap());
        assert!(entry(KEY).contains("dibo-model"));
        let nodes: Vec<_> = graph.node.iter().map(|n| n.op_type.as_str()).collect();
        (graph.input[0].name.clone(), nodes.join(" "))
    };
    let mut m = model(SHAPES[2], 1);
    assert_eq!(operators(&m), ("encoded".into(), "Gemm Relu Gemm Softmax ArgMax".into()));
    m.encoding.columns[1] = numbers("n", &[0.0; 3], &[1.0; 3]);
    let standardised = "Cast Sub Mul Cast IsNaN Where Gemm Relu Gemm Softmax ArgMax";
    assert_eq!(operators(&m), ("features".into(), standardised.into()));
    let linear = model(SHAPES[1], 1);
    assert_eq!(operators(&linear), ("encoded".into(), "Gemm Softmax ArgMax".into()));
}

const BERT: Bert = Bert {
    vocabulary: 9,
    positions: 21,
    types: 2,
    hidden: 4,
    layers: 2,
    heads: 2,
    intermediate: 8,
    epsilon: 1e-12,
    pooling: Pooling::Mean,
};

/// A BERT comes back as it was saved, under names that other programs know.
#[test]
fn a_bert_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut m = model(Shape::Bert(BERT), 1);
    let tensors: usize = m.tensors().iter().map(|t| t.values.len()).sum();
    assert_eq!(m.weights.len(), tensors.next_multiple_of(16));
    m.weights[tensors..].fill(0.0);
    std::fs::write(folder.path().join(store::ONNX), "of another model").unwrap();
    m.save(folder.path()).unwrap();
    assert_eq!(SavedModel::load(folder.path()).unwrap(), m);
    let onnx = std::fs::read(folder.path().join(store::ONNX)).unwrap();
    assert!(ModelProto::decode(onnx.as_slice()).unwrap().graph.is_some(), "not that of another model");
    let names: Vec<String> = m.tensors().into_iter().map(|t| t.name).collect();
    assert_eq!(names[0], "embeddings.word_embeddings.weight");
    assert_eq!(names[21 + 3], "encoder.layer.1.attention.self.query.bias");
    assert_eq!(names[names.len() - 2..], ["classifier.weight", "classifier.bias"]);
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.path().join(store::JSON)).unwrap()).unwrap();
    let architecture = &json["architecture"];
    assert_eq!((&architecture["kind"], &architecture["tokens"]), (&"bert".into(), &21.into()));
    assert_eq!(architecture["sizes"]["pooling"], "mean");
    // Its scores are made elsewhere.
    let values = [vec![3.0], vec![0.0; 17]].concat();
    let text = Feature::Numbers { name: "text".into(), width: 18, values };
    m.encoding.columns = vec![numbers("text", &[0.0; 18], &[1.0; 18])];
    let text = samples(vec![text], 1);
    assert!(m.predict(&text).unwrap_err().to_string().contains("`dibo predict`"));
    let told = m.predict_by(&text, |rows| vec![rows[1], rows[0], 0.0]).unwrap();
    assert_eq!(told[0].class, 1);
}

/// Weights lie in the file once, by the names of `model.safetensors`; each node uses what is there by then.
/// What the nodes compute is tried where a BERT is: in dibo-run.
#[test]
fn the_graph_of_a_bert_is_whole() {
    for pooling in [Pooling::Mean, Pooling::First] {
        let m = model(Shape::Bert(Bert { pooling, ..BERT }), 1);
        let file = ModelProto::decode(saved(&m)[2].as_slice()).unwrap();
        let entry = file.metadata_props.iter().find(|e| e.key == "input").unwrap();
        assert_eq!(entry.value, "input_ids attention_mask");
        let graph = file.graph.unwrap();
        let stored = |t: &Tensor| graph.initializer.iter().find(|c| c.name == t.name).unwrap();
        for tensor in m.tensors() {
            assert_eq!(stored(&tensor).raw_data, bytes(&tensor.values), "{}", tensor.name);
        }
        let mut known: Vec<&str> = graph.input.iter().map(|v| v.name.as_str()).collect();
        known.extend(graph.initializer.iter().map(|c| c.name.as_str()));
        let mut used = BTreeSet::from(["scores", "probabilities", "label"]);
        for node in &graph.node {
            for input in &node.input {
                assert!(known.contains(&input.as_str()), "{} takes {input}", node.name);
                used.insert(input);
            }
            assert!(!known.contains(&node.output[0].as_str()), "{} is there twice", node.output[0]);
            known.push(&node.output[0]);
        }
        let idle: Vec<_> = known.iter().filter(|name| !used.contains(*name)).collect();
        assert!(idle.is_empty(), "{idle:?}");
        assert!(graph.output.iter().all(|v| known.contains(&v.name.as_str())));
    }
}

/// What does not fit a BERT is told in a line.
#[test]
fn a_wrong_bert_is_refused() {
    let refused = |change: fn(&mut Bert), part: &str| {
        let mut m = model(Shape::Bert(BERT), 1);
        let mut bert = BERT;
        change(&mut bert);
        m.shape = Shape::Bert(bert);
        let what = m.check().unwrap_err();
        assert!(what.contains(part), "{what}");
    };
    refused(|b| b.layers = 0, "layers of the BERT is 0");
    refused(|b| b.hidden = usize::MAX, "hidden of the BERT is");
    refused(|b| b.heads = 3, "must be a multiple of its 3 heads");
    refused(|b| b.positions = 20, "21 tokens; the BERT takes 20");
    refused(|b| b.layers = 3, "weights; 21 inputs and 3 classes need");
    let folder = tempfile::tempdir().unwrap();
    let m = model(Shape::Bert(BERT), 1);
    m.save(folder.path()).unwrap();
    let file = folder.path().join(store::TENSORS);
    let bytes = std::fs::read(&file).unwrap();
    let name = b"classifier.bias";
    let at = bytes.windows(name.len()).position(|part| part == name).unwrap();
    let other = [&bytes[..at], b"classifier.bIas", &bytes[at + name.len()..]].concat();
    std::fs::write(&file, other).unwrap();
    let what = SavedModel::load(folder.path()).unwrap_err().to_string();
    assert!(what.contains("classifier.b") && !what.contains('\n'), "{what}");
}

/// The column of texts is no feature beside others.
#[test]
fn texts_alone_can_be_chosen() {
    let names = words(&["text", "age"]);
    assert_eq!(Choice::named(&[], Some("text")), Choice::All);
    assert_eq!(Choice::named(&names[..1], Some("text")), Choice::Some(Vec::new()));
    assert_eq!(Choice::named(&names, Some("text")), Choice::Some(words(&["age"])));
    assert_eq!(Choice::named(&names, None), Choice::Some(names));
}
