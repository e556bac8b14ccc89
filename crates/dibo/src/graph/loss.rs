//! Links that lose messages: independently of each other, or in bursts (Gilbert's model).
use crate::rng::{Purpose, stream};
use rand::RngExt;

/// Which messages are lost. A pure function of (seed, link, k), like everything random here.
///
/// ```
/// let loss = dibo::graph::Loss::new(0.3, Some(5.0), 0).unwrap();
/// let lost = (0..10_000).filter(|k| !loss.arrives(*k, 0, 1)).count();
/// assert!((2_500..3_500).contains(&lost));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// Below this draw a link is bad whatever it was, …
    always: f64,
    /// … from this one on it is good whatever it was; in between it stays as it was.
    never: f64,
    seed: u64,
}

/// The longest mean run of losses.
const LONGEST: f64 = 10_000.0;

impl Loss {
    /// A share `rate` of all messages is lost; with `burst`, losses come in runs of this mean length (in
    /// rounds). Says what is out of range.
    pub fn new(rate: f64, burst: Option<f64>, seed: u64) -> Result<Self, String> {
        if !(0.0..1.0).contains(&rate) {
            return Err(format!("loss is {rate}; it must be 0 or more and below 1"));
        }
        let Some(burst) = burst else { return Ok(Loss { always: rate, never: rate, seed }) };
        let least = 1.0 / (1.0 - rate);
        if !(burst >= least && burst.is_finite()) {
            return Err(format!(
                "burst is {burst}; runs of losses at rate {rate} are at least {least:.3} rounds long (leave \
                burst out for independent losses)"
            ));
        }
        // Whether a message arrives is found by looking back to where a run of losses began.
        if burst > LONGEST {
            return Err(format!("burst is {burst}; runs of at most {LONGEST} rounds can be simulated"));
        }
        // Gilbert: bad → good with 1/burst, good → bad so that a share `rate` of the time is bad.
        Ok(Loss { always: rate / (burst * (1.0 - rate)), never: 1.0 - 1.0 / burst, seed })
    }

    /// Whether the message of round `k` over this link arrives.
    pub fn arrives(&self, k: usize, sender: usize, receiver: usize) -> bool {
        let link = (sender as u64) << 32 | receiver as u64;
        // Look back to the last round whose draw decides alone; before round 0 the chain goes on, so that it
        // starts in its steady state.
        let mut k = k as u64;
        loop {
            let draw: f64 = stream(self.seed, Purpose::Loss, link, k).random();
            if draw < self.always {
                return false;
            }
            if draw >= self.never {
                return true;
            }
            k = k.wrapping_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_and_length_are_as_asked() {
        for (rate, burst) in
            [(0.3, None), (0.3, Some(5.0)), (0.05, Some(20.0)), (0.6, Some(2.5)), (0.0, None)]
        {
            let loss = Loss::new(rate, burst, 3).unwrap();
            let arrived: Vec<bool> = (0..200_000).map(|k| loss.arrives(k, 2, 7)).collect();
            let lost = arrived.iter().filter(|a| !**a).count() as f64;
            assert!((lost / 2e5 - rate).abs() < 0.02, "{rate} {burst:?}: {}", lost / 2e5);
            if rate > 0.0 {
                let runs = arrived.windows(2).filter(|w| w[0] && !w[1]).count() as f64;
                let length = burst.unwrap_or(1.0 / (1.0 - rate));
                assert!((lost / runs / length - 1.0).abs() < 0.06, "{rate} {burst:?}: {}", lost / runs);
            }
        }
        // Links and seeds differ.
        let (one, other) = (Loss::new(0.5, None, 1).unwrap(), Loss::new(0.5, None, 2).unwrap());
        assert!(
            (0..64).any(|k| one.arrives(k, 0, 1) != one.arrives(k, 1, 0))
                && (0..64).any(|k| one.arrives(k, 0, 1) != other.arrives(k, 0, 1))
        );
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        for (rate, burst, word) in [
            (1.0, None, "loss"),
            (-0.1, None, "loss"),
            (f64::NAN, None, "loss"),
            (0.3, Some(1.0), "burst"),
            (0.3, Some(f64::INFINITY), "burst"),
            (0.3, Some(1e9), "burst"),
        ] {
            assert!(Loss::new(rate, burst, 0).unwrap_err().starts_with(word));
        }
    }
}
