//! The numbers in a paper's text, computed by the simulator: when they count as met, and the score.
//!
//! A value passes within 10% of the published number or range. One-sided words ("more than", "at
//! most") are honoured; "up to" names the largest value seen. Sizes, depths and numbers of disks
//! come from grids, so they must be the published ones, or up to the next one after "above".

use std::collections::{BTreeMap, BTreeSet};

use lab::simulated;

use crate::reproduce::probe::{Lab, Probe};
use crate::reproduce::published::{self, Claim, Paper, Role};

/// Relative tolerance of a value.
const TOLERANCE: f64 = 0.10;

/// The value that the simulator gives, or why it gives none.
pub type Answer = Result<f64, String>;
/// The name of a claim, and the function that computes its value.
pub type Check = (&'static str, fn(&Lab) -> Answer);
/// Names of claims that fail, and the reason.
pub type Reason = (&'static [&'static str], &'static str);

/// A claim that was checked.
#[derive(Clone, Debug)]
pub struct Scored {
    /// The claim.
    pub claim: Claim,
    /// The simulated value.
    pub answer: Answer,
    /// Whether it matches the published one.
    pub pass: bool,
    /// Why it does not pass.
    pub reason: Option<String>,
}

/// The results of all claims of a paper.
#[derive(Clone, Debug)]
pub struct Claims {
    /// Number of claims that are inputs of the simulator.
    pub inputs: usize,
    /// Claims that are out of scope.
    pub out: Vec<Claim>,
    /// Claims that were checked.
    pub scored: Vec<Scored>,
}

impl Claims {
    /// The number of claims that passed.
    pub fn passed(&self) -> usize {
        self.scored.iter().filter(|scored| scored.pass).count()
    }

    /// Of the claims that were measured or derived from measurements: how many passed, and how many
    /// there are.
    pub fn measured(&self) -> (usize, usize) {
        let is_one =
            |scored: &&Scored| ["measured", "derived"].contains(&scored.claim.kind.as_str());
        let measured = self.scored.iter().filter(is_one);
        (measured.clone().filter(|scored| scored.pass).count(), measured.count())
    }
}

/// Checks all claims of a paper.
pub fn score(lab: &Lab, paper: Paper, checks: &[&[Check]], reasons: &[Reason]) -> Claims {
    let all = published::claims(paper);
    let known: BTreeMap<&str, fn(&Lab) -> Answer> =
        checks.iter().copied().flatten().copied().collect();
    let of = |role: Role| all.iter().filter(move |claim| claim.role == role).cloned();
    let asked: Vec<Claim> = of(Role::Check).collect();
    let answers = simulated::on_all_cores(&asked, |claim| match known.get(claim.id.as_str()) {
        Some(check) => check(lab),
        None => Err("no check computes it".to_owned()),
    });
    let met =
        |claim: &Claim, answer: &Answer| answer.as_ref().is_ok_and(|value| meets(claim, *value));
    let pairs: Vec<(Claim, Answer)> = asked.into_iter().zip(answers).collect();
    // Claims of one group contradict each other, so one that passes is enough for all.
    let passing: BTreeSet<String> = pairs
        .iter()
        .filter(|(claim, answer)| !claim.group.is_empty() && met(claim, answer))
        .map(|(claim, _)| claim.group.clone())
        .collect();
    let scored = |(claim, answer): (Claim, Answer)| {
        let pass = met(&claim, &answer) || passing.contains(&claim.group);
        let reason = (!pass).then(|| reason_of(&claim, &answer, reasons));
        Scored { claim, answer, pass, reason }
    };
    Claims {
        inputs: of(Role::Input).count(),
        out: of(Role::Out).collect(),
        scored: pairs.into_iter().map(scored).collect(),
    }
}

fn reason_of(claim: &Claim, answer: &Answer, reasons: &[Reason]) -> String {
    let known = reasons.iter().find(|(ids, _)| ids.contains(&claim.id.as_str()));
    match (known, answer) {
        (Some((_, reason)), _) => (*reason).to_owned(),
        (None, Err(why)) => why.clone(),
        (None, Ok(_)) => "unexplained".to_owned(),
    }
}

/// Whether a value satisfies a claim.
fn meets(claim: &Claim, value: f64) -> bool {
    let (low, high) = (claim.low * (1.0 - TOLERANCE), claim.high * (1.0 + TOLERANCE));
    let says = |words: &[&str]| words.iter().any(|word| claim.qualifier.contains(word));
    let on_a_grid = ["KB", "requests", "disks", "drives"].contains(&claim.unit.as_str());
    if on_a_grid && says(&["above"]) {
        return (low..=high * 2.0).contains(&value);
    }
    let nearly = says(&["slightly", "nearly", "almost", "just"]);
    if (on_a_grid && claim.kind != "rule") || nearly {
        return (low..=high).contains(&value);
    }
    if says(&["more", "over", "at least", "above", "exceed"]) {
        return value >= low;
    }
    if says(&["less", "at most", "below", "within", "as much as"]) {
        return value <= high;
    }
    (low..=high).contains(&value)
}

/// The first of these sizes (KB) that satisfies a condition.
pub fn first_size(sizes: &[f64], mut holds: impl FnMut(f64) -> Result<bool, String>) -> Answer {
    for kib in sizes {
        if holds(*kib)? {
            return Ok(*kib);
        }
    }
    Err("it holds at no size".to_owned())
}

/// The best throughput over these sizes (MB/s).
pub fn best(lab: &Lab, probe: &Probe, sizes: &[f64]) -> Answer {
    let mut best = 0.0_f64;
    for kib in sizes {
        best = best.max(lab.mib(&probe.clone().kib(*kib))?);
    }
    Ok(best)
}

/// The first size (KB) at which throughput reaches this rate (MB/s).
pub fn reaches(lab: &Lab, probe: &Probe, sizes: &[f64], mib_per_s: f64) -> Answer {
    first_size(sizes, |kib| Ok(lab.mib(&probe.clone().kib(kib))? >= mib_per_s))
}

/// The first size (KB) at which throughput is within 10% of the best.
pub fn plateau(lab: &Lab, probe: &Probe, sizes: &[f64]) -> Answer {
    reaches(lab, probe, sizes, 0.9 * best(lab, probe, sizes)?)
}

/// Throughput of a point over that of another.
pub fn ratio(lab: &Lab, over: &Probe, under: &Probe) -> Answer {
    Ok(lab.mib(over)? / lab.mib(under)?)
}

/// How much lower the throughput of a point is than that of another (percent).
pub fn loss(lab: &Lab, less: &Probe, than: &Probe) -> Answer {
    Ok((1.0 - ratio(lab, less, than)?) * 100.0)
}

/// How much higher the throughput of a point is than that of another (percent).
pub fn gain(lab: &Lab, more: &Probe, than: &Probe) -> Answer {
    Ok((ratio(lab, more, than)? - 1.0) * 100.0)
}

/// CPU time charged to the program (ms/MB).
pub fn cost(lab: &Lab, probe: &Probe) -> Answer {
    Ok(lab.measure(probe)?.cpu_ms_per_mib())
}

/// CPU time of the whole machine (ms/MB).
pub fn soaked(lab: &Lab, probe: &Probe) -> Answer {
    Ok(lab.measure(probe)?.soaked_ms_per_mib())
}

/// CPU time of the whole machine as a fixed cost of a request (us) and a cost of each KB (us), from
/// requests of 2 KB and 64 KB.
pub fn cost_of_requests(lab: &Lab, probe: &Probe) -> Result<(f64, f64), String> {
    let us =
        |kib: f64| Ok::<f64, String>(soaked(lab, &probe.clone().kib(kib))? * 1e3 / 1024.0 * kib);
    let (small, large) = (us(2.0)?, us(64.0)?);
    let each = (large - small) / 62.0;
    Ok((small - 2.0 * each, each))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(value: f64, unit: &str, qualifier: &str) -> Claim {
        let mut claim = published::claims(Paper::Riedel97).remove(0);
        (claim.low, claim.high) = (value, value);
        (claim.unit, claim.qualifier) = (unit.to_owned(), qualifier.to_owned());
        claim
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
    fn the_first_size_is_found_or_an_error() {
        assert_eq!(first_size(&[2.0, 4.0, 8.0], |kib| Ok(kib > 3.0)), Ok(4.0));
        assert!(first_size(&[2.0], |_| Ok(false)).is_err());
    }
}
