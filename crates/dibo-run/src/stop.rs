//! The wish to stop: Ctrl-C, or SIGTERM and SIGHUP, which mean the same; and the wish to keep a checkpoint
//! and go on.
use anyhow::{Context, Result};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

static STOP: AtomicBool = AtomicBool::new(false);
static WATCHING: AtomicBool = AtomicBool::new(false);
static SIGNALLED: AtomicBool = AtomicBool::new(false);
static KEEP: AtomicUsize = AtomicUsize::new(0);

/// Whether it was asked to stop: every run stops after its iteration and writes a checkpoint.
pub fn asked() -> bool {
    STOP.load(Relaxed)
}

/// Watches for the wish, from the first call on; a second signal leaves at once.
pub fn watch() -> Result<()> {
    if WATCHING.swap(true, Relaxed) {
        return Ok(());
    }
    let handler = || {
        STOP.store(true, Relaxed);
        // A caller's wish does not count: one that passes this very signal on may come before it.
        if SIGNALLED.swap(true, Relaxed) {
            std::process::exit(130);
        }
        eprintln!("\nstopping: what is done is kept (Ctrl-C again to leave at once)");
    };
    ctrlc::set_handler(handler).context("cannot watch for Ctrl-C")
}

/// Leaves signals to the caller, a program with handlers of its own: it says [`ask`]. Forgets an earlier
/// wish.
pub fn by_caller() {
    WATCHING.store(true, Relaxed);
    STOP.store(false, Relaxed);
}

/// The wish to stop, from a caller.
pub fn ask() {
    STOP.store(true, Relaxed);
}

/// The wish that every run keeps a checkpoint after its iteration, and goes on.
pub fn ask_to_keep() {
    KEEP.fetch_add(1, Relaxed);
}

/// How often [`ask_to_keep`] was said: a run that has kept fewer wishes keeps a checkpoint.
pub fn keeps() -> usize {
    KEEP.load(Relaxed)
}
