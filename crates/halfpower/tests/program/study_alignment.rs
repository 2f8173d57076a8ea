//! Tests the study `alignment` on file systems with known allocation units, and on devices that
//! report their discard granularity.

use std::fs::{self, File};
use std::path::Path;

use serde_json::Value;

use crate::fixture::{MIB, Place, list, or_skip, root, temporary_folder, text};
use crate::volume::{LoopDevice, Volume};

/// Runs the study with few, short points.
fn alignment(target: &Path) -> Value {
    let line = format!(
        "study alignment {} --quick --size 4m --runtime 2ms --trials 1 --no-store",
        target.display()
    );
    list(&Place::new().document(&line)["studies"])[0].clone()
}

fn finding<'a>(study: &'a Value, id: &str) -> &'a str {
    let findings = list(&study["findings"]);
    let found = findings.iter().find(|finding| finding["id"] == id);
    found.map_or_else(|| panic!("no {id}: {study:#}"), |finding| text(&finding["text"]))
}

fn left_out<'a>(study: &'a Value, part: &str) -> &'a str {
    let parts = list(&study["left_out"]);
    let found = parts.iter().find(|left_out| left_out["part"] == part);
    found.map_or_else(|| panic!("{part} is not left out: {study:#}"), |one| text(&one["reason"]))
}

/// Creates a file system, and checks the two units that the study finds on it. The file system
/// allocates space in units of `given`, and punching holes frees space in units of `taken`.
fn units_are(bytes: u64, command: &[&str], given: &str, taken: &str) -> Result<(), String> {
    let volume = Volume::on(LoopDevice::blank(bytes)?, command)?;
    units_on(&volume, command, given, taken);
    let left: Vec<_> = fs::read_dir(volume.folder()).unwrap().flatten().collect();
    assert!(left.iter().all(|one| one.file_name() == "lost+found"), "{left:?}");
    Ok(())
}

/// Checks that the study finds these units on a mounted file system.
#[track_caller]
fn units_on(volume: &Volume, command: &[&str], given: &str, taken: &str) {
    let study = alignment(volume.folder());
    let unit = finding(&study, "allocation-unit");
    assert!(unit.contains(&format!("in units of {given}")), "{command:?}: {unit}");
    let hole = finding(&study, "hole-unit");
    assert!(hole.contains(&format!("in units of {taken}")), "{command:?}: {hole}");
}

#[test]
fn the_blocks_of_an_ext4_are_its_allocation_unit() {
    for (block, unit) in [("1024", "1 KiB"), ("4096", "4 KiB")] {
        or_skip!(units_are(64 * MIB, &["mkfs.ext4", "-q", "-F", "-b", block], unit, unit));
    }
}

/// Command that creates an ext4 file system with clusters of 64 KiB.
const CLUSTERS: [&str; 9] =
    ["mkfs.ext4", "-q", "-F", "-b", "4096", "-O", "bigalloc", "-C", "65536"];

#[test]
fn the_clusters_of_an_ext4_are_its_allocation_unit_whatever_its_blocks() {
    or_skip!(units_are(64 * MIB, &CLUSTERS, "64 KiB", "64 KiB"));
}

// In fragmented free space, a file has more extents. At five extents, ext4 allocates a block for
// the extent tree. This takes as much space as a punched hole frees, and must not mislead the
// study.
#[test]
fn the_units_of_an_ext4_are_found_where_free_space_is_in_pieces() {
    let device = or_skip!(LoopDevice::blank(128 * MIB));
    let volume = or_skip!(Volume::on(device, &CLUSTERS));
    let folder = volume.folder();
    let file = |number: u32| folder.join(number.to_string());
    let full = vec![1_u8; 512 << 10];
    let count = (0..400).take_while(|number| {
        let written = fs::write(file(*number), &full);
        written.is_ok() && File::open(file(*number)).unwrap().sync_all().is_ok()
    });
    let count = u32::try_from(count.count()).unwrap();
    for number in (0..=count).step_by(2) {
        fs::remove_file(file(number)).unwrap();
    }
    units_on(&volume, &CLUSTERS, "64 KiB", "64 KiB");
}

#[test]
fn the_blocks_of_an_xfs_are_its_allocation_unit() {
    or_skip!(units_are(512 * MIB, &["mkfs.xfs", "-q", "-f"], "4 KiB", "4 KiB"));
}

#[test]
fn the_sectors_of_a_btrfs_are_its_allocation_unit() {
    or_skip!(units_are(256 * MIB, &["mkfs.btrfs", "-q", "-f"], "4 KiB", "4 KiB"));
}

#[test]
fn where_a_file_lies_and_what_its_device_discards_are_told() {
    let device = or_skip!(LoopDevice::blank(64 * MIB));
    let volume = or_skip!(Volume::on(device, &["mkfs.ext4", "-q", "-F"]));
    let name = volume.device.path().trim_start_matches("/dev/");
    let told = fs::read_to_string(format!("/sys/block/{name}/queue/discard_granularity"));
    let granularity: u64 = told.unwrap().trim().parse().unwrap();
    let study = alignment(volume.folder());
    let words = match granularity {
        0 => "does not support discard".to_owned(),
        bytes if bytes < 1024 => format!("discard granularity: {bytes} B (reported by {name})"),
        bytes => format!("discard granularity: {} KiB (reported by {name})", bytes / 1024),
    };
    assert!(finding(&study, "discard").starts_with(&words), "{}", finding(&study, "discard"));
    assert!(finding(&study, "placement").contains(&format!("lies on {name} in")));
}

#[test]
fn where_a_partition_begins_is_told_and_nothing_on_it_changes() {
    or_skip!(root());
    let device = or_skip!(LoopDevice::blank(64 * MIB));
    let partition = or_skip!(device.partition(1, 8, 16));
    let study = alignment(Path::new(&partition));
    let found = finding(&study, "partition");
    assert!(found.contains("begins at 8 MiB on its disk"), "{found}");
    // The study may not write to the partition, and cannot create a test file on it.
    assert!(left_out(&study, "allocation unit").contains("use a directory"));
    assert!(device.content() == vec![0; 64 * MIB as usize], "the device has changed");
}

#[test]
fn what_has_no_file_system_is_left_out_with_what_to_name() {
    let study = alignment(Path::new("truth:fixed=20us,rate=4GB/s"));
    assert!(
        left_out(&study, "position on the disk").contains("specify a file, device or directory")
    );
    let folder = temporary_folder();
    let file = Place::within(folder.path()).file("mine", 4 * MIB);
    let study = alignment(&file);
    let reason = left_out(&study, "allocation unit");
    assert!(
        reason.contains("needs a separate test file") && reason.contains("use a directory"),
        "{reason}"
    );
}
