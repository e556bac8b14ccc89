//! Policy evaluation (appendix C): fit a linear value function to the Bellman targets of many agents'
//! rewards.
//!
//! f_i(x,y) = f_weight/2 ‖Φx − y‖² + τ/2 ‖x‖² and g_i(x,y) = g_weight ‖y − r_i − γPΦx‖², so that everything
//! has a closed form.
use super::constants::{ClosedForms, Constants};
use super::{At, Bilevel, Metric, Penalty, Products, SecondOrder, SingleLevel, Start, Values};
use crate::error::Result;
use crate::kernels::{
    Block, Factors, LANES, PENALTY, SERIES, SOBA, SOBA_ONLY, Tables, add_transposed, directions, times,
};
use crate::rng::{Purpose, stream};
use crate::rows::{Rows, Stack, Upper};
use nalgebra::{DMatrix, DVector};
use rand::RngExt;
use rand_distr::StandardNormal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which reward the observation noise falls on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NoiseOn {
    /// On r(s, s'), so that the expectation over s' averages it: deviation omega·‖P_s‖ at state s.
    #[default]
    Transition,
    /// On the expected reward r(s) itself: deviation omega.
    State,
}

/// A policy-evaluation instance.
///
/// ```
/// use dibo::problem::{Bilevel, PolicyEvaluation};
///
/// let problem = PolicyEvaluation::random(10, 20, 5, 0).normalised();
/// assert_eq!((problem.agents(), problem.lower(), problem.features()), (10, 20, 5));
/// assert!(problem.relative_error(problem.solution()) < 1e-12);
/// ```
#[derive(Clone, Debug)]
pub struct PolicyEvaluation {
    models: Vec<Model>,
    /// The models as the kernel wants them.
    tables: Vec<Tables>,
    model_of: Vec<usize>,
    rewards: Rows<f64>,
    tau: f64,
    f_weight: f64,
    g_weight: f64,
    /// ‖P_s‖ for each state.
    norms: Vec<f64>,
    /// Deviation of the observed reward at each state.
    noise: Vec<f64>,
    seed: u64,
    start: Start,
    exact: Exact,
}

/// What a random instance looks like. The default is the paper's: ten agents, twenty states, five features, γ
/// = 0.9, τ = 0.1, features and rewards uniform on [0, 1], transitions row-normalised, one Φ and P for all
/// agents and rewards of each agent's own.
#[derive(Clone, Debug)]
pub struct Instance {
    /// Number of agents.
    pub agents: usize,
    /// Number of states.
    pub states: usize,
    /// Number of features.
    pub features: usize,
    /// Discount.
    pub gamma: f64,
    /// Regulariser.
    pub tau: f64,
    /// How many different feature matrices there are.
    pub feature_patterns: usize,
    /// How many different reward vectors there are; 0 for one per agent.
    pub reward_patterns: usize,
    /// Agent i has pattern ⌊i · count / agents⌋ instead of i mod count.
    pub blocks: bool,
}

impl Default for Instance {
    fn default() -> Self {
        Instance {
            agents: 10,
            states: 20,
            features: 5,
            gamma: 0.9,
            tau: 0.1,
            feature_patterns: 1,
            reward_patterns: 0,
            blocks: false,
        }
    }
}

impl Instance {
    /// Draws one; says what is wrong with the sizes.
    pub fn random(&self, seed: u64) -> Result<PolicyEvaluation, String> {
        let mut r = stream(seed, Purpose::Instance, 0, 0);
        let mut table = |rows: usize, columns: usize| -> Table {
            (0..rows).map(|_| (0..columns).map(|_| r.random()).collect()).collect()
        };
        let phi: Vec<Table> =
            (0..self.feature_patterns.max(1)).map(|_| table(self.states, self.features)).collect();
        let mut p = table(self.states, self.states);
        for row in &mut p {
            let sum: f64 = row.iter().sum();
            row.iter_mut().for_each(|v| *v /= sum);
        }
        let base =
            table(if self.reward_patterns == 0 { self.agents } else { self.reward_patterns }, self.states);
        let pick = |i: usize, count: usize| if self.blocks { i * count / self.agents } else { i % count };
        let features: Vec<&Table> = (0..self.agents).map(|i| &phi[pick(i, phi.len())]).collect();
        let rewards: Table = (0..self.agents).map(|i| base[pick(i, base.len())].clone()).collect();
        PolicyEvaluation::from_tables(&features, &p, &rewards, self.gamma, self.tau)
    }
}

/// Features of some agents: Φ and M = γPΦ, both states × features.
#[derive(Clone, Debug)]
struct Model {
    phi: DMatrix<f64>,
    m: DMatrix<f64>,
}

/// The single-level objective F*(x) = ½xᵀHx − bᵀx + c and its minimiser.
#[derive(Clone, Debug)]
struct Exact {
    h: DMatrix<f64>,
    b: DVector<f64>,
    c: f64,
    solution: DVector<f64>,
}

/// The expectation P over next states, as it is given: states × states, row by row.
type Table = Vec<Vec<f64>>;

impl PolicyEvaluation {
    /// The paper's random instance ([`Instance`]) of this size: f_weight = 1/|S| and g_weight = 1.
    pub fn random(agents: usize, states: usize, features: usize, seed: u64) -> Self {
        let instance = Instance { agents, states, features, ..Instance::default() };
        instance.random(seed).expect("random tables have the right shapes")
    }

    /// An explicit instance: features of each agent (states × features), transitions (states × states),
    /// rewards (agents × states).
    pub fn from_tables(
        features: &[&Table],
        transition: &Table,
        rewards: &Table,
        gamma: f64,
        tau: f64,
    ) -> Result<Self, String> {
        let (n, s) = (rewards.len(), transition.len());
        let d = features.first().and_then(|f| f.first()).map_or(0, |row| row.len());
        if n == 0 || s == 0 || d == 0 {
            return Err(format!("{n} agents, {s} states and {d} features; each must be 1 or more"));
        }
        let shape = |name: &str, t: &Table, rows: usize, columns: usize| match t.len() == rows
            && t.iter().all(|r| r.len() == columns)
        {
            true if t.iter().flatten().all(|v| v.is_finite()) => Ok(()),
            true => Err(format!("{name} holds a number that is not finite")),
            false => Err(format!("{name} must have {rows} rows of {columns} numbers")),
        };
        shape("transition", transition, s, s)?;
        shape("rewards", rewards, n, s)?;
        if let Some((i, row)) = transition
            .iter()
            .enumerate()
            .find(|(_, r)| (r.iter().sum::<f64>() - 1.0).abs() > 1e-9 || r.iter().any(|p| *p < 0.0))
        {
            return Err(format!(
                "transition row {i} sums to {}; each row must be probabilities that sum to 1",
                row.iter().sum::<f64>()
            ));
        }
        if !((0.0..=1.0).contains(&gamma) && tau >= 0.0 && tau.is_finite()) {
            return Err(format!(
                "gamma is {gamma} and tau is {tau}; gamma must lie in [0, 1] and tau be 0 or more"
            ));
        }
        let p = DMatrix::from_fn(s, s, |i, j| transition[i][j]);
        let (mut models, mut seen, mut model_of) = (Vec::new(), Vec::<&Table>::new(), Vec::new());
        if features.len() != n && features.len() != 1 {
            return Err(format!("features are given for {} agents; 1 or {n} are needed", features.len()));
        }
        for i in 0..n {
            let table = features[i.min(features.len() - 1)];
            let at = seen.iter().position(|t| std::ptr::eq(*t, table)).unwrap_or_else(|| {
                seen.push(table);
                seen.len() - 1
            });
            if at == models.len() {
                shape("features", table, s, d)?;
                let phi = DMatrix::from_fn(s, d, |i, j| table[i][j]);
                let m = gamma * &p * &phi;
                models.push(Model { phi, m });
            }
            model_of.push(at);
        }
        let mut problem = PolicyEvaluation {
            tables: models.iter().map(|l: &Model| Tables::new(s, l.phi.as_slice(), l.m.as_slice())).collect(),
            models,
            model_of,
            rewards: Rows::from_vectors(rewards),
            tau,
            f_weight: 1.0 / s as f64,
            g_weight: 1.0,
            noise: vec![0.0; s],
            norms: transition.iter().map(|row| row.iter().map(|p| p * p).sum::<f64>().sqrt()).collect(),
            seed: 0,
            start: Start::default(),
            exact: Exact {
                h: DMatrix::zeros(d, d),
                b: DVector::zeros(d),
                c: 0.0,
                solution: DVector::zeros(d),
            },
        };
        problem.solve()?;
        Ok(problem)
    }

    /// The reading that reproduces the paper's table: f_weight = 1, g_weight = ½ (to be used with the
    /// normalised penalty).
    pub fn normalised(self) -> Self {
        self.weights(1.0, 0.5)
    }

    /// Other factors of ½‖Φx − y‖² in f and of ‖y − r − γPΦx‖² in g; panics where
    /// [`try_weights`](Self::try_weights) has an error.
    pub fn weights(self, f_weight: f64, g_weight: f64) -> Self {
        self.try_weights(f_weight, g_weight).expect("weights of ordinary size")
    }

    /// Other factors of ½‖Φx − y‖² in f and of ‖y − r − γPΦx‖² in g. Weights so large or so small that the
    /// objective overflows or is no longer strongly convex are an error.
    pub fn try_weights(mut self, f_weight: f64, g_weight: f64) -> Result<Self, String> {
        (self.f_weight, self.g_weight) = (f_weight, g_weight);
        self.solve().map_err(|e| format!("f_weight is {f_weight}: {e}"))?;
        Ok(self)
    }

    /// Another regulariser.
    pub fn tau(mut self, tau: f64) -> Result<Self, String> {
        self.tau = tau;
        self.solve()?;
        Ok(self)
    }

    /// Observation noise: the same draw for x, y and z of one agent and iteration.
    pub fn noise(mut self, omega: f64, on: NoiseOn, seed: u64) -> Self {
        self.seed = seed;
        self.noise = match on {
            NoiseOn::State => vec![omega; self.states()],
            NoiseOn::Transition => self.norms.iter().map(|norm| omega * norm).collect(),
        };
        self
    }

    /// From x = 0 with y and z at their solutions there, as the rate's theorem asks ([`Start::warm`]), for
    /// the weights that the problem has now.
    pub fn warm(mut self, lambda: Option<f64>) -> Self {
        self.start = Start::warm(&self, vec![0.0; self.features()], lambda);
        self
    }

    /// Number of states.
    pub fn states(&self) -> usize {
        self.rewards.width()
    }

    /// Number of features.
    pub fn features(&self) -> usize {
        self.models[0].phi.ncols()
    }

    /// x*, the minimiser of F(x, y*(x)).
    pub fn solution(&self) -> &[f64] {
        self.exact.solution.as_slice()
    }

    /// ‖x − x*‖ / ‖x*‖.
    pub fn relative_error(&self, x: &[f64]) -> f64 {
        let e: f64 = x.iter().zip(self.solution()).map(|(a, b)| (a - b) * (a - b)).sum();
        (e / self.exact.solution.norm_squared()).sqrt()
    }

    /// F(x, y*(x)).
    pub fn objective(&self, x: &[f64]) -> f64 {
        let x = DVector::from_column_slice(x);
        0.5 * x.dot(&(&self.exact.h * &x)) - self.exact.b.dot(&x) + self.exact.c
    }

    /// ∇F(x, y*(x)), exactly.
    pub fn hypergradient(&self, x: &[f64]) -> Vec<f64> {
        (&self.exact.h * DVector::from_column_slice(x) - &self.exact.b).as_slice().to_vec()
    }

    /// The largest singular value of M = γPΦ (of the mean M if agents differ): what the steps' instability
    /// condition needs.
    pub fn sigma_max(&self) -> f64 {
        self.mean(|i| self.models[self.model_of[i]].m.clone()).singular_values().max()
    }

    /// The largest eigenvalue of F*'s Hessian.
    pub fn largest_curvature(&self) -> f64 {
        self.exact.h.clone().symmetric_eigenvalues().max()
    }

    /// g's strong-convexity and smoothness constant in y.
    pub fn g_curvature(&self) -> f64 {
        2.0 * self.g_weight
    }

    /// x_λ, the fixed point of FAB with penalty λ: the minimiser over x of min_y f + λ(g − min_z g).
    pub fn penalty_solution(&self, lambda: f64) -> Vec<f64> {
        let (r, m) = (self.mean_reward(), self.mean(|i| self.models[self.model_of[i]].m.clone()));
        let phi = self.mean(|i| self.models[self.model_of[i]].phi.clone());
        let phi2 = self.mean(|i| {
            let phi = &self.models[self.model_of[i]].phi;
            phi.transpose() * phi
        });
        let (f, g) = (self.f_weight, 2.0 * lambda * self.g_weight);
        // y_λ = (f Φ̄x + g(r̄ + M̄x)) / (f + g); the gradient in x is f·mean Φᵀ(Φx − y_λ) + τx − g M̄ᵀ(y_λ −
        // r̄ − M̄x).
        let (y1, y0) = ((&phi * f + &m * g) / (f + g), &r * (g / (f + g)));
        let h = &phi2 * f - phi.transpose() * &y1 * f
            + DMatrix::identity(self.features(), self.features()) * self.tau
            - m.transpose() * (&y1 - &m) * g;
        let b = phi.transpose() * &y0 * f + m.transpose() * (&y0 - &r) * g;
        h.lu().solve(&b).expect("positive definite like F*").as_slice().to_vec()
    }

    fn mean_reward(&self) -> DVector<f64> {
        DVector::from_vec(self.rewards.mean())
    }

    fn mean(&self, of: impl Fn(usize) -> DMatrix<f64>) -> DMatrix<f64> {
        let n = self.model_of.len();
        (1..n).fold(of(0), |sum, i| sum + of(i)) / n as f64
    }

    /// y*(x) = r̄ + M̄x, hence F*(x) = f_weight/2 · mean ‖(Φ_i − M̄)x − r̄‖² + τ/2 ‖x‖².
    fn solve(&mut self) -> Result<(), String> {
        let (r, m, d) =
            (self.mean_reward(), self.mean(|i| self.models[self.model_of[i]].m.clone()), self.features());
        let residual = |i: usize| &self.models[self.model_of[i]].phi - &m;
        let h = self.mean(|i| residual(i).transpose() * residual(i)) * self.f_weight
            + DMatrix::identity(d, d) * self.tau;
        let b = self.mean(residual).transpose() * &r * self.f_weight;
        let solution = h.clone().cholesky().map(|c| c.solve(&b));
        let solution = solution.ok_or("the objective is not strongly convex: tau must be above 0")?;
        self.exact = Exact { c: 0.5 * self.f_weight * r.norm_squared(), h, b, solution };
        Ok(())
    }

    /// Rewards of one agent with the noise of iteration `k`.
    fn observed<'a>(&'a self, agent: usize, k: usize, buffer: &'a mut Buffer) -> &'a [f64] {
        let rewards = self.rewards.row(agent);
        if self.noise[0] == 0.0 {
            return rewards;
        }
        let mut r = stream(self.seed, Purpose::Noise, agent as u64, k as u64);
        let out = buffer.of(rewards.len());
        for ((o, r0), deviation) in out.iter_mut().zip(rewards).zip(&self.noise) {
            *o = r0 + deviation * r.sample::<f64, _>(StandardNormal);
        }
        out
    }
}

impl PolicyEvaluation {
    /// These rows of these agents, for the kernel.
    fn block<'a>(
        &'a self,
        c: Factors,
        owned: &'a [usize],
        noisy: Option<&'a [f64]>,
        stride: usize,
        v: &'a [f64],
        d: &'a mut [f64],
    ) -> Block<'a> {
        let rewards = (self.rewards.data(), self.rewards.stride());
        Block { tables: &self.tables, table_of: &self.model_of, rewards, c, owned, noisy, stride, v, d }
    }
}

impl PolicyEvaluation {
    /// The directions of all owned agents, by the kernel.
    fn fused(&self, at: At<'_>, c: Factors, v: &Stack<f64, 3>, d: &mut Stack<f64, 3>) {
        let (stride, v) = (v.shared.stride(), v.shared.data());
        d.shared.for_each_part(at.threads, 128, |rows, d| {
            let (owned, v) = (&at.owned[rows.clone()], &v[rows.start * stride..rows.end * stride]);
            if self.noise[0] == 0.0 {
                return directions(self.block(c, owned, None, stride, v, d));
            }
            for ((owned, v), d) in owned.chunks(1).zip(v.chunks_exact(stride)).zip(d.chunks_exact_mut(stride))
            {
                let mut buffer = Buffer::new();
                let noisy = Some(self.observed(owned[0], at.k, &mut buffer));
                directions(self.block(c, owned, noisy, stride, v, d));
            }
        });
    }
}

/// Numbers on the stack for the usual sizes, on the heap beyond.
struct Buffer {
    small: [f64; 64],
    large: Vec<f64>,
}

impl Buffer {
    fn new() -> Self {
        Buffer { small: [0.0; 64], large: Vec::new() }
    }

    fn of(&mut self, len: usize) -> &mut [f64] {
        if len <= self.small.len() {
            return &mut self.small[..len];
        }
        self.large.resize(len, 0.0);
        &mut self.large
    }
}

impl Bilevel<f64> for PolicyEvaluation {
    fn agents(&self) -> usize {
        self.model_of.len()
    }

    fn upper(&self) -> Upper {
        Upper::Shared(self.features())
    }

    fn start(&self) -> Start {
        self.start.clone()
    }

    fn lower(&self) -> usize {
        self.states()
    }

    fn grad_f(
        &self,
        agent: usize,
        _k: usize,
        x: &[f64],
        y: &[f64],
        gx: &mut [f64],
        gy: &mut [f64],
    ) -> Result<()> {
        let phi = self.models[self.model_of[agent]].phi.as_slice();
        gx.iter_mut().zip(x).for_each(|(g, x)| *g = self.tau * x);
        times(phi, x, gy);
        gy.iter_mut().zip(y).for_each(|(e, y)| *e = self.f_weight * (*e - y));
        add_transposed(phi, gy, 1.0, gx);
        gy.iter_mut().for_each(|e| *e = -*e);
        Ok(())
    }

    fn grad_g(
        &self,
        agent: usize,
        k: usize,
        x: &[f64],
        y: &[f64],
        gx: &mut [f64],
        gy: &mut [f64],
    ) -> Result<()> {
        let m = self.models[self.model_of[agent]].m.as_slice();
        let mut buffer = Buffer::new();
        let r = self.observed(agent, k, &mut buffer);
        let scale = 2.0 * self.g_weight;
        gx.fill(0.0);
        times(m, x, gy);
        gy.iter_mut().zip(y.iter().zip(r)).for_each(|(e, (y, r))| *e = scale * (y - r - *e));
        add_transposed(m, gy, -1.0, gx);
        Ok(())
    }

    fn penalty_directions(
        &self,
        at: At<'_>,
        penalty: Penalty,
        v: &Stack<f64, 3>,
        d: &mut Stack<f64, 3>,
    ) -> Result<()> {
        let c = Factors {
            f: penalty.f * self.f_weight,
            g: 2.0 * penalty.g * self.g_weight,
            tau: penalty.f * self.tau,
            series: 0.0,
            wanted: PENALTY,
        };
        if self.states() < LANES {
            return super::penalty_directions_by_agent(self, at, penalty, v, d);
        }
        self.fused(at, c, v, d);
        Ok(())
    }

    /// g is quadratic, so a difference of its gradients is the product; its curvature is the same in all
    /// directions, so a series of products is a number.
    fn soba_directions(
        &self,
        at: At<'_>,
        by: Products,
        only: Option<usize>,
        v: &Stack<f64, 3>,
        d: &mut Stack<f64, 3>,
    ) -> Result<bool> {
        let (g, mut series, mut wanted) = (self.g_curvature(), 0.0, SOBA);
        let mut fits = self.states() >= LANES;
        if let Products::Series { curvature, terms } = by {
            (0..terms).fold(1.0 / curvature, |term, _| {
                series += term;
                term - term * g / curvature
            });
            (fits, wanted) = (fits && only.is_none(), SERIES);
        } else if let Some(variable) = only {
            wanted = SOBA_ONLY[variable];
        }
        let c = Factors { f: self.f_weight, g, tau: self.tau, series, wanted };
        if fits {
            self.fused(at, c, v, d);
        }
        Ok(fits)
    }

    fn second_order(&self) -> Option<&dyn SecondOrder<f64>> {
        Some(self)
    }

    fn single_level(&self) -> Option<&dyn SingleLevel<f64>> {
        Some(self)
    }

    fn constants(&self) -> Option<Constants> {
        let largest = |of: &dyn Fn(&Model) -> f64| self.models.iter().map(of).fold(0.0, f64::max);
        let m = self.mean(|i| self.models[self.model_of[i]].m.clone());
        // f's Hessian on a pair of singular vectors of Φ: f_weight [[σ², −σ], [−σ, 1]] + τ on x alone.
        let f_curvature = |sigma: f64| {
            let (xx, xy, yy) =
                (self.f_weight * sigma * sigma + self.tau, self.f_weight * sigma, self.f_weight);
            0.5 * (xx + yy) + (0.25 * (xx - yy) * (xx - yy) + xy * xy).sqrt()
        };
        let (best, r) = (&self.exact.solution, self.mean_reward());
        // ∇ᵧf_i at (x, y*(x)) is affine in x: its value at x* and its derivative bound it on the ball.
        let steepest = |l: &Model| {
            let residual = &l.phi - &m;
            self.f_weight * ((&residual * best - &r).norm() + residual.singular_values().max() * best.norm())
        };
        let kind = |i: usize| {
            (0..i)
                .find(|j| {
                    self.model_of[*j] == self.model_of[i] && self.rewards.row(*j) == self.rewards.row(i)
                })
                .unwrap_or(i)
        };
        // With noise every agent is one of its own.
        let kinds =
            (0..self.model_of.len()).map(|i| if self.noise[0] == 0.0 { kind(i) } else { i }).collect();
        Some(Constants {
            mu: 2.0 * self.g_weight,
            l_f0: largest(&steepest),
            l_f1: largest(&|l| f_curvature(l.phi.singular_values().max())),
            l_f2: 0.0,
            l_g1: largest(&|l| 2.0 * self.g_weight * (1.0 + l.m.singular_values().max().powi(2))),
            l_g2: 0.0,
            g_curvature: self.g_curvature(),
            sigma_max: Some(m.singular_values().max()),
            l_single: Some(largest(&|l| {
                self.f_weight * (&l.phi - &l.m).singular_values().max().powi(2) + self.tau
            })),
            exact: true,
            region: "L_f0 for ‖x − x*‖ ≤ ‖x*‖ and y = y*(x), the others everywhere",
            kinds,
        })
    }

    fn closed_forms(&self) -> Option<&dyn ClosedForms> {
        Some(self)
    }

    fn measures(&self) -> Vec<Metric> {
        vec![
            Metric::lower("relative_error", "relative error"),
            Metric::lower("objective", "objective F*"),
            Metric::lower("hypergradient", "norm of the hypergradient"),
        ]
    }

    fn metrics(&self, x: &[f64], _y: Option<&[f64]>) -> Result<Values> {
        let gradient = self.hypergradient(x).iter().map(|g| g * g).sum::<f64>().sqrt();
        Ok(vec![
            ("relative_error", self.relative_error(x)),
            ("objective", self.objective(x)),
            ("hypergradient", gradient),
        ])
    }
}

impl ClosedForms for PolicyEvaluation {
    fn lower_solution(&self, x: &[f64]) -> Vec<f64> {
        let m = self.mean(|i| self.models[self.model_of[i]].m.clone());
        (m * DVector::from_column_slice(x) + self.mean_reward()).as_slice().to_vec()
    }

    fn penalty_lower_solution(&self, x: &[f64], lambda: f64) -> Vec<f64> {
        let (f, g) = (self.f_weight, 2.0 * lambda * self.g_weight);
        let phi = self.mean(|i| self.models[self.model_of[i]].phi.clone()) * DVector::from_column_slice(x);
        let target = self.lower_solution(x);
        phi.iter().zip(&target).map(|(phi, y)| (f * phi + g * y) / (f + g)).collect()
    }

    fn values(&self, x: &[f64], y: &[f64]) -> (f64, f64) {
        let (x, y, n) = (DVector::from_column_slice(x), DVector::from_column_slice(y), self.model_of.len());
        let products: Vec<_> = self.models.iter().map(|l| (&l.phi * &x, &l.m * &x)).collect();
        let (mut f, mut g) = (0.0, 0.0);
        for i in 0..n {
            let (phi, m) = &products[self.model_of[i]];
            f += 0.5 * self.f_weight * (phi - &y).norm_squared();
            g += self.g_weight * (&y - m - DVector::from_column_slice(self.rewards.row(i))).norm_squared();
        }
        (f / n as f64 + 0.5 * self.tau * x.norm_squared(), g / n as f64)
    }

    fn hypergradient(&self, x: &[f64]) -> Vec<f64> {
        PolicyEvaluation::hypergradient(self, x)
    }
}

impl SecondOrder<f64> for PolicyEvaluation {
    fn yy(&self, _agent: usize, _k: usize, _x: &[f64], _y: &[f64], v: &[f64], out: &mut [f64]) -> Result<()> {
        out.iter_mut().zip(v).for_each(|(o, v)| *o = 2.0 * self.g_weight * v);
        Ok(())
    }

    fn xy(&self, agent: usize, _k: usize, _x: &[f64], _y: &[f64], v: &[f64], out: &mut [f64]) -> Result<()> {
        out.fill(0.0);
        add_transposed(self.models[self.model_of[agent]].m.as_slice(), v, 1.0, out);
        out.iter_mut().for_each(|o| *o *= -2.0 * self.g_weight);
        Ok(())
    }
}

impl SingleLevel<f64> for PolicyEvaluation {
    fn agents(&self) -> usize {
        self.model_of.len()
    }

    fn width(&self) -> usize {
        self.features()
    }

    /// F_i(x) = f_weight/2 ‖(Φ − γPΦ)x − r_i‖² + τ/2 ‖x‖².
    fn gradients(&self, at: At<'_>, x: &Stack<f64, 1>, d: &mut Stack<f64, 1>) -> Result<()> {
        d.for_each_row(at.threads, 128, |_, row, [d]| {
            let (agent, [x]) = (at.owned[row], x.row(row));
            let Model { phi, m, .. } = &self.models[self.model_of[agent]];
            let mut buffer = Buffer::new();
            let r = self.observed(agent, at.k, &mut buffer);
            d.iter_mut().zip(x).for_each(|(d, x)| *d = self.tau * x);
            for s in 0..r.len() {
                let e = self.f_weight
                    * ((0..x.len()).map(|q| (phi[(s, q)] - m[(s, q)]) * x[q]).sum::<f64>() - r[s]);
                (0..x.len()).for_each(|q| d[q] += e * (phi[(s, q)] - m[(s, q)]));
            }
        });
        Ok(())
    }

    fn value(&self, x: &[f64]) -> Option<f64> {
        let x = DVector::from_column_slice(x);
        let one = |i: usize| {
            let Model { phi, m, .. } = &self.models[self.model_of[i]];
            ((phi - m) * &x - DVector::from_column_slice(self.rewards.row(i))).norm_squared()
        };
        let n = self.model_of.len();
        Some(
            0.5 * self.f_weight * (0..n).map(one).sum::<f64>() / n as f64 + 0.5 * self.tau * x.norm_squared(),
        )
    }
}
