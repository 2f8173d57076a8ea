//! Compares the file-system cache with closed forms: hit ratios of random reads, the pages that
//! stay in memory, and the resulting rates. The hit ratios are those of an LRU cache with
//! independent draws (Che's approximation).

use ioengine::{Caching, Op};
use simulator::bounds::{self, Shape};
use simulator::quantity::Time;
use simulator::system::System;
use workload::{Arrival, Distribution, Pattern, Workload, Zone};

use crate::support::{DISKS, Parts, RunResult, base_with, changed, load, named, run};

const MIB: u64 = 1 << 20;
const BLOCK: u32 = 8192;
/// Seed of all runs in this file.
const SEED: u64 = 3;

/// Returns a system with a cache of `cache` bytes. The device is flash, so that the simulation is
/// fast.
fn flash(cache: u64) -> System {
    let parts = Parts { flash: true, ..Parts::default() };
    changed(base_with(parts), &[("host.cache.size", &format!("{cache}B"))])
}

/// Returns a distribution in which all blocks are drawn independently and with the same
/// probability.
fn uniform() -> Distribution {
    Distribution::Zoned(vec![Zone { access_percent: 100, region_percent: 100 }])
}

/// Returns a load of `requests` random block reads of a file of `file` bytes.
fn reads(distribution: Distribution, file: u64, requests: u64) -> Workload {
    Workload {
        pattern: Pattern::Random,
        distribution,
        region_bytes: file,
        limit_bytes: Some(requests * u64::from(BLOCK)),
        seed: SEED,
        ..load(100, BLOCK, 1, file)
    }
}

/// Returns the hit ratio and the time per request (ns) in the second half of a run. Both are
/// differences between the whole run and a run with only the first half of the requests.
fn late(system: &System, whole: &Workload) -> [f64; 2] {
    let bytes = whole.limit_bytes.expect("the load has a limit");
    let half = Workload { limit_bytes: Some(bytes / 2), ..whole.clone() };
    let [all, first] = [whole, &half].map(|load| run(system, load, Caching::Buffered));
    let misses = |ran: &RunResult| ran.account.device_requests[0] as f64;
    let requests = (all.account.requests - first.account.requests) as f64;
    let ns = (all.elapsed_ns() - first.elapsed_ns()) as f64;
    [1.0 - (misses(&all) - misses(&first)) / requests, ns / requests]
}

#[test]
fn uniform_random_reads_hit_as_much_of_the_file_as_fits() {
    let file = 32 * MIB;
    for share in [0.25, 0.5, 0.9] {
        let system = flash((file as f64 * share) as u64);
        let [hits, _] = late(&system, &reads(uniform(), file, 80_000));
        assert!((hits - share).abs() < 0.02, "{hits} of {share}");
    }
}

/// Returns the hit ratio of an LRU cache of `held` blocks under independent draws (Che's
/// approximation). A block is in the cache if it was drawn within the time in which `held`
/// different blocks are drawn.
fn che(draw_shares: &[f64], held: f64) -> f64 {
    let there = |time: f64| draw_shares.iter().map(move |share| 1.0 - (-share * time).exp());
    let (mut low, mut high) = (0.0, 1e12);
    for _ in 0..200 {
        let time = (low + high) / 2.0;
        if there(time).sum::<f64>() < held { low = time } else { high = time }
    }
    draw_shares.iter().zip(there(low)).map(|(share, there)| share * there).sum()
}

#[test]
fn skewed_random_reads_hit_as_che_says() {
    let file = 32 * MIB;
    let blocks = file / u64::from(BLOCK);
    for (theta, share) in [(0.8, 0.1), (0.8, 0.4), (1.2, 0.05)] {
        let weights = (1..=blocks).map(|rank| (rank as f64).powf(-theta));
        let sum: f64 = weights.clone().sum();
        let draw_shares: Vec<f64> = weights.map(|weight| weight / sum).collect();
        let wanted = che(&draw_shares, blocks as f64 * share);
        let system = flash((file as f64 * share) as u64);
        let [hits, _] = late(&system, &reads(Distribution::Zipf { theta }, file, 80_000));
        assert!((hits - wanted).abs() < 0.02, "theta {theta}: {hits} of {wanted}");
    }
}

#[test]
fn rates_follow_from_the_hit_ratio() {
    let file = 32 * MIB;
    let [_, miss_ns] = late(&flash(MIB / 64), &reads(uniform(), file, 20_000));
    let [all_hit, hit_ns] = late(&flash(2 * file), &reads(uniform(), file, 160_000));
    assert!(all_hit == 1.0 && miss_ns > 2.0 * hit_ns, "{all_hit}, {miss_ns}, {hit_ns}");
    // A hit takes only the CPU time of a read from memory.
    let system = flash(file);
    let host = &system.host;
    let own = host.buffered_read.ns_for(u64::from(BLOCK)) + host.cache.random_view.ns();
    assert!((hit_ns / own as f64 - 1.0).abs() < 0.01, "{hit_ns} of {own}");
    let [hits, mean_ns] = late(&flash(file / 2), &reads(uniform(), file, 80_000));
    let wanted = hits * hit_ns + (1.0 - hits) * miss_ns;
    assert!((mean_ns / wanted - 1.0).abs() < 0.02, "{mean_ns} of {wanted}");
}

#[test]
fn a_file_that_fits_is_read_from_the_device_once() {
    let file = 16 * MIB;
    for pattern in [Pattern::Random, Pattern::Sequential] {
        let system = named(DISKS, &[("host.cache.size", "32MiB")]);
        let passes = Workload { limit_bytes: Some(5 * file), pattern, ..load(100, BLOCK, 1, file) };
        let ran = run(&system, &passes, Caching::Buffered);
        let read = ran.account.device_bytes[0];
        // The read-ahead of a sequential reader may pass the end of the file by one read-ahead
        // unit.
        let ahead =
            if pattern == Pattern::Random { 0 } else { system.host.cache.read_ahead.bytes() };
        assert!((file..=file + ahead + 65536).contains(&read), "{pattern:?}: {read}");
    }
}

#[test]
fn a_file_larger_than_the_cache_gains_nothing_when_read_in_order_again() {
    let file = 16 * MIB;
    let system = named(DISKS, &[("host.cache.size", "8MiB")]);
    let passes = Workload { limit_bytes: Some(3 * file), ..load(100, 65536, 1, file) };
    let ran = run(&system, &passes, Caching::Buffered);
    assert!(ran.account.device_bytes[0] >= 3 * file, "{}", ran.account.device_bytes[0]);
}

#[test]
fn small_random_writes_read_the_data_around_them_once() {
    let file = 16 * MIB;
    let system = named(DISKS, &[("host.cache.size", "32MiB"), ("write_cache", "on")]);
    let writes = Workload {
        read_percent: 0,
        flush_at_end: true,
        ..reads(uniform(), file, 2 * file / u64::from(BLOCK))
    };
    let ran = run(&system, &writes, Caching::Buffered);
    assert!(ran.account.device_bytes[0] <= file, "{}", ran.account.device_bytes[0]);
    // Each block is drawn twice on average. A block that is still dirty is not written twice.
    let asked = writes.limit_bytes.expect("the load has a limit");
    let written = ran.account.device_bytes[1];
    assert!(written < asked && written > asked / 3, "{written} of {asked}");
}

#[test]
fn each_small_random_write_reads_the_data_around_it_if_little_fits_in_memory() {
    let file = 64 * MIB;
    // The cache holds 16 frames. Up to 16 more frames stay in memory, because each of them has a
    // dirty block.
    let sizes = [("host.cache.size", "1MiB"), ("host.cache.dirty_limit", "128KiB")];
    let system = named(DISKS, &sizes);
    let writes = Workload {
        read_percent: 0,
        flush_at_end: true,
        ..reads(uniform(), file, file / 8 / u64::from(BLOCK))
    };
    let ran = run(&system, &writes, Caching::Buffered);
    let read = ran.account.device_requests[0] as f64 / ran.account.requests as f64;
    assert!((0.94..=1.0).contains(&read), "{read} reads for each write");
    let bytes = ran.account.device_bytes[0] as f64 / ran.account.device_requests[0] as f64;
    assert!(bytes > 0.99 * system.host.cache.write_frame.bytes() as f64, "{bytes} bytes each");
}

#[test]
fn the_lazy_writer_sweeps_over_the_file() {
    // The lazy writer starts only after the last write, so one sweep writes all data. A sweep seeks
    // less than random writes do.
    let file = 64 * MIB;
    let changes = [("host.cache.first_delay", "3600"), ("host.cache.write_frame", "512B")];
    let system = named(DISKS, &changes);
    let count = 512;
    let writes = Workload { read_percent: 0, flush_at_end: true, ..reads(uniform(), file, count) };
    let swept = run(&system, &writes, Caching::Buffered).elapsed_ns() as f64 / count as f64;
    let direct = run(&system, &Workload { flush_at_end: false, ..writes }, Caching::Direct);
    let direct = direct.elapsed_ns() as f64 / count as f64;
    let turn_ns = 60e9 / 7200.0;
    assert!(swept < direct - 0.1 * turn_ns, "{swept} ns per write in a sweep, {direct} at random");
}

#[test]
fn a_scan_writes_an_eighth_of_the_scattered_data_that_are_dirty() {
    // The writes arrive at a constant rate and never wait for the device.
    let file = 64 * MIB;
    let scans = |seconds: u64, scan: Option<Time>| {
        let mut system = named(DISKS, &[("host.cache.write_frame", "512B")]);
        system.host.cache.first_delay = Time(1e9);
        system.host.cache.scan = scan;
        let writes = Workload {
            read_percent: 0,
            limit_bytes: None,
            limit_ns: Some(seconds * 1_000_000_000 + 500_000_000),
            arrival: Arrival::Constant { requests_per_s: 64.0 },
            ..reads(uniform(), file, 1)
        };
        let account = run(&system, &writes, Caching::Buffered).account;
        (account.device_requests[1] as f64, account.requests as f64)
    };
    let second = Some(Time(1e9));
    // Each second, 64 blocks become dirty, and a scan writes an eighth of the dirty blocks. After n
    // seconds, 64 x 8 x (1 - (7/8)^n) blocks are dirty. The run lasts half a second longer, which
    // adds 32 dirty blocks. The formula neglects writes to blocks that were already dirty.
    for n in [2_u64, 4, 8] {
        let (written, requests) = scans(n, second);
        let dirty = 512.0 * (1.0 - 0.875_f64.powi(n as i32)) + 32.0;
        let off = (requests - written - dirty) / requests;
        assert!(off.abs() < 0.1, "{n} s: {written} of {requests} written, {dirty} dirty");
    }
    let (written, requests) = scans(8, None);
    assert!(written > 0.9 * requests, "{written} of {requests}");
}

#[test]
fn reads_find_what_was_written() {
    let file = 8 * MIB;
    let changes = [("host.cache.size", "32MiB"), ("allocation", "extend")];
    let system = named(DISKS, &changes);
    let mixed = Workload { read_percent: 50, ..reads(uniform(), file, 40_000) };
    let ran = run(&system, &mixed, Caching::Buffered);
    // Each block is read from the device at most once, and never if it was written before.
    assert!(ran.account.device_bytes[0] < file * 3 / 4, "{}", ran.account.device_bytes[0]);
}

#[test]
fn an_endless_load_that_may_hit_is_bounded_by_the_host_alone() {
    let file = 4 * MIB;
    let system = flash(2 * file);
    let shape = |random, op| Shape {
        op,
        random,
        request_bytes: BLOCK,
        depth: 1,
        caching: Caching::Buffered,
        bytes: None,
    };
    let [_, hit_ns] = late(&system, &reads(uniform(), file, 40_000));
    let rate = f64::from(BLOCK) * 1e9 / hit_ns;
    for bound in bounds::of(&system, &shape(true, Op::Read)) {
        assert!(rate <= bound.bytes_per_s * 1.000_001, "{bound:?}: {rate}");
    }
    let direct = Shape { caching: Caching::Direct, ..shape(true, Op::Read) };
    assert!(bounds::of(&system, &direct).iter().any(|bound| bound.name == "flash units"));
    for (random, op) in [(true, Op::Write), (false, Op::Read)] {
        assert!(!bounds::of(&system, &shape(random, op)).is_empty());
    }
}
