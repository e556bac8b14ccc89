//! The inner loops. Each is written once as plain Rust and compiled three times (AVX-512, AVX2, baseline); the CPU's features are
//! looked up at run time. Element-wise work gives the same bits at every width, and nothing here sums across lanes.
use super::{LANES, Real};

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
                fn avx512<$t: Real>($($arg: $ty),*) { body($($arg),*) }
                #[target_feature(enable = "avx2")]
                #[allow(clippy::too_many_arguments)]
                fn avx2<$t: Real>($($arg: $ty),*) { body($($arg),*) }
                if $crate::rows::kernels::has_avx512() {
                    // SAFETY: the CPU has these features.
                    return unsafe { avx512($($arg),*) };
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: the CPU has this feature.
                    return unsafe { avx2($($arg),*) };
                }
            }
            body($($arg),*)
        }
    };
}
pub(crate) use for_each_cpu;

#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn has_avx512() -> bool {
    // The standard library caches the answer.
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512bw")
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

/// What is subtracted from a mixed row: `columns ∘ rows` or `rows`; `rows` is laid out like the destination.
#[derive(Clone, Copy, Debug)]
pub enum Minus<'a, T> {
    /// Nothing.
    Nothing,
    /// These rows.
    Rows(&'a [T]),
    /// Each column of these rows times a number.
    Scaled(&'a [T], &'a [T]),
}

for_each_cpu! {
    /// `out[i] = Σ_j w_ij src[j] − minus[i]` for the receiving rows `first, first + 1, …` that `out` holds. All have one stride.
    pub fn mix_rows<T: Real>(out: &mut [T], first: usize, src: &[T], stride: usize, csr: Csr<'_>, weights: Weights<'_, T>, minus: Minus<'_, T>) {
        let layout = Layout { first, stride, csr };
        match weights {
            Weights::Receiver(w) => mix_all(out, src, layout, minus, #[inline(always)] |i, _, _| w[i]),
            Weights::Sender(w) => mix_all(out, src, layout, minus, #[inline(always)] |_, j, _| w[j]),
            Weights::Entry(w) => mix_all(out, src, layout, minus, #[inline(always)] |_, _, e| w[e]),
        }
    }
}

#[derive(Clone, Copy)]
struct Layout<'a> {
    first: usize,
    stride: usize,
    csr: Csr<'a>,
}

#[inline(always)]
fn mix_all<T: Real>(out: &mut [T], src: &[T], l: Layout<'_>, minus: Minus<'_, T>, weight: impl Fn(usize, usize, usize) -> T + Copy) {
    match minus {
        Minus::Nothing => mix_some(out, src, l, weight, #[inline(always)] |acc, _, _| acc),
        Minus::Rows(d) => mix_some(out, src, l, weight, #[inline(always)] |acc, at, _| sub(acc, load(d, at))),
        Minus::Scaled(eta, t) => mix_some(out, src, l, weight, #[inline(always)] |acc, at, c| sub(acc, mul(load(eta, c), load(t, at)))),
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
    out: &mut [T],
    src: &[T],
    l: Layout<'_>,
    weight: impl Fn(usize, usize, usize) -> T + Copy,
    finish: impl Fn(Group<T>, usize, usize) -> Group<T> + Copy,
) {
    for (i, row) in out.chunks_exact_mut(l.stride).enumerate() {
        let i = l.first + i;
        let entries = l.csr.start[i] as usize..l.csr.start[i + 1] as usize;
        let senders = &l.csr.from[entries.clone()];
        let mut c = 0;
        while c < l.stride {
            // The sums of a block of columns stay in registers over all neighbours.
            macro_rules! block {
                ($groups:literal) => {{
                    let mut acc = [[T::ZERO; LANES]; $groups];
                    for (j, e) in senders.iter().zip(entries.clone()) {
                        let j = *j as usize;
                        let w = weight(i, j, e);
                        let from: &[Group<T>; $groups] = src[j * l.stride + c..].as_chunks().0.first_chunk().expect("whole groups");
                        for g in 0..$groups {
                            for lane in 0..LANES {
                                acc[g][lane] += w * from[g][lane];
                            }
                        }
                    }
                    for g in 0..$groups {
                        let done = finish(acc[g], i * l.stride + c + g * LANES, c + g * LANES);
                        row[c + g * LANES..][..LANES].copy_from_slice(&done);
                    }
                    c += $groups * LANES;
                }};
            }
            match (l.stride - c) / LANES {
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
