//! Which way x, y and z go: one file a rule.
mod neumann_local;
mod penalty;
mod soba;
mod soba_fd;

pub use neumann_local::NeumannLocal;
pub use penalty::Penalised;
pub use soba::Soba;
pub use soba_fd::SobaFd;

use super::Needs;
use crate::error::{Error, Result};
use crate::problem::{At, Bilevel, Products, SecondOrder, Start};
use crate::rows::{Real, Stack};
use std::sync::{Mutex, PoisonError};

/// Where x stands in a stack.
pub const X: usize = 0;
/// Where y stands.
pub const Y: usize = 1;
/// Where z stands.
pub const Z: usize = 2;

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
    /// Writes the directions of one agent at its (x, y, z); `room` holds [`Direction::room`] numbers.
    fn of_agent(
        &self,
        problem: &dyn Bilevel<T>,
        call: Call,
        v: [&[T]; 3],
        d: [&mut [T]; 3],
        room: &mut [T],
    ) -> Result<()>;

    /// Numbers of room that it needs, for an x of width dx and a y of width dy.
    fn room(&self, dx: usize, dy: usize) -> usize {
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
        rooms: &Rooms<T>,
    ) -> Result<()> {
        let own = self.products().filter(|_| only.is_none());
        match own.map_or(Ok(false), |by| problem.soba_directions(at, by, v, d))? {
            true => Ok(()),
            false => by_agent(self, problem, at, only, v, d, rooms),
        }
    }

    /// How it comes by second derivatives, if its directions are SOBA's: a problem may have them in one pass.
    fn products(&self) -> Option<Products> {
        None
    }
}

/// Room for each thread, taken once.
pub struct Rooms<T>(Vec<Mutex<Vec<T>>>);

impl<T: Real> Rooms<T> {
    /// For so many threads.
    pub fn new(threads: usize) -> Self {
        Rooms((0..threads.max(1)).map(|_| Mutex::new(Vec::new())).collect())
    }

    /// Calls `job` with so many numbers of a thread's room; what stood in them before is anybody's guess.
    pub fn with<R>(&self, thread: usize, numbers: usize, job: impl FnOnce(&mut [T]) -> R) -> R {
        let mut room = self.0[thread].lock().unwrap_or_else(PoisonError::into_inner);
        if room.len() < numbers {
            room.resize(numbers, T::ZERO);
        }
        job(&mut room[..numbers])
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
    rooms: &Rooms<T>,
) -> Result<()> {
    d.try_for_each_row(at.threads, 1, |thread, row, d| {
        let (v, call) = (v.row(row), Call { agent: at.owned[row], k: at.k, only });
        let needed = rule.room(v[X].len(), v[Y].len());
        rooms.with(thread, needed, |room| rule.of_agent(problem, call, v, d, room))
    })
}

/// The rules with their numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// ∇f and λ∇g of the penalty function, or of the Moreau envelope where there is a γ.
    Penalised(Penalised),
    /// SOBA's, with second-order products.
    Soba,
    /// The same with differences of gradients.
    SobaFd(SobaFd),
    /// Each agent's own Neumann series.
    NeumannLocal(NeumannLocal),
}

impl Rule {
    /// The rule on numbers of one type.
    pub fn make<T: Real>(&self) -> Box<dyn Direction<T>> {
        match self {
            Rule::Penalised(rule) => Box::new(*rule),
            Rule::Soba => Box::new(Soba),
            Rule::SobaFd(rule) => Box::new(*rule),
            Rule::NeumannLocal(rule) => Box::new(*rule),
        }
    }

    /// What it needs of a problem.
    pub fn needs(&self) -> Needs {
        match self {
            Rule::Soba | Rule::NeumannLocal(_) => Needs::SecondOrder,
            Rule::Penalised(_) | Rule::SobaFd(_) => Needs::FirstOrder,
        }
    }

    /// The variables in the order of a sequential sweep.
    pub fn order(&self) -> &'static [usize] {
        match self {
            Rule::Penalised(_) => &[Z, Y, X],
            Rule::Soba | Rule::SobaFd(_) => &[Y, Z, X],
            Rule::NeumannLocal(_) => &[Y, X],
        }
    }

    /// Whether there is a z.
    pub fn has_z(&self) -> bool {
        !matches!(self, Rule::NeumannLocal(_))
    }

    /// Where z starts: y's twin, or SOBA's auxiliary variable.
    pub fn start_of_z<'a>(&self, start: &'a Start) -> &'a Vec<Vec<f64>> {
        if matches!(self, Rule::Penalised(_)) { start.twin() } else { &start.v }
    }

    /// Says which number is out of range.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Rule::Penalised(rule) => rule.check(),
            Rule::Soba => Ok(()),
            Rule::SobaFd(rule) => rule.check(),
            Rule::NeumannLocal(rule) => rule.check(),
        }
    }
}

/// The problem's products, or that it has none.
pub fn products<T: Real>(problem: &dyn Bilevel<T>) -> Result<&dyn SecondOrder<T>> {
    problem.second_order().ok_or(Error::Unsupported(Needs::SecondOrder.words()))
}

/// `a −= b`.
pub fn take_off<T: Real>(a: &mut [T], b: &[T]) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a -= *b);
}
