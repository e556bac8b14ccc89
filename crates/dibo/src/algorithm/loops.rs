//! What the methods with inner loops share.
use super::stacks::{pairs, zeros};
use super::{Workspaces, fill};
use crate::error::Result;
use crate::network::Network;
use crate::problem::{Bilevel, Start};
use crate::rows::{Real, Stack, Upper};

/// One agent at its (x, y), with workspace for gradients by both.
pub struct Local<'a, T> {
    pub row: usize,
    pub agent: usize,
    pub x: &'a [T],
    pub y: &'a [T],
    pub gx: &'a mut [T],
    pub gy: &'a mut [T],
}

/// Calls `job` for every owned agent, on all threads, with its row of `d` to write.
pub fn each<T: Real>(
    d: &mut Stack<T, 1>,
    (x, y): (&Stack<T, 1>, &Stack<T, 1>),
    network: &dyn Network<T>,
    workspaces: &Workspaces<T>,
    job: impl Fn(Local<'_, T>, &mut [T]) -> Result<()> + Sync,
) -> Result<()> {
    let owned = network.owned();
    d.try_for_each_row(network.threads(), 1, |thread, row, [d]| {
        let ([x], [y]) = (x.row(row), y.row(row));
        workspaces.with(thread, x.len() + y.len(), |workspace| {
            let (gx, gy) = workspace.split_at_mut(x.len());
            job(Local { row, agent: owned[row], x, y, gx, gy }, d)
        })
    })
}

/// x as the problem has it, and y, where they start.
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

/// A share must be above 0 and at most 1.
pub fn check_share(name: &str, value: f64) -> Result<(), String> {
    match value > 0.0 && value <= 1.0 {
        true => Ok(()),
        false => Err(format!("{name} is {value}; it must be above 0 and at most 1")),
    }
}

/// `a = by · a` for all of a stack.
pub fn scale<T: Real>(a: &mut Stack<T, 1>, by: f64, network: &dyn Network<T>) {
    let by = T::of(by);
    a.for_each_row(network.threads(), 16, |_, _, [a]| a.iter_mut().for_each(|a| *a = by * *a));
}

/// `x −= eta · h` for all of a stack.
pub fn descend<T: Real>(x: &mut Stack<T, 1>, eta: f64, h: &Stack<T, 1>, network: &dyn Network<T>) {
    pairs(x, h).for_each(|(x, h)| x.add_scaled(T::of(-eta), h, network.threads()));
}

/// `a = (1 − share) · a + share · new`.
pub fn average<T: Real>(a: &mut Stack<T, 1>, share: f64, new: &Stack<T, 1>, network: &dyn Network<T>) {
    if new.on_device() || new.private.as_ref().is_some_and(|rows| rows.device().is_some()) {
        return a.blend_on_device(0, 1.0 - share, share, (new, 0));
    }
    let (stay, share) = (T::of(1.0 - share), T::of(share));
    a.for_each_row(network.threads(), 16, |_, row, [a]| {
        a.iter_mut().zip(new.row(row)[0]).for_each(|(a, new)| *a = stay * *a + share * *new);
    });
}
