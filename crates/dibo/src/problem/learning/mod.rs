//! Learning problems on images (appendix C): cleaning wrong labels, and tuning a regulariser.
//!
//! *Cleaning*: f_i is the mean cross-entropy of y on the agent's validation samples; g_i the mean of σ(ψ_j) ·
//! cross-entropy on its training samples plus τ/2 ‖y‖². The upper variable is ψ_i, one number for each
//! training sample of agent i, which no other agent sees.
//! *Tuning*: f_i as before; g_i the mean cross-entropy on the training samples plus τ ‖y‖² (not τ/2), and the
//! upper variable is τ.
//!
//! *Batches* are a pure function of (seed, agent, k): an agent's samples are shuffled once; with batches of
//! size b, iteration k of a bilevel method takes b of them from place k·b on, around the end, so that all are
//! seen equally often. A single-level method takes block k mod [`blocks`](SingleLevel::blocks), as many as
//! the largest agent needs; smaller agents begin anew. An agent with no more than b samples uses all of them.
//! y, z and the upper variable see the same batch.
pub mod bert;
pub mod labels;
mod metrics;
mod model;
mod products;

pub use crate::kernels::{Matrix, product};
pub use bert::Bert;
pub use labels::{Labels, Site, Way};
pub use metrics::{Cleaning, TRIED};
pub use model::{Model, Net};

use super::{At, Bilevel, Metric, Penalty, SecondOrder, SingleLevel, Start, Values};
use crate::data::{Dealt, Hand, Scaling};
use crate::error::Result;
use crate::kernels::{add_scaled, norm_squared};
use crate::rng::{Purpose, stream};
use crate::rows::{Real, Stack, Threads, Upper, View};
use model::{Scratch, pieces};
use rand::seq::SliceRandom;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// What the upper level decides.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Task {
    /// The weight σ(ψ_j) of every training sample.
    Cleaning {
        /// Regulariser τ of τ/2 ‖·‖².
        tau: f64,
        /// Where every ψ_j starts; 0 is weight ½.
        #[serde(default)]
        psi: f64,
    },
    /// The regulariser τ of τ ‖·‖².
    Tuning {
        /// How τ comes from x.
        #[serde(default)]
        form: TauForm,
        /// Where τ starts; above 0 for `exp` and `softplus`.
        tau: f64,
    },
}

/// How the regulariser τ comes from the upper variable x.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TauForm {
    /// τ = x, which may become negative.
    #[default]
    Plain,
    /// τ = max(x, 0), with derivative 1; where x < 0 an agent's direction never lowers x further.
    Projected,
    /// τ = eˣ.
    Exp,
    /// τ = ln(1 + eˣ).
    Softplus,
}

impl TauForm {
    /// τ(x) and its derivative.
    pub fn tau(self, x: f64) -> (f64, f64) {
        match self {
            TauForm::Plain => (x, 1.0),
            TauForm::Projected => (x.max(0.0), 1.0),
            TauForm::Exp => (x.exp(), x.exp()),
            TauForm::Softplus => (x.max(0.0) + (-x.abs()).exp().ln_1p(), sigmoid(x)),
        }
    }

    /// The x that gives this τ.
    fn inverse(self, tau: f64) -> f64 {
        match self {
            TauForm::Plain | TauForm::Projected => tau,
            TauForm::Exp => tau.ln(),
            TauForm::Softplus => tau + (-(-tau).exp_m1()).ln(),
        }
    }
}

/// 1/(1 + e^−x).
pub(crate) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// What a single-level method trains on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TrainOn {
    /// Training samples with the labels as given, and validation samples.
    #[default]
    Both,
    /// Validation samples alone.
    Validation,
}

/// A learning problem on dealt data.
pub struct Learning<T> {
    dealt: Arc<Dealt>,
    net: Net,
    task: Task,
    batch: Option<usize>,
    train_on: TrainOn,
    baseline_tau: f64,
    seed: u64,
    scale: Vec<T>,
    shift: Vec<T>,
    orders: Vec<Order>,
    pool: Mutex<Vec<Scratch<T>>>,
    threads: Threads,
    /// Where all agents' models start, if somewhere particular.
    begin: Option<Vec<f64>>,
}

/// One agent's samples in the order of its batches. A place below the number of training samples is a
/// training sample, the rest are validation samples.
struct Order {
    train: Vec<u32>,
    validation: Vec<u32>,
    both: Vec<u32>,
}

/// Some places of one agent's data, each with its factor in the loss.
struct Batch<'a> {
    places: &'a [u32],
    from: usize,
    len: usize,
}

impl Batch<'_> {
    fn place(&self, j: usize) -> usize {
        let at = self.from + j;
        self.places[if at < self.places.len() { at } else { at - self.places.len() }] as usize
    }

    fn all(&self) -> Vec<usize> {
        (0..self.len).map(|j| self.place(j)).collect()
    }
}

impl<T: Real> Learning<T> {
    /// A problem with full batches. Pixels are scaled by what the agents' training samples say. `seed` is
    /// that of the start and the batches.
    pub fn new(
        dealt: Arc<Dealt>,
        model: Model,
        task: Task,
        scaling: Scaling,
        seed: u64,
    ) -> Result<Self, String> {
        let tau = match task {
            Task::Cleaning { tau, psi } if tau >= 0.0 && tau.is_finite() && psi.is_finite() => tau,
            Task::Cleaning { tau, psi } => {
                return Err(format!("tau is {tau} and psi is {psi}; tau must be 0 or more and both finite"));
            }
            Task::Tuning { form, tau } if form.inverse(tau).is_finite() => tau,
            Task::Tuning { tau, .. } => {
                return Err(format!(
                    "tau starts at {tau}; it must be finite, and above 0 for exp and softplus"
                ));
            }
        };
        if let Model::Bert(bert) = &model {
            bert.check()?;
            let (bytes, most) = (dealt.data.pixels(), 2 * bert.positions);
            if bytes % 2 != 0 || bytes > most {
                return Err(format!(
                    "texts of {} tokens; the model takes {} at most",
                    bytes / 2,
                    bert.positions
                ));
            }
        }
        if model == Model::Mlp(0) {
            return Err("an MLP needs 1 hidden unit or more".into());
        }
        if dealt.hands.iter().any(|h| h.train.is_empty() || h.validation.is_empty()) || dealt.hands.is_empty()
        {
            return Err("every agent needs a training and a validation sample".into());
        }
        let fit = scaling.fit(&dealt.data, dealt.hands.iter().flat_map(|h| h.train.iter().copied()));
        let order = |hand: &Hand| {
            let (n, all) = (hand.train.len() as u32, (hand.train.len() + hand.validation.len()) as u32);
            Order { train: (0..n).collect(), validation: (n..all).collect(), both: (0..all).collect() }
        };
        Ok(Learning {
            net: Net { pixels: dealt.data.pixels(), classes: dealt.data.classes(), model },
            task,
            batch: None,
            train_on: TrainOn::Both,
            baseline_tau: tau,
            seed,
            scale: fit.iter().map(|f| T::of(f.0)).collect(),
            shift: fit.iter().map(|f| T::of(f.1)).collect(),
            orders: dealt.hands.iter().map(order).collect(),
            pool: Mutex::new(Vec::new()),
            threads: Threads::one(),
            begin: None,
            dealt,
        })
    }

    /// Batches of this size (1 or more) instead of full ones.
    pub fn batch(mut self, size: usize) -> Self {
        self.batch = Some(size.max(1));
        // Full batches keep the order of the data, which is the fastest to read.
        for (agent, order) in self.orders.iter_mut().enumerate() {
            for (which, places) in
                [&mut order.train, &mut order.validation, &mut order.both].into_iter().enumerate()
            {
                places.sort_unstable();
                places.shuffle(&mut stream(self.seed, Purpose::Batch, agent as u64, which as u64));
            }
        }
        self
    }

    /// What single-level methods minimise: the mean cross-entropy on these samples plus the task's
    /// regulariser with this τ.
    pub fn baseline(mut self, on: TrainOn, tau: f64) -> Self {
        (self.train_on, self.baseline_tau) = (on, tau);
        self
    }

    /// All agents' models start here, such as a pretrained one; its length must be the model's.
    pub fn begin_at(mut self, parameters: Vec<f64>) -> Result<Self, String> {
        if parameters.len() != self.net.width() {
            return Err(format!("{} parameters for a model of {}", parameters.len(), self.net.width()));
        }
        self.begin = Some(parameters);
        Ok(self)
    }

    /// Threads for the metrics (gradients use those of the call).
    pub fn threads(mut self, threads: Threads) -> Self {
        self.threads = threads;
        self
    }

    /// The classifier.
    pub fn net(&self) -> &Net {
        &self.net
    }

    /// The data and who has what.
    pub fn dealt(&self) -> &Dealt {
        &self.dealt
    }

    /// The same, to keep.
    pub fn shared_dealt(&self) -> Arc<Dealt> {
        self.dealt.clone()
    }

    /// Iterations in which an average agent sees its training samples once.
    pub fn epoch(&self) -> usize {
        let mean = self.dealt.hands.iter().map(|h| h.train.len()).sum::<usize>() / self.dealt.hands.len();
        self.batch.map_or(1, |b| (mean / b).max(1))
    }

    /// The places of iteration k that the bilevel methods use, or those of a block.
    fn window<'a>(&self, places: &'a [u32], step: usize) -> Batch<'a> {
        match self.batch {
            Some(b) if b < places.len() => {
                Batch { places, from: ((step as u128 * b as u128) % places.len() as u128) as usize, len: b }
            }
            _ => Batch { places, from: 0, len: places.len() },
        }
    }

    /// Calls `job` with a scratch that no one else uses; there are as many as threads have met here.
    fn with_scratch<R>(&self, job: impl FnOnce(&mut Scratch<T>) -> R) -> R {
        let most =
            self.dealt.hands.iter().map(|h| h.train.len() + h.validation.len()).max().unwrap_or(1).max(64);
        let taken = self.pool.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut scratch = taken.unwrap_or_else(|| self.net.scratch(self.batch.map_or(most, |b| 2 * b)));
        let result = job(&mut scratch);
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
        result
    }

    /// What the upper level decides.
    pub fn task(&self) -> Task {
        self.task
    }

    /// The numbers (a, b) of each pixel, which enters as a·byte + b.
    pub fn scaling(&self) -> (&[T], &[T]) {
        (&self.scale, &self.shift)
    }

    /// The factor of the model in the gradient of a single-level method's regulariser.
    pub fn baseline_weight_decay(&self) -> f64 {
        match self.task {
            Task::Cleaning { .. } => self.baseline_tau,
            Task::Tuning { .. } => 2.0 * self.baseline_tau,
        }
    }

    /// The places that a bilevel method uses in iteration k: of training, and of validation.
    pub fn bilevel_batch(&self, agent: usize, k: usize) -> [Vec<usize>; 2] {
        let order = &self.orders[agent];
        [&order.train, &order.validation].map(|places| self.window(places, k).all())
    }

    /// The places that a single-level method uses in iteration k.
    pub fn single_batch(&self, agent: usize, k: usize) -> Vec<usize> {
        self.window(self.places(&self.orders[agent]), k % SingleLevel::blocks(self)).all()
    }

    /// The number in the data set and the label of one of an agent's places (training samples first, then
    /// those of validation).
    pub fn sample(&self, agent: usize, place: usize) -> (usize, u8) {
        let hand = &self.dealt.hands[agent];
        match place.checked_sub(hand.train.len()) {
            None => (hand.train[place] as usize, hand.given[place]),
            Some(v) => (hand.validation[v] as usize, self.dealt.data.labels()[hand.validation[v] as usize]),
        }
    }

    /// Puts samples into the rows of the scratch: those of `place(piece.start), …`, each with its factor.
    fn load(
        &self,
        s: &mut Scratch<T>,
        agent: usize,
        piece: Range<usize>,
        place: impl Fn(usize) -> usize,
        weight: impl Fn(usize) -> f64,
    ) {
        for (r, j) in piece.enumerate() {
            let (sample, label) = self.sample(agent, place(j));
            self.net.load(s, r, self.dealt.data.image(sample), &self.scale, &self.shift);
            (s.labels[r], s.weights[r]) = (label, weight(j));
        }
    }

    /// Writes the gradient of Σ weight(place) · cross-entropy over a batch; `after` sees each place with its
    /// cross-entropy.
    fn gradient(
        &self,
        agent: usize,
        batch: Batch<'_>,
        weight: impl Fn(usize) -> f64,
        w: &[T],
        g: &mut [T],
        mut after: impl FnMut(usize, f64),
    ) {
        self.with_scratch(|s| {
            for piece in pieces(batch.len, s.rows()) {
                self.load(s, agent, piece.clone(), |j| batch.place(j), |j| weight(batch.place(j)));
                self.net.forward(s, piece.len(), w);
                self.net.entropy(s, piece.len());
                self.net.backward(s, piece.len(), w, g, piece.start > 0);
                piece.clone().enumerate().for_each(|(r, j)| after(batch.place(j), s.losses[r]));
            }
        });
    }

    /// The factor of w in the regulariser's gradient.
    fn weight_decay(&self, x: &[T]) -> f64 {
        match self.task {
            Task::Cleaning { tau, .. } => tau,
            Task::Tuning { form, .. } => 2.0 * form.tau(x[0].f64()).0,
        }
    }

    /// The factor of a training sample's loss: its weight, which is 1 in tuning.
    fn weight(&self, x: &[T], place: usize) -> f64 {
        match self.task {
            Task::Cleaning { .. } => sigmoid(x[place].f64()),
            Task::Tuning { .. } => 1.0,
        }
    }

    /// One agent's directions: y runs over [training; validation] rows at once, z over the training rows
    /// among them.
    fn directions(
        &self,
        agent: usize,
        k: usize,
        penalty: Penalty,
        [x, y, z]: [&[T]; 3],
        [dx, dy, dz]: [&mut [T]; 3],
    ) {
        let Penalty { f, g } = penalty;
        let (train, validation) =
            (self.window(&self.orders[agent].train, k), self.window(&self.orders[agent].validation, k));
        let (f_each, g_each) = (f / validation.len as f64, g / train.len as f64);
        let cleaning = matches!(self.task, Task::Cleaning { .. });
        let weight_decay = T::of(g * self.weight_decay(x));
        dx.fill(T::ZERO);
        self.with_scratch(|s| {
            for piece in pieces(train.len + validation.len, s.rows()) {
                let (rows, again) = (piece.len(), piece.start > 0);
                let first = train.len.saturating_sub(piece.start).min(rows);
                let place =
                    |j: usize| if j < train.len { train.place(j) } else { validation.place(j - train.len) };
                let weight =
                    |j: usize| if j < train.len { g_each * self.weight(x, train.place(j)) } else { f_each };
                self.load(s, agent, piece.clone(), place, weight);
                self.net.forward(s, rows, y);
                self.net.entropy(s, rows);
                self.net.backward(s, rows, y, dy, again);
                // Here and not at the end, because y and dy are in cache now.
                if !again {
                    add_scaled(dy, weight_decay, y);
                }
                if first == 0 {
                    continue;
                }
                std::mem::swap(&mut s.losses, &mut s.others);
                self.net.forward(s, first, z);
                self.net.entropy(s, first);
                self.net.backward(s, first, z, dz, again);
                if !again {
                    add_scaled(dz, weight_decay, z);
                }
                if cleaning {
                    for r in 0..first {
                        let place = train.place(piece.start + r);
                        let weight = self.weight(x, place);
                        dx[place] = T::of(g_each * weight * (1.0 - weight) * (s.others[r] - s.losses[r]));
                    }
                }
            }
        });
        if let Task::Tuning { form, .. } = self.task {
            let d = g * form.tau(x[0].f64()).1 * (norm_squared(y) - norm_squared(z));
            dx[0] = T::of(if form == TauForm::Projected && x[0].f64() < 0.0 { d.min(0.0) } else { d });
        }
    }
}

impl<T: Real> Bilevel<T> for Learning<T> {
    fn agents(&self) -> usize {
        self.dealt.hands.len()
    }

    fn upper(&self) -> Upper {
        match self.task {
            Task::Cleaning { .. } => Upper::Private(self.dealt.hands.iter().map(|h| h.train.len()).collect()),
            Task::Tuning { .. } => Upper::Shared(1),
        }
    }

    fn lower(&self) -> usize {
        self.net.width()
    }

    fn grad_f(&self, agent: usize, k: usize, _x: &[T], y: &[T], gx: &mut [T], gy: &mut [T]) -> Result<()> {
        let batch = self.window(&self.orders[agent].validation, k);
        let each = 1.0 / batch.len as f64;
        gx.fill(T::ZERO);
        self.gradient(agent, batch, |_| each, y, gy, |_, _| {});
        Ok(())
    }

    fn grad_g(&self, agent: usize, k: usize, x: &[T], y: &[T], gx: &mut [T], gy: &mut [T]) -> Result<()> {
        let batch = self.window(&self.orders[agent].train, k);
        let each = 1.0 / batch.len as f64;
        gx.fill(T::ZERO);
        self.gradient(
            agent,
            batch,
            |place| each * self.weight(x, place),
            y,
            gy,
            |place, loss| {
                if let Task::Cleaning { .. } = self.task {
                    let weight = self.weight(x, place);
                    gx[place] = T::of(each * weight * (1.0 - weight) * loss);
                }
            },
        );
        if let Task::Tuning { form, .. } = self.task {
            gx[0] = T::of(form.tau(x[0].f64()).1 * norm_squared(y));
        }
        add_scaled(gy, T::of(self.weight_decay(x)), y);
        Ok(())
    }

    fn penalty_directions(
        &self,
        at: At<'_>,
        penalty: Penalty,
        v: &Stack<T, 3>,
        d: &mut Stack<T, 3>,
    ) -> Result<()> {
        d.for_each_row(at.threads, 1, |_, row, d| {
            self.directions(at.owned[row], at.k, penalty, v.row(row), d)
        });
        Ok(())
    }

    fn second_order(&self) -> Option<&dyn SecondOrder<T>> {
        Some(self)
    }

    fn single_level(&self) -> Option<&dyn SingleLevel<T>> {
        Some(self)
    }

    fn start(&self) -> Start {
        let x = match self.task {
            Task::Cleaning { psi, .. } if psi != 0.0 => {
                self.dealt.hands.iter().map(|h| vec![psi; h.train.len()]).collect()
            }
            Task::Tuning { form, tau } => vec![vec![form.inverse(tau)]],
            Task::Cleaning { .. } => Vec::new(),
        };
        let y = match self.net.model {
            // One row for all: as many copies as agents would be a third of the state.
            Model::Mlp(_) | Model::Bert(_) => {
                vec![self.begin.clone().unwrap_or_else(|| self.net.start(self.seed))]
            }
            _ => Vec::new(),
        };
        Start { x, y, ..Start::default() }
    }

    fn measures(&self) -> Vec<Metric> {
        metrics::list(&self.task)
    }

    fn state_metrics(&self, views: &[View<'_, T>]) -> Result<Values> {
        Ok(self.measure(views))
    }
}

macro_rules! shared {
    ($($t:ty),*) => {
        $(impl Learning<$t> {
            /// The problem behind its trait. All of it is compiled here, and not by the crate that asks.
            #[inline(never)]
            pub fn shared(self) -> Arc<dyn Bilevel<$t>> {
                Arc::new(self)
            }
        })*
    };
}
shared!(f32, f64);

impl<T: Real> SingleLevel<T> for Learning<T> {
    fn agents(&self) -> usize {
        self.dealt.hands.len()
    }

    fn width(&self) -> usize {
        self.net.width()
    }

    fn blocks(&self) -> usize {
        let most = self.orders.iter().map(|o| self.places(o).len()).max().unwrap_or(1);
        self.batch.map_or(1, |b| most.div_ceil(b))
    }

    fn start_from<'a>(&self, start: &'a Start) -> &'a Vec<Vec<f64>> {
        &start.y
    }

    fn gradients(&self, at: At<'_>, x: &Stack<T, 1>, d: &mut Stack<T, 1>) -> Result<()> {
        let blocks = self.blocks();
        let weight_decay = self.baseline_weight_decay();
        d.for_each_row(at.threads, 1, |_, row, [d]| {
            let (agent, [w]) = (at.owned[row], x.row(row));
            let batch = self.window(self.places(&self.orders[agent]), at.k % blocks);
            let each = 1.0 / batch.len as f64;
            self.gradient(agent, batch, |_| each, w, d, |_, _| {});
            add_scaled(d, T::of(weight_decay), w);
        });
        Ok(())
    }
}

impl<T> Learning<T> {
    fn places<'a>(&self, order: &'a Order) -> &'a [u32] {
        match self.train_on {
            TrainOn::Both => &order.both,
            TrainOn::Validation => &order.validation,
        }
    }
}

#[cfg(test)]
mod tests;
