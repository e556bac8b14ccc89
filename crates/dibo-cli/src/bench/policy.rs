//! Policy evaluation: the cost of an iteration is mixing.
use super::{Options, ask, burst};
use anyhow::{Result, bail};
use dibo::algorithm::{Algorithm, State, fab::Fab};
use dibo::graph::{Cycle, GraphSequence, Redraw};
use dibo::mixing::Sequence;
use dibo::network::Simulator;
use dibo::problem::PolicyEvaluation;
use dibo::rows::Threads;
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

/// FAB at work, kept from burst to burst.
struct Runner {
    problem: PolicyEvaluation,
    network: Simulator<f64>,
    state: Box<dyn State<f64>>,
    k: usize,
}

impl Runner {
    fn new(size: &Size, threads: usize, redraw: Redraw) -> Self {
        let problem = PolicyEvaluation::random(size.n, 20, 5, 0).normalised();
        let graphs = Cycle::new(size.n, size.nu, 0).phases([size.phase; 3]).redraw(redraw);
        let mut network = Simulator::new(Sequence::uniform(graphs), Threads::new(threads));
        let state = Fab::normalised(0.1).start(&problem, &mut network, &Default::default());
        let mut runner = Runner { problem, network, state, k: 0 };
        // Graphs that repeat are made in the first turns.
        (0..60).for_each(|_| runner.step());
        runner
    }

    fn step(&mut self) {
        self.state.step(self.k, &self.problem, &mut self.network);
        self.k += 1;
    }
}

/// One column of the table.
struct Variant {
    runs: usize,
    threads: usize,
    redraw: Redraw,
}

impl Variant {
    /// Iterations a second of all its runs together, which begin at the same time, as the seeds of an
    /// experiment do.
    fn rate(&self, size: &Size, seconds: f64) -> f64 {
        let start = Barrier::new(self.runs);
        let run = || {
            let mut runner = Runner::new(size, self.threads, self.redraw);
            start.wait();
            1.0 / burst(seconds, || runner.step())
        };
        thread::scope(|scope| {
            let others: Vec<_> = (1..self.runs).map(|_| scope.spawn(run)).collect();
            run() + others.into_iter().map(|r| r.join().expect("a run does not panic")).sum::<f64>()
        })
    }
}

/// Measures and prints.
pub fn run(options: &Options, cores: usize) -> Result<()> {
    println!(
        "FAB on policy evaluation (20 states, 5 features, 64-bit), iterations a second; each the best of {} \
        bursts.\n",
        options.rounds
    );
    let variant = |runs, threads, redraw| Variant { runs, threads, redraw };
    let variants = [
        variant(1, 1, Redraw::Never),
        variant(1, cores, Redraw::Never),
        variant(cores, 1, Redraw::Never),
        variant(1, 1, Redraw::Iteration),
    ];
    let mut peers: Vec<Rate> = Vec::new();
    let mut best = [[0.0; 4]; 3];
    // Size by size and variant by variant, so that idle teams of threads do not watch for work while another
    // one is measured.
    let mut lengths = [SECONDS; 3];
    for _ in 0..options.rounds {
        if let Some(path) = &options.peer {
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
        }
        for (s, size) in SIZES.iter().enumerate() {
            for (best, variant) in best[s].iter_mut().zip(&variants) {
                *best = f64::max(*best, variant.rate(size, lengths[s]));
            }
        }
    }
    let [threads, seeds] = [format!("{cores} threads"), format!("{cores} runs")];
    println!(
        "{:>6} {:>12} {threads:>12} {seeds:>12} {:>14} {:>9} {:>14}",
        "agents", "1 thread", "fresh graphs", "GFLOP/s", "graph making"
    );
    for (size, best) in SIZES.iter().zip(&best) {
        let (gflops, share) = (best[0] * flops(size) / 1e9, graph_share(size));
        let [one, split, runs, fresh] = best;
        println!(
            "{:>6} {one:>12.0} {split:>12.0} {runs:>12.0} {fresh:>14.0} {gflops:>9.2} {share:>12.0} %",
            size.n
        );
    }
    println!(
        "\n\"{threads}\" share one run; \"{seeds}\" go side by side, a thread each, as the seeds of an \
        experiment do (sum)."
    );
    println!(
        "\"fresh graphs\": new random edges at each iteration, one thread. \"graph making\": its share when \
        every graph is random."
    );
    if !peers.is_empty() {
        println!(
            "\n{:>6} {:<16} {:>12} {:>12} {threads:>12} {seeds:>12}",
            "agents", "peer", "it/s", "dibo: 1 thread"
        );
        for (n, name, rate) in &peers {
            if let Some(s) = SIZES.iter().position(|size| size.n == *n) {
                let [one, split, runs] = [0, 1, 2].map(|v| best[s][v] / rate);
                println!("{n:>6} {name:<16} {rate:>12.0} {one:>12.2} × {split:>10.2} × {runs:>10.2} ×");
            }
        }
    }
    Ok(())
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
fn graph_share(size: &Size) -> f64 {
    let sequence = Sequence::uniform(Cycle::new(size.n, size.nu, 0).phases([1, 0, 0]));
    let mut mixing = dibo::mixing::Mixing::<f64>::default();
    let problem = PolicyEvaluation::random(size.n, 20, 5, 0).normalised();
    let mut network = Simulator::new(sequence.clone(), Threads::one());
    let mut state = Fab::normalised(0.1).start(&problem, &mut network, &Default::default());
    let (mut making, mut all, mut k) = (f64::INFINITY, f64::INFINITY, 0);
    for _ in 0..5 {
        making = making.min(burst(SECONDS, || {
            k += 1;
            sequence.fill(k, &mut mixing);
        }));
        all = all.min(burst(SECONDS, || {
            k += 1;
            state.step(k, &problem, &mut network);
        }));
    }
    100.0 * making / all
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
