//! Finds the block device that stores a file. If file systems are stacked (overlay, a FUSE mirror),
//! the search returns the device of the lowest file system. If a file system has several devices,
//! the result is None, because the counters of one device would show only a part of the I/O.

use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::device::Device;
use crate::mount::{self, Mount};

/// Returns the block device that stores the file at a path. None if it is unknown.
pub fn device_of(path: &Path) -> Option<Device> {
    let number = std::fs::metadata(path).ok()?.st_dev();
    let number = (libc::major(number), libc::minor(number));
    let full = path.canonicalize().ok()?;
    Device::of(number).or_else(|| device_beneath(&mount::of_data(&full, number)?))
}

pub(super) fn device_beneath(mount: &Mount) -> Option<Device> {
    Device::of(mount.device).or_else(|| source_device(mount))
}

/// Returns the block device that is named in the mount table. btrfs needs this, because the device
/// number of its files belongs to no block device. None if there is no such block device, or if
/// the mount is a btrfs with several devices.
fn source_device(mount: &Mount) -> Option<Device> {
    if mount.file_system == "btrfs" && btrfs_devices(&mount.source) > 1 {
        return None;
    }
    let metadata = std::fs::metadata(&mount.source).ok()?;
    let number = metadata.st_rdev();
    metadata
        .file_type()
        .is_block_device()
        .then(|| Device::of((libc::major(number), libc::minor(number))))?
}

/// Returns the number of devices of the btrfs file system that is mounted from `source`.
fn btrfs_devices(source: &str) -> usize {
    let name = Path::new(source).file_name().unwrap_or_default();
    let systems = std::fs::read_dir("/sys/fs/btrfs").into_iter().flatten().flatten();
    let devices = |folder: PathBuf| std::fs::read_dir(folder.join("devices")).ok();
    let mine = systems.map(|system| system.path()).find(|f| f.join("devices").join(name).exists());
    mine.and_then(devices).map_or(1, Iterator::count)
}

/// Returns true if a mount is tmpfs or ramfs, which accept O_DIRECT although it has no effect on
/// them.
pub(super) fn is_in_memory(mount: Option<&Mount>) -> bool {
    mount.is_some_and(|m| matches!(m.file_system.as_str(), "tmpfs" | "ramfs"))
}
