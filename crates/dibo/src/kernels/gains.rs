//! What each special way of the kernels gains: rounds with it and without, by turns.
use super::exchange::mix_by;
use super::tuning::{OPEN, Ways};
use super::*;
use crate::memory::{Buffer, zeros};
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

/// Seconds of a turn.
const TURN: f64 = 3e-4;

fn numbers<T: Real>(len: usize, salt: usize) -> Buffer<T> {
    let mut numbers = zeros(len);
    numbers.iter_mut().enumerate().for_each(|(i, v)| *v = T::of(((i + salt) as f64).sin()));
    numbers
}

/// By how much a round is slower with one way closed, in per cent: on a ring, or where every row hears about
/// this share of the others.
fn gain<T: Real>(n: usize, width: usize, share: f64, threads: &Threads, closed: Ways) -> f64 {
    let stride = width.next_multiple_of(GROUP);
    let (mut start, mut from) = (vec![0], Vec::new());
    for i in 0..n {
        let hears = |j: usize| {
            let dice = (i * n + j).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            j == i || j == (i + n - 1) % n || (dice as f64) < share * (1u64 << 24) as f64
        };
        from.extend((0..n).filter(|j| hears(*j)).map(|j| j as u32));
        start.push(from.len() as u32);
    }
    let even = vec![T::of(n as f64 / from.len() as f64); n];
    let csr = Csr { start: &start, from: &from };
    let links = Links { csr, a: Weights::Receiver(&even), b: Weights::Sender(&even), share: T::ONE };
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

/// A special way where it matters most.
struct Case {
    way: &'static str,
    /// Agents, numbers of each, how many of the others each hears (0: a ring), bits of a number.
    size: (usize, usize, f64, u8),
    close: fn(&mut Ways),
}

const CASES: [Case; 6] = [
    Case { way: "tiles of columns", size: (12, 203_530, 0.9, 64), close: |w| w.tiles = false },
    Case { way: "tiles where rows hear many", size: (1000, 45, 0.1, 64), close: |w| w.tiles_of_many = false },
    Case { way: "rows of a ring in place", size: (10, 6000, 0.0, 64), close: |w| w.in_place = false },
    Case { way: "directions added in passing", size: (10, 2000, 0.0, 64), close: |w| w.in_passing = false },
    Case { way: "what many hear weighed once", size: (1000, 45, 0.1, 64), close: |w| w.weighed_once = false },
    Case { way: "the next tile prefetched", size: (12, 203_530, 0.9, 32), close: |w| w.prefetch = false },
];

/// What each special way of the kernels gains on one thread: its name, the case, and by how much a round (a
/// product) takes longer without it, in per cent. At the registers that `DIBO_CPU` allows.
///
/// Boxed, so that the kernels are compiled here and not once more by who asks.
pub fn gains() -> Box<dyn Iterator<Item = (&'static str, String, f64)>> {
    let threads = Threads::one();
    let ways = CASES.iter().map(move |case| {
        let (n, width, share, bits) = case.size;
        let mut closed = OPEN;
        (case.close)(&mut closed);
        let gain = match bits {
            32 => gain::<f32>(n, width, share, &threads, closed),
            _ => gain::<f64>(n, width, share, &threads, closed),
        };
        let hears = if share == 0.0 { 1.0 } else { share * (n - 1) as f64 };
        (case.way, format!("{n} × {width}, {bits} bits, hearing {hears:.0}"), gain)
    });
    Box::new(ways.chain(std::iter::once_with(product_gain)))
}

/// A product on operands as they lie, against that of the crate's own driver.
fn product_gain() -> (&'static str, String, f64) {
    let (m, n, k) = (64, 16, 257);
    let (a, b) = (numbers::<f32>(m * k, 1), numbers::<f32>(k * n, 2));
    let [mut c, mut e] = [3, 4].map(|salt| numbers::<f32>(m * n, salt));
    let mut in_place = || product_in_place((m, n, k), (&mut c, n), false, (&a, k, 1), (&b, n));
    let mut by_driver = || product((m, n, k), (&mut e, n, 1), false, (&a, k, 1), (&b, n, 1));
    let [open, closed] = race(TURN, [&mut in_place, &mut by_driver]);
    ("products on operands in place", format!("{m} × {k} × {n}, 32 bits"), 100.0 * (closed / open - 1.0))
}
