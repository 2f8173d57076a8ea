//! Tests `study phases`. On a simulated system, its result must equal the resource use that
//! `simulate` reports. On this host, the trace must contain the requests, and a slower device must
//! lengthen only the phase of the device.

use std::process::Command;

use serde_json::Value;

use crate::fixture::{Place, about, list, or_skip, real, root, skip, text, whole};
use crate::known_truth::Served;
use crate::volume::LoopDevice;

const ULTRA: &str = "sim:nt4-ultrawide";
/// Additional time that the slow device takes for each request (ns).
const DELAY_NS: f64 = 100e6;

/// Runs the study and returns its entry in the document.
fn phases(place: &Place, target: &str, flags: &str) -> Value {
    let document = place.document(&format!("study phases {target} --quick --no-store {flags}"));
    list(&document["studies"])[0].clone()
}

/// Returns the readings of this quantity that have these labels.
fn readings<'a>(study: &'a Value, quantity: &str, labels: &[(&str, &str)]) -> Vec<&'a Value> {
    let fits = |reading: &&Value| {
        let has = |(name, word): &(&str, &str)| reading["labels"][name] == *word;
        reading["quantity"] == quantity && labels.iter().all(has)
    };
    list(&study["readings"]).iter().filter(fits).collect()
}

#[track_caller]
fn value(study: &Value, quantity: &str, labels: &[(&str, &str)]) -> f64 {
    match readings(study, quantity, labels).as_slice() {
        [one] => real(&one["value"]),
        found => panic!("{} readings of {quantity} with {labels:?}", found.len()),
    }
}

/// Checks that this host supports tracing. Otherwise returns the reason to skip the test.
fn tracing() -> Result<(), String> {
    root()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mounted = mounts.lines().any(|line| line.split(' ').nth(2) == Some("tracefs"));
    if mounted { Ok(()) } else { Err("needs tracefs to be mounted".to_owned()) }
}

/// Asserts that the trace has at least 99% of the requests of each point, that no event was lost,
/// and that less than 5% of the time belongs to no phase.
#[track_caller]
fn is_whole(study: &Value) {
    let points = readings(study, "requests", &[]);
    assert!(!points.is_empty(), "nothing was traced: {}", study["left_out"]);
    for requests in points {
        let labels = requests["labels"].as_object().unwrap();
        let labels: Vec<(&str, &str)> =
            labels.iter().map(|(name, word)| (name.as_str(), text(word))).collect();
        let of = |quantity: &str| value(study, quantity, &labels);
        assert!(of("matched") >= 0.99 * real(&requests["value"]), "{labels:?}");
        assert!(of("unattributed") < 0.05 * of("time"), "{labels:?}");
        assert_eq!(of("lost-events"), 0.0, "{labels:?}");
        let shares = readings(study, "phase-share", &labels);
        let shares: f64 = shares.iter().map(|share| real(&share["value"])).sum();
        let all = shares + of("unattributed") / of("time");
        assert!((all - 1.0).abs() < 1e-6, "{all} {labels:?}");
    }
    let findings: Vec<&str> =
        list(&study["findings"]).iter().map(|finding| text(&finding["id"])).collect();
    for id in ["way", "trace", "cost"] {
        assert!(findings.contains(&id), "{id} is not in {findings:?}");
    }
    assert!(!findings.contains(&"not-trusted"), "{}", study["findings"]);
}

#[test]
fn the_papers_claims_about_the_bus_hold_on_the_papers_machine() {
    let study = phases(&Place::new(), ULTRA, "");
    for claim in list(&study["claims"]) {
        assert_eq!(claim["verdict"], "holds", "{claim}");
    }
    assert_eq!(list(&study["claims"]).len(), 6);
    assert!(study["skipped"].is_null() && list(&study["left_out"]).is_empty());
}

#[test]
fn the_bus_is_as_busy_as_the_model_says_and_with_what_it_says() {
    let place = Place::new();
    let study = phases(&place, ULTRA, "--runtime 3s --trials 1");
    for (changes, bs, depth, disks) in
        [("", 8, 1, "1"), (",disks=3,volume=stripe,misalign=12k", 64, 8, "3")]
    {
        let line = format!(
            "simulate {ULTRA}{changes} --rw read --bs {bs}k --iodepth {depth} --runtime 3s \
             --size 100m --trials 1"
        );
        let simulated = place.document(&line);
        let is_bus = |part: &&Value| part["name"] == "Ultra-Wide SCSI";
        let bus = list(&simulated["resources"]).iter().find(is_bus).unwrap();
        let (size, depth) = (format!("{bs} KiB"), depth.to_string());
        let point: [(&str, &str); 4] =
            [("part", "read"), ("bs", &size), ("iodepth", &depth), ("disks", disks)];
        let busy = value(&study, "bus-utilisation", &point);
        assert!(about(busy, real(&bus["utilisation"])), "{busy} {bus}");
        let all_ns: u64 = bus["phases_ns"].as_object().unwrap().values().map(whole).sum();
        for (phase, ns) in bus["phases_ns"].as_object().unwrap() {
            let labels = [point.as_slice(), &[("phase", phase)]].concat();
            let share = value(&study, "phase-share", &labels);
            assert!(about(share, whole(ns) as f64 / all_ns as f64), "{phase}: {share} {bus}");
        }
    }
}

#[test]
fn what_lives_in_the_process_is_skipped_with_the_reason_and_the_remedy() {
    let study = phases(&Place::new(), "truth:fixed=100us", "");
    assert!(text(&study["skipped"]["reason"]).contains("only requests to files and devices"));
    assert!(text(&study["skipped"]["remedy"]).contains("use only files and devices"));
}

#[test]
fn without_the_right_to_trace_the_study_is_skipped_with_the_remedy() {
    let place = or_skip!(Place::of_nobody());
    let study = phases(&place, ".", "--size 8m --runtime 10ms --trials 1");
    let remedy = text(&study["skipped"]["remedy"]);
    assert!(remedy.contains("as root"), "{remedy}");
    for claim in list(&study["claims"]) {
        assert_eq!(claim["verdict"], "cannot-be-tried", "{claim}");
    }
    place.is_tidy();
}

#[test]
fn every_request_to_a_file_is_found_in_the_trace() {
    or_skip!(tracing());
    let place = Place::new();
    let study = phases(&place, ".", "--size 64m --runtime 60ms --trials 1");
    if let Some(reason) = study["skipped"]["reason"].as_str() {
        let remedy = text(&study["skipped"]["remedy"]);
        return skip(std::any::type_name_of_val(&|| ()), &format!("{reason}; {remedy}"));
    }
    is_whole(&study);
    let (traced, all) = (readings(&study, "requests", &[]).len(), list(&study["points"]).len());
    assert_eq!((traced, all), (8, 16), "2 directions x 2 sizes x 2 depths are traced");
    let page = std::fs::read_to_string(place.path("halfpower-study.html")).unwrap();
    assert!(page.contains("phases-bars") && page.contains("phases-all"));
    place.is_tidy();
}

#[test]
fn requests_to_several_devices_are_found_each_on_its_own() {
    or_skip!(tracing());
    let devices = [or_skip!(LoopDevice::new(8 << 20)), or_skip!(LoopDevice::new(8 << 20))];
    let targets = devices.each_ref().map(|device| device.path()).join(" ");
    let study = phases(&Place::new(), &targets, "--runtime 40ms --trials 1");
    is_whole(&study);
    assert_eq!(readings(&study, "requests", &[("disks", "2")]).len(), 4);
    let second = list(&study["claims"]).iter().find(|claim| claim["id"] == "R151").unwrap();
    assert_ne!(second["verdict"], "cannot-be-tried", "{second}");
}

// ---- a delay in one layer

/// A block device without caches that takes a fixed time for each request.
struct Slow {
    device: LoopDevice,
    // Declared last, so that it is dropped after the device that uses it.
    _served: Served,
}

impl Slow {
    fn new(fixed: &str) -> Result<Slow, String> {
        let served = Served::of(&format!("truth:fixed={fixed} mounted --size 64m"))?;
        let device = LoopDevice::of(&served.place.path("mounted/device"))?;
        let direct = Command::new("losetup").args(["--direct-io=on", device.path()]).status();
        match direct.is_ok_and(|status| status.success()) {
            true => Ok(Slow { device, _served: served }),
            false => Err("needs loop devices with direct I/O".to_owned()),
        }
    }

    /// Runs the study with small reads, one at a time.
    fn study(&self) -> Value {
        let place = Place::new();
        let plan = "study = 'phases'\ndirect = true\nbs = '4k'\niodepth = 1\nruntime = 1.5\n\
                    trials = 1\n[[part]]\nname = 'read'\nrw = 'randread'";
        std::fs::write(place.path("small.toml"), plan).unwrap();
        let line = format!("sweep small.toml {} --no-store", self.device.path());
        let study = list(&place.document(&line)["studies"])[0].clone();
        is_whole(&study);
        study
    }
}

/// Returns the median duration of a phase (ns), or 0 if no request passed through it.
fn median_ns(study: &Value, phase: &str) -> f64 {
    let found = readings(study, "phase-median", &[("part", "read"), ("phase", phase)]);
    found.first().map_or(0.0, |reading| real(&reading["value"]))
}

/// Checks that the delay appears in the phase of the device and in no other phase.
fn only_the_device_grew(quick: &Value, slow: &Value) -> Result<(), String> {
    let names = readings(slow, "phase-median", &[("part", "read")]).into_iter();
    let mut names: Vec<&str> = names.map(|reading| text(&reading["labels"]["phase"])).collect();
    names.sort_unstable();
    assert!(names.contains(&"device") && names.len() >= 5, "{names:?}");
    for phase in names {
        let grown = median_ns(slow, phase) - median_ns(quick, phase);
        let expected = if phase == "device" { DELAY_NS } else { 0.0 };
        if (grown - expected).abs() > 0.05 * DELAY_NS {
            return Err(format!("{phase} grew by {grown} ns instead of {expected}"));
        }
    }
    Ok(())
}

#[test]
fn a_delay_of_the_device_appears_in_its_phase_and_in_no_other() {
    or_skip!(tracing());
    let (quick, slow) = (or_skip!(Slow::new("1ms")), or_skip!(Slow::new("101ms")));
    // Other tests may disturb an attempt, so several attempts are made.
    let tries: Vec<String> =
        (0..5).map_while(|_| only_the_device_grew(&quick.study(), &slow.study()).err()).collect();
    assert!(tries.len() < 5, "{tries:#?}");
}
