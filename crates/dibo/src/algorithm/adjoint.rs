//! The adjoint of iterative differentiation: what a hypergradient gains on the way back along the path.
use super::afar::Afar;
use super::direction::{X, Y, Z, products};
use super::looks::{Here, upper_gradients};
use super::stacks::like;
use super::{Workspaces, at};
use crate::error::Result;
use crate::network::Network;
use crate::problem::Bilevel;
use crate::rows::{Real, Stack};

/// p, which goes backwards along the path.
pub struct Adjoint<T> {
    p: Stack<T, 1>,
    /// On a device, what p changes by.
    change: Option<Stack<T, 1>>,
    pub workspaces: Workspaces<T>,
}

impl<T: Real> Adjoint<T> {
    /// For a y like this.
    pub fn new(y: &Stack<T, 1>, problem: &dyn Bilevel<T>, network: &dyn Network<T>) -> Self {
        let afar = Afar::new(problem, network, y.on_device());
        let change = afar.is_some().then(|| like(y));
        Adjoint { p: like(y), change, workspaces: Workspaces::new(network.threads().count()).and(afar) }
    }

    /// h = ∇ₓf, p = ∇ᵧf.
    pub fn begin(
        &mut self,
        h: &mut Stack<T, 1>,
        k: usize,
        here: Here<'_, T>,
        problem: &dyn Bilevel<T>,
        network: &dyn Network<T>,
    ) -> Result<()> {
        upper_gradients([h, &mut self.p], here, k, problem, network, &self.workspaces)
    }

    /// Back along the path, where each y came of the one before by y⁺ = y − α∇ᵧg(x, y), with the sample and α
    /// that `step` says: h −= α∇²ₓᵧg p, p −= α∇²ᵧᵧg p.
    pub fn back(
        &mut self,
        h: &mut Stack<T, 1>,
        x: &Stack<T, 1>,
        path: &[Stack<T, 1>],
        step: impl Fn(usize) -> (usize, f64) + Sync,
        problem: &dyn Bilevel<T>,
        network: &dyn Network<T>,
    ) -> Result<()> {
        let Self { p, change, workspaces } = self;
        if let (Some(mut afar), Some(change)) = (workspaces.afar(), change) {
            for (t, y) in path.iter().enumerate().rev() {
                // The products are what SOBA's directions have at z = p and not at z = 0.
                let (sample, alpha) = step(t);
                afar.put(Y, (y, 0));
                afar.clear_z();
                afar.soba(problem, at(sample, network), None)?;
                afar.give(X, (h, 0), 1.0, -alpha);
                afar.give(Z, (change, 0), 0.0, alpha);
                afar.put(Z, (p, 0));
                afar.soba(problem, at(sample, network), None)?;
                afar.give(X, (h, 0), 1.0, alpha);
                afar.give(Z, (change, 0), 1.0, -alpha);
                p.blend_on_device(0, 1.0, 1.0, (change, 0));
            }
            return Ok(());
        }
        let (second, owned, width) = (products(problem)?, network.owned(), problem.lower());
        h.try_for_each_pair(p, network.threads(), |thread, row, h, p| {
            let (agent, [x]) = (owned[row], x.row(row));
            workspaces.with(thread, x.len() + width, |workspace| {
                let (of_x, of_y) = workspace.split_at_mut(x.len());
                for (t, y) in path.iter().enumerate().rev() {
                    let ((sample, alpha), [y]) = (step(t), y.row(row));
                    let alpha = T::of(alpha);
                    second.xy(agent, sample, x, y, p, of_x)?;
                    h.iter_mut().zip(&*of_x).for_each(|(h, q)| *h -= alpha * *q);
                    second.yy(agent, sample, x, y, p, of_y)?;
                    p.iter_mut().zip(&*of_y).for_each(|(p, q)| *p -= alpha * *q);
                }
                Ok(())
            })
        })
    }
}
