//! The journal of the changes that halfpower makes on the host: test files, mounts and, in the
//! module `settings`, settings of block devices.
//!
//! An entry is written before a change is made, and removed after the change was undone. If a run
//! is killed, its entries remain, and `halfpower clean` and `halfpower restore` undo the changes.
//! Each entry is a JSON file in `$XDG_STATE_HOME/halfpower/journal`. The default of
//! `$XDG_STATE_HOME` is `~/.local/state`.
//!
//! A test file is removed only if its inode number matches the entry and the process that created
//! the file has ended. That process holds a lock (flock) on the file, because a lock is visible in
//! all PID namespaces and a process id is not. A mount is removed only if it belongs to halfpower
//! and its server process has ended.

pub mod settings;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ioengine::mount::Mount;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::console;
use crate::machine;

/// File name extension of journal entries for mounts.
const MOUNT: &str = "mount";

/// A journal entry for a test file or a mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Absolute path of the test file or mount point.
    #[serde(serialize_with = "write_path", deserialize_with = "read_path")]
    pub path: PathBuf,
    /// Device number and inode number of the file. None before the file exists, and for a mount.
    pub identity: Option<(u64, u64)>,
    /// Process id of the run that created the file or mount point.
    pub pid: u32,
    /// Boot id (`/proc/sys/kernel/random/boot_id`) when the process `pid` ran. It differs after a
    /// reboot, when another process may have the same process id.
    pub boot_id: String,
    /// Whether the process `pid` locked the file for as long as the process ran. False if the file
    /// system does not support locks.
    #[serde(default)]
    pub locked: bool,
}

/// Writes a path to JSON: as a string if it is UTF-8, otherwise as an array of bytes.
fn write_path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    match path.to_str() {
        Some(text) => text.serialize(serializer),
        None => path.as_os_str().as_bytes().serialize(serializer),
    }
}

fn read_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Text(PathBuf),
        Bytes(Vec<u8>),
    }
    Ok(match Written::deserialize(deserializer)? {
        Written::Text(path) => path,
        Written::Bytes(bytes) => OsString::from_vec(bytes).into(),
    })
}

/// A journal entry that this process wrote to disk.
#[derive(Debug)]
pub struct Recorded {
    file: Option<PathBuf>,
    entry: Entry,
}

/// State of a test file or mount that has a journal entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stray {
    /// The process that created the file or mount is still running.
    InUse,
    /// The file or mount remains from a killed run and may be removed.
    Removable,
    /// The file is not found, and its file system is not mounted now. The file may still exist.
    Away,
    /// The file or mount does not exist any more, or another file has the same path.
    Gone,
}

fn folder() -> Option<PathBuf> {
    Some(state_folder()?.join("journal"))
}

/// Returns the folder for records of unfinished copies. Returns None if neither `XDG_STATE_HOME`
/// nor `HOME` is set.
pub fn copies_folder() -> Option<PathBuf> {
    Some(state_folder()?.join("copies"))
}

fn state_folder() -> Option<PathBuf> {
    let from_home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state"));
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    Some(state.or_else(from_home)?.join("halfpower"))
}

impl Recorded {
    /// Writes the entry for a test file before the file is created. The entry is durable, so even
    /// after a power failure, each test file has an entry. If the entry cannot be written, an error
    /// is printed.
    pub fn about_to_make(path: &Path) -> Recorded {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Recorded::new(
            path,
            &format!("{name}.json"),
            "if this process is killed, remove halfpower-*.test by hand",
        )
    }

    /// Writes the entry for a mount before `folder` is mounted. The path must be absolute.
    pub fn about_to_mount(folder: &Path) -> Recorded {
        let name = format!("{}-{}.{MOUNT}", std::process::id(), ioengine::clock::unix_ns());
        Recorded::new(
            folder,
            &name,
            "if this process is killed, unmount DIR by hand: fusermount3 -u DIR",
        )
    }

    fn new(path: &Path, name: &str, by_hand: &str) -> Recorded {
        let entry = Entry {
            path: path.to_path_buf(),
            identity: None,
            pid: std::process::id(),
            boot_id: machine::boot_id(),
            locked: false,
        };
        let file = folder().map(|folder| folder.join(name));
        let recorded = Recorded { file, entry };
        if let Err(error) = recorded.write() {
            // If too many files are open, the run soon fails for the same reason and prints an
            // error. No error is printed here.
            if error.raw_os_error() != Some(libc::EMFILE) {
                let cause = ioengine::error::cause(&error);
                console::error(&format!(
                    "cannot write the journal ({cause}): {by_hand}; set XDG_STATE_HOME to a \
                     writable folder"
                ));
            }
        }
        recorded
    }

    /// Completes the entry after the file was created. `locked` is true if this process locked the
    /// file.
    pub fn made(&mut self, metadata: &fs::Metadata, locked: bool) {
        self.entry.identity = Some((metadata.dev(), metadata.ino()));
        self.entry.locked = locked;
        // If this fails, the entry on disk still contains the path of the file.
        let _ = self.write();
    }

    fn write(&self) -> io::Result<()> {
        let Some(file) = &self.file else {
            return Err(io::Error::other("neither XDG_STATE_HOME nor HOME is set to a folder"));
        };
        let folder = file.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder)?;
        // The file is renamed only when it is complete, so that no process reads a partial entry.
        let half = file.with_extension("tmp");
        let mut written = fs::File::create(&half)?;
        written.write_all(serde_json::to_string(&self.entry)?.as_bytes())?;
        written.sync_all()?;
        fs::rename(&half, file)?;
        fs::File::open(folder)?.sync_all()
    }

    /// Removes the entry. Must be called only after the recorded file or mount was removed.
    pub fn undone(&self) {
        if let Some(file) = &self.file {
            let _ = fs::remove_file(file);
        }
    }
}

/// Returns all entries for test files, each with the path of the entry.
pub fn entries() -> Vec<(PathBuf, Entry)> {
    entries_of("json")
}

/// Returns all entries for mounts, each with the path of the entry.
pub fn mounts() -> Vec<(PathBuf, Entry)> {
    entries_of(MOUNT)
}

fn entries_of(extension: &str) -> Vec<(PathBuf, Entry)> {
    let files = folder().and_then(|folder| fs::read_dir(folder).ok());
    let read = |path: PathBuf| {
        let entry = parse(&fs::read(&path).ok()?)?;
        Some((path, entry))
    };
    let is_entry = |path: &PathBuf| path.extension().is_some_and(|e| e == extension);
    files
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path())
        .filter(is_entry)
        .filter_map(read)
        .collect()
}

/// Parses an entry. Returns None if the entry is invalid.
pub fn parse(json: &[u8]) -> Option<Entry> {
    serde_json::from_slice(json).ok()
}

/// Returns the state of a recorded test file.
pub fn state_of(entry: &Entry) -> Stray {
    if !entry.locked && machine::is_alive(entry.pid, &entry.boot_id) {
        return Stray::InUse;
    }
    let ours = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("halfpower-") && name.ends_with(".test")
    };
    match fs::symlink_metadata(&entry.path) {
        Ok(now) if now.is_file() && ours(&entry.path) => match entry.identity {
            // Only the inode number is compared, because the device number may change when the file
            // system is mounted again.
            Some((_, inode)) if inode != now.ino() => Stray::Gone,
            // The process was killed before it recorded the inode number. At that time the test
            // file was empty, so a file with data may be another file.
            None if now.len() > 0 => Stray::Gone,
            _ if is_held(&entry.path) => Stray::InUse,
            _ => Stray::Removable,
        },
        Err(_) if is_away(&entry.path, entry.identity) => Stray::Away,
        _ => Stray::Gone,
    }
}

/// Returns the state of a recorded FUSE mount. Reading the mount fails with ENOTCONN if the server
/// process has ended, also if that process was in another PID namespace.
pub fn state_of_mount(entry: &Entry) -> Stray {
    if machine::is_alive(entry.pid, &entry.boot_id) {
        return Stray::InUse;
    }
    let ours = |mount: &Mount| mount.mount_point == entry.path && mount.source == fusefile::SOURCE;
    if !ioengine::mount::all().iter().any(ours) {
        return Stray::Gone;
    }
    let is_dead = |error: io::Error| error.raw_os_error() == Some(libc::ENOTCONN);
    if fs::read_dir(&entry.path).is_err_and(is_dead) { Stray::Removable } else { Stray::InUse }
}

/// Returns true if a process has locked a file. Returns false if this cannot be determined.
fn is_held(path: &Path) -> bool {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = fs::OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    file.is_ok_and(|file| matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock)))
}

/// Returns true if a missing file may still exist on a file system that is not mounted now. This is
/// so if the file was on a block device and its folder is now on another device.
pub fn is_away(path: &Path, identity: Option<(u64, u64)>) -> bool {
    // A file system without a block device, such as tmpfs, has major number 0. Its files are
    // usually lost when it is unmounted.
    let Some((device, _)) = identity.filter(|(device, _)| libc::major(*device) != 0) else {
        return false;
    };
    let folder = path.ancestors().skip(1).find_map(|folder| fs::metadata(folder).ok());
    folder.is_some_and(|folder| folder.dev() != device)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &Path, identity: Option<(u64, u64)>) -> Entry {
        let (path, boot_id) = (path.to_path_buf(), "an earlier boot".into());
        Entry { path, identity, pid: 1, boot_id, locked: false }
    }

    #[test]
    fn only_the_recorded_file_is_removable() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("halfpower-1.test");
        fs::write(&path, "x").unwrap();
        let metadata = fs::metadata(&path).unwrap();
        let same = Some((metadata.dev(), metadata.ino()));
        assert_eq!(state_of(&entry(&path, same)), Stray::Removable);
        let other = Some((metadata.dev(), metadata.ino() + 1));
        assert_eq!(state_of(&entry(&path, other)), Stray::Gone);
        assert_eq!(state_of(&entry(&path, None)), Stray::Gone);
        assert_eq!(state_of(&entry(&folder.path().join("none"), same)), Stray::Gone);
    }

    #[test]
    fn a_path_that_is_not_utf8_is_recorded_too() {
        for bytes in [&b"/data/x"[..], b"/data/\xff/x"] {
            let path = PathBuf::from(OsString::from_vec(bytes.to_vec()));
            let made = entry(&path, Some((1, 2)));
            assert_eq!(parse(&serde_json::to_vec(&made).unwrap()), Some(made));
        }
    }

    #[test]
    fn a_file_on_a_device_that_is_not_mounted_is_not_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sub/halfpower-3.test");
        let here = fs::metadata(folder.path()).unwrap().dev();
        let elsewhere = libc::makedev(250, 77);
        assert_eq!(state_of(&entry(&path, Some((elsewhere, 5)))), Stray::Away);
        assert_eq!(state_of(&entry(&path, Some((here, 5)))), Stray::Gone);
        assert_eq!(state_of(&entry(&path, Some((libc::makedev(0, 77), 5)))), Stray::Gone);
    }

    #[test]
    fn a_file_without_the_name_of_a_test_file_is_never_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        fs::write(&path, "x").unwrap();
        let metadata = fs::metadata(&path).unwrap();
        let same = Some((metadata.dev(), metadata.ino()));
        assert_eq!(state_of(&entry(&path, same)), Stray::Gone);
    }

    #[test]
    fn a_file_is_kept_exactly_as_long_as_a_process_locks_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("halfpower-3.test");
        let file = fs::File::create_new(&path).unwrap();
        let metadata = file.metadata().unwrap();
        let mut locked = entry(&path, Some((metadata.dev(), metadata.ino())));
        locked.locked = true;
        file.lock().unwrap();
        assert_eq!(state_of(&locked), Stray::InUse);
        drop(file);
        assert_eq!(state_of(&locked), Stray::Removable);
        // This process id belongs to a running process. However, only the lock counts if the file
        // was locked.
        (locked.pid, locked.boot_id) = (std::process::id(), machine::boot_id());
        assert_eq!(state_of(&locked), Stray::Removable);
    }

    #[test]
    fn an_entry_of_an_earlier_version_is_read() {
        let text = r#"{"path":"/x","identity":null,"pid":1,"boot_id":"b"}"#;
        assert!(!serde_json::from_str::<Entry>(text).unwrap().locked);
    }

    #[test]
    fn the_file_of_a_living_process_is_not_removable() {
        let folder = tempfile::tempdir().unwrap();
        let mut mine = entry(&folder.path().join("halfpower-2.test"), None);
        mine.pid = std::process::id();
        mine.boot_id = machine::boot_id();
        assert_eq!(state_of(&mine), Stray::InUse);
    }
}
