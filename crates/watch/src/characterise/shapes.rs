//! First pass over a trace: for each file, thread and direction the sizes, the order of offsets,
//! the range of the file, and how often writes are flushed.
//!
//! Memory is bounded: beyond 8192 pairs of a file and a thread, the other files of a thread are
//! counted together.

use std::collections::{BTreeMap, HashMap};

use trace::replay::Level;
use trace::{Call, FileId, Operation, Request};

/// Maximum number of pairs of a file and a thread that are told apart.
const PAIRS_MAX: usize = 1 << 13;
/// Maximum number of request sizes that are counted one by one for each shape.
const SIZES_MAX: usize = 64;
/// Maximum number of intervals between flushes that are counted one by one for each shape.
const INTERVALS_MAX: usize = 64;

/// A file and a thread. The thread is 0 for requests of the block layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    /// The file, or device; None for all files that are not told apart.
    pub file: Option<FileId>,
    /// The thread.
    pub thread: u32,
}

/// Which requests of a pair.
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

    /// Whether requests of this operation belong to it.
    pub fn has(self, operation: Operation) -> bool {
        match self {
            Direction::Read => operation == Operation::Read,
            Direction::Write => operation == Operation::Write,
            Direction::Both => operation.moves_data(),
        }
    }
}

/// How each request follows the one before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Order {
    /// Requests that start where the previous one ended.
    pub sequential: u64,
    /// Requests at the same distance from the previous one as that one from its predecessor.
    pub strided: u64,
    /// All others but the first.
    pub random: u64,
    /// The most common distance of strided requests (bytes), if any has the majority.
    pub stride_bytes: i64,
    votes: i64,
    last: Option<(u64, u64)>,
    distance: i64,
}

impl Order {
    /// Requests that follow another one.
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

    /// The majority vote of Boyer and Moore.
    fn vote(&mut self, distance: i64) {
        match self.votes {
            0 => (self.stride_bytes, self.votes) = (distance, 1),
            _ if distance == self.stride_bytes => self.votes += 1,
            _ => self.votes -= 1,
        }
    }
}

/// Number of writes between flushes.
#[derive(Clone, Debug, Default)]
pub struct Flushes {
    /// Flushes that followed a write.
    pub count: u64,
    /// Those of them that flush data only (fdatasync).
    pub data_only: u64,
    /// Writes before them.
    pub writes: u64,
    /// Flushes by the number of writes since the one before.
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

    /// Adds other flushes.
    pub fn merge(&mut self, other: &Flushes) {
        self.count += other.count;
        self.data_only += other.data_only;
        self.writes += other.writes;
        for (interval, count) in &other.intervals {
            *self.intervals.entry(*interval).or_default() += count;
        }
    }
}

/// Requests of one pair and direction.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// Number of requests.
    pub count: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Requests by size (bytes).
    pub sizes: BTreeMap<u64, u64>,
    /// Order of offsets.
    pub order: Order,
    /// The range of the file: first byte and end; None without offsets.
    pub range: Option<(u64, u64)>,
    /// Requests that bypass the page cache.
    pub direct: u64,
    /// Writes that are durable by themselves.
    pub durable: u64,
    /// Bytes of buffered reads for which the trace says how much the device moved.
    pub buffered_bytes: u64,
    /// Bytes that the device moved for these reads.
    pub device_bytes: u64,
    /// Number of these reads that slept, for example to wait for data that a hint had requested.
    pub slept: u64,
    /// Requests by io_uring.
    pub io_uring: u64,
    /// Requests by libaio.
    pub libaio: u64,
    /// Requests by a call that returns when the request is done.
    pub waiting_calls: u64,
    /// Requests with a latency.
    pub timed: u64,
    /// Sum of latencies (ns).
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

    /// Length of the range (bytes).
    pub fn range_bytes(&self) -> u64 {
        self.range.map_or(0, |(low, high)| high - low)
    }

    /// The most common size (bytes).
    pub fn common_size(&self) -> u64 {
        let most = self.sizes.iter().max_by_key(|(_, count)| **count);
        most.map_or(0, |(bytes, _)| *bytes)
    }
}

/// Counts a size; when there are many, rounded up to a power of two.
pub fn add_size(sizes: &mut BTreeMap<u64, u64>, bytes: u64, count: u64) {
    let is_known = sizes.len() < SIZES_MAX || sizes.contains_key(&bytes);
    let rounded = || bytes.checked_next_power_of_two().unwrap_or(u64::MAX);
    *sizes.entry(if is_known { bytes } else { rounded() }).or_default() += count;
}

/// All directions of a pair, and its flushes.
#[derive(Clone, Debug, Default)]
pub struct PairShapes {
    shapes: [Shape; 3],
    /// Flushes by the thread that writes.
    pub flushes: Flushes,
}

impl PairShapes {
    /// The requests of a direction.
    pub fn of(&self, direction: Direction) -> &Shape {
        &self.shapes[direction as usize]
    }
}

/// What all threads do to a file.
#[derive(Clone, Debug, Default)]
pub struct FileShapes {
    orders: [Order; 3],
    /// Flushes by threads that do not write to the file themselves.
    pub flushes: Flushes,
}

impl FileShapes {
    /// The order of the requests of all threads together.
    pub fn order(&self, direction: Direction) -> &Order {
        &self.orders[direction as usize]
    }
}

/// The first pass.
#[derive(Clone, Debug, Default)]
pub struct Shapes {
    level: Level,
    /// Shapes of each pair.
    pub pairs: HashMap<Pair, PairShapes>,
    /// Shapes of each file.
    pub files: HashMap<FileId, FileShapes>,
    /// Where each thread wrote last.
    written: HashMap<u32, Pair>,
    /// Requests that failed or moved nothing; they are not part of the model.
    pub empty: u64,
    /// Page faults in mapped files; they are not part of the model.
    pub page_faults: u64,
    /// Requests of other kinds, such as opening a file; they are not part of the model.
    pub others: u64,
    /// Requests of files that are not told apart.
    pub collapsed: u64,
}

impl Shapes {
    /// A first pass over the requests of a level.
    pub fn new(level: Level) -> Shapes {
        Shapes { level, ..Shapes::default() }
    }

    /// Whether no request was counted that moved data.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The pair of a request as it was counted; None if it is not part of the model.
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

    /// The pair whose writes a flush makes durable, if its thread wrote them itself.
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

    /// Whether a request makes earlier writes of this level durable.
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
