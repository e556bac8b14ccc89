//! Directions where rows lie on a device: taken for all agents at once, at a point that is put together here
//! by methods which keep their variables apart.
use super::direction::{ON_DEVICE, Z};
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

    /// The penalty's directions.
    pub fn penalty(&mut self, problem: &dyn Bilevel<T>, at: At<'_>, penalty: Penalty) -> Result<()> {
        problem.penalty_directions(at, penalty, &self.v, &mut self.d)
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
