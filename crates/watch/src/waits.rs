//! Computes how long a program waits for each class of requests. The requests of a class have the
//! same operation, access order and size. The waiting time is the time during which at least one
//! request of the class was outstanding.
//!
//! Sizes are grouped by powers of two, so memory is bounded. Requests of several classes may be
//! outstanding at the same time, so the shares of all classes may add up to more than 100%.

use std::collections::BTreeMap;

use trace::{Operation, Request};

/// Computes the time during which at least one request was outstanding.
#[derive(Clone, Copy, Debug, Default)]
pub struct Busy {
    /// Time during which at least one request was outstanding (ns).
    pub total_ns: u64,
    until_ns: u64,
}

impl Busy {
    /// Adds the interval of a request. Intervals must be added in the order of their start times.
    pub fn add(&mut self, start_ns: u64, end_ns: u64) {
        let from = start_ns.max(self.until_ns);
        if end_ns > from {
            self.total_ns += end_ns - from;
            self.until_ns = end_ns;
        }
    }
}

/// The access order of a class of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClassOrder {
    /// The requests are part of sequential runs.
    Sequential,
    /// The requests are not part of sequential runs.
    Random,
    /// The order is unknown, or the operation is a flush, which has no order.
    None,
}

impl ClassOrder {
    /// Returns the name for messages and documents. Empty for `None`.
    pub fn name(self) -> &'static str {
        match self {
            ClassOrder::Sequential => "sequential",
            ClassOrder::Random => "random",
            ClassOrder::None => "",
        }
    }
}

/// A class of requests with the same operation, the same access order and similar sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class {
    /// The operation: read, write or flush.
    pub operation: Operation,
    /// The access order.
    pub order: ClassOrder,
    /// Binary logarithm of the request size in bytes, rounded down.
    size_class: u32,
}

/// Statistics of the requests of a class.
#[derive(Clone, Copy, Debug, Default)]
pub struct OfClass {
    /// Number of requests.
    pub count: u64,
    /// Number of bytes moved.
    pub moved_bytes: u64,
    /// Sum of the latencies (ns).
    pub latency_ns: u64,
    /// Most common request size, if more than half of the requests have this size (bytes).
    pub common_bytes: u64,
    votes: u64,
    busy: Busy,
}

impl OfClass {
    /// Returns the time during which at least one request of the class was outstanding (ns).
    pub fn outstanding_ns(&self) -> u64 {
        self.busy.total_ns
    }
}

/// Waiting time of a program by class of requests.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// The statistics of each class.
    pub classes: BTreeMap<Class, OfClass>,
}

impl Waits {
    /// Adds a request. Requests must be added in the order of their start times. Requests without a
    /// latency are ignored. The time of readahead hints counts as time of reads.
    ///
    /// `is_sequential` tells whether the request is part of sequential access to its file. None if
    /// the request has no offset.
    pub fn take(&mut self, request: &Request, is_sequential: Option<bool>) {
        let Some(end_ns) = request.end_ns() else { return };
        // A readahead hint submits I/O for later reads, so its time counts as time of reads.
        let is_hint = request.call.reads_ahead();
        let operation = if is_hint { Operation::Read } else { request.operation };
        let is_wait = operation.moves_data() || operation == Operation::Flush;
        if !is_wait || (is_hint && request.device_bytes.unwrap_or(0) == 0) {
            return;
        }
        let order = match is_sequential.filter(|_| operation.moves_data()) {
            Some(true) => ClassOrder::Sequential,
            Some(false) => ClassOrder::Random,
            None => ClassOrder::None,
        };
        let size_class = match operation {
            Operation::Flush => 0,
            _ => request.bytes.max(1).ilog2(),
        };
        let class = Class { operation, order, size_class };
        let of = self.classes.entry(class).or_default();
        of.busy.add(request.start_ns, end_ns);
        of.latency_ns = of.latency_ns.saturating_add(end_ns - request.start_ns);
        if is_hint {
            return;
        }
        of.count += 1;
        of.moved_bytes = of.moved_bytes.saturating_add(request.moved_bytes());
        // The Boyer-Moore majority vote finds the most common size.
        match of.votes {
            0 => (of.common_bytes, of.votes) = (request.bytes, 1),
            _ if of.common_bytes == request.bytes => of.votes += 1,
            _ => of.votes -= 1,
        }
    }
}
