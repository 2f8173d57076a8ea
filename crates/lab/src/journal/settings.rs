//! Journal entries of host settings. An entry contains what one run changed on one block device.
//!
//! An entry is durable before the first change and removed after the last change is undone. The
//! process that made the changes locks the entry's file while it lives, so that other processes
//! notice its end in every PID namespace. There is one entry per device.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::folder;

/// Prefix of the file names of settings entries.
const PREFIX: &str = "settings-";

/// The changes that a run made to the settings of one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Identity of the device.
    pub device: Identity,
    /// The changes, in the order in which they were made.
    pub changes: Vec<Change>,
    /// Process id of the process that made the changes.
    pub pid: u32,
    /// Boot id (`/proc/sys/kernel/random/boot_id`) of the machine when the process `pid` ran. After
    /// a reboot, another process may have the same process id.
    pub boot_id: String,
}

/// Identity of a block device. Two devices that have the same name at different times have
/// different identities.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Kernel name of the whole disk ("nvme0n1", "loop0").
    pub name: String,
    /// Device number, as major:minor.
    pub number: String,
    /// Serial number; None if unknown.
    pub serial: Option<String>,
    /// The kernel's sequence number of the disk (diskseq, since Linux 5.15); None if unknown.
    pub diskseq: Option<String>,
    /// Inode number of the device's `queue` folder in sysfs, which identifies the queue even if the
    /// medium changed; None if unknown.
    #[serde(default)]
    pub queue: Option<u64>,
}

/// A change of one setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Name of the setting below the device's `queue` folder ("scheduler").
    pub name: String,
    /// Path of the setting's file.
    pub path: PathBuf,
    /// The value before the change, which must be restored.
    pub old: String,
    /// The requested value. None if the setting was not requested and is recorded only because the
    /// kernel may reset it.
    pub wanted: Option<String>,
    /// Name of the requested setting whose change may make the kernel reset this setting; None if
    /// there is none.
    pub moved_by: Option<String>,
}

/// An entry on disk, locked by this process.
#[derive(Debug)]
pub struct Recorded {
    file: PathBuf,
    _lock: File,
}

/// An entry found on disk.
#[derive(Debug)]
pub struct Found {
    /// Content of the entry.
    pub entry: Entry,
    /// The entry's file with its lock, now held by this process. None while the owner lives and
    /// holds the lock.
    recorded: Option<Recorded>,
}

fn file_of(folder: &Path, device: &str) -> PathBuf {
    folder.join(format!("{PREFIX}{device}.json"))
}

impl Recorded {
    /// Writes an entry durably. It replaces an earlier entry of the same device.
    ///
    /// # Errors
    /// There is no state folder, or it cannot be written.
    pub fn write(entry: &Entry) -> io::Result<Recorded> {
        let none = || io::Error::other("neither XDG_STATE_HOME nor HOME names a folder");
        let folder = folder().ok_or_else(none)?;
        fs::create_dir_all(&folder)?;
        let file = file_of(&folder, &entry.device.name);
        // The file is locked, complete and durable before it gets its final name.
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

    /// Returns the entry if its owner is dead, so that the caller can undo the changes. Returns
    /// None while the owner lives.
    pub fn of_dead_owner(self) -> Option<(Entry, Recorded)> {
        Some((self.entry, self.recorded?))
    }

    /// Returns true if the owner of the entry lives.
    pub fn is_in_use(&self) -> bool {
        self.recorded.is_none()
    }
}

/// Returns the entry of a device, given its kernel name.
pub fn of(device: &str) -> Option<Found> {
    Found::at(&file_of(&folder()?, device))
}

/// Returns all entries of settings, sorted by the names of their devices.
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
