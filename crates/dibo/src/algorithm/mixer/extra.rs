//! EXTRA: v⁺ = W (2v − v₋) − η (m − m₋), from v₋ = v and m₋ = 0. Exact, on one graph only.
use super::{Mixer, Soft, Step};
use crate::rows::{Real, Rows};

pub struct Extra<T> {
    old: Rows<T>,
    next: Rows<T>,
    old_m: Rows<T>,
    soft: Soft<T>,
}

impl<T: Real> Extra<T> {
    pub fn new(v: &Rows<T>, soft: Soft<T>) -> Self {
        let mut old_m = v.clone();
        old_m.clear();
        Extra { old: v.clone(), next: v.clone(), old_m, soft }
    }
}

impl<T: Real> Mixer<T> for Extra<T> {
    fn before(&mut self, _: usize, s: Step<'_, T>) {
        self.next.copy_from(s.v);
        self.old.scale_difference(T::ONE, s.v, s.threads);
        s.v.add(&self.old, s.threads);
        std::mem::swap(&mut self.old, &mut self.next);
        self.soft.keep(s.v);
    }

    fn after(&mut self, _: usize, s: Step<'_, T>) {
        self.soft.blend(s.v, s.threads);
        self.old_m.scale_difference(T::ONE, s.m, s.threads);
        s.v.sub_scaled_columns(s.eta, &self.old_m, s.threads);
        self.old_m.copy_from(s.m);
    }

    fn restart(&mut self, v: &Rows<T>) {
        self.old.copy_from(v);
        self.old_m.clear();
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        vec![&mut self.old, &mut self.old_m]
    }
}
