//! Hyper-cleaning: the cost of an iteration is matrix products. Ten agents, an MLP 784-256-10, batches of 64,
//! random images of Fashion-MNIST's number and size.
use super::{Options, ask, burst};
use crate::runner::peak_memory;
use anyhow::{Context, Result, bail};
use dibo::algorithm::{Algorithm, State, fab::Fab};
use dibo::data::{Dataset, Noise, Partition, Recipe, Scaling, Split};
use dibo::engine::{self, Plan};
use dibo::graph;
use dibo::mixing::Sequence;
use dibo::network::Simulator;
use dibo::problem::learning::{Learning, Model, Net, Task, product};
use dibo::problem::{At, Bilevel, Penalty, Start};
use dibo::rng::{Purpose, stream};
use dibo::rows::{Stack, Threads};
use rand::{Rng, RngExt};
use std::sync::{Arc, Mutex};

const AGENTS: usize = 10;
const HIDDEN: usize = 256;
const BATCH: usize = 64;

/// Iterations of a peer's burst, about a second.
const ITERATIONS: usize = 20;

/// Seconds of a burst where no peer sets the length.
const SECONDS: f64 = 1.0;

type Problem = Learning<f32>;

fn random(samples: usize, which: u64) -> Result<Arc<Dataset>> {
    let mut r = stream(0, Purpose::Instance, which, 0);
    let mut images = vec![0; samples * 784];
    r.fill_bytes(&mut images);
    let labels = (0..samples).map(|_| r.random_range(0..10)).collect();
    Dataset::new(images, labels, 784, 10).map(Arc::new).map_err(anyhow::Error::msg)
}

fn problem(threads: &Threads) -> Result<Problem> {
    let recipe = Recipe {
        agents: AGENTS,
        partition: Partition::Uniform,
        split: Split::Share(0.9),
        noise: Noise::Asymmetric,
        cr: 0.4,
        seed: 0,
    };
    let dealt = recipe.deal(random(60_000, 0)?, random(10_000, 1)?).map_err(anyhow::Error::msg)?;
    let task = Task::Cleaning { tau: 0.002, psi: 0.0 };
    let problem = Learning::new(Arc::new(dealt), Model::Mlp(HIDDEN), task, Scaling::Unit, 0)
        .map_err(anyhow::Error::msg)?;
    Ok(problem.batch(BATCH).threads(threads.clone()))
}

fn fab() -> Fab {
    Fab {
        lambda: 1.0.into(),
        eta_x: 1e-3.into(),
        eta_y: 0.03.into(),
        eta_z: None,
        penalty_form: Default::default(),
    }
}

fn network(threads: &Threads) -> Simulator<f32> {
    Simulator::new(Sequence::uniform(graph::Cycle::new(AGENTS, 0.5, 0)), threads.clone())
}

/// FAB at work on so many threads, and the best seconds of an iteration, of its gradients and of their matrix
/// products alone.
struct Runner<'a> {
    problem: &'a Problem,
    threads: Threads,
    network: Simulator<f32>,
    state: Box<dyn State<f32>>,
    v: Stack<f32, 3>,
    d: Stack<f32, 3>,
    k: usize,
    best: [f64; 3],
}

impl<'a> Runner<'a> {
    fn new(problem: &'a Problem, threads: usize) -> Self {
        let threads = Threads::new(threads);
        let (start, mut network) = (problem.start(), network(&threads));
        let state = fab().start(problem, &mut network, &start);
        let mut v = Stack::zeros(AGENTS, &problem.upper(), &[problem.lower(); 2]);
        for i in 0..AGENTS {
            let [_, y, z] = v.row_mut(i);
            let from = Start::row(&start.y, i).unwrap_or_default();
            y.iter_mut().zip(z).zip(from).for_each(|((y, z), s)| (*y, *z) = (*s as f32, *s as f32));
        }
        let d = v.clone();
        let mut runner = Runner { problem, threads, network, state, v, d, k: 0, best: [f64::INFINITY; 3] };
        (0..10).for_each(|_| runner.step());
        runner
    }

    fn step(&mut self) {
        self.state.step(self.k, self.problem, &mut self.network);
        self.k += 1;
    }

    fn round(&mut self, seconds: f64) {
        let whole = burst(seconds, || self.step());
        let owned: Vec<usize> = (0..AGENTS).collect();
        let mut k = 0;
        let gradients = burst(seconds, || {
            k += 1;
            let at = At { k, owned: &owned, threads: &self.threads };
            self.problem.penalty_directions(at, Penalty { f: 1.0, g: 1.0 }, &self.v, &mut self.d);
        });
        let places: Vec<Mutex<Places>> =
            (0..self.threads.count()).map(|_| Mutex::new(Places::new(self.problem.net()))).collect();
        let products = burst(seconds, || {
            self.threads.ranges(AGENTS, 1, |t, some| {
                let mut places = places[t].lock().expect("no thread panics with the lock");
                some.for_each(|_| [2 * BATCH, BATCH].into_iter().for_each(|rows| places.products(rows)));
            });
        });
        for (best, new) in self.best.iter_mut().zip([whole, gradients, products]) {
            *best = best.min(new);
        }
    }
}

/// The matrices of the products that the gradient of one model consists of, in the shapes and orders in which
/// it has them.
struct Places {
    inputs: usize,
    x: Vec<f32>,
    hidden: Vec<f32>,
    out: Vec<f32>,
    w: Vec<f32>,
    g: Vec<f32>,
}

impl Places {
    fn new(net: &Net) -> Self {
        let (rows, inputs) = (2 * BATCH, net.inputs());
        let fill = |len: usize| vec![0.5; len];
        Places {
            inputs,
            x: fill(rows * inputs),
            hidden: fill(rows * (HIDDEN + 1)),
            out: fill(rows * 10),
            w: fill(net.width()),
            g: fill(net.width()),
        }
    }

    fn products(&mut self, rows: usize) {
        let Places { inputs, x, hidden, out, w, g } = self;
        let (n, h, c, s) = (*inputs, HIDDEN, 10, HIDDEN + 1);
        let ((first, second), (g1, g2)) = (w.split_at(n * h), g.split_at_mut(n * h));
        product((rows, h, n), (hidden, s, 1), false, (x, n, 1), (first, h, 1));
        product((rows, c, s), (out, c, 1), false, (hidden, s, 1), (second, 1, s));
        product((s, c, rows), (g2, 1, s), false, (hidden, 1, s), (out, c, 1));
        product((rows, h, c), (hidden, s, 1), false, (out, c, 1), (second, s, 1));
        product((n, h, rows), (g1, h, 1), false, (x, 1, n), (hidden, s, 1));
    }
}

/// Measures and prints.
pub fn run(options: &Options, cores: usize) -> Result<()> {
    println!(
        "\nFAB on hyper-cleaning ({AGENTS} agents, MLP 784-{HIDDEN}-10, batches of {BATCH}, 32-bit), \
        milliseconds an iteration; each the best of {} bursts.\n",
        options.rounds
    );
    let problem = problem(&Threads::one())?;
    let counts = if cores > 1 { vec![1, cores] } else { vec![1] };
    let mut runners: Vec<Runner<'_>> = counts.iter().map(|threads| Runner::new(&problem, *threads)).collect();
    let mut peer = vec![f64::INFINITY; counts.len()];
    for _ in 0..options.rounds {
        if let Some(path) = &options.cleaning_peer {
            for (best, threads) in peer.iter_mut().zip(&counts) {
                let given = [
                    ("--n", AGENTS),
                    ("--hidden", HIDDEN),
                    ("--batch", BATCH),
                    ("--iters", ITERATIONS),
                    ("--threads", *threads),
                ];
                let arguments: Vec<String> =
                    given.iter().flat_map(|(key, value)| [key.to_string(), value.to_string()]).collect();
                let text = ask(path, &options.python, &arguments, *threads)?;
                let Some(new) = parse(&text) else {
                    bail!("{} printed no line with \"12.3 ms/iter\"", path.display())
                };
                *best = best.min(new);
            }
        }
        let fastest = peer.iter().copied().fold(f64::INFINITY, f64::min);
        let seconds = if fastest.is_finite() { fastest * ITERATIONS as f64 } else { SECONDS };
        runners.iter_mut().for_each(|runner| runner.round(seconds));
    }
    let flops = 1e-9 * (3 * AGENTS * BATCH * problem.net().flops()) as f64;
    println!(
        "{:>8} {:>14} {:>14} {:>22} {:>24} {:>10}",
        "threads", "iteration, ms", "gradients, ms", "gradients, GFLOP/s", "products alone, GFLOP/s", "share"
    );
    for (threads, runner) in counts.iter().zip(&runners) {
        let [whole, gradients, products] = runner.best;
        println!(
            "{threads:>8} {:>14.2} {:>14.2} {:>22.0} {:>24.0} {:>8.0} %",
            1e3 * whole,
            1e3 * gradients,
            flops / gradients,
            flops / products,
            100.0 * products / gradients
        );
    }
    println!(
        "\n\"products alone\": the same matrix products by the same crate on places that stay in cache; \
        \"share\": their time in that of the gradients."
    );
    if let Some(fastest) = peer.iter().copied().min_by(f64::total_cmp).filter(|p| p.is_finite()) {
        let all = counts
            .iter()
            .zip(&peer)
            .map(|(threads, p)| format!("{:.1} ms on {threads}", 1e3 * p))
            .collect::<Vec<_>>()
            .join(", ");
        println!("\nThe peer takes {all} thread(s). Ratio of its better one to dibo:");
        for (threads, runner) in counts.iter().zip(&runners) {
            println!("{threads:>8} threads {:>8.2} ×", fastest / runner.best[0]);
        }
    }
    drop(runners);
    let me = std::env::current_exe().context("cannot find this program to start it again")?;
    let output =
        std::process::Command::new(me).args(["bench", "--memory", "--threads", &cores.to_string()]).output();
    let text = output
        .map(|o| String::from_utf8_lossy(&o.stdout).into_owned())
        .context("cannot start the run that measures memory")?;
    print!("\nMemory of that run in a process of its own, {cores} threads: {text}");
    Ok(())
}

/// Does the run alone and prints its peak memory beside what it must hold.
pub fn memory(cores: usize) -> Result<()> {
    let threads = Threads::new(cores);
    let problem = problem(&threads)?;
    let plan = Plan { iterations: 20, every: 20, target: None, diverged_above: f64::INFINITY };
    let record =
        engine::run(&fab(), &problem, &mut network(&threads), &problem.start(), &plan, None, &mut ());
    let state = record.map_err(anyhow::Error::msg)?.state_bytes as f64;
    let data = (problem.dealt().data.bytes() + problem.dealt().test.bytes()) as f64;
    let vectors = format!(
        "state {:.1} MB (decisions, trackers and directions of y and z, ψ and its direction) + data {:.1} MB",
        state / 1e6,
        data / 1e6
    );
    match peak_memory() {
        Some(peak) => {
            println!("peak {:.1} MB = {:.2} × ({vectors})", peak as f64 / 1e6, peak as f64 / (state + data))
        }
        None => println!("{vectors}; this system does not tell the peak"),
    }
    Ok(())
}

/// Seconds an iteration, from a line of a peer.
pub fn parse(text: &str) -> Option<f64> {
    let before = text.lines().find_map(|line| line.split_once(" ms/iter"))?.0;
    before.rsplit(' ').next()?.parse::<f64>().ok().map(|ms| ms / 1e3)
}
