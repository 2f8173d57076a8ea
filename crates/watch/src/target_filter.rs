//! Finds the file systems and devices that belong to a target: a file system and the disks that
//! store it, or a block device and the file systems on it.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use calltrace::Filter;
use calltrace::filter::device_number;
use ioengine::device::Device;
use ioengine::mount;

/// Maximum number of levels of stacked devices, such as LVM on RAID. Real stacks have fewer.
const LEVELS_MAX: usize = 16;

/// Returns the filter for a target, and a name for the target. For a file or directory, the filter
/// contains its file system and the devices that store it. For a block device, the filter contains
/// the device with its partitions, volumes and file systems.
///
/// # Errors
/// The path does not exist, cannot be looked up, or is not a file, directory or block device.
pub fn of(path: &Path) -> io::Result<(Filter, String)> {
    let path = fs::canonicalize(path)?;
    let metadata = fs::metadata(&path)?;
    let kind = metadata.file_type();
    if kind.is_block_device() {
        let device = numbers(metadata.rdev());
        let is_on = |mount: &mount::Mount| chain(mount_device(mount)).contains(&device);
        let mounts = mount::all().into_iter().filter(is_on);
        let file_systems = mounts.map(|mount| device_number(mount.device)).collect();
        let mut devices = chain(Some(device));
        devices.extend(above(Device::of(device)));
        let devices = devices.into_iter().map(device_number).collect();
        return Ok((Filter { file_systems, devices }, path.display().to_string()));
    }
    if !kind.is_dir() && !kind.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let device = numbers(metadata.dev());
    let mount = mount::of(&path, device);
    // stat returns a separate device number for a btrfs subvolume, but the kernel records the
    // number of the file system.
    let file_system = mount.as_ref().map_or(device, |mount| mount.device);
    let below = mount.as_ref().and_then(mount_device);
    let devices = chain(below).into_iter().map(device_number).collect();
    let name = mount.map_or(path, |mount| mount.mount_point);
    let name = format!("the file system {}", name.display());
    Ok((Filter { file_systems: vec![device_number(file_system)], devices }, name))
}

/// Returns the block device of a mount. None if the mount has no block device.
fn mount_device(mount: &mount::Mount) -> Option<(u32, u32)> {
    let of_source = || {
        let metadata = fs::metadata(&mount.source).ok()?;
        metadata.file_type().is_block_device().then(|| numbers(metadata.rdev()))
    };
    if Device::of(mount.device).is_some() { Some(mount.device) } else { of_source() }
}

/// Returns a device and all devices below it, such as the disk of a partition or the disks of a
/// RAID.
fn chain(device: Option<(u32, u32)>) -> Vec<(u32, u32)> {
    let mut found: Vec<(u32, u32)> = device.into_iter().collect();
    let mut level: Vec<Device> = device.and_then(Device::of).into_iter().collect();
    for _ in 0..LEVELS_MAX {
        let whole = level.iter().filter_map(Device::whole);
        let below: Vec<Device> = level.iter().flat_map(Device::slaves).chain(whole).collect();
        if below.is_empty() {
            break;
        }
        found.extend(below.iter().filter_map(Device::number));
        level = below;
    }
    found
}

/// Returns all devices above a device, such as its partitions and the LVM volumes on them.
fn above(device: Option<Device>) -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    let mut level: Vec<Device> = device.into_iter().collect();
    for _ in 0..LEVELS_MAX {
        let holders = level.iter().flat_map(Device::holders);
        level = level.iter().flat_map(Device::partitions).chain(holders).collect();
        found.extend(level.iter().filter_map(Device::number));
    }
    found
}

fn numbers(device: u64) -> (u32, u32) {
    (rustix::fs::major(device), rustix::fs::minor(device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_stands_for_its_file_system() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        let (filter, name) = of(&path).unwrap();
        let device = numbers(fs::metadata(&path).unwrap().dev());
        let mount = mount::of(&path, device).unwrap();
        assert_eq!(filter.file_systems, [device_number(mount.device)]);
        assert_eq!(name, format!("the file system {}", mount.mount_point.display()));
        let has_disk = fs::metadata(&mount.source).is_ok_and(|of| of.file_type().is_block_device());
        assert_eq!(filter.devices.is_empty(), !has_disk, "{mount:?}");
    }

    #[test]
    fn what_is_no_storage_is_an_error() {
        assert!(of(Path::new("/nowhere/at/all")).is_err());
        assert!(of(Path::new("/dev/null")).is_err(), "no storage");
    }
}
