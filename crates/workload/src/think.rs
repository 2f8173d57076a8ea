//! Think time: each slot pauses before its next request, like an interactive user.
//!
//! With n slots, response time R and pause Z, the throughput is n / (R + Z) (the interactive
//! response time law). All pauses have the same length, so they end in the order in which they
//! began, and a FIFO queue suffices.

use std::collections::VecDeque;

use crate::spec::Think;

/// Keeps track of the slots that pause for a think time.
#[derive(Clone, Debug)]
pub struct Thinking {
    think: Think,
    /// Number of requests that each slot completed since its last pause.
    since: Vec<u32>,
    /// For each pausing slot, the end of the pause (ns of the clock) and the slot number. The first
    /// entry has the earliest end.
    pausing: VecDeque<(u64, u32)>,
}

impl Thinking {
    /// Creates the state for an engine with `slots` slots, none of which pauses yet.
    pub fn new(think: Think, slots: u32) -> Thinking {
        let pausing = VecDeque::with_capacity(slots as usize);
        Thinking { think, since: vec![0; slots as usize], pausing }
    }

    /// Counts a completed request of a slot. If the slot must pause now, stores the slot and
    /// returns true.
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

    /// Adds the slots whose pause is over to `free`.
    #[inline]
    pub fn wake(&mut self, now_ns: u64, free: &mut Vec<u32>) {
        while let Some(&(until_ns, slot)) = self.pausing.front()
            && until_ns <= now_ns
        {
            self.pausing.pop_front();
            free.push(slot);
        }
    }

    /// Returns the end of the next pause (ns of the clock). None if no slot pauses.
    #[inline]
    pub fn next_ns(&self) -> Option<u64> {
        self.pausing.front().map(|(until_ns, _)| *until_ns)
    }
}
