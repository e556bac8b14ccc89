//! C2DFB (Wen, Liu, Abdelmoniem, Zhou and Xu, arXiv 2410.14115), rebuilt from its abstract and from what is
//! known of compressed tracking: y and z by T rounds of tracking on reference points that all neighbours
//! hold, x by one round of tracking.
use super::direction::Rooms;
use super::inner::{check_rounds, each, variables};
use super::{Algorithm, Axis, FINE, GraphNeeds, Mixes, Parameters, State, Tier, Vectors, View};
use super::{fill, memory, own_start, views};
use crate::error::Result;
use crate::network::{Lane, Network};
use crate::problem::{Bilevel, Start};
use crate::rows::{Real, Rows, Stack, Threads};
use crate::schedule::Schedule;
use serde::{Deserialize, Serialize};

/// Parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct C2dfb {
    /// Penalty λ.
    pub lambda: Schedule,
    /// Step of x.
    pub eta_x: Schedule,
    /// Step of y.
    pub eta_y: Schedule,
    /// Step of z; that of y if not given.
    pub eta_z: Option<Schedule>,
    /// Rounds T for y, and for z.
    pub inner: usize,
    /// How much of a neighbour's reference is taken in the inner loops.
    pub gossip_in: f64,
    /// How much of a neighbour's x.
    pub gossip_out: f64,
    /// Entries of largest size that are sent of a difference; all if not given. Bytes are counted as if all
    /// were sent: the network carries whole rows.
    pub top: Option<usize>,
}

/// y or z: the variable, its tracker, what neighbours hold of both, the gradient last added, and room.
struct Compressed<T> {
    v: Stack<T, 1>,
    s: Stack<T, 1>,
    v_held: Stack<T, 1>,
    s_held: Stack<T, 1>,
    g: Stack<T, 1>,
    next: Stack<T, 1>,
    room: [Stack<T, 1>; 2],
    order: Vec<usize>,
}

impl<T: Real> Compressed<T> {
    fn new(v: Stack<T, 1>) -> Self {
        let mut zero = v.clone();
        zero.shared.clear();
        let [s, s_held, g, next, a, b] = std::array::from_fn(|_| zero.clone());
        Compressed { v_held: v.clone(), v, s, s_held, g, next, room: [a, b], order: Vec::new() }
    }

    /// s += new − g, g = new.
    fn absorb(&mut self, threads: &Threads) {
        self.s.shared.add(&self.next.shared, threads);
        self.s.shared.add_scaled(-T::ONE, &self.g.shared, threads);
        self.g.shared.copy_from(&self.next.shared);
    }

    /// One round: v += γ(W v̂ − v̂) − η s, and γ(W ŝ − ŝ) is added to s.
    fn gossip(&mut self, share: f64, eta: f64, network: &mut dyn Network<T>) -> Result<()> {
        let [a, b] = &mut self.room;
        a.shared.copy_from(&self.v_held.shared);
        b.shared.copy_from(&self.s_held.shared);
        let lanes = &mut [Lane::pull(&mut a.shared), Lane::pull(&mut b.shared)];
        network.round(network.next_round(), lanes)?;
        let threads = network.threads();
        a.shared.add_scaled(-T::ONE, &self.v_held.shared, threads);
        b.shared.add_scaled(-T::ONE, &self.s_held.shared, threads);
        self.v.shared.add_scaled(T::of(share), &a.shared, threads);
        self.v.shared.add_scaled(T::of(-eta), &self.s.shared, threads);
        self.s.shared.add_scaled(T::of(share), &b.shared, threads);
        Ok(())
    }

    /// What neighbours hold of v (or s) comes closer by the compressed difference.
    fn send(&mut self, of_s: bool, top: Option<usize>) {
        let Self { v, s, v_held, s_held, order, .. } = self;
        let (new, held) = if of_s { (&*s, s_held) } else { (&*v, v_held) };
        for row in 0..new.count() {
            let ([new], [held]) = (new.row(row), held.row_mut(row));
            let size = |j: &usize| (new[*j] - held[*j]).f64().abs();
            order.clear();
            order.extend(0..new.len());
            // The first of equals comes first.
            order.sort_unstable_by(|a, b| size(b).total_cmp(&size(a)).then(a.cmp(b)));
            order.iter().take(top.unwrap_or(usize::MAX)).for_each(|j| held[*j] += new[*j] - held[*j]);
        }
    }
}

/// x with tracker and direction, y and z.
struct C2dfbState<T> {
    p: C2dfb,
    x: Stack<T, 1>,
    t: Stack<T, 1>,
    d: Stack<T, 1>,
    room: [Stack<T, 1>; 2],
    lower: [Compressed<T>; 2],
    rooms: Rooms<T>,
}

impl<T: Real> Algorithm<T> for C2dfb {
    fn start(
        &self,
        problem: &dyn Bilevel<T>,
        network: &mut dyn Network<T>,
        start: Option<&Start>,
    ) -> Result<Box<dyn State<T>>> {
        let start = own_start(problem, start);
        let (x, y) = variables(problem, network, &start);
        let mut z = y.clone();
        z.shared.clear();
        fill(network, &mut z, [start.twin()]);
        let mut t = x.clone();
        t.shared.clear();
        let d = x.clone();
        let lower = [Compressed::new(y), Compressed::new(z)];
        let rooms = Rooms::new(network.threads().count());
        let room = [x.clone(), x.clone()];
        Ok(Box::new(C2dfbState { p: self.clone(), x, t, d, room, lower, rooms }))
    }
}

impl<T: Real> C2dfbState<T> {
    /// ∇ᵧ(f + λg) at y or λ∇ᵧg at z, added to the tracker.
    fn renew(
        &mut self,
        which: usize,
        k: usize,
        problem: &dyn Bilevel<T>,
        network: &dyn Network<T>,
    ) -> Result<()> {
        let (lambda, x, lower) = (T::of(self.p.lambda.at(k)), &self.x, &mut self.lower[which]);
        let v = &lower.v;
        let room = |row: usize| x.row(row)[0].len() + v.row(row)[0].len();
        each(&mut lower.next, network, &self.rooms, room, |row, agent, d, room| {
            let ([x], [v]) = (x.row(row), v.row(row));
            let (gx, gy) = room.split_at_mut(x.len());
            problem.grad_g(agent, k, x, v, gx, d)?;
            d.iter_mut().for_each(|d| *d = lambda * *d);
            if which == 0 {
                problem.grad_f(agent, k, x, v, gx, gy)?;
                d.iter_mut().zip(&*gy).for_each(|(d, f)| *d += *f);
            }
            Ok(())
        })?;
        lower.absorb(network.threads());
        Ok(())
    }
}

impl<T: Real> State<T> for C2dfbState<T> {
    fn step(&mut self, k: usize, problem: &dyn Bilevel<T>, network: &mut dyn Network<T>) -> Result<()> {
        let etas = [self.p.eta_y.at(k), self.p.eta_z.unwrap_or(self.p.eta_y).at(k)];
        for (which, eta) in etas.into_iter().enumerate() {
            // x has moved
            self.renew(which, k, problem, network)?;
            for _ in 0..self.p.inner {
                self.lower[which].gossip(self.p.gossip_in, eta, network)?;
                self.lower[which].send(false, self.p.top);
                self.renew(which, k, problem, network)?;
                self.lower[which].send(true, self.p.top);
            }
        }
        let Self { p, x, t, d, room: [a, b], lower: [y, z], rooms } = self;
        // u = ∇ₓf(x, y) + λ(∇ₓg(x, y) − ∇ₓg(x, z)); t += u
        let (lambda, xs, ys, zs) = (T::of(p.lambda.at(k)), &*x, &y.v, &z.v);
        let room = |row: usize| xs.row(row)[0].len() + ys.row(row)[0].len();
        each(d, network, rooms, room, |row, agent, d, room| {
            let ([x], [y], [z]) = (xs.row(row), ys.row(row), zs.row(row));
            let (gx, gy) = room.split_at_mut(x.len());
            problem.grad_f(agent, k, x, y, d, gy)?;
            problem.grad_g(agent, k, x, y, gx, gy)?;
            d.iter_mut().zip(&*gx).for_each(|(d, g)| *d += lambda * *g);
            problem.grad_g(agent, k, x, z, gx, gy)?;
            d.iter_mut().zip(&*gx).for_each(|(d, g)| *d -= lambda * *g);
            Ok(())
        })?;
        let eta = p.eta_x.at(k);
        super::stacks::step_private(x, eta, d, network);
        t.shared.add(&d.shared, network.threads());
        // x += γ(W x − x) − ηx t, t += γ(W t − t) − u
        a.shared.copy_from(&x.shared);
        b.shared.copy_from(&t.shared);
        let lanes = &mut [Lane::pull(&mut a.shared), Lane::pull(&mut b.shared)];
        network.round(network.next_round(), lanes)?;
        let (threads, share) = (network.threads(), T::of(p.gossip_out));
        a.shared.add_scaled(-T::ONE, &x.shared, threads);
        b.shared.add_scaled(-T::ONE, &t.shared, threads);
        x.shared.add_scaled(share, &a.shared, threads);
        x.shared.add_scaled(T::of(-eta), &t.shared, threads);
        t.shared.add_scaled(share, &b.shared, threads);
        t.shared.add_scaled(-T::ONE, &d.shared, threads);
        Ok(())
    }

    fn views(&mut self) -> Vec<View<'_, T>> {
        let [y, z] = &self.lower;
        let lower = views(&y.v, ["y"]).chain(views(&z.v, ["z"]));
        views(&self.x, ["x"]).chain(lower).chain(views(&self.d, ["dx"])).collect()
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        let mut all: Vec<_> =
            memory(&mut self.x).chain(memory(&mut self.t)).chain(memory(&mut self.d)).collect();
        for Compressed { v, s, v_held, s_held, g, .. } in &mut self.lower {
            all.extend([v, s, v_held, s_held, g].into_iter().flat_map(memory));
        }
        all
    }
}

impl Parameters for C2dfb {
    fn check(&self) -> Result<(), String> {
        self.lambda.check("lambda", false)?;
        self.eta_x.check("eta_x", false)?;
        self.eta_y.check("eta_y", false)?;
        self.eta_z.unwrap_or(self.eta_y).check("eta_z", false)?;
        check_rounds("inner", self.inner)?;
        for (name, share) in [("gossip_in", self.gossip_in), ("gossip_out", self.gossip_out)] {
            if !(share > 0.0 && share <= 1.0) {
                return Err(format!("{name} is {share}; it must be above 0 and at most 1"));
            }
        }
        match self.top {
            Some(0) => Err("top is 0; at least one entry must be sent".into()),
            _ => Ok(()),
        }
    }

    fn mixes(&self) -> Mixes {
        Mixes::PullAndPushInLoops
    }

    fn graph_needs(&self) -> GraphNeeds {
        GraphNeeds { doubly_stochastic: true, one_graph: true }
    }

    fn rounds(&self) -> usize {
        2 * self.inner + 1
    }

    fn vectors(&self, _blocks: usize) -> Vectors {
        Vectors { upper: 5, lower: 16, single: 0 }
    }

    fn tiers(&self) -> Vec<Tier> {
        let axes = |factors: &[f64]| ["eta_x", "eta_y"].map(|key| Axis::around(key, factors, 0.01));
        let lambda = Axis::values("lambda", &[1.0, 3.0, 10.0, 30.0, 100.0, 300.0]);
        let coarse = axes(&[0.03, 0.1, 0.3, 1.0, 3.0, 10.0]).map(Axis::or_listed);
        vec![
            Tier { axes: vec![lambda], fine: false },
            Tier { axes: coarse.into(), fine: false },
            Tier { axes: axes(&FINE).into(), fine: true },
        ]
    }

    fn on_device(&self) -> bool {
        false
    }

    fn about() -> &'static str {
        "rebuilt from the paper's abstract: a reading, not the authors' algorithm box"
    }
}
