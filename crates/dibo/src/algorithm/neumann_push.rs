//! A hypergradient by Neumann terms, each averaged over the agents by rounds of push-sum.
use super::Workspaces;
use super::direction::products;
use super::loops::{each, scale};
use crate::error::Result;
use crate::network::{Lane, Network};
use crate::problem::Bilevel;
use crate::rows::{Real, Rows, Stack};

/// Where all agents are: their x and y.
type Here<'a, T> = (&'a Stack<T, 1>, &'a Stack<T, 1>);

/// The hypergradient h, and the term a with its push-sum weight ω.
pub struct NeumannPush<T> {
    pub h: Stack<T, 1>,
    pub a: Stack<T, 1>,
    pub weight: Rows<T>,
    pub workspaces: Workspaces<T>,
}

impl<T: Real> NeumannPush<T> {
    /// a = ∇ᵧf / n, h = ∇ₓf / n.
    pub fn begin(
        &mut self,
        k: usize,
        here: Here<'_, T>,
        problem: &dyn Bilevel<T>,
        network: &dyn Network<T>,
    ) -> Result<()> {
        let (Self { h, a, .. }, (x, y), owned) = (self, here, network.owned());
        h.try_for_each_pair(a, network.threads(), |_, row, h, a| {
            problem.grad_f(owned[row], k, x.row(row)[0], y.row(row)[0], h, a)
        })?;
        let n = network.agents() as f64;
        scale(a, 1.0 / n, network);
        scale(h, 1.0 / n, network);
        Ok(())
    }

    /// ω = 1.
    pub fn weigh_evenly(&mut self) {
        (0..self.weight.count()).for_each(|i| self.weight.row_mut(i)[0] = T::ONE);
    }

    /// a = B a, ω = B ω, so many times.
    pub fn push(&mut self, rounds: usize, network: &mut dyn Network<T>) -> Result<()> {
        for _ in 0..rounds {
            let lanes = &mut [Lane::push(&mut self.a.shared), Lane::push(&mut self.weight)];
            network.round(network.next_round(), lanes)?;
        }
        Ok(())
    }

    /// h −= α ∇²ₓᵧg a/ω, then a = (a − α ∇²ᵧᵧg a)/ω.
    pub fn add(
        &mut self,
        alpha: f64,
        k: usize,
        here: Here<'_, T>,
        problem: &dyn Bilevel<T>,
        network: &dyn Network<T>,
    ) -> Result<()> {
        let Self { h, a, weight, workspaces } = self;
        let (second, alpha) = (products(problem)?, T::of(alpha));
        each(h, here, network, workspaces, |i, h| {
            second.xy(i.agent, k, i.x, i.y, a.row(i.row)[0], i.gx)?;
            let share = alpha / weight.row(i.row)[0];
            h.iter_mut().zip(&*i.gx).for_each(|(h, p)| *h -= share * *p);
            Ok(())
        })?;
        each(a, here, network, workspaces, |i, a| {
            second.yy(i.agent, k, i.x, i.y, a, i.gy)?;
            let w = weight.row(i.row)[0];
            a.iter_mut().zip(&*i.gy).for_each(|(a, p)| *a = (*a - alpha * *p) / w);
            Ok(())
        })
    }
}
