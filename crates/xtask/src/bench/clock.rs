//! The clock of the benchmarks: durations of whole processes, and pauses between runs.
//!
//! It does not use the crate `ioengine`, so that the benchmarks are independent of the code under
//! test. It is the only place outside that crate that reads the system clock.
#![expect(clippy::disallowed_methods, reason = "whole processes are timed from outside")]

use std::time::{Duration, Instant};

/// Runs `what` and returns its result and duration (s).
pub fn timed<T>(what: impl FnOnce() -> T) -> (T, f64) {
    let begin = Instant::now();
    let done = what();
    (done, begin.elapsed().as_secs_f64())
}

/// Waits.
pub fn pause(seconds: f64) {
    std::thread::sleep(Duration::from_secs_f64(seconds));
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
}
