//! Prepares the replay of a trace: selects the requests, and determines their order in each thread,
//! the time between them, and their offsets in one target that replaces all files.
//!
//! [`Scan`] reads a trace once and collects the facts that are needed before the first request is
//! issued. [`Feed`] reads the trace again and yields [`ReplayRequest`]s. Both stream the trace. The
//! requests of a thread form a *lane*. Threads that were never alive at the same time share a lane,
//! so that processes which a shell started one after another are replayed one after another.
//! [`Changes`] modify the requests, to show how fast the program would be with other requests, for
//! example at a greater queue depth.

mod selection;
mod scan;
mod changes;
mod feed;

pub use changes::Changes;
pub use feed::Feed;
pub use scan::{LaneFacts, LeftOut, Scan};
pub use selection::Selection;

use crate::request::{Call, Operation, Request};

/// The layer at which requests were recorded. A replay issues only the requests of one layer.
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

    /// Returns the name of the level in options and output, such as `calls`.
    pub fn name(self) -> &'static str {
        match self {
            Level::Calls => "calls",
            Level::Block => "block",
        }
    }

    /// Returns the level with this name.
    pub fn named(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.name() == name)
    }

    /// Returns the level of a request.
    pub fn of(request: &Request) -> Level {
        if request.call == Call::BLOCK { Level::Block } else { Level::Calls }
    }
}

/// The action of a replayed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The request reads.
    Read,
    /// The request writes.
    Write,
    /// The request makes earlier writes durable.
    Flush {
        /// Whether the flush is like fdatasync(2), which writes only the metadata that is needed to
        /// find the data.
        data_only: bool,
    },
    /// The request is a hint to the kernel about future accesses (posix_fadvise(2), readahead(2)).
    /// The call determines the kind of hint.
    Advise(Call),
}

/// A request to be issued again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayRequest {
    /// Number of the lane. All requests of a thread are in the same lane.
    pub lane: u32,
    /// The action of the request.
    pub action: Action,
    /// Offset in a target that contains all files of the trace one after another (bytes). 0 for a
    /// flush.
    pub offset: u64,
    /// Length of the request (bytes). 0 for a flush, and for a hint about the whole target.
    pub bytes: u64,
    /// Time since the last event in the lane (ns). Events are starts and completions of requests.
    /// For the first request of the lane, the time since the start of the trace.
    pub gap_ns: u64,
    /// Number of earlier requests of the lane that were outstanding when this request was made.
    /// None if the trace does not record when requests ended.
    pub outstanding: Option<u32>,
}

/// Why a request of a trace cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Unfit {
    /// The request failed.
    Failed,
    /// The offset of the request is unknown, for example because the request accessed a pipe.
    NoPosition,
    /// The request moved no data.
    Empty,
    /// The user did not select the file of the request.
    OtherFile,
    /// The file of the request is not on storage: it is a file of the kernel (/proc, /sys), or a
    /// device such as /dev/null.
    NoStorage,
    /// The call is sync_file_range(2), which usually only starts write-back.
    StartsWriteBack,
    /// The request moves no data and makes no data durable.
    Other(Operation),
}

impl Unfit {
    /// Describes the requests that are left out for this reason, for example "failed requests".
    fn what(self) -> &'static str {
        match self {
            Unfit::Failed => "failed requests",
            Unfit::NoPosition => "requests without an offset",
            Unfit::Empty => "requests that moved no data",
            Unfit::OtherFile => "requests of other files",
            Unfit::NoStorage => "requests to files not on storage (/proc, /sys, /dev/null)",
            Unfit::StartsWriteBack => "calls of sync_file_range, which only start write-back",
            Unfit::Other(Operation::Discard) => "discards",
            Unfit::Other(Operation::Open) => "opens",
            Unfit::Other(Operation::Close) => "closes",
            Unfit::Other(Operation::Truncate) => "truncations",
            Unfit::Other(Operation::Allocate) => "allocations",
            Unfit::Other(_) => "other calls",
        }
    }
}

/// Returns the action, the offset and the length with which a request is replayed. `file_bytes` is
/// the size of the file.
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

/// Returns the action, the offset and the length with which a hint is replayed. Only hints to read
/// ahead or to evict apply to a range. All other hints apply to an open file and get length 0.
fn hint(request: &Request, file_bytes: u64) -> Result<(Action, u64, u64), Unfit> {
    let (call, bytes) = (request.call, request.bytes);
    let unfit = Unfit::Other(request.operation);
    let is_known = call.reads_ahead() || call.advice().is_some();
    let offset = request.offset.filter(|_| is_known).ok_or(unfit)?;
    let hint = Action::Advise(call);
    if call.reads_ahead() || call.advice() == Some("dontneed") {
        // If the length is 0, the range extends to the end of the file.
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
