//! Gradient tracking in its orders, and AB/Push-Pull, which is the first of them with A and B for W.
//!
//! Between steps t lacks the newest m: the round adds it while it reads both anyway.
use super::{Lanes, Mixer, Step};
use crate::network::Lane;
use crate::rows::{Real, Rows, Threads};
use std::ops::Range;

/// What is combined after the step.
#[derive(Clone, Copy, PartialEq)]
pub enum Order {
    /// Nothing: v⁺ = A v − η t, t⁺ = B t + m⁺ − m.
    Combine,
    /// v: v⁺ = A (v − η t), t⁺ = B t + m⁺ − m.
    Adapt,
    /// Both: t = B (t + m − m₋), v⁺ = A (v − η t); `raw` leaves the first t unmixed.
    Both { raw: bool },
}

pub struct Gt<T> {
    order: Order,
    t: Rows<T>,
    pending: bool,
    share: f64,
}

impl<T: Real> Gt<T> {
    pub fn new(order: Order, v: &Rows<T>, share: f64) -> Self {
        let mut t = v.clone();
        t.clear();
        Gt { order, t, pending: false, share }
    }
}

impl<T: Real> Mixer<T> for Gt<T> {
    fn phases(&self, k: usize) -> Range<usize> {
        match self.order {
            Order::Both { raw } => usize::from(raw && k == 0)..2,
            _ => 1..2,
        }
    }

    /// Phase 0 moves the tracker, phase 1 the decision.
    fn before(&mut self, phase: usize, s: Step<'_, T>) {
        if self.order != Order::Combine {
            self.settle(s.m, s.threads);
            if phase == 1 {
                s.v.sub_scaled_columns(s.eta, &self.t, s.threads);
            }
        }
    }

    fn send<'a>(
        &'a mut self,
        phase: usize,
        v: &'a mut Rows<T>,
        m: &'a Rows<T>,
        eta: &'a [T],
        out: &mut Lanes<'a, T>,
    ) {
        match (self.order, phase) {
            (Order::Combine, _) => {
                let pending = std::mem::take(&mut self.pending);
                out.put(Lane::push_pull(v, eta, &mut self.t, m, pending).share(self.share));
            }
            (Order::Adapt, _) => {
                out.put(Lane::pull(v).share(self.share));
                out.put(Lane::track(&mut self.t, m));
            }
            (Order::Both { .. }, 0) => out.put(Lane::push(&mut self.t)),
            (Order::Both { .. }, _) => out.put(Lane::pull(v).share(self.share)),
        }
    }

    fn after(&mut self, phase: usize, s: Step<'_, T>) {
        if phase == 1 && matches!(self.order, Order::Both { .. }) {
            self.t.add_scaled(-T::ONE, s.m, s.threads);
        }
    }

    fn renewed(&mut self) {
        self.pending = true;
    }

    fn settle(&mut self, m: &Rows<T>, threads: &Threads) {
        if std::mem::take(&mut self.pending) {
            self.t.add(m, threads);
        }
    }

    fn tracker(&self) -> Option<&Rows<T>> {
        Some(&self.t)
    }

    fn restart(&mut self, _: &Rows<T>) {
        self.t.clear();
        self.pending = false;
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        vec![&mut self.t]
    }
}
