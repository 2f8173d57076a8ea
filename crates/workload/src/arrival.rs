//! When requests are due: always (closed loop), or at a constant rate (open loop).
//!
//! In an open loop the moment at which a request is due does not depend on the device, and its
//! latency counts from then: a device that stalls is charged for every request that it kept
//! waiting (the remedy for coordinated omission).

/// The due times of one worker's open loop.
#[derive(Clone, Debug)]
pub struct Arrivals {
    start_ns: u64,
    period_ns: f64,
    offset: f64,
    number: u64,
}

impl Arrivals {
    /// Requests due every `1/rate` seconds from `start_ns` on, shifted by a share of a period.
    pub fn new(start_ns: u64, requests_per_s: f64, offset: f64) -> Arrivals {
        Arrivals { start_ns, period_ns: 1e9 / requests_per_s, offset, number: 0 }
    }

    /// When the next request is due (ns).
    #[inline]
    pub fn next_due_ns(&self) -> u64 {
        let after = (self.number as f64 + self.offset) * self.period_ns;
        self.start_ns.saturating_add(after as u64)
    }

    /// Moves on to the one after.
    #[inline]
    pub fn take(&mut self) {
        self.number += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_times_keep_the_rate_without_drift() {
        let mut arrivals = Arrivals::new(1_000, 3_000_000.0, 0.0);
        for _ in 0..3_000_000 {
            arrivals.take();
        }
        assert!(arrivals.next_due_ns().abs_diff(1_000_001_000) <= 1);
    }

    #[test]
    fn threads_are_due_in_turn() {
        let (first, second) = (Arrivals::new(0, 1000.0, 0.0), Arrivals::new(0, 1000.0, 0.5));
        assert_eq!(second.next_due_ns() - first.next_due_ns(), 500_000);
    }
}
