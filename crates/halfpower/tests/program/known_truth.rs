//! Tests reference devices. Their behaviour follows a formula. A reference device runs within the
//! process, is served over FUSE as a file, or is a loop device on this file.
//!
//! Exact results are tested by `halfpower selftest` and by unit tests in virtual time. These tests
//! compare results with wide margins, because other tests run at the same time.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::fixture::{Place, Running, measure_until, or_skip, wait_until};
use crate::volume::LoopDevice;

/// A device that is served over FUSE. The server ends with the test.
pub struct Served {
    pub place: Place,
    pub server: Option<Running>,
}

impl Served {
    fn new(truth: &str, flags: &str) -> Result<Served, String> {
        Served::of(&format!("truth:{truth} mounted --size 64m {flags}"))
    }

    /// Runs `halfpower mount WORDS`. The words describe the device, and include the directory
    /// `mounted`.
    pub fn of(words: &str) -> Result<Served, String> {
        let place = Place::new();
        fs::create_dir(place.path("mounted")).unwrap();
        let line = format!("mount {words} --until-eof");
        let mut command = place.command(&line);
        command.stdin(Stdio::piped());
        let mut server = place.start_command(command, &line);
        let device = place.path("mounted/device");
        wait_until("the device exists", || {
            device.exists() || server.child.try_wait().unwrap().is_some()
        });
        match device.exists() {
            true => Ok(Served { place, server: Some(server) }),
            false => Err(format!("cannot mount FUSE: {}", server.ended().stderr)),
        }
    }

    pub fn ends(&mut self) {
        let mut server = self.server.take().unwrap();
        drop(server.child.stdin.take());
        server.ended().with_code(0);
        assert_eq!(fs::read_dir(self.place.path("mounted")).unwrap().count(), 0);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if self.server.is_some() && !std::thread::panicking() {
            self.ends();
        } else if let Some(server) = self.server.take() {
            drop(server);
            let words = ["--lazy", "mounted"];
            let _ = Command::new("umount").args(words).current_dir(self.place.path(".")).status();
        }
    }
}

pub fn p50_ns(document: &Value) -> f64 {
    document["summary"]["latency_ns"]["p50"].as_f64().unwrap()
}

/// Returns the latency of the fastest request. Other programs on this machine delay requests, but
/// rarely all of them.
pub fn fastest_ns(document: &Value) -> f64 {
    document["summary"]["latency_ns"]["min"].as_f64().unwrap()
}

pub fn requests_per_s(document: &Value) -> f64 {
    document["summary"]["requests_per_s"]["median"].as_f64().unwrap()
}

#[test]
fn a_device_in_process_serves_as_many_requests_as_its_truth_allows() {
    let place = Place::new();
    let line = "run --ioengine delay --truth fixed=4ms,parallel=4 --iodepth 16 --runtime 1";
    let document = measure_until(
        || place.document(&format!("{line} --trials 1")),
        |document| requests_per_s(document) >= 700.0,
    );
    // Four requests at a time, 4 ms each, are 1000 requests per second.
    let rate = requests_per_s(&document);
    assert!((700.0..=1010.0).contains(&rate), "{rate}");
    assert!(p50_ns(&document) >= 15e6, "16 requests share 4 servers, so each takes 16 ms");
    assert!(place.strays().is_empty() && !place.has_made_a_test_file());
}

#[test]
fn a_device_that_runs_out_of_credit_is_said_to_be_throttled() {
    let truth = "rate=200MB/s,credit=80m,sustained=40MB/s";
    let line = format!("run --ioengine delay --truth {truth} --bs 64k --iodepth 8 --runtime 2");
    let place = Place::new();
    // The credit of 80 MiB lasts half a second at 160 MB/s (the rate of 200 MB/s minus the
    // sustained 40 MB/s).
    let ended = place.does(&format!("{line} --trials 1"));
    assert!(ended.stdout.contains("throttled, or out of burst credit"), "{ended}");
}

#[test]
fn a_served_file_keeps_what_is_written_and_is_gone_at_the_end() {
    let mut served = or_skip!(Served::new("fixed=100us,parallel=8", ""));
    let line = "run mounted/device --overwrite=mounted/device --rw write --bs 64k --size 4m";
    let ended = served.place.does(&format!("{line} --verify --trials 1 --no-store"));
    ended.says("verified 4 MiB", "correct");
    served.ends();
}

#[test]
fn requests_to_a_served_file_take_their_time_and_several_at_once() {
    let served = or_skip!(Served::new("fixed=4ms,parallel=8", ""));
    let line = "run mounted/device --runtime 0.7 --trials 1 --no-store";
    let alone = served.place.document(line);
    assert!(p50_ns(&alone) >= 4e6, "{}", p50_ns(&alone));
    // At most eight requests can complete every 4 ms. One request at a time gives at most 250 per
    // second.
    let at_depth_8 = || requests_per_s(&served.place.document(&format!("{line} --iodepth 8")));
    let rate = measure_until(at_depth_8, |rate| *rate > 500.0);
    assert!(rate > 500.0 && rate <= 1.05 * 8.0 / 4e-3, "{rate}");
}

#[test]
fn a_loop_device_on_a_served_file_is_a_block_device_of_known_truth() {
    let served = or_skip!(Served::new("fixed=4ms,parallel=8", ""));
    let device = or_skip!(LoopDevice::of(&served.place.path("mounted/device")));
    let line = format!("run {} --runtime 0.7 --trials 1 --no-store", device.path());
    let document = served.place.document(&line);
    assert!(p50_ns(&document) >= 4e6, "{}", p50_ns(&document));
    assert_eq!(document["target"]["kind"], "block device");
}

#[test]
fn a_fault_of_a_served_device_reaches_the_run_with_its_place() {
    let served = or_skip!(Served::new("fixed=50us", "--inject read-eio@20"));
    let line = "run mounted/device --bs 4k --size 1m --trials 1 --no-store --ioengine sync";
    let ended = served.place.halfpower(line).with_code(1);
    ended.says("reading at offset 81920", "input/output error");
}

#[test]
fn an_open_loop_charges_a_stall_to_every_request_that_was_due_in_it() {
    // One request hangs for 300 ms. In the open loop of 1000 requests per second, 300 more requests
    // become due in this time and wait.
    let device = "run --ioengine delay --truth fixed=100us --runtime 1 --trials 1";
    let stall = "--inject hang:300ms@200";
    let place = Place::new();
    let closed = place.document(&format!("{device} {stall}"));
    let open = place.document(&format!("{device} {stall} --rate-iops 1000"));
    let latency =
        |document: &Value, name: &str| document["trials"][0]["latency_ns"][name].as_f64().unwrap();
    assert!(latency(&closed, "max") >= 300e6 && latency(&open, "max") >= 300e6);
    assert!(latency(&closed, "p99") < 100e6, "{closed}");
    assert!(latency(&open, "p90") > 100e6, "{open}");
    assert_eq!(open["verdict"]["state"], "suspect", "the injected faults make the result suspect");
}

#[test]
fn the_self_test_measures_beside_the_truth() {
    let place = Place::new();
    let ended = place.halfpower("selftest --device delay --only cache --json --quiet");
    let quantity = &ended.json()["quantities"][0];
    let of = |name: &str| quantity[name].as_f64().unwrap();
    assert_eq!(quantity["unit"], "MiB");
    assert!((of("measured") / of("truth") - 1.0).abs() < 0.25, "{quantity}");
    assert!((of("measured") / of("truth") - 1.0 - of("error")).abs() < 1e-9, "{quantity}");
    place.cannot("selftest --only nonsense").with_code(2).says("no such quantity", "latency");
}

#[test]
fn a_wrong_truth_is_answered_with_the_right_words() {
    let place = Place::new();
    let wrong = place.halfpower("run --ioengine delay --truth speed=3").with_code(2);
    wrong.says("unknown property 'speed'", "fixed=TIME");
    let wrong = place.halfpower("run . --inject eio").with_code(2);
    wrong.says("'eio' is not a fault", "KIND");
    place
        .cannot("run . --truth fixed=1ms")
        .with_code(2)
        .says("--ioengine delay", "add --ioengine delay");
    place
        .cannot("mount nt4-narrow .")
        .with_code(2)
        .says("unknown target 'nt4-narrow'", "sim:SYSTEM");
    place.file("precious", 10);
    place.cannot("mount truth: .").with_code(1).says("mounting on .", "empty folder");
}
