//! Hyper-cleaning: the cost of an iteration is matrix products. Ten agents, an MLP 784-256-10, batches of 64,
//! random images of Fashion-MNIST's number and size.
use super::{Options, Stepper, ask, burst};
use anyhow::{Context, Result, bail};
use dibo::problem::learning::{Model, Net, product};
use dibo::problem::{At, Penalty, Start};
use dibo::rows::{Real, Stack, Threads};
use dibo_run::door::{Place, Ready, Visit, open};
use dibo_run::runner::peak_memory;
use dibo_run::{Registry, Setting, say};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

const AGENTS: usize = 10;
const HIDDEN: usize = 256;
const BATCH: usize = 64;

/// Iterations of a peer's burst, about a second.
const ITERATIONS: usize = 20;

/// Seconds of a burst where no peer sets the length.
const SECONDS: f64 = 1.0;

/// The classifier.
const NET: Net = Net { pixels: 784, classes: 10, model: Model::Mlp(HIDDEN) };

fn setting(registry: &Registry) -> Result<Setting> {
    let text = format!(
        "[problem]\nkind = \"cleaning\"\ndata = \"random\"\nagents = {AGENTS}\nnoise = \"asymmetric\"\ncr = \
        0.4\n\
        model = \"mlp\"\nhidden = {HIDDEN}\nbatch = {BATCH}\ntau = 0.002\nscaling = \"unit\"\n\
        [graph]\nkind = \"cycle\"\nnu = 0.5\n[run]\niterations = 20\nevery = 20\ndiverged_above = 1e300\n\
        [[algorithm]]\nname = \"fab\"\nlambda = 1\neta_x = 1e-3\neta_y = 0.03\n"
    );
    super::setting(registry, &text)
}

/// The best seconds of an iteration of FAB, of its gradients and of their matrix products alone.
struct Best {
    threads: usize,
    seconds: f64,
}

impl Visit for Best {
    type Out = [f64; 3];

    fn visit<T: Real>(self, ready: Ready<'_, T>) -> Result<[f64; 3]> {
        let (threads, problem) = (Threads::new(self.threads), ready.problem);
        let (mut stepper, mut failed) = (Stepper::new(&ready)?, Ok(()));
        (0..10).try_for_each(|_| stepper.step())?;
        let whole = burst(self.seconds, || {
            if let Err(e) = stepper.step() {
                failed = Err(e);
            }
        });
        let (mut v, start) =
            (Stack::<T, 3>::zeros(AGENTS, &problem.upper(), &[problem.lower(); 2]), problem.start());
        for i in 0..AGENTS {
            let [_, y, z] = v.row_mut(i);
            let from = Start::row(&start.y, i).unwrap_or_default();
            y.iter_mut().zip(z).zip(from).for_each(|((y, z), s)| (*y, *z) = (T::of(*s), T::of(*s)));
        }
        let (mut d, owned, mut k) = (v.clone(), (0..AGENTS).collect::<Vec<usize>>(), 0);
        let gradients = burst(self.seconds, || {
            k += 1;
            let at = At { k, owned: &owned, threads: &threads };
            if let Err(e) = problem.penalty_directions(at, Penalty { f: 1.0, g: 1.0 }, &v, &mut d) {
                failed = Err(e.into());
            }
        });
        let places: Vec<Mutex<Places>> = (0..self.threads).map(|_| Mutex::new(Places::new(&NET))).collect();
        let products = burst(self.seconds, || {
            threads.ranges(AGENTS, 1, |t, some| {
                let mut places = places[t].lock().unwrap_or_else(PoisonError::into_inner);
                some.for_each(|_| [2 * BATCH, BATCH].into_iter().for_each(|rows| places.products(rows)));
            });
        });
        failed.map(|()| [whole, gradients, products])
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
pub fn run(registry: &Registry, options: &Options, cores: usize) -> Result<()> {
    say!(
        "\nFAB on hyper-cleaning ({AGENTS} agents, MLP 784-{HIDDEN}-10, batches of {BATCH}, 32-bit), \
        milliseconds an iteration; each the best of {} bursts.\n",
        options.rounds
    );
    let setting = setting(registry)?;
    let counts = if cores > 1 { vec![1, cores] } else { vec![1] };
    let mut best = vec![[f64::INFINITY; 3]; counts.len()];
    let mut peer = vec![f64::INFINITY; counts.len()];
    for _ in 0..options.rounds {
        if let Some(path) = &options.cleaning_peer {
            for (best, threads) in peer.iter_mut().zip(&counts) {
                *best = best.min(ask_peer(path, &options.python, *threads)?);
            }
        }
        let fastest = peer.iter().copied().fold(f64::INFINITY, f64::min);
        let seconds = if fastest.is_finite() { fastest * ITERATIONS as f64 } else { SECONDS };
        for (best, count) in best.iter_mut().zip(&counts) {
            let threads = Threads::new(*count);
            let place = Place::new(Path::new("."), &threads);
            let new = open(&setting, 0, place)?.visit(Best { threads: *count, seconds })?;
            best.iter_mut().zip(new).for_each(|(best, new)| *best = best.min(new));
        }
    }
    table(&counts, &best, &peer);
    let me = std::env::current_exe().context("cannot find this program to start it again")?;
    let arguments = ["bench", "--memory", "--threads", &cores.to_string()];
    let output = std::process::Command::new(me).args(arguments).output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    let text = text.context("cannot start the run that measures memory")?;
    say!("\nMemory of that run in a process of its own, {cores} threads: {}", text.trim_end());
    Ok(())
}

fn ask_peer(path: &Path, python: &str, threads: usize) -> Result<f64> {
    let given = [
        ("--n", AGENTS),
        ("--hidden", HIDDEN),
        ("--batch", BATCH),
        ("--iters", ITERATIONS),
        ("--threads", threads),
    ];
    let arguments: Vec<String> =
        given.iter().flat_map(|(key, value)| [key.to_string(), value.to_string()]).collect();
    let text = ask(path, python, &arguments, threads)?;
    let Some(new) = parse(&text) else { bail!("{} printed no line with \"12.3 ms/iter\"", path.display()) };
    Ok(new)
}

fn table(counts: &[usize], best: &[[f64; 3]], peer: &[f64]) {
    let flops = 1e-9 * (3 * AGENTS * BATCH * NET.flops()) as f64;
    say!(
        "{:>8} {:>14} {:>14} {:>22} {:>24} {:>10}",
        "threads",
        "iteration, ms",
        "gradients, ms",
        "gradients, GFLOP/s",
        "products alone, GFLOP/s",
        "share"
    );
    for (threads, [whole, gradients, products]) in counts.iter().zip(best) {
        say!(
            "{threads:>8} {:>14.2} {:>14.2} {:>22.0} {:>24.0} {:>8.0} %",
            1e3 * whole,
            1e3 * gradients,
            flops / gradients,
            flops / products,
            100.0 * products / gradients
        );
    }
    say!(
        "\n\"products alone\": the same matrix products by the same crate on places that stay in cache; \
        \"share\": their time in that of the gradients."
    );
    if let Some(fastest) = peer.iter().copied().min_by(f64::total_cmp).filter(|p| p.is_finite()) {
        let all = counts.iter().zip(peer).map(|(threads, p)| format!("{:.1} ms on {threads}", 1e3 * p));
        let all = all.collect::<Vec<_>>().join(", ");
        say!("\nThe peer takes {all} thread(s). Ratio of its better one to dibo:");
        for (threads, best) in counts.iter().zip(best) {
            say!("{threads:>8} threads {:>8.2} ×", fastest / best[0]);
        }
    }
}

/// Runs to the end and gives the bytes of the state.
struct Whole;

impl Visit for Whole {
    type Out = u64;

    fn visit<T: Real>(self, ready: Ready<'_, T>) -> Result<u64> {
        Ok(ready.run(&mut *ready.network()?, None, &mut ())?.state_bytes)
    }
}

/// Does the run alone and prints its peak memory beside what it must hold.
pub fn memory(registry: &Registry, cores: usize) -> Result<()> {
    let (setting, threads) = (setting(registry)?, Threads::new(cores));
    let place = Place::new(Path::new("."), &threads);
    let opened = open(&setting, 0, place)?;
    let (state, data) = (opened.visit(Whole)? as f64, opened.built.data_bytes as f64);
    let vectors = format!(
        "state {:.1} MB (decisions, trackers and directions of y and z, ψ and its direction) + data {:.1} MB",
        state / 1e6,
        data / 1e6
    );
    match peak_memory() {
        Some(peak) => {
            say!("peak {:.1} MB = {:.2} × ({vectors})", peak as f64 / 1e6, peak as f64 / (state + data))
        }
        None => say!("{vectors}; this system does not tell the peak"),
    }
    Ok(())
}

/// Seconds an iteration, from a line of a peer.
pub fn parse(text: &str) -> Option<f64> {
    let before = text.lines().find_map(|line| line.split_once(" ms/iter"))?.0;
    before.rsplit(' ').next()?.parse::<f64>().ok().map(|ms| ms / 1e3)
}
