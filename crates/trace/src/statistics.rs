//! Totals of a trace, computed while its requests are read or written: the number of requests, the
//! duration, the maximum number of requests in flight, and the highest offset that was accessed in
//! each file.
//!
//! Memory is bounded: at most [`DEPTH_MOST`] requests in flight are tracked, and one number is kept
//! for each file.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::request::{FILES_MOST, Header, Operation, Request};

/// Maximum number of requests in flight that are counted. No real device queues so many requests.
/// Without a limit, a trace whose requests never end would exhaust the memory.
pub const DEPTH_MOST: usize = 1 << 20;

/// Totals of the requests that were added so far.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    requests: u64,
    out_of_order: u64,
    first_ns: Option<u64>,
    last_start_ns: u64,
    end_ns: u64,
    depth_max: usize,
    in_flight: BinaryHeap<Reverse<u64>>,
    file_ends: Vec<u64>,
}

impl Statistics {
    /// Adds a request. Requests are expected in the order of their start times. A request that
    /// starts before an earlier request counts as out of order, and makes the queue depth at that
    /// time approximate.
    pub fn add(&mut self, request: &Request) {
        self.requests += 1;
        let start = request.start_ns;
        self.out_of_order += u64::from(start < self.last_start_ns);
        self.last_start_ns = self.last_start_ns.max(start);
        self.first_ns = Some(self.first_ns.map_or(start, |first| first.min(start)));
        let end = request.end_ns().unwrap_or(start);
        self.end_ns = self.end_ns.max(end);
        while self.in_flight.peek().is_some_and(|Reverse(ended)| *ended <= start) {
            self.in_flight.pop();
        }
        if request.latency_ns.is_some() && self.in_flight.len() < DEPTH_MOST {
            self.in_flight.push(Reverse(end));
            self.depth_max = self.depth_max.max(self.in_flight.len());
        }
        let file = request.file.0 as usize;
        if let Some(end) = end_in_file(request).filter(|_| file < FILES_MOST) {
            if self.file_ends.len() <= file {
                self.file_ends.resize(file + 1, 0);
            }
            self.file_ends[file] = self.file_ends[file].max(end);
        }
    }

    /// Returns the number of requests.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Writes the totals into the header. If the header already has a larger `end_bytes` for a
    /// file, that value is kept.
    pub fn complete(&self, header: &mut Header) {
        header.requests = self.requests;
        header.duration_ns = self.end_ns - self.first_ns.unwrap_or(self.end_ns);
        header.depth_max = self.depth_max as u32;
        header.out_of_order = self.out_of_order;
        if header.files.len() < self.file_ends.len() {
            header.files.resize_with(self.file_ends.len(), Default::default);
        }
        for (file, end) in header.files.iter_mut().zip(&self.file_ends) {
            file.end_bytes = file.end_bytes.max(*end);
        }
    }
}

/// Returns the offset after the last byte that a request accessed in its file. None if the request
/// failed, moved no bytes or has no range in a file.
fn end_in_file(request: &Request) -> Option<u64> {
    let offset = request.offset?;
    if request.result.is_some_and(|result| result < 0) {
        return None;
    }
    match request.operation {
        Operation::Read | Operation::Write => match request.moved_bytes() {
            0 => None,
            moved => Some(offset.saturating_add(moved)),
        },
        Operation::Discard | Operation::Allocate => Some(offset.saturating_add(request.bytes)),
        Operation::Truncate => Some(offset),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Call, FileId};

    fn read(start_ns: u64, latency_ns: Option<u64>, offset: u64) -> Request {
        Request {
            start_ns,
            latency_ns,
            process: 1,
            thread: 1,
            call: Call::UNKNOWN,
            operation: Operation::Read,
            file: FileId(0),
            offset: Some(offset),
            bytes: 4096,
            result: None,
            direct: false,
            durable: false,
            device_bytes: None,
            sleeps: None,
        }
    }

    fn header(requests: &[Request]) -> Header {
        let mut statistics = Statistics::default();
        requests.iter().for_each(|request| statistics.add(request));
        let mut header = Header::default();
        statistics.complete(&mut header);
        header
    }

    #[test]
    fn depth_counts_requests_between_their_start_and_their_end() {
        let requests = [read(0, Some(10), 0), read(5, Some(10), 0), read(10, Some(10), 0)];
        let found = header(&requests);
        assert_eq!((found.depth_max, found.duration_ns, found.requests), (2, 20, 3));
        assert_eq!(header(&[read(5, None, 0), read(9, None, 0)]).depth_max, 0);
        assert_eq!(header(&[]), Header::default());
    }

    #[test]
    fn a_file_ends_where_successful_requests_reached() {
        let short = Request { result: Some(100), ..read(1, None, 8192) };
        let failed = Request { result: Some(-5), ..read(2, None, 1 << 40) };
        let truncated = Request { operation: Operation::Truncate, ..read(3, None, 0) };
        let found = header(&[read(0, None, 0), short, failed, truncated]);
        assert_eq!(found.files[0].end_bytes, 8292);
    }

    #[test]
    fn a_request_behind_a_later_one_is_out_of_order() {
        assert_eq!(header(&[read(5, None, 0), read(4, None, 0), read(6, None, 0)]).out_of_order, 1);
    }
}
