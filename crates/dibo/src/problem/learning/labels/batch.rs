//! The rows of an iteration, what their losses are, and what flows back from them.
use super::{Choices, Labels};
use crate::problem::learning::model::{Scratch, pieces};
use crate::problem::learning::sigmoid;
use crate::rows::Real;
use std::sync::PoisonError;

/// What a given row's loss is.
#[derive(Clone, Copy)]
pub enum Loss<'a> {
    /// −log p(g).
    Label,
    /// The same where p is largest at g, else nothing.
    Agreed,
    /// −log Σ_c p(c) T[c, g].
    Matrix(&'a [f64]),
    /// Nothing; p itself stands for what is probably true.
    Nothing,
    /// −log p(g); what p says of checked rows is counted instead.
    Gold,
}

/// One agent's batch of an iteration, and what the losses of its rows are.
pub struct Asked<'a, T> {
    pub agent: usize,
    pub k: usize,
    /// Factors of the checked loss and of the given rows'.
    pub factors: (f64, f64),
    pub loss: Loss<'a>,
    /// The upper variable that weighs given rows; empty if all count alike.
    pub weights: &'a [T],
}

/// The given or the checked rows of a batch.
pub struct Batch<'a> {
    places: &'a [u32],
    from: usize,
    pub len: usize,
    /// The weight of each: all agents' weights add up to their number.
    pub each: f64,
}

impl Batch<'_> {
    pub fn place(&self, j: usize) -> usize {
        let at = self.from + j;
        self.places[if at < self.places.len() { at } else { at - self.places.len() }] as usize
    }
}

/// Sums over the rows of a batch.
pub struct Seen {
    /// For each true class and given label the probability of the pair, weighted by row.
    pub counts: Vec<f64>,
    /// Each row's loss.
    pub losses: Vec<f64>,
}

impl Seen {
    pub fn new(classes: usize, given: usize) -> Self {
        Seen { counts: vec![0.0; classes * classes], losses: vec![0.0; given] }
    }
}

impl<T: Real> Labels<T> {
    /// The given (0) or checked (1) rows of iteration k.
    pub(super) fn batch(&self, agent: usize, which: usize, k: usize) -> Batch<'_> {
        let places = &self.orders[agent][which];
        let (size, total) = match which {
            0 => (self.choices.batch, self.totals.given),
            _ => (self.choices.checked_batch, self.totals.checked),
        };
        let len = if size == 0 { places.len() } else { size.min(places.len()) };
        let from = if len == 0 { 0 } else { ((k as u128 * len as u128) % places.len() as u128) as usize };
        let share = self.sites.len() as f64 * places.len() as f64 / total.max(1.0);
        Batch { places, from, len, each: if len == 0 { 0.0 } else { share / len as f64 } }
    }

    /// The rows that are asked for, given and checked ones: those without a say are left away.
    pub(super) fn batches(&self, asked: &Asked<'_, T>) -> [Batch<'_>; 2] {
        let (checked, given) = asked.factors;
        let mut batches = [0, 1].map(|which| self.batch(asked.agent, which, asked.k));
        if given == 0.0 && !matches!(asked.loss, Loss::Nothing) {
            batches[0].len = 0;
        }
        if checked == 0.0 && !matches!(asked.loss, Loss::Gold) {
            batches[1].len = 0;
        }
        batches
    }

    fn with_scratch<R>(&self, job: impl FnOnce(&mut Scratch<T>) -> R) -> R {
        let taken = self.pool.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut scratch = taken.unwrap_or_else(|| {
            let Choices { batch, checked_batch, .. } = self.choices;
            self.net.scratch(if batch == 0 || checked_batch == 0 {
                usize::MAX
            } else {
                batch + checked_batch
            })
        });
        let result = job(&mut scratch);
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
        result
    }

    /// Writes the gradient by w over a batch: the checked loss plus the loss of given rows, each with its
    /// factor and a weight of its own.
    pub(super) fn gradient(&self, asked: &Asked<'_, T>, w: &[T], g: &mut [T]) -> Seen {
        let (site, classes, batches) = (&self.sites[asked.agent], self.net.classes, self.batches(asked));
        let [given_rows, checked_rows] = [batches[0].len, batches[1].len];
        let mut seen = Seen::new(classes, given_rows);
        let (mut p, mut back) = ([0.0; 256], [0.0; 256]);
        let (p, back) = (&mut p[..classes], &mut back[..classes]);
        if given_rows + checked_rows == 0 {
            g.fill(T::ZERO);
            return seen;
        }
        self.with_scratch(|s| {
            for piece in pieces(given_rows + checked_rows, s.rows()) {
                for (r, j) in piece.clone().enumerate() {
                    let (row, width) = (row_of(&batches, j), self.net.numbers());
                    self.net.load_numbers(s, r, &site.features[row * width..(row + 1) * width]);
                }
                self.net.forward(s, piece.len(), w);
                for (r, j) in piece.clone().enumerate() {
                    self.net.probabilities(s, r, p);
                    self.head(asked, &batches, j, p, back, &mut seen);
                    self.net.set_back(s, r, back.iter().copied());
                }
                self.net.backward(s, piece.len(), w, g, piece.start > 0);
            }
        });
        seen
    }

    /// What flows back from row j of a batch by its classes' probabilities, which become what is probably
    /// true.
    pub(super) fn head(
        &self,
        asked: &Asked<'_, T>,
        batches: &[Batch<'_>; 2],
        j: usize,
        p: &mut [f64],
        back: &mut [f64],
        seen: &mut Seen,
    ) {
        let (row, classes, gold) = (row_of(batches, j), p.len(), matches!(asked.loss, Loss::Gold));
        let (label, (checked, given)) = (self.sites[asked.agent].labels[row] as usize, asked.factors);
        if j < batches[0].len {
            let factor = given * batches[0].each * self.weight(asked, row);
            seen.losses[j] = given_back(asked.loss, p, label, factor, back);
            for (c, p) in p.iter().enumerate().filter(|_| !gold) {
                seen.counts[c * classes + label] += batches[0].each * p;
            }
        } else if gold {
            let counts = &mut seen.counts[label * classes..(label + 1) * classes];
            counts.iter_mut().zip(&*p).for_each(|(count, p)| *count += batches[1].each * p);
            back.fill(0.0);
        } else {
            let factor = checked * batches[1].each;
            let even = self.choices.smoothing / classes as f64;
            let sure = 1.0 - self.choices.smoothing;
            let own = |c: usize| if c == label { sure + even } else { even };
            back.iter_mut().zip(&*p).enumerate().for_each(|(c, (b, p))| *b = factor * (p - own(c)));
        }
    }

    /// The weight of a given row.
    pub(super) fn weight(&self, asked: &Asked<'_, T>, place: usize) -> f64 {
        match self.group(asked.agent, place) {
            Some(group) if !asked.weights.is_empty() => sigmoid(asked.weights[group].f64()),
            _ => 1.0,
        }
    }
}

/// Row j of a batch: first the given ones, then the checked ones.
pub fn row_of(batches: &[Batch<'_>; 2], j: usize) -> usize {
    match j.checked_sub(batches[0].len) {
        None => batches[0].place(j),
        Some(j) => batches[1].place(j),
    }
}

/// What flows back from a given row with this factor, and its loss; `p` becomes what is probably true.
fn given_back(loss: Loss<'_>, p: &mut [f64], label: usize, factor: f64, back: &mut [f64]) -> f64 {
    let hard = |p: &[f64], back: &mut [f64], factor: f64| {
        back.iter_mut().zip(p).for_each(|(b, p)| *b = factor * p);
        back[label] -= factor;
        -p[label].max(f64::MIN_POSITIVE).ln()
    };
    match loss {
        Loss::Label | Loss::Gold => hard(p, back, factor),
        Loss::Agreed => {
            let agreed = p.iter().all(|other| *other <= p[label]);
            hard(p, back, if agreed { factor } else { 0.0 })
        }
        Loss::Nothing => {
            back.fill(0.0);
            0.0
        }
        Loss::Matrix(t) => {
            let classes = p.len();
            let given = |c: usize| t[c * classes + label];
            let sum = p.iter().enumerate().map(|(c, p)| p * given(c)).sum::<f64>().max(f64::MIN_POSITIVE);
            for (c, p) in p.iter_mut().enumerate() {
                let posterior = *p * given(c) / sum;
                back[c] = factor * (*p - posterior);
                *p = posterior;
            }
            -sum.ln()
        }
    }
}
