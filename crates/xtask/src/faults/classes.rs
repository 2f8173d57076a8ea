//! Defines the fault classes. Each class describes a fault, how the fault is produced, and how
//! halfpower must react. A function for each class runs the tests and counts the results.

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

/// A fault class: a kind of fault, and its tests.
pub struct Class {
    /// Name of the fault class, for `--only`.
    pub word: &'static str,
    /// Description of the fault, as a noun phrase.
    pub fault: &'static str,
    /// How the fault is produced.
    pub made: &'static str,
    /// How halfpower must react when the fault occurs.
    pub must: &'static str,
    /// Function that produces and tests the fault several times.
    pub run: fn(&Context) -> Result<Tally>,
}

/// All fault classes, in the order of the table in docs/reliability.md.
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
