//! AB/Push-Pull with gradient tracking, as several algorithms share it.
use super::stacks::{Steps, step_private};
use super::{View, memory, views};
use crate::error::Result;
use crate::network::{Lane, Network};
use crate::rows::{Real, Rows, Stack, Threads};

/// Decisions v, trackers t and directions d, moved as `v⁺ = A v − η t` and `t⁺ = B t + d⁺ − d`.
///
/// Both are mixed in one round, before d⁺ is known: [`Tracked::mix`] leaves `B t − d` in t,
/// [`Tracked::absorb`] adds d⁺.
pub struct Tracked<T, const N: usize> {
    pub v: Stack<T, N>,
    pub t: Stack<T, N>,
    pub d: Stack<T, N>,
    steps: Steps<T, N>,
    /// d⁺ is still to be added to t: the next round does it while it reads both anyway.
    pending: bool,
}

impl<T: Real, const N: usize> Tracked<T, N> {
    pub fn new(v: Stack<T, N>) -> Self {
        let mut t = v.clone();
        t.shared.clear();
        let mut d = t.clone();
        if let Some(private) = &mut d.private {
            private.clear();
        }
        // A private variable meets no other agent, so its tracker is its direction: t⁺ = t + d⁺ − d = d⁺.
        t.private = None;
        Tracked { v, t, d, steps: Steps::default(), pending: false }
    }

    /// v⁺ = A v − η t and t = B t − d.
    pub fn mix(&mut self, k: usize, eta: [f64; N], network: &mut dyn Network<T>) -> Result<()> {
        self.steps.set(&self.v, eta);
        step_private(&mut self.v, eta[0], &self.d, network);
        let lane = Lane::push_pull(
            &mut self.v.shared,
            &self.steps.columns,
            &mut self.t.shared,
            &self.d.shared,
            self.pending,
        );
        network.round(k, &mut [lane])?;
        self.pending = false;
        Ok(())
    }

    /// t⁺ = t + d⁺, now or in the next round.
    pub fn absorb(&mut self) {
        self.pending = true;
    }

    fn settle(&mut self) {
        if std::mem::take(&mut self.pending) {
            self.t.shared.add(&self.d.shared, &Threads::one());
        }
    }

    pub fn views(
        &mut self,
        v: [&'static str; N],
        t: [&'static str; N],
        d: [&'static str; N],
    ) -> Vec<View<'_, T>> {
        self.settle();
        let mut all: Vec<_> = views(&self.v, v).chain(views(&self.t, t)).chain(views(&self.d, d)).collect();
        if self.v.private.is_some() {
            all.retain(|view| view.name != t[0]);
        }
        all
    }

    pub fn memory(&mut self) -> Vec<&mut Rows<T>> {
        self.settle();
        memory(&mut self.v).chain(memory(&mut self.t)).chain(memory(&mut self.d)).collect()
    }
}
