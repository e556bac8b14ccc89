//! The names that experiment files may use, and what stands behind them. A user's own crate adds its own.
use crate::graphs::{self, GraphEntry};
use crate::problems::labels::LabelsProblem;
use crate::problems::learning::{CleaningKeys, TuningKeys};
use crate::problems::{Kind, PolicyEvaluationKeys, ProblemEntry, QuadraticKeys, RobustKeys, WavesKeys};
use crate::section::{Keys, Section, did_you_mean};
use anyhow::Result;
use dibo::algorithm::{self, AnyAlgorithm, MakeAny, Readable, Visitor};
use dibo_report::judge::Judge;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Reads the parameters of an algorithm, without keys that are not its own.
type ReadAlgorithm = Box<dyn Fn(&Section<'_>, &[&str]) -> Result<Box<dyn AnyAlgorithm>> + Send + Sync>;

/// What a setting runs: the problem's keys, the algorithm, and its line of the registry.
type Chosen<'a> = (Box<dyn Kind>, Box<dyn AnyAlgorithm>, &'a AlgorithmEntry);

/// An algorithm by its name.
pub struct AlgorithmEntry {
    /// In files.
    pub name: &'static str,
    /// In tables and plots.
    pub label: &'static str,
    /// What it is, where the name does not say it.
    pub about: &'static str,
    read: ReadAlgorithm,
    /// Its keys, for the reference.
    pub(crate) keys: Keys,
}

/// Everything that an experiment file can name.
pub struct Registry {
    /// Kinds of problems.
    pub problems: Vec<ProblemEntry>,
    /// Algorithms.
    pub algorithms: Vec<AlgorithmEntry>,
    /// Kinds of graphs.
    pub graphs: Vec<GraphEntry>,
    /// Experiments that need no file: name and text.
    pub experiments: Vec<(&'static str, &'static str)>,
    /// Claims that can be judged.
    pub judges: Vec<Judge>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Visitor for Registry {
    fn visit<A: Readable>(&mut self, name: &'static str, label: &'static str, any: MakeAny<A>) {
        let read: ReadAlgorithm = Box::new(move |section, except| Ok(any(section.read::<A>(except)?)));
        self.algorithms.push(AlgorithmEntry { name, label, about: A::about(), read, keys: A::json_schema });
    }
}

impl Registry {
    /// What comes with dibo. A new problem is one line here.
    pub fn new() -> Self {
        let mut registry = Registry {
            problems: vec![
                ProblemEntry::of::<PolicyEvaluationKeys>("policy-evaluation"),
                ProblemEntry::of::<QuadraticKeys>("quadratic"),
                ProblemEntry::of::<RobustKeys>("robust"),
                ProblemEntry::of::<WavesKeys>("waves"),
                CleaningKeys::entry("cleaning"),
                TuningKeys::entry("tuning"),
                LabelsProblem::entry("labels"),
            ],
            algorithms: Vec::new(),
            graphs: graphs::all(),
            experiments: Vec::new(),
            judges: Vec::new(),
        };
        algorithm::visit_all(&mut registry);
        registry
    }

    /// Adds a problem.
    pub fn problem<K: Kind + Serialize + DeserializeOwned + JsonSchema + 'static>(
        mut self,
        name: &'static str,
    ) -> Self {
        self.problems.push(ProblemEntry::of::<K>(name));
        self
    }

    /// Adds a problem some of whose keys have lists as values; lists of other keys are sweeps.
    pub fn list_valued_problem<K: Kind + Serialize + DeserializeOwned + JsonSchema + 'static>(
        mut self,
        name: &'static str,
        lists: &'static [&'static str],
    ) -> Self {
        self.problems.push(ProblemEntry { lists, ..ProblemEntry::of::<K>(name) });
        self
    }

    /// Adds an algorithm.
    pub fn algorithm<A: Readable>(mut self, name: &'static str, label: &'static str) -> Self {
        self.visit::<A>(name, label, |algorithm| Box::new(algorithm));
        self
    }

    /// Adds a kind of graph.
    pub fn graph(mut self, entry: GraphEntry) -> Self {
        self.graphs.push(entry);
        self
    }

    /// Adds experiments.
    pub fn experiments(mut self, experiments: &[(&'static str, &'static str)]) -> Self {
        self.experiments.extend(experiments);
        self
    }

    /// Adds judges of claims.
    pub fn judges(mut self, judges: &[Judge]) -> Self {
        self.judges.extend(judges);
        self
    }

    /// Keys whose lists are values in a file's text: those of its problem, of any where it names none.
    pub(crate) fn lists(&self, text: &str) -> Vec<&'static str> {
        let file = text.parse::<toml::Table>().unwrap_or_default();
        let kind = file.get("problem").and_then(|p| p.get("kind")?.as_str());
        let meant = self.problems.iter().filter(|p| kind.is_none_or(|kind| p.name == kind));
        let own = meant.flat_map(|p| p.lists.iter().copied());
        ["phases", "weights", "claims", "seeds"].into_iter().chain(own).collect()
    }

    /// The problem and the algorithm of a setting.
    pub(crate) fn read(&self, problem: &Section<'_>, algorithm: &Section<'_>) -> Result<Chosen<'_>> {
        let kind = problem.get("kind").unwrap_or_default();
        let Some(problems) = self.problems.iter().find(|p| p.name == kind) else {
            let names: Vec<&str> = self.problems.iter().map(|p| p.name).collect();
            let close = did_you_mean(kind, names.iter().copied());
            let what = format!("problem kind is '{kind}'; known are {}{close}", names.join(", "));
            return Err(problem.error("kind", what));
        };
        let name =
            algorithm.get("name").ok_or_else(|| algorithm.error("", "this [[algorithm]] has no name"))?;
        let Some(entry) = self.algorithms.iter().find(|a| a.name == name) else {
            let names: Vec<&str> = self.algorithms.iter().map(|a| a.name).collect();
            let close = did_you_mean(name, names.iter().copied());
            let what = format!("there is no algorithm '{name}'; known are {}{close}", names.join(", "));
            return Err(algorithm.error("name", what));
        };
        let of_any = ["name", "label", "group", "case"];
        let except: Vec<&str> = of_any.into_iter().chain(problems.algorithm_keys.iter().copied()).collect();
        let parameters = (entry.read)(algorithm, &except)?;
        parameters.check().map_err(|e| algorithm.value_error(e))?;
        let kind = (problems.read)(problem, algorithm, parameters.needs())?;
        kind.check().map_err(|e| problem.value_error(e))?;
        Ok((kind, parameters, entry))
    }
}
