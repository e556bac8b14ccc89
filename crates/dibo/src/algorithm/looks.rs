//! What methods with inner loops look at: gradients of all owned agents, agent by agent on the host, at once
//! on a device.
use super::loops::each;
use super::{Workspaces, at};
use crate::error::Result;
use crate::network::Network;
use crate::problem::Bilevel;
use crate::rows::{Real, Stack};

/// Where all agents are: their x and y.
pub type Here<'a, T> = (&'a Stack<T, 1>, &'a Stack<T, 1>);

/// Writes ∇ᵧg at (x, y) with this sample.
pub fn lower_gradients<T: Real>(
    d: &mut Stack<T, 1>,
    here: Here<'_, T>,
    sample: usize,
    problem: &dyn Bilevel<T>,
    network: &dyn Network<T>,
    workspaces: &Workspaces<T>,
) -> Result<()> {
    if let Some(mut afar) = workspaces.afar() {
        return afar.lower_gradients(d, here, problem, at(sample, network));
    }
    each(d, here, network, workspaces, |i, d| problem.grad_g(i.agent, sample, i.x, i.y, i.gx, d))
}

/// Writes ∇ₓf and ∇ᵧf at (x, y).
pub fn upper_gradients<T: Real>(
    [fx, fy]: [&mut Stack<T, 1>; 2],
    (x, y): Here<'_, T>,
    k: usize,
    problem: &dyn Bilevel<T>,
    network: &dyn Network<T>,
    workspaces: &Workspaces<T>,
) -> Result<()> {
    if let Some(mut afar) = workspaces.afar() {
        return afar.upper_gradients([fx, fy], (x, y), problem, at(k, network));
    }
    let owned = network.owned();
    fx.try_for_each_pair(fy, network.threads(), |_, row, fx, fy| {
        problem.grad_f(owned[row], k, x.row(row)[0], y.row(row)[0], fx, fy)
    })
}
