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
    /// Tells the kernel how a range will be accessed (posix_fadvise(2), readahead(2));
    /// [`Call::advice`] of this call says what.
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
    /// Its length (bytes); 0 for a flush, and for a hint about the whole target.
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
    /// It only starts to write data back (sync_file_range(2) as programs use it).
    StartsWriteBack,
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
            Unfit::StartsWriteBack => "calls of sync_file_range, which start to write data back",
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
    let action = match request.operation {
        Operation::Read => Action::Read,
        Operation::Write => Action::Write,
        Operation::Flush => match request.call.name() {
            "sync_file_range" => return Err(Unfit::StartsWriteBack),
            name => return Ok((Action::Flush { data_only: name == "fdatasync" }, 0, 0)),
        },
        Operation::Advise => return hint(request, file_bytes),
        other => return Err(Unfit::Other(other)),
    };
    let offset = request.offset.ok_or(Unfit::NoPosition)?;
    match request.moved_bytes() {
        0 => Err(Unfit::Empty),
        bytes => Ok((action, offset, bytes)),
    }
}

/// What a replay does for a hint, with its range. Only hints that read ahead or evict are about a
/// range; the others hold for an open file, and have no range here.
fn hint(request: &Request, file_bytes: u64) -> Result<(Action, u64, u64), Unfit> {
    let (call, bytes) = (request.call, request.bytes);
    let unfit = Unfit::Other(request.operation);
    let is_known = call.reads_ahead() || call.advice().is_some();
    let offset = request.offset.filter(|_| is_known).ok_or(unfit)?;
    let hint = Action::Advise(call);
    if call.reads_ahead() || call.advice() == Some("dontneed") {
        // Length 0 is the rest of the file.
        let left = file_bytes.saturating_sub(offset);
        match (bytes, left) {
            (0, 0) => {}
            (0, left) => return Ok((hint, offset, left)),
            (bytes, _) if file_bytes == 0 => return Ok((hint, offset, bytes)),
            (_, 0) => return Err(Unfit::Empty),
            (bytes, left) => return Ok((hint, offset, bytes.min(left))),
        }
    }
    let is_whole = offset == 0 && (bytes == 0 || bytes >= file_bytes);
    if is_whole { Ok((hint, 0, 0)) } else { Err(unfit) }
}

#[cfg(test)]
mod tests;
