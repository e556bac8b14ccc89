//! Parts of one slice for several threads.
use super::tuning::{LEAST_GROUPS, LEAST_NUMBERS};
use super::{GROUP, Threads};
use std::marker::PhantomData;
use std::ops::Range;

/// A slice whose parts several threads write, for as long as it is borrowed.
pub(super) struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    life: PhantomData<&'a mut [T]>,
}

// SAFETY: whoever calls `get` promises that no two live parts overlap.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}
unsafe impl<T: Send> Send for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    /// Borrows the slice for as long as the parts are used.
    pub fn new(slice: &'a mut [T]) -> Self {
        Disjoint { start: slice.as_mut_ptr(), len: slice.len(), life: PhantomData }
    }

    /// One part.
    ///
    /// # Safety
    /// No other part that is alive, and no place that is read meanwhile, overlaps `range`.
    #[allow(clippy::mut_from_ref)]
    #[inline(always)]
    pub unsafe fn get(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: inside the slice; the caller promises the rest.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }

    /// Where the slice begins, for kernels that have checked their places.
    #[inline(always)]
    pub fn start(&self) -> *mut T {
        self.start
    }

    /// How many numbers there are.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The slice to read, also while other parts of it are written.
    pub fn source(&self) -> Source<'_, T> {
        Source { start: self.start, len: self.len, life: PhantomData }
    }
}

/// Numbers to read while others of the same slice may be written.
pub(super) struct Source<'a, T> {
    start: *const T,
    len: usize,
    life: PhantomData<&'a [T]>,
}

impl<T> Clone for Source<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Source<'_, T> {}

impl<T> Source<'_, T> {
    /// Where the numbers begin, for kernels that have checked their places.
    #[inline(always)]
    pub fn start(&self) -> *const T {
        self.start
    }

    /// How many numbers there are.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }
}

impl<'a, T> From<&'a [T]> for Source<'a, T> {
    #[inline(always)]
    fn from(slice: &'a [T]) -> Self {
        Source { start: slice.as_ptr(), len: slice.len(), life: PhantomData }
    }
}

/// Where rows lie in one allocation: one after the other, each padded to whole groups of columns. That they
/// do not overlap is known by the making.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Layout {
    starts: Vec<usize>,
    widths: Vec<usize>,
}

impl Layout {
    /// Rows of these widths.
    pub fn new(widths: Vec<usize>) -> Self {
        let mut starts = vec![0usize];
        for w in &widths {
            let end = w.checked_next_multiple_of(GROUP).and_then(|w| w.checked_add(starts[starts.len() - 1]));
            starts.push(end.expect("rows that memory can hold"));
        }
        Layout { starts, widths }
    }

    /// How many rows.
    #[inline(always)]
    pub fn count(&self) -> usize {
        self.widths.len()
    }

    /// How many numbers, padding included.
    pub fn len(&self) -> usize {
        self.starts[self.widths.len()]
    }

    /// Where each row begins, and where the last one ends.
    #[inline(always)]
    pub fn starts(&self) -> &[usize] {
        &self.starts
    }

    /// The rows' widths without padding.
    #[inline(always)]
    pub fn widths(&self) -> &[usize] {
        &self.widths
    }

    /// Distance between the first two rows; of all, where all have one width.
    #[inline(always)]
    pub fn stride(&self) -> usize {
        self.starts.get(1).copied().unwrap_or(0)
    }

    /// Where row `i` lies.
    #[inline(always)]
    pub fn row(&self, i: usize) -> Range<usize> {
        self.starts[i]..self.starts[i] + self.widths[i]
    }
}

/// Calls `job(rows, numbers)` once on each thread with its rows of `stride` numbers; a thread gets at least
/// `least`.
pub(crate) fn for_each_part<T: Send>(
    threads: &Threads,
    (count, stride): (usize, usize),
    data: &mut [T],
    least: usize,
    job: impl Fn(Range<usize>, &mut [T]) + Sync,
) {
    let data = Disjoint::new(data);
    // SAFETY: each row is in one range.
    threads.ranges(count, least, |_, rows| {
        job(rows.clone(), unsafe { data.get(rows.start * stride..rows.end * stride) })
    });
}

/// Calls `job(i, row)` for every row.
pub(crate) fn for_each_row<T: Send>(
    threads: &Threads,
    layout: &Layout,
    data: &mut [T],
    job: impl Fn(usize, &mut [T]) + Sync,
) {
    let (data, least) = (Disjoint::new(data), LEAST_NUMBERS / (layout.stride() + 1));
    threads.ranges(layout.count(), least, |_, rows| {
        // SAFETY: each row is in one range, and rows of a layout do not overlap.
        rows.for_each(|i| job(i, unsafe { data.get(layout.row(i)) }));
    });
}

/// Calls `job(i, rows)` for every row, with that row of each of some data of one layout.
pub(crate) fn for_each_together<T: Send, const N: usize>(
    threads: &Threads,
    layout: &Layout,
    all: [&mut [T]; N],
    job: impl Fn(usize, [&mut [T]; N]) + Sync,
) {
    let all = all.map(Disjoint::new);
    threads.ranges(layout.count(), LEAST_NUMBERS / (layout.stride() + 1), |_, rows| {
        // SAFETY: as in `for_each_row`.
        rows.for_each(|i| job(i, all.each_ref().map(|data| unsafe { data.get(layout.row(i)) })));
    });
}

/// Calls `job(thread, i, row, other row)` for every row; `others`, if there are any, are as many. A thread
/// gets at least `least` rows; where that is 1, their jobs are long, and a thread that is done with one takes
/// the next.
pub(crate) fn for_each_rows<T: Send>(
    threads: &Threads,
    least: usize,
    (layout, data): (&Layout, &mut [T]),
    others: Option<(&Layout, &mut [T])>,
    job: impl Fn(usize, usize, &mut [T], Option<&mut [T]>) + Sync,
) {
    let data = Disjoint::new(data);
    let others = others.map(|(layout, data)| (layout, Disjoint::new(data)));
    let one = |thread: usize, i: usize| {
        // SAFETY: each row is one item or in one range, and rows of a layout do not overlap.
        let other = others.as_ref().map(|(layout, data)| unsafe { data.get(layout.row(i)) });
        job(thread, i, unsafe { data.get(layout.row(i)) }, other);
    };
    match least {
        1 => threads.each(layout.count(), one),
        _ => threads.ranges(layout.count(), least, |thread, rows| rows.for_each(|i| one(thread, i))),
    }
}

/// Calls `job(part of a, part of b)` for parts that are whole groups of columns; both are as long.
pub(crate) fn update<T: Send + Sync>(
    threads: &Threads,
    a: &mut [T],
    b: &[T],
    job: impl Fn(&mut [T], &[T]) + Sync,
) {
    assert_eq!(a.len(), b.len(), "rows of different sizes");
    let a = Disjoint::new(a);
    // Cut like the rows of the other kernels, so that rows stay in their thread's cache.
    threads.ranges(b.len() / GROUP, LEAST_GROUPS, |_, r| {
        let r = r.start * GROUP..r.end * GROUP;
        // SAFETY: the ranges of different threads do not overlap.
        job(unsafe { a.get(r.clone()) }, &b[r]);
    });
}
