//! `dibo bench`: iterations a second of FAB on policy evaluation, next to other programs for the same iteration in the same run.
use anyhow::{Context, Result, bail};
use dibo::algorithm::{Algorithm, fab::Fab};
use dibo::graph::{Cycle, GraphSequence, Redraw};
use dibo::mixing::Sequence;
use dibo::network::Simulator;
use dibo::problem::PolicyEvaluation;
use dibo::rows::Threads;
use std::path::PathBuf;
use std::time::Instant;

/// What to measure.
#[derive(clap::Args)]
pub struct Options {
    /// A Python program that prints "n=10: NAME 123 it/s, …" for n = 10, 100, 1000; run before and after dibo, the better counts
    #[arg(long, value_name = "FILE")]
    peer: Option<PathBuf>,
    /// The Python to run it with
    #[arg(long, default_value = "python3")]
    python: String,
    /// Seconds to spend on each figure of dibo
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Threads for the second column [default: all cores]
    #[arg(long)]
    threads: Option<usize>,
}

/// Agents, edge probability, length of each phase: as in the peers' program, whose graphs are made beforehand.
const SIZES: [(usize, f64, usize); 3] = [(10, 0.3, 10), (100, 0.05, 10), (1000, 0.05, 1)];

/// Measures and prints.
pub fn run(options: &Options) -> Result<()> {
    let cores = options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
    println!("FAB on policy evaluation (20 states, 5 features, 64-bit), iterations a second; the best of repeated measurements.\n");
    let mut peers = options.peer.as_ref().map(|p| peer(p, &options.python)).transpose()?.unwrap_or_default();
    let mut rows = Vec::new();
    for (n, nu, phase) in SIZES {
        let rate = |threads, redraw| rate(n, nu, phase, threads, redraw, options.seconds);
        let (one, all, fresh) = (rate(1, Redraw::Never), rate(cores, Redraw::Never), rate(1, Redraw::Iteration));
        rows.push((n, one, all, fresh, graph_share(n, nu)));
    }
    if let Some(path) = &options.peer {
        for (mine, again) in peers.iter_mut().zip(peer(path, &options.python)?) {
            mine.2 = mine.2.max(again.2);
        }
    }
    println!(
        "{:>6} {:>12} {:>14} {:>16} {:>14} {:>14}",
        "agents",
        "1 thread",
        format!("{cores} threads"),
        "fresh graphs",
        "GFLOP/s",
        "graph making"
    );
    for (n, one, all, fresh, share) in &rows {
        let (_, nu, phase) = SIZES.iter().find(|s| s.0 == *n).expect("from the list");
        println!("{n:>6} {one:>12.0} {all:>14.0} {fresh:>16.0} {:>14.2} {share:>12.0} %", one * flops(*n, *nu, *phase) / 1e9);
    }
    println!("\n\"fresh graphs\": new random edges at each iteration, one thread. \"graph making\": its share when every graph is random.");
    if !peers.is_empty() {
        println!("\n{:>6} {:<16} {:>12} {:>16} {:>16}", "agents", "peer", "it/s", "dibo, 1 thread", format!("dibo, {cores} threads"));
        for (n, name, rate) in &peers {
            if let Some((_, one, all, ..)) = rows.iter().find(|r| r.0 == *n) {
                println!("{n:>6} {name:<16} {rate:>12.0} {:>14.2} × {:>14.2} ×", one / rate, all / rate);
            }
        }
    }
    Ok(())
}

/// Multiplications and additions of one iteration: two mixings, the steps, and the directions.
fn flops(n: usize, nu: f64, phase: usize) -> f64 {
    let graphs = Cycle::new(n, nu, 0).phases([phase; 3]).redraw(Redraw::Never);
    let period = 3 * phase;
    let entries = (0..period).map(|k| graphs.at(k).links() + n).sum::<usize>() as f64 / period as f64;
    let (s, d) = (20.0, 5.0);
    2.0 * 2.0 * entries * (d + 2.0 * s) + n as f64 * (5.0 * (d + 2.0 * s) + 8.0 * s * d + 9.0 * s)
}

fn rate(n: usize, nu: f64, phase: usize, threads: usize, redraw: Redraw, seconds: f64) -> f64 {
    let problem = PolicyEvaluation::random(n, 20, 5, 0).normalised();
    let graphs = Cycle::new(n, nu, 0).phases([phase; 3]).redraw(redraw);
    let mut network = Simulator::new(Sequence::uniform(graphs), Threads::new(threads));
    let mut state = Fab::normalised(0.1).start(&problem, &mut network, &Default::default());
    let burst = (300_000 / n).max(60);
    let (mut k, mut best, began) = (0, 0.0f64, Instant::now());
    while began.elapsed().as_secs_f64() < seconds {
        let from = Instant::now();
        for _ in 0..burst {
            state.step(k, &problem, &mut network);
            k += 1;
        }
        best = best.max(burst as f64 / from.elapsed().as_secs_f64());
    }
    best
}

/// Share of graph making in percent when a random graph is drawn at each iteration.
fn graph_share(n: usize, nu: f64) -> f64 {
    let graphs = Cycle::new(n, nu, 0).phases([1, 0, 0]);
    let sequence = Sequence::uniform(graphs);
    let mut mixing = dibo::mixing::Mixing::<f64>::default();
    let count = (100_000 / n).max(60);
    let best = |mut job: Box<dyn FnMut(usize) + '_>| {
        let mut best = f64::INFINITY;
        for repeat in 0..5 {
            let from = Instant::now();
            (0..count).for_each(|k| job(repeat * count + k));
            best = best.min(from.elapsed().as_secs_f64());
        }
        best
    };
    let making = best(Box::new(|k| sequence.fill(k, &mut mixing)));
    let problem = PolicyEvaluation::random(n, 20, 5, 0).normalised();
    let mut network = Simulator::new(sequence.clone(), Threads::one());
    let mut state = Fab::normalised(0.1).start(&problem, &mut network, &Default::default());
    let all = best(Box::new(|k| state.step(k, &problem, &mut network)));
    100.0 * making / all
}

/// Runs the peers' program and reads (agents, name, iterations a second) from its lines.
fn peer(path: &std::path::Path, python: &str) -> Result<Vec<(usize, String, f64)>> {
    let output = std::process::Command::new(python)
        .arg(path)
        .env("OMP_NUM_THREADS", "1")
        .output()
        .with_context(|| format!("cannot start {python} for {}", path.display()))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("{} failed: {}", path.display(), why.lines().last().unwrap_or("no message"));
    }
    let mut found = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Some((n, rest)) = line.strip_prefix("n=").and_then(|l| l.split_once(": ")) else { continue };
        for part in rest.split([',', ';']) {
            if let Some((name, rate)) = part.trim().strip_suffix(" it/s").and_then(|p| p.rsplit_once(' '))
                && let (Ok(n), Ok(rate)) = (n.parse(), rate.parse())
            {
                found.push((n, name.to_string(), rate));
            }
        }
    }
    if found.is_empty() {
        bail!("{} printed no line of the form \"n=10: NAME 123 it/s\"", path.display());
    }
    Ok(found)
}
