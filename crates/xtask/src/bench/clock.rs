//! The judge's own clock: how long a whole process took, and pauses between runs.
//!
//! Written here and not taken from the crate `ioengine`, so that the judge shares no code with
//! what it judges; the only place outside that crate that reads the clock of the system.
#![expect(clippy::disallowed_methods, reason = "whole processes are timed from outside")]

use std::time::{Duration, Instant};

/// Does something, and says how long it took (s).
pub fn timed<T>(what: impl FnOnce() -> T) -> (T, f64) {
    let begin = Instant::now();
    let done = what();
    (done, begin.elapsed().as_secs_f64())
}

/// Lets the machine alone for a while.
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
