//! Reads a trace for the first time. Assigns a lane to each thread, and an offset in the target to
//! each file. Determines request sizes and depths, and counts the requests that cannot be replayed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};

use crate::error::TraceError;
use crate::replay::selection::{self, FileFacts, Selection};
use crate::replay::{Action, Level, Unfit, action};
use crate::request::{Call, FILES_MOST, FileId, Header, Operation, Request};

/// Maximum number of lanes. If more threads are alive at the same time, they share lanes.
const LANES_MOST: usize = 256;

/// Maximum number of threads that are distinguished. All further threads count as one thread.
const THREADS_MOST: usize = 1 << 20;

/// Maximum number of requests in flight that are tracked for each thread.
const DEPTH_MOST: usize = 1 << 16;

/// Alignment of the start of each file in the target (bytes). Direct I/O needs aligned offsets.
const FILE_ALIGNMENT_BYTES: u64 = 4096;

/// Maximum unused space between two files in the target, if most I/O is buffered (bytes). Equal to
/// the default read-ahead size of Linux.
const GAP_MAX_BYTES: u64 = 128 << 10;

/// Requests that are left out of a replay for the same reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Plural noun for these requests, such as "opens".
    pub what: &'static str,
    /// Number of these requests.
    pub count: u64,
}

/// A lane: the requests of one thread, or of threads that ran one after another. Threads that ran
/// at the same time share a lane only if there are more than 256 of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneFacts {
    /// Number of requests of the lane.
    pub requests: u64,
    /// Maximum number of requests of the lane that were in flight at the same time.
    pub depth_max: u32,
}

/// Facts about a trace that are needed before the replay.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The level of the requests that are replayed.
    pub level: Level,
    /// Numbers of reads, writes and flushes.
    pub requests: [u64; 3],
    /// Number of hints to read ahead or to evict a range.
    pub range_hints: u64,
    /// Number of hints about an open file, such as POSIX_FADV_SEQUENTIAL. 0 if the requests access
    /// several files, because such hints are then left out.
    pub file_hints: u64,
    /// Bytes read and bytes written.
    pub bytes: [u64; 2],
    /// Bytes of direct reads and writes (O_DIRECT).
    pub direct_bytes: u64,
    /// Number of writes that made their data durable without a flush (O_DSYNC, FUA).
    pub durable_writes: u64,
    /// Two numbers of bytes, summed over the requests whose `device_bytes` are known. The first is
    /// the number of bytes that buffered reads returned. The second is the number of bytes that the
    /// device moved for buffered reads and for hints to read ahead, such as POSIX_FADV_WILLNEED.
    pub buffered_read_bytes: [u64; 2],
    /// Number of buffered reads that waited for the device, and number of buffered reads for which
    /// the trace shows whether they waited. A read counts as waiting if its thread slept.
    pub waiting_reads: [u64; 2],
    /// Number of files that the replayed requests access.
    pub file_count: usize,
    /// Ranges of the target for files that the program created, each with an offset and a length
    /// (bytes). A file counts as created by the program if its first read or write was a write at
    /// offset 0.
    pub new_ranges: Vec<(u64, u64)>,
    /// Length of the largest read or write (bytes).
    pub largest_bytes: u64,
    /// Size of a target that contains all files one after another (bytes).
    pub span_bytes: u64,
    /// Whether the trace records the end of most requests. If false, it is unknown which requests
    /// waited for other requests. If true, requests without a recorded end count as ended
    /// immediately.
    pub has_latencies: bool,
    /// Time from the start of the first request to the end of the last request (ns).
    pub duration_ns: u64,
    /// The most frequent call among the reads and writes.
    pub call: Call,
    /// The lanes.
    pub lanes: Vec<LaneFacts>,
    /// The requests that are not replayed.
    pub left_out: Vec<LeftOut>,
    /// Hash of the replayed requests. Equal traces have equal hashes.
    pub fingerprint: u64,
    pub(super) first_start_ns: u64,
    pub(super) files: Vec<FileFacts>,
    threads: HashMap<u32, u32>,
    bases: Vec<u64>,
}

impl Scan {
    /// Reads a whole trace. If `selection` has no level, the calls of the program are replayed. If
    /// the trace has no reads and writes of a program, the requests of the block layer are
    /// replayed.
    ///
    /// # Errors
    /// If the trace cannot be read. Returns the first error of the trace.
    pub fn of(
        trace: impl Iterator<Item = Result<Request, TraceError>>,
        header: &Header,
        selection: &Selection,
    ) -> Result<Scan, TraceError> {
        let files = selection.of_files(header);
        let mut both = Level::ALL.map(|_| Counts::default());
        for request in trace {
            let request = request?;
            let level = Level::of(&request);
            let facts = match level {
                Level::Calls => selection::facts(&files, request.file),
                Level::Block => FileFacts::default(),
            };
            both[level as usize].add(&request, facts);
        }
        let level = selection.level.unwrap_or_else(|| match both[Level::Calls as usize].requests {
            [0, 0, _] => Level::Block,
            _ => Level::Calls,
        });
        let counts = std::mem::take(&mut both[level as usize]);
        let files = if level == Level::Calls { files } else { Vec::new() };
        Ok(Scan { files, ..counts.with_hints_of_one_file().scan(level) })
    }

    /// Returns the number of requests that are replayed.
    pub fn count(&self) -> u64 {
        self.requests.iter().sum::<u64>() + self.range_hints + self.file_hints
    }

    /// Returns the lane of a thread.
    pub(super) fn lane(&self, thread: u32) -> u32 {
        self.threads.get(&thread).or(self.threads.get(&OTHERS)).copied().unwrap_or(0)
    }

    /// Converts an offset in the file of a request to an offset in the target.
    pub(super) fn place(&self, request: &Request, offset: u64) -> u64 {
        let file = (request.file.0 as usize).min(FILES_MOST - 1);
        self.bases.get(file).copied().unwrap_or(0).saturating_add(offset)
    }
}

/// Thread id that replaces the ids of all threads after the first [`THREADS_MOST`] threads.
const OTHERS: u32 = u32::MAX;

#[derive(Debug, Default)]
struct Thread {
    first_ns: u64,
    last_ns: u64,
    requests: u64,
    depth_max: u32,
    in_flight: BinaryHeap<Reverse<u64>>,
}

impl Thread {
    fn add(&mut self, request: &Request) {
        if self.requests == 0 {
            self.first_ns = request.start_ns;
        }
        self.requests += 1;
        let start_ns = request.start_ns;
        self.last_ns = self.last_ns.max(request.end_ns().unwrap_or(start_ns));
        while self.in_flight.peek().is_some_and(|Reverse(end_ns)| *end_ns <= start_ns) {
            self.in_flight.pop();
        }
        if let Some(end_ns) = request.end_ns().filter(|_| self.in_flight.len() < DEPTH_MOST) {
            self.in_flight.push(Reverse(end_ns));
        }
        self.depth_max = self.depth_max.max(self.in_flight.len().max(1) as u32);
    }
}

/// How the requests of one level use a file.
#[derive(Clone, Copy, Debug, Default)]
struct FileUse {
    end_bytes: u64,
    /// Whether the first read or write of the file was a write at offset 0. None if the file was
    /// neither read nor written.
    is_new: Option<bool>,
}

/// Counts of the requests of one level. A [`Scan`] is made from these counts.
#[derive(Debug, Default)]
struct Counts {
    requests: [u64; 3],
    range_hints: u64,
    file_hints: u64,
    bytes: [u64; 2],
    direct_bytes: u64,
    durable_writes: u64,
    buffered_read_bytes: [u64; 2],
    waiting_reads: [u64; 2],
    largest_bytes: u64,
    without_end: u64,
    first_start_ns: Option<u64>,
    end_ns: u64,
    calls: HashMap<Call, u64>,
    threads: HashMap<u32, Thread>,
    files: Vec<FileUse>,
    left_out: BTreeMap<Unfit, u64>,
    fingerprint: u64,
}

impl Counts {
    fn add(&mut self, request: &Request, file: FileFacts) {
        let found = file.unfit.map_or_else(|| action(request, file.end_bytes), Err);
        let (action, offset, bytes) = match found {
            Ok(found) => found,
            Err(unfit) => {
                *self.left_out.entry(unfit).or_default() += 1;
                return;
            }
        };
        let start_ns = request.start_ns;
        self.first_start_ns = Some(self.first_start_ns.map_or(start_ns, |ns| ns.min(start_ns)));
        self.end_ns = self.end_ns.max(request.end_ns().unwrap_or(start_ns));
        self.without_end += u64::from(request.latency_ns.is_none());
        let is_known =
            self.threads.len() < THREADS_MOST || self.threads.contains_key(&request.thread);
        let thread = if is_known { request.thread } else { OTHERS };
        self.threads.entry(thread).or_default().add(request);
        let kind = match action {
            Action::Read => 0,
            Action::Write => 1,
            Action::Flush { .. } => 2,
            Action::Advise(_) => 3,
        };
        for word in [start_ns, offset, bytes, kind as u64 | u64::from(request.file.0) << 8] {
            self.fingerprint = mixed(self.fingerprint ^ word);
        }
        match self.requests.get_mut(kind) {
            Some(requests) => *requests += 1,
            None if bytes > 0 => self.range_hints += 1,
            None => self.file_hints += 1,
        }
        self.note_use(request.file, action, offset, bytes);
        let is_buffered_read = action == Action::Read && !request.direct;
        if let Some(sleeps) = request.sleeps.filter(|_| is_buffered_read) {
            self.waiting_reads[0] += u64::from(sleeps > 0);
            self.waiting_reads[1] += 1;
        }
        if let Some(device_bytes) = request.device_bytes
            && (is_buffered_read || matches!(action, Action::Advise(call) if call.reads_ahead()))
        {
            let [read, device] = self.buffered_read_bytes;
            let read_bytes = if is_buffered_read { bytes } else { 0 };
            self.buffered_read_bytes =
                [read.saturating_add(read_bytes), device.saturating_add(device_bytes)];
        }
        let Some(moved) = self.bytes.get_mut(kind) else { return };
        *moved = moved.saturating_add(bytes);
        let direct_bytes = if request.direct { bytes } else { 0 };
        self.direct_bytes = self.direct_bytes.saturating_add(direct_bytes);
        self.durable_writes += u64::from(action == Action::Write && request.durable);
        self.largest_bytes = self.largest_bytes.max(bytes);
        *self.calls.entry(request.call).or_default() += 1;
    }

    /// Updates the facts about the file that a request accessed.
    fn note_use(&mut self, file: FileId, action: Action, offset: u64, bytes: u64) {
        let file = (file.0 as usize).min(FILES_MOST - 1);
        if self.files.len() <= file {
            self.files.resize(file + 1, FileUse::default());
        }
        let known = &mut self.files[file];
        if matches!(action, Action::Read | Action::Write) && known.is_new.is_none() {
            known.is_new = Some(action == Action::Write && offset == 0);
        }
        known.end_bytes = known.end_bytes.max(offset.saturating_add(bytes));
    }

    /// Returns the number of files that the requests access.
    fn file_count(&self) -> usize {
        self.files.iter().filter(|file| file.end_bytes > 0).count()
    }

    /// Leaves out the hints about open files if there are several files.
    fn with_hints_of_one_file(mut self) -> Counts {
        if self.file_count() > 1 && self.file_hints > 0 {
            *self.left_out.entry(Unfit::Other(Operation::Advise)).or_default() += self.file_hints;
            self.file_hints = 0;
        }
        self
    }

    /// Returns the length (bytes) of the gap that follows a file in the test file, which contains
    /// all files of the trace. With separate files, read-ahead stops at the end of a file. In the
    /// test file without the gap, read-ahead would continue into the next file. Zero if more than
    /// half of the bytes are moved by direct requests.
    fn gap_bytes(&self, file_bytes: u64) -> u64 {
        let total = u128::from(self.bytes[0]) + u128::from(self.bytes[1]);
        let is_buffered = u128::from(self.direct_bytes) * 2 <= total;
        if is_buffered { file_bytes.min(GAP_MAX_BYTES) } else { 0 }
    }

    fn scan(self, level: Level) -> Scan {
        let (lanes, threads) = lanes(&self.threads);
        let (mut span_bytes, mut next_base) = (0_u64, 0_u64);
        let mut new_ranges = Vec::new();
        let base = |file: &FileUse| {
            let end = file.end_bytes;
            let base = next_base;
            span_bytes = base.saturating_add(aligned(end));
            next_base = aligned(span_bytes.saturating_add(self.gap_bytes(end)));
            if file.is_new == Some(true) {
                new_ranges.push((base, span_bytes - base));
            }
            base
        };
        let bases = self.files.iter().map(base).collect();
        let most = self.calls.iter().max_by_key(|(call, count)| (**count, call.name()));
        let first_start_ns = self.first_start_ns.unwrap_or(0);
        let left_out = self.left_out.iter();
        Scan {
            level,
            requests: self.requests,
            range_hints: self.range_hints,
            file_hints: self.file_hints,
            bytes: self.bytes,
            direct_bytes: self.direct_bytes,
            durable_writes: self.durable_writes,
            buffered_read_bytes: self.buffered_read_bytes,
            waiting_reads: self.waiting_reads,
            new_ranges,
            file_count: self.file_count(),
            largest_bytes: self.largest_bytes,
            has_latencies: self.without_end * 2 < self.requests.iter().sum::<u64>(),
            duration_ns: self.end_ns.saturating_sub(first_start_ns),
            call: most.map_or(Call::UNKNOWN, |(call, _)| *call),
            lanes,
            left_out: left_out
                .map(|(unfit, count)| LeftOut { what: unfit.what(), count: *count })
                .collect(),
            fingerprint: self.fingerprint,
            first_start_ns,
            files: Vec::new(),
            threads,
            bases,
            span_bytes,
        }
    }
}

/// Rounds `bytes` up to a multiple of [`FILE_ALIGNMENT_BYTES`].
fn aligned(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(FILE_ALIGNMENT_BYTES).unwrap_or(u64::MAX)
}

/// Mixes the bits of a word (the finaliser of SplitMix64).
pub(super) fn mixed(word: u64) -> u64 {
    let mut z = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Assigns each thread to a lane. A thread gets the free lane whose last thread ended most
/// recently, because the new thread may have waited for that thread.
fn lanes(threads: &HashMap<u32, Thread>) -> (Vec<LaneFacts>, HashMap<u32, u32>) {
    let mut order: Vec<(&u32, &Thread)> = threads.iter().collect();
    order.sort_by_key(|(id, thread)| (thread.first_ns, **id));
    let mut lanes: Vec<LaneFacts> = Vec::new();
    let mut ends: BTreeSet<(u64, usize)> = BTreeSet::new();
    let mut found = HashMap::new();
    for (id, thread) in order {
        let free = ends.range(..=(thread.first_ns, usize::MAX)).next_back().copied();
        let lane = match free {
            Some((end_ns, lane)) => {
                ends.remove(&(end_ns, lane));
                lanes[lane].depth_max = lanes[lane].depth_max.max(thread.depth_max);
                lane
            }
            None if lanes.len() < LANES_MOST => {
                lanes.push(LaneFacts { requests: 0, depth_max: thread.depth_max });
                lanes.len() - 1
            }
            // No lane is free, so the thread shares the lane that ends first.
            None => {
                let (end_ns, lane) = ends.pop_first().unwrap_or((0, 0));
                lanes[lane].depth_max = lanes[lane].depth_max.saturating_add(thread.depth_max);
                ends.insert((end_ns.max(thread.last_ns), lane));
                lanes[lane].requests += thread.requests;
                found.insert(*id, lane as u32);
                continue;
            }
        };
        lanes[lane].requests += thread.requests;
        ends.insert((thread.last_ns, lane));
        found.insert(*id, lane as u32);
    }
    (lanes, found)
}
