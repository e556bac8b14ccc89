//! Exact Diffusion (D²): ψ⁺ = v − η m, v⁺ = W (v + ψ⁺ − ψ), from ψ = v. Exact, on one graph only.
use super::{Mixer, Step};
use crate::rows::{Real, Rows};

pub struct Ed<T> {
    psi: Rows<T>,
    /// Room for ψ⁺ on a device, which has no kernel for both at once.
    next: Option<Rows<T>>,
    share: f64,
}

impl<T: Real> Ed<T> {
    pub fn new(v: &Rows<T>, share: f64) -> Self {
        Ed { psi: v.clone(), next: v.device().is_some().then(|| v.clone()), share }
    }
}

impl<T: Real> Mixer<T> for Ed<T> {
    fn share(&self) -> f64 {
        self.share
    }

    fn before(&mut self, _: usize, s: Step<'_, T>) {
        match &mut self.next {
            None => s.v.diffuse(&mut self.psi, s.eta, s.m, s.threads),
            Some(next) => {
                next.copy_from(s.v);
                next.sub_scaled_columns(s.eta, s.m, s.threads);
                s.v.add(next, s.threads);
                s.v.add_scaled(-T::ONE, &self.psi, s.threads);
                std::mem::swap(&mut self.psi, next);
            }
        }
    }

    fn restart(&mut self, v: &Rows<T>) {
        self.psi.copy_from(v);
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        vec![&mut self.psi]
    }
}
