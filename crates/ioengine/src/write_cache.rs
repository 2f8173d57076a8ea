//! Reads and switches the volatile write cache of a drive.
//!
//! SCSI and ATA disks have the sysfs file `cache_type`. If it is written, the kernel sends MODE
//! SELECT or SET FEATURES to the disk. Virtio disks also have `cache_type`, which is writable if
//! the host allows the change. NVMe drives have feature 06h. The sysfs file `queue/write_cache` is
//! not used. It changes only whether the kernel sends flushes, and not the drive's cache.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::nvme_ioctl;

/// The cache state "write back": a write may complete before the data is on the medium.
pub const BACK: &str = "write back";
/// The cache state "write through": a write completes only when the data is on the medium.
pub const THROUGH: &str = "write through";
/// Identifier of the NVMe feature Volatile Write Cache (06h).
const NVME_FEATURE: u8 = 0x06;
/// Bit of the NVMe feature Volatile Write Cache that enables the cache.
const NVME_ENABLED: u32 = 1;

/// The control through which the write cache is queried and switched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Means {
    /// The sysfs file of a SCSI disk, or of an ATA disk behind libata.
    Scsi(PathBuf),
    /// The sysfs file of a virtio disk.
    Guest(PathBuf),
    /// The device node of an NVMe drive, which accepts admin commands.
    Nvme(PathBuf),
}

impl Means {
    /// Finds the control of a disk's write cache. `disk` is the sysfs directory of the whole disk.
    /// Returns None if the disk has no control.
    pub fn of(disk: &Path) -> Option<Means> {
        let name = disk.file_name()?.to_string_lossy().into_owned();
        if name.starts_with("nvme") {
            return Some(Means::Nvme(Path::new("/dev").join(name)));
        }
        let guest = disk.join("cache_type");
        if guest.exists() {
            return Some(Means::Guest(guest));
        }
        let scsi = fs::read_dir(disk.join("device/scsi_disk")).into_iter().flatten().flatten();
        let mut files = scsi.map(|entry| entry.path().join("cache_type"));
        files.find(|file| file.exists()).map(Means::Scsi)
    }

    /// Returns the path of the control's sysfs file or device node.
    pub fn path(&self) -> &Path {
        match self {
            Means::Scsi(path) | Means::Guest(path) | Means::Nvme(path) => path,
        }
    }

    /// Returns a description of the control for messages.
    pub fn words(&self) -> &'static str {
        match self {
            Means::Scsi(_) => "the caching mode page of the drive (SCSI, ATA)",
            Means::Guest(_) => "the virtual disk that the host provides (virtio)",
            Means::Nvme(_) => "the drive's feature Volatile Write Cache (NVMe, 06h)",
        }
    }

    /// Returns the state of the cache: [`BACK`], [`THROUGH`] or another word from the driver.
    ///
    /// # Errors
    /// If the drive or the system does not report the state.
    pub fn state(&self) -> io::Result<String> {
        state_at(self.path())
    }

    /// Returns why the cache cannot be switched, or None if an attempt may succeed.
    pub fn fixed(&self) -> Option<&'static str> {
        let Means::Guest(file) = self else { return None };
        let mode = fs::metadata(file).ok()?.permissions().mode();
        (mode & 0o222 == 0).then_some(
            "the host of this guest does not let the guest change the cache mode (virtio without \
             CONFIG_WCE); change the cache mode on the host",
        )
    }
}

/// Returns the state of a cache. `path` is the path of the cache's control ([`Means::path`]).
///
/// # Errors
/// If the drive or the system does not report the state.
pub fn state_at(path: &Path) -> io::Result<String> {
    if !path.starts_with("/dev") {
        return Ok(fs::read_to_string(path)?.trim().to_owned());
    }
    let enabled = nvme_ioctl::feature(&File::open(path)?, NVME_FEATURE, None)? & NVME_ENABLED != 0;
    Ok(if enabled { BACK } else { THROUGH }.to_owned())
}

/// Sets the state of a cache. `path` is the path of the cache's control ([`Means::path`]).
///
/// # Errors
/// If the drive or the system does not allow the change.
pub fn set_at(path: &Path, state: &str) -> io::Result<()> {
    if !path.starts_with("/dev") {
        return OpenOptions::new().write(true).open(path)?.write_all(state.as_bytes());
    }
    let value = if state == BACK { NVME_ENABLED } else { 0 };
    nvme_ioctl::feature(&File::open(path)?, NVME_FEATURE, Some(value)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(disk: &Path, name: &str, text: &str) -> PathBuf {
        let path = disk.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn a_scsi_disk_is_asked_and_set_through_its_caching_page() {
        let disk = tempfile::tempdir().unwrap();
        let path = file(disk.path(), "device/scsi_disk/2:0:0:0/cache_type", "write back\n");
        let means = Means::of(disk.path()).unwrap();
        assert_eq!(means, Means::Scsi(path.clone()));
        assert_eq!(means.state().unwrap(), BACK);
        set_at(&path, THROUGH).unwrap();
        assert!(means.state().unwrap().starts_with(THROUGH));
    }

    #[test]
    fn a_virtio_disk_reports_that_its_host_fixes_the_mode() {
        let disk = tempfile::tempdir().unwrap();
        let path = file(disk.path(), "cache_type", "write through\n");
        let means = Means::of(disk.path()).unwrap();
        assert_eq!((means.state().unwrap().as_str(), means.fixed()), (THROUGH, None));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
        assert!(means.fixed().unwrap().contains("; change the cache mode on the host"));
    }

    #[test]
    fn queue_write_cache_is_not_a_control_of_the_drive() {
        let disk = tempfile::tempdir().unwrap();
        file(disk.path(), "queue/write_cache", "write back\n");
        assert_eq!(Means::of(disk.path()), None);
    }

    #[test]
    fn a_file_that_is_no_nvme_drive_is_not_taken_for_one() {
        assert!(state_at(Path::new("/dev/null")).is_err());
    }
}
