//! What every algorithm does with its stacks: fill them with starting points, step, show them, keep them.
use crate::network::Network;
use crate::problem::{At, Bilevel, Start};
use crate::rows::{Real, Rows, Stack, Upper, View};
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
    // Where a private variable is alone, nothing is shared.
    if stack.shared.width() > 0 {
        network.place(&mut stack.shared, &ends);
    }
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

/// A private variable is neither mixed nor tracked: x⁺ = x − η d.
pub fn step_private<T: Real, const N: usize>(
    v: &mut Stack<T, N>,
    eta: f64,
    d: &Stack<T, N>,
    network: &dyn Network<T>,
) {
    if let (Some(x), Some(d)) = (&mut v.private, &d.private) {
        x.add_scaled(T::of(-eta), d, network.threads());
    }
}

/// The rows of two stacks that belong together: the shared ones, and the private ones where there are any.
pub fn pairs<'a, T: Real, const N: usize>(
    a: &'a mut Stack<T, N>,
    b: &'a Stack<T, N>,
) -> impl Iterator<Item = (&'a mut Rows<T>, &'a Rows<T>)> {
    std::iter::once((&mut a.shared, &b.shared)).chain(a.private.as_mut().zip(b.private.as_ref()))
}

/// Step sizes spread over columns, kept while they do not change.
pub struct Steps<T, const N: usize> {
    values: [f64; N],
    pub columns: Vec<T>,
}

impl<T, const N: usize> Default for Steps<T, N> {
    fn default() -> Self {
        Steps { values: [f64::NAN; N], columns: Vec::new() }
    }
}

impl<T: Real, const N: usize> Steps<T, N> {
    pub fn set(&mut self, stack: &Stack<T, N>, values: [f64; N]) {
        if self.values != values {
            stack.step_columns(values, &mut self.columns);
            self.values = values;
        }
    }
}

/// A stack of zeros for the owned agents: x as the problem says, then variables of these widths.
pub fn zeros<T: Real, const N: usize>(upper: &Upper, others: &[usize], owned: &[usize]) -> Stack<T, N> {
    let upper = match upper {
        Upper::Private(widths) => Upper::Private(owned.iter().map(|i| widths[*i]).collect()),
        shared => shared.clone(),
    };
    Stack::zeros(owned.len(), &upper, others)
}

/// Zeros of the same shape.
pub fn like<T: Real, const N: usize>(stack: &Stack<T, N>) -> Stack<T, N> {
    let mut zero = stack.clone();
    memory(&mut zero).for_each(Rows::clear);
    zero
}
