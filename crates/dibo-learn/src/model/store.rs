//! The files of a model: `model.safetensors` holds it whole, `model.json` says the same without the weights
//! for people and other programs, `model.onnx` runs anywhere.
use super::onnx;
use super::{Bert, SavedModel, Shape};
use crate::samples::{Encoding, ReadError};
use safetensors::tensor::{Dtype, Metadata, TensorView};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) const TENSORS: &str = "model.safetensors";
pub(super) const JSON: &str = "model.json";
pub(super) const ONNX: &str = "model.onnx";

/// The key of the description among a file's metadata.
pub(super) const KEY: &str = "dibo";

/// The name and the version of the format of a description.
const FORMAT: &str = "dibo-model";
const VERSION: u32 = 1;

/// A header of more bytes is refused, as by all readers of the format.
const HEADER_MOST: u64 = 100_000_000;

/// All of a model but its weights.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    format: String,
    version: u32,
    architecture: Architecture,
    inputs: usize,
    classes: Vec<String>,
    encoding: Encoding,
    #[serde(default)]
    about: BTreeMap<String, String>,
}

/// Enough of a description to know whether the rest can be understood.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u32,
}

/// A shape, with all that a program which does not know dibo has to know.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum Architecture {
    Linear { bias: bool },
    Mlp { hidden: usize, activation: Activation },
    Bert { tokens: usize, activation: Activation, sizes: Bert },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Activation {
    Relu,
    /// By the error function, not one of its approximations.
    Gelu,
}

/// Numbers by the name and in the order that PyTorch's `nn.Linear` gives them: weights are outputs × inputs.
pub(crate) struct Tensor {
    pub name: String,
    pub shape: Vec<usize>,
    pub values: Vec<f32>,
}

impl SavedModel {
    /// Writes `model.safetensors`, `model.json` and `model.onnx` into a folder, which is made if it is
    /// missing; older files of these names are replaced, each at once.
    ///
    /// A model that is too large for ONNX (2 GB) is saved in the other two files; a line says so.
    pub fn save(&self, folder: &Path) -> Result<Option<String>, ReadError> {
        self.save_within(folder, onnx::MOST)
    }

    /// With at most so many bytes of ONNX.
    pub(super) fn save_within(&self, folder: &Path, onnx_most: usize) -> Result<Option<String>, ReadError> {
        self.check().map_err(|what| wrong(folder, format!("the model cannot be saved: {what}")))?;
        let description = Description::of(self);
        let json = |e: serde_json::Error| wrong(folder, format!("the model cannot be described: {e}"));
        let compact = serde_json::to_string(&description).map_err(json)?;
        let pretty = serde_json::to_string_pretty(&description).map_err(json)? + "\n";
        let path = |name| folder.join(name);
        let tensors = pack(self, compact.clone()).map_err(|what| wrong(&path(TENSORS), what))?;
        let onnx = onnx::encode(self, compact, onnx_most);
        let small = onnx.is_some();

        let failed = |path: &Path, e| wrong(path, format!("cannot be written: {e}"));
        std::fs::create_dir_all(folder).map_err(|e| failed(folder, e))?;
        let contents = [(TENSORS, Some(tensors)), (JSON, Some(pretty.into_bytes())), (ONNX, onnx)];
        let mut staged = Vec::new();
        for (path, content) in contents.map(|(name, content)| (path(name), content)) {
            staged.push(Staged::new(path.clone(), content).map_err(|e| failed(&path, e))?);
        }
        for mut file in staged {
            file.publish().map_err(|e| failed(&file.path, e))?;
        }
        sync_folder(folder).map_err(|e| failed(folder, e))?;
        let what =
            format!("more than the format's {onnx_most} bytes; the model is saved without, in {TENSORS}");
        Ok((!small).then(|| wrong(&path(ONNX), what).to_string()))
    }

    /// Reads a model from the folder into which it was saved, or from its `.safetensors` file alone.
    ///
    /// Tensors that another program has written under the same names are read too: in the folder of the
    /// model, `model.json` describes them if they do not describe themselves.
    pub fn load(path: &Path) -> Result<SavedModel, ReadError> {
        let folder = std::fs::metadata(path).map_err(|e| unreadable(path, e))?.is_dir();
        if !folder {
            if path.extension().is_none_or(|e| !e.eq_ignore_ascii_case("safetensors")) {
                let what = "no model that can be read; give its folder or its .safetensors file";
                return Err(wrong(path, what));
            }
            return parse((path, &read(path)?), None);
        }
        let (file, json) = (path.join(TENSORS), path.join(JSON));
        let content = read(&file)?;
        if !json.try_exists().map_err(|e| unreadable(&json, e))? {
            return parse((&file, &content), None);
        }
        parse((&file, &content), Some((&json, &read(&json)?)))
    }

    /// What its tensors are called.
    pub(crate) fn tensor_names(&self) -> Vec<String> {
        let layout = layout(self.shape, self.encoding.width(), self.classes.len());
        layout.into_iter().map(|(name, _)| name).collect()
    }

    /// Its weights as tensors.
    pub(crate) fn tensors(&self) -> Vec<Tensor> {
        let (d, w) = (self.encoding.width(), &self.weights);
        let values = match self.shape {
            Shape::Linear { bias: false } => vec![w.clone()],
            Shape::Linear { bias: true } => split(w, d),
            Shape::Mlp { hidden } => {
                let (first, second) = w.split_at((d + 1) * hidden);
                let (first, biases) = first.split_at(d * hidden);
                let mut all = vec![transposed(first, hidden), biases.to_vec()];
                all.extend(split(second, hidden));
                all
            }
            Shape::Bert(bert) => in_turn(w, &bert.with_head(self.classes.len())),
        };
        let layout = layout(self.shape, d, self.classes.len());
        layout.into_iter().zip(values).map(|((name, shape), values)| Tensor { name, shape, values }).collect()
    }
}

/// Names and shapes of the tensors.
fn layout(shape: Shape, d: usize, classes: usize) -> Vec<(String, Vec<usize>)> {
    let few = match shape {
        Shape::Bert(bert) => return bert.with_head(classes),
        Shape::Linear { bias: false } => vec![("linear.weight", vec![classes, d])],
        Shape::Linear { bias: true } => {
            vec![("linear.weight", vec![classes, d]), ("linear.bias", vec![classes])]
        }
        Shape::Mlp { hidden } => vec![
            ("hidden.weight", vec![hidden, d]),
            ("hidden.bias", vec![hidden]),
            ("output.weight", vec![classes, hidden]),
            ("output.bias", vec![classes]),
        ],
    };
    few.into_iter().map(|(name, shape)| (name.to_string(), shape)).collect()
}

/// Weights that lie in the order of their tensors.
fn in_turn(mut weights: &[f32], layout: &[(String, Vec<usize>)]) -> Vec<Vec<f32>> {
    let mut next = |numbers: usize| {
        let (own, rest) = weights.split_at(numbers);
        weights = rest;
        own.to_vec()
    };
    layout.iter().map(|(_, shape)| next(shape.iter().product())).collect()
}

/// Rows of weights and a bias, as the weights of all rows and all biases.
fn split(rows: &[f32], inputs: usize) -> Vec<Vec<f32>> {
    let rows = || rows.chunks_exact(inputs + 1);
    vec![rows().flat_map(|row| &row[..inputs]).copied().collect(), rows().map(|row| row[inputs]).collect()]
}

/// The inverse of [`split`].
fn joined<'a>(weights: &'a [f32], biases: &'a [f32]) -> impl Iterator<Item = f32> + 'a {
    let rows = weights.chunks_exact(weights.len() / biases.len());
    rows.zip(biases).flat_map(|(row, bias)| row.iter().chain([bias])).copied()
}

/// A matrix with rows of this width, column by column.
fn transposed(matrix: &[f32], width: usize) -> Vec<f32> {
    (0..width).flat_map(|c| matrix.iter().skip(c).step_by(width)).copied().collect()
}

/// Weights from the values of the tensors in the order of [`layout`].
fn weights(shape: Shape, d: usize, tensors: &[Vec<f32>]) -> Vec<f32> {
    match (shape, tensors) {
        (Shape::Linear { .. }, [weights, biases]) => joined(weights, biases).collect(),
        (Shape::Mlp { .. }, [first, biases, second, last]) => {
            let first = transposed(first, d).into_iter().chain(biases.iter().copied());
            first.chain(joined(second, last)).collect()
        }
        (Shape::Bert(_), _) => {
            let mut all = tensors.concat();
            all.resize(all.len().next_multiple_of(16), 0.0);
            all
        }
        _ => tensors.concat(),
    }
}

impl Description {
    fn of(model: &SavedModel) -> Self {
        Description {
            format: FORMAT.into(),
            version: VERSION,
            architecture: match model.shape {
                Shape::Linear { bias } => Architecture::Linear { bias },
                Shape::Mlp { hidden } => Architecture::Mlp { hidden, activation: Activation::Relu },
                Shape::Bert(sizes) => {
                    let tokens = model.encoding.width();
                    Architecture::Bert { tokens, activation: Activation::Gelu, sizes }
                }
            },
            inputs: model.encoding.width(),
            classes: model.classes.clone(),
            encoding: model.encoding.clone(),
            about: model.about.clone(),
        }
    }

    /// The model without its weights.
    fn model(self) -> SavedModel {
        SavedModel {
            shape: match self.architecture {
                Architecture::Linear { bias } => Shape::Linear { bias },
                Architecture::Mlp { hidden, .. } => Shape::Mlp { hidden },
                Architecture::Bert { sizes, .. } => Shape::Bert(sizes),
            },
            encoding: self.encoding,
            classes: self.classes,
            weights: Vec::new(),
            about: self.about,
        }
    }

    fn parse(json: &[u8]) -> Result<Self, String> {
        let broken = |e| format!("the description of the model is damaged: {e}");
        let head: Head = serde_json::from_slice(json).map_err(broken)?;
        if head.format != FORMAT {
            return Err(format!("it describes a {:?}; a {FORMAT:?} is needed", head.format));
        }
        if head.version != VERSION {
            let v = head.version;
            return Err(format!("version {v} of the format of models; this program reads version {VERSION}"));
        }
        let description: Description = serde_json::from_slice(json).map_err(broken)?;
        let (said, width) = (description.inputs, description.encoding.width());
        if said != width {
            return Err(format!("{said} inputs, but its encoding makes {width}; both must be the same"));
        }
        Ok(description)
    }
}

/// The content of a file of tensors.
fn pack(model: &SavedModel, description: String) -> Result<Vec<u8>, String> {
    let tensors: Vec<(String, Vec<usize>, Vec<u8>)> =
        model.tensors().into_iter().map(|t| (t.name, t.shape, bytes(&t.values))).collect();
    let views = tensors.iter().map(|(name, shape, bytes)| {
        TensorView::new(Dtype::F32, shape.clone(), bytes).map(|view| (name.as_str(), view))
    });
    let failed = |e: safetensors::SafeTensorError| format!("cannot be made: {e}");
    let views = views.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    // One key only: several would be written in an order that is another one each time.
    safetensors::serialize(views, Some(HashMap::from([(KEY.into(), description)]))).map_err(failed)
}

/// Numbers as all formats here store them.
pub(crate) fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// A model from the content of its files.
pub(super) fn parse(
    (file, content): (&Path, &[u8]),
    json: Option<(&Path, &[u8])>,
) -> Result<SavedModel, ReadError> {
    let (header, data) = open(content).map_err(|what| wrong(file, what))?;
    let own = header.metadata().as_ref().and_then(|m| m.get(KEY));
    let own = own.map(|json| Description::parse(json.as_bytes())).transpose();
    let own = own.map_err(|what| wrong(file, what))?;
    let beside = json.map(|(json, content)| Description::parse(content).map_err(|what| wrong(json, what)));
    let description = match (own, beside.transpose()?) {
        (Some(own), Some(beside)) if own != beside => {
            let json = json.map_or(file, |(json, _)| json);
            let what =
                format!("it describes another model than {TENSORS}, which is whole without it; remove one");
            return Err(wrong(json, what));
        }
        (Some(description), _) | (None, Some(description)) => description,
        (None, None) => {
            let what = format!("no description of the model; it belongs into the metadata under {KEY:?}, or");
            return Err(wrong(file, format!("{what} into {JSON} in the model's folder")));
        }
    };
    let mut model = description.model();
    model.weights = unpack(&model, &header, data).map_err(|what| wrong(file, what))?;
    model.check().map_err(|what| wrong(file, what))?;
    Ok(model)
}

/// The header of a file of tensors, and what follows it. Not by the crate's own reader, which adds up lengths
/// that a damaged header can make too large to add.
fn open(content: &[u8]) -> Result<(Metadata, &[u8]), String> {
    let cut = || "the file is cut off: it ends before its header does".to_string();
    let (length, rest) = content.split_first_chunk().ok_or_else(cut)?;
    let length = u64::from_le_bytes(*length);
    if length > HEADER_MOST {
        return Err(format!(
            "no file of safetensors: a header of {length} bytes; {HEADER_MOST} are the most"
        ));
    }
    let (header, data) = rest.split_at_checked(length as usize).ok_or_else(cut)?;
    let header: Metadata =
        serde_json::from_slice(header).map_err(|e| format!("the header of the file is damaged: {e}"))?;
    let (said, there) = (header.data_len(), data.len());
    if said != there {
        return Err(format!("{there} bytes of numbers; its header says {said}"));
    }
    Ok((header, data))
}

/// The weights of a model that is described.
fn unpack(model: &SavedModel, header: &Metadata, data: &[u8]) -> Result<Vec<f32>, String> {
    model.check_names()?;
    let (d, classes) = (model.encoding.width(), model.classes.len());
    let layout = layout(model.shape, d, classes);
    let known = |name: &String| layout.iter().any(|(own, _)| own == name);
    if let Some(name) = header.offset_keys().into_iter().find(|name| !known(name)) {
        return Err(format!("tensor {name:?} does not belong to {:?}", model.shape));
    }
    let mut tensors = Vec::with_capacity(layout.len());
    for (name, shape) in &layout {
        let info = header.info(name).ok_or_else(|| format!("tensor {name:?} is missing"))?;
        if info.dtype != Dtype::F32 || info.shape != *shape {
            let (dtype, own) = (info.dtype, &info.shape);
            return Err(format!("tensor {name:?} is {dtype} of {own:?}; F32 of {shape:?} is needed"));
        }
        let (from, to) = info.data_offsets;
        let part = data.get(from..to).ok_or_else(|| format!("tensor {name:?} lies outside of the file"))?;
        tensors.push(part.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect());
    }
    Ok(weights(model.shape, d, &tensors))
}

/// A whole file. Its length is asked first, so that a file that does not fit in memory gives an error.
fn read(path: &Path) -> Result<Vec<u8>, ReadError> {
    let about = std::fs::metadata(path).map_err(|e| unreadable(path, e))?;
    if !about.is_file() {
        return Err(wrong(path, "it is no file; a file of a model is needed"));
    }
    let file = File::open(path).map_err(|e| unreadable(path, e))?;
    let mut content = Vec::new();
    let too_large = |_| wrong(path, format!("{} bytes do not fit into memory", about.len()));
    content.try_reserve_exact(usize::try_from(about.len()).unwrap_or(usize::MAX)).map_err(too_large)?;
    file.take(about.len()).read_to_end(&mut content).map_err(|e| unreadable(path, e))?;
    Ok(content)
}

fn unreadable(path: &Path, e: std::io::Error) -> ReadError {
    wrong(path, format!("cannot be read: {e}"))
}

/// An error in one line, whatever the words in a damaged file may be.
fn wrong(path: &Path, what: impl Into<String>) -> ReadError {
    let what: String = what.into();
    let mut line: String = what.chars().map(|c| if c.is_control() { ' ' } else { c }).take(400).collect();
    if line.len() < what.len() {
        line.push('…');
    }
    ReadError::new(path, line)
}

/// A file that is whole on the disk, but not yet under its name; it goes away unless it is published. Without
/// content, the file of this name is to go away.
struct Staged {
    temporary: Option<PathBuf>,
    path: PathBuf,
}

impl Staged {
    fn new(path: PathBuf, content: Option<Vec<u8>>) -> std::io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let Some(content) = content else { return Ok(Staged { temporary: None, path }) };
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}-{}.tmp", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
        let temporary = path.with_file_name(name);
        let mut file = File::create(&temporary)?;
        let staged = Staged { temporary: Some(temporary), path };
        file.write_all(&content)?;
        // A full disk may only be seen here.
        file.sync_all()?;
        Ok(staged)
    }

    fn publish(&mut self) -> std::io::Result<()> {
        if let Some(temporary) = &self.temporary {
            std::fs::rename(temporary, &self.path)?;
            self.temporary = None;
        } else if self.path.try_exists()? {
            std::fs::remove_file(&self.path)?;
        }
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = std::fs::remove_file(temporary);
        }
    }
}

/// Flushes the entries of files that were renamed.
fn sync_folder(folder: &Path) -> std::io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    // Other systems have no handle of a folder to flush.
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}
