//! (1 − c) v + c A v instead of A v: the lazy W̃ has c = ½, MDBO damps its decisions by its η.
use crate::rows::{Real, Rows, Threads};

/// Keeps v while it is pulled, where c is not 1.
pub struct Soft<T> {
    share: f64,
    old: Option<Rows<T>>,
}

impl<T: Real> Soft<T> {
    pub fn new(share: f64, v: &Rows<T>) -> Self {
        Soft { share, old: (share != 1.0).then(|| v.clone()) }
    }

    /// What is to be pulled.
    pub fn keep(&mut self, v: &Rows<T>) {
        if let Some(old) = &mut self.old {
            old.copy_from(v);
        }
    }

    /// Where to copy it, instead of [`keep`](Self::keep).
    pub fn room(&mut self) -> Option<&mut Rows<T>> {
        self.old.as_mut()
    }

    /// v, which holds A v, becomes old + c (v − old).
    pub fn blend(&self, v: &mut Rows<T>, threads: &Threads) {
        if let Some(old) = &self.old {
            v.blend(T::of(self.share), old, threads);
        }
    }

    /// Steps that give η after the blend: what is taken off A v shrinks by c.
    pub fn steps<'a>(&self, eta: &'a [T], room: &'a mut Vec<T>) -> &'a [T] {
        if self.old.is_none() {
            return eta;
        }
        room.clear();
        room.extend(eta.iter().map(|e| T::of(e.f64() / self.share)));
        room
    }
}
