//! Workspace of each thread, taken once: no iteration allocates.
use crate::rows::Real;
use std::sync::{Mutex, PoisonError};

/// One for each thread.
pub struct Workspaces<T>(Vec<Mutex<Vec<T>>>);

impl<T: Real> Workspaces<T> {
    /// For so many threads.
    pub fn new(threads: usize) -> Self {
        Workspaces((0..threads.max(1)).map(|_| Mutex::new(Vec::new())).collect())
    }

    /// Calls `job` with so many numbers of a thread's workspace; what stood in them before is anybody's
    /// guess.
    pub fn with<R>(&self, thread: usize, numbers: usize, job: impl FnOnce(&mut [T]) -> R) -> R {
        let mut own = self.0[thread].lock().unwrap_or_else(PoisonError::into_inner);
        if own.len() < numbers {
            own.resize(numbers, T::ZERO);
        }
        job(&mut own[..numbers])
    }
}
