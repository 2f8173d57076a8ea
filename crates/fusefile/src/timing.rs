//! The trait for models of request latency, and its implementation for reference devices.
//!
//! A reference device knows the completion time of a request on arrival. A simulated system does
//! not, because a later request may be served first. Therefore a model reports completions only
//! when time advances.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ioengine::Op;
use ioengine::truth::{Schedule, Truth};

/// A model of request latency. All times are from the same clock (ns).
pub trait Timing: Send {
    /// Submits a request that arrives at `now_ns`. The request is reported as `tag` when it
    /// completes. Requests are submitted in order of arrival.
    fn submit(&mut self, now_ns: u64, tag: u32, op: Op, offset: u64, length: u32);

    /// Advances the time to `now_ns`, and appends the tags of completed requests to `done`, in
    /// order of completion.
    fn advance(&mut self, now_ns: u64, done: &mut Vec<u32>);

    /// Returns the time at which to call [`Timing::advance`] again if no new request arrives (ns).
    /// None if nothing is pending.
    fn next_ns(&self) -> Option<u64>;

    /// Returns the CPU time that the submitting thread burns per request (ns).
    fn cpu_ns(&self) -> u64 {
        0
    }
}

/// A reference device and its pending requests.
#[derive(Debug)]
pub struct KnownTruth {
    schedule: Schedule,
    /// Completion time, sequence number and tag of each pending request. The sequence number breaks
    /// ties.
    due: BinaryHeap<Reverse<(u64, u64, u32)>>,
    taken: u64,
}

impl KnownTruth {
    /// Returns a reference device without pending requests.
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
