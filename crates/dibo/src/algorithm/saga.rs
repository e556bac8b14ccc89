//! SAGA's estimate of a gradient from the last one of each block.
use crate::network::Network;
use crate::rng::{Purpose, stream};
use crate::rows::{Real, Rows, Stack};
use rand::RngExt;

/// The sample of iteration k with its block drawn at random: the same number for all agents, whose blocks are
/// their own.
pub fn drawn(k: usize, blocks: usize) -> usize {
    k - k % blocks + stream(0, Purpose::Batch, 0, k as u64).random_range(0..blocks)
}

/// d = ∇F_block(x) − table[block] + mean(table), then table[block] = ∇F_block(x).
pub fn estimate<T: Real>(
    k: usize,
    gradient: &Stack<T, 1>,
    table: &mut [Rows<T>],
    mean: &mut Rows<T>,
    d: &mut Stack<T, 1>,
    network: &dyn Network<T>,
) {
    let (threads, share) = (network.threads(), T::ONE / T::of(table.len() as f64));
    let old = &mut table[k % table.len()];
    // Private entries occur only in the double loop, whose one block is all data: the estimate is the
    // gradient.
    if let (Some(d), Some(gradient)) = (&mut d.private, &gradient.private) {
        d.copy_from(gradient);
    }
    d.shared.copy_from(&gradient.shared);
    d.shared.add_scaled(-T::ONE, old, threads);
    // The change of the mean is the difference that d holds now, divided by the number of blocks.
    old.copy_from(&d.shared);
    d.shared.add(mean, threads);
    mean.add_scaled(share, old, threads);
    old.copy_from(&gradient.shared);
}
