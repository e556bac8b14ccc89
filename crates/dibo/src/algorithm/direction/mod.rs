//! Which way x, y and z go: one file a rule.
mod neumann_local;
mod penalty;
mod rule;
mod soba;
mod soba_fd;

pub use neumann_local::NeumannLocal;
pub use penalty::Penalised;
pub use rule::Rule;
pub use soba::Soba;
pub use soba_fd::SobaFd;

use super::{Needs, Workspaces};
use crate::error::{Error, Result};
use crate::problem::{At, Bilevel, Products, SecondOrder};
use crate::rows::{Real, Stack};

/// Where x stands in a stack.
pub const X: usize = 0;
/// Where y stands.
pub const Y: usize = 1;
/// Where z stands.
pub const Z: usize = 2;

/// What a problem lacks whose rows lie on a device and whose directions do not.
pub const ON_DEVICE: &str = "these directions on a GPU";

/// One agent's call: which agent, which sample, and the variable whose direction is wanted (all if none).
#[derive(Clone, Copy)]
pub struct Call {
    /// The agent.
    pub agent: usize,
    /// The sample.
    pub k: usize,
    /// The variable whose direction is wanted.
    pub only: Option<usize>,
}

impl Call {
    /// Whether this variable's direction is wanted.
    pub fn wants(&self, variable: usize) -> bool {
        self.only.is_none_or(|only| only == variable)
    }
}

/// A direction rule.
pub trait Direction<T: Real>: Send + Sync {
    /// Writes the directions of one agent at its (x, y, z); `workspace` has [`Direction::workspace`] numbers.
    fn of_agent(
        &self,
        problem: &dyn Bilevel<T>,
        call: Call,
        v: [&[T]; 3],
        d: [&mut [T]; 3],
        workspace: &mut [T],
    ) -> Result<()>;

    /// Numbers of workspace that it needs, for an x of width dx and a y of width dy.
    fn workspace(&self, dx: usize, dy: usize) -> usize {
        2 * (dx + dy)
    }

    /// Writes the directions of all owned agents.
    fn of_all(
        &self,
        problem: &dyn Bilevel<T>,
        at: At<'_>,
        only: Option<usize>,
        v: &Stack<T, 3>,
        d: &mut Stack<T, 3>,
        workspaces: &Workspaces<T>,
    ) -> Result<()> {
        // Directions that are not wanted are taken anew before they are used.
        match self.products().map_or(Ok(false), |by| problem.soba_directions(at, by, only, v, d))? {
            true => Ok(()),
            false => by_agent(self, problem, at, only, v, d, workspaces),
        }
    }

    /// How it comes by second derivatives, if its directions are SOBA's: a problem may have them in one pass.
    fn products(&self) -> Option<Products> {
        None
    }
}

/// The directions of all owned agents, one by one on all threads.
pub fn by_agent<T: Real, D: Direction<T> + ?Sized>(
    rule: &D,
    problem: &dyn Bilevel<T>,
    at: At<'_>,
    only: Option<usize>,
    v: &Stack<T, 3>,
    d: &mut Stack<T, 3>,
    workspaces: &Workspaces<T>,
) -> Result<()> {
    if v.on_device() {
        return Err(Error::Unsupported(ON_DEVICE));
    }
    d.try_for_each_row(at.threads, 1, |thread, row, d| {
        let (v, call) = (v.row(row), Call { agent: at.owned[row], k: at.k, only });
        let needed = rule.workspace(v[X].len(), v[Y].len());
        workspaces.with(thread, needed, |workspace| rule.of_agent(problem, call, v, d, workspace))
    })
}

/// The problem's products, or that it has none.
pub fn products<T: Real>(problem: &dyn Bilevel<T>) -> Result<&dyn SecondOrder<T>> {
    problem.second_order().ok_or(Error::Unsupported(Needs::SecondOrder.words()))
}

/// `a −= b`.
pub fn take_off<T: Real>(a: &mut [T], b: &[T]) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a -= *b);
}
