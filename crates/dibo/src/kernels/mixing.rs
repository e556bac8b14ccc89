//! Mixing rows over links: sums run in agent order with a plain multiply and add, never a fused one, so that
//! every machine, thread count and transport gives the same bits. Where all weights of a pulled row are
//! equal, the sum is taken first and weighted once.
use super::cpu::for_each_cpu;
use super::disjoint::{Disjoint, Source};
use super::simd::Vector;
use super::{GROUP, Real};
use std::ops::Range;

/// A group of columns.
type Group<T> = [T; GROUP];

/// Which rows flow into which: row `i` receives from `from[start[i]..start[i + 1]]`, in agent order, itself
/// included.
#[derive(Clone, Copy, Debug)]
pub struct Csr<'a> {
    /// Where each row's senders begin; one longer than the number of rows.
    pub start: &'a [u32],
    /// Senders.
    pub from: &'a [u32],
}

/// The weights of a sparse matrix.
#[derive(Clone, Copy, Debug)]
pub enum Weights<'a, T> {
    /// One number per receiving row.
    Receiver(&'a [T]),
    /// One number per sending row.
    Sender(&'a [T]),
    /// One number per entry.
    Entry(&'a [T]),
    /// The source is weighted already.
    Applied,
}

impl<T: Real> Weights<'_, T> {
    #[inline(always)]
    fn get(self, receiver: usize, sender: usize, entry: usize) -> T {
        match self {
            Weights::Receiver(w) => w[receiver],
            Weights::Sender(w) => w[sender],
            Weights::Entry(w) => w[entry],
            Weights::Applied => T::ONE,
        }
    }
}

/// The part of a mixing that one call does: receiving rows × columns, and how source and destination are laid
/// out.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Receiving rows.
    pub rows: Range<usize>,
    /// Columns, whole groups of [`GROUP`].
    pub columns: Range<usize>,
    /// Distance between rows of the destination.
    pub stride: usize,
    /// Distance between rows of the source, which begins at `columns.start`.
    pub source_stride: usize,
    /// Last row first.
    pub backwards: bool,
    /// Prefetch the columns after these, which come next, while these are worked on.
    pub prefetch: bool,
}

/// How what is received is weighed: each sender's row, their sum, or both; without a weight there is no
/// multiplication.
trait Weighing<T>: Copy {
    /// Factor of what comes over entry `e`, from row `j` to row `i`.
    fn entry(self, i: usize, j: usize, e: usize) -> Option<T>;
    /// Factor of row `i`'s sum.
    fn sum(self, i: usize) -> Option<T>;
}

/// All weights of a row are equal: the sum is weighed.
#[derive(Clone, Copy)]
struct ByReceiver<'a, T>(&'a [T]);

impl<T: Real> Weighing<T> for ByReceiver<'_, T> {
    #[inline(always)]
    fn entry(self, _i: usize, _j: usize, _e: usize) -> Option<T> {
        None
    }
    #[inline(always)]
    fn sum(self, i: usize) -> Option<T> {
        Some(self.0[i])
    }
}

/// All weights of a column are equal.
#[derive(Clone, Copy)]
struct BySender<'a, T>(&'a [T]);

impl<T: Real> Weighing<T> for BySender<'_, T> {
    #[inline(always)]
    fn entry(self, _i: usize, j: usize, _e: usize) -> Option<T> {
        Some(self.0[j])
    }
    #[inline(always)]
    fn sum(self, _i: usize) -> Option<T> {
        None
    }
}

/// Entry by entry, however the weights are stored.
#[derive(Clone, Copy)]
struct ByEntry<'a, T>(Weights<'a, T>);

impl<T: Real> Weighing<T> for ByEntry<'_, T> {
    #[inline(always)]
    fn entry(self, i: usize, j: usize, e: usize) -> Option<T> {
        Some(self.0.get(i, j, e))
    }
    #[inline(always)]
    fn sum(self, _i: usize) -> Option<T> {
        None
    }
}

/// As the weights are stored, which is asked at each.
impl<T: Real> Weighing<T> for Weights<'_, T> {
    #[inline(always)]
    fn entry(self, i: usize, j: usize, e: usize) -> Option<T> {
        (!matches!(self, Weights::Receiver(_))).then(|| self.get(i, j, e))
    }
    #[inline(always)]
    fn sum(self, i: usize) -> Option<T> {
        matches!(self, Weights::Receiver(_)).then(|| self.get(i, i, i))
    }
}

/// Weighed already.
#[derive(Clone, Copy)]
struct Weighed;

impl<T: Real> Weighing<T> for Weighed {
    #[inline(always)]
    fn entry(self, _i: usize, _j: usize, _e: usize) -> Option<T> {
        None
    }
    #[inline(always)]
    fn sum(self, _i: usize) -> Option<T> {
        None
    }
}

for_each_cpu! {
    /// `out[i] = Σ_j b_ij source[j] − minus[i]` for the rows and columns of `part`; `minus` is laid out like
    /// `out`, or empty.
    ///
    /// # Safety
    /// Parts that run at the same time do not overlap, and nobody writes the source.
    pub(super) unsafe fn push_rows<T: Real, V>(
        out: &Disjoint<'_, T>,
        part: Part,
        source: &[T],
        csr: Csr<'_>,
        b: Weights<'_, T>,
        minus: &[T],
    ) {
        // SAFETY: the caller's.
        unsafe {
            match b {
                Weights::Sender(w) => {
                    one_stack::<T, V, _, false>(out, part, source, csr, minus, BySender(w), T::ONE)
                }
                w => one_stack::<T, V, _, false>(out, part, source, csr, minus, ByEntry(w), T::ONE),
            }
        }
    }
}

for_each_cpu! {
    /// `out[i] = Σ_j a_ij source[j]` for the rows and columns of `part`, or of that and its own old row the
    /// `share` of the former. Equal weights in a row of A are applied to the sum.
    ///
    /// # Safety
    /// Parts that run at the same time do not overlap, and nobody writes the source.
    pub(super) unsafe fn pull_rows<T: Real, V>(
        out: &Disjoint<'_, T>,
        part: Part,
        source: &[T],
        csr: Csr<'_>,
        a: Weights<'_, T>,
        share: T,
    ) {
        macro_rules! pulled {
            ($soft:literal, $a:expr) => {
                // SAFETY: the caller's.
                unsafe { one_stack::<T, V, _, $soft>(out, part, source, csr, &[], $a, share) }
            };
        }
        match (a, share == T::ONE) {
            (Weights::Receiver(w), true) => pulled!(false, ByReceiver(w)),
            (Weights::Receiver(w), false) => pulled!(true, ByReceiver(w)),
            (w, true) => pulled!(false, ByEntry(w)),
            (w, false) => pulled!(true, ByEntry(w)),
        }
    }
}

for_each_cpu! {
    /// Copies the columns of `part` to the rows of a tile: v (or nothing), then t (or nothing) with `plus`
    /// (or nothing) added. If the weights are the senders' own, the copy of t is weighted with them.
    ///
    /// # Safety
    /// Nobody writes the columns of `part` meanwhile.
    pub(super) unsafe fn save_rows<T: Real, V>(
        tile: &mut [T],
        from: Pair<Option<&Disjoint<'_, T>>>,
        part: Part,
        plus: &[T],
        weights: Weights<'_, T>,
    ) {
        // SAFETY: the caller's.
        unsafe {
            match weights {
                Weights::Sender(w) => save_some::<T, V, _>(tile, from, part, plus, BySender(w)),
                _ => save_some::<T, V, _>(tile, from, part, plus, Weighed),
            }
        }
    }
}

/// A pair of stacks that are mixed over the same links: decisions v and trackers t.
#[derive(Clone, Copy)]
pub struct Pair<V> {
    /// Decisions.
    pub v: V,
    /// Trackers.
    pub t: V,
}

for_each_cpu! {
    /// `v[i] = Σ_j a_ij v[j] − η∘t[i]` and `t[i] = Σ_j b_ij t[j] − d[i]` in one walk over the neighbours, for
    /// the rows and columns of `part`. The step per column `eta` and `d` (or nothing) are laid out like the
    /// destination. Equal weights in a row of A are applied to the sum. The old t is t + `plus` (or nothing),
    /// also laid out like the destination. Where B is applied already, so is `plus`, and the destination
    /// still holds t. Where `share` is not 1, the pull gives that share of its sum and the rest of the old v.
    ///
    /// # Safety
    /// Parts that run at the same time do not overlap. Nobody else writes the source; it may be the
    /// destination, if no row reads one that is written before it.
    pub(super) unsafe fn push_pull_rows<T: Real, V>(
        out: Pair<&Disjoint<'_, T>>,
        part: Part,
        old: Pair<Source<'_, T>>,
        csr: Csr<'_>,
        a: Weights<'_, T>,
        b: Weights<'_, T>,
        eta: &[T],
        d: &[T],
        plus: &[T],
        share: T,
    ) {
        macro_rules! two_stacks {
            ($old:ident, $a:expr, $b:expr) => {
                // SAFETY: the caller's.
                unsafe {
                    two_stacks::<T, V, _, _, $old, false>(out, part, old, csr, eta, d, plus, share, $a, $b)
                }
            };
        }
        // Rare, so not compiled for each kind of weights.
        if share != T::ONE {
            macro_rules! softened {
                ($old:ident, $b:expr) => {
                    // SAFETY: the caller's.
                    unsafe {
                        two_stacks::<T, V, _, _, $old, true>(out, part, old, csr, eta, d, plus, share, a, $b)
                    }
                };
            }
            return match (b, plus.is_empty()) {
                (Weights::Applied, _) => softened!(APPLIED, Weighed),
                (_, true) => softened!(AS_IS, b),
                (_, false) => softened!(PLUS, b),
            };
        }
        match (a, b) {
            (Weights::Receiver(a), Weights::Sender(b)) if plus.is_empty() => {
                two_stacks!(AS_IS, ByReceiver(a), BySender(b))
            }
            (Weights::Receiver(a), Weights::Sender(b)) => two_stacks!(PLUS, ByReceiver(a), BySender(b)),
            (Weights::Receiver(a), Weights::Applied) => two_stacks!(APPLIED, ByReceiver(a), Weighed),
            (a, Weights::Applied) => two_stacks!(APPLIED, ByEntry(a), Weighed),
            _ if plus.is_empty() => two_stacks!(AS_IS, ByEntry(a), ByEntry(b)),
            _ => two_stacks!(PLUS, ByEntry(a), ByEntry(b)),
        }
    }
}

/// What old trackers are: t, t that lacks `plus`, or B-weighted with it.
const AS_IS: u8 = 0;
const PLUS: u8 = 1;
const APPLIED: u8 = 2;

#[inline(always)]
fn groups<T: Real, const G: usize>(from: &[T], at: usize) -> &[Group<T>; G] {
    from[at..at + G * GROUP].as_chunks().0.try_into().expect("whole groups")
}

/// Groups of columns from memory.
#[inline(always)]
fn load<T: Real, V: Vector<T, GROUP>, const G: usize>(from: &[T], at: usize) -> [V; G] {
    let from = groups::<T, G>(from, at);
    let mut out = [V::splat(T::ZERO); G];
    for g in 0..G {
        out[g] = V::load(&from[g]);
    }
    out
}

/// The same from a place that is known to be there.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // an iterator over registers was a tenth slower
unsafe fn load_at<T: Real, V: Vector<T, GROUP>, const G: usize>(from: *const T) -> [V; G] {
    let mut out = [V::splat(T::ZERO); G];
    for g in 0..G {
        out[g] = V::load(unsafe { &*from.add(g * GROUP).cast() });
    }
    out
}

/// Groups of columns to a place that is known to be there.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // as above
unsafe fn store_at<T: Real, V: Vector<T, GROUP>, const G: usize>(sum: [V; G], to: *mut T) {
    for g in 0..G {
        sum[g].store(unsafe { &mut *to.add(g * GROUP).cast() });
    }
}

/// What a row holds for its readers, v and the old t, at a place in `old` and in `plus` that are known to be
/// there.
#[inline(always)]
unsafe fn sent<T: Real, V: Vector<T, GROUP>, const G: usize, const OLD: u8>(
    old: Pair<Source<'_, T>>,
    plus: &[T],
    from: usize,
    there: usize,
) -> Pair<[V; G]> {
    unsafe {
        let t = load_at(old.t.start().add(from));
        Pair {
            v: load_at(old.v.start().add(from)),
            t: if OLD == PLUS { sum(t, load_at(plus.as_ptr().add(there))) } else { t },
        }
    }
}

/// Prefetches the group of columns at this place, which need not exist, into the second-level cache.
#[inline(always)]
fn prefetch_group<T: Real>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..size_of::<Group<T>>() / 64 {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: only a hint, which every x86-64 has.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(place.cast::<i8>().wrapping_add(64 * line)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// How many rows at this distance from each other have all columns up to `end`, in so many numbers.
fn rows_in(len: usize, stride: usize, end: usize) -> usize {
    if len < end { 0 } else { (len - end) / stride + 1 }
}

/// w·from, or from without a weight.
#[inline(always)]
fn weighted<T: Real, V: Vector<T, GROUP>, const G: usize>(w: Option<T>, mut from: [V; G]) -> [V; G] {
    if let Some(w) = w {
        for from in &mut from {
            *from = V::splat(w).mul(*from);
        }
    }
    from
}

/// own + share · (pulled − own).
#[inline(always)]
fn softened<T: Real, V: Vector<T, GROUP>, const G: usize>(
    share: T,
    mut pulled: [V; G],
    own: [V; G],
) -> [V; G] {
    for g in 0..G {
        pulled[g] = own[g].add(V::splat(share).mul(pulled[g].sub(own[g])));
    }
    pulled
}

#[inline(always)]
fn sum<T: Real, V: Vector<T, GROUP>, const G: usize>(mut a: [V; G], b: [V; G]) -> [V; G] {
    for g in 0..G {
        a[g] = a[g].add(b[g]);
    }
    a
}

#[inline(always)]
fn store<T: Real, V: Vector<T, GROUP>, const G: usize>(sum: [V; G], to: &mut [T], at: usize) {
    let to: &mut [Group<T>; G] = to[at..at + G * GROUP].as_chunks_mut().0.try_into().expect("whole groups");
    for g in 0..G {
        sum[g].store(&mut to[g]);
    }
}

/// Calls `$block::<G>` for block after block of columns, the widest first.
macro_rules! by_blocks {
    ($width:expr, $widest:expr, |$c:ident, $g:ident| $body:expr) => {{
        let mut $c = 0;
        while $c < $width {
            macro_rules! block {
                ($groups:literal) => {{
                    const $g: usize = $groups;
                    $body;
                    $c += $groups * GROUP;
                }};
            }
            match (($width - $c) / GROUP).min($widest) {
                1 => block!(1),
                2 => block!(2),
                3 => block!(3),
                _ => block!(4),
            }
        }
    }};
}

/// # Safety
/// Nobody writes the columns of `part` meanwhile.
#[inline(always)]
unsafe fn save_some<T: Real, V: Vector<T, GROUP>, W: Weighing<T>>(
    tile: &mut [T],
    from: Pair<Option<&Disjoint<'_, T>>>,
    part: Part,
    plus: &[T],
    weighing: W,
) {
    let Part { rows, columns, stride, source_stride, .. } = part;
    if columns.is_empty() {
        return;
    }
    let Pair { v, t } = from;
    let lens = [v, t].map(|stack| stack.map_or(usize::MAX, |s| s.len()));
    let lens = lens.into_iter().chain((!plus.is_empty()).then_some(plus.len()));
    // Places are checked once, not row by row.
    assert!(
        lens.map(|len| rows_in(len, stride, columns.end)).all(|count| rows.end <= count),
        "rows of the stacks"
    );
    assert!(rows.len() <= rows_in(tile.len(), source_stride, 2 * columns.len()), "rows of the tile");
    for (r, i) in rows.enumerate() {
        let to = tile[r * source_stride..].as_mut_ptr();
        by_blocks!(columns.len(), V::WIDEST, |c, G| {
            let here = i * stride + columns.start + c;
            // SAFETY: checked above; the caller promises the rest.
            unsafe {
                if let Some(v) = v {
                    store_at::<T, V, G>(load_at(v.start().add(here)), to.add(c));
                }
                if let Some(t) = t {
                    let mut sent: [V; G] = load_at(t.start().add(here));
                    if !plus.is_empty() {
                        sent = sum(sent, load_at(plus.as_ptr().add(here)));
                    }
                    store_at(weighted(weighing.entry(i, i, i), sent), to.add(columns.len() + c));
                }
            }
        });
    }
}

/// # Safety
/// Parts that run at the same time do not overlap, and nobody writes the source.
#[inline(always)]
unsafe fn one_stack<T: Real, V: Vector<T, GROUP>, W: Weighing<T>, const SOFT: bool>(
    out: &Disjoint<'_, T>,
    part: Part,
    source: &[T],
    csr: Csr<'_>,
    minus: &[T],
    weighing: W,
    share: T,
) {
    let Part { rows, columns, stride, source_stride, .. } = part;
    for i in rows {
        // SAFETY: parts that run at the same time do not overlap.
        let row = unsafe { out.get(i * stride + columns.start..i * stride + columns.end) };
        let entries = csr.start[i] as usize..csr.start[i + 1] as usize;
        let senders = &csr.from[entries.clone()];
        by_blocks!(row.len(), V::WIDEST, |c, G| {
            // Every row hears itself, so there is a first sender; the sum begins with it.
            let j = senders[0] as usize;
            let mut t: [V; G] =
                weighted(weighing.entry(i, j, entries.start), load(source, j * source_stride + c));
            for (e, j) in (entries.start + 1..entries.end).zip(&senders[1..]) {
                let j = *j as usize;
                t = sum(t, weighted(weighing.entry(i, j, e), load(source, j * source_stride + c)));
            }
            t = weighted(weighing.sum(i), t);
            if SOFT {
                t = softened(share, t, load(source, i * source_stride + c));
            }
            if !minus.is_empty() {
                let minus: [V; G] = load(minus, i * stride + columns.start + c);
                for g in 0..G {
                    t[g] = t[g].sub(minus[g]);
                }
            }
            store(t, row, c);
        });
    }
}

/// # Safety
/// Parts that run at the same time do not overlap. Nobody else writes the source; it may be the destination,
/// if no row reads one that is written before it.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn two_stacks<
    T: Real,
    V: Vector<T, GROUP>,
    A: Weighing<T>,
    B: Weighing<T>,
    const OLD: u8,
    const SOFT: bool,
>(
    out: Pair<&Disjoint<'_, T>>,
    part: Part,
    old: Pair<Source<'_, T>>,
    csr: Csr<'_>,
    eta: &[T],
    d: &[T],
    plus: &[T],
    share: T,
    a: A,
    b: B,
) {
    let Part { rows, columns, stride, source_stride, backwards, prefetch } = part;
    if columns.is_empty() {
        return;
    }
    // Places are checked here once; of the links only the sender's number is left to check.
    let here = [out.v.len(), out.t.len()]
        .into_iter()
        .chain([d.len(), plus.len()].into_iter().filter(|len| *len > 0));
    let here = here.map(|len| rows_in(len, stride, columns.end)).min().unwrap_or(0);
    let mut there = rows_in(old.v.len(), source_stride, columns.len()).min(rows_in(
        old.t.len(),
        source_stride,
        columns.len(),
    ));
    if OLD == PLUS {
        there = there.min(here);
    }
    assert!(
        rows.end <= here && (OLD == APPLIED && !SOFT || rows.end <= there) && columns.end <= eta.len(),
        "rows and columns of the stacks"
    );
    by_blocks!(columns.len(), V::WIDEST, |c, G| {
        if prefetch {
            for g in 0..G {
                prefetch_group(eta.as_ptr().wrapping_add(columns.end + c + g * GROUP));
            }
        }
        let eta: [V; G] = load(eta, columns.start + c);
        for k in 0..rows.len() {
            let i = if backwards { rows.end - 1 - k } else { rows.start + k };
            let entries = csr.start[i] as usize..csr.start[i + 1] as usize;
            let (first, others) = csr.from[entries.clone()].split_first().expect("every row hears itself");
            let j = *first as usize;
            assert!(j < there, "a sender's row");
            let (pull, push) = (a.entry(i, j, entries.start), b.entry(i, j, entries.start));
            // SAFETY, here and below: row j is there, and nobody writes it now.
            let first = unsafe {
                sent::<T, V, G, OLD>(old, plus, j * source_stride + c, j * stride + columns.start + c)
            };
            let (mut v, mut t) = (weighted(pull, first.v), weighted(push, first.t));
            for (e, j) in (entries.start + 1..entries.end).zip(others) {
                let j = *j as usize;
                assert!(j < there, "a sender's row");
                let (pull, push) = (a.entry(i, j, e), b.entry(i, j, e));
                let sent = unsafe {
                    sent::<T, V, G, OLD>(old, plus, j * source_stride + c, j * stride + columns.start + c)
                };
                (v, t) = (sum(v, weighted(pull, sent.v)), sum(t, weighted(push, sent.t)));
            }
            let here = i * stride + columns.start + c;
            // SAFETY: row i is there; parts that run at the same time do not overlap.
            unsafe {
                let mut mine: [V; G] = if OLD == APPLIED {
                    load_at(out.t.start().add(here))
                } else {
                    load_at(old.t.start().add(i * source_stride + c))
                };
                if !plus.is_empty() {
                    mine = sum(mine, load_at(plus.as_ptr().add(here)));
                }
                v = weighted(a.sum(i), v);
                if SOFT {
                    v = softened(share, v, load_at(old.v.start().add(i * source_stride + c)));
                }
                for g in 0..G {
                    v[g] = v[g].sub(eta[g].mul(mine[g]));
                }
                if !d.is_empty() {
                    let d: [V; G] = load_at(d.as_ptr().add(here));
                    for g in 0..G {
                        t[g] = t[g].sub(d[g]);
                    }
                }
                store_at(v, out.v.start().add(here));
                store_at(t, out.t.start().add(here));
                if prefetch {
                    for g in 0..G {
                        let next = here + columns.len() + g * GROUP;
                        prefetch_group(out.v.start().wrapping_add(next));
                        prefetch_group(out.t.start().wrapping_add(next));
                        prefetch_group(d.as_ptr().wrapping_add(next));
                    }
                }
            }
        }
    });
}
