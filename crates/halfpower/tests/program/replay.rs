//! Tests `replay` on files and in simulated systems, and `whatif` with traces. The traces are CSV
//! files with known requests.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::fixture::{Place, list, or_skip, real, text, whole};
use crate::known_truth::Served;
use crate::watch::{LOADS, Load, watching};

/// Column names of the traces.
const COLUMNS: &str = "start_ns,latency_ns,thread,call,operation,file,offset,bytes,direct\n";

/// Writes a trace with the thread, operation, offset and length of each request. Each request takes
/// 100 us. After each request, the traced program computes for 20 us.
fn trace(place: &Place, name: &str, requests: &[(u32, &str, u64, u64)]) {
    let mut lines = COLUMNS.to_owned();
    for (at, (thread, operation, offset, bytes)) in requests.iter().enumerate() {
        let (start, direct) = (at * 120_000, true);
        let call = if *operation == "flush" { "fdatasync" } else { "pread64" };
        let (offset, bytes) = match *operation {
            "flush" => (String::new(), 0),
            _ => (offset.to_string(), *bytes),
        };
        let file = "/data/f";
        writeln!(
            lines,
            "{start},100000,{thread},{call},{operation},{file},{offset},{bytes},{direct}"
        )
        .unwrap();
    }
    fs::write(place.path(name), lines).unwrap();
}

/// Writes a trace of 4 KiB writes to a log, with a flush after each write.
fn log_with_flushes(place: &Place, name: &str, writes: u64) {
    let write = |at| [(1, "write", 4096 * at, 4096), (1, "flush", 0, 0)];
    trace(place, name, &(0..writes).flat_map(write).collect::<Vec<_>>());
}

/// Writes a trace of random 8 KiB reads, one at a time.
fn reads(place: &Place, name: &str, count: u64) {
    let read = |at: u64| (1, "read", at * 7919 % 2048 * 8192, 8192);
    trace(place, name, &(0..count).map(read).collect::<Vec<_>>());
}

fn requests(document: &Value, direction: &str) -> u64 {
    let trials = list(&document["trials"]);
    match &document["summary"]["by_operation"] {
        Value::Null => whole(&trials[0]["requests"]),
        both => whole(&both[direction]["requests"]) / trials.len() as u64,
    }
}

fn elapsed_of(document: &Value) -> u64 {
    whole(&document["trials"][0]["elapsed_ns"])
}

#[test]
fn every_request_of_a_trace_is_issued_again_and_the_result_is_a_run() {
    let place = Place::new();
    let mixed = [(1, "read", 0, 4096), (2, "write", 8192, 12288), (1, "read", 4096, 8192)];
    trace(&place, "t.csv", &mixed);
    let document = place.document("replay t.csv . --trials 2 --direct=0");
    assert_eq!((requests(&document, "read"), requests(&document, "write")), (2, 1));
    assert_eq!(whole(&document["trials"][1]["bytes"]), 24_576);
    let replay = &document["workload"]["settings"]["replay"];
    assert_eq!((text(&replay["trace"]), whole(&replay["requests"])), ("t.csv", 3));
    assert_eq!(text(&document["workload"]["rw"]), "replay");
    // A replay uses ordinary pages for its buffers, like most programs.
    assert_eq!(text(&document["workload"]["settings"]["buffer_pages"]), "4k");
    // The replay has one worker for each thread of the traced program.
    assert_eq!(whole(&document["workload"]["threads"]), 2);
    let shown = place.does("runs show 1").stdout;
    assert!(shown.contains("replay of t.csv (3 requests, as recorded), 2 threads"), "{shown}");
    place.does("replay t.csv . --direct=0 --trials 2");
    place.does("compare 1 2 --same-within 1000%");
    assert_eq!(place.listing(), ["halfpower.db", "t.csv"]);
}

#[test]
fn a_replay_in_a_simulated_system_gives_the_same_bits_each_time() {
    let place = Place::new();
    reads(&place, "t.csv", 300);
    let line = "replay t.csv sim:nvme-gen4 --no-store --trials 1";
    let (one, two) = (place.document(line), place.document(line));
    assert_eq!((&one["summary"], elapsed_of(&one)), (&two["summary"], elapsed_of(&two)));
    assert_eq!(requests(&one, "read"), 300);
    let elapsed = |line: &str| elapsed_of(&place.document(line));
    // The program computes for 20 us in each of the 299 gaps between its 300 requests.
    let (kept, dropped) = (elapsed(line), elapsed(&format!("{line} --fast")));
    assert_eq!(kept - dropped, 299 * 20_000);
    assert_eq!(elapsed(&format!("{line} --speed 2")) - dropped, 299 * 10_000);
    assert!(elapsed(&format!("{line} --fast --iodepth-to 8")) * 3 < dropped);
}

#[test]
fn a_trace_that_does_not_fit_is_refused_with_the_remedy() {
    let place = Place::new();
    reads(&place, "t.csv", 30);
    place.file("small", 64 << 10);
    let ended = place.cannot("replay t.csv small --no-store").with_code(2);
    ended.says("small", "--fold");
    let folded = place.document("replay t.csv small --no-store --fold --direct=0 --trials 1");
    assert_eq!(requests(&folded, "read"), 30);
    // Some requests are beyond the given size. They must not be moved silently to smaller offsets.
    let short = place.cannot("replay t.csv . --no-store --size 1m --direct=0").with_code(2);
    short.says("the trace needs", "--fold, or use a larger --size");
    let long = place.cannot("replay t.csv small --no-store --fold --size 1m").with_code(2);
    long.says("the region ends at 1048576", "use a smaller --size");
    place
        .cannot("whatif nvme-gen4 --trace h.csv --set disks=2")
        .with_code(2)
        .says("h.csv", "specify");
    place.cannot("replay none.csv small").with_code(2).says("none.csv", "specify a trace file");
    place.cannot("replay small small").with_code(1).says("small", "blkparse");
    place.cannot("replay t.csv . --file /other").with_code(2).says("no reads and writes", "record");
    place.cannot("replay t.csv . --speed 0").with_code(2).says("--speed", "above 0");
}

#[test]
fn a_damaged_trace_gives_one_clear_line() {
    let place = Place::new();
    reads(&place, "t.csv", 500);
    place.does("trace t.csv --output t.parquet");
    let bytes = fs::read(place.path("t.parquet")).unwrap();
    fs::write(place.path("cut.parquet"), &bytes[..bytes.len() / 2]).unwrap();
    place.cannot("replay cut.parquet . --no-store").with_code(1).says("cut.parquet", "not a trace");
    let mut hostile = bytes;
    let middle = hostile.len() / 3;
    hostile[40..middle].fill(0xA5);
    fs::write(place.path("bad.parquet"), hostile).unwrap();
    place.cannot("replay bad.parquet . --no-store").with_code(1).says("bad.parquet", "again");
}

#[test]
fn writes_of_a_trace_need_consent() {
    let place = Place::new();
    log_with_flushes(&place, "log.csv", 3);
    place.file("precious", 1 << 20);
    place.cannot("replay log.csv precious --no-store").with_code(3).says("precious", "--overwrite");
    let line = "replay log.csv precious --no-store --overwrite precious --direct=0 --trials 1";
    let document = place.document(line);
    assert_eq!(requests(&document, "write"), 3);
}

#[test]
fn what_if_predicts_another_habit_of_the_program() {
    let place = Place::new();
    log_with_flushes(&place, "log.csv", 200);
    let ratio = |line: &str| real(&place.document(&format!("whatif {line}"))["ratio"]);
    // With the write cache off, each flushed write takes a revolution of the disk, so rarer flushes
    // are faster.
    let rarer = ratio("sata-hdd-7200 --trace log.csv --given write_cache=off --flush-every 20");
    assert!(rarer > 1.0, "{rarer}");
    reads(&place, "reads.csv", 200);
    let deeper = ratio("nvme-gen4 --trace reads.csv --fast --iodepth-to 16");
    assert!(deeper > 4.0, "{deeper}");
    // `--buffered --cache 2g` must have the same effect as these settings.
    let set = ratio("nvme-gen4 --trace reads.csv --set caching=buffered,host.cache.size=2");
    assert_eq!(ratio("nvme-gen4 --trace reads.csv --buffered --cache 2g"), set);
    place.halfpower("whatif nvme-gen4 --trace reads.csv --buffered --direct").with_code(2);
    let text = place.does("whatif nvme-gen4 --trace reads.csv --iodepth-to 16").stdout;
    assert!(text.contains("depth 16"), "{text}");
    assert!(text.contains("the change multiplies throughput by"), "{text}");
    let alone = place.halfpower("whatif nvme-gen4 --merge-to 64k").with_code(2);
    assert!(alone.stderr.contains("--trace <FILE>"), "{alone}");
    place.halfpower("whatif nvme-gen4 --trace reads.csv --rw read --set disks=2").with_code(2);
}

#[test]
fn a_trace_is_replayed_on_a_reference_device() {
    let place = Place::new();
    reads(&place, "t.csv", 12);
    let line = "replay t.csv truth:fixed=2ms --no-store --trials 1 --fast";
    let document = place.document(line);
    assert_eq!(requests(&document, "read"), 12);
    assert_eq!(text(&document["workload"]["ioengine"]), "delay");
    // The requests are issued one at a time, and each takes 2 ms on the device.
    assert!(elapsed_of(&document) >= 12 * 2_000_000, "{document:#}");
    place.cannot("replay t.csv . --mpi").with_code(2);
}

pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

#[test]
#[ignore = "takes some minutes and needs fio"]
fn twelve_known_loads_are_replayed_as_the_program_ran() {
    or_skip!(watching());
    let place = Place::new();
    let mut met = 0;
    for Load { name, flags } in LOADS {
        let line = format!(
            "fio --name=a --bs=8k --size=64m --number_ios=20000 --io_size=640m {flags} \
             --group_reporting --fallocate=none"
        );
        let words = format!("{line} --create_only=1");
        let made = Command::new("sh").args(["-c", &words]).current_dir(place.path("")).output();
        assert!(made.unwrap().status.success(), "{name}");
        let mut ratios = [Vec::new(), Vec::new(), Vec::new()];
        for round in 0..3 {
            let trace = format!("t{round}.parquet");
            let watched =
                place.does(&format!("watch --json --quiet --output {trace} -- {line}")).json();
            let replay = format!("replay {trace} . --no-store --quiet --trials 1 --file");
            let replayed = place.document(&format!("{replay} {}", place.path("").display()));
            let settings = &replayed["workload"]["settings"]["replay"];
            assert_eq!(whole(&replayed["trials"][0]["errors"]), 0, "{name}");
            let of = list(&watched["operations"]).iter();
            let main = if flags.contains("write") { "write" } else { "read" };
            let seen = of.clone().find(|of| text(&of["operation"]) == main).unwrap();
            let latency = match &replayed["summary"]["by_operation"] {
                Value::Null => &replayed["summary"]["latency_ns"],
                both => &both[main]["latency_ns"],
            };
            let pair = |ours: &Value, theirs: &Value| real(ours) / real(theirs);
            ratios[0].push(pair(&replayed["trials"][0]["elapsed_ns"], &settings["recorded_ns"]));
            ratios[1].push(pair(&latency["p50"], &seen["latency"]["p50_ns"]));
            ratios[2].push(pair(&latency["p99"], &seen["latency"]["p99_ns"]));
            fs::remove_file(place.path(&trace)).unwrap();
        }
        let [time, p50, p99] = ratios.map(median);
        let is_met =
            (time - 1.0).abs() <= 0.1 && [p50, p99].iter().all(|r| (r - 1.0).abs() <= 0.15);
        met += u32::from(is_met);
        println!("{name}: time {time:.3}, p50 {p50:.3}, p99 {p99:.3} of the program's");
    }
    println!("{met} of {} within 10% of the time and 15% of the latencies", LOADS.len());
}

/// Returns the changes to predict for a load, as flags of `whatif`. `flags` are the load's flags of
/// fio.
fn changes(flags: &str) -> Vec<&'static str> {
    let mut changes = vec!["--iodepth-to 8"];
    match flags {
        _ if flags.contains("--bs=64k") => changes.push("--merge-to 256k"),
        _ if flags.contains("--rw=read") || flags.contains("--rw=write") => {
            changes.push("--merge-to 64k");
        }
        _ => {}
    }
    if flags.contains("write") {
        changes.push("--flush-every 16");
    }
    changes
}

#[test]
#[ignore = "takes some minutes and needs fio and FUSE"]
fn effects_of_changes_are_predicted_on_a_device_whose_parameters_only_its_measurements_tell() {
    or_skip!(watching());
    let served = or_skip!(Served::of("truth:fixed=2ms,rate=100MB/s,parallel=4 mounted --size 64m"));
    let place = &served.place;
    let device = "mounted/device --overwrite mounted/device";
    let axes = "--rw randread,randwrite,read,write --bs 4k,8k,64k,256k --iodepth 1,2,4,8,16";
    let limits = "--direct --runtime 0.5 --time-based --trials 1 --quiet";
    let sweep = place.halfpower(&format!("sweep {device} {axes} {limits}"));
    assert!(matches!(sweep.status.code(), Some(0 | 5)), "{sweep}");
    place.does("calibrate latest --out dev.toml");
    let only = format!("--file {}", place.path("mounted").display());
    let (mut met, mut all) = (0, 0);
    for Load { name, flags } in LOADS {
        // All loads use this one file, so the options for several files are removed.
        let flags = flags.replace("--nrfiles=4 --filesize=2m", "").replace("--number_ios=300", "");
        let load = format!(
            "fio --name=a --bs=8k --size=16m --filename=mounted/device --number_ios=400 {flags} \
             --fallocate=none --group_reporting"
        );
        let _ = fs::remove_file(place.path("t.parquet"));
        place.does(&format!("watch --quiet --output t.parquet -- {load}"));
        let rate = |change: &str| {
            let line = format!(
                "replay t.parquet {device} {only} --no-store --trials 1 --quiet --json {change}"
            );
            let replayed = place.halfpower(&line).json();
            real(&replayed["summary"]["throughput_bytes_per_s"]["median"])
        };
        for change in changes(&flags) {
            // FUSE does not use the page cache for this file, so the prediction assumes direct I/O.
            let line = format!("whatif ./dev.toml --trace t.parquet {only} --given caching=direct");
            let predicted = real(&place.document(&format!("{line} {change}"))["ratio"]);
            let measured =
                median((0..3).map(|_| (rate(""), rate(change))).map(|(a, b)| b / a).collect());
            let error = predicted / measured - 1.0;
            (met, all) = (met + u32::from(error.abs() <= 0.15), all + 1);
            println!(
                "| {name} | `{change}` | {predicted:.2} | {measured:.2} | {:+.1}% |",
                error * 100.0
            );
        }
    }
    println!("{met} of {all} effects within 15%");
    // The device responds in real time, so some effects may be missed on a busy machine.
    assert!(met * 4 >= all * 3);
}
