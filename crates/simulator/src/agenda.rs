//! What happens when: a heap of events in the order of (time, number), and the virtual time.
//!
//! Two events of the same moment happen in the order in which they were brought, so that a run
//! is the same to the bit each time. Pending events are few (two or three for each request
//! outstanding), so a binary heap is never the bottleneck.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An event with its moment and number, earliest first.
type Entry<E> = Reverse<Due<E>>;

/// Ordered by the key alone; keys differ.
struct Due<E> {
    key: u128,
    event: E,
}

impl<E> PartialEq for Due<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<E> Eq for Due<E> {}

impl<E> PartialOrd for Due<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Due<E> {
    #[inline]
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// What happens when: a heap of events in the order of (time, number), and the virtual time.
pub(crate) struct Agenda<E> {
    heap: BinaryHeap<Entry<E>>,
    now_ns: u64,
    brought: u64,
}

impl<E> Agenda<E> {
    /// Nothing to happen, at time 0.
    pub fn new() -> Agenda<E> {
        Agenda { heap: BinaryHeap::with_capacity(64), now_ns: 0, brought: 0 }
    }

    /// The virtual time (ns).
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Brings an event; one that is late happens now.
    #[inline]
    pub fn at(&mut self, at_ns: u64, event: E) {
        let at_ns = at_ns.max(self.now_ns);
        let key = (u128::from(at_ns) << 64) | u128::from(self.brought);
        self.brought += 1;
        self.heap.push(Reverse(Due { key, event }));
    }

    /// When the next event happens (ns).
    #[inline]
    pub fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(due)| (due.key >> 64) as u64)
    }

    /// Takes the next event and moves the time to it.
    #[inline]
    pub fn next(&mut self) -> Option<E> {
        let Reverse(due) = self.heap.pop()?;
        self.now_ns = (due.key >> 64) as u64;
        Some(due.event)
    }

    /// Lets time pass to a moment before which nothing happens.
    pub fn pass_to(&mut self, at_ns: u64) {
        debug_assert!(self.next_ns().is_none_or(|next| next >= at_ns), "an event was passed over");
        self.now_ns = self.now_ns.max(at_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_happen_in_the_order_of_time_and_then_of_being_brought() {
        let mut agenda = Agenda::new();
        for (at, event) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b')] {
            agenda.at(at, event);
        }
        let order: Vec<(char, u64)> =
            std::iter::from_fn(|| agenda.next().map(|e| (e, agenda.now_ns()))).collect();
        assert_eq!(order, [('a', 3), ('b', 3), ('c', 5), ('d', 5)]);
    }

    #[test]
    fn what_is_late_happens_now_and_time_never_goes_back() {
        let mut agenda = Agenda::new();
        agenda.pass_to(100);
        agenda.at(10, ());
        assert_eq!(agenda.next_ns(), Some(100));
        agenda.next();
        assert_eq!(agenda.now_ns(), 100);
    }
}
