//! Tests `halfpower calibrate` with sweeps of simulated systems and of reference devices
//! (`truth:`), and `whatif` with the calibrated systems.

use std::process::Command;

use serde_json::Value;

use crate::fixture::{Place, list};

/// Sweeps a target and calibrates a system on half of the measured points.
fn calibrated(target: &str, flags: &str) -> (Place, Value) {
    let place = Place::new();
    let sweep = place
        .halfpower(&format!("sweep {target} --rw randread,randwrite {flags} --trials 2 --quiet"));
    assert!(matches!(sweep.status.code(), Some(0 | 5)), "{sweep}");
    let document = place.document("calibrate latest --out my.toml");
    (place, document)
}

/// Checks that the mean prediction error is below 10% for the points that the calibration did not
/// use.
fn predicts_the_other_half(document: &Value) {
    let held_out = &document["score"]["held_out"];
    assert!(held_out["points"].as_u64().unwrap() >= 4, "{document}");
    let mean = held_out["mean"].as_f64().unwrap();
    assert!(mean < 0.10, "{mean}: {}", document["points"]);
    let naive = document["score"]["naive_held_out"]["mean"].as_f64().unwrap();
    assert!(mean < naive, "mean error {mean}, and {naive} of the naive bound");
}

// Simulated devices run in virtual time, so the tests that use them do not depend on the load of
// the machine. Reference devices share no code with the simulator, but they respond in real time.

#[test]
fn a_parallel_device_is_calibrated_on_half_and_predicts_the_rest() {
    let axes = "--bs 4k,64k,512k --iodepth 1,4,16 --runtime 1";
    let (place, document) = calibrated("sim:nvme-gen4", axes);
    predicts_the_other_half(&document);
    let keys: Vec<&str> =
        list(&document["parameters"]).iter().map(|p| p["key"].as_str().unwrap()).collect();
    assert!(keys.iter().any(|key| key.ends_with("read_rate")), "{keys:?}");
    let text = std::fs::read_to_string(place.path("my.toml")).unwrap();
    assert!(text.contains("calibrated with run 1 of "), "{text}");
    let deeper = place.document("whatif my.toml --rw randread --bs 4k --iodepth-to 4");
    let ratio = deeper["ratio"].as_f64().unwrap();
    assert!((3.0..5.0).contains(&ratio), "{ratio}");
    place.halfpower("calibrate latest --out my.toml").with_code(3).says("exists", "--out");
}

#[test]
fn a_run_on_a_rotating_disk_says_what_else_is_needed() {
    let place = Place::new();
    place.halfpower("survey sim:sata-hdd-7200 --quick");
    let refused = place.halfpower("calibrate latest --out my.toml").with_code(2);
    let command = "halfpower calibrate --measure sim:sata-hdd-7200 --out disk.toml";
    refused.says("measured a rotating disk", command);
    assert!(!place.path("my.toml").exists());
}

#[test]
fn a_rotating_disk_is_measured_calibrated_and_its_loads_predicted() {
    let place = Place::new();
    let line = "calibrate --measure sim:sata-hdd-7200 --out my.toml";
    let plan = place.does(&format!("{line} --plan")).stdout;
    assert!(plan.contains("destroys the data") && plan.contains("my.toml; nothing"), "{plan}");
    let document = place.document(line);
    assert_eq!(document["structure"], "rotating disk");
    assert_eq!(document["target"], "sim:sata-hdd-7200");
    assert!(document["run"].is_null(), "{document}");
    let all = list(&document["parameters"]);
    let value =
        |key: &str| all.iter().find(|p| p["key"] == key).unwrap()["value"].as_f64().unwrap();
    for (key, truth) in [
        ("drive.rotation", 7200.0),
        ("drive.heads", 16.0),
        ("drive.seek.near_root", 0.0142),
        ("drive.seek.knee", 57_000.0),
        ("drive.segments", 32.0),
        ("drive.prefetch", 2048.0),
        ("drive.write_buffer", 64.0),
        ("drive.write_settle", 0.5),
    ] {
        assert!((value(key) / truth - 1.0).abs() < 0.05, "{key}: {} for {truth}", value(key));
    }
    assert!(document["score"]["held_out"]["worst"].as_f64().unwrap() < 0.1, "{document}");
    // The trust in a prediction must be based on the held-out points.
    let deeper = place.document("whatif my.toml --rw randread --bs 8k --iodepth-to 4");
    assert_eq!(deeper["after"]["trust"]["basis"], "held_out", "{deeper}");
    place
        .halfpower("calibrate --measure sim:sata-ssd")
        .with_code(2)
        .says("single rotating", "sweep");
    place.halfpower("calibrate --measure .").with_code(2).says("needs the disk itself", "lsblk");
    place.halfpower("calibrate latest --measure sim:sata-hdd-7200").with_code(2);
    place.file("small", 1 << 20);
    place.halfpower("calibrate --measure small").with_code(2).says("too small", "specify the disk");
    let written = place.halfpower("calibrate --measure small --overwrite other").with_code(3);
    written.says("small", "--overwrite");
}

#[test]
fn a_device_that_limits_requests_is_calibrated_on_half_and_predicts_the_rest() {
    let axes = "--bs 4k,64k,512k --iodepth 1,4,16 --runtime 1";
    let (_, document) = calibrated("sim:cloud-gp-volume", axes);
    predicts_the_other_half(&document);
}

#[test]
#[ignore = "measures devices in real time, which needs an idle machine"]
fn reference_devices_are_calibrated_on_half_and_predict_the_rest() {
    let axes = "--bs 4k,64k,512k --iodepth 1,4,16 --runtime 0.2";
    for truth in ["fixed=1ms,rate=200MB/s,parallel=8", "fixed=2ms,rate=150MB/s"] {
        let (_, document) = calibrated(&format!("truth:{truth}"), axes);
        predicts_the_other_half(&document);
    }
}

#[test]
#[ignore = "takes one to two minutes"]
fn a_device_with_cache_and_credit_is_calibrated_on_half_and_predicts_the_rest() {
    let truth = "fixed=1ms,rate=400MB/s,parallel=8,cache=8m,hit=200us,credit=20m,sustained=60MB/s";
    let axes = "--bs 4k,64k,256k --iodepth 1,4,16 --runtime 0.4 --size 32m --time-based";
    let (_, document) = calibrated(&format!("truth:{truth}"), axes);
    predicts_the_other_half(&document);
}

#[test]
fn a_file_that_cannot_be_written_whole_is_not_there_and_the_result_is_printed() {
    let place = Place::new();
    place.does(
        "sweep --ioengine delay --truth fixed=1ms,rate=200MB/s --rw randread --bs 4k,64k \
         --iodepth 1,4 --runtime 0.1 --trials 1 --quiet",
    );
    let disks = place.halfpower("calibrate --system sata-hdd-7200 --out my.toml");
    disks.with_code(2).says("has rotating disks, which cannot be fitted", "sata-ssd");
    // The maximum file size (ulimit -f) is 4 KiB. This is enough for stdout, which is a file here,
    // but too little for the system file.
    let line = "calibrate --quiet --out my.toml";
    let program = place.command(line);
    let mut limited = Command::new("bash");
    let script = "trap '' XFSZ; ulimit -f 4; exec \"$0\" \"$@\"";
    limited.args(["-c", script]).arg(program.get_program()).args(program.get_args());
    limited.current_dir(place.path("")).env("HOME", place.state());
    let ended = place.start_command(limited, line).ended().with_code(1);
    assert!(ended.stdout.contains("error on held-out points"), "{ended}");
    ended.says("writing my.toml", "specify another --out");
    assert_eq!(place.listing(), ["halfpower.db"]);
    place.does(line);
    let text = std::fs::read_to_string(place.path("my.toml")).unwrap();
    assert!(text.contains("; held-out error: mean "), "{text}");
    let ended = place.does("whatif my.toml --rw randread --bs 4k --iodepth-to 4");
    assert!(ended.stdout.contains("error at the calibration points near the load: "), "{ended}");
    let deep = "whatif my.toml --rw randread --bs 4k --iodepth-to 64";
    let outside = "outside the calibrated range: 64 outstanding requests (measured: 1 to 4)";
    assert!(place.does(deep).stdout.contains(outside));
    let document = place.document(deep);
    assert_eq!(document["after"]["trust"]["basis"], "outside");
    assert!(document["after"]["trust"]["worst_error"].is_null(), "{document}");
    let changed = "whatif my.toml --rw randread --bs 4k --set drive.fixed_read=500us";
    assert!(place.does(changed).stdout.contains("measured before the system was changed"));
    let large = place.document("whatif my.toml --rw randread --bs 4k --bs-to 1m");
    assert_eq!(large["after"]["trust"]["basis"], "outside");
    assert!(place.document("whatif sata-ssd --iodepth-to 2")["before"]["trust"].is_null());
    place.cannot("calibrate --out none/my.toml").with_code(2).says("none does not exist", "create");
}

#[test]
fn what_cannot_be_calibrated_is_said() {
    let place = Place::new();
    place.halfpower("whatif nt4-ultrawide").with_code(2).says("no change was given", "--set");
    place.halfpower("whatif nowhere --iodepth-to 2").with_code(2).says("nowhere", "one of");
    let line =
        "run --ioengine delay --truth fixed=1ms --runtime 0.2 --trials 1 --label one --quiet";
    place.halfpower(line);
    place.halfpower("calibrate one").with_code(1).says("only 1 point of", "sweep");
}
