//! What decides how long a request takes: one trait, implemented by devices of known truth here
//! and by simulated systems elsewhere.

use ioengine::Op;
use ioengine::truth::Schedule;

/// A model of time.
pub trait Timing: Send {
    /// When a request that arrives now will be complete (ns, of the same clock as `now_ns`).
    /// Requests come in the order of their arrival.
    fn admit(&mut self, now_ns: u64, op: Op, offset: u64, length: u32) -> u64;

    /// CPU time to burn for each request in the thread that takes it in (ns).
    fn cpu_ns(&self) -> u64 {
        0
    }
}

impl Timing for Schedule {
    fn admit(&mut self, now_ns: u64, op: Op, offset: u64, length: u32) -> u64 {
        Schedule::admit(self, now_ns, op, offset, length)
    }

    fn cpu_ns(&self) -> u64 {
        self.truth().cpu_ns
    }
}
