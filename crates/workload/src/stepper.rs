//! Runs a plan in simulated time.
//!
//! One thread steps all workers. When all workers wait, virtual time advances to the next
//! completion or event. Every run of a plan gives identical results. The measured quantities are
//! those of [`crate::runner`].

use std::sync::atomic::Ordering;

use cpucost::{CpuMeter, CpuSample};
use ioengine::target::DeviceCounters;
use ioengine::{Target, VirtualTime};

use crate::error::Error;
use crate::plan::{Plan, WorkerPlan};
use crate::replayer::Replayer;
use crate::runner::{Control, Progress, SteadyWatch, counters_of, worker_plans};
use crate::sample::Sample;
use crate::thread_load::ThreadLoad;
use crate::worker::{State, TargetCall, Worker};

/// Number of advances of virtual time between two progress reports.
const PASSES: u64 = 16_384;
/// Maximum virtual time between two checks of the workers (ns).
const LOOK_NS: u64 = 1_000_000_000;

/// A worker, its target, and whether the worker has finished.
struct Stepped<'a, T: Target, L> {
    worker: L,
    target: &'a T,
    done: bool,
}

/// A reading of the CPU meter and the device counters.
struct Reading {
    cpu: CpuSample,
    device: Option<DeviceCounters>,
}

/// Runs a plan on each of the targets in virtual time, like [`crate::runner::run`] in real time.
///
/// # Errors
/// If an engine cannot be created or cannot continue.
pub fn run<T, C, M>(
    targets: &[&T],
    plan: &Plan,
    clock: &C,
    meter: &M,
    control: &mut Control<'_>,
) -> Result<Sample, Error>
where
    T: Target,
    C: VirtualTime + Clone,
    M: CpuMeter,
{
    match plan.workload.replay {
        None => run_loads::<T, C, M, Worker<T::Engine, C>>(targets, plan, clock, meter, control),
        Some(_) => {
            run_loads::<T, C, M, Replayer<T::Engine, C>>(targets, plan, clock, meter, control)
        }
    }
}

/// Implements [`run`] for one kind of load: a generated load or a replay.
fn run_loads<T, C, M, L>(
    targets: &[&T],
    plan: &Plan,
    clock: &C,
    meter: &M,
    control: &mut Control<'_>,
) -> Result<Sample, Error>
where
    T: Target,
    C: VirtualTime + Clone,
    M: CpuMeter,
    L: ThreadLoad<C, Engine = T::Engine>,
{
    let first_engine = clock.engines();
    let plans = worker_plans(plan, targets.len());
    let mut all = Vec::with_capacity(plans.len());
    let flushes = plan.workload.flush_every.is_some() || plan.workload.replay.is_some();
    if flushes && plans.len() > 1 {
        return Err(flush_unsupported().into());
    }
    for (target, worker) in &plans {
        all.push(build::<T, C, L>(targets[*target], plan, worker, clock)?);
    }
    let read = || Reading { cpu: meter.sample(clock.now_ns()), device: counters_of(targets) };
    let mut before = read();
    let start_ns = clock.now_ns();
    let warm_until_ns = start_ns + plan.workload.warm_up_ns;
    let mut watch = SteadyWatch::new(plan.workload.steady, warm_until_ns);
    let mut measure_from_ns = if watch.is_watching() { u64::MAX } else { warm_until_ns };
    for (stepped, (_, worker)) in all.iter_mut().zip(&plans) {
        stepped.worker.start(start_ns, measure_from_ns, &plan.workload, worker);
    }
    let mut warming_up = measure_from_ns > start_ns;
    let due_ns = if warming_up { measure_from_ns } else { u64::MAX };
    drive(&mut all, first_engine, due_ns, clock, control, |all| {
        if !warming_up {
            return u64::MAX;
        }
        let now_ns = clock.now_ns();
        let bytes = all.iter().map(|stepped| stepped.worker.sample().bytes()).sum();
        if watch.is_over(now_ns, bytes) {
            measure_from_ns = now_ns;
            all.iter_mut().for_each(|stepped| stepped.worker.measure_from(now_ns));
        }
        if now_ns >= measure_from_ns {
            warming_up = false;
            before = read();
            return u64::MAX;
        }
        measure_from_ns
    })?;
    finish(targets, plan, clock, all, (&before, &read), &watch, control)
}

/// Runs several plans at the same time in one simulation, on separate or shared targets. All plans
/// start together. Each plan ends at its own limit, without a final flush. CPU and device counters
/// are not read. The samples are returned in the order of the plans.
///
/// # Errors
/// The errors of [`run`], and a usage error for a plan with a warm-up or with periodic flushes.
pub fn run_together<T, C>(
    streams: &[(Vec<&T>, &Plan)],
    clock: &C,
    control: &mut Control<'_>,
) -> Result<Vec<Sample>, Error>
where
    T: Target,
    C: VirtualTime + Clone,
{
    let (first_engine, start_ns) = (clock.engines(), clock.now_ns());
    let (mut all, mut owners) = (Vec::new(), Vec::new());
    for (stream, (targets, plan)) in streams.iter().enumerate() {
        if plan.workload.warm_up_ns > 0 || plan.workload.steady.is_some() {
            return Err(no_warm_up_error().into());
        }
        if plan.workload.flush_every.is_some() {
            return Err(flush_unsupported().into());
        }
        for (target, worker) in worker_plans(plan, targets.len()) {
            let mut stepped: Stepped<'_, T, Worker<T::Engine, C>> =
                build(targets[target], plan, &worker, clock)?;
            stepped.worker.start(start_ns, start_ns, &plan.workload, &worker);
            all.push(stepped);
            owners.push(stream);
        }
    }
    drive(&mut all, first_engine, u64::MAX, clock, control, |_| u64::MAX)?;
    let mut samples: Vec<Option<Sample>> = streams.iter().map(|_| None).collect();
    for (stepped, stream) in all.into_iter().zip(owners) {
        let (part, _) = stepped.worker.finish();
        match &mut samples[stream] {
            Some(sample) => sample.merge(&part),
            none => *none = Some(part),
        }
    }
    let of = |(sample, (_, plan)): (Option<Sample>, &(Vec<&T>, &Plan))| {
        let mut sample = sample.unwrap_or_else(|| Sample::new(plan.workload.interval_ns));
        sample.interrupted = control.stop.load(Ordering::Relaxed);
        sample
    };
    Ok(samples.into_iter().zip(streams).map(of).collect())
}

/// Returns the error for a plan with a warm-up. Plans that run together must be measured from the
/// common start.
fn no_warm_up_error() -> ioengine::Error {
    let what = "streams that run at the same time cannot have a warm-up";
    ioengine::Error::new(ioengine::ErrorKind::Usage, what).with_remedy("remove the warm-up")
}

/// Steps all workers until they finish. Virtual time never advances beyond `due_ns`. After each
/// advance, calls `look`, which returns the next `due_ns`.
fn drive<T: Target, C: VirtualTime, L: ThreadLoad<C>>(
    all: &mut [Stepped<'_, T, L>],
    first_engine: u32,
    mut due_ns: u64,
    clock: &C,
    control: &mut Control<'_>,
    mut look: impl FnMut(&mut [Stepped<'_, T, L>]) -> u64,
) -> Result<(), Error> {
    let start_ns = clock.now_ns();
    let mut ready: Vec<usize> = (0..all.len()).rev().collect();
    let (mut until_ns, mut passes, mut live) = (u64::MAX, 0_u64, all.len());
    loop {
        let stop = control.stop.load(Ordering::Relaxed);
        while let Some(index) = ready.pop() {
            live -= usize::from(step(&mut all[index], clock, stop)?);
            if !all[index].done {
                until_ns = until_ns.min(all[index].worker.wake_up_ns(clock.now_ns()));
            }
        }
        if live == 0 {
            return Ok(());
        }
        passes += 1;
        if passes.is_multiple_of(PASSES) {
            (control.on_progress)(progress(all, clock.now_ns() - start_ns));
        }
        until_ns = until_ns.min(due_ns);
        match clock.pass(until_ns.min(clock.now_ns() + LOOK_NS)) {
            Some(engine) => ready.push((engine - first_engine) as usize),
            None => {
                until_ns = u64::MAX;
                ready.extend((0..all.len()).rev().filter(|index| !all[*index].done));
            }
        }
        due_ns = look(all);
    }
}

/// Steps a worker until it waits or finishes. Returns true if the worker has just finished.
fn step<T: Target, C: VirtualTime, L: ThreadLoad<C>>(
    stepped: &mut Stepped<'_, T, L>,
    clock: &C,
    stop: bool,
) -> Result<bool, Error> {
    while !stepped.done {
        let state = stepped
            .worker
            .step(stop)
            .map_err(|error| if stepped.worker.is_hung() { request_too_slow() } else { error })?;
        match state {
            State::Running => {}
            State::Waiting => return Ok(false),
            State::CallDue(call) => {
                let begun_ns = clock.now_ns();
                match call {
                    TargetCall::Flush { data_only: true } => stepped.target.sync_data()?,
                    TargetCall::Flush { data_only: false } => stepped.target.sync()?,
                    TargetCall::ResetZone { offset, bytes } => {
                        stepped.target.reset_zones(offset, bytes)?;
                    }
                    TargetCall::Advise { hint, offset, bytes } => {
                        stepped.target.advise(hint, offset, bytes)?;
                    }
                }
                stepped.worker.called(begun_ns);
            }
            State::Done => {
                stepped.done = true;
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Returns the error for a request that exceeds the hang limit. A simulated request takes so long
/// only if the parameters of the model are wrong.
fn request_too_slow() -> ioengine::Error {
    let what = "a request to the simulated system takes more than 60 s of virtual time";
    ioengine::Error::new(ioengine::ErrorKind::Io, what)
        .with_remedy("check the system parameters that you changed")
}

/// Returns the error for periodic flushes with several workers. A flush advances virtual time, and
/// the other workers would not be stepped during that time.
fn flush_unsupported() -> ioengine::Error {
    let what = "on a simulated system, only a single thread can flush between writes";
    ioengine::Error::new(ioengine::ErrorKind::Usage, what)
        .with_remedy("use one thread on one target, or remove `fsync`")
}

fn build<'a, T: Target, C: VirtualTime + Clone, L: ThreadLoad<C, Engine = T::Engine>>(
    target: &'a T,
    plan: &Plan,
    worker: &WorkerPlan,
    clock: &C,
) -> Result<Stepped<'a, T, L>, Error> {
    let worker = L::build(target, clock.clone(), &plan.workload, worker)?;
    Ok(Stepped { worker, target, done: false })
}

fn progress<T: Target, C: VirtualTime, L: ThreadLoad<C>>(
    all: &[Stepped<'_, T, L>],
    elapsed_ns: u64,
) -> Progress {
    let samples = || all.iter().map(|stepped| stepped.worker.sample());
    Progress {
        elapsed_ns,
        bytes: samples().map(Sample::bytes).sum(),
        requests: samples().map(Sample::requests).sum(),
    }
}

/// Flushes if the workload requests it, takes the last readings and merges all samples.
fn finish<T: Target, C: VirtualTime, L: ThreadLoad<C, Engine = T::Engine>>(
    targets: &[&T],
    plan: &Plan,
    clock: &C,
    all: Vec<Stepped<'_, T, L>>,
    (before, read): (&Reading, &dyn Fn() -> Reading),
    watch: &SteadyWatch,
    control: &Control<'_>,
) -> Result<Sample, Error> {
    let interrupted = control.stop.load(Ordering::Relaxed);
    let flush = plan.workload.flush_at_end && plan.workload.writes() && !interrupted;
    let mut samples = Vec::with_capacity(all.len());
    let mut engines = Vec::with_capacity(all.len());
    for stepped in all {
        let (sample, engine) = stepped.worker.finish();
        samples.push(sample);
        engines.push(engine);
    }
    if flush {
        T::sync_all(targets)?;
        for sample in &mut samples {
            sample.accepted_ns = Some(sample.end_ns);
            sample.end_ns = clock.now_ns();
        }
    }
    let after = read();
    let mut parts = samples.into_iter().zip(engines).map(|(mut sample, engine)| {
        sample.setup = ioengine::Engine::setup(&engine);
        sample
    });
    let mut sample = parts.next().unwrap_or_else(|| Sample::new(plan.workload.interval_ns));
    parts.for_each(|part| sample.merge(&part));
    sample.cpu = after.cpu.since(&before.cpu);
    let device = after.device.zip(before.device);
    sample.device = device.map(|(after, before)| after.since(&before));
    sample.interrupted = interrupted;
    sample.became_steady = watch.found;
    Ok(sample)
}
