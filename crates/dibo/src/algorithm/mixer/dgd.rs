//! DGD: a gradient step after the pull (combine then adapt) or before it (adapt then combine, diffusion).
//! With a constant step it ends near the solution, not at it.
use super::{Mixer, Step};
use crate::rows::{Real, Rows};

pub struct Dgd {
    pub adapt_first: bool,
    pub share: f64,
}

impl<T: Real> Mixer<T> for Dgd {
    fn share(&self) -> f64 {
        self.share
    }

    fn before(&mut self, _: usize, s: Step<'_, T>) {
        if self.adapt_first {
            s.v.sub_scaled_columns(s.eta, s.m, s.threads);
        }
    }

    fn after(&mut self, _: usize, s: Step<'_, T>) {
        if !self.adapt_first {
            s.v.sub_scaled_columns(s.eta, s.m, s.threads);
        }
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        Vec::new()
    }
}
