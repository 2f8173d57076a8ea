//! Copies files, directory trees, devices and streams as fast as the storage allows, with the
//! attributes that `cp -a` and `rsync` keep. A file is copied completely or not at all.
//!
//! A [`Session`] copies any number of sources. If an entry cannot be copied, the session reports
//! the failure with its path and continues, and a later session can copy the rest. A file gets its
//! name only when it is complete, and no other program can open it before that. An existing file is
//! replaced only if [`Settings::may_replace`] allows it.
//!
//! The crate `seqio` reads and writes the data. This crate walks the trees, decides what to do with
//! each entry, and sets owners, modes, times and attributes. All entries below the given paths are
//! accessed through open directories, and symbolic links there are followed only with
//! [`Links::Follow`].
#![forbid(unsafe_code)]

mod problem;
mod progress;
mod limiter;
mod filter;
mod directory;
mod inode;
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
pub mod checksum_file;
pub mod find;
pub mod stream;
pub mod inputs;
mod checksum;

pub use blake3::Hash;
pub use checksum::checksum;
pub use directory::EntryInfo;
pub use filter::{Filter, FilterRule};
pub use limiter::Limiter;
pub use problem::{Problem, ProblemKind};
pub use progress::{Counts, Event, Progress};
pub use rustix::fs::FileType;
pub use session::{Destination, Session, check_tree, is_copy_of, is_foreign_link};
pub use settings::{Change, Existing, Keep, Links, Listener, MayReplace, Settings};
pub use state::{Leftover, clean, leftovers};
