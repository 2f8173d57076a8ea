//! Tests the engine mmap, the options of I/O engines, periodic flushes and hints. Each option must
//! have its documented effect and appear in the results. Where an option is impossible, it must be
//! refused with the reason.

use std::fs::{self, File};
use std::path::Path;

use ioengine::{Caching, HostTarget, Target};
use serde_json::{Value, json};

use crate::fixture::{KIB, MIB, Place, list, or_skip, pause, skip, wait_until, whole};
use crate::volume::LoopDevice;

#[track_caller]
fn trial(document: &Value) -> &Value {
    let [trial] = list(&document["trials"]) else { panic!("not one trial: {document}") };
    trial
}

fn features(document: &Value) -> String {
    trial(document)["setup"]["features"].as_str().unwrap().to_owned()
}

fn resident_bytes(path: &Path) -> Option<u64> {
    HostTarget::open(path, false, Caching::Buffered).unwrap().resident_bytes()
}

/// Measures with options that the kernel or the target may not support. Returns the document, or
/// the error message if they are not supported.
#[track_caller]
fn document_or_reason(place: &Place, line: &str) -> Result<Value, String> {
    let ended = place.halfpower(&format!("{line} --json"));
    match ended.status.code() {
        Some(0 | 5) => Ok(ended.json()),
        _ => Err(ended.stderr.trim().to_owned()),
    }
}

#[test]
fn a_mapping_is_read_and_written_through_the_page_cache_without_being_told() {
    let place = Place::new();
    for rw in ["randread", "randwrite", "randrw"] {
        let line = format!("run . --ioengine mmap --rw {rw} --bs 16k --size 4m --trials 1");
        let document = place.document(&line);
        assert_eq!(document["workload"]["ioengine"], "mmap");
        assert_eq!(document["workload"]["caching"], "buffered");
        assert_eq!(whole(&trial(&document)["bytes"]), 4 * MIB);
        assert_eq!(features(&document), "MAP_SHARED");
        // A trial with buffered writes ends with a flush, so it reports `accepted_ns`.
        assert_eq!(trial(&document)["accepted_ns"].is_u64(), rw != "randread", "{rw}");
    }
    place.is_tidy();
}

#[test]
fn what_is_written_through_a_mapping_is_read_back_whole_by_any_engine_kind() {
    let place = Place::new();
    let file = place.file("data", 4 * MIB);
    let name = file.display();
    let shape = "--bs 64k --size 4m --trials 1 --verify";
    place.does(&format!("run {name} --ioengine mmap --rw randwrite {shape} --overwrite {name}"));
    for engine in ["mmap", "sync"] {
        place.does(&format!("run {name} --ioengine {engine} --rw read {shape}"));
    }
    assert_eq!(fs::metadata(&file).unwrap().len(), 4 * MIB);
}

#[test]
fn a_device_is_mapped_as_a_file_is() {
    let device = or_skip!(LoopDevice::new(4 * MIB));
    let (place, path) = (Place::new(), device.path());
    let shape = "--ioengine mmap --bs 16k --size 4m --trials 1 --verify";
    place.does(&format!("run {path} --rw randwrite {shape} --destroy-data-on={path}"));
    place.does(&format!("run {path} --rw read {shape}"));
    place.does(&format!("run {path} --ioengine sync --hint dontneed --bs 16k --size 4m"));
}

#[test]
fn a_mapped_file_that_is_cut_ends_the_run_with_the_cause() {
    let place = Place::new();
    let file = place.file("data", 64 * MIB);
    let line = "run data --ioengine mmap --rw randread --bs 64k --time-based --runtime 60 \
                --size 64m --trials 1";
    let mut running = place.start(line);
    running.until_it_says("1 trial of 60 s");
    let maps = format!("/proc/{}/maps", running.child.id());
    let is_mapped = || fs::read_to_string(&maps).is_ok_and(|text| text.contains("/data\n"));
    running.until("the file is mapped", is_mapped);
    pause(1000);
    File::options().write(true).open(&file).unwrap().set_len(4096).unwrap();
    running
        .ended()
        .with_code(1)
        .says("unexpected end of the target", "it shrank during the measurement");
}

#[test]
fn what_cannot_be_is_refused_with_the_remedy_before_anything_is_made() {
    let place = Place::new();
    for (flags, cause, remedy) in [
        ("--ioengine mmap --direct", "page cache", "--direct=0"),
        ("--ioengine mmap --iodepth 2", "--iodepth 2", "--iodepth 1"),
        ("--ioengine mmap --rw write --allocation extend", "grow", "--allocation preallocated"),
        ("--ioengine mmap --rw write --allocation truncate", "grow", "--allocation preallocated"),
        ("--ioengine mmap --rw write --write-through", "--write-through", "--fsync 1"),
        ("--ioengine mmap --rw write --fua", "--fua", "another --ioengine"),
        ("--ioengine mmap --uncached", "--uncached", "another --ioengine"),
        ("--ioengine mmap --hipri", "--hipri", "drop one"),
        ("--ioengine sync --hipri", "is for io_uring, not sync", "--ioengine io_uring"),
        ("--ioengine sync --sqthread-poll", "is for io_uring", "--ioengine io_uring"),
        ("--sqthread-poll --iodepth 20000 --bs 512", "--iodepth 20000", "at most 16384"),
        ("--hipri --direct=0", "--hipri", "--direct"),
        ("--uncached --direct", "page cache", "--direct=0"),
        ("--uncached --hipri", "--uncached", "drop one"),
        ("--fua", "for writes", "--rw write"),
        ("--rw write --fua --write-through", "both make each write durable", "drop one"),
        ("--fsync 4", "only reads", "--rw write"),
        ("--rw write --fdatasync 0", "never flushes", "--fdatasync to 1"),
        ("--rw write --fsync 4 --iodepth 8", "--iodepth 8 is never reached", "--fsync to 8"),
        ("--rw write --ioengine null --fsync 4", "nothing to flush", "drop --fsync"),
        ("--ioengine null --uncached", "--uncached", "another --ioengine"),
        ("--hint maybe", "unknown hint 'maybe'", "willneed"),
    ] {
        let target = if flags.contains("null") { "" } else { "." };
        place.cannot(&format!("run {target} --size 1m {flags}")).with_code(2).says(cause, remedy);
        assert!(!place.has_made_a_test_file(), "{flags}");
    }
}

#[test]
fn a_simulated_system_has_no_use_for_them() {
    let place = Place::new();
    for flag in ["--sqthread-poll", "--hipri", "--uncached", "--fua", "--fsync 1", "--fdatasync 2"]
    {
        let ended = place.cannot(&format!("run sim:nt4-ultrawide --rw write --size 1m {flag}"));
        ended.with_code(2).says("a simulated system", "drop the flags listed under 'Engine'");
    }
}

#[test]
fn a_thread_of_the_kernel_takes_submissions_and_the_result_says_so() {
    let place = Place::new();
    let line = "run . --sqthread-poll --rw randrw --bs 4k --size 4m --iodepth 8 --trials 1";
    let document = or_skip!(document_or_reason(&place, line));
    assert!(features(&document).contains("SQPOLL"), "{document}");
    assert_eq!(document["workload"]["settings"]["options"], json!(["sqthread_poll"]));
    assert_eq!(whole(&trial(&document)["bytes"]), 4 * MIB);
    let off = place.document("run . --sqthread_poll=0 --size 4m --trials 1");
    assert!(!features(&off).contains("SQPOLL"));
    assert_eq!(off["workload"]["settings"]["options"], json!([]));
}

/// Finds the first thread of a process with a name that begins with `name`. Returns the CPU time of
/// this thread (ns), or None if there is no such thread.
fn cpu_of_thread(process: u32, name: &str) -> Option<u64> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let folders = threads.flatten().map(|entry| entry.path());
    let mut mine = folders.filter(|folder| {
        fs::read_to_string(folder.join("comm")).is_ok_and(|comm| comm.starts_with(name))
    });
    let text = fs::read_to_string(mine.next()?.join("schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

#[test]
fn the_cpu_of_the_thread_that_takes_submissions_is_charged_to_the_process() {
    let place = Place::new();
    place.file("data", 4 * MIB);
    // At this low rate the worker uses little CPU time, while the polling kernel thread spins
    // between requests.
    let load = "--rw randread --bs 4k --size 4m --time-based --rate-iops 200 --trials 1";
    let line = format!("run data {load} --runtime 2 --sqthread-poll --json");
    or_skip!(document_or_reason(&place, &format!("run data {load} --runtime 0.1 --sqthread-poll")));
    let mut running = place.start(&line);
    running.until_it_says("1 trial of 2 s");
    let (process, mut thread_ns) = (running.child.id(), 0);
    wait_until("the run is over", || {
        thread_ns = thread_ns.max(cpu_of_thread(process, "iou-sqp").unwrap_or(0));
        running.child.try_wait().unwrap().is_some()
    });
    let document = running.ended().json();
    let of_process = whole(&trial(&document)["cpu_ns"]["process"]);
    if thread_ns < 100_000_000 {
        let reason = "the kernel thread got too little CPU time on this busy machine";
        return skip("engine_flags::the_cpu_of_the_thread_that_takes_submissions", reason);
    }
    // The process is not charged for the CPU time that the kernel thread uses before the first
    // request. The test therefore requires only that more than half of the thread's CPU time is
    // charged.
    assert!(of_process > thread_ns / 2, "{of_process} of {thread_ns} ns were charged");
    let without = place.document(&format!("run data {load} --runtime 2"));
    let alone = whole(&trial(&without)["cpu_ns"]["process"]);
    assert!(alone < thread_ns / 2, "inconclusive: worker {alone} of {thread_ns} ns");
}

#[test]
fn polling_is_measured_where_the_device_can_be_polled_and_refused_where_it_cannot() {
    let place = Place::new();
    place.file("data", 4 * MIB);
    let line = "run data --hipri --rw randread --bs 4k --size 4m --iodepth 4 --trials 1";
    match document_or_reason(&place, line) {
        Ok(document) => {
            assert!(features(&document).contains("IOPOLL"), "{document}");
            assert_eq!(document["workload"]["caching"], "direct");
        }
        Err(said) => {
            let told = said.contains("--hipri") && said.contains("poll_queues=2");
            let elsewhere =
                said.contains("lacks direct I/O") || said.contains("is not available here");
            assert!(told || elsewhere, "{said}");
        }
    }
    let device = or_skip!(LoopDevice::new(MIB));
    let ended = place.cannot(&format!("run {} --hipri --bs 4k --size 1m", device.path()));
    ended.says("has no poll queues", "drop --hipri");
}

#[test]
fn uncached_reads_leave_nothing_in_the_page_cache_and_plain_ones_do() {
    for rw in ["read", "write"] {
        for engine in ["io_uring", "sync", "threads"] {
            let place = Place::new();
            let file = place.file("data", 4 * MIB);
            let shape = format!("run data --ioengine {engine} --rw {rw} --bs 64k --size 4m");
            let shape = format!("{shape} --trials 1 --overwrite data");
            // `--uncached` does not evict pages that were in the page cache before the run.
            HostTarget::open(&file, false, Caching::Buffered).unwrap().scrub().unwrap();
            let document = or_skip!(document_or_reason(&place, &format!("{shape} --uncached")));
            assert_eq!(document["workload"]["caching"], "buffered");
            assert!(features(&document).contains("RWF_DONTCACHE"), "{document}");
            assert_eq!(whole(&trial(&document)["bytes"]), 4 * MIB);
            let Some(left) = resident_bytes(&file) else {
                return skip("engine_flags::uncached", "resident pages cannot be counted here");
            };
            place.does(&format!("{shape} --direct=0"));
            assert_eq!(resident_bytes(&file), Some(4 * MIB), "{engine} {rw}");
            // Whether written pages are evicted depends on how the file system ends writeback, so
            // only reads are checked.
            assert!(rw == "write" || left < MIB, "{left} bytes stayed after reads by {engine}");
        }
    }
}

#[test]
fn each_engine_makes_each_write_durable_where_it_is_asked_to() {
    let place = Place::new();
    for engine in ["sync", "threads", "libaio", "io_uring"] {
        let line = format!("run . --ioengine {engine} --fua --rw randwrite --bs 4k --size 256k");
        let document = or_skip!(document_or_reason(&place, &format!("{line} --trials 1")));
        assert!(features(&document).contains("RWF_DSYNC"), "{document}");
        assert_eq!(document["workload"]["settings"]["options"], json!(["fua"]));
        assert_eq!(whole(&trial(&document)["bytes"]), 256 * KIB);
        assert_eq!(trial(&document)["accepted_ns"], Value::Null, "no flush follows the writes");
    }
}

#[test]
fn flushes_come_after_every_n_writes_and_their_latency_stands_apart() {
    let place = Place::new();
    let shape = "run . --rw write --bs 4k --size 256k --trials 1 --iodepth 4";
    for (flags, expected) in [("--fsync 16", 4), ("--fdatasync 10", 6), ("--fsync 65", 0)] {
        let document = place.document(&format!("{shape} {flags}"));
        let (name, writes) = flags.trim_start_matches("--").split_once(' ').unwrap();
        assert_eq!(document["workload"]["settings"][name], json!(writes.parse::<u64>().unwrap()));
        let trial = trial(&document);
        assert_eq!(whole(&trial["requests"]), 64, "a flush does not count as a request");
        if expected == 0 {
            assert_eq!(
                (&trial["flushes"], &trial["flush_latency_ns"]),
                (&Value::Null, &Value::Null)
            );
            continue;
        }
        assert_eq!(whole(&trial["flushes"]), expected, "{flags}");
        let latency = &trial["flush_latency_ns"];
        assert!(whole(&latency["min"]) > 0 && latency["min"].as_u64() <= latency["max"].as_u64());
        let flushed = whole(&latency["mean"]) * expected;
        assert!(flushed <= whole(&trial["elapsed_ns"]), "flushes took longer than the trial");
    }
    // Each of the two threads flushes whenever it has issued 8 more writes.
    let document = place.document(&format!("{shape} --numjobs 2 --fsync 8"));
    assert_eq!(whole(&trial(&document)["flushes"]), 8);
    let line = place.does("run . --rw write --bs 4k --size 64k --trials 1 --fsync 4").stdout;
    assert!(line.contains(", fsync 4: "), "{line}");
}

#[test]
fn every_hint_is_taken_and_told() {
    let place = Place::new();
    for hint in ["normal", "sequential", "random", "noreuse", "willneed", "dontneed"] {
        for engine in ["sync", "mmap"] {
            let line = format!("run . --ioengine {engine} --direct=0 --hint {hint} --size 1m");
            let document = or_skip!(document_or_reason(&place, &format!("{line} --trials 1")));
            assert_eq!(document["workload"]["settings"]["hint"], hint);
        }
    }
}

#[test]
fn engines_tells_what_can_be_asked_of_them() {
    let place = Place::new();
    let document = place.document("engines");
    let options = list(&document["options"]);
    let names: Vec<&str> = options.iter().map(|option| option["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["sqthread_poll", "hipri", "uncached", "fua", "zone_append"]);
    for option in options {
        let reason = option["detail"].as_str().unwrap();
        assert!(option["available"] == true || !reason.is_empty(), "{option}");
    }
    let text = place.does("engines").stdout;
    assert!(text.contains("SQPOLL") && text.contains("poll queues"), "{text}");
}
