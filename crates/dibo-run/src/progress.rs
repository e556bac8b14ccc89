//! How far it is: a bar where there is a terminal, a line now and then where there is none.
use dibo_report::live::Live;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A bar over iterations, or lines.
pub struct Progress {
    bar: ProgressBar,
    lines: Option<std::sync::Mutex<Instant>>,
    began: Instant,
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
        let left = gone * all.saturating_sub(done) as f64 / done.max(1) as f64;
        let percent = 100 * done / all;
        eprintln!("{percent:>3} %  {}  {gone:.0} s gone, about {left:.0} s to go", self.bar.message());
    }
}
