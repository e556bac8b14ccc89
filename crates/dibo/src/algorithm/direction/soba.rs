//! SOBA's directions: dy = ∇ᵧg, dz = ∇²ᵧᵧg z − ∇ᵧf, dx = ∇ₓf − ∇²ₓᵧg z, all at (x, y). At rest z solves the
//! linear system of the hypergradient, so x ends at the solution itself.
use super::{Call, Direction, X, Y, Z, products, take_off};
use crate::error::Result;
use crate::problem::{Bilevel, Products};
use crate::rows::Real;

/// It has no numbers.
pub struct Soba;

impl<T: Real> Direction<T> for Soba {
    fn of_agent(
        &self,
        problem: &dyn Bilevel<T>,
        call: Call,
        [x, y, z]: [&[T]; 3],
        [dx, dy, dz]: [&mut [T]; 3],
        workspace: &mut [T],
    ) -> Result<()> {
        let (Call { agent, k, .. }, second) = (call, products(problem)?);
        let (gx, rest) = workspace.split_at_mut(x.len());
        let gy = &mut rest[..y.len()];
        if call.wants(X) || call.wants(Z) {
            problem.grad_f(agent, k, x, y, gx, gy)?;
        }
        if call.wants(Z) {
            second.yy(agent, k, x, y, z, dz)?;
            take_off(dz, gy);
        }
        if call.wants(X) {
            dx.copy_from_slice(gx);
            second.xy(agent, k, x, y, z, gx)?;
            take_off(dx, gx);
        }
        if call.wants(Y) {
            problem.grad_g(agent, k, x, y, gx, dy)?;
        }
        Ok(())
    }

    fn products(&self) -> Option<Products> {
        Some(Products::Exact)
    }
}
