//! The same directions where the models lie elsewhere, such as on a GPU: there rows of all agents pass
//! through their models at once; what flows back is decided here, by the code that the host's own passes
//! use.
use super::batch::{Asked, Seen, row_of};
use super::measure::Speaker;
use super::{Labels, Way};
use crate::error::Result;
use crate::problem::learning::model::softmax;
use crate::problem::{At, Penalty};
use crate::rows::Real;

/// Passes of all agents' batches through models that lie elsewhere.
pub trait Passes {
    /// Passes rows of each agent's site through its model: its only one or y (0), or z (1). `head` gets the
    /// number of an agent among the owned ones, that of a row among the agent's, and the row's scores, in
    /// whose place it leaves what flows back. The gradient by the model, plus `decay` times the model,
    /// becomes the model's direction.
    fn pass(
        &mut self,
        model: usize,
        rows: &[Vec<usize>],
        decay: f64,
        head: &mut dyn FnMut(usize, usize, &mut [f32]),
    ) -> Result<()>;

    /// Makes a model's direction 0.
    fn rest(&mut self, model: usize) -> Result<()>;
}

/// Tells what models that lie here say of rows; faster than the host would.
pub trait Teller<T>: Send + Sync {
    /// Scores of rows of an agent's site, or of the test rows, class by class.
    fn scores(&self, site: Option<usize>, w: &[T], rows: &[usize]) -> Vec<T>;
}

/// Scores of rows of an agent's site, or of the test rows, under the model of one of some agents.
pub type Scores<'a, T> = dyn Fn(usize, Option<usize>, &[usize]) -> Vec<T> + 'a;

impl<T: Real> Labels<T> {
    /// Passes what is asked of each agent's model, and sums up what was seen.
    fn passed(
        &self,
        model: usize,
        asked: &[Asked<'_, T>],
        decay: f64,
        passes: &mut dyn Passes,
    ) -> Result<Vec<Seen>> {
        let classes = self.net.classes;
        let batches: Vec<_> = asked.iter().map(|a| self.batches(a)).collect();
        let rows: Vec<Vec<usize>> =
            batches.iter().map(|b| (0..b[0].len + b[1].len).map(|j| row_of(b, j)).collect()).collect();
        let mut seen: Vec<Seen> = batches.iter().map(|b| Seen::new(classes, b[0].len)).collect();
        let (mut p, mut back) = (vec![0.0; classes], vec![0.0; classes]);
        passes.pass(model, &rows, decay, &mut |i, j, scores| {
            softmax(scores, &mut p);
            self.head(&asked[i], &batches[i], j, &mut p, &mut back, &mut seen[i]);
            scores.iter_mut().zip(&back).for_each(|(to, b)| *to = *b as f32);
        })?;
        Ok(seen)
    }

    /// T of each agent, from the numbers that stand for it, where there are some.
    fn matrices(&self, numbers: &[Vec<T>]) -> Vec<Vec<f64>> {
        let has = self.way.has_matrix();
        numbers.iter().map(|n| if has { self.matrix(n) } else { Vec::new() }).collect()
    }

    /// Directions of a single-level way: those of the models elsewhere, and here those of the numbers that
    /// stand for T, from the agents' own.
    pub fn gradients_by(
        &self,
        at: At<'_>,
        numbers: &[Vec<T>],
        passes: &mut dyn Passes,
    ) -> Result<Vec<Vec<T>>> {
        let ts = self.matrices(numbers);
        let of = |(agent, t): (&usize, _)| self.asked_single(*agent, at.k, t);
        let asked: Vec<_> = at.owned.iter().zip(ts.iter().map(Vec::as_slice)).map(of).collect();
        let seen = self.passed(0, &asked, self.choices.tau, passes)?;
        let mut out: Vec<Vec<T>> = numbers.iter().map(|n| vec![T::ZERO; n.len()]).collect();
        for (((dt, have), t), seen) in out.iter_mut().zip(numbers).zip(&ts).zip(&seen) {
            self.matrix_direction(at.k, have, t, seen, dt);
        }
        Ok(out)
    }

    /// Directions of a bilevel way that learns no regulariser: those of y and z elsewhere, and here those of
    /// x, from the agents' own.
    pub fn directions_by(
        &self,
        at: At<'_>,
        Penalty { f, g }: Penalty,
        x: &[Vec<T>],
        passes: &mut dyn Passes,
    ) -> Result<Vec<Vec<T>>> {
        let (k, tau, ts) = (at.k, self.choices.tau, self.matrices(x));
        let mut out: Vec<Vec<T>> = x.iter().map(|x| vec![T::ZERO; x.len()]).collect();
        let agents = || at.owned.iter().enumerate();
        if self.way == Way::EmOwn {
            let asked: Vec<_> = agents().map(|(i, a)| self.asked_own((*a, k), (f, g), &ts[i])).collect();
            let seen = self.passed(0, &asked, tau, passes)?;
            out.iter_mut().zip(x).zip(&seen).for_each(|((dx, x), seen)| self.to_counts(x, seen, dx));
            return passes.rest(1).map(|()| out);
        }
        if k < self.choices.warm {
            let asked: Vec<_> = agents().map(|(_, a)| self.asked_before((*a, k))).collect();
            let seen = self.passed(0, &asked, tau, passes)?;
            self.passed(1, &asked, tau, passes)?;
            out.iter_mut().zip(x).zip(&seen).for_each(|((dx, x), seen)| self.upper_before(x, seen, dx));
            return Ok(out);
        }
        for (model, f, sign) in [(1, 0.0, -1.0), (0, f, 1.0)] {
            let of = |(i, a): (usize, &usize)| self.asked_lower((*a, k), (f, g), &x[i], &ts[i]);
            let asked: Vec<_> = agents().map(of).collect();
            let seen = self.passed(model, &asked, g * tau, passes)?;
            for (((dx, t), asked), seen) in out.iter_mut().zip(&ts).zip(&asked).zip(&seen) {
                self.lower_upper(asked, t, seen, |c, d| dx[c] += self.upper_part(k, c, sign, d));
            }
        }
        Ok(out)
    }

    /// What `own_sums` says, where models lie elsewhere: `numbers` are an agent's that may stand for T, and
    /// `scores` gives those of rows of a site, or of the test rows, under an agent's model, by its number
    /// among these agents.
    pub fn own_sums_by(&self, agents: &[usize], numbers: &[Vec<T>], scores: &Scores<'_, T>) -> Vec<Vec<f64>> {
        let of = |(row, agent): (usize, &usize)| {
            let own = |site: Option<usize>, rows: &[usize]| scores(row, site, rows);
            self.sums_by(*agent, Speaker::Elsewhere(&own), self.noise(&numbers[row]).as_ref())
        };
        agents.iter().enumerate().map(of).collect()
    }

    /// Whether its regularisers are learned, which only the host can.
    pub fn learns_regulariser(&self) -> bool {
        self.learns_tau() || self.regularisers.is_some()
    }

    /// How many of a single-level way's numbers stand for T.
    pub fn matrix_numbers(&self) -> usize {
        let single = self.way.has_matrix() && !self.way.is_bilevel();
        if single { self.net.classes * self.net.classes } else { 0 }
    }

    /// All sites, the test rows last.
    pub fn all_sites(&self) -> impl Iterator<Item = &super::Site> {
        self.sites.iter().chain(&self.test).map(|s| &**s)
    }

    /// Rows in a batch of each agent at most.
    pub fn most_rows(&self) -> usize {
        let of = |agent: usize| (0..2).map(|which| self.batch(agent, which, 0).len).sum();
        (0..self.sites.len()).map(of).max().unwrap_or(0)
    }
}
