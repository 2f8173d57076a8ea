//! Reads a trace for the second time, and yields the requests that one worker issues. Each request
//! has the time since the last event in its lane, and the number of earlier requests that were
//! still outstanding.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use crate::error::TraceError;
use crate::replay::changes::{ChangedLane, Changes};
use crate::replay::scan::Scan;
use crate::replay::selection;
use crate::replay::{Action, Level, ReplayRequest, action};
use crate::request::Request;

/// Maximum number of requests in flight that are tracked in each lane.
const DEPTH_MOST: usize = 1 << 16;

/// The state of a lane while the trace is read.
#[derive(Debug)]
struct Lane {
    /// End times of the requests in flight (ns).
    in_flight: BinaryHeap<Reverse<u64>>,
    /// The latest start or end of a request so far (ns).
    last_ns: u64,
    changed: ChangedLane,
}

/// Iterates over the requests of one worker in the order of the trace. The first error ends the
/// iteration.
pub struct Feed<I> {
    trace: I,
    scan: Arc<Scan>,
    changes: Changes,
    worker: u32,
    workers: u32,
    lanes: Vec<Lane>,
    ready: VecDeque<ReplayRequest>,
    ended: bool,
}

impl<I: Iterator<Item = Result<Request, TraceError>>> Feed<I> {
    /// Creates the feed of worker `worker` of `workers`. Lane `n` of the trace belongs to worker
    /// `n % workers` and is lane `n / workers` of this worker. `trace` must be the trace from which
    /// `scan` was made.
    pub fn new(trace: I, scan: Arc<Scan>, changes: Changes, (worker, workers): (u32, u32)) -> Self {
        let lane = || Lane {
            in_flight: BinaryHeap::new(),
            last_ns: scan.first_start_ns,
            changed: ChangedLane::default(),
        };
        let count = scan.lanes.len().max(1).div_ceil(workers.max(1) as usize);
        let lanes = (0..count).map(|_| lane()).collect();
        let workers = workers.max(1);
        let ready = VecDeque::new();
        Feed { trace, scan, changes, worker, workers, lanes, ready, ended: false }
    }

    /// Processes a request of the trace. Appends to `ready` the requests that are to be replayed.
    #[inline]
    fn add(&mut self, request: &Request) {
        if Level::of(request) != self.scan.level {
            return;
        }
        let file = selection::facts(&self.scan.files, request.file);
        if file.unfit.is_some() {
            return;
        }
        let Ok((action, offset, bytes)) = action(request, file.end_bytes) else { return };
        if matches!(action, Action::Advise(_)) && bytes == 0 && self.scan.file_hints == 0 {
            return;
        }
        let lane = self.scan.lane(request.thread);
        if lane % self.workers != self.worker {
            return;
        }
        let offset = if bytes == 0 { 0 } else { self.scan.place(request, offset) };
        let number = lane / self.workers;
        let lane = &mut self.lanes[number as usize];
        let start_ns = request.start_ns;
        while let Some(Reverse(end_ns)) = lane.in_flight.peek().filter(|end| end.0 <= start_ns) {
            lane.last_ns = lane.last_ns.max(*end_ns);
            lane.in_flight.pop();
        }
        let outstanding = lane.in_flight.len() as u32;
        let gap_ns = start_ns.saturating_sub(lane.last_ns);
        lane.last_ns = lane.last_ns.max(start_ns);
        if let Some(end_ns) = request.end_ns().filter(|_| lane.in_flight.len() < DEPTH_MOST) {
            lane.in_flight.push(Reverse(end_ns));
        }
        let outstanding = self.scan.has_latencies.then_some(outstanding);
        let found = ReplayRequest { lane: number, action, offset, bytes, gap_ns, outstanding };
        if self.changes.is_none() {
            self.ready.push_back(found);
        } else {
            lane.changed.add(&self.changes, found, &mut self.ready);
        }
    }
}

impl<I: Iterator<Item = Result<Request, TraceError>>> Iterator for Feed<I> {
    type Item = Result<ReplayRequest, TraceError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(request) = self.ready.pop_front() {
                return Some(Ok(request));
            }
            if self.ended {
                return None;
            }
            match self.trace.next() {
                Some(Ok(request)) => self.add(&request),
                Some(Err(error)) => {
                    self.ended = true;
                    return Some(Err(error));
                }
                None => {
                    self.ended = true;
                    for lane in &mut self.lanes {
                        lane.changed.end(&self.changes, &mut self.ready);
                    }
                }
            }
        }
    }
}
