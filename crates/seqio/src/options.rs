//! What a program asks of a reader or writer, and what is made of it.

use std::fmt;

use ioengine::fault::FaultPlan;
use ioengine::{Op, Personality};

use crate::storage::{Kind, Storage};
use crate::tune::{self, DEPTHS, REQUEST_BYTES};

/// Whether the page cache is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    /// Where it pays: see [`Options`].
    #[default]
    Auto,
    /// Past it, where the file system can.
    Direct,
    /// Through it.
    Buffered,
}

/// How a [`Reader`](crate::Reader) or [`Writer`](crate::Writer) goes about its work; nothing has to
/// be said.
///
/// What is not said is decided by what is found. A file is read through the page cache when it is
/// smaller than [`Options::SMALL_BYTES`], when at least half of it is there already, when it lies
/// in memory, when it cannot be positioned (a pipe), and when its file system has no direct I/O;
/// else direct. A file is written through the page cache when it lies in memory, when its file
/// system has no direct I/O, and as long as it is smaller than one request; else direct. Direct
/// requests are as large and as many as the tuning of the storage says (`halfpower tune`), else the
/// table by its kind; through the page cache one thread moves 256 KiB at a time, and the system
/// reads ahead.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub(crate) cache: Cache,
    pub(crate) personality: Option<Personality>,
    pub(crate) request_bytes: Option<u32>,
    pub(crate) depth: Option<u32>,
    pub(crate) fixed_depth: bool,
    pub(crate) keep_holes: Option<bool>,
    pub(crate) size: Option<u64>,
    pub(crate) exact_size: bool,
    pub(crate) durable: bool,
    pub(crate) leave_cache: bool,
    pub(crate) faults: FaultPlan,
}

/// What was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Past the page cache.
    pub direct: bool,
    /// How requests are issued; [`Personality::Sync`] one at a time by the thread itself.
    pub personality: Personality,
    /// Bytes of each request.
    pub request_bytes: u32,
    /// Requests outstanding at the beginning, ...
    pub depth: u32,
    /// ... and at the most; memory is set aside for so many.
    pub depth_most: u32,
    /// Why, in words.
    pub why: String,
}

impl Plan {
    /// Requests that end where chunks do, and as many bytes outstanding for each of the members.
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
        write!(f, "{cache}, {kib} KiB x {depth}, {}: {}", self.personality, self.why)
    }
}

impl Options {
    /// Files smaller than this go through the page cache (bytes): setting up direct requests would
    /// cost more than they save.
    pub const SMALL_BYTES: u64 = 1 << 20;
    /// How much is moved at a time through the page cache (bytes): large enough that entering the
    /// kernel costs nothing beside it, small enough to stay in a core's cache.
    pub const BUFFERED_BYTES: u32 = 256 << 10;

    /// Nothing is said.
    pub fn new() -> Options {
        Options::default()
    }

    /// Whether the page cache is used.
    #[must_use]
    pub fn cache(mut self, cache: Cache) -> Options {
        self.cache = cache;
        self
    }

    /// How requests are issued; not [`Personality::Mmap`] and those that do no I/O.
    #[must_use]
    pub fn personality(mut self, personality: Personality) -> Options {
        self.personality = Some(personality);
        self
    }

    /// Bytes of each request; rounded to what storage and memory can do.
    #[must_use]
    pub fn request_bytes(mut self, bytes: u32) -> Options {
        self.request_bytes = Some(bytes);
        self
    }

    /// Requests outstanding, from beginning to end.
    #[must_use]
    pub fn depth(mut self, depth: u32) -> Options {
        (self.depth, self.fixed_depth) = (Some(depth), true);
        self
    }

    /// Whether holes of a file are skipped when reading it, without asking the storage (they are by
    /// default), and left holes by [`copy`](crate::copy()).
    #[must_use]
    pub fn keep_holes(mut self, keep: bool) -> Options {
        self.keep_holes = Some(keep);
        self
    }

    /// How large the file will be: space is reserved for it at once, and a full file system is
    /// found out before anything is written. More or less may be written all the same (bytes).
    #[must_use]
    pub fn size(mut self, bytes: u64) -> Options {
        self.size = Some(bytes);
        self
    }

    /// The file is never larger than what was written to it. By default space is reserved ahead of
    /// what is written, which is several times faster; until it is finished the file then ends in
    /// zeros.
    #[must_use]
    pub fn exact_size(mut self, exact: bool) -> Options {
        self.exact_size = exact;
        self
    }

    /// Whether [`Writer::finish`](crate::Writer::finish) makes the file durable.
    #[must_use]
    pub fn durable(mut self, durable: bool) -> Options {
        self.durable = durable;
        self
    }

    /// Whether a reader takes what it brought into the page cache out again, where nothing of the
    /// file was there before: for programs that read many files once.
    #[must_use]
    pub fn leave_cache(mut self, leave: bool) -> Options {
        self.leave_cache = leave;
        self
    }

    /// Requests suffer faults: for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn faults(mut self, faults: FaultPlan) -> Options {
        self.faults = faults;
        self
    }

    /// Whether requests are to be issued in a way that was asked for.
    pub(crate) fn asks_for_requests(&self) -> bool {
        let asked = self.personality.is_some_and(|p| p != Personality::Sync);
        asked || self.depth.is_some_and(|depth| depth > 1) || !self.faults.rules.is_empty()
    }

    /// What is decided for a file that is open.
    pub(crate) fn plan(&self, op: Op, found: &Found) -> Plan {
        let (direct, why) = self.direct(op, found);
        let deep = direct || self.asks_for_requests();
        let (setting, measured) = tune::setting(&found.storage, op);
        let personality = self.personality.unwrap_or(Personality::IoUring);
        if !deep {
            let bytes = self.request_bytes.unwrap_or(Options::BUFFERED_BYTES);
            let request_bytes = request_size(bytes);
            let personality = Personality::Sync;
            return Plan { direct, personality, request_bytes, depth: 1, depth_most: 1, why };
        }
        let alone = personality == Personality::Sync;
        let depth = self.depth.unwrap_or(setting.depth).clamp(*DEPTHS.start(), *DEPTHS.end());
        let depth = if alone { 1 } else { depth };
        let grows = !self.fixed_depth && !alone && op == Op::Read;
        let depth_most = if grows { (2 * depth).min(*DEPTHS.end()) } else { depth };
        let request_bytes = request_size(self.request_bytes.unwrap_or(setting.request_bytes));
        let origin = if measured { "as tuned" } else { "by its kind" };
        let why = format!("{why}; on {} ({origin})", found.storage.kind);
        Plan { direct, personality, request_bytes, depth, depth_most, why }
    }

    fn direct(&self, op: Op, found: &Found) -> (bool, String) {
        let small = found.size.is_some_and(|size| size < Options::SMALL_BYTES);
        let hot = || found.resident.is_some_and(|hot| found.size.is_some_and(|all| hot * 2 >= all));
        let (direct, why) = match self.cache {
            _ if !found.direct => (false, "no direct I/O here"),
            // Files of /proc are said to be empty, and hold something all the same.
            _ if op == Op::Read && found.size == Some(0) => (false, "its size is not told"),
            Cache::Direct => (true, "as asked for"),
            Cache::Buffered => (false, "as asked for"),
            Cache::Auto if found.storage.kind == Kind::Memory => (false, "it lies in memory"),
            Cache::Auto if small => (false, "small"),
            Cache::Auto if op == Op::Read && hot() => (false, "it is in the page cache"),
            Cache::Auto => (true, "large and cold"),
        };
        let why = if direct && op == Op::Write { "large" } else { why };
        (direct, why.to_owned())
    }
}

/// A request size that every device can do (bytes).
fn request_size(bytes: u32) -> u32 {
    bytes.clamp(*REQUEST_BYTES.start(), *REQUEST_BYTES.end()).next_multiple_of(4096)
}

/// What was found of a file.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Direct I/O can be tried.
    pub direct: bool,
    /// None where it is not known (bytes).
    pub size: Option<u64>,
    /// In the page cache, where the system tells (bytes).
    pub resident: Option<u64>,
    pub storage: std::sync::Arc<Storage>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn found(kind: Kind, size: u64, resident: u64) -> Found {
        let storage =
            Storage { kind, identity: "none of this host".into(), file_system: "x".into() };
        Found {
            direct: true,
            size: Some(size),
            resident: Some(resident),
            storage: Arc::new(storage),
        }
    }

    #[test]
    fn large_and_cold_files_are_read_direct_and_others_through_the_cache() {
        let plan = |kind, size, resident| {
            Options::new().plan(Op::Read, &found(kind, size, resident)).direct
        };
        assert!(plan(Kind::Nvme, 1 << 30, 0));
        assert!(!plan(Kind::Nvme, 1 << 19, 0), "small");
        assert!(!plan(Kind::Nvme, 1 << 30, 1 << 29), "hot");
        assert!(!plan(Kind::Memory, 1 << 30, 0), "in memory");
        let empty = found(Kind::Nvme, 0, 0);
        assert!(!Options::new().cache(Cache::Direct).plan(Op::Read, &empty).direct, "empty");
        let nowhere = Found { direct: false, ..found(Kind::Network, 1 << 30, 0) };
        assert!(!Options::new().cache(Cache::Direct).plan(Op::Read, &nowhere).direct);
    }

    #[test]
    fn what_is_asked_for_is_done() {
        let found = found(Kind::Disk, 1 << 10, 1 << 10);
        let plan = Options::new()
            .cache(Cache::Direct)
            .depth(3)
            .request_bytes(10_000)
            .personality(Personality::Threads)
            .plan(Op::Read, &found);
        assert_eq!((plan.direct, plan.personality), (true, Personality::Threads));
        assert_eq!((plan.request_bytes, plan.depth, plan.depth_most), (12288, 3, 3));
        let deep = Options::new().cache(Cache::Buffered).depth(2).plan(Op::Read, &found);
        assert_eq!((deep.direct, deep.depth), (false, 2));
        assert!(
            plan.to_string().starts_with("direct, 12 KiB x 3, threads: as asked for"),
            "{plan}"
        );
    }
}
