//! Destination directories, and what is done after their last entry is complete, such as setting
//! the attributes of the directory itself.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;

use crate::attributes::Inherited;
use crate::directory::{Directory, EntryInfo};
use crate::settings::Settings;
use crate::staging::{Mount, Place, Staging, mount_of};

/// A directory of the destination.
#[derive(Debug)]
pub(crate) struct TargetDirectory {
    /// The open directory; `None` in a dry run that would create it.
    directory: Option<Directory>,
    /// Path of the directory, for messages.
    pub path: PathBuf,
    /// An open directory that contains this one, or is this one, and the path from there to this
    /// one.
    pub root: Arc<Directory>,
    pub relative: PathBuf,
    /// Whether this copy created the directory, which was then empty.
    pub is_new: bool,
    /// The directory's source; `None` if the directory is not a copy.
    pub source: Option<(Arc<Directory>, EntryInfo)>,
    /// Whether the directory gets the attributes of its source.
    pub gets_attributes: bool,
    mount: Mount,
    inherited: Inherited,
    /// Unfinished entries, plus one while the source directory is being read.
    pending: AtomicUsize,
    pub parent: Option<Arc<TargetDirectory>>,
}

impl TargetDirectory {
    /// A directory that existed before and is not the copy of a source directory.
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

    /// A directory that would be created, in a dry run.
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

    /// The open directory; `None` in a dry run that would create it.
    pub fn directory(&self) -> Option<&Directory> {
        self.directory.as_ref()
    }

    /// The place at which new files of the directory are created.
    pub fn place<'a>(&'a self, settings: &'a Settings, staging: &'a Staging) -> Option<Place<'a>> {
        let (destination, anchor, mount) = (self.directory.as_ref()?, &*self.root, self.mount);
        Some(Place { settings, staging, anchor, destination, mount })
    }

    /// What new entries inherit from the directory.
    pub fn inherited(&self) -> Inherited {
        self.inherited
    }

    /// Metadata of an entry.
    pub fn look_up(&self, name: &OsStr) -> Result<Option<EntryInfo>, Errno> {
        match &self.directory {
            Some(directory) if !self.is_new => directory.look_up(name),
            _ => Ok(None),
        }
    }

    /// Makes the directory the copy of a source directory, within a parent that counts it as
    /// unfinished until the copy is done.
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

    /// Adds an unfinished entry.
    pub fn hold(&self) {
        self.pending.fetch_add(1, Ordering::Relaxed);
    }

    /// Marks an entry as done; returns whether it was the last.
    pub fn release(&self) -> bool {
        self.pending.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// The path of an entry, for messages.
    pub fn join(&self, name: &OsStr) -> PathBuf {
        self.path.join(name)
    }

    /// Path of an entry from the root.
    pub fn relative_of(&self, name: &OsStr) -> PathBuf {
        self.relative.join(name)
    }
}
