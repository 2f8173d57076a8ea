//! Tests `halfpower run`: it measures what was requested, its results are consistent, and it leaves
//! nothing behind.

use serde_json::{Value, json};

use crate::fixture::{KIB, MIB, Place, about, damage, list, noise, or_skip, real, whole};

/// Flags for one trial of 0.1 s. Only tests of statistics need more.
const BRIEFLY: &str = "--runtime 0.1 --trials 1 --no-store";

fn trials(document: &Value) -> &[Value] {
    list(&document["trials"])
}

fn trial(document: &Value) -> &Value {
    assert_eq!(trials(document).len(), 1);
    &document["trials"][0]
}

// ---- output and leftovers

#[test]
fn a_run_prints_one_line_of_data_and_says_everything_else_on_stderr() {
    let place = Place::new();
    let ended = place.does(
        "run . --rw randread --iodepth 8 --size 4m --runtime 0.2 --time-based --trials 2 \
         --ioengine io_uring",
    );
    assert_eq!(ended.stdout.lines().count(), 1, "{ended}");
    for words in ["randread 4 KiB", "depth 8", "io_uring", "MiB/s", "MB/s", "requests/s"] {
        assert!(ended.stdout.contains(words), "{words}: {ended}");
    }
    for words in ["p50", "p99", "CPU", "/request"] {
        assert!(ended.stdout.contains(words), "{words}: {ended}");
    }
    let verdict = ["valid", "suspect"].iter().any(|word| ended.stdout.contains(word));
    assert!(verdict, "{ended}");
    assert!(ended.stderr.contains("2 trials of 200 ms"), "{ended}");
    assert!(!ended.stdout.contains('\x1b') && !ended.stderr.contains('\x1b'), "{ended}");
}

#[test]
fn a_quiet_run_says_nothing_but_its_line() {
    let ended = Place::new().does(&format!("run . --size 1m {BRIEFLY} --quiet"));
    assert_eq!(ended.stderr, "");
    assert_eq!(ended.stdout.lines().count(), 1);
}

#[test]
fn a_run_in_a_directory_leaves_its_database_and_nothing_else() {
    let place = Place::new();
    place.does("run . --rw randrw --size 4m --trials 1");
    assert_eq!(place.listing(), ["halfpower.db"]);
    place.is_tidy();
}

#[test]
fn a_run_without_a_store_leaves_nothing() {
    let place = Place::new();
    place.does(&format!("run . --size 1m {BRIEFLY}"));
    assert_eq!(place.listing(), [""; 0]);
    place.is_tidy();
}

#[test]
fn the_null_engine_creates_no_file() {
    let place = Place::new();
    let document = place.document(&format!("run --ioengine null --rw write {BRIEFLY}"));
    assert!(whole(&trial(&document)["requests"]) > 0);
    assert_eq!(document["target"]["kind"], "null");
    assert_eq!(place.listing(), [""; 0]);
    place.is_tidy();
}

#[test]
fn the_null_engine_touches_no_target_even_if_one_is_named() {
    let place = Place::new();
    place.file("precious", MIB);
    let before = place.snapshot();
    place.does(&format!("run precious --ioengine null --rw randwrite --iodepth 4 {BRIEFLY}"));
    place.does(&format!("run . --ioengine null --rw randwrite --size 1g {BRIEFLY}"));
    assert!(place.snapshot() == before);
}

// ---- number of bytes moved

#[test]
fn a_run_bounded_by_size_moves_exactly_that_size_with_every_engine_kind() {
    let place = Place::new();
    place.file("data", 2 * MIB);
    for engine in ["sync --iodepth 1", "threads --iodepth 4", "libaio --iodepth 4", "io_uring"] {
        for rw in ["read", "randwrite", "randrw"] {
            let line = format!(
                "run data --overwrite=data --rw {rw} --bs 16k --size 2m --trials 1 --no-store \
                 --ioengine {engine}"
            );
            let document = place.document(&line);
            let trial = trial(&document);
            assert_eq!(whole(&trial["bytes"]), 2 * MIB, "{line}");
            assert_eq!(whole(&trial["requests"]), 128, "{line}");
            assert_eq!(whole(&trial["errors"]), 0, "{line}");
        }
    }
}

#[test]
fn a_size_that_is_no_multiple_of_the_request_size_is_rounded_down() {
    let document = Place::new().document("run . --bs 64k --size 1000k --trials 1 --no-store");
    assert_eq!(whole(&trial(&document)["bytes"]), 15 * 64 * KIB);
}

#[test]
fn threads_move_the_size_between_them_and_no_more() {
    let place = Place::new();
    place.file("data", 4 * MIB);
    for threads in ["2", "3", "4"] {
        for placement in ["own", "shared"] {
            let line = format!(
                "run data --bs 64k --size 4m --trials 1 --no-store --numjobs {threads} \
                 --placement {placement}"
            );
            // With so few requests the result may be invalid, so only the number of bytes is
            // checked.
            let document = place.halfpower(&format!("{line} --json")).json();
            let bytes = whole(&trial(&document)["bytes"]);
            assert!(bytes <= 4 * MIB, "{bytes} of 4194304 bytes moved: {line}");
            assert!(bytes >= 4 * MIB - 3 * 64 * KIB, "{bytes} of 4194304 bytes moved: {line}");
        }
    }
}

#[test]
fn a_time_based_run_starts_over_at_the_end_of_its_region() {
    let document = Place::new().document(
        "run . --rw read --bs 64k --size 256k --time_based --runtime 0.2 --trials 1 --no-store",
    );
    assert!(whole(&trial(&document)["bytes"]) > 256 * KIB);
}

#[test]
fn several_targets_are_measured_at_once() {
    let place = Place::new();
    place.file("one", MIB);
    place.file("two", MIB);
    let document = place.document("run one two --bs 64k --size 1m --trials 1 --no-store");
    assert_eq!(whole(&trial(&document)["bytes"]), 2 * MIB);
    assert_eq!(list(&document["targets"]).len(), 2);
}

#[test]
fn a_write_changes_its_region_and_nothing_around_it() {
    let place = Place::new();
    let path = place.file("data", 3 * MIB);
    let before = noise(3 * MIB);
    place.does(
        "run data --overwrite=data --rw randwrite --bs 4k --iodepth 8 --offset 1m --size 1m \
         --trials 1 --no-store",
    );
    let after = std::fs::read(path).unwrap();
    let mib = MIB as usize;
    assert_eq!(after.len(), before.len());
    assert!(after[..mib] == before[..mib], "data before the region changed");
    assert!(after[2 * mib..] == before[2 * mib..], "data after the region changed");
    let blocks = after[mib..2 * mib].chunks(4096).zip(before[mib..2 * mib].chunks(4096));
    assert_eq!(blocks.filter(|(now, then)| now == then).count(), 0, "blocks were not written");
}

#[test]
fn a_read_changes_nothing() {
    let place = Place::new();
    place.file("data", MIB);
    let before = place.snapshot();
    place.does(&format!("run data --rw randread --iodepth 4 {BRIEFLY}"));
    assert!(place.snapshot() == before);
}

#[test]
fn warm_up_is_not_counted_and_an_open_loop_keeps_its_rate() {
    let document = Place::new().document(
        "run --ioengine null --rate_iops 1000 --ramp_time 0.4 --runtime 0.2 --trials 1 --no-store",
    );
    let requests = whole(&trial(&document)["requests"]);
    assert!(requests > 0 && requests < 400, "{requests} requests; 600 with the warm-up");
    assert_eq!(real(&document["workload"]["rate_requests_per_s"]), 1000.0);
}

#[test]
fn random_arrivals_keep_their_rate_and_are_kept_with_the_results() {
    let document = Place::new().document(
        "run --ioengine null --rate_iops 2000 --rate_process poisson --runtime 1 --trials 1 \
         --no-store",
    );
    let requests = whole(&trial(&document)["requests"]);
    assert!((1700..2300).contains(&requests), "{requests} requests of about 2000");
    assert_eq!(document["workload"]["settings"]["rate_process"], "poisson");
}

#[test]
fn the_percentiles_asked_for_are_printed_and_need_requests_beyond_them() {
    let place = Place::new();
    let line = "run --ioengine null --size 4m --percentile_list=50:99.9 --trials 1 --no-store";
    let ended = place.does(line);
    assert!(ended.stdout.contains("p50 ") && ended.stdout.contains("p99.9 "), "{ended}");
    assert!(!ended.stdout.contains("p99 "), "{ended}");
    let latency = place.document(line)["summary"]["latency_ns"].clone();
    assert_eq!(latency["percentiles_ns"]["99.9"], latency["p99_9"], "{latency}");
    assert_eq!(latency["percentiles_ns"]["50"], latency["p50"], "{latency}");
    place.file("data", MIB);
    let few = place.document("run data --bs 64k --size 1m --percentile 99.9 --no-store");
    assert_eq!(few["verdict"]["state"], "suspect", "{}", few["verdict"]);
    assert!(few["verdict"]["reasons"].to_string().contains("99.9 needs"), "{}", few["verdict"]);
}

// ---- consistency of the results

#[test]
fn rates_are_bytes_and_requests_over_the_time_they_took() {
    let place = Place::new();
    let document = place.document("run . --rw randwrite --direct=0 --size 4m --no-store");
    let rate = |what: &str, trial: &Value| {
        whole(&trial[what]) as f64 * 1e9 / whole(&trial["elapsed_ns"]) as f64
    };
    for (summary, what) in [("throughput_bytes_per_s", "bytes"), ("requests_per_s", "requests")] {
        is_median_of(
            &document["summary"][summary],
            trials(&document).iter().map(|t| rate(what, t)),
        );
    }
}

#[test]
fn rates_of_a_closed_loop_are_those_of_the_time_in_which_its_queue_was_full() {
    let document = Place::new().document("run . --rw randread --iodepth 4 --size 4m --no-store");
    for what in ["throughput_bytes_per_s", "requests_per_s"] {
        let full = |trial: &Value| real(&trial["full_queue"][what]);
        is_median_of(&document["summary"][what], trials(&document).iter().map(full));
    }
    for trial in trials(&document) {
        let full = &trial["full_queue"];
        let (start_ns, end_ns) = (whole(&full["start_ns"]), whole(&full["end_ns"]));
        assert!(0 < start_ns && start_ns < end_ns && end_ns <= whole(&trial["elapsed_ns"]));
        let requests = real(&full["requests_per_s"]) * (end_ns - start_ns) as f64 / 1e9;
        let all = whole(&trial["requests"]) as f64;
        assert!(0.6 * all < requests && requests < all - 0.5, "{requests} of {all}");
    }
}

fn is_median_of(summary: &Value, rates: impl Iterator<Item = f64>) {
    let mut rates: Vec<f64> = rates.collect();
    rates.sort_by(f64::total_cmp);
    assert_eq!(rates.len(), 3);
    assert!(about(real(&summary["median"]), rates[1]), "{summary} {rates:?}");
    assert!(real(&summary["low"]) <= rates[1] && rates[1] <= real(&summary["high"]));
}

#[test]
fn latencies_are_in_order_and_the_mean_lies_among_them() {
    let document = Place::new().document("run . --rw randrw --iodepth 8 --size 4m --no-store");
    let all = [&document["summary"]["latency_ns"]].into_iter();
    for latency in all.chain(trials(&document).iter().map(|trial| &trial["latency_ns"])) {
        let order = ["min", "p50", "p90", "p99", "p99_9", "max"].map(|name| whole(&latency[name]));
        assert!(order.is_sorted() && order[0] > 0, "{latency}");
        assert!((order[0]..=order[5]).contains(&whole(&latency["mean"])), "{latency}");
    }
}

#[test]
fn the_series_and_the_trial_count_the_same_bytes() {
    let document =
        Place::new().document("run . --rw read --size 4m --bs 64k --time-based --runtime 0.3");
    for trial in trials(&document) {
        for what in ["bytes", "requests"] {
            let sum: u64 = list(&trial["series"]).iter().map(|part| whole(&part[what])).sum();
            assert_eq!(sum, whole(&trial[what]), "{what}");
        }
    }
}

#[test]
fn a_mix_is_reported_by_operation_and_its_parts_make_the_whole() {
    let document =
        Place::new().document("run . --rw randrw --rwmixread 70 --size 8m --trials 2 --no-store");
    let parts = &document["summary"]["by_operation"];
    let sum = |what: &str| whole(&parts["read"][what]) + whole(&parts["write"][what]);
    let whole_run = |what: &str| trials(&document).iter().map(|t| whole(&t[what])).sum::<u64>();
    assert_eq!(sum("bytes"), whole_run("bytes"));
    assert_eq!(sum("requests"), whole_run("requests"));
    let share = whole(&parts["read"]["requests"]) as f64 / sum("requests") as f64;
    assert!((0.65..0.75).contains(&share), "{share} of 4096 requests were reads, not 0.7");
}

#[test]
fn what_is_no_mix_has_no_parts() {
    for rw in ["read", "randwrite"] {
        let document =
            Place::new().document(&format!("run . --rw {rw} --size 1m --trials 1 --no-store"));
        assert_eq!(document["summary"].get("by_operation"), None, "{rw}");
    }
}

#[test]
fn a_buffered_write_ends_with_its_flush_and_tells_when_the_last_write_was_accepted() {
    let place = Place::new();
    let line = "run . --rw write --bs 64k --size 4m --trials 2 --no-store";
    for trial in trials(&place.document(&format!("{line} --direct=0"))) {
        assert!(whole(&trial["accepted_ns"]) <= whole(&trial["elapsed_ns"]), "{trial}");
    }
    for trial in trials(&place.document(&format!("{line} --direct=0 --write_through"))) {
        assert_eq!(trial["accepted_ns"], Value::Null);
    }
}

#[test]
fn the_caching_mode_is_what_was_asked_for() {
    let place = Place::new();
    place.file("data", MIB);
    let modes = [
        ("--direct=0", "buffered"),
        ("--direct=1", "direct"),
        ("--direct=0 --sync=1", "write-through"),
        ("--direct --write-through", "direct+write-through"),
    ];
    for (flags, mode) in modes {
        let line = format!("run data --overwrite=data --rw write --size 1m --bs 64k {flags}");
        let document = place.document(&format!("{line} --trials 1 --no-store"));
        assert_eq!(document["workload"]["caching"], mode, "{flags}");
    }
}

#[test]
fn buffered_reads_begin_with_an_empty_page_cache_unless_told_otherwise() {
    let place = Place::new();
    place.file("data", 4 * MIB);
    let line = "run data --direct=0 --bs 64k --size 4m --trials 2 --no-store";
    for trial in trials(&place.document(line)) {
        assert_eq!(whole(&trial["resident_bytes"]["after"]), 0, "{trial}");
    }
    let warm = place.document(&format!("{line} --invalidate=0"));
    assert_eq!(trials(&warm)[0]["resident_bytes"], Value::Null);
}

#[test]
fn a_file_that_grows_is_as_large_as_asked_at_the_end() {
    let place = Place::new();
    let path = place.file("data", 3 * MIB);
    let line = "run data --overwrite=data --rw write --bs 64k --size 2m --trials 2 --no-store";
    place.does(&format!("{line} --allocation truncate"));
    assert_eq!(std::fs::metadata(path).unwrap().len(), 2 * MIB);
}

#[test]
fn the_soaker_runs_beside_every_other_trial() {
    let place = Place::new();
    let line = "run . --size 1m --time-based --runtime 0.3 --trials 2 --soaker --no-store --json";
    let ended = place.halfpower(line);
    let declined = ended.status.code() == Some(1) && ended.stderr.contains("no upper bound");
    or_skip!(if declined { Err(ended.stderr.trim().to_owned()) } else { Ok(()) });
    let document = ended.with_code(0).json();
    let soaked: Vec<&Value> = trials(&document).iter().map(|trial| &trial["soaked"]).collect();
    assert_eq!(json!(soaked), json!([false, true, false, true]));
    for trial in trials(&document).iter().filter(|trial| trial["soaked"] == false) {
        assert_eq!(trial["cpu_ns"]["soaker"], Value::Null);
    }
}

#[test]
fn without_a_soaker_there_is_no_upper_bound_of_the_cpu_cost() {
    let document = Place::new().document(&format!("run . --size 1m {BRIEFLY}"));
    let cost = &document["summary"]["cpu_ns_per_request"];
    assert!(real(&cost["lower"]) > 0.0, "{cost}");
    assert_eq!(cost["upper"], Value::Null);
}

// ---- verified data and verdicts

#[test]
fn verified_writes_are_read_back() {
    let place = Place::new();
    for flags in ["--rw write", "--rw randwrite --iodepth 8", "--rw write --direct=0"] {
        let line = format!("run . {flags} --bs 64k --size 2m --trials 1 --verify --no-store");
        let ended = place.does(&line);
        assert!(ended.stderr.contains("verified 2 MiB"), "{ended}");
    }
}

#[test]
fn verified_writes_that_leave_blocks_unwritten_are_judged_by_those_that_they_wrote() {
    let place = Place::new();
    for flags in [
        "--rw write --size 256m --runtime 0.05 --bs 4k",
        "--rw write --size 256m --runtime 0.05 --bs 4k --direct=0",
        "--rw randwrite --size 256m --runtime 0.05 --iodepth 8 --numjobs 2",
        "--rw randwrite --size 256m --runtime 0.05 --trials 3 --placement shared --numjobs 2",
        "--rw write --stride 64k --size 8m --runtime 0.1",
        "--rw randwrite --random-distribution zipf:1.2 --size 8m --runtime 0.1",
        "--rw write --size 1m --time-based --runtime 0.1",
        "--rw write --size 256m --allocation extend --runtime 0.05",
        "--rw write --offset 4k --size 5m --bs 64k --runtime 0.05 --ramp-time 0.02",
    ] {
        let line = format!("run . {flags} --verify --no-store");
        let ended = place.does(&line);
        assert!(ended.stderr.contains("every block is correct"), "{ended}");
    }
}

#[test]
fn a_write_lost_where_time_ends_the_run_is_found() {
    let place = Place::new();
    for flags in ["--rw write", "--rw randwrite --iodepth 4"] {
        // The file is so large that no block is written twice, because a second write would hide
        // the lost write.
        let line = format!("run . {flags} --size 256m --runtime 0.3 --verify --no-store");
        let ended = place.halfpower(&format!("{line} --trials 1 --inject write-lose@2"));
        ended.with_code(4).says("verification failed", "offset");
    }
}

#[test]
fn a_new_test_file_cannot_be_read_with_verify() {
    let place = Place::new();
    let ended = place.cannot("run . --verify --size 16m").with_code(2);
    ended.says("the test file in . is new", "--rw write");
    assert_eq!(place.listing(), [""; 0]);
}

#[test]
fn a_flipped_bit_is_found_with_its_offset() {
    let place = Place::new();
    let path = place.file("data", 2 * MIB);
    let same = "--bs 64k --size 2m --trials 1 --no-store --verify";
    place.does(&format!("run data --overwrite=data --rw write {same}"));
    place.does(&format!("run data --rw read {same}"));
    damage(&path, 1_234_567);
    // Offset of the 4096-byte block that contains the flipped bit.
    let block = "1232896";
    let ended = place.halfpower(&format!("run data --rw read {same}"));
    let ended = ended.with_code(4).says("verification failed", block);
    assert_eq!(ended.stdout, "", "{ended}");
    let ended = place.halfpower(&format!("run data --rw read {same} --direct=0"));
    ended.with_code(4).says("verification failed", block);
}

#[test]
fn reading_holes_is_invalid_unless_they_are_meant() {
    let place = Place::new();
    place.file_of_holes("data", 4 * MIB);
    let line = "run data --rw randread --runtime 0.1 --trials 1 --no-store --json";
    let document = place.halfpower(line).with_code(5).json();
    assert_eq!(document["verdict"]["state"], "invalid");
    let reasons = document["verdict"]["reasons"].to_string();
    assert!(reasons.contains("holes") && reasons.contains("--allow-holes"), "{reasons}");
    let document = place.does(&format!("{line} --allow-holes")).json();
    assert_ne!(document["verdict"]["state"], "invalid");
}

#[test]
fn a_test_file_is_written_so_that_its_reads_reach_the_device() {
    let document = Place::new().document("run . --rw randread --iodepth 8 --size 4m --no-store");
    assert_ne!(document["verdict"]["state"], "invalid", "{}", document["verdict"]);
    for trial in trials(&document) {
        let device = &trial["device"];
        if *device != Value::Null {
            assert!(whole(&device["read_bytes"]) >= 4 * MIB, "{device}");
        }
    }
}

#[test]
fn everything_works_without_rights() {
    let place = or_skip!(Place::of_nobody());
    let document = place.document("run . --rw randrw --iodepth 8 --size 2m --trials 1");
    assert_eq!(document["host"]["root"], false);
    assert_eq!(whole(&trial(&document)["bytes"]), 2 * MIB);
    assert_eq!(place.listing(), ["halfpower.db"]);
    place.is_tidy();
}

// ---- bugs that reviews found

#[test]
fn the_time_in_which_nothing_was_due_belongs_to_an_open_loop() {
    let place = Place::new();
    let line = "run --ioengine null --rate-iops 4 --runtime 1 --trials 1 --no-store";
    let document = place.document(line);
    let trial = &document["trials"][0];
    assert!(whole(&trial["elapsed_ns"]) >= 1_000_000_000, "{trial}");
    assert!((3..=5).contains(&whole(&trial["requests"])), "{trial}");
    let cpu = whole(&trial["cpu_ns"]["process"]);
    assert!(cpu < whole(&trial["elapsed_ns"]) / 2, "pacing spins: {trial}");
}

#[test]
fn an_open_loop_that_falls_behind_says_so() {
    let place = Place::new();
    place.file("data", MIB);
    let line = "run data --rate-iops 100000000 --runtime 0.2 --trials 1 --no-store";
    let document = place.document(line);
    assert_eq!(document["verdict"]["state"], "suspect", "{}", document["verdict"]);
    assert!(document["verdict"]["reasons"].to_string().contains("requests/s were delivered of"));
}

#[test]
fn verified_mixes_and_odd_blocks_are_refused_before_anything_is_made() {
    let place = Place::new();
    for (line, cause) in [
        ("run . --rw randrw --verify --size 1m", "not with a mix"),
        (
            "run . --rw write --verify --bs 1000 --size 100000 --direct=0",
            "cannot be divided into blocks that --verify can check",
        ),
        ("sweep . --rw write --bs 4k,8k --verify --size 1m", "the same request size"),
    ] {
        place.cannot(line).with_code(2).says(cause, "");
    }
}

#[test]
fn targets_on_one_device_share_its_counters() {
    let place = Place::new();
    place.file("one", 4 * MIB);
    place.file("two", 4 * MIB);
    let line = "run one two --bs 64k --size 4m --trials 1 --no-store";
    // Other programs may read from the device at the same time, so several attempts may be
    // necessary.
    let are_shared = (0..10).any(|_| {
        let document = place.document(line);
        let trial = &document["trials"][0];
        assert_eq!(whole(&trial["bytes"]), 8 * MIB);
        let read = trial["device"].as_object().map(|device| whole(&device["read_bytes"]));
        assert!(read.is_none_or(|read| read >= 8 * MIB), "{read:?}");
        read.is_none_or(|read| read < 16 * MIB)
    });
    assert!(are_shared);
}

#[test]
fn what_was_done_before_a_trial_tells_two_points_apart() {
    let place = Place::new();
    place.file("data", MIB);
    let line = "run data --direct=0 --bs 64k --size 1m --trials 1 --no-store";
    let settings = |flags: &str| place.document(&format!("{line}{flags}"))["workload"].clone();
    let (cold, warm) = (settings(""), settings(" --invalidate=0 --hint random"));
    assert_eq!(cold["settings"]["scrubbed"], true, "{cold}");
    assert_eq!(warm["settings"]["scrubbed"], false, "{warm}");
    assert_eq!(warm["settings"]["hint"], "random", "{warm}");
    assert_ne!(cold, warm);
}
