//! The data of a trace: requests, the calls that made them, and the header of the trace.

use serde::{Deserialize, Serialize};

/// Maximum number of files in a trace. The header contains the names of all files, and a reader
/// holds the header in memory.
pub const FILES_MOST: usize = 1 << 18;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// The request moves bytes from the file to the program.
    Read,
    /// The request moves bytes from the program to the file.
    Write,
    /// The request makes earlier writes durable.
    Flush,
    /// The request tells the device or file system that a range is no longer needed.
    Discard,
    /// The request opens a file.
    Open,
    /// The request closes a file.
    Close,
    /// The request changes the length of a file.
    Truncate,
    /// The request reserves space for a range of a file.
    Allocate,
    /// The request is a hint about future accesses to a range.
    Advise,
}

impl Operation {
    /// All operations.
    pub const ALL: [Operation; 9] = [
        Operation::Read,
        Operation::Write,
        Operation::Flush,
        Operation::Discard,
        Operation::Open,
        Operation::Close,
        Operation::Truncate,
        Operation::Allocate,
        Operation::Advise,
    ];

    /// Returns the name of the operation in files and output, such as `read`.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "flush",
            Operation::Discard => "discard",
            Operation::Open => "open",
            Operation::Close => "close",
            Operation::Truncate => "truncate",
            Operation::Allocate => "allocate",
            Operation::Advise => "advise",
        }
    }

    /// Returns the operation with this name.
    pub fn named(name: &str) -> Option<Operation> {
        Operation::ALL.into_iter().find(|operation| operation.name() == name)
    }

    /// Returns whether the operation moves data between a program and storage.
    pub fn moves_data(self) -> bool {
        matches!(self, Operation::Read | Operation::Write)
    }
}

/// How a request was made: by a system call, through an asynchronous interface, by a page fault, or
/// by the block layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call(u8);

/// Names of calls. A [`Call`] is an index into this list, so new names must be added at the end.
const CALLS: [&str; 43] = [
    "unknown",
    "block",
    "page fault",
    "io_uring",
    "libaio",
    "read",
    "write",
    "pread64",
    "pwrite64",
    "readv",
    "writev",
    "preadv",
    "pwritev",
    "preadv2",
    "pwritev2",
    "sendfile",
    "copy_file_range",
    "splice",
    "fsync",
    "fdatasync",
    "sync_file_range",
    "msync",
    "sync",
    "syncfs",
    "open",
    "openat",
    "openat2",
    "creat",
    "close",
    "truncate",
    "ftruncate",
    "fallocate",
    "fadvise64",
    "readahead",
    "madvise",
    "io_submit",
    "io_uring_enter",
    // Calls of fadvise64 by advice (posix_fadvise(2)), in the order of the kernel's advice numbers.
    "fadvise64 normal",
    "fadvise64 random",
    "fadvise64 sequential",
    "fadvise64 willneed",
    "fadvise64 dontneed",
    "fadvise64 noreuse",
];

impl Call {
    /// An unknown call, for traces that do not record how a request was made.
    pub const UNKNOWN: Call = Call(0);
    /// A request of the block layer.
    pub const BLOCK: Call = Call(1);
    /// A page fault in a mapped file.
    pub const PAGE_FAULT: Call = Call(2);
    /// A request through io_uring.
    pub const IO_URING: Call = Call(3);
    /// A request through Linux native asynchronous I/O (io_submit).
    pub const LIBAIO: Call = Call(4);

    /// Returns the name of the system call or interface in files and output, such as `pread64`.
    pub fn name(self) -> &'static str {
        CALLS[usize::from(self.0)]
    }

    /// Returns whether the call copies between two files within the kernel. A trace has such a call
    /// twice, as a read of the source and as a write of the destination.
    pub fn is_copy(self) -> bool {
        matches!(self.name(), "copy_file_range" | "sendfile" | "splice")
    }

    /// Returns whether the call is a hint that reads ahead: readahead, or fadvise64 with
    /// POSIX_FADV_WILLNEED.
    pub fn reads_ahead(self) -> bool {
        self.name() == "readahead" || self.advice() == Some("willneed")
    }

    /// Returns the advice of a call of fadvise64, such as `random`. None for other calls, or if the
    /// trace does not record the advice.
    pub fn advice(self) -> Option<&'static str> {
        self.name().strip_prefix("fadvise64 ")
    }

    /// Returns the call of fadvise64 for an advice number of the kernel (`POSIX_FADV_NORMAL` is 0).
    /// None if the number is unknown.
    pub fn with_advice(number: u64) -> Option<Call> {
        let mut known = CALLS.iter().enumerate().filter(|(_, name)| name.starts_with("fadvise64 "));
        known.nth(usize::try_from(number).ok()?).map(|(at, _)| Call(at as u8))
    }

    /// Returns the call with this name.
    pub fn named(name: &str) -> Option<Call> {
        CALLS.iter().position(|known| *known == name).map(|at| Call(at as u8))
    }
}

/// A file of a trace: an index into [`Header::files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Time from the start of the trace to the start of the request (ns).
    pub start_ns: u64,
    /// Time from the start to the end of the request (ns). None if unknown.
    pub latency_ns: Option<u64>,
    /// Process id, or 0 if unknown.
    pub process: u32,
    /// Thread id, or 0 if unknown.
    pub thread: u32,
    /// The call or interface that made the request.
    pub call: Call,
    /// The operation of the request.
    pub operation: Operation,
    /// The file, or the device for [`Call::BLOCK`].
    pub file: FileId,
    /// Position in the file or on the device (bytes). None if the request has no position (fsync,
    /// pipes), or if unknown.
    pub offset: Option<u64>,
    /// Requested length (bytes).
    pub bytes: u64,
    /// Result of the request: the bytes moved, or a negative error number. None if unknown.
    pub result: Option<i64>,
    /// Whether the request bypassed the page cache (O_DIRECT).
    pub direct: bool,
    /// Whether the request itself made its data durable (O_SYNC, O_DSYNC, FUA).
    pub durable: bool,
    /// Bytes that the device moved for the request before the request returned. None if unknown.
    pub device_bytes: Option<u64>,
    /// Number of times that the thread slept during the call, for example to wait for the device or
    /// for a lock. None if unknown.
    pub sleeps: Option<u64>,
}

impl Request {
    /// Returns the time at which the request ended, since the start of the trace (ns).
    pub fn end_ns(&self) -> Option<u64> {
        Some(self.start_ns.saturating_add(self.latency_ns?))
    }

    /// Returns the bytes that the request moved: the result if known, otherwise the requested
    /// length. 0 if the request failed.
    pub fn moved_bytes(&self) -> u64 {
        match self.result {
            Some(result) => u64::try_from(result).unwrap_or(0),
            None => self.bytes,
        }
    }
}

/// A file that requests of a trace refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Path, device name, or another name in the trace. Empty if unknown.
    pub name: String,
    /// The highest offset that a successful request reached (bytes): the end of a range that was
    /// read, written, reserved or discarded, or the new length after a truncation.
    pub end_bytes: u64,
}

/// A process of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id.
    pub id: u32,
    /// The name of the program.
    pub name: String,
}

/// Events that a trace lost for the same cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// What was lost and why, such as `calls that did not return`.
    pub cause: String,
    /// Number of lost events.
    pub count: u64,
}

/// Facts about a whole trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Source of the trace: `watch`, or the format from which the trace was imported.
    pub source: String,
    /// Command line of the watched program. Empty if unknown.
    #[serde(default)]
    pub command: String,
    /// The directory, file or device whose requests were watched, regardless of the program. Empty
    /// if one program was watched.
    #[serde(default)]
    pub target: String,
    /// Name of the host. Empty if unknown.
    #[serde(default)]
    pub host: String,
    /// Start time of the trace (ns since 1970). None if unknown.
    #[serde(default)]
    pub started_unix_ns: Option<u64>,
    /// Number of requests.
    #[serde(default)]
    pub requests: u64,
    /// Time from the start of the first request to the end of the last request (ns).
    #[serde(default)]
    pub duration_ns: u64,
    /// Duration for which the program was watched (ns). None if unknown.
    #[serde(default)]
    pub watched_ns: Option<u64>,
    /// Highest number of requests in flight. 0 if the trace does not record when requests ended.
    #[serde(default)]
    pub depth_max: u32,
    /// Number of requests that are stored after a request that started later. 0 if the trace is
    /// sorted by start time.
    #[serde(default)]
    pub out_of_order: u64,
    /// The files that requests refer to.
    #[serde(default)]
    pub files: Vec<File>,
    /// The processes whose names are known.
    #[serde(default)]
    pub processes: Vec<Process>,
    /// Numbers of lost events, by cause.
    #[serde(default)]
    pub lost: Vec<Loss>,
    /// Notes for users of the trace, such as facts that the format does not record.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Header {
    /// Returns the name of a file. Empty if unknown.
    pub fn file_name(&self, file: FileId) -> &str {
        self.files.get(file.0 as usize).map_or("", |file| file.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_calls_and_operations_lead_back_to_them() {
        for (at, name) in CALLS.iter().enumerate() {
            assert_eq!(Call::named(name), Some(Call(at as u8)));
            assert_eq!(Call(at as u8).name(), *name);
        }
        let advice = |number| Call::with_advice(number).and_then(Call::advice);
        assert_eq!([advice(0), advice(4), advice(6)], [Some("normal"), Some("dontneed"), None]);
        let reads_ahead = |number| Call::with_advice(number).is_some_and(Call::reads_ahead);
        assert_eq!([reads_ahead(3), reads_ahead(4)], [true, false], "dontneed does not read ahead");
        assert_eq!(Call::LIBAIO.advice(), None);
        assert_eq!((Call::LIBAIO.name(), Call::BLOCK.name()), ("libaio", "block"));
        for operation in Operation::ALL {
            assert_eq!(Operation::named(operation.name()), Some(operation));
        }
        assert_eq!((Call::named("ioctl"), Operation::named("seek")), (None, None));
    }
}
