//! Tracking of which neighbours hear only differences, and of those the largest entries.
use super::memory;
use super::stacks::like;
use crate::error::Result;
use crate::network::{Lane, Network};
use crate::rows::{Real, Rows, Stack, Threads};

/// A variable v and its tracker s, with workspace for what neighbours pull them to.
pub struct Tracked<T> {
    pub v: Stack<T, 1>,
    pub s: Stack<T, 1>,
    pull: [Stack<T, 1>; 2],
}

impl<T: Real> Tracked<T> {
    /// At v, with a tracker of 0.
    pub fn new(v: Stack<T, 1>) -> Self {
        Tracked { s: like(&v), pull: [like(&v), like(&v)], v }
    }

    /// One round: v += γ(W v̂ − v̂) − η s, s += γ(W ŝ − ŝ), where neighbours hold v̂ and ŝ, or v and s
    /// themselves.
    pub fn gossip(
        &mut self,
        held: Option<&[Stack<T, 1>; 2]>,
        share: f64,
        eta: f64,
        network: &mut dyn Network<T>,
    ) -> Result<()> {
        let Self { v, s, pull: [a, b] } = self;
        let [v_held, s_held] = held.map_or([&*v, &*s], |[v, s]| [v, s]);
        a.shared.copy_from(&v_held.shared);
        b.shared.copy_from(&s_held.shared);
        let lanes = &mut [Lane::pull(&mut a.shared), Lane::pull(&mut b.shared)];
        network.round(network.next_round(), lanes)?;
        let (threads, share) = (network.threads(), T::of(share));
        a.shared.add_scaled(-T::ONE, &v_held.shared, threads);
        b.shared.add_scaled(-T::ONE, &s_held.shared, threads);
        v.shared.add_scaled(share, &a.shared, threads);
        v.shared.add_scaled(T::of(-eta), &s.shared, threads);
        s.shared.add_scaled(share, &b.shared, threads);
        Ok(())
    }
}

/// A tracked variable, the (v̂, ŝ) that neighbours hold of it, and the gradient last added to the tracker.
pub struct Compressed<T> {
    own: Tracked<T>,
    held: [Stack<T, 1>; 2],
    g: Stack<T, 1>,
    order: Vec<usize>,
}

impl<T: Real> Compressed<T> {
    /// At v, which neighbours know.
    pub fn new(v: Stack<T, 1>) -> Self {
        Compressed { held: [v.clone(), like(&v)], g: like(&v), own: Tracked::new(v), order: Vec::new() }
    }

    /// v.
    pub fn v(&self) -> &Stack<T, 1> {
        &self.own.v
    }

    /// s += new − g, g = new.
    pub fn absorb(&mut self, new: &Stack<T, 1>, threads: &Threads) {
        let Self { own: Tracked { s, .. }, g, .. } = self;
        s.shared.add(&new.shared, threads);
        s.shared.add_scaled(-T::ONE, &g.shared, threads);
        g.shared.copy_from(&new.shared);
    }

    /// One round on what neighbours hold.
    pub fn gossip(&mut self, share: f64, eta: f64, network: &mut dyn Network<T>) -> Result<()> {
        self.own.gossip(Some(&self.held), share, eta, network)
    }

    /// v̂ comes closer to v by the largest entries of their difference.
    pub fn send_v(&mut self, top: Option<usize>) {
        send(&self.own.v, &mut self.held[0], top, &mut self.order);
    }

    /// ŝ comes closer to s.
    pub fn send_s(&mut self, top: Option<usize>) {
        send(&self.own.s, &mut self.held[1], top, &mut self.order);
    }

    /// All that it remembers.
    pub fn memory(&mut self) -> impl Iterator<Item = &mut Rows<T>> {
        let Self { own: Tracked { v, s, .. }, held: [v_held, s_held], g, .. } = self;
        [v, s, v_held, s_held, g].into_iter().flat_map(memory)
    }
}

/// What neighbours hold of the new comes closer by the `top` entries of largest difference; the first of
/// equals comes first.
fn send<T: Real>(new: &Stack<T, 1>, held: &mut Stack<T, 1>, top: Option<usize>, order: &mut Vec<usize>) {
    let top = top.map_or(new.cut(0).len(), |top| top.min(new.cut(0).len()));
    if let (Some(held), Some(there)) = (held.shared.device_mut(), new.shared.device()) {
        return if top < new.cut(0).len() {
            held.take_largest(top, new.cut(0), there)
        } else {
            held.copy_from(there)
        };
    }
    for row in 0..new.count() {
        let ([new], [held]) = (new.row(row), held.row_mut(row));
        let size = |j: &usize| (new[*j] - held[*j]).f64().abs();
        order.clear();
        order.extend(0..new.len());
        if top < new.len() {
            order.select_nth_unstable_by(top, |a, b| size(b).total_cmp(&size(a)).then(a.cmp(b)));
        }
        order[..top].iter().for_each(|j| held[*j] += new[*j] - held[*j]);
    }
}
