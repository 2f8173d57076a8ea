//! What a program waits for: its requests by operation, order and size, each class with the time
//! during which at least one of it was outstanding.
//!
//! Sizes are classes of powers of two, so memory is bounded. Classes may be outstanding at the same
//! time, so their shares of the time may add up to more than the whole.

use std::collections::BTreeMap;

use trace::{Operation, Request};

/// Time during which at least one request was outstanding.
#[derive(Clone, Copy, Debug, Default)]
pub struct Busy {
    /// The time (ns).
    pub total_ns: u64,
    until_ns: u64,
}

impl Busy {
    /// Adds an interval; intervals come in the order of their start.
    pub fn add(&mut self, start_ns: u64, end_ns: u64) {
        let from = start_ns.max(self.until_ns);
        if end_ns > from {
            self.total_ns += end_ns - from;
            self.until_ns = end_ns;
        }
    }
}

/// How the requests of a class access their file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClassOrder {
    /// In runs.
    Sequential,
    /// Elsewhere.
    Random,
    /// The operation has no offset.
    None,
}

impl ClassOrder {
    /// The name in sentences and documents; empty for none.
    pub fn name(self) -> &'static str {
        match self {
            ClassOrder::Sequential => "sequential",
            ClassOrder::Random => "random",
            ClassOrder::None => "",
        }
    }
}

/// A class of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class {
    /// Read, write or flush.
    pub operation: Operation,
    /// The order.
    pub order: ClassOrder,
    /// Binary logarithm of the size.
    size_class: u32,
}

/// The requests of a class.
#[derive(Clone, Copy, Debug, Default)]
pub struct OfClass {
    /// Number of requests.
    pub count: u64,
    /// Bytes moved.
    pub moved_bytes: u64,
    /// Sum of the latencies (ns).
    pub latency_ns: u64,
    /// The size of most of them, if one has the majority (bytes).
    pub common_bytes: u64,
    votes: u64,
    busy: Busy,
}

impl OfClass {
    /// Time during which at least one was outstanding (ns).
    pub fn outstanding_ns(&self) -> u64 {
        self.busy.total_ns
    }
}

/// All classes of a program.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// The classes.
    pub classes: BTreeMap<Class, OfClass>,
}

impl Waits {
    /// Adds a request with a latency; they come in the order of their start. `is_sequential` says
    /// whether it is part of sequential access to its file; None if it has no offset. The time of
    /// hints that read ahead counts as time of reads.
    pub fn take(&mut self, request: &Request, is_sequential: Option<bool>) {
        let Some(end_ns) = request.end_ns() else { return };
        // A hint that reads ahead is the submission of the reads that follow.
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
        // The majority vote of Boyer and Moore.
        match of.votes {
            0 => (of.common_bytes, of.votes) = (request.bytes, 1),
            _ if of.common_bytes == request.bytes => of.votes += 1,
            _ => of.votes -= 1,
        }
    }
}
