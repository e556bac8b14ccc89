//! A hypergradient by Neumann terms, each averaged over the agents by rounds of push-sum.
use super::direction::{X, Z, products};
use super::looks::{Here, upper_gradients};
use super::loops::{each, scale};
use super::{Workspaces, at};
use crate::error::Result;
use crate::network::{Lane, Network};
use crate::problem::Bilevel;
use crate::rows::{Real, Rows, Stack};

/// The hypergradient h, and the term a with its push-sum weight ω.
pub struct NeumannPush<T> {
    pub h: Stack<T, 1>,
    pub a: Stack<T, 1>,
    pub weight: Rows<T>,
    pub workspaces: Workspaces<T>,
    pub there: Option<OnDevice<T>>,
}

/// What a device needs beside: ∇ₓf, ∇ᵧf, and a/ω.
pub struct OnDevice<T> {
    pub fx: Stack<T, 1>,
    pub fy: Stack<T, 1>,
    pub a: Stack<T, 1>,
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
        let Self { h, a, workspaces, there, .. } = self;
        let n = network.agents() as f64;
        if let Some(OnDevice { fx, fy, .. }) = there {
            upper_gradients([fx, fy], here, k, problem, network, workspaces)?;
            h.blend_on_device(0, 0.0, 1.0 / n, (fx, 0));
            a.blend_on_device(0, 0.0, 1.0 / n, (fy, 0));
            return Ok(());
        }
        upper_gradients([h, a], here, k, problem, network, workspaces)?;
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
        let Self { h, a, weight, workspaces, there } = self;
        if let (Some(mut afar), Some(OnDevice { fx, fy, a: evened })) = (workspaces.afar(), there) {
            // The products are what SOBA's directions at z = a/ω have beside ∇f.
            evened.shared.divide_into(&a.shared, weight, network.threads());
            afar.put(Z, (evened, 0));
            afar.soba(problem, at(k, network), None)?;
            h.blend_on_device(0, 1.0, -alpha, (fx, 0));
            afar.give(X, (h, 0), 1.0, alpha);
            a.blend_on_device(0, 0.0, -alpha, (fy, 0));
            afar.give(Z, (a, 0), 1.0, -alpha);
            a.blend_on_device(0, 1.0, 1.0, (evened, 0));
            return Ok(());
        }
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
