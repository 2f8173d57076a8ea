//! Traces real requests on this machine. The tests check that all requests are found in the trace,
//! and that a delay in one layer lengthens only the phase of that layer.
//!
//! The tests need root, tracefs, FUSE, loop devices and the cgroup v1 blkio controller. A test that
//! lacks one of these reports the reason and is skipped.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod devices;
mod load;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cpucost::affinity;
use cpucost::rusage::ProcessTime;
use ioengine::extents::DiskExtents;
use ioengine::truth::Truth;
use ioengine::{Caching, EngineKind, EngineOption, HostTarget};
use iotrace::{Extent, Phase, Phases, TraceSpec, Tracer};

use devices::{SlowDevice, Throttle};
use load::{HogTime, Load, SqPollThread, real_time_allowed};

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;

/// Unwraps an `Ok`. On an `Err`, reports the reason and skips the test.
macro_rules! or_skip {
    ($wanted:expr) => {
        match $wanted {
            Ok(value) => value,
            Err(reason) => {
                skip(std::any::type_name_of_val(&|| ()), &reason.to_string());
                return;
            }
        }
    };
}

fn skip(closure_in_test: &str, reason: &str) {
    let test = closure_in_test.trim_end_matches("::{{closure}}");
    let line = format!("skipped: {test}: {reason}");
    eprintln!("{line}");
    if let Some(log) = std::env::var_os("HALFPOWER_SKIP_LOG") {
        let mut log = OpenOptions::new().append(true).create(true).open(log).unwrap();
        writeln!(log, "{line}").unwrap();
    }
}

/// Makes the tests run one after another, because they would disturb each other's timing.
fn serialise() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Measured {
    phases: Phases,
    /// Median latency that the load itself measured (ns).
    latency_ns: f64,
}

/// Runs and traces a load on a target.
fn phases_of(path: &Path, load: &Load) -> Result<Measured, String> {
    let writable = load.write;
    let target = HostTarget::open(path, writable, Caching::Direct).map_err(|e| e.to_string())?;
    let place = target.extents().map_err(|e| e.to_string())?;
    let uring = load.engine_kind == EngineKind::IoUring;
    let spec = TraceSpec::new(place.disk, uring, Some(load::THREAD));
    let tracer = Tracer::start(&spec).map_err(|declined| declined.to_string())?;
    let requests = load.run(&target)?;
    let trace = tracer.stop().map_err(|declined| declined.to_string())?;
    assert_eq!(requests.len(), load.requests);
    let phases = iotrace::phases::split(&trace, &requests, &trace_extents(&place));
    eprintln!("{load:?}: {} events, {} bytes", trace.events.len(), trace.bytes);
    eprintln!(
        "  {} of {} matched, {:?}, remainder {:.3}%, split {} merged {} punted {} requeued {}, \
         lost {}",
        phases.matched,
        phases.requests,
        phases.unmatched,
        100.0 * phases.remainder_share(),
        phases.split,
        phases.merged,
        phases.punted,
        phases.requeued,
        phases.lost,
    );
    for time in &phases.times {
        eprintln!(
            "  {:24} {:6} mean {:10.0} p50 {:9} p99 {:9} share {:.3} utilisation {:.3}",
            time.phase.name(),
            time.requests,
            time.mean_ns,
            time.p50_ns,
            time.p99_ns,
            time.share,
            time.utilisation
        );
    }
    let mut latencies: Vec<u64> = requests.iter().map(|r| r.reaped_ns - r.submit_ns).collect();
    latencies.sort_unstable();
    Ok(Measured { phases, latency_ns: latencies[latencies.len() / 2] as f64 })
}

/// Converts the extents of a target to extents of the crate iotrace.
fn trace_extents(place: &DiskExtents) -> Vec<Extent> {
    let extents = place.extents.iter();
    extents.map(|e| Extent { offset: e.offset, bytes: e.bytes, sector: e.sector }).collect()
}

/// Creates a fully written file on a real file system.
fn written_file(bytes: u64) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let block = vec![0xA5; MIB as usize];
    (0..bytes / MIB).for_each(|_| file.write_all(&block).unwrap());
    file.as_file().sync_all().unwrap();
    file
}

#[track_caller]
fn assert_complete(phases: &Phases) {
    assert!(phases.matched_share() >= 0.99, "{phases:?}");
    assert!(phases.remainder_share() < 0.05, "{phases:?}");
    assert_eq!(phases.lost, 0, "{phases:?}");
    let explained: f64 = phases.times.iter().map(|time| time.share).sum();
    let all = explained + phases.remainder_share();
    assert!((0.99..1.05).contains(&all), "{all} of the time is in a phase: {phases:?}");
}

#[test]
fn every_request_to_a_file_is_found_whatever_the_engine_and_the_direction() {
    let _serial = serialise();
    let file = written_file(32 * MIB);
    for engine_kind in [EngineKind::IoUring, EngineKind::Libaio, EngineKind::Sync] {
        for write in [false, true] {
            let depth = if engine_kind == EngineKind::Sync { 1 } else { 16 };
            let load = Load { engine_kind, depth, write, ..Load::random(4096, 2000) };
            let phases = or_skip!(phases_of(file.path(), &load)).phases;
            assert_complete(&phases);
            assert!(phases.time(Phase::Device).is_some_and(|time| time.p50_ns > 0));
        }
    }
}

#[test]
fn a_large_request_becomes_several_and_is_found_whole() {
    let _serial = serialise();
    let file = written_file(64 * MIB);
    let load = Load { depth: 4, ..Load::random(8 * MIB as u32, 40) };
    let phases = or_skip!(phases_of(file.path(), &load)).phases;
    assert_complete(&phases);
    assert!(phases.split > 0, "no request was split: {phases:?}");
}

#[test]
fn events_that_are_lost_are_counted_and_what_they_told_is_missing() {
    let _serial = serialise();
    let file = written_file(32 * MIB);
    let target = HostTarget::open(file.path(), false, Caching::Direct).unwrap();
    let place = or_skip!(target.extents());
    let spec = TraceSpec {
        buffer_bytes: Some(8192),
        ..TraceSpec::new(place.disk, false, Some(load::THREAD))
    };
    let tracer = or_skip!(Tracer::start(&spec));
    let load = Load { engine_kind: EngineKind::Sync, ..Load::random(4096, 8000) };
    let requests = load.run(&target).unwrap();
    let trace = tracer.stop().unwrap();
    assert!(trace.lost.total() > 0, "{:?} of {} events", trace.lost, trace.events.len());
    let phases = iotrace::phases::split(&trace, &requests, &trace_extents(&place));
    assert!(phases.matched_share() < 1.0 && phases.remainder_share() > 0.0, "{phases:?}");
    assert_eq!(phases.lost, trace.lost.total());
}

#[test]
fn a_trace_is_removed_with_its_tracer() {
    let _serial = serialise();
    let ours = || {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let of_kind = |line: &&str| line.split(' ').nth(2) == Some("tracefs");
        let mounted = mounts.lines().find(of_kind).and_then(|line| line.split(' ').nth(1));
        let instances = Path::new(mounted.unwrap()).join("instances");
        let mine = format!("halfpower-{}-", std::process::id());
        let names = std::fs::read_dir(instances).unwrap();
        names
            .filter(|name| name.as_ref().unwrap().file_name().to_str().unwrap().starts_with(&mine))
            .count()
    };
    let spec = TraceSpec::new((7, 0), true, None);
    let first = or_skip!(Tracer::start(&spec));
    let second = or_skip!(Tracer::start(&spec));
    assert_eq!(ours(), 2);
    drop(first);
    assert_eq!(ours(), 1);
    second.stop().unwrap();
    assert_eq!(ours(), 0);
}

// ---- a delay in one layer

/// Makes a loop device whose requests take `fixed_ns` each.
fn slow_device(fixed_ns: u64) -> Result<SlowDevice, String> {
    SlowDevice::new(Truth { fixed_ns, parallelism: 1024, ..Truth::default() }, 64 * MIB)
}

/// Returns the median time in a phase (ns), or 0 if no request passed through the phase.
fn median(phases: &Phases, phase: Phase) -> f64 {
    phases.time(phase).map_or(0.0, |time| time.p50_ns as f64)
}

/// Checks that the median of `phase` grew by `delay_ns`, and that the medians of all other phases
/// did not change. Deviations of up to 5% of the delay are allowed.
fn only_grows(
    phase: Phase,
    before: &Measured,
    after: &Measured,
    delay_ns: f64,
) -> Result<(), String> {
    assert_complete(&before.phases);
    assert_complete(&after.phases);
    for other in Phase::ALL {
        let grown = median(&after.phases, other) - median(&before.phases, other);
        let expected = if other == phase { delay_ns } else { 0.0 };
        if (grown - expected).abs() > 0.05 * delay_ns {
            return Err(format!("{other} grew by {grown} ns instead of {expected}"));
        }
    }
    Ok(())
}

/// Calls `attempt` until it succeeds, but at most five times. Other load on this machine may
/// disturb an attempt.
#[track_caller]
fn within_tries(mut attempt: impl FnMut() -> Result<(), String>) {
    let mut failures = Vec::new();
    for _ in 0..5 {
        match attempt() {
            Ok(()) => return,
            Err(why) => failures.push(why),
        }
    }
    panic!("{failures:#?}");
}

#[test]
fn a_slow_device_shows_in_the_phase_device_only() {
    let _serial = serialise();
    let (quick, slow) = (or_skip!(slow_device(MS)), or_skip!(slow_device(101 * MS)));
    or_skip!(phases_of(quick.path(), &Load::random(4096, 1)));
    for engine_kind in [EngineKind::IoUring, EngineKind::Libaio, EngineKind::Sync] {
        within_tries(|| {
            let load = Load { engine_kind, ..Load::random(4096, 15) };
            let (before, after) = (phases_of(quick.path(), &load)?, phases_of(slow.path(), &load)?);
            only_grows(Phase::Device, &before, &after, 100.0 * MS as f64)
        });
    }
}

#[test]
fn a_limit_of_the_kernel_shows_in_the_phase_queue_only() {
    let _serial = serialise();
    let device = or_skip!(slow_device(MS));
    let load = Load::random(1 << 16, 16);
    or_skip!(phases_of(device.path(), &load));
    drop(or_skip!(Throttle::new(device.path(), 1 << 19)));
    within_tries(|| {
        let before = phases_of(device.path(), &load)?;
        let limit = Throttle::new(device.path(), 1 << 19)?;
        let after = phases_of(device.path(), &load)?;
        drop(limit);
        // The limit makes each request take an eighth of a second (64 KiB at 512 KiB/s). The
        // kernel's timer is too coarse for an exact delay, so the latencies that the load measured
        // give the delay.
        let delay_ns = after.latency_ns - before.latency_ns;
        assert!(delay_ns > 50.0 * MS as f64, "the limit had no effect: {delay_ns} ns");
        only_grows(Phase::Queue, &before, &after, delay_ns)
    });
}

#[test]
fn more_requests_than_the_driver_takes_wait_in_the_phase_scheduler_only() {
    let _serial = serialise();
    let device = or_skip!(slow_device(100 * MS));
    let tags = or_skip!(device.tags());
    or_skip!(device.set("scheduler", "mq-deadline"));
    or_skip!(device.set("nr_requests", &(2 * tags).to_string()));
    let load = |depth: u32| Load { depth, ..Load::random(4096, 6 * depth as usize) };
    or_skip!(phases_of(device.path(), &load(1)));
    within_tries(|| {
        let before = phases_of(device.path(), &load(tags / 2))?;
        let after = phases_of(device.path(), &load(2 * tags))?;
        // The device serves the requests in rounds. The size of a round depends on the scheduler,
        // so the delay cannot be calculated. The latencies that the load measured give the delay.
        let delay_ns = after.latency_ns - before.latency_ns;
        assert!(delay_ns > 50.0 * MS as f64, "no request waited: {delay_ns} ns");
        only_grows(Phase::Scheduler, &before, &after, delay_ns)
    });
}

#[test]
fn a_thread_that_must_wait_for_its_cpu_shows_in_the_phase_wake_up_only() {
    or_skip!(real_time_allowed());
    let _serial = serialise();
    let cpus = affinity::allowed_cpus();
    if cpus.len() < 2 {
        return skip(std::any::type_name_of_val(&|| ()), "needs two CPUs");
    }
    // The device must not complete requests on the CPU of the load's thread.
    affinity::pin_current_thread(&cpus[..1]).unwrap();
    let device = or_skip!(slow_device(30 * MS));
    or_skip!(device.set("rq_affinity", "0"));
    let load = Load::random(4096, 9);
    or_skip!(phases_of(device.path(), &load));
    within_tries(|| {
        let before = phases_of(device.path(), &load)?;
        let after =
            phases_of(device.path(), &Load { hog_cpu: cpus.last().copied(), ..load.clone() })?;
        let delay_ns = load::HOG_NS.end as f64 - before.latency_ns;
        only_grows(Phase::WakeUp, &before, &after, delay_ns)
    });
}

/// Returns two loads with an SQPOLL thread on a dedicated CPU. In the first load, this CPU is free.
/// In the second load, another thread occupies the CPU during each request.
fn sq_poll_loads(requests: usize, hog_time: HogTime) -> Result<[Load; 2], String> {
    let cpus = affinity::allowed_cpus();
    let found = EngineOption::SqPoll.availability();
    if !found.available {
        return Err(format!("SQPOLL: {}", found.detail));
    }
    let [.., _, cpu] = cpus.as_slice() else { return Err("needs two CPUs".to_owned()) };
    // The device must not complete requests on the CPU of the SQPOLL thread.
    affinity::pin_current_thread(&cpus[..cpus.len() - 1]).unwrap();
    let load = |hog_time| Load {
        sq_poll_thread: Some(SqPollThread { cpu: *cpu, hog_time }),
        ..Load::random(4096, requests)
    };
    Ok([load(HogTime::Never), load(hog_time)])
}

#[test]
fn a_submission_that_the_kernel_takes_up_late_shows_in_the_phase_submit_only() {
    or_skip!(real_time_allowed());
    let _serial = serialise();
    let [prompt, late] = or_skip!(sq_poll_loads(9, HogTime::FromSubmission));
    let device = or_skip!(slow_device(MS));
    or_skip!(device.set("rq_affinity", "0"));
    or_skip!(phases_of(device.path(), &prompt));
    within_tries(|| {
        let (before, after) =
            (phases_of(device.path(), &prompt)?, phases_of(device.path(), &late)?);
        let delay_ns = load::HOG_NS.end as f64;
        only_grows(Phase::Submit, &before, &after, delay_ns)
    });
}

#[test]
fn a_completion_that_the_kernel_posts_late_shows_in_the_phase_completion_only() {
    or_skip!(real_time_allowed());
    let _serial = serialise();
    let [prompt, late] = or_skip!(sq_poll_loads(9, HogTime::AfterSubmission));
    let device = or_skip!(slow_device(30 * MS));
    or_skip!(device.set("rq_affinity", "0"));
    or_skip!(phases_of(device.path(), &prompt));
    within_tries(|| {
        let (before, after) =
            (phases_of(device.path(), &prompt)?, phases_of(device.path(), &late)?);
        let delay_ns = load::HOG_NS.end as f64 - before.latency_ns;
        only_grows(Phase::Completion, &before, &after, delay_ns)
    });
}

// ---- cost of tracing

/// Measures the cost of tracing. This test checks nothing. Run it with `cargo test -p
/// halfpower-iotrace --test machine -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement that takes about a minute"]
fn what_tracing_costs() {
    let _serial = serialise();
    let file = written_file(256 * MIB);
    let target = HostTarget::open(file.path(), false, Caching::Direct).unwrap();
    let place = or_skip!(target.extents());
    let load = Load { depth: 32, ..Load::random(4096, 60_000) };
    let full = TraceSpec::new(place.disk, true, Some(load::THREAD));
    let block = TraceSpec { uring: false, threads: None, ..full.clone() };
    let kinds = [("nothing", None), ("block", Some(block)), ("all", Some(full))];
    let mut seen = kinds.each_ref().map(|_| [(); 4].map(|()| Vec::new()));
    for _ in 0..9 {
        for ((_, spec), [rates, costs, losses, readings]) in kinds.iter().zip(&mut seen) {
            let tracer = spec.as_ref().map(|spec| Tracer::start(spec).unwrap());
            let before = ProcessTime::now();
            let log = load.run(&target).unwrap();
            let cpu_ns = ProcessTime::now().total_ns - before.total_ns;
            let start = log.iter().map(|request| request.submit_ns).min().unwrap();
            let end = log.iter().map(|request| request.reaped_ns).max().unwrap();
            rates.push(log.len() as f64 * 1e9 / (end - start) as f64);
            costs.push(cpu_ns as f64 / log.len() as f64);
            let Some(tracer) = tracer else { continue };
            let before = ProcessTime::now();
            let trace = tracer.stop().unwrap();
            let phases = iotrace::phases::split(&trace, &log, &trace_extents(&place));
            losses.push(phases.lost as f64);
            let each_ns =
                (ProcessTime::now().total_ns - before.total_ns) / trace.events.len() as u64;
            readings.push(each_ns as f64);
        }
    }
    for ((name, _), values) in kinds.iter().zip(seen) {
        let [rate, cost, lost, reading] = values.map(|mut values| {
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or(0.0)
        });
        eprintln!(
            "traced {name}: {rate:.0} requests/s, {cost:.0} ns of CPU per request, {lost} events \
             lost; reading the trace takes {reading:.0} ns of CPU per event"
        );
    }
}
