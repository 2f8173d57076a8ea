//! The clock of the benchmarks, which times whole processes and pauses between runs.
//!
//! This module does not use the crate `ioengine`, so that the benchmarks are independent of the
//! code under test.
#![expect(clippy::disallowed_methods, reason = "the benchmarks measure the duration of processes")]

use std::time::{Duration, Instant};

/// Runs `what` and returns its result and its duration (s).
pub fn timed<T>(what: impl FnOnce() -> T) -> (T, f64) {
    let begin = Instant::now();
    let done = what();
    (done, begin.elapsed().as_secs_f64())
}

/// Sleeps for a number of seconds.
pub fn pause(seconds: f64) {
    std::thread::sleep(Duration::from_secs_f64(seconds));
}

/// Duration of the spinning at the end of a wait (us), after the thread has slept. It is longer
/// than the delay with which a sleeping thread wakes up, even on a virtual machine.
const SPIN_US: u64 = 150;

/// Measures the time since the start of the stopwatch.
#[derive(Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts a stopwatch at zero.
    pub fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// Returns the time since the start.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// Waits until the time `due` has passed since the start. First sleeps and then spins, so that
    /// the wait ends on time and never early.
    pub fn wait_until(self, due: Duration) {
        let sleep = due.saturating_sub(self.elapsed() + Duration::from_micros(SPIN_US));
        if !sleep.is_zero() {
            std::thread::sleep(sleep);
        }
        while self.elapsed() < due {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_takes_at_least_what_it_says() {
        let (answer, seconds) = timed(|| {
            pause(0.01);
            7
        });
        assert_eq!(answer, 7);
        assert!(seconds >= 0.01, "{seconds}");
    }

    #[test]
    fn a_wait_never_ends_before_its_moment() {
        let watch = Stopwatch::start();
        for due in [0, 50, 3000].map(Duration::from_micros) {
            watch.wait_until(due);
            assert!(watch.elapsed() >= due);
        }
    }
}
