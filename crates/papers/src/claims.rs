//! The claims of the two papers, and the function [`judge`], which compares a value with a claim. A
//! claim is a number in the text of a paper, with its unit and source.
//!
//! The claims are in `data/claims.csv`. [`judge`] has two standards. A value from the paper's own
//! machine must match the published value ([`Standard::Reproduction`]). For a value from another
//! machine, the question is whether the effect exists there too ([`Standard::Effect`]).

use schemars::JsonSchema;
use serde::Serialize;
use simulator::Description;

use crate::data_file::{self, Row};

const CLAIMS: &str = include_str!("../data/claims.csv");
/// The largest accepted relative difference from the published value, for
/// [`Standard::Reproduction`].
pub const TOLERANCE: f64 = 0.10;

/// One of the two papers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paper {
    /// Riedel, van Ingen, Gray 1997.
    Riedel97,
    /// Chung, Gray, Worthington, Horst 2000.
    Chung2000,
}

impl Paper {
    /// Both papers. The older paper is first.
    pub const ALL: [Paper; 2] = [Paper::Riedel97, Paper::Chung2000];

    /// Returns the paper that contains a claim. The names of the first paper's claims begin with R,
    /// and those of the second paper's claims begin with C.
    pub fn of_claim(id: &str) -> Paper {
        if id.starts_with('R') { Paper::Riedel97 } else { Paper::Chung2000 }
    }

    /// Checks whether the built-in system with this name describes a machine of this paper. The
    /// E-5000 belongs to both papers, because the second paper repeated measurements of the first
    /// paper on this machine.
    pub fn describes(self, system: &str) -> bool {
        let own = match self {
            Paper::Riedel97 => "nt4-",
            Paper::Chung2000 => "w2k-",
        };
        let is_own = system.starts_with(own) || system.starts_with("e5000-");
        is_own && Description::names().any(|name| name == system)
    }

    /// Returns the short name of the paper, such as `riedel97`. The command line and `claims.csv`
    /// use this name.
    pub fn name(self) -> &'static str {
        match self {
            Paper::Riedel97 => "riedel97",
            Paper::Chung2000 => "chung2000",
        }
    }

    /// Returns the authors, the title and the year of the paper.
    pub fn title(self) -> &'static str {
        match self {
            Paper::Riedel97 => {
                "Riedel, van Ingen, Gray: A Performance Study of Sequential I/O on Windows NT 4.0 \
                 (1997)"
            }
            Paper::Chung2000 => {
                "Chung, Gray, Worthington, Horst: Windows 2000 Disk IO Performance (2000)"
            }
        }
    }
}

/// How the simulator uses a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The claim is an input of the simulator, so it is not scored. A value in a system file is
    /// taken from the claim, or the claim describes the set-up of a measurement.
    Input,
    /// The simulator computes a value for the claim, and the value is judged.
    Check,
    /// A simulation could compute a value, but no system file describes the measured machine.
    NotSimulated,
    /// The claim contradicts another number of the same paper, and that number is an input of the
    /// simulator.
    Contradicted,
    /// A simulation of storage cannot compute a value for the claim.
    Out,
}

impl Role {
    fn named(name: &str) -> Option<Role> {
        match name {
            "input" => Some(Role::Input),
            "check" => Some(Role::Check),
            "not simulated" => Some(Role::NotSimulated),
            "contradicted" => Some(Role::Contradicted),
            "out" => Some(Role::Out),
            _ => None,
        }
    }
}

/// The kind of effect that a claim states. [`Standard::Effect`] has a rule for each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Something is faster, larger or more expensive, by a factor ("times") or by a percentage.
    Gain,
    /// A loss or a share, such as a loss of 50% of the throughput or a CPU utilisation of 40%.
    Share,
    /// A threshold: a request size, a queue depth or a number of disks at which something happens.
    Place,
    /// A rate, a time or a cost of the paper's machine. Other machines are not judged by it.
    Absolute,
}

/// The standard by which a value is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standard {
    /// The standard for a value from the paper's own machine. The value must be within 10% of the
    /// published number or range. If the paper states a lower or an upper limit ("more than", "at
    /// most"), the value may be any distance beyond the limit. A number after "up to" is not a
    /// limit, but the largest value that the paper measured. Request sizes, depths and numbers of
    /// disks were tested in steps, so the value must be equal to the published number. If the paper
    /// says "above", the value of the next step also meets the claim.
    Reproduction,
    /// The standard for a value from another machine, where the effect may be weaker. A gain must
    /// be at least the square root of the published factor, for example 3.2 if the paper states 10.
    /// A loss or a share must be at least half of the published value. If the published value is an
    /// upper limit, the value must not exceed it. Sizes, depths and numbers of disks are judged as
    /// for [`Standard::Reproduction`]. A rate, a time or a cost cannot be judged.
    Effect,
}

/// The verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The value meets the claim.
    Holds,
    /// The value does not meet the claim.
    DoesNotHold,
    /// The claim cannot be tested on this machine.
    CannotBeTried,
}

impl Verdict {
    /// Returns the verdict in words, such as `holds here`.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Holds => "holds here",
            Verdict::DoesNotHold => "does not hold here",
            Verdict::CannotBeTried => "not testable here",
        }
    }
}

/// A number in the text of a paper.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The name of the claim: the letter R or C, followed by a number.
    pub id: String,
    /// The section of the paper, or the figure whose caption contains the number.
    pub section: String,
    /// What the number describes, in words.
    pub text: String,
    /// How the simulator measures the quantity, and why in this way. Empty if `text` is precise
    /// enough.
    pub quantity: String,
    /// The published value as text, such as `7.2` or `N+1`.
    pub value: String,
    /// The published number, or the lower end of the published range.
    pub low: f64,
    /// The upper end of the published range. Equal to `low` if a single number was published.
    pub high: f64,
    /// The unit of the value.
    pub unit: String,
    /// The words that qualify the number, such as "about" or "at most". Empty if there are none.
    pub qualifier: String,
    /// The kind of the claim, such as `measured`, `derived` or `rule`.
    pub kind: String,
    /// The kind of effect that the claim states.
    pub effect: Effect,
    /// How the simulator uses the claim.
    pub role: Role,
    /// A remark. For example, it says why the claim is not scored, which other claim is the same,
    /// or why the simulated value does not meet the claim.
    pub why: String,
    /// The name of the claim's group. Claims that contradict each other form a group, which counts
    /// as one claim. Empty if the claim is in no group.
    pub group: String,
}

/// Returns all claims of a paper, in the order of `claims.csv`.
pub fn of(paper: Paper) -> Vec<Claim> {
    let all = data_file::rows(CLAIMS).into_iter();
    all.filter(|row| row.text("paper") == paper.name()).map(|row| claim(&row)).collect()
}

/// Returns the claim with this name, such as R080. None if there is no such claim.
pub fn named(id: &str) -> Option<Claim> {
    data_file::rows(CLAIMS).iter().find(|row| row.text("id") == id).map(claim)
}

fn claim(row: &Row) -> Claim {
    // One claim has the value "N+1", where N is the number of disks. It is checked with N = 3.
    let low = match row.text("value") {
        "N+1" => 4.0,
        value => value.parse().unwrap_or(f64::NAN),
    };
    let text = |column: &str| row.text(column).to_owned();
    Claim {
        id: text("id"),
        section: text("source_section"),
        text: text("claim"),
        quantity: text("quantity"),
        value: text("value"),
        low,
        high: row.number("value_hi").unwrap_or(low),
        unit: text("unit"),
        qualifier: text("qualifier"),
        kind: text("kind"),
        effect: match row.text("effect") {
            "gain" => Effect::Gain,
            "share" => Effect::Share,
            "place" => Effect::Place,
            _ => Effect::Absolute,
        },
        role: Role::named(row.text("role")).unwrap_or(Role::Out),
        why: text("why"),
        group: text("group"),
    }
}

/// Judges whether a value meets a claim. The value must be in the claim's unit.
pub fn judge(claim: &Claim, value: f64, standard: Standard) -> Verdict {
    let holds = match (standard, claim.effect) {
        (Standard::Reproduction, _) | (Standard::Effect, Effect::Place) => claim.meets(value),
        (Standard::Effect, Effect::Absolute) => return Verdict::CannotBeTried,
        (Standard::Effect, Effect::Gain) => claim.times(value) >= claim.times(claim.low).sqrt(),
        (Standard::Effect, Effect::Share) if claim.is_upper_limit() => value <= claim.high,
        (Standard::Effect, Effect::Share) => value >= claim.low / 2.0,
    };
    if holds { Verdict::Holds } else { Verdict::DoesNotHold }
}

impl Claim {
    /// Returns the published value or range with its unit and qualifier, such as `10 MBps (about)`.
    pub fn published(&self) -> String {
        let range = if self.high > self.low { format!(" to {}", self.high) } else { String::new() };
        let value = format!("{}{range} {}", self.value, self.unit);
        match self.qualifier.as_str() {
            "" => value,
            qualifier => format!("{value} ({qualifier})"),
        }
    }

    /// Checks whether the number was measured, or derived from measurements. Other claims are, for
    /// example, rules or prices.
    pub fn is_measured(&self) -> bool {
        ["measured", "derived"].contains(&self.kind.as_str())
    }

    /// Returns the relative error of a value: its distance from the nearer end of the published
    /// range, divided by this end. The error is 0 inside the range.
    pub fn distance(&self, value: f64) -> f64 {
        let nearest = value.clamp(self.low, self.high);
        (value - nearest).abs() / nearest.abs()
    }

    /// Returns a gain as a factor, such as 1.3 for a gain of 30 percent.
    fn times(&self, value: f64) -> f64 {
        if self.unit == "percent" { 1.0 + value / 100.0 } else { value }
    }

    fn says(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.qualifier.contains(word))
    }

    fn is_upper_limit(&self) -> bool {
        self.says(&["less", "at most", "below", "within", "as much as"])
    }

    /// Checks whether a value meets the claim by [`Standard::Reproduction`].
    fn meets(&self, value: f64) -> bool {
        let (low, high) = (self.low * (1.0 - TOLERANCE), self.high * (1.0 + TOLERANCE));
        let on_a_grid = ["KB", "requests", "disks", "drives"].contains(&self.unit.as_str());
        if on_a_grid && self.says(&["above"]) {
            return (low..=high * 2.0).contains(&value);
        }
        let nearly = self.says(&["slightly", "nearly", "almost", "just"]);
        if (on_a_grid && self.kind != "rule") || nearly {
            return (low..=high).contains(&value);
        }
        if self.says(&["more", "over", "at least", "above", "exceed"]) {
            return value >= low;
        }
        if self.is_upper_limit() {
            return value <= high;
        }
        (low..=high).contains(&value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(value: f64, unit: &str, qualifier: &str) -> Claim {
        let mut claim = of(Paper::Riedel97).remove(0);
        (claim.low, claim.high) = (value, value);
        (claim.unit, claim.qualifier) = (unit.to_owned(), qualifier.to_owned());
        claim
    }

    fn meets(claim: &Claim, value: f64) -> bool {
        judge(claim, value, Standard::Reproduction) == Verdict::Holds
    }

    #[test]
    fn a_value_passes_within_a_tenth() {
        assert!(meets(&claim(10.0, "MBps", "about"), 10.9));
        assert!(!meets(&claim(10.0, "MBps", ""), 11.1));
        assert!(meets(&claim(10.0, "MBps", "slightly less than"), 9.5));
        assert!(!meets(&claim(10.0, "MBps", "slightly less than"), 5.0));
    }

    #[test]
    fn one_sided_words_are_honoured() {
        assert!(meets(&claim(10.0, "MBps", "more than"), 30.0));
        assert!(!meets(&claim(10.0, "MBps", "more than"), 8.0));
        assert!(meets(&claim(20.0, "percent", "at most"), 5.0));
        assert!(!meets(&claim(20.0, "percent", "at most"), 25.0));
    }

    #[test]
    fn up_to_names_the_largest_value_seen() {
        assert!(meets(&claim(20.0, "percent", "up to"), 19.0));
        assert!(!meets(&claim(20.0, "percent", "up to"), 5.0));
        assert!(!meets(&claim(20.0, "percent", "up to"), 25.0));
    }

    #[test]
    fn sizes_are_the_published_ones_or_the_next_after_above() {
        assert!(!meets(&claim(8.0, "KB", "at least"), 16.0));
        assert!(meets(&claim(8.0, "KB", "above"), 16.0));
        assert!(!meets(&claim(8.0, "KB", "above"), 4.0));
    }

    #[test]
    fn on_another_machine_the_effect_must_exist() {
        // The published values are a gain by a factor of 10 (R065), a gain of 30% (C133), a loss of
        // 50% (C073), a loss of at most 20% (R153), and a size of more than 8 KB (R046).
        for (id, value, holds) in [
            ("R065", 3.2, true),
            ("R065", 3.1, false),
            ("C133", 15.0, true),
            ("C133", 10.0, false),
            ("C073", 25.0, true),
            ("C073", 20.0, false),
            ("R153", 20.0, true),
            ("R153", 30.0, false),
            ("R046", 16.0, true),
            ("R046", 64.0, false),
        ] {
            let verdict = judge(&named(id).unwrap(), value, Standard::Effect);
            assert_eq!(verdict == Verdict::Holds, holds, "{id} {value}");
        }
        let rate = judge(&named("R048").unwrap(), 8.5, Standard::Effect);
        assert_eq!(rate, Verdict::CannotBeTried, "8.5 MB/s does not apply to another machine");
    }

    #[test]
    fn the_two_standards_differ_where_an_effect_is_weaker_than_published() {
        let gain = named("R080").unwrap();
        assert_eq!(judge(&gain, 2.5, Standard::Effect), Verdict::Holds);
        assert_eq!(judge(&gain, 2.5, Standard::Reproduction), Verdict::DoesNotHold);
    }

    #[test]
    fn every_claim_has_a_role_and_a_reason_if_it_is_not_scored() {
        let rows = data_file::rows(CLAIMS);
        assert_eq!(rows.len(), 467);
        for row in rows {
            let (id, role) = (row.text("id"), Role::named(row.text("role")));
            assert!(role.is_some(), "{id}");
            let is_scored = matches!(role, Some(Role::Input | Role::Check));
            assert!(is_scored || !row.text("why").is_empty(), "{id}");
        }
    }
}
