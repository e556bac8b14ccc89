//! Directions where rows lie on a device: taken for all agents at once, at a point that is put together here
//! by methods which keep their variables apart.
use super::direction::{ON_DEVICE, X, Y, Z};
use super::looks::Here;
use super::stacks::{fill, zeros};
use crate::error::{Error, Result};
use crate::network::Network;
use crate::problem::{At, Bilevel, Penalty, Products};
use crate::rows::{Real, Stack};

/// The vectors like y that it holds of each agent: y and z, and their directions.
pub const VECTORS: usize = 4;

/// The point (x, y, z) and the directions there.
pub struct Afar<T> {
    v: Stack<T, 3>,
    d: Stack<T, 3>,
}

impl<T: Real> Afar<T> {
    /// Where this network's rows lie, if that is on a device.
    pub fn new(problem: &dyn Bilevel<T>, network: &dyn Network<T>, there: bool) -> Option<Self> {
        if !there {
            return None;
        }
        let (mut v, zero) = (zeros(&problem.upper(), &[problem.lower(); 2], network.owned()), Vec::new());
        fill(network, &mut v, [&zero; 3]);
        Some(Afar { d: v.clone(), v })
    }

    /// Puts a variable of the point where that variable of a stack is.
    pub fn put<const N: usize>(&mut self, variable: usize, from: (&Stack<T, N>, usize)) {
        self.v.blend_on_device(variable, 0.0, 1.0, from);
    }

    /// z = 0.
    pub fn clear_z(&mut self) {
        self.v.blend_on_device(Z, 0.0, 0.0, (&self.d, Z));
    }

    /// z −= eta · its direction.
    pub fn step_z(&mut self, eta: f64) {
        self.v.blend_on_device(Z, 1.0, -eta, (&self.d, Z));
    }

    /// SOBA's directions.
    pub fn soba(&mut self, problem: &dyn Bilevel<T>, at: At<'_>, only: Option<usize>) -> Result<()> {
        match problem.soba_directions(at, Products::Exact, only, &self.v, &mut self.d)? {
            true => Ok(()),
            false => Err(Error::Unsupported(ON_DEVICE)),
        }
    }

    /// ∇ᵧg at (x, y).
    pub fn lower_gradients(
        &mut self,
        d: &mut Stack<T, 1>,
        (x, y): Here<'_, T>,
        problem: &dyn Bilevel<T>,
        at: At<'_>,
    ) -> Result<()> {
        self.put(X, (x, 0));
        self.put(Y, (y, 0));
        self.soba(problem, at, Some(Y))?;
        self.give(Y, (d, 0), 0.0, 1.0);
        Ok(())
    }

    /// ∇ₓf and ∇ᵧf at (x, y): at z = 0 SOBA's directions are ∇ₓf and −∇ᵧf.
    pub fn upper_gradients(
        &mut self,
        [fx, fy]: [&mut Stack<T, 1>; 2],
        (x, y): Here<'_, T>,
        problem: &dyn Bilevel<T>,
        at: At<'_>,
    ) -> Result<()> {
        self.put(X, (x, 0));
        self.put(Y, (y, 0));
        self.clear_z();
        self.soba(problem, at, None)?;
        self.give(X, (fx, 0), 0.0, 1.0);
        self.give(Z, (fy, 0), 0.0, -1.0);
        Ok(())
    }

    /// The penalty's direction of one variable at (x, y, z).
    pub fn penalty(
        &mut self,
        variable: usize,
        d: &mut Stack<T, 1>,
        point: [&Stack<T, 1>; 3],
        penalty: Penalty,
        problem: &dyn Bilevel<T>,
        at: At<'_>,
    ) -> Result<()> {
        point.into_iter().enumerate().for_each(|(variable, v)| self.put(variable, (v, 0)));
        problem.penalty_directions(at, penalty, &self.v, &mut self.d)?;
        self.give(variable, (d, 0), 0.0, 1.0);
        Ok(())
    }

    /// `to = keep · to + scale · direction`, of one variable, to that of a stack.
    pub fn give<const N: usize>(
        &self,
        variable: usize,
        (to, which): (&mut Stack<T, N>, usize),
        keep: f64,
        scale: f64,
    ) {
        to.blend_on_device(which, keep, scale, (&self.d, variable));
    }
}
