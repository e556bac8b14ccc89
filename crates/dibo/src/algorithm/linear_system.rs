//! A hypergradient by the solution of a linear system, which the agents find together.
use super::direction::{X, Y, Z, products, take_off};
use super::looks::{Here, upper_gradients};
use super::loops::each;
use super::{Workspaces, at};
use crate::error::Result;
use crate::network::Network;
use crate::problem::Bilevel;
use crate::rows::{Real, Stack};

/// The linear system ∇²ᵧᵧg z = ∇ᵧf at one (x, y), and the hypergradient u = ∇ₓf − ∇²ₓᵧg z that it gives.
pub struct LinearSystem<T> {
    pub u: Stack<T, 1>,
    /// ∇ᵧf.
    pub b: Stack<T, 1>,
    pub workspaces: Workspaces<T>,
}

impl<T: Real> LinearSystem<T> {
    /// u = ∇ₓf, b = ∇ᵧf.
    pub fn begin(
        &mut self,
        k: usize,
        here: Here<'_, T>,
        problem: &dyn Bilevel<T>,
        network: &dyn Network<T>,
    ) -> Result<()> {
        let Self { u, b, workspaces } = self;
        // A device has them with what they are taken from.
        if let Some(mut afar) = workspaces.afar() {
            afar.put(Y, (here.1, 0));
            return Ok(());
        }
        upper_gradients([u, b], here, k, problem, network, workspaces)
    }

    /// d = ∇²ᵧᵧg z − ∇ᵧf, where z is 0 if this is the first.
    pub fn residual(
        &self,
        (k, first): (usize, bool),
        here: Here<'_, T>,
        (z, d): (&Stack<T, 1>, &mut Stack<T, 1>),
        problem: &dyn Bilevel<T>,
        network: &dyn Network<T>,
    ) -> Result<()> {
        let Self { b, workspaces, .. } = self;
        if let Some(mut afar) = workspaces.afar() {
            afar.put(Z, (z, 0));
            afar.soba(problem, at(k, network), Some(Z))?;
            afar.give(Z, (d, 0), 0.0, 1.0);
            return Ok(());
        }
        let second = products(problem)?;
        each(d, here, network, workspaces, |i, d| {
            match first {
                true => d.fill(T::ZERO),
                false => second.yy(i.agent, k, i.x, i.y, z.row(i.row)[0], d)?,
            }
            take_off(d, b.row(i.row)[0]);
            Ok(())
        })
    }

    /// u −= ∇²ₓᵧg z.
    pub fn end(
        &mut self,
        k: usize,
        here: Here<'_, T>,
        z: &Stack<T, 1>,
        problem: &dyn Bilevel<T>,
        network: &dyn Network<T>,
    ) -> Result<()> {
        let Self { u, workspaces, .. } = self;
        if let Some(mut afar) = workspaces.afar() {
            afar.put(Z, (z, 0));
            afar.soba(problem, at(k, network), Some(X))?;
            afar.give(X, (u, 0), 0.0, 1.0);
            return Ok(());
        }
        let second = products(problem)?;
        each(u, here, network, workspaces, |i, u| {
            second.xy(i.agent, k, i.x, i.y, z.row(i.row)[0], i.gx)?;
            take_off(u, i.gx);
            Ok(())
        })
    }
}
