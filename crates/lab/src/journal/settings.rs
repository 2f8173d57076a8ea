//! Journal entries for changed settings of block devices, with one entry for each device.
//!
//! An entry is durable before the first setting is changed, and removed after all changes were
//! undone. The process that makes the changes locks the file of the entry until the process ends.
//! Other processes can see from the lock whether it still runs, even in another PID namespace.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::folder;

const PREFIX: &str = "settings-";

/// The settings that a run changed on one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The device.
    pub device: Identity,
    /// The changes in the order in which they were made.
    pub changes: Vec<Change>,
    /// Id of the process that made the changes.
    pub pid: u32,
    /// Boot id (`/proc/sys/kernel/random/boot_id`) when the process `pid` ran. It differs after a
    /// reboot, when another process may have the same process id.
    pub boot_id: String,
}

/// Identity of a block device. If another device gets the same name later, for example `sda`, the
/// identities differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Kernel name of the whole disk, such as "nvme0n1" or "loop0".
    pub name: String,
    /// Device number as "major:minor", such as "259:0".
    pub number: String,
    /// Serial number; None if unknown.
    pub serial: Option<String>,
    /// Number that the kernel never gives to another disk (`diskseq`, since Linux 5.15); None if
    /// unknown.
    pub diskseq: Option<String>,
    /// Inode number of the device's `queue` folder in sysfs, which stays the same if the medium is
    /// changed; None if unknown.
    #[serde(default)]
    pub queue: Option<u64>,
}

/// A change of one setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Name of the setting, such as "scheduler" or "nr_requests".
    pub name: String,
    /// Path of the file that contains the setting.
    pub path: PathBuf,
    /// The value before the change. It must be restored.
    pub old: String,
    /// The value that the user requested. None if the user did not request this setting. In that
    /// case the change is recorded because the kernel may reset this setting when a requested
    /// setting changes.
    pub wanted: Option<String>,
    /// Name of the requested setting whose change makes the kernel reset this setting; None if
    /// there is no such requested setting.
    pub moved_by: Option<String>,
}

/// An entry whose file is locked by this process.
#[derive(Debug)]
pub struct Recorded {
    file: PathBuf,
    _lock: File,
}

/// An entry that was read from disk.
#[derive(Debug)]
pub struct Found {
    /// Content of the entry.
    pub entry: Entry,
    /// The lock on the entry. None if the process that made the changes still runs, because that
    /// process then holds the lock.
    recorded: Option<Recorded>,
}

fn file_of(folder: &Path, device: &str) -> PathBuf {
    folder.join(format!("{PREFIX}{device}.json"))
}

impl Recorded {
    /// Writes an entry and makes it durable. Replaces an earlier entry for the same device.
    ///
    /// # Errors
    /// There is no state folder, or it cannot be written.
    pub fn write(entry: &Entry) -> io::Result<Recorded> {
        let none = || io::Error::other("neither XDG_STATE_HOME nor HOME is set to a folder");
        let folder = folder().ok_or_else(none)?;
        fs::create_dir_all(&folder)?;
        let file = file_of(&folder, &entry.device.name);
        // The file gets its final name only when it is locked, complete and durable.
        let half = file.with_extension("tmp");
        let mut options = OpenOptions::new();
        let mut lock = options.write(true).create(true).truncate(true).mode(0o600).open(&half)?;
        lock.lock()?;
        lock.write_all(serde_json::to_string(entry)?.as_bytes())?;
        lock.sync_all()?;
        fs::rename(&half, &file)?;
        File::open(&folder)?.sync_all()?;
        Ok(Recorded { file, _lock: lock })
    }

    /// Returns the path of the entry's file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Removes the entry. Must be called only after all changes were undone.
    pub fn undone(self) {
        let _ = fs::remove_file(&self.file);
    }
}

impl Found {
    fn at(file: &Path) -> Option<Found> {
        let open = File::open(file).ok()?;
        let entry = serde_json::from_reader(&open).ok()?;
        let recorded = match open.try_lock() {
            Err(TryLockError::WouldBlock) => None,
            _ => Some(Recorded { file: file.to_path_buf(), _lock: open }),
        };
        Some(Found { entry, recorded })
    }

    /// Returns the entry if the process that made the changes has ended, so that the caller can
    /// undo the changes. Otherwise returns None.
    pub fn of_dead_owner(self) -> Option<(Entry, Recorded)> {
        Some((self.entry, self.recorded?))
    }

    /// Returns true if the process that made the changes still runs.
    pub fn is_in_use(&self) -> bool {
        self.recorded.is_none()
    }
}

/// Returns the entry for a device, given its kernel name such as "sda".
pub fn of(device: &str) -> Option<Found> {
    Found::at(&file_of(&folder()?, device))
}

/// Returns all entries for settings, sorted by device name.
pub fn all() -> Vec<Found> {
    let files = folder().and_then(|folder| fs::read_dir(folder).ok());
    let ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with(PREFIX) && name.ends_with(".json")
    };
    let mut files: Vec<PathBuf> =
        files.into_iter().flatten().flatten().map(|entry| entry.path()).filter(ours).collect();
    files.sort();
    files.iter().filter_map(|file| Found::at(file)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        let device = Identity {
            name: "loop9".into(),
            number: "7:9".into(),
            serial: None,
            diskseq: Some("12".into()),
            queue: Some(7),
        };
        Entry { device, changes: Vec::new(), pid: 1, boot_id: "a boot".into() }
    }

    #[test]
    fn an_entry_is_in_use_as_long_as_its_lock_is_held() {
        let folder = tempfile::tempdir().unwrap();
        let file = file_of(folder.path(), "loop9");
        fs::write(&file, serde_json::to_string(&entry()).unwrap()).unwrap();
        let lock = File::open(&file).unwrap();
        lock.lock().unwrap();
        assert!(Found::at(&file).unwrap().is_in_use());
        drop(lock);
        let (found, recorded) = Found::at(&file).unwrap().of_dead_owner().unwrap();
        assert_eq!(found, entry());
        recorded.undone();
        assert!(!file.exists());
    }

    #[test]
    fn an_entry_of_a_test_file_is_not_one_of_settings() {
        let folder = tempfile::tempdir().unwrap();
        let file = file_of(folder.path(), "x");
        fs::write(&file, r#"{"path":"/x","identity":null,"pid":1,"boot_id":"b"}"#).unwrap();
        assert!(Found::at(&file).is_none());
    }
}
