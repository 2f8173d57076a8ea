//! Defines the settings of a copy session: which attributes are kept, which entries may be
//! replaced, how data are moved, and who receives events.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::directory::EntryInfo;
use crate::filter::Filter;
use crate::limiter::Limiter;
use crate::progress::{Event, Progress};

/// The attributes of a source that a copy keeps.
///
/// | | `Mode` | `Basics` | `All` |
/// |---|---|---|---|
/// | permission bits | those of the source, limited | yes | yes |
/// | set-user-ID, set-group-ID, sticky | no | if owner and group are kept | same as `Basics` |
/// | owner, group | no | if this user may set them | same as `Basics` |
/// | times of access and modification | no | yes | yes |
/// | ACLs | no | yes | yes |
/// | extended attributes, capabilities | no | no | if file system and user allow |
/// | hard links, over all sources of a session | no | no | yes |
/// | symbolic links below a source | as links | as links | as links |
/// | named pipes, sockets, devices | created | created | created |
/// | flags (`chattr +i`, `+a`) | no | no | no, but reported |
///
/// "Limited" means that the umask or the default ACL of the directory is applied, so that a copy
/// never allows more than its source. If the copy has another group or inherits an ACL from its
/// directory, the group gets only permissions that all other users have too.
///
/// With `Mode`, a file that is replaced keeps its owner, permission bits, ACL and attributes, but
/// not set-user-ID, set-group-ID and capabilities. With `Basics` and `All`, the file gets the
/// attributes of the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keep {
    /// The copy keeps the permission bits.
    #[default]
    Mode,
    /// The copy keeps the permission bits, owner, group, ACLs and times.
    Basics,
    /// The copy keeps all attributes in the table of [`Keep`].
    All,
}

/// How symbolic links are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links {
    /// Links are copied as links.
    #[default]
    Keep,
    /// The targets of links are copied.
    Follow,
}

/// The action if the destination exists and differs from the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// The existing entry is replaced if [`Settings::may_replace`] allows it.
    #[default]
    Replace,
    /// The existing entry is replaced if it is older than the source and [`Settings::may_replace`]
    /// allows it. Otherwise the entry is left unchanged.
    Update,
    /// The existing entry is left unchanged.
    Leave,
}

/// A change to an existing entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The copy replaces the existing entry.
    Replace,
    /// The entry is removed, because the source does not have it.
    Remove,
}

/// A function that decides whether an existing entry may be replaced or removed. If the change is
/// not allowed, the function returns the reason as the error.
pub type MayReplace = Arc<dyn Fn(&Path, &EntryInfo, Change) -> Result<(), String> + Send + Sync>;
/// A function that receives the events of a session.
pub type Listener = Arc<dyn Fn(&Event) + Send + Sync>;

/// The settings of a [`Session`](crate::Session).
pub struct Settings {
    /// Options for copying the data of large files.
    pub options: seqio::Options,
    /// The attributes that copies keep.
    pub keep: Keep,
    /// How symbolic links are copied.
    pub links: Links,
    /// Whether other file systems below the source are left out. Their mount points are copied as
    /// empty directories.
    pub one_file_system: bool,
    /// Filter for the entries below the sources.
    pub filter: Filter,
    /// The action if the destination exists and differs from the source.
    pub existing: Existing,
    /// Whether entries that the source does not have are removed from existing directories, if
    /// [`Settings::may_replace`] allows it.
    pub delete: bool,
    /// Whether a file is replaced even if its owner or group cannot be kept.
    pub force: bool,
    /// Whether a directory tree gets its final name only when it is complete.
    pub all_or_nothing: bool,
    /// Whether each copy is read back from its storage and compared before it gets its name.
    pub verify: bool,
    /// Whether interrupted copies are resumed, and progress is recorded so that this copy can be
    /// resumed. Files with the same size and modification time are then considered equal.
    pub resume: bool,
    /// Whether all copies are made durable at the end of the session.
    pub sync: bool,
    /// Whether copied data stay in the page cache.
    pub cached: bool,
    /// Whether the session changes nothing and only reports the intended changes to the listener.
    pub dry_run: bool,
    /// Number of files of a directory tree that are copied concurrently.
    pub threads: u32,
    /// Directory for records of unfinished copies. `None` if nothing is recorded.
    pub state_folder: Option<PathBuf>,
    /// Function that decides whether an existing entry may be replaced or removed.
    pub may_replace: MayReplace,
    /// Function that receives the events of the session.
    pub listener: Listener,
    /// Counters of the session.
    pub progress: Arc<Progress>,
    /// Limit on the total throughput of all threads.
    pub limiter: Limiter,
    /// Flag that the program sets to stop the session.
    pub stop: Arc<AtomicBool>,
}

impl Default for Settings {
    /// Returns settings that keep the permission bits, replace no existing entry, and make copies
    /// durable.
    fn default() -> Settings {
        Settings {
            options: seqio::Options::new(),
            keep: Keep::Mode,
            links: Links::Keep,
            one_file_system: false,
            filter: Filter::default(),
            existing: Existing::Replace,
            delete: false,
            force: false,
            all_or_nothing: false,
            verify: false,
            resume: false,
            sync: true,
            cached: false,
            dry_run: false,
            threads: 8,
            state_folder: None,
            may_replace: Arc::new(|_, _, _| Err("the destination exists".to_owned())),
            listener: Arc::new(|_| {}),
            progress: Arc::default(),
            limiter: Limiter::new(None),
            stop: Arc::default(),
        }
    }
}

impl Settings {
    pub(crate) fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn tell(&self, event: &Event) {
        (self.listener)(event);
    }

    /// Sends a message to the user.
    pub(crate) fn note(&self, what: String) {
        self.tell(&Event::Note(what.clone()));
        self.progress.note(what);
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("keep", &self.keep)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
