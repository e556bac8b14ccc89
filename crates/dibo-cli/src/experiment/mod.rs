//! Experiments: a TOML file becomes a list of settings (series), each of which is run with every seed.
#[cfg(test)]
mod fuzz;
pub mod learning;
pub mod spec;
#[cfg(test)]
mod tests;
pub mod text;

use crate::report::words::symbol;
use crate::results::{Figure, Series};
use anyhow::{Context, Result, bail};
use dibo::algorithm::{self, Algorithm, NAMES, Needs};
use dibo::graph::{Loss, check_connected};
use dibo::mixing::Sequence;
use dibo::problem::learning::{Task, TauForm, TrainOn};
use dibo::rows::Threads;
use learning::Changes;
use spec::{GraphSpec, Problem, ProblemSpec, RunSpec};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use text::{AlgorithmSection, Section, Source};
use toml::de::{DeTable, DeValue};

/// The experiments that come with dibo, by name.
pub use dibo_paper::EXPERIMENTS as BUILT_IN;

/// An experiment file, read and checked.
pub struct Experiment {
    /// Short name.
    pub name: String,
    /// One line.
    pub title: String,
    /// What a reader should know.
    pub about: String,
    /// Seeds to run.
    pub seeds: Vec<u64>,
    /// Claims to judge.
    pub claims: Vec<String>,
    /// Plots to draw.
    pub figures: Vec<Figure>,
    /// The settings.
    pub settings: Vec<Setting>,
    /// The text as it runs.
    pub text: String,
    /// Where relative paths begin.
    pub folder: PathBuf,
    /// Record the theory's quantities along the runs.
    pub watch: bool,
}

/// One setting: what one series of the results stands for.
pub struct Setting {
    /// For the results.
    pub series: Series,
    /// How to run.
    pub run: RunSpec,
    problem: ProblemSpec,
    graph: GraphSpec,
    /// Parameters of the algorithm, for problems with 64-bit numbers …
    pub algorithm: Box<dyn Algorithm<f64>>,
    /// … and with 32-bit ones.
    pub algorithm32: Box<dyn Algorithm<f32>>,
    changes: Changes,
    place: String,
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Head {
    name: String,
    title: String,
    about: String,
    seeds: toml::Value,
    claims: Vec<String>,
}

impl Default for Head {
    fn default() -> Self {
        Head {
            name: String::new(),
            title: String::new(),
            about: String::new(),
            seeds: toml::Value::Integer(1),
            claims: Vec::new(),
        }
    }
}

/// Reads an experiment by the name of a built-in one or by its path.
pub fn load(file_or_name: &str, overrides: &[String]) -> Result<Experiment> {
    if let Some((name, text)) = BUILT_IN.iter().find(|(name, _)| *name == file_or_name) {
        let source = Source { name: format!("{name}.toml"), text: text.to_string() };
        return parse(source.with(overrides)?, name, Path::new("."));
    }
    let path = Path::new(file_or_name);
    if !path.exists() {
        let names = BUILT_IN.iter().map(|b| b.0).collect::<Vec<_>>().join(", ");
        bail!("there is no experiment '{file_or_name}': give the path of a TOML file or one of {names}");
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {file_or_name}"))?;
    let name = path.file_stem().map_or("experiment".into(), |s| s.to_string_lossy().into_owned());
    let source = Source { name: file_or_name.to_string(), text };
    parse(source.with(overrides)?, &name, path.parent().unwrap_or(Path::new(".")))
}

/// Reads an experiment from its text.
pub fn parse(source: Source, default_name: &str, folder: &Path) -> Result<Experiment> {
    let document = DeTable::parse(&source.text).map_err(|e| source.toml_error(&e))?;
    let (mut head, mut problem, mut graph, mut run) = (DeTable::new(), None, None, None);
    let (mut algorithms, mut figures, mut cases) = (Vec::new(), Vec::new(), Vec::new());
    for (key, value) in document.into_inner() {
        let at = key.span().start;
        let wrong = |what: &str| source.error(at, format!("{} must be {what}", key.get_ref()));
        match (&**key.get_ref(), value.get_ref()) {
            ("problem", DeValue::Table(t)) => problem = Some(Section::new(&source, at, t)?),
            ("graph", DeValue::Table(t)) => graph = Some(Section::new(&source, at, t)?),
            ("run", DeValue::Table(t)) => run = Some(Section::new(&source, at, t)?),
            ("algorithm" | "figure", DeValue::Array(list)) => {
                for item in list.iter() {
                    let Some(table) = item.get_ref().as_table() else {
                        return Err(wrong("written as [[…]] tables"));
                    };
                    let section = Section::new(&source, item.span().start, table)?;
                    if key.get_ref() == "algorithm" {
                        algorithms.push(section)
                    } else {
                        figures.push(section)
                    }
                }
            }
            ("case", DeValue::Array(list)) => {
                for item in list.iter() {
                    let Some(table) = item.get_ref().as_table() else {
                        return Err(wrong("written as [[…]] tables"));
                    };
                    cases.push(case(&source, item.span().start, table)?);
                }
            }
            ("algorithm" | "figure" | "case", _) => return Err(wrong("written as [[…]] tables")),
            ("problem" | "graph" | "run", _) => return Err(wrong("a table")),
            _ => drop(head.insert(key, value)),
        }
    }
    let head = Section::new(&source, 0, &head)?;
    let Head { name, title, about, seeds, claims } = head.read(&[])?;
    let seeds: Vec<u64> = match &seeds {
        toml::Value::Integer(count) if (1..=100_000).contains(count) => (0..*count as u64).collect(),
        toml::Value::Array(list) if !list.is_empty() => {
            list.iter().filter_map(|s| s.as_integer().and_then(|s| u64::try_from(s).ok())).collect()
        }
        other => {
            return Err(head.error(
                "seeds",
                format!("seeds is {other}; it must be how many (1 to 100000) or a list of them"),
            ));
        }
    };
    let empty = DeTable::new();
    let none = || Section::new(&source, 0, &empty);
    let problem = match problem {
        Some(p) => p,
        None => bail!("{}: [problem] is missing", source.name),
    };
    let (graph, run) = (graph.map_or_else(none, Ok)?, run.map_or_else(none, Ok)?);
    if algorithms.is_empty() {
        bail!(
            "{}: no [[algorithm]] is given; known are {}",
            source.name,
            NAMES.iter().map(|n| n.0).collect::<Vec<_>>().join(", ")
        );
    }
    let mut figures = figures.iter().map(|f| f.read::<Figure>(&[])).collect::<Result<Vec<_>>>()?;
    if cases.is_empty() {
        cases.push([none()?, none()?, none()?, none()?]);
    }
    let mut settings = Vec::new();
    for block in &algorithms {
        for [in_problem, in_graph, in_run, in_algorithm] in &cases {
            let block = block.overlaid(in_algorithm);
            for p in problem.overlaid(in_problem).unfold() {
                for g in graph.overlaid(in_graph).unfold() {
                    for r in run.overlaid(in_run).unfold() {
                        for a in block.unfold() {
                            settings.push(setting(&source, &p, &g, &r, &a)?);
                        }
                    }
                }
            }
        }
    }
    label(&mut settings);
    if figures.is_empty() {
        // A file that asks for no plot gets the one that nearly everybody wants.
        let learning =
            settings.iter().all(|s| !s.has_closed_forms() && s.series.settings.contains_key("problem.data"));
        let (y, log) = if learning { ("test_accuracy", "") } else { ("relative_error", "y") };
        figures.push(Figure::line(y, log));
    }
    Ok(Experiment {
        name: if name.is_empty() { default_name.into() } else { name },
        title,
        about,
        seeds,
        claims,
        figures,
        settings,
        text: source.text,
        folder: folder.to_path_buf(),
        watch: false,
    })
}

/// Sections of a file that a case can change.
const SECTIONS: [&str; 4] = ["problem", "graph", "run", "algorithm"];

/// A `[[case]]`: settings that belong together, such as `graph.nu = 0.5` with `problem.omega = 3`. Every
/// algorithm runs in every case.
fn case<'a>(source: &'a Source, at: usize, table: &DeTable<'_>) -> Result<[Section<'a>; 4]> {
    let mut parts = [(); 4].map(|()| Section::new(source, at, &DeTable::new()));
    for (key, value) in table.iter() {
        let place = SECTIONS.iter().position(|name| *name == &**key.get_ref());
        let inline = source.text.get(value.span().start..).is_some_and(|t| t.starts_with('{'));
        match (place, value.get_ref()) {
            (Some(place), DeValue::Table(t)) if !inline => {
                parts[place] = Section::new(source, key.span().start, t)
            }
            _ => {
                let form =
                    "graph.nu = 0.5, one on each line; the sections are problem, graph, run and algorithm";
                return Err(source.error(
                    key.span().start,
                    format!("{}: write the settings of a case as {form}", key.get_ref()),
                ));
            }
        }
    }
    let [p, g, r, a] = parts;
    Ok([p?, g?, r?, a?])
}

fn setting(
    source: &Source,
    p: &Section<'_>,
    g: &Section<'_>,
    r: &Section<'_>,
    a: &Section<'_>,
) -> Result<Setting> {
    let name = a.get("name").ok_or_else(|| a.error("", "this [[algorithm]] has no name"))?;
    let algorithm = algorithm::find::<f64, _>(&name, AlgorithmSection(a))?;
    algorithm.check().map_err(|e| a.value_error(e))?;
    let algorithm32 = algorithm::find::<f32, _>(&name, AlgorithmSection(a))?;
    let changes = changes(a, algorithm.needs() == Needs::SingleLevel)?;
    let sections = [("problem", p), ("graph", g), ("run", r), ("algorithm", a)];
    let mut series = Series {
        label: a
            .get("label")
            .unwrap_or_else(|| NAMES.iter().find(|n| n.0 == name).map_or(name.clone(), |n| n.1.into())),
        algorithm: name,
        settings: Default::default(),
        swept: Vec::new(),
        warnings: Vec::new(),
    };
    for (section, content) in sections {
        series.settings.extend(content.settings().map(|(k, v)| (format!("{section}.{k}"), v)));
        series
            .swept
            .extend(content.swept().map(|k| format!("{section}.{k}")).filter(|k| k != "algorithm.label"));
    }
    // A group gathers algorithms for a panel or a claim; it shows like a swept value.
    series.swept.extend(a.get("group").map(|_| "algorithm.group".to_string()));
    Ok(Setting {
        series,
        run: RunSpec::read(r)?,
        problem: ProblemSpec::read(p)?,
        graph: GraphSpec::read(g)?,
        algorithm,
        algorithm32,
        changes,
        place: source.name.clone(),
    })
}

/// The keys `train_on`, `tau` and `tau_form` of an `[[algorithm]]`: what a single-level method minimises, or
/// where and how another one learns τ.
fn changes(a: &Section<'_>, single_level: bool) -> Result<Changes> {
    let train_on = match a.get("train_on").as_deref() {
        None | Some("both") => TrainOn::Both,
        Some("validation") => TrainOn::Validation,
        Some(other) => {
            return Err(
                a.error("train_on", format!("train_on is '{other}'; it must be \"both\" or \"validation\""))
            );
        }
    };
    let tau = a
        .get("tau")
        .map(|t| t.parse::<f64>().ok().filter(|t| *t >= 0.0 && t.is_finite()).ok_or(t))
        .transpose();
    let tau = tau.map_err(|t| a.error("tau", format!("tau is {t}; it must be a number, 0 or more")))?;
    let tau_form = match a.get("tau_form").as_deref() {
        None => None,
        Some("plain") => Some(TauForm::Plain),
        Some("projected") => Some(TauForm::Projected),
        Some("exp") => Some(TauForm::Exp),
        Some("softplus") => Some(TauForm::Softplus),
        Some(other) => {
            return Err(a.error(
                "tau_form",
                format!("tau_form is '{other}'; known are plain, projected, exp, softplus"),
            ));
        }
    };
    Ok(Changes {
        train_on,
        tau: tau.filter(|_| single_level),
        tau_start: tau.filter(|_| !single_level),
        tau_form,
    })
}

/// Adds what is swept to the labels, and more where two would still be the same.
fn label(settings: &mut [Setting]) {
    let labels: Vec<String> = settings
        .iter()
        .map(|s| {
            let parts = s.series.swept.iter().map(|key| {
                format!("{}={}", symbol(key).replace(' ', "-"), s.series.settings[key].replace(' ', ""))
            });
            std::iter::once(s.series.label.clone()).chain(parts).collect::<Vec<_>>().join(" ")
        })
        .collect();
    for i in 0..settings.len() {
        let twins: Vec<usize> = (0..settings.len()).filter(|j| labels[*j] == labels[i]).collect();
        let mut differing = BTreeSet::new();
        for j in &twins {
            for key in settings[i].series.settings.keys().chain(settings[*j].series.settings.keys()) {
                let differs = settings[i].series.settings.get(key) != settings[*j].series.settings.get(key);
                if differs
                    && key.starts_with("algorithm.")
                    && key != "algorithm.label"
                    && key != "algorithm.group"
                {
                    differing.insert(key.clone());
                }
            }
        }
        let extra: Vec<String> = differing
            .iter()
            .filter_map(|k| {
                settings[i]
                    .series
                    .settings
                    .get(k)
                    .map(|v| format!("{}={}", symbol(k).replace(' ', "-"), v.replace(' ', "")))
            })
            .collect();
        settings[i].series.label =
            std::iter::once(labels[i].clone()).chain(extra).collect::<Vec<_>>().join(" ");
        settings[i].series.swept.extend(differing);
    }
}

impl Setting {
    /// The problem of one seed.
    pub fn problem(&self, seed: u64, folder: &Path, threads: &Threads) -> Result<Problem> {
        self.problem
            .build(seed, folder, self.changes, threads)
            .with_context(|| format!("{}: [problem]", self.place))
    }

    /// True for policy evaluation, whose constants are known before a run.
    pub fn has_closed_forms(&self) -> bool {
        matches!(self.problem, ProblemSpec::PolicyEvaluation(_))
    }

    /// True where the learned τ is x itself and may fall below 0.
    pub fn learns_plain_tau(&self) -> bool {
        let ProblemSpec::Learning(spec, tuning) = &self.problem else { return false };
        let moves = self.algorithm.penalty_steps(0).is_some_and(|s| s.eta[0] > 0.0);
        moves && matches!(spec.task(*tuning, &self.changes), Task::Tuning { form: TauForm::Plain, .. })
    }

    /// Names the problem and the network, which other settings may share.
    pub fn place_key(&self) -> String {
        let of_place = |key: &str| {
            key.starts_with("problem.")
                || key.starts_with("graph.")
                || key == "algorithm.tau"
                || key == "algorithm.train_on"
        };
        format!(
            "{:?} {}",
            self.series.settings.iter().filter(|(key, _)| of_place(key)).collect::<Vec<_>>(),
            self.algorithm.frozen_weights()
        )
    }

    /// True for the methods that pull decisions through A and push trackers through B, one round an
    /// iteration: what the theory is about.
    pub fn mixes_by_pulling(&self) -> bool {
        ["fab", "static-fab", "push-pull", "push-pull-soba"].contains(&self.series.algorithm.as_str())
    }

    /// Number of agents.
    pub fn agents(&self, seed: u64, folder: &Path) -> Result<usize> {
        self.problem.agents(seed, folder).with_context(|| format!("{}: [problem]", self.place))
    }

    /// The graphs of one seed, with frozen weights where the algorithm wants them.
    pub fn graphs(&self, agents: usize, seed: u64, folder: &Path) -> Result<Sequence> {
        let sequence =
            self.graph.build(agents, seed, folder).with_context(|| format!("{}: [graph]", self.place))?;
        Ok(if self.algorithm.frozen_weights() { sequence.frozen() } else { sequence })
    }

    /// Which messages are lost with one seed, and whether links carry running sums against it.
    pub fn loss(&self, seed: u64) -> Option<(Loss, bool)> {
        self.graph.loss(seed).ok().flatten().map(|loss| (loss, self.algorithm.running_sums()))
    }

    /// Refuses what cannot run: a problem without what the algorithm needs, a graph that breaks the
    /// assumptions.
    pub fn check(&self, seed: u64, folder: &Path) -> Result<()> {
        self.check_needs(seed, folder)?;
        self.check_graph(seed, folder)
    }

    /// Refuses a problem without what the algorithm needs.
    pub fn check_needs(&self, seed: u64, folder: &Path) -> Result<()> {
        self.problem.agents(seed, folder).with_context(|| format!("{}: [problem]", self.place))?;
        let missing = match self.algorithm.needs() {
            needs if self.problem.offers(needs) => "",
            Needs::SecondOrder => "second-order products",
            _ => "a single-level objective",
        };
        if !missing.is_empty() {
            bail!("{}: {} needs {missing}, which this problem does not have", self.place, self.series.label);
        }
        Ok(())
    }

    /// Refuses a graph that breaks the assumptions.
    pub fn check_graph(&self, seed: u64, folder: &Path) -> Result<()> {
        if !self.graph.allow_disconnected {
            let graphs = self.graphs(self.agents(seed, folder)?, seed, folder)?;
            let window = self.graph.window(graphs.graphs());
            if let Err(e) = check_connected(graphs.graphs(), window, self.run.iterations) {
                bail!(
                    "{}: [graph]: seed {seed}: {e}; set allow_disconnected = true to run all the same",
                    self.place
                );
            }
        }
        Ok(())
    }
}
