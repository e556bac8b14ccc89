//! `--model bert`: a tiny BERT in a folder is trained on texts of two sites, finds wrong labels, is taken
//! home and predicts; over a network it comes to the same bits.
#![cfg(feature = "bert")]
use dibo_learn::{Bert, Pooling, SavedModel};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Output};

fn dibo(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dibo")).args(arguments).current_dir(folder).output().unwrap()
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Numbers between 0 and 1 that look random.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[(self.next() * list.len() as f64) as usize]
    }
}

const GOOD: [&str; 4] = ["good", "great", "lovely", "fine"];
const BAD: [&str; 4] = ["bad", "dull", "awful", "poor"];
const PLAIN: [&str; 6] = ["the", "film", "was", "a", "very", "story"];

const SIZES: Bert = Bert {
    vocabulary: 18,
    positions: 12,
    types: 2,
    hidden: 16,
    layers: 1,
    heads: 2,
    intermediate: 16,
    epsilon: 1e-12,
    pooling: Pooling::Mean,
};

/// A tokenizer that knows the words above.
fn tokenizer() -> serde_json::Value {
    let known = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"].into_iter().chain(GOOD).chain(BAD).chain(PLAIN);
    let vocabulary: BTreeMap<&str, usize> = known.enumerate().map(|(id, word)| (word, id)).collect();
    let special = |word: &str| serde_json::json!({"SpecialToken": {"id": word, "type_id": 0}});
    let entry = |word: &str, id: usize| serde_json::json!({"id": word, "ids": [id], "tokens": [word]});
    let text = serde_json::json!({"Sequence": {"id": "A", "type_id": 0}});
    let single = [special("[CLS]"), text, special("[SEP]")];
    serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "decoder": null,
        "post_processor": {
            "type": "TemplateProcessing", "single": single, "pair": single,
            "special_tokens": {"[CLS]": entry("[CLS]", 1), "[SEP]": entry("[SEP]", 2)},
        },
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
    })
}

/// A folder as the Hugging Face hub has it, with random weights.
fn pretrained(folder: &Path) {
    std::fs::create_dir(folder).unwrap();
    let config = serde_json::json!({
        "vocab_size": SIZES.vocabulary, "max_position_embeddings": SIZES.positions,
        "type_vocab_size": SIZES.types, "hidden_size": SIZES.hidden, "num_hidden_layers": SIZES.layers,
        "num_attention_heads": SIZES.heads, "intermediate_size": SIZES.intermediate,
    });
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    std::fs::write(folder.join("tokenizer.json"), tokenizer().to_string()).unwrap();
    let (mut r, mut header, mut data) = (Numbers(3), serde_json::Map::new(), Vec::new());
    for (name, shape) in SIZES.tensors() {
        let from = data.len();
        for _ in 0..shape.iter().product::<usize>() {
            let value = match name.contains("LayerNorm") {
                true => f64::from(u8::from(name.ends_with("weight"))),
                false => 0.4 * (r.next() - 0.5),
            };
            data.extend((value as f32).to_le_bytes());
        }
        let about = serde_json::json!({"dtype": "F32", "shape": shape, "data_offsets": [from, data.len()]});
        header.insert(name, about);
    }
    let header = serde_json::Value::Object(header).to_string().into_bytes();
    let bytes = [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat();
    std::fs::write(folder.join("model.safetensors"), bytes).unwrap();
}

/// Two sites' reviews, a fifth of the labels wrong but for the first 16; which are, by id.
fn reviews(folder: &Path) -> BTreeMap<String, bool> {
    let mut all = BTreeMap::new();
    for site in 0..2u64 {
        let mut r = Numbers(site * 77 + 1);
        let mut table = String::from("id,review,label,checked\n");
        for row in 0..60 {
            let class = row % 2;
            let mood = [BAD, GOOD][class];
            let review = [r.of(&PLAIN), r.of(&mood), r.of(&PLAIN), r.of(&mood)].join(" ");
            let wrong = row >= 16 && r.next() < 0.2;
            let label = ["neg", "pos"][class ^ usize::from(wrong)];
            writeln!(table, "{site}-{row},{review},{label},{}", u8::from(row < 16)).unwrap();
            all.insert(format!("{site}-{row}"), wrong);
        }
        std::fs::write(folder.join(format!("site{site}.csv")), table).unwrap();
    }
    all
}

const CLEAN: [&str; 19] = [
    "clean",
    "site0.csv",
    "site1.csv",
    "--text",
    "review",
    "--bert",
    "tiny",
    "--model",
    "bert",
    "--id",
    "id",
    "--clean",
    "checked",
    "--tokens",
    "8",
    "--step",
    "0.3",
    "--iterations",
    "240",
];

fn lines(text: &str) -> Vec<Vec<String>> {
    text.lines().skip(1).map(|l| l.split(',').map(String::from).collect()).collect()
}

#[test]
fn a_bert_is_trained_finds_wrong_labels_and_predicts() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    pretrained(&here.join("tiny"));
    let wrong = reviews(here);
    let ran = dibo(here, &[&CLEAN[..], &["--ways", "noisy", "--quiet"]].concat());
    assert!(ran.status.success(), "{}", words(&ran));
    assert!(words(&ran).contains("model.onnx"), "{}", words(&ran));
    assert!(here.join("cleaned/model.onnx").exists());
    let listed = lines(&std::fs::read_to_string(here.join("cleaned/labels.csv")).unwrap());
    assert_eq!(listed.len(), 2 * 44);
    // What is suspicious can be read.
    let shown = lines(&std::fs::read_to_string(here.join("cleaned/suspicious.csv")).unwrap());
    let table = std::fs::read_to_string(here.join(format!("{}.csv", shown[0][1]))).unwrap();
    assert!(
        table.contains(&format!("\n{},{},{},0\n", shown[0][0], shown[0][7], shown[0][2])),
        "{:?}",
        shown[0]
    );
    assert!(std::fs::read_to_string(here.join("cleaned/report.html")).unwrap().contains(&shown[0][7]));
    let right = listed.iter().filter(|l| (l[5] == "True") == wrong[&l[0]]).count();
    assert!(right >= 84, "{right} of 88 labels are judged rightly");
    // The model knows itself and says of a file what it said in the run, here the probability of the label.
    let model = SavedModel::load(&here.join("cleaned")).unwrap();
    assert_eq!((model.classes.len(), model.encoding.width()), (2, 8));
    let predict =
        |more: &[&str]| dibo(here, &[&["predict", "cleaned", "site0.csv", "--id", "id"], more].concat());
    let told = predict(&["--text", "review", "--bert", "tiny"]);
    assert!(told.status.success(), "{}", words(&told));
    let told: BTreeMap<String, (String, f64)> = lines(&String::from_utf8(told.stdout).unwrap())
        .into_iter()
        .map(|l| (l[0].clone(), (l[1].clone(), l[2].parse().unwrap())))
        .collect();
    assert_eq!(told.len(), 60);
    for row in listed.iter().filter(|l| l[1] == "site0") {
        let (class, probability) = &told[&row[0]];
        let score: f64 = row[4].parse().unwrap();
        let own = if *class == row[2] { *probability } else { 1.0 - probability };
        assert!((own - score).abs() < 2e-6, "{row:?}: {class} {probability}");
    }
    // What is missing or does not fit is told in a line.
    let says = |output: Output, part: &str| {
        assert!(!output.status.success());
        assert!(words(&output).contains(part), "{}", words(&output));
    };
    says(predict(&[]), "the model is a BERT, which reads texts; --text COLUMN");
    says(predict(&["--text", "review", "--bert", "tiny", "--tokens", "9"]), "trained with texts of 8");
    let other = tokenizer().to_string() + "\n";
    std::fs::write(here.join("tiny/tokenizer.json"), other).unwrap();
    says(predict(&["--text", "review", "--bert", "tiny"]), "another one than the model was trained with");
}

#[test]
fn mistakes_are_told_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    pretrained(&here.join("tiny"));
    reviews(here);
    let says = |arguments: &[&str], part: &str| {
        let output = dibo(here, arguments);
        assert!(!output.status.success(), "{}", words(&output));
        assert!(words(&output).contains(part), "{}", words(&output));
    };
    says(&["clean", "site0.csv", "--model", "bert"], "--model bert reads texts: --text COLUMN");
    // Without a column of names, these are features; naming the texts leaves them out.
    let plain: Vec<&str> = CLEAN.iter().filter(|a| !["--id", "id"].contains(a)).copied().collect();
    says(&plain, "column 'id' is a feature beside the texts");
    let written = dibo(here, &[&plain[..], &["--features", "review", "--write", "e.toml"]].concat());
    assert!(written.status.success(), "{}", words(&written));
    says(&[&CLEAN[..], &["--ways", "tau-columns"]].concat(), "means nothing to a BERT");
    says(&[&CLEAN[..], &["--peer", "true"]].concat(), "--peer gets no texts");
    let text = std::fs::read_to_string(here.join("e.toml")).unwrap();
    assert!(text.contains("batch = 16") && text.contains("checked_batch = 16"), "{text}");
    let without: String =
        text.lines().filter(|l| !l.starts_with("text =")).map(|l| format!("{l}\n")).collect();
    std::fs::write(here.join("e.toml"), without).unwrap();
    says(&["run", "e.toml"], "text = \"COLUMN\" and bert = \"FOLDER\"");
    // The way that learns from all, with every regulariser that a BERT can have.
    let tuned = dibo(here, &[&CLEAN[..17], &["--iterations", "8", "--tune", "--quiet"]].concat());
    assert!(tuned.status.success(), "{}", words(&tuned));
    std::fs::write(here.join("tiny/model.safetensors"), b"nothing").unwrap();
    says(&[&CLEAN[..], &["--fresh"]].concat(), "model.safetensors");
}

/// Two processes, each with its own file, against one that has both.
#[cfg(feature = "net")]
#[test]
fn over_a_network_it_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    pretrained(&here.join("tiny"));
    reviews(here);
    let more = ["--iterations", "24", "--ways", "em,bilevel,weights", "--write", "clean.toml"];
    let written = dibo(here, &[&CLEAN[..17], &more].concat());
    assert!(written.status.success(), "{}", words(&written));
    let launched = dibo(here, &["launch", "clean.toml", "--processes", "2", "--verify", "--out", "net"]);
    assert!(launched.status.success(), "{}", words(&launched));
    assert!(words(&launched).contains("every bit"), "{}", words(&launched));
}
