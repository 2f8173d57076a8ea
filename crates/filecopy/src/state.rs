//! Stores records for later sessions: which trees were copied to which directories, the progress of
//! large files, and the private directories to remove after a copy was killed. The records are in
//! the state directory.
//!
//! A record is used only if the recorded file or directory still exists. The state directory is not
//! used if another user owns it or can write to it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, OFlags, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::inode::Inode;

/// Prefix of the names of the private directories that contain unfinished files.
pub(crate) const PRIVATE_PREFIX: &str = ".halfpower-";
/// Maximum number of tree records. When this number is reached, the older half is removed.
const TREES_MAX: usize = 1000;

/// Identifies a file or directory across reboots. Device numbers may change at boot, but inode
/// numbers and birth times do not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// Absolute path with symbolic links resolved. Hexadecimal if the path is not valid UTF-8.
    path: String,
    inode: u64,
    /// Birth time (s, ns). None if the file system does not report it.
    born: Option<(i64, u32)>,
}

impl Identity {
    pub fn of(path: &Path) -> io::Result<Identity> {
        let path = path.canonicalize()?;
        let found = Inode::at(CWD, &path, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Identity { path: path_text(&path), inode: found.number, born: found.born })
    }

    fn key(&self) -> String {
        key_of(&self.path)
    }
}

/// Returns the inode number and the birth time (s, ns) of an open file.
pub(crate) fn inode_and_birth(file: &File) -> io::Result<(u64, Option<(i64, u32)>)> {
    let found = Inode::of(file)?;
    Ok((found.number, found.born))
}

fn path_text(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

fn key_of(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..32].to_owned()
}

/// The record of a directory tree that was copied or is being copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TreeRecord {
    pub source: Identity,
    pub target: Identity,
    /// Whether the copy created the target directory.
    pub made: bool,
    /// Whether the copy is running or was interrupted. If so, directories of the target may still
    /// have preliminary permissions.
    pub unfinished: bool,
}

/// The progress of copying a large file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartialRecord {
    /// The source file.
    pub source: Identity,
    /// Size of the source (bytes).
    pub size: u64,
    /// Modification time of the source (s, ns).
    pub modified: (i64, i64),
    /// Change time (ctime) of the source (s, ns).
    pub changed: (i64, i64),
    /// The private directory that contains the unfinished copy.
    pub directory: PathBuf,
    /// Name of the unfinished copy in `directory`.
    pub name: String,
    /// Inode number of the unfinished copy.
    pub inode: u64,
    /// Birth time of the unfinished copy (s, ns). None if the file system does not report it.
    pub born: Option<(i64, u32)>,
    /// Number of bytes from the start of the file that were copied and are durable.
    pub done_bytes: u64,
}

/// The record of a private directory that a session created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionRecord {
    pub directory: PathBuf,
    pub inode: u64,
}

/// The state directory, which contains the records.
#[derive(Clone, Debug)]
pub(crate) struct State {
    folder: PathBuf,
}

impl State {
    /// Opens the state directory if it exists and is safe to use. Otherwise returns None.
    pub fn existing(folder: &Path) -> Option<State> {
        folder.symlink_metadata().ok().and_then(|_| State::open(folder).ok())
    }

    /// Opens the state directory, and creates it if it does not exist.
    ///
    /// # Errors
    /// The reason why the directory cannot be used.
    pub fn open(folder: &Path) -> Result<State, String> {
        let shown = folder.display();
        let failed = |error: &io::Error| format!("{shown}: {}", ioengine::error::cause(error));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|e| failed(&e))?;
        let found = fs::symlink_metadata(folder).map_err(|e| failed(&e))?;
        let user = rustix::process::geteuid().as_raw();
        if !found.is_dir() || found.uid() != user || found.mode() & 0o022 != 0 {
            return Err(format!(
                "{shown} is owned or writable by another user; set XDG_STATE_HOME to a folder of \
                 your own"
            ));
        }
        Ok(State { folder: folder.to_path_buf() })
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let open = fs::OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(self.folder.join(name));
        serde_json::from_reader(io::BufReader::new(open.ok()?)).ok()
    }

    /// Writes a record under a temporary name and renames it, so that no incomplete record is ever
    /// read.
    fn write<T: Serialize>(&self, name: &str, record: &T) -> io::Result<()> {
        let half = self.folder.join(format!("{}.half", uuid::Uuid::new_v4()));
        let written = (|| {
            let mut file =
                fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&half)?;
            file.write_all(&serde_json::to_vec(record)?)?;
            file.sync_all()?;
            fs::rename(&half, self.folder.join(name))
        })();
        written.inspect_err(|_| {
            let _ = fs::remove_file(&half);
        })
    }

    fn remove(&self, name: &str) {
        let _ = fs::remove_file(self.folder.join(name));
    }

    /// Returns the record of the tree that was copied to `target`.
    pub fn tree(&self, target: &Identity) -> Option<TreeRecord> {
        let record: TreeRecord = self.read(&format!("tree-{}.json", target.key()))?;
        (record.target == *target).then_some(record)
    }

    /// Stores the record of a tree. If there are too many tree records, removes the oldest first.
    pub fn keep_tree(&self, record: &TreeRecord) -> io::Result<()> {
        let name = format!("tree-{}.json", record.target.key());
        if !self.folder.join(&name).exists() {
            self.prune_trees();
        }
        self.write(&name, record)
    }

    fn prune_trees(&self) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let trees = entries.filter(|e| e.file_name().as_encoded_bytes().starts_with(b"tree-"));
        let mut trees: Vec<_> = trees
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        if trees.len() >= TREES_MAX {
            trees.sort();
            for (_, path) in &trees[..trees.len() - TREES_MAX / 2] {
                let _ = fs::remove_file(path);
            }
        }
    }

    fn partial_name(target: &Path) -> String {
        format!("partial-{}.json", key_of(&path_text(target)))
    }

    /// Returns the recorded progress of the copy to `target`, an absolute path.
    pub fn partial(&self, target: &Path) -> Option<PartialRecord> {
        self.read(&State::partial_name(target))
    }

    /// Stores the progress of the copy to `target`, an absolute path.
    pub fn keep_partial(&self, target: &Path, record: &PartialRecord) -> io::Result<()> {
        self.write(&State::partial_name(target), record)
    }

    pub fn forget_partial(&self, target: &Path) {
        self.remove(&State::partial_name(target));
    }

    /// Returns an empty set of records for a new session.
    pub fn begin_session(&self) -> SessionNotes {
        SessionNotes { folder: self.folder.clone(), noted: Vec::new() }
    }
}

/// The records of a running session, one per private directory. Each record file stays locked until
/// the session ends.
#[derive(Debug)]
pub(crate) struct SessionNotes {
    folder: PathBuf,
    noted: Vec<Noted>,
}

/// A recorded private directory: its inode number, and its locked record file.
#[derive(Debug)]
struct Noted {
    inode: u64,
    path: PathBuf,
    _locked: File,
}

impl SessionNotes {
    /// Records a private directory durably. Must be called after the directory is created and
    /// before its first use. `token` is the unique part of the directory's name.
    pub fn note(&mut self, token: &str, directory: &Path, inode: u64) -> io::Result<()> {
        use std::io::Write;
        let path = self.folder.join(format!("session-{token}.json"));
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let record = SessionRecord { directory: directory.to_path_buf(), inode };
        file.write_all(&serde_json::to_vec(&record)?)?;
        file.sync_all()?;
        self.noted.push(Noted { inode, path, _locked: file });
        Ok(())
    }

    /// Removes the record of a private directory that was removed.
    pub fn forget(&mut self, inode: u64) {
        self.noted.retain(|noted| {
            // A record file that cannot be removed does no harm, because its directory is gone.
            noted.inode != inode || fs::remove_file(&noted.path).is_err()
        });
    }
}

/// A private directory that remains from an earlier session or that a running session uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Path of the private directory, which may contain unfinished files.
    pub path: PathBuf,
    /// Whether a running session uses the directory.
    pub in_use: bool,
    /// Number of bytes that were copied to the resumable file in the directory. None if there is no
    /// resumable file.
    pub resumable_bytes: Option<u64>,
    inode: u64,
    record: PathBuf,
}

/// Returns all recorded private directories of this user that exist, also those in use.
pub fn leftovers(state_folder: &Path) -> Vec<Leftover> {
    let Some(state) = State::existing(state_folder) else { return Vec::new() };
    let mut found = Vec::new();
    let mut entries: Vec<PathBuf> =
        fs::read_dir(&state.folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("session-") {
            let in_use = File::open(&path)
                .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_err());
            match state.read::<SessionRecord>(&name) {
                Some(SessionRecord { directory, inode }) => found.push(Leftover {
                    path: directory,
                    in_use,
                    resumable_bytes: None,
                    inode,
                    record: path,
                }),
                // The record is incomplete, so its writer was interrupted before it used the
                // directory.
                None if !in_use && is_old(&path) => drop(fs::remove_file(&path)),
                None => {}
            }
        } else if name.starts_with("partial-")
            && let Some(record) = state.read::<PartialRecord>(&name)
        {
            let metadata = fs::symlink_metadata(&record.directory);
            let inode = metadata.map_or(0, |metadata| metadata.ino());
            let file = File::open(record.directory.join(&record.name));
            let in_use = file
                .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_err());
            found.push(Leftover {
                path: record.directory,
                in_use,
                resumable_bytes: Some(record.done_bytes),
                inode,
                record: path,
            });
        }
    }
    // A directory with a resumable file has two records, one for the file and one for the session.
    // Only the record of the file is returned.
    let resumable: Vec<u64> =
        found.iter().filter(|one| one.resumable_bytes.is_some()).map(|one| one.inode).collect();
    found.retain(|one| one.resumable_bytes.is_some() || !resumable.contains(&one.inode));
    found.retain(|one| one.path.symlink_metadata().is_ok() || clean(one).is_err());
    found
}

/// Checks whether a file was last modified more than a minute ago.
fn is_old(path: &Path) -> bool {
    let age = fs::metadata(path).and_then(|m| m.modified()).ok().and_then(|at| at.elapsed().ok());
    age.is_some_and(|age| age.as_secs() > 60)
}

/// Removes a leftover directory and its record. Returns false if the directory no longer exists or
/// is not the recorded directory.
///
/// # Errors
/// The directory cannot be removed.
pub fn clean(leftover: &Leftover) -> io::Result<bool> {
    let there = fs::symlink_metadata(&leftover.path);
    let user = rustix::process::geteuid().as_raw();
    let is_ours = there.is_ok_and(|there| {
        let name = leftover.path.file_name().unwrap_or_default();
        there.is_dir()
            && there.uid() == user
            && there.ino() == leftover.inode
            && name.as_encoded_bytes().starts_with(PRIVATE_PREFIX.as_bytes())
    });
    if is_ours {
        fs::remove_dir_all(&leftover.path)?;
    }
    let _ = fs::remove_file(&leftover.record);
    Ok(is_ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn state(folder: &Path) -> State {
        State::open(&folder.join("copies")).unwrap()
    }

    #[test]
    fn a_tree_is_recognised_by_inode_and_birth_time_not_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let state = state(folder.path());
        let (source, target) = (folder.path().join("source"), folder.path().join("target"));
        fs::create_dir(&source).unwrap();
        fs::create_dir(&target).unwrap();
        let identity = |path: &Path| Identity::of(path).unwrap();
        let record = TreeRecord {
            source: identity(&source),
            target: identity(&target),
            made: true,
            unfinished: false,
        };
        assert_eq!(state.tree(&identity(&target)), None);
        state.keep_tree(&record).unwrap();
        assert_eq!(state.tree(&identity(&target)), Some(record.clone()));
        fs::rename(&target, folder.path().join("aside")).unwrap();
        fs::create_dir(&target).unwrap();
        assert_eq!(state.tree(&identity(&target)), None, "another directory has this name now");
    }

    #[test]
    fn removing_a_leftover_leaves_a_new_directory_of_the_same_name() {
        let folder = tempfile::tempdir().unwrap();
        let state = state(folder.path());
        let mut session = state.begin_session();
        let made = ["one", "two"].map(|name| folder.path().join(format!("{PRIVATE_PREFIX}{name}")));
        for (name, path) in ["one", "two"].iter().zip(&made) {
            fs::create_dir(path).unwrap();
            session.note(name, path, fs::metadata(path).unwrap().ino()).unwrap();
        }
        drop(session);
        fs::remove_dir(&made[0]).unwrap();
        for _ in 0..2 {
            let found = leftovers(&folder.path().join("copies"));
            assert_eq!(found.iter().map(|one| &one.path).collect::<Vec<_>>(), [&made[1]]);
        }
    }

    #[test]
    fn a_folder_that_others_may_write_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let copies = folder.path().join("copies");
        fs::create_dir(&copies).unwrap();
        fs::set_permissions(&copies, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(State::open(&copies).unwrap_err().contains("another user"));
        fs::set_permissions(&copies, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(State::open(&copies).is_ok());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&copies, &link).unwrap();
        assert!(State::open(&link).is_err());
    }

    #[test]
    fn only_leftovers_of_ended_sessions_are_found_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let state = state(folder.path());
        let staging = folder.path().join(format!("{}x", PRIVATE_PREFIX));
        fs::create_dir(&staging).unwrap();
        fs::write(staging.join("half"), "x").unwrap();
        let inode = fs::metadata(&staging).unwrap().ino();
        let mut session = state.begin_session();
        session.note("x", &staging, inode).unwrap();
        let found = leftovers(&folder.path().join("copies"));
        assert_eq!((found.len(), found[0].in_use), (1, true));
        drop(session);
        let found = leftovers(&folder.path().join("copies"));
        assert!(!found[0].in_use);
        assert!(clean(&found[0]).unwrap());
        assert!(!staging.exists() && leftovers(&folder.path().join("copies")).is_empty());

        // The recorded inode number is wrong, as if another directory had replaced the recorded
        // directory.
        let mut session = state.begin_session();
        fs::create_dir(&staging).unwrap();
        session.note("y", &staging, inode + 1_000_000).unwrap();
        drop(session);
        assert!(!clean(&leftovers(&folder.path().join("copies"))[0]).unwrap());
        assert!(staging.exists());
    }
}
