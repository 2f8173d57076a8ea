//! The journal of what halfpower changed on the host: test files and mounts here, settings of
//! block devices in `settings`.
//!
//! An entry is written before the change and removed after it is undone, so that
//! `halfpower clean` and `halfpower restore` find what a killed run left behind. An entry is one
//! small JSON file in `$XDG_STATE_HOME/halfpower/journal` (`~/.local/state` by default). A file is
//! removed only if its inode is the one that was recorded, and its owner is gone: an owner holds a
//! lock (flock) on its test file for life, which is seen from every namespace of processes, unlike
//! its number. A mount is taken away only if it is one of ours and nobody serves it any more.

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

/// How the name of a mount's entry ends.
const MOUNT: &str = "mount";

/// One test file, or the folder of one mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Absolute path.
    #[serde(serialize_with = "write_path", deserialize_with = "read_path")]
    pub path: PathBuf,
    /// Device number of its file system, and its inode, once it exists.
    pub identity: Option<(u64, u64)>,
    /// The process that made it.
    pub pid: u32,
    /// The boot in which that process ran.
    pub boot_id: String,
    /// Whether that process holds a lock on the file for as long as it lives: not every file
    /// system offers locks.
    #[serde(default)]
    pub locked: bool,
}

/// A path as JSON: text where it is some, else its bytes.
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

/// An entry that is on disk.
#[derive(Debug)]
pub struct Recorded {
    file: Option<PathBuf>,
    entry: Entry,
}

/// What can be done about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stray {
    /// Its process is still at work.
    InUse,
    /// The file is there and is the one that was recorded.
    Removable,
    /// The file system that it lies on is not there now, so that nobody knows.
    Away,
    /// There is nothing to remove, or something else lies there now.
    Gone,
}

fn folder() -> Option<PathBuf> {
    Some(state_folder()?.join("journal"))
}

/// Where copies remember what they began and did not finish.
pub fn copies_folder() -> Option<PathBuf> {
    Some(state_folder()?.join("copies"))
}

fn state_folder() -> Option<PathBuf> {
    let from_home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state"));
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    Some(state.or_else(from_home)?.join("halfpower"))
}

impl Recorded {
    /// Notes that a test file is about to be made, durably: a power failure must not leave the
    /// file without its entry. Without a writable state folder nothing is recorded, which is said.
    pub fn about_to_make(path: &Path) -> Recorded {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Recorded::new(path, &format!("{name}.json"), "after a kill remove halfpower-*.test by hand")
    }

    /// Notes that a file system is about to be mounted on a folder (absolute path).
    pub fn about_to_mount(folder: &Path) -> Recorded {
        let name = format!("{}-{}.{MOUNT}", std::process::id(), ioengine::clock::unix_ns());
        Recorded::new(folder, &name, "after a kill unmount by hand (fusermount3 -u DIR)")
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
            // Out of open files, the run fails in a moment and says so itself.
            if error.raw_os_error() != Some(libc::EMFILE) {
                let cause = ioengine::error::cause(&error);
                console::error(&format!(
                    "what is made cannot be journalled ({cause}): {by_hand}; set XDG_STATE_HOME to \
                     a folder that can be written"
                ));
            }
        }
        recorded
    }

    /// Notes which file it became, and whether this process holds a lock on it.
    pub fn made(&mut self, metadata: &fs::Metadata, locked: bool) {
        self.entry.identity = Some((metadata.dev(), metadata.ino()));
        self.entry.locked = locked;
        // What was recorded before it was made suffices to find it.
        let _ = self.write();
    }

    fn write(&self) -> io::Result<()> {
        let Some(file) = &self.file else {
            return Err(io::Error::other("neither XDG_STATE_HOME nor HOME names a folder"));
        };
        let folder = file.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder)?;
        // Written beside and renamed, so that a reader never sees half an entry.
        let half = file.with_extension("tmp");
        let mut written = fs::File::create(&half)?;
        written.write_all(serde_json::to_string(&self.entry)?.as_bytes())?;
        written.sync_all()?;
        fs::rename(&half, file)?;
        fs::File::open(folder)?.sync_all()
    }

    /// Forgets the entry: the file is gone.
    pub fn undone(&self) {
        if let Some(file) = &self.file {
            let _ = fs::remove_file(file);
        }
    }
}

/// All entries of test files on disk.
pub fn entries() -> Vec<(PathBuf, Entry)> {
    entries_of("json")
}

/// All entries of mounts on disk.
pub fn mounts() -> Vec<(PathBuf, Entry)> {
    entries_of(MOUNT)
}

fn entries_of(extension: &str) -> Vec<(PathBuf, Entry)> {
    let files = folder().and_then(|folder| fs::read_dir(folder).ok());
    let read = |path: PathBuf| {
        let entry = parse(&fs::read(&path).ok()?)?;
        Some((path, entry))
    };
    let its = |path: &PathBuf| path.extension().is_some_and(|e| e == extension);
    files.into_iter().flatten().flatten().map(|e| e.path()).filter(its).filter_map(read).collect()
}

/// An entry as it is on disk.
pub fn parse(json: &[u8]) -> Option<Entry> {
    serde_json::from_slice(json).ok()
}

/// What has become of an entry.
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
            // Device numbers may change with every mount; inode and unique name do not.
            Some((_, inode)) if inode != now.ino() => Stray::Gone,
            // Killed between making the file and noting its inode: only an empty one is ours
            // beyond doubt.
            None if now.len() > 0 => Stray::Gone,
            _ if is_held(&entry.path) => Stray::InUse,
            _ => Stray::Removable,
        },
        Err(_) if is_away(&entry.path, entry.identity) => Stray::Away,
        _ => Stray::Gone,
    }
}

/// What has become of the entry of a mount. One that is dead says so to whoever looks into it; one
/// that is served answers, also where its server's number means another process.
pub fn state_of_mount(entry: &Entry) -> Stray {
    if machine::is_alive(entry.pid, &entry.boot_id) {
        return Stray::InUse;
    }
    let ours = |mount: &Mount| mount.mount_point == entry.path && mount.source == fusefile::SOURCE;
    if !ioengine::mount::all().iter().any(ours) {
        return Stray::Gone;
    }
    let is_dead = |error: io::Error| error.raw_os_error() == Some(libc::ENOTCONN);
    match fs::read_dir(&entry.path).is_err_and(is_dead) {
        true => Stray::Removable,
        false => Stray::InUse,
    }
}

/// Whether somebody holds the lock on a file. Without locks there, or without the right to look,
/// nobody is seen to.
fn is_held(path: &Path) -> bool {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = fs::OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    file.is_ok_and(|file| matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock)))
}

/// Whether a file that is not found may still exist: it lay on a block device, and the folder
/// where it should be lies on another one now, as after an unmount.
pub fn is_away(path: &Path, identity: Option<(u64, u64)>) -> bool {
    // Without a block device (major number 0) what is unmounted is mostly gone for good.
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
    fn a_path_that_is_no_text_is_recorded_too() {
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
    fn a_file_of_another_name_is_never_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        fs::write(&path, "x").unwrap();
        let metadata = fs::metadata(&path).unwrap();
        let same = Some((metadata.dev(), metadata.ino()));
        assert_eq!(state_of(&entry(&path, same)), Stray::Gone);
    }

    #[test]
    fn a_lock_keeps_a_file_whoever_holds_it_and_no_longer_than_that() {
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
        // The number of its owner is another process's by now.
        (locked.pid, locked.boot_id) = (std::process::id(), machine::boot_id());
        assert_eq!(state_of(&locked), Stray::Removable);
    }

    #[test]
    fn an_entry_of_an_earlier_version_is_read() {
        let text = r#"{"path":"/x","identity":null,"pid":1,"boot_id":"b"}"#;
        assert!(!serde_json::from_str::<Entry>(text).unwrap().locked);
    }

    #[test]
    fn a_living_process_keeps_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut mine = entry(&folder.path().join("halfpower-2.test"), None);
        mine.pid = std::process::id();
        mine.boot_id = machine::boot_id();
        assert_eq!(state_of(&mine), Stray::InUse);
    }
}
