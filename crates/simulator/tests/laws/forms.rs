//! Closed forms: results that can be calculated from the parameters by hand.

use ioengine::{Caching, Op};
use simulator::SimpleModel;
use simulator::bounds::Shape;
use simulator::geometry::Geometry;
use simulator::system::{DriveModel, System};
use workload::{Arrival, Pattern, Workload};

use crate::support::{DISKS, Parts, base_with, changed, load, named, relative_difference, run};

const MIB: u64 = 1 << 20;

fn geometry(system: &System) -> Geometry {
    let DriveModel::Disk(disk) = &system.drive else { panic!("no disk") };
    Geometry::new(disk, 1.0)
}

fn file_start(system: &System) -> u64 {
    (geometry(system).bytes() as f64 * system.setup.file_at) as u64
}

fn media_rate(system: &System) -> f64 {
    geometry(system).rate_at(file_start(system))
}

fn is_near(found: f64, wanted: f64, share: f64, what: &str) {
    assert!(
        relative_difference(found, wanted) <= share,
        "{what}: {found} where {wanted} was expected"
    );
}

#[test]
fn a_write_without_a_cache_takes_a_revolution_and_its_own_time() {
    for name in ["nt4-ultrawide", "nt4-fastwide", "nt4-narrow"] {
        let system = named(name, &[("drive.spindle_spread", "0")]);
        let revolution_ns = geometry(&system).revolution_ns() as f64;
        for kib in [2, 4, 8, 16, 32, 64] {
            let ran = run(&system, &load(0, kib * 1024, 1, 16 * MIB), Caching::Direct);
            let transfer_ns = f64::from(kib * 1024) * 1e9 / media_rate(&system);
            let wanted_ns = revolution_ns + transfer_ns;
            is_near(ran.ns_per_request(), wanted_ns, 0.005, &format!("{name} {kib} KiB"));
        }
    }
}

#[test]
fn a_read_from_the_buffer_takes_a_fixed_time_and_one_for_each_byte() {
    // The platters turn so fast that the data are always in the buffer before they are requested.
    let always = [("drive.rotation", "7200000"), ("drive.start_read", "0")];
    let system = named(DISKS, &[&always[..], &[("links.0.read", "0")]].concat());
    // Both sizes get the same number of requests. The first seek then adds the same time per
    // request, which cancels out in `large - small`.
    let often = |kib: u32| load(100, kib * 1024, 1, 4000 * u64::from(kib) * 1024);
    let time = |kib: u32| run(&system, &often(kib), Caching::Direct);
    let (small, large) = (time(4).ns_per_request(), time(64).ns_per_request());
    let host = &system.host.direct_read;
    let each = 1e9 / system.bus.read.0 + host.each.0;
    is_near((large - small) / (60.0 * 1024.0), each, 0.005, "each byte");
    let DriveModel::Disk(disk) = &system.drive else { panic!("no disk") };
    let bus = &system.bus;
    let phases = [bus.arbitrate, bus.select, bus.message_out, bus.command, bus.status];
    let phases: u64 = phases.iter().map(|phase| phase.ns()).sum();
    let fixed = phases + bus.message_in.ns() + host.fixed.ns() + disk.firmware_read.ns();
    is_near(small - 4096.0 * each, fixed as f64, 0.01, "each request");
}

#[test]
fn large_reads_get_the_rate_of_the_media() {
    for name in ["nt4-ultrawide", "nt4-fastwide", "nt4-narrow"] {
        let system = named(name, &[("drive.spindle_spread", "0")]);
        let ran = run(&system, &load(100, 65536, 4, 64 * MIB), Caching::Direct);
        is_near(ran.bytes_per_s(), media_rate(&system), 0.01, name);
    }
}

#[test]
fn a_disk_that_commits_ahead_gains_nothing_from_a_second_random_request() {
    let system = named(DISKS, &[("drive.spindle_spread", "0"), ("file_at", "0.1")]);
    let rate = |depth: u32| {
        let random = Workload { pattern: Pattern::Random, ..load(100, 8192, depth, 2 << 30) };
        let ran =
            run(&system, &Workload { limit_bytes: Some(32 * MIB), ..random }, Caching::Direct);
        ran.bytes_per_s()
    };
    let (one, two, eight) = (rate(1), rate(2), rate(8));
    // At depth 2, only the host's part of a request overlaps with the disk: 0.5 ms of 13 ms.
    assert!(two / one < 1.08, "one {one}, two {two}");
    assert!(eight / one > 1.15, "one {one}, eight {eight}");
}

/// Returns a flash device in which only the units take time. Host and bus take no time.
fn bare_units(units: &str, unit_us: &str) -> System {
    bare(units, unit_us, ["0", "0"])
}

/// Returns a flash device in which only the units, a fixed latency and coalescing take time.
fn bare(units: &str, unit_us: &str, [fixed_us, coalesce_us]: [&str; 2]) -> System {
    let none = ["host.direct_read.fixed", "host.direct_read.each", "links.0.read", "bus.read"];
    let none = none.map(|key| (key, "0"));
    let phases = ["arbitrate", "select", "message_out", "command", "message_in", "disconnect"];
    let phases: Vec<String> = phases.iter().map(|phase| format!("bus.{phase}")).collect();
    let mut changes: Vec<(&str, &str)> = none.to_vec();
    changes.extend(phases.iter().map(|phase| (phase.as_str(), "0")));
    changes.extend([("bus.reselect", "0"), ("bus.status", "0"), ("drive.fixed_read", fixed_us)]);
    changes.push(("drive.coalesce", coalesce_us));
    changes.extend([("drive.read_rate", "0"), ("drive.units", units)]);
    changes.push(("drive.unit_read", unit_us));
    changed(base_with(Parts { flash: true, ..Parts::default() }), &changes)
}

#[test]
fn the_wait_at_one_server_matches_queueing_theory() {
    let system = bare_units("1", "100");
    for load_share in [0.3, 0.6, 0.8] {
        let requests = 400_000_u64;
        let poisson = Workload {
            arrival: Arrival::Poisson { requests_per_s: load_share * 10_000.0 },
            ..load(100, 4096, 512, requests * 4096)
        };
        let ran = run(&system, &poisson, Caching::Direct);
        // M/D/1 (Pollaczek and Khinchine): the mean wait is rho / (2 (1 - rho)) service times.
        let wanted_ns = 1e5 * (1.0 + load_share / (2.0 * (1.0 - load_share)));
        let found_ns = ran.account.mean_residence_ns;
        is_near(found_ns, wanted_ns, 0.02, &format!("a load of {load_share}"));
    }
}

#[test]
fn a_closed_loop_gets_one_server_for_each_request_until_all_are_busy() {
    for units in [1_u32, 3, 4] {
        let system = bare_units(&units.to_string(), "100");
        for depth in 1..=8 {
            let ran = run(&system, &load(100, 4096, depth, 24_000 * 4096), Caching::Direct);
            let rate = ran.account.requests as f64 * 1e9 / ran.elapsed_ns() as f64;
            let wanted = f64::from(depth.min(units)) * 1e4;
            is_near(rate, wanted, 0.002, &format!("{depth} outstanding on {units}"));
        }
    }
}

#[test]
fn coalesced_completions_wait_for_the_last_of_them() {
    let system = bare("1", "100", ["400", "1000000"]);
    for depth in [1_u32, 4, 16] {
        let ran = run(&system, &load(100, 4096, depth, 16_000 * 4096), Caching::Direct);
        let each_ns = 400_000.0 / f64::from(depth) + 100_000.0;
        is_near(ran.ns_per_request(), each_ns, 0.01, &format!("{depth} outstanding"));
    }
}

#[test]
fn a_completion_is_held_no_longer_than_the_coalescing_time() {
    let system = bare("1", "1000", ["0", "50"]);
    let ran = run(&system, &load(100, 4096, 2, 2 * 4096), Caching::Direct);
    // The first completion is reported 50 us late, and the last one immediately.
    is_near(ran.account.mean_residence_ns, (1_050_000.0 + 2_000_000.0) / 2.0, 0.001, "two reads");
}

#[test]
fn a_link_takes_a_fixed_time_and_one_for_each_byte() {
    let slow = [("links.0.fixed", "121"), ("links.0.read", "20")];
    let always = [("drive.rotation", "7200000"), ("drive.start_read", "0")];
    let system = named(DISKS, &[&slow[..], &always].concat());
    let often = |kib: u32| load(100, kib * 1024, 1, 1000 * u64::from(kib) * 1024);
    let time = |kib: u32| run(&system, &often(kib), Caching::Direct);
    let each = 1e9 / (20.0 * MIB as f64) + system.host.direct_read.each.0;
    let (small, large) = (time(16).ns_per_request(), time(64).ns_per_request());
    is_near((large - small) / (48.0 * 1024.0), each, 0.005, "each byte");
    let fast = [("links.0.fixed", "0"), ("links.0.read", "20")];
    let faster = run(&named(DISKS, &[&fast[..], &always].concat()), &often(16), Caching::Direct);
    is_near(small - faster.ns_per_request(), 121_000.0, 0.005, "each transfer");
}

#[test]
fn cached_writes_take_what_bus_and_firmware_take_until_the_buffer_is_full() {
    let on = [("write_cache", "on")];
    let system = named(DISKS, &on);
    let few = run(&system, &load(0, 8192, 1, 12 * 8192), Caching::Direct);
    let many = run(&system, &load(0, 65536, 4, 64 * MIB), Caching::Direct);
    assert!(few.ns_per_request() < 2e6, "{} ns", few.ns_per_request());
    assert!(many.bytes_per_s() <= media_rate(&system) * 1.01, "{}", many.bytes_per_s());
    assert!(many.bytes_per_s() >= media_rate(&system) * 0.9, "{}", many.bytes_per_s());
}

#[test]
fn devices_move_the_requested_bytes_plus_redundancy() {
    let bytes = 8 * MIB;
    let moved = |changes: &[(&str, &str)], read_percent: u8, request: u32| {
        let ran =
            run(&named(DISKS, changes), &load(read_percent, request, 2, bytes), Caching::Direct);
        assert_eq!(ran.account.bytes, bytes);
        ran.account.device_bytes.map(|moved| moved as f64 / bytes as f64)
    };
    let stripe = [("volume", "stripe"), ("disks", "4"), ("misalign", "12k")];
    let mirror = [("volume", "raid1"), ("disks", "2")];
    let parity = [("volume", "raid5"), ("disks", "5")];
    assert_eq!(moved(&[], 100, 65536), [1.0, 0.0]);
    assert_eq!(moved(&[], 0, 131_072), [0.0, 1.0]);
    assert_eq!(moved(&stripe, 100, 65536), [1.0, 0.0]);
    assert_eq!(moved(&mirror, 0, 65536), [0.0, 2.0], "RAID 1 writes all data twice");
    assert_eq!(moved(&mirror, 100, 65536), [1.0, 0.0]);
    assert_eq!(moved(&parity, 0, 262_144), [0.0, 1.25], "whole rows");
    assert_eq!(moved(&parity, 0, 8192), [2.0, 2.0], "parts of rows");
    assert_eq!(moved(&parity, 100, 8192), [1.0, 0.0]);
    let device_requests = |read_percent: u8, request: u32| {
        let ran =
            run(&named(DISKS, &parity), &load(read_percent, request, 1, bytes), Caching::Direct);
        ran.account.device_requests.map(|count| count as f64 / ran.account.requests as f64)
    };
    assert_eq!(device_requests(0, 8192), [2.0, 2.0]);
    assert_eq!(device_requests(0, 262_144), [0.0, 5.0]);
}

#[test]
fn what_is_written_through_a_controller_with_a_cache_is_on_the_devices() {
    let array = [("volume", "raid1"), ("disks", "2"), ("raid_in", "array"), ("write_cache", "on")];
    let written = |caching: Caching| {
        let ran = run(&named(DISKS, &array), &load(0, 65536, 1, 4 * MIB), caching);
        ran.account.device_bytes[Op::Write as usize]
    };
    assert_eq!(written(Caching::DirectWriteThrough), 8 * MIB);
    assert!(written(Caching::Direct) < 8 * MIB, "nothing stays in the cache");
}

#[test]
fn a_cache_of_the_file_system_pays_for_the_controller_below_it() {
    let rate = |piece: &str| {
        let fixed = [("adapter.fixed", piece), ("raid_in", "adapter")];
        let stripe = [("volume", "stripe"), ("disks", "2")];
        let system = named(DISKS, &[&fixed[..], &stripe].concat());
        run(&system, &load(100, 65536, 1, 4 * MIB), Caching::Buffered).bytes_per_s()
    };
    assert!(rate("20000") < 65536.0 / 20e-3, "{}", rate("20000"));
    assert!(rate("0") > 65536.0 / 20e-3, "{}", rate("0"));
}

#[test]
fn a_degraded_array_reads_a_lost_chunk_from_all_others() {
    let system = named(DISKS, &[("volume", "raid5"), ("disks", "5"), ("failed", "1")]);
    let ran = run(&system, &load(100, 8192, 1, 20 * MIB), Caching::Direct);
    // A fifth of the data lies on the failed device. Reading these data takes four device reads.
    is_near(ran.account.device_requests[Op::Read as usize] as f64 / 2560.0, 1.6, 0.001, "reads");
}

#[test]
fn a_block_that_is_zeroed_first_is_written_twice_and_what_parity_needs_is_read_once() {
    let requests = |kind: &str, disks: &str, allocation: &str, request: u32| {
        let setup = [("volume", kind), ("disks", disks), ("allocation", allocation)];
        let ran = run(
            &named(DISKS, &setup),
            &load(0, request, 2, 1024 * u64::from(request)),
            Caching::Direct,
        );
        ran.account.device_requests.map(|count| count as f64 / 1024.0)
    };
    for (kind, disks, request, [reads, writes]) in [
        ("none", "1", 8192, [0.0, 1.0]),
        ("stripe", "4", 8192, [0.0, 1.0]),
        ("raid1", "2", 8192, [0.0, 2.0]),
        ("raid5", "5", 8192, [2.0, 2.0]),
        ("raid5", "5", 262_144, [0.0, 5.0]),
    ] {
        let what = format!("{kind}, {request} bytes");
        assert_eq!(requests(kind, disks, "existing", request), [reads, writes], "{what}");
        assert_eq!(requests(kind, disks, "zeroed", request), [reads, 2.0 * writes], "{what}");
    }
}

#[test]
fn partial_page_writes_read_each_page_once() {
    let count = 2560;
    let page_reads = |changes: &[(&str, &str)], kib: u32| {
        let bytes = count * u64::from(kib) * 1024;
        let ran = run(&named(DISKS, changes), &load(0, kib * 1024, 1, bytes), Caching::Buffered);
        let [bytes, _] = ran.account.device_bytes;
        let [reads, _] = ran.account.device_requests;
        assert_eq!(bytes, reads * 4096, "{kib} KiB");
        reads
    };
    // A page that is written only in part is read once. That is one page for every two requests of
    // 2 or 6 KiB, three pages for every four requests of 3 or 5 KiB, and one page for every four
    // requests of 1 KiB.
    for (kib, reads) in [(2, 1280), (4, 0), (6, 1280), (3, 1920), (5, 1920), (1, 640)] {
        assert_eq!(page_reads(&[], kib), reads, "{kib} KiB");
    }
    assert_eq!(page_reads(&[("allocation", "extend")], 6), 0, "there is nothing to read");
}

/// Returns the number of writes per second by a rebuild, while the volume also serves 10 reads per
/// second.
fn rebuild_writes(changes: &[(&str, &str)]) -> f64 {
    let setup = [("volume", "raid5"), ("failed", "1"), ("rebuilding", "on")];
    let system = named(DISKS, &[&setup[..], changes].concat());
    let arrival = Arrival::Constant { requests_per_s: 10.0 };
    let ran =
        run(&system, &Workload { arrival, ..load(100, 8192, 1, 400 * 8192) }, Caching::Direct);
    let [_, writes] = ran.account.device_requests;
    writes as f64 * 1e9 / ran.elapsed_ns() as f64
}

#[test]
fn every_hosts_volume_is_rebuilt() {
    let one = rebuild_writes(&[("disks", "4")]);
    let two = rebuild_writes(&[("disks", "8"), ("hosts", "2"), ("buses", "2")]);
    assert!(one > 0.0);
    is_near(two, 2.0 * one, 0.02, "two hosts");
}

#[test]
fn a_rebuild_costs_a_controller_with_a_cache_what_it_costs_one_without() {
    let with = |cache: &str| {
        let fixed = [("raid_in", "array"), ("array.fixed", "50000"), ("write_cache", cache)];
        rebuild_writes(&[&fixed[..], &[("disks", "4")]].concat())
    };
    // Each request takes 50 ms in the controller, so ten reads per second occupy half of its time.
    assert!(with("on") <= 10.0, "{}", with("on"));
    is_near(with("on"), with("off"), 0.01, "with a write cache");
}

#[test]
fn a_single_random_request_takes_the_sum_of_the_simple_model() {
    for (name, op, kib) in [
        ("nt4-ultrawide", Op::Read, 8),
        ("nt4-narrow", Op::Read, 2),
        ("w2k-atlas10k", Op::Read, 8),
        ("nt4-ultrawide", Op::Write, 8),
        ("w2k-diamondmax", Op::Read, 64),
    ] {
        let system = named(name, &[("write_cache", "off")]);
        let region_bytes = 2 << 30;
        let read_percent = if op == Op::Read { 100 } else { 0 };
        let plain = load(read_percent, kib * 1024, 1, 2000 * u64::from(kib) * 1024);
        let random = Workload { pattern: Pattern::Random, region_bytes, ..plain };
        let ran = run(&system, &random, Caching::Direct);
        let shape = Shape {
            op,
            random: true,
            request_bytes: kib * 1024,
            depth: 1,
            caching: Caching::Direct,
            bytes: None,
        };
        let model = SimpleModel::of(&system, &shape, region_bytes).expect("one single disk");
        let what = format!("{name} {op:?} {kib} KiB: {model:?}");
        let (found, sum) = (ran.ns_per_request(), model.sum_ns());
        if kib <= 8 {
            is_near(found, sum, 0.03, &what);
        } else {
            // The data cross the bus while the media are still being read.
            assert!(found < sum && found > sum - model.bus_ns - model.fixed_ns, "{what}: {found}");
        }
    }
}
