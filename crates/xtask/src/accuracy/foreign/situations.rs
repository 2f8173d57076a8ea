//! The table of all situations in which something goes wrong. Each row states how the situation is
//! produced and what halfpower must report, and has a function that runs the situation once.
//!
//! A situation is caught if halfpower reports the expected reason, either in a verdict that is not
//! valid or in the error with which it refuses to run. Other reasons do not count.

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

/// A situation that must raise an alarm.
pub struct Situation {
    /// Name of the situation for `--case`.
    pub word: &'static str,
    /// What goes wrong.
    pub wrong: &'static str,
    /// How the situation is produced.
    pub made: &'static str,
    /// What halfpower must report, as shown in the table.
    pub must: &'static str,
    /// Texts of which the report must contain at least one.
    pub says: &'static [&'static str],
    /// Function that runs the situation once and checks the report.
    pub run: fn(&Context, &[&str]) -> Result<Check>,
}

/// All situations. The first four lists have a situation for each check in docs/methodology.md,
/// `earlier` has situations that an earlier version of halfpower did not report, and `sweeps` has
/// situations of commands that measure many points.
pub const ALL: [&[Situation]; 6] = [
    requests::SITUATIONS,
    device::SITUATIONS,
    memory::SITUATIONS,
    host::SITUATIONS,
    earlier::SITUATIONS,
    sweeps::SITUATIONS,
];

/// The checks of docs/methodology.md that the campaign does not test, each with the reason.
pub const NOT_MADE: &[(&str, &str)] = &[
    (
        "too few requests in flight on average",
        "every engine reaches the requested depth, rejects it with an error, or completes \
         requests at submission",
    ),
    ("the steady state was not reached", "each test would take ten minutes"),
    (
        "the hypervisor ran other guests",
        "only the hypervisor can take CPU time away from this machine",
    ),
    (
        "the measuring clock deviated from the system clock",
        "the test would change the clock of the machine; see `cargo xtask faults`",
    ),
    (
        "the wall clock was set",
        "the test would change the clock of the machine; see `cargo xtask faults`",
    ),
    ("the machine was suspended", "this machine cannot suspend itself and wake up again"),
    ("an NVMe drive reports a problem", "this machine has no drive with a health log"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_situation_has_a_unique_name_and_texts_to_look_for() {
        let all: Vec<&Situation> = ALL.iter().flat_map(|part| part.iter()).collect();
        let mut words: Vec<&str> = all.iter().map(|situation| situation.word).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), all.len());
        assert!(all.len() >= 35, "{} situations", all.len());
        assert!(all.iter().all(|situation| !situation.says.is_empty()));
    }
}
