//! C2DFB (Wen, Liu, Abdelmoniem, Zhou and Xu, arXiv 2410.14115), rebuilt from its abstract and from what is
//! known of compressed tracking: y and z by T rounds of tracking on reference points that all neighbours
//! hold, x by one round of tracking.
use super::afar::Afar;
use super::compressed::{Compressed, Tracked};
use super::direction::{X, Y, Z};
use super::loops::variables;
use super::one_penalty::penalty_direction;
use super::stacks::{like, step_private, zeros};
use super::{Algorithm, State, View, Workspaces};
use super::{fill, memory, own_start, views};
use crate::error::Result;
use crate::network::Network;
use crate::problem::{Bilevel, Start};
use crate::rows::{Real, Rows, Stack, Upper};
use crate::schedule::Schedule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
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

/// x with its direction, y and z with workspace for their gradients.
struct C2dfbState<T> {
    p: C2dfb,
    x: Tracked<T>,
    d: Stack<T, 1>,
    lower: [Compressed<T>; 2],
    new: Stack<T, 1>,
    workspaces: Workspaces<T>,
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
        let mut z = zeros(&Upper::Shared(problem.lower()), &[], network.owned());
        fill(network, &mut z, [start.twin()]);
        let afar = Afar::new(problem, network, y.on_device());
        Ok(Box::new(C2dfbState {
            p: self.clone(),
            d: x.clone(),
            x: Tracked::new(x),
            new: like(&y),
            lower: [Compressed::new(y), Compressed::new(z)],
            workspaces: Workspaces::new(network.threads().count()).and(afar),
        }))
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
        let Self { p, x, lower, new, workspaces, .. } = self;
        let point = [&x.v, lower[0].v(), lower[1].v()];
        let now = (k, p.lambda.at(k));
        penalty_direction([Y, Z][which], new, point, now, problem, network, workspaces)?;
        lower[which].absorb(new, network.threads());
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
                self.lower[which].send_v(self.p.top);
                self.renew(which, k, problem, network)?;
                self.lower[which].send_s(self.p.top);
            }
        }
        // u = ∇ₓf(x, y) + λ(∇ₓg(x, y) − ∇ₓg(x, z))
        let Self { p, x, d, lower: [y, z], workspaces, .. } = self;
        let now = (k, p.lambda.at(k));
        penalty_direction(X, d, [&x.v, y.v(), z.v()], now, problem, network, workspaces)?;
        // t += u; x += γ(W x − x) − ηx t, t += γ(W t − t); t −= u
        let eta = p.eta_x.at(k);
        step_private(&mut x.v, eta, d, network);
        x.s.shared.add(&d.shared, network.threads());
        x.gossip(None, p.gossip_out, eta, network)?;
        x.s.shared.add_scaled(-T::ONE, &d.shared, network.threads());
        Ok(())
    }

    fn views(&mut self) -> Vec<View<'_, T>> {
        let [y, z] = &self.lower;
        let lower = views(y.v(), ["y"]).chain(views(z.v(), ["z"]));
        views(&self.x.v, ["x"]).chain(lower).chain(views(&self.d, ["dx"])).collect()
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        let Self { x, d, lower, .. } = self;
        let x = memory(&mut x.v).chain(memory(&mut x.s)).chain(memory(d));
        x.chain(lower.iter_mut().flat_map(Compressed::memory)).collect()
    }
}
