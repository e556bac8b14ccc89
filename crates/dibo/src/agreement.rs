//! What agents find out together before they begin: averages by push-sum over the links as they come, exact
//! to rounding, and from them sums, and everybody's short texts. No agent sees another's numbers, only what
//! has been added up on the way.
//!
//! ```
//! use dibo::agreement::Agreement;
//! use dibo::graph::Cycle;
//! use dibo::mixing::Sequence;
//! use dibo::network::Simulator;
//! use dibo::rows::Threads;
//!
//! # fn main() -> dibo::Result<()> {
//! let links = Sequence::uniform(Cycle::new(3, 0.5, 1));
//! let mut network = Simulator::new(links.clone(), Threads::one());
//! let mut agreement = Agreement::new(&links, &mut network)?;
//! let sums = agreement.sums(&[vec![1.0], vec![10.0], vec![100.0]])?;
//! assert!(sums.iter().all(|s| (s[0] - 111.0).abs() < 1e-12));
//! assert_eq!(agreement.texts(&["a".into(), "".into(), "bc".into()])?, ["a", "", "bc"]);
//! # Ok(())
//! # }
//! ```
use crate::error::{Error, Result};
use crate::mixing::{Mixing, Sequence};
use crate::network::{Lane, Network};
use crate::rows::Rows;

/// Rounds at most: links that have not brought everybody together by then are as good as none.
const MOST: usize = 20_000;

/// How far the shares of agents in an average may be from equal.
const EXACT: f64 = 1e-15;

/// Agents whose shares are followed; among many, a few stand for all.
const FOLLOWED: usize = 64;

/// Bytes of a text that travel as one number: small enough to be exact after averaging.
const PACKED: usize = 4;

/// A talk among all agents of a network.
pub struct Agreement<'a> {
    network: &'a mut dyn Network<f64>,
    links: Sequence,
    rounds: usize,
    next: usize,
}

impl<'a> Agreement<'a> {
    /// Over a network that follows these links, which everybody knows: so everybody knows how many rounds an
    /// average takes.
    pub fn new(links: &Sequence, network: &'a mut dyn Network<f64>) -> Result<Self> {
        Ok(Agreement { rounds: rounds(links, 0, 0)?, links: links.clone(), network, next: 0 })
    }

    /// How many rounds the first average takes; where links change, a later one may take more.
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// The sums over all agents of these numbers, one list for each agent that is here, as that agent knows
    /// them in the end. All lists, here and elsewhere, have the same length.
    pub fn sums(&mut self, own: &[Vec<f64>]) -> Result<Vec<Vec<f64>>> {
        let agents = self.network.agents() as f64;
        let weighted: Vec<Vec<f64>> =
            own.iter().map(|row| row.iter().copied().chain([1.0]).collect()).collect();
        let mut rows = Rows::from_vectors(&weighted);
        for _ in 0..rounds(&self.links, self.next, self.rounds)? {
            self.network.round(self.next, &mut [Lane::push(&mut rows)])?;
            self.next += 1;
        }
        let sum = |row: &[f64]| {
            let (weight, values) = row.split_last().expect("a weight was added");
            values.iter().map(|v| agents * (v / weight)).collect()
        };
        Ok((0..own.len()).map(|i| sum(rows.row(i))).collect())
    }

    /// Sums of whole numbers, exact where they are below 2^48.
    pub fn counts(&mut self, own: &[Vec<f64>]) -> Result<Vec<f64>> {
        let sums = self.sums(own)?;
        Ok(sums.first().map(|s| s.iter().map(|v| v.round()).collect()).unwrap_or_default())
    }

    /// Everybody's text, agent by agent, from those of the agents that are here.
    pub fn texts(&mut self, own: &[String]) -> Result<Vec<String>> {
        let (agents, owned) = (self.network.agents(), self.network.owned().to_vec());
        // Every agent writes in places of its own and nothing elsewhere, so a sum is what each has written.
        let lengths = owned.iter().zip(own).map(|(agent, text)| {
            let mut row = vec![0.0; agents];
            row[*agent] = text.len() as f64;
            row
        });
        let lengths = self.counts(&lengths.collect::<Vec<_>>())?;
        let places: Vec<usize> = lengths.iter().map(|l| (*l as usize).div_ceil(PACKED)).collect();
        let starts: Vec<usize> =
            places.iter().scan(0, |end, p| Some(std::mem::replace(end, *end + p))).collect();
        let width: usize = places.iter().sum();
        let rows = owned.iter().zip(own).map(|(agent, text)| {
            let mut row = vec![0.0; width];
            for (place, bytes) in row[starts[*agent]..].iter_mut().zip(text.as_bytes().chunks(PACKED)) {
                *place = bytes.iter().rev().fold(0u32, |n, b| n << 8 | u32::from(*b)).into();
            }
            row
        });
        let numbers = self.counts(&rows.collect::<Vec<_>>())?;
        let damaged = || Error::Network("what the agents told each other cannot be read".into());
        (0..agents)
            .map(|agent| {
                let packed = &numbers[starts[agent]..starts[agent] + places[agent]];
                let mut bytes: Vec<u8> = packed.iter().flat_map(|n| (*n as u32).to_le_bytes()).collect();
                bytes.truncate(lengths[agent] as usize);
                String::from_utf8(bytes).map_err(|_| damaged())
            })
            .collect()
    }
}

/// After how many rounds from this one on, `least` or more, push-sum has given every agent's number the same
/// share in everybody's average. Few agents may have it after a handful of rounds by chance, and need more
/// when they begin at another.
fn rounds(links: &Sequence, from: usize, least: usize) -> Result<usize> {
    let n = links.agents();
    let followed: Vec<usize> = (0..n.min(FOLLOWED)).map(|i| i * n / n.min(FOLLOWED)).collect();
    // Each agent's part of the numbers that are followed, and its weight.
    let width = followed.len() + 1;
    let mut parts = vec![0.0; n * width];
    followed.iter().enumerate().for_each(|(c, agent)| parts[agent * width + c] = 1.0);
    parts.chunks_exact_mut(width).for_each(|row| row[width - 1] = 1.0);
    let (mut next, mut mixing) = (parts.clone(), Mixing::<f64>::default());
    let mut best = f64::INFINITY;
    let mut since = 0;
    for k in 0..MOST.max(least + 1) {
        let off = parts.chunks_exact(width).flat_map(|row| {
            let weight = row[width - 1];
            row[..width - 1].iter().map(move |part| (n as f64 * part / weight - 1.0).abs())
        });
        let off = if k < least { f64::INFINITY } else { off.fold(0.0, f64::max) };
        // Rounding may keep it a little above.
        (best, since) = if off < best { (off, 0) } else { (best, since + 1) };
        let nearly = 64.0 * EXACT;
        if off <= EXACT || (best < nearly && since > 8) || (least > 0 && off <= nearly) {
            return Ok(k.max(1));
        }
        links.fill(from + k, &mut mixing);
        next.fill(0.0);
        mixing.for_each_entry(|receiver, sender, _, b| {
            for c in 0..width {
                next[receiver * width + c] += b * parts[sender * width + c];
            }
        });
        std::mem::swap(&mut parts, &mut next);
    }
    Err(Error::Network(format!("the links do not bring all agents together within {MOST} rounds")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Cycle, ErdosRenyi, Static};
    use crate::network::Simulator;
    use crate::rng::{Purpose, stream};
    use crate::rows::Threads;
    use rand::RngExt;

    #[test]
    fn sums_and_texts_are_exact_on_unbalanced_links() {
        for (links, n) in [
            (Sequence::uniform(Cycle::new(7, 0.3, 2)), 7),
            (Sequence::uniform(Static::ring(12)), 12),
            (Sequence::uniform(Cycle::new(90, 0.05, 3)), 90),
            (Sequence::uniform(Static::ring(1)), 1),
        ] {
            let mut network = Simulator::new(links.clone(), Threads::one());
            let mut agreement = Agreement::new(&links, &mut network).unwrap();
            let mut r = stream(1, Purpose::Instance, 0, 0);
            let own: Vec<Vec<f64>> =
                (0..n).map(|_| (0..5).map(|_| r.random_range(-1e6..1e6)).collect()).collect();
            for sums in agreement.sums(&own).unwrap() {
                for (c, sum) in sums.iter().enumerate() {
                    let exact: f64 = own.iter().map(|row| row[c]).sum();
                    let size: f64 = own.iter().map(|row| row[c].abs()).sum();
                    assert!((sum - exact).abs() <= 1e-13 * size, "{sum} {exact}");
                }
            }
            let counts: Vec<Vec<f64>> = (0..n).map(|i| vec![(i * i) as f64, 4e9]).collect();
            let exact = (0..n).map(|i| (i * i) as f64).sum::<f64>();
            assert_eq!(agreement.counts(&counts).unwrap(), [exact, 4e9 * n as f64]);
            let texts: Vec<String> = (0..n).map(|i| "ä€ word; ".repeat(i % 4) + &i.to_string()).collect();
            assert_eq!(agreement.texts(&texts).unwrap(), texts);
        }
    }

    /// Links that change may bring all together within a few rounds once and not the next time.
    #[test]
    fn every_average_takes_the_rounds_that_it_needs() {
        for (n, seed) in (2..9).flat_map(|n| (0..30).map(move |seed| (n, seed))) {
            let links = Sequence::uniform(Cycle::new(n, 0.5, seed));
            let mut network = Simulator::new(links.clone(), Threads::one());
            let mut agreement = Agreement::new(&links, &mut network).unwrap();
            let texts: Vec<String> = (0..n).map(|i| format!("some words of agent {i}")).collect();
            for _ in 0..3 {
                assert_eq!(agreement.texts(&texts).unwrap(), texts, "{n} agents, seed {seed}");
            }
        }
    }

    #[test]
    fn links_that_do_not_connect_are_refused() {
        let links = Sequence::uniform(ErdosRenyi::new(4, 0.0, 1, false));
        let mut network = Simulator::new(links.clone(), Threads::one());
        assert!(Agreement::new(&links, &mut network).err().unwrap().to_string().contains("bring all agents"));
    }
}
