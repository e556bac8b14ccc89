//! One exchange of an iteration, `v ← A v − η∘t` and `t ← B t − d`: how its rows are cut for caches and
//! threads. Whatever the cut, the bits are the same.
use super::disjoint::{Disjoint, update};
use super::mixing::{Csr, Pair, Part, Weights, pull_rows, push_pull_rows, push_rows, save_rows};
use super::tuning::*;
use super::{GROUP, Real, Threads, add};
use crate::memory::Buffer;

/// Who hears whom, and the weights of the pull and of the push.
#[derive(Clone, Copy)]
pub struct Links<'a, T> {
    pub csr: Csr<'a>,
    pub a: Weights<'a, T>,
    pub b: Weights<'a, T>,
    /// c of (1 − c) v + c A v, which stands for A v.
    pub share: T,
}

/// The stacks of an exchange in which every row hears rows of the same stacks. Any of v and t may be missing;
/// without t nothing is taken off v.
pub struct Exchange<'a, T> {
    /// Rows and the distance between them; all stacks have as many, of this size.
    pub shape: (usize, usize),
    /// v, and a step for each column.
    pub pull: Option<(&'a mut Buffer<T>, &'a [T])>,
    /// t.
    pub push: Option<&'a mut Buffer<T>>,
    /// d, or nothing.
    pub d: &'a [T],
    /// Whether t still lacks d.
    pub pending: bool,
}

/// The rows that are written from old ones that lie apart.
pub struct New<'a, T> {
    /// Rows and the distance between them; that of the old rows is the same.
    pub shape: (usize, usize),
    /// v, and a step for each column.
    pub pull: Option<(&'a mut [T], &'a [T])>,
    /// t.
    pub push: Option<&'a mut [T]>,
    /// d, or nothing.
    pub d: &'a [T],
    /// What old rows of t still lack, or nothing.
    pub plus: &'a [T],
}

/// How work is split over threads.
pub enum Cut {
    /// By rows, each thread at least so many.
    Rows(usize),
    /// By columns.
    Columns,
}

/// Where a kernel writes.
struct Out<'a, T> {
    v: Option<(Disjoint<'a, T>, &'a [T])>,
    t: Option<Disjoint<'a, T>>,
}

impl<T: Real> Out<'_, T> {
    /// Mixes the rows and columns of a part. The old rows begin at its first column.
    ///
    /// # Safety
    /// Parts that run at the same time do not overlap.
    #[inline(always)]
    unsafe fn mix(&self, part: Part, old: Pair<&[T]>, links: Links<'_, T>, d: &[T], plus: &[T]) {
        let Links { csr, a, b, share } = links;
        // SAFETY: the caller's; the old rows are borrowed.
        unsafe {
            match (&self.v, &self.t) {
                (Some((v, eta)), Some(t)) => {
                    let old = Pair { v: old.v.into(), t: old.t.into() };
                    push_pull_rows(Pair { v, t }, part, old, csr, a, b, eta, d, plus, share)
                }
                (None, Some(t)) => push_rows(t, part, old.t, csr, b, d),
                (Some((v, _)), None) => pull_rows(v, part, old.v, csr, a, share),
                (None, None) => {}
            }
        }
    }
}

/// The two ways to mix, compiled here once for each kind of number; generic ones would be compiled again by
/// every crate that runs an algorithm.
pub trait Mixes: Sized {
    #[doc(hidden)]
    fn mix(
        exchange: Exchange<'_, Self>,
        links: Links<'_, Self>,
        threads: &Threads,
        workspace: &mut [Buffer<Self>],
    );
    #[doc(hidden)]
    fn mix_from(new: New<'_, Self>, old: Pair<&[Self]>, links: Links<'_, Self>, cut: Cut, threads: &Threads);
}

macro_rules! mixes {
    ($($t:ty),*) => {
        $(impl Mixes for $t {
            fn mix(
                exchange: Exchange<'_, $t>,
                links: Links<'_, $t>,
                threads: &Threads,
                workspace: &mut [Buffer<$t>],
            ) {
                mix_by(OPEN, exchange, links, threads, workspace);
            }
            fn mix_from(
                new: New<'_, $t>,
                old: Pair<&[$t]>,
                links: Links<'_, $t>,
                cut: Cut,
                threads: &Threads,
            ) {
                write_new(new, old, links, cut, threads);
            }
        })*
    };
}
mixes!(f32, f64);

/// New rows from old ones that lie apart: the rows of all whom the new rows hear, by the numbers that `links`
/// has for them. The new rows' own come first. What is not mixed has no old rows.
fn write_new<T: Real>(new: New<'_, T>, old: Pair<&[T]>, links: Links<'_, T>, cut: Cut, threads: &Threads) {
    let New { shape: (rows, stride), pull, push, d, plus } = new;
    let v = pull.map(|(v, eta)| (Disjoint::new(v), eta));
    let out = Out { v, t: push.map(Disjoint::new) };
    let part = |rows, columns| Part {
        rows,
        columns,
        stride,
        source_stride: stride,
        backwards: false,
        prefetch: false,
    };
    // SAFETY, both: the ranges of different threads do not overlap.
    match cut {
        Cut::Rows(least) => threads
            .ranges(rows, least, |_, rows| unsafe { out.mix(part(rows, 0..stride), old, links, d, plus) }),
        Cut::Columns => threads.ranges(stride / GROUP, LEAST_GROUPS, |_, groups| {
            let columns = groups.start * GROUP..groups.end * GROUP;
            let from = |old: &'_ [T]| -> usize { columns.start.min(old.len()) };
            let old = Pair { v: &old.v[from(old.v)..], t: &old.t[from(old.t)..] };
            unsafe { out.mix(part(0..rows, columns), old, links, d, plus) }
        }),
    }
}

/// One exchange by the ways that are open. `workspace` has a buffer for each thread, and two at least.
#[inline(always)]
pub(super) fn mix_by<T: Real>(
    ways: Ways,
    mut exchange: Exchange<'_, T>,
    links: Links<'_, T>,
    threads: &Threads,
    workspace: &mut [Buffer<T>],
) {
    let (n, stride) = exchange.shape;
    let long = |stack: &[T]| stack.len() == n * stride;
    assert!(
        exchange.pull.as_ref().is_none_or(|(v, _)| long(v)) && exchange.push.as_ref().is_none_or(|t| long(t)),
        "pulled and pushed rows have one shape"
    );
    // Rows that hear many others are worth a copy that is read from a nearer cache, even if all rows would
    // fit in a farther one; not so if several threads, which split stacks by rows, would have to hand the
    // copy to each other.
    let entries = links.csr.from.len();
    let many = entries > MANY * n && threads.count() == 1;
    let bytes = n * stride * size_of::<T>();
    if ways.tiles && bytes > if many && ways.tiles_of_many { WHOLE_OF_MANY } else { WHOLE } {
        return by_tiles(ways, exchange, links, many, threads, workspace);
    }
    // Narrower registers have too few to add in passing without spilling.
    let in_passing = ways.in_passing
        && super::cpu::level() == 3
        && exchange.pull.is_some()
        && entries <= ADDED_IN_PASSING * n;
    if exchange.pending && !in_passing {
        exchange.pending = false;
        if let Some(t) = &mut exchange.push {
            update(threads, t, exchange.d, add);
        }
    }
    if ways.in_place
        && exchange.pull.is_some()
        && exchange.push.is_some()
        && threads.count() == 1
        && bytes > SMALL
        && let Some(backwards) = order_in_place(links.csr)
    {
        return in_place(exchange, links, backwards, workspace);
    }
    whole(exchange, links, threads, workspace);
}

/// Swaps the stacks with the workspace, which then holds the old values, and writes every row anew.
fn whole<T: Real>(
    exchange: Exchange<'_, T>,
    links: Links<'_, T>,
    threads: &Threads,
    workspace: &mut [Buffer<T>],
) {
    let Exchange { shape: (n, stride), mut pull, mut push, d, pending } = exchange;
    let [old_v, old_t] = workspace.first_chunk_mut().expect("two buffers at least");
    let swap = |stack: &mut Buffer<T>, old: &mut Buffer<T>| {
        old.resize(n * stride, T::ZERO);
        std::mem::swap(stack, old);
    };
    if let Some((v, _)) = &mut pull {
        swap(v, old_v);
    }
    if let Some(t) = &mut push {
        swap(t, old_t);
    }
    let least = if threads.count() == 1 {
        n
    } else {
        LEAST_ENTRIES / (links.csr.from.len() * (stride / GROUP) / n.max(1)).max(1)
    };
    let new = New {
        shape: (n, stride),
        pull: pull.map(|(v, eta)| (&mut v[..], eta)),
        push: push.map(|t| &mut t[..]),
        d,
        plus: if pending { d } else { &[] },
    };
    write_new(new, Pair { v: old_v, t: old_t }, links, Cut::Rows(least), threads);
}

/// Without a second pair of stacks more of the run's memory stays in the cache. The last row, which may hear
/// any, is mixed aside first.
fn in_place<T: Real>(
    exchange: Exchange<'_, T>,
    links: Links<'_, T>,
    backwards: bool,
    workspace: &mut [Buffer<T>],
) {
    let Exchange { shape: (n, stride), pull: Some((v, eta)), push: Some(t), d, pending } = exchange else {
        unreachable!("both are mixed in place, or neither");
    };
    let plus = if pending { d } else { &[] };
    let [new_v, new_t] = workspace.first_chunk_mut().expect("two buffers at least");
    [&mut *new_v, &mut *new_t].into_iter().for_each(|buffer| buffer.resize(n * stride, T::ZERO));
    let (aside, rest) = if backwards { (0..1, 1..n) } else { (n - 1..n, 0..n - 1) };
    let last = aside.start * stride..aside.end * stride;
    let Links { csr, a, b, share } = links;
    let part = |rows, backwards| Part {
        rows,
        columns: 0..stride,
        stride,
        source_stride: stride,
        backwards,
        prefetch: false,
    };
    {
        let (v, t) = (Disjoint::new(v), Disjoint::new(t));
        let (new_v, new_t) = (Disjoint::new(new_v), Disjoint::new(new_t));
        let (new, old) = (Pair { v: &new_v, t: &new_t }, Pair { v: v.source(), t: t.source() });
        // SAFETY: one part after the other; in this order no row reads one that is written before it.
        unsafe {
            push_pull_rows(new, part(aside, false), old, csr, a, b, eta, d, plus, share);
            push_pull_rows(Pair { v: &v, t: &t }, part(rest, backwards), old, csr, a, b, eta, d, plus, share);
        }
    }
    v[last.clone()].copy_from_slice(&new_v[last.clone()]);
    t[last.clone()].copy_from_slice(&new_t[last]);
}

/// Tile of columns by tile: copies the old columns of all rows, v and t side by side, then writes them in
/// place.
#[inline(always)]
fn by_tiles<T: Real>(
    ways: Ways,
    exchange: Exchange<'_, T>,
    links: Links<'_, T>,
    many: bool,
    threads: &Threads,
    workspace: &mut [Buffer<T>],
) {
    let Exchange { shape: (n, stride), pull, push, d, pending } = exchange;
    let plus = if pending { d } else { &[] };
    let prefetch = ways.prefetch && n * stride * size_of::<T>() > CACHED;
    let bytes = if prefetch { PREFETCHED_TILE } else { TILE }.min(TILE_COPIES / n);
    let width = (bytes / size_of::<T>() / GROUP * GROUP).clamp(GROUP, stride);
    // Weighted once for all receivers where these are many.
    let (before, after, left) = match links.b {
        Weights::Sender(_) if many && ways.weighed_once => (links.b, Weights::Applied, plus),
        b => (Weights::Applied, b, &[] as &[T]),
    };
    let links = Links { b: after, ..links };
    let workspace = Disjoint::new(workspace);
    let v = pull.map(|(v, eta)| (Disjoint::new(v), eta));
    let out = Out { v, t: push.map(|t| Disjoint::new(t)) };
    let tiles = stride.div_ceil(width);
    let batch = tiles.div_ceil(BATCHES * threads.count()).min(TILES_AT_A_TIME);
    threads.each(tiles.div_ceil(batch), |thread, part| {
        // SAFETY: one buffer a thread.
        let [old] = (unsafe { workspace.get(thread..thread + 1) }) else { return };
        // It only grows: what lies behind a tile is not looked at.
        old.resize(old.len().max(2 * n * width), T::ZERO);
        for tile in part * batch..((part + 1) * batch).min(tiles) {
            let columns = tile * width..((tile + 1) * width).min(stride);
            let (old_t, source_stride) = (columns.len(), 2 * columns.len());
            let part = Part { rows: 0..n, columns, stride, source_stride, backwards: false, prefetch };
            let from = Pair { v: out.v.as_ref().map(|(v, _)| v), t: out.t.as_ref() };
            // SAFETY: each tile is taken once, and tiles do not overlap.
            unsafe {
                save_rows(old, from, part.clone(), plus, before);
                out.mix(part, Pair { v: old, t: &old[old_t..] }, links, d, left);
            }
        }
    });
}

/// Whether rows can be mixed in place, as those of a ring can: backwards (true) if no row hears a later one,
/// forwards (false) if none hears an earlier one; but for the last in that order.
fn order_in_place(csr: Csr<'_>) -> Option<bool> {
    let n = csr.start.len() - 1;
    let senders = |i: usize| &csr.from[csr.start[i] as usize..csr.start[i + 1] as usize];
    let backwards = (1..n).all(|i| senders(i).last().is_some_and(|j| *j as usize <= i));
    let forwards = || (0..n - 1).all(|i| senders(i).first().is_some_and(|j| *j as usize >= i));
    (backwards || forwards()).then_some(backwards)
}
