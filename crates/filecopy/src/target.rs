//! Destination directories. Each directory counts its unfinished entries, because its own
//! attributes are set after the last entry is complete.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;

use crate::attributes::Inherited;
use crate::directory::{Directory, EntryInfo};
use crate::settings::Settings;
use crate::staging::{Mount, Place, Staging, mount_of};

/// A directory at the destination of a copy.
#[derive(Debug)]
pub(crate) struct TargetDirectory {
    /// The open directory. None if a dry run would create the directory.
    directory: Option<Directory>,
    /// Path of the directory, shown in messages.
    pub path: PathBuf,
    /// An open directory: this directory or one above it. The field `relative` is the path from
    /// `root` to this directory.
    pub root: Arc<Directory>,
    pub relative: PathBuf,
    /// Whether this copy created the directory, or would create it in a dry run.
    pub is_new: bool,
    /// The source directory and its metadata. None if this directory is not a copy.
    pub source: Option<(Arc<Directory>, EntryInfo)>,
    /// Whether the directory gets the attributes of its source.
    pub gets_attributes: bool,
    mount: Mount,
    inherited: Inherited,
    /// Number of unfinished entries, plus one while the source directory is being read.
    pending: AtomicUsize,
    pub parent: Option<Arc<TargetDirectory>>,
}

impl TargetDirectory {
    /// Wraps an open directory. The result has no source and no parent.
    pub fn new(
        directory: Directory,
        root: Arc<Directory>,
        relative: PathBuf,
    ) -> Result<TargetDirectory, Errno> {
        let (mount, inherited) = (mount_of(&directory)?, Inherited::of(&directory));
        let path = directory.path.clone();
        let absent = TargetDirectory::absent(path, root, relative);
        let directory = Some(directory);
        Ok(TargetDirectory { directory, mount, inherited, is_new: false, ..absent })
    }

    /// Returns a directory that a dry run would create.
    pub fn absent(path: PathBuf, root: Arc<Directory>, relative: PathBuf) -> TargetDirectory {
        TargetDirectory {
            directory: None,
            path,
            root,
            relative,
            is_new: true,
            source: None,
            gets_attributes: false,
            mount: (0, 0),
            inherited: Inherited::default(),
            pending: AtomicUsize::new(1),
            parent: None,
        }
    }

    /// Returns the open directory. None if a dry run would create the directory.
    pub fn directory(&self) -> Option<&Directory> {
        self.directory.as_ref()
    }

    /// Returns the parameters for creating files in this directory. None if a dry run would create
    /// the directory.
    pub fn place<'a>(&'a self, settings: &'a Settings, staging: &'a Staging) -> Option<Place<'a>> {
        let (destination, anchor, mount) = (self.directory.as_ref()?, &*self.root, self.mount);
        Some(Place { settings, staging, anchor, destination, mount })
    }

    /// Returns the group that new entries inherit, and whether they inherit a default ACL.
    pub fn inherited(&self) -> Inherited {
        self.inherited
    }

    /// Returns the metadata of an entry. None if the entry does not exist.
    pub fn look_up(&self, name: &OsStr) -> Result<Option<EntryInfo>, Errno> {
        match &self.directory {
            Some(directory) if !self.is_new => directory.look_up(name),
            _ => Ok(None),
        }
    }

    /// Sets the source of this directory. `parent` counts this directory as unfinished until its
    /// copy is complete.
    pub fn copy_of(
        self,
        source: (Arc<Directory>, EntryInfo),
        is_new: bool,
        gets_attributes: bool,
        parent: Option<&Arc<TargetDirectory>>,
    ) -> TargetDirectory {
        if let Some(parent) = parent {
            parent.hold();
        }
        let (source, parent) = (Some(source), parent.cloned());
        TargetDirectory { source, is_new, gets_attributes, parent, ..self }
    }

    /// Counts one more unfinished entry.
    pub fn hold(&self) {
        self.pending.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an entry as done. Returns true if no unfinished entry remains.
    pub fn release(&self) -> bool {
        self.pending.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Returns the path of an entry, for messages.
    pub fn join(&self, name: &OsStr) -> PathBuf {
        self.path.join(name)
    }

    /// Returns the path of an entry relative to `root`.
    pub fn relative_of(&self, name: &OsStr) -> PathBuf {
        self.relative.join(name)
    }
}
