//! `dibo tune FILE`: finds steps (and for FAB the penalty) by the paper's two-tier strategy, made efficient:
//! coarse λ first, then ηx and ηy = ηz, each tier by successive halving over iterations and seeds. What the
//! theory knows to diverge is not run at all.
mod race;

use crate::experiment::text::Source;
use crate::experiment::{self, Experiment};
use crate::report::{plot, words};
use crate::results::write_file;
use crate::{check, data, runner};
use anyhow::{Context, Result, bail, ensure};
use race::{Candidate, Race, Score};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use toml_edit::{DocumentMut, Item, Table, Value};

/// What a user can choose.
#[derive(clap::Args)]
pub struct Options {
    /// Path of a TOML file, or the name of a built-in experiment
    experiment: String,
    /// Which algorithm of the file to tune [default: the first]
    #[arg(long, value_name = "NAME")]
    algorithm: Option<String>,
    /// What is to become small, or large for accuracies and areas; where [run] has a target, its iterations
    /// count first [default: the file's metric]
    #[arg(long)]
    metric: Option<String>,
    /// Change a value of the file: key=value, such as run.iterations=100 (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Seeds for the settings that come to the end
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// Folder for the results [default: results/NAME-tune]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Threads to use [default: all cores]
    #[arg(long)]
    threads: Option<usize>,
    /// Folder of the data sets [default: DIBO_DATA, else the platform's data folder]
    #[arg(long)]
    data: Option<PathBuf>,
    /// Show no progress bar
    #[arg(long)]
    quiet: bool,
    /// Forget what an earlier call found
    #[arg(long)]
    fresh: bool,
    /// Run every setting to the end instead of halving: the plain grid, to compare with
    #[arg(long)]
    full: bool,
}

/// Keys that move together, such as eta_y alone (eta_z follows it), and their values.
struct Axis {
    key: &'static str,
    values: Vec<f64>,
}

/// The paper's grids for the baselines.
const STEPS: [f64; 9] = [1e-5, 5e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 0.1];
const TAUS: [f64; 6] = [0.0, 0.001, 0.01, 0.1, 0.2, 0.3];
/// Coarse penalties.
const LAMBDAS: [f64; 6] = [1.0, 3.0, 10.0, 30.0, 100.0, 300.0];

/// One tier's result: its axes, and candidates with their scores.
struct Tier {
    axes: Vec<Axis>,
    candidates: Vec<Candidate>,
    scores: Vec<Option<(usize, Score)>>,
}

impl Tier {
    fn best(&self) -> Option<usize> {
        // Those that came furthest are compared.
        let far = self.scores.iter().flatten().map(|s| s.0).max()?;
        let last = (0..self.scores.len())
            .filter(|i| self.scores[*i].is_some_and(|s| s.0 == far && s.1.metric.is_finite()));
        last.min_by(|a, b| match (&self.scores[*a], &self.scores[*b]) {
            (Some(a), Some(b)) => a.1.order(&b.1),
            _ => std::cmp::Ordering::Equal,
        })
    }
}

/// Tunes and writes what was found.
pub fn run(options: Options) -> Result<ExitCode> {
    let began = Instant::now();
    data::set_folder(options.data.clone());
    ensure!(options.seeds > 0, "--seeds is 0; at least one seed is needed");
    let loaded = experiment::load(&options.experiment, &options.set)?;
    let base = Base::new(&loaded, options.algorithm.as_deref())?;
    let first = base.candidate(&[])?;
    let out =
        options.out.clone().unwrap_or_else(|| Path::new("results").join(format!("{}-tune", loaded.name)));
    let folder = out.join("tracks");
    if options.fresh && folder.is_dir() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot clear {}", out.display()))?;
    }
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    runner::watch_for_stop()?;
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let seeds: Vec<u64> = (0..options.seeds).collect();
    let (iterations, plan) = (first.setting.run.iterations, first.setting.run.plan());
    let metric = options.metric.clone().unwrap_or_else(|| first.setting.run.metric().to_string());
    let upwards = ["accuracy", "auc", "f1", "precision", "recall"].iter().any(|w| metric.contains(w));
    let bar = runner::progress(0, options.quiet);
    let threads = options.threads.unwrap_or(cores).clamp(1, 1024);
    let race = Race {
        folder,
        files: &base.folder,
        metric: &metric,
        upwards,
        threads,
        bar: &bar,
        spent: AtomicUsize::new(0),
    };
    let target = plan
        .target
        .as_ref()
        .map_or(String::new(), |(m, v)| format!(" until {} is below {v}", words::column(m)));
    println!(
        "{}: tuning {} on {}{target}, {iterations} iterations at most",
        loaded.name,
        first.setting.series.label,
        words::column(&metric)
    );
    let mut tiers: Vec<Tier> = Vec::new();
    let mut fixed: Vec<(String, String)> = Vec::new();
    while let Some(axes) = base.axes(tiers.len(), &fixed, options.full) {
        let candidates = base.grid(&axes, &fixed)?;
        let known = candidates.iter().filter(|c| c.refused.is_none()).count();
        bar.set_length(bar.length().unwrap_or(0) + (known * iterations) as u64);
        bar.set_message(format!("tier {}: {known} settings", tiers.len() + 1));
        let Some(scores) = race.run(&candidates, &seeds, iterations, options.full)? else {
            bar.finish_and_clear();
            println!("stopped early; the same command goes on from here");
            return Ok(ExitCode::from(130));
        };
        let tier = Tier { axes, candidates, scores };
        let Some(best) = tier.best() else {
            bar.finish_and_clear();
            bail!(
                "every setting of tier {} diverged or has no metric '{metric}'; give smaller steps as lists \
                in the file",
                tiers.len() + 1
            );
        };
        fixed.clone_from(&tier.candidates[best].parameters);
        tiers.push(tier);
    }
    bar.finish_and_clear();
    report(&base, &tiers, &race, &out, &seeds, iterations, began)?;
    Ok(ExitCode::SUCCESS)
}

/// The experiment with one algorithm and no sweeps.
struct Base {
    document: DocumentMut,
    name: String,
    folder: PathBuf,
    algorithm: String,
    learning: bool,
    /// Lists that the file gives for the algorithm: they are its grid.
    lists: Vec<(String, Vec<f64>)>,
}

/// Keys whose lists are values.
const LISTS: [&str; 3] = ["phases", "weights", "layers"];

impl Base {
    fn new(loaded: &Experiment, wanted: Option<&str>) -> Result<Self> {
        let mut document: DocumentMut = loaded.text.parse().context("the file cannot be edited")?;
        // What the file says of its own sweep does not fit one tuned setting.
        for key in ["case", "figure", "claims", "about", "title"] {
            document.remove(key);
        }
        document["seeds"] = toml_edit::value(1);
        for section in ["problem", "graph", "run"] {
            if let Some(table) = document.get_mut(section).and_then(Item::as_table_mut) {
                one_of_each(table);
            }
        }
        let all = document.get("algorithm").and_then(Item::as_array_of_tables).cloned().unwrap_or_default();
        let name = |t: &Table| t.get("name").and_then(Item::as_str).unwrap_or_default().to_string();
        let known = || all.iter().map(name).collect::<Vec<_>>().join(", ");
        let found = all.iter().find(|t| wanted.is_none_or(|w| name(t) == w));
        let mut table = found
            .with_context(|| format!("--algorithm {}: the file has {}", wanted.unwrap_or_default(), known()))?
            .clone();
        let lists = table.iter().filter_map(|(key, item)| Some((key.to_string(), numbers(item)?))).collect();
        one_of_each(&mut table);
        // eta_z follows eta_y: the two must be equal for x to be stable.
        table.remove("eta_z");
        let (algorithm, mut only) = (name(&table), toml_edit::ArrayOfTables::new());
        document["title"] = toml_edit::value(format!("{algorithm} on {}, as tuned", loaded.name));
        table.decor_mut().set_prefix("\n");
        only.push(table);
        document["algorithm"] = Item::ArrayOfTables(only);
        let learning = document["problem"]
            .get("kind")
            .and_then(Item::as_str)
            .is_some_and(|k| k == "cleaning" || k == "tuning");
        Ok(Base {
            document,
            name: loaded.name.clone(),
            folder: loaded.folder.clone(),
            algorithm,
            learning,
            lists,
        })
    }

    /// The text with these parameters of the algorithm.
    fn text(&self, parameters: &[(String, String)]) -> String {
        let mut document = self.document.clone();
        if let Some(table) = document["algorithm"].as_array_of_tables_mut().and_then(|a| a.get_mut(0)) {
            for (key, value) in parameters {
                let value: Value = value.parse().unwrap_or_else(|_| value.as_str().into());
                table[key.as_str()] = toml_edit::value(value);
            }
        }
        document.to_string()
    }

    fn candidate(&self, parameters: &[(String, String)]) -> Result<Candidate> {
        let source = Source { name: format!("{}.toml", self.name), text: self.text(parameters) };
        let mut read = experiment::parse(source, &self.name, &self.folder)?;
        let setting = read.settings.swap_remove(0);
        Ok(Candidate { parameters: parameters.to_vec(), setting, refused: None })
    }

    /// The value that a key has in the file or among the parameters that are settled.
    fn value(&self, key: &str, fixed: &[(String, String)]) -> Option<f64> {
        if let Some((_, text)) = fixed.iter().find(|(k, _)| k == key) {
            return text.parse().ok();
        }
        let item = self.document["algorithm"].as_array_of_tables()?.get(0)?.get(key)?;
        let start = item.as_inline_table().and_then(|t| t.get("start")).and_then(number);
        start.or_else(|| item.as_value().and_then(number))
    }

    fn list(&self, key: &str) -> Option<Vec<f64>> {
        self.lists.iter().find(|(k, v)| k == key && v.len() > 1).map(|(_, v)| v.clone())
    }

    /// The axes of a tier; `None` when all tiers are done.
    fn axes(&self, tier: usize, fixed: &[(String, String)], full: bool) -> Option<Vec<Axis>> {
        let around = |key: &'static str, factors: &[f64], otherwise: f64| {
            let centre = self.value(key, fixed).filter(|v| *v > 0.0).unwrap_or(otherwise);
            Axis { key, values: factors.iter().map(|f| rounded(centre * f)).collect() }
        };
        let or_list = |axis: Axis| Axis { values: self.list(axis.key).unwrap_or(axis.values), key: axis.key };
        let fine = [1.0 / 1.7, 1.0, 1.7];
        match (self.algorithm.as_str(), tier) {
            // Coarse λ with the file's steps and a tenth of them, should those be too large.
            (name, 0) if name.ends_with("fab") => Some(vec![
                Axis { key: "lambda", values: self.list("lambda").unwrap_or(LAMBDAS.into()) },
                around("eta_y", &[0.1, 1.0], 0.1),
            ]),
            (name, 1) if name.ends_with("fab") => {
                let x = around("eta_x", &[0.1, 0.3, 1.0, 3.0, 10.0, 30.0], 0.1);
                Some(vec![or_list(x), or_list(around("eta_y", &[0.1, 0.3, 1.0, 3.0, 10.0], 0.1))])
            }
            (name, 2) if name.ends_with("fab") && !full => {
                Some(vec![around("eta_x", &fine, 0.1), around("eta_y", &fine, 0.1)])
            }
            ("push-pull-soba", 0) => {
                let steps = [0.03, 0.1, 0.3, 1.0, 3.0, 10.0];
                Some(vec![or_list(around("eta_x", &steps, 0.01)), or_list(around("eta_y", &steps, 0.01))])
            }
            ("push-pull-soba", 1) if !full => {
                Some(vec![around("eta_x", &fine, 0.01), around("eta_y", &fine, 0.01)])
            }
            (name, 0) if !name.ends_with("fab") => {
                let mut axes = vec![or_list(Axis { key: "eta", values: STEPS.into() })];
                if self.learning && !name.starts_with("dl-") {
                    axes.push(or_list(Axis { key: "tau", values: TAUS.into() }));
                }
                Some(axes)
            }
            _ => None,
        }
    }

    /// All combinations of the axes over what is settled.
    fn grid(&self, axes: &[Axis], fixed: &[(String, String)]) -> Result<Vec<Candidate>> {
        let mut all = vec![fixed.to_vec()];
        for axis in axes {
            let with = |p: &Vec<(String, String)>, value: f64| {
                let mut p: Vec<(String, String)> = p.iter().filter(|(k, _)| k != axis.key).cloned().collect();
                p.push((axis.key.to_string(), format!("{value:?}")));
                p
            };
            all = all.iter().flat_map(|p| axis.values.iter().map(move |v| with(p, *v))).collect();
        }
        let mut known = check::Known::default();
        let mut refuse = |mut c: Candidate| -> Result<Candidate> {
            c.refused = check::warnings(&c.setting, 0, &self.folder, &mut known)?.into_iter().next();
            Ok(c)
        };
        all.iter().map(|p| refuse(self.candidate(p)?)).collect()
    }
}

/// Lists become their first element.
fn one_of_each(table: &mut Table) {
    for (key, item) in table.iter_mut() {
        if let Some(first) =
            item.as_array().filter(|_| !LISTS.contains(&key.get())).and_then(|a| a.get(0)).cloned()
        {
            *item = toml_edit::value(first.decorated(" ", ""));
        }
    }
}

fn numbers(item: &Item) -> Option<Vec<f64>> {
    item.as_array()?.iter().map(number).collect()
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|i| i as f64))
}

/// Two digits, so that settings read well.
fn rounded(value: f64) -> f64 {
    format!("{value:.1e}").parse().unwrap_or(value)
}

/// Table, heat map, CSV and the best setting as a file.
fn report(
    base: &Base,
    tiers: &[Tier],
    race: &Race<'_>,
    out: &Path,
    seeds: &[u64],
    iterations: usize,
    began: Instant,
) -> Result<()> {
    let Some(last) = tiers.last() else { return Ok(()) };
    let sign = if race.upwards { -1.0 } else { 1.0 };
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record([
        "tier",
        "setting",
        "iterations_run",
        "seeds_not_reached",
        "iterations_to_target",
        race.metric,
        "not_run_because",
    ])?;
    let mut lines = Vec::new();
    let mut settings = 0;
    for (t, tier) in tiers.iter().enumerate() {
        for (candidate, score) in tier.candidates.iter().zip(&tier.scores) {
            settings += 1;
            let name = candidate
                .parameters
                .iter()
                .map(|(k, v)| format!("{}={v}", words::symbol(k)))
                .collect::<Vec<_>>()
                .join(" ");
            let (ran, open, reached, metric) = match score {
                Some((ran, s)) => (
                    ran.to_string(),
                    s.open.to_string(),
                    words::number(s.iterations),
                    words::number(sign * s.metric),
                ),
                None => Default::default(),
            };
            let why = candidate.refused.clone().unwrap_or_default();
            csv.write_record([(t + 1).to_string(), name.clone(), ran, open, reached, metric, why])?;
            if let Some((ran, s)) = score.filter(|s| s.1.metric.is_finite()) {
                lines.push((t + 1, ran, s, name));
            }
        }
    }
    write_file(&out.join("tune.csv"), &csv.into_inner().map_err(|e| e.into_error())?)?;
    lines.sort_by(|a, b| b.1.cmp(&a.1).then(a.2.order(&b.2)));
    println!("\n{:<5} {:>10} {:>12} {:>14}  setting", "tier", "at most", "to target", race.metric);
    for (tier, ran, s, name) in lines.iter().take(12) {
        println!(
            "{tier:<5} {ran:>10} {:>12} {:>14}  {name}",
            words::number(s.iterations),
            words::number(sign * s.metric)
        );
    }
    // The best over all tiers: the last one began from the one before, but its grid need not hold it.
    let far = tiers.iter().filter_map(|t| Some((t, t.best()?)));
    let best = far.min_by(|(a, i), (b, j)| match (&a.scores[*i], &b.scores[*j]) {
        (Some(a), Some(b)) => a.1.order(&b.1),
        _ => std::cmp::Ordering::Equal,
    });
    let Some((tier, at)) = best else { return Ok(()) };
    let found = &tier.candidates[at].parameters;
    let text = base.text(found);
    let file = out.join("best.toml");
    let seeds = seeds.len();
    write_file(&file, text.replacen("seeds = 1", &format!("seeds = {seeds}"), 1).as_bytes())?;
    let map = tiers.iter().rev().find(|t| t.axes.len() == 2 && t.candidates.len() > 9).unwrap_or(last);
    heat_map(map, race, base).and_then(|p| p.save(out, "tune"))?;
    let whole = settings * iterations * seeds;
    println!(
        "\nbest: {}\n{} iterations run, {:.1} % of the {settings} settings × {seeds} seeds × {iterations}; \
        {:.1} s\n{} (dibo run it), tune.csv, plots/tune.svg in {}",
        found.iter().map(|(k, v)| format!("{k} = {v}")).collect::<Vec<_>>().join(", "),
        race.spent.load(Relaxed),
        100.0 * race.spent.load(Relaxed) as f64 / whole as f64,
        began.elapsed().as_secs_f64(),
        file.display(),
        out.display()
    );
    Ok(())
}

/// The last large tier as a map: one cell a setting, darker the further it came and the better it is.
fn heat_map(tier: &Tier, race: &Race<'_>, base: &Base) -> Result<plot::Picture> {
    let sign = if race.upwards { -1.0 } else { 1.0 };
    let mut order: Vec<usize> =
        (0..tier.scores.len()).filter(|i| tier.scores[*i].is_some_and(|s| s.1.metric.is_finite())).collect();
    order.sort_by(|a, b| match (&tier.scores[*a], &tier.scores[*b]) {
        (Some(a), Some(b)) => b.0.cmp(&a.0).then(a.1.order(&b.1)),
        _ => std::cmp::Ordering::Equal,
    });
    let cell = |i: usize| {
        let shade =
            order.iter().position(|o| *o == i).map(|rank| 1.0 - rank as f64 / order.len().max(2) as f64);
        let label = match (&tier.candidates[i].refused, &tier.scores[i]) {
            (Some(_), _) => "known to diverge".into(),
            (_, Some((_, s))) if s.iterations.is_finite() => format!("{} it.", words::number(s.iterations)),
            (_, Some((_, s))) if s.metric.is_finite() => words::number(sign * s.metric),
            _ => "diverged".into(),
        };
        (label, shade)
    };
    let one = Axis { key: "", values: vec![0.0] };
    let (rows, columns) = (&tier.axes[0], tier.axes.get(1).unwrap_or(&one));
    let name = |a: &Axis| words::symbol(a.key);
    let values = |a: &Axis| {
        a.values
            .iter()
            .map(|v| if a.key.is_empty() { String::new() } else { words::number(*v) })
            .collect::<Vec<_>>()
    };
    let cells: Vec<Vec<(String, Option<f64>)>> = (0..rows.values.len())
        .map(|r| (0..columns.values.len()).map(|c| cell(r * columns.values.len() + c)).collect())
        .collect();
    let title =
        format!("{}, {}: {} (darker is better)", base.name, base.algorithm, words::column(race.metric));
    plot::heat_map(&title, (&name(rows), &values(rows)), (&name(columns), &values(columns)), &cells)
}
