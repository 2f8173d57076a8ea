//! Records kept between sessions: which trees were copied where, the progress of large files, and
//! what to remove after a kill. They are in a folder that only the copying user may write.
//!
//! A record is used only if the file system still has the recorded file or directory. A folder that
//! another user owns or may write is refused.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, OFlags, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::inode::Inode;

/// Prefix of the names of private directories.
pub(crate) const PRIVATE_PREFIX: &str = ".halfpower-";
/// Maximum number of tree records; the oldest are removed.
const TREES_MAX: usize = 1000;

/// Identifies a file or directory across reboots. Device numbers change at boot; inode numbers and
/// birth times do not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// Absolute path without links; in hexadecimal if it is not valid text.
    path: String,
    inode: u64,
    /// Birth time (s, ns); `None` if the file system does not report it.
    born: Option<(i64, u32)>,
}

impl Identity {
    /// The identity of an existing file or directory.
    pub fn of(path: &Path) -> io::Result<Identity> {
        let path = path.canonicalize()?;
        let found = Inode::at(CWD, &path, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Identity { path: path_text(&path), inode: found.number, born: found.born })
    }

    fn key(&self) -> String {
        key_of(&self.path)
    }
}

/// Inode number and birth time of an open file.
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

/// A tree that was or is being copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TreeRecord {
    pub source: Identity,
    pub target: Identity,
    /// Whether the copy created the directory.
    pub made: bool,
    /// Whether the copy is running or was interrupted, so that directories in it may still be
    /// private.
    pub unfinished: bool,
}

/// Progress of a large file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartialRecord {
    /// The source: path, inode, size (bytes), times of modification and change (s, ns).
    pub source: Identity,
    pub size: u64,
    pub modified: (i64, i64),
    pub changed: (i64, i64),
    /// The unfinished file, in a private directory next to the destination.
    pub directory: PathBuf,
    pub name: String,
    pub inode: u64,
    pub born: Option<(i64, u32)>,
    /// Length of the complete and durable data from the start (bytes).
    pub done_bytes: u64,
}

/// A private directory made by a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionRecord {
    /// Path of the private directory.
    pub directory: PathBuf,
    /// Inode number of the private directory.
    pub inode: u64,
}

/// The folder with the records of copies.
#[derive(Clone, Debug)]
pub(crate) struct State {
    folder: PathBuf,
}

impl State {
    /// Opens the folder if it exists and is safe to use.
    pub fn existing(folder: &Path) -> Option<State> {
        folder.symlink_metadata().ok().and_then(|_| State::open(folder).ok())
    }

    /// Opens the folder, and creates it if it does not exist.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn open(folder: &Path) -> Result<State, String> {
        let shown = folder.display();
        let failed = |error: &io::Error| format!("{shown}: {}", ioengine::error::cause(error));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|e| failed(&e))?;
        let found = fs::symlink_metadata(folder).map_err(|e| failed(&e))?;
        let user = rustix::process::geteuid().as_raw();
        if !found.is_dir() || found.uid() != user || found.mode() & 0o022 != 0 {
            return Err(format!(
                "{shown} belongs to or can be written by somebody else; set XDG_STATE_HOME to a \
                 folder of your own"
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

    /// The record of the tree that was copied to a directory, from any source.
    pub fn tree(&self, target: &Identity) -> Option<TreeRecord> {
        let record: TreeRecord = self.read(&format!("tree-{}.json", target.key()))?;
        (record.target == *target).then_some(record)
    }

    /// Stores the record of a tree.
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

    /// Progress of an earlier session for the file with this absolute path.
    pub fn partial(&self, target: &Path) -> Option<PartialRecord> {
        self.read(&State::partial_name(target))
    }

    /// Stores the progress for the file with this absolute path.
    pub fn keep_partial(&self, target: &Path, record: &PartialRecord) -> io::Result<()> {
        self.write(&State::partial_name(target), record)
    }

    /// Removes the record of a file's progress.
    pub fn forget_partial(&self, target: &Path) {
        self.remove(&State::partial_name(target));
    }

    /// The records of a new session.
    pub fn begin_session(&self) -> SessionNotes {
        SessionNotes { folder: self.folder.clone(), noted: Vec::new() }
    }
}

/// The records of a running session, one per private directory. A record is written once and locked
/// while the session lives.
#[derive(Debug)]
pub(crate) struct SessionNotes {
    folder: PathBuf,
    noted: Vec<Noted>,
}

/// One record: the inode of the directory, and the record file with its lock.
#[derive(Debug)]
struct Noted {
    inode: u64,
    path: PathBuf,
    _locked: File,
}

impl SessionNotes {
    /// Records a private directory durably, after its creation and before its first use. `token` is
    /// the unique part of the directory's name.
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

    /// Removes the record of a removed directory.
    pub fn forget(&mut self, inode: u64) {
        self.noted.retain(|noted| {
            // A remaining record is harmless: its directory will not be found.
            noted.inode != inode || fs::remove_file(&noted.path).is_err()
        });
    }
}

/// A private directory left by a session that was interrupted or that can be resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// The private directory with unfinished files.
    pub path: PathBuf,
    /// Whether a running session uses the directory.
    pub in_use: bool,
    /// Length of a resumable file (bytes).
    pub resumable_bytes: Option<u64>,
    inode: u64,
    record: PathBuf,
}

/// All private directories that remain from sessions of this user.
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
                // The record is incomplete. If its writer has ended, the directory is unused.
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
    // Resumable files are recorded by their session too.
    let resumable: Vec<u64> =
        found.iter().filter(|one| one.resumable_bytes.is_some()).map(|one| one.inode).collect();
    found.retain(|one| one.resumable_bytes.is_some() || !resumable.contains(&one.inode));
    found.retain(|one| one.path.symlink_metadata().is_ok() || clean(one).is_err());
    found
}

/// Whether a file was last modified more than a minute ago.
fn is_old(path: &Path) -> bool {
    let age = fs::metadata(path).and_then(|m| m.modified()).ok().and_then(|at| at.elapsed().ok());
    age.is_some_and(|age| age.as_secs() > 60)
}

/// Removes a leftover and its record; returns whether there was something to remove.
///
/// # Errors
/// Any error of removing the directory.
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
        assert_eq!(state.tree(&identity(&target)), None, "another directory has the name now");
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
        assert!(State::open(&copies).unwrap_err().contains("somebody else"));
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

        // Now another directory has the same name.
        let mut session = state.begin_session();
        fs::create_dir(&staging).unwrap();
        session.note("y", &staging, inode + 1_000_000).unwrap();
        drop(session);
        assert!(!clean(&leftovers(&folder.path().join("copies"))[0]).unwrap());
        assert!(staging.exists());
    }
}
