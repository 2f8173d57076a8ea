//! Settings of a copy: which attributes are kept, what may be replaced, how data are moved, and who
//! is notified.

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
/// | set-user-ID, set-group-ID, sticky | no | with their owner and group | likewise |
/// | owner, group | no | if this user may set them | likewise |
/// | times of access and modification | no | yes | yes |
/// | ACLs | no | yes | yes |
/// | extended attributes, capabilities | no | no | if file system and user allow |
/// | hard links, over all sources of a session | no | no | yes |
/// | symbolic links below a source | as links | as links | as links |
/// | named pipes, sockets, devices | created | created | created |
/// | flags (`chattr +i`, `+a`) | no | no | no, but reported |
///
/// "Limited" means minus the umask, or within the default ACL of the directory, so that a copy
/// never allows more than its source. If the copy has another group, or its directory gives it an
/// ACL, its group gets only permissions that all other users have too.
///
/// With `Mode`, a replaced file keeps its own owner, permission bits, ACL and attributes, but not
/// set-user-ID, set-group-ID and capabilities. With `Basics` and `All` it gets those of the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keep {
    /// Permission bits.
    #[default]
    Mode,
    /// Mode, owner and times.
    Basics,
    /// Everything in the table of [`Keep`].
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

/// What to do if the destination exists and differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// Replace the existing entry, if the program allows it.
    #[default]
    Replace,
    /// Replace an existing entry that is older than the source, if the program allows it; keep all
    /// others.
    Update,
    /// Keep the existing entry.
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

/// Returns the reason why an existing entry must not be replaced or removed, or `Ok` if it may be.
pub type MayReplace = Arc<dyn Fn(&Path, &EntryInfo, Change) -> Result<(), String> + Send + Sync>;
/// Receives events.
pub type Listener = Arc<dyn Fn(&Event) + Send + Sync>;

/// How a [`Session`](crate::Session) copies.
pub struct Settings {
    /// How the data of large files are moved.
    pub options: seqio::Options,
    /// What is kept of the sources.
    pub keep: Keep,
    /// How symbolic links are copied.
    pub links: Links,
    /// Stay on the file system of the source: directories of other file systems are created but not
    /// entered.
    pub one_file_system: bool,
    /// Filter for the entries below the sources.
    pub filter: Filter,
    /// What to do with existing entries.
    pub existing: Existing,
    /// Remove entries that the source does not have from existing directories, if the program
    /// allows it.
    pub delete: bool,
    /// Replace a file even if its owner cannot be kept.
    pub force: bool,
    /// A tree appears under its name only when it is complete.
    pub all_or_nothing: bool,
    /// Read each copy back from its storage and compare it, before the copy gets its name.
    pub verify: bool,
    /// Resume interrupted copies, and make this copy resumable. Files of equal size and time are
    /// considered the same.
    pub resume: bool,
    /// Make everything durable at the end of the session.
    pub sync: bool,
    /// Keep copied data in the page cache.
    pub cached: bool,
    /// Change nothing; the listener gets the intended changes.
    pub dry_run: bool,
    /// Number of files of a tree that are copied concurrently.
    pub threads: u32,
    /// Folder for records of unfinished copies; `None` for no records.
    pub state_folder: Option<PathBuf>,
    /// Decides whether an existing entry may be replaced or removed.
    pub may_replace: MayReplace,
    /// Receives events.
    pub listener: Listener,
    /// Counters of the session.
    pub progress: Arc<Progress>,
    /// Rate limit for all threads together.
    pub limiter: Limiter,
    /// The program sets this to stop the session.
    pub stop: Arc<AtomicBool>,
}

impl Default for Settings {
    /// Keeps permission bits, replaces nothing, makes copies durable.
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
