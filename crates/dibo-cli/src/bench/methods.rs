//! The single-loop methods beside FAB: the time of an iteration by what it sends and asks for.
use super::{Options, Stepper, burst};
use anyhow::Result;
use dibo::problem::{Counted, Oracle};
use dibo::rows::{Real, Threads};
use dibo_run::door::{Place, Ready, Visit, open};
use dibo_run::{Registry, say};
use std::path::Path;

/// Names, steps and other parameters; steps so small that no method leaves the place where it began.
const METHODS: [(&str, &str, &str); 15] = [
    ("fab", STEPS, "lambda = 2"),
    ("d-soba", STEPS, "theta = 0.5"),
    ("d-soba-fo", STEPS, "theta = 0.5\ndelta = 1e-3"),
    ("sparkle-gt", STEPS, "theta = 0.5"),
    ("sparkle-ed", STEPS, "theta = 0.5"),
    ("sparkle-extra", STEPS, "theta = 0.5"),
    ("sparkle-ed-gt", STEPS, "theta = 0.5"),
    ("sldbo", STEPS, "radius_z = 100.0"),
    ("mdbo", MOMENTUM_STEPS, MOMENTUM),
    ("vrdbo", MOMENTUM_STEPS, MOMENTUM),
    ("dsgda-gt", STEPS, "lambda = 2"),
    ("penalty-storm", STEPS, "lambda = 2\na = 0.5"),
    ("sun-dsbo-gt", STEPS, "gamma = 1.0\nmu = 0.5"),
    ("sun-dsbo-se", STEPS, "gamma = 1.0\nmu = 0.5"),
    ("push-soba", STEPS, ""),
];
const STEPS: &str = "eta_x = 1e-6\neta_y = 1e-6";
const MOMENTUM_STEPS: &str = "beta_1 = 1e-6\nbeta_2 = 1e-6";
const MOMENTUM: &str = "alpha_1 = 1\nalpha_2 = 1\neta = 0.5\ncurvature = 10.0\nterms = 3";

const AGENTS: usize = 10;
/// Neighbours, of a ring that is heard both ways.
const HEARERS: usize = 2;
const STATES: usize = 400;
/// Features of a state: few, so that mixing decides; many, so that gradients do.
const FEATURES: [usize; 2] = [5, 50];
const SECONDS: f64 = 0.05;

/// What an iteration of an agent takes.
#[derive(Clone, Copy)]
struct Taken {
    seconds: f64,
    vectors: f64,
    gradients: f64,
    products: f64,
}

impl Taken {
    /// Seconds for each vector that is sent, gradient and product.
    fn each(self) -> f64 {
        self.seconds / (self.vectors + self.gradients + self.products)
    }
}

struct Timed;

impl Visit for Timed {
    type Out = Taken;

    fn visit<T: Real>(self, ready: Ready<'_, T>) -> Result<Taken> {
        const COUNT: usize = 50;
        let counted = Counted::new(ready.problem, Oracle::default());
        let (mut stepper, mut failed) = (Stepper::new(&ready)?, Ok(()));
        stepper.step()?;
        stepper.problem = &counted;
        let sent = stepper.network.traffic().bytes;
        (0..COUNT).try_for_each(|_| stepper.step())?;
        let per_agent = |count: u64| count as f64 / (COUNT * AGENTS) as f64;
        let vectors =
            per_agent(stepper.network.traffic().bytes - sent) / (HEARERS * STATES * size_of::<T>()) as f64;
        let Oracle { gradients, products } = counted.calls();
        stepper.problem = ready.problem;
        let seconds = burst(SECONDS, || {
            if let Err(e) = stepper.step() {
                failed = Err(e);
            }
        });
        let [gradients, products] = [gradients, products].map(per_agent);
        failed.map(|()| Taken { seconds, vectors, gradients, products })
    }
}

/// Measures and prints.
pub fn run(registry: &Registry, options: &Options) -> Result<()> {
    for features in FEATURES {
        let mut best: [Option<Taken>; METHODS.len()] = [None; METHODS.len()];
        for _ in 0..options.rounds {
            for (best, method) in best.iter_mut().zip(METHODS) {
                let taken = measure(registry, method, features)?;
                if best.is_none_or(|best| taken.seconds < best.seconds) {
                    *best = Some(taken);
                }
            }
        }
        say!(
            "\nSingle-loop methods on policy evaluation ({AGENTS} agents on a ring that is heard both \
            ways, {STATES} states, {features} features, 64-bit, one thread), one iteration; each the best \
            of {} bursts.\n",
            options.rounds
        );
        say!(
            "{:<14} {:>9} {:>13} {:>10} {:>9} {:>9} {:>14}",
            "method",
            "time, µs",
            "vectors sent",
            "gradients",
            "products",
            "ns each",
            "beside FAB's"
        );
        let first = best[0].map_or(f64::NAN, Taken::each);
        for ((name, ..), taken) in METHODS.iter().zip(best.into_iter().flatten()) {
            let Taken { seconds, vectors, gradients, products } = taken;
            let [each, ratio] = [1e9 * taken.each() / AGENTS as f64, taken.each() / first];
            say!(
                "{name:<14} {:>9.1} {vectors:>13.2} {gradients:>10.2} {products:>9.2} {each:>9.0} \
                {ratio:>12.2} ×",
                1e6 * seconds
            );
        }
    }
    say!(
        "\n\"vectors sent\": numbers that an agent sends to one neighbour, by the {STATES} of y. \"each\": \
        the time by all vectors, gradients and products of all agents."
    );
    Ok(())
}

fn measure(registry: &Registry, (name, steps, others): (&str, &str, &str), features: usize) -> Result<Taken> {
    let text = format!(
        "[problem]\nkind = \"policy-evaluation\"\nagents = {AGENTS}\nstates = {STATES}\n\
        features = {features}\n[graph]\nkind = \"ring\"\nundirected = true\n\
        [[algorithm]]\nname = \"{name}\"\n{steps}\n{others}\n"
    );
    let (setting, one) = (super::setting(registry, &text)?, Threads::one());
    open(&setting, 0, Place::new(Path::new("."), &one))?.visit(Timed)
}
