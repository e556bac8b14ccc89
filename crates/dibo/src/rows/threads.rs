//! A team of threads that starts a job in well under a microsecond.
//!
//! One iteration of a small problem takes a few microseconds and has two or three parallel regions, so waking sleeping threads
//! (rayon: several microseconds) would eat the gain. These workers watch one atomic number for a while before they sleep.
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::thread::{JoinHandle, Thread};

/// How often a worker looks for the next job before it sleeps (about 50 µs).
const SPINS: usize = 2000;

type Job = *const (dyn Fn(usize) + Sync);

struct Shared {
    epoch: AtomicUsize,
    job: UnsafeCell<Job>,
    pending: AtomicUsize,
    sleeping: AtomicUsize,
    stop: AtomicBool,
    panicked: AtomicBool,
}

// SAFETY: `job` is written only while no worker runs (pending == 0) and published by the release store to `epoch`.
unsafe impl Sync for Shared {}
unsafe impl Send for Shared {}

struct Team {
    shared: Arc<Shared>,
    busy: AtomicBool,
    workers: Vec<JoinHandle<()>>,
    handles: Vec<Thread>,
}

/// The threads that one run may use: the calling thread and, where there are several, a team of workers. Cheap to clone.
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

    /// Runs `job(0), …, job(count − 1)`, each on a thread of its own, and returns when all are done.
    pub fn run(&self, job: &(dyn Fn(usize) + Sync)) {
        match &self.team {
            // A job that itself asks for threads, or two callers at once: do the work here, one part after the other.
            Some(team) if !team.busy.swap(true, Acquire) => team.run(job),
            _ => (0..self.count).for_each(job),
        }
    }

    /// Cuts `0..items` into one range a thread; runs `job(thread, range)` for those that are not empty. Below `least` items a thread
    /// the calling thread does it all.
    pub fn ranges(&self, items: usize, least: usize, job: impl Fn(usize, Range<usize>) + Sync) {
        let parts = self.count.min(items / least.max(1)).max(1);
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
}

impl Team {
    fn new(workers: usize) -> Self {
        let empty: &(dyn Fn(usize) + Sync) = &|_| {};
        let shared = Arc::new(Shared {
            epoch: AtomicUsize::new(0),
            job: UnsafeCell::new(empty as Job),
            pending: AtomicUsize::new(0),
            sleeping: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
        });
        let workers: Vec<_> = (1..=workers)
            .map(|t| {
                let shared = shared.clone();
                std::thread::Builder::new().name(format!("dibo-{t}")).spawn(move || shared.work(t)).expect("the system starts a thread")
            })
            .collect();
        let handles = workers.iter().map(|w| w.thread().clone()).collect();
        Team { shared, busy: AtomicBool::new(false), workers, handles }
    }

    fn run(&self, job: &(dyn Fn(usize) + Sync)) {
        let s = &*self.shared;
        // SAFETY: `run` returns only after every worker has finished, so the job outlives its use; no worker reads now.
        unsafe { *s.job.get() = std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(job) };
        s.pending.store(self.workers.len(), Relaxed);
        s.epoch.fetch_add(1, SeqCst);
        if s.sleeping.load(SeqCst) > 0 {
            self.handles.iter().for_each(Thread::unpark);
        }
        let mine = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job(0)));
        let mut spins = 0;
        while s.pending.load(Acquire) > 0 {
            spins += 1;
            if spins % SPINS == 0 { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        self.busy.store(false, Release);
        if let Err(panic) = mine {
            std::panic::resume_unwind(panic);
        }
        assert!(!s.panicked.swap(false, Relaxed), "a worker thread panicked; its message is above");
    }
}

impl Shared {
    fn work(&self, t: usize) {
        let mut seen = 0;
        loop {
            let mut spins = 0;
            while self.epoch.load(Acquire) == seen {
                spins += 1;
                if spins < SPINS {
                    std::hint::spin_loop();
                    continue;
                }
                self.sleeping.fetch_add(1, SeqCst);
                if self.epoch.load(SeqCst) == seen {
                    std::thread::park();
                }
                self.sleeping.fetch_sub(1, SeqCst);
                spins = 0;
            }
            seen += 1;
            if self.stop.load(Acquire) {
                return;
            }
            // SAFETY: published before `epoch` moved; `run` waits for `pending` before it lets the job go.
            let job = unsafe { &**self.job.get() };
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job(t))).is_err() {
                self.panicked.store(true, Relaxed);
            }
            self.pending.fetch_sub(1, Release);
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(true, Release);
        self.shared.epoch.fetch_add(1, SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
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
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| threads.run(&|t| assert!(t != 1))));
        assert!(caught.is_err());
    }
}
