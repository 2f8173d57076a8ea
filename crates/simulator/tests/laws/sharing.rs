//! Tests several closed-loop streams on one device. The order of service determines the share of
//! each stream.

use std::sync::atomic::AtomicBool;

use ioengine::{Caching, EngineKind};
use simulator::{SimTarget, SimWorld, System};
use workload::{Control, Pattern, Plan, Sample, Workload, plan, stepper};

use crate::support::{DISKS, Parts, base_with, changed, load, named, relative_difference};

const SECOND_NS: u64 = 1_000_000_000;

/// Returns a stream that runs for 20 seconds of virtual time.
fn stream(read_percent: u8, request_bytes: u32, depth: u32) -> Workload {
    Workload {
        region_bytes: 1 << 30,
        limit_bytes: None,
        limit_ns: Some(20 * SECOND_NS),
        engine_kind: EngineKind::IoUring,
        ..load(read_percent, request_bytes, depth, 0)
    }
}

fn random(stream: Workload) -> Workload {
    Workload { pattern: Pattern::Random, ..stream }
}

/// Runs streams at the same time on the first file of a system.
fn together(system: &System, streams: &[Workload]) -> Vec<Sample> {
    let world = SimWorld::new(system, 1);
    let files: Vec<SimTarget> = world.files(Caching::Direct);
    let file = files.into_iter().next().expect("a system has a file").with_size(u64::MAX);
    let plans: Vec<Plan> =
        streams.iter().map(|stream| plan::resolve(stream, &file).expect("stream fits")).collect();
    let planned: Vec<(Vec<&SimTarget>, &Plan)> =
        plans.iter().map(|plan| (vec![&file], plan)).collect();
    let stop = AtomicBool::new(false);
    let mut control = Control { stop: &stop, on_progress: &mut |_| {}, start: None };
    stepper::run_together(&planned, &world.clock(), &mut control).expect("the streams run")
}

fn requests_per_s(sample: &Sample) -> f64 {
    sample.requests() as f64 * 1e9 / (sample.end_ns - sample.start_ns) as f64
}

fn p99_ns(sample: &Sample) -> u64 {
    sample.latency().quantile(0.99).expect("the stream made requests")
}

#[test]
fn closed_streams_at_a_fifo_server_share_it_by_their_requests_in_flight() {
    // One flash unit needs 1 ms for each 4 KiB. All other times are negligible.
    let alone = [("drive.units", "1"), ("drive.unit_read", "1000")];
    let system = changed(base_with(Parts { flash: true, ..Parts::default() }), &alone);
    for (kib, depths) in [((4, 4), (1, 1)), ((4, 16), (1, 1)), ((8, 8), (1, 3)), ((4, 16), (2, 4))]
    {
        let streams = [stream(100, kib.0 * 1024, depths.0), stream(100, kib.1 * 1024, depths.1)];
        let samples = together(&system, &streams);
        // In one cycle, the flash unit serves every request in flight once.
        let service_s = |kib: u32| f64::from(kib / 4) * 1e-3;
        let cycle_s =
            f64::from(depths.0) * service_s(kib.0) + f64::from(depths.1) * service_s(kib.1);
        for (sample, depth) in samples.iter().zip([depths.0, depths.1]) {
            let (found, wanted) = (requests_per_s(sample), f64::from(depth) / cycle_s);
            let what = format!("{kib:?} KiB, {depths:?} deep: {found} where {wanted} was expected");
            assert!(relative_difference(found, wanted) < 0.02, "{what}");
        }
    }
}

#[test]
fn two_streams_of_depth_one_alternate_on_a_disk_in_order_of_arrival() {
    for write in [0, 100] {
        let system = named(DISKS, &[("drive.schedule", "fcfs")]);
        let streams = [random(stream(100, 8192, 1)), stream(write, 65536, 1)];
        let [reader, scan] = &together(&system, &streams)[..] else { panic!("two streams") };
        let (reads, scans) = (reader.requests() as f64, scan.requests() as f64);
        assert!(relative_difference(reads, scans) < 0.01, "{reads} and {scans}");
    }
}

#[test]
fn no_stream_starves_beside_another_whatever_the_order_of_service() {
    for name in ["nt4-ultrawide", "w2k-atlas10k", "w2k-fireball-3ware", "sata-hdd-7200"] {
        let system = named(name, &[]);
        let reader = random(stream(100, 8192, 1));
        for other in [stream(100, 65536, 4), stream(0, 65536, 4), stream(100, 65536, 1)] {
            let streams = [reader.clone(), other];
            let samples = together(&system, &streams);
            let alone = requests_per_s(&together(&system, &streams[..1])[0]);
            let [beside, others] = [0, 1].map(|number| requests_per_s(&samples[number]));
            let what = format!("{name}: {beside:.1} of {alone:.1}/s beside {others:.1} others");
            assert!(beside > 0.1 * alone, "{what}");
            assert!(others > 0.9 * beside, "{what}");
            for sample in &samples {
                // The limit allows for a few revolutions, the requests in flight, and the access
                // itself.
                assert!(p99_ns(sample) < 150_000_000, "{what}: {} ns", p99_ns(sample));
            }
        }
    }
}
