//! Memory for many numbers: aligned for the kernels, in huge pages where there are many.

/// Numbers that begin on a cache line: a kernel's wide load then touches one line, not two.
pub type Buffer<T> = aligned_vec::AVec<T, aligned_vec::RuntimeAlign>;

/// Room for so many numbers. Much room begins on a huge page, and Linux is asked for such pages: a matrix
/// product walks through a row in large steps, a batch takes images from everywhere, and with small pages the
/// search for the next one costs them a tenth and a quarter.
fn room<T>(len: usize) -> Buffer<T> {
    const PAGE: usize = 2 << 20;
    let bytes = len * size_of::<T>();
    // The last page as well, unless that wastes a sixteenth.
    let whole = match bytes.next_multiple_of(PAGE) {
        up if up - bytes <= bytes / 16 => up,
        _ => bytes / PAGE * PAGE,
    };
    if whole == 0 || cfg!(not(target_os = "linux")) {
        return Buffer::with_capacity(64, len);
    }
    let room = Buffer::<T>::with_capacity(PAGE, bytes.max(whole) / size_of::<T>());
    #[cfg(target_os = "linux")]
    // SAFETY: these pages lie inside the room, and the advice changes nothing in them. It may be refused:
    // then they stay small.
    unsafe {
        libc::madvise(room.as_ptr().cast_mut().cast(), whole, libc::MADV_HUGEPAGE);
    }
    room
}

/// So many zeros.
pub(crate) fn zeros<T: Clone + Default>(len: usize) -> Buffer<T> {
    let mut numbers = room(len);
    numbers.resize(len, T::default());
    numbers
}

/// These pieces, so many numbers in all, one after the other.
pub(crate) fn copied<'a, T: Clone + 'a>(pieces: impl IntoIterator<Item = &'a [T]>, len: usize) -> Buffer<T> {
    let mut numbers = room(len);
    pieces.into_iter().for_each(|piece| numbers.extend_from_slice(piece));
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes below, at and between whole huge pages.
    #[test]
    fn room_is_aligned_and_copies_are_equal() {
        for len in [0, 5, 500_000, 1 << 19, (1 << 20) + 1, 1_950_000] {
            let mut numbers: Buffer<f32> = zeros(len);
            assert!(
                numbers.len() == len
                    && numbers.iter().all(|v| *v == 0.0)
                    && (numbers.as_ptr() as usize).is_multiple_of(64)
            );
            numbers.iter_mut().enumerate().for_each(|(i, v)| *v = i as f32);
            let (a, b) = numbers.split_at(len / 3);
            assert_eq!(copied([a, b], len), numbers);
        }
    }
}
