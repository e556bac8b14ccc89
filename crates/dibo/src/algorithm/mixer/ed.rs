//! Exact Diffusion (D²): ψ⁺ = v − η m, v⁺ = W (v + ψ⁺ − ψ), from ψ = v. Exact, on one graph only.
use super::{Mixer, Soft, Step};
use crate::rows::{Real, Rows};

pub struct Ed<T> {
    psi: Rows<T>,
    next: Rows<T>,
    soft: Soft<T>,
}

impl<T: Real> Ed<T> {
    pub fn new(v: &Rows<T>, soft: Soft<T>) -> Self {
        Ed { psi: v.clone(), next: v.clone(), soft }
    }
}

impl<T: Real> Mixer<T> for Ed<T> {
    fn before(&mut self, _: usize, s: Step<'_, T>) {
        self.next.copy_from(s.v);
        self.next.sub_scaled_columns(s.eta, s.m, s.threads);
        s.v.add(&self.next, s.threads);
        s.v.add_scaled(-T::ONE, &self.psi, s.threads);
        std::mem::swap(&mut self.psi, &mut self.next);
        self.soft.keep(s.v);
    }

    fn after(&mut self, _: usize, s: Step<'_, T>) {
        self.soft.blend(s.v, s.threads);
    }

    fn restart(&mut self, v: &Rows<T>) {
        self.psi.copy_from(v);
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        vec![&mut self.psi]
    }
}
