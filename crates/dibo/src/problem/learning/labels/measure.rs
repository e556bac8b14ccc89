//! What an agent can say of its own rows: how probable each given label is and what stands in its place; and
//! the sums from which all agents' metrics are made, without a row leaving its agent.
use super::{Labels, NoiseMatrix, Way, site_classes};
use crate::problem::learning::model::{pieces, softmax};
use crate::problem::{Metric, Values};
use crate::rows::{Real, View};
use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

/// What a model says of one given label.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// The probability that the label is right.
    pub score: f64,
    /// Its log-odds, which tell scores apart that are 0 or 1 when rounded.
    pub log_odds: f64,
    /// The class that the model itself takes for the true one, which calls the label wrong if it is another.
    /// T has no say in it: a model that was trained on the row leans towards its label already, the more
    /// the better it knows rows by heart, and a T learned beside such a model trusts labels too much.
    pub suggested: u8,
}

/// Steps of the log-odds of a score, in which wrong and right labels are counted.
const BINS: usize = 2048;

/// How far a model's probabilities are trusted in the held-out loss: among few rows one that is wrong and
/// sure of itself must not decide everything.
const TRUSTED: f64 = 0.95;

/// Sums before the counts by score: held-out loss, hits, rows; test hits, rows; given rows; suspicious ones;
/// suspicious and wrong ones; wrong ones; rows whose truth is known; of these, those whose suggestion is
/// right.
const FIRST: usize = 11;

/// The metrics. The loss on held-out checked rows comes first: it is what may be used to choose.
pub(super) fn list() -> Vec<Metric> {
    vec![
        Metric::lower("held_loss", "loss on held-out checked rows"),
        Metric::higher("held_accuracy", "accuracy on held-out checked rows", "%"),
        Metric::higher("test_accuracy", "test accuracy", "%"),
        Metric::plain("suspicious", "labels called wrong, in %"),
        Metric::higher("auc", "area under the ROC curve", ""),
        Metric::higher("precision", "precision", ""),
        Metric::higher("recall", "recall", ""),
        Metric::higher("right_after", "labels right after cleaning", "%"),
    ]
}

/// The most probable class.
fn most(p: &[f64]) -> usize {
    (1..p.len()).fold(0, |best, c| if p[c] > p[best] { c } else { best })
}

/// The place of log-odds among the bins, which grow with their distance from 0.
fn bin(log_odds: f64) -> usize {
    let at = log_odds / (4.0 + log_odds.abs());
    ((at + 1.0) / 2.0 * BINS as f64).clamp(0.0, (BINS - 1) as f64) as usize
}

/// Metrics of the sums of all agents.
pub(super) fn values(sums: &[f64]) -> Values {
    let [loss, hits, held, test_hits, tests, given, suspicious, found, wrong, known, right] =
        *sums.first_chunk::<FIRST>().unwrap_or(&[0.0; FIRST]);
    let mut values = Values::new();
    if held > 0.0 {
        values.extend([("held_loss", loss / held), ("held_accuracy", 100.0 * hits / held)]);
    }
    if tests > 0.0 {
        values.push(("test_accuracy", 100.0 * test_hits / tests));
    }
    if given > 0.0 {
        values.push(("suspicious", 100.0 * suspicious / given));
    }
    if known > 0.0 {
        values.push(("auc", auc(&sums[FIRST..FIRST + BINS], &sums[FIRST + BINS..])));
        values.push(("precision", if suspicious > 0.0 { found / suspicious } else { 0.0 }));
        values.push(("recall", if wrong > 0.0 { found / wrong } else { f64::NAN }));
        values.push(("right_after", 100.0 * right / known));
    }
    values.retain(|v| !v.1.is_nan() || v.0 == "held_loss");
    values
}

/// The probability that a wrong label scores lower than a right one, from counts by score.
fn auc(wrong: &[f64], right: &[f64]) -> f64 {
    let (mut beaten, mut above) = (0.0, right.iter().sum::<f64>());
    let pairs = above * wrong.iter().sum::<f64>();
    for (w, r) in wrong.iter().zip(right) {
        above -= r;
        beaten += w * (above + 0.5 * r);
    }
    beaten / pairs
}

/// A model that says something of rows.
#[derive(Clone, Copy)]
pub(super) enum Speaker<'a, T> {
    /// Its parameters.
    Here(&'a [T]),
    /// What tells its scores, from where it lies.
    Elsewhere(&'a Told<'a, T>),
}

/// Scores of rows of an agent's site, or of the test rows.
type Told<'a, T> = dyn Fn(Option<usize>, &[usize]) -> Vec<T> + 'a;

/// The variables of a state that say something of rows: the model, and what stands for T.
pub(super) struct Measured<'a, 'b, T> {
    model: &'a View<'b, T>,
    upper: Option<&'a View<'b, T>>,
}

impl<T: Real> Measured<'_, '_, T> {
    /// Those of one row.
    pub fn row(&self, row: usize) -> (Cow<'_, [T]>, Cow<'_, [T]>) {
        (self.model.fetched(row), self.upper.map_or(Cow::Borrowed(&[]), |u| u.fetched(row)))
    }
}

impl<T: Real> Labels<T> {
    /// Finds the model among the variables of a state.
    pub(super) fn measured<'a, 'b>(&self, views: &'a [View<'b, T>]) -> Option<Measured<'a, 'b, T>> {
        let find = |name: &str| views.iter().find(|v| v.name == name);
        match self.way.is_bilevel() {
            true => Some(Measured { model: find("y")?, upper: find("x") }),
            false => Some(Measured { model: find("x")?, upper: None }),
        }
    }

    /// An agent's model and T, from its variables.
    fn parts<'a>(&self, (v, upper): (&'a [T], &'a [T])) -> (&'a [T], Option<NoiseMatrix>) {
        let (w, rest) = v.split_at(self.net.width());
        (w, self.noise(if self.way.is_bilevel() { upper } else { rest }))
    }

    /// The model of one agent: its parameters, and its noise matrix where the way has one.
    pub fn result(&self, views: &[View<'_, T>], row: usize) -> Option<(Vec<T>, Option<NoiseMatrix>)> {
        let measured = self.measured(views)?;
        let (w, upper) = measured.row(row);
        let (w, noise) = self.parts((&w, &upper));
        Some((w.to_vec(), noise))
    }

    /// The model's probabilities of the classes of these rows of an agent's site, or of the test rows.
    fn probabilities(&self, site: Option<usize>, model: Speaker<'_, T>, rows: &[usize]) -> Vec<f64> {
        let (width, classes) = (self.net.numbers(), self.net.classes);
        let at = |agent: usize| &self.sites[agent];
        let (false, Some(of)) = (rows.is_empty(), site.map(at).or(self.test.as_ref())) else {
            return Vec::new();
        };
        let scores = match (model, &self.teller) {
            (Speaker::Elsewhere(scores), _) => Some(scores(site, rows)),
            (Speaker::Here(w), Some(teller)) => Some(teller.scores(site, w, rows)),
            (Speaker::Here(_), None) => None,
        };
        let mut p = Vec::with_capacity(rows.len() * classes);
        if let Some(scores) = scores {
            p.resize(rows.len() * classes, 0.0);
            let each = scores.chunks_exact(classes).zip(p.chunks_exact_mut(classes));
            each.for_each(|(scores, p)| softmax(scores, p));
            return p;
        }
        let Speaker::Here(w) = model else { return p };
        let all: Vec<_> = pieces(rows.len(), self.net.rows()).collect();
        let told = Mutex::new(vec![Vec::new(); all.len()]);
        self.threads.ranges(all.len(), 1, |_, some| {
            let mut s = self.net.scratch(rows.len());
            for i in some {
                for (r, row) in rows[all[i].clone()].iter().enumerate() {
                    self.net.load_numbers(&mut s, r, &of.features[row * width..(row + 1) * width]);
                }
                self.net.forward(&mut s, all[i].len(), w);
                let mut p = vec![0.0; all[i].len() * classes];
                let each = p.chunks_exact_mut(classes).enumerate();
                each.for_each(|(r, p)| self.net.probabilities(&s, r, p));
                told.lock().unwrap_or_else(PoisonError::into_inner)[i] = p;
            }
        });
        let told = told.into_inner().unwrap_or_else(PoisonError::into_inner);
        told.into_iter().for_each(|piece| p.extend_from_slice(&piece));
        p
    }

    /// What one agent's model says of its given labels.
    pub(super) fn judge(
        &self,
        agent: usize,
        model: Speaker<'_, T>,
        noise: Option<&NoiseMatrix>,
    ) -> Vec<Verdict> {
        self.judged(agent, model, noise).0
    }

    /// The same, with how much more common each class is at this site than at all, where that counts.
    fn judged(
        &self,
        agent: usize,
        model: Speaker<'_, T>,
        noise: Option<&NoiseMatrix>,
    ) -> (Vec<Verdict>, Option<Vec<f64>>) {
        let (site, classes) = (&self.sites[agent], self.net.classes);
        let mut p = self.probabilities(Some(agent), model, &Vec::from_iter(0..site.given));
        let factors =
            noise.and_then(|noise| noise.shares.as_ref()).map(|shares| site_classes::factors(&p, shares));
        let verdicts = p.chunks_exact_mut(classes).zip(&site.labels).map(|(p, label)| {
            if let Some(factors) = &factors {
                site_classes::mend(p, factors);
            }
            let label = *label as usize;
            let pair = |c: usize| p[c] * noise.map_or(1.0, |noise| noise.t[c * classes + label]);
            let others: f64 = (0..classes).filter(|c| *c != label).map(pair).sum();
            let own = pair(label);
            let log_odds = own.max(f64::MIN_POSITIVE).ln() - others.max(f64::MIN_POSITIVE).ln();
            let score = own / (own + others).max(f64::MIN_POSITIVE);
            Verdict { score, log_odds, suggested: most(p) as u8 }
        });
        (verdicts.collect(), factors)
    }

    /// One agent's sums.
    pub(super) fn sums(&self, agent: usize, variables: (&[T], &[T])) -> Vec<f64> {
        let (w, noise) = self.parts(variables);
        let mut sums = self.sums_by(agent, Speaker::Here(w), noise.as_ref());
        // A diverged model's scores are not numbers; the loss must say so.
        if sums[2] > 0.0 && w.iter().any(|v| !v.f64().is_finite()) {
            sums[0] = f64::NAN;
        }
        sums
    }

    /// The same, by whoever knows the model.
    pub(super) fn sums_by(
        &self,
        agent: usize,
        model: Speaker<'_, T>,
        noise: Option<&NoiseMatrix>,
    ) -> Vec<f64> {
        let (site, classes) = (&self.sites[agent], self.net.classes);
        let mut sums = vec![0.0; FIRST + 2 * BINS];
        let (verdicts, factors) = self.judged(agent, model, noise);
        let held = Vec::from_iter(site.given + site.checked..site.rows());
        let mut p = self.probabilities(Some(agent), model, &held);
        for (row, p) in held.iter().zip(p.chunks_exact_mut(classes)) {
            if let Some(factors) = &factors {
                site_classes::mend(p, factors);
            }
            let label = site.labels[*row] as usize;
            sums[0] -= (TRUSTED * p[label] + (1.0 - TRUSTED) / p.len() as f64).ln();
            sums[1] += f64::from(u8::from(most(p) == label));
            sums[2] += 1.0;
        }
        if let Some(test) = &self.test {
            // Each agent tries its own model on every n-th row: together they try all rows.
            let own = Vec::from_iter((agent..test.rows()).step_by(self.sites.len()));
            let p = self.probabilities(None, model, &own);
            for (row, p) in own.iter().zip(p.chunks_exact(classes)) {
                sums[3] += f64::from(u8::from(most(p) == test.labels[*row] as usize));
                sums[4] += 1.0;
            }
        }
        for (row, v) in verdicts.iter().enumerate() {
            let suspicious = v.suggested != site.labels[row];
            sums[5] += 1.0;
            sums[6] += f64::from(u8::from(suspicious));
            if let Some(Some(truth)) = site.truth.get(row) {
                let wrong = *truth != u16::from(site.labels[row]);
                sums[7] += f64::from(u8::from(suspicious && wrong));
                sums[8] += f64::from(u8::from(wrong));
                sums[9] += 1.0;
                sums[10] += f64::from(u8::from(u16::from(v.suggested) == *truth));
                sums[FIRST + if wrong { 0 } else { BINS } + bin(v.log_odds)] += 1.0;
            }
        }
        sums
    }

    /// The weight of each of an agent's given rows, where the way has them.
    pub fn weights(&self, agent: usize, upper: &[T]) -> Option<Vec<f64>> {
        let weight = |row: usize| self.group(agent, row).map(|g| super::sigmoid(upper[g].f64()));
        self.way.weighs().then(|| (0..self.sites[agent].given).map_while(weight).collect())
    }

    /// What the upper level decided beside weights of single rows: names and values.
    pub fn decided(&self, upper: &[T]) -> Vec<(String, f64)> {
        let weight = |v: &T| super::sigmoid(v.f64());
        let mut decided: Vec<(String, f64)> = match self.way {
            Way::ClassWeights => {
                (0..self.net.classes).map(|c| (format!("class {c}"), weight(&upper[c]))).collect()
            }
            Way::Trust => vec![("trust".to_string(), weight(&upper[0]))],
            Way::TauColumns | Way::TauClasses => {
                let name = if self.way == Way::TauColumns { "tau of column" } else { "tau of class" };
                let values = upper.iter().enumerate();
                values.map(|(g, v)| (format!("{name} {g}"), v.f64().exp())).collect()
            }
            _ => Vec::new(),
        };
        if self.way.is_bilevel() && self.learns_tau() && !upper.is_empty() {
            decided.push(("tau".to_string(), self.lower_tau(upper)));
        }
        decided
    }
}
