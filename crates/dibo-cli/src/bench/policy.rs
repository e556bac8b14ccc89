//! Policy evaluation: the cost of an iteration is mixing.
use super::{Options, ask, burst};
use anyhow::{Result, bail};
use dibo::graph::{Cycle, GraphSequence, Redraw};
use dibo::mixing::{Mixing, Sequence};
use dibo::rows::{Real, Threads};
use dibo_run::door::{Place, Ready, Visit, open};
use dibo_run::{Registry, Setting, say};
use std::path::Path;
use std::sync::Barrier;
use std::thread;

/// A size: agents, edge probability, length of each phase, and iterations of a peer's burst, all as in the
/// peers' program, whose graphs are made beforehand.
struct Size {
    n: usize,
    nu: f64,
    phase: usize,
    burst: f64,
}

const SIZES: [Size; 3] = [
    Size { n: 10, nu: 0.3, phase: 10, burst: 20_000.0 },
    Size { n: 100, nu: 0.05, phase: 10, burst: 2_667.0 },
    Size { n: 1000, nu: 0.05, phase: 1, burst: 100.0 },
];

/// Seconds of a burst where no peer sets the length.
const SECONDS: f64 = 0.06;

/// Agents, name, iterations a second.
type Rate = (usize, String, f64);

/// The best rate of each size (row) and variant (column).
type Best = [[f64; 4]; SIZES.len()];

impl Size {
    /// FAB on this size, with graphs drawn `redraw` = never or at each iteration.
    fn setting(&self, registry: &Registry, phases: [usize; 3], redraw: &str) -> Result<Setting> {
        let Size { n, nu, .. } = self;
        let text = format!(
            "[problem]\nkind = \"policy-evaluation\"\nagents = {n}\nf_weight = 1.0\ng_weight = 0.5\n\
            [graph]\nkind = \"cycle\"\nnu = {nu}\nphases = {phases:?}\nredraw = \"{redraw}\"\n\
            [[algorithm]]\nname = \"fab\"\npenalty_form = \"normalised\"\nlambda = 60\neta_x = 0.1\neta_y = \
            0.1\n"
        );
        super::setting(registry, &text)
    }
}

/// Iterations a second of one run, once all that begin together are ready.
struct Rates<'a> {
    seconds: f64,
    together: &'a Barrier,
}

impl Visit for Rates<'_> {
    type Out = f64;

    fn visit<T: Real>(self, ready: Ready<'_, T>) -> Result<f64> {
        let (mut stepper, mut failed) = (super::Stepper::new(&ready)?, Ok(()));
        // Graphs that repeat are made in the first turns.
        (0..60).try_for_each(|_| stepper.step())?;
        self.together.wait();
        let each = burst(self.seconds, || {
            if let Err(e) = stepper.step() {
                failed = Err(e);
            }
        });
        failed.map(|()| 1.0 / each)
    }
}

/// One column of the table.
struct Variant {
    runs: usize,
    threads: usize,
    redraw: &'static str,
}

impl Variant {
    /// Iterations a second of all its runs together, which begin at the same time, as the seeds of an
    /// experiment do.
    fn rate(&self, registry: &Registry, size: &Size, seconds: f64) -> Result<f64> {
        let (setting, together) =
            (size.setting(registry, [size.phase; 3], self.redraw)?, Barrier::new(self.runs));
        let run = || -> Result<f64> {
            let threads = Threads::new(self.threads);
            let place = Place::new(Path::new("."), &threads);
            open(&setting, 0, place)?.visit(Rates { seconds, together: &together })
        };
        thread::scope(|scope| {
            let others: Vec<_> = (1..self.runs).map(|_| scope.spawn(run)).collect();
            let mut sum = run()?;
            for other in others {
                sum += other.join().unwrap_or_else(|_| bail!("a run of the bench failed"))?;
            }
            Ok(sum)
        })
    }
}

/// Measures and prints.
pub fn run(registry: &Registry, options: &Options, cores: usize) -> Result<()> {
    say!(
        "FAB on policy evaluation (20 states, 5 features, 64-bit), iterations a second; each the best of {} \
        bursts.\n",
        options.rounds
    );
    let (best, peers) = measure(registry, options, cores)?;
    let names = [format!("{cores} threads"), format!("{cores} runs")];
    print_own(registry, &best, &names)?;
    if !peers.is_empty() {
        print_peers(&peers, &best, &names);
    }
    Ok(())
}

/// The best rates of this library, and those of the peers, if there are any.
fn measure(registry: &Registry, options: &Options, cores: usize) -> Result<(Best, Vec<Rate>)> {
    let variant = |runs, threads, redraw| Variant { runs, threads, redraw };
    let variants = [
        variant(1, 1, "never"),
        variant(1, cores, "never"),
        variant(cores, 1, "never"),
        variant(1, 1, "iteration"),
    ];
    let mut peers: Vec<Rate> = Vec::new();
    let mut best: Best = [[0.0; 4]; 3];
    let mut lengths = [SECONDS; 3];
    // Size by size and variant by variant, so that idle teams of threads do not watch for work while another
    // one is measured.
    for _ in 0..options.rounds {
        if let Some(path) = &options.peer {
            measure_peers(path, options, &mut peers, &mut lengths)?;
        }
        for (s, size) in SIZES.iter().enumerate() {
            for (best, variant) in best[s].iter_mut().zip(&variants) {
                *best = f64::max(*best, variant.rate(registry, size, lengths[s])?);
            }
        }
    }
    Ok((best, peers))
}

/// One round of the peers' program: keeps the best of each peer, and sets the lengths of our bursts to those
/// of the fastest peer.
fn measure_peers(
    path: &Path,
    options: &Options,
    peers: &mut Vec<Rate>,
    lengths: &mut [f64; 3],
) -> Result<()> {
    let found = parse(&ask(path, &options.python, &[], 1)?);
    if found.is_empty() {
        bail!("{} printed no line of the form \"n=10: NAME 123 it/s\"", path.display());
    }
    for (length, size) in lengths.iter_mut().zip(&SIZES) {
        let fastest = found.iter().filter(|f| f.0 == size.n).map(|f| f.2).fold(0.0, f64::max);
        *length = if fastest > 0.0 { size.burst / fastest } else { SECONDS };
    }
    for new in found {
        match peers.iter_mut().find(|p| p.0 == new.0 && p.1 == new.1) {
            Some(known) => known.2 = known.2.max(new.2),
            None => peers.push(new),
        }
    }
    Ok(())
}

/// The table of this library's rates. `threads` and `seeds` name the columns in which all cores work.
fn print_own(registry: &Registry, best: &Best, [threads, seeds]: &[String; 2]) -> Result<()> {
    say!(
        "{:>6} {:>12} {threads:>12} {seeds:>12} {:>14} {:>9} {:>14}",
        "agents",
        "1 thread",
        "fresh graphs",
        "GFLOP/s",
        "graph making"
    );
    for (size, best) in SIZES.iter().zip(best) {
        let (gflops, share) = (best[0] * flops(size) / 1e9, graph_share(registry, size)?);
        let [one, split, runs, fresh] = best;
        say!(
            "{:>6} {one:>12.0} {split:>12.0} {runs:>12.0} {fresh:>14.0} {gflops:>9.2} {share:>12.0} %",
            size.n
        );
    }
    say!(
        "\n\"{threads}\" share one run; \"{seeds}\" go side by side, a thread each, as the seeds of an \
        experiment do (sum)."
    );
    say!(
        "\"fresh graphs\": new random edges at each iteration, one thread. \"graph making\": its share when \
        every graph is random."
    );
    Ok(())
}

/// The table of the peers' rates, and how many times as fast this library is.
fn print_peers(peers: &[Rate], best: &Best, [threads, seeds]: &[String; 2]) {
    say!(
        "\n{:>6} {:<16} {:>12} {:>12} {threads:>12} {seeds:>12}",
        "agents",
        "peer",
        "it/s",
        "dibo: 1 thread"
    );
    for (n, name, rate) in peers {
        if let Some(s) = SIZES.iter().position(|size| size.n == *n) {
            let [one, split, runs] = [0, 1, 2].map(|v| best[s][v] / rate);
            say!("{n:>6} {name:<16} {rate:>12.0} {one:>12.2} × {split:>10.2} × {runs:>10.2} ×");
        }
    }
}

/// Multiplications and additions of one iteration: two mixings, the steps, and the directions.
fn flops(size: &Size) -> f64 {
    let graphs = Cycle::new(size.n, size.nu, 0).phases([size.phase; 3]).redraw(Redraw::Never);
    let period = 3 * size.phase;
    let entries = (0..period).map(|k| graphs.at(k).links() + size.n).sum::<usize>() as f64 / period as f64;
    let (s, d) = (20.0, 5.0);
    2.0 * 2.0 * entries * (d + 2.0 * s) + size.n as f64 * (5.0 * (d + 2.0 * s) + 8.0 * s * d + 9.0 * s)
}

/// Share of graph making in percent when a random graph is drawn at each iteration.
fn graph_share(registry: &Registry, size: &Size) -> Result<f64> {
    let sequence = Sequence::uniform(Cycle::new(size.n, size.nu, 0).phases([1, 0, 0]));
    let setting = size.setting(registry, [1, 0, 0], "iteration")?;
    let one = Threads::one();
    let place = Place::new(Path::new("."), &one);
    let opened = open(&setting, 0, place)?;
    let mut mixing = Mixing::<f64>::default();
    let (mut making, mut all, mut k) = (f64::INFINITY, 0.0, 0);
    for _ in 0..5 {
        making = making.min(burst(SECONDS, || {
            k += 1;
            sequence.fill(k, &mut mixing);
        }));
        let rate = opened.visit(Rates { seconds: SECONDS, together: &Barrier::new(1) })?;
        all = f64::max(all, rate);
    }
    Ok(100.0 * making * all)
}

/// Reads agents, name and iterations a second from the lines of a peer.
pub fn parse(text: &str) -> Vec<Rate> {
    let mut found = Vec::new();
    for line in text.lines() {
        let Some((n, rest)) = line.strip_prefix("n=").and_then(|l| l.split_once(": ")) else { continue };
        for part in rest.split([',', ';']) {
            if let Some((name, rate)) = part.trim().strip_suffix(" it/s").and_then(|p| p.rsplit_once(' '))
                && let (Ok(n), Ok(rate)) = (n.parse(), rate.parse())
            {
                found.push((n, name.to_string(), rate));
            }
        }
    }
    found
}
