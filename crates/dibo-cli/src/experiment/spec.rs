//! What the sections of an experiment file may hold, and how they become problems, graphs and plans.
use super::learning::{Changes, LearningSpec};
use super::text::Section;
use anyhow::{Context, Result};
use dibo::algorithm::Needs;
use dibo::engine::Plan;
use dibo::graph::{self, GraphSequence, Loss, Redraw};
use dibo::mixing::{Rule, Sequence};
use dibo::problem::learning::Learning;
use dibo::problem::{Bilevel, Instance, NoiseOn, PolicyEvaluation, Quadratic, Robust};
use dibo::rows::Threads;
use dibo::trace;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;

/// `[problem] kind = "policy-evaluation"`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyEvaluationSpec {
    agents: usize,
    states: usize,
    features: usize,
    gamma: f64,
    tau: f64,
    f_weight: f64,
    g_weight: f64,
    omega: f64,
    noise_on: NoiseOn,
    feature_patterns: usize,
    reward_patterns: usize,
    blocks: bool,
    file: String,
}

impl Default for PolicyEvaluationSpec {
    fn default() -> Self {
        let Instance { agents, states, features, gamma, tau, feature_patterns, reward_patterns, blocks } =
            Instance::default();
        PolicyEvaluationSpec {
            agents,
            states,
            features,
            gamma,
            tau,
            f_weight: 0.0,
            g_weight: 1.0,
            omega: 0.0,
            noise_on: NoiseOn::default(),
            feature_patterns,
            reward_patterns,
            blocks,
            file: String::new(),
        }
    }
}

/// `[problem] kind = "quadratic"`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QuadraticSpec {
    agents: usize,
    dim_x: usize,
    dim_y: usize,
    indefinite: bool,
}

impl Default for QuadraticSpec {
    fn default() -> Self {
        QuadraticSpec { agents: 10, dim_x: 3, dim_y: 4, indefinite: false }
    }
}

/// `[problem] kind = "robust"`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RobustSpec {
    agents: usize,
    dim_x: usize,
    dim_y: usize,
}

impl Default for RobustSpec {
    fn default() -> Self {
        RobustSpec { agents: 10, dim_x: 3, dim_y: 6 }
    }
}

/// Any problem.
#[derive(Clone, Debug)]
pub enum ProblemSpec {
    /// Policy evaluation.
    PolicyEvaluation(PolicyEvaluationSpec),
    /// General quadratic.
    Quadratic(QuadraticSpec),
    /// Robust fit, nonconvex.
    Robust(RobustSpec),
    /// Cleaning (or, if true, tuning) on images.
    Learning(LearningSpec, bool),
}

/// A problem that has been made.
pub enum Problem {
    /// Policy evaluation.
    PolicyEvaluation(Box<PolicyEvaluation>),
    /// General quadratic.
    Quadratic(Box<Quadratic>),
    /// Robust fit, nonconvex.
    Robust(Box<Robust>),
    /// Learning with 32-bit numbers.
    Learning32(Box<Learning<f32>>),
    /// Learning with 64-bit numbers.
    Learning64(Box<Learning<f64>>),
}

const PROBLEMS: &str = "policy-evaluation, quadratic, robust, cleaning, tuning";

impl ProblemSpec {
    /// Reads `[problem]`.
    pub fn read(section: &Section<'_>) -> Result<Self> {
        let kind = section.get("kind").unwrap_or_default();
        let spec = match kind.as_str() {
            "policy-evaluation" => ProblemSpec::PolicyEvaluation(section.read(&["kind"])?),
            "quadratic" => ProblemSpec::Quadratic(section.read(&["kind"])?),
            "robust" => ProblemSpec::Robust(section.read(&["kind"])?),
            "cleaning" | "tuning" => ProblemSpec::Learning(section.read(&["kind"])?, kind == "tuning"),
            _ => return Err(section.error("kind", format!("problem kind is '{kind}'; known are {PROBLEMS}"))),
        };
        spec.check().map_err(|e| section.value_error(e))?;
        Ok(spec)
    }

    /// Says which value is out of range; the message begins with its name.
    fn check(&self) -> Result<(), String> {
        let size = |name: &str, value: usize| match value {
            1..=1_000_000 => Ok(()),
            _ => Err(format!("{name} is {value}; it must be between 1 and 1,000,000")),
        };
        let real = |name: &str, value: f64, from: f64, to: f64| match value >= from && value <= to {
            true => Ok(()),
            false if to == f64::MAX => {
                Err(format!("{name} is {value}; it must be a finite number, {from} or more"))
            }
            false => Err(format!("{name} is {value}; it must lie between {from} and {to}")),
        };
        match self {
            ProblemSpec::PolicyEvaluation(p) => {
                for (name, value) in [("agents", p.agents), ("states", p.states), ("features", p.features)] {
                    size(name, value)?;
                }
                for (name, value) in [("omega", p.omega), ("f_weight", p.f_weight), ("g_weight", p.g_weight)]
                {
                    real(name, value, 0.0, f64::MAX)?;
                }
                real("gamma", p.gamma, 0.0, 1.0)?;
                real("tau", p.tau, f64::MIN_POSITIVE, 1e100)
                    .map_err(|_| format!("tau is {}; it must be a finite number above 0", p.tau))?;
                size("feature_patterns", p.feature_patterns)?;
                // Tables are dense: refuse what no memory holds.
                let numbers = (p.agents + p.states) as f64 * p.states as f64
                    + p.feature_patterns as f64 * (p.states * p.features) as f64;
                real("states", numbers, 0.0, 2e9).map_err(|_| {
                    format!(
                        "states is {}; with {} agents its tables need {:.0} GB",
                        p.states,
                        p.agents,
                        numbers * 8e-9
                    )
                })
            }
            ProblemSpec::Learning(p, _) => p.check(),
            ProblemSpec::Quadratic(QuadraticSpec { agents, dim_x, dim_y, .. })
            | ProblemSpec::Robust(RobustSpec { agents, dim_x, dim_y }) => {
                for (name, value) in [("agents", *agents), ("dim_x", *dim_x), ("dim_y", *dim_y)] {
                    size(name, value)?;
                }
                let numbers = *agents as f64 * ((dim_x + dim_y) as f64).powi(2);
                real("dim_y", numbers, 0.0, 1e9)
                    .map_err(|_| format!("dim_y is {dim_y}; the matrices need {:.0} GB", numbers * 8e-9))
            }
        }
    }

    /// Number of agents; the problem is made for this only if a file says how many.
    pub fn agents(&self, seed: u64, folder: &Path) -> Result<usize> {
        Ok(match self {
            ProblemSpec::PolicyEvaluation(p) if p.file.is_empty() => p.agents,
            ProblemSpec::Quadratic(p) => p.agents,
            ProblemSpec::Robust(p) => p.agents,
            ProblemSpec::Learning(p, _) => p.agents,
            ProblemSpec::PolicyEvaluation(_) => {
                match self.build(seed, folder, Changes::default(), &Threads::one())? {
                    Problem::PolicyEvaluation(p) => Bilevel::agents(&*p),
                    _ => unreachable!("a policy-evaluation file makes that problem"),
                }
            }
        })
    }

    /// True if the problem can give what an algorithm needs.
    pub fn offers(&self, needs: Needs) -> bool {
        needs != Needs::SecondOrder || !matches!(self, ProblemSpec::Learning(..))
    }

    /// Makes the problem of one seed. Relative files are looked for beside the experiment file.
    pub fn build(&self, seed: u64, folder: &Path, changes: Changes, threads: &Threads) -> Result<Problem> {
        match self {
            ProblemSpec::PolicyEvaluation(p) => {
                let problem = if p.file.is_empty() {
                    Instance {
                        agents: p.agents,
                        states: p.states,
                        features: p.features,
                        gamma: p.gamma,
                        tau: p.tau,
                        feature_patterns: p.feature_patterns,
                        reward_patterns: p.reward_patterns,
                        blocks: p.blocks,
                    }
                    .random(seed)
                    .map_err(anyhow::Error::msg)?
                } else {
                    let path = folder.join(&p.file);
                    let text = std::fs::read_to_string(&path)
                        .with_context(|| format!("cannot read {}", path.display()))?;
                    let tables: trace::Problem =
                        serde_json::from_str(&text).with_context(|| path.display().to_string())?;
                    tables.build().map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))?
                };
                let f_weight = if p.f_weight == 0.0 { 1.0 / problem.states() as f64 } else { p.f_weight };
                let g_weight = if p.g_weight == 0.0 { 1.0 } else { p.g_weight };
                Ok(Problem::PolicyEvaluation(Box::new(
                    problem.weights(f_weight, g_weight).noise(p.omega, p.noise_on, seed),
                )))
            }
            ProblemSpec::Learning(p, tuning) if p.bits == 64 => {
                Ok(Problem::Learning64(Box::new(p.build(*tuning, changes, seed, threads)?)))
            }
            ProblemSpec::Learning(p, tuning) => {
                Ok(Problem::Learning32(Box::new(p.build(*tuning, changes, seed, threads)?)))
            }
            ProblemSpec::Quadratic(p) => Ok(Problem::Quadratic(Box::new(Quadratic::random(
                p.agents,
                p.dim_x,
                p.dim_y,
                seed,
                p.indefinite,
            )))),
            ProblemSpec::Robust(p) => {
                Ok(Problem::Robust(Box::new(Robust::random(p.agents, p.dim_x, p.dim_y, seed))))
            }
        }
    }
}

/// `[graph]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GraphSpec {
    kind: String,
    nu: f64,
    phases: [usize; 3],
    redraw: Redraw,
    connected: bool,
    weights: Weights,
    window: usize,
    /// Go on although some graphs are not strongly connected.
    pub allow_disconnected: bool,
    file: String,
    loss: f64,
    burst: f64,
}

impl Default for GraphSpec {
    fn default() -> Self {
        GraphSpec {
            kind: "cycle".into(),
            nu: 0.3,
            phases: [10; 3],
            redraw: Redraw::default(),
            connected: false,
            weights: Weights::Word("uniform".into()),
            window: 0,
            allow_disconnected: false,
            file: String::new(),
            loss: 0.0,
            burst: 0.0,
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "weights must be \"uniform\", a number, or a list of numbers used in turn by the senders"
)]
enum Weights {
    Word(String),
    One(f64),
    Many(Vec<f64>),
}

const GRAPHS: &str = "cycle, erdos-renyi, ring, complete, exponential, one-peer-exponential, file";

impl GraphSpec {
    /// Reads `[graph]` and checks its values.
    pub fn read(section: &Section<'_>) -> Result<Self> {
        let spec: GraphSpec = section.read(&[])?;
        if !(0.0..=1.0).contains(&spec.nu) {
            return Err(section.error("nu", format!("nu is {}; it must lie between 0 and 1", spec.nu)));
        }
        if spec.phases.iter().sum::<usize>() == 0 {
            return Err(section.error("phases", "phases are all 0; at least one must be longer"));
        }
        if let Weights::Word(word) = &spec.weights
            && word != "uniform"
        {
            return Err(section.error(
                "weights",
                format!("weights is '{word}'; it must be \"uniform\", a number or a list of numbers"),
            ));
        }
        if !GRAPHS.split(", ").any(|k| k == spec.kind) {
            return Err(section.error("kind", format!("graph kind is '{}'; known are {GRAPHS}", spec.kind)));
        }
        spec.loss(0).map_err(|e| section.value_error(e))?;
        Ok(spec)
    }

    /// Which messages are lost with one seed, if any are: `loss` is their share, `burst` the mean length of a
    /// run of losses (0: independent).
    pub fn loss(&self, seed: u64) -> Result<Option<Loss>, String> {
        let loss = Loss::new(self.loss, (self.burst != 0.0).then_some(self.burst), seed)?;
        Ok((self.loss > 0.0).then_some(loss))
    }

    /// The window over which links together must connect all agents.
    pub fn window(&self, graphs: &dyn GraphSequence) -> usize {
        match self.window {
            0 if self.kind == "one-peer-exponential" => graphs.period().unwrap_or(1),
            0 => 1,
            w => w,
        }
    }

    /// Makes the sequence for `n` agents and one seed.
    pub fn build(&self, n: usize, seed: u64, folder: &Path) -> Result<Sequence> {
        let graphs: Arc<dyn GraphSequence> = match self.kind.as_str() {
            "cycle" => Arc::new(graph::Cycle::new(n, self.nu, seed).phases(self.phases).redraw(self.redraw)),
            "erdos-renyi" => {
                Arc::new(graph::ErdosRenyi::new(n, self.nu, seed, self.connected).redraw(self.redraw))
            }
            "ring" => Arc::new(graph::Static::ring(n)),
            "complete" => Arc::new(graph::Static::complete(n)),
            "exponential" => Arc::new(graph::Static::exponential(n)),
            "one-peer-exponential" => Arc::new(graph::OnePeerExponential::new(n)),
            _ => {
                let path = folder.join(&self.file);
                let text = std::fs::read_to_string(&path)
                    .with_context(|| format!("cannot read the graph file {}", path.display()))?;
                let list: Vec<trace::Graph> =
                    serde_json::from_str(&text).with_context(|| path.display().to_string())?;
                return trace::mixing(&list, n).map_err(|e| anyhow::anyhow!("{}: {e}", path.display()));
            }
        };
        let rule = match &self.weights {
            Weights::Word(_) => Rule::Uniform,
            Weights::One(w) => Rule::BySender(vec![*w]),
            Weights::Many(w) => Rule::BySender(w.clone()),
        };
        Sequence::new(graphs, rule).map_err(anyhow::Error::msg)
    }
}

/// `[run]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunSpec {
    /// Iterations at most.
    pub iterations: usize,
    every: usize,
    /// Stop when the metric is below this; 0 to go on to the end.
    target: f64,
    metric: String,
    diverged_above: f64,
    /// Points kept of each curve at most.
    pub points: usize,
    /// One run after the other, each with all threads: for times and peak memory that others do not disturb.
    pub alone: bool,
}

impl Default for RunSpec {
    fn default() -> Self {
        RunSpec {
            iterations: 1000,
            every: 20,
            target: 0.0,
            metric: "relative_error".into(),
            diverged_above: 1e3,
            points: 400,
            alone: false,
        }
    }
}

impl RunSpec {
    /// Reads `[run]` and checks its values.
    pub fn read(section: &Section<'_>) -> Result<Self> {
        let spec: RunSpec = section.read(&[])?;
        for (name, value) in [("iterations", spec.iterations), ("every", spec.every), ("points", spec.points)]
        {
            if value == 0 {
                return Err(section.error(name, format!("{name} is 0; it must be 1 or more")));
            }
        }
        for (name, value) in [("target", spec.target), ("diverged_above", spec.diverged_above)] {
            if value < 0.0 || value.is_nan() {
                return Err(section.error(name, format!("{name} is {value}; it must be 0 or more")));
            }
        }
        Ok(spec)
    }

    /// For the engine.
    pub fn plan(&self) -> Plan {
        Plan {
            iterations: self.iterations,
            every: self.every,
            target: (self.target > 0.0).then(|| (self.metric.clone(), self.target)),
            diverged_above: self.diverged_above,
        }
    }

    /// What the target and a tuner look at.
    pub fn metric(&self) -> &str {
        &self.metric
    }

    /// Distance between the points of a curve that are kept: the same for all seeds, so that they can be
    /// averaged.
    pub fn keep_every(&self) -> usize {
        self.every * self.iterations.div_ceil(self.every).div_ceil(self.points).max(1)
    }
}
