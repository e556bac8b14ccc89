//! What can be said of a state: test accuracy of the averaged model and of the agents, and how well the
//! weights find wrong labels.
use super::model::pieces;
use super::{Learning, Task, sigmoid};
use crate::data::Dataset;
use crate::kernels::norm_squared;
use crate::problem::{Metric, Values};
use crate::rows::{Real, View};
use std::sync::Mutex;

/// Test images on which every agent's own model is tried.
pub const TRIED: usize = 1000;

/// How well weights tell wrong labels from right ones; "wrong" is the positive class, found where the weight
/// is below ½.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cleaning {
    /// Probability that a wrong label has a lower weight than a right one (½ for a tie).
    pub auc: f64,
    /// Of those found, the part that is wrong; 0 if none is found.
    pub precision: f64,
    /// Of those wrong, the part that is found.
    pub recall: f64,
    /// The harmonic mean of the two.
    pub f1: f64,
    /// Mean weight of right labels.
    pub weight_clean: f64,
    /// Mean weight of wrong labels.
    pub weight_wrong: f64,
}

impl Cleaning {
    /// Compares weights with the truth, given as (weight, wrong); a number that needs a class that is absent
    /// is NaN.
    pub fn of(mut samples: Vec<(f64, bool)>) -> Self {
        samples.sort_by(|a, b| a.0.total_cmp(&b.0));
        let wrong = samples.iter().filter(|s| s.1).count() as f64;
        let right = samples.len() as f64 - wrong;
        let sum = |of: bool| samples.iter().filter(|s| s.1 == of).map(|s| s.0).sum::<f64>();
        // Rank sum: for each group of equal weights, its wrong ones beat the right ones after it and tie with
        // those in it.
        let (mut beaten, mut seen) = (0.0, 0.0);
        for group in samples.chunk_by(|a, b| a.0 == b.0) {
            let w = group.iter().filter(|s| s.1).count() as f64;
            let r = group.len() as f64 - w;
            beaten += w * (right - seen - r) + 0.5 * w * r;
            seen += r;
        }
        let found = samples.iter().filter(|s| s.0 < 0.5).count() as f64;
        let hits = samples.iter().filter(|s| s.0 < 0.5 && s.1).count() as f64;
        Cleaning {
            auc: beaten / (wrong * right),
            precision: if found > 0.0 { hits / found } else { 0.0 },
            recall: hits / wrong,
            f1: if found + wrong > 0.0 { 2.0 * hits / (found + wrong) } else { 0.0 },
            weight_clean: sum(false) / right,
            weight_wrong: sum(true) / wrong,
        }
    }
}

/// The metrics of a task. The validation loss comes first: it is what may be used to choose.
pub(super) fn list(task: &Task) -> Vec<Metric> {
    let mut all = vec![
        Metric::lower("loss", "validation loss"),
        Metric::higher("test_accuracy", "test accuracy", "%"),
        Metric::higher("agents_accuracy", "test accuracy of the agents", "%"),
        Metric::higher("test_accuracy_z", "test accuracy of z", "%"),
    ];
    match task {
        Task::Tuning { .. } => {
            all.extend([Metric::plain("tau", "τ"), Metric::plain("norm_gap", "‖y‖² − ‖z‖²")])
        }
        Task::Cleaning { .. } => all.extend([
            Metric::higher("auc_model", "area under the ROC curve by the model", ""),
            Metric::plain("psi_moved", "mean change of ψ"),
            Metric::higher("auc", "area under the ROC curve", ""),
            Metric::higher("precision", "precision", ""),
            Metric::higher("recall", "recall", ""),
            Metric::higher("f1", "F1", ""),
            Metric::higher("weight_clean", "mean weight of right labels", ""),
            Metric::lower("weight_wrong", "mean weight of wrong labels"),
        ]),
    }
    all
}

/// What a model says of samples: how many it guesses right, the sum of their cross-entropies, and each.
#[derive(Default)]
struct Told {
    hits: usize,
    loss: f64,
    losses: Vec<f64>,
}

impl<T: Real> Learning<T> {
    /// What a model says of samples of a data set, `sample(0), …, sample(count − 1)`, each with a label.
    fn told(
        &self,
        w: &[T],
        data: &Dataset,
        count: usize,
        sample: impl Fn(usize) -> (usize, u8) + Sync,
    ) -> Told {
        let all: Vec<_> = pieces(count, self.net.rows()).collect();
        let results = Mutex::new(vec![(0, Vec::new()); all.len()]);
        self.threads.ranges(all.len(), 1, |_, some| {
            // A workspace of its own: those of the iterations may hold a few rows only.
            let mut s = self.net.scratch(count);
            for i in some {
                let rows = all[i].len();
                for (r, j) in all[i].clone().enumerate() {
                    let (at, label) = sample(j);
                    self.net.load(&mut s, r, data.image(at), &self.scale, &self.shift);
                    s.labels[r] = label;
                }
                self.net.forward(&mut s, rows, w);
                let hits =
                    self.net.guesses(&s, rows).zip(&s.labels).filter(|(g, l)| *g == **l as usize).count();
                self.net.entropy(&mut s, rows);
                let told = (hits, s.losses[..rows].to_vec());
                results.lock().expect("no thread panics with the lock")[i] = told;
            }
        });
        let mut told = Told::default();
        let results = results.into_inner().expect("no thread panics with the lock");
        for (hits, losses) in results {
            told.hits += hits;
            told.loss += losses.iter().sum::<f64>();
            told.losses.extend(losses);
        }
        told
    }

    /// Accuracy in percent and mean cross-entropy of a model on samples `sample(0), …, sample(count − 1)` of
    /// a data set with true labels.
    pub fn score(
        &self,
        w: &[T],
        data: &Dataset,
        count: usize,
        sample: impl Fn(usize) -> usize + Sync,
    ) -> (f64, f64) {
        let told = self.told(w, data, count, |j| {
            let at = sample(j);
            (at, data.labels()[at])
        });
        (100.0 * told.hits as f64 / count as f64, told.loss / count as f64)
    }

    /// Accuracy of a model on the test set in percent.
    pub fn test_accuracy(&self, w: &[T]) -> f64 {
        self.score(w, &self.dealt.test, self.dealt.test.len(), |j| j).0
    }

    /// Mean cross-entropy of a model on the validation samples of all agents, each agent counted alike.
    pub fn validation_loss(&self, w: &[T]) -> f64 {
        let hands = &self.dealt.hands;
        let loss = |h: &crate::data::Hand| {
            self.score(w, &self.dealt.data, h.validation.len(), |j| h.validation[j] as usize).1
        };
        hands.iter().map(loss).sum::<f64>() / hands.len() as f64
    }

    pub(super) fn measure(&self, views: &[View<'_, T>]) -> Values {
        let find = |name: &str| views.iter().find(|v| v.name == name);
        let mean = |view: &View<'_, T>| view.mean().map(|m| m.iter().map(|v| T::of(*v)).collect::<Vec<T>>());
        // A single-level method's variable is called x and is the model.
        let bilevel = find("y").is_some();
        let mut values = Vec::new();
        let Some((model, w)) = find(if bilevel { "y" } else { "x" }).and_then(|v| Some((v, mean(v)?))) else {
            return values;
        };
        if w.len() != self.net.width() {
            return values;
        }
        values.push(("test_accuracy", self.test_accuracy(&w)));
        values.push(("loss", self.validation_loss(&w)));
        let test = &self.dealt.test;
        let tried = test.len().min(TRIED);
        let own = (0..model.rows.count())
            .map(|i| self.score(model.row(i), test, tried, |j| j * test.len() / tried).0);
        values.push(("agents_accuracy", own.sum::<f64>() / model.rows.count() as f64));
        values.extend(
            self.found_by_model(|which| self.told(&w, &self.dealt.data, which.len(), |j| which[j]).losses),
        );
        let z = find("z").and_then(mean);
        values.extend(z.as_ref().map(|z| ("test_accuracy_z", self.test_accuracy(z))));
        let Some(x) = find("x").filter(|_| bilevel) else { return values };
        match self.task {
            Task::Tuning { form, .. } => {
                values.extend(mean(x).map(|x| ("tau", form.tau(x[0].f64()).0)));
                // What moves τ: while it is above 0, τ falls.
                values.extend(z.map(|z| ("norm_gap", norm_squared(&w) - norm_squared(&z))));
            }
            Task::Cleaning { .. } => values.extend(self.cleaning(&x.to_vecs()).into_iter().flatten()),
        }
        values
    }

    /// How well a model's probability of given labels tells wrong ones, on at most [`TRIED`] training samples
    /// an agent: what the model finds without any weights. `losses` are the model's at samples with labels.
    pub fn found_by_model(
        &self,
        losses: impl FnOnce(&[(usize, u8)]) -> Vec<f64>,
    ) -> Option<(&'static str, f64)> {
        let Task::Cleaning { .. } = self.task else { return None };
        let (mut which, mut wrong) = (Vec::new(), Vec::new());
        for hand in &self.dealt.hands {
            let have = hand.train.len();
            let tried = have.min(TRIED);
            for j in (0..tried).map(|j| j * have / tried) {
                which.push((hand.train[j] as usize, hand.given[j]));
                wrong.push(hand.wrong[j]);
            }
        }
        let scores = losses(&which).into_iter().map(|loss| -loss);
        Some(("auc_model", Cleaning::of(scores.zip(wrong).collect()).auc))
    }

    /// How far ψ has moved and what it has found, if these are the ψ of all agents.
    pub fn cleaning(&self, psi: &[Vec<T>]) -> Option<[(&'static str, f64); 7]> {
        let Task::Cleaning { psi: start, .. } = self.task else { return None };
        let hands = &self.dealt.hands;
        if psi.len() != hands.len() || hands.iter().zip(psi).any(|(h, x)| h.train.len() != x.len()) {
            return None;
        }
        let psi = || {
            hands.iter().zip(psi).flat_map(|(h, x)| x.iter().map(|p| p.f64()).zip(h.wrong.iter().copied()))
        };
        let samples: Vec<(f64, bool)> = psi().map(|(p, wrong)| (sigmoid(p), wrong)).collect();
        let moved = psi().map(|(p, _)| (p - start).abs()).sum::<f64>() / samples.len() as f64;
        let c = Cleaning::of(samples);
        Some([
            ("psi_moved", moved),
            ("auc", c.auc),
            ("precision", c.precision),
            ("recall", c.recall),
            ("f1", c.f1),
            ("weight_clean", c.weight_clean),
            ("weight_wrong", c.weight_wrong),
        ])
    }
}
