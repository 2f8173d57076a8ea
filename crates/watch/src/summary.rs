//! Computes statistics in one pass over a trace: number and sizes of requests, access order,
//! latency, queue depth, and the time that the program waits.
//!
//! Memory does not grow with the number of requests. After a limit is reached, new request sizes
//! are rounded, and new threads and processes are not counted.

use std::collections::{BTreeMap, HashMap};

use analysis::histogram::Histogram;
use schemars::JsonSchema;
use serde::Serialize;
use trace::{Call, FileId, Operation, Request};

use crate::waits::{Busy, Waits};

/// Maximum number of request sizes that are counted exactly. Further sizes are rounded up to powers
/// of two.
const SIZES_MAX: usize = 64;
/// Minimum number of requests in a run that counts as sequential access, if the run does not begin
/// at the start of the file. Shorter runs occur by chance in random access.
const RUN_MIN: u64 = 4;
/// Maximum number of threads, and of processes, that are counted.
const THREADS_MAX: usize = 1 << 16;

/// Counts of requests by their offset relative to the previous request of the same file and
/// direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Number of requests that start where the previous request ended.
    pub sequential: u64,
    /// Number of requests that start where the previous request started.
    pub repeated: u64,
    /// Number of non-sequential requests that continue a constant stride.
    pub strided: u64,
    /// Number of requests that are neither sequential, repeated nor strided. The first request is
    /// not counted.
    pub random: u64,
    /// Number of runs of sequential requests. A single request is also a run.
    pub runs: u64,
}

impl Order {
    fn add(&mut self, other: &Order) {
        self.sequential += other.sequential;
        self.repeated += other.repeated;
        self.strided += other.strided;
        self.random += other.random;
        self.runs += other.runs;
    }
}

/// The last request of a file and direction.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    start: u64,
    end: u64,
    distance: i64,
    /// Whether the request is part of a run that counts as sequential access.
    is_run: bool,
    /// Number of requests in the current run.
    run: u64,
}

/// Statistics of the requests of one kind, such as the reads of a file.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    /// Number of requests.
    pub count: u64,
    /// Number of requests that failed.
    pub failed: u64,
    /// Number of bytes that were requested.
    pub asked_bytes: u64,
    /// Number of bytes that were moved from or to storage or the page cache.
    pub moved_bytes: u64,
    /// Number of requests of each size (bytes).
    pub sizes: BTreeMap<u64, u64>,
    /// Counts of requests by their offset relative to the previous request.
    pub order: Order,
    /// Number of requests that bypassed the page cache.
    pub direct: u64,
    /// Number of bytes that the direct requests moved.
    pub direct_bytes: u64,
    /// Number of requests that were durable on completion, without a separate flush.
    pub durable: u64,
    /// Number of requests for which the trace contains the number of bytes that the device moved.
    pub with_device_bytes: u64,
    /// Number of requests that neither used the device nor slept, because their data were in
    /// memory. Only requests that `with_device_bytes` counts are included.
    pub in_memory: u64,
    /// Sum of the latencies of the requests that used the device or slept (ns). Only requests that
    /// `with_device_bytes` counts are included.
    pub waited_ns: u64,
    /// Sum of the latencies of the requests that `with_device_bytes` counts (ns).
    pub known_ns: u64,
    /// Number of bytes that the device moved before the requests returned. Only requests that
    /// `with_device_bytes` counts are included.
    pub device_bytes: u64,
    /// Sum of the latencies of all requests (ns).
    pub busy_ns: u64,
    last: Option<Last>,
}

impl Requests {
    /// Adds a request. Returns whether the request is part of sequential access, or None if it has
    /// no offset.
    ///
    /// A run counts as sequential if it began at the start of the file, contains a repeated
    /// request, or has at least [`RUN_MIN`] requests.
    fn take(&mut self, request: &Request) -> Option<bool> {
        self.count += 1;
        self.failed += u64::from(request.result.is_some_and(|result| result < 0));
        self.asked_bytes = self.asked_bytes.saturating_add(request.bytes);
        self.moved_bytes = self.moved_bytes.saturating_add(request.moved_bytes());
        self.direct += u64::from(request.direct);
        let direct_bytes = if request.direct { request.moved_bytes() } else { 0 };
        self.direct_bytes = self.direct_bytes.saturating_add(direct_bytes);
        self.durable += u64::from(request.durable);
        self.busy_ns = self.busy_ns.saturating_add(request.latency_ns.unwrap_or(0));
        if let Some(bytes) = request.device_bytes {
            self.with_device_bytes += 1;
            let is_in_memory = bytes == 0 && request.sleeps.unwrap_or(0) == 0;
            self.in_memory += u64::from(is_in_memory);
            let latency_ns = request.latency_ns.unwrap_or(0);
            self.known_ns = self.known_ns.saturating_add(latency_ns);
            let waited_ns = if is_in_memory { 0 } else { latency_ns };
            self.waited_ns = self.waited_ns.saturating_add(waited_ns);
            self.device_bytes = self.device_bytes.saturating_add(bytes);
        }
        if request.operation.moves_data() {
            let is_known = self.sizes.len() < SIZES_MAX || self.sizes.contains_key(&request.bytes);
            let rounded = || request.bytes.checked_next_power_of_two().unwrap_or(u64::MAX);
            let size = if is_known { request.bytes } else { rounded() };
            *self.sizes.entry(size).or_default() += 1;
        }
        request.offset.map(|offset| self.follow(offset, request.moved_bytes()))
    }

    fn follow(&mut self, offset: u64, bytes: u64) -> bool {
        let last = self.last.unwrap_or_default();
        // The first request has no distance from a previous request. 0 is used, because no strided
        // request has this distance.
        let distance = self.last.map_or(0, |last| offset.wrapping_sub(last.start) as i64);
        let (continues, repeats) = match self.last {
            None => (false, false),
            Some(_) => (offset == last.end, offset == last.start),
        };
        if continues {
            self.order.sequential += 1;
        } else if repeats {
            self.order.repeated += 1;
        } else if self.last.is_none() {
            self.order.runs += 1;
        } else {
            self.order.runs += 1;
            match distance == last.distance {
                true => self.order.strided += 1,
                false => self.order.random += 1,
            }
        }
        let run = if continues || repeats { last.run + 1 } else { 1 };
        let is_run = match continues || repeats {
            true => last.is_run || repeats || run >= RUN_MIN,
            false => offset == 0,
        };
        let end = offset.saturating_add(bytes);
        self.last = Some(Last { start: offset, end, distance, is_run, run });
        is_run
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Requests) {
        self.count += other.count;
        self.failed += other.failed;
        self.asked_bytes = self.asked_bytes.saturating_add(other.asked_bytes);
        self.moved_bytes = self.moved_bytes.saturating_add(other.moved_bytes);
        self.direct += other.direct;
        self.direct_bytes = self.direct_bytes.saturating_add(other.direct_bytes);
        self.durable += other.durable;
        self.with_device_bytes += other.with_device_bytes;
        self.in_memory += other.in_memory;
        self.waited_ns = self.waited_ns.saturating_add(other.waited_ns);
        self.known_ns = self.known_ns.saturating_add(other.known_ns);
        self.device_bytes = self.device_bytes.saturating_add(other.device_bytes);
        self.busy_ns = self.busy_ns.saturating_add(other.busy_ns);
        self.order.add(&other.order);
        for (size, count) in &other.sizes {
            *self.sizes.entry(*size).or_default() += count;
        }
    }
}

/// The time from the start of the first request to the end of the last.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    first_ns: Option<u64>,
    end_ns: u64,
}

impl Span {
    fn add(&mut self, start_ns: u64, end_ns: u64) {
        self.first_ns = Some(self.first_ns.map_or(start_ns, |first| first.min(start_ns)));
        self.end_ns = self.end_ns.max(end_ns);
    }

    fn duration_ns(&self) -> u64 {
        self.end_ns - self.first_ns.unwrap_or(self.end_ns)
    }
}

/// All requests of the program with the same operation.
#[derive(Clone, Debug, Default)]
pub struct OfOperation {
    /// The latencies of the requests.
    pub latency: Histogram,
    busy: Busy,
    /// Number of requests issued by each system call or interface.
    pub calls: BTreeMap<Call, u64>,
}

impl OfOperation {
    /// Returns the time during which at least one request was outstanding (ns).
    pub fn outstanding_ns(&self) -> u64 {
        self.busy.total_ns
    }
}

/// Requests of one file or device.
#[derive(Clone, Debug, Default)]
pub struct OfFile {
    /// The reads, without page faults.
    pub reads: Requests,
    /// The writes.
    pub writes: Requests,
    /// The flushes.
    pub flushes: Requests,
    /// Number of times the file was opened.
    pub opened: u64,
    /// Number of page faults in mappings of the file.
    pub page_faults: u64,
    /// Readahead hints, such as POSIX_FADV_WILLNEED.
    pub hints: Requests,
    /// Number of requests that the other fields do not count.
    pub others: u64,
}

impl OfFile {
    /// Returns the number of requests of all kinds.
    pub fn count(&self) -> u64 {
        let data = self.reads.count + self.writes.count + self.flushes.count;
        data + self.opened + self.page_faults + self.hints.count + self.others
    }

    /// Returns the sum of the latencies of reads, writes and flushes (ns).
    pub fn busy_ns(&self) -> u64 {
        let data_ns = self.reads.busy_ns.saturating_add(self.writes.busy_ns);
        data_ns.saturating_add(self.flushes.busy_ns)
    }

    /// Adds the counts of another file.
    pub fn add(&mut self, other: &OfFile) {
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.flushes.add(&other.flushes);
        self.opened += other.opened;
        self.page_faults += other.page_faults;
        self.hints.add(&other.hints);
        self.others += other.others;
    }

    /// Adds a request. Returns whether the request is part of sequential access, or None if this is
    /// unknown, for example because the request has no offset.
    fn take(&mut self, request: &Request) -> Option<bool> {
        match request.operation {
            _ if request.call == Call::PAGE_FAULT => self.page_faults += 1,
            Operation::Read => return self.reads.take(request),
            Operation::Write => return self.writes.take(request),
            Operation::Flush => return self.flushes.take(request),
            Operation::Open => self.opened += 1,
            Operation::Advise if request.call.reads_ahead() => return self.hints.take(request),
            _ => self.others += 1,
        }
        None
    }
}

/// Requests of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OfProcess {
    /// Number of reads.
    pub reads: u64,
    /// Number of bytes that the reads moved.
    pub read_bytes: u64,
    /// Number of writes.
    pub writes: u64,
    /// Number of bytes that the writes moved.
    pub written_bytes: u64,
    /// Number of flushes.
    pub flushes: u64,
    /// Sum of the latencies of reads, writes and flushes (ns).
    pub busy_ns: u64,
}

impl OfProcess {
    /// Adds the counts of another process.
    pub fn add(&mut self, other: &OfProcess) {
        self.reads += other.reads;
        self.read_bytes = self.read_bytes.saturating_add(other.read_bytes);
        self.writes += other.writes;
        self.written_bytes = self.written_bytes.saturating_add(other.written_bytes);
        self.flushes += other.flushes;
        self.busy_ns = self.busy_ns.saturating_add(other.busy_ns);
    }

    fn take(&mut self, request: &Request, is_second_half: bool) {
        let bytes = request.moved_bytes();
        match request.operation {
            Operation::Read => {
                self.reads += 1;
                self.read_bytes = self.read_bytes.saturating_add(bytes);
            }
            Operation::Write => {
                self.writes += 1;
                self.written_bytes = self.written_bytes.saturating_add(bytes);
            }
            Operation::Flush => self.flushes += 1,
            _ => return,
        }
        let busy_ns = if is_second_half { 0 } else { request.latency_ns.unwrap_or(0) };
        self.busy_ns = self.busy_ns.saturating_add(busy_ns);
    }
}

/// Statistics of a trace.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Requests of the program by file.
    pub files: HashMap<FileId, OfFile>,
    /// Requests of the block layer, by device.
    pub devices: HashMap<FileId, OfFile>,
    /// Number of page faults in mapped files.
    pub page_faults: u64,
    /// Requests of the program by process. Only the first 65,536 processes are counted.
    pub processes: HashMap<u32, OfProcess>,
    /// Requests of the program by operation.
    pub operations: BTreeMap<Operation, OfOperation>,
    /// Times between the end of a request and the start of the next request of the same thread.
    pub think: Histogram,
    /// Waiting time of the program by class of requests.
    pub waits: Waits,
    busy: Busy,
    data_busy: Busy,
    /// Sum of the latencies of reads and writes (ns).
    data_ns: u64,
    span: Span,
    device_span: Span,
    thread_ends: HashMap<u32, u64>,
    /// For each thread, the start time of the last recorded read by a copy call, such as
    /// copy_file_range (ns).
    copies: HashMap<u32, u64>,
}

impl Summary {
    /// Adds a request. Requests must be added in the order of their start times.
    pub fn take(&mut self, request: &Request) {
        let start = request.start_ns;
        let of_span = match request.call {
            Call::BLOCK => &mut self.device_span,
            _ => &mut self.span,
        };
        of_span.add(start, request.end_ns().unwrap_or(start));
        if request.call == Call::BLOCK {
            self.devices.entry(request.file).or_default().take(request);
            return;
        }
        let is_sequential = self.files.entry(request.file).or_default().take(request);
        if request.call == Call::PAGE_FAULT {
            self.page_faults += 1;
            return;
        }
        let is_second = self.is_second_half(request);
        let has_room = self.processes.len() < THREADS_MAX;
        if has_room || self.processes.contains_key(&request.process) {
            self.processes.entry(request.process).or_default().take(request, is_second);
        }
        let of = self.operations.entry(request.operation).or_default();
        *of.calls.entry(request.call).or_default() += 1;
        let Some(end) = request.end_ns() else { return };
        if !is_second {
            self.waits.take(request, is_sequential);
        }
        of.latency.record(end - start);
        of.busy.add(start, end);
        self.busy.add(start, end);
        if request.operation.moves_data() && !is_second {
            self.data_busy.add(start, end);
            self.data_ns = self.data_ns.saturating_add(end - start);
        }
        self.follow_thread(request.thread, start, end);
    }

    /// A copy call, such as copy_file_range, makes a read and a write. Checks whether the request
    /// is such a write and the read was recorded. The time of a copy is counted once, for the read.
    fn is_second_half(&mut self, request: &Request) -> bool {
        if !request.call.is_copy() {
            return false;
        }
        if request.operation == Operation::Read && self.copies.len() < THREADS_MAX {
            self.copies.insert(request.thread, request.start_ns);
        }
        let is_write = request.operation == Operation::Write;
        is_write && self.copies.get(&request.thread) == Some(&request.start_ns)
    }

    fn follow_thread(&mut self, thread: u32, start: u64, end: u64) {
        let has_room = self.thread_ends.len() < THREADS_MAX;
        if let Some(last) = self.thread_ends.get_mut(&thread) {
            if start >= *last {
                self.think.record(start - *last);
            }
            *last = end.max(*last);
        } else if has_room {
            self.thread_ends.insert(thread, end);
        }
    }

    /// Returns the time from the start of the first request of the program to the end of the last
    /// request (ns). If the program made no requests, the requests of the block layer are used.
    pub fn duration_ns(&self) -> u64 {
        let of_program = self.span.duration_ns();
        if self.files.is_empty() { self.device_span.duration_ns() } else { of_program }
    }

    /// Returns the number of threads that made requests. At most 65,536 threads are counted.
    pub fn threads(&self) -> u64 {
        self.thread_ends.len() as u64
    }

    /// Returns the time during which at least one request of the program was outstanding (ns).
    pub fn outstanding_ns(&self) -> u64 {
        self.busy.total_ns
    }

    /// Returns the mean number of outstanding reads and writes while at least one was outstanding.
    /// None if the trace has no latencies of reads or writes.
    pub fn mean_depth(&self) -> Option<f64> {
        let busy = self.data_busy.total_ns;
        (busy > 0).then(|| self.data_ns as f64 / busy as f64)
    }

    /// Adds up the requests that `of` selects, such as the reads, over all files of the program.
    pub fn total(&self, of: impl Fn(&OfFile) -> &Requests) -> Requests {
        let mut total = Requests::default();
        self.files.values().for_each(|file| total.add(of(file)));
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(start_ns: u64, latency_ns: u64, offset: u64) -> Request {
        Request {
            start_ns,
            latency_ns: Some(latency_ns),
            process: 1,
            thread: 1,
            call: Call::named("pread64").unwrap(),
            operation: Operation::Read,
            file: FileId(0),
            offset: Some(offset),
            bytes: 4096,
            result: Some(4096),
            direct: false,
            durable: false,
            device_bytes: Some(0),
            sleeps: Some(0),
        }
    }

    fn summary(requests: &[Request]) -> Summary {
        let mut summary = Summary::default();
        requests.iter().for_each(|request| summary.take(request));
        summary
    }

    #[test]
    fn sequential_strided_and_random_requests_are_told_apart() {
        let offsets = [0, 4096, 8192, 65536, 122880, 180224, 4096, 8192];
        let requests: Vec<Request> =
            offsets.iter().enumerate().map(|(at, offset)| request(at as u64, 1, *offset)).collect();
        let order = summary(&requests).files[&FileId(0)].reads.order;
        // The steps from 8192 to 65536 and from 180224 to 4096 are random. The two steps that
        // follow the step to 65536 repeat its distance of 57344 and count as strided.
        assert_eq!(order, Order { sequential: 3, repeated: 0, strided: 2, random: 2, runs: 5 });
    }

    #[test]
    fn short_runs_away_from_the_start_are_random_access() {
        let of = |offsets: &[u64]| {
            let mut requests = Requests::default();
            let take = |(at, offset): (usize, &u64)| {
                requests.take(&request(at as u64, 1, *offset * 4096)).unwrap()
            };
            offsets.iter().enumerate().map(take).collect::<Vec<bool>>()
        };
        assert_eq!(of(&[0, 1, 2]), [true; 3], "from the start of the file");
        assert_eq!(of(&[70, 71, 90, 91, 20]), [false; 5]);
        assert_eq!(of(&[70, 71, 72, 73, 74, 9]), [false, false, false, true, true, false]);
        // A log rewrites its last block until the block is full.
        assert_eq!(of(&[70, 70, 71, 71, 71]), [false, true, true, true, true]);
    }

    #[test]
    fn requests_at_the_same_place_again_are_neither_sequential_nor_random() {
        let requests = [request(0, 1, 8192), request(1, 1, 8192), request(2, 1, 12288)];
        let order = summary(&requests).files[&FileId(0)].reads.order;
        assert_eq!(order, Order { sequential: 1, repeated: 1, strided: 0, random: 0, runs: 1 });
    }

    #[test]
    fn a_copy_within_the_kernel_is_one_request_of_two_files() {
        let call = Call::named("copy_file_range").unwrap();
        let read = Request { call, ..request(0, 100, 0) };
        let write = Request { operation: Operation::Write, file: FileId(1), ..read };
        let summary = summary(&[read, write]);
        assert_eq!((summary.mean_depth(), summary.waits.classes.len()), (Some(1.0), 1));
        assert_eq!(summary.files[&FileId(1)].writes.moved_bytes, 4096);
        assert_eq!(summary.processes[&1].busy_ns, 100);
        // If the source file of a copy was not recorded, the trace has only the write of the copy.
        let alone = self::summary(&[write]);
        assert_eq!((alone.mean_depth(), alone.waits.classes.len()), (Some(1.0), 1));
    }

    #[test]
    fn only_hints_that_read_ahead_are_time_of_reads() {
        let hint = |number| Request {
            call: Call::with_advice(number).unwrap(),
            operation: Operation::Advise,
            device_bytes: Some(4096),
            ..request(0, 50, 0)
        };
        let busy = |hint| {
            let summary = summary(&[hint, request(100, 30, 0)]);
            summary.waits.classes.values().map(|of| of.outstanding_ns()).sum::<u64>()
        };
        // POSIX_FADV_WILLNEED is 3, POSIX_FADV_DONTNEED is 4.
        assert_eq!([busy(hint(3)), busy(hint(4))], [80, 30]);
    }

    #[test]
    fn a_read_that_slept_waited_although_it_asked_for_nothing() {
        let slept = Request { sleeps: Some(1), ..request(10, 70, 4096) };
        let asked = Request { device_bytes: Some(4096), ..request(100, 50, 8192) };
        let reads = &summary(&[request(0, 5, 0), slept, asked]).files[&FileId(0)].reads;
        assert_eq!((reads.in_memory, reads.waited_ns, reads.busy_ns), (1, 120, 125));
    }

    #[test]
    fn the_depth_is_that_of_the_time_when_something_was_outstanding() {
        let summary = summary(&[request(0, 100, 0), request(0, 100, 0), request(500, 100, 0)]);
        assert_eq!(summary.mean_depth(), Some(1.5));
        assert_eq!((summary.outstanding_ns(), summary.duration_ns()), (200, 600));
        assert_eq!(summary.think.count(), 1, "the second request did not wait for the first");
    }

    #[test]
    fn hits_in_the_page_cache_and_bytes_of_the_device_are_counted() {
        let miss = Request { device_bytes: Some(131_072), ..request(10, 5, 4096) };
        let unknown = Request { device_bytes: None, ..request(20, 5, 8192) };
        let reads = &summary(&[request(0, 5, 0), miss, unknown]).files[&FileId(0)].reads;
        assert_eq!((reads.with_device_bytes, reads.in_memory), (2, 1));
        assert_eq!((reads.device_bytes, reads.moved_bytes), (131_072, 3 * 4096));
    }

    #[test]
    fn sizes_beyond_all_memory_do_not_overflow() {
        let huge = Request { bytes: u64::MAX / 2 + 1, ..request(0, 5, 0) };
        let reads = summary(&[huge, huge, huge]).files[&FileId(0)].reads.clone();
        assert_eq!(reads.asked_bytes, u64::MAX);
    }

    #[test]
    fn page_faults_are_no_reads() {
        let call = Call::PAGE_FAULT;
        let summary = summary(&[Request { call, latency_ns: None, ..request(0, 0, 0) }]);
        assert_eq!((summary.page_faults, summary.operations.len()), (1, 0));
        assert_eq!(summary.files[&FileId(0)].page_faults, 1);
    }

    #[test]
    fn requests_of_the_block_layer_are_no_requests_of_the_program() {
        let block = Request { call: Call::BLOCK, file: FileId(7), ..request(0, 100, 0) };
        let summary = summary(&[block, request(200, 50, 0)]);
        assert_eq!((summary.files.len(), summary.devices.len()), (1, 1));
        assert_eq!((summary.outstanding_ns(), summary.duration_ns()), (50, 50));
    }

    #[test]
    fn many_different_sizes_are_counted_in_powers_of_two() {
        let requests: Vec<Request> =
            (1..1000).map(|bytes| Request { bytes, ..request(bytes, 1, 0) }).collect();
        let sizes = &summary(&requests).files[&FileId(0)].reads.sizes;
        assert!(sizes.len() <= SIZES_MAX + 11, "{}", sizes.len());
        assert_eq!(sizes.values().sum::<u64>(), 999);
    }
}
