//! The network: one verb, [`Network::round`], by which agents pull decision variables and push trackers; and
//! the simulator.
mod lossy;
mod received;
pub use crate::mixing::GraphNeeds;
pub use lossy::{Ends, Lossy};
pub use received::{Workspace, mix_received};

use crate::error::{Error, Result};
use crate::graph::Loss;
use crate::kernels::{Exchange, Links};
use crate::mixing::{Mixing, Sequence};
use crate::rows::{Buffer, Real, Rows, Threads};

/// One variable's exchange in a round. With `pull`, the decision variable becomes `A·v − η∘t` where t is
/// `push` **before** the round, or nothing if there is none; `push` becomes `B·t − d`.
pub struct Lane<'a, T> {
    /// What is pulled, and one step size per column (per variable where the rows lie on a device).
    pub pull: Option<(&'a mut Rows<T>, &'a [T])>,
    /// What is pushed.
    pub push: Option<&'a mut Rows<T>>,
    /// The direction d that is taken off after the push.
    pub d: Option<&'a Rows<T>>,
    /// Whether `push` still lacks d when the round begins: t is then `push` + d.
    pub pending: bool,
    /// c of (1 − c) v + c A v, which stands for A v: the lazy (I + A)/2 has c = ½.
    pub share: f64,
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
        Lane { pull: Some((v, eta)), push: Some(t), d: Some(d), pending, share: 1.0 }
    }

    /// Agreement alone: `v ← A v`. Nothing else is sent.
    pub fn pull(v: &'a mut Rows<T>) -> Self {
        Lane { pull: Some((v, &[])), push: None, d: None, pending: false, share: 1.0 }
    }

    /// Push-sum: `u ← B u`.
    pub fn push(u: &'a mut Rows<T>) -> Self {
        Lane { pull: None, push: Some(u), d: None, pending: false, share: 1.0 }
    }

    /// A pushed tracker: `t ← B t − d`.
    pub fn track(t: &'a mut Rows<T>, d: &'a Rows<T>) -> Self {
        Lane { pull: None, push: Some(t), d: Some(d), pending: false, share: 1.0 }
    }

    /// The same with (1 − c) v + c A v for A v.
    pub fn share(mut self, c: f64) -> Self {
        self.share = c;
        self
    }
}

impl<T: Real> Lane<'_, T> {
    /// Adds d now, where it is still pending.
    pub fn settle(&mut self, threads: &Threads) {
        if let (Some(push), Some(d), true) = (&mut self.push, self.d, std::mem::take(&mut self.pending)) {
            push.add(d, threads);
        }
    }

    /// What is pulled, and what is pushed.
    fn sent(&self) -> [Option<&Rows<T>>; 2] {
        [self.pull.as_ref().map(|(v, _)| &**v), self.push.as_deref()]
    }

    /// How many numbers an agent sends in this lane: what is pulled, then what is pushed.
    pub fn width(&self) -> usize {
        self.sent().iter().flatten().map(|rows| rows.width()).sum()
    }

    /// Whether its rows lie on a device.
    fn on_device(&self) -> bool {
        self.sent().into_iter().flatten().any(|rows| rows.device().is_some())
    }

    /// Rows and the distance between them; what is pulled and what is pushed have the same.
    fn shape(&self) -> (usize, usize) {
        let mut shapes = self.sent().into_iter().flatten().map(|rows| (rows.count(), rows.stride()));
        let shape = shapes.next().unwrap_or_default();
        assert!(shapes.all(|s| s == shape), "pulled and pushed rows have one shape");
        shape
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
///
/// ```
/// use dibo::graph::Static;
/// use dibo::mixing::Sequence;
/// use dibo::network::{Lane, Network, Simulator};
/// use dibo::rows::{Rows, Threads};
///
/// # fn main() -> dibo::Result<()> {
/// let mut network = Simulator::new(Sequence::uniform(Static::ring(2)), Threads::one());
/// let mut x: Rows<f64> = Rows::from_vectors(&[[0.0], [4.0]]);
/// network.round(0, &mut [Lane::pull(&mut x)])?;
/// assert_eq!((x.row(0), x.row(1)), (&[2.0][..], &[2.0][..]));
/// assert_eq!(network.traffic().bytes, 16); // one number over each of two links
/// # Ok(())
/// # }
/// ```
pub struct Simulator<T> {
    sequence: Sequence,
    owned: Vec<usize>,
    threads: Threads,
    traffic: Traffic,
    /// The mixings of a sequence that repeats, made once; else one that is made anew.
    made: Vec<Option<Mixing<T>>>,
    /// Old rows while new ones are written: whole stacks where they are small, else a tile of columns per
    /// thread.
    workspace: Vec<Buffer<T>>,
}

impl<T: Real> Simulator<T> {
    /// A network that follows this sequence.
    pub fn new(sequence: Sequence, threads: Threads) -> Self {
        let kept = sequence.period().filter(|p| *p * sequence.agents() <= 1 << 18).unwrap_or(1);
        Simulator {
            owned: (0..sequence.agents()).collect(),
            made: (0..kept).map(|_| None).collect(),
            workspace: vec![Buffer::new(64); threads.count().max(2)],
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
            self.traffic.bytes += links * (lane.width() * size_of::<T>()) as u64;
            match lane.on_device() {
                true => device(mixing, lane)?,
                false => mix_lane(mixing, &self.threads, &mut self.workspace, lane),
            }
        }
        Ok(())
    }

    /// Its graphs and weights.
    pub fn sequence(&self) -> &Sequence {
        &self.sequence
    }
}

/// The networks of one process behind their trait, compiled here for both kinds of numbers: every crate that
/// did it would compile them again.
pub trait Simulated: Real {
    /// All agents in this process, with lost messages or without.
    fn simulated(sequence: Sequence, loss: Option<Loss>, threads: Threads) -> Box<dyn Network<Self>>;
}

macro_rules! simulated {
    ($($t:ty),*) => {
        $(impl Simulated for $t {
            #[inline(never)]
            fn simulated(sequence: Sequence, loss: Option<Loss>, threads: Threads) -> Box<dyn Network<$t>> {
                match loss {
                    Some(loss) => Box::new(Lossy::new(sequence, loss, threads)),
                    None => Box::new(Simulator::new(sequence, threads)),
                }
            }
        })*
    };
}
simulated!(f32, f64);

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
    workspace: &mut [Buffer<T>],
    lane: &mut Lane<'_, T>,
) {
    let exchange = Exchange {
        shape: lane.shape(),
        pull: lane.pull.as_mut().map(|(v, eta)| (v.data_mut(), *eta)),
        push: lane.push.as_mut().map(|t| t.data_mut()),
        d: lane.d.map_or(&[], |d| d.data()),
        pending: std::mem::take(&mut lane.pending),
    };
    T::mix(exchange, links(mixing, lane.share), threads, workspace);
}

fn links<T: Real>(mixing: &Mixing<T>, share: f64) -> Links<'_, T> {
    let (a, b) = (mixing.a.weights(), mixing.b.weights());
    Links { csr: mixing.graph.csr(), a, b, share: T::of(share) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Cycle, ErdosRenyi};
    use crate::mixing::Rule;
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
    fn check<T: Real>(n: usize, width: usize, share: f64) {
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
                network
                    .round(k, &mut [Lane::push_pull(&mut v, &eta, &mut t, &d0, k == 15).share(share)])
                    .unwrap();
                for i in 0..n {
                    for (c, eta) in eta.iter().enumerate().take(width) {
                        // Equal weights of a pulled row are applied to the sum.
                        let (mut pulled, mut pushed) = (T::ZERO, T::ZERO);
                        for j in m.graph.senders(i).iter().map(|j| *j as usize) {
                            pulled += old_v.row(j)[c];
                            pushed += T::of(m.b(i, j)) * old_t.row(j)[c];
                        }
                        let (own, mut pulled) = (old_v.row(i)[c], T::of(m.a(i, i)) * pulled);
                        if share != 1.0 {
                            pulled = own + T::of(share) * (pulled - own);
                        }
                        assert_eq!(v.row(i)[c], pulled - *eta * old_t.row(i)[c]);
                        assert_eq!(t.row(i)[c], pushed - d0.row(i)[c]);
                    }
                }
            }
        }
    }

    #[test]
    fn a_round_is_the_definition() {
        for (n, width) in [(1, 3), (2, 8), (5, 45), (7, 77), (10, 1), (200, 45)] {
            for share in [1.0, 0.3] {
                check::<f64>(n, width, share);
                check::<f32>(n, width, share);
            }
        }
        // Rings that are mixed in place.
        for (n, width) in [(1, 9000), (2, 9000), (3, 9000), (300, 45)] {
            check::<f64>(n, width, 1.0);
            check::<f64>(n, width, 0.6);
        }
        check::<f64>(3, 50_000, 1.0);
        check::<f32>(10, 30_001, 0.5);
    }

    /// Pulling alone against the definition: small and large stacks, equal weights and others, 1 to 3
    /// threads.
    #[test]
    fn a_pull_alone_is_the_definition() {
        fn check<T: Real>(sequence: &Sequence, n: usize, width: usize) {
            for (threads, share) in [(1, 1.0), (1, 0.5), (2, 1.0), (3, 0.3)] {
                let mut network = Simulator::new(sequence.clone(), Threads::new(threads));
                let mut v: Rows<T> = random_rows(n, width, 1);
                for k in 0..3 {
                    let (m, old): (Mixing<T>, _) = (sequence.at(k), v.clone());
                    network.round(k, &mut [Lane::pull(&mut v).share(share)]).unwrap();
                    let equal =
                        (0..n).all(|i| m.graph.senders(i).iter().all(|j| m.a(i, *j as usize) == m.a(i, i)));
                    for i in 0..n {
                        let senders = m.graph.senders(i).iter().map(|j| *j as usize);
                        for c in 0..width {
                            // Equal weights of a row are applied to the sum.
                            let a = |j| if equal { T::ONE } else { T::of(m.a(i, j)) };
                            let mut terms = senders.clone().map(|j| a(j) * old.row(j)[c]);
                            let first = terms.next().unwrap();
                            let sum = terms.fold(first, |sum, term| sum + term);
                            let (own, mut to) = (old.row(i)[c], sum);
                            if equal {
                                to = T::of(m.a(i, i)) * sum;
                            }
                            if share != 1.0 {
                                to = own + T::of(share) * (to - own);
                            }
                            assert_eq!(v.row(i)[c], to);
                        }
                    }
                }
                let links: usize = (0..3).map(|k| sequence.at::<T>(k).graph.links()).sum();
                let (messages, bytes) = (links as u64, (links * width * size_of::<T>()) as u64);
                assert_eq!(network.traffic(), Traffic { rounds: 3, messages, bytes });
            }
        }
        for (n, width) in [(1, 3), (5, 45), (12, 60), (300, 45), (10, 30_001)] {
            check::<f64>(&Sequence::uniform(Cycle::new(n, 0.3, 7)), n, width);
            check::<f32>(&Sequence::uniform(ErdosRenyi::new(n, 0.9, 4, true)), n, width);
            let graphs = std::sync::Arc::new(crate::graph::Static::ring(n));
            if n > 1 {
                check::<f64>(&Sequence::new(graphs, Rule::BySender(vec![0.1, 0.5])).unwrap(), n, width);
            }
        }
    }

    #[test]
    fn bytes_are_counted_per_link() {
        let mut network: Simulator<f64> =
            Simulator::new(Sequence::uniform(crate::graph::Static::ring(5)), Threads::one());
        let (mut v, mut t, mut w) = (Rows::zeros(5, 3), Rows::zeros(5, 3), Rows::zeros(5, 1));
        let lanes =
            &mut [Lane { pull: Some((&mut v, &[0.0; 16])), ..Lane::push(&mut t) }, Lane::push(&mut w)];
        network.round(0, lanes).unwrap();
        assert_eq!(network.traffic(), Traffic { rounds: 1, messages: 5, bytes: 5 * (3 + 3 + 1) * 8 });
    }

    #[test]
    fn push_sum_of_one_is_one_and_a_pull_keeps_constants() {
        let mut network: Simulator<f64> =
            Simulator::new(Sequence::uniform(ErdosRenyi::new(9, 0.3, 4, true)), Threads::one());
        let ones = Rows::from_vectors(&[[3.5]; 9]);
        let (mut constant, mut u, mut w, mut nothing) =
            (ones.clone(), ones.clone(), Rows::from_vectors(&[[1.0]; 9]), Rows::zeros(9, 1));
        let mut averaged = Rows::<f64>::from_vectors(&(0..9).map(|i| [i as f64]).collect::<Vec<_>>());
        for k in 0..200 {
            let eta = &[0.0; 16];
            let pull = Lane { pull: Some((&mut constant, eta)), ..Lane::push(&mut nothing) };
            let lanes = &mut [pull, Lane::pull(&mut averaged), Lane::push(&mut u), Lane::push(&mut w)];
            network.round(k, lanes).unwrap();
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
