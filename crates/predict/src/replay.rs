//! Replays the trials of a stored run on a simulated system, in virtual time.
//!
//! For a stateful system (one with a cache, a write buffer or burst credit), all trials run in one
//! simulation. Each trial starts at its recorded time, in the state that the previous trial left.
//! For a stateless system, each point is simulated once, separately, and only until its rate is
//! known. This is faster and gives the same result. If several hosts measured a point, the same
//! number of simulated hosts run it.

use std::sync::atomic::AtomicBool;

use ioengine::{Caching, Clock, VirtualTime};
use lab::failure::Outcome;
use lab::record;
use simulator::system::DriveModel;
use simulator::{SimTarget, SimWorld, System};
use workload::{Control, Workload, plan, stepper};

use crate::history::{History, TrialSummary};

/// Number of requests after which the rate of a stateless device is known to 0.1%.
const REQUESTS: u64 = 1500;
/// Minimum number of simulated requests, as a multiple of the number of outstanding requests. It is
/// so large that the start and the end of the simulation have little weight.
const REQUESTS_PER_OUTSTANDING: u64 = 50;

/// Returns true if earlier requests change the speed of later requests.
fn is_stateful(system: &System) -> bool {
    match &system.drive {
        DriveModel::Flash(flash) => {
            let has_memory = flash.cache.0 > 0.0 || flash.buffer.0 > 0.0;
            has_memory || flash.sustained.0 > 0.0 || flash.sustained_requests_per_s.0 > 0.0
        }
        DriveModel::Disk(_) => false,
    }
}

/// Simulates every trial of a history. The results are in the order of [`History::trials`].
///
/// # Errors
/// If the system cannot run a workload.
pub fn replay(system: &System, history: &History) -> Outcome<Vec<TrialSummary>> {
    Ok(replay_while(system, history, |_, _| true)?.unwrap_or_default())
}

/// Like [`replay`], but stops and returns `None` as soon as `goes_on` returns false. `goes_on` is
/// called after each trial with its index and result. A stateless system is always replayed to the
/// end without these calls, because this takes little time.
///
/// # Errors
/// If the system cannot run a workload.
pub fn replay_while(
    system: &System,
    history: &History,
    mut goes_on: impl FnMut(usize, &TrialSummary) -> bool,
) -> Outcome<Option<Vec<TrialSummary>>> {
    if !is_stateful(system) {
        return replay_points(system, history).map(Some);
    }
    let world = SimWorld::new(system, 1);
    let files = world.files(Caching::Direct);
    let mut all = Vec::with_capacity(history.trials.len());
    for (index, trial) in history.trials.iter().enumerate() {
        let clock = world.clock();
        // The pause before the trial is simulated too, because credit is refilled and buffers are
        // drained during a pause.
        while clock.now_ns() < trial.start_ns && clock.pass(trial.start_ns).is_some() {}
        let summary = simulate(&world, &files[..1], &trial.workload, history, trial.point)?;
        if !goes_on(index, &summary) {
            return Ok(None);
        }
        all.push(summary);
    }
    Ok(Some(all))
}

/// Simulates each point of a history in a separate simulation, and uses the result for all its
/// trials.
fn replay_points(system: &System, history: &History) -> Outcome<Vec<TrialSummary>> {
    let alone: Outcome<Vec<TrialSummary>> = (0..history.points.len())
        .map(|point| {
            let workload = &history.points[point].workload;
            let system = of_hosts(system, history, point);
            let requests = REQUESTS.max(
                REQUESTS_PER_OUTSTANDING * u64::from(workload.depth) * u64::from(workload.threads),
            );
            let short = Workload {
                limit_bytes: workload
                    .limit_bytes
                    .map(|bytes| bytes.min(requests * u64::from(workload.request_bytes))),
                warm_up_ns: 0,
                ..workload.clone()
            };
            let world = SimWorld::new(&system, 1);
            let mut files = world.files(Caching::Direct);
            files.truncate(history.points[point].hosts as usize);
            let summary = simulate(&world, &files, &short, history, point)?;
            Ok(TrialSummary { late_bytes_per_s: Some(summary.bytes_per_s), ..summary })
        })
        .collect();
    let alone = alone?;
    Ok(history.trials.iter().map(|trial| alone[trial.point]).collect())
}

/// Returns the system with as many hosts as the point had, and with one device for each host. If no
/// point of the history has several hosts, the system is returned unchanged.
fn of_hosts(system: &System, history: &History, point: usize) -> System {
    let mut system = system.clone();
    if history.hosts() > 1 {
        system.setup.hosts = history.points[point].hosts;
        system.setup.disks = system.setup.hosts;
    }
    system
}

/// Simulates one trial of a point. The workload runs on all `files` at the same time.
fn simulate(
    world: &SimWorld,
    files: &[SimTarget],
    workload: &Workload,
    history: &History,
    point: usize,
) -> Outcome<TrialSummary> {
    let planned = plan::resolve(workload, &files[0])?;
    let files: Vec<&SimTarget> = files.iter().collect();
    let stop = AtomicBool::new(false);
    let mut control = Control { stop: &stop, on_progress: &mut |_| {}, start: None };
    let sample = stepper::run(&files, &planned, &world.clock(), &world.meter(), &mut control)?;
    Ok(TrialSummary::of(&record::trial(sample), &history.points[point].key))
}
