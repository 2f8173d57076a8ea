//! What a replay needs of a trace: which requests are replayed, in which order each thread made
//! them, how long it computed between them, and where they lie in one target.
//!
//! [`Scan`] reads a trace once and finds what must be known before the first request is issued.
//! [`Feed`] reads it again and yields [`ReplayRequest`]s. Both stream. The requests of a thread
//! form a *lane*; threads that were never alive at the same time share one, so that processes which
//! a shell started one after another stay in that order. [`Changes`] alter what the program did, to
//! find out how fast it would be with other requests.

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
/// resulted from them.
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
    /// Its offset in a target that holds all files of the trace one after another (bytes); 0 for a
    /// flush.
    pub offset: u64,
    /// Its length (bytes); 0 for a flush, and for a hint about the whole target.
    pub bytes: u64,
    /// Time since the lane's previous request was made or since the last completion before this
    /// request, whichever was later (ns). The lane's first request counts from the start of the
    /// trace.
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
    /// It has no position: a pipe, a socket, or the trace does not know it.
    NoPosition,
    /// It moved nothing.
    Empty,
    /// Its file is not one of those that the user asked for.
    OtherFile,
    /// Its file is no storage: a file of the kernel (/proc, /sys), or a device such as /dev/null.
    NoStorage,
    /// It only starts to write data back, as sync_file_range(2) usually does.
    StartsWriteBack,
    /// It moves no data and makes nothing durable.
    Other(Operation),
}

impl Unfit {
    /// Requests that are left out for this reason, as a plural noun.
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

/// What a replay does for a request, with the offset and the length. The file of the request has
/// `file_bytes`.
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

/// What a replay does for a hint, with the offset and the length. Only hints that read ahead or
/// evict concern a range; the others hold for an open file, and their length is 0.
fn hint(request: &Request, file_bytes: u64) -> Result<(Action, u64, u64), Unfit> {
    let (call, bytes) = (request.call, request.bytes);
    let unfit = Unfit::Other(request.operation);
    let is_known = call.reads_ahead() || call.advice().is_some();
    let offset = request.offset.filter(|_| is_known).ok_or(unfit)?;
    let hint = Action::Advise(call);
    if call.reads_ahead() || call.advice() == Some("dontneed") {
        // Length 0 means up to the end of the file.
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
