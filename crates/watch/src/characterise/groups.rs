//! Groups of files and threads that behave alike: each group becomes one workload of the model.
//!
//! Each pair of a file and a thread is classified. Pairs are alike if they have the same direction,
//! order, interface and caching, the same most common size (as a power of two), and the same use of
//! flushes and durable writes. If a thread reads and writes a file in the same way and with the
//! same sizes, its reads and writes form one mixed group. Otherwise, reads and writes are in two
//! groups.

use std::collections::{BTreeMap, HashMap};

use analysis::popularity::percents;
use trace::{FileId, Operation};

use super::shapes::{Direction, Flushes, Order, Pair, PairShapes, Shape, Shapes, add_size};

/// Reads and writes of a thread to the same file count as a mix only if each has at least this
/// share of the requests.
const MIX_MIN: f64 = 0.02;
/// Minimum share of sequential (or strided) requests for a group to count as sequential (or
/// strided).
const ORDERED_MIN: f64 = 0.75;
/// The threads that access a file count as sharing one stream if at least this share of all
/// requests to the file is sequential.
const COMMON_MIN: f64 = 0.9;
/// Minimum number of requests of a thread. Threads with fewer requests are ignored when the shared
/// streams are determined.
const ORDER_REQUESTS_MIN: u64 = 10;
/// Maximum number of request sizes of a model.
const SIZES_MAX: usize = 16;
/// Minimum share of the requests that the most common sizes must cover. If they cover less, sizes
/// are merged by powers of two.
const SIZES_SHARE_MIN: f64 = 0.99;
/// Maximum request size of a model (bytes).
const SIZE_MAX: u64 = 1 << 30;
/// Accesses are counted in units of the smallest common request size. A size is common if at least
/// this percentage of the requests have the size.
const UNIT_PERCENT_MIN: u8 = 5;

/// The access order of the requests of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OrderKind {
    /// Most requests start where the previous request of the same thread ended.
    Sequential,
    /// Most requests start where the previous request of any thread ended.
    Common,
    /// Most requests start at a constant distance from the previous request.
    Strided,
    /// The requests are neither sequential nor strided.
    Random,
}

/// The interface by which requests are issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Interface {
    /// System calls that return when the request is complete.
    Sync,
    /// libaio.
    Libaio,
    /// io_uring.
    IoUring,
    /// The trace does not record the interface.
    Unknown,
}

impl Interface {
    /// Returns the name of the I/O engine. None if the interface is unknown.
    pub fn engine(self) -> Option<&'static str> {
        match self {
            Interface::Sync => Some("sync"),
            Interface::Libaio => Some("libaio"),
            Interface::IoUring => Some("io_uring"),
            Interface::Unknown => None,
        }
    }
}

/// The properties that all members of a group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// Whether the requests are reads, writes or both.
    pub direction: Direction,
    /// The access order.
    pub order: OrderKind,
    /// Binary logarithm of the most common request size (bytes).
    size_class: u32,
    /// Whether most requests bypass the page cache.
    pub direct: bool,
    /// Whether reads are mostly served from the page cache.
    pub cached: bool,
    /// Whether most writes are durable on completion, without a separate flush.
    pub durable: bool,
    /// The interface by which requests are issued.
    pub interface: Interface,
    /// Whether writes are followed by flushes.
    pub flushed: bool,
}

/// Files and threads that behave alike.
#[derive(Clone, Debug)]
pub struct Group {
    /// The properties that all members have in common.
    pub kind: Kind,
    /// The pairs of a file and a thread that belong to the group.
    pub members: Vec<Pair>,
    /// Number of requests.
    pub count: u64,
    /// Number of reads.
    pub reads: u64,
    /// Number of bytes moved.
    pub bytes: u64,
    /// Number of requests whose latency is known.
    pub timed: u64,
    /// Sum of the known latencies (ns).
    pub latency_ns: u64,
    /// Number of requests that match the order of the group.
    pub ordered: u64,
    /// Number of requests that have a predecessor in the same file and thread.
    pub following: u64,
    /// Number of requests that start where the previous request ended.
    pub sequential: u64,
    /// Distance between the starts of strided requests (bytes).
    pub stride_bytes: i64,
    /// Request sizes of the model (bytes) with their shares (percent), in ascending order.
    pub sizes: Vec<(u32, u8)>,
    /// Number of different request sizes that were counted.
    pub sizes_seen: usize,
    /// The flushes of the group's files.
    pub flushes: Flushes,
    /// Whether flushes are issued by threads other than the writing threads.
    pub flushed_by_others: bool,
    /// The accessed range of each file (bytes). The key None combines all files that are not
    /// tracked separately.
    pub ranges: BTreeMap<Option<FileId>, (u64, u64)>,
    member_ranges: Vec<(Option<FileId>, u64, u64)>,
    counted_sizes: BTreeMap<u64, u64>,
}

impl Group {
    fn new(kind: Kind) -> Group {
        Group {
            kind,
            members: Vec::new(),
            count: 0,
            reads: 0,
            bytes: 0,
            timed: 0,
            latency_ns: 0,
            ordered: 0,
            following: 0,
            sequential: 0,
            stride_bytes: 0,
            sizes: Vec::new(),
            sizes_seen: 0,
            flushes: Flushes::default(),
            flushed_by_others: false,
            ranges: BTreeMap::new(),
            member_ranges: Vec::new(),
            counted_sizes: BTreeMap::new(),
        }
    }

    fn add(&mut self, pair: Pair, shape: &Shape, flushes: &Flushes) {
        if shape.order.strided * self.count.max(1) >= self.ordered * shape.count.max(1) {
            self.stride_bytes = shape.order.stride_bytes;
        }
        self.members.push(pair);
        self.count += shape.count;
        self.reads += shape.reads;
        self.bytes = self.bytes.saturating_add(shape.bytes);
        self.timed += shape.timed;
        self.latency_ns = self.latency_ns.saturating_add(shape.latency_ns);
        self.following += shape.order.following();
        self.sequential += shape.order.sequential;
        self.ordered += match self.kind.order {
            OrderKind::Sequential | OrderKind::Common => shape.order.sequential,
            OrderKind::Strided => shape.order.strided,
            OrderKind::Random => shape.order.random,
        };
        for (bytes, count) in &shape.sizes {
            add_size(&mut self.counted_sizes, *bytes, *count);
        }
        if self.kind.direction != Direction::Read {
            self.flushes.merge(flushes);
        }
        if let Some((low, high)) = shape.range {
            let range = self.ranges.entry(pair.file).or_insert((low, high));
            *range = (range.0.min(low), range.1.max(high));
            self.member_ranges.push((pair.file, low, high));
        }
    }

    /// Returns the unit in which accesses to the group's files are counted (bytes).
    pub fn unit_bytes(&self) -> u64 {
        let common = self.sizes.iter().find(|(_, percent)| *percent >= UNIT_PERCENT_MIN);
        common.or(self.sizes.first()).map_or(1, |(bytes, _)| u64::from(*bytes)).max(1)
    }

    /// Returns the total length of the ranges of all files (bytes).
    pub fn region_bytes(&self) -> u64 {
        self.ranges.values().fold(0, |sum: u64, (low, high)| sum.saturating_add(high - low))
    }

    /// Checks whether the threads access separate ranges. Two ranges in a file count as separate if
    /// at most a twentieth of the first range overlaps the second.
    pub fn has_own_ranges(&self) -> bool {
        let mut ranges = self.member_ranges.clone();
        ranges.sort_unstable();
        let own = |pair: &[(Option<FileId>, u64, u64)]| {
            let ((file, low, high), (next_file, next, _)) = (pair[0], pair[1]);
            file != next_file || high.saturating_sub(next) <= (high - low) / 20
        };
        ranges.windows(2).all(own)
    }

    /// Returns the number of different threads.
    pub fn threads(&self) -> usize {
        let mut threads: Vec<u32> = self.members.iter().map(|pair| pair.thread).collect();
        threads.sort_unstable();
        threads.dedup();
        threads.len()
    }
}

/// All groups, with an index. Given a thread, a file and an operation (read or write), the index
/// finds the group.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    /// The groups, in no particular order.
    pub groups: Vec<Group>,
    /// Index of the group for the reads (false) or writes (true) of each pair.
    places: HashMap<(Pair, bool), usize>,
}

impl Groups {
    /// Groups the files and threads that the first pass found.
    pub fn of(shapes: &Shapes) -> Groups {
        let mut pairs: Vec<(&Pair, &PairShapes)> = shapes.pairs.iter().collect();
        pairs.sort_by_key(|(pair, _)| **pair);
        let common = common_streams(shapes);
        let (mut all, mut by_kind) = (Groups::default(), HashMap::<Kind, usize>::new());
        for (pair, of) in pairs {
            for direction in directions(of) {
                let shape = of.of(direction);
                let others = pair.file.and_then(|file| shapes.files.get(&file));
                let by_others = of.flushes.count == 0;
                let flushes = match others {
                    Some(file) if by_others => &file.flushes,
                    _ => &of.flushes,
                };
                let is_common = pair.file.is_some_and(|file| common.contains(&(file, direction)));
                let kind = kind_of(shape, direction, is_common, flushes.count > 0);
                let at = *by_kind.entry(kind).or_insert_with(|| {
                    all.groups.push(Group::new(kind));
                    all.groups.len() - 1
                });
                let group = &mut all.groups[at];
                // If a file is flushed by threads that do not write to the file, their flushes
                // count only once, not for each thread that writes.
                let first = group.members.iter().all(|member| member.file != pair.file);
                let none = Flushes::default();
                group.add(*pair, shape, if by_others && !first { &none } else { flushes });
                group.flushed_by_others |= by_others && flushes.count > 0;
                for is_write in [false, true] {
                    let operation = if is_write { Operation::Write } else { Operation::Read };
                    if direction.has(operation) {
                        all.places.insert((*pair, is_write), at);
                    }
                }
            }
        }
        for group in &mut all.groups {
            group.sizes_seen = group.counted_sizes.len();
            group.sizes = size_mix(&group.counted_sizes, group.kind.direct);
        }
        all
    }

    /// Returns the index of the group that contains the reads or writes of a pair.
    pub fn place(&self, pair: Pair, operation: Operation) -> Option<usize> {
        self.places.get(&(pair, operation == Operation::Write)).copied()
    }
}

/// Returns the files and directions for which several threads share one sequential stream.
fn common_streams(shapes: &Shapes) -> Vec<(FileId, Direction)> {
    let mut threads: BTreeMap<(FileId, Direction), u32> = BTreeMap::new();
    for (pair, of) in &shapes.pairs {
        for direction in directions(of) {
            let shape = of.of(direction);
            let is_own = order_of(&shape.order) == OrderKind::Sequential;
            if let Some(file) = pair.file.filter(|_| shape.count >= ORDER_REQUESTS_MIN && !is_own) {
                *threads.entry((file, direction)).or_default() += 1;
            }
        }
    }
    let is_common = |(file, direction): &(FileId, Direction)| {
        let order = shapes.files.get(file).map(|of| *of.order(*direction)).unwrap_or_default();
        order.sequential as f64 >= COMMON_MIN * order.following().max(1) as f64
    };
    let several = threads.into_iter().filter(|(_, threads)| *threads > 1).map(|(key, _)| key);
    several.filter(is_common).collect()
}

/// Returns the directions that describe a pair: only `Both` if reads and writes form a mix.
/// Otherwise, `Read` if there are reads, and `Write` if there are writes.
fn directions(of: &PairShapes) -> Vec<Direction> {
    let (reads, writes, both) =
        (of.of(Direction::Read), of.of(Direction::Write), of.of(Direction::Both));
    let least = reads.count.min(writes.count) as f64;
    let order = order_of(&both.order);
    let is_alike =
        reads.common_size() == writes.common_size() && (reads.direct > 0) == (writes.direct > 0);
    let is_mixed = match order {
        OrderKind::Sequential => true,
        _ => {
            order_of(&reads.order) == OrderKind::Random
                && order_of(&writes.order) == OrderKind::Random
        }
    };
    if is_alike && is_mixed && least >= MIX_MIN * both.count as f64 && least > 0.0 {
        return vec![Direction::Both];
    }
    let has = [(Direction::Read, reads.count), (Direction::Write, writes.count)];
    has.into_iter().filter(|(_, count)| *count > 0).map(|(direction, _)| direction).collect()
}

/// Classifies the order of requests. If no request has a predecessor, the order is sequential.
fn order_of(order: &Order) -> OrderKind {
    let all = order.following() as f64;
    let is = |count: u64| count as f64 >= ORDERED_MIN * all;
    match () {
        () if is(order.sequential) => OrderKind::Sequential,
        // A model cannot have negative strides.
        () if is(order.strided) && order.stride_bytes > 0 => OrderKind::Strided,
        () => OrderKind::Random,
    }
}

fn kind_of(shape: &Shape, direction: Direction, is_common: bool, flushed: bool) -> Kind {
    let most = |count: u64| count * 2 > shape.count;
    let interface = match () {
        () if most(shape.io_uring) => Interface::IoUring,
        () if most(shape.libaio) => Interface::Libaio,
        () if most(shape.waiting_calls) => Interface::Sync,
        () => Interface::Unknown,
    };
    let order = match order_of(&shape.order) {
        OrderKind::Sequential => OrderKind::Sequential,
        _ if is_common => OrderKind::Common,
        OrderKind::Strided if shape.order.stride_bytes.unsigned_abs() < shape.common_size() => {
            OrderKind::Random
        }
        order => order,
    };
    Kind {
        direction,
        order,
        size_class: shape.common_size().max(1).ilog2(),
        direct: most(shape.direct),
        cached: shape.device_bytes < shape.buffered_bytes / 2 && shape.slept * 2 < shape.reads,
        durable: shape.durable * 2 > shape.count - shape.reads && shape.durable > 0,
        interface,
        flushed: flushed && direction != Direction::Read,
    }
}

/// Returns the request sizes of a model with their shares (percent), in ascending order.
fn size_mix(counted: &BTreeMap<u64, u64>, direct: bool) -> Vec<(u32, u8)> {
    let all: u64 = counted.values().sum();
    let counts = counted.iter().map(|(bytes, count)| (*bytes, *count));
    let mut common: Vec<(u64, u64)> = counts.collect();
    common.sort_by_key(|(bytes, count)| (std::cmp::Reverse(*count), *bytes));
    common.truncate(SIZES_MAX);
    let covered: u64 = common.iter().map(|(_, count)| count).sum();
    if (covered as f64) < SIZES_SHARE_MIN * all as f64 {
        common = by_powers_of_two(counted, direct);
    }
    common.sort_unstable();
    let weights: Vec<f64> = common.iter().map(|(_, count)| *count as f64).collect();
    let mut sizes: Vec<(u32, u8)> = Vec::new();
    for ((bytes, _), percent) in common.iter().zip(percents(&weights)) {
        let bytes = (*bytes).clamp(1, SIZE_MAX) as u32;
        match sizes.last_mut() {
            _ if percent == 0 => {}
            Some((last, share)) if *last == bytes => *share += percent,
            _ => sizes.push((bytes, percent)),
        }
    }
    sizes
}

/// Merges all sizes between two powers of two into their mean size. Returns the merged sizes with
/// their counts.
fn by_powers_of_two(counted: &BTreeMap<u64, u64>, direct: bool) -> Vec<(u64, u64)> {
    let mut classes: BTreeMap<u32, (u64, f64)> = BTreeMap::new();
    for (bytes, count) in counted {
        let class = classes.entry(bytes.max(&1).ilog2()).or_default();
        class.0 += count;
        class.1 += *bytes as f64 * *count as f64;
    }
    let unit = if direct { 512 } else { 1 };
    let mean = |(count, sum): (u64, f64)| {
        let mean = sum / count.max(1) as f64;
        (((mean as u64 + unit / 2) / unit).max(1) * unit, count)
    };
    classes.into_values().map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_sizes_are_kept_and_many_are_put_together() {
        let few = BTreeMap::from([(4096, 700), (8192, 298), (512, 2)]);
        assert_eq!(size_mix(&few, true), [(4096, 70), (8192, 30)]);
        let many: BTreeMap<u64, u64> = (1024..1124).map(|bytes| (bytes, 1)).collect();
        assert_eq!(size_mix(&many, true), [(1024, 100)]);
        assert_eq!(size_mix(&many, false), [(1073, 100)]);
    }

    #[test]
    fn the_order_needs_a_clear_majority() {
        let order = |sequential, strided, stride_bytes, random| {
            let mut order = Order::default();
            (order.sequential, order.strided, order.random) = (sequential, strided, random);
            order.stride_bytes = stride_bytes;
            order_of(&order)
        };
        assert_eq!(order(80, 0, 0, 20), OrderKind::Sequential);
        assert_eq!(order(50, 0, 0, 50), OrderKind::Random);
        assert_eq!(order(0, 90, 65536, 10), OrderKind::Strided);
        assert_eq!(order(0, 90, -65536, 10), OrderKind::Random);
        assert_eq!(order(0, 0, 0, 0), OrderKind::Sequential);
    }
}
