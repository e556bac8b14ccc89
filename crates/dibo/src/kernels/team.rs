//! A team of threads that starts a job in well under a microsecond.
//!
//! One iteration of a small problem takes a few microseconds and has two or three parallel regions, so waking
//! sleeping threads (rayon: several microseconds) would eat the gain. These workers watch one atomic number
//! for a while before they sleep, and a part that nobody has begun is done by whoever is free, so that a busy
//! machine costs speed but never a long wait.
use super::tuning::{PATIENCE, SPINS};
use std::ops::Range;
use std::sync::atomic::Ordering::*;
use system::{Arc, AtomicBool, AtomicUsize, Builder, JoinHandle, Slot, Thread, park, yield_now};

/// What the team is made of: the standard library's parts, or those of loom, which tries the orders in which
/// threads can run and the values they can see.
#[cfg(not(loom))]
mod system {
    pub use std::sync::Arc;
    pub use std::sync::atomic::{AtomicBool, AtomicUsize};
    pub use std::thread::{Builder, JoinHandle, Thread, park, yield_now};

    /// A place that one thread writes and others read, as far as their order is known.
    pub struct Slot<T>(std::cell::UnsafeCell<T>);

    impl<T: Copy> Slot<T> {
        pub fn new(value: T) -> Self {
            Slot(std::cell::UnsafeCell::new(value))
        }

        /// # Safety
        /// Nobody writes it meanwhile.
        pub unsafe fn get(&self) -> T {
            // SAFETY: the caller's.
            unsafe { *self.0.get() }
        }

        /// # Safety
        /// Nobody reads or writes it meanwhile.
        pub unsafe fn set(&self, value: T) {
            // SAFETY: the caller's.
            unsafe { *self.0.get() = value }
        }
    }
}

#[cfg(loom)]
mod system {
    pub use loom::sync::Arc;
    pub use loom::sync::atomic::{AtomicBool, AtomicUsize};
    pub use loom::thread::{Builder, JoinHandle, Thread, park, yield_now};

    pub struct Slot<T>(loom::cell::UnsafeCell<T>);

    impl<T: Copy> Slot<T> {
        pub fn new(value: T) -> Self {
            Slot(loom::cell::UnsafeCell::new(value))
        }

        /// # Safety
        /// Nobody writes it meanwhile; loom looks whether that is so.
        pub unsafe fn get(&self) -> T {
            // SAFETY: the caller's.
            self.0.with(|value| unsafe { *value })
        }

        /// # Safety
        /// Nobody reads or writes it meanwhile; loom looks whether that is so.
        pub unsafe fn set(&self, value: T) {
            // SAFETY: the caller's.
            self.0.with_mut(|place| unsafe { *place = value })
        }
    }
}

/// Waits a few nanoseconds. Not the CPU's pause instruction: virtual machines take many of those in a row as
/// a reason to give the core away.
#[inline(always)]
fn wait_a_little() {
    #[cfg(loom)]
    yield_now();
    for i in 0..4 {
        std::hint::black_box(i);
    }
}

type Job = *const (dyn Fn(usize) + Sync);

struct Shared {
    /// Written by the caller alone: the job at hand, then its number.
    call: Own<Call>,
    /// For each part, the number of the last job in which somebody took it.
    taken: Vec<Own<AtomicUsize>>,
    done: Own<AtomicUsize>,
    sleeping: Own<AtomicUsize>,
    stop: AtomicBool,
    panicked: AtomicBool,
}

struct Call {
    job: Slot<Job>,
    epoch: AtomicUsize,
}

/// Something on cache lines of its own: threads that watch one number are not disturbed by writes to another.
#[repr(align(128))]
struct Own<T>(T);

// SAFETY: `job` is written only while every part is done, and published by the release store to `epoch`.
unsafe impl Sync for Shared {}
unsafe impl Send for Shared {}

struct Team {
    shared: Arc<Shared>,
    busy: AtomicBool,
    workers: Vec<JoinHandle<()>>,
    handles: Vec<Thread>,
}

/// The threads that one run may use: the calling thread and, where there are several, a team of workers.
/// Cheap to clone.
///
/// ```
/// use dibo::rows::Threads;
/// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
///
/// let sum = AtomicUsize::new(0);
/// Threads::new(2).each(100, |_thread, item| {
///     sum.fetch_add(item, Relaxed);
/// });
/// assert_eq!(sum.into_inner(), 4950);
/// ```
#[derive(Clone)]
pub struct Threads {
    count: usize,
    team: Option<Arc<Team>>,
}

impl Threads {
    /// The calling thread alone.
    pub fn one() -> Self {
        Threads { count: 1, team: None }
    }

    /// The calling thread and `count − 1` workers.
    pub fn new(count: usize) -> Self {
        if count <= 1 { Self::one() } else { Threads { count, team: Some(Arc::new(Team::new(count - 1))) } }
    }

    /// How many threads there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Runs `job(0), …, job(count − 1)`, spread over the threads, and returns when all are done. No two run
    /// the same number at once.
    pub fn run(&self, job: &(dyn Fn(usize) + Sync)) {
        match &self.team {
            // A job that itself asks for threads, or two callers at once: do the work here, one part after
            // the other.
            Some(team) if !team.busy.swap(true, Acquire) => team.run(job),
            _ => (0..self.count).for_each(job),
        }
    }

    /// Cuts `0..items` into one range a thread; runs `job(thread, range)` for those that are not empty. Below
    /// `least` items a thread the calling thread does it all.
    pub fn ranges(&self, items: usize, least: usize, job: impl Fn(usize, Range<usize>) + Sync) {
        // Alone, not even the division: an iteration of a small problem has time for little else.
        let parts = if self.count == 1 { 1 } else { self.count.min(items / least.max(1)).max(1) };
        if parts == 1 {
            job(0, 0..items);
            return;
        }
        self.run(&|t| {
            if t < parts {
                job(t, items * t / parts..items * (t + 1) / parts);
            }
        });
    }

    /// Runs `job(thread, item)` for each of `0..items`; a thread that is done with one takes the next. For
    /// items that take long: cores of a shared machine are not equally fast.
    pub fn each(&self, items: usize, job: impl Fn(usize, usize) + Sync) {
        if self.count == 1 {
            return (0..items).for_each(|item| job(0, item));
        }
        let next = AtomicUsize::new(0);
        self.run(&|t| {
            loop {
                match next.fetch_add(1, Relaxed) {
                    item if item < items => job(t, item),
                    _ => break,
                }
            }
        });
    }
}

impl Team {
    fn new(workers: usize) -> Self {
        let empty: &(dyn Fn(usize) + Sync) = &|_| {};
        let shared = Arc::new(Shared {
            call: Own(Call { job: Slot::new(empty as Job), epoch: AtomicUsize::new(0) }),
            taken: (0..=workers).map(|_| Own(AtomicUsize::new(0))).collect(),
            done: Own(AtomicUsize::new(0)),
            sleeping: Own(AtomicUsize::new(0)),
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
        });
        let workers: Vec<_> = (1..=workers)
            .map(|t| {
                let shared = shared.clone();
                Builder::new()
                    .name(format!("dibo-{t}"))
                    .spawn(move || shared.work(t))
                    .expect("the system starts a thread")
            })
            .collect();
        let handles = workers.iter().map(|w| w.thread().clone()).collect();
        Team { shared, busy: AtomicBool::new(false), workers, handles }
    }

    fn run(&self, job: &(dyn Fn(usize) + Sync)) {
        let s = &*self.shared;
        // SAFETY: `run` returns only after every part is done, so the job outlives its use; nobody reads it
        // now.
        unsafe {
            let job = std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(job);
            s.call.0.job.set(job);
        };
        s.done.0.store(0, Relaxed);
        let epoch = s.call.0.epoch.load(Relaxed) + 1;
        s.call.0.epoch.store(epoch, SeqCst);
        if s.sleeping.0.load(SeqCst) > 0 {
            self.handles.iter().for_each(Thread::unpark);
        }
        s.take_part(0, epoch);
        let mut spins = 0;
        while s.done.0.load(Acquire) < s.taken.len() {
            spins += 1;
            match spins % SPINS {
                // A worker that the system has put aside holds nobody up: after a microsecond or two its part
                // is done here.
                PATIENCE => (1..s.taken.len()).for_each(|part| s.take_part(part, epoch)),
                0 => yield_now(),
                _ => wait_a_little(),
            }
        }
        self.busy.store(false, Release);
        assert!(!s.panicked.swap(false, Relaxed), "a part of a parallel job panicked; its message is above");
    }
}

impl Shared {
    /// Does a part of job `epoch` unless somebody has it. Each thread has a part of its own, so that it meets
    /// the same rows again in its cache.
    fn take_part(&self, part: usize, epoch: usize) {
        // Only the step from the job before to this one takes a part: a worker that comes late for an older
        // job gets none.
        if self.taken[part].0.compare_exchange(epoch - 1, epoch, AcqRel, Relaxed).is_err() {
            return;
        }
        // SAFETY: a part of this job was taken, so the job is published and waits for it.
        let job = unsafe { &*self.call.0.job.get() };
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job(part))).is_err() {
            self.panicked.store(true, Relaxed);
        }
        self.done.0.fetch_add(1, Release);
    }

    fn work(&self, own: usize) {
        let mut seen = 0;
        loop {
            let mut spins = 0;
            while self.call.0.epoch.load(Acquire) == seen {
                spins += 1;
                if spins < SPINS {
                    wait_a_little();
                    continue;
                }
                self.sleeping.0.fetch_add(1, SeqCst);
                if self.call.0.epoch.load(SeqCst) == seen {
                    park();
                }
                self.sleeping.0.fetch_sub(1, SeqCst);
                spins = 0;
            }
            seen = self.call.0.epoch.load(Acquire);
            if self.stop.load(Acquire) {
                return;
            }
            self.take_part(own, seen);
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(true, Release);
        self.shared.call.0.epoch.fetch_add(1, SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            let _ = worker.join();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_part_runs_once() {
        for count in 1..=4 {
            let threads = Threads::new(count);
            for items in [0, 1, 5, 100] {
                let hits: Vec<AtomicUsize> = (0..items).map(|_| AtomicUsize::new(0)).collect();
                for _ in 0..200 {
                    threads.ranges(items, 1, |_, range| {
                        range.for_each(|i| {
                            hits[i].fetch_add(1, Relaxed);
                        })
                    });
                }
                assert!(hits.iter().all(|h| h.load(Relaxed) == 200));
                threads.each(items, |_, i| {
                    hits[i].fetch_add(1, Relaxed);
                });
                assert!(hits.iter().all(|h| h.load(Relaxed) == 201));
            }
        }
    }

    #[test]
    fn nested_calls_and_panics_do_not_hang() {
        let threads = Threads::new(3);
        let total = AtomicUsize::new(0);
        threads.run(&|_| {
            threads.run(&|_| {
                total.fetch_add(1, Relaxed);
            })
        });
        assert_eq!(total.load(Relaxed), 9);
        let caught =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| threads.run(&|t| assert!(t != 1))));
        assert!(caught.is_err());
    }
}

/// Run in a package that has nothing else: `.ci/loom`.
#[cfg(all(test, loom))]
mod orders {
    use super::*;

    /// Every order of two workers and their caller, up to so many forced switches: each part of each job runs
    /// once, its writes are seen by the caller, and nobody hangs, at the end neither.
    fn check(switches: usize, jobs: usize) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(switches);
        model.check(move || {
            let threads = Threads::new(3);
            for job in 1..=jobs {
                let hits: Vec<Slot<usize>> = (0..3).map(|_| Slot::new(0)).collect();
                // Not atomic: loom tells if two threads do one part, or the caller reads too early.
                let hits = Parts(hits);
                threads.run(&|part| {
                    let hits = &hits;
                    // SAFETY: what is tested.
                    unsafe { hits.0[part].set(hits.0[part].get() + job) }
                });
                // SAFETY: what is tested.
                assert!(hits.0.iter().all(|hits| unsafe { hits.get() } == job));
            }
        });
    }

    struct Parts(Vec<Slot<usize>>);
    // SAFETY: loom looks whether they are used one after the other.
    unsafe impl Sync for Parts {}

    #[test]
    fn one_job_with_many_switches() {
        check(3, 1);
    }

    #[test]
    fn two_jobs() {
        check(2, 2);
    }
}
