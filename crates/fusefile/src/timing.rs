//! The trait for models of request latency. Reference devices implement it here, simulated systems
//! elsewhere.
//!
//! A reference device knows the completion time of a request on arrival. A simulated system does
//! not, because a later request may be served first. With this trait, requests are submitted, time
//! advances, and requests complete.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ioengine::Op;
use ioengine::truth::{Schedule, Truth};

/// A model of request latency. All times are of one clock (ns).
pub trait Timing: Send {
    /// Submits a request that arrives now; `tag` identifies it at completion. Requests are
    /// submitted in order of arrival.
    fn submit(&mut self, now_ns: u64, tag: u32, op: Op, offset: u64, length: u32);

    /// Advances the time to now, and appends the tags of completed requests in order of completion.
    fn advance(&mut self, now_ns: u64, done: &mut Vec<u32>);

    /// When to call [`Timing::advance`] again if no new request arrives; `None` if nothing is
    /// pending.
    fn next_ns(&self) -> Option<u64>;

    /// CPU time to burn per request in the submitting thread (ns).
    fn cpu_ns(&self) -> u64 {
        0
    }
}

/// A running reference device.
#[derive(Debug)]
pub struct KnownTruth {
    schedule: Schedule,
    /// Completion time, sequence number and tag of each request; the sequence number breaks ties.
    due: BinaryHeap<Reverse<(u64, u64, u32)>>,
    taken: u64,
}

impl KnownTruth {
    /// An idle device.
    pub fn new(truth: Truth) -> KnownTruth {
        KnownTruth { schedule: Schedule::new(truth), due: BinaryHeap::new(), taken: 0 }
    }
}

impl Timing for KnownTruth {
    fn submit(&mut self, now_ns: u64, tag: u32, op: Op, offset: u64, length: u32) {
        let at_ns = self.schedule.admit(now_ns, op, offset, length);
        self.due.push(Reverse((at_ns, self.taken, tag)));
        self.taken += 1;
    }

    fn advance(&mut self, now_ns: u64, done: &mut Vec<u32>) {
        while let Some(Reverse((at_ns, _, tag))) = self.due.peek().copied() {
            if at_ns > now_ns {
                return;
            }
            self.due.pop();
            done.push(tag);
        }
    }

    fn next_ns(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((at_ns, ..))| *at_ns)
    }

    fn cpu_ns(&self) -> u64 {
        self.schedule.truth().cpu_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_device_completes_each_request_at_its_time() {
        let truth = Truth { fixed_ns: 100, parallelism: 2, ..Truth::default() };
        let mut device = KnownTruth::new(truth);
        assert_eq!(device.next_ns(), None);
        for (now_ns, tag) in [(0, 7), (10, 8), (20, 9)] {
            device.submit(now_ns, tag, Op::Read, 0, 512);
        }
        let mut done = Vec::new();
        device.advance(99, &mut done);
        assert!(done.is_empty() && device.next_ns() == Some(100));
        device.advance(110, &mut done);
        assert_eq!((done.as_slice(), device.next_ns()), (&[7, 8][..], Some(200)));
        device.advance(200, &mut done);
        assert_eq!((done.as_slice(), device.next_ns()), (&[7, 8, 9][..], None));
    }
}
