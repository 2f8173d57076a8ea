//! Options of readers and writers, and the plan derived from them for a file: direct or buffered
//! I/O, engine, request size and depth.

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
    /// Automatic: see [`Options`].
    #[default]
    Auto,
    /// Direct I/O if the file system supports it.
    Direct,
    /// Buffered I/O.
    Buffered,
}

/// Options of a [`Reader`](crate::Reader) or [`Writer`](crate::Writer); the defaults suit most
/// programs.
///
/// A file is read through the page cache if it is smaller than [`Options::SMALL_BYTES`], at least
/// half cached, in memory (tmpfs), not seekable (a pipe), or on a file system without direct I/O.
/// Otherwise it is read with direct I/O. A file is written through the page cache if it is in
/// memory, on a file system without direct I/O, or opened for appending, and while it is smaller
/// than one request. Otherwise it is written with direct I/O. Size and number of direct requests
/// come from `halfpower tune` if the storage was measured, or from a table of storage kinds.
/// Through the page cache, one thread moves 256 KiB at a time, and the kernel reads ahead.
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
    /// Maximum number of requests in flight; memory is reserved for it.
    pub depth_most: u32,
    /// The reason, in words.
    pub why: String,
}

impl Plan {
    /// Whether the plan keeps requests in flight or uses direct I/O.
    pub(crate) fn uses_requests(&self) -> bool {
        self.direct || self.engine_kind != EngineKind::Sync
    }

    /// A plan for one request at a time through the page cache.
    pub(crate) fn buffered(request_bytes: u32, why: &str) -> Plan {
        let (engine_kind, why) = (EngineKind::Sync, why.to_owned());
        Plan { direct: false, engine_kind, request_bytes, depth: 1, depth_most: 1, why }
    }

    /// Makes requests end at chunk boundaries and gives each file of the stripe an equal share of
    /// the bytes in flight.
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
    /// Smaller files go through the page cache (bytes), because the setup of direct requests would
    /// cost more than it saves.
    pub const SMALL_BYTES: u64 = 1 << 20;
    /// Request size through the page cache (bytes): large enough that system calls cost little,
    /// small enough to stay in the cache of a core.
    pub const BUFFERED_BYTES: u32 = 256 << 10;

    /// The default options.
    pub fn new() -> Options {
        Options::default()
    }

    /// Sets whether the page cache is used.
    #[must_use]
    pub fn cache(mut self, cache: Cache) -> Options {
        self.cache = cache;
        self
    }

    /// Sets the engine; not [`EngineKind::Mmap`] or engines that do no I/O.
    #[must_use]
    pub fn engine_kind(mut self, engine_kind: EngineKind) -> Options {
        self.engine_kind = Some(engine_kind);
        self
    }

    /// Sets the request size (bytes); rounded to what storage and memory support.
    #[must_use]
    pub fn request_bytes(mut self, bytes: u32) -> Options {
        self.request_bytes = Some(bytes);
        self
    }

    /// Sets a constant number of requests in flight.
    #[must_use]
    pub fn depth(mut self, depth: u32) -> Options {
        self.depth = Some(depth);
        self
    }

    /// Sets whether holes are skipped without reading them (the default), and preserved by
    /// [`copy`](crate::copy()).
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
    /// example because it has no name yet. Its size may then exceed the written bytes, which allows
    /// several writes in flight. Otherwise the file size never exceeds the written bytes.
    #[must_use]
    pub fn unseen(mut self, unseen: bool) -> Options {
        self.unseen = unseen;
        self
    }

    /// Sets whether [`Writer::finish`](crate::Writer::finish) makes the file durable.
    #[must_use]
    pub fn durable(mut self, durable: bool) -> Options {
        self.durable = durable;
        self
    }

    /// Sets whether a reader drops the pages that it brought into the page cache, if nothing of the
    /// file was cached before. For programs that read many files once.
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

    /// Whether request size or depth were set explicitly, so that they are not reduced to fit the
    /// memory limit.
    pub(crate) fn asks_for_memory(&self) -> bool {
        self.depth.is_some() || self.request_bytes.is_some()
    }

    pub(crate) fn setup(&self) -> Setup {
        Setup { engine_kind: self.engine_kind, faults: self.faults.clone() }
    }

    /// Whether the options ask for requests in flight, even through the page cache: by the engine,
    /// by a depth above 1, or by faults.
    pub(crate) fn asks_for_requests(&self) -> bool {
        let asked = self.engine_kind.is_some_and(|p| p != EngineKind::Sync);
        asked || self.depth.is_some_and(|depth| depth > 1) || !self.faults.rules.is_empty()
    }

    /// The plan for an open file; `size` is its size (bytes) if known.
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
        let origin = if measured { "as tuned" } else { "default of this kind of storage" };
        let why = format!("{why}; on {} ({origin})", storage.kind);
        Plan { direct, engine_kind, request_bytes, depth, depth_most, why }
    }

    /// Whether to use direct I/O, and why. Checks that cost system calls come last.
    fn direct(&self, op: Op, opened: &Opened, size: Option<u64>) -> (bool, &'static str) {
        if !opened.has_offsets {
            return (false, "a stream has no offsets");
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
            Cache::Buffered => return (false, "as requested"),
            Cache::Auto if small => return (false, "small"),
            _ => {}
        }
        let is_cached = || size.is_some_and(|size| opened.is_mostly_cached(size));
        if !opened.may_be_direct() {
            let in_memory = opened.storage().kind == Kind::Memory;
            return (false, if in_memory { "the file is in memory" } else { "no direct I/O here" });
        }
        match self.cache {
            Cache::Direct => (true, "as requested"),
            _ if op == Op::Read && is_cached() => (false, "the file is in the page cache"),
            _ if op == Op::Read => (true, "large and cold"),
            _ => (true, "large"),
        }
    }
}

/// Rounds to a request size that every device supports (bytes).
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
        assert_eq!(plan(&file, 1 << 19, &auto), (false, "small".into()));
        let direct = Options::new().cache(Cache::Direct);
        assert!(plan(&file, 0, &direct).1.contains("the size of the file is unknown"));
        file.write_all_at(&vec![1; 2 << 20], 0).unwrap();
        let (is_direct, why) = plan(&file, 2 << 20, &auto);
        assert!(!is_direct, "just written, so it is cached or lies in memory: {why}");
        let (pipe, _) = std::io::pipe().unwrap();
        assert_eq!(
            plan(&File::from(std::os::fd::OwnedFd::from(pipe)), 1 << 30, &auto),
            (false, "a stream has no offsets".into())
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
            plan.to_string().starts_with("buffered, 12 KiB x 3, threads: as requested"),
            "{plan}"
        );
    }
}
