//! What decides how long a request takes: one trait, implemented by devices of known truth here
//! and by simulated systems elsewhere.
//!
//! A device of known truth says at a request's arrival when it will be complete. A simulated system
//! cannot: what comes later may be served first. So the trait is that of a world in which time
//! passes: requests go in, and come out when their moment has come.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ioengine::Op;
use ioengine::truth::{Schedule, Truth};

/// A model of time. All moments are those of one clock (ns).
pub trait Timing: Send {
    /// Takes in a request that arrives now; `tag` is what it is called when it is complete.
    /// Requests come in the order of their arrival.
    fn submit(&mut self, now_ns: u64, tag: u32, op: Op, offset: u64, length: u32);

    /// Lets time pass until now, and adds the tags of what is complete, in that order.
    fn advance(&mut self, now_ns: u64, done: &mut Vec<u32>);

    /// When to look again if nothing arrives before; None: not before something does.
    fn next_ns(&self) -> Option<u64>;

    /// CPU time to burn for each request in the thread that takes it in (ns).
    fn cpu_ns(&self) -> u64 {
        0
    }
}

/// A device of known truth at work.
#[derive(Debug)]
pub struct KnownTruth {
    schedule: Schedule,
    /// Moment of completion, number and tag of each request; of two at once the first one first.
    due: BinaryHeap<Reverse<(u64, u64, u32)>>,
    taken: u64,
}

impl KnownTruth {
    /// The device at rest.
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
    fn a_device_of_known_truth_gives_each_request_back_at_its_moment() {
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
