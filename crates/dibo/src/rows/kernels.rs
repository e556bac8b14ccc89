//! The inner loops. Each is written once as plain Rust and compiled three times (AVX-512, AVX2, baseline); the CPU's features are
//! looked up at run time. Element-wise work gives the same bits at every width, and nothing here sums across lanes.
use super::{Disjoint, LANES, Real};
use std::ops::Range;

/// Compiles a function for several instruction sets and calls the best one that this CPU has.
macro_rules! for_each_cpu {
    ($(#[$meta:meta])* $vis:vis fn $name:ident<$t:ident : Real>($($arg:ident : $ty:ty),* $(,)?) $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name<$t: Real>($($arg: $ty),*) {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn body<$t: Real>($($arg: $ty),*) $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2")]
                #[allow(clippy::too_many_arguments)]
                fn avx512<$t: Real>($($arg: $ty),*) { body::<$t>($($arg),*) }
                #[target_feature(enable = "avx2")]
                #[allow(clippy::too_many_arguments)]
                fn avx2<$t: Real>($($arg: $ty),*) { body::<$t>($($arg),*) }
                // SAFETY: the CPU has the features of its level.
                match $crate::rows::cpu_level() {
                    3 => return unsafe { avx512::<$t>($($arg),*) },
                    2 => return unsafe { avx2::<$t>($($arg),*) },
                    _ => {}
                }
            }
            body::<$t>($($arg),*)
        }
    };
}
pub(crate) use for_each_cpu;

/// 3 with AVX-512, 2 with AVX2, 1 otherwise; looked up once.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn cpu_level() -> u8 {
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
    static LEVEL: AtomicU8 = AtomicU8::new(0);
    #[cold]
    fn look() -> u8 {
        let wide = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl");
        let wide = wide && is_x86_feature_detected!("avx512dq") && is_x86_feature_detected!("avx512bw");
        let level = if wide { 3 } else { 1 + u8::from(is_x86_feature_detected!("avx2")) };
        LEVEL.store(level, Relaxed);
        level
    }
    match LEVEL.load(Relaxed) {
        0 => look(),
        level => level,
    }
}

for_each_cpu! {
    /// `a += b`.
    pub fn add<T: Real>(a: &mut [T], b: &[T]) {
        for (a, b) in a.iter_mut().zip(b) {
            *a += *b;
        }
    }
}

for_each_cpu! {
    /// `a += s·b`.
    pub fn add_scaled<T: Real>(a: &mut [T], s: T, b: &[T]) {
        for (a, b) in a.iter_mut().zip(b) {
            *a += s * *b;
        }
    }
}

for_each_cpu! {
    /// `a = s·(b − a)`.
    pub fn scale_difference<T: Real>(a: &mut [T], s: T, b: &[T]) {
        for (a, b) in a.iter_mut().zip(b) {
            *a = s * (*b - *a);
        }
    }
}

for_each_cpu! {
    /// `a −= s∘b`.
    pub fn sub_scaled<T: Real>(a: &mut [T], s: &[T], b: &[T]) {
        for ((a, s), b) in a.iter_mut().zip(s).zip(b) {
            *a -= *s * *b;
        }
    }
}

for_each_cpu! {
    /// `a = b / w`.
    pub fn divide<T: Real>(a: &mut [T], b: &[T], w: T) {
        for (a, b) in a.iter_mut().zip(b) {
            *a = *b / w;
        }
    }
}

/// Which rows flow into which: row `i` receives from `from[start[i]..start[i + 1]]`, in agent order, itself included.
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
}

/// What is subtracted from a mixed row.
#[derive(Clone, Copy, Debug)]
pub enum Minus<'a, T> {
    /// Nothing.
    Nothing,
    /// These rows, laid out like the destination.
    Rows(&'a [T]),
    /// A number per column times these rows, laid out like the source.
    Scaled(&'a [T], &'a [T]),
}

/// The part of a mixing that one call does: receiving rows × columns, and how source and destination are laid out.
#[derive(Clone, Debug)]
pub struct Part {
    /// Receiving rows.
    pub rows: Range<usize>,
    /// Columns, whole groups of [`LANES`].
    pub columns: Range<usize>,
    /// Distance between rows of the destination.
    pub stride: usize,
    /// Distance between rows of the source, which begins at `columns.start`.
    pub source_stride: usize,
}

for_each_cpu! {
    /// `out[i] = Σ_j w_ij source[j] − minus[i]` for the rows and columns of `part`. Parts that run at the same time must not overlap.
    pub fn mix_rows<T: Real>(out: &Disjoint<T>, part: Part, source: &[T], csr: Csr<'_>, weights: Weights<'_, T>, minus: Minus<'_, T>) {
        match weights {
            Weights::Receiver(w) => mix_all(out, part, source, csr, minus, #[inline(always)] |i, _, _| w[i]),
            Weights::Sender(w) => mix_all(out, part, source, csr, minus, #[inline(always)] |_, j, _| w[j]),
            Weights::Entry(w) => mix_all(out, part, source, csr, minus, #[inline(always)] |_, _, e| w[e]),
        }
    }
}

#[inline(always)]
fn mix_all<T: Real>(
    out: &Disjoint<T>,
    part: Part,
    source: &[T],
    csr: Csr<'_>,
    minus: Minus<'_, T>,
    weight: impl Fn(usize, usize, usize) -> T + Copy,
) {
    match minus {
        Minus::Nothing => mix_some(out, part, source, csr, weight, #[inline(always)] |acc, _, _, _| acc),
        Minus::Rows(d) => mix_some(out, part, source, csr, weight, #[inline(always)] |acc, at, _, _| sub(acc, load(d, at))),
        Minus::Scaled(eta, t) => {
            mix_some(out, part, source, csr, weight, #[inline(always)] |acc, _, at, c| sub(acc, mul(load(eta, c), load(t, at))))
        }
    }
}

/// A group of lanes: what the compiler keeps in one register.
type Group<T> = [T; LANES];

#[inline(always)]
fn load<T: Real>(from: &[T], at: usize) -> Group<T> {
    *from[at..].first_chunk().expect("rows are padded to whole groups")
}

#[inline(always)]
fn sub<T: Real>(a: Group<T>, b: Group<T>) -> Group<T> {
    std::array::from_fn(|l| a[l] - b[l])
}

#[inline(always)]
fn mul<T: Real>(a: Group<T>, b: Group<T>) -> Group<T> {
    std::array::from_fn(|l| a[l] * b[l])
}

#[inline(always)]
fn mix_some<T: Real>(
    out: &Disjoint<T>,
    part: Part,
    source: &[T],
    csr: Csr<'_>,
    weight: impl Fn(usize, usize, usize) -> T + Copy,
    finish: impl Fn(Group<T>, usize, usize, usize) -> Group<T> + Copy,
) {
    let Part { rows, columns, stride, source_stride } = part;
    for i in rows {
        // SAFETY: parts that run at the same time do not overlap.
        let row = unsafe { out.get(i * stride + columns.start..i * stride + columns.end) };
        let entries = csr.start[i] as usize..csr.start[i + 1] as usize;
        let senders = &csr.from[entries.clone()];
        let mut c = 0;
        while c < row.len() {
            // The sums of a block of columns stay in registers over all neighbours.
            macro_rules! block {
                ($groups:literal) => {{
                    let mut acc = [[T::ZERO; LANES]; $groups];
                    for (j, e) in senders.iter().zip(entries.clone()) {
                        let j = *j as usize;
                        let w = weight(i, j, e);
                        let at = j * source_stride + c;
                        let from: &[Group<T>; $groups] = source[at..at + $groups * LANES].as_chunks().0.as_array().expect("whole groups");
                        for g in 0..$groups {
                            for lane in 0..LANES {
                                acc[g][lane] += w * from[g][lane];
                            }
                        }
                    }
                    for g in 0..$groups {
                        let column = columns.start + c + g * LANES;
                        let done = finish(acc[g], i * stride + column, i * source_stride + c + g * LANES, column);
                        row[c + g * LANES..][..LANES].copy_from_slice(&done);
                    }
                    c += $groups * LANES;
                }};
            }
            match (row.len() - c) / LANES {
                1 => block!(1),
                2 => block!(2),
                3 => block!(3),
                4 => block!(4),
                5 => block!(5),
                6 => block!(6),
                7 => block!(7),
                _ => block!(8),
            }
        }
    }
}
