//! Counts oracle calls where they happen: in a wrapper of the problem, never in an algorithm.
use super::{At, Bilevel, Metric, Penalty, Products, SecondOrder, SingleLevel, Start, Values};
use crate::error::{Error, Result};
use crate::rows::{Real, Stack, Upper, View};
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
    second_order: Option<&'a dyn SecondOrder<T>>,
    single_level: Option<&'a dyn SingleLevel<T>>,
    gradients: AtomicU64,
    products: AtomicU64,
}

impl<'a, T: Real> Counted<'a, T> {
    /// Counts from `start` on.
    pub fn new(inner: &'a dyn Bilevel<T>, start: Oracle) -> Self {
        Counted {
            inner,
            second_order: inner.second_order(),
            single_level: inner.single_level(),
            gradients: AtomicU64::new(start.gradients),
            products: AtomicU64::new(start.products),
        }
    }

    /// Calls so far.
    pub fn calls(&self) -> Oracle {
        Oracle { gradients: self.gradients.load(Relaxed), products: self.products.load(Relaxed) }
    }

    fn products_of(&self) -> Result<&'a dyn SecondOrder<T>> {
        self.products.fetch_add(1, Relaxed);
        self.second_order.ok_or(Error::Unsupported("second-order products"))
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

    fn grad_f(&self, agent: usize, k: usize, x: &[T], y: &[T], gx: &mut [T], gy: &mut [T]) -> Result<()> {
        self.gradients.fetch_add(1, Relaxed);
        self.inner.grad_f(agent, k, x, y, gx, gy)
    }

    fn grad_g(&self, agent: usize, k: usize, x: &[T], y: &[T], gx: &mut [T], gy: &mut [T]) -> Result<()> {
        self.gradients.fetch_add(1, Relaxed);
        self.inner.grad_g(agent, k, x, y, gx, gy)
    }

    fn penalty_directions(
        &self,
        at: At<'_>,
        penalty: Penalty,
        v: &Stack<T, 3>,
        d: &mut Stack<T, 3>,
    ) -> Result<()> {
        self.gradients.fetch_add(3 * at.owned.len() as u64, Relaxed);
        self.inner.penalty_directions(at, penalty, v, d)
    }

    fn soba_directions(
        &self,
        at: At<'_>,
        by: Products,
        only: Option<usize>,
        v: &Stack<T, 3>,
        d: &mut Stack<T, 3>,
    ) -> Result<bool> {
        let has = self.inner.soba_directions(at, by, only, v, d)?;
        // ∇f, ∇g and both products; or ∇f, ∇g, and ∇g at the two ends of a difference. For y alone ∇g, for
        // another alone ∇f and its product. A series of J terms has J − 1 products and that of x.
        let (gradients, products) = match (only, by) {
            (Some(1), _) => (1, 0),
            (Some(_), Products::Exact) => (1, 1),
            (Some(_), Products::Differences { .. }) => (3, 0),
            (None, Products::Exact) => (2, 2),
            (None, Products::Differences { .. }) => (4, 0),
            (Some(_), Products::Series { terms, .. }) => (1, terms as u64),
            (None, Products::Series { terms, .. }) => (2, terms as u64),
        };
        let agents = if has { at.owned.len() as u64 } else { 0 };
        self.gradients.fetch_add(gradients * agents, Relaxed);
        self.products.fetch_add(products * agents, Relaxed);
        Ok(has)
    }

    fn second_order(&self) -> Option<&dyn SecondOrder<T>> {
        self.second_order.map(|_| self as &dyn SecondOrder<T>)
    }

    fn single_level(&self) -> Option<&dyn SingleLevel<T>> {
        self.single_level.map(|_| self as &dyn SingleLevel<T>)
    }

    fn start(&self) -> Start {
        self.inner.start()
    }

    fn measures(&self) -> Vec<Metric> {
        self.inner.measures()
    }

    fn own_sums(&self, agents: &[usize], views: &[View<'_, T>]) -> Result<Option<Vec<Vec<f64>>>> {
        self.inner.own_sums(agents, views)
    }

    fn metrics_of_sums(&self, sums: &[f64]) -> Values {
        self.inner.metrics_of_sums(sums)
    }

    fn state_metrics(&self, views: &[View<'_, T>]) -> Result<Values> {
        self.inner.state_metrics(views)
    }
}

impl<T: Real> SecondOrder<T> for Counted<'_, T> {
    fn yy(&self, agent: usize, k: usize, x: &[T], y: &[T], v: &[T], out: &mut [T]) -> Result<()> {
        self.products_of()?.yy(agent, k, x, y, v, out)
    }

    fn xy(&self, agent: usize, k: usize, x: &[T], y: &[T], v: &[T], out: &mut [T]) -> Result<()> {
        self.products_of()?.xy(agent, k, x, y, v, out)
    }
}

impl<T: Real> SingleLevel<T> for Counted<'_, T> {
    fn agents(&self) -> usize {
        self.inner.agents()
    }

    fn width(&self) -> usize {
        self.single_level.map_or(0, |s| s.width())
    }

    fn blocks(&self) -> usize {
        self.single_level.map_or(1, |s| s.blocks())
    }

    fn start_from<'s>(&self, start: &'s Start) -> &'s Vec<Vec<f64>> {
        self.single_level.map_or(&start.x, |s| s.start_from(start))
    }

    fn gradients(&self, at: At<'_>, x: &Stack<T, 1>, d: &mut Stack<T, 1>) -> Result<()> {
        self.gradients.fetch_add(at.owned.len() as u64, Relaxed);
        self.single_level.ok_or(Error::Unsupported("a single-level objective"))?.gradients(at, x, d)
    }
}
