//! Results of one class of faults, and the two errors that end a class early: a missing tool or
//! privilege, or a signal.

use std::fmt;

/// Counts of one fault class. Entries of `lost` and `undetected` are messages with the command.
#[derive(Debug, Default)]
pub struct Tally {
    /// Number of repetitions.
    pub tries: u32,
    /// Missing or damaged data of the user or of finished trials, and leftover files.
    pub lost: Vec<String>,
    /// Faults that were not reported, or reported wrongly.
    pub undetected: Vec<String>,
}

/// The result of a check: nothing, or what is wrong.
pub type Check = Result<(), String>;

impl Tally {
    /// Counts a repetition; `check` is the result of the fault's handling.
    pub fn detected(&mut self, what: &str, check: Check) {
        self.tries += 1;
        self.also_detected(what, check);
    }

    /// Adds a check of the report of a repetition already counted.
    pub fn also_detected(&mut self, what: &str, check: Check) {
        if let Err(wrong) = check {
            self.undetected.push(format!("{what}: {wrong}"));
        }
    }

    /// Adds a check for lost data or leftovers of a repetition already counted.
    pub fn kept(&mut self, what: &str, check: Check) {
        if let Err(wrong) = check {
            self.lost.push(format!("{what}: {wrong}"));
        }
    }

    /// Whether nothing went wrong.
    pub fn is_clean(&self) -> bool {
        self.lost.is_empty() && self.undetected.is_empty()
    }
}

/// A check that fails with a message unless `is_met`.
pub fn ensure(is_met: bool, otherwise: impl FnOnce() -> String) -> Check {
    if is_met { Ok(()) } else { Err(otherwise()) }
}

/// This machine lacks something that a fault class needs. The fault class is skipped with this
/// reason.
#[derive(Debug)]
pub struct Missing(pub String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// A signal stopped the campaign.
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
