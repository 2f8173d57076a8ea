//! What a program asks of a copy: what is kept, what may be replaced, how it goes about it, and who
//! hears of it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::directory::EntryInfo;
use crate::filter::Filter;
use crate::limiter::Limiter;
use crate::progress::{Event, Progress};

/// What is kept of a source besides its bytes.
///
/// | | `Mode` | `Basics` | `All` |
/// |---|---|---|---|
/// | permission bits | those of the source, limited | yes | yes |
/// | set-user-ID, set-group-ID, sticky | no | with their owner and group | likewise |
/// | owner, group | no | as far as this user may | likewise |
/// | times of access and change | no | yes | yes |
/// | ACLs | no | yes | yes |
/// | extended attributes, capabilities | no | no | as far as file system and user allow |
/// | hard links, over all sources of a session | no | no | yes |
/// | symbolic links below a source | as links | as links | as links |
/// | named pipes, sockets, devices | made anew | made anew | made anew |
/// | flags (`chattr +i`, `+a`) | no | no | no, and said |
///
/// Limited means: less the umask, or within the default ACL of the directory; and so that nobody
/// may do with the copy what he may not do with the source. Where the copy has another group, or
/// its directory gives it an ACL, its group gets no more than everybody has.
///
/// A file that is replaced keeps its own owner, permission bits, ACL and attributes with `Mode`,
/// but not set-user-ID, set-group-ID and capabilities; with the others it becomes as the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keep {
    /// Permission bits.
    #[default]
    Mode,
    /// Mode, owner and times.
    Basics,
    /// All that the table says.
    All,
}

/// What becomes of symbolic links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links {
    /// They are copied as links.
    #[default]
    Keep,
    /// What they lead to is copied.
    Follow,
}

/// What becomes of something that exists at the destination and is not the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// It is replaced, where the program allows that.
    #[default]
    Replace,
    /// It is replaced if it is older than the source, where the program allows that; else left
    /// alone.
    Update,
    /// It is left alone.
    Leave,
}

/// What would happen to something that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A copy takes its place.
    Replace,
    /// It goes, since the source does not have it.
    Remove,
}

/// Says why something that exists must not be replaced or removed; nothing where it may be.
pub type MayReplace = Arc<dyn Fn(&Path, &EntryInfo, Change) -> Result<(), String> + Send + Sync>;
/// Hears what happens to single paths.
pub type Listener = Arc<dyn Fn(&Event) + Send + Sync>;

/// How a [`Session`](crate::Session) copies.
pub struct Settings {
    /// How the bytes of large files are moved.
    pub options: seqio::Options,
    /// What is kept of the sources.
    pub keep: Keep,
    /// What becomes of symbolic links.
    pub links: Links,
    /// Directories on other file systems than their source are made, and not looked into.
    pub one_file_system: bool,
    /// Which entries below the sources are copied.
    pub filter: Filter,
    /// What becomes of something that exists.
    pub existing: Existing,
    /// Entries that the source does not have are removed from directories that exist, where the
    /// program allows it.
    pub delete: bool,
    /// A file is replaced also where its owner cannot be kept.
    pub force: bool,
    /// A tree appears under its name when all of it is there, or not at all.
    pub all_or_nothing: bool,
    /// Each copy is read back from its storage and compared before it gets its name.
    pub verify: bool,
    /// Goes on from what an interrupted session left, and leaves something to go on from; files of
    /// the same size and time are taken for the same.
    pub resume: bool,
    /// Durable when the session ends.
    pub sync: bool,
    /// What is copied stays in the page cache.
    pub cached: bool,
    /// Nothing is changed; the listener hears what would be.
    pub dry_run: bool,
    /// Files of a tree that are copied at once.
    pub threads: u32,
    /// Where it is remembered what was begun and not finished; None: nowhere.
    pub state_folder: Option<PathBuf>,
    /// Whether something that exists may be replaced or removed.
    pub may_replace: MayReplace,
    /// Hears what happens.
    pub listener: Listener,
    /// Counts what happens.
    pub progress: Arc<Progress>,
    /// Slows all threads down together.
    pub limiter: Limiter,
    /// Set by the program to stop the session.
    pub stop: Arc<AtomicBool>,
}

impl Default for Settings {
    /// Permission bits, nothing replaced, durable.
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
            may_replace: Arc::new(|_, _, _| Err("it exists".to_owned())),
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

    /// Says something that the user should know.
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
