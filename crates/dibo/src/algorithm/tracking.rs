//! Two ways to mix what several algorithms share: AB/Push-Pull with gradient tracking, and push-sum.
use super::{View, memory, views};
use crate::error::Result;
use crate::network::{Lane, Network};
use crate::rows::{Real, Rows, Stack, Threads, Upper};

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

/// A private variable is neither mixed nor tracked: x⁺ = x − η d.
pub fn step_private<T: Real, const N: usize>(
    v: &mut Stack<T, N>,
    eta: f64,
    d: &Stack<T, N>,
    network: &dyn Network<T>,
) {
    if let (Some(x), Some(d)) = (&mut v.private, &d.private) {
        x.add_scaled(T::of(-eta), d, network.threads());
    }
}

/// The rows of two stacks that belong together: the shared ones, and the private ones where there are any.
pub fn pairs<'a, T: Real, const N: usize>(
    a: &'a mut Stack<T, N>,
    b: &'a Stack<T, N>,
) -> impl Iterator<Item = (&'a mut Rows<T>, &'a Rows<T>)> {
    std::iter::once((&mut a.shared, &b.shared)).chain(a.private.as_mut().zip(b.private.as_ref()))
}

/// Step sizes spread over columns, kept while they do not change.
struct Steps<T, const N: usize> {
    values: [f64; N],
    columns: Vec<T>,
}

impl<T, const N: usize> Default for Steps<T, N> {
    fn default() -> Self {
        Steps { values: [f64::NAN; N], columns: Vec::new() }
    }
}

impl<T: Real, const N: usize> Steps<T, N> {
    fn set(&mut self, stack: &Stack<T, N>, values: [f64; N]) {
        if self.values != values {
            stack.step_columns(values, &mut self.columns);
            self.values = values;
        }
    }
}

/// A stack of zeros for the owned agents: x as the problem says, then variables of these widths.
pub fn zeros<T: Real, const N: usize>(upper: &Upper, others: &[usize], owned: &[usize]) -> Stack<T, N> {
    let upper = match upper {
        Upper::Private(widths) => Upper::Private(owned.iter().map(|i| widths[*i]).collect()),
        shared => shared.clone(),
    };
    Stack::zeros(owned.len(), &upper, others)
}
