//! The situations, as data: what goes wrong, how it is made, what halfpower must say of it, and the
//! function that makes it once.
//!
//! A situation is caught where a verdict is not valid for the reason that the situation names, or
//! where halfpower refuses with these words. Any other doubt is no catch: it would be luck.

mod device;
mod earlier;
mod gear;
mod host;
mod memory;
mod requests;
mod sweeps;

use crate::faults::place::Context;
use crate::faults::tally::Check;
use anyhow::Result;

/// One situation.
pub struct Situation {
    /// By which `--case` finds it.
    pub word: &'static str,
    /// What goes wrong.
    pub wrong: &'static str,
    /// How it is made to.
    pub made: &'static str,
    /// What must be said, for the reader.
    pub must: &'static str,
    /// One of these words must be in what is said.
    pub says: &'static [&'static str],
    /// Makes it once, and says what is missing in what halfpower said.
    pub run: fn(&Context, &[&str]) -> Result<Check>,
}

/// All of them: one for each check of the methodology, then what an earlier campaign found missed.
pub const ALL: [&[Situation]; 6] = [
    requests::SITUATIONS,
    device::SITUATIONS,
    memory::SITUATIONS,
    host::SITUATIONS,
    earlier::SITUATIONS,
    sweeps::SITUATIONS,
];

/// Checks of the methodology that are not tried, and why.
pub const NOT_MADE: &[(&str, &str)] = &[
    (
        "too few in flight on average",
        "every engine holds its depth here, is refused, or comes back within the call",
    ),
    ("the steady state was not reached", "takes ten minutes for each try"),
    ("the hypervisor served others", "only the host of this machine can take its CPU time"),
    (
        "the measuring clock was off",
        "changes the clock of the machine; `cargo xtask faults` tries it",
    ),
    ("the wall clock was set", "changes the clock of the machine; `cargo xtask faults` tries it"),
    ("the machine was suspended", "this machine cannot be suspended and woken by itself"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_situation_has_a_word_of_its_own_and_words_to_look_for() {
        let all: Vec<&Situation> = ALL.iter().flat_map(|part| part.iter()).collect();
        let mut words: Vec<&str> = all.iter().map(|situation| situation.word).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), all.len());
        assert!(all.len() >= 35, "{} situations", all.len());
        assert!(all.iter().all(|situation| !situation.says.is_empty()));
    }
}
