//! The results of one fault class, and the two errors that end the test of a class early: a missing
//! tool or privilege, and a signal.

use std::fmt;

/// The results of one fault class. The entries of `lost` and `undetected` are messages that start
/// with the command.
#[derive(Debug, Default)]
pub struct Tally {
    /// Number of repetitions.
    pub tries: u32,
    /// Messages about missing or damaged data of the user or of finished trials, and about leftover
    /// files.
    pub lost: Vec<String>,
    /// Messages about faults that were not reported, or were reported wrongly.
    pub undetected: Vec<String>,
}

/// The result of a check. The error is a message that says why the check failed.
pub type Check = Result<(), String>;

impl Tally {
    /// Counts a repetition. `check` must fail if the fault was not reported correctly.
    pub fn detected(&mut self, what: &str, check: Check) {
        self.tries += 1;
        self.also_detected(what, check);
    }

    /// Adds a check that the fault was reported, without counting another repetition.
    pub fn also_detected(&mut self, what: &str, check: Check) {
        if let Err(wrong) = check {
            self.undetected.push(format!("{what}: {wrong}"));
        }
    }

    /// Adds a check for lost data and leftover files, without counting another repetition.
    pub fn kept(&mut self, what: &str, check: Check) {
        if let Err(wrong) = check {
            self.lost.push(format!("{what}: {wrong}"));
        }
    }

    /// Returns whether no check failed.
    pub fn is_clean(&self) -> bool {
        self.lost.is_empty() && self.undetected.is_empty()
    }
}

/// Returns a check that fails with the message `otherwise` unless the condition is met.
pub fn ensure(is_met: bool, otherwise: impl FnOnce() -> String) -> Check {
    if is_met { Ok(()) } else { Err(otherwise()) }
}

/// The error for a tool or a privilege that is missing on this machine. The test is skipped, and
/// the text is printed as the reason.
#[derive(Debug)]
pub struct Missing(pub String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// The error that a signal stopped the campaign.
#[derive(Debug)]
pub struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Stopped {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repetition_with_several_checks_is_counted_once() {
        let mut tally = Tally::default();
        tally.detected("one", Ok(()));
        tally.also_detected("one", ensure(false, || "reported wrongly".to_string()));
        tally.kept("one", Ok(()));
        assert_eq!((tally.tries, tally.undetected.len(), tally.lost.len()), (1, 1, 0));
        assert!(!tally.is_clean());
        assert_eq!(tally.undetected, ["one: reported wrongly"]);
    }
}
