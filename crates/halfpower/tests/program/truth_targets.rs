//! Tests reference devices (`truth:KEY=VALUE,..`) as targets. Unit tests in virtual time check
//! exact results. These tests check that no request completes too early, and compare rates with
//! wide margins.

use std::fs;

use crate::fixture::{MIB, Place, list, measure_until, or_skip, real, whole};
use crate::known_truth::{Served, fastest_ns, p50_ns, requests_per_s};

const BRIEFLY: &str = "--runtime 0.5 --trials 1 --no-store";

fn measured(line: &str) -> serde_json::Value {
    let place = Place::new();
    let document = place.document(&format!("run {line} {BRIEFLY}"));
    assert!(place.strays().is_empty() && !place.has_made_a_test_file());
    document
}

#[test]
fn a_device_is_named_as_a_target_and_served_by_delay() {
    let document = measured("truth:fixed=4ms,parallel=4 --iodepth 8 --bs 64k --rw randread");
    assert_eq!(document["workload"]["ioengine"], "delay");
    assert_eq!(document["target"]["name"], "truth:fixed=4ms,parallel=4");
    assert_eq!(document["target"]["size_bytes"], 1 << 30);
    assert!(p50_ns(&document) >= 7.8e6, "eight requests share four servers");
    let small = measured("truth:fixed=1ms --size 4m --time-based");
    assert_eq!(small["target"]["size_bytes"], 4 << 20);
}

#[test]
fn several_devices_are_independent_of_each_other() {
    // At 4 ms per request, each device serves at most 250 requests per second.
    let rate = |targets: &str| requests_per_s(&measured(targets));
    let alone = rate("truth:fixed=4ms");
    assert!(alone <= 252.0, "{alone}");
    let three = || rate("truth:fixed=4ms truth:fixed=4ms truth:fixed=4ms");
    let three = measure_until(three, |rate| *rate > 504.0);
    assert!(three > 504.0 && three <= 756.0, "{three}");
}

#[test]
fn a_sweep_takes_devices_and_the_plan_touches_nothing() {
    let place = Place::new();
    let line = "sweep truth:fixed=1ms truth:fixed=2ms --rw randread,randwrite --bs 4k,64k";
    let plan = place.does(&format!("{line} --plan")).stdout;
    assert!(plan.contains("measure truth:fixed=2ms; nothing is touched"), "{plan}");
    assert!(!plan.contains("writes"), "{plan}");
    let document = place.document(&format!("{line} --runtime 0.05 --trials 1 --no-store"));
    assert_eq!(document["points"].as_array().unwrap().len(), 4);
}

#[test]
fn the_rate_of_a_zone_is_found_at_its_place() {
    let device = "truth:span=64m,zones=160MB/s@50/40MB/s@100 --bs 1m --size 32m --time-based";
    let outer = measured(device);
    assert_eq!(outer["target"]["size_bytes"], 64 << 20, "not the span of the device");
    let inner = measured(&format!("{device} --offset 32m"));
    // 1 MiB takes 6.6 ms at 160 MB/s, and 26 ms at 40 MB/s.
    let (outer, inner) = (fastest_ns(&outer), fastest_ns(&inner));
    assert!(outer >= 6.4e6 && inner >= 26e6 && inner / outer > 2.5, "{outer} {inner}");
}

#[test]
fn a_request_over_all_members_takes_as_long_as_over_one() {
    let device = "truth:fixed=4ms,members=4,chunk=64k";
    let [one, all, twice] =
        ["64k", "256k", "512k"].map(|bs| fastest_ns(&measured(&format!("{device} --bs {bs}"))));
    assert!(one >= 3.9e6 && all >= 3.9e6 && twice >= 7.8e6, "{one} {all} {twice}");
    assert!(all / one < 1.6 && twice / all > 1.4, "{one} {all} {twice}");
}

#[test]
fn writes_off_the_granule_pay_for_both_ends_and_reads_do_not() {
    let device = "truth:fixed=1ms,granule=64k,rmw=4ms --bs 64k";
    let [aligned, off, read] = ["--rw write", "--rw write --offset 4k", "--rw read --offset 4k"]
        .map(|how| fastest_ns(&measured(&format!("{device} {how}"))));
    assert!(off >= 8.8e6, "{off}");
    assert!(off / aligned > 3.0 && off / read > 3.0, "{aligned} {off} {read}");
}

#[test]
fn time_between_requests_turns_misses_into_hits() {
    let device = "fixed=5ms,rate=100MB/s,hit=100us --bs 64k --rate-iops 100";
    let without = fastest_ns(&measured(&format!("truth:{device}")));
    let with = fastest_ns(&measured(&format!("truth:prefetch=64m,{device}")));
    assert!(without >= 5.5e6 && with >= 9.8e4, "{with} {without}");
    assert!(without / with > 2.5, "{with} {without}");
}

#[test]
fn a_survey_does_not_measure_the_cache_of_a_device() {
    // The device serves four requests at a time, each in 4 ms plus the transfer time on a shared
    // bus of 80 MB/s. A cache hit would be as fast as memory.
    let words = "truth:fixed=4ms,rate=80MB/s,parallel=4,cache=96MB mounted --size 512m";
    let served = or_skip!(Served::of(words));
    let line = "survey mounted/device --budget 10s --no-store --json --quiet";
    let document = served.place.halfpower(line).json();
    // On a busy machine, the measured rate is uncertain. The test therefore compares the lower end
    // of the rate's confidence interval with the rate of the bus, plus 5%.
    let rate = real(&document["best"]["read"]["throughput_bytes_per_s"]["low"]);
    assert!(rate < 84e6, "{rate}: {}", document["best"]);
    let coverage = &document["coverage"];
    assert!(whole(&coverage["read_bytes"]) > 10 * MIB, "{coverage}");
    assert!(real(&coverage["second_visit_times"]) > 2.0, "{coverage}");
    let findings = document["findings"].to_string();
    assert!(findings.contains("the device has a cache"), "{findings}");
}

#[test]
fn reads_that_begin_again_at_the_start_of_their_region_are_not_the_devices() {
    let served = or_skip!(Served::of("truth:fixed=200us,rate=200MB/s mounted --size 16m"));
    let line = "run mounted/device --bs 256k --direct=0 --runtime 2 --trials 1 --json --quiet";
    for ramp in ["", "--ramp-time 0.5"] {
        let document = served.place.halfpower(&format!("{line} {ramp} --no-store")).json();
        let verdict = &document["verdict"];
        assert_eq!(verdict["state"], "invalid", "{verdict}");
        let reasons = verdict["reasons"].to_string();
        assert!(reasons.contains("repeated reads come from the page cache"), "{verdict}");
        assert!(!reasons.contains("--ramp-time"), "{verdict}");
    }
}

#[test]
fn points_of_a_sweep_do_not_serve_each_other_from_a_cache() {
    // Each request to the device takes 4 ms. Only hits in its cache of 8 MB are faster. Hits are
    // rare with random requests to 256 MiB, unless a point repeats the requests of another point.
    let words = "truth:fixed=4ms,rate=1GB/s,parallel=8,cache=8MB mounted --size 256m";
    let served = or_skip!(Served::of(words));
    let line = "sweep mounted/device --rw randread --bs 4k --iodepth 1,2,4,8 --runtime 0.5 \
                --trials 2 --direct=1 --no-store --json --quiet";
    let document = served.place.halfpower(line).json();
    for point in list(&document["points"]) {
        let depth = real(&point["workload"]["depth"]);
        let rate = real(&point["summary"]["requests_per_s"]["median"]);
        assert!(rate < 1.15 * depth / 4e-3, "{rate} at depth {depth}");
    }
}

#[test]
fn a_mounted_device_with_zones_is_as_large_as_its_span() {
    let words = "truth:span=8m,zones=200MB/s@50/100MB/s@100,members=2,chunk=64k mounted";
    let served = or_skip!(Served::of(words));
    let device = fs::metadata(served.place.path("mounted/device")).unwrap();
    assert_eq!(device.len(), 16 << 20, "the span of a member");
}

#[test]
fn what_does_not_go_with_a_device_is_refused_with_the_remedy() {
    let place = Place::new();
    let refused = |line: &str, what: &str, remedy: &str| {
        place.cannot(line).with_code(2).says(what, remedy);
    };
    refused("run truth:fixed=1ms .", "cannot be measured together", "one by one");
    refused("run truth:fixed=1ms sim:nt4-ultrawide", "cannot be measured together", "one by one");
    refused("run truth:fixed=1ms --truth fixed=2ms", "both describe", "drop --truth");
    refused("run truth:fixed=1ms --ioengine sync", "works only with", "mount truth:");
    refused("sweep truth:fixed=1ms --ioengine null,delay", "works only with", "mount truth:");
    refused("run truth:fixed=1ms --rw write --size 1m --verify", "no data", "mount");
    refused("run truth:members=2", "truth:members=2", "must be given together");
    refused("run truth:span=1m,zones=1m@100 --offset 1m", "not inside", "smaller --offset");
    refused("survey truth:fixed=1ms", "run, sweep and mount", "use the file");
}
