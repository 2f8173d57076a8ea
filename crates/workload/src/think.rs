//! Think time: slots that pause before their next request, like an interactive user.
//!
//! With n slots, response time R and pause Z, the throughput is n / (R + Z) (the interactive
//! response time law). All pauses have the same length, so slots return in the order in which they
//! paused, and a FIFO queue suffices.

use std::collections::VecDeque;

use crate::spec::Think;

/// The slots that pause for a think time.
#[derive(Clone, Debug)]
pub struct Thinking {
    think: Think,
    /// Number of requests of each slot since its last pause.
    since: Vec<u32>,
    /// The pausing slots: end of the pause (ns of the clock) and slot, in order.
    pausing: VecDeque<(u64, u32)>,
}

impl Thinking {
    /// Creates the state of an engine with `slots` slots that do not pause.
    pub fn new(think: Think, slots: u32) -> Thinking {
        let pausing = VecDeque::with_capacity(slots as usize);
        Thinking { think, since: vec![0; slots as usize], pausing }
    }

    /// Called when a request of a slot completes: stores the slot and returns true if it pauses
    /// now.
    #[inline]
    pub fn holds(&mut self, slot: u32, now_ns: u64) -> bool {
        let since = &mut self.since[slot as usize];
        *since += 1;
        if *since < self.think.requests {
            return false;
        }
        *since = 0;
        self.pausing.push_back((now_ns.saturating_add(self.think.pause_ns), slot));
        true
    }

    /// Moves slots whose pause is over to `free`.
    #[inline]
    pub fn wake(&mut self, now_ns: u64, free: &mut Vec<u32>) {
        while let Some(&(until_ns, slot)) = self.pausing.front()
            && until_ns <= now_ns
        {
            self.pausing.pop_front();
            free.push(slot);
        }
    }

    /// When the next pause ends (ns of the clock).
    #[inline]
    pub fn next_ns(&self) -> Option<u64> {
        self.pausing.front().map(|(until_ns, _)| *until_ns)
    }
}
