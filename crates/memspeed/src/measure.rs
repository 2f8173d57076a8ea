//! Threads that run kernels together: each with its own arena, from a common start.
//!
//! All cases are visited in turn, and that is repeated, so that a disturbance of the machine falls
//! on all of them and not on one. How many passes make a sample is found at the first visit; a
//! later visit begins with one untimed pass that fills the caches again, unless one pass is all
//! that there is time for: then the set is far larger than they are. A sample lasts from the first
//! thread's start to the last one's end.

use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, OnceLock, PoisonError};

use crate::arena::{Arena, PAGE_BYTES, Pages};
use crate::kernel::{Kernel, LEAST_SET_BYTES};
use crate::loops::{Arrays, Isa, passes};

/// From the last thread's arrival to the common start (ns): so long a sleeper takes to wake.
const START_AFTER_NS: u64 = 60_000;
/// Passes of a batch whose length cannot be told are multiplied by at most this.
const GROWTH_MAX: u64 = 64;

/// A kernel over a working set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// What is done.
    pub kernel: Kernel,
    /// All arrays of a thread together (bytes); at least [`LEAST_SET_BYTES`].
    pub set_bytes: usize,
}

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// The cases, in the order in which they are visited.
    pub cases: &'a [Case],
    /// Threads that do the same at once, each over a set of its own.
    pub threads: usize,
    /// The instructions.
    pub isa: Isa,
    /// The pages.
    pub pages: Pages,
    /// How far past the start of a page arrays begin (bytes): a multiple of 8, less than a page.
    pub offset_bytes: usize,
    /// Samples of each case.
    pub repeats: usize,
    /// Length of a sample at least (ns), a pass at the shortest.
    pub sample_ns: u64,
}

/// What comes from outside.
pub struct World<'a> {
    /// The time (ns), on any thread.
    pub now_ns: &'a (dyn Fn() -> u64 + Sync),
    /// Called by each thread with its number before it touches its memory: may pin it.
    pub pin: &'a (dyn Fn(usize) + Sync),
    /// Whether to stop at the next sample.
    pub stop: &'a (dyn Fn() -> bool + Sync),
}

/// What came of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The case.
    pub case: Case,
    /// Threads.
    pub threads: usize,
    /// Rate of each sample over all threads, bytes counted once (bytes per second).
    pub once_bytes_per_s: Vec<f64>,
    /// What to multiply a rate with for the traffic.
    pub traffic_per_once: f64,
    /// Share of the memory of the first thread that lies on huge pages, where it can be told.
    pub huge_share: Option<f64>,
}

/// Measures all cases; when told to stop, with the samples that there are by then.
///
/// # Errors
/// The plan has no case, no thread, a set that is too small or a wrong offset (`InvalidInput`), or
/// the memory cannot be had.
pub fn measure(plan: &Plan, world: &World) -> io::Result<Vec<Reading>> {
    check(plan)?;
    let crew = Crew::new(plan, world);
    std::thread::scope(|scope| {
        let crew = &crew;
        let spawned: Vec<_> = (0..plan.threads)
            .map(|number| {
                std::thread::Builder::new().spawn_scoped(scope, move || crew.work(number))
            })
            .collect();
        let failed = spawned.into_iter().find_map(Result::err);
        // Set once, here: a crew that is not complete would wait for the missing for ever.
        let _ = crew.complete.set(failed.is_none());
        failed.into_iter().for_each(|error| crew.give_up(error));
    });
    crew.readings()
}

fn check(plan: &Plan) -> io::Result<()> {
    let small = plan.cases.iter().any(|case| case.set_bytes < LEAST_SET_BYTES);
    let wrong = if plan.cases.is_empty() || plan.threads == 0 {
        "nothing to measure: name a kernel, a size and a thread"
    } else if small {
        "a working set holds 4096 bytes at least"
    } else if !plan.offset_bytes.is_multiple_of(8) || plan.offset_bytes >= PAGE_BYTES {
        "an offset is a multiple of 8 bytes below 4096"
    } else if !Isa::available().contains(&plan.isa) {
        "this CPU has no such instructions"
    } else if plan.cases.iter().any(|case| !plan.isa.has(case.kernel)) {
        "this CPU has no vectors with which to write past the caches; leave out nt-store, nt-copy"
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, wrong))
}

/// What the threads share.
struct Crew<'a> {
    plan: &'a Plan<'a>,
    world: &'a World<'a>,
    /// Whether all threads could be started; they wait until that is known.
    complete: OnceLock<bool>,
    barrier: Barrier,
    failed: AtomicBool,
    error: Mutex<Option<io::Error>>,
    /// The first thread decides for all: when a sample begins, of how many passes, and the end.
    start_ns: AtomicU64,
    passes: Vec<AtomicU64>,
    over: AtomicBool,
    /// Of the first thread.
    huge_share: Mutex<Option<f64>>,
    /// For each case and repeat, first start and last end.
    spans: Vec<Vec<Span>>,
}

/// From the first start to the last end of a sample (ns).
struct Span {
    start_ns: AtomicU64,
    end_ns: AtomicU64,
}

impl<'a> Crew<'a> {
    fn new(plan: &'a Plan<'a>, world: &'a World<'a>) -> Crew<'a> {
        let span = || Span { start_ns: AtomicU64::new(u64::MAX), end_ns: AtomicU64::new(0) };
        let of_case = |_| (0..plan.repeats).map(|_| span()).collect();
        Crew {
            plan,
            world,
            complete: OnceLock::new(),
            barrier: Barrier::new(plan.threads),
            failed: AtomicBool::new(false),
            error: Mutex::new(None),
            start_ns: AtomicU64::new(0),
            passes: plan.cases.iter().map(|_| AtomicU64::new(0)).collect(),
            over: AtomicBool::new(false),
            huge_share: Mutex::new(None),
            spans: plan.cases.iter().map(of_case).collect(),
        }
    }

    fn give_up(&self, error: io::Error) {
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        self.failed.store(true, Ordering::Relaxed);
    }

    /// One thread.
    fn work(&self, number: usize) {
        if !self.complete.wait() {
            return;
        }
        (self.world.pin)(number);
        let largest = self.plan.cases.iter().map(|case| case.set_bytes).max().unwrap_or(0);
        let arena = match Arena::new(largest, self.plan.pages) {
            Ok(arena) => Some(arena),
            Err(error) => {
                self.give_up(error);
                None
            }
        };
        self.barrier.wait();
        let Some(arena) = arena.filter(|_| !self.failed.load(Ordering::Relaxed)) else { return };
        let leads = number == 0;
        if leads {
            let share = arena.huge_bytes().map(|huge| huge as f64 / largest as f64);
            *self.huge_share.lock().unwrap_or_else(PoisonError::into_inner) =
                share.map(|share| share.min(1.0));
        }
        for repeat in 0..self.plan.repeats {
            for index in 0..self.plan.cases.len() {
                self.visit(&arena, index, repeat, leads);
                if self.over.load(Ordering::Relaxed) {
                    return;
                }
            }
        }
    }

    /// One sample of one case.
    fn visit(&self, arena: &Arena, index: usize, repeat: usize, leads: bool) {
        let case = self.plan.cases[index];
        let arrays = arena.arrays(case.kernel, case.set_bytes, self.plan.offset_bytes);
        if repeat == 0 {
            let own = self.calibrate(case, arrays);
            if leads {
                self.passes[index].store(own, Ordering::Relaxed);
            }
        } else if self.passes[index].load(Ordering::Relaxed) > 1 {
            self.run(case, arrays, 1);
        }
        self.barrier.wait();
        if leads {
            self.over.store((self.world.stop)(), Ordering::Relaxed);
            let start_ns = (self.world.now_ns)() + START_AFTER_NS;
            self.start_ns.store(start_ns, Ordering::Relaxed);
        }
        self.barrier.wait();
        if self.over.load(Ordering::Relaxed) {
            return;
        }
        let count = self.passes[index].load(Ordering::Relaxed);
        let start_at_ns = self.start_ns.load(Ordering::Relaxed);
        while (self.world.now_ns)() < start_at_ns {
            std::hint::spin_loop();
        }
        let start_ns = (self.world.now_ns)();
        self.run(case, arrays, count);
        let end_ns = (self.world.now_ns)();
        let span = &self.spans[index][repeat];
        span.start_ns.fetch_min(start_ns, Ordering::Relaxed);
        span.end_ns.fetch_max(end_ns, Ordering::Relaxed);
    }

    /// How many passes a sample takes.
    fn calibrate(&self, case: Case, arrays: Arrays) -> u64 {
        let mut count = 1;
        self.run(case, arrays, 1);
        loop {
            let start_ns = (self.world.now_ns)();
            self.run(case, arrays, count);
            let took_ns = (self.world.now_ns)().saturating_sub(start_ns).max(1);
            let wanted = (count as f64 * self.plan.sample_ns as f64 / took_ns as f64).ceil() as u64;
            // A quarter of a sample is enough to foretell it from.
            if took_ns.saturating_mul(4) >= self.plan.sample_ns {
                return wanted.max(1);
            }
            count = wanted.clamp(count + 1, count.saturating_mul(GROWTH_MAX));
        }
    }

    fn run(&self, case: Case, arrays: Arrays, count: u64) {
        // SAFETY: the arrays are this thread's own, apart and at lines where they must be; `check`
        // and `Arena::arrays` saw to it. The instruction set comes from `Isa::available`.
        black_box(unsafe { passes(case.kernel, self.plan.isa, arrays, count) });
    }

    fn readings(self) -> io::Result<Vec<Reading>> {
        if let Some(error) = self.error.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        let huge_share = self.huge_share.into_inner().unwrap_or_else(PoisonError::into_inner);
        let cases = self.plan.cases.iter().zip(&self.passes).zip(&self.spans);
        let readings = cases.map(|((&case, passes), spans)| {
            let once = case.kernel.once_bytes(case.set_bytes);
            let passes = passes.load(Ordering::Relaxed);
            let bytes = once as f64 * passes as f64 * self.plan.threads as f64;
            let rate = |span: &Span| {
                let end_ns = span.end_ns.load(Ordering::Relaxed);
                let took_ns = end_ns.checked_sub(span.start_ns.load(Ordering::Relaxed))?;
                Some(bytes * 1e9 / took_ns.max(1) as f64)
            };
            Reading {
                case,
                threads: self.plan.threads,
                once_bytes_per_s: spans.iter().filter_map(rate).collect(),
                traffic_per_once: case.kernel.traffic_bytes(case.set_bytes) as f64 / once as f64,
                huge_share,
            }
        });
        Ok(readings.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock of the tests: every reading is a microsecond later, whoever reads.
    fn ticking() -> impl Fn() -> u64 + Sync {
        let ticks = AtomicU64::new(0);
        move || ticks.fetch_add(1, Ordering::Relaxed) * 1000
    }

    fn plan(cases: &[Case]) -> Plan<'_> {
        let (isa, pages) = (Isa::detect(), Pages::System);
        Plan { cases, threads: 1, isa, pages, offset_bytes: 0, repeats: 3, sample_ns: 1 }
    }

    fn run(plan: &Plan) -> io::Result<Vec<Reading>> {
        let now = ticking();
        measure(plan, &World { now_ns: &now, pin: &|_| (), stop: &|| false })
    }

    fn all(set_bytes: usize) -> Vec<Case> {
        let kernels = Kernel::ALL.into_iter().filter(|kernel| Isa::detect().has(*kernel));
        kernels.map(|kernel| Case { kernel, set_bytes }).collect()
    }

    #[test]
    fn a_sample_is_its_bytes_over_the_time_between_two_readings_of_the_clock() {
        let cases = all(1 << 16);
        for reading in run(&plan(&cases)).unwrap() {
            let once = reading.case.kernel.once_bytes(1 << 16) as f64;
            assert_eq!(reading.once_bytes_per_s, [once * 1e6; 3], "{reading:?}");
        }
    }

    #[test]
    fn each_thread_has_a_set_of_its_own_and_all_of_them_count() {
        let cases = all(1 << 16);
        let numbers = Mutex::new(Vec::new());
        let now = ticking();
        let pin = |number| numbers.lock().unwrap().push(number);
        let plan = Plan { threads: 3, repeats: 2, ..plan(&cases) };
        let readings = measure(&plan, &World { now_ns: &now, pin: &pin, stop: &|| false }).unwrap();
        let mut numbers = numbers.into_inner().unwrap();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2]);
        for reading in readings {
            let once = reading.case.kernel.once_bytes(1 << 16) as f64;
            assert_eq!((reading.once_bytes_per_s.len(), reading.threads), (2, 3));
            // Three starts and three ends are six readings of the clock, five steps of it.
            let most = 3.0 * once * 1e6 / 5.0;
            assert!(reading.once_bytes_per_s.iter().all(|rate| *rate <= most), "{reading:?}");
        }
    }

    #[test]
    fn an_order_to_stop_keeps_the_samples_so_far() {
        let cases = all(1 << 16);
        let (now, asked) = (ticking(), AtomicU64::new(0));
        let stop = || asked.fetch_add(1, Ordering::Relaxed) == 4;
        let world = World { now_ns: &now, pin: &|_| (), stop: &stop };
        let readings = measure(&plan(&cases), &world).unwrap();
        let samples: Vec<usize> = readings.iter().map(|r| r.once_bytes_per_s.len()).collect();
        assert_eq!(samples.iter().sum::<usize>(), 4, "{samples:?}");
    }

    #[test]
    fn what_cannot_be_is_refused_and_not_waited_for() {
        let load = [Case { kernel: Kernel::Load, set_bytes: 1 << 16 }];
        let small = [Case { kernel: Kernel::Load, set_bytes: 4095 }];
        let absurd = [Case { kernel: Kernel::Load, set_bytes: 1 << 55 }];
        let kind = |plan: Plan| run(&plan).unwrap_err().kind();
        for refused in [
            plan(&[]),
            plan(&small),
            Plan { threads: 0, ..plan(&load) },
            Plan { offset_bytes: 4, ..plan(&load) },
            Plan { offset_bytes: 4096, ..plan(&load) },
        ] {
            assert_eq!(kind(refused), io::ErrorKind::InvalidInput, "{refused:?}");
        }
        assert_eq!(kind(Plan { threads: 2, ..plan(&absurd) }), io::ErrorKind::OutOfMemory);
    }
}
