//! Counts what is allocated, so that a run can say how much memory it needed at most: exact, on every system,
//! and without what the system's allocator keeps of earlier runs.
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The system's allocator with two counters.
pub struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn more(bytes: usize) {
    PEAK.fetch_max(LIVE.fetch_add(bytes, Relaxed) + bytes, Relaxed);
}

fn less(bytes: usize) {
    LIVE.fetch_sub(bytes, Relaxed);
}

// SAFETY: every call is handed on to the system's allocator as it is; the counters touch no memory of the
// caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        more(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        more(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        less(layout.size());
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        more(size);
        less(layout.size());
        unsafe { System.realloc(place, layout, size) }
    }
}

/// Begins a new peak at what is allocated now.
pub fn begin() {
    PEAK.store(LIVE.load(Relaxed), Relaxed);
}

/// Most bytes allocated at once since [`begin`].
pub fn peak() -> usize {
    PEAK.load(Relaxed)
}

#[cfg(test)]
mod tests {
    #[global_allocator]
    static ALLOCATOR: super::Counting = super::Counting;

    #[test]
    fn the_peak_covers_what_is_held() {
        super::begin();
        let large = std::hint::black_box(vec![1u8; 10 << 20]);
        // Other tests allocate beside this one, and begin anew while it holds this: never less, perhaps more.
        assert!(super::peak() >= large.len());
    }
}
