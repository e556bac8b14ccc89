//! Mixing the rows of some agents with what others sent: for networks whose agents live in several processes.
use super::Lane;
use crate::kernels::{Csr, Cut, Links, New, Pair, Weights};
use crate::mixing::Mixing;
use crate::rows::{Buffer, Real, Threads};
use std::collections::BTreeMap;

/// Old rows while new ones are written; made once and used again.
#[derive(Clone, Debug)]
pub struct Workspace<T>([Buffer<T>; 2]);

impl<T: Real> Default for Workspace<T> {
    fn default() -> Self {
        Workspace([Buffer::new(64), Buffer::new(64)])
    }
}

/// Mixes every lane of the agents `owned`, whose rows these are, with what the agents `others` sent: the
/// simulator's kernels and bits. `read(agent, at, numbers)` reads an agent's message from its number `at` on;
/// a message holds, for each lane, what is pulled and then what is pushed. Says whose message is missing.
pub fn mix_received<T: Real>(
    mixing: &Mixing<T>,
    owned: &[usize],
    lanes: &mut [Lane<'_, T>],
    others: impl IntoIterator<Item = usize>,
    read: impl Fn(usize, usize, &mut [T]),
    workspace: &mut Workspace<T>,
    threads: &Threads,
) -> Result<(), String> {
    // Old rows: the owned agents' first, as the kernels want it, then the others'.
    let mut senders = owned.to_vec();
    senders.extend(others);
    let some = Picks::new(mixing, owned, &senders)?;
    let mut at = 0;
    for lane in lanes {
        lane.settle(threads);
        let shape = lane.shape();
        assert_eq!(shape.0, owned.len(), "one row for each owned agent");
        let Workspace([old_v, old_t]) = workspace;
        for (old, rows) in [&mut *old_v, &mut *old_t].into_iter().zip(lane.sent()) {
            old.clear();
            let Some(rows) = rows else { continue };
            old.extend_from_slice(rows.data());
            old.resize(senders.len() * shape.1, T::ZERO);
            let received = old.chunks_exact_mut(shape.1.max(1)).zip(&senders).skip(owned.len());
            received.for_each(|(row, sender)| read(*sender, at, &mut row[..rows.width()]));
            at += rows.width();
        }
        let new = New {
            shape,
            pull: lane.pull.as_mut().map(|(v, eta)| (&mut v.data_mut()[..], *eta)),
            push: lane.push.as_mut().map(|t| &mut t.data_mut()[..]),
            d: lane.d.map_or(&[], |d| d.data()),
            plus: &[],
        };
        T::mix_from(new, Pair { v: old_v, t: old_t }, some.links(lane.share), Cut::Columns, threads);
    }
    Ok(())
}

/// The rows of some agents in a mixing, with senders numbered by the place of their old rows.
struct Picks<T> {
    start: Vec<u32>,
    from: Vec<u32>,
    a: Picked<T>,
    b: Picked<T>,
}

impl<T: Real> Picks<T> {
    fn new(mixing: &Mixing<T>, owned: &[usize], senders: &[usize]) -> Result<Self, String> {
        let place: BTreeMap<usize, u32> = senders.iter().enumerate().map(|(at, j)| (*j, at as u32)).collect();
        let (mut start, mut from, mut entries) = (vec![0], Vec::new(), Vec::new());
        for i in owned {
            for j in mixing.graph.senders(*i) {
                let at = place.get(&(*j as usize));
                from.push(*at.ok_or_else(|| format!("agent {j} sends to agent {i}, and no message came"))?);
            }
            entries.extend(mixing.graph.entry_range(*i));
            start.push(from.len() as u32);
        }
        let pick = |weights| Picked::new(weights, owned, senders, &entries);
        Ok(Picks { a: pick(mixing.a.weights()), b: pick(mixing.b.weights()), start, from })
    }

    fn links(&self, share: f64) -> Links<'_, T> {
        let csr = Csr { start: &self.start, from: &self.from };
        Links { csr, a: self.a.weights(), b: self.b.weights(), share: T::of(share) }
    }
}

/// The weights of some rows of a matrix, in the form that they have in the whole: the order of sums and
/// products, and with it the bits, depends on that form.
enum Picked<T> {
    Receiver(Vec<T>),
    Sender(Vec<T>),
    Entry(Vec<T>),
}

impl<T: Real> Picked<T> {
    fn new(weights: Weights<'_, T>, receivers: &[usize], senders: &[usize], entries: &[usize]) -> Self {
        let some = |w: &[T], which: &[usize]| which.iter().map(|i| w[*i]).collect();
        match weights {
            Weights::Receiver(w) => Picked::Receiver(some(w, receivers)),
            Weights::Sender(w) => Picked::Sender(some(w, senders)),
            Weights::Entry(w) => Picked::Entry(some(w, entries)),
            Weights::Applied => Picked::Entry(vec![T::ONE; entries.len()]),
        }
    }

    fn weights(&self) -> Weights<'_, T> {
        match self {
            Picked::Receiver(w) => Weights::Receiver(w),
            Picked::Sender(w) => Weights::Sender(w),
            Picked::Entry(w) => Weights::Entry(w),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Cycle, Static};
    use crate::mixing::{Rule, Sequence};
    use crate::network::{Network, Simulator};
    use crate::rows::Rows;

    fn rows(agents: &[usize], width: usize, salt: usize) -> Rows<f64> {
        let number = |i: usize, c: usize| ((i * 31 + c * 7 + salt * 13) as f64).sin();
        let vectors = agents.iter().map(|i| (0..width).map(|c| number(*i, c)).collect::<Vec<_>>());
        Rows::from_vectors(&vectors.collect::<Vec<_>>())
    }

    fn lanes<'a>(stacks: &'a mut [Rows<f64>; 5], d: &'a Rows<f64>, eta: &'a [f64]) -> [Lane<'a, f64>; 4] {
        let [v, t, u, w, x] = stacks;
        [Lane::push_pull(v, eta, t, d, true), Lane::push(u), Lane::track(w, d), Lane::pull(x)]
    }

    /// Agents 1 and 3 of five, told by the others, get the simulator's bits; without a message they say so.
    #[test]
    fn what_is_received_is_mixed_like_the_simulators() {
        let (width, owned) = (20, [1, 3]);
        let ring = std::sync::Arc::new(Static::ring(5));
        let others = Sequence::new(ring, Rule::BySender(vec![0.1, 0.3])).unwrap();
        for sequence in [Sequence::uniform(Cycle::new(5, 0.4, 3)), others] {
            for k in 0..12 {
                let stacks = |agents: &[usize]| [1, 2, 3, 4, 5].map(|salt| rows(agents, width, salt));
                let (mut all, mut some) = (stacks(&[0, 1, 2, 3, 4]), stacks(&owned));
                let (d, eta) = (rows(&[0, 1, 2, 3, 4], width, 9), [0.3; 32]);
                let mixing: Mixing<f64> = sequence.at(k);
                // What everybody says: t with the direction that it still lacks.
                let mut t = all[1].clone();
                t.add(&d, &Threads::one());
                let sent = [&all[0], &t, &all[2], &all[3], &all[4]];
                let said = (0..5).map(|i| sent.iter().flat_map(|rows| rows.row(i)).copied().collect());
                let said: Vec<Vec<f64>> = said.collect();
                let mut simulator = Simulator::new(sequence.clone(), Threads::one());
                simulator.round(k, &mut lanes(&mut all, &d, &eta)).unwrap();
                let own = rows(&owned, width, 9);
                let read = |j: usize, at: usize, to: &mut [f64]| {
                    let (_, rest): (_, &[f64]) = said[j].split_at(at);
                    to.copy_from_slice(&rest[..to.len()]);
                };
                let mix = |others: &[usize], lanes: &mut [Lane<'_, f64>]| {
                    let workspace = &mut Workspace::default();
                    mix_received(&mixing, &owned, lanes, others.to_vec(), read, workspace, &Threads::new(2))
                };
                assert!(mix(&[], &mut []).unwrap_err().contains("no message came"));
                mix(&[0, 2, 4], &mut lanes(&mut some, &own, &eta)).unwrap();
                for (all, some) in all.iter().zip(&some) {
                    assert!(owned.iter().enumerate().all(|(row, i)| all.row(*i) == some.row(row)));
                }
            }
        }
    }
}
