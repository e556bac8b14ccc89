//! What each special way gains, in per cent of the time with it: on a quiet machine,
//! `cargo test --release -p dibo --lib gain -- --ignored --nocapture --test-threads 1`.
use super::exchange::mix_by;
use super::tuning::{OPEN, Ways};
use super::*;
use crate::graph::{ErdosRenyi, Static};
use crate::memory::{Buffer, zeros};
use crate::mixing::{Mixing, Sequence};
use std::time::Instant;

/// Times two jobs by turns of so many seconds and gives the best time of each. Turns are short, so that on a
/// machine that others use, too, some of them are not disturbed.
fn race(turn: f64, mut jobs: [&mut dyn FnMut(); 2]) -> [f64; 2] {
    let (mut best, start) = ([f64::INFINITY; 2], Instant::now());
    while start.elapsed().as_secs_f64() < 0.3 + 60.0 * turn {
        for (job, best) in jobs.iter_mut().zip(&mut best) {
            job();
            let (start, mut times) = (Instant::now(), 0);
            while times < 1 || start.elapsed().as_secs_f64() < turn {
                job();
                times += 1;
            }
            *best = best.min(start.elapsed().as_secs_f64() / times as f64);
        }
    }
    best
}

/// Closes a way.
type Close = fn(&mut Ways);

/// Seconds of a turn.
const TURN: f64 = 3e-4;

fn numbers<T: Real>(len: usize, salt: usize) -> Buffer<T> {
    let mut numbers = zeros(len);
    numbers.iter_mut().enumerate().for_each(|(i, v)| *v = T::of(((i + salt) as f64).sin()));
    numbers
}

/// By how much a round is slower with one way closed, in per cent.
fn gain<T: Real>(sequence: &Sequence, width: usize, threads: &Threads, closed: Ways) -> f64 {
    let mixing: Mixing<T> = sequence.at(0);
    let (n, stride) = (mixing.graph.agents(), width.next_multiple_of(GROUP));
    let links = Links { csr: mixing.graph.csr(), a: mixing.a.weights(), b: mixing.b.weights() };
    let (eta, d) = (numbers::<T>(stride, 3), numbers::<T>(n * stride, 4));
    let job = |ways: Ways| {
        let (mut v, mut t) = (numbers::<T>(n * stride, 1), numbers::<T>(n * stride, 2));
        let mut workspace = vec![Buffer::new(64); threads.count().max(2)];
        let (eta, d) = (&eta, &d);
        move || {
            let (pull, push) = (Some((&mut v, &eta[..])), Some(&mut t));
            let exchange = Exchange { shape: (n, stride), pull, push, d, pending: true };
            mix_by(ways, exchange, links, threads, &mut workspace)
        }
    };
    let [open, closed] = race(TURN, [&mut job(OPEN), &mut job(closed)]);
    100.0 * (closed / open - 1.0)
}

#[test]
#[ignore = "a measurement"]
fn what_ways_gain() {
    let ways: [(&str, Close); 6] = [
        ("tiles", |w| w.tiles = false),
        ("tiles of many", |w| w.tiles_of_many = false),
        ("in place", |w| w.in_place = false),
        ("in passing", |w| w.in_passing = false),
        ("weighed once", |w| w.weighed_once = false),
        ("prefetch", |w| w.prefetch = false),
    ];
    print!("threads agents  width bits hears");
    ways.iter().for_each(|(name, _)| print!("{name:>15}"));
    println!();
    for (n, width, share) in [
        (100, 45, 0.0),
        (300, 45, 0.0),
        (1000, 45, 0.0),
        (1000, 45, 0.02),
        (1000, 45, 0.1),
        (10, 2000, 0.0),
        (10, 6000, 0.0),
        (12, 6000, 0.9),
        (10, 30_000, 0.0),
        (12, 30_000, 0.9),
        (10, 203_530, 0.0),
        (12, 203_530, 0.9),
    ] {
        let sequence = match share {
            0.0 => Sequence::uniform(Static::ring(n)),
            share => Sequence::uniform(ErdosRenyi::new(n, share, 7, true)),
        };
        let hears = sequence.at::<f32>(0).graph.links() as f64 / n as f64 + 1.0;
        for (bits, threads) in [(64, 1), (32, 1), (64, 2)] {
            print!("{threads:>7} {n:>6} {width:>6} {bits:>4} {hears:>5.1}");
            let threads = Threads::new(threads);
            for (_, close) in &ways {
                let mut closed = OPEN;
                close(&mut closed);
                let gain = match bits {
                    32 => gain::<f32>(&sequence, width, &threads, closed),
                    _ => gain::<f64>(&sequence, width, &threads, closed),
                };
                print!("{gain:>15.1}");
            }
            println!();
        }
    }
}

/// Products on operands as they lie, against those of the crate's own driver.
#[test]
#[ignore = "a measurement"]
fn what_products_in_place_gain() {
    for (m, n, k) in [(64, 256, 785), (128, 256, 785), (785, 256, 64), (785, 256, 128), (64, 16, 257)] {
        let (a, b) = (numbers::<f32>(m * k, 1), numbers::<f32>(k * n, 2));
        let [mut c, mut e] = [3, 4].map(|salt| numbers::<f32>(m * n, salt));
        let mut in_place = || product_in_place((m, n, k), (&mut c, n), false, (&a, k, 1), (&b, n));
        let mut by_driver = || product((m, n, k), (&mut e, n, 1), false, (&a, k, 1), (&b, n, 1));
        let [open, closed] = race(TURN, [&mut in_place, &mut by_driver]);
        println!("product in place, {m} × {n} × {k}: {:.1} %", 100.0 * (closed / open - 1.0));
    }
}
