//! Data sets: which there are, where they lie, how to get them. A small part of MNIST comes with the command.
use anyhow::{Context, Result, anyhow, bail};
use dibo::data::{Dataset, Official, parse_images, parse_labels};
use dibo::problem::learning::bert::{Bert, Pool};
use dibo::rng::{Purpose, stream};
use rand::{Rng, RngExt};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

/// Names that experiment files may use.
pub const NAMES: [&str; 5] = ["mnist-2500", "mnist", "fashion-mnist", "imdb", "random"];

/// 2,500 training samples of MNIST and its 10,000 test samples, gzipped IDX; see data/README.md for origin
/// and licence.
const SHIPPED: [(&str, &[u8]); 4] = [
    ("train-images-idx3-ubyte.gz", include_bytes!("../data/mnist-2500/train-images-idx3-ubyte.gz")),
    ("train-labels-idx1-ubyte.gz", include_bytes!("../data/mnist-2500/train-labels-idx1-ubyte.gz")),
    ("t10k-images-idx3-ubyte.gz", include_bytes!("../data/mnist-2500/t10k-images-idx3-ubyte.gz")),
    ("t10k-labels-idx1-ubyte.gz", include_bytes!("../data/mnist-2500/t10k-labels-idx1-ubyte.gz")),
];

static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Sets the folder that `--data` names, once.
pub fn set_folder(folder: Option<PathBuf>) {
    if let Some(folder) = folder {
        let _ = FOLDER.set(folder);
    }
}

/// Where data sets lie: `--data`, else `DIBO_DATA`, else the platform's folder for data.
pub fn folder() -> PathBuf {
    let home = || {
        directories::ProjectDirs::from("", "", "dibo")
            .map_or_else(|| PathBuf::from("data"), |d| d.data_dir().to_path_buf())
    };
    FOLDER.get().cloned().or_else(|| std::env::var_os("DIBO_DATA").map(PathBuf::from)).unwrap_or_else(home)
}

type Pair = (Arc<Dataset>, Arc<Dataset>);

/// Training and test samples of a data set; read once and kept.
pub fn load(name: &str) -> Result<Pair> {
    static LOADED: Mutex<BTreeMap<String, Pair>> = Mutex::new(BTreeMap::new());
    let mut loaded = LOADED.lock().map_err(|_| anyhow!("another thread failed while reading data"))?;
    if let Some(pair) = loaded.get(name) {
        return Ok(pair.clone());
    }
    let (train, test) = match name {
        "mnist-2500" => shipped()?,
        "random" => (random(60_000, 0)?, random(10_000, 1)?),
        _ => {
            let official = Official::ALL
                .into_iter()
                .find(|o| o.name() == name)
                .ok_or_else(|| anyhow!("there is no data set '{name}'"))?;
            official.read(&folder()).map_err(|e| anyhow!("{e}; `dibo data` says how to get it"))?
        }
    };
    let pair = (Arc::new(train), Arc::new(test));
    loaded.insert(name.into(), pair.clone());
    Ok(pair)
}

/// Training and test texts as token numbers of a model; made once and kept.
#[cfg(feature = "bert")]
pub fn texts(name: &str, model: &str, length: usize) -> Result<Pair> {
    static LOADED: Mutex<BTreeMap<String, Pair>> = Mutex::new(BTreeMap::new());
    let mut loaded = LOADED.lock().map_err(|_| anyhow!("another thread failed while reading data"))?;
    let key = format!("{name} {model} {length}");
    if !loaded.contains_key(&key) {
        let (train, test) = crate::texts::imdb(&folder().join(name), &folder().join(model), length)?;
        loaded.insert(key.clone(), (Arc::new(train), Arc::new(test)));
    }
    Ok(loaded[&key].clone())
}

/// Whether the data of a problem is there: in words, or how to get it. Nothing is read that is large.
pub fn available(name: &str, model: &str, pretrained: &str) -> Result<String> {
    if model == "bert" {
        if let Some(missing) = model_files(&folder().join(pretrained)).into_iter().find(|f| !f.exists()) {
            bail!("there is no {}; `dibo data` says what belongs there", missing.display());
        }
        return Ok(format!("{name} with the model {pretrained}"));
    }
    load(name)
        .map(|(train, test)| format!("{name}: {} training and {} test samples", train.len(), test.len()))
}

/// The files of a model that decide a result.
pub fn model_files(folder: &Path) -> Vec<PathBuf> {
    ["config.json", "model.safetensors", "tokenizer.json"].map(|f| folder.join(f)).into()
}

/// The sizes of the model in a folder.
#[cfg(feature = "bert")]
pub fn bert(folder: &Path, pool: Pool) -> Result<Bert> {
    crate::texts::sizes(folder, pool)
}

/// Its weights, put into a row of parameters.
#[cfg(feature = "bert")]
pub fn pretrained(folder: &Path, bert: &Bert, row: &mut [f64]) -> Result<()> {
    crate::texts::pretrained(folder, bert, row)
}

/// What tells its tokenizer from others.
pub fn tokenizer(folder: &Path) -> Result<String> {
    let path = folder.join("tokenizer.json");
    let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(blake3::hash(&bytes).to_hex()[..16].to_string())
}

/// The token numbers of texts, `length` a text.
#[cfg(feature = "bert")]
pub fn tokens(folder: &Path, texts: &[String], length: usize) -> Result<Vec<f32>> {
    crate::texts::numbers(folder, texts, length)
}

/// Says how to get a dibo that reads texts.
#[cfg(not(feature = "bert"))]
pub fn tokens(_folder: &Path, _texts: &[String], _length: usize) -> Result<Vec<f32>> {
    bail!(NO_TEXTS)
}

/// What a model makes of texts, cut after `length` tokens: numbers a text, and those of all texts.
#[cfg(feature = "bert")]
pub fn embeddings(folder: &Path, texts: &[String], length: usize) -> Result<(usize, Vec<f32>)> {
    crate::texts::embeddings(folder, texts, length)
}

/// Says how to get a dibo that reads texts.
#[cfg(not(feature = "bert"))]
pub fn embeddings(_folder: &Path, _texts: &[String], _length: usize) -> Result<(usize, Vec<f32>)> {
    bail!(NO_TEXTS)
}

#[cfg(not(feature = "bert"))]
const NO_TEXTS: &str =
    "this dibo reads no texts: build it with `cargo build --release --features bert` (or cuda)";

/// Says how to get a dibo that reads texts.
#[cfg(not(feature = "bert"))]
pub fn texts(_name: &str, _model: &str, _length: usize) -> Result<Pair> {
    bail!(NO_TEXTS)
}

/// Says how to get a dibo that reads texts.
#[cfg(not(feature = "bert"))]
pub fn bert(_folder: &Path, _pool: Pool) -> Result<Bert> {
    bail!(NO_TEXTS)
}

/// Says how to get a dibo that reads texts.
#[cfg(not(feature = "bert"))]
pub fn pretrained(_folder: &Path, _bert: &Bert, _row: &mut [f64]) -> Result<()> {
    bail!(NO_TEXTS)
}

/// Random images of Fashion-MNIST's number and size: for measuring, not for learning.
fn random(samples: usize, which: u64) -> Result<Dataset> {
    let mut r = stream(0, Purpose::Instance, which, 0);
    let mut images = vec![0; samples * 784];
    r.fill_bytes(&mut images);
    let labels = (0..samples).map(|_| r.random_range(0..10)).collect();
    Dataset::new(images, labels, 784, 10).map_err(anyhow::Error::msg)
}

fn shipped() -> Result<(Dataset, Dataset)> {
    let unpack = |i: usize| -> Result<(&Path, Vec<u8>)> {
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(SHIPPED[i].1).read_to_end(&mut bytes).with_context(|| SHIPPED[i].0)?;
        Ok((Path::new(SHIPPED[i].0), bytes))
    };
    let part = |images: usize| -> Result<Dataset> {
        let ((name, pixels), (label_name, labels)) = (unpack(images)?, unpack(images + 1)?);
        let (_, width, pixels) = parse_images(name, pixels)?;
        Dataset::new(pixels, parse_labels(label_name, labels)?, width, 10).map_err(anyhow::Error::msg)
    };
    Ok((part(0)?, part(2)?))
}

/// `dibo data`: what is there and how to get the rest.
pub fn list() -> String {
    let folder = folder();
    let mut text = format!("data folder: {} (change it with --data or DIBO_DATA)\n\n", folder.display());
    text += "  mnist-2500      comes with dibo: 2,500 training and 10,000 test samples of MNIST\n";
    text += "  random          made by dibo: random images, for measuring\n";
    for official in Official::ALL {
        let state = match official.read(&folder) {
            Ok((train, test)) => {
                format!("here, digests are right: {} training and {} test samples", train.len(), test.len())
            }
            Err(e) if folder.join(official.name()).exists() => format!("not usable: {e}"),
            Err(_) => format!(
                "not here; `dibo data get {}` downloads it{}",
                official.name(),
                if cfg!(feature = "download") { "" } else { ", if built with --features download" }
            ),
        };
        text += &format!("  {:<15} {state}\n", official.name());
    }
    text += "  imdb            texts: put reviews.json or the hub's parquet files into imdb, and a BERT \
        (config.json, model.safetensors, tokenizer.json)\n";
    text += "                  into a folder of its own, such as minilm\n";
    text += "\nBy hand: put the four IDX files of a data set (train-images-idx3-ubyte, \
        train-labels-idx1-ubyte, t10k-…; raw or .gz) into a folder of its\nname inside the data folder.\n";
    text
}

/// `dibo data get NAME`: downloads a data set from the Hugging Face hub and checks every digest before a file
/// is kept.
pub fn get(name: &str) -> Result<String> {
    let Some(official) = Official::ALL.into_iter().find(|o| o.name() == name) else {
        bail!("there is no data set '{name}' to get; known are mnist and fashion-mnist");
    };
    let into = folder().join(name);
    fetch(official, &into)?;
    Ok(format!("{name}: digests are right; it lies in {}", into.display()))
}

#[cfg(feature = "download")]
fn fetch(official: Official, into: &Path) -> Result<()> {
    crate::download::fetch(&crate::download::source(official), None, &official.digests(), into)
}

#[cfg(not(feature = "download"))]
fn fetch(official: Official, into: &Path) -> Result<()> {
    bail!(
        "this dibo was built without the hub client: build it with `cargo install --path crates/dibo-cli \
        --features download`, or put the four IDX files of {} into {} by hand (`dibo data` names them)",
        official.name(),
        into.display()
    );
}
