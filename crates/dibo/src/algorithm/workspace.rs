//! Workspace of each thread, taken once: no iteration allocates.
use super::afar::Afar;
use crate::rows::Real;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One for each thread; and a point on the device, for methods that need one where rows lie there.
pub struct Workspaces<T> {
    threads: Vec<Mutex<Vec<T>>>,
    afar: Option<Mutex<Afar<T>>>,
}

impl<T: Real> Workspaces<T> {
    /// For so many threads.
    pub fn new(threads: usize) -> Self {
        Workspaces { threads: (0..threads.max(1)).map(|_| Mutex::new(Vec::new())).collect(), afar: None }
    }

    /// The same with a point on the device.
    pub fn and(self, afar: Option<Afar<T>>) -> Self {
        Workspaces { afar: afar.map(Mutex::new), ..self }
    }

    /// The point on the device, if rows lie there.
    pub fn afar(&self) -> Option<MutexGuard<'_, Afar<T>>> {
        self.afar.as_ref().map(|afar| afar.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Calls `job` with so many numbers of a thread's workspace; what stood in them before is anybody's
    /// guess.
    pub fn with<R>(&self, thread: usize, numbers: usize, job: impl FnOnce(&mut [T]) -> R) -> R {
        let mut own = self.threads[thread].lock().unwrap_or_else(PoisonError::into_inner);
        if own.len() < numbers {
            own.resize(numbers, T::ZERO);
        }
        job(&mut own[..numbers])
    }
}
