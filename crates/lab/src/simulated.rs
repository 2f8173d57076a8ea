//! Runs workloads on simulated systems: a single point, or many points in parallel.
//!
//! Each point gets its own simulated system in virtual time. Points do not influence each other,
//! and results do not depend on the number of threads.

use analysis::units;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use ioengine::{Caching, EngineKind, Op, Target};
use schemars::JsonSchema;
use serde::Serialize;
use simulator::bounds::{self, Bound, Shape};
use simulator::system::{CachingChoice, DriveModel};
use simulator::{Account, SimTarget, SimWorld, SimpleModel, System};
use workload::{
    Control, Distribution, Pattern, Placement, Progress, Sample, Workload, plan, stepper,
};

use crate::failure::{Failure, Outcome};
use crate::machine::{DeviceFacts, LinkFacts, SimulatedFacts, TargetFacts};
use crate::simulated_target::SimulatedTarget;

/// Relative amount by which a rate may exceed its upper bound, because times are rounded to
/// nanoseconds.
const ROUNDING: f64 = 1e-6;

/// The result of a workload on a simulated system.
#[derive(Debug)]
pub struct Simulated {
    /// What the load generator measured.
    pub sample: Sample,
    /// Resource use of the simulated system.
    pub account: Account,
}

impl Simulated {
    /// Returns the throughput (bytes per second). The elapsed time ends with the last request, or
    /// with a flush after it.
    pub fn bytes_per_s(&self) -> f64 {
        per_second(self.sample.bytes(), &self.sample)
    }

    /// Returns the number of requests per second.
    pub fn requests_per_s(&self) -> f64 {
        per_second(self.sample.requests(), &self.sample)
    }

    /// Returns the CPU time per request that was charged to the program (ns).
    pub fn cpu_lower_ns(&self) -> f64 {
        self.sample.cpu.process_ns as f64 / self.sample.requests().max(1) as f64
    }

    /// Returns the CPU time per request of the whole machine (ns).
    pub fn cpu_upper_ns(&self) -> f64 {
        let busy_ns = self.sample.cpu.machine_ns.unwrap_or(0);
        busy_ns as f64 / self.sample.requests().max(1) as f64
    }
}

fn per_second(count: u64, sample: &Sample) -> f64 {
    let elapsed_ns = sample.end_ns.saturating_sub(sample.start_ns);
    if elapsed_ns == 0 { 0.0 } else { count as f64 * 1e9 / elapsed_ns as f64 }
}

/// Returns the caching mode of a simulated system.
pub fn caching_of(system: &System) -> Caching {
    match system.setup.caching {
        CachingChoice::Direct => Caching::Direct,
        CachingChoice::Buffered => Caching::Buffered,
    }
}

/// Runs a workload on every file of a system.
///
/// # Errors
/// The workload does not fit the system, or the simulation violates a physical limit, which is a
/// bug.
pub fn simulate(system: &System, workload: &Workload, caching: Caching) -> Outcome<Simulated> {
    let stop = AtomicBool::new(false);
    simulate_until(system, workload, caching, &stop, &mut |_| {})
}

/// Like [`simulate`], with a stop flag and progress reports.
///
/// # Errors
/// As for [`simulate`].
pub fn simulate_until(
    system: &System,
    workload: &Workload,
    caching: Caching,
    stop: &AtomicBool,
    on_progress: &mut dyn FnMut(Progress),
) -> Outcome<Simulated> {
    let world = SimWorld::new(system, workload.seed);
    let files = world.files(caching);
    let targets: Vec<&SimTarget> = files.iter().collect();
    let workload = Workload { engine_kind: EngineKind::IoUring, ..workload.clone() };
    let planned = plan::resolve(&workload, targets[0])?;
    let mark = world.mark();
    let mut control = Control { stop, on_progress, start: None };
    let (clock, meter) = (world.clock(), world.meter());
    let sample = stepper::run(&targets, &planned, &clock, &meter, &mut control)?;
    let account = world.account_since(&mark);
    check_laws(system, &account)?;
    Ok(Simulated { sample, account })
}

fn check_laws(system: &System, account: &Account) -> Outcome<()> {
    match account.violations().first() {
        None => Ok(()),
        Some(broken) => Err(Failure::failed(format!(
            "{}: the simulation violated a physical limit: {broken}; this is a bug in halfpower",
            system.name
        ))),
    }
}

/// The results of workloads that ran at the same time.
#[derive(Debug)]
pub struct Together {
    /// Measurements of each workload, in the order of the workloads.
    pub samples: Vec<Sample>,
    /// Resource use of the simulated system.
    pub account: Account,
}

/// Runs several workloads on every file of a system at the same time.
///
/// # Errors
/// As for [`simulate`].
pub fn together(
    system: &System,
    streams: &[Workload],
    caching: Caching,
    stop: &AtomicBool,
) -> Outcome<Together> {
    let world = SimWorld::new(system, streams.first().map_or(0, |workload| workload.seed));
    let files = world.files(caching);
    let plan = |workload: &Workload| {
        let own = Workload { engine_kind: EngineKind::IoUring, ..workload.clone() };
        plan::resolve(&own, &files[0])
    };
    let plans = streams.iter().map(plan).collect::<Result<Vec<_>, _>>()?;
    let planned: Vec<(Vec<&SimTarget>, &workload::Plan)> =
        plans.iter().map(|plan| (files.iter().collect(), plan)).collect();
    let mark = world.mark();
    let mut control = Control { stop, on_progress: &mut |_| {}, start: None };
    let samples = stepper::run_together(&planned, &world.clock(), &mut control)?;
    let account = world.account_since(&mark);
    check_laws(system, &account)?;
    Ok(Together { samples, account })
}

/// An upper bound on the throughput.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct BoundDocument {
    /// Name of the resource that sets the bound.
    pub name: String,
    /// Highest possible throughput (bytes per second).
    pub bytes_per_s: f64,
}

impl From<&Bound> for BoundDocument {
    fn from(bound: &Bound) -> BoundDocument {
        BoundDocument { name: bound.name.clone(), bytes_per_s: bound.bytes_per_s }
    }
}

/// Returns upper bounds on the throughput of a run that moves `moved` bytes, lowest first. The
/// bounds hold for runs that start with a cold cache, only read or only write, and request each
/// byte at most once. Empty for other workloads.
pub fn bounds_of(system: &System, workload: &Workload, caching: Caching, moved: u64) -> Vec<Bound> {
    let shape = shape_of(system, workload, caching, moved);
    let shape = shape.filter(|_| asks_once(workload, moved));
    shape.map(|shape| bounds::of(system, &shape)).unwrap_or_default()
}

/// Returns the simple model of Riedel et al. (1997): the time of a request if no steps of the
/// request overlap. None unless the workload is direct reads or direct writes on a single disk.
pub fn simple_model_of(
    system: &System,
    workload: &Workload,
    caching: Caching,
) -> Option<SimpleModel> {
    let shape = shape_of(system, workload, caching, 0)?;
    SimpleModel::of(system, &shape, workload.region_bytes)
}

/// Returns the properties of a workload that determine its bounds. `moved` is the number of bytes
/// that the workload moves. None for mixes of reads and writes, replays, strides, skewed
/// distributions and several request sizes.
pub fn shape_of(
    system: &System,
    workload: &Workload,
    caching: Caching,
    moved: u64,
) -> Option<Shape> {
    let op = match workload.read_percent {
        100 => Op::Read,
        0 => Op::Write,
        _ => return None,
    };
    let random = match workload.pattern {
        _ if workload.replay.is_some() => return None,
        _ if !workload.request_sizes.is_empty() => return None,
        Pattern::Random if workload.distribution != Distribution::Even => return None,
        Pattern::Random => true,
        Pattern::Sequential => false,
        Pattern::Strided { .. } => return None,
    };
    let files = u64::from(system.setup.files());
    let depth = u64::from(workload.depth) * u64::from(workload.threads) * files;
    Some(Shape {
        op,
        random,
        request_bytes: workload.request_bytes,
        depth: u32::try_from(depth).unwrap_or(u32::MAX),
        caching,
        bytes: Some(moved),
    })
}

/// Whether a workload requests each byte at most once and has neither a warm-up nor a steady-state
/// search.
fn asks_once(workload: &Workload, moved: u64) -> bool {
    let threads = u64::from(workload.threads);
    let cold = workload.warm_up_ns == 0 && workload.steady.is_none();
    let apart = threads == 1 || workload.placement != Placement::Shared;
    let limited = workload.limit_bytes.is_some_and(|bytes| bytes <= workload.region_bytes);
    let short = moved.saturating_mul(threads) <= workload.region_bytes;
    cold && apart && (limited || short) && moved > 0
}

/// Checks that a run was not faster than one of its upper bounds, which would be a bug.
///
/// # Errors
/// A bound is exceeded. The message contains both rates.
pub fn check_bounds(system: &System, bounds: &[Bound], bytes_per_s: f64) -> Outcome<()> {
    let broken = bounds.iter().find(|bound| bytes_per_s > bound.bytes_per_s * (1.0 + ROUNDING));
    match broken {
        None => Ok(()),
        Some(bound) => Err(Failure::failed(format!(
            "{}: the simulation reached {}, but {} allows at most {}; this is a bug in halfpower",
            system.name,
            units::rate(bytes_per_s),
            bound.name,
            units::rate(bound.bytes_per_s)
        ))),
    }
}

/// Checks that a workload fits a simulated system.
///
/// # Errors
/// A usage error with the remedy.
pub fn check_fit(place: &SimulatedTarget, workload: &Workload) -> Outcome<()> {
    let world = SimWorld::new(&place.system, workload.seed);
    let files = world.files(place.caching);
    plan::resolve(&Workload { engine_kind: EngineKind::IoUring, ..workload.clone() }, &files[0])?;
    Ok(())
}

/// Describes a simulated system as a target.
pub fn facts(place: &SimulatedTarget) -> TargetFacts {
    let world = SimWorld::new(&place.system, 0);
    let file = &world.files(place.caching)[0];
    let links = file.advertised().into_iter().map(|rate| LinkFacts {
        component: rate.component,
        bytes_per_s: rate.bytes_per_s,
        source: rate.source,
    });
    TargetFacts {
        name: place.name.clone(),
        kind: file.kind().name().to_owned(),
        size_bytes: file.size_bytes(),
        device: Some(device_of(&place.system)),
        links: links.collect(),
        simulated: Some(SimulatedFacts {
            system: place.system.name.clone(),
            title: place.system.title.clone(),
            changes: place.changes.clone(),
        }),
        ..TargetFacts::default()
    }
}

/// Describes one device of a system. All devices of a system are equal.
fn device_of(system: &System) -> DeviceFacts {
    let rotation = match &system.drive {
        DriveModel::Disk(disk) => Some(disk.rotation.0),
        DriveModel::Flash(_) => None,
    };
    let state = if system.setup.write_cache { "write back" } else { "write through" };
    DeviceFacts {
        name: "simulated".to_owned(),
        rotational: Some(rotation.is_some()),
        // The rotation of several disks is not synchronised, so no common speed is reported.
        revolutions_per_min: rotation.filter(|_| system.setup.disks <= 1).map(|r| r.round() as u32),
        write_cache: Some(state.to_owned()),
        ..DeviceFacts::default()
    }
}

/// Applies `work` to every input, in parallel on all cores. Returns the results in the order of the
/// inputs.
pub fn on_all_cores<I: Sync, O: Send>(inputs: &[I], work: impl Fn(&I) -> O + Sync) -> Vec<O> {
    let threads = thread::available_parallelism().map_or(1, |count| count.get());
    let next = AtomicUsize::new(0);
    let slots: Vec<Mutex<Option<O>>> = inputs.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..threads.min(inputs.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(input) = inputs.get(index) else { return };
                    let output = work(input);
                    *slots[index].lock().unwrap_or_else(PoisonError::into_inner) = Some(output);
                }
            });
        }
    });
    let taken =
        slots.into_iter().map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner));
    taken.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use simulator::Description;

    fn ultra() -> System {
        Description::named("nt4-ultrawide").unwrap().system().unwrap()
    }

    fn reads(request_bytes: u32) -> Workload {
        Workload {
            request_bytes,
            region_bytes: 10 << 20,
            limit_bytes: Some(10 << 20),
            ..Workload::default()
        }
    }

    #[test]
    fn a_simulated_disk_reads_at_the_rate_of_its_media() {
        let simulated = simulate(&ultra(), &reads(65536), Caching::Direct).unwrap();
        let mib_per_s = simulated.bytes_per_s() / 1_048_576.0;
        assert!((8.5..9.2).contains(&mib_per_s), "{mib_per_s}");
    }

    #[test]
    fn a_rate_above_a_bound_is_refused() {
        let (system, load) = (ultra(), reads(65536));
        let rate = simulate(&system, &load, Caching::Direct).unwrap().bytes_per_s();
        let bounds = bounds_of(&system, &load, Caching::Direct, 10 << 20);
        assert_eq!(bounds[0].name, "media");
        assert!(check_bounds(&system, &bounds, rate).is_ok(), "{rate} {bounds:?}");
        let failure = check_bounds(&system, &bounds, 1.3 * rate).unwrap_err();
        assert!(failure.message.contains("but media allows at most"), "{failure}");
        assert_eq!(failure.exit, crate::failure::Exit::Failed);
    }

    #[test]
    fn streams_on_one_disk_share_its_rate() {
        let timed = Workload {
            limit_bytes: None,
            limit_ns: Some(2_000_000_000),
            region_bytes: 64 << 20,
            ..reads(65536)
        };
        let random = Workload { pattern: Pattern::Random, request_bytes: 8192, ..timed.clone() };
        let run = |streams: &[Workload]| {
            let stop = AtomicBool::new(false);
            let found = together(&ultra(), streams, Caching::Direct, &stop).unwrap();
            found.samples.iter().map(Sample::bytes).collect::<Vec<u64>>()
        };
        let one = simulate(&ultra(), &timed, Caching::Direct).unwrap().sample.bytes();
        assert_eq!(run(std::slice::from_ref(&timed)), [one]);
        let both = run(&[timed.clone(), random.clone()]);
        assert!(both[0] < one && both[1] < run(std::slice::from_ref(&random))[0], "{both:?}");
        assert_eq!(both, run(&[timed.clone(), random.clone()]), "repeated runs have equal results");
        let twins = run(&[random.clone(), Workload { seed: 2, ..random }]);
        let (less, more) = (twins[0].min(twins[1]) as f64, twins[0].max(twins[1]) as f64);
        assert!(less > 0.9 * more, "equal streams get equal shares: {twins:?}");
        let warm = Workload { warm_up_ns: 1, ..timed };
        let stop = AtomicBool::new(false);
        assert!(together(&ultra(), &[warm], Caching::Direct, &stop).is_err());
    }

    #[test]
    fn bounds_exist_only_for_one_direction_and_each_byte_once() {
        let once = reads(65536);
        let bounded =
            |load: &Workload, moved| !bounds_of(&ultra(), load, Caching::Direct, moved).is_empty();
        assert!(bounded(&once, 10 << 20));
        let unlimited = Workload { limit_bytes: None, limit_ns: Some(1), ..once.clone() };
        assert!(bounded(&unlimited, 10 << 20) && !bounded(&unlimited, 11 << 20));
        let twice = Workload { limit_bytes: Some(20 << 20), ..once.clone() };
        assert!(!bounded(&twice, 20 << 20));
        for other in [
            Workload { read_percent: 50, ..once.clone() },
            Workload { warm_up_ns: 1, ..once.clone() },
            Workload { threads: 2, placement: Placement::Shared, ..once.clone() },
        ] {
            assert!(!bounded(&other, 10 << 20), "{other:?}");
        }
    }

    #[test]
    fn parallel_points_equal_sequential_ones_bit_for_bit() {
        let system = ultra();
        let sizes: Vec<u32> = (1..=16).map(|n| n * 4096).collect();
        let rate =
            |size: &u32| simulate(&system, &reads(*size), Caching::Direct).unwrap().bytes_per_s();
        let together: Vec<f64> = on_all_cores(&sizes, rate);
        let alone: Vec<f64> = sizes.iter().map(rate).collect();
        assert_eq!(together, alone);
    }
}
