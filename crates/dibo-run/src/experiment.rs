//! Experiments: a TOML file becomes a list of settings (series), each of which is run with every seed.
use crate::graphs::Graph;
use crate::plan::RunKeys;
use crate::registry::Registry;
use crate::section::{Section, Source, did_you_mean};
use crate::setting::Setting;
use anyhow::{Context, Result, bail};
use dibo_report::report::words;
use dibo_report::results::{Figure, Series, check_name};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

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
    /// Values that were changed for this run (`--set`).
    pub overrides: Vec<String>,
}

/// So many settings may a file's sweeps make; more only on demand.
pub const MOST: usize = 2_000;
/// More settings than this are never made.
const MOST_EVER: usize = 100_000;

/// Where an experiment comes from and what is changed of it.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The name of a built-in experiment, or the path of a file.
    pub file: String,
    /// `key=value`, in order.
    pub set: Vec<String>,
    /// Seeds 0, 1, … instead of the file's.
    pub seeds: Option<u64>,
    /// Sweeps may be larger than [`MOST`].
    pub large: bool,
}

/// What stands before the first section.
#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Head {
    /// The name of the results folder; the file's if not given.
    name: String,
    /// One line for the report.
    title: String,
    /// What a reader should know.
    about: String,
    /// How many seeds, or which.
    #[schemars(with = "Seeds")]
    seeds: toml::Value,
    /// Claims of the paper to judge by the results.
    claims: Vec<String>,
}

/// For the reference: how many, or which.
#[derive(schemars::JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code, reason = "only its schema is used")]
enum Seeds {
    /// Seeds 0, 1, …
    Count(u64),
    /// These.
    Which(Vec<u64>),
}

impl Default for Head {
    fn default() -> Self {
        let seeds = toml::Value::Integer(1);
        Head { name: String::new(), title: String::new(), about: String::new(), seeds, claims: Vec::new() }
    }
}

impl Registry {
    /// Reads an experiment by the name of a built-in one or by its path.
    pub fn load(&self, request: &Request) -> Result<Experiment> {
        let name = request.file.as_str();
        let (source, default_name, folder) = match self.experiments.iter().find(|e| e.0 == name) {
            Some((name, text)) => {
                (self.source(format!("{name}.toml"), text), name.to_string(), PathBuf::from("."))
            }
            None => {
                let path = Path::new(name);
                if !path.exists() {
                    let names: Vec<&str> = self.experiments.iter().map(|b| b.0).collect();
                    let close = did_you_mean(name, names.iter().copied());
                    let names = names.join(", ");
                    bail!(
                        "there is no experiment '{name}': give the path of a TOML file or one of \
                        {names}{close}"
                    );
                }
                let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
                let stem = path.file_stem().map_or("experiment".into(), |s| s.to_string_lossy().into_owned());
                let folder = path.parent().unwrap_or(Path::new(".")).to_path_buf();
                (self.source(name.to_string(), &text), stem, folder)
            }
        };
        let mut experiment = self.parse(source.with(&request.set)?, &default_name, &folder, request.large)?;
        experiment.overrides.clone_from(&request.set);
        if let Some(seeds) = request.seeds {
            if !(1..=100_000).contains(&seeds) {
                bail!("--seeds is {seeds}; it must be between 1 and 100000");
            }
            experiment.seeds = (0..seeds).collect();
        }
        Ok(experiment)
    }

    /// A text to be read.
    pub fn source(&self, name: String, text: &str) -> Source {
        Source { name, text: text.to_string(), lists: self.lists(text) }
    }

    /// Reads an experiment from its text.
    pub fn parse(
        &self,
        source: Source,
        default_name: &str,
        folder: &Path,
        large: bool,
    ) -> Result<Experiment> {
        let Parts { head, problem, graph, run, algorithms, figures, cases } = Parts::read(&source)?;
        let Head { name, title, about, seeds, claims } = head.read(&[])?;
        let name = if name.is_empty() { default_name.to_string() } else { name };
        check_name("name", &name).map_err(|e| head.error("name", e))?;
        let seeds = seed_list(&seeds).map_err(|e| head.error("seeds", e))?;
        if algorithms.is_empty() {
            let names: Vec<&str> = self.algorithms.iter().map(|a| a.name).collect();
            bail!("{}: no [[algorithm]] is given; known are {}", source.name, names.join(", "));
        }
        if let Some(id) =
            claims.iter().find(|c| !self.judges.is_empty() && self.judges.iter().all(|j| j.id != **c))
        {
            let close = did_you_mean(id, self.judges.iter().map(|j| j.id));
            return Err(head.error("claims", format!("claims: nobody judges '{id}'{close}")));
        }
        let figures_read = figures.iter().map(|f| f.read::<Figure>(&[])).collect::<Result<Vec<_>>>()?;
        for (i, figure) in figures_read.iter().enumerate() {
            if figures_read[..i].iter().any(|earlier| earlier.name == figure.name) {
                return Err(figures[i].error("name", format!("two figures are called '{}'", figure.name)));
            }
        }
        let size = |(block, Case { sections: [p, g, r, a], .. }): &(&Section<'_>, &Case<'_>)| {
            let over = |section: &Section<'_>, case: &Section<'_>| section.overlaid(case).combinations();
            over(&problem, p) * over(&graph, g) * over(&run, r) * over(block, a)
        };
        let pairs = pairs(&algorithms, &cases)?;
        let total: f64 = pairs.iter().map(size).sum();
        let most = if large { MOST_EVER } else { MOST };
        if total > most as f64 {
            let more = if large { "" } else { " (--yes allows 100,000)" };
            bail!("{}: the sweeps make {total:.0} settings; at most {most} are allowed{more}", source.name);
        }
        let mut settings = Vec::new();
        for (block, Case { sections: [in_problem, in_graph, in_run, in_algorithm], .. }) in pairs {
            let block = block.overlaid(in_algorithm);
            for p in problem.overlaid(in_problem).unfold() {
                for g in graph.overlaid(in_graph).unfold() {
                    for r in run.overlaid(in_run).unfold() {
                        for a in block.unfold() {
                            settings.push(self.setting(&source, &p, &g, &r, &a)?);
                        }
                    }
                }
            }
        }
        label(&mut settings);
        Ok(Experiment {
            name,
            title,
            about,
            seeds,
            claims,
            figures: figures_read,
            settings,
            text: source.text.clone(),
            folder: folder.to_path_buf(),
            watch: false,
            overrides: Vec::new(),
        })
    }

    fn setting(
        &self,
        source: &Source,
        p: &Section<'_>,
        g: &Section<'_>,
        r: &Section<'_>,
        a: &Section<'_>,
    ) -> Result<Setting> {
        let (problem, algorithm, entry) = self.read(p, a)?;
        for key in ["label", "group"] {
            if let Some((_, value)) = a.settings().find(|(k, v)| *k == key && v.text().is_none()) {
                return Err(a.error(key, format!("{key} is {value}; it must be text: {key} = \"{value}\"")));
            }
        }
        let name = a.get("label").unwrap_or(entry.label);
        let mut series = Series {
            name: name.into(),
            label: name.into(),
            algorithm: entry.name.into(),
            settings: Default::default(),
            swept: Vec::new(),
            warnings: Vec::new(),
        };
        for (section, content) in [("problem", p), ("graph", g), ("run", r), ("algorithm", a)] {
            series.settings.extend(content.settings().map(|(k, v)| (format!("{section}.{k}"), v.clone())));
            let swept = content.swept().map(|k| format!("{section}.{k}"));
            series.swept.extend(swept.filter(|k| k != "algorithm.label"));
        }
        // A group gathers algorithms for a panel or a claim; it shows like a swept value.
        if a.get("group").is_some() && !series.swept.iter().any(|key| key == "algorithm.group") {
            series.swept.push("algorithm.group".into());
        }
        let (run, graph) = (RunKeys::read(r)?, Graph::read(g, &self.graphs)?);
        Ok(Setting { series, run, problem, graph, algorithm, place: source.name.clone() })
    }
}

/// The sections of a file.
struct Parts<'a> {
    head: Section<'a>,
    problem: Section<'a>,
    graph: Section<'a>,
    run: Section<'a>,
    algorithms: Vec<Section<'a>>,
    figures: Vec<Section<'a>>,
    cases: Vec<Case<'a>>,
}

/// Settings that belong together, by section in the order of `SECTIONS`.
struct Case<'a> {
    /// By which algorithms ask for it.
    name: Option<String>,
    sections: [Section<'a>; 4],
}

/// Every algorithm with each case in which it runs: those that it names, else all.
fn pairs<'s, 'a>(
    algorithms: &'s [Section<'a>],
    cases: &'s [Case<'a>],
) -> Result<Vec<(&'s Section<'a>, &'s Case<'a>)>> {
    let mut all = Vec::new();
    for block in algorithms {
        let wanted = block.words("case");
        let known = || cases.iter().filter_map(|c| c.name.as_deref());
        if let Some(unknown) = wanted.iter().find(|w| known().all(|k| k != *w)) {
            let names = known().collect::<Vec<_>>().join(", ");
            let close = did_you_mean(unknown, known());
            let what = format!("case is '{unknown}'; the file's named cases are: {names}{close}");
            return Err(block.error("case", what));
        }
        let asked = |c: &&Case<'_>| wanted.is_empty() || c.name.as_ref().is_some_and(|n| wanted.contains(n));
        all.extend(cases.iter().filter(asked).map(|case| (block, case)));
    }
    Ok(all)
}

/// Tables and lists of tables that a file may hold.
const TABLES: [&str; 6] = ["problem", "graph", "run", "algorithm", "figure", "case"];

impl<'a> Parts<'a> {
    fn read(source: &'a Source) -> Result<Self> {
        let document = DeTable::parse(&source.text).map_err(|e| source.toml_error(&e))?;
        let (mut head, mut problem, mut graph, mut run) = (DeTable::new(), None, None, None);
        let (mut algorithms, mut figures, mut cases) = (Vec::new(), Vec::new(), Vec::new());
        for (key, value) in document.into_inner() {
            let at = key.span().start;
            let wrong = |what: &str| source.error(at, format!("{} must be {what}", key.get_ref()));
            match (&**key.get_ref(), value.get_ref()) {
                ("problem", DeValue::Table(t)) => problem = Some(Section::new(source, at, t)?),
                ("graph", DeValue::Table(t)) => graph = Some(Section::new(source, at, t)?),
                ("run", DeValue::Table(t)) => run = Some(Section::new(source, at, t)?),
                (kind @ ("algorithm" | "figure" | "case"), DeValue::Array(list)) => {
                    for item in list.iter() {
                        let table =
                            item.get_ref().as_table().ok_or_else(|| wrong("written as [[…]] tables"))?;
                        let header = item.span().start;
                        match kind {
                            "algorithm" => algorithms.push(Section::new(source, header, table)?),
                            "figure" => figures.push(Section::new(source, header, table)?),
                            _ => cases.push(case(source, header, table)?),
                        }
                    }
                }
                ("algorithm" | "figure" | "case", _) => return Err(wrong("written as [[…]] tables")),
                ("problem" | "graph" | "run", _) => return Err(wrong("a table")),
                (other, DeValue::Table(_) | DeValue::Array(_)) if !["seeds", "claims"].contains(&other) => {
                    let close = did_you_mean(other, TABLES);
                    let known = TABLES.join(", ");
                    return Err(
                        source.error(at, format!("there is no section '{other}'; known are {known}{close}"))
                    );
                }
                _ => drop(head.insert(key, value)),
            }
        }
        let head = Section::new(source, 0, &head)?;
        let none = || Section::new(source, 0, &DeTable::new());
        let Some(problem) = problem else { bail!("{}: [problem] is missing", source.name) };
        if cases.is_empty() {
            cases.push(Case { name: None, sections: [none()?, none()?, none()?, none()?] });
        }
        for (i, case) in cases.iter().enumerate().filter(|(_, case)| case.name.is_some()) {
            if cases[..i].iter().any(|earlier| earlier.name == case.name) {
                let name = case.name.as_deref().unwrap_or_default();
                return Err(case.sections[3].error("case", format!("two cases are called '{name}'")));
            }
        }
        let (graph, run) = (graph.map_or_else(none, Ok)?, run.map_or_else(none, Ok)?);
        Ok(Parts { head, problem, graph, run, algorithms, figures, cases })
    }
}

/// How many seeds, or which.
fn seed_list(seeds: &toml::Value) -> Result<Vec<u64>, String> {
    let wrong = || {
        format!("seeds is {seeds}; it must be how many (1 to 100000) or a list of whole numbers, 0 or more")
    };
    let list = match seeds {
        toml::Value::Integer(count) if (1..=100_000).contains(count) => {
            return Ok((0..*count as u64).collect());
        }
        toml::Value::Array(list) if !list.is_empty() && list.len() <= 100_000 => list,
        _ => return Err(wrong()),
    };
    let number = |s: &toml::Value| s.as_integer().and_then(|s| u64::try_from(s).ok()).ok_or_else(wrong);
    let list = list.iter().map(number).collect::<Result<Vec<u64>, String>>()?;
    match list.iter().collect::<BTreeSet<_>>().len() == list.len() {
        true => Ok(list),
        false => Err(format!("seeds is {seeds}; one of them stands there twice")),
    }
}

/// Sections of a file that a case can change.
const SECTIONS: [&str; 4] = ["problem", "graph", "run", "algorithm"];

/// A `[[case]]`: settings that belong together, such as `graph.nu = 0.5` with `problem.omega = 3`. Every
/// algorithm runs in every case, unless it names some.
fn case<'a>(source: &'a Source, at: usize, table: &DeTable<'_>) -> Result<Case<'a>> {
    let mut parts = [(); 4].map(|()| Section::new(source, at, &DeTable::new()));
    let named = table.iter().find(|(key, value)| key.get_ref() == "name" && value.get_ref().is_str());
    for (key, value) in table.iter() {
        let place = SECTIONS.iter().position(|name| *name == &**key.get_ref());
        let inline = source.text.get(value.span().start..).is_some_and(|t| t.starts_with('{'));
        match (place, value.get_ref()) {
            (Some(place), DeValue::Table(t)) if !inline => {
                parts[place] = Section::new(source, key.span().start, t)
            }
            (None, DeValue::String(_)) if key.get_ref() == "name" => {}
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
    let mut sections = [p?, g?, r?, a?];
    // A name tells series apart, so that labels need not repeat what it stands for.
    match named {
        Some((key, value)) => sections[3].add("case", key.span(), value),
        None => sections.iter_mut().for_each(Section::shown),
    }
    Ok(Case { name: named.and_then(|n| n.1.get_ref().as_str()).map(String::from), sections })
}

/// Adds what is swept to the labels, and more where two would still be the same.
fn label(settings: &mut [Setting]) {
    let labels: Vec<String> = settings.iter().map(|s| words::labelled(&s.series, |_| false)).collect();
    for i in 0..settings.len() {
        let twins: Vec<usize> = (0..settings.len()).filter(|j| labels[*j] == labels[i]).collect();
        let mut differing = BTreeSet::new();
        for j in &twins {
            let (one, other) = (&settings[i].series.settings, &settings[*j].series.settings);
            for key in one.keys().chain(other.keys()).filter(|key| one.get(*key) != other.get(*key)) {
                let tells = key != "algorithm.label" && key != "algorithm.group";
                if key.starts_with("algorithm.") && tells {
                    differing.insert(key.clone());
                }
            }
        }
        let series = &mut settings[i].series;
        series.swept.extend(differing);
        // A key that only the other has says nothing here.
        series.label = words::labelled(series, |key| !series.settings.contains_key(key));
    }
}
