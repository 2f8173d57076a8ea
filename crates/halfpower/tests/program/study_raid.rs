//! Tests the study of volumes and their members on loop devices. One volume is a stripe of
//! halfpower, and the other is a btrfs on two devices. The study must find how the requests to each
//! volume are distributed over its members.

use std::fs;

use serde_json::Value;

use crate::fixture::{KIB, MIB, Place, list, or_skip, real, text};
use crate::volume::{LoopDevice, TwoDevices};

/// Returns the amount of data written to a device since boot (bytes).
fn written(device: &LoopDevice) -> u64 {
    let stat = fs::read_to_string(device.path().replacen("/dev/", "/sys/block/", 1) + "/stat");
    let stat = stat.unwrap();
    512 * stat.split_whitespace().nth(6).unwrap().parse::<u64>().unwrap()
}

#[test]
fn a_stripe_over_devices_reaches_them_evenly_and_lies_where_the_chunk_says() {
    let devices = [or_skip!(LoopDevice::blank(8 * MIB)), or_skip!(LoopDevice::blank(8 * MIB))];
    let [one, two] = devices.each_ref().map(LoopDevice::path);
    let place = Place::new();
    let before = devices.each_ref().map(written);
    let line =
        format!("{one} {two} --chunk 32k --bs 96k --size 12m --verify --trials 1 --no-store");
    let consent = format!("--destroy-data-on={one} --destroy-data-on={two}");
    place.does(&format!("run {line} --rw write --iodepth 4 {consent}"));
    let moved: Vec<u64> = devices.iter().zip(before).map(|(d, b)| written(d) - b).collect();
    assert_eq!(moved, [6 * MIB; 2]);
    let [first, second] = devices.each_ref().map(LoopDevice::content);
    let chunk = 32 * KIB as usize;
    let rows = first.chunks(chunk).zip(second.chunks(chunk)).take(6 * MIB as usize / chunk);
    let whole: Vec<u8> = rows.flat_map(|(one, two)| [one, two].concat()).collect();
    fs::write(place.path("whole"), whole).unwrap();
    place.does("run whole --bs 96k --size 12m --verify --rw read --direct=0 --trials 1 --no-store");
}

/// Runs the study. It is long enough that the metadata writes of btrfs are a small share.
fn raid(volume: &TwoDevices) -> Value {
    let folder = volume.folder().display().to_string();
    let line = format!("study raid {folder} --quick --size 48m --runtime 0.5 --no-store");
    let document = Place::new().document(&line);
    list(&document["studies"])[0].clone()
}

fn reading(study: &Value, quantity: &str, rw: &str, bs: &str) -> f64 {
    let mine = |reading: &&Value| {
        let labels = &reading["labels"];
        reading["quantity"] == quantity && labels["rw"] == rw && labels["bs"] == bs
    };
    let found = list(&study["readings"]).iter().find(mine);
    real(&found.unwrap_or_else(|| panic!("no {quantity} of {rw} {bs}: {study}"))["value"])
}

#[test]
fn a_mirror_is_recognised_and_writes_each_byte_twice() {
    let volume = or_skip!(TwoDevices::new("raid1", 300 * MIB));
    let study = raid(&volume);
    let findings = list(&study["findings"]);
    assert_eq!(text(&findings[0]["text"]), "btrfs raid1 has all its members");
    for rw in ["write", "randwrite"] {
        let times = reading(&study, "member-written-bytes", rw, "64 KiB");
        assert!((1.95..2.6).contains(&times), "{rw}: {times}");
        assert!(reading(&study, "member-read-bytes", rw, "64 KiB") < 0.25, "too many reads");
    }
    let least = reading(&study, "least-member", "write", "64 KiB");
    assert!(least > 0.9, "both copies are written: {least}");
    let names = volume.devices.each_ref().map(LoopDevice::path);
    let members = list(&study["readings"]).iter().find(|r| r["quantity"] == "members").unwrap();
    assert!(names.iter().all(|name| text(&members["labels"]["names"]).contains(name)));
}

#[test]
fn a_striped_volume_writes_each_byte_once_and_uses_both_members() {
    let volume = or_skip!(TwoDevices::new("raid0", 300 * MIB));
    let study = raid(&volume);
    assert_eq!(text(&list(&study["findings"])[0]["text"]), "btrfs raid0 has all its members");
    let times = reading(&study, "member-written-bytes", "write", "1 MiB");
    assert!((0.97..1.4).contains(&times), "{times}");
    let least = reading(&study, "least-member", "write", "1 MiB");
    assert!(least > 0.7, "both members are written: {least}");
}

#[test]
fn a_target_without_members_is_skipped_with_the_remedy() {
    let place = Place::new();
    place.file("plain", MIB);
    let document = place.document("study raid plain --quick --no-store");
    let skipped = &list(&document["studies"])[0]["skipped"];
    assert!(text(&skipped["remedy"]).contains("VOLUME MEMBER"), "{skipped}");
}

#[test]
fn a_simulated_volume_is_held_against_its_disks() {
    let place = Place::new();
    let disks = "sim:nt4-ultrawide ".repeat(4);
    let volume = "sim:nt4-ultrawide,disks=4,volume=raid5";
    let document = place.document(&format!("study raid {volume} {disks} --quick --no-store"));
    let study = &list(&document["studies"])[0];
    let findings = list(&study["findings"]).iter();
    let efficiency = findings.clone().find(|finding| finding["id"] == "efficiency").unwrap();
    let share: f64 = text(&efficiency["text"])
        .split("4 times the rate of one simulated member at depth 8: ")
        .nth(1)
        .unwrap()
        .split('%')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!((10.0..=100.0).contains(&share), "{efficiency}");
}
