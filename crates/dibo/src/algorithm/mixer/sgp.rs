//! Gradient push: push-sum with a gradient step before the push or after it. Agrees, with a bias that goes to
//! 0 with the step.
use super::{Lanes, Mixer, Step};
use crate::network::Lane;
use crate::rows::{Real, Rows};

pub struct Sgp<T> {
    adapt_first: bool,
    u: Rows<T>,
    w: Rows<T>,
}

/// Push-sum's weights at the start.
pub fn ones<T: Real>(count: usize) -> Rows<T> {
    let mut w = Rows::zeros(count, 1);
    set_ones(&mut w);
    w
}

pub fn set_ones<T: Real>(w: &mut Rows<T>) {
    (0..w.count()).for_each(|i| w.row_mut(i)[0] = T::ONE);
}

impl<T: Real> Sgp<T> {
    pub fn new(v: &Rows<T>, adapt_first: bool) -> Self {
        Sgp { adapt_first, u: v.clone(), w: ones(v.count()) }
    }
}

impl<T: Real> Mixer<T> for Sgp<T> {
    fn before(&mut self, _: usize, s: Step<'_, T>) {
        if self.adapt_first {
            self.u.sub_scaled_columns(s.eta, s.m, s.threads);
        }
    }

    fn send<'a>(
        &'a mut self,
        _: usize,
        _: &'a mut Rows<T>,
        _: &'a Rows<T>,
        _: &'a [T],
        out: &mut Lanes<'a, T>,
    ) {
        out.put(Lane::push(&mut self.u));
        out.put(Lane::push(&mut self.w));
    }

    fn after(&mut self, _: usize, s: Step<'_, T>) {
        if !self.adapt_first {
            self.u.sub_scaled_columns(s.eta, s.m, s.threads);
        }
        s.v.divide_into(&self.u, &self.w, s.threads);
    }

    fn weight(&self) -> Option<&Rows<T>> {
        Some(&self.w)
    }

    fn restart(&mut self, v: &Rows<T>) {
        self.u.copy_from(v);
        set_ones(&mut self.w);
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        vec![&mut self.u, &mut self.w]
    }
}
