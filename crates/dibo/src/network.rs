//! The network: one verb, [`Network::round`], by which agents pull decision variables and push trackers; and
//! the simulator.
mod lossy;
pub use lossy::{Ends, Lossy};

use crate::error::{Error, Result};
use crate::mixing::{Mixing, Sequence};
use crate::rows::{
    Buffer, Csr, Disjoint, GROUP, Pair, Part, Real, Rows, Threads, Weights, push_pull_rows, push_rows,
    save_rows,
};

/// One variable's exchange in a round. With `pull`, the decision variable becomes `A·v − η∘t` where t is
/// `push` **before** the round; `push` becomes `B·t − d`.
pub struct Lane<'a, T> {
    /// What is pulled, and one step size per column (per variable where the rows lie on a device).
    pub pull: Option<(&'a mut Rows<T>, &'a [T])>,
    /// What is pushed.
    pub push: &'a mut Rows<T>,
    /// The direction d that is taken off after the push.
    pub d: Option<&'a Rows<T>>,
    /// Whether `push` still lacks d when the round begins: t is then `push` + d.
    pub pending: bool,
}

impl<'a, T> Lane<'a, T> {
    /// AB/Push-Pull with gradient tracking: `v ← A v − η∘t`, `t ← B t − d`; if `pending`, t is t + d to begin
    /// with.
    pub fn push_pull(
        v: &'a mut Rows<T>,
        eta: &'a [T],
        t: &'a mut Rows<T>,
        d: &'a Rows<T>,
        pending: bool,
    ) -> Self {
        Lane { pull: Some((v, eta)), push: t, d: Some(d), pending }
    }

    /// Push-sum: `u ← B u`.
    pub fn push(u: &'a mut Rows<T>) -> Self {
        Lane { pull: None, push: u, d: None, pending: false }
    }

    /// A pushed tracker: `t ← B t − d`.
    pub fn track(t: &'a mut Rows<T>, d: &'a Rows<T>) -> Self {
        Lane { pull: None, push: t, d: Some(d), pending: false }
    }
}

impl<T: Real> Lane<'_, T> {
    /// Adds d now, where it is still pending.
    pub fn settle(&mut self, threads: &Threads) {
        if let (Some(d), true) = (self.d, std::mem::take(&mut self.pending)) {
            self.push.add(d, threads);
        }
    }
}

/// What has gone over the links so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Traffic {
    /// Rounds.
    pub rounds: u64,
    /// Messages: one per link and round.
    pub messages: u64,
    /// Bytes of numbers sent over all links.
    pub bytes: u64,
}

/// What an algorithm asks of the network before its first round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// The weights of iteration 0 for ever, although links come and go.
    pub frozen_weights: bool,
    /// Links that lose messages carry running sums of what is pushed.
    pub running_sums: bool,
}

/// How the rows that this process owns are mixed with those of others.
pub trait Network<T: Real> {
    /// Number of agents in the whole network.
    fn agents(&self) -> usize;
    /// The agents whose rows this process holds, in order.
    fn owned(&self) -> &[usize];
    /// The threads a run may use.
    fn threads(&self) -> &Threads;
    /// Moves rows whose variables end at these columns to where the network wants them: host memory, unless
    /// it mixes on a device.
    fn place(&self, _rows: &mut Rows<T>, _ends: &[usize]) {}
    /// Grants what an algorithm asks for, or says that it cannot; before the first round.
    fn prepare(&mut self, wishes: Wishes) -> Result<()> {
        match wishes == Wishes::default() {
            true => Ok(()),
            false => Err(Error::Network("this network knows neither frozen weights nor running sums".into())),
        }
    }
    /// Round `k`: every agent sends one message over each of its links in `G^k` and every lane is mixed in
    /// place. After an error the rows are worth nothing.
    fn round(&mut self, k: usize, lanes: &mut [Lane<'_, T>]) -> Result<()>;
    /// Waits until what was begun is done, for the clock; only a device has anything to wait for.
    fn wait(&self) -> Result<()> {
        Ok(())
    }
    /// What has been sent.
    fn traffic(&self) -> Traffic;
    /// Number of the round to come, for methods with several rounds an iteration.
    fn next_round(&self) -> usize {
        self.traffic().rounds as usize
    }
    /// Continues counting from here, after a resume.
    fn set_traffic(&mut self, traffic: Traffic);
    /// What the network itself must remember to go on later with the same bits.
    fn memory(&self) -> Vec<u8> {
        Vec::new()
    }
    /// Takes up what [`memory`](Self::memory) gave; says what is wrong with anything else.
    fn restore(&mut self, memory: &[u8]) -> Result<()> {
        let other = "the checkpoint belongs to a run over another kind of network";
        if memory.is_empty() { Ok(()) } else { Err(Error::Checkpoint(other.into())) }
    }
}

/// All agents in this process.
pub struct Simulator<T> {
    sequence: Sequence,
    owned: Vec<usize>,
    threads: Threads,
    traffic: Traffic,
    /// The mixings of a sequence that repeats, made once; else one that is made anew.
    made: Vec<Option<Mixing<T>>>,
    /// Old rows while new ones are written: whole stacks where they are small, else a panel of columns per
    /// thread.
    scratch: Vec<Buffer<T>>,
}

/// Below this many bytes a stack is mixed as a whole, split over threads by rows; above it, panel by panel.
const WHOLE: usize = 1 << 20;
/// The same where rows hear more than [`MANY`] others.
const FEW: usize = 1 << 18;
const MANY: usize = 8;
/// Up to so many readers of a row, what is to be added to it is added on the way.
const ALONG: usize = 3;
/// Up to so many bytes of a stack its rows come from a cache; above, from memory: then the next panel is
/// asked for while one is worked on.
const CACHED: usize = 1 << 22;
/// Bytes of each row in a panel, without and with asking ahead; fewer if a panel's copies of v and of t would
/// not lie in the second-level cache.
const PIECE: usize = 1 << 11;
const AHEAD: usize = 1 << 9;
const FAR: usize = 1 << 17;
/// Panels that a thread takes at a time, at most.
const BATCH: usize = 128;
/// Up to so many bytes old and new rows lie in the first-level cache together, and nothing is gained by
/// mixing in place.
const SMALL: usize = 1 << 16;
/// Least work of a thread (entries × groups of columns): below it, handing rows to another core costs more
/// than it saves.
const LEAST: usize = 1 << 11;

impl<T: Real> Simulator<T> {
    /// A network that follows this sequence.
    pub fn new(sequence: Sequence, threads: Threads) -> Self {
        let kept = sequence.period().filter(|p| *p * sequence.agents() <= 1 << 18).unwrap_or(1);
        Simulator {
            owned: (0..sequence.agents()).collect(),
            made: (0..kept).map(|_| None).collect(),
            scratch: vec![Buffer::new(64); threads.count().max(2)],
            traffic: Traffic::default(),
            sequence,
            threads,
        }
    }

    /// A round in which lanes on a device are mixed by `device`.
    pub fn round_with(
        &mut self,
        k: usize,
        lanes: &mut [Lane<'_, T>],
        mut device: impl FnMut(&Mixing<T>, &mut Lane<'_, T>) -> Result<()>,
    ) -> Result<()> {
        let repeats = self.sequence.period() == Some(self.made.len());
        let slot = if repeats { k % self.made.len() } else { 0 };
        if self.made[slot].is_none() || !repeats {
            self.sequence.fill(k, self.made[slot].get_or_insert_default());
        }
        let mixing = self.made[slot].as_ref().expect("filled above");
        let links = mixing.graph.links() as u64;
        self.traffic.rounds += 1;
        self.traffic.messages += links;
        for lane in lanes {
            let pulled = lane.pull.as_ref().map_or(0, |(v, _)| v.width());
            self.traffic.bytes += links * ((pulled + lane.push.width()) * size_of::<T>()) as u64;
            match lane.push.remote() {
                Some(_) => device(mixing, lane)?,
                None => mix_lane(mixing, &self.threads, &mut self.scratch, lane),
            }
        }
        Ok(())
    }

    /// Its graphs and weights.
    pub fn sequence(&self) -> &Sequence {
        &self.sequence
    }
}

impl<T: Real> Network<T> for Simulator<T> {
    fn agents(&self) -> usize {
        self.sequence.agents()
    }

    fn owned(&self) -> &[usize] {
        &self.owned
    }

    fn threads(&self) -> &Threads {
        &self.threads
    }

    fn prepare(&mut self, wishes: Wishes) -> Result<()> {
        // Without losses there is nothing that a running sum would bring later.
        if wishes.frozen_weights {
            self.sequence = self.sequence.clone().frozen();
            self.made.iter_mut().for_each(|m| *m = None);
        }
        Ok(())
    }

    fn round(&mut self, k: usize, lanes: &mut [Lane<'_, T>]) -> Result<()> {
        let device = "rows on a device are mixed by the device's own network";
        self.round_with(k, lanes, |_, _| Err(Error::Device(device.into())))
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn set_traffic(&mut self, traffic: Traffic) {
        self.traffic = traffic;
    }
}

fn mix_lane<T: Real>(
    mixing: &Mixing<T>,
    threads: &Threads,
    scratch: &mut [Buffer<T>],
    lane: &mut Lane<'_, T>,
) {
    let (n, stride) = (lane.push.count(), lane.push.stride());
    assert!(
        lane.pull.as_ref().is_none_or(|(v, _)| v.count() == n && v.stride() == stride),
        "pulled and pushed rows have one shape"
    );
    let (csr, a, b) = (mixing.graph.csr(), mixing.a.weights(), mixing.b.weights());
    let d = lane.d.map_or(&[] as &[T], |d| d.data());
    let mix = |v: Option<&(Disjoint<T>, &[T])>,
               t: &Disjoint<T>,
               part: Part,
               old_v: &[T],
               old_t: &[T],
               b: Weights<'_, T>,
               plus: &[T]| match v {
        Some((v, eta)) => push_pull_rows(
            Pair { v, t },
            part,
            Pair { v: old_v.into(), t: old_t.into() },
            csr,
            a,
            b,
            eta,
            d,
            plus,
        ),
        None => push_rows(t, part, old_t, csr, b, d),
    };
    // Rows that hear many others are worth a copy that is read from a nearer cache, even if all rows would
    // fit in a farther one; not so if several threads, which split stacks by rows, would have to hand the
    // copy to each other.
    let many = csr.from.len() > MANY * n && threads.count() == 1;
    if lane.push.bytes() <= if many { FEW } else { WHOLE } {
        // Added on the way where a row is read by few, else once beforehand.
        let along = lane.pull.is_some() && csr.from.len() <= ALONG * n;
        if !along {
            lane.settle(threads);
        }
        let plus = if lane.pending { d } else { &[] };
        let [old_v, old_t] = scratch.first_chunk_mut().expect("two at least");
        for old in [&mut *old_v, &mut *old_t] {
            old.resize(n * stride, T::ZERO);
        }
        let whole = Part {
            rows: 0..n,
            columns: 0..stride,
            stride,
            source_stride: stride,
            backwards: false,
            ahead: false,
        };
        if let Some((v, eta)) = &mut lane.pull
            && threads.count() == 1
            && lane.push.bytes() > SMALL
            && let Some(backwards) = in_place(csr)
        {
            // Without a second pair of stacks more of the run's memory stays in the cache. The last row,
            // which may hear any, is mixed aside first.
            let (aside, rest) = if backwards { (0..1, 1..n) } else { (n - 1..n, 0..n - 1) };
            let (new_v, new_t) = (Disjoint::new(old_v), Disjoint::new(old_t));
            let (v, t) = (Disjoint::new(v.data_mut()), Disjoint::new(lane.push.data_mut()));
            let old = Pair { v: v.source(), t: t.source() };
            let there = Pair { v: &new_v, t: &new_t };
            push_pull_rows(
                there,
                Part { rows: aside.clone(), ..whole.clone() },
                old,
                csr,
                a,
                b,
                eta,
                d,
                plus,
            );
            push_pull_rows(
                Pair { v: &v, t: &t },
                Part { rows: rest, backwards, ..whole },
                old,
                csr,
                a,
                b,
                eta,
                d,
                plus,
            );
            let row = aside.start * stride..aside.end * stride;
            // SAFETY: the kernels have returned.
            unsafe {
                v.get(row.clone()).copy_from_slice(new_v.get(row.clone()));
                t.get(row.clone()).copy_from_slice(new_t.get(row));
            }
            return;
        }
        // Swap the stacks with the scratch, which then holds the old values, and write every row anew.
        std::mem::swap(lane.push.data_mut(), old_t);
        let t = Disjoint::new(lane.push.data_mut());
        let v = lane.pull.as_mut().map(|(v, eta)| {
            std::mem::swap(v.data_mut(), old_v);
            (Disjoint::new(v.data_mut()), *eta)
        });
        let least = if threads.count() == 1 {
            n
        } else {
            LEAST / (csr.from.len() * (stride / GROUP) / n.max(1)).max(1)
        };
        threads.ranges(n, least, |_, rows| {
            mix(v.as_ref(), &t, Part { rows, ..whole.clone() }, old_v, old_t, b, plus)
        });
    } else {
        let plus = if lane.pending { d } else { &[] };
        // Panel by panel: copy the old columns of all rows, v and t side by side, then write them in place.
        let ahead = lane.push.bytes() > CACHED;
        let width = (if ahead { AHEAD } else { PIECE }.min(FAR / n) / size_of::<T>() / GROUP * GROUP)
            .clamp(GROUP, stride);
        let old = Disjoint::new(scratch);
        let t = Disjoint::new(lane.push.data_mut());
        let v = lane.pull.as_mut().map(|(v, eta)| (Disjoint::new(v.data_mut()), *eta));
        let panels = stride.div_ceil(width);
        let batch = panels.div_ceil(8 * threads.count()).min(BATCH);
        threads.each(panels.div_ceil(batch), |thread, part| {
            // SAFETY: one scratch a thread.
            let [old] = (unsafe { old.get(thread..thread + 1) }) else { return };
            // Never shrunk: what stays behind a panel is not looked at.
            old.resize(old.len().max(2 * n * width), T::ZERO);
            for panel in part * batch..((part + 1) * batch).min(panels) {
                let columns = panel * width..((panel + 1) * width).min(stride);
                let (old_t, source_stride) = (columns.len(), 2 * columns.len());
                let part = Part { rows: 0..n, columns, stride, source_stride, backwards: false, ahead };
                // Weighted once for all receivers where these are many.
                let (before, after, left) = if many && matches!(b, Weights::Sender(_)) {
                    (b, Weights::Applied, plus)
                } else {
                    (Weights::Applied, b, &[] as &[T])
                };
                save_rows(old, v.as_ref().map(|(v, _)| v), &t, part.clone(), plus, before);
                mix(v.as_ref(), &t, part, old, &old[old_t..], after, left);
            }
        });
    }
}

/// Whether rows can be mixed in place, as those of a ring can: backwards (true) if no row hears a later one,
/// forwards (false) if none hears an earlier one; but for the last in that order.
fn in_place(csr: Csr<'_>) -> Option<bool> {
    let n = csr.start.len() - 1;
    let senders = |i: usize| &csr.from[csr.start[i] as usize..csr.start[i + 1] as usize];
    let backwards = (1..n).all(|i| senders(i).last().is_some_and(|j| *j as usize <= i));
    let forwards = || (0..n - 1).all(|i| senders(i).first().is_some_and(|j| *j as usize >= i));
    (backwards || forwards()).then_some(backwards)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Cycle, ErdosRenyi};
    use crate::rng::{Purpose, stream};
    use rand::RngExt;

    fn random_rows<T: Real>(n: usize, width: usize, seed: u64) -> Rows<T> {
        let mut r = stream(seed, Purpose::Instance, 0, 0);
        Rows::from_vectors(
            &(0..n)
                .map(|_| (0..width).map(|_| r.random_range(-1.0..1.0)).collect::<Vec<f64>>())
                .collect::<Vec<_>>(),
        )
    }

    /// A round against the definition, index by index, for small and large stacks on 1, 2 and 3 threads:
    /// equal to the bit.
    fn check<T: Real>(n: usize, width: usize) {
        let sequence = Sequence::uniform(Cycle::new(n, 0.3, 7));
        let (v0, t0, d0): (Rows<T>, Rows<T>, Rows<T>) =
            (random_rows(n, width, 1), random_rows(n, width, 2), random_rows(n, width, 3));
        let mut eta = vec![T::ZERO; v0.stride()];
        eta[..width].iter_mut().enumerate().for_each(|(c, e)| *e = T::of(0.1 + c as f64 * 0.01));
        for threads in 1..=3 {
            let mut network = Simulator::new(sequence.clone(), Threads::new(threads));
            let (mut v, mut t) = (v0.clone(), t0.clone());
            for k in [0, 15, 25] {
                let m: Mixing<T> = sequence.at(k);
                let (old_v, mut old_t) = (v.clone(), t.clone());
                if k == 15 {
                    old_t.add(&d0, &Threads::one());
                }
                network.round(k, &mut [Lane::push_pull(&mut v, &eta, &mut t, &d0, k == 15)]).unwrap();
                for i in 0..n {
                    for (c, eta) in eta.iter().enumerate().take(width) {
                        // Equal weights of a pulled row are applied to the sum.
                        let (mut pulled, mut pushed) = (T::ZERO, T::ZERO);
                        for j in m.graph.senders(i).iter().map(|j| *j as usize) {
                            pulled += old_v.row(j)[c];
                            pushed += T::of(m.b(i, j)) * old_t.row(j)[c];
                        }
                        assert_eq!(v.row(i)[c], T::of(m.a(i, i)) * pulled - *eta * old_t.row(i)[c]);
                        assert_eq!(t.row(i)[c], pushed - d0.row(i)[c]);
                    }
                }
            }
        }
    }

    #[test]
    fn a_round_is_the_definition() {
        for (n, width) in [(1, 3), (2, 8), (5, 45), (7, 77), (10, 1), (200, 45)] {
            check::<f64>(n, width);
            check::<f32>(n, width);
        }
        // Rings that are mixed in place.
        for (n, width) in [(1, 9000), (2, 9000), (3, 9000), (300, 45)] {
            check::<f64>(n, width);
        }
        check::<f64>(3, 50_000);
        check::<f32>(10, 30_001);
    }

    #[test]
    fn bytes_are_counted_per_link() {
        let mut network: Simulator<f64> =
            Simulator::new(Sequence::uniform(crate::graph::Static::ring(5)), Threads::one());
        let (mut v, mut t, mut w) = (Rows::zeros(5, 3), Rows::zeros(5, 3), Rows::zeros(5, 1));
        network
            .round(
                0,
                &mut [
                    Lane { pull: Some((&mut v, &[0.0; 16])), push: &mut t, d: None, pending: false },
                    Lane::push(&mut w),
                ],
            )
            .unwrap();
        assert_eq!(network.traffic(), Traffic { rounds: 1, messages: 5, bytes: 5 * (3 + 3 + 1) * 8 });
    }

    #[test]
    fn push_sum_of_one_is_one_and_a_pull_keeps_constants() {
        let mut network: Simulator<f64> =
            Simulator::new(Sequence::uniform(ErdosRenyi::new(9, 0.3, 4, true)), Threads::one());
        let ones = Rows::from_vectors(&[[3.5]; 9]);
        let (mut constant, mut u, mut w, mut nothing) =
            (ones.clone(), ones.clone(), Rows::from_vectors(&[[1.0]; 9]), Rows::zeros(9, 1));
        let (mut averaged, mut zero) =
            (Rows::<f64>::from_vectors(&(0..9).map(|i| [i as f64]).collect::<Vec<_>>()), Rows::zeros(9, 1));
        for k in 0..200 {
            let pull =
                Lane { pull: Some((&mut constant, &[0.0; 16])), push: &mut nothing, d: None, pending: false };
            let pull2 =
                Lane { pull: Some((&mut averaged, &[0.0; 16])), push: &mut zero, d: None, pending: false };
            network.round(k, &mut [pull, pull2, Lane::push(&mut u), Lane::push(&mut w)]).unwrap();
        }
        for i in 0..9 {
            assert!((constant.row(i)[0] - 3.5).abs() < 1e-13);
            assert!((u.row(i)[0] / w.row(i)[0] - 3.5).abs() < 1e-13);
            // The graphs are not regular, or this tests nothing.
            assert!((w.row(i)[0] - 1.0).abs() > 1e-3);
        }
        // Negative control: pulling alone agrees on a number that is not the mean.
        assert!(
            (averaged.row(0)[0] - averaged.row(8)[0]).abs() < 1e-9 && (averaged.row(0)[0] - 4.0).abs() > 1e-2
        );
    }
}
