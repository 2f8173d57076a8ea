//! Measures the rate of a closed loop in the time window in which its queue is full. [`FullQueue`]
//! explains why this window is used.
//!
//! After each call into the engine, a worker reports the completions to its [`FullQueueMeter`]. The
//! worker also reports when it stops submitting requests. The meter stores the counts only at a few
//! times, and allocates no memory after the start.

use crate::sample::FullQueue;

/// A turn is as many completions as the queue has slots. The window skips the first turns, at most
/// `1 / FIRST_SHARE` of all turns but at least one turn. A device needs these turns to spread out
/// requests that arrived together.
const FIRST_SHARE: u64 = 4;
/// Maximum number of stored counts. Counts are stored after turns 1, 2, 3, 4, 6, 8, 12, 16, and so
/// on, so 128 counts are enough for trials of any length.
const EARLY_MAX: usize = 128;

/// Numbers of completed requests, bytes and turns at one point in time.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    at_ns: u64,
    bytes: u64,
    requests: u64,
    turns: u64,
}

/// Counts completions, and stores the counts after some turns. A turn is as many completions as the
/// queue has slots. After the first turn, only turns with a full queue are counted.
#[derive(Debug)]
pub(crate) struct FullQueueMeter {
    slots: u64,
    now: Mark,
    /// Number of completed requests at which the current turn ends. `u64::MAX` if the queue is not
    /// kept full.
    next: u64,
    /// Number of calls into the engine after which the queue no longer counts as full. This number
    /// is practically unlimited until the worker stops submitting.
    calls_left: u64,
    /// Counts after the first call that returned completions.
    first: Mark,
    /// Counts after turns 1, 2, 3, 4, 6, 8, 12, 16, and so on.
    early: Vec<Mark>,
    last: Mark,
    /// Counts after the last call for which the queue counted as full.
    last_full: Mark,
}

impl FullQueueMeter {
    pub(crate) fn new(slots: u32, keeps_full: bool) -> FullQueueMeter {
        // At depth 1 the queue neither fills nor drains, so no window is needed.
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

    /// Resets all counts. Called at the end of the warm-up.
    pub(crate) fn restart(&mut self) {
        (self.now, self.next, self.first) = (Mark::default(), self.slots, Mark::default());
        self.early.clear();
    }

    /// Records that no more requests are issued. If the queue is full, the completions of the next
    /// call still count.
    pub(crate) fn stop(&mut self, in_flight: u32) {
        self.calls_left = u64::from(u64::from(in_flight) >= self.slots);
    }

    /// Adds the completions that one call into the engine returned.
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

    /// Returns the window in which the rate is measured. None if there are too few completions.
    ///
    /// The window begins after the first turns (at least one turn, and about a sixth to a quarter
    /// of all turns) and ends with the last turn. If there is only one turn, the window contains
    /// all later completions, which must be at least half a turn. Trials with so few requests
    /// usually have large requests, which most devices complete at the same rate while the queue
    /// drains.
    ///
    /// A device may read ahead into a buffer during the first turns, and then serve the next turns
    /// faster than it can sustain. If the rate in the window is therefore significantly higher than
    /// the rate since the first completion, the window since the first completion is returned
    /// instead.
    pub(crate) fn window(&self) -> Option<FullQueue> {
        let skipped = (self.last.turns / FIRST_SHARE).max(1);
        let begin = self.early.iter().rfind(|mark| mark.turns <= skipped)?;
        let has_several_turns = self.last.turns > 1;
        let (end, end_full) =
            if has_several_turns { (&self.last, &self.last_full) } else { (&self.now, &self.now) };
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

    /// Returns the rate (requests per ns) for completions given as (time in ns, count). The queue
    /// is full until `stop_ns`.
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
    fn initial_latency_does_not_lower_the_rate() {
        // The first request completes after 1000 ns. Then, one request completes every 10 ns.
        let completions: Vec<(u64, u64)> = (0..500).map(|index| (1000 + index * 10, 1)).collect();
        assert_eq!(rate_of(32, &completions, 1000 + 4680), Some(0.1));
    }

    #[test]
    fn windows_do_not_split_groups_of_completions() {
        // A group of four requests completes every 100 ns. The completions of a group are 1 ns
        // apart.
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
    fn one_and_a_half_turns_are_enough_and_less_is_not() {
        let completions: Vec<(u64, u64)> = (0..48).map(|index| (1000 + index * 10, 1)).collect();
        assert_eq!(rate_of(32, &completions, 1155), Some(0.1));
        assert_eq!(rate_of(32, &completions[..47], 1145), None);
    }

    #[test]
    fn a_burst_from_a_prefetch_buffer_does_not_raise_the_rate() {
        // The device serves the first turn (20 requests) at the rate of its media, and then sixty
        // requests from its buffer.
        let mut completions: Vec<(u64, u64)> = (1..=20).map(|index| (index * 100, 1)).collect();
        completions.extend((1..=60).map(|index| (2000 + index * 10, 1)));
        let rate = rate_of(20, &completions, 2600).unwrap();
        assert!((0.03..0.04).contains(&rate), "{rate}: 79 requests in 2500 ns");
    }

    #[test]
    fn without_a_full_queue_there_is_no_window() {
        let mut meter = FullQueueMeter::new(4, false);
        (1..1000).for_each(|at_ns| meter.add(at_ns, 1, 1));
        assert_eq!(meter.window(), None);
    }
}
