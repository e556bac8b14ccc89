//! DGD: a gradient step after the pull (combine then adapt) or before it (adapt then combine, diffusion).
//! With a constant step it ends near the solution, not at it.
use super::{Mixer, Soft, Step};
use crate::rows::{Real, Rows};

pub struct Dgd<T> {
    pub adapt_first: bool,
    pub soft: Soft<T>,
}

impl<T: Real> Mixer<T> for Dgd<T> {
    fn before(&mut self, _: usize, s: Step<'_, T>) {
        if self.adapt_first {
            s.v.sub_scaled_columns(s.eta, s.m, s.threads);
        }
        self.soft.keep(s.v);
    }

    fn after(&mut self, _: usize, s: Step<'_, T>) {
        self.soft.blend(s.v, s.threads);
        if !self.adapt_first {
            s.v.sub_scaled_columns(s.eta, s.m, s.threads);
        }
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        Vec::new()
    }
}
