//! Push-sum, as several algorithms share it.
use super::stacks::Steps;
use super::{View, memory, views};
use crate::error::Result;
use crate::network::{Lane, Network};
use crate::rows::{Real, Rows, Stack};

/// Push-sum: u and the weight w are pushed through B, and v = u / w is the estimate.
pub struct PushSum<T, const N: usize> {
    pub u: Stack<T, N>,
    pub w: Rows<T>,
    pub v: Stack<T, N>,
    steps: Steps<T, N>,
}

impl<T: Real, const N: usize> PushSum<T, N> {
    pub fn new(v: Stack<T, N>) -> Self {
        let mut w = Rows::zeros(v.count(), 1);
        (0..v.count()).for_each(|i| w.row_mut(i)[0] = T::ONE);
        let mut u = v.clone();
        u.private = None;
        PushSum { u, w, v, steps: Steps::default() }
    }

    /// u = u − η g, before it is pushed.
    pub fn descend(&mut self, eta: [f64; N], g: &Stack<T, N>, network: &dyn Network<T>) {
        self.steps.set(&self.u, eta);
        self.u.shared.sub_scaled_columns(&self.steps.columns, &g.shared, network.threads());
    }

    /// u = B u, w = B w, and what else is pushed in the same message; then v = u / w.
    pub fn push(
        &mut self,
        k: usize,
        network: &mut dyn Network<T>,
        tracker: Option<(&mut Stack<T, N>, &Stack<T, N>)>,
    ) -> Result<()> {
        let (u, w) = (Lane::push(&mut self.u.shared), Lane::push(&mut self.w));
        match tracker {
            Some((t, d)) => network.round(k, &mut [u, w, Lane::track(&mut t.shared, &d.shared)])?,
            None => network.round(k, &mut [u, w])?,
        }
        self.v.shared.divide_into(&self.u.shared, &self.w, network.threads());
        Ok(())
    }

    pub fn views(&self, names: [&'static str; N]) -> impl Iterator<Item = View<'_, T>> {
        views(&self.v, names).chain(std::iter::once(View::whole("w", &self.w)))
    }

    pub fn memory(&mut self) -> impl Iterator<Item = &mut Rows<T>> {
        memory(&mut self.u).chain(std::iter::once(&mut self.w)).chain(memory(&mut self.v))
    }
}
