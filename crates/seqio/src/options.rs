//! Options of readers and writers, and the plan for each file: direct or buffered I/O, engine,
//! request size and depth.

use std::fmt;

use ioengine::fault::FaultPlan;
use ioengine::{EngineKind, Op};

use crate::opened::Opened;
use crate::requests::{Setup, best_engine_kind};
use crate::storage::Kind;
use crate::tune::{self, DEPTHS, REQUEST_BYTES};

/// Whether the page cache is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    /// Direct or buffered I/O, chosen for each file as described at [`Options`].
    #[default]
    Auto,
    /// Direct I/O if the file system supports it, otherwise buffered I/O.
    Direct,
    /// Buffered I/O.
    Buffered,
}

/// Options of a [`Reader`](crate::Reader) or [`Writer`](crate::Writer). The defaults suit most
/// programs.
///
/// A file is read with direct I/O, unless it is smaller than [`Options::SMALL_BYTES`], at least
/// half cached, in memory (tmpfs), not seekable (a pipe), or on a file system without direct I/O. A
/// file is written with direct I/O, unless it is smaller than one request, in memory, opened for
/// appending, or on a file system without direct I/O. All other files are read and written through
/// the page cache.
///
/// Direct requests have the size and depth that `halfpower tune` measured for the storage, or else
/// defaults for the kind of storage. Buffered I/O uses requests of 256 KiB, one at a time, and
/// relies on the read-ahead of the kernel.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub(crate) cache: Cache,
    pub(crate) engine_kind: Option<EngineKind>,
    pub(crate) request_bytes: Option<u32>,
    pub(crate) depth: Option<u32>,
    pub(crate) keep_holes: Option<bool>,
    pub(crate) size: Option<u64>,
    pub(crate) unseen: bool,
    pub(crate) durable: bool,
    pub(crate) leave_cache: bool,
    pub(crate) faults: FaultPlan,
}

/// How a file is read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Whether direct I/O is used.
    pub direct: bool,
    /// The engine. [`EngineKind::Sync`] means one request at a time in the calling thread.
    pub engine_kind: EngineKind,
    /// Request size (bytes).
    pub request_bytes: u32,
    /// Initial number of requests in flight.
    pub depth: u32,
    /// Maximum number of requests in flight. Memory for all of them is reserved.
    pub depth_most: u32,
    /// Why direct or buffered I/O was chosen, as text for users.
    pub why: String,
}

impl Plan {
    /// Returns whether the plan keeps requests in flight or uses direct I/O.
    pub(crate) fn uses_requests(&self) -> bool {
        self.direct || self.engine_kind != EngineKind::Sync
    }

    /// Creates a plan for one request at a time through the page cache.
    pub(crate) fn buffered(request_bytes: u32, why: &str) -> Plan {
        let (engine_kind, why) = (EngineKind::Sync, why.to_owned());
        Plan { direct: false, engine_kind, request_bytes, depth: 1, depth_most: 1, why }
    }

    /// Adapts a plan that was made for a single file to a stripe of `members` files. The request
    /// size is changed, so that requests end at chunk boundaries. The depth is raised, so that each
    /// file of the stripe has as many bytes in flight as the single file would have.
    pub(crate) fn fit_chunk(&mut self, chunk_bytes: u64, members: usize) {
        let wanted = u64::from(self.request_bytes);
        let fits = |parts: &u64| {
            chunk_bytes.is_multiple_of(*parts) && (chunk_bytes / parts).is_multiple_of(4096)
        };
        let fewest = chunk_bytes.div_ceil(wanted).max(1);
        let parts = (fewest..=chunk_bytes.div_ceil(4096)).find(fits);
        let request = parts.map_or(chunk_bytes, |parts| chunk_bytes / parts);
        self.direct &= request.is_multiple_of(4096);
        let more = (wanted / request.max(1)).max(1) as u32 * members as u32;
        let times = |depth: u32| depth.saturating_mul(more).clamp(*DEPTHS.start(), *DEPTHS.end());
        (self.depth, self.depth_most) = (times(self.depth), times(self.depth_most));
        self.request_bytes = u32::try_from(request).unwrap_or(*REQUEST_BYTES.end());
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cache = if self.direct { "direct" } else { "buffered" };
        let (kib, depth) = (self.request_bytes >> 10, self.depth);
        write!(f, "{cache}, {kib} KiB x {depth}, {}: {}", self.engine_kind, self.why)
    }
}

impl Options {
    /// Minimum size of a file for which [`Cache::Auto`] chooses direct I/O (bytes). For a smaller
    /// file, the setup of direct requests would cost more than direct I/O saves.
    pub const SMALL_BYTES: u64 = 1 << 20;
    /// Request size for reads and writes through the page cache (bytes). It is large enough that
    /// system calls cost little, and small enough that the data stay in the CPU cache.
    pub const BUFFERED_BYTES: u32 = 256 << 10;

    /// Returns the default options.
    pub fn new() -> Options {
        Options::default()
    }

    /// Sets whether the page cache is used.
    #[must_use]
    pub fn cache(mut self, cache: Cache) -> Options {
        self.cache = cache;
        self
    }

    /// Sets the engine. [`EngineKind::Mmap`] and engines that do no I/O are not supported.
    #[must_use]
    pub fn engine_kind(mut self, engine_kind: EngineKind) -> Options {
        self.engine_kind = Some(engine_kind);
        self
    }

    /// Sets the request size (bytes). The minimum is 4 KiB, and the maximum is 64 MiB. Values
    /// outside this range are replaced by the minimum or maximum. Other values are rounded up to a
    /// multiple of 4 KiB.
    #[must_use]
    pub fn request_bytes(mut self, bytes: u32) -> Options {
        self.request_bytes = Some(bytes);
        self
    }

    /// Sets a fixed number of requests in flight, from 1 to 256. By default, a reader adapts the
    /// number.
    #[must_use]
    pub fn depth(mut self, depth: u32) -> Options {
        self.depth = Some(depth);
        self
    }

    /// Sets whether a reader returns holes as zeros without reading them, and whether
    /// [`copy`](crate::copy()) preserves holes. The default is true.
    #[must_use]
    pub fn keep_holes(mut self, keep: bool) -> Options {
        self.keep_holes = Some(keep);
        self
    }

    /// Sets the expected file size (bytes). Space is reserved immediately, so a full file system is
    /// detected before anything is written. The actual size may differ.
    #[must_use]
    pub fn size(mut self, bytes: u64) -> Options {
        self.size = Some(bytes);
        self
    }

    /// Promises that nobody reads the file before [`Writer::finish`](crate::Writer::finish), for
    /// example because the file has no name yet. The file size may then exceed the written bytes,
    /// which allows several writes in flight. Without this promise, the file size never exceeds the
    /// written bytes.
    #[must_use]
    pub fn unseen(mut self, unseen: bool) -> Options {
        self.unseen = unseen;
        self
    }

    /// Sets whether [`Writer::finish`](crate::Writer::finish) waits until the file is on stable
    /// storage (fsync).
    #[must_use]
    pub fn durable(mut self, durable: bool) -> Options {
        self.durable = durable;
        self
    }

    /// Sets whether a reader drops the pages that it brought into the page cache. Pages are dropped
    /// only if no page of the file was cached before. This option suits programs that read many
    /// files once.
    #[must_use]
    pub fn leave_cache(mut self, leave: bool) -> Options {
        self.leave_cache = leave;
        self
    }

    /// Injects faults, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn faults(mut self, faults: FaultPlan) -> Options {
        self.faults = faults;
        self
    }

    /// Returns whether the request size or the depth was set explicitly. If so, neither is reduced
    /// to fit the memory limit.
    pub(crate) fn asks_for_memory(&self) -> bool {
        self.depth.is_some() || self.request_bytes.is_some()
    }

    pub(crate) fn setup(&self) -> Setup {
        Setup { engine_kind: self.engine_kind, faults: self.faults.clone() }
    }

    /// Returns true if buffered I/O must also use an engine: the options specify an engine other
    /// than `Sync`, a depth above 1, or faults.
    pub(crate) fn asks_for_requests(&self) -> bool {
        let asked = self.engine_kind.is_some_and(|p| p != EngineKind::Sync);
        asked || self.depth.is_some_and(|depth| depth > 1) || !self.faults.rules.is_empty()
    }

    /// Returns the plan for an open file. `size` is the size of the file (bytes), if known.
    pub(crate) fn plan(&self, op: Op, opened: &Opened, size: Option<u64>) -> Plan {
        let (direct, why) = self.direct(op, opened, size);
        if !opened.has_offsets || opened.appends || !(direct || self.asks_for_requests()) {
            let bytes = self.request_bytes.unwrap_or(Options::BUFFERED_BYTES);
            return Plan::buffered(request_size(bytes), why);
        }
        let storage = opened.storage();
        let (setting, measured) = tune::setting(storage, op);
        let engine_kind = self.engine_kind.unwrap_or_else(|| best_engine_kind(direct));
        let alone = engine_kind == EngineKind::Sync;
        let depth = self.depth.unwrap_or(setting.depth).clamp(*DEPTHS.start(), *DEPTHS.end());
        let depth = if alone { 1 } else { depth };
        let grows = self.depth.is_none() && !alone && op == Op::Read;
        let depth_most = if grows { (2 * depth).min(*DEPTHS.end()) } else { depth };
        let request_bytes = request_size(self.request_bytes.unwrap_or(setting.request_bytes));
        let origin = if measured { "settings of halfpower tune" } else { "default settings" };
        let why = format!("{why}; storage: {} ({origin})", storage.kind);
        Plan { direct, engine_kind, request_bytes, depth, depth_most, why }
    }

    /// Returns whether to use direct I/O, and the reason.
    fn direct(&self, op: Op, opened: &Opened, size: Option<u64>) -> (bool, &'static str) {
        if !opened.has_offsets {
            return (false, "the file is not seekable");
        }
        if opened.appends {
            return (false, "the file was opened for appending");
        }
        if op == Op::Read && size == Some(0) {
            // Files in /proc report a size of 0 but have contents.
            return (false, "the size of the file is unknown");
        }
        let small = size.is_some_and(|size| size < Options::SMALL_BYTES);
        match self.cache {
            Cache::Buffered => return (false, "buffered I/O was requested"),
            Cache::Auto if small => return (false, "the file is small"),
            _ => {}
        }
        let is_cached = || size.is_some_and(|size| opened.is_mostly_cached(size));
        if !opened.may_be_direct() {
            let in_memory = opened.storage().kind == Kind::Memory;
            return (
                false,
                if in_memory { "the file is in memory" } else { "direct I/O is not supported" },
            );
        }
        match self.cache {
            Cache::Direct => (true, "direct I/O was requested"),
            _ if op == Op::Read && is_cached() => (false, "the file is in the page cache"),
            _ if op == Op::Read => (true, "the file is large and not cached"),
            _ => (true, "the file is large"),
        }
    }
}

/// Limits a request size to [`REQUEST_BYTES`], and rounds it up to a multiple of 4 KiB, which every
/// device supports.
fn request_size(bytes: u32) -> u32 {
    bytes.clamp(*REQUEST_BYTES.start(), *REQUEST_BYTES.end()).next_multiple_of(4096)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    fn opened(file: File) -> Opened {
        Opened::new(file, false).unwrap()
    }

    #[test]
    fn small_cached_and_sizeless_files_are_read_through_the_page_cache() {
        let file = tempfile::tempfile().unwrap();
        let plan = |file: &File, size, options: &Options| {
            let plan = options.plan(Op::Read, &opened(file.try_clone().unwrap()), Some(size));
            (plan.direct, plan.why)
        };
        let auto = Options::new();
        assert_eq!(plan(&file, 1 << 19, &auto), (false, "the file is small".into()));
        let direct = Options::new().cache(Cache::Direct);
        assert!(plan(&file, 0, &direct).1.contains("the size of the file is unknown"));
        file.write_all_at(&vec![1; 2 << 20], 0).unwrap();
        let (is_direct, why) = plan(&file, 2 << 20, &auto);
        assert!(!is_direct, "a file just written is cached or in memory: {why}");
        let (pipe, _) = std::io::pipe().unwrap();
        assert_eq!(
            plan(&File::from(std::os::fd::OwnedFd::from(pipe)), 1 << 30, &auto),
            (false, "the file is not seekable".into())
        );
    }

    #[test]
    fn explicit_options_are_followed() {
        let file = opened(tempfile::tempfile().unwrap());
        let options = Options::new().depth(3).request_bytes(10_000);
        let options = options.engine_kind(EngineKind::Threads).cache(Cache::Buffered);
        let plan = options.plan(Op::Read, &file, Some(1 << 10));
        assert_eq!((plan.direct, plan.engine_kind), (false, EngineKind::Threads));
        assert_eq!((plan.request_bytes, plan.depth, plan.depth_most), (12288, 3, 3));
        assert!(
            plan.to_string()
                .starts_with("buffered, 12 KiB x 3, threads: buffered I/O was requested"),
            "{plan}"
        );
    }
}
