//! Push-DIGing: gradient tracking over push-sum, with B alone. Exact on directed graphs that change.
use super::sgp::{ones, set_ones};
use super::{Lanes, Mixer, Step};
use crate::network::Lane;
use crate::rows::{Real, Rows, Threads};

pub struct PushDiging<T> {
    u: Rows<T>,
    w: Rows<T>,
    t: Rows<T>,
    pending: bool,
}

impl<T: Real> PushDiging<T> {
    pub fn new(v: &Rows<T>) -> Self {
        let mut t = v.clone();
        t.clear();
        PushDiging { u: v.clone(), w: ones(v.count()), t, pending: false }
    }
}

impl<T: Real> Mixer<T> for PushDiging<T> {
    fn before(&mut self, _: usize, s: Step<'_, T>) {
        self.settle(s.m, s.threads);
        self.u.sub_scaled_columns(s.eta, &self.t, s.threads);
    }

    fn send<'a>(
        &'a mut self,
        _: usize,
        _: &'a mut Rows<T>,
        m: &'a Rows<T>,
        _: &'a [T],
        out: &mut Lanes<'a, T>,
    ) {
        out.put(Lane::push(&mut self.u));
        out.put(Lane::push(&mut self.w));
        out.put(Lane::track(&mut self.t, m));
    }

    fn after(&mut self, _: usize, s: Step<'_, T>) {
        s.v.divide_into(&self.u, &self.w, s.threads);
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

    fn weight(&self) -> Option<&Rows<T>> {
        Some(&self.w)
    }

    fn restart(&mut self, v: &Rows<T>) {
        self.u.copy_from(v);
        self.t.clear();
        set_ones(&mut self.w);
        self.pending = false;
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        vec![&mut self.u, &mut self.w, &mut self.t]
    }
}
