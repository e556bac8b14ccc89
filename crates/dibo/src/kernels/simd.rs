//! The one layer over the CPU's registers: so many numbers at a time, named because the compiler does not
//! find them by itself for every type and shape. Every operation is lane by lane, so that it gives the bits
//! of plain arithmetic; but for the multiply-add, which is fused where the CPU can do that.

/// Lanes of the kernels that sum across them: eight `f64`.
pub(crate) const LANES: usize = 8;

/// `N` numbers in registers. Only functions compiled for, and called on, a CPU with these registers may name
/// an implementor: [`for_each_cpu`](super::cpu::for_each_cpu) sees to that.
pub trait Vector<T, const N: usize>: Copy {
    /// How many such, times a handful, a kernel keeps at once: what the CPU's registers hold. Code for more
    /// would be slow, and slow to compile.
    const WIDEST: usize;
    /// The same number in every lane.
    fn splat(x: T) -> Self;
    /// From memory.
    fn load(from: &[T; N]) -> Self;
    /// To memory.
    fn store(self, to: &mut [T; N]);
    /// Lane by lane.
    fn add(self, other: Self) -> Self;
    /// Lane by lane.
    fn sub(self, other: Self) -> Self;
    /// Lane by lane.
    fn mul(self, other: Self) -> Self;
}

/// What gradients need besides. Last bits depend on the kind of CPU; they never depend on threads.
pub(crate) trait Fused: Vector<f64, LANES> {
    /// Whether there are registers for as much of two agents at a time.
    const PAIRS: bool;
    /// self · other + sum, lane by lane.
    fn mul_add(self, other: Self, sum: Self) -> Self;
    /// The sums of the lanes of four: pairs first, then fours, then all.
    fn sums(four: [Self; 4]) -> [f64; 4];
}

impl<T: super::Real, const N: usize> Vector<T, N> for [T; N] {
    const WIDEST: usize = 1;
    #[inline(always)]
    fn splat(x: T) -> Self {
        [x; N]
    }
    #[inline(always)]
    fn load(from: &[T; N]) -> Self {
        *from
    }
    #[inline(always)]
    fn store(self, to: &mut [T; N]) {
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

impl Fused for [f64; LANES] {
    const PAIRS: bool = false;
    #[inline(always)]
    fn mul_add(self, other: Self, sum: Self) -> Self {
        std::array::from_fn(|l| self[l] * other[l] + sum[l])
    }
    #[inline(always)]
    fn sums(four: [Self; 4]) -> [f64; 4] {
        four.map(|s| ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])))
    }
}

/// A [`Vector`] as so many of the CPU's registers.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub struct Registers<R, const COUNT: usize>(pub(super) [R; COUNT]);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Fused, LANES, Registers, Vector};
    use std::arch::x86_64::*;

    /// For each register: how many of them hold how many numbers, and `WIDEST`.
    macro_rules! registers {
        (
            $t:ty, $register:ty, [$($count:literal hold $n:literal, widest $widest:literal);+],
            $splat:ident $load:ident $store:ident $add:ident $sub:ident $mul:ident
        ) => {$(
            // SAFETY of all: these are only named inside functions compiled for, and called on, CPUs with
            // these registers; and `COUNT` registers hold the numbers exactly.
            impl Vector<$t, $n> for Registers<$register, $count> {
                const WIDEST: usize = $widest;
                #[inline(always)]
                fn splat(x: $t) -> Self {
                    Registers([unsafe { $splat(x) }; $count])
                }
                #[inline(always)]
                fn load(from: &[$t; $n]) -> Self {
                    let mut out = Self::splat(0.0);
                    for i in 0..$count {
                        out.0[i] = unsafe { $load(from.as_ptr().add(i * ($n / $count))) };
                    }
                    out
                }
                #[inline(always)]
                fn store(self, to: &mut [$t; $n]) {
                    for i in 0..$count {
                        unsafe { $store(to.as_mut_ptr().add(i * ($n / $count)), self.0[i]) };
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
        )+};
    }
    registers!(
        f32, __m512, [1 hold 16, widest 4],
        _mm512_set1_ps _mm512_loadu_ps _mm512_storeu_ps _mm512_add_ps _mm512_sub_ps _mm512_mul_ps
    );
    registers!(
        f64, __m512d, [1 hold 8, widest 4; 2 hold 16, widest 4],
        _mm512_set1_pd _mm512_loadu_pd _mm512_storeu_pd _mm512_add_pd _mm512_sub_pd _mm512_mul_pd
    );
    registers!(
        f32, __m256, [2 hold 16, widest 2],
        _mm256_set1_ps _mm256_loadu_ps _mm256_storeu_ps _mm256_add_ps _mm256_sub_ps _mm256_mul_ps
    );
    // Eight in AVX2 are as many at a time as in AVX-512, or sums would have other bits.
    registers!(
        f64, __m256d, [2 hold 8, widest 4; 4 hold 16, widest 1],
        _mm256_set1_pd _mm256_loadu_pd _mm256_storeu_pd _mm256_add_pd _mm256_sub_pd _mm256_mul_pd
    );
    registers!(
        f32, __m128, [4 hold 16, widest 1],
        _mm_set1_ps _mm_loadu_ps _mm_storeu_ps _mm_add_ps _mm_sub_ps _mm_mul_ps
    );
    registers!(
        f64, __m128d, [8 hold 16, widest 1],
        _mm_set1_pd _mm_loadu_pd _mm_storeu_pd _mm_add_pd _mm_sub_pd _mm_mul_pd
    );

    // SAFETY of all: as above; these CPUs fuse, too.
    impl Fused for Registers<__m512d, 1> {
        const PAIRS: bool = true;
        #[inline(always)]
        fn mul_add(self, other: Self, sum: Self) -> Self {
            Registers([unsafe { _mm512_fmadd_pd(self.0[0], other.0[0], sum.0[0]) }])
        }
        #[inline(always)]
        fn sums([a, b, c, d]: [Self; 4]) -> [f64; 4] {
            let ([a], [b], [c], [d]) = (a.0, b.0, c.0, d.0);
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

    // SAFETY of all: as above.
    impl Fused for Registers<__m256d, 2> {
        const PAIRS: bool = false;
        #[inline(always)]
        fn mul_add(self, other: Self, sum: Self) -> Self {
            unsafe {
                Registers([
                    _mm256_fmadd_pd(self.0[0], other.0[0], sum.0[0]),
                    _mm256_fmadd_pd(self.0[1], other.0[1], sum.0[1]),
                ])
            }
        }
        #[inline(always)]
        fn sums([a, b, c, d]: [Self; 4]) -> [f64; 4] {
            unsafe {
                let low = sums_of_four(a.0[0], b.0[0], c.0[0], d.0[0]);
                let high = sums_of_four(a.0[1], b.0[1], c.0[1], d.0[1]);
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
