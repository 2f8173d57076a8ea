//! Limits the total throughput of all threads of a session. Each thread waits until the limit
//! allows its next bytes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ioengine::{Clock, Monotonic};

/// Interval at which a waiting thread checks whether to stop (ns).
const NAP_NS: u64 = 50_000_000;

/// A limit on the throughput (bytes/s) that several threads share.
#[derive(Debug)]
pub struct Limiter {
    bytes_per_s: Option<f64>,
    taken: AtomicU64,
    since_ns: u64,
    clock: Monotonic,
}

impl Limiter {
    /// Creates a limit that starts now. `None` means unlimited.
    pub fn new(bytes_per_s: Option<f64>) -> Limiter {
        let clock = Monotonic::uncalibrated();
        let (taken, since_ns) = (AtomicU64::new(0), clock.now_ns());
        Limiter { bytes_per_s, taken, since_ns, clock }
    }

    /// Waits until the limit allows `bytes` more bytes, or until `stop` returns true.
    pub(crate) fn take(&self, bytes: u64, stop: impl Fn() -> bool) {
        let Some(rate) = self.bytes_per_s else { return };
        let before = self.taken.fetch_add(bytes, Ordering::Relaxed);
        let due_ns = self.since_ns + (before as f64 / rate * 1e9) as u64;
        while !stop() {
            let left_ns = due_ns.saturating_sub(self.clock.now_ns());
            if left_ns == 0 {
                return;
            }
            self.clock.sleep(Duration::from_nanos(left_ns.min(NAP_NS)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_holds_over_all_threads() {
        let clock = Monotonic::uncalibrated();
        let limiter = Limiter::new(Some(1e6));
        let start_ns = clock.now_ns();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..5).for_each(|_| limiter.take(20_000, || false)));
            }
        });
        // At 1 MB/s, each of the ten parts takes 20 ms, so the last part starts after 180 ms.
        assert!(clock.now_ns() - start_ns >= 180_000_000);
        limiter.take(1 << 40, || true);
        Limiter::new(None).take(u64::MAX, || false);
    }
}
