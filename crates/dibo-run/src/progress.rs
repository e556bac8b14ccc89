//! How far it is: a bar where there is a terminal, a line now and then where there is none.
use dibo_report::live::Live;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A bar over iterations, or lines.
pub struct Progress {
    bar: ProgressBar,
    lines: Option<std::sync::Mutex<Instant>>,
    began: Instant,
    /// Iterations that an earlier run had done: they took none of the time that is gone.
    found: AtomicU64,
    live: Option<Arc<Live>>,
}

/// Between two lines where there is no terminal.
const BETWEEN: Duration = Duration::from_secs(10);

impl Progress {
    /// Over so many iterations; quiet shows nothing.
    pub fn new(total: u64, quiet: bool) -> Self {
        let bar = ProgressBar::new(total);
        let terminal = std::io::stderr().is_terminal();
        if quiet || !terminal {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let template = "{bar:24.cyan/dim} {percent:>3} %  {msg}  {elapsed} gone, {eta} to go";
        let style = ProgressStyle::with_template(template);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        if terminal && !quiet {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        let began = Instant::now();
        Progress {
            bar,
            lines: (!quiet && !terminal).then(|| std::sync::Mutex::new(began)),
            began,
            found: AtomicU64::new(0),
            live: None,
        }
    }

    /// The same, told to a page as well.
    pub fn with_live(self, live: Option<Arc<Live>>) -> Self {
        if let Some(live) = &live {
            live.set_total(self.bar.length().unwrap_or(0));
        }
        Progress { live, ..self }
    }

    /// So many iterations more were done.
    pub fn inc(&self, iterations: u64) {
        self.bar.inc(iterations);
        self.told(|live| live.advance(iterations));
        self.line();
    }

    /// So many iterations were done already when this began.
    pub fn found(&self, iterations: u64) {
        self.found.fetch_add(iterations, Relaxed);
        self.told(|live| live.found(iterations));
        self.inc(iterations);
        self.bar.reset_eta();
    }

    /// So many iterations are done in all.
    pub fn set_position(&self, iterations: u64) {
        self.bar.set_position(iterations);
        self.told(|live| live.set_done(iterations));
        self.line();
    }

    /// More is to be done than was known.
    pub fn add_length(&self, iterations: u64) {
        let total = self.bar.length().unwrap_or(0) + iterations;
        self.bar.set_length(total);
        self.told(|live| live.set_total(total));
    }

    /// What is going on.
    pub fn set_message(&self, message: String) {
        self.told(|live| live.set_message(&message));
        self.bar.set_message(message);
    }

    /// Says something beside the bar.
    pub fn say(&self, line: &str) {
        self.told(|live| live.say(line));
        self.bar.suspend(|| crate::say!("{line}"));
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn told(&self, tell: impl FnOnce(&Live)) {
        if let Some(live) = &self.live {
            tell(live);
        }
    }

    fn line(&self) {
        let Some(Ok(mut last)) = self.lines.as_ref().map(|l| l.try_lock()) else { return };
        if last.elapsed() < BETWEEN {
            return;
        }
        *last = Instant::now();
        let (done, all) = (self.bar.position(), self.bar.length().unwrap_or(0).max(1));
        let gone = self.began.elapsed().as_secs_f64();
        let percent = 100 * done / all;
        let left =
            to_go(gone, self.found.load(Relaxed), done, all).map(|s| format!(", about {s:.0} s to go"));
        let (message, left) = (self.bar.message(), left.unwrap_or_default());
        eprintln!("{percent:>3} %  {message}  {gone:.0} s gone{left}");
    }
}

/// Seconds that the rest takes at the pace of what was done since the beginning, if anything was.
fn to_go(gone: f64, found: u64, done: u64, all: u64) -> Option<f64> {
    let ours = done.saturating_sub(found);
    (ours > 0).then(|| gone * all.saturating_sub(done) as f64 / ours as f64)
}

#[cfg(test)]
mod tests {
    use super::to_go;

    #[test]
    fn what_an_earlier_run_did_makes_no_run_look_fast() {
        assert_eq!(to_go(10.0, 0, 25, 100), Some(30.0));
        assert_eq!(to_go(35.0, 1200, 1250, 1800), Some(385.0));
        assert_eq!(to_go(35.0, 1200, 1200, 1800), None);
        assert_eq!(to_go(35.0, 1200, 1800, 1800), Some(0.0));
    }
}
