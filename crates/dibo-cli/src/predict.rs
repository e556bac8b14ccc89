//! `predict`: the classes of a file's rows by a saved model.
use anyhow::{Context, Result, bail, ensure};
use dibo_learn::{Choice, Encoded, Ids, Roles, SavedModel, Shape};
use dibo_run::sites::{self, Bert};
use dibo_run::{saved, say};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Which model and which rows.
#[derive(clap::Args)]
pub struct Options {
    /// A folder that `clean` left, or a model.safetensors
    model: PathBuf,
    /// Rows, in any format that `clean` reads
    file: PathBuf,
    /// Column of a row's name [default: its number]
    #[arg(long)]
    id: Option<String>,
    /// Width and height that images are scaled to, such as 32x32
    #[arg(long, value_name = "WxH")]
    image_size: Option<String>,
    /// Column of texts, which the model of --bert turns into numbers, or whose tokenizer a trained BERT needs
    #[arg(long, value_name = "COLUMN", requires = "bert")]
    text: Option<String>,
    /// Folder of a BERT as the Hugging Face hub has it
    #[arg(long, value_name = "FOLDER", requires = "text")]
    bert: Option<PathBuf>,
    /// Tokens after which texts are cut [default: those of a trained BERT, else 128]
    #[arg(long)]
    tokens: Option<usize>,
    /// Where to write [default: standard output]
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Refuses to write over what is read: the rows, the table of a folder of images, or the model.
fn refuse_over(options: &Options) -> Result<()> {
    let place = |file: &Path| file.canonicalize().ok();
    let Some(out) = options.out.as_deref().and_then(place) else { return Ok(()) };
    let read = [options.file.clone(), options.file.join("labels.csv"), options.model.clone()];
    if let Some(file) = read.iter().find(|file| place(file).as_ref() == Some(&out)) {
        bail!("--out is {}, which is read; give another file", file.display());
    }
    Ok(())
}

/// What becomes of texts: a model that is a BERT itself takes their tokens, and as many as it was trained
/// with.
fn texts(options: &Options, model: &SavedModel) -> Result<Option<Bert>> {
    let trained = matches!(model.shape, Shape::Bert(_));
    let Some(folder) = options.bert.clone() else {
        let how = "--text COLUMN names their column, --bert FOLDER the folder with its tokenizer.json";
        ensure!(!trained, "{}: the model is a BERT, which reads texts; {how}", options.model.display());
        return Ok(None);
    };
    if !trained {
        return Ok(Some(Bert { folder, tokens: options.tokens.unwrap_or(128), trained }));
    }
    sites::same_tokens(model, &folder)?;
    let tokens = model.encoding.width();
    let asked = options.tokens.unwrap_or(tokens);
    ensure!(asked == tokens, "--tokens is {asked}; the model was trained with texts of {tokens}");
    Ok(Some(Bert { folder, tokens, trained }))
}

/// Predicts.
pub fn predict(options: Options) -> Result<ExitCode> {
    refuse_over(&options)?;
    let model = SavedModel::load(&options.model)?;
    let columns = model.encoding.columns.iter().map(|c| c.name().to_string());
    let columns: Vec<String> = columns.filter(|c| options.text.as_ref() != Some(c)).collect();
    let words = |c: &Encoded| if let Encoded::OneHot { words, .. } = c { words.len() } else { 0 };
    let size = options.image_size.as_deref().map(|size| {
        let numbers = size.split_once('x').and_then(|(w, h)| Some((w.parse().ok()?, h.parse().ok()?)));
        numbers.context("--image-size must be width and height, such as 32x32")
    });
    let roles = Roles {
        id: options.id.clone(),
        text: options.text.clone(),
        features: Choice::Some(columns),
        words: model.encoding.words(),
        image_size: size.transpose()?,
        // Words that the model does not know are read all the same.
        most_categories: 10_000 + model.encoding.columns.iter().map(words).sum::<usize>(),
        ..Roles::default()
    };
    let samples = sites::samples(&options.file, &roles, texts(&options, &model)?.as_ref())?;
    let predictions = saved::predict(&model, &samples)?;
    let out: Box<dyn std::io::Write> = match &options.out {
        Some(file) => {
            let what = || format!("cannot write {}", file.display());
            Box::new(std::io::BufWriter::new(std::fs::File::create(file).with_context(what)?))
        }
        None => Box::new(std::io::stdout().lock()),
    };
    let mut out = csv::Writer::from_writer(out);
    out.write_record(["id", "predicted_label", "probability"])?;
    for (row, p) in predictions.iter().enumerate() {
        let id = match &samples.ids {
            Ids::Numbers => (row + 1).to_string(),
            Ids::Own(ids) => ids[row].clone(),
        };
        out.write_record([id, model.classes[p.class].clone(), format!("{:.6}", p.probability)])?;
    }
    out.flush().context("cannot write the predictions")?;
    drop(out);
    if let Some(file) = &options.out {
        say!("{} rows; {}", predictions.len(), file.display());
    }
    Ok(ExitCode::SUCCESS)
}
