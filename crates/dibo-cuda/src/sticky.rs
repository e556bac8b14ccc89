//! The first failure of a device, kept.
use std::fmt::Display;
use std::sync::OnceLock;

/// Keeps the first failure and skips every step after it, as CUDA does with its own errors. The seams inside
/// an iteration carry no errors, so a failure waits here until someone who can return it asks.
#[derive(Debug, Default)]
pub(crate) struct Sticky(OnceLock<String>);

impl Sticky {
    pub fn failed(&self) -> bool {
        self.0.get().is_some()
    }

    /// The first failure, if there was one.
    pub fn health(&self) -> Result<(), String> {
        self.0.get().map_or(Ok(()), |failure| Err(failure.clone()))
    }

    /// Keeps a failure unless there is one already: later ones are mostly its consequences.
    pub fn keep(&self, failure: String) {
        let _ = self.0.set(failure);
    }

    /// Does a step unless something failed before; keeps what it fails with.
    pub fn attempt<R, E: Display>(&self, what: &str, step: impl FnOnce() -> Result<R, E>) -> Option<R> {
        if self.failed() {
            return None;
        }
        step().map_err(|e| self.keep(format!("the GPU failed at {what}: {e}"))).ok()
    }

    /// Passes a value on; that there is none is a failure. After a failure there is none in any case.
    pub fn require<R>(&self, value: Option<R>, failure: &str) -> Option<R> {
        if value.is_none() {
            self.keep(failure.into());
        }
        value.filter(|_| !self.failed())
    }
}

#[cfg(test)]
mod tests {
    use super::Sticky;

    #[test]
    fn the_first_failure_stays() {
        let sticky = Sticky::default();
        assert_eq!(sticky.health(), Ok(()));
        assert_eq!(sticky.attempt("one", || Ok::<_, String>(1)), Some(1));
        assert!(!sticky.failed());
        assert_eq!(sticky.attempt::<(), _>("two", || Err("no power")), None);
        sticky.keep("a later one".into());
        assert_eq!(sticky.health(), Err("the GPU failed at two: no power".into()));
    }

    #[test]
    fn nothing_is_done_after_a_failure() {
        let (sticky, mut steps) = (Sticky::default(), 0);
        let mut step = |answer: Result<(), &'static str>| {
            sticky.attempt("a step", || {
                steps += 1;
                answer
            })
        };
        assert_eq!(
            [step(Ok(())), step(Err("first")), step(Ok(())), step(Err("second"))],
            [Some(()), None, None, None]
        );
        assert_eq!(steps, 2);
        assert_eq!(sticky.health(), Err("the GPU failed at a step: first".into()));
    }

    #[test]
    fn what_is_required_and_missing_is_a_failure() {
        let sticky = Sticky::default();
        assert_eq!(sticky.require(Some(3), "nothing here"), Some(3));
        assert_eq!(sticky.require(None::<i32>, "nothing here"), None);
        assert_eq!(sticky.health(), Err("nothing here".into()));
        assert_eq!(sticky.require(Some(3), "not looked at"), None);
    }

    #[test]
    fn threads_see_one_failure() {
        let sticky = Sticky::default();
        std::thread::scope(|s| {
            for i in 0..4 {
                let sticky = &sticky;
                s.spawn(move || sticky.keep(format!("thread {i}")));
            }
        });
        let first = sticky.health();
        sticky.keep("another".into());
        assert!(first.is_err() && sticky.health() == first);
    }
}
