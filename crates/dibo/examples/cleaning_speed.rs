//! How fast an iteration of hyper-cleaning is: n = 10, MLP 784-256-10, batch 64, random data; and the matrix
//! products alone.
use dibo::algorithm::{Algorithm, fab::Fab};
use dibo::data::{Dataset, Noise, Partition, Recipe, Scaling, Split};
use dibo::problem::learning::{Learning, Model, Task};
use dibo::problem::{At, Bilevel, Penalty};
use dibo::rng::{Purpose, stream};
use dibo::rows::{Stack, Threads};
use dibo::{graph, mixing, network::Simulator};
use rand::{Rng, RngExt};
use std::{sync::Arc, time::Instant};

fn random(samples: usize) -> Arc<Dataset> {
    let mut r = stream(0, Purpose::Instance, 0, 0);
    let mut images = vec![0; samples * 784];
    r.fill_bytes(&mut images);
    Arc::new(
        Dataset::new(images, (0..samples).map(|_| r.random_range(0..10)).collect(), 784, 10)
            .expect("right shapes"),
    )
}

/// The best of several runs, in seconds.
fn best(times: usize, mut job: impl FnMut()) -> f64 {
    job();
    let one = |_| {
        let from = Instant::now();
        (0..times).for_each(|_| job());
        from.elapsed().as_secs_f64() / times as f64
    };
    (0..20).map(one).fold(f64::INFINITY, f64::min)
}

/// The rate of one product (m × k)·(k × n) of row-major matrices; the left one may be transposed.
fn product(m: usize, n: usize, k: usize, transposed: bool) -> f64 {
    let (mut c, a, b) = (vec![0f32; m * n], vec![0.5f32; m * k], vec![0.5f32; k * n]);
    let (ars, acs) = if transposed { (1, m) } else { (k, 1) };
    let seconds = best(20, || {
        dibo::problem::learning::product((m, n, k), (&mut c, n, 1), false, (&a, ars, acs), (&b, n, 1))
    });
    2e-9 * (m * n * k) as f64 / seconds
}

fn main() {
    let (n, h, b) = (10, std::env::args().nth(1).map_or(256, |a| a.parse().expect("hidden units")), 64);
    let recipe = Recipe {
        agents: n,
        partition: Partition::Uniform,
        split: Split::Share(0.9),
        noise: Noise::Asymmetric,
        cr: 0.4,
        seed: 0,
    };
    let dealt = Arc::new(recipe.deal(random(60_000), random(100)).expect("enough samples"));
    let task = Task::Cleaning { tau: 0.002, psi: 0.0 };
    let problem =
        Learning::<f32>::new(dealt, Model::Mlp(h), task, Scaling::Unit, 0).expect("a sound problem").batch(b);
    let flops = 1e-9 * (3 * n * b * problem.net().flops()) as f64;
    for (m, k, transposed) in [(b, 785, false), (2 * b, 785, false), (785, b, true), (785, 2 * b, true)] {
        println!("product {m} x {k} x {h}: {:.0} GFLOP/s on one thread", product(m, h, k, transposed));
    }
    for threads in [1, 2] {
        let threads = Threads::new(threads);
        let count = threads.count();
        let start = problem.start();
        let owned: Vec<usize> = (0..n).collect();
        let mut v = Stack::zeros(n, &problem.upper(), &[problem.lower(); 2]);
        for i in 0..n {
            let [_, y, z] = v.row_mut(i);
            y.iter_mut().zip(z).zip(&start.y[0]).for_each(|((y, z), s)| (*y, *z) = (*s as f32, *s as f32));
        }
        let (mut d, mut k) = (v.clone(), 0);
        let gradients = best(5, || {
            k += 1;
            let done = problem.penalty_directions(
                At { k, owned: &owned, threads: &threads },
                Penalty { f: 1.0, g: 1.0 },
                &v,
                &mut d,
            );
            done.expect("gradients are computed");
        });
        drop((v, d));
        let fab = Fab {
            lambda: 1.0.into(),
            eta_x: 1e-3.into(),
            eta_y: 0.03.into(),
            eta_z: None,
            penalty_form: Default::default(),
        };
        let mut network = Simulator::new(mixing::Sequence::uniform(graph::Cycle::new(n, 0.5, 0)), threads);
        let mut state = fab.start(&problem, &mut network, Some(&start)).unwrap();
        let mut k = 0;
        let iteration = best(5, || {
            state.step(k, &problem, &mut network).expect("the step is done");
            k += 1;
        });
        let ms = |s: f64| format!("{:.2} ms, {:.0} GFLOP/s", s * 1e3, flops / s);
        println!("{count} threads: gradients {}; whole iteration {}", ms(gradients), ms(iteration));
    }
}
