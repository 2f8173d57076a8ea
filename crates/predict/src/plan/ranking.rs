//! Finds the cheapest configuration of each kind that meets a need, with its headroom and its
//! bottleneck.
//!
//! Configurations are of the same kind if they have the same system, volume and RAID controller.
//! They are judged in the order of their price. Once a configuration of a kind meets the need with
//! the margin, more expensive configurations of this kind are skipped. The search ends when enough
//! kinds were found. Of configurations with the same kind and price, the one that sustains the
//! largest load is chosen.

use analysis::units;
use std::collections::BTreeSet;

use lab::failure::Outcome;
use lab::simulated::on_all_cores;
use schemars::JsonSchema;
use serde::Serialize;

use crate::plan::candidate::{Candidate, Catalogue, Limits};
use crate::plan::judge::{Judgement, Outlook, judge};
use crate::plan::need::Need;

/// Minimum number of configurations in a batch. After each batch, the search checks whether it
/// found enough kinds.
const BATCH: usize = 32;
/// Maximum number of times that the load is doubled to find a load that is too high.
const DOUBLINGS: u32 = 4;
/// Number of bisections between the largest sustained load and the smallest load that is too high.
const BISECTIONS: u32 = 5;

/// The input of a search: the need and the limits.
#[derive(Clone, Debug)]
pub struct Question {
    /// The requirements that the storage must meet.
    pub need: Need,
    /// Limits on the configurations to consider.
    pub limits: Limits,
    /// Factor by which the rates of the need are multiplied, at least 1. A configuration must
    /// sustain the multiplied rates.
    pub margin: f64,
    /// Number of kinds of configurations to find.
    pub count: usize,
}

/// The configurations that a search found.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Number of configurations for each outcome, for example "too small".
    pub counts: Counts,
    /// The cheapest configuration of each kind that meets the need, the cheapest first.
    pub choices: Vec<Choice>,
    /// The configuration that comes closest to the need, and why it does not meet the need. None if
    /// a configuration meets the need.
    pub closest: Option<(Candidate, String)>,
}

/// Number of configurations for each outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Counts {
    /// Number of configurations within the limits.
    pub candidates: usize,
    /// Number of configurations that are too small for the stated capacity.
    pub too_small: usize,
    /// Number of configurations that a closed-form bound excluded.
    pub excluded_by_bounds: usize,
    /// Number of configurations that missed a rate or a latency limit in the simulation.
    pub missed: usize,
    /// Number of configurations that met the need with the margin in the simulation.
    pub met: usize,
    /// Number of configurations that were not judged, because a cheaper configuration of their kind
    /// met the need or because enough kinds were found.
    pub not_cheaper: usize,
}

/// A configuration that meets the need.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The configuration.
    pub candidate: Candidate,
    /// Simulated results at the stated load.
    pub outlook: Outlook,
    /// The largest factor by which the stated load can be multiplied so that the configuration
    /// still meets the need.
    pub headroom: f64,
    /// The bottleneck when the load is `headroom` times the stated load. If there is no bottleneck,
    /// the busiest component.
    pub binds: String,
}

impl Choice {
    /// Returns the price divided by the highest request rate that the configuration sustains.
    pub fn price_per_request_per_s(&self, need: &Need) -> f64 {
        let all: f64 = need.streams.iter().map(|stream| stream.requests_per_s).sum();
        self.candidate.price / (all * self.headroom)
    }

    /// Returns the price per 10^9 bytes of usable capacity.
    pub fn price_per_gb(&self) -> f64 {
        self.candidate.price / (self.outlook.capacity_bytes as f64 / 1e9)
    }
}

/// Finds the cheapest configurations. `tell` is called with the number of configurations considered
/// so far and the number of all configurations.
///
/// # Errors
/// If a system of the price list is invalid, or if a simulation violates a physical limit.
pub fn find(
    catalogue: &Catalogue,
    question: &Question,
    tell: &mut dyn FnMut(usize, usize),
) -> Outcome<Answer> {
    let all = catalogue.candidates(&question.need, &question.limits)?;
    let with_margin = question.need.times(question.margin);
    let mut counts = Counts { candidates: all.len(), ..Counts::default() };
    let (mut met, mut closest): (Vec<Candidate>, _) = (Vec::new(), None);
    let mut best = f64::INFINITY;
    let mut rest = all.as_slice();
    while let Some((batch, later)) = first_batch(rest).filter(|_| kinds(&met) < question.count) {
        rest = later;
        let is_new = |one: &&Candidate| {
            !met.iter().any(|found| found.kind() == one.kind() && found.price < one.price)
        };
        let wanted: Vec<&Candidate> = batch.iter().filter(is_new).collect();
        counts.not_cheaper += batch.len() - wanted.len();
        let judged = on_all_cores(&wanted, |one| judge(catalogue, one, &with_margin));
        tell(all.len() - rest.len(), all.len());
        for (one, judgement) in wanted.into_iter().zip(judged) {
            let judgement = judgement?;
            counts.add(&judgement);
            let (distance, why) = distance(&judgement);
            if distance < best {
                best = distance;
                closest = Some((one.clone(), why));
            }
            if matches!(judgement, Judgement::Meets(_)) {
                met.push(one.clone());
            }
        }
    }
    counts.not_cheaper += rest.len();
    let cheapest = |one: &Candidate| {
        !met.iter().any(|other| other.kind() == one.kind() && other.price < one.price)
    };
    let cheapest: Vec<&Candidate> = met.iter().filter(|one| cheapest(one)).collect();
    let choices = on_all_cores(&cheapest, |one| choice(catalogue, one, question));
    let choices = best_of_each_kind(choices.into_iter().collect::<Outcome<_>>()?);
    let closest = closest.filter(|_| choices.is_empty());
    Ok(Answer { counts, choices: choices.into_iter().take(question.count).collect(), closest })
}

/// Splits off the first configurations to judge together. Configurations of the same price are in
/// the same batch, so that the best of them can be chosen. None if `rest` is empty.
fn first_batch(rest: &[Candidate]) -> Option<(&[Candidate], &[Candidate])> {
    let last = rest.iter().take(BATCH).next_back()?;
    Some(rest.split_at(rest.partition_point(|one| one.price <= last.price)))
}

fn kinds(met: &[Candidate]) -> usize {
    met.iter().map(Candidate::kind).collect::<BTreeSet<_>>().len()
}

/// Returns the choice with the most headroom for each kind of configuration. If several choices
/// have the same headroom, the first is returned.
fn best_of_each_kind(choices: Vec<Choice>) -> Vec<Choice> {
    let mut best: Vec<Choice> = Vec::new();
    for choice in choices {
        match best.iter_mut().find(|one| one.candidate.kind() == choice.candidate.kind()) {
            Some(one) if choice.headroom > one.headroom => *one = choice,
            Some(_) => {}
            None => best.push(choice),
        }
    }
    best
}

impl Counts {
    fn add(&mut self, judgement: &Judgement) {
        let count = match judgement {
            Judgement::TooSmall(_) => &mut self.too_small,
            Judgement::Excluded(_) => &mut self.excluded_by_bounds,
            Judgement::Misses(_) => &mut self.missed,
            Judgement::Meets(_) => &mut self.met,
        };
        *count += 1;
    }
}

/// Returns how far a configuration is from meeting the need, and why. Configurations that fail in
/// the simulation are closest, followed by those that a bound excludes and those that are too
/// small.
fn distance(judgement: &Judgement) -> (f64, String) {
    match judgement {
        Judgement::Meets(_) => (0.0, String::new()),
        Judgement::Misses(outlook) => {
            let part = format!("{} is busy {:.0}%", outlook.busiest, 100.0 * outlook.utilisation);
            (outlook.missed.len() as f64, format!("{}; {part}", outlook.missed.join("; ")))
        }
        Judgement::Excluded(why) => {
            let times = why.utilisation;
            (1e3 + times, format!("{}: the load is {times:.1} times the maximum", why.part))
        }
        Judgement::TooSmall(bytes) => {
            let size = units::decimal_size(*bytes);
            (1e9 / (*bytes).max(1) as f64 + 1e9, format!("the volume holds only {size}"))
        }
    }
}

/// Simulates a configuration that meets the need. Returns its results at the stated load, and the
/// largest load that it sustains, found by doubling and bisection.
fn choice(catalogue: &Catalogue, candidate: &Candidate, question: &Question) -> Outcome<Choice> {
    let met = |factor: f64| -> Outcome<Option<Outlook>> {
        Ok(match judge(catalogue, candidate, &question.need.times(factor))? {
            Judgement::Meets(outlook) => Some(outlook),
            _ => None,
        })
    };
    let at_margin = met(question.margin)?;
    // At a lower load, a timer in the system can cause longer latencies. The configuration may then
    // miss the need at the stated load, and meet the need at the load with the margin. In this
    // case, the results at the load with the margin are reported.
    let outlook = match met(1.0)? {
        Some(outlook) => Some(outlook),
        None => at_margin.clone(),
    };
    let (mut low, mut high, mut at_low) = (question.margin, None, at_margin);
    for _ in 0..DOUBLINGS {
        match met(2.0 * low)? {
            Some(outlook) => (low, at_low) = (2.0 * low, Some(outlook)),
            None => {
                high = Some(2.0 * low);
                break;
            }
        }
    }
    for _ in 0..BISECTIONS {
        let Some(most) = high else { break };
        let middle = (low * most).sqrt();
        match met(middle)? {
            Some(outlook) => (low, at_low) = (middle, Some(outlook)),
            None => high = Some(middle),
        }
    }
    let binds = at_low.map(|outlook| outlook.busiest).unwrap_or_default();
    let Some(outlook) = outlook else {
        let what = format!("{candidate}: two simulations of the same load differ; this is a bug");
        return Err(lab::failure::Failure::failed(what));
    };
    Ok(Choice { candidate: candidate.clone(), outlook, headroom: low, binds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::prices::{BUILT_IN, Prices};

    fn answer(need: &str, price_max: Option<f64>) -> (Question, Answer) {
        answer_within(need, Limits { price_max, devices_max: 12 })
    }

    fn answer_within(need: &str, limits: Limits) -> (Question, Answer) {
        let catalogue = Catalogue::load(&Prices::parse(BUILT_IN).unwrap()).unwrap();
        let need = Need::parse(need).unwrap();
        let question = Question { need, limits, margin: 1.2, count: 3 };
        let answer = find(&catalogue, &question, &mut |_, _| {}).unwrap();
        (question, answer)
    }

    #[test]
    fn the_cheapest_that_meets_the_need_is_found() {
        let (question, answer) = answer("reads 8k 150/s; capacity 30GB", None);
        assert_eq!(answer.choices.len(), 3);
        let kinds: BTreeSet<_> = answer.choices.iter().map(|one| one.candidate.kind()).collect();
        assert_eq!(kinds.len(), 3);
        let prices: Vec<f64> = answer.choices.iter().map(|one| one.candidate.price).collect();
        assert!(prices.is_sorted(), "{prices:?}");
        let counts = answer.counts;
        let judged = counts.too_small + counts.excluded_by_bounds + counts.missed + counts.met;
        assert_eq!(judged + counts.not_cheaper, counts.candidates);
        // All cheaper configurations were judged and did not meet the need.
        let catalogue = Catalogue::load(&Prices::parse(BUILT_IN).unwrap()).unwrap();
        let all = catalogue.candidates(&question.need, &question.limits).unwrap();
        let need = question.need.times(question.margin);
        for one in all.iter().filter(|one| one.price < prices[0]) {
            let judgement = judge(&catalogue, one, &need).unwrap();
            assert!(!matches!(judgement, Judgement::Meets(_)), "{one}");
        }
        for one in &answer.choices {
            assert!(one.headroom >= 1.2 && one.outlook.missed.is_empty(), "{one:?}");
            assert!(one.price_per_gb() > 0.0 && !one.binds.is_empty());
        }
    }

    #[test]
    fn many_random_requests_on_few_devices_need_drives_on_pci_express() {
        let systems = |need: &str| {
            let (_, answer) = answer_within(need, Limits { price_max: None, devices_max: 4 });
            let mut systems: Vec<String> =
                answer.choices.into_iter().map(|one| one.candidate.system).collect();
            systems.sort();
            systems
        };
        // A single drive of the most expensive of these systems is cheaper than two drives of the
        // cheapest.
        let fast = systems("reads 4k 300k/s");
        assert_eq!(fast, ["nvme-ftl", "nvme-gen4", "nvme-slc"]);
        let slow = systems("reads 4k 100/s");
        assert!(slow.len() == 3 && !slow.iter().any(|name| name.starts_with("nvme")), "{slow:?}");
    }

    #[test]
    fn without_a_solution_the_closest_is_named_with_the_reason() {
        let (_, answer) = answer("reads 8k 1000000/s", Some(4500.0));
        assert!(answer.choices.is_empty());
        let (_, why) = answer.closest.unwrap();
        assert!(why.contains("the load is"), "{why}");
    }

    #[test]
    fn configurations_of_the_same_price_are_judged_in_the_same_batch() {
        let catalogue = Catalogue::load(&Prices::parse(BUILT_IN).unwrap()).unwrap();
        let need = Need::parse("reads 8k 150/s").unwrap();
        let limits = Limits { price_max: None, devices_max: 12 };
        let all = catalogue.candidates(&need, &limits).unwrap();
        let (mut rest, mut batches) = (all.as_slice(), 0);
        while let Some((batch, later)) = first_batch(rest) {
            assert!(later.first().is_none_or(|next| next.price > batch[batch.len() - 1].price));
            (rest, batches) = (later, batches + 1);
        }
        assert!(batches > 1);
        // In this list, some batches of 32 would end between configurations of the same price.
        let is_split = |end: usize| all.get(end).is_some_and(|one| one.price == all[end - 1].price);
        assert!((BATCH..all.len()).any(is_split));
    }

    #[test]
    fn the_same_question_has_the_same_answer() {
        let text = |answer: &Answer| -> Vec<String> {
            answer.choices.iter().map(|one| format!("{:?}", one)).collect()
        };
        let one = answer("reads 4k 2k/s; writes 64k 10MB/s", None).1;
        let two = answer("reads 4k 2k/s; writes 64k 10MB/s", None).1;
        assert_eq!(text(&one), text(&two));
        assert!(!one.choices.is_empty());
    }
}
