//! Quirks of drives, controllers and file systems that the papers describe. Each quirk is compared
//! with its closed form, or with the same system without the quirk.

use ioengine::Caching;
use simulator::System;
use simulator::system::DriveModel;
use workload::{Pattern, Workload};

use crate::support::{DISKS, load, named, relative_difference, run};

const MIB: u64 = 1 << 20;
/// The platters turn so fast that the media never limit the rate.
const FAST: (&str, &str) = ("drive.rotation", "7200000");
const STRIPE: [(&str, &str); 2] = [("volume", "stripe"), ("disks", "4")];

fn with(changes: &[&[(&str, &str)]]) -> System {
    named(DISKS, &changes.concat())
}

fn disk_of(system: &System) -> &simulator::system::DiskModel {
    let DriveModel::Disk(disk) = &system.drive else { panic!("no disk") };
    disk
}

/// Returns two sums of bus phases of a command (ns): the phases before the data, and the phases
/// after the data.
fn phases_ns(system: &System) -> (u64, u64) {
    let bus = &system.bus;
    let before = [bus.arbitrate, bus.select, bus.message_out, bus.command];
    (before.iter().map(|phase| phase.ns()).sum(), bus.status.ns() + bus.message_in.ns())
}

#[test]
fn cached_writes_that_keep_the_bus_take_turns_however_many_disks_there_are() {
    for kib in [2_u32, 8, 16] {
        // The closed form omits the additional firmware time of queued writes, so this time is set
        // to 0.
        let queued = ("drive.firmware_queued_write", "0");
        let off = [FAST, ("write_cache", "on"), ("drive.start_write", "0"), queued];
        let system = with(&[&STRIPE, &off]);
        let deep = load(0, kib * 1024, 16, 16 * MIB);
        let ran = run(&system, &deep, Caching::Direct);
        let (before, after) = phases_ns(&system);
        let firmware = disk_of(&system).firmware_write.ns();
        let data = system.bus.write.ns_for(u64::from(kib) * 1024);
        let wanted = (before + firmware + data + after) as f64;
        let found = ran.ns_per_request();
        assert!(relative_difference(found, wanted) < 0.02, "{kib} KiB: {found} of {wanted}");
        // If a drive releases the bus while it decodes a command, other drives can use the bus.
        let frees = [("drive.writes_inline", "off"), ("drive.writes_reconnect", "off")];
        let frees = with(&[&STRIPE, &off, &frees]);
        let freed = run(&frees, &deep, Caching::Direct).ns_per_request();
        assert!(freed <= found * 1.001, "{kib} KiB: {freed} and {found}");
    }
}

#[test]
fn starting_the_arm_delays_the_next_command_only_if_none_waits() {
    let time = |depth: u32, start_us: &str| {
        let system = with(&[&[FAST, ("drive.start_read", start_us), ("bus.select", "4")]]);
        let reads = load(100, 4096, depth, 8 * MIB);
        (run(&system, &reads, Caching::Direct).ns_per_request(), system)
    };
    let ((with_start, system), (without, _)) = (time(1, "1000"), time(1, "0"));
    // Each read frees buffer space, so read-ahead resumes, and the arm starts again while host and
    // bus prepare the next command.
    let host_ns = system.host.direct_read.ns_for(4096);
    let wanted = 1e6 - (host_ns + phases_ns(&system).0) as f64;
    let found = with_start - without;
    assert!(relative_difference(found, wanted) < 0.01, "{found} of {wanted}");
    let ((deep, _), (deep_without, _)) = (time(8, "1000"), time(8, "0"));
    assert!(relative_difference(deep, deep_without) < 0.01, "{deep} of {deep_without}");
}

#[test]
fn random_reads_pass_the_read_ahead_of_an_array() {
    let array = [("volume", "stripe"), ("disks", "4"), ("raid_in", "array")];
    let random = Workload { pattern: Pattern::Random, ..load(100, 8192, 8, 1 << 30) };
    let random = Workload { limit_bytes: Some(8 * MIB), ..random };
    let rate = |changes: &[(&str, &str)]| {
        let system = with(&[&array, changes]);
        run(&system, &random, Caching::Direct).bytes_per_s()
    };
    let (ahead, not) = (rate(&[]), rate(&[("array.read_ahead", "0")]));
    assert!(relative_difference(ahead, not) < 0.05, "{ahead} with read-ahead, {not} without");
    let sequential = |changes: &[(&str, &str)]| {
        let system = with(&[&array, changes]);
        run(&system, &load(100, 8192, 1, 8 * MIB), Caching::Direct).bytes_per_s()
    };
    let (ahead, not) = (sequential(&[]), sequential(&[("array.read_ahead", "0")]));
    assert!(ahead > not, "sequential reads: {ahead} with read-ahead, {not} without");
}

#[test]
fn an_asynchronous_buffered_request_costs_what_a_direct_one_costs_besides_its_copy() {
    for (read_percent, kib) in [(100, 2_u32), (100, 64), (0, 8)] {
        let reads = load(read_percent, kib * 1024, 1, 8 * MIB);
        let cpu_ns = |overlapped: &str| {
            let system = with(&[&[("overlapped", overlapped)]]);
            let ran = run(&system, &reads, Caching::Buffered);
            let cpu = ran.account.resources.iter().find(|part| part.name == "CPU").unwrap();
            (cpu.busy_ns as f64 / ran.sample.requests() as f64, system)
        };
        let ((with_packet, system), (without, _)) = (cpu_ns("on"), cpu_ns("off"));
        let host = &system.host;
        let cost = if read_percent == 100 { host.direct_read } else { host.direct_write };
        let (found, wanted) = (with_packet - without, cost.fixed.ns() as f64);
        assert!((found - wanted).abs() < 0.01 * without + 10.0, "{kib} KiB: {found} of {wanted}");
    }
}

#[test]
fn a_request_that_defeats_read_ahead_loses_turns_of_the_platter() {
    let time = |kib: u32, changes: &[(&str, &str)]| {
        let none = [("host.cache.read_ahead_bug", "0")];
        let system = with(&[&none, changes]);
        run(&system, &load(100, kib * 1024, 1, 24 * MIB), Caching::Buffered).ns_per_request()
    };
    let turn_ns = 60e9 / 7200.0;
    let (bug, none) = (time(128, &[]), time(128, &[("host.cache.read_ahead_bug_from", "0")]));
    let lost = (bug - none) / turn_ns;
    assert!((1.0..3.0).contains(&lost), "{lost} turns: {bug} and {none} ns");
    let (bug, none) = (time(64, &[]), time(64, &[("host.cache.read_ahead_bug_from", "0")]));
    assert!(relative_difference(bug, none) < 1e-9, "smaller requests lose nothing");
}

#[test]
fn the_lazy_writer_starts_when_the_memory_for_dirty_data_is_full() {
    let system = with(&[&[("host.cache.first_delay", "3600"), ("host.cache.dirty_limit", "2")]]);
    let ran = run(&system, &load(0, 65536, 1, 32 * MIB), Caching::Buffered);
    assert!(ran.elapsed_ns() < 60_000_000_000, "{} s", ran.elapsed_ns() as f64 / 1e9);
    let written = ran.account.device_bytes[1];
    assert!(written >= 29 * MIB, "{written} bytes were written");
}

#[test]
fn a_copy_beyond_the_processors_cache_costs_more_for_each_further_byte() {
    for kib in [16_u32, 64, 128] {
        let system = with(&[]);
        let bytes = u64::from(kib) * 1024;
        let large = system.host.cache.large_copy.as_ref().expect("the system has a large_copy");
        let each = system.host.buffered_write.each;
        let beyond_ns = each.ns_for(bytes.saturating_sub(large.above.bytes())) as f64;
        let wanted =
            system.host.buffered_write.ns_for(bytes) as f64 + beyond_ns * (large.factor.0 - 1.0);
        // All data fit into memory, so only the copies take time.
        let found = run(&system, &load(0, kib * 1024, 1, 8 * MIB), Caching::Buffered);
        let found = found.ns_per_request();
        assert!(relative_difference(found, wanted) < 0.01, "{kib} KiB: {found} of {wanted}");
    }
}

#[test]
fn the_lazy_writer_uses_cpu_that_no_process_is_charged_with() {
    let bytes = 32 * MIB;
    let busy_ns = |us_per_kib: &str| {
        let small = [("host.cache.dirty_limit", "1MiB")];
        let system = with(&[&small, &[("host.cache.write_behind_cpu", us_per_kib)]]);
        let ran = run(&system, &load(0, 65536, 1, bytes), Caching::Buffered);
        let cpu = ran.account.resources.iter().find(|part| part.name == "CPU");
        cpu.expect("the account has a CPU").busy_ns as f64
    };
    let wanted = 10_000.0 * (bytes / 1024) as f64;
    let found = busy_ns("10") - busy_ns("0");
    assert!(relative_difference(found, wanted) < 0.05, "{found} of {wanted}");
}

#[test]
fn a_write_that_lets_go_of_the_bus_pays_for_coming_back() {
    let time = |reconnects: &str| {
        let frees = [FAST, ("write_cache", "on"), ("drive.writes_inline", "off")];
        let frees = with(&[&frees, &[("drive.writes_reconnect", reconnects)]]);
        let ran = run(&frees, &load(0, 16384, 1, 8 * MIB), Caching::Direct);
        (ran.ns_per_request(), frees)
    };
    let ((with_return, system), (without, _)) = (time("on"), time("off"));
    let bus = &system.bus;
    let wanted = bus.arbitrate.ns() + bus.reselect.ns() + bus.disconnect.ns();
    let found = with_return - without;
    // In some writes, the arm starts while the device reconnects, so the reconnection adds less
    // than its full time. The test therefore allows a difference of 3%.
    assert!(relative_difference(found, wanted as f64) < 0.03, "{found} of {wanted}");
}

#[test]
fn a_queued_write_costs_firmware_time_only_if_it_may_be_merged() {
    let slowdown = |kib: u32| {
        let ns = |queued_us: &str| {
            let drive = [FAST, ("write_cache", "on"), ("drive.firmware_queued_write", queued_us)];
            let deep = load(0, kib * 1024, 4, 16 * MIB);
            run(&with(&[&drive]), &deep, Caching::Direct).ns_per_request()
        };
        ns("500") - ns("0")
    };
    assert!(slowdown(16) > 400_000.0, "smaller than drive.coalesce");
    assert!(slowdown(64).abs() < 1000.0, "as large as drive.coalesce");
}

#[test]
fn a_further_piece_of_a_striped_request_costs_its_own_cpu_time() {
    let time = |piece_us: &str| {
        let misaligned = [FAST, ("misalign", "12k"), ("drive.start_read", "0")];
        let system = with(&[&STRIPE, &misaligned, &[("host.volume_piece", piece_us)]]);
        run(&system, &load(100, 65536, 1, 8 * MIB), Caching::Direct).ns_per_request()
    };
    let found = time("100") - time("0");
    assert!(relative_difference(found, 1e5) < 0.05, "{found} of 100 us");
}
