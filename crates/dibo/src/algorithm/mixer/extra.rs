//! EXTRA: v⁺ = W (2v − v₋) − η (m − m₋), from v₋ = v and m₋ = 0. Exact, on one graph only.
use super::{Mixer, Step};
use crate::rows::{Real, Rows};

pub struct Extra<T> {
    old: Rows<T>,
    /// Room for v on a device, which has no kernel for both at once.
    next: Option<Rows<T>>,
    old_m: Rows<T>,
    share: f64,
}

impl<T: Real> Extra<T> {
    pub fn new(v: &Rows<T>, share: f64) -> Self {
        let mut old_m = v.clone();
        old_m.clear();
        Extra { old: v.clone(), next: v.device().is_some().then(|| v.clone()), old_m, share }
    }
}

impl<T: Real> Mixer<T> for Extra<T> {
    fn share(&self) -> f64 {
        self.share
    }

    fn before(&mut self, _: usize, s: Step<'_, T>) {
        match &mut self.next {
            None => s.v.extrapolate(&mut self.old, s.threads),
            Some(next) => {
                next.copy_from(s.v);
                self.old.scale_difference(T::ONE, s.v, s.threads);
                s.v.add(&self.old, s.threads);
                std::mem::swap(&mut self.old, next);
            }
        }
    }

    fn after(&mut self, _: usize, s: Step<'_, T>) {
        s.v.sub_scaled_change(&mut self.old_m, s.eta, s.m, s.threads);
    }

    fn restart(&mut self, v: &Rows<T>) {
        self.old.copy_from(v);
        self.old_m.clear();
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        vec![&mut self.old, &mut self.old_m]
    }
}
