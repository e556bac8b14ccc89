//! `dibo tune FILE`: finds steps (and for FAB the penalty) by the paper's two-tier strategy, made efficient:
//! coarse λ first, then ηx and ηy = ηz, each tier by successive halving over iterations and seeds. What the
//! theory knows to diverge is not run at all.
mod race;

use crate::check;
use crate::door::{Place, open};
use crate::experiment::{Experiment, Request};
use crate::progress::Progress;
use crate::registry::Registry;
use crate::stop;
use anyhow::{Context, Result, bail, ensure};
use dibo::algorithm::{Axis, Grid, Tier};
use dibo::problem::Better;
use dibo::rows::Threads;
use dibo_report::report::{plot, words};
use dibo_report::results::{Folder, write_file};
use race::{Candidate, Race, Score};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use toml_edit::{DocumentMut, Item, Table, Value};

/// What a user can choose.
pub struct Options {
    /// The experiment.
    pub request: Request,
    /// Which algorithm of the file to tune; the first, if none is named.
    pub algorithm: Option<String>,
    /// In which named case of the file; the first that the algorithm names, if none is said.
    pub case: Option<String>,
    /// What is to become better; the file's metric, else the problem's first.
    pub metric: Option<String>,
    /// Seeds for the settings that come to the end.
    pub seeds: u64,
    /// Folder for the results.
    pub out: Option<PathBuf>,
    /// Threads to use.
    pub threads: usize,
    /// Show no progress bar.
    pub quiet: bool,
    /// Forget what an earlier call found.
    pub fresh: bool,
    /// Run every setting to the end instead of halving: the plain grid, to compare with.
    pub full: bool,
}

/// A parameter and the values to try.
struct Values {
    key: &'static str,
    values: Vec<f64>,
}

/// Values of parameters by key.
type Parameters = Vec<(String, f64)>;

/// One tier's result: its axes, and candidates with their scores.
struct Ran {
    axes: Vec<Values>,
    candidates: Vec<Candidate>,
    scores: Vec<Option<(usize, Score)>>,
}

impl Ran {
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

/// Tunes and writes what was found; false if it was stopped on the way.
pub fn tune(registry: &Registry, options: &Options) -> Result<bool> {
    let began = Instant::now();
    let Options { seeds, .. } = options;
    ensure!((1..=1000).contains(seeds), "--seeds is {seeds}; it must be between 1 and 1000");
    let loaded = registry.load(&options.request)?;
    let base = Base::new(registry, &loaded, options)?;
    let first = base.candidate(&[])?;
    let seeds: Vec<u64> = (0..*seeds).collect();
    // Whatever would be refused when it is run is refused now, and the metric is known.
    let one = Threads::one();
    let place = Place::new(&base.folder, &one);
    let opened = open(&first.setting, 0, place)?;
    first.setting.check_graph(0, &base.folder)?;
    let (metric, better) = opened.watched(options.metric.as_deref())?;
    let target = match opened.setting.run.plan(Some(&metric)).target {
        Some((m, v)) => format!(" until {} is better than {v}", m.replace('_', " ")),
        None => String::new(),
    };
    let tiers = base.tiers(&first, options.full);
    ensure!(!tiers.is_empty(), "{} says of no parameter that it can be tuned", first.setting.series.label);
    let (iterations, label) = (first.setting.run.iterations, first.setting.series.label.clone());
    let default = || Path::new("results").join(format!("{}-tune", loaded.name));
    let out = options.out.clone().unwrap_or_else(default);
    let identity = base.identity(&metric);
    let folder = Folder::open(&out, &format!("{}-tune", loaded.name), &identity, options.fresh)?;
    let tracks = out.join("tracks");
    std::fs::create_dir_all(&tracks)
        .with_context(|| format!("cannot make the folder {}", tracks.display()))?;
    stop::watch()?;
    let progress = Progress::new(0, options.quiet);
    let race = Race {
        folder: tracks,
        files: &base.folder,
        metric: &metric,
        upwards: better == Better::Higher,
        threads: options.threads,
        progress: &progress,
        spent: AtomicUsize::new(0),
    };
    let (name, what) = (&loaded.name, metric.replace('_', " "));
    crate::say!("{name}: tuning {label} on {what}{target}, {iterations} iterations at most");
    let (mut ran, mut fixed): (Vec<Ran>, Parameters) = (Vec::new(), Vec::new());
    for (number, tier) in tiers.iter().enumerate() {
        let axes = base.values(tier, &fixed);
        let candidates = base.grid(&axes, &fixed)?;
        let alive = candidates.iter().filter(|c| c.refused.is_none()).count();
        progress.add_length((alive * iterations) as u64);
        progress.set_message(format!("tier {}: {alive} settings", number + 1));
        let Some(scores) = race.run(&candidates, &seeds, iterations, options.full)? else {
            progress.finish();
            return Ok(false);
        };
        let tier = Ran { axes, candidates, scores };
        let Some(best) = tier.best() else {
            progress.finish();
            bail!("every setting of tier {} diverged; give smaller steps as lists in the file", number + 1);
        };
        fixed.clone_from(&tier.candidates[best].parameters);
        ran.push(tier);
    }
    progress.finish();
    report(&base, &ran, &race, &out, &seeds, iterations, began)?;
    folder.finish()?;
    Ok(true)
}

/// The experiment with one algorithm and no sweeps.
struct Base<'a> {
    registry: &'a Registry,
    document: DocumentMut,
    name: String,
    folder: PathBuf,
    algorithm: String,
    /// Lists that the file gives for the algorithm: they are its grid.
    lists: Vec<(String, Vec<f64>)>,
}

impl<'a> Base<'a> {
    fn new(registry: &'a Registry, loaded: &Experiment, options: &Options) -> Result<Self> {
        let lists_are_values = registry.lists(&loaded.text);
        let mut document: DocumentMut = loaded.text.parse().context("the file cannot be edited")?;
        let mut table = chosen(&document, options)?;
        take_case(&mut document, &mut table, options.case.as_deref())?;
        // What the file says of its own sweep does not fit one tuned setting.
        for key in ["case", "figure", "claims", "about", "title"] {
            document.remove(key);
        }
        document["seeds"] = toml_edit::value(1);
        for section in ["problem", "graph", "run"] {
            if let Some(table) = document.get_mut(section).and_then(Item::as_table_mut) {
                one_of_each(table, &lists_are_values);
            }
        }
        let lists = table.iter().filter_map(|(key, item)| Some((key.to_string(), numbers(item)?))).collect();
        one_of_each(&mut table, &lists_are_values);
        // eta_z follows eta_y: the two must be equal for x to be stable.
        table.remove("eta_z");
        let (algorithm, mut only) = (name(&table), toml_edit::ArrayOfTables::new());
        document["title"] = toml_edit::value(format!("{algorithm} on {}, as tuned", loaded.name));
        table.decor_mut().set_prefix("\n");
        only.push(table);
        document["algorithm"] = Item::ArrayOfTables(only);
        let (name, folder) = (loaded.name.clone(), loaded.folder.clone());
        Ok(Base { registry, document, name, folder, algorithm, lists })
    }

    /// The text with these parameters of the algorithm.
    fn text(&self, parameters: &[(String, f64)]) -> String {
        let mut document = self.document.clone();
        if let Some(table) = document["algorithm"].as_array_of_tables_mut().and_then(|a| a.get_mut(0)) {
            for (key, value) in parameters {
                table[key.as_str()] = toml_edit::value(*value);
            }
        }
        document.to_string()
    }

    fn candidate(&self, parameters: &[(String, f64)]) -> Result<Candidate> {
        let source = self.registry.source(format!("{}.toml", self.name), &self.text(parameters));
        let mut read = self.registry.parse(source, &self.name, &self.folder, false)?;
        let setting = read.settings.swap_remove(0);
        Ok(Candidate { parameters: parameters.to_vec(), setting, refused: None })
    }

    /// What a folder of this tuning belongs to.
    fn identity(&self, metric: &str) -> [u8; 32] {
        *blake3::hash(format!("{}\n{metric}\n{:?}", self.document, self.lists).as_bytes()).as_bytes()
    }

    /// The value that a key has in the file or among the parameters that are settled.
    fn value(&self, key: &str, fixed: &[(String, f64)]) -> Option<f64> {
        if let Some((_, value)) = fixed.iter().find(|(k, _)| k == key) {
            return Some(*value);
        }
        let item = self.document["algorithm"].as_array_of_tables()?.get(0)?.get(key)?;
        let start = item.as_inline_table().and_then(|t| t.get("start")).and_then(number);
        start.or_else(|| item.as_value().and_then(number))
    }

    /// The tiers of the algorithm, with the axes that the problem adds to those that are not fine.
    fn tiers(&self, first: &Candidate, full: bool) -> Vec<Tier> {
        let parameters = first.setting.parameters();
        let mut tiers = parameters.tiers();
        if let Some(first_tier) = tiers.first_mut().filter(|t| t.axes.len() < 2) {
            first_tier.axes.extend(first.setting.problem.axes(parameters.needs()));
        }
        tiers.retain(|t| !(t.fine && full));
        tiers
    }

    /// The values to try of each axis of a tier.
    fn values(&self, tier: &Tier, fixed: &[(String, f64)]) -> Vec<Values> {
        let of = |axis: &Axis| {
            let list = self.lists.iter().find(|(k, v)| axis.listed && k == axis.key && v.len() > 1);
            let values = match (&axis.grid, list) {
                (_, Some((_, list))) => list.clone(),
                (Grid::Values(values), None) => values.clone(),
                (Grid::Around { factors, otherwise }, None) => {
                    let centre = self.value(axis.key, fixed).filter(|v| *v > 0.0).unwrap_or(*otherwise);
                    factors.iter().map(|f| rounded(centre * f)).collect()
                }
            };
            Values { key: axis.key, values }
        };
        tier.axes.iter().map(of).collect()
    }

    /// All combinations of the axes over what is settled.
    fn grid(&self, axes: &[Values], fixed: &[(String, f64)]) -> Result<Vec<Candidate>> {
        let mut all = vec![fixed.to_vec()];
        for axis in axes {
            let with = |p: &Parameters, value: f64| {
                let mut p: Parameters = p.iter().filter(|(k, _)| k != axis.key).cloned().collect();
                p.push((axis.key.to_string(), value));
                p
            };
            all = all.iter().flat_map(|p| axis.values.iter().map(move |v| with(p, *v))).collect();
        }
        let mut cache = check::Cache::default();
        let mut refuse = |mut c: Candidate| -> Result<Candidate> {
            let warnings = check::warnings(&c.setting, 0, &self.folder, &mut cache)?;
            // What the network does to the method as such is no reason to leave a step out.
            c.refused = warnings.into_iter().find(|w| w.starts_with("will diverge"));
            Ok(c)
        };
        all.iter().map(|p| refuse(self.candidate(p)?)).collect()
    }
}

fn name(table: &Table) -> String {
    table.get("name").and_then(Item::as_str).unwrap_or_default().to_string()
}

/// The cases that an algorithm names.
fn cases(table: &Table) -> Vec<&str> {
    let item = table.get("case");
    let list = item.and_then(Item::as_array).map(|a| a.iter().filter_map(Value::as_str).collect());
    list.or_else(|| Some(vec![item?.as_str()?])).unwrap_or_default()
}

/// The algorithm that is asked for, in the case that is.
fn chosen(document: &DocumentMut, options: &Options) -> Result<Table> {
    let all = document.get("algorithm").and_then(Item::as_array_of_tables).cloned().unwrap_or_default();
    let wanted = options.algorithm.as_deref();
    let named: Vec<&Table> = all.iter().filter(|t| wanted.is_none_or(|w| name(t) == w)).collect();
    if named.is_empty() {
        let known = all.iter().map(name).collect::<Vec<_>>().join(", ");
        bail!("--algorithm {}: the file has {known}", wanted.unwrap_or_default());
    }
    let runs_there = |t: &&&Table| match options.case.as_deref() {
        Some(case) => cases(t).is_empty() || cases(t).contains(&case),
        None => true,
    };
    let found = named.iter().find(runs_there).map(|t| (*t).clone());
    found.with_context(|| {
        let own = named.iter().flat_map(|t| cases(t)).collect::<Vec<_>>().join(", ");
        format!("--case {}: it runs in {own}", options.case.as_deref().unwrap_or_default())
    })
}

/// What the named case says becomes what the file says.
fn take_case(document: &mut DocumentMut, table: &mut Table, wanted: Option<&str>) -> Result<()> {
    let Some(case) = wanted.map(String::from).or(cases(table).first().map(|c| c.to_string())) else {
        return Ok(());
    };
    table.remove("case");
    let all = document.get("case").and_then(Item::as_array_of_tables).cloned().unwrap_or_default();
    let said = all.iter().find(|t| name(t) == case);
    let said = said.with_context(|| format!("--case {case}: the file has no case of this name"))?;
    for section in ["problem", "graph", "run"] {
        let Some(values) = said.get(section).and_then(Item::as_table_like) else { continue };
        let into = document.entry(section).or_insert(toml_edit::table());
        let into = into.as_table_mut().with_context(|| format!("{section} must be a table"))?;
        values.iter().for_each(|(key, item)| drop(into.insert(key, item.clone())));
    }
    let own = said.get("algorithm").and_then(Item::as_table_like);
    own.into_iter().flat_map(|t| t.iter()).for_each(|(key, item)| drop(table.insert(key, item.clone())));
    Ok(())
}

/// Lists become their first element.
fn one_of_each(table: &mut Table, values: &[&str]) {
    for (key, item) in table.iter_mut() {
        if let Some(first) =
            item.as_array().filter(|_| !values.contains(&key.get())).and_then(|a| a.get(0)).cloned()
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
    base: &Base<'_>,
    tiers: &[Ran],
    race: &Race<'_>,
    out: &Path,
    seeds: &[u64],
    iterations: usize,
    began: Instant,
) -> Result<()> {
    let Some(last) = tiers.last() else { return Ok(()) };
    say_table(write_csv(tiers, race, out)?, race);
    let Some((tier, at)) = best_of_all(tiers) else { return Ok(()) };
    let found = &tier.candidates[at].parameters;
    let text = base.text(found);
    let file = out.join("best.toml");
    let seeds = seeds.len();
    write_file(&file, text.replacen("seeds = 1", &format!("seeds = {seeds}"), 1).as_bytes())?;
    let map = tiers.iter().rev().find(|t| t.axes.len() == 2 && t.candidates.len() > 9).unwrap_or(last);
    heat_map(map, race, base).and_then(|p| p.save(out, "tune"))?;
    let settings: usize = tiers.iter().map(|t| t.candidates.len()).sum();
    let whole = settings * iterations * seeds;
    crate::say!(
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

/// A setting that did not diverge: its tier, how many iterations it was given, its score, and its name.
type Line = (usize, usize, Score, String);

/// All settings as `tune.csv`; gives those that did not diverge.
fn write_csv(tiers: &[Ran], race: &Race<'_>, out: &Path) -> Result<Vec<Line>> {
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
    for (t, tier) in tiers.iter().enumerate() {
        for (candidate, score) in tier.candidates.iter().zip(&tier.scores) {
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
                    words::number(sign(race) * s.metric),
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
    Ok(lines)
}

/// The best settings, those that came furthest first.
fn say_table(mut lines: Vec<Line>, race: &Race<'_>) {
    lines.sort_by(|a, b| b.1.cmp(&a.1).then(a.2.order(&b.2)));
    crate::say!("\n{:<5} {:>10} {:>12} {:>14}  setting", "tier", "at most", "to target", race.metric);
    for (tier, ran, s, name) in lines.iter().take(12) {
        crate::say!(
            "{tier:<5} {ran:>10} {:>12} {:>14}  {name}",
            words::number(s.iterations),
            words::number(sign(race) * s.metric)
        );
    }
}

/// The best over all tiers: the last one began from the one before, but its grid need not hold it.
fn best_of_all(tiers: &[Ran]) -> Option<(&Ran, usize)> {
    let far = tiers.iter().filter_map(|t| Some((t, t.best()?)));
    far.min_by(|(a, i), (b, j)| match (&a.scores[*i], &b.scores[*j]) {
        (Some(a), Some(b)) => a.1.order(&b.1),
        _ => std::cmp::Ordering::Equal,
    })
}

/// Scores are turned so that smaller is better: this turns a metric back.
fn sign(race: &Race<'_>) -> f64 {
    if race.upwards { -1.0 } else { 1.0 }
}

/// The last large tier as a map: one cell a setting, darker the further it came and the better it is.
fn heat_map(tier: &Ran, race: &Race<'_>, base: &Base<'_>) -> Result<plot::Picture> {
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
            (_, Some((_, s))) if s.metric.is_finite() => words::number(sign(race) * s.metric),
            _ => "diverged".into(),
        };
        (label, shade)
    };
    let one = Values { key: "", values: vec![0.0] };
    let (rows, columns) = (&tier.axes[0], tier.axes.get(1).unwrap_or(&one));
    let name = |a: &Values| words::symbol(a.key);
    let values = |a: &Values| {
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
