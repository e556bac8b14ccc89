//! The problems with closed forms: policy evaluation, quadratic, robust fit, waves.
use super::{Ask, Built, Kind, Size};
use anyhow::{Context, Result, anyhow};
use dibo::problem::{Bilevel, Instance, NoiseOn, PolicyEvaluation, Quadratic, Robust, Waves};
use dibo::trace;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A count between 1 and a million.
fn size(name: &str, value: usize) -> Result<(), String> {
    match value {
        1..=1_000_000 => Ok(()),
        _ => Err(format!("{name} is {value}; it must be between 1 and 1,000,000")),
    }
}

fn real(name: &str, value: f64, from: f64, to: f64) -> Result<(), String> {
    match value >= from && value <= to {
        true => Ok(()),
        false if to == f64::MAX => {
            Err(format!("{name} is {value}; it must be a finite number, {from} or more"))
        }
        false => Err(format!("{name} is {value}; it must lie between {from} and {to}")),
    }
}

/// Where a run starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum StartAt {
    /// Everything at 0.
    #[default]
    Zero,
    /// x at 0, y and z at their solutions there.
    Warm,
}

/// The penalty at the first iteration, of methods that have one.
fn first_penalty(ask: &Ask<'_>) -> Option<f64> {
    ask.algorithm.penalty_steps(0).map(|steps| steps.lambda)
}

/// `kind = "policy-evaluation"`: the paper's value of a policy, with rewards that differ from agent to agent.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyEvaluationKeys {
    /// Number of agents.
    agents: usize,
    /// States of the Markov chain: the width of y.
    states: usize,
    /// Features of a state: the width of x.
    features: usize,
    /// Discount.
    gamma: f64,
    /// Regulariser of x.
    tau: f64,
    /// Factor of f; 0 for one over the number of states.
    f_weight: f64,
    /// Factor of g; 0 for 1.
    g_weight: f64,
    /// Deviation of the noise on observed rewards.
    omega: f64,
    /// Which reward the noise falls on.
    noise_on: NoiseOn,
    /// Different tables of features among the agents.
    feature_patterns: usize,
    /// Different tables of rewards among the agents; 0 for one each.
    reward_patterns: usize,
    /// Agents with one pattern stand together instead of in turn.
    blocks: bool,
    /// Where a run starts.
    start: StartAt,
    /// A JSON file with the tables, instead of random ones.
    file: String,
}

impl Default for PolicyEvaluationKeys {
    fn default() -> Self {
        let Instance { agents, states, features, gamma, tau, feature_patterns, reward_patterns, blocks } =
            Instance::default();
        PolicyEvaluationKeys {
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
            start: StartAt::default(),
            file: String::new(),
        }
    }
}

impl PolicyEvaluationKeys {
    fn table(&self, folder: &Path) -> Result<PolicyEvaluation> {
        let path = folder.join(&self.file);
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let tables: trace::Tables =
            serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        tables.build().map_err(|e| anyhow!("{}: {e}", path.display()))
    }

    fn random(&self, seed: u64) -> Result<PolicyEvaluation> {
        let instance = Instance {
            agents: self.agents,
            states: self.states,
            features: self.features,
            gamma: self.gamma,
            tau: self.tau,
            feature_patterns: self.feature_patterns,
            reward_patterns: self.reward_patterns,
            blocks: self.blocks,
        };
        instance.random(seed).map_err(anyhow::Error::msg)
    }
}

impl Kind for PolicyEvaluationKeys {
    fn check(&self) -> Result<(), String> {
        for (name, value) in [("agents", self.agents), ("states", self.states), ("features", self.features)] {
            size(name, value)?;
        }
        for (name, value) in [("omega", self.omega), ("f_weight", self.f_weight), ("g_weight", self.g_weight)]
        {
            real(name, value, 0.0, f64::MAX)?;
        }
        real("gamma", self.gamma, 0.0, 1.0)?;
        real("tau", self.tau, f64::MIN_POSITIVE, 1e100)
            .map_err(|_| format!("tau is {}; it must be a finite number above 0", self.tau))?;
        size("feature_patterns", self.feature_patterns)
    }

    fn agents(&self, folder: &Path) -> Result<usize> {
        if self.file.is_empty() { Ok(self.agents) } else { Ok(Bilevel::agents(&self.table(folder)?)) }
    }

    fn build(&self, ask: &Ask<'_>) -> Result<Built> {
        ask.on_host("policy evaluation")?;
        let problem = if self.file.is_empty() { self.random(ask.seed)? } else { self.table(ask.folder)? };
        let f_weight = if self.f_weight == 0.0 { 1.0 / problem.states() as f64 } else { self.f_weight };
        let g_weight = if self.g_weight == 0.0 { 1.0 } else { self.g_weight };
        let problem = problem.try_weights(f_weight, g_weight).map_err(anyhow::Error::msg)?;
        let problem = problem.noise(self.omega, self.noise_on, ask.seed);
        Ok(Built::new(match self.start {
            StartAt::Zero => problem,
            StartAt::Warm => problem.warm(first_penalty(ask)),
        }))
    }

    fn files(&self, folder: &Path) -> Vec<PathBuf> {
        if self.file.is_empty() { Vec::new() } else { vec![folder.join(&self.file)] }
    }

    fn size(&self, _folder: &Path) -> Option<Size> {
        let (n, s, d) = (self.agents as f64, self.states as f64, self.features as f64);
        // Tables are dense: rewards, transitions, features and their products.
        let numbers = (n + s) * s + 4.0 * self.feature_patterns as f64 * s * d;
        let (upper, lower) = (self.features, self.states);
        let size = Size { upper, lower, single: upper, blocks: 1, number: 8, bytes: 8.0 * numbers };
        self.file.is_empty().then_some(size)
    }

    fn closed_forms(&self) -> bool {
        true
    }
}

/// `kind = "quadratic"`: quadratic levels with random matrices and a closed form of the solution.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QuadraticKeys {
    /// Number of agents.
    agents: usize,
    /// Width of x.
    dim_x: usize,
    /// Width of y.
    dim_y: usize,
    /// Single agents' lower levels are not convex; their mean is.
    indefinite: bool,
}

impl Default for QuadraticKeys {
    fn default() -> Self {
        QuadraticKeys { agents: 10, dim_x: 3, dim_y: 4, indefinite: false }
    }
}

/// Sizes of a problem with one dense matrix for each agent.
fn dense(agents: usize, dim_x: usize, dim_y: usize) -> Size {
    let numbers = agents as f64 * 2.0 * ((dim_x + dim_y) as f64).powi(2);
    Size { upper: dim_x, lower: dim_y, single: dim_x, blocks: 1, number: 8, bytes: 8.0 * numbers }
}

impl Kind for QuadraticKeys {
    fn check(&self) -> Result<(), String> {
        size("agents", self.agents)?;
        size("dim_x", self.dim_x)?;
        size("dim_y", self.dim_y)
    }

    fn agents(&self, _folder: &Path) -> Result<usize> {
        Ok(self.agents)
    }

    fn build(&self, ask: &Ask<'_>) -> Result<Built> {
        ask.on_host("the quadratic problem")?;
        Ok(Built::new(Quadratic::random(self.agents, self.dim_x, self.dim_y, ask.seed, self.indefinite)))
    }

    fn size(&self, _folder: &Path) -> Option<Size> {
        Some(dense(self.agents, self.dim_x, self.dim_y))
    }

    fn closed_forms(&self) -> bool {
        true
    }
}

/// `kind = "robust"`: a robust fit above least squares, with upper level that is not convex.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RobustKeys {
    /// Number of agents.
    agents: usize,
    /// Width of x.
    dim_x: usize,
    /// Width of y.
    dim_y: usize,
    /// Where a run starts.
    start: StartAt,
}

impl Default for RobustKeys {
    fn default() -> Self {
        RobustKeys { agents: 10, dim_x: 3, dim_y: 6, start: StartAt::default() }
    }
}

impl Kind for RobustKeys {
    fn check(&self) -> Result<(), String> {
        size("agents", self.agents)?;
        size("dim_x", self.dim_x)?;
        size("dim_y", self.dim_y)
    }

    fn agents(&self, _folder: &Path) -> Result<usize> {
        Ok(self.agents)
    }

    fn build(&self, ask: &Ask<'_>) -> Result<Built> {
        ask.on_host("the robust fit")?;
        let problem = Robust::random(self.agents, self.dim_x, self.dim_y, ask.seed);
        Ok(Built::new(match self.start {
            StartAt::Zero => problem,
            StartAt::Warm => problem.warm(first_penalty(ask)),
        }))
    }

    fn size(&self, _folder: &Path) -> Option<Size> {
        Some(dense(self.agents, self.dim_x, self.dim_y))
    }

    fn closed_forms(&self) -> bool {
        true
    }
}

/// `kind = "waves"`: a lower level that is not convex.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WavesKeys {
    /// Number of agents.
    agents: usize,
    /// Width of x and of y.
    dim: usize,
}

impl Default for WavesKeys {
    fn default() -> Self {
        WavesKeys { agents: 10, dim: 4 }
    }
}

impl Kind for WavesKeys {
    fn check(&self) -> Result<(), String> {
        size("agents", self.agents)?;
        size("dim", self.dim)
    }

    fn agents(&self, _folder: &Path) -> Result<usize> {
        Ok(self.agents)
    }

    fn build(&self, ask: &Ask<'_>) -> Result<Built> {
        ask.on_host("waves")?;
        Ok(Built::new(Waves::random(self.agents, self.dim, ask.seed)))
    }

    fn size(&self, _folder: &Path) -> Option<Size> {
        let bytes = 16.0 * self.agents as f64 * self.dim as f64;
        Some(Size { upper: self.dim, lower: self.dim, single: self.dim, blocks: 1, number: 8, bytes })
    }
}
