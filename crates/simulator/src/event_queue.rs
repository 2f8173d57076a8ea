//! Implements the event queue and the virtual clock. The queue is a binary heap of events, which is
//! fast enough because only two or three events per request in flight are pending.
//!
//! Events are ordered by time. Events with the same time run in the order of their insertion, so a
//! run is reproducible bit for bit.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An entry of the heap. `Reverse` is needed because the standard heap returns the maximum.
type Entry<E> = Reverse<Scheduled<E>>;

/// An event, which is ordered only by its unique key. The upper 64 bits of the key are the time
/// (ns), and the lower 64 bits are a sequence number.
struct Scheduled<E> {
    key: u128,
    event: E,
}

impl<E> PartialEq for Scheduled<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<E> Eq for Scheduled<E> {}

impl<E> PartialOrd for Scheduled<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Scheduled<E> {
    #[inline]
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// The event queue and the virtual clock.
pub(crate) struct EventQueue<E> {
    heap: BinaryHeap<Entry<E>>,
    now_ns: u64,
    sequence: u64,
}

impl<E> EventQueue<E> {
    /// Creates an empty queue at time 0.
    pub fn new() -> EventQueue<E> {
        EventQueue { heap: BinaryHeap::with_capacity(64), now_ns: 0, sequence: 0 }
    }

    /// Returns the virtual time (ns).
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Schedules an event. If the time is in the past, the event is scheduled for the current time.
    #[inline]
    pub fn schedule(&mut self, at_ns: u64, event: E) {
        let at_ns = at_ns.max(self.now_ns);
        let key = (u128::from(at_ns) << 64) | u128::from(self.sequence);
        self.sequence += 1;
        self.heap.push(Reverse(Scheduled { key, event }));
    }

    /// Returns the time of the next event (ns). None if the queue is empty.
    #[inline]
    pub fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(scheduled)| (scheduled.key >> 64) as u64)
    }

    /// Removes and returns the next event, and advances the clock to the event's time.
    #[inline]
    pub fn next(&mut self) -> Option<E> {
        let Reverse(scheduled) = self.heap.pop()?;
        self.now_ns = (scheduled.key >> 64) as u64;
        Some(scheduled.event)
    }

    /// Advances the clock to the time `at_ns`. No event may be scheduled before that time.
    pub fn advance_to(&mut self, at_ns: u64) {
        debug_assert!(self.next_ns().is_none_or(|next| next >= at_ns), "no event is skipped");
        self.now_ns = self.now_ns.max(at_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_run_in_order_of_time_then_insertion() {
        let mut events = EventQueue::new();
        for (at, event) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b')] {
            events.schedule(at, event);
        }
        let order: Vec<(char, u64)> =
            std::iter::from_fn(|| events.next().map(|e| (e, events.now_ns()))).collect();
        assert_eq!(order, [('a', 3), ('b', 3), ('c', 5), ('d', 5)]);
    }

    #[test]
    fn a_late_event_runs_now_and_time_never_goes_back() {
        let mut events = EventQueue::new();
        events.advance_to(100);
        events.schedule(10, ());
        assert_eq!(events.next_ns(), Some(100));
        events.next();
        assert_eq!(events.now_ns(), 100);
    }
}
