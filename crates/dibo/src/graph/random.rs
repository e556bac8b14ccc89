//! Bernoulli trials in time proportional to the successes.
use rand::Rng;

/// Draws the gaps between successes of independent trials, by a table: no logarithm, so the same bits everywhere.
#[derive(Clone, Debug)]
pub struct Gaps {
    /// `upto[g]` = P(gap ≤ g + 1) · 2³², for gaps up to the table's length.
    upto: Vec<u64>,
    /// First table entry worth looking at for each value of a draw's top bits.
    guide: Vec<u16>,
}

const TABLE: usize = 1024;
const GUIDE_BITS: u32 = 12;

impl Gaps {
    /// For trials that succeed with probability `p`.
    pub fn new(p: f64) -> Self {
        let mut upto = Vec::new();
        let mut miss = 1.0;
        while upto.len() < TABLE && miss > 1e-10 {
            miss *= 1.0 - p;
            upto.push(((1.0 - miss) * 4294967296.0) as u64);
        }
        let at = |top: u64| upto.partition_point(|u| *u <= top << (32 - GUIDE_BITS)) as u16;
        let guide = (0..1 << GUIDE_BITS).map(at).collect();
        Gaps { upto, guide }
    }

    /// Calls `hit(t)` for each successful trial `t` in `0..trials`, in order.
    #[inline]
    pub fn hits(&self, trials: u64, rng: &mut impl Rng, mut hit: impl FnMut(u64)) {
        let mut next = 0u64;
        loop {
            // Two draws of 32 bits from each word.
            let word = rng.next_u64();
            for draw in [word & 0xffff_ffff, word >> 32] {
                let mut g = self.guide[(draw >> (32 - GUIDE_BITS)) as usize] as usize;
                while g < self.upto.len() && self.upto[g] <= draw {
                    g += 1;
                }
                next += g as u64;
                // Past the table's end: that many misses, then the trials start afresh (they have no memory).
                if g < self.upto.len() {
                    if next >= trials {
                        return;
                    }
                    hit(next);
                    next += 1;
                } else if next >= trials {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, stream};

    #[test]
    fn frequencies_are_right() {
        for (seed, p) in [0.0, 0.0005, 0.01, 0.05, 0.3, 0.5, 0.9, 1.0].into_iter().enumerate() {
            let gaps = Gaps::new(p);
            let trials = 1_000_000u64;
            let (mut count, mut pairs, mut last) = (0u64, 0u64, u64::MAX);
            gaps.hits(trials, &mut stream(seed as u64, Purpose::Graph, 0, 0), |t| {
                assert!(t < trials && (last == u64::MAX || t > last));
                pairs += (last != u64::MAX && t == last + 1) as u64;
                count += 1;
                last = t;
            });
            let n = trials as f64;
            let close = |got: u64, q: f64| (got as f64 - n * q).abs() <= 5.0 * (n * q * (1.0 - q)).sqrt() + 2.0;
            assert!(close(count, p), "p = {p}: {count}");
            // Neighbouring successes are as frequent as independence asks.
            assert!((pairs as f64 - n * p * p).abs() <= 8.0 * (n * p * p).sqrt() + 2.0, "p = {p}: {pairs} pairs");
        }
    }
}
