//! The numbers that kernels work on.
use super::simd;
use std::fmt::Debug;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub, SubAssign};

/// `f32` or `f64`.
pub trait Real:
    Copy
    + Default
    + Debug
    + PartialOrd
    + Send
    + Sync
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + serde::Serialize
    + serde::de::DeserializeOwned
    + super::Mixes
    + 'static
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Rounds to this type.
    fn of(x: f64) -> Self;
    /// A byte's number.
    fn byte(x: u8) -> Self;
    /// Widens to `f64`.
    fn f64(self) -> f64;
    /// Sixteen of them in AVX-512's registers.
    #[cfg(target_arch = "x86_64")]
    type Avx512: simd::Vector<Self, GROUP>;
    /// Sixteen of them in AVX2's registers.
    #[cfg(target_arch = "x86_64")]
    type Avx2: simd::Vector<Self, GROUP>;
    /// Sixteen of them in the registers that every 64-bit x86 has.
    #[cfg(target_arch = "x86_64")]
    type Sse2: simd::Vector<Self, GROUP>;
    /// Adds the numbers to `bytes`, little-endian.
    fn to_bytes(numbers: &[Self], bytes: &mut Vec<u8>);
    /// Reads numbers that [`to_bytes`](Self::to_bytes) wrote; `bytes` must be as long as they are.
    fn from_bytes(bytes: &[u8], numbers: &mut [Self]);
}

macro_rules! real {
    ($t:ty, $avx512:ty, $avx2:ty, $sse2:ty) => {
        impl Real for $t {
            #[cfg(target_arch = "x86_64")]
            type Avx512 = $avx512;
            #[cfg(target_arch = "x86_64")]
            type Avx2 = $avx2;
            #[cfg(target_arch = "x86_64")]
            type Sse2 = $sse2;
            const ZERO: $t = 0.0;
            const ONE: $t = 1.0;
            fn of(x: f64) -> $t {
                x as $t
            }
            fn byte(x: u8) -> $t {
                x.into()
            }
            fn f64(self) -> f64 {
                self as f64
            }
            fn to_bytes(numbers: &[$t], bytes: &mut Vec<u8>) {
                let at = bytes.len();
                bytes.resize(at + size_of_val(numbers), 0);
                bytes[at..].as_chunks_mut().0.iter_mut().zip(numbers).for_each(|(b, x)| *b = x.to_le_bytes());
            }
            fn from_bytes(bytes: &[u8], numbers: &mut [$t]) {
                assert_eq!(bytes.len(), size_of_val(numbers), "as many bytes as the numbers have");
                numbers.iter_mut().zip(bytes.as_chunks().0).for_each(|(x, b)| *x = <$t>::from_le_bytes(*b));
            }
        }
    };
}
real!(
    f32,
    simd::Registers<std::arch::x86_64::__m512, 1>,
    simd::Registers<std::arch::x86_64::__m256, 2>,
    simd::Registers<std::arch::x86_64::__m128, 4>
);
real!(
    f64,
    simd::Registers<std::arch::x86_64::__m512d, 2>,
    simd::Registers<std::arch::x86_64::__m256d, 4>,
    simd::Registers<std::arch::x86_64::__m128d, 8>
);

/// Columns by which every row is padded and mixing is cut.
pub const GROUP: usize = 16;
