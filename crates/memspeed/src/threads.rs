//! Runs kernels on several threads that start at the same time. Each thread has its own arena.
//!
//! A round measures each case once. The rounds are repeated, so that a disturbance of the machine
//! affects all cases alike. The first round determines how many passes of a case make a sample. In
//! later rounds, an untimed pass before each sample fills the caches again. This pass is omitted if
//! a sample is a single pass, because the working set is then far larger than the caches. A sample
//! lasts from the first thread's start to the last thread's end.

use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, OnceLock, PoisonError};

use crate::arena::{Arena, PAGE_BYTES, Pages};
use crate::kernel::{Kernel, SET_BYTES_MIN};
use crate::loops::{Arrays, Isa, passes};

/// All threads start this long after the last thread reached the barrier (ns). A sleeping thread
/// needs this time to wake up.
const START_AFTER_NS: u64 = 60_000;
/// The maximum factor by which the number of passes grows from one calibration step to the next.
const GROWTH_MAX: u64 = 64;

/// A kernel and the size of its working set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The kernel that runs.
    pub kernel: Kernel,
    /// The total size of all arrays of a thread (bytes). It is at least [`SET_BYTES_MIN`].
    pub set_bytes: usize,
}

/// The cases to measure, and how to measure them.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// The cases, in the order in which they are measured.
    pub cases: &'a [Case],
    /// The number of threads that run the same case at the same time, each on its own working set.
    pub threads: usize,
    /// The instruction set of the loops.
    pub isa: Isa,
    /// The kind of memory pages that back the arrays.
    pub pages: Pages,
    /// The offset of each array from the start of a page (bytes). It is a multiple of 8 and less
    /// than a page.
    pub offset_bytes: usize,
    /// The number of samples of each case.
    pub repeats: usize,
    /// The intended minimum length of a sample (ns). A sample has at least one pass.
    pub sample_ns: u64,
}

/// The functions that the caller provides.
pub struct World<'a> {
    /// Reads the clock (ns). Any thread may call this function.
    pub now_ns: &'a (dyn Fn() -> u64 + Sync),
    /// Pins the calling thread to a CPU, or does nothing. Each thread calls this function with its
    /// number before it touches its memory.
    pub pin: &'a (dyn Fn(usize) + Sync),
    /// Returns true if the measurement must stop before the next sample.
    pub stop: &'a (dyn Fn() -> bool + Sync),
}

/// The measurements of one case.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The case that was measured.
    pub case: Case,
    /// The number of threads that ran the case.
    pub threads: usize,
    /// The rate of each sample over all threads (bytes/s), in the convention "once" of the crate's
    /// documentation.
    pub once_bytes_per_s: Vec<f64>,
    /// The factor that converts a rate from the convention "once" to the convention "traffic".
    pub traffic_per_once: f64,
    /// The share of the first thread's memory that is on huge pages. None if the share is unknown.
    pub huge_share: Option<f64>,
}

/// Measures all cases. If the measurement is stopped early, returns the samples that were taken.
///
/// # Errors
/// The plan is invalid (`InvalidInput`), a thread cannot be started, or memory cannot be allocated.
pub fn measure(plan: &Plan, world: &World) -> io::Result<Vec<Reading>> {
    check(plan)?;
    let shared = Shared::new(plan, world);
    std::thread::scope(|scope| {
        let shared = &shared;
        let handles: Vec<_> = (0..plan.threads)
            .map(|number| {
                std::thread::Builder::new().spawn_scoped(scope, move || shared.run_thread(number))
            })
            .collect();
        let failed = handles.into_iter().find_map(Result::err);
        // The threads wait until this value is set. If a thread could not be started, the other
        // threads must not continue to the barrier, because they would wait there forever.
        let _ = shared.all_started.set(failed.is_none());
        failed.into_iter().for_each(|error| shared.give_up(error));
    });
    shared.readings()
}

fn check(plan: &Plan) -> io::Result<()> {
    let small = plan.cases.iter().any(|case| case.set_bytes < SET_BYTES_MIN);
    let wrong = if plan.cases.is_empty() || plan.threads == 0 {
        "nothing to measure; specify at least one kernel, size and thread"
    } else if small {
        "a working set must have at least 4096 bytes"
    } else if !plan.offset_bytes.is_multiple_of(8) || plan.offset_bytes >= PAGE_BYTES {
        "the offset must be a multiple of 8 bytes and less than 4096"
    } else if !Isa::available().contains(&plan.isa) {
        "this CPU does not support the instruction set"
    } else if plan.cases.iter().any(|case| !plan.isa.has(case.kernel)) {
        "this instruction set has no non-temporal stores; leave out nt-store and nt-copy"
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, wrong))
}

/// State shared by the threads.
struct Shared<'a> {
    plan: &'a Plan<'a>,
    world: &'a World<'a>,
    /// Whether all threads could be started. The threads wait until this value is set.
    all_started: OnceLock<bool>,
    barrier: Barrier,
    failed: AtomicBool,
    error: Mutex<Option<io::Error>>,
    /// The common start of the sample (ns). The first thread sets this field, `passes` and
    /// `finished` for all threads.
    start_ns: AtomicU64,
    passes: Vec<AtomicU64>,
    finished: AtomicBool,
    /// The share of the first thread's arena that is on huge pages. None if the share is unknown.
    huge_share: Mutex<Option<f64>>,
    /// The start and end of each sample, for each case.
    spans: Vec<Vec<Span>>,
}

/// The first thread's start and the last thread's end in a sample (ns).
struct Span {
    start_ns: AtomicU64,
    end_ns: AtomicU64,
}

impl<'a> Shared<'a> {
    fn new(plan: &'a Plan<'a>, world: &'a World<'a>) -> Shared<'a> {
        let span = || Span { start_ns: AtomicU64::new(u64::MAX), end_ns: AtomicU64::new(0) };
        let of_case = |_| (0..plan.repeats).map(|_| span()).collect();
        Shared {
            plan,
            world,
            all_started: OnceLock::new(),
            barrier: Barrier::new(plan.threads),
            failed: AtomicBool::new(false),
            error: Mutex::new(None),
            start_ns: AtomicU64::new(0),
            passes: plan.cases.iter().map(|_| AtomicU64::new(0)).collect(),
            finished: AtomicBool::new(false),
            huge_share: Mutex::new(None),
            spans: plan.cases.iter().map(of_case).collect(),
        }
    }

    fn give_up(&self, error: io::Error) {
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        self.failed.store(true, Ordering::Relaxed);
    }

    fn run_thread(&self, number: usize) {
        if !self.all_started.wait() {
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
        let is_first = number == 0;
        if is_first {
            let share = arena.huge_bytes().map(|huge| huge as f64 / largest as f64);
            *self.huge_share.lock().unwrap_or_else(PoisonError::into_inner) =
                share.map(|share| share.min(1.0));
        }
        for repeat in 0..self.plan.repeats {
            for index in 0..self.plan.cases.len() {
                self.take_sample(&arena, index, repeat, is_first);
                if self.finished.load(Ordering::Relaxed) {
                    return;
                }
            }
        }
    }

    fn take_sample(&self, arena: &Arena, index: usize, repeat: usize, is_first: bool) {
        let case = self.plan.cases[index];
        let arrays = arena.arrays(case.kernel, case.set_bytes, self.plan.offset_bytes);
        if repeat == 0 {
            let own = self.calibrate(case, arrays);
            if is_first {
                self.passes[index].store(own, Ordering::Relaxed);
            }
        } else if self.passes[index].load(Ordering::Relaxed) > 1 {
            self.run(case, arrays, 1);
        }
        self.barrier.wait();
        if is_first {
            self.finished.store((self.world.stop)(), Ordering::Relaxed);
            let start_ns = (self.world.now_ns)() + START_AFTER_NS;
            self.start_ns.store(start_ns, Ordering::Relaxed);
        }
        self.barrier.wait();
        if self.finished.load(Ordering::Relaxed) {
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

    /// Determines how many passes a sample needs.
    fn calibrate(&self, case: Case, arrays: Arrays) -> u64 {
        let mut count = 1;
        self.run(case, arrays, 1);
        loop {
            let start_ns = (self.world.now_ns)();
            self.run(case, arrays, count);
            let took_ns = (self.world.now_ns)().saturating_sub(start_ns).max(1);
            let wanted = (count as f64 * self.plan.sample_ns as f64 / took_ns as f64).ceil() as u64;
            // If the passes took at least a quarter of the sample time, `wanted` is accurate.
            if took_ns.saturating_mul(4) >= self.plan.sample_ns {
                return wanted.max(1);
            }
            count = wanted.clamp(count + 1, count.saturating_mul(GROWTH_MAX));
        }
    }

    fn run(&self, case: Case, arrays: Arrays, count: u64) {
        // SAFETY: `check` and `Arena::arrays` ensure that only this thread uses the arrays, and
        // that they are disjoint and aligned where required. The instruction set comes from
        // `Isa::available`.
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

    /// Returns a test clock. Each call, on any thread, returns a time that is 1 us later than the
    /// time that the previous call returned.
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
    fn a_rate_is_the_bytes_over_the_time_between_two_clock_readings() {
        let cases = all(1 << 16);
        for reading in run(&plan(&cases)).unwrap() {
            let once = reading.case.kernel.once_bytes(1 << 16) as f64;
            assert_eq!(reading.once_bytes_per_s, [once * 1e6; 3], "{reading:?}");
        }
    }

    #[test]
    fn each_thread_has_its_own_set_and_all_of_them_count() {
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
            // The three threads read the clock at their starts and ends, which are six readings. A
            // sample therefore lasts at least 5 us.
            let most = 3.0 * once * 1e6 / 5.0;
            assert!(reading.once_bytes_per_s.iter().all(|rate| *rate <= most), "{reading:?}");
        }
    }

    #[test]
    fn stopping_keeps_the_samples_so_far() {
        let cases = all(1 << 16);
        let (now, asked) = (ticking(), AtomicU64::new(0));
        let stop = || asked.fetch_add(1, Ordering::Relaxed) == 4;
        let world = World { now_ns: &now, pin: &|_| (), stop: &stop };
        let readings = measure(&plan(&cases), &world).unwrap();
        let samples: Vec<usize> = readings.iter().map(|r| r.once_bytes_per_s.len()).collect();
        assert_eq!(samples.iter().sum::<usize>(), 4, "{samples:?}");
    }

    #[test]
    fn invalid_plans_are_refused_without_hanging() {
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
