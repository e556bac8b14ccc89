//! The inner loops. Each is written once as plain Rust and compiled three times (AVX-512, AVX2, baseline);
//! the CPU's features are looked up at run time. Element-wise work gives the same bits at every width, and
//! mixing never sums across lanes.
use super::{Disjoint, GROUP, LANES, Real, Source};
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

/// 3 with AVX-512, 2 with AVX2 and FMA, 1 otherwise; looked up once. `DIBO_CPU=avx2` or `baseline` makes a
/// better CPU do as if it were that one, for tests.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn cpu_level() -> u8 {
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
    static LEVEL: AtomicU8 = AtomicU8::new(0);
    #[cold]
    fn look() -> u8 {
        let wide = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl");
        let wide = wide
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512bw");
        let level = if wide {
            3
        } else {
            1 + u8::from(is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"))
        };
        let level = level.min(match std::env::var("DIBO_CPU").as_deref() {
            Ok("baseline") => 1,
            Ok("avx2") => 2,
            _ => 3,
        });
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

/// Eight numbers in one register, for kernels whose shape the compiler does not see by itself. Where the CPU
/// has it, the multiply-add is fused, so last bits depend on the kind of CPU; they never depend on threads.
pub(crate) trait Eight: Copy {
    /// How many such, times a handful, a kernel keeps at once: what the CPU's registers hold. Code for more
    /// would be slow, and slow to compile.
    const WIDEST: usize;
    /// Whether they hold as much of two agents at a time.
    const PAIRS: bool;
    /// The same number eight times.
    fn splat(x: f64) -> Self;
    /// Eight numbers from memory.
    fn load(from: &[f64; LANES]) -> Self;
    /// Eight numbers to memory.
    fn store(self, to: &mut [f64; LANES]);
    /// Lane by lane.
    fn add(self, other: Self) -> Self;
    /// Lane by lane.
    fn sub(self, other: Self) -> Self;
    /// Lane by lane.
    fn mul(self, other: Self) -> Self;
    /// self · other + sum, lane by lane.
    fn mul_add(self, other: Self, sum: Self) -> Self;
    /// The sums of the lanes of four: pairs first, then fours, then all.
    fn sums(four: [Self; 4]) -> [f64; 4];
}

impl Eight for [f64; LANES] {
    const WIDEST: usize = 1;
    const PAIRS: bool = false;
    #[inline(always)]
    fn splat(x: f64) -> Self {
        [x; LANES]
    }
    #[inline(always)]
    fn load(from: &[f64; LANES]) -> Self {
        *from
    }
    #[inline(always)]
    fn store(self, to: &mut [f64; LANES]) {
        *to = self;
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        std::array::from_fn(|l| self[l] + other[l])
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        std::array::from_fn(|l| self[l] - other[l])
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        std::array::from_fn(|l| self[l] * other[l])
    }
    #[inline(always)]
    fn mul_add(self, other: Self, sum: Self) -> Self {
        std::array::from_fn(|l| self[l] * other[l] + sum[l])
    }
    #[inline(always)]
    fn sums(four: [Self; 4]) -> [f64; 4] {
        four.map(|s| ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])))
    }
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use super::{Eight, LANES};
    use std::arch::x86_64::*;

    // SAFETY of all: these are only named inside functions compiled for, and called on, CPUs with AVX-512.
    impl Eight for __m512d {
        const WIDEST: usize = 4;
        const PAIRS: bool = true;
        #[inline(always)]
        fn splat(x: f64) -> Self {
            unsafe { _mm512_set1_pd(x) }
        }
        #[inline(always)]
        fn load(from: &[f64; LANES]) -> Self {
            unsafe { _mm512_loadu_pd(from.as_ptr()) }
        }
        #[inline(always)]
        fn store(self, to: &mut [f64; LANES]) {
            unsafe { _mm512_storeu_pd(to.as_mut_ptr(), self) }
        }
        #[inline(always)]
        fn add(self, other: Self) -> Self {
            unsafe { _mm512_add_pd(self, other) }
        }
        #[inline(always)]
        fn sub(self, other: Self) -> Self {
            unsafe { _mm512_sub_pd(self, other) }
        }
        #[inline(always)]
        fn mul(self, other: Self) -> Self {
            unsafe { _mm512_mul_pd(self, other) }
        }
        #[inline(always)]
        fn mul_add(self, other: Self, sum: Self) -> Self {
            unsafe { _mm512_fmadd_pd(self, other, sum) }
        }
        #[inline(always)]
        fn sums([a, b, c, d]: [Self; 4]) -> [f64; 4] {
            unsafe {
                // Pairs of lanes, then quarters, then halves: (a a b b …) adds up to (a, b, c, d).
                let ab = _mm512_add_pd(_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
                let cd = _mm512_add_pd(_mm512_unpacklo_pd(c, d), _mm512_unpackhi_pd(c, d));
                let low = _mm512_shuffle_f64x2::<0b10_00_10_00>(ab, cd);
                let high = _mm512_shuffle_f64x2::<0b11_01_11_01>(ab, cd);
                let all = _mm512_add_pd(low, high);
                let swapped = _mm512_shuffle_f64x2::<0b10_11_00_01>(all, all);
                let mut out = [0.0; LANES];
                _mm512_storeu_pd(out.as_mut_ptr(), _mm512_add_pd(all, swapped));
                [out[0], out[1], out[4], out[5]]
            }
        }
    }

    // SAFETY of all: these are only named inside functions compiled for, and called on, CPUs with AVX2 and
    // FMA.
    impl Eight for [__m256d; 2] {
        // As above, or sums would have other bits.
        const WIDEST: usize = 4;
        const PAIRS: bool = false;
        #[inline(always)]
        fn splat(x: f64) -> Self {
            unsafe { [_mm256_set1_pd(x); 2] }
        }
        #[inline(always)]
        fn load(from: &[f64; LANES]) -> Self {
            unsafe { [_mm256_loadu_pd(from.as_ptr()), _mm256_loadu_pd(from.as_ptr().add(4))] }
        }
        #[inline(always)]
        fn store(self, to: &mut [f64; LANES]) {
            unsafe {
                _mm256_storeu_pd(to.as_mut_ptr(), self[0]);
                _mm256_storeu_pd(to.as_mut_ptr().add(4), self[1]);
            }
        }
        #[inline(always)]
        fn add(self, other: Self) -> Self {
            unsafe { [_mm256_add_pd(self[0], other[0]), _mm256_add_pd(self[1], other[1])] }
        }
        #[inline(always)]
        fn sub(self, other: Self) -> Self {
            unsafe { [_mm256_sub_pd(self[0], other[0]), _mm256_sub_pd(self[1], other[1])] }
        }
        #[inline(always)]
        fn mul(self, other: Self) -> Self {
            unsafe { [_mm256_mul_pd(self[0], other[0]), _mm256_mul_pd(self[1], other[1])] }
        }
        #[inline(always)]
        fn mul_add(self, other: Self, sum: Self) -> Self {
            unsafe {
                [_mm256_fmadd_pd(self[0], other[0], sum[0]), _mm256_fmadd_pd(self[1], other[1], sum[1])]
            }
        }
        #[inline(always)]
        fn sums([a, b, c, d]: [Self; 4]) -> [f64; 4] {
            unsafe {
                let (low, high) =
                    (sums_of_four(a[0], b[0], c[0], d[0]), sums_of_four(a[1], b[1], c[1], d[1]));
                let mut out = [0.0; 4];
                _mm256_storeu_pd(out.as_mut_ptr(), _mm256_add_pd(low, high));
                out
            }
        }
    }

    #[inline(always)]
    unsafe fn sums_of_four(a: __m256d, b: __m256d, c: __m256d, d: __m256d) -> __m256d {
        unsafe {
            // (a b a b) and (c d c d) add up to (a b c d).
            let (ab, cd) = (_mm256_hadd_pd(a, b), _mm256_hadd_pd(c, d));
            _mm256_add_pd(_mm256_permute2f128_pd::<0x20>(ab, cd), _mm256_permute2f128_pd::<0x31>(ab, cd))
        }
    }
}

/// Sixteen numbers, one [`Group`] of columns, in registers. The mixing kernels name them because the compiler
/// does not find them by itself for every type; all operations are lane by lane, so they give the same bits
/// as plain arithmetic.
pub trait Sixteen<T>: Copy {
    /// Groups of columns at a time: two sums of so many fill at most half of the CPU's registers; 1 where
    /// even that does not fit.
    const WIDEST: usize;
    /// The same number sixteen times.
    fn splat(x: T) -> Self;
    /// From memory.
    fn load(from: &Group<T>) -> Self;
    /// To memory.
    fn store(self, to: &mut Group<T>);
    /// Lane by lane.
    fn add(self, other: Self) -> Self;
    /// Lane by lane.
    fn sub(self, other: Self) -> Self;
    /// Lane by lane.
    fn mul(self, other: Self) -> Self;
}

/// A group of columns.
pub type Group<T> = [T; GROUP];

impl<T: Real> Sixteen<T> for Group<T> {
    const WIDEST: usize = 1;
    #[inline(always)]
    fn splat(x: T) -> Self {
        [x; GROUP]
    }
    #[inline(always)]
    fn load(from: &Group<T>) -> Self {
        *from
    }
    #[inline(always)]
    fn store(self, to: &mut Group<T>) {
        *to = self;
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        std::array::from_fn(|l| self[l] + other[l])
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        std::array::from_fn(|l| self[l] - other[l])
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        std::array::from_fn(|l| self[l] * other[l])
    }
}

/// [`Sixteen`] as so many of the CPU's registers.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub struct Registers<R, const N: usize>([R; N]);

#[cfg(target_arch = "x86_64")]
mod registers {
    use super::{Group, Registers, Sixteen};
    use std::arch::x86_64::*;

    macro_rules! sixteen {
        ($t:ty, $register:ty, $count:literal, $widest:literal, $splat:ident, $load:ident, $store:ident, $add:ident, $sub:ident, $mul:ident) => {
            // SAFETY of all: these are only named inside functions compiled for, and called on, CPUs with
            // these registers.
            impl Sixteen<$t> for Registers<$register, $count> {
                const WIDEST: usize = $widest;
                #[inline(always)]
                fn splat(x: $t) -> Self {
                    Registers([unsafe { $splat(x) }; $count])
                }
                #[inline(always)]
                fn load(from: &Group<$t>) -> Self {
                    let mut out = Self::splat(0.0);
                    for i in 0..$count {
                        out.0[i] = unsafe { $load(from.as_ptr().add(i * (16 / $count))) };
                    }
                    out
                }
                #[inline(always)]
                fn store(self, to: &mut Group<$t>) {
                    for i in 0..$count {
                        unsafe { $store(to.as_mut_ptr().add(i * (16 / $count)), self.0[i]) };
                    }
                }
                #[inline(always)]
                fn add(mut self, other: Self) -> Self {
                    for i in 0..$count {
                        self.0[i] = unsafe { $add(self.0[i], other.0[i]) };
                    }
                    self
                }
                #[inline(always)]
                fn sub(mut self, other: Self) -> Self {
                    for i in 0..$count {
                        self.0[i] = unsafe { $sub(self.0[i], other.0[i]) };
                    }
                    self
                }
                #[inline(always)]
                fn mul(mut self, other: Self) -> Self {
                    for i in 0..$count {
                        self.0[i] = unsafe { $mul(self.0[i], other.0[i]) };
                    }
                    self
                }
            }
        };
    }
    sixteen!(
        f32,
        __m512,
        1,
        4,
        _mm512_set1_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_add_ps,
        _mm512_sub_ps,
        _mm512_mul_ps
    );
    sixteen!(
        f64,
        __m512d,
        2,
        4,
        _mm512_set1_pd,
        _mm512_loadu_pd,
        _mm512_storeu_pd,
        _mm512_add_pd,
        _mm512_sub_pd,
        _mm512_mul_pd
    );
    sixteen!(
        f32,
        __m256,
        2,
        2,
        _mm256_set1_ps,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        _mm256_add_ps,
        _mm256_sub_ps,
        _mm256_mul_ps
    );
    sixteen!(
        f64,
        __m256d,
        4,
        1,
        _mm256_set1_pd,
        _mm256_loadu_pd,
        _mm256_storeu_pd,
        _mm256_add_pd,
        _mm256_sub_pd,
        _mm256_mul_pd
    );
    sixteen!(f32, __m128, 4, 1, _mm_set1_ps, _mm_loadu_ps, _mm_storeu_ps, _mm_add_ps, _mm_sub_ps, _mm_mul_ps);
    sixteen!(
        f64,
        __m128d,
        8,
        1,
        _mm_set1_pd,
        _mm_loadu_pd,
        _mm_storeu_pd,
        _mm_add_pd,
        _mm_sub_pd,
        _mm_mul_pd
    );
}

/// Like `for_each_cpu`, for kernels that name their registers `V`.
macro_rules! for_each_register {
    ($(#[$meta:meta])* $vis:vis fn $name:ident<$t:ident : Real, $v:ident>($($arg:ident : $ty:ty),* $(,)?) $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name<$t: Real>($($arg: $ty),*) {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn body<$t: Real, $v: Sixteen<$t>>($($arg: $ty),*) $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2")]
                #[allow(clippy::too_many_arguments)]
                fn avx512<$t: Real>($($arg: $ty),*) { body::<$t, $t::Avx512>($($arg),*) }
                #[target_feature(enable = "avx2")]
                #[allow(clippy::too_many_arguments)]
                fn avx2<$t: Real>($($arg: $ty),*) { body::<$t, $t::Avx2>($($arg),*) }
                // SAFETY: the CPU has the features of its level.
                match $crate::rows::cpu_level() {
                    3 => return unsafe { avx512::<$t>($($arg),*) },
                    2 => return unsafe { avx2::<$t>($($arg),*) },
                    _ => return body::<$t, $t::Sse2>($($arg),*),
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            body::<$t, Group<$t>>($($arg),*)
        }
    };
}

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
pub struct Part {
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
    /// Ask for the columns after these, which come next, while these are worked on.
    pub ahead: bool,
}

for_each_register! {
    /// `out[i] = Σ_j b_ij source[j] − minus[i]` for the rows and columns of `part`; `minus` is laid out like
    /// `out`, or empty. Parts that run at the same time must not overlap.
    pub fn push_rows<T: Real, V>(out: &Disjoint<T>, part: Part, source: &[T], csr: Csr<'_>, weights: Weights<'_, T>, minus: &[T]) {
        match weights {
            Weights::Sender(w) => push_some::<T, V>(out, part, source, csr, minus, #[inline(always)] |_, j, _| w[j]),
            w => push_some::<T, V>(out, part, source, csr, minus, #[inline(always)] |i, j, e| w.get(i, j, e)),
        }
    }
}

for_each_register! {
    /// Copies the columns of `part` to the rows of a panel: v (or nothing), then t with `plus` (or nothing)
    /// added. If the weights are the senders' own, the copy of t is weighted with them.
    pub fn save_rows<T: Real, V>(panel: &mut [T], v: Option<&Disjoint<T>>, t: &Disjoint<T>, part: Part, plus: &[T], weights: Weights<'_, T>) {
        match weights {
            Weights::Sender(w) => save_some::<T, V>(panel, v, t, part, plus, #[inline(always)] |i| Some(w[i])),
            _ => save_some::<T, V>(panel, v, t, part, plus, #[inline(always)] |_| None),
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

for_each_register! {
    /// `v[i] = Σ_j a_ij v[j] − η∘t[i]` and `t[i] = Σ_j b_ij t[j] − d[i]` in one walk over the neighbours, for
    /// the rows and columns of `part`. The step per column `eta` and `d` (or nothing) are laid out like the
    /// destination. Equal weights in a row of A are applied to the sum. The old t is t + `plus` (or nothing),
    /// also laid out like the destination. Where B is applied already, so is `plus`, and the destination
    /// still holds t. The source may be the destination, if no row reads one that is written before it.
    pub fn push_pull_rows<T: Real, V>(out: Pair<&Disjoint<T>>, part: Part, old: Pair<Source<'_, T>>, csr: Csr<'_>, a: Weights<'_, T>, b: Weights<'_, T>, eta: &[T], d: &[T], plus: &[T]) {
        match (a, b) {
            (Weights::Receiver(a), Weights::Sender(b)) if plus.is_empty() => push_pull_some::<T, V, ASIS>(out, part, old, csr, eta, d, plus, #[inline(always)] |i| Some(a[i]), #[inline(always)] |_, j, _| (None, Some(b[j]))),
            (Weights::Receiver(a), Weights::Sender(b)) => push_pull_some::<T, V, PLUS>(out, part, old, csr, eta, d, plus, #[inline(always)] |i| Some(a[i]), #[inline(always)] |_, j, _| (None, Some(b[j]))),
            (Weights::Receiver(a), Weights::Applied) => push_pull_some::<T, V, APPLIED>(out, part, old, csr, eta, d, plus, #[inline(always)] |i| Some(a[i]), #[inline(always)] |_, _, _| (None, None)),
            (a, Weights::Applied) => push_pull_some::<T, V, APPLIED>(out, part, old, csr, eta, d, plus, #[inline(always)] |_| None, #[inline(always)] |i, j, e| (Some(a.get(i, j, e)), None)),
            _ if plus.is_empty() => push_pull_some::<T, V, ASIS>(out, part, old, csr, eta, d, plus, #[inline(always)] |_| None, #[inline(always)] |i, j, e| (Some(a.get(i, j, e)), Some(b.get(i, j, e)))),
            _ => push_pull_some::<T, V, PLUS>(out, part, old, csr, eta, d, plus, #[inline(always)] |_| None, #[inline(always)] |i, j, e| (Some(a.get(i, j, e)), Some(b.get(i, j, e)))),
        }
    }
}

/// What old trackers are: t, t that lacks `plus`, or B-weighted with it.
const ASIS: u8 = 0;
const PLUS: u8 = 1;
const APPLIED: u8 = 2;

#[inline(always)]
fn groups<T: Real, const G: usize>(from: &[T], at: usize) -> &[Group<T>; G] {
    from[at..at + G * GROUP].as_chunks().0.try_into().expect("whole groups")
}

/// Groups of columns from memory.
#[inline(always)]
fn load<T: Real, V: Sixteen<T>, const G: usize>(from: &[T], at: usize) -> [V; G] {
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
unsafe fn load_at<T: Real, V: Sixteen<T>, const G: usize>(from: *const T) -> [V; G] {
    let mut out = [V::splat(T::ZERO); G];
    for g in 0..G {
        out[g] = V::load(unsafe { &*from.add(g * GROUP).cast() });
    }
    out
}

/// Groups of columns to a place that is known to be there.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // as above
unsafe fn store_at<T: Real, V: Sixteen<T>, const G: usize>(sum: [V; G], to: *mut T) {
    for g in 0..G {
        sum[g].store(unsafe { &mut *to.add(g * GROUP).cast() });
    }
}

/// What a row holds for its readers, v and the old t, at a place in `old` and in `plus` that are known to be
/// there.
#[inline(always)]
unsafe fn sent<T: Real, V: Sixteen<T>, const G: usize, const OLD: u8>(
    old: Pair<Source<'_, T>>,
    plus: &[T],
    from: usize,
    there: usize,
) -> Pair<[V; G]> {
    unsafe {
        let t = load_at(old.t.start.add(from));
        Pair {
            v: load_at(old.v.start.add(from)),
            t: if OLD == PLUS { sum(t, load_at(plus.as_ptr().add(there))) } else { t },
        }
    }
}

/// Asks for the group of columns at this place, which need not exist, from memory into the second-level
/// cache.
#[inline(always)]
fn prefetch<T: Real>(place: *const T) {
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
fn weighted<T: Real, V: Sixteen<T>, const G: usize>(w: Option<T>, mut from: [V; G]) -> [V; G] {
    if let Some(w) = w {
        for from in &mut from {
            *from = V::splat(w).mul(*from);
        }
    }
    from
}

#[inline(always)]
fn sum<T: Real, V: Sixteen<T>, const G: usize>(mut a: [V; G], b: [V; G]) -> [V; G] {
    for g in 0..G {
        a[g] = a[g].add(b[g]);
    }
    a
}

#[inline(always)]
fn store<T: Real, V: Sixteen<T>, const G: usize>(sum: [V; G], to: &mut [T], at: usize) {
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

#[inline(always)]
fn save_some<T: Real, V: Sixteen<T>>(
    panel: &mut [T],
    v: Option<&Disjoint<T>>,
    t: &Disjoint<T>,
    part: Part,
    plus: &[T],
    weight: impl Fn(usize) -> Option<T> + Copy,
) {
    let Part { rows, columns, stride, source_stride, .. } = part;
    if columns.is_empty() {
        return;
    }
    let lens =
        [t.len, v.map_or(usize::MAX, |v| v.len), if plus.is_empty() { usize::MAX } else { plus.len() }];
    // Places are checked once, not row by row.
    assert!(lens.iter().all(|len| rows.end <= rows_in(*len, stride, columns.end)), "rows of the stacks");
    assert!(rows.len() <= rows_in(panel.len(), source_stride, 2 * columns.len()), "rows of the panel");
    for (r, i) in rows.enumerate() {
        let to = panel[r * source_stride..].as_mut_ptr();
        by_blocks!(columns.len(), V::WIDEST, |c, G| {
            let here = i * stride + columns.start + c;
            // SAFETY: checked above; parts that are used at the same time do not overlap.
            unsafe {
                if let Some(v) = v {
                    store_at::<T, V, G>(load_at(v.start.add(here)), to.add(c));
                }
                let mut sent: [V; G] = load_at(t.start.add(here));
                if !plus.is_empty() {
                    sent = sum(sent, load_at(plus.as_ptr().add(here)));
                }
                store_at(weighted(weight(i), sent), to.add(columns.len() + c));
            }
        });
    }
}

#[inline(always)]
fn push_some<T: Real, V: Sixteen<T>>(
    out: &Disjoint<T>,
    part: Part,
    source: &[T],
    csr: Csr<'_>,
    minus: &[T],
    weight: impl Fn(usize, usize, usize) -> T + Copy,
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
                weighted(Some(weight(i, j, entries.start)), load(source, j * source_stride + c));
            for (e, j) in (entries.start + 1..entries.end).zip(&senders[1..]) {
                let j = *j as usize;
                t = sum(t, weighted(Some(weight(i, j, e)), load(source, j * source_stride + c)));
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

#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn push_pull_some<T: Real, V: Sixteen<T>, const OLD: u8>(
    out: Pair<&Disjoint<T>>,
    part: Part,
    old: Pair<Source<'_, T>>,
    csr: Csr<'_>,
    eta: &[T],
    d: &[T],
    plus: &[T],
    of_row: impl Fn(usize) -> Option<T> + Copy,
    of_entry: impl Fn(usize, usize, usize) -> (Option<T>, Option<T>) + Copy,
) {
    let Part { rows, columns, stride, source_stride, backwards, ahead } = part;
    if columns.is_empty() {
        return;
    }
    // Places are checked here once; of the links only the sender's number is left to check.
    let here =
        [out.v.len, out.t.len].into_iter().chain([d.len(), plus.len()].into_iter().filter(|len| *len > 0));
    let here = here.map(|len| rows_in(len, stride, columns.end)).min().unwrap_or(0);
    let mut there = rows_in(old.v.len, source_stride, columns.len()).min(rows_in(
        old.t.len,
        source_stride,
        columns.len(),
    ));
    if OLD == PLUS {
        there = there.min(here);
    }
    assert!(
        rows.end <= here && (OLD == APPLIED || rows.end <= there) && columns.end <= eta.len(),
        "rows and columns of the stacks"
    );
    by_blocks!(columns.len(), V::WIDEST, |c, G| {
        if ahead {
            for g in 0..G {
                prefetch(eta.as_ptr().wrapping_add(columns.end + c + g * GROUP));
            }
        }
        let eta: [V; G] = load(eta, columns.start + c);
        for k in 0..rows.len() {
            let i = if backwards { rows.end - 1 - k } else { rows.start + k };
            let entries = csr.start[i] as usize..csr.start[i + 1] as usize;
            let (first, others) = csr.from[entries.clone()].split_first().expect("every row hears itself");
            let j = *first as usize;
            assert!(j < there, "a sender's row");
            let (a, b) = of_entry(i, j, entries.start);
            // SAFETY, here and below: row j is there, and nobody writes it now.
            let first = unsafe {
                sent::<T, V, G, OLD>(old, plus, j * source_stride + c, j * stride + columns.start + c)
            };
            let (mut v, mut t) = (weighted(a, first.v), weighted(b, first.t));
            for (e, j) in (entries.start + 1..entries.end).zip(others) {
                let j = *j as usize;
                assert!(j < there, "a sender's row");
                let (a, b) = of_entry(i, j, e);
                let sent = unsafe {
                    sent::<T, V, G, OLD>(old, plus, j * source_stride + c, j * stride + columns.start + c)
                };
                (v, t) = (sum(v, weighted(a, sent.v)), sum(t, weighted(b, sent.t)));
            }
            let here = i * stride + columns.start + c;
            // SAFETY: row i is there; parts that run at the same time do not overlap.
            unsafe {
                let mut mine: [V; G] = if OLD == APPLIED {
                    load_at(out.t.start.add(here))
                } else {
                    load_at(old.t.start.add(i * source_stride + c))
                };
                if !plus.is_empty() {
                    mine = sum(mine, load_at(plus.as_ptr().add(here)));
                }
                v = weighted(of_row(i), v);
                for g in 0..G {
                    v[g] = v[g].sub(eta[g].mul(mine[g]));
                }
                if !d.is_empty() {
                    let d: [V; G] = load_at(d.as_ptr().add(here));
                    for g in 0..G {
                        t[g] = t[g].sub(d[g]);
                    }
                }
                store_at(v, out.v.start.add(here));
                store_at(t, out.t.start.add(here));
                if ahead {
                    for g in 0..G {
                        let next = here + columns.len() + g * GROUP;
                        prefetch(out.v.start.wrapping_add(next));
                        prefetch(out.t.start.wrapping_add(next));
                        prefetch(d.as_ptr().wrapping_add(next));
                    }
                }
            }
        }
    });
}
