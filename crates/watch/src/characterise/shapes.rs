//! First pass over a trace. For each file and thread, collects the request sizes, the order of
//! offsets and the accessed range of the file, and counts the writes between flushes.
//!
//! To limit memory, only 8192 pairs of a file and a thread are counted separately. All further
//! files of a thread are counted together.

use std::collections::{BTreeMap, HashMap};

use trace::replay::Level;
use trace::{Call, FileId, Operation, Request};

/// Maximum number of pairs of a file and a thread that are counted separately.
const PAIRS_MAX: usize = 1 << 13;
/// Maximum number of request sizes that a `Shape` counts exactly.
const SIZES_MAX: usize = 64;
/// Maximum number of entries in `Flushes::intervals`.
const INTERVALS_MAX: usize = 64;

/// A file and a thread that accesses the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    /// The file or device. None if the pair combines the files that are not counted separately.
    pub file: Option<FileId>,
    /// Id of the thread. 0 for requests of the block layer.
    pub thread: u32,
}

/// The direction of requests: reads, writes, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Reads only.
    Read,
    /// Writes only.
    Write,
    /// Reads and writes together.
    Both,
}

impl Direction {
    /// All directions.
    pub const ALL: [Direction; 3] = [Direction::Read, Direction::Write, Direction::Both];

    /// Checks whether the direction includes this operation.
    pub fn has(self, operation: Operation) -> bool {
        match self {
            Direction::Read => operation == Operation::Read,
            Direction::Write => operation == Operation::Write,
            Direction::Both => operation.moves_data(),
        }
    }
}

/// Counts of sequential, strided and random requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Order {
    /// Number of requests that start where the previous request ended.
    pub sequential: u64,
    /// Number of non-sequential requests that continue a constant stride.
    pub strided: u64,
    /// Number of requests that are neither sequential nor strided. The first request is not
    /// counted.
    pub random: u64,
    /// Most common stride, if more than half of the strided requests have the same stride (bytes).
    pub stride_bytes: i64,
    votes: i64,
    last: Option<(u64, u64)>,
    distance: i64,
}

impl Order {
    /// Returns the number of requests that follow another request.
    pub fn following(&self) -> u64 {
        self.sequential + self.strided + self.random
    }

    fn add(&mut self, offset: u64, bytes: u64) {
        if let Some((start, end)) = self.last {
            let distance = offset.wrapping_sub(start) as i64;
            if offset == end {
                self.sequential += 1;
            } else if distance == self.distance && distance != 0 {
                self.strided += 1;
                self.vote(distance);
            } else {
                self.random += 1;
            }
            self.distance = distance;
        }
        self.last = Some((offset, offset.saturating_add(bytes)));
    }

    /// Updates the most common stride with the Boyer-Moore majority vote algorithm.
    fn vote(&mut self, distance: i64) {
        match self.votes {
            0 => (self.stride_bytes, self.votes) = (distance, 1),
            _ if distance == self.stride_bytes => self.votes += 1,
            _ => self.votes -= 1,
        }
    }
}

/// Counts of flushes and of the writes between them.
#[derive(Clone, Debug, Default)]
pub struct Flushes {
    /// Number of flushes that followed a write.
    pub count: u64,
    /// Number of flushes in `count` that flush data only (fdatasync).
    pub data_only: u64,
    /// Number of writes since the previous flush, summed over the flushes in `count`.
    pub writes: u64,
    /// Histogram of the number of writes since the previous flush. Keys are numbers of writes,
    /// values are numbers of flushes.
    pub intervals: BTreeMap<u64, u64>,
    since: u64,
}

impl Flushes {
    fn flush(&mut self, data_only: bool) {
        if self.since == 0 {
            return;
        }
        self.count += 1;
        self.data_only += u64::from(data_only);
        self.writes += self.since;
        if self.intervals.len() < INTERVALS_MAX || self.intervals.contains_key(&self.since) {
            *self.intervals.entry(self.since).or_default() += 1;
        }
        self.since = 0;
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Flushes) {
        self.count += other.count;
        self.data_only += other.data_only;
        self.writes += other.writes;
        for (interval, count) in &other.intervals {
            *self.intervals.entry(*interval).or_default() += count;
        }
    }
}

/// Statistics of the requests of a file and thread in one direction.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// Number of requests.
    pub count: u64,
    /// Number of reads.
    pub reads: u64,
    /// Number of bytes moved.
    pub bytes: u64,
    /// Number of requests of each size (bytes).
    pub sizes: BTreeMap<u64, u64>,
    /// Counts of sequential, strided and random requests.
    pub order: Order,
    /// Offsets of the start and the end of the accessed range (bytes). None if no request has an
    /// offset.
    pub range: Option<(u64, u64)>,
    /// Number of requests that bypass the page cache.
    pub direct: u64,
    /// Number of writes that are durable on completion, without a separate flush.
    pub durable: u64,
    /// Number of bytes moved by buffered reads. A read is included only if the trace contains the
    /// number of bytes that the device moved for it.
    pub buffered_bytes: u64,
    /// Number of bytes that the device moved for the reads that `buffered_bytes` includes.
    pub device_bytes: u64,
    /// Number of the reads included in `buffered_bytes` whose thread slept, for example to wait for
    /// readahead.
    pub slept: u64,
    /// Number of requests issued through io_uring.
    pub io_uring: u64,
    /// Number of requests issued through libaio.
    pub libaio: u64,
    /// Number of requests issued through synchronous system calls, such as pread.
    pub waiting_calls: u64,
    /// Number of requests whose latency is known.
    pub timed: u64,
    /// Sum of the known latencies (ns).
    pub latency_ns: u64,
}

impl Shape {
    fn take(&mut self, request: &Request) {
        let bytes = request.moved_bytes();
        self.count += 1;
        self.reads += u64::from(request.operation == Operation::Read);
        self.bytes = self.bytes.saturating_add(bytes);
        add_size(&mut self.sizes, bytes, 1);
        if let Some(offset) = request.offset {
            self.order.add(offset, bytes);
            let (low, high) = self.range.unwrap_or((u64::MAX, 0));
            self.range = Some((low.min(offset), high.max(offset.saturating_add(bytes))));
        }
        self.direct += u64::from(request.direct);
        self.durable += u64::from(request.durable && request.operation == Operation::Write);
        if let (Operation::Read, false, Some(device_bytes)) =
            (request.operation, request.direct, request.device_bytes)
        {
            self.buffered_bytes = self.buffered_bytes.saturating_add(bytes);
            self.device_bytes = self.device_bytes.saturating_add(device_bytes);
            self.slept += u64::from(request.sleeps.unwrap_or(0) > 0);
        }
        match request.call {
            Call::IO_URING => self.io_uring += 1,
            Call::LIBAIO => self.libaio += 1,
            Call::UNKNOWN | Call::BLOCK => {}
            _ => self.waiting_calls += 1,
        }
        if let Some(latency) = request.latency_ns {
            self.timed += 1;
            self.latency_ns = self.latency_ns.saturating_add(latency);
        }
    }

    /// Returns the length of the accessed range (bytes).
    pub fn range_bytes(&self) -> u64 {
        self.range.map_or(0, |(low, high)| high - low)
    }

    /// Returns the most common request size (bytes).
    pub fn common_size(&self) -> u64 {
        let most = self.sizes.iter().max_by_key(|(_, count)| **count);
        most.map_or(0, |(bytes, _)| *bytes)
    }
}

/// Counts requests of one size. After 64 different sizes, new sizes are rounded up to a power of
/// two.
pub fn add_size(sizes: &mut BTreeMap<u64, u64>, bytes: u64, count: u64) {
    let is_known = sizes.len() < SIZES_MAX || sizes.contains_key(&bytes);
    let rounded = || bytes.checked_next_power_of_two().unwrap_or(u64::MAX);
    *sizes.entry(if is_known { bytes } else { rounded() }).or_default() += count;
}

/// Statistics of a file and a thread: one `Shape` for each direction, and the flushes.
#[derive(Clone, Debug, Default)]
pub struct PairShapes {
    shapes: [Shape; 3],
    /// Flushes that the thread made.
    pub flushes: Flushes,
}

impl PairShapes {
    /// Returns the statistics of the requests in one direction.
    pub fn of(&self, direction: Direction) -> &Shape {
        &self.shapes[direction as usize]
    }
}

/// Access order and flushes of a file, for all threads together.
#[derive(Clone, Debug, Default)]
pub struct FileShapes {
    orders: [Order; 3],
    /// Flushes by threads that do not write to the file themselves.
    pub flushes: Flushes,
}

impl FileShapes {
    /// Returns the access order of all threads together in one direction.
    pub fn order(&self, direction: Direction) -> &Order {
        &self.orders[direction as usize]
    }
}

/// Results of the first pass over a trace.
#[derive(Clone, Debug, Default)]
pub struct Shapes {
    level: Level,
    /// Statistics of each pair of a file and a thread.
    pub pairs: HashMap<Pair, PairShapes>,
    /// Access order and flushes of each file.
    pub files: HashMap<FileId, FileShapes>,
    /// For each thread, the pair of its last write.
    written: HashMap<u32, Pair>,
    /// Number of requests that failed or moved nothing. They are not part of the model.
    pub empty: u64,
    /// Number of page faults in mapped files. They are not part of the model.
    pub page_faults: u64,
    /// Number of requests that do not move data, such as opening a file. They are not part of the
    /// model.
    pub others: u64,
    /// Number of requests to files that are not counted separately, because there are too many.
    pub collapsed: u64,
}

impl Shapes {
    /// Starts a first pass over the requests of one level: system calls or block layer.
    pub fn new(level: Level) -> Shapes {
        Shapes { level, ..Shapes::default() }
    }

    /// Returns true if no reads or writes were counted.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Returns the file and thread for which a request is counted. None if the request is not part
    /// of the model.
    pub fn pair_of(&self, request: &Request) -> Option<Pair> {
        let is_data = request.operation.moves_data() && request.call != Call::PAGE_FAULT;
        if Level::of(request) != self.level || !is_data || request.moved_bytes() == 0 {
            return None;
        }
        let thread = if self.level == Level::Block { 0 } else { request.thread };
        let pair = Pair { file: Some(request.file), thread };
        let of_thread = Pair { file: None, ..pair };
        let has_room =
            |pair: &Pair, most: usize| self.pairs.contains_key(pair) || self.pairs.len() < most;
        Some(match pair {
            pair if has_room(&pair, PAIRS_MAX) => pair,
            _ if has_room(&of_thread, 2 * PAIRS_MAX) => of_thread,
            _ => Pair { file: None, thread: 0 },
        })
    }

    /// Returns the file that a flush makes durable, and the thread that flushes. None if this
    /// thread has not written to the file. sync and syncfs flush all files. If such a call would
    /// give None, the file of the thread's last write is returned instead.
    pub fn flushed_pair(&self, request: &Request) -> Option<Pair> {
        let thread = if self.level == Level::Block { 0 } else { request.thread };
        let pair = Pair { file: Some(request.file), thread };
        let writes = |pair: &Pair| {
            self.pairs.get(pair).is_some_and(|shapes| shapes.of(Direction::Write).count > 0)
        };
        let of_all = matches!(request.call.name(), "sync" | "syncfs");
        let last = || self.written.get(&thread).copied().filter(|_| of_all);
        Some(pair).filter(writes).or_else(last)
    }

    /// Checks whether a request of this level is a flush. sync_file_range does not count as a
    /// flush, because it does not make writes durable.
    pub fn is_flush(&self, request: &Request) -> bool {
        let is_partial = request.call.name() == "sync_file_range";
        Level::of(request) == self.level && request.operation == Operation::Flush && !is_partial
    }

    /// Adds a request.
    pub fn take(&mut self, request: &Request) {
        if self.is_flush(request) {
            self.flush(request);
        } else if let Some(pair) = self.pair_of(request) {
            self.data(pair, request);
        } else if Level::of(request) == self.level {
            let is_data = request.operation.moves_data();
            let count = match request.call {
                Call::PAGE_FAULT => &mut self.page_faults,
                _ if is_data => &mut self.empty,
                _ => &mut self.others,
            };
            *count += 1;
        }
    }

    fn data(&mut self, pair: Pair, request: &Request) {
        self.collapsed += u64::from(pair.file.is_none());
        let shapes = self.pairs.entry(pair).or_default();
        let has_room = self.files.len() < PAIRS_MAX || self.files.contains_key(&request.file);
        let mut file = has_room.then(|| self.files.entry(request.file).or_default());
        for direction in Direction::ALL.into_iter().filter(|way| way.has(request.operation)) {
            shapes.shapes[direction as usize].take(request);
            if let Some((file, offset)) = file.as_mut().zip(request.offset) {
                file.orders[direction as usize].add(offset, request.moved_bytes());
            }
        }
        if request.operation == Operation::Write {
            shapes.flushes.since += 1;
            if let Some(file) = file {
                file.flushes.since += 1;
            }
            if self.written.len() < PAIRS_MAX || self.written.contains_key(&pair.thread) {
                self.written.insert(pair.thread, pair);
            }
        }
    }

    fn flush(&mut self, request: &Request) {
        let data_only = request.call.name() == "fdatasync";
        match self.flushed_pair(request) {
            Some(pair) => {
                if let Some(shapes) = self.pairs.get_mut(&pair) {
                    shapes.flushes.flush(data_only);
                }
            }
            None => {
                if let Some(file) = self.files.get_mut(&request.file) {
                    file.flushes.flush(data_only);
                }
            }
        }
    }
}
