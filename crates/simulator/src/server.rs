//! FIFO servers, which record their busy time, and gauges, which integrate a count over time.

/// A FIFO server. The service time of a request is known when the request arrives, so no queue is
/// needed. The server only stores the time at which it becomes free.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    free_ns: u64,
    busy_ns: u64,
}

impl Server {
    /// Serves a request that takes `length_ns`. The service starts at `now_ns`, or when the server
    /// becomes free if that is later. Returns the start and the end of the service (ns).
    #[inline]
    pub fn serve(&mut self, now_ns: u64, length_ns: u64) -> (u64, u64) {
        let start_ns = self.free_ns.max(now_ns);
        self.free_ns = start_ns + length_ns;
        self.busy_ns += length_ns;
        (start_ns, self.free_ns)
    }

    /// Marks an interval as busy. Time that is already marked as busy counts only once. Unlike
    /// `serve`, this method does not move the interval to a later time.
    pub fn mark_busy(&mut self, from_ns: u64, until_ns: u64) {
        let start_ns = self.free_ns.max(from_ns);
        if until_ns > start_ns {
            self.serve(start_ns, until_ns - start_ns);
        }
    }

    /// Returns the time at which the server becomes free (ns).
    #[inline]
    pub fn free_ns(&self) -> u64 {
        self.free_ns
    }

    /// Returns the busy time up to `now_ns` (ns).
    pub fn busy_ns(&self, now_ns: u64) -> u64 {
        self.busy_ns - self.free_ns.saturating_sub(now_ns).min(self.busy_ns)
    }
}

/// Busy time of a controller, by activity (ns).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ControllerTimes {
    /// Time for which the controller's firmware works (ns).
    pub own: u64,
    /// Time for which the controller waits for the media (ns).
    pub media: u64,
    /// Time for which the controller waits for the bus or moves data over it (ns).
    pub bus: u64,
}

/// A count, together with its integral over time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gauge {
    count: u32,
    since_ns: u64,
    sum_ns: u64,
}

impl Gauge {
    /// Changes the count to `count` at time `now_ns`.
    #[inline]
    pub fn set(&mut self, now_ns: u64, count: u32) {
        (self.sum_ns, self.since_ns, self.count) = (self.sum_ns(now_ns), now_ns, count);
    }

    #[inline]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the integral of the count over time, up to `now_ns` (ns).
    pub fn sum_ns(&self, now_ns: u64) -> u64 {
        self.sum_ns + u64::from(self.count) * (now_ns - self.since_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_served_in_fifo_order() {
        let mut server = Server::default();
        assert_eq!(server.serve(10, 5), (10, 15));
        assert_eq!(server.serve(11, 5), (15, 20));
        assert_eq!(server.serve(30, 1), (30, 31));
        assert_eq!(server.busy_ns(31), 11);
        server.serve(31, 100);
        assert_eq!(server.busy_ns(41), 21, "busy time after now_ns is not counted");
    }

    #[test]
    fn overlapping_busy_intervals_count_once() {
        let mut server = Server::default();
        server.mark_busy(10, 20);
        server.mark_busy(15, 25);
        server.mark_busy(12, 24);
        server.mark_busy(30, 40);
        assert_eq!(server.busy_ns(40), 25);
    }

    #[test]
    fn a_gauge_integrates_its_count_over_time() {
        let mut gauge = Gauge::default();
        gauge.set(10, 1);
        gauge.set(20, 3);
        gauge.set(30, 0);
        assert_eq!((gauge.sum_ns(35), gauge.count()), (40, 0));
    }
}
