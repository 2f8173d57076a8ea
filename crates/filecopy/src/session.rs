//! Copies any number of sources in sequence, then makes all copies durable and returns all
//! problems.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FileType;
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};

use crate::context::{Context, StagedTree, TREE, lock};
use crate::directory::{Directory, EntryInfo, split};
use crate::problem::{Problem, ProblemKind, on, on_errno};
use crate::regular::{self, SourceEntry};
use crate::settings::{Keep, Links, Settings};
use crate::small::Buffer;
use crate::special;
use crate::state::{Identity, State, TreeRecord};
use crate::target::TargetDirectory;
use crate::tree;

/// The destination to which a source is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Path of the copy. Its parent directory must exist.
    pub path: PathBuf,
}

/// A session that copies any number of sources with the same settings.
#[derive(Debug)]
pub struct Session {
    pub(crate) context: Context,
}

impl Session {
    /// Starts a session, and raises this process's limit on open files to the maximum.
    pub fn new(settings: Settings) -> Session {
        let limit = getrlimit(Resource::Nofile);
        if limit.current < limit.maximum {
            let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
        }
        Session { context: Context::new(settings) }
    }

    /// Announces that many files will be copied. Most of them are then flushed together at the end
    /// of the session, and not one by one.
    pub fn expect_many(&self) {
        self.context.expect_many();
    }

    /// Returns the settings of the session.
    pub fn settings(&self) -> &Settings {
        &self.context.settings
    }

    /// Copies a source: a file, directory, link, special file or block device. Problems are
    /// recorded and do not end the session.
    pub fn copy(&self, from: &Path, to: &Destination) {
        if let Err(problem) = self.try_copy(from, to) {
            self.context.report(problem);
        }
    }

    fn try_copy(&self, from: &Path, to: &Destination) -> Result<(), Problem> {
        if self.context.settings.stops() {
            return Err(Problem::stopped(from));
        }
        let (parent, name) = split(&to.path).map_err(on("copying to", &to.path))?;
        let root = Directory::open(&parent).map_err(on_errno("opening", &parent))?;
        let root = Arc::new(root);
        let follows =
            self.context.settings.links == Links::Follow || self.context.settings.keep < Keep::All;
        let Ok((source_parent, source_name)) = split(from) else {
            // The source is `/` or ends in `.` or `..`, so it has no name in a parent directory.
            let source = Directory::open(from).map_err(on_errno("opening", from))?;
            let info = source.info().map_err(on_errno("looking at", from))?;
            return self.copy_tree(source, info, &root, &name);
        };
        let directory = Directory::open(&source_parent);
        let directory = directory.map_err(on_errno("opening", &source_parent))?;
        let found = if follows {
            directory.look_up_following(&source_name)
        } else {
            directory.look_up(&source_name)
        };
        let found = found.map_err(on_errno("looking at", from))?;
        let Some(info) = found else {
            let why = match directory.look_up(&source_name) {
                Ok(Some(_)) => {
                    "the source is a dangling symbolic link; --archive copies it as a link"
                }
                _ => "no such file or directory",
            };
            let what = format!("{}: {why}", from.display());
            return Err(Problem::new(ProblemKind::Failed, from, what));
        };
        if info.is_directory() {
            let source = if follows {
                directory.enter_following(&source_name)
            } else {
                directory.enter(&source_name)
            };
            let source = source.map_err(on_errno("opening", from))?;
            return self.copy_tree(source, info, &root, &name);
        }
        self.copy_entry(&directory, (&source_name, follows), &info, &root, &name)
    }

    fn copy_tree(
        &self,
        source: Directory,
        info: EntryInfo,
        root: &Arc<Directory>,
        name: &OsStr,
    ) -> Result<(), Problem> {
        self.context.expect_many();
        tree::copy(&self.context, source, info, root, name)
    }

    /// Copies an entry that is not a directory.
    fn copy_entry(
        &self,
        directory: &Directory,
        (source_name, follows): (&OsStr, bool),
        info: &EntryInfo,
        root: &Arc<Directory>,
        name: &OsStr,
    ) -> Result<(), Problem> {
        let failed = on_errno("opening", &root.path);
        let again = root.descend(Path::new("")).map_err(&failed)?;
        let target = TargetDirectory::new(again, Arc::clone(root), PathBuf::new());
        let target = target.map_err(failed)?;
        let source = SourceEntry { directory, name: source_name, follows };
        self.context.flush_later(root, self.context.is_tree());
        match info.file_type() {
            FileType::RegularFile | FileType::BlockDevice => {
                let mut buffer = Buffer::new(&self.context.settings);
                regular::copy(&self.context, &mut buffer, source, &target, name)
            }
            _ => special::copy(&self.context, source, info, &target, name),
        }
    }

    /// Ends the session: gives complete trees their names, flushes all copies, and reports
    /// attributes that were not copied. Returns all problems of the session.
    pub fn finish(self) -> Vec<Problem> {
        let staged = std::mem::take(&mut *lock(&self.context.staged));
        if let Err(problem) = self.name_staged_trees(&staged) {
            self.context.report(problem);
        }
        // The private directory of a tree may contain private directories of single entries, so
        // these must be removed first.
        self.context.staging.close();
        drop(staged);
        if self.context.settings.sync && !self.context.settings.dry_run {
            self.flush();
        }
        self.close_records();
        self.context.left_out.note(&self.context.settings);
        self.context.into_problems()
    }

    fn name_staged_trees(&self, staged: &[StagedTree]) -> Result<(), Problem> {
        let is_broken = self.context.has_problems() || self.context.settings.stops();
        for StagedTree { private, parent, name } in staged {
            let inside = private.inside();
            let path = parent.join(name);
            if is_broken {
                let removed = inside.remove_all(OsStr::new(TREE));
                removed.map_err(on_errno("removing the incomplete copy of", &path))?;
                continue;
            }
            if self.context.settings.sync {
                inside.sync_file_system().map_err(on_errno("flushing", &path))?;
            }
            let named = inside.rename_new(OsStr::new(TREE), parent, name);
            named.map_err(|error| match error {
                rustix::io::Errno::EXIST => crate::staging::appeared(&path),
                error => on_errno("renaming the copy to", &path)(error),
            })?;
        }
        Ok(())
    }

    fn flush(&self) {
        let mut flushed = Vec::new();
        for (directory, whole) in lock(&self.context.roots).drain(..) {
            let Ok(info) = directory.info() else { continue };
            let key = if whole { (info.device, 0) } else { info.identity() };
            if flushed.contains(&key) {
                continue;
            }
            let done = if whole { directory.sync_file_system() } else { directory.sync() };
            match done {
                // Some file systems cannot flush a directory.
                Ok(()) | Err(rustix::io::Errno::INVAL) => flushed.push(key),
                Err(error) => self.context.report(on_errno("flushing", &directory.path)(error)),
            }
        }
    }

    /// Marks the records of all trees as finished. Must be called after the attributes of all
    /// directories were set.
    fn close_records(&self) {
        let state = self.context.settings.state_folder.as_deref().and_then(State::existing);
        for record in lock(&self.context.records).drain(..) {
            if let Some(state) = &state {
                let _ = state.keep_tree(&TreeRecord { unfinished: false, ..record });
            }
        }
    }
}

/// Checks whether a directory can be copied to a destination, without changing anything. A
/// directory can be copied neither into itself nor over an entry of another type.
///
/// # Errors
/// The reason why the directory cannot be copied.
pub fn check_tree(from: &Path, to: &Destination, all_or_nothing: bool) -> Result<(), Problem> {
    let (parent, name) = split(&to.path).map_err(on("copying to", &to.path))?;
    let root = Directory::open(&parent).map_err(on_errno("opening", &parent))?;
    let source = Directory::open(from).map_err(on_errno("opening", from))?;
    tree::check(&source, &root, &name, all_or_nothing)
}

/// Returns true if an earlier copy of `from` created the directory `to`. If so, a repeated copy
/// uses `to` itself and not a subdirectory of it.
pub fn is_copy_of(state_folder: &Path, from: &Path, to: &Path) -> bool {
    let Some(state) = State::existing(state_folder) else { return false };
    let (Ok(source), Ok(target)) = (Identity::of(from), Identity::of(to)) else { return false };
    state.tree(&target).is_some_and(|record| record.made && record.source == source)
}

/// Returns true if a path is a symbolic link that belongs neither to this user nor to root. Such a
/// link must not be followed, because it may point anywhere.
pub fn is_foreign_link(path: &Path) -> bool {
    let own = geteuid().as_raw();
    let is_foreign = |link: Metadata| link.is_symlink() && link.uid() != own && link.uid() != 0;
    fs::symlink_metadata(path).is_ok_and(is_foreign)
}
