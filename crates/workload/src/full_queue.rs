//! Finds the part of a closed loop in which its queue is full, and its rate there.
//!
//! A worker tells its [`FullQueueMeter`] of the completions of each call and when it stops issuing.
//! The meter keeps a handful of marks and allocates nothing after the start. Why the rate is taken
//! there is said at [`FullQueue`].

use crate::sample::FullQueue;

/// The first turns are left out, at the most one in so many: a device needs some until requests
/// that came at once are spread over its parts.
const FIRST_SHARE: u64 = 4;
/// Room for the marks of the first turns of a trial of any length.
const EARLY_MAX: usize = 128;

/// Counts that were reached at a time.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    at_ns: u64,
    bytes: u64,
    requests: u64,
    turns: u64,
}

/// Counts completions, and marks each turn of the queue, which is as many completions as it has
/// slots: the first one always, others as long as the queue is full.
#[derive(Debug)]
pub(crate) struct FullQueueMeter {
    slots: u64,
    now: Mark,
    /// The count at which a turn is over; out of reach where no queue is kept full.
    next: u64,
    /// Calls with completions that still find the queue full.
    calls_left: u64,
    /// After the first completions.
    first: Mark,
    /// After turns 1, 2, 3, 4, 6, 8, 12, 16, and so on.
    early: Vec<Mark>,
    last: Mark,
    /// The last completions that found the queue full.
    last_full: Mark,
}

impl FullQueueMeter {
    pub(crate) fn new(slots: u32, keeps_full: bool) -> FullQueueMeter {
        // One request after the other neither fills a queue nor drains it.
        let slots = if keeps_full && slots > 1 { u64::from(slots) } else { u64::MAX };
        let none = Mark::default();
        FullQueueMeter {
            slots,
            now: none,
            next: slots,
            calls_left: u64::MAX,
            first: none,
            early: Vec::with_capacity(EARLY_MAX),
            last: none,
            last_full: none,
        }
    }

    /// Forgets what was counted, for the end of the warm-up.
    pub(crate) fn restart(&mut self) {
        (self.now, self.next, self.first) = (Mark::default(), self.slots, Mark::default());
        self.early.clear();
    }

    /// Nothing more is issued. If the queue is full, the next completions still count.
    pub(crate) fn stop(&mut self, in_flight: u32) {
        self.calls_left = u64::from(u64::from(in_flight) >= self.slots);
    }

    /// Counts what one call brought.
    #[inline]
    pub(crate) fn add(&mut self, now_ns: u64, bytes: u64, requests: u64) {
        self.now.at_ns = now_ns;
        self.now.bytes += bytes;
        self.now.requests += requests;
        if self.first.requests == 0 {
            self.first = self.now;
        }
        let is_full = self.calls_left > 0;
        self.calls_left -= u64::from(is_full);
        if is_full {
            self.last_full = self.now;
        }
        if (is_full || self.now.turns == 0) && self.now.requests >= self.next {
            self.next = self.now.requests.saturating_add(self.slots);
            self.now.turns += 1;
            self.last = self.now;
            let turns = self.now.turns;
            if turns.is_power_of_two() || turns.is_multiple_of(3) && (turns / 3).is_power_of_two() {
                self.early.push(self.now);
            }
        }
    }

    /// From the end of the first turns, a sixth to a quarter of all, to that of the last. Where
    /// there is no second turn, from the first to the last completion, half a turn at least: such
    /// few requests are large ones, which a device mostly completes as fast while the queue drains.
    ///
    /// A device that reads ahead into a buffer while the first turns go on serves the next ones
    /// from it, faster than it can in the long run. So what it does from its very first completion
    /// on takes the place of that window where the window is faster by more than chance is.
    pub(crate) fn window(&self) -> Option<FullQueue> {
        let left_out = (self.last.turns / FIRST_SHARE).max(1);
        let begin = self.early.iter().rfind(|mark| mark.turns <= left_out)?;
        let several = self.last.turns > 1;
        let (end, end_full) =
            if several { (&self.last, &self.last_full) } else { (&self.now, &self.now) };
        if (end.requests - begin.requests) * 2 < self.slots {
            return None;
        }
        let window = between(begin, end)?;
        let whole = between(&self.first, end_full)?;
        let chance = 1.0 / window.requests().sqrt();
        let is_served_from_buffer = window.requests_per_s > whole.requests_per_s * (1.0 + chance);
        Some(if is_served_from_buffer { whole } else { window })
    }
}

fn between(begin: &Mark, end: &Mark) -> Option<FullQueue> {
    let elapsed_ns = end.at_ns.checked_sub(begin.at_ns).filter(|ns| *ns > 0)?;
    let per_second = |count: u64| count as f64 * 1e9 / elapsed_ns as f64;
    Some(FullQueue {
        start_ns: begin.at_ns,
        end_ns: end.at_ns,
        bytes_per_s: per_second(end.bytes - begin.bytes),
        requests_per_s: per_second(end.requests - begin.requests),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Completions at these times (ns), of a queue that is kept full until one time.
    fn rate_of(slots: u32, completions: &[(u64, u64)], stop_ns: u64) -> Option<f64> {
        let mut meter = FullQueueMeter::new(slots, true);
        let mut stopped = false;
        for (at_ns, count) in completions {
            if *at_ns > stop_ns && !std::mem::replace(&mut stopped, true) {
                meter.stop(slots);
            }
            meter.add(*at_ns, count * 10, *count);
        }
        let window = meter.window()?;
        assert_eq!(window.bytes_per_s, window.requests_per_s * 10.0);
        Some(window.requests_per_s / 1e9)
    }

    #[test]
    fn a_device_with_a_latency_before_its_pipe_has_the_rate_of_its_pipe() {
        // The first request after 1000 ns, then one each 10 ns.
        let completions: Vec<(u64, u64)> = (0..500).map(|index| (1000 + index * 10, 1)).collect();
        assert_eq!(rate_of(32, &completions, 1000 + 4680), Some(0.1));
    }

    #[test]
    fn a_device_that_completes_in_groups_is_not_cut_within_a_group() {
        // Four at a time, one after the other within 3 ns, each 100 ns.
        let at = |index: u64| (100 * (1 + index / 4) + index % 4, 1);
        let completions: Vec<(u64, u64)> = (0..402).map(at).collect();
        assert_eq!(rate_of(4, &completions, 10_000), Some(0.04));
        assert_eq!(rate_of(8, &completions, 10_000), Some(0.04));
    }

    #[test]
    fn requests_that_drain_slowly_do_not_count() {
        let mut completions: Vec<(u64, u64)> = (1..=401).map(|index| (index * 10, 1)).collect();
        completions.extend((1..=15).map(|index| (4000 + index * 1000, 1)));
        assert_eq!(rate_of(16, &completions, 4000), Some(0.1));
    }

    #[test]
    fn one_turn_and_a_half_is_measured_to_its_end_and_less_is_not() {
        let completions: Vec<(u64, u64)> = (0..48).map(|index| (1000 + index * 10, 1)).collect();
        assert_eq!(rate_of(32, &completions, 1155), Some(0.1));
        assert_eq!(rate_of(32, &completions[..47], 1145), None);
    }

    #[test]
    fn a_buffer_that_was_filled_meanwhile_does_not_count() {
        // A first turn at the rate of the media, then sixty requests from a buffer.
        let mut completions: Vec<(u64, u64)> = (1..=20).map(|index| (index * 100, 1)).collect();
        completions.extend((1..=60).map(|index| (2000 + index * 10, 1)));
        let rate = rate_of(20, &completions, 2600).unwrap();
        assert!((0.03..0.04).contains(&rate), "{rate}: 79 requests in 2500 ns");
    }

    #[test]
    fn a_loop_that_keeps_no_queue_full_has_no_such_part() {
        let mut meter = FullQueueMeter::new(4, false);
        (1..1000).for_each(|at_ns| meter.add(at_ns, 1, 1));
        assert_eq!(meter.window(), None);
    }
}
