//! The conclusion of a study: its findings, its verdicts on the papers' claims, its advice, and
//! further charts and tables.
//!
//! Claims with a number are judged by [`papers::claims::judge`]. On most targets, a claim holds if
//! the effect still exists. On a simulated machine of the papers, a claim holds only if the
//! published number is reproduced (see [`Conclusion::judge_as_reproduced`]).

use analysis::interval::Interval;
use analysis::units;
use lab::simulated_target::PREFIX;
pub use papers::claims::Verdict;
use papers::claims::{self, Claim, Paper, Role, Standard};
use papers::reproduce;
use report::model::{Chart, Finding, Table, Tone};
use survey::advice::{self, Advice};

/// The findings, verdicts, advice, charts and tables that a study derives from its evidence.
#[derive(Clone, Debug, Default)]
pub struct Conclusion {
    /// The findings, most important first.
    pub findings: Vec<Finding>,
    /// Verdicts on the papers' claims, in the order in which they were tested.
    pub claims: Vec<ClaimResult>,
    /// Advice whose gain was measured on this machine.
    pub advice: Vec<Advice>,
    /// Charts in addition to those of the plan.
    pub charts: Vec<Chart>,
    /// Tables in addition to the table of all points.
    pub tables: Vec<Table>,
}

/// The result of testing a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimResult {
    /// Id of the claim, such as R080.
    pub id: &'static str,
    /// Whether the claim holds.
    pub verdict: Verdict,
    /// The value measured here, in the unit of the claim. None if the claim has no number or was
    /// not measured.
    pub value: Option<f64>,
    /// What was measured here, or why the claim is not testable.
    pub here: String,
}

impl Conclusion {
    /// Adds a finding.
    pub fn find(&mut self, id: &str, text: impl Into<String>) {
        debug_assert!(explain::is_finding(id), "no topic for the finding {id}");
        let (headline, detail) = (text.into(), String::new());
        self.findings.push(Finding { id: id.to_owned(), headline, detail, tone: Tone::Note });
    }

    /// Adds a verdict on a claim.
    pub fn claim(&mut self, id: &'static str, holds: bool, here: impl Into<String>) {
        let verdict = if holds { Verdict::Holds } else { Verdict::DoesNotHold };
        self.claims.push(ClaimResult { id, verdict, value: None, here: here.into() });
    }

    /// Adds a verdict on a claim. Does nothing if `judged` is None, which means that the claim
    /// was not measured.
    pub fn claim_if(&mut self, id: &'static str, judged: Option<(bool, String)>) {
        if let Some((holds, here)) = judged {
            self.claim(id, holds, here);
        }
    }

    /// Judges a claim by a measured value and its description. Does nothing if `measured` is None.
    pub fn value_if(&mut self, id: &'static str, measured: Option<(f64, String)>) {
        if let Some((value, here)) = measured {
            self.value(id, Some(value), here);
        }
    }

    /// Judges a claim by the value measured here, which must be in the unit of the claim. The claim
    /// holds if the effect exists. If `value` is None, [`Conclusion::complete`] later marks the
    /// claim as not testable.
    pub fn value(&mut self, id: &'static str, value: Option<f64>, here: impl Into<String>) {
        let (Some(value), Some(claim)) = (value, claim_of(id)) else { return };
        let verdict = claims::judge(&claim, value, Standard::Effect);
        let here = match verdict {
            Verdict::CannotBeTried => {
                let number = "the published number applies only to the paper's machine";
                format!("{number}; measured here: {}", here.into())
            }
            _ => here.into(),
        };
        self.claims.push(ClaimResult { id, verdict, value: Some(value), here });
    }

    /// Judges a claim about a gain by the factor measured here. The paper states the gain in
    /// "times" or in "percent". `what` describes the two quantities that are compared.
    pub fn gain(&mut self, id: &'static str, times: Option<f64>, what: &str) {
        let (Some(times), Some(claim)) = (times, claim_of(id)) else { return };
        let value = if claim.unit == "percent" { (times - 1.0) * 100.0 } else { times };
        self.value(id, Some(value), format!("{what}: {}", words_of_times(times)));
    }

    /// Judges a claim about a loss or a share by the share measured here. The paper states the
    /// number in percent or as a ratio. `what` describes the share.
    pub fn loss(&mut self, id: &'static str, share: Option<f64>, what: &str) {
        let (Some(share), Some(claim)) = (share, claim_of(id)) else { return };
        let value = if claim.unit == "percent" { share * 100.0 } else { share };
        self.value(id, Some(value), format!("{what}: {:.0}%", 100.0 * share));
    }

    /// Judges the claims of a study again if the target is a simulated machine of the papers.
    /// [`papers::reproduce`] measures each claim with the paper's method, and the result must match
    /// the published number.
    ///
    /// A claim is not testable if it cannot be simulated, or if the paper measured it on another
    /// machine. If `papers::reproduce` cannot compute a claim, the study's own value must match the
    /// published number. `targets` contains the targets as on the command line. Verdicts on other
    /// targets, and on systems with changed keys, do not change.
    pub fn judge_as_reproduced(&mut self, ids: &[&'static str], targets: &[String]) {
        let systems: Vec<&str> =
            targets.iter().filter_map(|name| name.strip_prefix(PREFIX)).collect();
        for id in ids {
            let paper = Paper::of_claim(id);
            if !systems.iter().any(|system| paper.describes(system)) {
                continue;
            }
            let Some(claim) = claim_of(id) else { continue };
            let own = reproduce::systems_of(id);
            let at = self.claims.iter().position(|result| result.id == *id);
            let study = at.map(|at| self.claims.remove(at));
            let result = if claim.role == Role::NotSimulated {
                let here = format!("not simulated: {}", claim.why);
                Some(ClaimResult { id, verdict: Verdict::CannotBeTried, value: None, here })
            } else if own.is_empty() {
                study.map(|study| published_number(study, &claim))
            } else if own.iter().any(|name| systems.contains(name)) {
                reproduced(id, &claim, study)
            } else {
                let here = format!("the paper measured another machine; use sim:{}", own[0]);
                Some(ClaimResult { id, verdict: Verdict::CannotBeTried, value: None, here })
            };
            self.claims.extend(result);
        }
    }

    /// Marks claims as not testable on this machine.
    pub fn cannot(&mut self, ids: &[&'static str], why: &str) {
        for id in ids {
            let (verdict, here) = (Verdict::CannotBeTried, why.to_owned());
            self.claims.push(ClaimResult { id, verdict, value: None, here });
        }
    }

    /// Adds a rule of `advice.toml` with the throughput gain measured here (a factor). Does nothing
    /// if the gain is less than `survey::advice::GAIN_MIN`.
    pub fn advise(&mut self, rule: &str, gain: f64, setting: &str, evidence: impl Into<String>) {
        self.advise_in("throughput", rule, gain, setting, evidence);
    }

    /// Adds a rule like [`Conclusion::advise`], but with a gain in another quantity, such as "CPU".
    pub fn advise_in(
        &mut self,
        gain_in: &'static str,
        rule: &str,
        gain: f64,
        setting: &str,
        evidence: impl Into<String>,
    ) {
        if gain < advice::GAIN_MIN || !gain.is_finite() {
            return;
        }
        let rule = advice::rule(rule);
        let text = match setting {
            "" => rule.text,
            setting => format!("{}: {setting}", rule.text),
        };
        self.advice.push(Advice {
            id: rule.id,
            text,
            setting: setting.to_owned(),
            evidence: evidence.into(),
            costs: String::new(),
            gain,
            rank_gain: gain,
            half_width: 0.0,
            gain_in,
            how: rule.how,
        });
    }

    /// Joins the conclusions of several targets. The name of the target is added to its findings
    /// and advice. A claim lists the results of all targets, and holds if it holds on every target
    /// on which it is testable. If a target was specified several times with the same findings,
    /// only its first conclusion is used.
    pub fn of_each(all: Vec<(String, Conclusion)>) -> Conclusion {
        let mut joined = Conclusion::default();
        let mut said: Vec<(String, Vec<String>)> = Vec::new();
        for (number, (name, one)) in all.into_iter().enumerate() {
            let says: Vec<String> = one.findings.iter().map(Finding::text).collect();
            if said.contains(&(name.clone(), says.clone())) {
                continue;
            }
            said.push((name.clone(), says));
            let named = |text: String| {
                if text.starts_with(&name) { text } else { format!("{name}: {text}") }
            };
            let finding = |found: Finding| Finding { headline: named(found.headline), ..found };
            joined.findings.extend(one.findings.into_iter().map(finding));
            let advice = |advice: Advice| Advice {
                text: named(advice.text),
                setting: named(advice.setting),
                ..advice
            };
            joined.advice.extend(one.advice.into_iter().map(advice));
            let chart = |chart: Chart| Chart { id: format!("{}-{number}", chart.id), ..chart };
            joined.charts.extend(one.charts.into_iter().map(chart));
            let table = |table: Table| Table { id: format!("{}-{number}", table.id), ..table };
            joined.tables.extend(one.tables.into_iter().map(table));
            for result in one.claims {
                joined.add(ClaimResult { here: format!("{name}: {}", result.here), ..result });
            }
        }
        joined
    }

    /// Merges the result of a claim on one target into the results on other targets.
    fn add(&mut self, more: ClaimResult) {
        let Some(result) = self.claims.iter_mut().find(|result| result.id == more.id) else {
            return self.claims.push(more);
        };
        result.here = format!("{}; {}", result.here, more.here);
        result.verdict = match (result.verdict, more.verdict) {
            (Verdict::CannotBeTried, verdict) | (verdict, Verdict::CannotBeTried) => verdict,
            (Verdict::Holds, Verdict::Holds) => Verdict::Holds,
            _ => Verdict::DoesNotHold,
        };
    }

    /// Sorts the claims into the order of `ids`. Marks each claim without a result as not testable,
    /// for the reason `why`.
    pub fn complete(&mut self, ids: &[&'static str], why: &str) {
        let missing = |id: &&&'static str| self.claims.iter().all(|result| result.id != **id);
        let missing: Vec<&'static str> = ids.iter().filter(missing).copied().collect();
        self.cannot(&missing, why);
        self.claims.sort_by_key(|result| ids.iter().position(|id| *id == result.id));
    }
}

/// Measures a claim with the paper's method. The returned text also contains the study's own
/// result.
fn reproduced(id: &'static str, claim: &Claim, study: Option<ClaimResult>) -> Option<ClaimResult> {
    let answer = reproduce::value_of(id)?;
    let verdict = reproduce::claim::verdict(claim, &answer);
    let measured = match &answer {
        Ok(value) => format!("{} {}", units::count(*value), claim.unit),
        Err(why) => why.clone(),
    };
    let here = match study.filter(|study| study.verdict != Verdict::CannotBeTried) {
        Some(study) => format!("{measured} with the paper's method; in this study: {}", study.here),
        None => format!("{measured} with the paper's method"),
    };
    Some(ClaimResult { id, verdict, value: answer.ok(), here })
}

/// Judges the study's own result again. Now the value must match the published number.
fn published_number(study: ClaimResult, claim: &Claim) -> ClaimResult {
    let judged = |value| claims::judge(claim, value, Standard::Reproduction);
    ClaimResult { verdict: study.value.map_or(study.verdict, judged), ..study }
}

/// Finds a claim by its id, such as R080.
pub fn claim_of(id: &str) -> Option<Claim> {
    claims::named(id)
}

/// Formats a ratio, such as "2.40 times", "0.80 times" or "12 times".
pub fn words_of_times(times: f64) -> String {
    match times {
        large if large >= 10.0 => format!("{large:.0} times"),
        times => format!("{times:.2} times"),
    }
}

/// Formats a time with its interval, such as "12 us (11 us to 13 us)".
pub fn words_of_time(interval: Interval) -> String {
    let [value, low, high] =
        [interval.value, interval.low, interval.high].map(|ns| units::time(ns.max(0.0)));
    format!("{value} ({low} to {high})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_reads_well_before_a_noun_also_if_it_is_one() {
        let words =
            [0.8, 1.0, 2.4, 12.3].map(|times| format!("{} the rate", words_of_times(times)));
        assert_eq!(words[..2], ["0.80 times the rate", "1.00 times the rate"]);
        assert_eq!(words[2..], ["2.40 times the rate", "12 times the rate"]);
    }

    #[test]
    fn a_claim_that_no_system_describes_is_not_testable_on_the_papers_machines() {
        let verdict_on = |target: &str| {
            let mut found = Conclusion::default();
            found.claim("R027", true, "requests of 64 KiB");
            found.judge_as_reproduced(&["R027"], &[target.to_owned()]);
            found.claims[0].verdict
        };
        assert_eq!(verdict_on("sim:nt4-ultrawide"), Verdict::CannotBeTried);
        assert_eq!(verdict_on("/data"), Verdict::Holds);
    }

    #[test]
    fn a_gain_holds_from_half_of_the_published_one_on_a_logarithmic_scale() {
        // R065 publishes a gain of ten times, and C133 a gain of 30 percent.
        for (id, times, holds) in
            [("R065", 3.2, true), ("R065", 3.1, false), ("C133", 1.15, true), ("C133", 1.1, false)]
        {
            let mut conclusion = Conclusion::default();
            conclusion.gain(id, Some(times), "x");
            assert_eq!(conclusion.claims[0].verdict == Verdict::Holds, holds, "{id} {times}");
        }
    }

    #[test]
    fn a_loss_holds_from_half_of_it_and_an_upper_limit_up_to_it() {
        // C073 publishes a loss of 50 percent, and R153 an upper limit of 20 percent.
        for (id, share, holds) in
            [("C073", 0.25, true), ("C073", 0.2, false), ("R153", 0.2, true), ("R153", 0.3, false)]
        {
            let mut conclusion = Conclusion::default();
            conclusion.loss(id, Some(share), "x");
            assert_eq!(conclusion.claims[0].verdict == Verdict::Holds, holds, "{id} {share}");
        }
    }

    #[test]
    fn claims_without_a_result_are_not_testable_and_all_are_in_order() {
        let mut conclusion = Conclusion::default();
        conclusion.claim("R080", true, "seen");
        conclusion.complete(&["R077", "R080"], "no target");
        let claims: Vec<_> = conclusion.claims.iter().map(|c| (c.id, c.verdict)).collect();
        assert_eq!(claims, [("R077", Verdict::CannotBeTried), ("R080", Verdict::Holds)]);
    }

    #[test]
    fn a_target_that_was_named_several_times_is_told_once() {
        let on = |name: &str, text: &str| {
            let mut conclusion = Conclusion::default();
            conclusion.claim("R080", true, "seen");
            conclusion.find("knee", text);
            (name.to_owned(), conclusion)
        };
        let joined = Conclusion::of_each(vec![
            on("a", "fast"),
            on("a", "fast"),
            on("b", "fast"),
            on("a", "slow"),
        ]);
        let told: Vec<&str> = joined.findings.iter().map(|found| found.headline.as_str()).collect();
        assert_eq!(told, ["a: fast", "b: fast", "a: slow"]);
        assert_eq!(joined.claims[0].here, "a: seen; b: seen; a: seen");
    }

    #[test]
    fn a_claim_about_several_targets_holds_if_it_fails_on_none() {
        let on = |name: &str, id, holds| {
            let mut conclusion = Conclusion::default();
            conclusion.claim(id, holds, "seen");
            conclusion.find("knee", "fast");
            (name.to_owned(), conclusion)
        };
        let both = |first, second| {
            let joined = Conclusion::of_each(vec![on("a", "R080", first), on("b", "R080", second)]);
            (joined.claims[0].verdict, joined)
        };
        assert_eq!(both(true, true).0, Verdict::Holds);
        assert_eq!(both(true, false).0, Verdict::DoesNotHold);
        let joined = both(true, true).1;
        assert_eq!(joined.findings[1].headline, "b: fast");
        assert_eq!(joined.claims[0].here, "a: seen; b: seen");
    }

    #[test]
    fn advice_needs_a_gain() {
        let mut conclusion = Conclusion::default();
        conclusion.advise("preallocate", 1.05, "", "little");
        assert!(conclusion.advice.is_empty());
        conclusion.advise("preallocate", 2.0, "files of 64 MiB", "much");
        assert!(conclusion.advice[0].text.ends_with("files of 64 MiB"));
    }
}
