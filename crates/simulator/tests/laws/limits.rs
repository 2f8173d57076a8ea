//! Tests that the bottleneck of a run is reported by name, and that a part with spare capacity is
//! not reported as the bottleneck.

use std::sync::atomic::AtomicBool;

use ioengine::{Caching, EngineKind};
use simulator::{Account, Binding, Description, SimWorld, System};
use workload::{Control, Pattern, Workload, plan, stepper};

use crate::support::{DISKS, Parts, base_with, changed, load, named, run, threads};

const MIB: u64 = 1 << 20;

fn account(system: &System, load: &Workload) -> Account {
    run(system, load, Caching::Direct).account
}

/// Asserts that `wanted` is the bottleneck of a load. Returns its utilisation.
fn limit(system: &System, load: &Workload, wanted: &str) -> f64 {
    let Binding { resource, utilisation, .. } = account(system, load).binding();
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
        assert!((0.5..0.9).contains(&utilisation), "spent {utilisation} of the time");
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
    assert!(limit(&slow, &load(0, 4096, 1, 64 * MIB), "drain") > 0.95, "the next write waits too");
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
    // Small requests keep a link busy for longer than large requests, although they move fewer
    // bytes.
    for (file, request, bytes) in [(0, 1 << 20, 4 * MIB), (1, 512, 2 * MIB), (0, 4096, MIB)] {
        let mark = world.mark();
        let load = Workload { engine_kind: EngineKind::IoUring, ..load(100, request, 1, bytes) };
        let planned = plan::resolve(&load, &files[file]).unwrap();
        let stop = AtomicBool::new(false);
        let mut control = Control { stop: &stop, on_progress: &mut |_| {}, start: None };
        let (clock, meter) = (world.clock(), world.meter());
        stepper::run(&[&files[file]], &planned, &clock, &meter, &mut control).unwrap();
        let account = world.account_since(&mark);
        let link = account.resources.iter().find(|part| part.name == system.links[0].name);
        assert_eq!(link.map(|link| link.bytes), Some(bytes), "{bytes} bytes through one of two");
    }
}

#[test]
fn a_bus_at_the_pace_of_a_link_is_not_the_bottleneck() {
    let four = [("disks", "4"), ("volume", "stripe")];
    let system = named("w2k-atlas10k", &four);
    let found = account(&system, &load(100, 65536, 8, 64 * MIB)).binding();
    assert_eq!(found.resource, "PCI", "{found:?}");
    let held = found.held.clone().expect("the bus waits for PCI");
    assert_eq!(held.resource, "Ultra160 SCSI");
    assert!(held.utilisation > 0.99 && found.utilisation < 0.9, "{found:?} {held:?}");
    // Section 7.4 of the second paper says that the adapter limits writes to 50 MB/s.
    let written = account(&system, &load(0, 65536, 8, 64 * MIB)).binding();
    assert_eq!(written.resource, "SCSI adapter", "{written:?}");
}

/// Returns groups of resources with the keys that set their speed. Each group consists of the names
/// of the resources and the prefixes of the keys.
fn speeds(system: &System) -> Vec<(Vec<String>, Vec<String>)> {
    let group = |names: &[&str], keys: &[&str]| {
        let all = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        (all(names), all(keys))
    };
    let mut groups = vec![
        group(&["CPU", "issuing thread"], &["host.direct_", "host.piece", "host.random"]),
        group(&[&system.bus.name], &["bus."]),
        group(&["drive controller"], &["drive.firmware_", "drive.read_floor", "drive.write_floor"]),
        group(&["media"], &["drive.rotation", "drive.seek.", "drive.write_settle"]),
        group(&["flash units"], &["drive.unit_"]),
        group(&["flash channels"], &["drive.read_rate", "drive.write_rate"]),
        group(
            &["requests per second", "sustained requests per second"],
            &["drive.requests_per_s", "drive.sustained_requests_per_s"],
        ),
        group(&["drain"], &["drive.drain"]),
        group(&["sustained rate"], &["drive.sustained"]),
    ];
    for (number, link) in system.links.iter().enumerate() {
        groups.push(group(&[&link.name], &[&format!("links.{number}.")]));
    }
    groups
}

/// Slows a resource by 5%. Returns 1 if the rate falls in proportion to the speed of the resource,
/// 0 if the rate does not fall, and a value between 0 and 1 if the rate falls less.
fn cost_of_slowness(description: &Description, keys: &[String], load: &Workload) -> f64 {
    const SLOWER: f64 = 1.05;
    let mut slow = description.clone();
    for key in description.keys() {
        let (value, unit) = description.value_of(&key).expect("the key exists");
        let is_rate = ["/s", "rev/min"].iter().any(|end| unit.ends_with(end));
        let is_time = unit.ends_with("us") || unit.ends_with("ms") || unit.contains("s/");
        let is_size = unit.ends_with("KiB") && !unit.contains('/');
        if keys.iter().any(|start| key.starts_with(start)) && (is_rate || is_time) && !is_size {
            let moved = if is_rate { value / SLOWER } else { value * SLOWER };
            slow.put(&key, moved, "test").unwrap_or_else(|error| panic!("{error}"));
        }
    }
    let rate = |description: &Description| {
        let system = description.system().unwrap_or_else(|error| panic!("{error}"));
        run(&system, load, Caching::Direct).bytes_per_s()
    };
    (rate(description) / rate(&slow)).ln() / SLOWER.ln()
}

#[test]
fn the_bottleneck_is_the_resource_whose_speed_changes_the_rate_most() {
    let systems = [
        "nt4-ultrawide",
        "w2k-atlas10k",
        "w2k-fireball-3ware",
        "sata-hdd-7200",
        "sata-ssd",
        "nvme-gen4",
        "cloud-gp-volume",
    ];
    let loads = [(100, 4, 1), (100, 8, 8), (100, 64, 1), (100, 64, 8), (0, 64, 8), (0, 8, 4)];
    let mut named_ones = std::collections::BTreeSet::new();
    for (name, disks) in systems.into_iter().flat_map(|name| [1, 2, 4].map(|disks| (name, disks))) {
        let mut description = Description::named(name).expect("the system is built in");
        let count = disks.to_string();
        let volume = if disks > 1 { "stripe" } else { "none" };
        for (key, value) in [("disks", count.as_str()), ("volume", volume)] {
            description.set(key, value).unwrap_or_else(|error| panic!("{error}"));
        }
        // All disks turn at the same speed. Otherwise, a small change would also change how their
        // rotations are aligned.
        let _ = description.set("drive.spindle_spread", "0");
        let system = description.system().unwrap_or_else(|error| panic!("{error}"));
        for (read_percent, kib, depth) in loads {
            let load = load(read_percent, kib * 1024, depth, 400 * u64::from(kib) * 1024);
            let found = account(&system, &load).binding();
            if found.resource == "latency" {
                continue;
            }
            let costs: Vec<(Vec<String>, f64)> = speeds(&system)
                .into_iter()
                .map(|(names, keys)| (names, cost_of_slowness(&description, &keys, &load)))
                .collect();
            let most = costs.iter().map(|(_, cost)| *cost).fold(0.0, f64::max);
            let own = costs.iter().find(|(names, _)| names.contains(&found.resource));
            let what = format!("{name} x {disks}, {load:?}: {found:?} of {costs:?}");
            assert!(own.is_some_and(|(_, own)| *own > most - 0.05 && *own > 0.4), "{what}");
            named_ones.insert(found.resource);
        }
    }
    assert!(named_ones.len() >= 7, "too few different bottlenecks: {named_ones:?}");
}

#[test]
fn a_drive_takes_as_many_commands_at_once_as_its_queue_holds() {
    let rate = |name, changes: &[(&str, &str)], depth| {
        let random = Workload {
            pattern: Pattern::Random,
            region_bytes: 1 << 30,
            ..load(100, 4096, depth, 3000 * 4096)
        };
        run(&named(name, changes), &random, Caching::Direct).bytes_per_s()
    };
    for name in ["sata-hdd-7200", "sata-ssd"] {
        let [four, deep] = [4, 32].map(|depth| rate(name, &[], depth));
        let limited = rate(name, &[("drive.queue", "4")], 32);
        assert!((limited / four - 1.0).abs() < 0.03, "{name}: {limited} and {four}");
        assert!(deep > 1.3 * limited, "{name}: {deep} and {limited}");
    }
}
