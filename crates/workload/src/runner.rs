//! Runs the workers of a plan, each in its own thread. All workers start together and have the same
//! measurement window.
//!
//! Every worker builds its engine and touches its buffers before the common start. The calling
//! thread reads CPU time and device counters just before the first request (or at the end of the
//! warm-up), and again after the last worker has finished. Engines are dropped only after that.
//! Set-up and teardown are therefore not measured.
//!
//! If a worker cannot start, fails or panics, the run ends with an error, and the other threads do
//! not wait for this worker.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle, Thread};
use std::time::Duration;

use analysis::steady;
use cpucost::{CpuMeter, CpuSample};
use ioengine::target::DeviceCounters;
use ioengine::{Clock, Engine, Error as EngineError, ErrorKind, Target};

use crate::arrival::{Process, Rate};
use crate::cursor::Cursor;
use crate::error::Error;
use crate::plan::{Plan, WorkerPlan};
use crate::random;
use crate::replayer::Replayer;
use crate::sample::Sample;
use crate::spec::{Placement, Steady, Workload};
use crate::thread_load::ThreadLoad;
use crate::worker::{State, TargetCall, Worker};

/// Interval at which the calling thread checks the workers (ns).
const TICK_NS: u64 = 100_000_000;
/// Interval over which the steady-state check computes each rate (ns).
const STEADY_INTERVAL_NS: u64 = 1_000_000_000;
/// Stack size of a worker thread (bytes). A small stack is enough, because the buffers and
/// histograms of a worker are on the heap.
const STACK_BYTES: usize = 256 << 10;

/// The progress of a running trial.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Time since the common start (ns).
    pub elapsed_ns: u64,
    /// Number of bytes completed, including the warm-up.
    pub bytes: u64,
    /// Number of requests completed, including the warm-up.
    pub requests: u64,
}

/// How the caller controls a running trial.
pub struct Control<'a> {
    /// Flag that the caller sets to end the trial early. The measurements made until then are kept.
    pub stop: &'a AtomicBool,
    /// Callback for progress reports. [`run`] calls it about ten times a second, in the thread that
    /// called [`run`].
    pub on_progress: &'a mut dyn FnMut(Progress),
    /// Callback that is called once when all workers are ready. It returns the time at which the
    /// workers start (ns of the clock), so that several processes can start together. If it returns
    /// an error, the run fails. None if the workers start as soon as all are ready.
    pub start: Option<&'a mut dyn FnMut() -> Result<u64, Error>>,
}

/// The progress of one worker. The alignment keeps workers from writing to the same cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct WorkerProgress {
    bytes: AtomicU64,
    requests: AtomicU64,
}

/// The stage of a trial, shared by all its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Engines are being built.
    Setup,
    /// Requests are being issued.
    Go,
    /// The meters have been read, and engines may be dropped.
    Read,
}

/// State shared by the threads of one trial.
struct Shared<'a> {
    stop: &'a AtomicBool,
    end: AtomicBool,
    finished: AtomicUsize,
    start_ns: AtomicU64,
    measure_from_ns: AtomicU64,
    ready: Mutex<(usize, Stage)>,
    changed: Condvar,
    progress: Vec<WorkerProgress>,
    failure: Mutex<Option<Error>>,
}

/// Locks a mutex. Poisoning is ignored because no code panics while it holds one of these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared<'_> {
    fn fail(&self, error: Error) {
        lock(&self.failure).get_or_insert(error);
        self.end.store(true, Ordering::Relaxed);
    }

    #[inline]
    fn stopping(&self) -> bool {
        self.end.load(Ordering::Relaxed) || self.stop.load(Ordering::Relaxed)
    }

    /// Counts a worker as ready. Also called if the set-up of the worker failed.
    fn add_ready(&self) {
        lock(&self.ready).0 += 1;
        self.changed.notify_all();
    }

    fn wait_until_ready(&self, count: usize) {
        let mut ready = lock(&self.ready);
        while ready.0 < count {
            ready = self.changed.wait(ready).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn enter(&self, stage: Stage) {
        lock(&self.ready).1 = stage;
        self.changed.notify_all();
    }

    fn wait_for(&self, stage: Stage) {
        let mut ready = lock(&self.ready);
        while ready.1 < stage {
            ready = self.changed.wait(ready).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Ensures that a worker is counted as ready and as finished when its thread ends, even if the
/// thread panics.
struct ExitGuard<'a> {
    shared: &'a Shared<'a>,
    caller: Thread,
    counted_ready: bool,
    counted_finished: bool,
}

impl ExitGuard<'_> {
    fn ready(&mut self) {
        if !std::mem::replace(&mut self.counted_ready, true) {
            self.shared.add_ready();
        }
    }

    fn finished(&mut self) {
        self.ready();
        if !std::mem::replace(&mut self.counted_finished, true) {
            self.shared.finished.fetch_add(1, Ordering::Release);
            self.caller.unpark();
        }
    }
}

impl Drop for ExitGuard<'_> {
    fn drop(&mut self) {
        self.finished();
    }
}

/// A reading of the CPU meter and the device counters.
struct Reading {
    cpu: CpuSample,
    device: Option<DeviceCounters>,
}

/// Runs a plan on each of the targets and merges the workers' samples. Every target gets all
/// workers of the plan. The rate of an open loop is divided equally among the targets.
///
/// # Errors
/// If an engine cannot be created or cannot continue. Failed requests are not errors. They are
/// counted in the sample.
pub fn run<T, C, M>(
    targets: &[&T],
    plan: &Plan,
    clock: C,
    meter: &M,
    control: &mut Control<'_>,
) -> Result<Sample, Error>
where
    T: Target + Sync,
    C: Clock + Copy + Send + Sync,
    M: CpuMeter,
{
    let plans = worker_plans(plan, targets.len());
    let shared = Shared {
        stop: control.stop,
        end: AtomicBool::new(false),
        finished: AtomicUsize::new(0),
        start_ns: AtomicU64::new(0),
        measure_from_ns: AtomicU64::new(u64::MAX),
        ready: Mutex::new((0, Stage::Setup)),
        changed: Condvar::new(),
        progress: plans.iter().map(|_| WorkerProgress::default()).collect(),
        failure: Mutex::new(None),
    };
    let read = || Reading { cpu: meter.sample(clock.now_ns()), device: counters_of(targets) };
    let (parts, readings) = thread::scope(|scope| {
        let mut handles = Vec::new();
        for (index, (target, worker)) in plans.iter().enumerate() {
            let job = Job { target: targets[*target], workload: &plan.workload, worker, clock };
            match spawn(scope, job, &shared, index) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    shared.fail(error);
                    break;
                }
            }
        }
        let readings = supervise(&shared, plan, handles.len(), &clock, &read, control);
        let parts: Vec<Option<Sample>> = handles.into_iter().map(|h| joined(h, &shared)).collect();
        (parts, readings)
    });
    if let Some(error) = lock(&shared.failure).take() {
        return Err(error);
    }
    let mut parts = parts.into_iter().flatten();
    let mut sample = parts.next().unwrap_or_else(|| Sample::new(plan.workload.interval_ns));
    parts.for_each(|part| sample.merge(&part));
    sample.cpu = readings.after.cpu.since(&readings.before.cpu);
    let device = readings.after.device.zip(readings.before.device);
    sample.device = device.map(|(after, before)| after.since(&before));
    sample.interrupted = shared.stop.load(Ordering::Relaxed);
    sample.became_steady = readings.became_steady;
    Ok(sample)
}

/// Copies the plan's workers for each target, and returns each copy with the index of its target.
/// Sets the number, CPU, target and cursor of each copy, and divides the rate of an open loop among
/// the targets.
pub(crate) fn worker_plans(plan: &Plan, targets: usize) -> Vec<(usize, WorkerPlan)> {
    let cpus = &plan.workload.cpus;
    let mut all = Vec::new();
    for target in 0..targets {
        let interlocked = plan.workload.placement == Placement::Interlocked;
        let cursor = interlocked.then(Cursor::default);
        for worker in &plan.workers {
            let cpu = (!cpus.is_empty()).then(|| cpus[all.len() % cpus.len()]);
            let rate = worker.rate.map(|rate| rate_of(rate, target, targets));
            let (number, cursor) = (all.len() as u32, cursor.clone());
            all.push((target, WorkerPlan { cpu, rate, target, number, cursor, ..worker.clone() }));
        }
    }
    all
}

/// Returns one target's share of a worker's rate. Requests at a constant rate are staggered between
/// targets. Each Poisson process gets its own seed.
fn rate_of(rate: Rate, target: usize, targets: usize) -> Rate {
    let count = targets as f64;
    let process = match rate.process {
        Process::Constant { offset } => {
            Process::Constant { offset: (offset + target as f64) / count }
        }
        Process::Poisson { seed } => Process::Poisson { seed: random::mix(seed, target as u64) },
    };
    Rate { requests_per_s: rate.requests_per_s / count, process }
}

/// Returns the sum of the counters of the targets' devices. A device with several targets is
/// counted once. None if any target has no counters.
pub(crate) fn counters_of<T: Target>(targets: &[&T]) -> Option<DeviceCounters> {
    let mut seen = Vec::new();
    let mut sum: Option<DeviceCounters> = None;
    for target in targets {
        let number = target.device_number();
        if number.is_some() && seen.contains(&number) {
            continue;
        }
        seen.push(number);
        let counters = target.device_counters()?;
        sum = Some(sum.map_or(counters, |sum| sum + counters));
    }
    sum
}

/// The inputs of a worker thread.
struct Job<'a, T, C> {
    target: &'a T,
    workload: &'a Workload,
    worker: &'a WorkerPlan,
    clock: C,
}

fn spawn<'scope, 'env, T: Target + Sync, C: Clock + Copy + Send + Sync + 'env>(
    scope: &'scope Scope<'scope, 'env>,
    job: Job<'env, T, C>,
    shared: &'env Shared<'env>,
    index: usize,
) -> Result<ScopedJoinHandle<'scope, Option<Sample>>, Error> {
    let caller = thread::current();
    let body = move || {
        let mut exit_guard =
            ExitGuard { shared, caller, counted_ready: false, counted_finished: false };
        let progress = &shared.progress[index];
        let part = match job.workload.replay {
            None => work::<T, C, Worker<T::Engine, C>>(&job, shared, progress, &mut exit_guard),
            Some(_) => {
                work::<T, C, Replayer<T::Engine, C>>(&job, shared, progress, &mut exit_guard)
            }
        };
        exit_guard.finished();
        shared.wait_for(Stage::Read);
        // The meters have been read, so the engine may be dropped now.
        part.map(|(mut sample, engine)| {
            sample.setup = engine.setup();
            sample
        })
    };
    let builder = thread::Builder::new().name(format!("worker-{index}")).stack_size(STACK_BYTES);
    builder.spawn_scoped(scope, body).map_err(|source| {
        let error = EngineError::io(format!("starting worker {index}"), source);
        error.with_remedy("use fewer `threads`, or raise the limit on processes (ulimit -u)").into()
    })
}

fn joined(handle: ScopedJoinHandle<'_, Option<Sample>>, shared: &Shared<'_>) -> Option<Sample> {
    handle.join().unwrap_or_else(|_| {
        let what = "a worker panicked; please report this bug";
        shared.fail(EngineError::new(ErrorKind::Io, what).into());
        None
    })
}

/// The readings at the start and end of the measured phase.
struct Readings {
    before: Reading,
    after: Reading,
    became_steady: Option<bool>,
}

/// Runs the main loop of the calling thread: starts the workers, reports progress, and reads the
/// meters at the start and at the end of the measured phase.
fn supervise<C: Clock>(
    shared: &Shared<'_>,
    plan: &Plan,
    count: usize,
    clock: &C,
    read: &dyn Fn() -> Reading,
    control: &mut Control<'_>,
) -> Readings {
    shared.wait_until_ready(count);
    let agreed_ns = agreed_start(shared, control);
    let mut before = read();
    if let Some(agreed_ns) = agreed_ns {
        clock.sleep_until(agreed_ns);
    }
    let start_ns = clock.now_ns();
    let warm_until_ns = start_ns + plan.workload.warm_up_ns;
    let mut watch = SteadyWatch::new(plan.workload.steady, warm_until_ns);
    let mut measure_from_ns = if watch.is_watching() { u64::MAX } else { warm_until_ns };
    shared.start_ns.store(start_ns, Ordering::Relaxed);
    shared.measure_from_ns.store(measure_from_ns, Ordering::Relaxed);
    shared.enter(Stage::Go);
    let mut warming_up = measure_from_ns > start_ns;
    while shared.finished.load(Ordering::Acquire) < count {
        let now = clock.now_ns();
        let progress = progress_of(&shared.progress, now - start_ns);
        (control.on_progress)(progress);
        if watch.is_over(now, progress.bytes) {
            measure_from_ns = now;
            shared.measure_from_ns.store(now, Ordering::Relaxed);
        }
        if warming_up && now >= measure_from_ns {
            warming_up = false;
            before = read();
        }
        let tick = now + TICK_NS;
        let next = if warming_up { tick.min(measure_from_ns) } else { tick };
        thread::park_timeout(Duration::from_nanos(next.saturating_sub(clock.now_ns())));
    }
    let after = read();
    shared.enter(Stage::Read);
    Readings { before, after, became_steady: watch.found }
}

/// Asks the caller for the start time. None if the caller gave no callback (the workers then start
/// immediately), or if the callback returns an error.
fn agreed_start(shared: &Shared<'_>, control: &mut Control<'_>) -> Option<u64> {
    match control.start.as_mut()?() {
        Ok(start_ns) => Some(start_ns),
        Err(error) => {
            shared.fail(error);
            None
        }
    }
}

fn progress_of(progress: &[WorkerProgress], elapsed_ns: u64) -> Progress {
    let sum = |of: fn(&WorkerProgress) -> &AtomicU64| {
        progress.iter().map(|t| of(t).load(Ordering::Relaxed)).sum()
    };
    Progress { elapsed_ns, bytes: sum(|t| &t.bytes), requests: sum(|t| &t.requests) }
}

/// Computes the rate of each second, until the rates are steady or the maximum wait is over.
pub(crate) struct SteadyWatch {
    rule: Option<Steady>,
    from_ns: u64,
    last_ns: u64,
    last_bytes: u64,
    rates: Vec<f64>,
    pub(crate) found: Option<bool>,
}

impl SteadyWatch {
    pub(crate) fn new(rule: Option<Steady>, from_ns: u64) -> SteadyWatch {
        let rates = Vec::new();
        SteadyWatch { rule, from_ns, last_ns: from_ns, last_bytes: 0, rates, found: None }
    }

    pub(crate) fn is_watching(&self) -> bool {
        self.rule.is_some() && self.found.is_none()
    }

    /// Adds a rate if at least one second has passed since the last rate. Returns true if the wait
    /// for a steady rate has just ended.
    pub(crate) fn is_over(&mut self, now_ns: u64, bytes: u64) -> bool {
        let Some(rule) = self.rule.filter(|_| self.found.is_none()) else { return false };
        if now_ns < self.last_ns + STEADY_INTERVAL_NS {
            return false;
        }
        let seconds = (now_ns - self.last_ns) as f64 / 1e9;
        self.rates.push((bytes - self.last_bytes) as f64 / seconds);
        (self.last_ns, self.last_bytes) = (now_ns, bytes);
        let Steady { window, excursion, slope, wait_ns } = rule;
        if steady::settled(&self.rates, window, excursion, slope).is_some() {
            self.found = Some(true);
        } else if now_ns >= self.from_ns + wait_ns {
            self.found = Some(false);
        }
        self.found.is_some()
    }
}

/// Runs a worker from its set-up to its final flush. Returns its sample and its engine, or None if
/// the worker failed. The caller must not drop the engine before the meters have been read, so that
/// the teardown is not measured.
fn work<T: Target, C: Clock + Copy, L: ThreadLoad<C, Engine = T::Engine>>(
    job: &Job<'_, T, C>,
    shared: &Shared<'_>,
    progress: &WorkerProgress,
    exit_guard: &mut ExitGuard<'_>,
) -> Option<(Sample, T::Engine)> {
    let built: Result<L, Error> = build(job);
    exit_guard.ready();
    shared.wait_for(Stage::Go);
    let mut worker = match built {
        Ok(worker) => worker,
        Err(error) => {
            shared.fail(error);
            return None;
        }
    };
    let measure_from = || shared.measure_from_ns.load(Ordering::Relaxed);
    let start_ns = shared.start_ns.load(Ordering::Relaxed);
    worker.start(start_ns, measure_from(), job.workload, job.worker);
    let waits_for_steady = job.workload.steady.is_some();
    loop {
        if waits_for_steady {
            worker.measure_from(measure_from());
        }
        match worker.step(shared.stopping()) {
            Ok(State::Running | State::Waiting) => {}
            Ok(State::CallDue(call)) => {
                if let Err(error) = call_target(job, &mut worker, call) {
                    shared.fail(error.into());
                    return None;
                }
            }
            Ok(State::Done) => break,
            Err(error) => {
                shared.fail(error.into());
                return None;
            }
        }
        progress.bytes.store(worker.sample().bytes(), Ordering::Relaxed);
        progress.requests.store(worker.sample().requests(), Ordering::Relaxed);
    }
    if worker.sample().errors > 0 {
        shared.end.store(true, Ordering::Relaxed);
    }
    let (mut sample, mut engine) = worker.finish();
    // If the trial is stopped, the flush is skipped, because flushing gigabytes could take long.
    let flush = job.workload.flush_at_end && job.workload.writes() && !shared.stopping();
    if flush {
        sample.accepted_ns = Some(sample.end_ns);
        let flushed = match engine.flush() {
            Ok(false) => job.target.sync(),
            flushed => flushed.map(|_| ()),
        };
        if let Err(error) = flushed {
            shared.fail(error.into());
        }
        sample.end_ns = job.clock.now_ns();
    }
    Some((sample, engine))
}

/// Makes a call on the target that the worker requested, and records the duration of the call.
fn call_target<T: Target, C: Clock + Copy, L: ThreadLoad<C>>(
    job: &Job<'_, T, C>,
    worker: &mut L,
    call: TargetCall,
) -> Result<(), EngineError> {
    let begun_ns = job.clock.now_ns();
    match call {
        TargetCall::ResetZone { offset, bytes } => {
            job.target.reset_zones(offset, bytes)?;
        }
        TargetCall::Advise { hint, offset, bytes } => {
            job.target.advise(hint, offset, bytes)?;
        }
        TargetCall::Flush { data_only } => {
            let is_flushed = worker.flush()?;
            if !is_flushed && data_only {
                job.target.sync_data()?;
            } else if !is_flushed {
                job.target.sync()?;
            }
        }
    }
    worker.called(begun_ns);
    Ok(())
}

fn build<T: Target, C: Clock + Copy, L: ThreadLoad<C, Engine = T::Engine>>(
    job: &Job<'_, T, C>,
) -> Result<L, Error> {
    let (workload, plan) = (job.workload, job.worker);
    if let Some(cpu) = plan.cpu {
        cpucost::affinity::pin_current_thread(&[cpu])
            .map_err(|error| Error::Affinity(error.to_string()))?;
    }
    // With the default timer slack, a thread can wake 50 µs after its next request is due. A
    // failure to reduce the slack is harmless.
    let _ = cpucost::affinity::set_timer_slack_ns(1);
    L::build(job.target, job.clock, workload, plan)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use cpucost::HostMeter;
    use ioengine::{BufferPages, Caching, EngineKind, HostTarget, Monotonic};

    use super::*;
    use crate::arrival::tests as arrival;
    use crate::plan;
    use crate::spec::{Arrival, Content, FlushEvery, Pattern, SizeShare};

    fn measure(target: &HostTarget, workload: &Workload) -> Result<Sample, Error> {
        let plan = plan::resolve(workload, target)?;
        let stop = AtomicBool::new(false);
        let mut control = Control { stop: &stop, on_progress: &mut |_| {}, start: None };
        run(&[target], &plan, Monotonic::new(), &HostMeter::new(), &mut control)
    }

    fn on_null(change: impl FnOnce(&mut Workload)) -> Sample {
        let mut workload = Workload {
            engine_kind: EngineKind::Null,
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
    fn interlocked_threads_read_every_block_of_each_target_once() {
        let workload = Workload {
            engine_kind: EngineKind::Null,
            request_bytes: 4096,
            region_bytes: 1 << 20,
            placement: Placement::Interlocked,
            threads: 3,
            depth: 4,
            limit_bytes: Some(1 << 20),
            log: Some(1000),
            ..Workload::default()
        };
        let target = HostTarget::null(1 << 20);
        let plan = plan::resolve(&workload, &target).unwrap();
        let stop = AtomicBool::new(false);
        let mut control = Control { stop: &stop, on_progress: &mut |_| {}, start: None };
        let (targets, clock) = ([&target, &target], Monotonic::new());
        let sample = run(&targets, &plan, clock, &HostMeter::new(), &mut control).unwrap();
        let mut offsets = [Vec::new(), Vec::new()];
        sample.log.iter().for_each(|request| {
            offsets[request.worker as usize / 3].push(request.offset);
        });
        for mut offsets in offsets {
            offsets.sort_unstable();
            assert!(offsets.into_iter().eq((0..256).map(|block| block * 4096)));
        }
    }

    #[test]
    fn mixed_sizes_move_exactly_the_requested_bytes() {
        let share = |request_bytes, percent| SizeShare { request_bytes, percent };
        let sample = on_null(|w| {
            w.request_sizes = vec![share(4096, 60), share(65536, 40)];
            w.request_bytes = 65536;
            w.pattern = Pattern::Random;
            w.threads = 3;
            w.limit_bytes = Some(100 << 20);
            w.log = Some(10_000);
        });
        assert_eq!(sample.bytes(), 100 << 20);
        assert_eq!((sample.log.len() as u64, sample.log_lost), (sample.requests(), 0));
        let small = sample.log.iter().filter(|r| r.length == 4096).count() as f64;
        let share = small / sample.requests() as f64;
        assert!((0.56..0.64).contains(&share), "{share} of the requests are small");
    }

    #[test]
    fn reads_and_writes_are_counted_separately() {
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
    fn an_open_loop_keeps_its_rate() {
        let sample = on_null(|w| {
            w.arrival = Arrival::Constant { requests_per_s: 1000.0 };
            w.limit_ns = Some(500_000_000);
            w.depth = 4;
        });
        // Requests that become due while the worker is not scheduled are issued late, not dropped.
        assert!((400..=510).contains(&sample.requests()), "{}", sample.requests());
    }

    #[test]
    fn merged_threads_and_targets_are_a_poisson_process() {
        for (threads, targets) in [(1, 1), (2, 1), (4, 1), (3, 2), (1, 5)] {
            let workload = Workload {
                arrival: Arrival::Poisson { requests_per_s: 1000.0 },
                threads,
                region_bytes: 1 << 30,
                limit_ns: Some(1),
                ..Workload::default()
            };
            let plan = plan::resolve(&workload, &HostTarget::null(1 << 30)).unwrap();
            let plans = worker_plans(&plan, targets);
            let rates: Vec<Rate> = plans.iter().filter_map(|(_, plan)| plan.rate).collect();
            assert_eq!(rates.len(), threads as usize * targets);
            let due = arrival::merged(&rates, 20_000_000_000);
            let distance = arrival::distance_from_exponential(&due, 1000.0);
            assert!(distance < 2.3, "{distance} with {threads} threads on {targets} targets");
            // In a Poisson process the variance of the counts per window equals their mean.
            let mut counts = vec![0.0; 2000];
            due.iter().for_each(|at| counts[(at / 10_000_000) as usize] += 1.0);
            let mean = counts.iter().sum::<f64>() / 2000.0;
            let variance = counts.iter().map(|c| (c - mean) * (c - mean)).sum::<f64>() / 1999.0;
            assert!((mean - 10.0).abs() < 0.3, "{mean} requests in 10 ms");
            assert!((0.85..1.15).contains(&(variance / mean)), "variance {variance}, mean {mean}");
        }
    }

    #[test]
    fn the_stop_flag_ends_an_unlimited_run() {
        let workload = Workload {
            engine_kind: EngineKind::Null,
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
        let mut control = Control { stop: &stop, on_progress: &mut on_progress, start: None };
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
    fn each_thread_flushes_after_its_own_writes() {
        let file = file_of(1 << 20);
        let target = HostTarget::open(file.path(), true, Caching::Buffered).unwrap();
        for data_only in [false, true] {
            let workload = Workload {
                read_percent: 0,
                request_bytes: 16384,
                threads: 2,
                region_bytes: 1 << 20,
                limit_bytes: Some(1 << 20),
                flush_every: Some(FlushEvery { writes: 8, data_only }),
                ..Workload::default()
            };
            let sample = measure(&target, &workload).unwrap();
            assert_eq!((sample.bytes(), sample.flushes.count()), (1 << 20, 8));
            assert!(sample.elapsed_ns() >= sample.flushes.max().unwrap());
        }
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
    fn each_engine_reads_a_file_once_and_counts_every_byte() {
        let file = file_of(1 << 20);
        let target = HostTarget::open(file.path(), false, Caching::Buffered).unwrap();
        let on_files = |kind: &EngineKind| kind.takes_files();
        for engine_kind in EngineKind::ALL.into_iter().filter(on_files) {
            if !engine_kind.availability().available {
                continue;
            }
            let depth = if engine_kind.check_depth(8, false).is_ok() { 8 } else { 1 };
            let workload = Workload {
                engine_kind,
                depth,
                region_bytes: 1 << 20,
                limit_bytes: Some(1 << 20),
                threads: 2,
                ..Workload::default()
            };
            let sample = measure(&target, &workload).unwrap();
            assert_eq!((sample.bytes(), sample.errors), (1 << 20, 0), "{engine_kind}");
        }
    }
}
