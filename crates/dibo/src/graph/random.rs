//! Bernoulli trials in time proportional to the successes.
use rand::Rng;

/// Draws the gaps between successes of independent trials, by a table: no logarithm, so the same bits
/// everywhere.
#[derive(Clone, Debug)]
pub struct Gaps {
    /// `upto[g]` = P(gap ≤ g + 1) · 2³², for gaps up to the table's length.
    upto: Vec<u64>,
    /// First table entry worth looking at for each value of a draw's top bits; with [`SURE`] it is the right
    /// one whatever the other bits.
    guide: Vec<u16>,
}

const TABLE: usize = 1024;
const GUIDE_BITS: u32 = 12;
const SURE: u16 = 1 << 15;
/// How many successes are drawn at a time.
pub const SOME: usize = 256;

impl Gaps {
    /// For trials that succeed with probability `p`.
    pub fn new(p: f64) -> Self {
        let mut upto = Vec::new();
        let mut miss = 1.0;
        while upto.len() < TABLE && miss > 1e-10 {
            miss *= 1.0 - p;
            upto.push(((1.0 - miss) * 4294967296.0) as u64);
        }
        let first = |draw: u64| upto.partition_point(|u| *u <= draw) as u16;
        let guide = |top: u64| {
            let (low, high) = (first(top << (32 - GUIDE_BITS)), first(((top + 1) << (32 - GUIDE_BITS)) - 1));
            low | if low == high && (low as usize) < upto.len() { SURE } else { 0 }
        };
        Gaps { guide: (0..1 << GUIDE_BITS).map(guide).collect(), upto }
    }

    /// Writes successful trials to `hits`, in order, beginning with trial `next`, until one more might not
    /// fit or all `trials` are done. Returns how many there are and moves `next` on.
    pub fn some_hits(
        &self,
        trials: u64,
        next: &mut u64,
        rng: &mut impl Rng,
        hits: &mut [u64; SOME],
    ) -> usize {
        let (mut count, mut trial) = (0, *next);
        let guide: &[u16; 1 << GUIDE_BITS] =
            self.guide.as_slice().try_into().expect("a guide for every value of the top bits");
        while trial < trials && count < SOME - 1 {
            // Two draws of 32 bits from each word.
            let word = rng.next_u64();
            let guess = [
                guide[(word as u32 >> (32 - GUIDE_BITS)) as usize],
                guide[(word >> (64 - GUIDE_BITS)) as usize],
            ];
            if guess[0] & guess[1] & SURE != 0 {
                hits[count] = trial + u64::from(guess[0] & !SURE);
                hits[count + 1] = hits[count] + 1 + u64::from(guess[1] & !SURE);
                trial = hits[count + 1] + 1;
                count += 2;
                continue;
            }
            for (draw, guess) in [word & 0xffff_ffff, word >> 32].into_iter().zip(guess) {
                let mut g = usize::from(guess & !SURE);
                while self.upto.get(g).is_some_and(|upto| *upto <= draw) {
                    g += 1;
                }
                trial += g as u64;
                // Past the table's end: that many misses, then the trials start afresh (they have no memory).
                if g < self.upto.len() {
                    hits[count] = trial;
                    count += 1;
                    trial += 1;
                }
            }
        }
        *next = trial;
        // The last two may lie beyond the end.
        while count > 0 && hits[count - 1] >= trials {
            count -= 1;
        }
        count
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
            let (mut next, mut rng, mut hits) = (0, stream(seed as u64, Purpose::Graph, 0, 0), [0; SOME]);
            while next < trials {
                let some = gaps.some_hits(trials, &mut next, &mut rng, &mut hits);
                for &t in &hits[..some] {
                    assert!(t < trials && (last == u64::MAX || t > last));
                    pairs += (last != u64::MAX && t == last + 1) as u64;
                    count += 1;
                    last = t;
                }
            }
            let n = trials as f64;
            let close =
                |got: u64, q: f64| (got as f64 - n * q).abs() <= 5.0 * (n * q * (1.0 - q)).sqrt() + 2.0;
            assert!(close(count, p), "p = {p}: {count}");
            // Neighbouring successes are as frequent as independence asks.
            assert!(
                (pairs as f64 - n * p * p).abs() <= 8.0 * (n * p * p).sqrt() + 2.0,
                "p = {p}: {pairs} pairs"
            );
        }
    }
}
