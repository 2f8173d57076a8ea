//! Checks whether a block device or file is in use. Writing to it would then destroy data.
//!
//! A device shares its bytes with its partitions, with its disk, and with volumes and loop devices
//! on any of these. A loop device also shares its bytes with its image. The device is in use if any
//! of these is mounted, used as swap, a member of a mounted btrfs, held by a volume, exported by
//! the kernel's NVMe target, or open for writing in a process of another program, such as a virtual
//! machine. This module does not detect that a device is in use in another mount namespace, but an
//! exclusive open (O_EXCL) of such a device fails.

use std::path::Path;

use crate::device::Device;
use crate::kernel::{Backing, Kernel, LoopDevice, Writer, volume_name};

/// Maximum depth of stacked devices that the search follows.
const LEVELS_MAX: usize = 16;

/// Returns why a device is in use, or None if it is not. The text continues a sentence that starts
/// with the name of the device, for example "is mounted at /data".
pub fn of_device(kernel: &Kernel, device: &Device) -> Option<String> {
    use_of(kernel, device, &mut Vec::new())
}

/// Returns why a regular file is in use, for example "is in use as swap", or None if it is not.
pub fn of_file(kernel: &Kernel, file: Backing) -> Option<String> {
    if is_swap(kernel, file) {
        return Some("is in use as swap".to_owned());
    }
    let loops = kernel.loops();
    let image = loops.iter().find(|attached| attached.identity == Some(file))?;
    Some(format!("is the image of the loop device {}", image.device.name()))
}

/// Returns which other program has a regular file open for writing, for example "is open for
/// writing in qemu (process 42)". None if there is no such program.
pub fn by_writer(kernel: &Kernel, file: Backing) -> Option<String> {
    kernel.writer_of_file(file).as_ref().map(describe_writer)
}

fn describe_writer(writer: &Writer) -> String {
    format!("is open for writing in {} (process {})", writer.program, writer.process)
}

fn is_swap(kernel: &Kernel, wanted: Backing) -> bool {
    kernel.swaps().iter().any(|path| kernel.backing_at(path) == Some(wanted))
}

/// Does the work of [`of_device`]. `visited` contains the devices on the search path, so that a
/// cycle of devices does not make the search endless.
fn use_of(kernel: &Kernel, device: &Device, visited: &mut Vec<Device>) -> Option<String> {
    if visited.len() >= LEVELS_MAX || visited.contains(device) {
        return None;
    }
    visited.push(device.clone());
    // Programs that have the device open are checked last, because a program that opens the device
    // only for a moment must not hide another reason.
    let found = of_family(device, |one| own_use(kernel, one, visited))
        .or_else(|| use_of_backing(kernel, device, visited))
        .or_else(|| of_family(device, |one| open_in(kernel, one)));
    visited.pop();
    found
}

/// Returns the first reason that `of` finds. Calls `of` for a device, for its partitions, and, if
/// the device is a partition, for its disk.
fn of_family(device: &Device, mut of: impl FnMut(&Device) -> Option<String>) -> Option<String> {
    let partitions = device.partitions().into_iter().map(|one| ("partition", one));
    let disk = device.whole().map(|one| ("disk", one));
    of(device).or_else(|| {
        partitions.chain(disk).find_map(|(what, one)| {
            Some(format!("is in use: its {what} {} {}", one.name(), of(&one)?))
        })
    })
}

/// Returns which other program has this device open for writing. Ignores its partitions and disk.
fn open_in(kernel: &Kernel, device: &Device) -> Option<String> {
    let (major, minor) = device.number()?;
    kernel.writer_of_device(libc::makedev(major, minor)).map(describe_writer)
}

/// Returns why the device itself is in use, ignoring its partitions and its disk.
fn own_use(kernel: &Kernel, device: &Device, visited: &mut Vec<Device>) -> Option<String> {
    let is_device = |path: &Path| kernel.at(path).as_ref() == Some(device);
    let mounts = kernel.mounts();
    let mounted = mounts
        .iter()
        .find(|mount| Some(mount.device) == device.number() || is_device(Path::new(&mount.source)));
    if let Some(mount) = mounted {
        return Some(format!("is mounted at {}", mount.mount_point.display()));
    }
    if kernel.swaps().iter().any(|path| is_device(path)) {
        return Some("is in use as swap".to_owned());
    }
    let name = device.name();
    if let Some(btrfs) = kernel.btrfs().into_iter().find(|b| b.members.contains(&name)) {
        let shown = btrfs.label.unwrap_or(btrfs.uuid);
        return Some(format!("belongs to the mounted btrfs file system {shown}"));
    }
    if let Some(holder) = device.holders().iter().find(|holder| !visited.contains(holder)) {
        return Some(describe_holder("is held by", holder, kernel, visited));
    }
    let loops = kernel.loops();
    let on_it = loops.iter().find(|l| is_attached_to(l, device) && !visited.contains(&l.device));
    if let Some(on_it) = on_it {
        let how = "is the image of the loop device";
        return Some(describe_holder(how, &on_it.device, kernel, visited));
    }
    let is_exported = kernel.exported_by_nvme_target().iter().any(|path| is_device(path));
    is_exported.then(|| "is exported by the NVMe target of this kernel".to_owned())
}

/// Describes the holder of a device and, recursively, why the holder is in use.
fn describe_holder(how: &str, by: &Device, kernel: &Kernel, visited: &mut Vec<Device>) -> String {
    let alias = volume_name(by).map(|name| format!(" ({name})")).unwrap_or_default();
    let serves = use_of(kernel, by, visited).map(|why| format!(", which {why}"));
    format!("{how} {}{alias}{}", by.name(), serves.unwrap_or_default())
}

/// Returns why the backing file or backing device of a loop device is in use.
fn use_of_backing(kernel: &Kernel, device: &Device, visited: &mut Vec<Device>) -> Option<String> {
    let loops = kernel.loops();
    let disk = device.whole().unwrap_or_else(|| device.clone());
    let own = loops.iter().find(|attached| attached.device == disk)?;
    let identity = own.identity?;
    let sharing = loops.iter().find(|other| {
        other.identity == Some(identity) && other.device != disk && !visited.contains(&other.device)
    });
    if let Some(sharing) = sharing {
        return Some(format!("shares its image with the loop device {}", sharing.device.name()));
    }
    let number = match identity {
        Backing::Device(number) => number,
        Backing::File(..) => {
            let swap = is_swap(kernel, identity);
            return swap.then(|| "is in use: its image file is in use as swap".to_owned());
        }
    };
    let lower = kernel.numbered((libc::major(number), libc::minor(number)))?;
    visited.push(disk);
    let why = use_of(kernel, &lower, visited);
    visited.pop();
    Some(format!("is in use: the underlying device {} {}", lower.name(), why?))
}

fn is_attached_to(attached: &LoopDevice, device: &Device) -> bool {
    let number = device.number();
    let is = |n: u64| Some((libc::major(n), libc::minor(n))) == number;
    matches!(attached.identity, Some(Backing::Device(n)) if is(n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::MadeUp;

    fn why(tree: &MadeUp, name: &str) -> Option<String> {
        let kernel = tree.kernel();
        of_device(&kernel, &kernel.named(name).unwrap())
    }

    #[track_caller]
    fn says(tree: &MadeUp, name: &str, words: &[&str]) {
        let why = why(tree, name).unwrap_or_else(|| panic!("{name} is reported as free"));
        assert!(words.iter().all(|word| why.contains(word)), "{name} {why}");
    }

    #[test]
    fn a_disk_that_nobody_uses_is_free() {
        let tree = MadeUp::with_volumes();
        for name in ["sda1", "sdb1", "dm-0"] {
            assert_eq!(why(&tree, name), None, "{name}");
        }
    }

    #[test]
    fn a_member_of_an_array_and_its_disk_are_held_through_all_levels() {
        let tree = MadeUp::with_volumes();
        says(&tree, "sda2", &["is held by md0", "which is held by dm-0 (vg-data)"]);
        says(&tree, "sda", &["its partition sda2 is held by md0"]);
        says(&tree, "md0", &["is held by dm-0 (vg-data)"]);
        tree.mount("253:0", "/data", "/dev/mapper/vg-data");
        says(&tree, "sdb2", &["md0", "vg-data", "mounted at /data"]);
        says(&tree, "dm-0", &["is mounted at /data"]);
        assert_eq!(why(&tree, "sdb1"), None, "the use of another partition does not count");
    }

    #[test]
    fn a_partition_of_a_disk_that_is_used_whole_is_in_use() {
        let tree = MadeUp::with_volumes();
        tree.block("virtual/block/dm-1", "253:1", 100);
        tree.holds("dm-1", "sdb");
        says(&tree, "sdb1", &["its disk sdb is held by dm-1"]);
        tree.mount("8:0", "/whole", "/dev/sda");
        says(&tree, "sda1", &["its disk sda is mounted at /whole"]);
    }

    #[test]
    fn a_mounted_partition_makes_the_disk_busy_by_number_and_by_source() {
        let tree = MadeUp::with_volumes();
        tree.mount("8:1", "/boot", "none");
        says(&tree, "sda", &["its partition sda1 is mounted at /boot"]);
        // A file system such as btrfs has an anonymous device number, so only the mount source
        // identifies the device.
        tree.mount("0:42", "/pool", "/dev/sdb1");
        says(&tree, "sdb", &["its partition sdb1 is mounted at /pool"]);
    }

    #[test]
    fn swap_is_seen_on_a_partition_and_on_a_volume_by_its_other_name() {
        let tree = MadeUp::with_volumes();
        tree.swap("/dev/sda1");
        says(&tree, "sda", &["sda1 is in use as swap"]);
        says(&tree, "sda1", &["is in use as swap"]);
        tree.swap("/dev/mapper/vg-data");
        says(&tree, "dm-0", &["is in use as swap"]);
        says(&tree, "sdb2", &["vg-data", "in use as swap"]);
    }

    #[test]
    fn a_file_that_another_program_has_open_for_writing_is_in_use() {
        let tree = MadeUp::new();
        tree.file("/data/image", "");
        tree.file("/data/other", "");
        let kernel = tree.kernel();
        let of = |path: &str| {
            let path = kernel.path(path);
            let file = Backing::of(&std::fs::metadata(&path).unwrap());
            by_writer(&kernel, file)
        };
        tree.link("/proc/7/fd/3", "/data/image");
        tree.file("/proc/7/comm", "qemu\n");
        tree.file("/proc/7/fdinfo/3", "pos:\t0\nflags:\t0100000\n");
        assert_eq!(of("/data/image"), None, "open for reading only");
        tree.file("/proc/7/fdinfo/3", "pos:\t0\nflags:\t0100002\n");
        assert_eq!(of("/data/image").unwrap(), "is open for writing in qemu (process 7)");
        assert_eq!(of("/data/other"), None);
        tree.file("/proc/self/exe", "this program");
        tree.link("/proc/7/exe", "/proc/self/exe");
        assert_eq!(of("/data/image"), None, "a process of the same program does not count");
    }

    #[test]
    fn a_disk_that_the_nvme_target_exports_is_in_use() {
        let tree = MadeUp::with_volumes();
        let namespace = "/sys/kernel/config/nvmet/subsystems/one/namespaces/1";
        tree.file(&format!("{namespace}/device_path"), "/dev/sdb\n");
        tree.file(&format!("{namespace}/enable"), "0\n");
        assert_eq!(why(&tree, "sdb1"), None);
        tree.file(&format!("{namespace}/enable"), "1\n");
        says(&tree, "sdb1", &["its disk sdb is exported by the NVMe target"]);
    }

    #[test]
    fn the_second_device_of_a_mounted_btrfs_is_in_use() {
        let tree = MadeUp::with_volumes();
        tree.mount("0:42", "/pool", "/dev/sda1");
        tree.folder("/sys/fs/btrfs/1234-5678/devices/sda1");
        tree.folder("/sys/fs/btrfs/1234-5678/devices/sdb1");
        tree.file("/sys/fs/btrfs/1234-5678/label", "pool\n");
        says(&tree, "sdb1", &["belongs to the mounted btrfs file system pool"]);
        says(&tree, "sdb", &["its partition sdb1 belongs to the mounted btrfs"]);
    }

    #[test]
    fn a_device_behind_a_loop_device_is_in_use_both_ways() {
        let tree = MadeUp::with_volumes();
        tree.block("virtual/block/loop0", "7:0", 50);
        tree.file("/sys/class/block/loop0/loop/backing_file", "/dev/sdb1\n");
        says(&tree, "sdb1", &["is the image of the loop device loop0"]);
        says(&tree, "sdb", &["its partition sdb1 is the image of"]);
        assert_eq!(why(&tree, "loop0"), None, "a backing device does not make a loop device used");
        tree.mount("8:17", "/under", "/dev/sdb1");
        says(&tree, "loop0", &["the underlying device sdb1 is mounted at /under"]);
    }

    #[test]
    fn an_image_attached_twice_is_shared() {
        let tree = MadeUp::new();
        tree.file("/home/image", "x");
        for minor in [0, 1] {
            tree.block(&format!("virtual/block/loop{minor}"), &format!("7:{minor}"), 1);
            tree.file(&format!("/sys/class/block/loop{minor}/loop/backing_file"), "/home/image\n");
        }
        says(&tree, "loop0", &["shares its image with the loop device loop1"]);
        let kernel = tree.kernel();
        let image = kernel.backing_at(Path::new("/home/image")).unwrap();
        assert!(of_file(&kernel, image).unwrap().contains("the image of the loop device loop0"));
    }

    #[test]
    fn a_swap_file_is_in_use_and_another_file_is_not() {
        let tree = MadeUp::new();
        tree.file("/swap file", "x");
        tree.file("/other", "x");
        tree.swap("/swap\\040file");
        let kernel = tree.kernel();
        let of = |path| of_file(&kernel, kernel.backing_at(Path::new(path)).unwrap());
        assert_eq!(of("/swap file").as_deref(), Some("is in use as swap"));
        assert_eq!(of("/other"), None);
    }

    #[test]
    fn a_cycle_of_holders_ends() {
        let tree = MadeUp::with_volumes();
        tree.holds("md0", "dm-0");
        says(&tree, "sda2", &["is held by md0"]);
    }
}
