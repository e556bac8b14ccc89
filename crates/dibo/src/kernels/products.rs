//! Matrix products, by the kernels of the GEMM crate.
use super::Real;
#[cfg(target_arch = "x86_64")]
use super::tuning::{BAND, DEPTH};
use std::any::TypeId;
#[cfg(target_arch = "x86_64")]
use std::ops::Range;

/// Where the last element of a matrix lies.
fn last(rows: usize, columns: usize, rs: usize, cs: usize) -> usize {
    (rows - 1) * rs + (columns - 1) * cs
}

/// A matrix in a slice: element (i, j) lies at i · rows + j · columns.
pub type Matrix<'a, T> = (&'a [T], usize, usize);

/// dst (+)= a · b for (m × k) · (k × n).
pub fn product<T: Real>(
    (m, n, k): (usize, usize, usize),
    dst: (&mut [T], usize, usize),
    add: bool,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
) {
    if m == 0 || n == 0 || k == 0 {
        return;
    }
    assert!(
        last(m, n, dst.1, dst.2) < dst.0.len()
            && last(m, k, a.1, a.2) < a.0.len()
            && last(k, n, b.1, b.2) < b.0.len()
    );
    // The kernels want the destination by columns: of a destination by rows they get the transposed product.
    let (m, n, dst, a, b) = if dst.2 < dst.1 {
        (n, m, (dst.0, dst.2, dst.1), (b.0, b.2, b.1), (a.0, a.2, a.1))
    } else {
        (m, n, dst, a, b)
    };
    macro_rules! call {
        ($kernel:path, $t:ty) => {
            // SAFETY: all elements lie inside their slices (asserted), `dst` is borrowed alone, and T is this
            // type (looked up below).
            unsafe {
                $kernel()(
                    m,
                    n,
                    k,
                    dst.0.as_mut_ptr().cast::<$t>(),
                    dst.2 as isize,
                    dst.1 as isize,
                    add,
                    a.0.as_ptr().cast::<$t>(),
                    a.2 as isize,
                    a.1 as isize,
                    b.0.as_ptr().cast::<$t>(),
                    b.2 as isize,
                    b.1 as isize,
                    1.0,
                    1.0,
                    false,
                    false,
                    false,
                    gemm_common::Parallelism::None,
                )
            }
        };
    }
    if TypeId::of::<T>() == TypeId::of::<f32>() {
        call!(gemm_f32::gemm::f32::get_gemm_fn, f32)
    } else {
        assert_eq!(TypeId::of::<T>(), TypeId::of::<f64>(), "numbers are f32 or f64");
        call!(gemm_f64::gemm::f64::get_gemm_fn, f64)
    }
}

/// `dst (+)= a · b`, where `dst` and `b` are by rows: [`product`] without the copies that the GEMM crate
/// makes of large operands. They are meant for matrices of thousands of rows; of a batch they are a tenth of
/// the work. Where the crate's kernel does not fit, it is [`product`].
pub(crate) fn product_in_place<T: Real>(
    size: (usize, usize, usize),
    dst: (&mut [T], usize),
    add: bool,
    a: Matrix<'_, T>,
    b: (&[T], usize),
) {
    let (m, n, k) = size;
    if m == 0 || n == 0 || k == 0 {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if TypeId::of::<T>() == TypeId::of::<f32>() && super::cpu::level() == 3 && n % 16 == 0 {
        assert!(
            last(m, n, dst.1, 1) < dst.0.len()
                && last(m, k, a.1, a.2) < a.0.len()
                && last(k, n, b.1, 1) < b.0.len()
        );
        // SAFETY: all elements lie inside their slices (asserted), `dst` is borrowed alone, T is f32, and the
        // CPU has AVX-512.
        return unsafe {
            tiles(
                size,
                dst.0.as_mut_ptr().cast(),
                dst.1,
                add,
                (a.0.as_ptr().cast(), a.1, a.2),
                (b.0.as_ptr().cast(), b.1),
            )
        };
    }
    product(size, (dst.0, dst.1, 1), add, a, (b.0, b.1, 1));
}

/// A tile of the destination, 6 rows × 64 columns, is one call of the crate's kernel. A piece of `b` as deep
/// as the first-level cache holds meets all rows of `a` before the next one does.
///
/// # Safety
/// All elements lie in memory that may be read, those of `dst` may be written, n is a multiple of 16, and the
/// CPU has AVX-512.
#[cfg(target_arch = "x86_64")]
unsafe fn tiles(
    (m, n, k): (usize, usize, usize),
    dst: *mut f32,
    ds: usize,
    add: bool,
    a: (*const f32, usize, usize),
    b: (*const f32, usize),
) {
    use gemm_f32::microkernel::avx512f::f32::UKR;
    static KERNELS: [[gemm_common::microkernel::MicroKernelFn<f32>; 6]; 4] = UKR;
    // Equal pieces, none of them short.
    let deep = k.div_ceil(k.div_ceil(DEPTH).max(1));
    for band in pieces(m, BAND) {
        for depth in pieces(k, deep) {
            for columns in pieces(n, 64) {
                for rows in pieces(band.len(), 6) {
                    let row = band.start + rows.start;
                    // SAFETY: the caller's; the tile's elements are among those.
                    unsafe {
                        KERNELS[columns.len() / 16 - 1][rows.len() - 1](
                            columns.len(),
                            rows.len(),
                            depth.len(),
                            dst.add(row * ds + columns.start),
                            b.0.add(depth.start * b.1 + columns.start),
                            a.0.add(row * a.1 + depth.start * a.2),
                            ds as isize,
                            1,
                            b.1 as isize,
                            a.2 as isize,
                            a.1 as isize,
                            1.0,
                            1.0,
                            u8::from(add || depth.start > 0),
                            false,
                            false,
                            false,
                            std::ptr::null(),
                        );
                    }
                }
            }
        }
    }
}

/// `0..total` in pieces of at most `most`.
#[cfg(target_arch = "x86_64")]
fn pieces(total: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    (0..total).step_by(most.max(1)).map(move |from| from..(from + most).min(total))
}
