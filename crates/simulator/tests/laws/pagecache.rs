//! Compares the model of the Linux page cache with closed forms: hit ratios, read-ahead requests,
//! dirty limits, and the cost of durable writes.

use std::sync::Arc;

use ioengine::{Caching, Hint, Op};
use simulator::system::System;
use simulator::{Description, Driver};
use workload::replay::{
    Pace, ReplayDescription, ReplayOperation, ReplayRequest, ReplayRequests, ReplaySource,
};
use workload::{Distribution, FlushEvery, Pattern, Replay, Workload, Zone};

use crate::support::{RunResult, load, run};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// The section of a system file that enables the model of the Linux page cache.
const LINUX: &str = r#"
[host.cache.linux]
read_ahead_max = { value = 128, unit = "KiB", source = "test" }
folio_max = { value = 2048, unit = "KiB", source = "test" }
dirty_background = { value = 4, unit = "MiB", source = "test" }
wakeup = { value = 5, unit = "s", source = "test" }
expire = { value = 30, unit = "s", source = "test" }
requests = { value = 32, unit = "requests", source = "test" }
commit_interval = { value = 5, unit = "s", source = "test" }
journal_write = { value = 8, unit = "KiB", source = "test" }
timestamp_tick = { value = 4, unit = "ms", source = "test" }
flush = { value = 0, unit = "us", source = "test" }
"#;

/// Returns a flash device behind the Linux page cache. A device request takes 1 ms, plus its
/// transfer time at 100 MB/s.
fn linux(changes: &[(&str, &str)]) -> System {
    let base = Description::file("nvme-gen4").expect("the system is built in");
    let text = format!("{base}\n{LINUX}");
    let mut description = Description::read(&text, "test").expect("the text is a system");
    let device = [
        ("drive.fixed_read", "1ms"),
        ("drive.fixed_write", "1ms"),
        ("drive.buffer", "0B"),
        ("drive.unit_read", "0us"),
        ("drive.unit_write", "0us"),
        ("drive.read_rate", "100MB/s"),
        ("drive.write_rate", "100MB/s"),
        ("host.cache.page", "4KiB"),
        ("host.cache.size", "64MiB"),
        ("host.cache.dirty_limit", "8MiB"),
        ("bus.read", "0MB/s"),
        ("bus.write", "0MB/s"),
        ("bus.command", "0us"),
        ("bus.status", "0us"),
        // The host needs no CPU time, so only the device and the page cache determine the times.
        ("host.piece", "0us"),
        ("host.buffered_read.fixed", "0us"),
        ("host.buffered_read.each", "0us/KiB"),
        ("host.buffered_write.fixed", "0us"),
        ("host.buffered_write.each", "0us/KiB"),
        ("host.direct_read.each", "0us/KiB"),
        ("host.direct_write.each", "0us/KiB"),
    ];
    for (key, value) in device.iter().chain(changes) {
        description.set(key, value).unwrap_or_else(|error| panic!("{key}: {error}"));
    }
    description.system().unwrap_or_else(|error| panic!("{error}"))
}

fn buffered(changes: &[(&str, &str)], load: &Workload) -> RunResult {
    run(&linux(changes), load, Caching::Buffered)
}

/// Returns random reads of single pages that are drawn independently.
fn draws(file: u64, requests: u64) -> Workload {
    let all = vec![Zone { access_percent: 100, region_percent: 100 }];
    Workload {
        pattern: Pattern::Random,
        distribution: Distribution::Zoned(all),
        region_bytes: file,
        limit_bytes: Some(requests * PAGE),
        ..load(100, PAGE as u32, 1, file)
    }
}

#[test]
fn a_sequential_reader_gets_the_windows_of_the_documented_rules() {
    // The maximum read-ahead is 128 KiB, so the windows have 4, 8, 16 and then always 32 pages. A
    // file of 16 MiB (4096 pages) takes 3 + 4068 / 32 requests. One or two more requests are for
    // pages after the end of the file. One more request is needed, because a window is shortened to
    // align the next windows to the folio size.
    let small = buffered(&[], &load(100, PAGE as u32, 1, 16 * MIB));
    let requests = small.account.device_requests[0];
    assert!((132..=134).contains(&requests), "{requests}");
    // Each request is larger than the maximum read-ahead, so it becomes one device request.
    // Readahead markers may cause a few more.
    let large = buffered(&[], &load(100, MIB as u32, 1, 16 * MIB));
    let requests = large.account.device_requests[0];
    assert!((16..=18).contains(&requests), "{requests}");
}

#[test]
fn read_ahead_keeps_the_device_as_busy_as_two_windows_can() {
    // Two windows of 16 KiB are in flight: the window that the reader waits for, and the next one.
    let run = buffered(&[("host.cache.linux.read_ahead_max", "16KiB")], &load(100, 4096, 1, MIB));
    let two = 2.0 * 16384.0 / (0.001 + 16384.0 / 100e6);
    assert!((run.bytes_per_s() / two - 1.0).abs() < 0.15, "{} of {two}", run.bytes_per_s());
    let wide = buffered(&[], &load(100, 4096, 1, 16 * MIB));
    assert!((wide.bytes_per_s() / 100e6 - 1.0).abs() < 0.03, "{}", wide.bytes_per_s());
}

#[test]
fn random_reads_of_a_file_are_served_at_the_same_time() {
    let deep = Workload { depth: 4, ..draws(1 << 30, 2000) };
    let (one, four) = (buffered(&[], &draws(1 << 30, 2000)), buffered(&[], &deep));
    let faster = four.bytes_per_s() / one.bytes_per_s();
    assert!((3.5..4.5).contains(&faster), "{faster}");
}

#[test]
fn random_reads_without_read_ahead_hit_as_much_of_the_file_as_fits() {
    let file = 32 * MIB;
    let changes = [("host.cache.size", "16MiB"), ("host.cache.linux.read_ahead_max", "0KiB")];
    let [half, whole] = [40_000, 80_000].map(|count| buffered(&changes, &draws(file, count)));
    let misses = whole.account.device_requests[0] - half.account.device_requests[0];
    let hits = 1.0 - misses as f64 / 40_000.0;
    assert!((hits - 0.5).abs() < 0.02, "{hits}");
}

#[test]
fn reads_near_pages_in_memory_begin_read_ahead_too() {
    // Half of the pages are in memory. For a quarter of the misses, the two pages before the miss
    // are in memory. The kernel takes this for a sequential stream and reads more than one page.
    let changes = [("host.cache.size", "16MiB")];
    let run = buffered(&changes, &draws(32 * MIB, 40_000));
    let account = run.account;
    let pages = account.device_bytes[0] as f64 / PAGE as f64 / account.device_requests[0] as f64;
    assert!((1.2..1.5).contains(&pages), "{pages}");
}

#[test]
fn writers_proceed_at_the_rate_of_the_device_from_the_set_point_on() {
    let writes = load(0, 65536, 1, 64 * MIB);
    let ran = buffered(&[], &writes);
    // Writers start to wait when the dirty data reach 7/8 of the limit (7 MiB). After that, they
    // proceed at the rate of the device.
    let wanted = (64.0 - 7.0) * MIB as f64 / 100e6;
    let accepted = ran.elapsed_ns() as f64 / 1e9;
    assert!((accepted / wanted - 1.0).abs() < 0.03, "{accepted} of {wanted}");
}

#[test]
fn dirty_pages_below_the_background_limit_wait_until_they_expire() {
    let think = workload::Think { pause_ns: 1_000_000_000, requests: 1 };
    let writes = |seconds| Workload { think: Some(think), ..load(0, 4096, 1, seconds * PAGE) };
    let written = |seconds| buffered(&[], &writes(seconds)).account.device_bytes[1];
    // The program writes one page per second, and each page stays dirty for 30 s. Until then, only
    // the commits of the journal, every 5 s, reach the device.
    let journal = written(29);
    assert!((15 * PAGE..=18 * PAGE).contains(&journal), "{journal}");
    assert!(written(45) >= 30 * PAGE + journal, "{}", written(45));
}

#[test]
fn a_flush_after_each_write_costs_a_write_and_a_commit_where_the_times_changed() {
    let each = |data_only| Workload {
        flush_every: Some(FlushEvery { writes: 1, data_only }),
        ..load(0, 4096, 1, MIB)
    };
    let one_ns = 1e6 + 4096.0 * 10.0;
    let data = buffered(&[], &each(true)).ns_per_request();
    assert!((data / one_ns - 1.0).abs() < 0.02, "{data}");
    // The timestamps change every 4 ms. A commit takes two writes of 1 ms each: the first has 8
    // KiB, the second 4 KiB.
    let commit_ns = 2e6 + 3.0 * 4096.0 * 10.0;
    let all = buffered(&[], &each(false)).ns_per_request();
    let wanted = one_ns / (1.0 - commit_ns / 4e6);
    assert!((all / wanted - 1.0).abs() < 0.05, "{all} of {wanted}");
    let always = buffered(&[("host.cache.linux.timestamp_tick", "1us")], &each(false));
    let always = always.ns_per_request();
    assert!((always / (one_ns + commit_ns) - 1.0).abs() < 0.02, "{always}");
}

#[test]
fn a_flush_waits_until_the_device_has_emptied_its_buffer() {
    let changes = [
        ("drive.buffer", "64MiB"),
        ("drive.drain", "1MB/s"),
        ("drive.write_amplification", "1"),
        ("write_cache", "on"),
        ("drive.fixed_write", "0ms"),
    ];
    let each = Workload {
        flush_every: Some(FlushEvery { writes: 1, data_only: true }),
        ..load(0, 4096, 1, MIB)
    };
    let ns = buffered(&changes, &each).ns_per_request();
    assert!((ns / (4096.0 * 1000.0) - 1.0).abs() < 0.05, "{ns}");
    let off = changes.map(|(key, value)| (key, if key == "write_cache" { "off" } else { value }));
    assert!(buffered(&off, &each).ns_per_request() < 0.1 * ns);
}

#[test]
fn files_on_devices_of_their_own_are_flushed_at_the_same_time() {
    let end_ns = |system: &System, bytes| {
        let writes = Workload { flush_at_end: true, ..load(0, 65536, 1, bytes) };
        run(system, &writes, Caching::Buffered).elapsed_ns()
    };
    let rack = |disks| {
        let text = Description::file("rack").expect("the system is built in");
        let mut rack = Description::read(text, "rack").expect("the text is a system");
        for key in ["disks", "hosts", "buses"] {
            rack.set(key, disks).expect("the key exists");
        }
        rack.system().expect("the description is a system")
    };
    let wide = ("host.cache.dirty_limit", "64MiB");
    // The test covers both the Linux page cache and the lazy writer of Windows. The caches are
    // large enough for all files.
    let linux = [linux(&[wide]), linux(&[wide, ("disks", "8")])];
    for ([one, eight], bytes) in [([rack("1"), rack("8")], 6 * MIB), (linux, MIB)] {
        let (one, eight) = (end_ns(&one, bytes), end_ns(&eight, bytes));
        assert!(eight < 2 * one, "{eight} ns for eight files, {one} ns for one");
    }
}

#[test]
fn a_flush_takes_its_own_time_too_once_for_data_and_twice_in_a_commit() {
    let changes = [("host.cache.linux.flush", "500us"), ("host.cache.linux.timestamp_tick", "1us")];
    let each = |data_only| Workload {
        flush_every: Some(FlushEvery { writes: 1, data_only }),
        ..load(0, 4096, 1, MIB)
    };
    for (data_only, flushes) in [(true, 1.0), (false, 2.0)] {
        let [with, without] = [&changes[..], &changes[1..]]
            .map(|changes| buffered(changes, &each(data_only)).ns_per_request());
        let more = (with - without) / 500_000.0;
        assert!((more / flushes - 1.0).abs() < 0.02, "{more} of {flushes}");
    }
    // A device without a write cache is not flushed.
    let off = [changes[0], ("write_cache", "off")];
    let [with, without] =
        [&off[..], &off[1..]].map(|changes| buffered(changes, &each(true)).ns_per_request());
    assert!((with / without - 1.0).abs() < 0.001, "{with} and {without}");
}

#[test]
fn a_device_whose_buffer_cannot_be_flushed_is_refused() {
    let base = Description::file("nvme-ftl").expect("the system is built in");
    let text = Description::read(&format!("{base}\n{LINUX}"), "test").expect("the text is TOML");
    let said = text.system().expect_err("the drive has a translation layer").to_string();
    assert!(said.contains("drive.translation"), "{said}");
}

#[test]
fn writes_through_the_cache_are_on_the_device_when_they_complete() {
    let ran = run(&linux(&[]), &load(0, 4096, 1, MIB), Caching::WriteThrough);
    assert_eq!(ran.account.device_bytes[1], MIB);
    let one_ns = 1e6 + 4096.0 * 10.0;
    assert!((ran.ns_per_request() / one_ns - 1.0).abs() < 0.02, "{}", ran.ns_per_request());
}

#[test]
fn a_write_that_grows_the_file_completes_after_the_commit_of_the_size() {
    let grows = linux(&[("allocation", "extend")]);
    let (one_ns, commit_ns) = (1e6 + 4096.0 * 10.0, 2e6 + 3.0 * 4096.0 * 10.0);
    for depth in [1, 2, 8] {
        let ran = run(&grows, &load(0, 4096, depth, MIB), Caching::WriteThrough);
        let fastest_ns =
            ran.sample.operations[1].latency.min().expect("the run has requests") as f64;
        assert!(fastest_ns > 0.999 * (one_ns + commit_ns), "depth {depth}: {fastest_ns}");
    }
}

#[test]
fn a_write_whose_data_follow_the_log_of_its_commit_is_flushed_after_the_commit() {
    // The first write starts the commit. The second write goes to the other disk. Its data take
    // 2.6 ms and are written after the log, which is written at 2.1 ms.
    let system = linux(&[
        ("allocation", "extend"),
        ("write_cache", "on"),
        ("disks", "2"),
        ("volume", "stripe"),
        ("chunk", "1MiB"),
        ("host.max_transfer", "1MiB"),
        ("host.cache.linux.flush", "500us"),
    ]);
    let mut driver = Driver::new(&system, Caching::WriteThrough, 1);
    driver.submit(0, 0, Op::Write, 0, PAGE as u32);
    driver.submit(0, 1, Op::Write, MIB, 160 << 10);
    let mut ends_ns = [0; 2];
    while let Some(now_ns) = driver.next_ns().filter(|_| driver.in_flight() > 0) {
        let mut done = Vec::new();
        driver.advance(now_ns, &mut done);
        done.into_iter().for_each(|tag| ends_ns[tag as usize] = now_ns);
    }
    // The data, the log and the record take 1 ms each, plus the transfer of four pages in total.
    let commit_end_ns = 3_000_000 + 4 * 40_960 + 2 * 500_000;
    assert_eq!(ends_ns, [commit_end_ns, commit_end_ns + 500_000]);
}

#[test]
fn a_write_of_part_of_a_page_reads_the_page_first() {
    let writes = Workload { pattern: Pattern::Random, ..load(0, 512, 1, MIB) };
    let ran = buffered(&[], &writes);
    assert_eq!(ran.account.device_bytes[0], MIB);
}

/// A trace of 8 KiB reads and hints that are issued one after another.
#[derive(Debug)]
struct Program(Vec<ReplayRequest>);

impl ReplaySource for Program {
    fn requests(&self, _: u32) -> Result<ReplayRequests, String> {
        Ok(Box::new(self.0.clone().into_iter().map(Ok)))
    }
}

fn request(operation: ReplayOperation, at_mib: u64) -> ReplayRequest {
    let offset = at_mib * MIB;
    ReplayRequest { lane: 0, operation, offset, bytes: 8192, gap_ns: 0, outstanding_max: Some(0) }
}

fn replayed(requests: Vec<ReplayRequest>) -> RunResult {
    let replay = Replay {
        description: ReplayDescription {
            trace: "test".to_owned(),
            fingerprint: 0,
            requests: requests.len() as u64,
            bytes: 0,
            recorded_ns: 0,
            pace: Pace::Fast,
            changes: String::new(),
            folded: false,
        },
        span_bytes: 64 * MIB,
        new_ranges: Vec::new(),
        takes_only_awaited: false,
        source: Some(Arc::new(Program(requests))),
    };
    let workload = load(100, 8192, 1, 64 * MIB);
    buffered(&[], &Workload { replay: Some(replay), limit_bytes: None, ..workload })
}

#[test]
fn ranges_that_a_hint_announces_are_read_at_the_same_time() {
    let reads = (0..32).map(|at| request(ReplayOperation::Read, 2 * at));
    let hints = (0..32).map(|at| request(ReplayOperation::Advise(Hint::WillNeed), 2 * at));
    let plain = replayed(reads.clone().collect());
    let hinted = replayed(hints.chain(reads).collect());
    let faster = plain.elapsed_ns() as f64 / hinted.elapsed_ns() as f64;
    assert!(faster > 4.0, "{faster}");
    assert_eq!(plain.account.device_requests[0], hinted.account.device_requests[0]);
}

#[test]
fn pages_that_a_hint_drops_are_read_again() {
    let read = request(ReplayOperation::Read, 3);
    let drop = request(ReplayOperation::Advise(Hint::DontNeed), 3);
    let other = request(ReplayOperation::Advise(Hint::DontNeed), 4);
    let requests = |of: &[ReplayRequest]| replayed(of.to_vec()).account.device_requests[0];
    assert_eq!(requests(&[read, read]), 1);
    assert_eq!(requests(&[read, other, read]), 1);
    assert_eq!(requests(&[read, drop, read]), 2);
}
