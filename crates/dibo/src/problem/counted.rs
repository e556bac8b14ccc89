//! Counts oracle calls where they happen: in a wrapper of the problem, never in an algorithm.
use super::{At, Bilevel, Penalty, SecondOrder, SingleLevel, Start};
use crate::rows::{Real, Stack, Upper};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Oracle calls over all agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Oracle {
    /// Gradients of f_i, g_i or F_i.
    pub gradients: u64,
    /// Products with second derivatives.
    pub products: u64,
}

/// A problem that counts how often it is asked.
pub struct Counted<'a, T> {
    inner: &'a dyn Bilevel<T>,
    gradients: AtomicU64,
    products: AtomicU64,
}

impl<'a, T: Real> Counted<'a, T> {
    /// Counts from `start` on.
    pub fn new(inner: &'a dyn Bilevel<T>, start: Oracle) -> Self {
        Counted {
            inner,
            gradients: AtomicU64::new(start.gradients),
            products: AtomicU64::new(start.products),
        }
    }

    /// Calls so far.
    pub fn calls(&self) -> Oracle {
        Oracle { gradients: self.gradients.load(Relaxed), products: self.products.load(Relaxed) }
    }
}

impl<T: Real> Bilevel<T> for Counted<'_, T> {
    fn agents(&self) -> usize {
        self.inner.agents()
    }

    fn upper(&self) -> Upper {
        self.inner.upper()
    }

    fn lower(&self) -> usize {
        self.inner.lower()
    }

    fn grad_f(&self, agent: usize, k: usize, x: &[T], y: &[T], gx: &mut [T], gy: &mut [T]) {
        self.gradients.fetch_add(1, Relaxed);
        self.inner.grad_f(agent, k, x, y, gx, gy);
    }

    fn grad_g(&self, agent: usize, k: usize, x: &[T], y: &[T], gx: &mut [T], gy: &mut [T]) {
        self.gradients.fetch_add(1, Relaxed);
        self.inner.grad_g(agent, k, x, y, gx, gy);
    }

    fn penalty_directions(&self, at: At<'_>, penalty: Penalty, v: &Stack<T, 3>, d: &mut Stack<T, 3>) {
        self.gradients.fetch_add(3 * at.owned.len() as u64, Relaxed);
        self.inner.penalty_directions(at, penalty, v, d);
    }

    fn second_order(&self) -> Option<&dyn SecondOrder<T>> {
        self.inner.second_order().map(|_| self as &dyn SecondOrder<T>)
    }

    fn single_level(&self) -> Option<&dyn SingleLevel<T>> {
        self.inner.single_level().map(|_| self as &dyn SingleLevel<T>)
    }
}

const PRESENT: &str = "offered only where the problem has it";

impl<T: Real> SecondOrder<T> for Counted<'_, T> {
    fn yy(&self, agent: usize, k: usize, x: &[T], y: &[T], v: &[T], out: &mut [T]) {
        self.products.fetch_add(1, Relaxed);
        self.inner.second_order().expect(PRESENT).yy(agent, k, x, y, v, out);
    }

    fn xy(&self, agent: usize, k: usize, x: &[T], y: &[T], v: &[T], out: &mut [T]) {
        self.products.fetch_add(1, Relaxed);
        self.inner.second_order().expect(PRESENT).xy(agent, k, x, y, v, out);
    }
}

impl<T: Real> SingleLevel<T> for Counted<'_, T> {
    fn agents(&self) -> usize {
        self.inner.agents()
    }

    fn width(&self) -> usize {
        self.inner.single_level().expect(PRESENT).width()
    }

    fn blocks(&self) -> usize {
        self.inner.single_level().expect(PRESENT).blocks()
    }

    fn start_from<'s>(&self, start: &'s Start) -> &'s Vec<Vec<f64>> {
        self.inner.single_level().expect(PRESENT).start_from(start)
    }

    fn gradients(&self, at: At<'_>, x: &Stack<T, 1>, d: &mut Stack<T, 1>) {
        self.gradients.fetch_add(at.owned.len() as u64, Relaxed);
        self.inner.single_level().expect(PRESENT).gradients(at, x, d);
    }
}
