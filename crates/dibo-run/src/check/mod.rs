//! What can be said before a run: is the network as the theory asks, what are the constants, which steps are
//! proved to work and which are known not to, what it needs, and what a short trial shows.
mod limits;
mod needs;
mod proofs;
mod trial;

pub use limits::{Cache, Findings};
pub use needs::{Needed, needed};
pub use trial::{Trial, Tried};

use crate::door::{Place, Ready, Visit, open};
use crate::experiment::Experiment;
use crate::setting::Setting;
use anyhow::{Result, anyhow};
use dibo::algorithm::Mixes;
use dibo::problem::{Constants, estimate};
use dibo::rows::{Real, Threads};
use dibo::theory::graph::constants;
use dibo::theory::steps::Net;
use dibo_report::report::words::{number, quantity};
use dibo_report::results::Figure;
use limits::Steps;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Refuses what cannot run, notes warnings in the settings, and gives plots to a file that asks for none.
pub fn before(experiment: &mut Experiment) -> Result<()> {
    before_at(experiment, false)
}

/// The same in a process that has only its own agents' files: problems that are made of them are not opened.
pub fn before_at(experiment: &mut Experiment, apart: bool) -> Result<()> {
    let (folder, threads) = (experiment.folder.clone(), Threads::one());
    let place = Place::new(&folder, &threads);
    // Algorithms share problems and graphs; each pair is looked at once.
    let (mut seen, mut graphs) = (BTreeMap::<String, Vec<String>>::new(), BTreeSet::new());
    let (mut known, mut cache) = (Vec::new(), Cache::default());
    for s in 0..experiment.settings.len() {
        let setting = &experiment.settings[s];
        let of_problem = |key: &str| !key.starts_with("algorithm.") || key == "algorithm.name";
        let shared: Vec<_> = setting.series.settings.iter().filter(|(k, _)| of_problem(k)).collect();
        let shared = format!("{shared:?}");
        let first = !seen.contains_key(&shared);
        for seed in &experiment.seeds {
            if graphs.insert((setting.place_key(), setting.run.iterations, *seed)) {
                setting.check_graph(*seed, &folder)?;
            }
        }
        let elsewhere = apart && setting.problem.is_own();
        let mut warnings = if !elsewhere && (first || setting.problem.closed_forms()) {
            let opened = open(setting, experiment.seeds[0], place)?;
            if first {
                known.push(opened.measures());
                seen.insert(shared.clone(), opened.built.warnings.clone());
            }
            let steps = Steps { seed: experiment.seeds[0], cache: &mut cache, thorough: false };
            let mut all = of_setting(setting, experiment.seeds[0], &folder)?;
            all.extend(opened.visit(steps)?.warnings);
            all
        } else {
            of_setting(setting, experiment.seeds[0], &folder)?
        };
        warnings.extend(seen.get(&shared).into_iter().flatten().cloned());
        experiment.settings[s].series.warnings = warnings;
    }
    match apart && known.is_empty() {
        true => Ok(()),
        false => figures(experiment, &known),
    }
}

/// Checks the plots that a file asks for; one that asks for none gets the metric that its problem names
/// first.
fn figures(experiment: &mut Experiment, known: &[Vec<dibo::problem::Metric>]) -> Result<()> {
    let mut names: Vec<&str> = known.iter().flatten().chain(&dibo::metrics::ALWAYS).map(|m| m.name).collect();
    names.sort_unstable();
    names.dedup();
    if experiment.figures.is_empty() {
        let first = known.first().and_then(|m| m.first());
        let first = first.map_or("consensus_x", |m| m.name);
        experiment.figures.push(Figure::line(first, "y"));
        return Ok(());
    }
    // A problem that does not describe its metrics may report any.
    if known.iter().any(Vec::is_empty) {
        return Ok(());
    }
    let has = |key: &str| experiment.settings.iter().any(|s| s.series.settings.contains_key(key));
    for figure in &experiment.figures {
        let place = &experiment.settings[0].place;
        figure.check(&names, &has).map_err(|e| anyhow!("{place}: figure '{}': {e}", figure.name))?;
    }
    Ok(())
}

/// What the setting alone tells: what its network does to its method, and what its length leaves out.
fn of_setting(setting: &Setting, seed: u64, folder: &Path) -> Result<Vec<String>> {
    let parameters = setting.parameters();
    let mut all: Vec<String> = setting.problem.too_short(setting.run.iterations).into_iter().collect();
    if parameters.wishes().frozen_weights {
        let graphs = setting.graphs(seed, folder)?;
        if constants(&graphs, setting.run.iterations.min(60)).lossy {
            all.push(
                "will not converge: it keeps the weights of iteration 0 while links come and go, so part of \
                every \
                sum is lost"
                    .into(),
            );
        }
    }
    let (rounds, graphs) = (parameters.rounds(), setting.graphs(seed, folder)?);
    if let Some(period) = graphs.period().filter(|p| *p > 1 && rounds % p == 0) {
        all.push(format!(
            "may end elsewhere: its {rounds} rounds an iteration are a multiple of the graphs' period \
            {period}, so each variable meets the same graph for ever"
        ));
    }
    let loses = setting.loss(seed)?.is_some() && parameters.mixes() != Mixes::Centrally;
    if loses && !parameters.wishes().running_sums {
        all.push(
            "will not converge: links lose messages, and with them what is pushed; running-sum-fab sends it \
            again"
                .into(),
        );
    }
    Ok(all)
}

/// The warnings of one setting with one seed.
pub fn warnings(setting: &Setting, seed: u64, folder: &Path, cache: &mut Cache) -> Result<Vec<String>> {
    let mut all = of_setting(setting, seed, folder)?;
    if setting.problem.closed_forms() {
        let threads = Threads::one();
        let opened = open(setting, seed, Place::new(folder, &threads))?;
        all.extend(opened.visit(Steps { seed, cache, thorough: false })?.warnings);
    }
    Ok(all)
}

/// A network with a problem: what all settings on them share.
pub(crate) struct Known {
    text: String,
    net: Option<Net>,
    constants: Option<Constants>,
}

/// The constants of a problem: closed forms, else estimates.
struct ProblemConstants;

impl Visit for ProblemConstants {
    type Out = Constants;

    fn visit<T: Real>(self, ready: Ready<'_, T>) -> Result<Constants> {
        match ready.problem.constants() {
            Some(exact) => Ok(exact),
            None => Ok(estimate(ready.problem)?),
        }
    }
}

impl Known {
    fn new(setting: &Setting, seed: u64, place: Place<'_>) -> Result<Self> {
        let graphs = setting.graphs(seed, place.folder)?;
        let facts = constants(&graphs, setting.run.iterations.min(90));
        let mut text = proofs::network(&facts);
        let net = facts.mixing.as_ref().map(|m| Net::new(graphs.agents(), m));
        let constants = match open(setting, seed, place).and_then(|o| o.visit(ProblemConstants)) {
            Ok(constants) => Some(constants),
            Err(e) => {
                writeln!(text, "Problem: its constants are not estimated ({e:#}).")?;
                None
            }
        };
        if let Some(c) = &constants {
            text += &proofs::about_problem(c);
        }
        Ok(Known { text, net, constants })
    }
}

/// How the settings of an experiment fared.
#[derive(Default)]
struct Count {
    warned: usize,
    cannot: usize,
    tried: usize,
    whole: usize,
    seconds: f64,
    /// What trials have taken: constants of a large model may take longer, and are no trial.
    trials: Duration,
}

/// A page of text about an experiment; false if some of it cannot run.
pub fn explain(experiment: &Experiment, threads: usize, trials: Duration) -> Result<(String, bool)> {
    let mut text = format!("{}: {}\n", experiment.name, experiment.title);
    let (seed, folder, one) = (experiment.seeds[0], experiment.folder.as_path(), Threads::one());
    let place = Place::new(folder, &one);
    let mut said: BTreeMap<String, Known> = BTreeMap::new();
    let (mut cache, mut heading, mut count) = (Cache::default(), String::new(), Count::default());
    for (s, setting) in experiment.settings.iter().enumerate() {
        let key = setting.place_key();
        if !said.contains_key(&key) {
            setting.check_graph(seed, folder)?;
            said.insert(key.clone(), Known::new(setting, seed, place)?);
        }
        let known = &said[&key];
        if heading != key {
            write!(text, "\n{}", known.text)?;
            heading = key;
        }
        writeln!(text, "- {}", setting.series.label)?;
        // All settings share the time for trials.
        let left = trials.saturating_sub(count.trials) / (experiment.settings.len() - s) as u32;
        for line in one_setting(setting, seed, place, known, &mut cache, left, &mut count) {
            writeln!(text, "    {line}")?;
        }
    }
    text += &closing(experiment, threads, &count)?;
    Ok((text, count.cannot == 0))
}

/// The lines about one setting.
fn one_setting(
    setting: &Setting,
    seed: u64,
    place: Place<'_>,
    known: &Known,
    cache: &mut Cache,
    time: Duration,
    count: &mut Count,
) -> Vec<String> {
    let mut lines = proofs::proofs(setting, known);
    let data = setting.problem.data();
    let opened = match data.and_then(|_| open(setting, seed, place)) {
        Ok(opened) => opened,
        Err(e) => {
            count.cannot += 1;
            lines.push(format!("cannot run: {e:#}"));
            return lines;
        }
    };
    let mut warnings = of_setting(setting, seed, place.folder).unwrap_or_default();
    let findings = opened.visit(Steps { seed, cache, thorough: true });
    let mut caution = setting.problem.caution(&*setting.algorithm);
    match findings {
        Ok(found) => {
            warnings.extend(found.warnings);
            caution = caution.or(found.caution);
        }
        Err(e) => warnings.push(format!("{e:#}")),
    }
    let began = Instant::now();
    let tried = opened.visit(Trial { time, look: true });
    count.trials += began.elapsed();
    match tried {
        Ok(tried) => {
            if tried.iterations == 0 {
                lines.push("not tried: no time was left for it".into());
                return lines_with(lines, warnings, caution, count);
            }
            count.tried += 1;
            count.whole += usize::from(tried.iterations >= setting.run.iterations);
            count.seconds += tried.seconds * setting.run.iterations as f64;
            let (k, ms) = (tried.iterations, 1e3 * tried.seconds);
            let went = tried.metric.map_or(String::new(), |(name, from, to)| {
                format!("; {} went from {} to {}", name.replace('_', " "), number(from), number(to))
            });
            let many = if k == 1 { "1 iteration".into() } else { format!("{k} iterations") };
            lines.push(format!("tried for {many}, {} ms each{went}", number(ms)));
            if tried.diverged {
                warnings
                    .push(format!("diverges: it did within {k} iterations of seed {seed} when it was tried"));
            }
        }
        Err(e) => warnings.push(format!("fails when tried: {e:#}")),
    }
    lines_with(lines, warnings, caution, count)
}

/// The lines with what goes wrong or may.
fn lines_with(
    mut lines: Vec<String>,
    warnings: Vec<String>,
    caution: Option<String>,
    count: &mut Count,
) -> Vec<String> {
    count.warned += usize::from(!warnings.is_empty());
    if warnings.is_empty() {
        lines.extend(caution.map(|c| format!("in practice: {c}")));
    }
    lines.extend(warnings.into_iter().map(|w| format!("warning: {w}")));
    lines
}

/// What it needs, and how much can be said of it.
fn closing(experiment: &Experiment, threads: usize, count: &Count) -> Result<String> {
    let (settings, seeds) = (experiment.settings.len(), experiment.seeds.len());
    let mut text = String::from("\n");
    match needed(experiment, threads, false, Path::new(".")) {
        Ok(needed) => {
            let (memory, disk) = (quantity("bytes", needed.memory), quantity("bytes", needed.disk));
            writeln!(text, "Needs: about {memory} of memory and {disk} on disk.")?;
        }
        Err(e) => writeln!(text, "Needs: {e:#}")?,
    }
    if count.tried > 0 {
        let all = count.seconds * seeds as f64 * settings as f64 / count.tried as f64 / threads as f64;
        let time = quantity("seconds", all);
        writeln!(
            text,
            "Time: about {time} of iterations for {settings} × {seeds} runs on {threads} threads."
        )?;
    }
    if count.cannot > 0 {
        writeln!(text, "{} of {settings} settings cannot run.", count.cannot)?;
    }
    match count.warned {
        0 => writeln!(text, "No warning, which is no promise: {}.", tried(count))?,
        warned => writeln!(text, "{warned} of {settings} settings carry a warning; {}.", tried(count))?,
    }
    Ok(text)
}

fn tried(count: &Count) -> String {
    match count.tried {
        0 => "nothing was tried".into(),
        1 if count.whole == 1 => "one setting was tried with one seed, to its end".into(),
        1 => "one setting was tried with one seed, not to its end".into(),
        all => format!("{all} settings were tried with one seed, {} of them to their ends", count.whole),
    }
}

/// What is about to run, in a line: runs, iterations, memory, disk and, after a very short trial, time.
pub fn announce(experiment: &Experiment, needed: Needed, threads: usize, device: bool) -> Result<String> {
    let runs = experiment.settings.len() * experiment.seeds.len();
    let iterations: usize = experiment.settings.iter().map(|s| s.run.iterations).sum();
    let (memory, disk) = (quantity("bytes", needed.memory), quantity("bytes", needed.disk));
    let mut text = format!(
        "{runs} runs, {} iterations at most; about {memory} of memory, {disk} on disk",
        iterations * experiment.seeds.len()
    );
    if device {
        return Ok(text);
    }
    // A few settings tell enough, and no more time than a reader notices.
    let (one, every) = (Threads::one(), experiment.settings.len().div_ceil(8));
    let place = Place::new(&experiment.folder, &one);
    let (mut seconds, mut count) = (0.0, 0.0);
    for setting in experiment.settings.iter().step_by(every) {
        let tried = open(setting, experiment.seeds[0], place)?
            .visit(Trial { time: Duration::from_millis(30), look: false })?;
        seconds += tried.seconds * setting.run.iterations as f64;
        count += 1.0;
    }
    let all = seconds / count * runs as f64 / threads.min(runs) as f64;
    write!(text, ", {} of iterations", quantity("seconds", all))?;
    Ok(text)
}
