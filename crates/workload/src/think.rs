//! Slots that pause before their next request, as a user does who looks at the answer first.
//!
//! With n slots, a response time R and a pause Z the throughput is n / (R + Z): the law of response
//! times of interactive systems. Pauses are all equally long, so slots come back in the order in
//! which they went, and a queue of fixed size holds them.

use std::collections::VecDeque;

use crate::spec::Think;

/// The slots that think.
#[derive(Clone, Debug)]
pub struct Thinking {
    think: Think,
    /// Requests of each slot since its last pause.
    since: Vec<u32>,
    /// Until when [ns of the clock], and which.
    resting: VecDeque<(u64, u32)>,
}

impl Thinking {
    /// For so many slots.
    pub fn new(think: Think, slots: u32) -> Thinking {
        let resting = VecDeque::with_capacity(slots as usize);
        Thinking { think, since: vec![0; slots as usize], resting }
    }

    /// Whether a slot whose request has just completed pauses now; then it is held here.
    #[inline]
    pub fn holds(&mut self, slot: u32, now_ns: u64) -> bool {
        let since = &mut self.since[slot as usize];
        *since += 1;
        if *since < self.think.requests {
            return false;
        }
        *since = 0;
        self.resting.push_back((now_ns.saturating_add(self.think.pause_ns), slot));
        true
    }

    /// Gives the slots back whose pause is over.
    #[inline]
    pub fn wake(&mut self, now_ns: u64, free: &mut Vec<u32>) {
        while let Some(&(until_ns, slot)) = self.resting.front()
            && until_ns <= now_ns
        {
            self.resting.pop_front();
            free.push(slot);
        }
    }

    /// When the next pause ends [ns of the clock].
    #[inline]
    pub fn next_ns(&self) -> Option<u64> {
        self.resting.front().map(|(until_ns, _)| *until_ns)
    }
}
