//! Texts: reviews in JSON or parquet, cut into tokens with a model's own tokenizer and kept as numbers; and
//! models as the Hugging Face hub has them (config.json, model.safetensors, tokenizer.json in one folder).
use anyhow::{Context, Result, anyhow, bail, ensure};
use dibo::data::Dataset;
use dibo::problem::learning::bert::{Bert, Pool};
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use std::path::Path;

/// What a config.json says.
#[derive(Deserialize)]
struct Config {
    vocab_size: usize,
    max_position_embeddings: usize,
    type_vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    #[serde(default = "epsilon")]
    layer_norm_eps: f64,
    #[serde(default = "gelu")]
    hidden_act: String,
    #[serde(default = "absolute")]
    position_embedding_type: String,
}

fn epsilon() -> f64 {
    1e-12
}

fn gelu() -> String {
    "gelu".into()
}

fn absolute() -> String {
    "absolute".into()
}

/// The sizes in a model's folder.
pub fn sizes(folder: &Path, pool: Pool) -> Result<Bert> {
    let path = folder.join("config.json");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let c: Config = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    ensure!(
        c.hidden_act == "gelu",
        "{}: hidden_act is '{}'; only 'gelu' is known",
        path.display(),
        c.hidden_act
    );
    let kind = &c.position_embedding_type;
    ensure!(
        kind == "absolute",
        "{}: position_embedding_type is '{kind}'; only 'absolute' is known",
        path.display()
    );
    let bert = Bert {
        vocabulary: c.vocab_size,
        positions: c.max_position_embeddings,
        types: c.type_vocab_size,
        hidden: c.hidden_size,
        layers: c.num_hidden_layers,
        heads: c.num_attention_heads,
        intermediate: c.intermediate_size,
        epsilon: c.layer_norm_eps,
        pool,
    };
    bert.check().map_err(|e| anyhow!("{}: {e}", path.display()))?;
    Ok(bert)
}

/// Puts a model's pretrained weights into a row of parameters; the head keeps what is there.
pub fn pretrained(folder: &Path, bert: &Bert, row: &mut [f64]) -> Result<()> {
    let path = folder.join("model.safetensors");
    let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|e| anyhow!("{}: {e}", path.display()))?;
    // Some files hold the encoder alone, some a model around it.
    let prefix = ["", "bert."]
        .into_iter()
        .find(|p| file.tensor(&format!("{p}embeddings.word_embeddings.weight")).is_ok());
    let prefix = prefix.ok_or_else(|| {
        anyhow!("{}: there is no embeddings.word_embeddings.weight in it; is it a BERT?", path.display())
    })?;
    let mut put = |name: String, at: std::ops::Range<usize>| -> Result<()> {
        // Old files say gamma and beta.
        let old =
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta");
        let find = |n: &str| file.tensor(&format!("{prefix}{n}"));
        let tensor = find(&name)
            .or_else(|_| find(&old))
            .map_err(|_| anyhow!("{}: {prefix}{name} is missing", path.display()))?;
        let numbers: usize = tensor.shape().iter().product();
        ensure!(
            numbers == at.len(),
            "{}: {name} holds {numbers} numbers; config.json asks for {}",
            path.display(),
            at.len()
        );
        let data = tensor.data();
        let to = row[at].iter_mut();
        match tensor.dtype() {
            Dtype::F32 => to
                .zip(data.chunks_exact(4))
                .for_each(|(t, b)| *t = f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))),
            Dtype::BF16 => to.zip(data.chunks_exact(2)).for_each(|(t, b)| {
                *t = f64::from(f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16))
            }),
            Dtype::F16 => {
                to.zip(data.chunks_exact(2)).for_each(|(t, b)| *t = half(u16::from_le_bytes([b[0], b[1]])))
            }
            other => {
                bail!("{}: {name} has numbers of kind {other:?}; known are F32, F16 and BF16", path.display())
            }
        }
        Ok(())
    };
    let mut end = 0;
    for (name, shape) in crate::saved::sizes(bert).tensors() {
        let start = end;
        end += shape.iter().product::<usize>();
        put(name, start..end)?;
    }
    Ok(())
}

/// A 16-bit IEEE number.
fn half(bits: u16) -> f64 {
    let (sign, exponent, fraction) =
        (if bits >> 15 == 1 { -1.0 } else { 1.0 }, i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction > 0.0 => f64::NAN,
        31 => f64::INFINITY,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    }
}

/// A review and whether it is positive.
type Review = (String, u8);

/// Training and test reviews of IMDB as token numbers of a model, two bytes each, `length` a review.
///
/// They are read from `imdb/reviews.json` or from the hub's parquet files in `imdb`, and kept in
/// `imdb/tokens-LENGTH-DIGEST.bin` beside them, where the digest is the tokenizer's: a folder with that file
/// alone will do.
pub fn imdb(folder: &Path, model: &Path, length: usize) -> Result<(Dataset, Dataset)> {
    let path = model.join("tokenizer.json");
    let tokenizer = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let digest = blake3::hash(&tokenizer).to_hex();
    let kept = folder.join(format!("tokens-{length}-{}.bin", &digest[..12]));
    if kept.exists() {
        let bytes = std::fs::read(&kept).with_context(|| format!("cannot read {}", kept.display()))?;
        return unpack(&bytes, length)
            .with_context(|| format!("{}: remove it, and it is made anew", kept.display()));
    }
    let [train, test] = reviews(folder)?;
    let cut =
        |reviews: &[Review]| tokens(&tokenizer, reviews, length).with_context(|| path.display().to_string());
    let bytes = pack(&[(cut(&train)?, labels(&train)), (cut(&test)?, labels(&test))]);
    // Only a convenience: a folder that cannot be written is no mistake.
    let _ = std::fs::write(&kept, &bytes);
    unpack(&bytes, length)
}

fn labels(reviews: &[Review]) -> Vec<u8> {
    reviews.iter().map(|r| r.1).collect()
}

fn pack(parts: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = b"dibo-tk1".to_vec();
    for (tokens, labels) in parts {
        bytes.extend((labels.len() as u64).to_le_bytes());
        bytes.extend(labels);
        bytes.extend(tokens);
    }
    bytes
}

fn unpack(bytes: &[u8], length: usize) -> Result<(Dataset, Dataset)> {
    let mut rest = bytes.strip_prefix(b"dibo-tk1").ok_or_else(|| anyhow!("not a file of tokens"))?;
    let mut part = || -> Result<Dataset> {
        let cut = |rest: &mut &[u8], count: usize| {
            let (part, after) = rest.split_at_checked(count).ok_or_else(|| anyhow!("it is cut off"))?;
            *rest = after;
            Ok::<_, anyhow::Error>(part.to_vec())
        };
        let count =
            u64::from_le_bytes(cut(&mut rest, 8)?.try_into().map_err(|_| anyhow!("it is cut off"))?) as usize;
        let labels = cut(&mut rest, count)?;
        let tokens = cut(&mut rest, count.checked_mul(2 * length).ok_or_else(|| anyhow!("it is damaged"))?)?;
        Dataset::new(tokens, labels, 2 * length, 2).map_err(anyhow::Error::msg)
    };
    Ok((part()?, part()?))
}

/// The token numbers of texts by the tokenizer of a folder, two bytes each, `length` a text.
fn own_tokens(folder: &Path, bert: &Bert, texts: &[String], length: usize) -> Result<Vec<u8>> {
    ensure!(
        (3..=bert.positions).contains(&length),
        "texts are cut after {length} tokens; {} takes between 3 and {}",
        folder.display(),
        bert.positions
    );
    let path = folder.join("tokenizer.json");
    let what = || format!("cannot read {}", path.display());
    let tokenizer = std::fs::read(&path).with_context(what)?;
    let texts: Vec<Review> = texts.iter().map(|t| (t.clone(), 0)).collect();
    tokens(&tokenizer, &texts, length).with_context(|| path.display().to_string())
}

/// The token numbers of texts for a BERT that is trained itself, `length` a text.
pub fn numbers(folder: &Path, texts: &[String], length: usize) -> Result<Vec<f32>> {
    let bert = sizes(folder, Pool::Mean)?;
    let bytes = own_tokens(folder, &bert, texts, length)?;
    let numbers: Vec<f32> = bytes.as_chunks().0.iter().map(|b| f32::from(u16::from_le_bytes(*b))).collect();
    if let Some(beyond) = numbers.iter().find(|n| **n >= bert.vocabulary as f32) {
        let (known, folder) = (bert.vocabulary, folder.display());
        bail!("{folder}: tokenizer.json gives token {beyond}, but config.json has {known} tokens");
    }
    Ok(numbers)
}

/// What the pretrained model of a folder makes of texts, cut after `length` tokens: numbers a text, and those
/// of all texts. On all cores.
pub fn embeddings(folder: &Path, texts: &[String], length: usize) -> Result<(usize, Vec<f32>)> {
    let bert = sizes(folder, Pool::Mean)?;
    let bytes = own_tokens(folder, &bert, texts, length)?;
    let mut weights = vec![0.0; bert.places(1).width];
    pretrained(folder, &bert, &mut weights)?;
    let weights: Vec<f32> = weights.iter().map(|w| *w as f32).collect();
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let part = 2 * length * texts.len().div_ceil(cores).max(1);
    let parts = std::thread::scope(|scope| {
        let weights = &weights;
        let start =
            |part| scope.spawn(move || dibo::problem::learning::bert::embed(bert, weights, length, part));
        let started: Vec<_> = bytes.chunks(part).map(start).collect();
        started
            .into_iter()
            .map(|s| s.join().map_err(|_| anyhow!("a thread failed")))
            .collect::<Result<Vec<_>>>()
    })?;
    Ok((bert.hidden, parts.concat()))
}

/// Cuts texts into tokens: `[CLS]`, at most `length` − 2 tokens, `[SEP]`, zeros.
fn tokens(tokenizer: &[u8], reviews: &[Review], length: usize) -> Result<Vec<u8>> {
    let mut tokenizer = tokenizers::Tokenizer::from_bytes(tokenizer).map_err(|e| anyhow!("{e}"))?;
    let cut = tokenizers::TruncationParams { max_length: length, ..Default::default() };
    tokenizer.with_truncation(Some(cut)).map_err(|e| anyhow!("{e}"))?;
    tokenizer.with_padding(None);
    let mut bytes = Vec::with_capacity(reviews.len() * 2 * length);
    for piece in reviews.chunks(1000) {
        let texts: Vec<&str> = piece.iter().map(|r| r.0.as_str()).collect();
        for encoding in tokenizer.encode_batch_fast(texts, true).map_err(|e| anyhow!("{e}"))? {
            let ids = encoding.get_ids().iter().copied().chain(std::iter::repeat(0)).take(length);
            for id in ids {
                bytes.extend(
                    u16::try_from(id).map_err(|_| anyhow!("token {id} does not fit 16 bits"))?.to_le_bytes(),
                );
            }
        }
    }
    Ok(bytes)
}

/// Training and test reviews.
fn reviews(folder: &Path) -> Result<[Vec<Review>; 2]> {
    #[derive(Deserialize)]
    struct Line {
        t: String,
        s: u8,
    }
    let json = folder.join("reviews.json");
    if json.exists() {
        let text = std::fs::read(&json).with_context(|| format!("cannot read {}", json.display()))?;
        let lines: Vec<Line> = serde_json::from_slice(&text).with_context(|| json.display().to_string())?;
        let count = lines.len();
        ensure!(
            count > 0 && count.is_multiple_of(4),
            "{}: {count} reviews; four equal parts are expected",
            json.display()
        );
        ensure!(lines.iter().all(|l| l.s < 2), "{}: a label is neither 0 nor 1", json.display());
        // Four equal parts: test negative, train negative, test positive, train positive.
        let mut parts = [Vec::new(), Vec::new()];
        lines.into_iter().enumerate().for_each(|(i, l)| parts[1 - i / (count / 4) % 2].push((l.t, l.s)));
        return Ok(parts);
    }
    let part = |name: &str| {
        let path = folder.join(format!("{name}-00000-of-00001.parquet"));
        if !path.exists() {
            bail!(
                "{}: there is neither reviews.json nor the hub's parquet files (train- and \
                test-00000-of-00001.parquet)",
                folder.display()
            );
        }
        parquet_reviews(&path).with_context(|| path.display().to_string())
    };
    Ok([part("train")?, part("test")?])
}

/// The columns `text` and `label` of a parquet file.
fn parquet_reviews(path: &Path) -> Result<Vec<Review>> {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    let reader = SerializedFileReader::new(std::fs::File::open(path)?)?;
    let mut reviews = Vec::new();
    for row in reader.get_row_iter(None)? {
        let row = row?;
        let find = |name: &str| row.get_column_iter().find(|c| c.0 == name).map(|c| c.1);
        let (Some(Field::Str(text)), Some(label)) = (find("text"), find("label")) else {
            bail!("the columns text and label are expected")
        };
        let label = match label {
            Field::Long(l) => *l,
            Field::Int(l) => i64::from(*l),
            other => bail!("label {other} is not a whole number"),
        };
        ensure!(label == 0 || label == 1, "label {label} is neither 0 nor 1");
        reviews.push((text.clone(), label as u8));
    }
    ensure!(!reviews.is_empty(), "it holds no review");
    Ok(reviews)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision() {
        for (bits, value) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x3555, 0.333_251_953_125),
            (0x0001, 2f64.powi(-24)),
            (0x7bff, 65504.0),
            (0x8000, 0.0),
        ] {
            assert_eq!(half(bits), value);
        }
        assert!(half(0x7c01).is_nan() && half(0xfc00) == f64::NEG_INFINITY);
    }

    #[test]
    fn tokens_are_kept_as_they_were() {
        let bytes = pack(&[(vec![1, 0, 2, 0], vec![1]), (vec![3, 0, 0, 0, 4, 0, 5, 0], vec![0, 1])]);
        let (train, test) = unpack(&bytes, 2).unwrap();
        assert_eq!(
            (train.image(0), test.image(1), test.labels()),
            (&[1, 0, 2, 0][..], &[4, 0, 5, 0][..], &[0, 1][..])
        );
        for cut in 0..bytes.len() {
            assert!(unpack(&bytes[..cut], 2).is_err());
        }
    }
}
