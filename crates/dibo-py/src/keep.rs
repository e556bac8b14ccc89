//! What keeps lent rows alive: as long as an array is, whoever holds it.
use pyo3::prelude::*;
use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

/// What arrays were lent from: the state and the network of a run, put here at its end.
#[derive(Clone, Default)]
pub struct Keep(Arc<Mutex<Vec<Box<dyn Any + Send>>>>);

impl Keep {
    /// Keeps something alive as long as an array is.
    pub fn put(&self, what: impl Any + Send) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(what));
    }
}

/// The owner of lent arrays, as NumPy sees it: while one of them is alive, so is the memory behind it, also
/// after the run.
#[pyclass(frozen, module = "dibo._core")]
pub struct Lender(#[cfg_attr(not(feature = "cuda"), allow(dead_code))] pub Keep);

impl Lender {
    /// A lender that keeps what is put there.
    pub fn new(keep: &Keep) -> Self {
        Lender(keep.clone())
    }
}
