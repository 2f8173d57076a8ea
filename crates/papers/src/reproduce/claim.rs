//! Simulates the claims of a paper, and counts how many claims the simulated values meet. A claim
//! is a number in the text of the paper.
//!
//! [`claims::judge`] compares each value with its claim, by [`Standard::Reproduction`]. Some claims
//! can also be computed from the paper's own figures and tables. If the paper contradicts itself in
//! this way, no simulation can match both numbers, so the claim is listed but not counted. Claims
//! that contradict each other form a group, which counts as one claim.

use std::collections::BTreeMap;

use lab::simulated;

use crate::claims::{self, Claim, Paper, Role, Standard, Verdict};
use crate::reproduce::probe::{Lab, Probe, known};

/// The simulated value of a claim, or the reason why there is none.
pub type Answer = Result<f64, String>;
/// The name of a claim, and the function that computes its value.
pub type Check = (&'static str, fn(&Lab) -> Answer);
/// A value that follows from other numbers of the same paper: the names of the claims that state
/// this value, the function that computes the value, and its source.
pub type OwnValue = (&'static [&'static str], fn() -> Option<f64>, &'static str);

/// The functions that check the claims of a paper.
#[derive(Clone, Copy, Debug)]
pub struct Checks {
    /// Lists of functions that simulate the checked claims.
    pub computed: &'static [&'static [Check]],
    /// The values of some claims, as they follow from other numbers of the paper.
    pub own: &'static [OwnValue],
}

/// A claim that was checked.
#[derive(Clone, Debug)]
pub struct Scored {
    /// The claim that was checked.
    pub claim: Claim,
    /// The simulated value, or the reason why there is none.
    pub answer: Answer,
    /// Whether the simulated value meets the claim.
    pub pass: bool,
    /// The claim of the same group that is counted instead of this claim. None if this claim is
    /// counted.
    pub counted_as: Option<String>,
    /// Why the claim does not pass. None if the claim passes.
    pub reason: Option<String>,
}

/// A claim that other numbers of the same paper contradict.
#[derive(Clone, Debug)]
pub struct Contradicted {
    /// The claim with its simulated value.
    pub scored: Scored,
    /// The value of the claim as it follows from the paper's own figures, tables or other claims.
    pub own: f64,
    /// The source of `own`, such as the paper's figures and tables.
    pub source: String,
}

/// The results of all claims of a paper.
#[derive(Clone, Debug)]
pub struct Claims {
    /// The number of claims that are inputs of the simulator.
    pub inputs: usize,
    /// The claims that a simulation of storage cannot test.
    pub out: Vec<Claim>,
    /// The claims about a set-up that no system file describes.
    pub not_simulated: Vec<Claim>,
    /// The checked claims that the paper's own numbers contradict.
    pub contradicted: Vec<Contradicted>,
    /// The claims that contradict an input of the simulator. These claims are not computed.
    pub contradict_inputs: Vec<Claim>,
    /// The checked claims that are not in `contradicted`. All claims of a group are listed.
    pub scored: Vec<Scored>,
}

/// The number of claims that passed, and the total number of claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The number of claims that passed.
    pub passed: usize,
    /// The total number of claims.
    pub of: usize,
}

impl Count {
    fn of<'a>(scored: impl Iterator<Item = &'a Scored>) -> Count {
        scored.fold(Count::default(), |count, scored| Count {
            passed: count.passed + usize::from(scored.pass),
            of: count.of + 1,
        })
    }

    /// Returns the share of the claims that passed (percent).
    pub fn percent(self) -> f64 {
        self.passed as f64 * 100.0 / self.of.max(1) as f64
    }
}

impl Claims {
    /// Returns the claims that are counted. Of each group, only one claim is counted.
    pub fn counted(&self) -> impl Iterator<Item = &Scored> {
        self.scored.iter().filter(|scored| scored.counted_as.is_none())
    }

    /// Counts how many of the counted claims passed.
    pub fn all(&self) -> Count {
        Count::of(self.counted())
    }

    /// Counts how many of the measured or derived claims passed. Of each group, only one claim is
    /// counted.
    pub fn measured(&self) -> Count {
        Count::of(self.counted().filter(|scored| scored.claim.is_measured()))
    }

    /// Counts like [`Claims::measured`], but also includes the claims that the paper's own numbers
    /// contradict.
    pub fn measured_with_contradicted(&self) -> Count {
        let more = self.contradicted.iter().map(|one| &one.scored);
        let all = self.counted().chain(more);
        Count::of(all.filter(|scored| scored.claim.is_measured()))
    }
}

/// Checks all claims of a paper. Each claim is computed with the simulator (`lab`) and, if
/// possible, from the paper's own values (`published`).
pub fn score(lab: &Lab, published: &Lab, paper: Paper, checks: Checks) -> Claims {
    let all = claims::of(paper);
    let known: BTreeMap<&str, fn(&Lab) -> Answer> =
        checks.computed.iter().copied().flatten().copied().collect();
    let of = |role: Role| all.iter().filter(move |claim| claim.role == role).cloned();
    let asked: Vec<Claim> = of(Role::Check).collect();
    let answers = simulated::on_all_cores(&asked, |claim| match known.get(claim.id.as_str()) {
        Some(check) => check(lab),
        None => Err("halfpower does not simulate this claim".to_owned()),
    });
    let (mut scored, mut contradicted) = (Vec::new(), Vec::new());
    for (claim, answer) in asked.into_iter().zip(answers) {
        let in_figures = known.get(claim.id.as_str()).and_then(|check| check(published).ok());
        let own = own_value(&claim, in_figures.filter(|value| value.is_finite()), checks.own);
        let one = judged(claim, answer);
        match own.filter(|(value, _)| !meets(&one.claim, *value)) {
            Some((own, source)) => contradicted.push(Contradicted { scored: one, own, source }),
            None => scored.push(one),
        }
    }
    choose_of_groups(&mut scored);
    Claims {
        inputs: of(Role::Input).count(),
        out: of(Role::Out).collect(),
        not_simulated: of(Role::NotSimulated).collect(),
        contradicted,
        contradict_inputs: of(Role::Contradicted).collect(),
        scored,
    }
}

/// A rate, time or cost that a paper's text states, and the function that computes it.
#[derive(Clone, Debug)]
pub struct Stated {
    /// The claim that states the value.
    pub claim: Claim,
    /// The function that computes the value.
    pub check: fn(&Lab) -> Answer,
}

/// Returns the claims of a paper that state a rate, a time or a cost. Claims that only state a
/// limit are left out, and so are claims that the paper's own figures contradict.
pub fn stated(published: &Lab, paper: Paper, checks: Checks) -> Vec<Stated> {
    let known: BTreeMap<&str, fn(&Lab) -> Answer> =
        checks.computed.iter().copied().flatten().copied().collect();
    let names_one_value = |claim: &Claim| {
        claim.role == Role::Check
            && claim.effect == claims::Effect::Absolute
            && ["", "about", "nearly", "approximately"].contains(&claim.qualifier.as_str())
    };
    let all = claims::of(paper).into_iter().filter(names_one_value);
    let with_check = all.filter_map(|claim| {
        let check = *known.get(claim.id.as_str())?;
        Some(Stated { claim, check })
    });
    let agrees = |one: &Stated| {
        let own = (one.check)(published).ok().filter(|value| value.is_finite());
        own.is_none_or(|value| meets(&one.claim, value))
    };
    with_check.filter(agrees).collect()
}

/// If the value of a claim follows from other numbers of the paper, returns this value and its
/// source. Otherwise returns None.
fn own_value(claim: &Claim, in_figures: Option<f64>, own: &[OwnValue]) -> Option<(f64, String)> {
    let stated = own.iter().find(|(ids, _, _)| ids.contains(&claim.id.as_str()));
    match stated {
        Some((_, value, source)) => value().map(|value| (value, (*source).to_owned())),
        None => in_figures.map(|value| (value, "the paper's figures and tables".to_owned())),
    }
}

fn meets(claim: &Claim, value: f64) -> bool {
    claims::judge(claim, value, Standard::Reproduction) == Verdict::Holds
}

/// Judges a claim by its simulated value. A claim without a value does not hold. For example, there
/// is no value if the claimed effect occurs at no request size.
pub fn verdict(claim: &Claim, answer: &Answer) -> Verdict {
    match answer {
        Ok(value) => claims::judge(claim, *value, Standard::Reproduction),
        Err(_) => Verdict::DoesNotHold,
    }
}

fn judged(claim: Claim, answer: Answer) -> Scored {
    let pass = verdict(&claim, &answer) == Verdict::Holds;
    let reason = (!pass).then(|| match (&answer, claim.why.as_str()) {
        (Err(why), "") => why.clone(),
        (Ok(_), "") => "unexplained".to_owned(),
        (_, why) => why.to_owned(),
    });
    Scored { claim, answer, pass, counted_as: None, reason }
}

/// Chooses the one claim of each group that is counted: a claim that passes, or else the claim with
/// the smallest error.
fn choose_of_groups(scored: &mut [Scored]) {
    let mut best: BTreeMap<String, (f64, String)> = BTreeMap::new();
    for one in scored.iter().filter(|one| !one.claim.group.is_empty()) {
        let off = one.answer.as_ref().map_or(f64::INFINITY, |value| one.claim.distance(*value));
        let off = if one.pass { off - 1e9 } else { off };
        let entry = best.entry(one.claim.group.clone());
        let known = entry.or_insert_with(|| (off, one.claim.id.clone()));
        if off < known.0 {
            *known = (off, one.claim.id.clone());
        }
    }
    for one in scored {
        let chosen = best.get(&one.claim.group).map(|(_, id)| id.clone());
        one.counted_as = chosen.filter(|id| *id != one.claim.id);
    }
}

/// Returns the first of these values (for example request sizes in KB) at which `holds` returns
/// true.
pub fn first_size(sizes: &[f64], mut holds: impl FnMut(f64) -> Result<bool, String>) -> Answer {
    for kib in sizes {
        if holds(*kib)? {
            return Ok(*kib);
        }
    }
    Err("the claim does not hold at any simulated size, depth or number of disks".to_owned())
}

/// Returns the best throughput over these request sizes (MB/s).
pub fn best(lab: &Lab, probe: &Probe, sizes: &[f64]) -> Answer {
    let mut best = 0.0_f64;
    for kib in sizes {
        best = best.max(lab.mib(&probe.clone().kib(*kib))?);
    }
    Ok(best)
}

/// Returns the first request size (KB) at which the throughput is at least `mib_per_s` (MB/s).
pub fn reaches(lab: &Lab, probe: &Probe, sizes: &[f64], mib_per_s: f64) -> Answer {
    first_size(sizes, |kib| Ok(lab.mib(&probe.clone().kib(kib))? >= mib_per_s))
}

/// Returns the first request size (KB) at which the throughput is within 10% of the best.
pub fn plateau(lab: &Lab, probe: &Probe, sizes: &[f64]) -> Answer {
    reaches(lab, probe, sizes, 0.9 * best(lab, probe, sizes)?)
}

/// Returns the first request size (KB) at which the throughput is within 2% of the best. 2% is less
/// than the 3% by which repeated measurements of the first paper differ (R017).
pub fn media_limit(lab: &Lab, probe: &Probe, sizes: &[f64]) -> Answer {
    reaches(lab, probe, sizes, 0.98 * best(lab, probe, sizes)?)
}

/// Returns the throughput of the probe `over` divided by the throughput of `under`.
pub fn ratio(lab: &Lab, over: &Probe, under: &Probe) -> Answer {
    Ok(lab.mib(over)? / lab.mib(under)?)
}

/// Returns the throughput that the probe `less` loses compared with the probe `than`, as a
/// percentage of the throughput of `than`.
pub fn loss(lab: &Lab, less: &Probe, than: &Probe) -> Answer {
    Ok((1.0 - ratio(lab, less, than)?) * 100.0)
}

/// Returns the throughput that the probe `more` gains compared with the probe `than`, as a
/// percentage of the throughput of `than`.
pub fn gain(lab: &Lab, more: &Probe, than: &Probe) -> Answer {
    Ok((ratio(lab, more, than)? - 1.0) * 100.0)
}

/// Returns the CPU time charged to the program (ms/MB).
pub fn cost(lab: &Lab, probe: &Probe) -> Answer {
    known(lab.measure(probe)?.cpu_ms_per_mib())
}

/// Returns the CPU time of the whole machine (ms/MB).
pub fn soaked(lab: &Lab, probe: &Probe) -> Answer {
    known(lab.measure(probe)?.soaked_ms_per_mib())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scored(id: &str, value: f64) -> Scored {
        judged(claims::named(id).unwrap(), Ok(value))
    }

    #[test]
    fn a_group_of_contradicting_claims_counts_once() {
        // C188 states 35 ms/MB, and C191 states 270 ms/MB for the same quantity.
        let mut both = vec![scored("C191", 36.0), scored("C188", 36.0)];
        choose_of_groups(&mut both);
        assert_eq!(both[0].counted_as.as_deref(), Some("C188"));
        assert_eq!(both[1].counted_as, None);
        let claims = Claims {
            inputs: 0,
            out: Vec::new(),
            not_simulated: Vec::new(),
            contradicted: Vec::new(),
            contradict_inputs: Vec::new(),
            scored: both,
        };
        assert_eq!(claims.measured(), Count { passed: 1, of: 1 });
    }

    #[test]
    fn a_group_that_fails_counts_once_as_failed_by_its_nearest_member() {
        let mut both = vec![scored("C191", 100.0), scored("C188", 100.0)];
        choose_of_groups(&mut both);
        assert_eq!(both.iter().filter(|one| one.counted_as.is_none()).count(), 1);
        assert!(both.iter().all(|one| !one.pass));
        assert_eq!(both[1].counted_as.as_deref(), Some("C191"), "the errors are 63% and 186%");
    }

    #[test]
    fn no_claim_that_counts_as_met_is_off_by_more_than_its_tolerance() {
        for id in ["C191", "C277", "C158", "C012", "C030"] {
            let claim = claims::named(id).unwrap();
            let off = judged(claim.clone(), Ok(claim.low * 0.8));
            assert!(!off.pass, "{id}");
        }
    }

    #[test]
    fn the_first_size_is_found_or_an_error() {
        assert_eq!(first_size(&[2.0, 4.0, 8.0], |kib| Ok(kib > 3.0)), Ok(4.0));
        assert!(first_size(&[2.0], |_| Ok(false)).is_err());
    }
}
