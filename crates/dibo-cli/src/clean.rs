//! `clean`: wrong labels in own files. The ways to find them run side by side over links that change; the one
//! that does best on checked rows that nobody trained on is taken.
use crate::run::{How, On, go};
use crate::threads;
use anyhow::{Context, Result, bail, ensure};
use dibo::problem::learning::Way;
use dibo_learn::{Choice as Columns, Roles};
use dibo_report::results::{Folder, Manifest, store};
use dibo_run::sites::{self, Bert, Files};
use dibo_run::{Registry, check, fold, runner, say, taken};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use toml::{Table, Value};

/// What a user can say of the files and the model.
#[derive(clap::Args)]
pub struct Options {
    /// Files with rows: one for each site, or with --owner any number, each owner's rows in one. CSV,
    /// TSV, Parquet, Arrow, NPZ, JSON Lines, IDX, or folders of images
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Column of the given label
    #[arg(long, default_value = "label")]
    label: String,
    /// Column of a row's name [default: its number]
    #[arg(long)]
    id: Option<String>,
    /// Column that says whose row it is
    #[arg(long)]
    owner: Option<String>,
    /// Column that says whether a label has been checked (1, true, yes)
    #[arg(long, value_name = "COLUMN")]
    clean: Option<String>,
    /// Files with checked rows, one for each site in the same order
    #[arg(long, value_name = "FILES", value_delimiter = ',')]
    checked: Vec<PathBuf>,
    /// File with rows whose labels are right, to try the models on
    #[arg(long, value_name = "FILE")]
    test: Option<PathBuf>,
    /// Column of the true label, where it is known: it is measured what was found, no method sees it
    #[arg(long, value_name = "COLUMN")]
    truth: Option<String>,
    /// Column of texts, which the model of --bert turns into numbers, or which `--model bert` reads
    #[arg(long, value_name = "COLUMN", requires = "bert")]
    text: Option<String>,
    /// Folder of a BERT as the Hugging Face hub has it (config.json, model.safetensors, tokenizer.json)
    #[arg(long, value_name = "FOLDER", requires = "text")]
    bert: Option<PathBuf>,
    /// Tokens after which texts are cut
    #[arg(long, default_value_t = 128)]
    tokens: usize,
    /// Columns that the model sees [default: all others]
    #[arg(long, value_delimiter = ',')]
    features: Vec<String>,
    /// Column of words, though some sites have only numbers in it, such as wards 0, 1, 2 and ICU; may be
    /// given several times
    #[arg(long, value_name = "COLUMN")]
    words: Vec<String>,
    /// Width and height that images are scaled to, such as 32x32
    #[arg(long, value_name = "WxH")]
    image_size: Option<String>,
    /// Different words that a column may have
    #[arg(long, default_value_t = 64)]
    categories: usize,
    /// How numbers are scaled: auto, each, common or none
    #[arg(long, default_value = "auto")]
    scale: String,
    /// linear, mlp with one hidden layer, or bert: the model of --bert itself is trained on --text, with
    /// far more computing than numbers that it makes once
    #[arg(long, default_value = "mlp")]
    model: String,
    /// Hidden units
    #[arg(long, default_value_t = 64)]
    hidden: usize,
    /// Ways to try: clean-only, noisy, rounds, noisy-rounds, em, em-own, joint, bilevel, bilevel-own,
    /// weights, class-weights, trust, tau, tau-columns, tau-classes, gold; with /given after a way with a
    /// noise matrix, it starts from given rows instead of checked ones; with /sites after em, rows are judged
    /// by how common each class is at their own site, too; with /tau=0.01 it has that regulariser
    /// [default: clean-only,noisy,rounds,noisy-rounds,em/sites,em-own,joint,joint/given,bilevel; with --model
    /// bert clean-only,noisy,noisy-rounds,em/given,joint/given]
    #[arg(long, value_delimiter = ',')]
    ways: Vec<String>,
    /// Learn the numbers of a training instead of looking for wrong labels: regularisers (one, one a column,
    /// one a class), weights of classes and trust in sites, beside a grid of regularisers
    #[arg(long, conflicts_with = "ways")]
    tune: bool,
    /// Iterations [default: forty times through a site's rows, between 800 and 6000; with --model bert eight
    /// times, between 100 and 2000]
    #[arg(long)]
    iterations: Option<usize>,
    /// Step of the models at the start; it falls to a hundredth [default: by the number of features; 0.04
    /// with --model bert]
    #[arg(long)]
    step: Option<f64>,
    /// Rows in a site's batch [default: 32; 16 with --model bert]
    #[arg(long)]
    batch: Option<usize>,
    /// Chance of a link between two sites at a step, beside a ring
    #[arg(long, default_value_t = 0.5)]
    links: f64,
    /// Seed of batches, links and what is held out
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Folder for the results
    #[arg(long, default_value = "cleaned")]
    out: PathBuf,
    /// Threads to use [default: all cores]
    #[arg(long)]
    threads: Option<usize>,
    #[command(flatten)]
    on: On,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
    /// Do everything anew instead of going on where an earlier run stopped
    #[arg(long)]
    fresh: bool,
    /// Another program to compare with, such as "python3 peers/cleanlab_peer.py": it gets all rows in one
    /// place and its results stand beside dibo's
    #[arg(long, value_name = "COMMAND")]
    peer: Vec<String>,
    /// Write the experiment file, for `dibo run` or `dibo agent`, and do nothing else
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// What `--tune` tries.
const TUNED: [&str; 10] = [
    "noisy/tau=0.0001",
    "noisy/tau=0.001",
    "noisy/tau=0.01",
    "noisy/tau=0.1",
    "tau",
    "tau-columns",
    "tau-classes",
    "class-weights",
    "trust",
    "clean-only",
];

/// What a model does unless somebody says otherwise.
struct Usual {
    ways: &'static [&'static str],
    /// Rows in a batch.
    batch: usize,
    /// Times through the rows of the largest site, and how few and how many iterations that may give.
    times: usize,
    least: usize,
    most: usize,
    /// The part of them that no T is learned in is one of so many.
    warm: usize,
    /// The step; none goes by the number of features.
    step: Option<f64>,
    /// The regulariser.
    tau: f64,
    /// From so many held-out rows on a run goes back to the iteration that does best on them. With fewer, the
    /// best of many looks is the luckiest one: by four or five rows wrong ways were taken.
    enough: usize,
}

const OF_NUMBERS: Usual = Usual {
    ways: &[
        "clean-only",
        "noisy",
        "rounds",
        "noisy-rounds",
        "em/sites",
        "em-own",
        "joint",
        "joint/given",
        "bilevel",
    ],
    batch: 32,
    times: 40,
    least: 800,
    most: 6000,
    warm: 8,
    step: None,
    tau: 0.003,
    enough: 20,
};

/// A BERT that is trained. A few checked rows are too few for it to begin with; a text takes as long as
/// thousands of rows of a table. It knows most of what it needs, and is not to forget it, as it does with far
/// larger steps; before it says more than a coin does, no T can be learned beside it. It swings until its
/// step has fallen: by 20 rows its best looks were mostly worse than its last.
const OF_A_BERT: Usual = Usual {
    ways: &["clean-only", "noisy", "noisy-rounds", "em/given", "joint/given"],
    batch: 16,
    times: 8,
    least: 100,
    most: 2000,
    warm: 2,
    step: Some(0.04),
    tau: 1e-4,
    enough: 200,
};

/// Cleans.
pub fn clean(registry: &Registry, mut options: Options) -> Result<ExitCode> {
    if options.ways.is_empty() {
        let usual: &[&str] = if options.tune { &TUNED } else { options.usual().ways };
        // Texts are one column.
        let known = usual.iter().filter(|way| !options.trains_bert() || **way != "tau-columns");
        options.ways = known.map(|way| way.to_string()).collect();
    }
    let plan = options.plan()?;
    let text = plan.text(&options.ways, None)?;
    if let Some(file) = &options.write {
        std::fs::write(file, &text).with_context(|| format!("cannot write {}", file.display()))?;
        say!("{} is written; `dibo run {}` runs it", file.display(), file.display());
        return Ok(ExitCode::SUCCESS);
    }
    let source = registry.source("clean".into(), &text);
    let experiment = registry.parse(source, "clean", Path::new("."), false)?;
    let threads = threads(options.threads)?;
    let fresh = options.fresh;
    let (on, quiet) = (options.on, options.quiet);
    let how = How { threads, device: on.accelerator()?, quiet, fresh, live: false };
    let (out, mut told) = (options.out.clone(), String::new());
    let code = go(registry, experiment, &out, how, &options.peer, |manifest| {
        let Choice { series, why, stop } = choose(manifest)?;
        let label = &manifest.series[series].label;
        told = format!("Taken: {label}; {why}.\n");
        for warning in &manifest.series[series].warnings {
            told += &format!("Take it with care: {warning}.\n");
        }
        let mut again = None;
        if let Some(stop) = stop {
            let text = plan.text(std::slice::from_ref(label), Some(stop))?;
            let folder = out.join(AGAIN);
            let device = on.accelerator()?;
            let options = runner::Options { out: folder.clone(), threads, device, quiet: true, live: None };
            if with_all(registry, &text, options, fresh)? {
                told += "It was then done again with all checked rows, and that is what is kept.\n";
                again = Some(folder);
            }
        }
        taken::put_in_front(&out, series, again.as_deref(), &told)?;
        told += &taken::summary(&out)?;
        Ok(())
    })?;
    if !told.is_empty() {
        let folder = out.display();
        let flags = match (&options.text, &options.bert) {
            (Some(text), Some(bert)) if options.trains_bert() => {
                format!(" --text '{text}' --bert {}", bert.display())
            }
            _ => String::new(),
        };
        let files = match out.join("model.onnx").exists() {
            true => " and model.onnx hold the model",
            false => " holds the model, which is too large for ONNX (2 GB),",
        };
        told += &format!(
            "{folder}/labels.csv lists all rows, the most suspicious first; \
            {folder}/model.safetensors{files} (`dibo predict {folder} FILE{flags}` uses it); {folder}/taken \
            has what the other ways found.\n"
        );
        say!("{}", fold(told.trim_end()));
    }
    Ok(code)
}

/// The folder of the way that was taken, done again.
const AGAIN: &str = "all-checked";

/// Runs the one way of an experiment again; whether it left its files.
fn with_all(registry: &Registry, text: &str, options: runner::Options, fresh: bool) -> Result<bool> {
    let source = registry.source("clean".into(), text);
    let mut experiment = registry.parse(source, AGAIN, Path::new("."), false)?;
    check::before(&mut experiment)?;
    let out = options.out.clone();
    let folder = Folder::open(&out, AGAIN, &runner::identity(&experiment)?, fresh)?;
    let (manifest, curves) = runner::run(&experiment, &options)?;
    manifest.write(&out)?;
    curves.write_csv(&out.join("curves.csv"))?;
    folder.finish()?;
    let finished = manifest.runs.iter().all(|r| r.outcome == "finished");
    Ok(finished && taken::folder(&out, 0).join("labels.csv").exists())
}

/// An experiment but for its ways.
struct Plan {
    file: Table,
    step: f64,
    iterations: usize,
}

impl Plan {
    /// The experiment as a file would say it; with all checked rows, as far as this iteration, if one is
    /// named: there is nothing left to stop by.
    fn text(&self, ways: &[String], until: Option<usize>) -> Result<String> {
        let mut file = self.file.clone();
        if let Some(until) = until {
            let mut put = |section: &str, key: &str, value: Value| {
                let section = file.get_mut(section).and_then(Value::as_table_mut);
                section.map(|s| s.insert(key.into(), value))
            };
            put("problem", "held", 0.0.into());
            put("run", "iterations", (until as i64).into());
        }
        let mut text = toml::to_string(&file).context("the experiment cannot be written")?;
        for way in ways {
            text += &algorithm(way, self.step, self.iterations)?;
        }
        Ok(text)
    }
}

fn text(path: &Path) -> Result<String> {
    let text = path.to_str().with_context(|| format!("{}: the name is not plain text", path.display()))?;
    Ok(text.to_string())
}

impl Options {
    fn trains_bert(&self) -> bool {
        self.model == "bert"
    }

    fn usual(&self) -> &'static Usual {
        if self.trains_bert() { &OF_A_BERT } else { &OF_NUMBERS }
    }

    /// Rows in a batch.
    fn batch(&self) -> usize {
        self.batch.unwrap_or(self.usual().batch)
    }

    /// Iterations for so many rows of the largest site, and how many of them no T is learned in.
    fn length(&self, rows: usize) -> (usize, usize) {
        let Usual { times, least, most, warm, .. } = *self.usual();
        let iterations = self.iterations.unwrap_or((times * rows).div_ceil(self.batch()).clamp(least, most));
        (iterations, iterations / warm)
    }

    /// What is done, in words; token numbers are not scaled.
    fn about(&self) -> String {
        let sums = if self.trains_bert() { "" } else { "sums for scaling, " };
        let enough = self.usual().enough;
        format!(
            "Every site keeps its own rows. What leaves it are class names, column names, {sums}models and \
            their trackers. Each way learns a common model over links that go one way and change at every \
            step; a fifth of the checked rows is held out, and the way with the smallest loss on them is \
            taken, at its best iteration if they are {enough} or more."
        )
    }

    /// Refuses numbers and words that mean nothing, by the names of their flags: nobody has seen the
    /// experiment that is made of them.
    fn check_flags(&self) -> Result<()> {
        let iterations = self.iterations.unwrap_or(1);
        let numbers = [
            ("--iterations", iterations, 1, MOST),
            ("--batch", self.batch(), 1, MOST),
            ("--hidden", self.hidden, 1, MOST_HIDDEN),
            ("--tokens", self.tokens, 1, MOST),
            ("--categories", self.categories, 0, MOST),
        ];
        for (flag, number, least, most) in numbers {
            ensure!(number >= least, "{flag} is {number}; it must be {least} or more");
            ensure!(number <= most, "{flag} is {number}; it must be {most} or less");
        }
        let most = i64::MAX as u64;
        ensure!(self.seed <= most, "--seed is {}; it must be {most} or less", self.seed);
        ensure!((0.0..=1.0).contains(&self.links), "--links is {}; it must lie in [0, 1]", self.links);
        let words = [
            ("--model", &self.model, &["linear", "mlp", "bert"][..]),
            ("--scale", &self.scale, &["auto", "each", "common", "none"]),
        ];
        for (flag, word, known) in words {
            ensure!(known.contains(&word.as_str()), "{flag} is '{word}'; known are {}", known.join(", "));
        }
        let how = "--text COLUMN names their column, --bert FOLDER the pretrained model";
        ensure!(!self.trains_bert() || self.text.is_some(), "--model bert reads texts: {how}");
        let instead = "take --model mlp, whose rows are numbers, for such a comparison";
        ensure!(!self.trains_bert() || self.peer.is_empty(), "--peer gets no texts: {instead}");
        Ok(())
    }

    /// Refuses inputs that are not there and such as dibo would write over: in the folder for the results
    /// under a name of its own, or where the experiment is to be written.
    fn check_places(&self) -> Result<()> {
        let out = self.out.canonicalize().ok().filter(|_| self.write.is_none());
        let write = self.write.as_ref().and_then(|file| file.canonicalize().ok());
        for file in self.files.iter().chain(&self.checked).chain(&self.test) {
            ensure!(file.exists(), "there is no file {}", file.display());
        }
        for file in self.files.iter().chain(&self.checked).chain(&self.test).chain(&self.bert) {
            let Ok(place) = file.canonicalize() else { continue };
            ensure!(
                write.as_ref() != Some(&place),
                "--write is {}, which is read; give another file",
                file.display()
            );
            let Some(inside) = out.as_ref().and_then(|out| place.strip_prefix(out).ok()) else { continue };
            let name = inside.iter().next().and_then(|name| name.to_str());
            ensure!(
                !inside.as_os_str().is_empty() && !name.is_some_and(store::is_own),
                "{} would be written over by results; give another folder with --out",
                file.display()
            );
        }
        Ok(())
    }

    /// A path as the experiment names it: from its file on, else in full.
    fn path_text(&self, path: &Path) -> Result<String> {
        let folder = self.write.as_deref().and_then(Path::parent);
        let here = |folder: &Path| {
            folder.as_os_str().is_empty()
                || matches!((folder.canonicalize(), Path::new(".").canonicalize()), (Ok(a), Ok(b)) if a == b)
        };
        if folder.is_none_or(here) {
            return text(path);
        }
        text(&std::path::absolute(path).with_context(|| format!("cannot find {}", path.display()))?)
    }

    /// What is to be done, by the files and the flags.
    fn plan(&self) -> Result<Plan> {
        self.check_flags()?;
        self.check_places()?;
        let text = |path: &Path| self.path_text(path);
        let strings = |list: &[PathBuf]| -> Result<Value> {
            Ok(Value::Array(list.iter().map(|f| Ok(Value::String(text(f)?))).collect::<Result<_>>()?))
        };
        let mut problem = Table::new();
        let mut put = |key: &str, value: Value| drop(problem.insert(key.into(), value));
        put("kind", "labels".into());
        put("data", "files".into());
        put("files", strings(&self.files)?);
        put("checked_files", strings(&self.checked)?);
        put("test_file", self.test.as_deref().map(text).transpose()?.unwrap_or_default().into());
        let columns =
            [("id", &self.id), ("owner", &self.owner), ("clean", &self.clean), ("truth", &self.truth)];
        if let (Some(text_column), Some(bert)) = (&self.text, &self.bert) {
            put("text", text_column.as_str().into());
            put("bert", text(bert)?.into());
            put("tokens", (self.tokens as i64).into());
        }
        for (key, value) in columns {
            put(key, value.clone().unwrap_or_default().into());
        }
        put("label", self.label.clone().into());
        put("features", Value::Array(self.features.iter().map(|f| f.as_str().into()).collect()));
        if !self.words.is_empty() {
            put("words", Value::Array(self.words.iter().map(|w| w.as_str().into()).collect()));
        }
        let mut image_size = None;
        if let Some(size) = &self.image_size {
            let number = |t: &str| t.trim().parse::<i64>().ok().filter(|n| (1..=4096).contains(n));
            let size = size.split_once('x').and_then(|(w, h)| Some([number(w)?, number(h)?]));
            let size = size.context("--image-size must be width and height, such as 32x32")?;
            put("image_size", Value::Array(size.map(Value::Integer).into()));
            image_size = Some((size[0] as usize, size[1] as usize));
        }
        put("most_categories", (self.categories as i64).into());
        put("scale", self.scale.as_str().into());
        put("model", self.model.as_str().into());
        put("hidden", (self.hidden as i64).into());
        put("batch", (self.batch() as i64).into());
        if self.trains_bert() {
            put("checked_batch", (self.batch() as i64).into());
        }
        put("tau", self.usual().tau.into());
        put("held", HELD.into());
        let Shape { rows, width, held } = self.shape(image_size)?;
        let (iterations, warm) = self.length(rows);
        put("warm", (warm as i64).into());
        let by_width = (1.7 / (width.max(1) as f64).sqrt()).clamp(0.02, 0.2);
        let step = self.step.or(self.usual().step).unwrap_or(by_width);
        ensure!(step > 0.0 && step.is_finite(), "--step is {step}; it must be above 0");
        let graph = Table::from_iter([
            ("kind".to_string(), Value::from("cycle")),
            ("nu".to_string(), self.links.into()),
        ]);
        let run = Table::from_iter([
            ("iterations".to_string(), Value::from(iterations as i64)),
            ("every".to_string(), ((iterations / EVALUATIONS).max(1) as i64).into()),
            ("best".to_string(), if held < self.usual().enough { "" } else { "held_loss" }.into()),
        ]);
        let mut file = Table::new();
        file.insert("title".into(), "Which labels are wrong?".into());
        file.insert("about".into(), self.about().into());
        file.insert("seeds".into(), Value::Array(vec![(self.seed as i64).into()]));
        file.insert("problem".into(), problem.into());
        file.insert("graph".into(), graph.into());
        file.insert("run".into(), run.into());
        let figures = [("held", "held_loss"), ("suspicious", "suspicious")].map(|(name, y)| {
            Value::Table(
                [("name", name), ("y", y)].map(|(k, v)| (k.to_string(), v.into())).into_iter().collect(),
            )
        });
        file.insert("figure".into(), Value::Array(figures.into()));
        Ok(Plan { file, step, iterations })
    }

    /// What steps and iterations go by.
    fn shape(&self, image_size: Option<(usize, usize)>) -> Result<Shape> {
        let roles = Roles {
            label: Some(self.label.clone()),
            id: self.id.clone(),
            owner: self.owner.clone(),
            clean: self.clean.clone(),
            truth: self.truth.clone(),
            text: self.text.clone(),
            features: Columns::named(&self.features, self.text.as_deref()),
            words: self.words.clone(),
            image_size,
            most_categories: self.categories,
        };
        let began = std::time::Instant::now();
        let trained = self.trains_bert();
        let bert = self.bert.clone().map(|folder| Bert { folder, tokens: self.tokens, trained });
        let sites =
            sites::read(&Files { rows: self.files.clone(), checked: self.checked.clone(), bert }, &roles)?;
        let most = |of: fn(&sites::Own) -> usize| sites.iter().map(of).max().unwrap_or(1);
        let (rows, seconds) =
            (sites.iter().map(sites::Own::rows).sum::<usize>(), began.elapsed().as_secs_f64());
        say!(
            "{rows} rows of {} sites read in {seconds:.2} s ({:.0} rows a second)",
            sites.len(),
            rows as f64 / seconds
        );
        let held = sites.iter().map(|o| sites::held_out(o.checked(), HELD)).sum();
        Ok(Shape { rows: most(sites::Own::rows), width: most(sites::Own::width), held })
    }
}

/// The most that an experiment can say: iterations, rows, words and tokens beyond are no numbers of TOML, and
/// nobody has so many.
const MOST: usize = 1_000_000_000;

/// The most hidden units.
const MOST_HIDDEN: usize = 1 << 20;

/// The part of the checked rows that no training sees.
const HELD: f64 = 0.2;

/// How often a run looks at held-out rows.
const EVALUATIONS: usize = 16;

/// What is known of the rows before anything is learned.
struct Shape {
    /// Rows of the largest site.
    rows: usize,
    /// Numbers that the model sees of a row.
    width: usize,
    /// Checked rows of all sites that are held out.
    held: usize,
}

/// One way as an `[[algorithm]]`.
fn algorithm(name: &str, step: f64, iterations: usize) -> Result<String> {
    let (way, rest) = name.split_once('/').unwrap_or((name, ""));
    let mut more = String::new();
    for word in rest.split('/').filter(|w| !w.is_empty()) {
        let tau = word.strip_prefix("tau=").and_then(|v| v.parse::<f64>().ok());
        more += &match (word, tau) {
            ("given", _) => "from = \"given\"\n".to_string(),
            ("sites", _) => "site_classes = true\n".to_string(),
            (_, Some(tau)) => format!("tau = {tau:?}\n"),
            _ => bail!("way '{name}': '/{word}' means nothing; known are /given, /sites and /tau=NUMBER"),
        };
    }
    let Ok(known) = serde_json::from_str::<Way>(&format!("\"{way}\"")) else {
        let names: Vec<String> = Way::ALL
            .iter()
            .filter_map(|w| Some(serde_json::to_string(w).ok()?.trim_matches('"').to_string()))
            .collect();
        bail!("there is no way '{way}'; known are {}", names.join(", "));
    };
    ensure!(
        known == Way::Em || !rest.split('/').any(|word| word == "sites"),
        "way '{name}': /sites belongs to em, which knows how common each class is"
    );
    let line =
        |start: f64| format!("{{ start = {start:?}, end = {:?}, over = {iterations} }}", start / 100.0);
    let head = format!("\n[[algorithm]]\nlabel = \"{name}\"\nway = \"{way}\"\n{more}");
    let upper = match known {
        Way::Weights => 100.0,
        Way::ClassWeights | Way::Trust => 3.0,
        _ if known.regularises() => 3.0,
        Way::EmOwn => 0.5,
        _ => 30.0,
    };
    Ok(head
        + &match known.is_bilevel() {
            // A T that the upper level moves from the start, by a y that leans on the checked rows as much as
            // on all others, ends below one that first follows y.
            true if matches!(known, Way::Bilevel | Way::BilevelOwn) => {
                let (x, y, half) = (line(upper * step / 3.0), line(step / 3.0), iterations / 2);
                format!("name = \"fab\"\njointly = {half}\nlambda = 3\neta_x = {x}\neta_y = {y}\n")
            }
            true => {
                let (x, y) = (line(upper * step), line(step));
                format!("name = \"fab\"\nlambda = 1\neta_x = {x}\neta_y = {y}\n")
            }
            false => format!("name = \"push-pull\"\neta = {}\n", line(step)),
        }
        // Few checked rows must not outweigh all others.
        + if known.is_bilevel() && known != Way::EmOwn || known == Way::CleanOnly {
            ""
        } else {
            "checked_weight = 0.1\n"
        })
}

/// The way that is taken.
struct Choice {
    series: usize,
    why: String,
    /// The iteration with the smallest loss on held-out rows, if any row was held out.
    stop: Option<usize>,
}

/// The way with the smallest loss on held-out rows.
fn choose(manifest: &Manifest) -> Result<Choice> {
    let finished = |r: &&dibo_report::results::RunRecord| r.outcome == "finished";
    let runs: Vec<_> = manifest.runs.iter().filter(finished).collect();
    ensure!(!runs.is_empty(), "no way came to an end: a smaller --step may help");
    let loss = |r: &dibo_report::results::RunRecord| r.last.get("held_loss").copied();
    let known = runs.iter().filter_map(|r| Some((r, loss(r)?)));
    let Some((run, loss)) = known.min_by(|a, b| a.1.total_cmp(&b.1)) else {
        let why = "no checked row could be held out, so nothing tells which is best";
        return Ok(Choice { series: runs[0].series, why: why.into(), stop: None });
    };
    let right = run.last.get("held_accuracy").copied().unwrap_or(f64::NAN);
    let stop = run.best.unwrap_or(run.iterations);
    let why = format!(
        "it does best on checked rows that were held out: loss {loss:.3}, {right:.0} % right after {stop} of \
        {} iterations",
        run.iterations
    );
    Ok(Choice { series: run.series, why, stop: Some(stop) })
}
