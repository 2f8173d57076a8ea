//! Runs a plan: a thread for each worker, one moment of start, one window of measurement.
//!
//! Every worker builds its engine and touches its buffers before a common start. CPU time and
//! device counters are read by the calling thread between that barrier and the first request (or
//! at the end of the warm-up), and again after the last worker has finished and before any engine
//! is taken down, so that neither setting up nor tearing down is charged to the requests.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use analysis::steady;
use cpucost::{CpuMeter, CpuSample};
use ioengine::target::DeviceCounters;
use ioengine::{Clock, EngineSpec, Target};

use crate::error::Error;
use crate::plan::{Plan, WorkerPlan};
use crate::sample::Sample;
use crate::spec::{Steady, Workload};
use crate::worker::{State, Worker};

/// How often the calling thread looks at the workers [ns].
const TICK_NS: u64 = 100_000_000;
/// Rates are compared over intervals of this length to see whether they are steady [ns].
const STEADY_INTERVAL_NS: u64 = 1_000_000_000;

/// How far a trial has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Since the common start [ns].
    pub elapsed_ns: u64,
    /// Bytes completed, warm-up included.
    pub bytes: u64,
    /// Requests completed, warm-up included.
    pub requests: u64,
}

/// How the outside talks to a running trial.
pub struct Control<'a> {
    /// Set it to end the trial early; what was measured is kept.
    pub stop: &'a AtomicBool,
    /// Called about ten times a second by the thread that called [`run`].
    pub on_progress: &'a mut dyn FnMut(Progress),
}

/// What one worker tells while it runs; alone in its cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Told {
    bytes: AtomicU64,
    requests: AtomicU64,
}

/// What the threads of one trial share.
struct Shared<'a> {
    stop: &'a AtomicBool,
    end: AtomicBool,
    finished: AtomicUsize,
    start_ns: AtomicU64,
    ready: Barrier,
    go: Barrier,
    read: Barrier,
    told: Vec<Told>,
    failure: Mutex<Option<Error>>,
}

impl Shared<'_> {
    fn fail(&self, error: Error) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(error);
        self.end.store(true, Ordering::Relaxed);
    }

    #[inline]
    fn stopping(&self) -> bool {
        self.end.load(Ordering::Relaxed) || self.stop.load(Ordering::Relaxed)
    }
}

/// Readings of meters that lie outside the workers.
struct Reading {
    cpu: CpuSample,
    device: Option<DeviceCounters>,
}

/// Runs a plan on each of the targets (every target gets all of the plan's workers) and merges
/// what the workers measured.
///
/// # Errors
/// When an engine cannot be made or cannot go on. Requests that fail are counted in the sample.
pub fn run<T, C, M>(
    targets: &[&T],
    plan: &Plan,
    clock: C,
    meter: &M,
    control: &mut Control<'_>,
) -> Result<Sample, Error>
where
    T: Target,
    C: Clock + Copy + Send + Sync,
    M: CpuMeter,
{
    let count = targets.len() * plan.workers.len();
    let shared = Shared {
        stop: control.stop,
        end: AtomicBool::new(false),
        finished: AtomicUsize::new(0),
        start_ns: AtomicU64::new(0),
        ready: Barrier::new(count + 1),
        go: Barrier::new(count + 1),
        read: Barrier::new(count + 1),
        told: (0..count).map(|_| Told::default()).collect(),
        failure: Mutex::new(None),
    };
    let read = || Reading {
        cpu: meter.sample(clock.now_ns()),
        device: targets.iter().filter_map(|t| t.device_counters()).reduce(add_counters),
    };
    let caller = thread::current();
    let (parts, before, after) = thread::scope(|scope| {
        let pairs = targets.iter().flat_map(|t| plan.workers.iter().map(move |w| (*t, w)));
        let handles: Vec<_> = pairs
            .enumerate()
            .map(|(index, (target, worker))| {
                let (shared, caller) = (&shared, caller.clone());
                let told = &shared.told[index];
                scope.spawn(move || {
                    let part = work(target, &plan.workload, worker, clock, shared, told);
                    shared.finished.fetch_add(1, Ordering::Release);
                    caller.unpark();
                    shared.read.wait();
                    // The engine goes only now, after the meters have been read.
                    part.map(|(sample, _engine)| sample)
                })
            })
            .collect();
        let (before, after) = conduct(&shared, plan, count, &clock, &read, control);
        let parts: Vec<Option<Sample>> = handles
            .into_iter()
            .map(|handle| handle.join().expect("a worker does not panic"))
            .collect();
        (parts, before, after)
    });
    if let Some(error) = shared.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let mut parts = parts.into_iter().flatten();
    let mut sample = parts.next().unwrap_or_else(|| Sample::new(plan.workload.interval_ns));
    parts.for_each(|part| sample.merge(&part));
    sample.cpu = after.cpu.since(&before.cpu);
    sample.device = after.device.zip(before.device).map(|(after, before)| after.since(&before));
    sample.interrupted = shared.stop.load(Ordering::Relaxed);
    Ok(sample)
}

fn add_counters(one: DeviceCounters, two: DeviceCounters) -> DeviceCounters {
    DeviceCounters {
        reads: one.reads + two.reads,
        read_merges: one.read_merges + two.read_merges,
        read_sectors: one.read_sectors + two.read_sectors,
        writes: one.writes + two.writes,
        write_merges: one.write_merges + two.write_merges,
        write_sectors: one.write_sectors + two.write_sectors,
    }
}

/// The calling thread's part: start, watch, read the meters at both ends.
fn conduct<C: Clock>(
    shared: &Shared<'_>,
    plan: &Plan,
    count: usize,
    clock: &C,
    read: &dyn Fn() -> Reading,
    control: &mut Control<'_>,
) -> (Reading, Reading) {
    shared.ready.wait();
    let mut before = read();
    let start_ns = clock.now_ns();
    shared.start_ns.store(start_ns, Ordering::Relaxed);
    shared.go.wait();
    let measure_from_ns = start_ns + plan.workload.warm_up_ns;
    let mut warming_up = plan.workload.warm_up_ns > 0;
    let mut watch = SteadyWatch::new(plan.workload.steady, measure_from_ns);
    while shared.finished.load(Ordering::Acquire) < count {
        let now = clock.now_ns();
        if warming_up && now >= measure_from_ns {
            warming_up = false;
            before = read();
        }
        let progress = progress_of(&shared.told, now - start_ns);
        (control.on_progress)(progress);
        if watch.is_steady(now, progress.bytes) {
            shared.end.store(true, Ordering::Relaxed);
        }
        let next = if warming_up { (now + TICK_NS).min(measure_from_ns) } else { now + TICK_NS };
        thread::park_timeout(Duration::from_nanos(next.saturating_sub(clock.now_ns())));
    }
    let after = read();
    shared.read.wait();
    (before, after)
}

fn progress_of(told: &[Told], elapsed_ns: u64) -> Progress {
    let sum =
        |of: fn(&Told) -> &AtomicU64| told.iter().map(|t| of(t).load(Ordering::Relaxed)).sum();
    Progress { elapsed_ns, bytes: sum(|t| &t.bytes), requests: sum(|t| &t.requests) }
}

/// Collects rates, one each second, and says when they are steady.
struct SteadyWatch {
    rule: Option<Steady>,
    next_ns: u64,
    last_bytes: u64,
    rates: Vec<f64>,
}

impl SteadyWatch {
    fn new(rule: Option<Steady>, from_ns: u64) -> SteadyWatch {
        let next_ns = from_ns + STEADY_INTERVAL_NS;
        SteadyWatch { rule, next_ns, last_bytes: 0, rates: Vec::new() }
    }

    fn is_steady(&mut self, now_ns: u64, bytes: u64) -> bool {
        let Some(rule) = self.rule else { return false };
        if now_ns < self.next_ns {
            return false;
        }
        self.next_ns += STEADY_INTERVAL_NS;
        self.rates.push((bytes - self.last_bytes) as f64);
        self.last_bytes = bytes;
        steady::settled(&self.rates, rule.window, rule.excursion, rule.slope).is_some()
    }
}

/// One worker's thread, up to the moment when its engine may be dropped.
fn work<T: Target, C: Clock + Copy>(
    target: &T,
    workload: &Workload,
    plan: &WorkerPlan,
    clock: C,
    shared: &Shared<'_>,
    told: &Told,
) -> Option<(Sample, T::Engine)> {
    let built = build(target, workload, plan, clock);
    shared.ready.wait();
    shared.go.wait();
    let mut worker = match built {
        Ok(worker) => worker,
        Err(error) => {
            shared.fail(error);
            return None;
        }
    };
    worker.start(shared.start_ns.load(Ordering::Relaxed), workload, plan);
    loop {
        match worker.step(shared.stopping()) {
            Ok(State::Running) => {}
            Ok(State::Done) => break,
            Err(error) => {
                shared.fail(error.into());
                return None;
            }
        }
        told.bytes.store(worker.sample().bytes(), Ordering::Relaxed);
        told.requests.store(worker.sample().requests(), Ordering::Relaxed);
    }
    if worker.sample().errors > 0 {
        shared.end.store(true, Ordering::Relaxed);
    }
    let (mut sample, engine) = worker.finish();
    if workload.flush_at_end && workload.writes() && sample.errors == 0 {
        sample.accepted_ns = Some(sample.end_ns);
        if let Err(error) = target.sync() {
            shared.fail(error.into());
        }
        sample.end_ns = clock.now_ns();
    }
    Some((sample, engine))
}

fn build<T: Target, C: Clock>(
    target: &T,
    workload: &Workload,
    plan: &WorkerPlan,
    clock: C,
) -> Result<Worker<T::Engine, C>, Error> {
    if let Some(cpu) = plan.cpu {
        cpucost::affinity::pin_current_thread(&[cpu])
            .map_err(|error| Error::Affinity(error.to_string()))?;
    }
    // Without a small slack the kernel may wake an open loop 50 us late; refusal is harmless.
    let _ = cpucost::affinity::set_timer_slack_ns(1);
    let engine = target.engine(&EngineSpec {
        personality: workload.personality,
        depth: workload.depth,
        slot_bytes: workload.request_bytes,
        pages: workload.pages,
    })?;
    Ok(Worker::new(engine, clock, workload, plan))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use cpucost::HostMeter;
    use ioengine::{BufferPages, Caching, HostTarget, Monotonic, Personality};

    use super::*;
    use crate::plan;
    use crate::spec::{Arrival, Content, Pattern};

    fn measure(target: &HostTarget, workload: &Workload) -> Result<Sample, Error> {
        let plan = plan::resolve(workload, target)?;
        let stop = AtomicBool::new(false);
        let mut control = Control { stop: &stop, on_progress: &mut |_| {} };
        run(&[target], &plan, Monotonic::new(), &HostMeter::new(), &mut control)
    }

    fn on_null(change: impl FnOnce(&mut Workload)) -> Sample {
        let mut workload = Workload {
            personality: Personality::Null,
            request_bytes: 4096,
            region_bytes: 1 << 30,
            pages: BufferPages::Small,
            ..Workload::default()
        };
        change(&mut workload);
        measure(&HostTarget::null(1 << 30), &workload).unwrap()
    }

    #[test]
    fn a_size_limit_is_kept_to_the_byte_over_all_threads() {
        let sample = on_null(|w| {
            w.threads = 3;
            w.depth = 7;
            w.limit_bytes = Some(3 * 4096 * 1000);
        });
        assert_eq!(sample.bytes(), 3 * 4096 * 1000);
        assert_eq!(sample.requests(), 3000);
        assert_eq!(sample.latency().count(), 3000);
        let counted: u64 = sample.series.intervals.iter().map(|i| i.requests).sum();
        assert_eq!(counted, 3000);
        assert!(sample.cpu.process_ns > 0);
    }

    #[test]
    fn a_mix_counts_each_direction_for_itself() {
        let sample = on_null(|w| {
            w.read_percent = 70;
            w.limit_bytes = Some(4096 * 10_000);
        });
        let [reads, writes] = &sample.operations;
        assert_eq!(reads.requests + writes.requests, 10_000);
        assert!((6_700..7_300).contains(&reads.requests), "{}", reads.requests);
        assert_eq!(writes.latency.count(), writes.requests);
    }

    #[test]
    fn an_open_loop_keeps_its_rate_without_burning_the_cpu() {
        let sample = on_null(|w| {
            w.arrival = Arrival::Constant { requests_per_s: 1000.0 };
            w.limit_ns = Some(500_000_000);
            w.depth = 4;
        });
        assert!((450..=510).contains(&sample.requests()), "{}", sample.requests());
        assert!(sample.cpu.process_ns < sample.elapsed_ns() / 2, "pacing spins");
    }

    #[test]
    fn an_order_to_stop_ends_a_run_without_end() {
        let workload = Workload {
            personality: Personality::Null,
            region_bytes: 1 << 20,
            limit_ns: Some(u64::MAX / 4),
            ..Workload::default()
        };
        let target = HostTarget::null(1 << 20);
        let plan = plan::resolve(&workload, &target).unwrap();
        let stop = AtomicBool::new(false);
        let mut on_progress = |progress: Progress| {
            stop.store(progress.requests > 0, Ordering::Relaxed);
        };
        let mut control = Control { stop: &stop, on_progress: &mut on_progress };
        let clock = Monotonic::new();
        let sample = run(&[&target], &plan, clock, &HostMeter::new(), &mut control).unwrap();
        assert!(sample.interrupted && sample.requests() > 0);
    }

    fn file_of(bytes: usize) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![1; bytes]).unwrap();
        file.as_file().sync_all().unwrap();
        file
    }

    #[test]
    fn verified_blocks_are_read_back_whole_and_a_changed_byte_is_found() {
        let file = file_of(1 << 20);
        let target = HostTarget::open(file.path(), true, Caching::Buffered).unwrap();
        let mut workload = Workload {
            pattern: Pattern::Random,
            read_percent: 0,
            request_bytes: 16384,
            region_bytes: 1 << 20,
            limit_bytes: Some(1 << 20),
            content: Content::Verified,
            flush_at_end: true,
            ..Workload::default()
        };
        let written = measure(&target, &workload).unwrap();
        assert!(written.accepted_after_ns().unwrap() <= written.elapsed_ns());
        workload.read_percent = 100;
        let back = measure(&target, &workload).unwrap();
        assert_eq!((back.verified_blocks, back.damaged_blocks), (256, 0));
        std::os::unix::fs::FileExt::write_all_at(file.as_file(), &[0xFF], 5 * 4096 + 99).unwrap();
        let damaged = measure(&target, &workload).unwrap();
        assert_eq!(damaged.damaged_blocks, 1);
        assert_eq!(damaged.first_damage.unwrap().offset, 5 * 4096);
    }

    #[test]
    fn a_write_to_a_file_opened_for_reading_is_counted_and_ends_the_run() {
        let file = file_of(1 << 20);
        let target = HostTarget::open(file.path(), false, Caching::Buffered).unwrap();
        let workload = Workload {
            read_percent: 0,
            region_bytes: 1 << 20,
            limit_ns: Some(60_000_000_000),
            ..Workload::default()
        };
        let sample = measure(&target, &workload).unwrap();
        assert_eq!((sample.errors, sample.requests()), (1, 0));
        assert_eq!(sample.first_error.unwrap().errno, libc::EBADF);
    }

    #[test]
    fn each_personality_reads_a_file_once_and_counts_every_byte() {
        let file = file_of(1 << 20);
        let target = HostTarget::open(file.path(), false, Caching::Buffered).unwrap();
        for personality in [Personality::Sync, Personality::Threads, Personality::IoUring] {
            if !personality.availability().available {
                continue;
            }
            let depth = if personality == Personality::Sync { 1 } else { 8 };
            let workload = Workload {
                personality,
                depth,
                region_bytes: 1 << 20,
                limit_bytes: Some(1 << 20),
                threads: 2,
                ..Workload::default()
            };
            let sample = measure(&target, &workload).unwrap();
            assert_eq!((sample.bytes(), sample.errors), (1 << 20, 0), "{personality}");
        }
    }
}
