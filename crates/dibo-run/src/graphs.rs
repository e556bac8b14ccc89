//! What a `[graph]` section can be: kinds of graph sequences with keys of their own, and the keys that all
//! share (weights, connectivity, losses).
use crate::section::{Keys, Section, did_you_mean};
use anyhow::{Context, Result, anyhow};
use dibo::graph::{self, GraphSequence, Loss, Redraw};
use dibo::mixing::{Rule, Sequence};
use dibo::trace;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a kind of graph makes.
pub enum Made {
    /// Graphs alone; the weights are those of the section.
    Graphs(Arc<dyn GraphSequence>),
    /// Graphs with weights of their own.
    Weighted(Sequence),
}

/// The keys of one kind of graph.
pub trait GraphKind: Send + Sync {
    /// Says which value is out of range; the message begins with its key.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
    /// The sequence for `n` agents and one seed.
    fn build(&self, n: usize, seed: u64, folder: &Path) -> Result<Made>;
    /// The number of iterations whose links together connect all agents, where it is not 1.
    fn window(&self, _graphs: &dyn GraphSequence) -> usize {
        1
    }
    /// Whether agents are apart on purpose.
    fn apart(&self) -> bool {
        false
    }
    /// About how many links an iteration has at most.
    fn links(&self, n: f64) -> f64 {
        2.0 * n
    }
    /// Files that its values name.
    fn files(&self, _folder: &Path) -> Vec<PathBuf> {
        Vec::new()
    }
}

fn share(name: &str, value: f64) -> Result<(), String> {
    match (0.0..=1.0).contains(&value) {
        true => Ok(()),
        false => Err(format!("{name} is {value}; it must lie between 0 and 1")),
    }
}

/// `kind = "cycle"`: the paper's three phases.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CycleKeys {
    /// Probability of a link in the random phase.
    nu: f64,
    /// Iterations of the random phase, of the ring and of the reversed ring.
    phases: [usize; 3],
    /// When random links are drawn anew.
    redraw: Redraw,
}

impl Default for CycleKeys {
    fn default() -> Self {
        CycleKeys { nu: 0.3, phases: [10; 3], redraw: Redraw::default() }
    }
}

impl GraphKind for CycleKeys {
    fn check(&self) -> Result<(), String> {
        share("nu", self.nu)?;
        match self.phases.iter().sum::<usize>() {
            0 => Err("phases are all 0; at least one must be longer".into()),
            _ => Ok(()),
        }
    }

    fn build(&self, n: usize, seed: u64, _folder: &Path) -> Result<Made> {
        let cycle = graph::Cycle::new(n, self.nu, seed).phases(self.phases).redraw(self.redraw);
        Ok(Made::Graphs(Arc::new(cycle)))
    }

    fn links(&self, n: f64) -> f64 {
        n * (1.0 + self.nu * n)
    }
}

/// `kind = "erdos-renyi"`: random links at every iteration.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ErdosRenyiKeys {
    /// Probability of a link.
    nu: f64,
    /// Links are drawn until they connect all agents.
    connected: bool,
    /// When links are drawn anew.
    redraw: Redraw,
}

impl Default for ErdosRenyiKeys {
    fn default() -> Self {
        ErdosRenyiKeys { nu: 0.3, connected: false, redraw: Redraw::default() }
    }
}

impl GraphKind for ErdosRenyiKeys {
    fn check(&self) -> Result<(), String> {
        share("nu", self.nu)
    }

    fn build(&self, n: usize, seed: u64, _folder: &Path) -> Result<Made> {
        let graphs = graph::ErdosRenyi::new(n, self.nu, seed, self.connected).redraw(self.redraw);
        Ok(Made::Graphs(Arc::new(graphs)))
    }

    fn links(&self, n: f64) -> f64 {
        n * (1.0 + self.nu * n)
    }
}

macro_rules! plain {
    ($($(#[$about:meta])* $name:ident => $make:expr, $links:expr;)*) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {}

        impl GraphKind for $name {
            fn build(&self, n: usize, _seed: u64, _folder: &Path) -> Result<Made> {
                let make: fn(usize) -> graph::Static = $make;
                Ok(Made::Graphs(Arc::new(make(n))))
            }

            fn links(&self, n: f64) -> f64 {
                let links: fn(f64) -> f64 = $links;
                links(n)
            }
        }
    )*};
}

plain! {
    /// `kind = "ring"`: a directed ring.
    RingKeys => graph::Static::ring, |n| n;
    /// `kind = "complete"`: everybody hears everybody.
    CompleteKeys => graph::Static::complete, |n| n * n;
    /// `kind = "exponential"`: links to the agents 1, 2, 4, … places on.
    ExponentialKeys => graph::Static::exponential, |n| n * (1.0 + n.log2());
}

/// `kind = "none"`: no links, so every agent is alone; to see what working together is worth.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NoneKeys {}

impl GraphKind for NoneKeys {
    fn build(&self, n: usize, seed: u64, _folder: &Path) -> Result<Made> {
        Ok(Made::Graphs(Arc::new(graph::ErdosRenyi::new(n, 0.0, seed, false))))
    }

    fn apart(&self) -> bool {
        true
    }

    fn links(&self, _n: f64) -> f64 {
        0.0
    }
}

/// `kind = "one-peer-exponential"`: one of the exponential graph's links at a time.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OnePeerKeys {}

impl GraphKind for OnePeerKeys {
    fn build(&self, n: usize, _seed: u64, _folder: &Path) -> Result<Made> {
        Ok(Made::Graphs(Arc::new(graph::OnePeerExponential::new(n))))
    }

    fn window(&self, graphs: &dyn GraphSequence) -> usize {
        graphs.period().unwrap_or(1)
    }
}

/// `kind = "file"`: links or matrices from a JSON file.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FileKeys {
    /// The file, beside the experiment.
    file: String,
}

impl GraphKind for FileKeys {
    fn check(&self) -> Result<(), String> {
        match self.file.is_empty() {
            true => Err("file is missing; a graph of kind \"file\" needs file = \"NAME.json\"".into()),
            false => Ok(()),
        }
    }

    fn build(&self, n: usize, _seed: u64, folder: &Path) -> Result<Made> {
        let path = folder.join(&self.file);
        let read = std::fs::read_to_string(&path);
        let text = read.with_context(|| format!("cannot read the graph file {}", path.display()))?;
        let list: Vec<trace::Graph> =
            serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        let mixing = trace::mixing(&list, n).map_err(|e| anyhow!("{}: {e}", path.display()))?;
        Ok(Made::Weighted(mixing))
    }

    fn links(&self, n: f64) -> f64 {
        n
    }

    fn files(&self, folder: &Path) -> Vec<PathBuf> {
        vec![folder.join(&self.file)]
    }
}

/// What every `[graph]` may hold beside the keys of its kind.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Common {
    /// Which graphs.
    kind: String,
    /// Every link goes both ways.
    undirected: bool,
    /// Agents send in turn: agent i at iterations k ≡ i modulo this number; 1 for all at once.
    turns: usize,
    /// How an agent weighs what it hears; uniform if not given, Metropolis if links go both ways.
    weights: Option<Weights>,
    /// Iterations whose links together must connect all agents; 0 for what the kind needs.
    window: usize,
    /// Runs although links do not connect all agents.
    allow_disconnected: bool,
    /// Share of the messages that are lost.
    loss: f64,
    /// Mean length of a run of losses; 0 for independent ones.
    burst: f64,
}

const COMMON: [&str; 8] =
    ["kind", "undirected", "turns", "weights", "window", "allow_disconnected", "loss", "burst"];

impl Default for Common {
    fn default() -> Self {
        let kind = "cycle".into();
        Common {
            kind,
            undirected: false,
            turns: 1,
            weights: None,
            window: 0,
            allow_disconnected: false,
            loss: 0.0,
            burst: 0.0,
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "weights must be \"uniform\", \"metropolis\", \"lazy-metropolis\", \"maximum-degree\", a \
        number, or a list of numbers used in turn by the senders"
)]
pub(crate) enum Weights {
    /// `uniform`, `metropolis`, `lazy-metropolis` or `maximum-degree`.
    Word(String),
    /// The weight of every sender.
    One(f64),
    /// The weights of the senders, in turn.
    Many(Vec<f64>),
}

/// The weights that have a name.
fn rule_by_name(word: &str) -> Option<Rule> {
    match word {
        "uniform" => Some(Rule::Uniform),
        "metropolis" => Some(Rule::Metropolis { lazy: false }),
        "lazy-metropolis" => Some(Rule::Metropolis { lazy: true }),
        "maximum-degree" => Some(Rule::MaximumDegree),
        _ => None,
    }
}

/// Reads the keys of a kind, without some that are not its own.
type ReadGraph = fn(&Section<'_>, &[&str]) -> Result<Box<dyn GraphKind>>;

/// A kind of graph by its name.
pub struct GraphEntry {
    /// In files.
    pub name: &'static str,
    read: ReadGraph,
    /// Its keys, for the reference.
    pub(crate) keys: Keys,
}

impl GraphEntry {
    /// The entry of a type of keys.
    pub fn of<K>(name: &'static str) -> Self
    where
        K: GraphKind + Serialize + serde::de::DeserializeOwned + JsonSchema + 'static,
    {
        GraphEntry {
            name,
            read: |section, except| Ok(Box::new(section.read::<K>(except)?)),
            keys: K::json_schema,
        }
    }
}

/// The kinds that come with dibo: a new one is one line.
pub(crate) fn all() -> Vec<GraphEntry> {
    vec![
        GraphEntry::of::<CycleKeys>("cycle"),
        GraphEntry::of::<ErdosRenyiKeys>("erdos-renyi"),
        GraphEntry::of::<RingKeys>("ring"),
        GraphEntry::of::<CompleteKeys>("complete"),
        GraphEntry::of::<ExponentialKeys>("exponential"),
        GraphEntry::of::<OnePeerKeys>("one-peer-exponential"),
        GraphEntry::of::<FileKeys>("file"),
        GraphEntry::of::<NoneKeys>("none"),
    ]
}

/// A `[graph]`, read and checked.
pub struct Graph {
    common: Common,
    kind: Box<dyn GraphKind>,
}

impl Graph {
    /// Reads `[graph]` and checks its values.
    pub fn read(section: &Section<'_>, kinds: &[GraphEntry]) -> Result<Self> {
        let others: Vec<&str> = section.keys().filter(|k| !COMMON.contains(k)).collect();
        let common: Common = section.read(&others)?;
        let Some(entry) = kinds.iter().find(|k| k.name == common.kind) else {
            let names: Vec<&str> = kinds.iter().map(|k| k.name).collect();
            let (kind, close) = (&common.kind, did_you_mean(&common.kind, names.iter().copied()));
            return Err(section
                .error("kind", format!("graph kind is '{kind}'; known are {}{close}", names.join(", "))));
        };
        let kind = (entry.read)(section, &COMMON)?;
        kind.check().map_err(|e| section.value_error(e))?;
        if let Some(Weights::Word(word)) = &common.weights
            && rule_by_name(word).is_none()
        {
            return Err(section.error(
                "weights",
                format!(
                    "weights is '{word}'; it must be \"uniform\", \"metropolis\", \"lazy-metropolis\", \
                    \"maximum-degree\", a number or a list of numbers"
                ),
            ));
        }
        if common.turns == 0 {
            return Err(section.error("turns", "turns is 0; it must be at least 1: all agents send at once"));
        }
        let graph = Graph { common, kind };
        graph.loss(0).map_err(|e| section.value_error(e))?;
        Ok(graph)
    }

    /// Which messages are lost with one seed, if any are: `loss` is their share, `burst` the mean length of a
    /// run of losses (0: independent).
    pub fn loss(&self, seed: u64) -> Result<Option<Loss>, String> {
        let burst = (self.common.burst != 0.0).then_some(self.common.burst);
        let loss = Loss::new(self.common.loss, burst, seed)?;
        Ok((self.common.loss > 0.0).then_some(loss))
    }

    /// The window over which links together must connect all agents; `None` if the file says that they need
    /// not.
    pub fn window(&self, graphs: &dyn GraphSequence) -> Option<usize> {
        match (self.common.allow_disconnected || self.apart(), self.common.window) {
            (true, _) => None,
            (false, 0) => Some(self.kind.window(graphs).saturating_mul(self.common.turns)),
            (false, window) => Some(window),
        }
    }

    /// Whether every agent is alone.
    pub fn apart(&self) -> bool {
        self.kind.apart()
    }

    /// About how many links an iteration has.
    pub fn links(&self, n: usize) -> f64 {
        self.kind.links(n as f64) * if self.common.undirected { 2.0 } else { 1.0 }
    }

    /// Files that its values name.
    pub fn files(&self, folder: &Path) -> Vec<PathBuf> {
        self.kind.files(folder)
    }

    /// Makes the sequence for `n` agents and one seed.
    pub fn build(&self, n: usize, seed: u64, folder: &Path) -> Result<Sequence> {
        let graphs = match (self.kind.build(n, seed, folder)?, &self.common.weights) {
            (Made::Graphs(mut graphs), _) => {
                if self.common.turns > 1 {
                    graphs = Arc::new(graph::Turns::new(graphs, self.common.turns));
                }
                match self.common.undirected {
                    true => Arc::new(graph::Undirected::new(graphs)) as Arc<dyn GraphSequence>,
                    false => graphs,
                }
            }
            (Made::Weighted(_), _) if self.common.turns > 1 => {
                return Err(anyhow!("turns: the file says itself who sends when"));
            }
            (Made::Weighted(_), _) if self.common.undirected => {
                return Err(anyhow!("undirected: the file says itself which links there are"));
            }
            (Made::Weighted(mixing), None) => return Ok(mixing),
            (Made::Weighted(_), Some(_)) => {
                return Err(anyhow!("weights: the file says itself how links weigh; leave weights away"));
            }
        };
        let rule = match &self.common.weights {
            // Whoever asks for links both ways means the symmetric weights that belong to them.
            None if self.common.undirected => Rule::Metropolis { lazy: false },
            None => Rule::Uniform,
            Some(Weights::Word(word)) => rule_by_name(word).unwrap_or(Rule::Uniform),
            Some(Weights::One(w)) => Rule::BySender(vec![*w]),
            Some(Weights::Many(w)) => Rule::BySender(w.clone()),
        };
        Sequence::new(graphs, rule).map_err(anyhow::Error::msg)
    }
}
