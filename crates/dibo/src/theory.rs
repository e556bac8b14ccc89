//! What can be said before a run.
