//! What every algorithm does with its stacks: fill them with starting points, show them, keep them.
use crate::network::Network;
use crate::problem::{At, Bilevel, Start};
use crate::rows::{Real, Rows, Stack, View};
use std::borrow::Cow;

/// The start that was given, else the problem's own.
pub fn own_start<'a, T: Real>(problem: &dyn Bilevel<T>, start: Option<&'a Start>) -> Cow<'a, Start> {
    start.map_or_else(|| Cow::Owned(problem.start()), Cow::Borrowed)
}

/// Writes the starting points of the owned agents into a stack of zeros, and the stack to where the network's
/// rows lie.
pub fn fill<T: Real, const N: usize>(
    network: &dyn Network<T>,
    stack: &mut Stack<T, N>,
    values: [&Vec<Vec<f64>>; N],
) {
    for (row, agent) in network.owned().iter().enumerate() {
        for (to, from) in stack.row_mut(row).into_iter().zip(values) {
            if let Some(from) = Start::row(from, *agent) {
                to.iter_mut().zip(from).for_each(|(t, f)| *t = T::of(*f));
            }
        }
    }
    let ends: Vec<usize> = (0..N).map(|v| stack.cut(v).end).collect();
    network.place(&mut stack.shared, &ends);
    if let Some(private) = &mut stack.private {
        network.place(private, &[]);
    }
}

/// The variables of a stack by name.
pub fn views<'a, T: Real, const N: usize>(
    stack: &'a Stack<T, N>,
    names: [&'static str; N],
) -> impl Iterator<Item = View<'a, T>> {
    names.into_iter().enumerate().map(move |(v, name)| match (&stack.private, v) {
        (Some(private), 0) => View::whole(name, private),
        _ => View { name, rows: &stack.shared, columns: Some(stack.cut(v)) },
    })
}

/// The rows of a stack.
pub fn memory<T: Real, const N: usize>(stack: &mut Stack<T, N>) -> impl Iterator<Item = &mut Rows<T>> {
    std::iter::once(&mut stack.shared).chain(&mut stack.private)
}

/// Which call this is: iteration k for all owned agents.
pub fn at<T: Real>(k: usize, network: &dyn Network<T>) -> At<'_> {
    At { k, owned: network.owned(), threads: network.threads() }
}
