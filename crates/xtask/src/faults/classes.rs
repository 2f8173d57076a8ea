//! The classes of faults as a table: the fault, how it is produced, what must happen, and the
//! function that tests it and counts the results.

mod devices;
mod errors;
mod kills;
mod limits;
mod load;
mod storage;
mod transfers;
mod verification;

use super::place::Context;
use super::tally::Tally;
use anyhow::Result;

/// A fault class: one kind of fault, and how it is tested.
pub struct Class {
    /// Name of the fault class for `--only`.
    pub word: &'static str,
    /// The fault.
    pub fault: &'static str,
    /// How the fault is produced.
    pub made: &'static str,
    /// What halfpower must do when the fault occurs.
    pub must: &'static str,
    /// Tests the fault class several times.
    pub run: fn(&Context) -> Result<Tally>,
}

/// All fault classes, in the order of the table.
pub const ALL: [&[Class]; 8] = [
    errors::CLASSES,
    transfers::CLASSES,
    verification::CLASSES,
    storage::CLASSES,
    devices::CLASSES,
    kills::CLASSES,
    limits::CLASSES,
    load::CLASSES,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_unique_name_and_there_are_many() {
        let mut words: Vec<&str> =
            ALL.iter().flat_map(|part| part.iter()).map(|c| c.word).collect();
        let count = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), count);
        assert!(count >= 30, "{count} classes");
    }
}
