//! Derives requests from the events of the block layer that blktrace records: a request is queued
//! (Q), issued to the driver (D) and completed (C), with other events in between.
//!
//! A request in the resulting trace is a request as the device received it, after merging in the
//! block layer. Its latency is the time from D to C. The notes of the trace contain the mean time
//! from Q to D, in which requests waited in the queue. Devices without a queue (device mapper, md)
//! have no D events. The latency of their requests is the time from Q to C, and the notes contain
//! the number of such requests. Events are matched by device and sector. Completions of requests
//! that did not begin in the trace, and requests without a completion, count as lost.

use std::collections::HashMap;
use std::io::Write;

use crate::error::TraceError;
use crate::import::sink::{Sink, block};
use crate::request::{Operation, Request};

/// Size of a sector of the block layer (bytes).
pub(crate) const SECTOR: u64 = 512;

/// Maximum number of unfinished requests that are tracked at the same time. Real queues contain at
/// most a few thousand requests.
const OPEN_MOST: usize = 1 << 18;

/// What happened to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The request entered the block layer.
    Queued,
    /// The request was merged into another request that was not issued yet.
    Merged,
    /// The block layer passed the request to the driver.
    Issued,
    /// The driver returned the request to the block layer before it was completed.
    Requeued,
    /// The request completed. The value is 0 or a negative error number.
    Completed(i64),
}

/// An event of the block layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub at_ns: u64,
    pub stage: Stage,
    pub operation: Operation,
    /// Major and minor number of the device.
    pub device: (u32, u32),
    pub sector: u64,
    pub bytes: u64,
    pub process: u32,
    /// Whether the request itself makes its data durable (FUA).
    pub durable: bool,
}

/// Key by which events are matched: device, sector, and whether the request is a flush. The sector
/// of a flush is always 0, so the sector alone does not distinguish a flush from a request at
/// sector 0.
type Place = ((u32, u32), u64, bool);

/// The state of a request that has not ended.
#[derive(Clone, Copy)]
struct Open {
    queued_ns: Option<u64>,
    issued_ns: Option<u64>,
    event: Event,
}

/// Matches events and writes the requests to a sink.
#[derive(Default)]
pub(crate) struct Pairs {
    open: HashMap<Place, Open>,
    /// Number of requests that must be added before the next removal of requests that were never
    /// issued.
    until_sweep: usize,
    issues: u64,
    waits: u64,
    waited_ns: u128,
    without_issue: u64,
    too_many: u64,
    without_beginning: u64,
}

impl Pairs {
    /// Processes the next event.
    ///
    /// # Errors
    /// If the trace cannot be written.
    pub(crate) fn add<W: Write + Send>(
        &mut self,
        event: &Event,
        sink: &mut Sink<W>,
    ) -> Result<(), TraceError> {
        let place = (event.device, event.sector, event.operation == Operation::Flush);
        match event.stage {
            Stage::Queued => {
                let queued_ns = Some(event.at_ns);
                self.begin(place, Open { queued_ns, issued_ns: None, event: *event });
            }
            Stage::Merged => {
                // All further events belong to the request into which this request was merged.
                self.open.remove(&place);
            }
            Stage::Issued => {
                self.issues += 1;
                let queued_ns = self.open.get(&place).and_then(|open| open.queued_ns);
                let issued_ns = Some(event.at_ns);
                self.begin(place, Open { queued_ns, issued_ns, event: *event });
            }
            Stage::Requeued => {
                if let Some(open) = self.open.get_mut(&place) {
                    open.issued_ns = None;
                }
            }
            Stage::Completed(result) => match self.open.remove(&place) {
                Some(open) => return self.end(&open, event, result, sink),
                None => self.without_beginning += 1,
            },
        }
        Ok(())
    }

    fn begin(&mut self, place: Place, open: Open) {
        self.until_sweep = self.until_sweep.saturating_sub(1);
        if self.open.len() == OPEN_MOST && self.until_sweep == 0 && self.issues > 0 {
            // A request that was not issued may have been merged into another request. It would
            // then get no further event, so it is removed.
            self.open.retain(|_, open| open.issued_ns.is_some());
            self.until_sweep = OPEN_MOST;
        }
        if self.open.len() < OPEN_MOST || self.open.contains_key(&place) {
            self.open.insert(place, open);
        } else {
            self.too_many += 1;
        }
    }

    fn end<W: Write + Send>(
        &mut self,
        open: &Open,
        completion: &Event,
        result: i64,
        sink: &mut Sink<W>,
    ) -> Result<(), TraceError> {
        let start_ns = open.issued_ns.or(open.queued_ns).unwrap_or(completion.at_ns);
        match (open.queued_ns, open.issued_ns) {
            (Some(queued), Some(issued)) => {
                self.waits += 1;
                self.waited_ns += u128::from(issued.saturating_sub(queued));
            }
            _ => self.without_issue += u64::from(open.issued_ns.is_none()),
        }
        let Event { operation, bytes, device, sector, process, durable, .. } = open.event;
        let file = sink.file(&format!("{},{}", device.0, device.1));
        let offset = sector.saturating_mul(SECTOR);
        let bytes = if open.issued_ns.is_some() { bytes } else { completion.bytes };
        let moved = completion.bytes.min(i64::MAX as u64).cast_signed();
        let request = block(start_ns, operation, file, offset, bytes);
        sink.push(&Request {
            latency_ns: Some(completion.at_ns.saturating_sub(start_ns)),
            process,
            thread: process,
            offset: request.offset.filter(|_| operation != Operation::Flush),
            result: Some(if result < 0 { result } else { moved }),
            durable,
            ..request
        })
    }

    /// Counts unmatched events as lost, and adds notes about the time in the queue.
    pub(crate) fn end_of_trace<W: Write + Send>(self, sink: &mut Sink<W>) {
        // If the trace has D events, a request that was only queued may have been merged into
        // another request, so it does not count as lost.
        let unfinished = self.open.values();
        let unfinished = unfinished.filter(|open| open.issued_ns.is_some() || self.issues == 0);
        sink.lose("requests unfinished at the end of the trace", unfinished.count() as u64);
        sink.lose("completions of requests that began before the trace", self.without_beginning);
        sink.lose("requests that began while 262,144 others were unfinished", self.too_many);
        if self.waits > 0 {
            let mean_us = self.waited_ns as f64 / self.waits as f64 / 1e3;
            sink.note(format!(
                "latency is the time from issue to completion; {} requests waited in the queue \
                 before issue, {mean_us:.1} us on average",
                self.waits
            ));
        }
        if self.without_issue > 0 {
            sink.note(format!(
                "{} requests have no issue event (D); their latency includes the time in the queue",
                self.without_issue
            ));
        }
    }
}

/// Returns the operation of a request from the letters that blkparse prints (RWBS): R is a read, W
/// is a write, and D is a discard. F as the first letter is a flush, but FW with data is a write.
/// None for N, which moves no data.
pub(crate) fn operation(letters: &str, bytes: u64) -> Option<Operation> {
    let flush = letters.starts_with('F');
    let letters = letters.strip_prefix('F').unwrap_or(letters);
    match letters.chars().next() {
        Some('R') => Some(Operation::Read),
        Some('D') => Some(Operation::Discard),
        Some('W') if flush && bytes == 0 => Some(Operation::Flush),
        Some('W') => Some(Operation::Write),
        _ => flush.then_some(Operation::Flush),
    }
}

/// Returns whether the letters that blkparse prints (RWBS) have an F after the operation, which
/// means FUA.
pub(crate) fn durable(letters: &str) -> bool {
    letters.chars().skip(1).any(|letter| letter == 'F')
}
