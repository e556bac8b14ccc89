//! SOBA's directions: dy = ∇ᵧg, dz = ∇²ᵧᵧg z − ∇ᵧf, dx = ∇ₓf − ∇²ₓᵧg z, all at (x, y). At rest z solves the
//! linear system of the hypergradient, so x ends at the solution itself.
use super::{Call, Direction, Rooms, X, Y, Z, by_agent, products, take_off};
use crate::error::Result;
use crate::problem::{At, Bilevel, Products};
use crate::rows::{Real, Stack};

/// It has no numbers.
pub struct Soba;

impl<T: Real> Direction<T> for Soba {
    fn of_agent(
        &self,
        problem: &dyn Bilevel<T>,
        call: Call,
        [x, y, z]: [&[T]; 3],
        [dx, dy, dz]: [&mut [T]; 3],
        room: &mut [T],
    ) -> Result<()> {
        let (Call { agent, k, .. }, second) = (call, products(problem)?);
        let (gx, rest) = room.split_at_mut(x.len());
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
    fn of_all(
        &self,
        problem: &dyn Bilevel<T>,
        at: At<'_>,
        only: Option<usize>,
        v: &Stack<T, 3>,
        d: &mut Stack<T, 3>,
        rooms: &Rooms<T>,
    ) -> Result<()> {
        match only.is_none() && problem.soba_directions(at, Products::Exact, v, d)? {
            true => Ok(()),
            false => by_agent(self, problem, at, only, v, d, rooms),
        }
    }
}
