//! Copies of files, directory trees, devices and streams: whole files or none, at the speed of the
//! storage, with what `cp -a` and `rsync` keep.
//!
//! A [`Session`] copies any number of sources. Everything that can be copied is copied; each
//! failure is reported with its path, and a later session brings the rest. A file gets its name
//! when it is whole, so that nobody ever sees half of it, and until then nobody else can open it.
//! What exists is replaced only where the program allows it ([`Settings::may_replace`]).
//!
//! How the bytes of a file are moved is the business of the crate `seqio`. This crate walks the
//! trees, decides what is to be done for each entry, and keeps owners, modes, times and attributes.
//! It never follows a symbolic link below the paths that it was given: all work below them goes
//! through open directories.
#![forbid(unsafe_code)]

mod problem;
mod progress;
mod limiter;
mod filter;
mod directory;
mod settings;
mod handle;
mod content;
mod state;
mod attributes;
mod staging;
mod resume;
mod watcher;
mod target;
mod existing;
mod links;
mod context;
mod small;
mod regular;
mod special;
mod queue;
mod delete;
mod tree;
mod session;
pub mod stream;
mod checksum;

pub use checksum::checksum;
pub use directory::EntryInfo;
pub use filter::{Filter, FilterRule};
pub use limiter::Limiter;
pub use problem::{Problem, ProblemKind};
pub use progress::{Counts, Event, Progress};
pub use rustix::fs::FileType;
pub use session::{Destination, Session, check_tree, is_copy_of};
pub use settings::{Change, Existing, Keep, Links, Listener, MayReplace, Settings};
pub use state::{Leftover, clean, leftovers};
