//! Experiments with dibo: a file becomes settings, a setting is opened through one door, and what is opened
//! is run, tuned or checked.
//!
//! - [`Registry`] holds the names that files may use; [`Registry::load`] reads a file.
//! - [`door::open`] opens a setting with a seed: the problem is built, needs and values are checked, graphs
//!   and losses
//!   are made. [`door::Ready`] gives the network and runs it.
//! - [`runner::run`] runs a whole experiment, [`tune::tune`] looks for steps, [`check::explain`] says what to
//!   expect.
//! - [`problems::Kind`] is what a problem of your own implements to be named in files.
pub mod allocator;
pub mod check;
pub mod data;
pub mod device;
pub mod door;
#[cfg(any(test, feature = "download"))]
mod download;
pub mod experiment;
#[cfg(test)]
mod fuzz;
pub mod graphs;
pub mod keys;
pub mod origin;
pub mod pictures;
mod plan;
pub mod problems;
pub mod progress;
pub mod registry;
pub mod runner;
pub mod saved;
pub mod section;
pub mod setting;
pub mod sites;
pub mod stop;
pub mod taken;
#[cfg(test)]
mod tests;
#[cfg(feature = "bert")]
mod texts;
pub mod tune;

pub use experiment::{Experiment, Request};
pub use plan::RunKeys;
pub use registry::Registry;
pub use setting::Setting;

/// A line on standard output, or to whoever [`listen`]s. One that cannot be written (a full disk behind it)
/// does not end the program at once: the command says so at its end.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::say_line(format_args!($($text)*)) };
}

/// Whoever wants the lines of this process.
type Listener = Box<dyn Fn(&str) + Send>;

static LISTENER: std::sync::Mutex<Option<Listener>> = std::sync::Mutex::new(None);

/// Gives lines to a listener instead of standard output, for programs that show them elsewhere.
pub fn listen(to: Option<Listener>) {
    *LISTENER.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = to;
}

/// What [`say!`] does.
#[doc(hidden)]
pub fn say_line(text: std::fmt::Arguments<'_>) {
    use std::io::Write as _;
    if let Some(listener) = &*LISTENER.lock().unwrap_or_else(std::sync::PoisonError::into_inner) {
        return listener(&text.to_string());
    }
    if let Err(error) = writeln!(std::io::stdout(), "{text}") {
        could_not_say(error);
    }
}

static UNSAID: std::sync::OnceLock<std::io::Error> = std::sync::OnceLock::new();

/// Remembers that standard output could not be written.
fn could_not_say(error: std::io::Error) {
    let _ = UNSAID.set(error);
}

/// Why standard output could not be written, if it could not.
pub fn unsaid() -> Option<&'static std::io::Error> {
    UNSAID.get()
}

/// A text with lines of at most 80 characters, broken at spaces and indented from the second piece on.
///
/// ```
/// let long = format!("    warning: {}", "a word ".repeat(20));
/// let folded = dibo_run::fold(&long);
/// assert!(folded.lines().count() > 1 && folded.lines().all(|l| l.chars().count() <= 80));
/// assert!(folded.lines().nth(1).unwrap().starts_with("      "));
/// ```
pub fn fold(text: &str) -> String {
    const WIDTH: usize = 80;
    let one = |line: &str| -> String {
        let indent = line.chars().take_while(|c| *c == ' ').count();
        let (mut out, mut width) = (" ".repeat(indent), indent);
        for (number, word) in line.split_whitespace().enumerate() {
            let length = word.chars().count();
            if number > 0 && width + 1 + length > WIDTH {
                out += &format!("\n{}", " ".repeat(indent + 2));
                width = indent + 2;
            } else if number > 0 {
                out.push(' ');
                width += 1;
            }
            out += word;
            width += length;
        }
        out
    };
    let fold = |line: &str| if line.chars().count() > WIDTH { one(line) } else { line.to_string() };
    text.lines().map(fold).collect::<Vec<_>>().join("\n")
}
