//! Memory of a GPU.
use crate::gpu::Gpu;
use cudarc::driver::{result, sys};
use std::fmt::Debug;
use std::sync::Arc;

/// Memory of the GPU, freed with its owner. After a failure it is empty, at address 0, and nothing is done
/// with it.
pub(crate) struct DeviceMemory {
    gpu: Arc<Gpu>,
    pointer: u64,
    bytes: usize,
}

impl Debug for DeviceMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes on {}", self.bytes, self.gpu.name())
    }
}

/// What is said when `bytes` more do not fit beside those held.
fn full(bytes: usize, held: usize, (free, total): (usize, usize)) -> String {
    let gib = |b: usize| b as f64 / (1u64 << 30) as f64;
    format!(
        "the GPU's memory is full: {:.2} GiB more are needed beside the {:.2} in use; {:.2} of {:.2} GiB are \
        free",
        gib(bytes),
        gib(held),
        gib(free),
        gib(total)
    )
}

fn allocate(gpu: &Gpu, bytes: usize) -> Option<u64> {
    let pointer = gpu.attempt("an allocation", || {
        // SAFETY: a plain allocation.
        match unsafe { result::malloc_sync(bytes) } {
            Ok(pointer) => Ok(Some(pointer)),
            Err(e) if e.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Ok(None),
            Err(e) => Err(e),
        }
    })?;
    if pointer.is_none() {
        gpu.fail(full(bytes, gpu.held().0, result::mem_get_info().unwrap_or_default()));
    }
    pointer
}

impl DeviceMemory {
    /// Bytes that are zero.
    pub fn zeros(gpu: &Arc<Gpu>, bytes: usize) -> DeviceMemory {
        let memory = Self::unset(gpu, bytes);
        memory.clear();
        memory
    }

    /// Bytes that hold anything.
    pub fn unset(gpu: &Arc<Gpu>, bytes: usize) -> DeviceMemory {
        let bytes = bytes.max(16).next_multiple_of(16);
        let (pointer, bytes) = allocate(gpu, bytes).map_or((0, 0), |pointer| (pointer, bytes));
        gpu.holding().take(bytes);
        DeviceMemory { gpu: gpu.clone(), pointer, bytes }
    }

    /// A copy of host numbers.
    pub fn of<T: Copy>(gpu: &Arc<Gpu>, numbers: &[T]) -> DeviceMemory {
        let memory = Self::unset(gpu, size_of_val(numbers));
        memory.write(0, numbers);
        memory
    }

    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    pub fn at(&self) -> u64 {
        self.pointer
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn clear(&self) {
        let stream = self.gpu.stream().cu_stream();
        // SAFETY: inside the allocation.
        self.gpu.attempt("clearing memory", || unsafe {
            result::memset_d8_async(self.pointer, 0, self.bytes, stream)
        });
    }

    /// The address of this byte, from which on `size` bytes are wanted.
    fn inside(&self, from: usize, size: usize) -> Option<u64> {
        let fits = from.checked_add(size).is_some_and(|end| end <= self.bytes);
        self.gpu.require(fits.then_some(self.pointer + from as u64), "a copy reaches beyond its memory")
    }

    /// Writes host numbers from this byte on; the host's copy may be changed afterwards.
    pub fn write<T: Copy>(&self, from: usize, numbers: &[T]) {
        let Some(to) = self.inside(from, size_of_val(numbers)).filter(|_| !numbers.is_empty()) else {
            return;
        };
        let stream = self.gpu.stream().cu_stream();
        // SAFETY: inside the allocation; from pageable memory, the call returns when the numbers have been
        // taken.
        self.gpu
            .attempt("a copy to the device", || unsafe { result::memcpy_htod_async(to, numbers, stream) });
    }

    /// Reads into host numbers from this byte on; zeros after a failure.
    pub fn read<T: Copy + Default>(&self, from: usize, numbers: &mut [T]) {
        if let Some(at) = self.inside(from, size_of_val(numbers)) {
            let stream = self.gpu.stream();
            self.gpu.attempt("a copy from the device, or the work before it", || {
                // SAFETY: inside the allocation, and waited for.
                let copied = unsafe { result::memcpy_dtoh_async(numbers, at, stream.cu_stream()) };
                // Waited for in any case: nothing may write to the host's numbers after this.
                let waited = stream.synchronize();
                copied.and(waited)
            });
        }
        if self.gpu.failed() {
            numbers.fill(T::default());
        }
    }

    pub fn copy_from(&self, other: &DeviceMemory) {
        let same = (self.bytes == other.bytes).then_some(other.pointer);
        let Some(from) = self.gpu.require(same, "a copy between memories of two sizes") else { return };
        let stream = self.gpu.stream().cu_stream();
        // SAFETY: both allocations have this size.
        self.gpu.attempt("a copy on the device", || unsafe {
            result::memcpy_dtod_async(self.pointer, from, self.bytes, stream)
        });
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.pointer == 0 {
            return;
        }
        // Also after a failure, such as full memory, what was taken is given back.
        let stream = self.gpu.stream();
        if stream.context().bind_to_thread().is_ok() {
            if let Err(e) = stream.synchronize() {
                self.gpu.fail(format!("the GPU failed at the work before this: {e}"));
            }
            // SAFETY: allocated in `unset` and freed once.
            let _ = unsafe { result::free_sync(self.pointer) };
        }
        self.gpu.holding().now -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_memory_is_told_with_amounts() {
        let gib = 1 << 30;
        assert_eq!(
            full(3 * gib / 2, 2 * gib, (gib, 4 * gib)),
            "the GPU's memory is full: 1.50 GiB more are needed beside the 2.00 in use; 1.00 of 4.00 GiB are \
            free"
        );
    }
}
