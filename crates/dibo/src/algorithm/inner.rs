//! What the methods with inner loops share: work of every owned agent on its row, with room of its thread.
use super::direction::Rooms;
use super::fill;
use super::stacks::zeros;
use crate::error::Result;
use crate::network::Network;
use crate::problem::{Bilevel, Start};
use crate::rows::{Real, Stack, Upper};

/// Calls `job(row, agent, variable, room)` for every owned agent on all threads.
pub fn each<T: Real>(
    d: &mut Stack<T, 1>,
    network: &dyn Network<T>,
    rooms: &Rooms<T>,
    room: impl Fn(usize) -> usize + Sync,
    job: impl Fn(usize, usize, &mut [T], &mut [T]) -> Result<()> + Sync,
) -> Result<()> {
    let owned = network.owned();
    d.try_for_each_row(network.threads(), 1, |thread, row, [d]| {
        rooms.with(thread, room(row), |room| job(row, owned[row], d, room))
    })
}

/// One variable of the owned agents: x as the problem has it, or y.
pub fn variables<T: Real>(
    problem: &dyn Bilevel<T>,
    network: &dyn Network<T>,
    start: &Start,
) -> (Stack<T, 1>, Stack<T, 1>) {
    let mut x = zeros(&problem.upper(), &[], network.owned());
    let mut y = zeros(&Upper::Shared(problem.lower()), &[], network.owned());
    fill(network, &mut x, [&start.x]);
    fill(network, &mut y, [&start.y]);
    (x, y)
}

/// A number of inner rounds must be neither 0 nor beyond reason.
pub fn check_rounds(name: &str, value: usize) -> Result<(), String> {
    match value {
        1..=1_000_000 => Ok(()),
        _ => Err(format!("{name} is {value}; it must lie between 1 and 1,000,000")),
    }
}

/// `a = scale · a` for all of a stack.
pub fn scale<T: Real>(a: &mut Stack<T, 1>, by: f64, network: &dyn Network<T>) {
    let by = T::of(by);
    a.for_each_row(network.threads(), 16, |_, _, [a]| a.iter_mut().for_each(|a| *a = by * *a));
}
