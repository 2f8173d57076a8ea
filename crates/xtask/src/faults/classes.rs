//! The classes of faults, as data: what each is, how it is made, what must happen, and the
//! function that makes it and counts.

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

/// One class.
pub struct Class {
    /// By which `--only` finds it.
    pub word: &'static str,
    /// What goes wrong.
    pub fault: &'static str,
    /// How it is made to.
    pub made: &'static str,
    /// What halfpower must do.
    pub must: &'static str,
    /// Makes it, several times.
    pub run: fn(&Context) -> Result<Tally>,
}

/// All of them, in the order of the table.
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
    fn every_class_has_a_word_of_its_own_and_there_are_many() {
        let mut words: Vec<&str> =
            ALL.iter().flat_map(|part| part.iter()).map(|c| c.word).collect();
        let count = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), count);
        assert!(count >= 30, "{count} classes");
    }
}
