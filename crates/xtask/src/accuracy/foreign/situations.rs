//! The situations as a table: what goes wrong, how it is produced, what halfpower must report, and
//! the function that runs it once.
//!
//! A situation is caught if the verdict is not valid for the stated reason, or if halfpower refuses
//! to run with that message. Other reasons do not count.

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
    /// What must be reported, for the table.
    pub must: &'static str,
    /// Texts; the report must contain at least one of them.
    pub says: &'static [&'static str],
    /// Runs the situation once and checks the report.
    pub run: fn(&Context, &[&str]) -> Result<Check>,
}

/// All situations: one per check of the methodology, then situations missed in an earlier campaign.
pub const ALL: [&[Situation]; 6] = [
    requests::SITUATIONS,
    device::SITUATIONS,
    memory::SITUATIONS,
    host::SITUATIONS,
    earlier::SITUATIONS,
    sweeps::SITUATIONS,
];

/// Checks of the methodology that are not tested, with the reason.
pub const NOT_MADE: &[(&str, &str)] = &[
    (
        "too few in flight on average",
        "every engine reaches its depth here, is refused, or completes within the call",
    ),
    ("the steady state was not reached", "takes ten minutes each time"),
    ("the hypervisor served others", "only the host of this machine can take its CPU time"),
    ("the measuring clock was off", "changes the clock of the machine; see `cargo xtask faults`"),
    ("the wall clock was set", "changes the clock of the machine; see `cargo xtask faults`"),
    ("the machine was suspended", "this machine cannot be suspended and woken by itself"),
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
