//! Counts bytes and computes the queue depth over time, in intervals of equal length. If there
//! would be more than 240 intervals, their length is doubled, so memory is bounded.

use trace::{Operation, Request};

/// Maximum number of intervals.
const INTERVALS_MAX: usize = 240;
/// Initial length of an interval (ns).
const INTERVAL_NS: u64 = 1_000_000;

/// Totals of the requests in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    /// Number of bytes moved by reads that started in the interval.
    pub read_bytes: f64,
    /// Number of bytes moved by writes that started in the interval.
    pub write_bytes: f64,
    /// Outstanding time of all requests in the interval (ns). Each request adds the time during
    /// which it was outstanding in the interval.
    pub outstanding_ns: f64,
}

/// Totals of requests in successive intervals.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Length of an interval (ns).
    pub interval_ns: u64,
    /// The intervals, beginning at time 0.
    pub intervals: Vec<Interval>,
}

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline { interval_ns: INTERVAL_NS, intervals: Vec::new() }
    }
}

impl Timeline {
    /// Adds a request. Requests other than reads, writes and flushes are ignored.
    pub fn take(&mut self, request: &Request) {
        let is_shown = request.operation.moves_data() || request.operation == Operation::Flush;
        if !is_shown {
            return;
        }
        let (start, end) = (request.start_ns, request.end_ns().unwrap_or(request.start_ns));
        self.reach(end);
        let first = (start / self.interval_ns) as usize;
        let moved = request.moved_bytes() as f64;
        match request.operation {
            Operation::Read => self.intervals[first].read_bytes += moved,
            Operation::Write => self.intervals[first].write_bytes += moved,
            _ => {}
        }
        let last = (end / self.interval_ns) as usize;
        for (number, interval) in self.intervals.iter_mut().enumerate().take(last + 1).skip(first) {
            let from = start.max(number as u64 * self.interval_ns);
            let to = end.min((number as u64).saturating_add(1).saturating_mul(self.interval_ns));
            interval.outstanding_ns += to.saturating_sub(from) as f64;
        }
    }

    /// Extends the timeline to the time `ns`. If this needs more than [`INTERVALS_MAX`] intervals,
    /// doubles their length until the number is small enough.
    fn reach(&mut self, ns: u64) {
        while ns / self.interval_ns >= INTERVALS_MAX as u64 {
            self.interval_ns = self.interval_ns.saturating_mul(2);
            let pair = |pair: &[Interval]| {
                pair.iter().fold(Interval::default(), |sum, one| Interval {
                    read_bytes: sum.read_bytes + one.read_bytes,
                    write_bytes: sum.write_bytes + one.write_bytes,
                    outstanding_ns: sum.outstanding_ns + one.outstanding_ns,
                })
            };
            self.intervals = self.intervals.chunks(2).map(pair).collect();
        }
        let needed = (ns / self.interval_ns) as usize + 1;
        if self.intervals.len() < needed {
            self.intervals.resize(needed, Interval::default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::{Call, FileId};

    fn request(start_ns: u64, latency_ns: u64, operation: Operation) -> Request {
        Request {
            start_ns,
            latency_ns: Some(latency_ns),
            process: 1,
            thread: 1,
            call: Call::UNKNOWN,
            operation,
            file: FileId(0),
            offset: Some(0),
            bytes: 4096,
            result: None,
            direct: false,
            durable: false,
            device_bytes: None,
            sleeps: None,
        }
    }

    #[test]
    fn bytes_and_time_are_kept_when_intervals_double() {
        let mut timeline = Timeline::default();
        for n in 0..10_000_u64 {
            let operation = if n % 4 == 0 { Operation::Write } else { Operation::Read };
            timeline.take(&request(n * 700_000, 1_500_000, operation));
        }
        assert!(timeline.intervals.len() <= INTERVALS_MAX, "{}", timeline.intervals.len());
        let sum = |of: fn(&Interval) -> f64| timeline.intervals.iter().map(of).sum::<f64>();
        assert_eq!(sum(|one| one.read_bytes), 7_500.0 * 4096.0);
        assert_eq!(sum(|one| one.write_bytes), 2_500.0 * 4096.0);
        assert!((sum(|one| one.outstanding_ns) - 1.5e10).abs() < 1.0);
        timeline.take(&request(u64::MAX - 1, u64::MAX, Operation::Read));
        assert!(timeline.intervals.len() <= INTERVALS_MAX);
    }
}
