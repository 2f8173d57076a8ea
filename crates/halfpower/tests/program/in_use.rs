//! Tests that devices and files in use are never written, even with permission. The target may be
//! the device or file itself, its whole disk, one of its partitions, an underlying device, or an
//! alias.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::fixture::{KIB, MIB, Place, measure_until, noise, or_skip};
use crate::volume::{LoopDevice, Mounted, Swap, Volume, make};

/// Returns command lines that write to a target, with all permissions for it.
fn attempts(target: &str) -> [String; 3] {
    let consent = format!("--destroy-data-on={target} --overwrite={target}");
    [
        format!("run {target} --rw write --bs 64k --size 64k --trials 1 --no-store {consent}"),
        format!("sweep {target} --rw randrw --bs 4k,8k --size 64k --no-store {consent}"),
        format!("survey {target} --budget 5 --no-store {consent}"),
    ]
}

#[track_caller]
fn never_written(target: &str, cause: &str, remedy: &str) {
    let place = Place::new();
    for line in attempts(target) {
        place.cannot(&line).with_code(3).says(cause, remedy);
        place.cannot(&format!("{line} --plan")).with_code(3).says(cause, remedy);
    }
}

#[test]
fn a_mounted_partition_protects_its_disk_and_a_mounted_disk_its_partitions() {
    let device = or_skip!(LoopDevice::blank(48 * MIB));
    let first = or_skip!(device.partition(1, 1, 20));
    let second = or_skip!(device.partition(2, 21, 20));
    or_skip!(make(&["mkfs.ext4", "-q", "-F", &first]));
    let mounted = or_skip!(Mounted::device(&first));
    let at = format!("is mounted at {}", mounted.folder().display());
    never_written(&first, &at, "unmount");
    never_written(device.path(), &format!("p1 {at}"), "unmount");
    // The second partition is not in use, so the permission is enough.
    let place = Place::new();
    let consent = format!("--destroy-data-on={second}");
    place.does(&format!("run {second} --rw write --bs 64k --size 64k --trials 1 {consent}"));
    drop(mounted);
    or_skip!(make(&["mkfs.ext4", "-q", "-F", device.path()]));
    let mounted = or_skip!(Mounted::device(device.path()));
    let at = format!("is mounted at {}", mounted.folder().display());
    never_written(&second, &format!("its disk {} {at}", &device.path()[5..]), "unmount");
}

#[test]
fn swap_is_never_written_be_it_a_device_a_partition_or_a_file() {
    let device = or_skip!(LoopDevice::blank(16 * MIB));
    let part = or_skip!(device.partition(1, 1, 8));
    let swap = or_skip!(Swap::on(&part));
    never_written(&part, "is in use as swap", "detach");
    never_written(device.path(), "p1 is in use as swap", "detach");
    drop(swap);
    let place = Place::new();
    let file = place.file("swap", 8 * MIB);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let _swap = or_skip!(Swap::on(file.to_str().unwrap()));
    never_written(file.to_str().unwrap(), "is in use as swap", "swapoff");
}

#[test]
fn the_second_device_of_a_mounted_btrfs_is_never_written() {
    let (one, two) =
        (or_skip!(LoopDevice::blank(120 * MIB)), or_skip!(LoopDevice::blank(120 * MIB)));
    or_skip!(make(&["mkfs.btrfs", "-q", "-f", one.path(), two.path()]));
    let mounted = or_skip!(Mounted::device(one.path()));
    let at = format!("is mounted at {}", mounted.folder().display());
    never_written(one.path(), &at, "unmount");
    never_written(two.path(), "belongs to the mounted btrfs", "unmount");
    drop(mounted);
}

#[test]
fn a_mounted_xfs_is_never_written() {
    let device = or_skip!(LoopDevice::blank(320 * MIB));
    let volume = or_skip!(Volume::on(device, &["mkfs.xfs", "-q", "-f"]));
    let at = format!("is mounted at {}", volume.folder().display());
    never_written(volume.device.path(), &at, "unmount");
}

#[test]
fn the_image_of_an_attached_loop_device_is_never_written() {
    let device = or_skip!(LoopDevice::new(4 * MIB));
    let image = device.image().display().to_string();
    never_written(&image, "is the image of the loop device", "losetup");
    let moved = device.image().with_file_name("moved");
    fs::rename(device.image(), &moved).unwrap();
    never_written(moved.to_str().unwrap(), "is the image of the loop device", "losetup");
    fs::rename(&moved, device.image()).unwrap();
    assert!(device.content() == noise(4 * MIB), "the image was written");
}

#[test]
fn a_device_behind_a_loop_device_is_never_written_nor_written_through() {
    let lower = or_skip!(LoopDevice::blank(16 * MIB));
    let upper = or_skip!(LoopDevice::of(Path::new(lower.path())));
    never_written(lower.path(), "is the image of the loop device", "detach");
    or_skip!(make(&["mkfs.ext4", "-q", "-F", upper.path()]));
    let mounted = or_skip!(Mounted::device(lower.path()));
    never_written(upper.path(), "is in use: the underlying device", "unmount");
    drop(mounted);
    let twin = or_skip!(LoopDevice::of(lower.image()));
    never_written(twin.path(), "shares its image with the loop device", "detach");
}

#[test]
fn a_consent_is_for_the_real_device_and_not_for_an_alias_of_it() {
    let device = or_skip!(LoopDevice::new(4 * MIB));
    let place = Place::new();
    let (link, node) = (place.path("link"), place.path("node"));
    symlink(device.path(), &link).unwrap();
    let number = fs::read_to_string(device.path().replace("/dev/", "/sys/class/block/") + "/dev");
    let number = number.unwrap();
    let (major, minor) = number.trim().split_once(':').unwrap();
    let mknod = Command::new("mknod").arg(&node).args(["b", major, minor]).status();
    assert!(mknod.unwrap().success());
    let right = format!("--destroy-data-on={}", device.path());
    for alias in [&link, &node] {
        let alias = alias.display();
        for target in [alias.to_string(), device.path().to_owned()] {
            let line = format!("run {target} --rw write --bs 64k --size 64k --trials 1 --no-store");
            let wrong = format!("--destroy-data-on={alias} --overwrite={alias}");
            // While other tests look for a free loop device, losetup opens this device for a
            // moment. The error message then names losetup, and the attempt is repeated.
            let ended = measure_until(
                || place.halfpower(&format!("{line} {wrong}")),
                |ended| !ended.stderr.contains("is open for writing in losetup"),
            );
            ended.with_code(3).says("would be destroyed", &right);
        }
    }
    assert!(device.content() == noise(4 * MIB), "the device was written");
    let line = format!("run node --rw write --bs 64k --size 64k --trials 1 --no-store {right}");
    place.does(&line);
    assert!(device.content() != noise(4 * MIB), "nothing was written through the alias");
}

/// Runs `exchange` repeatedly in another thread while `work` runs.
fn meanwhile(mut exchange: impl FnMut() + Send, work: impl FnOnce()) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                exchange();
            }
        });
        work();
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_name_that_is_exchanged_all_the_time_never_leads_to_another_file() {
    // The files are in memory, so that the name is exchanged many times while the program opens it.
    let memory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let place = Place::within(memory.path());
    let precious = place.file("precious", 64 * KIB);
    let folder = place.path("");
    let at = |name: &str| folder.join(name);
    fs::write(at("T"), noise(64 * KIB)).unwrap();
    let exchange = || {
        // `T` always exists. It is alternately a link to the precious file and an ordinary file.
        symlink("precious", at("link")).unwrap();
        fs::write(at("own"), [0; 16 << 10]).unwrap();
        fs::rename(at("link"), at("T")).unwrap();
        fs::rename(at("own"), at("T")).unwrap();
    };
    let mut ends = [0; 2];
    meanwhile(exchange, || {
        let line = "run T --rw write --bs 4k --size 16k --trials 1 --no-store --quiet";
        for _ in 0..200 {
            let ended = place.halfpower(&format!("{line} --overwrite=T --direct=0"));
            ends[usize::from(ended.status.success())] += 1;
        }
    });
    assert!(
        fs::read(&precious).unwrap() == noise(64 * KIB),
        "the other file was written: {ends:?}"
    );
}

#[test]
fn a_device_is_not_written_without_rights() {
    let place = or_skip!(Place::of_nobody());
    let device = or_skip!(LoopDevice::new(4 * MIB));
    let line = format!("run {} --rw write --size 64k", device.path());
    let ended = place.halfpower(&format!("{line} --destroy-data-on={}", device.path()));
    assert_ne!(ended.status.code(), Some(0), "{ended}");
    assert!(device.content() == noise(4 * MIB), "the device was written");
}
