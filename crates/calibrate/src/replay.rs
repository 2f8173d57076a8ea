//! Lets a simulated system go through the trials of a stored run.
//!
//! With a memory (a cache, a write buffer, credit) all trials are one history: each begins when it
//! began, and finds the device as the one before left it. Without, each point is simulated once,
//! by itself and only until its rate is known, which gives the same and is faster.

use std::sync::atomic::AtomicBool;

use ioengine::{Caching, Clock, VirtualTime};
use lab::failure::Outcome;
use lab::record;
use simulator::system::DriveModel;
use simulator::{SimClock, SimTarget, SimWorld, System};
use workload::{Control, Workload, plan, stepper};

use crate::history::{History, Moment, TrialSummary};

/// Requests after which the rate of a device without memory is known to a part in a thousand ...
const REQUESTS: u64 = 1500;
/// ... and for each that is outstanding, lest beginning and end weigh too much.
const REQUESTS_FOR_EACH: u64 = 50;

/// Whether what a system did changes what it does.
pub fn has_memory(system: &System) -> bool {
    match &system.drive {
        DriveModel::Flash(flash) => {
            flash.cache.0 > 0.0 || flash.buffer.0 > 0.0 || flash.sustained.0 > 0.0
        }
        DriveModel::Disk(_) => false,
    }
}

/// What every trial of a history comes to on a system, in their order.
///
/// # Errors
/// When a workload does not fit the system.
pub fn replay(system: &System, history: &History) -> Outcome<Vec<TrialSummary>> {
    Ok(replay_while(system, history, |_, _| true)?.unwrap_or_default())
}

/// The same, as long as `goes_on` says so of what each trial comes to; `None` where it was stopped.
///
/// # Errors
/// When a workload does not fit the system.
pub fn replay_while(
    system: &System,
    history: &History,
    mut goes_on: impl FnMut(usize, &TrialSummary) -> bool,
) -> Outcome<Option<Vec<TrialSummary>>> {
    if !has_memory(system) {
        return replay_points(system, history).map(Some);
    }
    let world = SimWorld::new(system, 1);
    let file = world.files(Caching::Direct).remove(0);
    let mut all = Vec::with_capacity(history.trials.len());
    for (index, trial) in history.trials.iter().enumerate() {
        let seen = in_turn(&world, &file, trial, history)?;
        if !goes_on(index, &seen) {
            return Ok(None);
        }
        all.push(seen);
    }
    Ok(Some(all))
}

/// Each point by itself, for a system without a memory.
fn replay_points(system: &System, history: &History) -> Outcome<Vec<TrialSummary>> {
    let alone: Outcome<Vec<TrialSummary>> = (0..history.points.len())
        .map(|point| {
            let workload = &history.points[point].workload;
            let requests = REQUESTS
                .max(REQUESTS_FOR_EACH * u64::from(workload.depth) * u64::from(workload.threads));
            let short = Workload {
                limit_bytes: workload
                    .limit_bytes
                    .map(|bytes| bytes.min(requests * u64::from(workload.request_bytes))),
                warm_up_ns: 0,
                ..workload.clone()
            };
            let world = SimWorld::new(system, 1);
            let file = world.files(Caching::Direct).remove(0);
            let seen = one(&world, &file, &short, history, point)?;
            Ok(TrialSummary { late_bytes_per_s: Some(seen.bytes_per_s), ..seen })
        })
        .collect();
    let alone = alone?;
    Ok(history.trials.iter().map(|trial| alone[trial.point]).collect())
}

/// One trial, when its time has come.
fn in_turn(
    world: &SimWorld,
    file: &SimTarget,
    trial: &Moment,
    history: &History,
) -> Outcome<TrialSummary> {
    let clock = world.clock();
    pass_to(&clock, trial.start_ns);
    one(world, file, &trial.workload, history, trial.point)
}

/// Lets an idle world's time pass.
fn pass_to(clock: &SimClock, until_ns: u64) {
    while clock.now_ns() < until_ns && clock.pass(until_ns).is_some() {}
}

fn one(
    world: &SimWorld,
    file: &SimTarget,
    workload: &Workload,
    history: &History,
    point: usize,
) -> Outcome<TrialSummary> {
    let planned = plan::resolve(workload, file)?;
    let stop = AtomicBool::new(false);
    let mut control = Control { stop: &stop, on_progress: &mut |_| {} };
    let sample = stepper::run(&[file], &planned, &world.clock(), &world.meter(), &mut control)?;
    Ok(TrialSummary::of(&record::trial(sample), &history.points[point].key))
}
