//! Tests block devices: reading needs no permission, writing needs a permission for this device,
//! and a device in use is never written.

use std::path::Path;

use crate::fixture::{MIB, Place, noise, or_skip, whole};
use crate::known_truth::Served;
use crate::volume::{LoopDevice, Mounted, Volume, make};

#[test]
fn a_device_is_read_without_permission() {
    let device = or_skip!(LoopDevice::new(4 * MIB));
    let place = Place::new();
    let line = format!("run {} --rw randread --iodepth 4 --size 4m --trials 1", device.path());
    let document = place.document(&line);
    assert_eq!(document["target"]["kind"], "block device");
    assert_eq!(whole(&document["target"]["size_bytes"]), 4 * MIB);
    assert_eq!(whole(&document["trials"][0]["bytes"]), 4 * MIB);
    assert!(device.content() == noise(4 * MIB), "reading changed the device");
    assert_eq!(place.listing(), ["halfpower.db"]);
}

#[test]
fn a_loop_device_whose_image_is_cached_is_said_to_be_memory() {
    let device = or_skip!(LoopDevice::new(32 * MIB));
    let place = Place::new();
    let line = format!("run {} --bs 1m --size 32m --trials 2 --no-store", device.path());
    let document = place.document(&line);
    let reasons = document["verdict"]["reasons"].to_string();
    assert!(reasons.contains("is in the page cache: "), "{reasons}");
    assert_eq!(document["verdict"]["state"], "suspect");
    let survey = format!("survey {} --budget 15s --no-store --json", device.path());
    let document = place.halfpower(&survey).json();
    let findings = document["findings"].to_string();
    assert!(findings.contains("is memory, not storage"), "{findings}");
}

#[test]
fn a_loop_device_that_caches_the_file_of_a_server_is_not_taken_for_storage() {
    let served = or_skip!(Served::of("truth:fixed=1ms mounted --size 4m"));
    let device = or_skip!(LoopDevice::of(&served.place.path("mounted/device")));
    let line = format!("run {} --rw randread --bs 4k --size 4m --trials 2", device.path());
    let reasons = reasons(&Place::new().document(&format!("{line} --no-store")));
    assert!(reasons.contains("reads and writes its image through the page cache"), "{reasons}");
}

#[test]
fn files_in_memory_are_said_to_be_there() {
    let memory = or_skip!(tmpfs());
    let line = format!("run {} --size 16m --trials 2 --no-store", memory.folder().display());
    let reasons = reasons(&Place::new().document(&line));
    assert!(reasons.contains("lies in memory (tmpfs)"), "{reasons}");
}

fn tmpfs() -> Result<Mounted, String> {
    Mounted::by(&["mount", "-t", "tmpfs", "-o", "size=64m", "test"])
}

fn reasons(document: &serde_json::Value) -> String {
    document["verdict"]["reasons"].to_string()
}

#[test]
fn direct_writes_that_become_dirty_pages_are_said_to_be_memory() {
    // The loop device does not cache, because it uses direct I/O on its image file. On btrfs,
    // direct writes to a file with checksums still use the page cache.
    let device = or_skip!(LoopDevice::blank(256 * MIB));
    or_skip!(make(&["losetup", "--direct-io=on", device.path()]));
    let volume = or_skip!(Volume::on(device, &["mkfs.btrfs", "-q", "-f"]));
    let line = format!(
        "run {} --rw write --bs 1m --size 64m --direct=1 --trials 2 --no-store",
        volume.folder().display()
    );
    let reasons = reasons(&Place::new().document(&line));
    assert!(reasons.contains("became dirty while"), "{reasons}");
}

/// Mounts an overlay whose upper directory is below `upper`.
fn overlay(upper: &Path) -> Result<Mounted, String> {
    let at = |name: &str| {
        let folder = upper.join(name);
        std::fs::create_dir(&folder).unwrap();
        folder.display().to_string()
    };
    let (lower, upper, work) = (at("lower"), at("upper"), at("work"));
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    Mounted::by(&["mount", "-t", "overlay", "-o", &options, "overlay"])
}

#[test]
fn an_overlay_is_what_it_lies_on() {
    let memory = or_skip!(tmpfs());
    let merged = or_skip!(overlay(memory.folder()));
    let line = format!("run {} --size 8m --trials 2 --no-store", merged.folder().display());
    let reasons_in_memory = reasons(&Place::new().document(&line));
    assert!(reasons_in_memory.contains("lies in memory"), "{reasons_in_memory}");
    drop(merged);

    let volume = or_skip!(Volume::new(64 * MIB));
    let merged = or_skip!(overlay(volume.folder()));
    let line = format!("run {} --size 8m --trials 2 --no-store", merged.folder().display());
    let document = Place::new().document(&line);
    assert!(document["target"]["device"]["name"].to_string().contains("loop"), "{document}");
    let layers = Place::new().document(&format!("target {}", merged.folder().display()));
    assert!(layers.to_string().contains("ext4"), "{layers}");
}

#[test]
fn reads_through_a_mirror_by_fuse_that_come_from_its_cache_are_invalid() {
    let volume = or_skip!(Volume::new(64 * MIB));
    let folder = volume.folder().display().to_string();
    let inside = Place::within(volume.folder());
    inside.file("data", 16 * MIB);
    let mirror = or_skip!(Mounted::by(&["bindfs", &folder]));
    // The file was just written, so it is in the page cache of the file system below bindfs.
    let data = mirror.folder().join("data").display().to_string();
    let line = format!("run {data} --bs 1m --size 16m --trials 2 --no-store --json");
    let document = Place::new().halfpower(&line).json();
    assert_eq!(document["verdict"]["state"], "invalid", "{}", document["verdict"]);
    assert!(reasons(&document).contains("came from a cache"), "{}", document["verdict"]);
}

#[test]
fn a_file_of_a_read_only_image_is_measured() {
    let place = Place::new();
    or_skip!(crate::fixture::root());
    std::fs::create_dir(place.path("source")).unwrap();
    place.file("source/data", 8 * MIB);
    let source = place.path("source").display().to_string();
    for (make_image, kind) in [("mksquashfs", "squashfs"), ("mkfs.erofs", "erofs")] {
        let image = place.path(kind).display().to_string();
        let command = match kind {
            "squashfs" => [make_image, &source, &image],
            _ => [make_image, &image, &source],
        };
        or_skip!(make(&command));
        let mounted = or_skip!(Mounted::by(&["mount", "-o", "loop,ro", &image]));
        let data = mounted.folder().join("data").display().to_string();
        place.does(&format!("run {data} --bs 64k --size 8m --direct=0 --trials 2 --no-store"));
        place.halfpower(&format!("survey {data} --budget 20s --no-store")).prints("Findings");
    }
}

#[test]
fn somebody_else_who_reads_the_device_is_noticed() {
    let device = or_skip!(LoopDevice::new(32 * MIB));
    let place = Place::new();
    let line =
        format!("run {} --rw randread --rate-iops 200 --runtime 1 --trials 1", device.path());
    let alone = place.document(&line);
    assert!(!reasons(&alone).contains("other programs used the device"), "{}", reasons(&alone));
    let elsewhere = Place::new();
    let all_the_time = format!("run {} --bs 1m --runtime 60 --trials 1", device.path());
    let mut other = elsewhere.start(&all_the_time);
    other.until_it_says("1 trial");
    let beside = place.document(&line);
    drop(other);
    assert_eq!(beside["verdict"]["state"], "suspect", "{}", beside["verdict"]);
    assert!(reasons(&beside).contains("other programs used the device"), "{}", beside["verdict"]);
}

#[test]
fn a_device_is_not_written_without_permission() {
    let device = or_skip!(LoopDevice::new(4 * MIB));
    let (place, path) = (Place::new(), device.path());
    let consents = [
        String::new(),
        "--destroy-data-on=/dev/vda".to_owned(),
        format!("--overwrite={path}"),
        format!("--destroy-data-on={}", path.trim_start_matches("/dev/")),
        format!("--destroy-data-on={path}0"),
    ];
    for rw in ["write", "randrw"] {
        for consent in &consents {
            let ended = place.cannot(&format!("run {path} --rw {rw} --size 1m {consent}"));
            let remedy = format!("--destroy-data-on={path}");
            ended.with_code(3).says("would be destroyed", &remedy);
        }
    }
    assert!(device.content() == noise(4 * MIB), "the device was written");
}

#[test]
fn a_device_given_up_by_its_own_name_is_written_where_it_was_asked() {
    let device = or_skip!(LoopDevice::new(4 * MIB));
    let (place, path) = (Place::new(), device.path());
    let consent = format!("--destroy-data-on={path}");
    let line = format!("run {path} --rw write --bs 64k --offset 1m --size 1m --trials 1 {consent}");
    let document = place.document(&line);
    assert_eq!(whole(&document["trials"][0]["bytes"]), MIB);
    let (now, then, mib) = (device.content(), noise(4 * MIB), MIB as usize);
    assert!(now[mib..2 * mib] != then[mib..2 * mib], "nothing was written");
    assert!(now[..mib] == then[..mib], "data before the region changed");
    assert!(now[2 * mib..] == then[2 * mib..], "data after the region changed");
}

#[test]
fn a_device_named_through_a_link_is_still_the_device() {
    let device = or_skip!(LoopDevice::new(4 * MIB));
    let place = Place::new();
    std::os::unix::fs::symlink(device.path(), place.path("disk")).unwrap();
    let ended = place.cannot("run disk --rw write --size 1m --overwrite=disk");
    ended.with_code(3).says("would be destroyed", &format!("--destroy-data-on={}", device.path()));
    assert!(device.content() == noise(4 * MIB), "the device was written");
}

#[test]
fn a_mounted_device_is_not_written_even_with_permission() {
    let volume = or_skip!(Volume::new(8 * MIB));
    let (place, path) = (Place::new(), volume.device.path());
    let line = format!("run {path} --rw write --size 1m --destroy-data-on={path}");
    let mounted = format!("mounted at {}", volume.folder().display());
    place.cannot(&line).with_code(3).says(&mounted, "unmount");
    place.does(&format!("run {path} --rw read --bs 64k --size 1m --trials 1"));
}

#[test]
fn another_name_does_not_hide_that_a_device_is_mounted() {
    let volume = or_skip!(Volume::new(8 * MIB));
    let (place, path) = (Place::new(), volume.device.path());
    let alias = place.path("alias");
    std::os::unix::fs::symlink(path, &alias).unwrap();
    let node = place.path("node");
    let number = std::fs::read_to_string(path.replace("/dev/", "/sys/class/block/") + "/dev");
    let number = number.unwrap();
    let (major, minor) = number.trim().split_once(':').unwrap();
    let mknod = std::process::Command::new("mknod").arg(&node).args(["b", major, minor]).status();
    assert!(mknod.unwrap().success());
    for name in [&alias, &node] {
        let name = name.display();
        let line = format!("run {name} --rw write --size 1m --destroy-data-on={path} --plan");
        place.halfpower(&line).with_code(3).says("mounted at", "unmount");
    }
}

#[test]
fn a_device_mounted_in_another_namespace_cannot_be_claimed() {
    let device = or_skip!(LoopDevice::new(8 * MIB));
    let path = device.path();
    let script = format!(
        "mkfs.ext4 -q -F {path} && mount {path} /mnt && echo mounted && read line; umount /mnt"
    );
    let mut elsewhere = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let stdout = elsewhere.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut said).unwrap();
    let line = format!("run {path} --rw write --size 1m --destroy-data-on={path} --plan");
    let ended = Place::new().halfpower(&line);
    drop(elsewhere.stdin.take());
    elsewhere.wait().unwrap();
    assert_eq!(said.trim(), "mounted");
    ended.with_code(3).says("cannot be claimed", "detach");
}

#[test]
fn a_device_is_not_extended() {
    let device = or_skip!(LoopDevice::new(4 * MIB));
    let path = device.path();
    let ended = Place::new().cannot(&format!("run {path} --size 8m"));
    ended.with_code(2).says("has 4194304 bytes, but the region ends at", "smaller --size");
}

#[test]
fn a_plan_for_a_device_touches_nothing() {
    let device = or_skip!(LoopDevice::new(4 * MIB));
    let (place, path) = (Place::new(), device.path());
    let line = format!("run {path} --rw write --size 1m --plan");
    place.does(&format!("{line} --destroy-data-on={path}"));
    place.cannot(&line).with_code(3).says("would be destroyed", "--destroy-data-on=");
    assert!(device.content() == noise(4 * MIB), "the device was written");
}

#[test]
fn a_request_that_fails_ends_the_run_with_its_offset_and_cause() {
    let device = or_skip!(LoopDevice::new(4 * MIB));
    device.breaks();
    let place = Place::new();
    for engine in ["io_uring", "libaio", "threads", "sync"] {
        let line = format!("run {} --ioengine {engine} --bs 64k --size 4m", device.path());
        let ended = place.halfpower(&format!("{line} --trials 1 --quiet")).with_code(1);
        assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
        let ended = ended.says("reading at offset 2097152", "; ");
        assert_eq!(ended.stdout, "", "{ended}");
        assert_eq!(place.stored_run().state, results::RunState::Failed);
    }
}

#[test]
fn what_is_on_a_device_is_said_before_it_goes() {
    let device = or_skip!(LoopDevice::blank(32 * MIB));
    let (place, path) = (Place::new(), device.path());
    let line = format!("run {path} --rw write --bs 64k --size 1m --trials 1 --no-store");
    let consent = format!("--destroy-data-on={path}");
    let says = |what: &str| {
        place.cannot(&line).with_code(3).says(what, &consent);
        let plan = place.does(&format!("{line} {consent} --plan"));
        assert!(plan.stdout.contains(what), "{plan}");
    };
    says("it holds no data of a known format");
    for (make_it, what) in [
        (["mkfs.ext4", "-q", "-F", "-Lroot"].as_slice(), "it holds ext4 'root'"),
        (&["mkfs.ext3", "-q", "-F"], "it holds ext3"),
        (&["mkfs.ext2", "-q", "-F"], "it holds ext2"),
        (&["mkswap", "-f", "-Lspace"], "it holds swap 'space'"),
    ] {
        or_skip!(make(&[make_it, &[path]].concat()));
        says(what);
    }
    let done = place.does(&format!("{line} {consent} --quiet"));
    let first = done.stderr.lines().next().unwrap();
    assert!(first.contains(&format!("destroying all data on {path}; it holds swap")), "{done}");
}

#[test]
fn large_file_systems_are_recognised_too() {
    let device = or_skip!(LoopDevice::blank(320 * MIB));
    let place = Place::new();
    for (make_it, what) in [
        (["mkfs.xfs", "-q", "-f", "-Ldata"], "it holds xfs 'data'"),
        (["mkfs.btrfs", "-q", "-f", "-Lpool"], "it holds btrfs 'pool'"),
    ] {
        or_skip!(make(&[&make_it, [device.path()].as_slice()].concat()));
        let ended = place.cannot(&format!("run {} --rw write --size 1m", device.path()));
        ended.with_code(3).says(what, "--destroy-data-on");
    }
}
