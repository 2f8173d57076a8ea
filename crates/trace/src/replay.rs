//! What a replay needs of a trace: which requests are replayed, in which order each thread made
//! them, how long it computed between them, and where they lie in one target.
//!
//! [`Scan`] reads a trace once and finds what must be known before the first request is issued.
//! [`Feed`] reads it again and yields [`ReplayRequest`]s. Both stream. The requests of a thread
//! form a *lane*; threads that were never alive at the same time share one, so that processes which
//! a shell started one after another stay in that order. [`Changes`] alter what the program did,
//! to ask what another habit would have brought.

mod selection;
mod scan;
mod changes;
mod feed;

pub use changes::Changes;
pub use feed::Feed;
pub use scan::{LaneFacts, LeftOut, Scan};
pub use selection::Selection;

use crate::request::{Call, Operation, Request};

/// Which requests of a trace are replayed: those of the program, or those of the block layer that
/// came of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// System calls, asynchronous requests and page faults of the program.
    #[default]
    Calls,
    /// Requests of the block layer.
    Block,
}

impl Level {
    /// Both levels.
    pub const ALL: [Level; 2] = [Level::Calls, Level::Block];

    /// The name in flags and results.
    pub fn name(self) -> &'static str {
        match self {
            Level::Calls => "calls",
            Level::Block => "block",
        }
    }

    /// The level of this name.
    pub fn named(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.name() == name)
    }

    /// The level of a request.
    pub fn of(request: &Request) -> Level {
        if request.call == Call::BLOCK { Level::Block } else { Level::Calls }
    }
}

/// What a replayed request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Makes earlier writes durable.
    Flush {
        /// Like fdatasync(2): only the metadata needed to find the data.
        data_only: bool,
    },
    /// Tells the kernel how the file will be accessed (posix_fadvise(2)); [`Call::advice`] of this
    /// call says what.
    Advise(Call),
}

/// A request to be issued again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayRequest {
    /// Its lane.
    pub lane: u32,
    /// What it does.
    pub action: Action,
    /// Its place in a target that holds all files of the trace one after another (bytes); 0 for a
    /// flush.
    pub offset: u64,
    /// Its length (bytes); 0 for a flush.
    pub bytes: u64,
    /// Time since the later of two events: the program made the lane's previous request, and the
    /// last completion before this request (ns). The lane's first request counts from the start of
    /// the trace.
    pub gap_ns: u64,
    /// Earlier requests of the lane that were outstanding when this one was made; None if the trace
    /// does not say when requests ended.
    pub outstanding: Option<u32>,
}

/// Why a request of a trace cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Unfit {
    /// It failed.
    Failed,
    /// It has no position: a pipe, a socket, or a trace that does not say.
    NoPosition,
    /// It moved nothing.
    Empty,
    /// Its file is none of those that were asked for.
    OtherFile,
    /// Its file is no storage: a file of the kernel (/proc, /sys), or a device such as /dev/null.
    NoStorage,
    /// It moves no data and makes nothing durable.
    Other(Operation),
}

impl Unfit {
    /// What such requests are, in the plural.
    fn what(self) -> &'static str {
        match self {
            Unfit::Failed => "failed requests",
            Unfit::NoPosition => "requests without a position",
            Unfit::Empty => "requests that moved nothing",
            Unfit::OtherFile => "requests of other files",
            Unfit::NoStorage => "requests of files without storage (/proc, /sys, /dev/null)",
            Unfit::Other(Operation::Discard) => "discards",
            Unfit::Other(Operation::Open) => "opens",
            Unfit::Other(Operation::Close) => "closes",
            Unfit::Other(Operation::Truncate) => "truncations",
            Unfit::Other(Operation::Allocate) => "allocations",
            Unfit::Other(_) => "other calls",
        }
    }
}

/// What a replay does for a request of a file of `file_bytes`, with its position and its length.
fn action(request: &Request, file_bytes: u64) -> Result<(Action, u64, u64), Unfit> {
    if request.result.is_some_and(|result| result < 0) {
        return Err(Unfit::Failed);
    }
    let is_whole = |bytes| bytes == 0 || bytes >= file_bytes;
    let action = match request.operation {
        Operation::Read => Action::Read,
        Operation::Write => Action::Write,
        Operation::Flush => {
            let data_only = matches!(request.call.name(), "fdatasync" | "sync_file_range");
            return Ok((Action::Flush { data_only }, 0, 0));
        }
        // An advice about a part of a file, length 0 being the rest of it, cannot be given to a
        // target as a whole.
        Operation::Advise if request.offset == Some(0) && is_whole(request.bytes) => {
            let known = request.call.advice().is_some();
            let advice = known.then_some(Action::Advise(request.call));
            return Ok((advice.ok_or(Unfit::Other(request.operation))?, 0, 0));
        }
        other => return Err(Unfit::Other(other)),
    };
    let offset = request.offset.ok_or(Unfit::NoPosition)?;
    match request.moved_bytes() {
        0 => Err(Unfit::Empty),
        bytes => Ok((action, offset, bytes)),
    }
}

#[cfg(test)]
mod tests;
