//! The bottleneck of a run is reported by name; a part with spare capacity is not.

use std::sync::atomic::AtomicBool;

use ioengine::{Caching, EngineKind};
use simulator::{Account, Binding, SimWorld, System};
use workload::{Control, Pattern, Workload, plan, stepper};

use crate::support::{DISKS, Parts, base_with, changed, load, named, run, threads};

const MIB: u64 = 1 << 20;

fn account(system: &System, load: &Workload) -> Account {
    run(system, load, Caching::Direct).account
}

/// Asserts the bottleneck of a load; returns its utilisation.
fn limit(system: &System, load: &Workload, wanted: &str) -> f64 {
    let Binding { resource, utilisation } = account(system, load).binding();
    assert_eq!(resource, wanted, "{} {load:?}", system.name);
    assert!((0.0..=1.0 + 1e-9).contains(&utilisation), "{utilisation}");
    utilisation
}

fn random(load: Workload, region_bytes: u64) -> Workload {
    Workload { pattern: Pattern::Random, region_bytes, ..load }
}

fn flash(changes: &[(&str, &str)]) -> System {
    changed(base_with(Parts { flash: true, ..Parts::default() }), changes)
}

#[test]
fn a_volume_limited_in_requests_per_second_says_so() {
    let system = named("cloud-gp-volume", &[]);
    let reads = |depth: u32| random(load(100, 4096, depth, 6000 * 4096), 1 << 30);
    assert!(limit(&system, &reads(64), "requests per second") > 0.99);
    assert!(limit(&system, &reads(1), "latency") < 0.9);
}

#[test]
fn a_spent_credit_limits_and_one_that_lasts_does_not() {
    let credit = |mib: &str| {
        flash(&[("drive.credit", mib), ("drive.sustained", "5"), ("drive.units", "64")])
    };
    for depth in [1, 8] {
        let reads = load(100, 65536, depth, 64 * MIB);
        assert!(limit(&credit("1"), &reads, "sustained rate") > 0.95);
        let utilisation = limit(&credit("40"), &reads, "sustained rate");
        assert!((0.5..0.9).contains(&utilisation), "{utilisation} of the time it is spent");
    }
    limit(&credit("100"), &load(100, 4096, 1, 16 * MIB), "latency");
}

#[test]
fn a_sustained_rate_without_credit_is_busy_in_proportion_to_the_load() {
    let system = flash(&[("drive.sustained", "5")]);
    assert!(limit(&system, &load(100, 4096, 8, 8 * MIB), "sustained rate") > 0.99);
    let found = account(&system, &load(100, 4096, 1, 8 * MIB));
    let rate = found.resources.iter().find(|resource| resource.name == "sustained rate");
    let share = rate.map(|rate| rate.utilisation(found.elapsed_ns));
    let wanted = found.bytes as f64 / 5e6 / (found.elapsed_ns as f64 / 1e9);
    assert!(share.is_some_and(|share| (share / wanted - 1.0).abs() < 0.01), "{share:?} {wanted}");
}

#[test]
fn a_full_write_buffer_is_limited_by_its_drain_and_one_with_room_is_not() {
    let system = named("sata-ssd", &[]);
    let writes = |bytes: u64| load(0, 65536, 32, bytes);
    assert!(limit(&system, &writes(4 << 30), "drain") > 0.5);
    limit(&system, &writes(512 * MIB), "SATA 6 Gb/s");
    let slow = flash(&[("drive.buffer", "1"), ("drive.drain", "5")]);
    assert!(limit(&slow, &load(0, 4096, 1, 64 * MIB), "drain") > 0.95, "the next one waits too");
}

#[test]
fn writes_that_a_server_takes_in_turn_are_limited_by_their_turn() {
    let system = named("w2k-cifs-gigabit", &[("write_cache", "on")]);
    assert!(limit(&system, &load(0, 2048, 8, 4 * MIB), "write turn") > 0.99);
}

#[test]
fn a_thread_that_has_no_time_left_is_not_helped_by_more_requests() {
    let slow = ["host.direct_read.fixed", "host.cpus"];
    let system = flash(&[(slow[0], "2000"), (slow[1], "4"), ("drive.unit_read", "1")]);
    let reads = load(100, 4096, 8, 8 * MIB);
    assert!(limit(&system, &reads, "issuing thread") > 0.95);
    limit(&system, &threads(reads, 4), "CPU");
}

#[test]
fn serialised_requests_are_the_bottleneck_unless_a_part_is() {
    let grows = [("allocation", "extend"), ("drive.units", "64")];
    limit(&flash(&grows), &load(0, 4096, 8, 8 * MIB), "growth of the file");
    limit(&named(DISKS, &[("allocation", "extend")]), &load(0, 8192, 8, 8 * MIB), "media");
    let fetched = |system: &System| {
        let reads = random(load(100, 4096, 8, 4 * MIB), 1 << 30);
        run(system, &reads, Caching::Buffered).account.binding().resource
    };
    assert_eq!(fetched(&flash(&[("drive.fixed_read", "2000")])), "cache fetches");
    assert_eq!(fetched(&named(DISKS, &[])), "media");
    let slow = [("host.cache.dirty_limit", "1MiB"), ("drive.fixed_write", "20000")];
    let writes = load(0, 65536, 8, 32 * MIB);
    let written = run(&flash(&slow), &writes, Caching::Buffered).account.binding();
    assert_eq!(written.resource, "lazy writer");
}

#[test]
fn the_busiest_of_several_links_represents_them() {
    let system = named("cloud-gp-volume", &[("hosts", "2"), ("disks", "2"), ("buses", "2")]);
    let world = SimWorld::new(&system, 1);
    let files = world.files(Caching::Direct);
    // Small requests keep a link busy for longer although they move fewer bytes.
    for (file, request, bytes) in [(0, 1 << 20, 4 * MIB), (1, 512, 2 * MIB), (0, 4096, MIB)] {
        let mark = world.mark();
        let load = Workload { engine_kind: EngineKind::IoUring, ..load(100, request, 1, bytes) };
        let planned = plan::resolve(&load, &files[file]).unwrap();
        let stop = AtomicBool::new(false);
        let mut control = Control { stop: &stop, on_progress: &mut |_| {} };
        let (clock, meter) = (world.clock(), world.meter());
        stepper::run(&[&files[file]], &planned, &clock, &meter, &mut control).unwrap();
        let account = world.account_since(&mark);
        let link = account.resources.iter().find(|part| part.name == system.links[0].name);
        assert_eq!(link.map(|link| link.bytes), Some(bytes), "{bytes} bytes through one of two");
    }
}
