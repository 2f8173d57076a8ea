//! What the tries of one class of faults came to, and the two ways in which a class may end early.

use std::fmt;

/// The count of one class. An entry of `lost` or `undetected` is one sentence with the command.
#[derive(Debug, Default)]
pub struct Tally {
    /// How often the fault was made.
    pub tries: u32,
    /// What was reported finished, or was the user's, and is missing, damaged or left behind.
    pub lost: Vec<String>,
    /// Faults after which the run ended as if nothing had happened, or that were told wrongly.
    pub undetected: Vec<String>,
}

/// What a check says: nothing, or what is wrong.
pub type Check = Result<(), String>;

impl Tally {
    /// Counts a try whose fault must have been seen or borne as `check` says.
    pub fn detected(&mut self, what: &str, check: Check) {
        self.tries += 1;
        self.told(what, check);
    }

    /// Something more that a try already counted must have told.
    pub fn told(&mut self, what: &str, check: Check) {
        if let Err(wrong) = check {
            self.undetected.push(format!("{what}: {wrong}"));
        }
    }

    /// Something that must not have been lost or left in a try already counted.
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

/// An error of the check where something is not so.
pub fn ensure(so: bool, otherwise: impl FnOnce() -> String) -> Check {
    if so { Ok(()) } else { Err(otherwise()) }
}

/// This machine lacks what a class needs: it is skipped with this reason.
#[derive(Debug)]
pub struct Missing(pub String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// A signal asked for the end.
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
    fn a_try_is_counted_once_whatever_is_checked_of_it() {
        let mut tally = Tally::default();
        tally.detected("one", Ok(()));
        tally.told("one", ensure(false, || "told wrongly".to_string()));
        tally.kept("one", Ok(()));
        assert_eq!((tally.tries, tally.undetected.len(), tally.lost.len()), (1, 1, 0));
        assert!(!tally.is_clean());
        assert_eq!(tally.undetected, ["one: told wrongly"]);
    }
}
