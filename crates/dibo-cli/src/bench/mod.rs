//! `dibo bench`: how fast an iteration is, next to other programs for the same iteration in the same run.
//!
//! dibo and a peer are timed alike: in every round each of them does one burst, one after the other, and of
//! each the best burst counts. The bursts of dibo last as long as those of the fastest peer.
mod cleaning;
mod methods;
mod policy;
mod than;

use anyhow::{Context, Result, bail, ensure};
use dibo::algorithm::State;
use dibo::network::Network;
use dibo::problem::Bilevel;
use dibo::rows::Real;
use dibo_run::door::Ready;
use dibo_run::{Registry, Setting, say};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What to measure.
#[derive(clap::Args)]
pub struct Options {
    /// A Python program for policy evaluation that prints "n=10: NAME 123 it/s, …" for n = 10, 100, 1000
    #[arg(long, value_name = "FILE")]
    peer: Option<PathBuf>,
    /// A Python program for hyper-cleaning that takes --n, --hidden, --batch, --iters, --threads and prints
    /// "… 12.3 ms/iter …"
    #[arg(long, value_name = "FILE")]
    cleaning_peer: Option<PathBuf>,
    /// The Python to run them with
    #[arg(long, default_value = "python3")]
    python: String,
    /// Bursts of each program; the best one counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Threads for the second column [default: all cores]
    #[arg(long)]
    threads: Option<usize>,
    /// Measure one part alone
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Another dibo, to be measured in turn with this one: ratios of this one to it
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["peer", "cleaning_peer"])]
    than: Option<PathBuf>,
    /// Do the hyper-cleaning run alone and print its peak memory: what the bench starts as a process of its
    /// own
    #[arg(long, hide = true)]
    memory: bool,
}

/// The parts.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// FAB on policy evaluation: mixing.
    Policy,
    /// FAB on hyper-cleaning: matrix products.
    Cleaning,
    /// What each special way of the kernels gains.
    Ways,
    /// The single-loop methods beside FAB, by what they send and ask for; only if it is asked for.
    Methods,
}

/// Measures and prints.
pub fn run(registry: &Registry, options: &Options) -> Result<()> {
    let cores =
        options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
    ensure!((1..=1024).contains(&cores), "--threads is {cores}; it must be between 1 and 1024");
    ensure!(
        (1..=1000).contains(&options.rounds),
        "--rounds is {}; it must be between 1 and 1000",
        options.rounds
    );
    if options.memory {
        return cleaning::memory(registry, cores);
    }
    if let Some(other) = &options.than {
        return than::run(options, other, cores);
    }
    for path in options.peer.iter().chain(&options.cleaning_peer) {
        ensure!(path.is_file(), "there is no peer {}", path.display());
    }
    if options.only == Some(Part::Methods) {
        return methods::run(registry, options);
    }
    let wanted = |part| options.only.is_none_or(|only| only == part);
    if wanted(Part::Policy) {
        policy::run(registry, options, cores)?;
    }
    if wanted(Part::Cleaning) {
        cleaning::run(registry, options, cores)?;
    }
    if wanted(Part::Ways) {
        say!("\n{:<32} {:<36} {:>8}", "special ways of the kernels", "agents × numbers", "gain");
        for (way, case, gain) in dibo::gains() {
            say!("{way:<32} {case:<36} {gain:>6.1} %");
        }
    }
    Ok(())
}

/// A setting of a text that the bench makes.
fn setting(registry: &Registry, text: &str) -> Result<Setting> {
    let source = registry.source("bench.toml".into(), text);
    let mut read = registry.parse(source, "bench", Path::new("."), false)?;
    Ok(read.settings.swap_remove(0))
}

/// An algorithm at work.
struct Stepper<'a, T: Real> {
    problem: &'a dyn Bilevel<T>,
    network: Box<dyn Network<T>>,
    state: Box<dyn State<T>>,
    k: usize,
}

impl<'a, T: Real> Stepper<'a, T> {
    fn new(ready: &Ready<'a, T>) -> Result<Self> {
        let mut network = ready.network()?;
        let state = ready.algorithm.start(ready.problem, &mut *network, None)?;
        Ok(Stepper { problem: ready.problem, network, state, k: 0 })
    }

    fn step(&mut self) -> Result<()> {
        self.state.step(self.k, self.problem, &mut *self.network)?;
        self.k += 1;
        Ok(())
    }
}

/// Does a job again and again for so many seconds (once at least); gives the seconds that each took.
fn burst(seconds: f64, mut job: impl FnMut()) -> f64 {
    let (from, mut count, mut group) = (Instant::now(), 0, 1);
    loop {
        (0..group).for_each(|_| job());
        count += group;
        let gone = from.elapsed().as_secs_f64();
        if gone >= seconds {
            return gone / count as f64;
        }
        // Few looks at the clock, none of them late by more than a tenth.
        group = ((0.1 * seconds * count as f64 / gone) as usize).max(1);
    }
}

/// Runs a peer's program and gives what it prints.
fn ask(path: &Path, python: &str, arguments: &[String], threads: usize) -> Result<String> {
    let output = std::process::Command::new(python)
        .arg(path)
        .args(arguments)
        .env("OMP_NUM_THREADS", threads.to_string())
        .output()
        .with_context(|| format!("cannot start {python} for {}", path.display()))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("{} failed: {}", path.display(), why.lines().last().unwrap_or("no message"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_read() {
        let lines = "warm\nn=10: numpy dense 26800 it/s, numba csr 404000 it/s; max difference \
            1e-15\nn=1000: numba csr 1360 it/s\n";
        let found = policy::parse(lines);
        assert_eq!(
            found,
            [
                (10, "numpy dense".to_string(), 26800.0),
                (10, "numba csr".to_string(), 404000.0),
                (1000, "numba csr".to_string(), 1360.0)
            ]
        );
        assert_eq!(
            cleaning::parse("torch 2.9 cpu n=10 hidden=256 batch=64: 50.00 ms/iter, 31.6 GFLOP/s\n"),
            Some(0.05)
        );
        assert_eq!(cleaning::parse("nothing of the kind"), None);
        assert!(policy::parse("n=ten: a 1 it/s").is_empty());
    }

    #[test]
    fn a_burst_lasts_as_long_as_asked() {
        let mut count = 0;
        let each = burst(0.0, || count += 1);
        assert!(count == 1 && each >= 0.0);
    }
}
