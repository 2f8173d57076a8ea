//! Collects the results of one fault class. Also defines two errors: [`Missing`] skips the fault
//! class, and [`Stopped`] ends the campaign.

use std::fmt;

/// The results of one fault class. Each message starts with the command that was tested.
#[derive(Debug, Default)]
pub struct Tally {
    /// Number of times that the fault was tested.
    pub tries: u32,
    /// Messages about lost or damaged data (files of the user, or finished trials), and about
    /// leftover files.
    pub lost: Vec<String>,
    /// Messages about faults that were not reported, or were reported wrongly.
    pub undetected: Vec<String>,
}

/// The result of a check. The error says why the check failed.
pub type Check = Result<(), String>;

impl Tally {
    /// Counts a repetition. If `check` failed, adds its message to `undetected`.
    pub fn detected(&mut self, what: &str, check: Check) {
        self.tries += 1;
        self.also_detected(what, check);
    }

    /// If `check` failed, adds its message to `undetected`. Does not count a repetition.
    pub fn also_detected(&mut self, what: &str, check: Check) {
        if let Err(wrong) = check {
            self.undetected.push(format!("{what}: {wrong}"));
        }
    }

    /// If `check` failed, adds its message to `lost`. Does not count a repetition.
    pub fn kept(&mut self, what: &str, check: Check) {
        if let Err(wrong) = check {
            self.lost.push(format!("{what}: {wrong}"));
        }
    }

    /// Returns whether all checks passed.
    pub fn is_clean(&self) -> bool {
        self.lost.is_empty() && self.undetected.is_empty()
    }
}

/// Returns an error with the message `otherwise` if the condition is not met.
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

/// The error after a signal (Ctrl-C or SIGTERM) has stopped the campaign.
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
