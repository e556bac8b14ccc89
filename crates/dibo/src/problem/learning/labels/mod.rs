//! Wrong labels among few checked ones, where every agent keeps its own rows: the ways to train a common
//! model on them and to find the wrong ones.
//!
//! Agent i holds rows with *given* labels, some of them wrong, and few *checked* rows. With p the model's
//! probabilities, g a given label and T a noise matrix (T[c, g]: how often true class c is given as g):
//!
//! - the checked loss C(w) = mean of −log p(label) over all checked rows (`smoothing` spreads a part of the
//!   label over all classes);
//! - the given loss G(w) = mean of −log p(g) over all given rows, or with T: mean of −log Σ_c p(c) T[c, g].
//!
//! Both are means over the *rows* of all agents, so an agent counts by how many it has. The single-level ways
//! minimise C + G or a part of it; T is learned beside w, by the M-step of EM (its counts are averages over
//! all rows, C² numbers) or by gradient steps (jointly). The bilevel ways have f = C and g = G + τ/2 ‖y‖²;
//! the upper variable is T's logits, or one weight a given row as in the paper.
//!
//! For the first `warm` iterations no model knows T. *From checked rows*: models learn from them alone, and T
//! from what they say of given rows. *From given rows*: models learn the given labels as they are, and T from
//! what they say of checked rows, whose class is known: row c of T is the mean of p over those of class c
//! (gold loss correction, Hendrycks et al. 2018).
mod batch;
mod elsewhere;
mod measure;
mod site_classes;

use batch::{Asked, Loss, Seen};
pub use elsewhere::{Passes, Teller};
pub use measure::Verdict;

use super::model::{Model, Net, Scratch};
use super::sigmoid;
use crate::error::Result;
use crate::kernels::{add_scaled, norm_squared};
use crate::problem::{
    At, Bilevel, Metric, Penalty, SecondOrder, SingleLevel, Start, Values, difference_product,
};
use crate::rng::{Purpose, stream};
use crate::rows::{Real, Stack, Threads, Upper, View};
use rand::seq::SliceRandom;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex};

/// The rows of one agent: first those with given labels, then the checked ones, then the checked ones that no
/// training sees, which stop and choose.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Site {
    /// The numbers of all rows, as the model sees them.
    pub features: Vec<f32>,
    /// Their labels.
    pub labels: Vec<u8>,
    /// How many have given labels.
    pub given: usize,
    /// How many are checked and trained on.
    pub checked: usize,
    /// True labels of the given rows, where they are known: only metrics look at them. None where one is
    /// missing, [`Site::NOBODYS`] where it is a class that nobody gave.
    pub truth: Vec<Option<u16>>,
}

impl Site {
    /// A true label that is no class of the model: whatever was given instead is wrong.
    pub const NOBODYS: u16 = 256;

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.labels.len()
    }

    /// How many rows are held out.
    pub fn held(&self) -> usize {
        self.rows() - self.given - self.checked
    }
}

/// How the model learns, and from what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// From checked rows alone.
    CleanOnly,
    /// From all rows as they are labelled.
    Noisy,
    /// After a start on checked rows, from those and from the rows whose label the model agrees with now.
    Rounds,
    /// The same after a start on all rows.
    NoisyRounds,
    /// With the noise matrix that was found at the start from given and checked rows.
    Gold,
    /// With a noise matrix from the counts of what is probably true and what was given (EM).
    Em,
    /// The same with a noise matrix for each agent, from its own counts, which it keeps to itself.
    EmOwn,
    /// With a noise matrix learned by gradient steps beside the model.
    Joint,
    /// With a noise matrix as the upper variable.
    Bilevel,
    /// With a noise matrix for each agent as its own upper variable.
    BilevelOwn,
    /// With a weight for each given row as its agent's own upper variable, as in the paper.
    Weights,
    /// With a weight for each given label.
    ClassWeights,
    /// With a weight for all given rows of an agent, as its own upper variable.
    Trust,
    /// With the regulariser as the upper variable.
    Tau,
    /// With a regulariser for each group of features (a table's columns), of the weights that they enter by.
    TauColumns,
    /// With a regulariser for each class, of the weights that lead to it.
    TauClasses,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 16] = [
        Way::CleanOnly,
        Way::Noisy,
        Way::Rounds,
        Way::NoisyRounds,
        Way::Gold,
        Way::Em,
        Way::EmOwn,
        Way::Joint,
        Way::Bilevel,
        Way::BilevelOwn,
        Way::Weights,
        Way::ClassWeights,
        Way::Trust,
        Way::Tau,
        Way::TauColumns,
        Way::TauClasses,
    ];

    /// Whether it has an upper variable. ([`EmOwn`](Self::EmOwn)'s is private and moves by the M-step.)
    pub fn is_bilevel(self) -> bool {
        self.weighs() || matches!(self, Way::EmOwn | Way::Bilevel | Way::BilevelOwn)
    }

    /// Whether it begins with iterations in which nothing else is learned yet.
    pub fn waits(self) -> bool {
        !matches!(self, Way::CleanOnly | Way::Noisy)
    }

    /// Whether given rows count by weights that the upper level decides.
    pub fn weighs(self) -> bool {
        matches!(self, Way::Weights | Way::ClassWeights | Way::Trust) || self.regularises()
    }

    /// Whether regularisers are the upper variable.
    pub fn regularises(self) -> bool {
        matches!(self, Way::Tau | Way::TauColumns | Way::TauClasses)
    }

    /// Whether its matrix is made of counts; else of logits.
    fn counts(self) -> bool {
        matches!(self, Way::Gold | Way::Em | Way::EmOwn)
    }

    /// Whether it has a noise matrix.
    pub fn has_matrix(self) -> bool {
        matches!(self, Way::Gold | Way::Em | Way::EmOwn | Way::Joint | Way::Bilevel | Way::BilevelOwn)
    }
}

/// From which rows models learn before they know T.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum From {
    /// From checked rows.
    #[default]
    Checked,
    /// From given rows as they are labelled.
    Given,
}

/// Numbers of the problem that are not data.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Choices {
    /// Regulariser τ of τ/2 ‖w‖².
    pub tau: f64,
    /// Given rows in an agent's batch; 0 for all.
    pub batch: usize,
    /// Checked rows in an agent's batch; 0 for all.
    pub checked_batch: usize,
    /// Factor of the checked loss beside the given loss, in the single-level ways.
    pub checked_weight: f64,
    /// The part of a checked label that is spread over all classes, so that few rows do not make a model too
    /// sure of itself.
    pub smoothing: f64,
    /// Iterations before the given rows are learned from.
    pub warm: usize,
    /// Factor of the checked loss in these: few rows alone bear only small steps.
    pub warm_weight: f64,
    /// Where the ways with a noise matrix start.
    pub from: From,
    /// Step of T relative to the model's, in the single-level ways.
    pub matrix_rate: f64,
    /// In the bilevel ways, iterations before which T follows y, as jointly, and the upper level does not
    /// move it yet.
    pub jointly: usize,
    /// The bilevel ways learn ln τ, too.
    pub learn_tau: bool,
    /// EM's rows are judged by how common each class is at their own site, too.
    pub site_classes: bool,
}

/// What a way knows of given labels beside its model.
#[derive(Clone, Debug, PartialEq)]
pub struct NoiseMatrix {
    /// T, row by row.
    pub t: Vec<f64>,
    /// The share of each true class among all rows, where rows are judged by that of their own site.
    pub shares: Option<Vec<f64>>,
}

impl Default for Choices {
    fn default() -> Self {
        Choices {
            tau: 1e-4,
            batch: 32,
            checked_batch: 32,
            checked_weight: 1.0,
            smoothing: 0.0,
            warm: 500,
            warm_weight: 1.0,
            from: From::Checked,
            matrix_rate: 1.0,
            jointly: 0,
            learn_tau: false,
            site_classes: false,
        }
    }
}

impl Choices {
    /// Says which number makes no sense.
    fn check(&self, way: Way) -> Result<(), String> {
        if !(self.tau >= 0.0
            && self.tau.is_finite()
            && (self.tau > 0.0 || !self.learn_tau && !way.regularises()))
        {
            return Err(format!("tau is {}; it must be 0 or more, above 0 where it is learned", self.tau));
        }
        if !(self.checked_weight >= 0.0 && self.checked_weight.is_finite()) {
            return Err(format!("checked_weight is {}; it must be 0 or more", self.checked_weight));
        }
        if !(self.warm_weight > 0.0 && self.warm_weight.is_finite()) {
            return Err(format!("warm_weight is {}; it must be above 0", self.warm_weight));
        }
        if !(0.0..1.0).contains(&self.smoothing) {
            return Err(format!("smoothing is {}; it must lie in [0, 1)", self.smoothing));
        }
        if !(self.matrix_rate > 0.0 && self.matrix_rate.is_finite()) {
            return Err(format!("matrix_rate is {}; it must be above 0", self.matrix_rate));
        }
        if self.learn_tau && matches!(way, Way::EmOwn | Way::TauColumns | Way::TauClasses) {
            return Err("learn_tau has no effect in this way".into());
        }
        Ok(())
    }
}

/// How many rows all agents have together; they agree on it before they begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Given rows.
    pub given: f64,
    /// Checked rows that are trained on.
    pub checked: f64,
}

/// A model to be learned from rows some of whose labels are wrong.
pub struct Labels<T> {
    /// Agent by agent; those of other processes are empty.
    sites: Vec<Arc<Site>>,
    test: Option<Arc<Site>>,
    net: Net,
    way: Way,
    choices: Choices,
    totals: Totals,
    seed: u64,
    /// Where all models start, if not where their kind does.
    begin: Option<Vec<f64>>,
    /// Which of x's numbers is the logarithm of a weight's regulariser, where there are several.
    regularisers: Option<Vec<u32>>,
    /// An agent's given and checked rows in the order of its batches.
    orders: Vec<[Vec<u32>; 2]>,
    pool: Mutex<Vec<Scratch<T>>>,
    threads: Threads,
    teller: Option<Arc<dyn Teller<T>>>,
}

impl<T: Real> Labels<T> {
    /// A problem on these sites; those of agents that are not here are empty. `seed` is that of the start and
    /// the batches.
    pub fn new(
        sites: Vec<Arc<Site>>,
        net: Net,
        way: Way,
        choices: Choices,
        totals: Totals,
        seed: u64,
    ) -> Result<Self, String> {
        let (width, classes) = (net.numbers(), net.classes);
        if !(2..=256).contains(&classes) {
            return Err(format!("{classes} classes; there must be between 2 and 256"));
        }
        if width == 0 {
            return Err("there are no features".into());
        }
        check_bert(&net, way)?;
        choices.check(way)?;
        if totals.checked < 1.0 && way != Way::Noisy && way != Way::NoisyRounds {
            let way_out = "only the ways noisy and noisy-rounds need none";
            return Err(format!("nobody has a checked row to learn from; {way_out}"));
        }
        for (i, site) in sites.iter().enumerate() {
            let right = site.features.len() == site.rows() * width
                && site.given + site.checked <= site.rows()
                && (site.truth.is_empty() || site.truth.len() == site.given);
            let is_class = |l: u16| usize::from(l) < classes;
            let known = site.truth.iter().flatten().all(|l| is_class(*l) || *l == Site::NOBODYS);
            if !right || !known || !site.labels.iter().all(|l| is_class((*l).into())) {
                return Err(format!("the rows of agent {i} do not fit together"));
            }
        }
        let order = |agent: usize, which: usize, rows: std::ops::Range<usize>| {
            let mut places: Vec<u32> = rows.map(|r| r as u32).collect();
            places.shuffle(&mut stream(seed, Purpose::Batch, agent as u64, which as u64));
            places
        };
        let orders = sites
            .iter()
            .enumerate()
            .map(|(i, s)| [order(i, 0, 0..s.given), order(i, 1, s.given..s.given + s.checked)]);
        Ok(Labels {
            orders: orders.collect(),
            test: None,
            regularisers: match way {
                Way::TauColumns => Some(by_column(&net, &[width])),
                Way::TauClasses => Some(by_class(&net)),
                _ => None,
            },
            net,
            way,
            choices,
            totals,
            seed,
            begin: None,
            pool: Mutex::new(Vec::new()),
            threads: Threads::one(),
            teller: None,
            sites,
        })
    }

    /// Rows with true labels on which models are tried; every agent tries its model on its own part.
    pub fn test(mut self, test: Arc<Site>) -> Self {
        self.test = Some(test);
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

    /// How many features each group has, for [`Way::TauColumns`]; all are one group otherwise.
    pub fn columns(mut self, widths: &[usize]) -> Self {
        if self.way == Way::TauColumns && widths.iter().sum::<usize>() == self.net.pixels {
            self.regularisers = Some(by_column(&self.net, widths));
        }
        self
    }

    /// Threads for the metrics (gradients use those of the call).
    pub fn threads(mut self, threads: Threads) -> Self {
        self.threads = threads;
        self
    }

    /// Who tells what models say of rows, instead of the host's own passes.
    pub fn told_by(mut self, teller: Arc<dyn Teller<T>>) -> Self {
        self.teller = Some(teller);
        self
    }

    /// The classifier.
    pub fn net(&self) -> &Net {
        &self.net
    }

    /// How it learns.
    pub fn way(&self) -> Way {
        self.way
    }

    /// An agent's rows.
    pub fn site(&self, agent: usize) -> &Site {
        &self.sites[agent]
    }

    /// Bytes of the rows that are here.
    pub fn bytes(&self) -> usize {
        self.sites.iter().chain(&self.test).map(|s| 4 * s.features.len() + s.labels.len()).sum()
    }

    /// T from the numbers that stand for it: counts in EM, else logits.
    pub fn matrix(&self, numbers: &[T]) -> Vec<f64> {
        let classes = self.net.classes;
        let mut t: Vec<f64> = numbers[..classes * classes].iter().map(|v| v.f64()).collect();
        for row in t.chunks_exact_mut(classes) {
            let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            for v in row.iter_mut() {
                // Averages of counts may be a little below 0 on their way.
                *v = if self.way.counts() { v.max(0.0) + 1e-6 } else { (*v - top).exp() };
            }
            let sum: f64 = row.iter().sum();
            row.iter_mut().for_each(|v| *v /= sum);
        }
        t
    }

    /// What the numbers that stand for T say, where there are some. EM's are averages over the rows of all
    /// sites, so they also tell how common each class is.
    pub(super) fn noise(&self, numbers: &[T]) -> Option<NoiseMatrix> {
        if numbers.is_empty() || !self.way.has_matrix() {
            return None;
        }
        let classes = self.net.classes;
        let shares = (self.choices.site_classes && self.way == Way::Em).then(|| {
            let counts = numbers[..classes * classes].chunks_exact(classes);
            let of = |row: &[T]| row.iter().map(|v| v.f64().max(0.0)).sum::<f64>() + 1e-6;
            let shares: Vec<f64> = counts.map(of).collect();
            let total: f64 = shares.iter().sum();
            shares.iter().map(|share| share / total).collect()
        });
        Some(NoiseMatrix { t: self.matrix(numbers), shares })
    }

    /// The gradient of the mean given loss by T's logits, from what was seen.
    fn matrix_gradient(&self, t: &[f64], counts: &[f64], mut to: impl FnMut(usize, f64)) {
        let classes = self.net.classes;
        for c in 0..classes {
            let row = c * classes..(c + 1) * classes;
            let mass: f64 = counts[row.clone()].iter().sum();
            row.for_each(|at| to(at, mass * t[at] - counts[at]));
        }
    }

    /// One agent's direction in a single-level way, of w and of what stands for T.
    fn single(&self, agent: usize, k: usize, v: &[T], d: &mut [T]) {
        let ((w, numbers), (dw, dt)) = (v.split_at(self.net.width()), d.split_at_mut(self.net.width()));
        let t = if dt.is_empty() { Vec::new() } else { self.matrix(numbers) };
        let seen = self.gradient(&self.asked_single(agent, k, &t), w, dw);
        add_scaled(dw, T::of(self.choices.tau), w);
        self.matrix_direction(k, numbers, &t, &seen, dt);
    }

    /// What a single-level way asks for.
    fn asked_single<'a>(&self, agent: usize, k: usize, t: &'a [f64]) -> Asked<'a, T> {
        let (warm, beside) = (k < self.choices.warm, self.choices.checked_weight);
        let (factors, loss) = match self.way {
            Way::CleanOnly => ((1.0, 0.0), Loss::Label),
            Way::Rounds if warm => ((self.choices.warm_weight, 0.0), Loss::Label),
            Way::Noisy => ((beside, 1.0), Loss::Label),
            Way::NoisyRounds if warm => ((beside, 1.0), Loss::Label),
            Way::Rounds | Way::NoisyRounds => ((beside, 1.0), Loss::Agreed),
            _ if warm => self.start_loss(),
            _ => ((beside, 1.0), Loss::Matrix(t)),
        };
        Asked { agent, k, factors, loss, weights: &[] }
    }

    /// The direction of what stands for T in a single-level way.
    fn matrix_direction(&self, k: usize, numbers: &[T], t: &[f64], seen: &Seen, dt: &mut [T]) {
        let rate = self.choices.matrix_rate;
        match self.way {
            Way::Gold if k >= self.choices.warm => dt.fill(T::ZERO),
            // The M-step as a direction: it vanishes where the numbers are the mean of all agents' counts.
            Way::Gold | Way::Em => {
                dt.iter_mut().zip(numbers).zip(&seen.counts).for_each(|((d, have), count)| {
                    *d = T::of(rate * (have.f64() - count));
                })
            }
            _ if dt.is_empty() => {}
            _ => self.matrix_gradient(t, &seen.counts, |at, value| dt[at] = T::of(rate * value)),
        }
    }

    /// What is learned from before T is known: factors of the checked and the given loss, and the latter.
    fn start_loss(&self) -> ((f64, f64), Loss<'static>) {
        match self.choices.from {
            From::Given => ((0.0, 1.0), Loss::Gold),
            From::Checked => ((self.choices.warm_weight, 0.0), Loss::Nothing),
        }
    }

    /// Which of x's numbers weighs a given row, if one does.
    fn group(&self, agent: usize, place: usize) -> Option<usize> {
        match self.way {
            Way::Weights => Some(place),
            Way::ClassWeights => Some(self.sites[agent].labels[place] as usize),
            Way::Trust => Some(0),
            _ => None,
        }
    }

    /// Whether ln τ is the last of x's numbers.
    fn learns_tau(&self) -> bool {
        self.choices.learn_tau || self.way == Way::Tau
    }

    /// How many regularisers there are, where there are several.
    fn regulariser_count(&self) -> usize {
        self.regularisers.iter().flatten().max().map_or(0, |most| *most as usize + 1)
    }

    /// τ of the lower level.
    fn lower_tau(&self, x: &[T]) -> f64 {
        match (self.learns_tau(), x.last()) {
            (true, Some(x)) => x.f64().exp(),
            _ => self.choices.tau,
        }
    }

    /// What the lower level asks for at x, with T where there is one.
    fn asked_lower<'a>(
        &self,
        (agent, k): (usize, usize),
        factors: (f64, f64),
        x: &'a [T],
        t: &'a [f64],
    ) -> Asked<'a, T> {
        match self.way.weighs() {
            true => Asked { agent, k, factors, loss: Loss::Label, weights: x },
            false => Asked { agent, k, factors, loss: Loss::Matrix(t), weights: &[] },
        }
    }

    /// The gradient of g by weights or T through `to`, after what was seen.
    fn lower_upper(&self, asked: &Asked<'_, T>, t: &[f64], seen: &Seen, mut to: impl FnMut(usize, f64)) {
        let given = asked.factors.1;
        if !self.way.weighs() {
            return self.matrix_gradient(t, &seen.counts, |at, value| to(at, given * value));
        }
        let batch = self.batch(asked.agent, 0, asked.k);
        for (j, loss) in seen.losses.iter().enumerate() {
            let Some(group) = self.group(asked.agent, batch.place(j)) else { break };
            let weight = self.weight(asked, batch.place(j));
            to(group, given * batch.each * weight * (1.0 - weight) * loss);
        }
    }

    /// The gradients of g at (x, w): by w, and by x through `to`.
    fn lower_level(
        &self,
        at: (usize, usize),
        factors: (f64, f64),
        x: &[T],
        w: &[T],
        gw: &mut [T],
        mut to: impl FnMut(usize, f64),
    ) {
        let (tau, given) = (self.lower_tau(x), factors.1);
        let t = if self.way.weighs() { Vec::new() } else { self.matrix(x) };
        let asked = self.asked_lower(at, factors, x, &t);
        let seen = self.gradient(&asked, w, gw);
        self.lower_upper(&asked, &t, &seen, &mut to);
        if let Some(of) = &self.regularisers {
            for ((gw, w), of) in gw.iter_mut().zip(w).zip(of) {
                let (tau, w) = (x[*of as usize].f64().exp(), w.f64());
                *gw += T::of(given * tau * w);
                to(*of as usize, given * tau / 2.0 * w * w);
            }
            return;
        }
        add_scaled(gw, T::of(given * tau), w);
        if self.learns_tau() {
            to(x.len() - 1, given * tau / 2.0 * norm_squared(w));
        }
    }

    /// What EM with own counts asks for.
    fn asked_own<'a>(&self, (agent, k): (usize, usize), (f, g): (f64, f64), t: &'a [f64]) -> Asked<'a, T> {
        let beside = f * self.choices.checked_weight;
        let (factors, loss) = match k < self.choices.warm {
            true => self.start_loss(),
            false => ((beside, g), Loss::Matrix(t)),
        };
        Asked { agent, k, factors, loss, weights: &[] }
    }

    /// EM with counts that an agent keeps to itself: x moves to them.
    fn to_counts(&self, x: &[T], seen: &Seen, dx: &mut [T]) {
        let total: f64 = seen.counts.iter().sum();
        // Who has no checked row learns nothing of its matrix at the start.
        if total == 0.0 {
            return;
        }
        for ((d, have), count) in dx.iter_mut().zip(x).zip(&seen.counts) {
            *d = T::of(have.f64() - count / total);
        }
    }

    /// What both models learn alike before given rows are learned with T, or with weights.
    fn asked_before(&self, (agent, k): (usize, usize)) -> Asked<'static, T> {
        let (factors, loss) = match self.way.weighs() {
            true => ((self.choices.warm_weight, 0.0), Loss::Label),
            false => self.start_loss(),
        };
        Asked { agent, k, factors, loss, weights: &[] }
    }

    /// In that time T follows y.
    fn upper_before(&self, x: &[T], seen: &Seen, dx: &mut [T]) {
        if !self.way.weighs() {
            self.matrix_gradient(&self.matrix(x), &seen.counts, |c, d| dx[c] = T::of(d));
        }
    }

    /// What y's (`sign` 1) or z's (−1) part of the lower level's gradient adds to one of x's directions.
    /// While T follows y, z's has no say, and a regulariser waits.
    fn upper_part(&self, k: usize, number: usize, sign: f64, d: f64) -> T {
        let follows = k < self.choices.jointly && self.way.has_matrix();
        let matrix = self.net.classes * self.net.classes;
        T::of(if follows && (sign < 0.0 || number >= matrix) { 0.0 } else { sign * d })
    }

    /// One agent's directions in a bilevel way.
    fn directions(
        &self,
        agent: usize,
        k: usize,
        Penalty { f, g }: Penalty,
        [x, y, z]: [&[T]; 3],
        [dx, dy, dz]: [&mut [T]; 3],
    ) {
        let at = (agent, k);
        dx.fill(T::ZERO);
        if self.way == Way::EmOwn {
            // y moves as in EM; there is no z.
            let seen = self.gradient(&self.asked_own(at, (f, g), &self.matrix(x)), y, dy);
            add_scaled(dy, T::of(self.choices.tau), y);
            dz.fill(T::ZERO);
            return self.to_counts(x, &seen, dx);
        }
        if k < self.choices.warm {
            let asked = self.asked_before(at);
            let seen = self.gradient(&asked, y, dy);
            self.gradient(&asked, z, dz);
            for (d, w) in [(dy, y), (dz, z)] {
                add_scaled(d, T::of(self.choices.tau), w);
            }
            return self.upper_before(x, &seen, dx);
        }
        self.lower_level(at, (0.0, g), x, z, dz, |c, d| dx[c] += self.upper_part(k, c, -1.0, d));
        self.lower_level(at, (f, g), x, y, dy, |c, d| dx[c] += self.upper_part(k, c, 1.0, d));
    }
}

/// Refuses texts that a BERT cannot take, and what means nothing to one.
fn check_bert(net: &Net, way: Way) -> Result<(), String> {
    let Model::Bert(bert) = &net.model else { return Ok(()) };
    bert.check()?;
    let (tokens, most) = (net.numbers(), bert.positions);
    if !net.pixels.is_multiple_of(2) || tokens > most {
        return Err(format!("texts of {tokens} tokens; the model takes {most} at most"));
    }
    if way == Way::TauColumns {
        return Err("a regulariser for each column means nothing to a BERT: texts are one".into());
    }
    Ok(())
}

/// Each weight's regulariser by the group of its feature; the last one is that of all other weights.
fn by_column(net: &Net, widths: &[usize]) -> Vec<u32> {
    let groups = widths.iter().enumerate().flat_map(|(g, width)| std::iter::repeat_n(g as u32, *width));
    let (groups, rest) = (groups.collect::<Vec<u32>>(), widths.len() as u32);
    match net.model {
        Model::Mlp(hidden) => {
            let first = groups.iter().flat_map(|g| std::iter::repeat_n(*g, hidden));
            let mut all: Vec<u32> = first.collect();
            all.resize(net.width(), rest);
            all
        }
        _ => {
            let bias = net.width() / net.classes - groups.len();
            let row = || groups.iter().copied().chain(std::iter::repeat_n(rest, bias));
            (0..net.classes).flat_map(|_| row()).collect()
        }
    }
}

/// Each weight's regulariser by the class that it leads to; the last one is that of all other weights.
fn by_class(net: &Net) -> Vec<u32> {
    if let Model::Bert(bert) = &net.model {
        let places = bert.places(net.classes);
        let mut all = vec![net.classes as u32; places.width];
        for class in 0..net.classes {
            all[places.head.weight.start + class * bert.hidden..][..bert.hidden].fill(class as u32);
            all[places.head.bias.start + class] = class as u32;
        }
        return all;
    }
    let last = match net.model {
        Model::Mlp(hidden) => hidden + 1,
        _ => net.width() / net.classes,
    };
    let before = net.width() - net.classes * last;
    let classes = (0..net.classes as u32).flat_map(|c| std::iter::repeat_n(c, last));
    std::iter::repeat_n(net.classes as u32, before).chain(classes).collect()
}

/// Differences of gradients: its ways have too many losses for products of their own.
impl<T: Real> SecondOrder<T> for Labels<T> {
    fn yy(&self, agent: usize, k: usize, x: &[T], y: &[T], v: &[T], out: &mut [T]) -> Result<()> {
        difference_product(self as &dyn Bilevel<T>, agent, k, [x, y, v], out, false)
    }

    fn xy(&self, agent: usize, k: usize, x: &[T], y: &[T], v: &[T], out: &mut [T]) -> Result<()> {
        difference_product(self as &dyn Bilevel<T>, agent, k, [x, y, v], out, true)
    }
}

impl<T: Real> Bilevel<T> for Labels<T> {
    fn agents(&self) -> usize {
        self.sites.len()
    }

    fn upper(&self) -> Upper {
        let more = usize::from(self.learns_tau());
        let matrix = self.net.classes * self.net.classes + more;
        // A device wants a BERT to begin at an even address: what fills x up has no say and never moves.
        let even = matches!(self.net.model, Model::Bert(_)) && !self.learns_regulariser();
        let shared = |width: usize| Upper::Shared(if even { width.next_multiple_of(16) } else { width });
        match self.way {
            Way::ClassWeights => shared(self.net.classes + more),
            Way::Trust => Upper::Private(vec![1 + more; self.sites.len()]),
            Way::Tau => Upper::Shared(1),
            Way::TauColumns | Way::TauClasses => Upper::Shared(self.regulariser_count()),
            Way::Weights => Upper::Private(self.sites.iter().map(|s| s.given + more).collect()),
            Way::BilevelOwn | Way::EmOwn => Upper::Private(vec![matrix; self.sites.len()]),
            _ => shared(matrix),
        }
    }

    fn lower(&self) -> usize {
        self.net.width()
    }

    fn grad_f(&self, agent: usize, k: usize, _x: &[T], y: &[T], gx: &mut [T], gy: &mut [T]) -> Result<()> {
        gx.fill(T::ZERO);
        let asked = Asked { agent, k, factors: (1.0, 0.0), loss: Loss::Label, weights: &[] };
        self.gradient(&asked, y, gy);
        Ok(())
    }

    fn grad_g(&self, agent: usize, k: usize, x: &[T], y: &[T], gx: &mut [T], gy: &mut [T]) -> Result<()> {
        gx.fill(T::ZERO);
        self.lower_level((agent, k), (0.0, 1.0), x, y, gy, |c, d| gx[c] += T::of(d));
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
        (!self.way.is_bilevel()).then_some(self)
    }

    fn start(&self) -> Start {
        let classes = self.net.classes;
        let mut y = self.begin.clone().unwrap_or_else(|| self.net.start(self.seed));
        let tau = self.learns_tau().then(|| self.choices.tau.ln());
        let mut x = match self.way {
            // Logits of the same number are the same probabilities.
            _ if !self.way.is_bilevel() => Vec::new(),
            Way::Weights => match tau {
                None => Vec::new(),
                Some(tau) => self.sites.iter().map(|s| [vec![0.0; s.given], vec![tau]].concat()).collect(),
            },
            Way::EmOwn => vec![vec![1.0 / (classes * classes) as f64; classes * classes]],
            Way::ClassWeights => vec![vec![0.0; classes].into_iter().chain(tau).collect()],
            Way::Trust => vec![[0.0].into_iter().chain(tau).collect()],
            Way::Tau => vec![tau.into_iter().collect()],
            Way::TauColumns | Way::TauClasses => {
                vec![vec![self.choices.tau.ln(); self.regulariser_count()]]
            }
            _ => vec![vec![0.0; classes * classes].into_iter().chain(tau).collect()],
        };
        if let (Some(x), Upper::Shared(width)) = (x.first_mut(), self.upper()) {
            x.resize(width, 0.0);
        }
        if self.way.has_matrix() && !self.way.is_bilevel() {
            let each = if self.way.counts() { 1.0 / (classes * classes) as f64 } else { 0.0 };
            y.resize(y.len() + classes * classes, each);
        }
        Start { x, y: vec![y], ..Start::default() }
    }

    fn measures(&self) -> Vec<Metric> {
        measure::list()
    }

    fn own_sums(&self, agents: &[usize], views: &[View<'_, T>]) -> Result<Option<Vec<Vec<f64>>>> {
        let Some(measured) = self.measured(views) else { return Ok(None) };
        let of = |(row, agent): (usize, &usize)| {
            let (model, upper) = measured.row(row);
            self.sums(*agent, (&model, &upper))
        };
        Ok(Some(agents.iter().enumerate().map(of).collect()))
    }

    fn metrics_of_sums(&self, sums: &[f64]) -> Values {
        measure::values(sums)
    }
}

impl Labels<f32> {
    /// The problem behind its trait. All of it is compiled here, and not by the crate that asks.
    #[inline(never)]
    pub fn shared(self: Arc<Self>) -> Arc<dyn Bilevel<f32>> {
        self
    }

    /// What one agent's model, with T where there is one, says of its given labels, in order.
    #[inline(never)]
    pub fn verdicts(&self, agent: usize, w: &[f32], noise: Option<&NoiseMatrix>) -> Vec<Verdict> {
        self.judge(agent, measure::Speaker::Here(w), noise)
    }
}

impl<T: Real> SingleLevel<T> for Labels<T> {
    fn agents(&self) -> usize {
        self.sites.len()
    }

    fn width(&self) -> usize {
        let matrix = self.net.classes * self.net.classes;
        self.net.width() + if self.way.has_matrix() { matrix } else { 0 }
    }

    fn start_from<'a>(&self, start: &'a Start) -> &'a Vec<Vec<f64>> {
        &start.y
    }

    fn gradients(&self, at: At<'_>, x: &Stack<T, 1>, d: &mut Stack<T, 1>) -> Result<()> {
        d.for_each_row(at.threads, 1, |_, row, [d]| {
            let [v] = x.row(row);
            self.single(at.owned[row], at.k, v, d);
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
