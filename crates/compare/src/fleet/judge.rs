//! Decides which hosts are odd, and which of their values are odd.
//!
//! Each value of a host has a p-value: the probability that the value of a host without a fault is
//! at least as far from the median of all hosts as this value. The p-value of a host is the
//! harmonic mean of the p-values of its values. It is corrected for the number of hosts
//! (false-discovery rate 5%), so that at most one in twenty odd hosts is expected to be a false
//! alarm. Hosts with unusual facts are more likely to be odd, so they get a higher weight in this
//! correction.
//!
//! The p-values of the values of an odd host are corrected for the number of values (family-wise
//! error rate). Otherwise, a host that is slower in many workloads could be reported as faster in
//! another workload by chance.

use std::collections::{BTreeMap, HashMap};

use analysis::comparison::{FALSE_DISCOVERIES, false_discovery_weighted, family_wise};
use analysis::fleet::{Standing, any_of, standings};
use analysis::quantile::{median, median_absolute_deviation};

use super::contents::{Contents, Measurement, Member};
use super::contrast::{Contrasted, Part, contrasts};
use super::document::{
    FleetContrast, FleetHost, FleetModel, FleetQuantity, FleetResult, FleetValue, FleetWorkload,
    Oddness,
};
use super::facts::Facts;
use super::present::{self, Moments, Present};
use crate::matching::Settings;

/// Minimum sum of the weights of the hosts with unusual facts. The weights are used in the
/// correction for false discoveries. The weights of all hosts add up to 1.
const UNUSUAL_SHARE: f64 = 0.25;
/// A tail latency is not odd if it exceeds the median of all hosts by at most this share.
const TAIL_TOLERATED: f64 = 0.25;
/// A scatter is not odd if it exceeds the median of all hosts by at most this share.
const SCATTER_TOLERATED: f64 = 1.0;

/// The median spread of all hosts is computed from the hosts that have at least this many runs.
const SPREAD_RUNS_MIN: usize = 3;

/// A workload and the hosts that measured it, as indices in [`Contents`].
#[derive(Clone, Debug)]
pub struct Origin {
    /// Index of the workload in [`Contents::workloads`].
    pub workload: usize,
    /// For each result, the index of its host in [`Contents::members`].
    pub members: Vec<usize>,
}

/// The verdicts on the hosts of a model, with the indices of their data in [`Contents`].
#[derive(Debug)]
pub struct Judged {
    /// The model with the verdicts on its hosts.
    pub model: FleetModel,
    /// The indices of each workload of the model.
    pub origins: Vec<Origin>,
    /// For each host of the model, its index in [`Contents::members`].
    pub members: Vec<usize>,
}

/// A value of a host, before it is decided whether the value is odd.
struct Value {
    quantity: FleetQuantity,
    value: f64,
    standing: Standing,
    since_unix_ns: Option<i64>,
}

/// The values of one host in a workload.
struct Entry {
    member: usize,
    runs: usize,
    error: f64,
    values: Vec<Value>,
}

/// The values of all hosts of a model in a workload.
struct Row {
    workload: usize,
    /// Scatter of the hosts' rates. None if too few hosts measured the workload.
    scatter: Option<f64>,
    tail_percentile: Option<f64>,
    entries: Vec<Entry>,
}

/// A model with the values of its hosts, before it is decided which hosts are odd.
struct Unjudged<'a> {
    members: Vec<usize>,
    rows: Vec<Row>,
    facts: Facts,
    contrasts: HashMap<usize, Vec<Contrasted>>,
    model: &'a str,
}

/// Decides which hosts are odd, and returns all models with their hosts. Rates that differ by at
/// most the share `tolerated` count as equal.
pub fn judged(contents: &Contents, tolerated: f64) -> Vec<Judged> {
    let unjudged = unjudged(contents);
    let mut p_values: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for model in &unjudged {
        model.each_p_value(|member, p_value| p_values.entry(member).or_default().push(p_value));
    }
    let mut unusual: HashMap<usize, bool> = HashMap::new();
    for model in &unjudged {
        let has = |(index, member): (usize, &usize)| (*member, model.facts.has_unusual(index));
        unusual.extend(model.members.iter().enumerate().map(has));
    }
    let of_hosts: Vec<f64> = p_values.values().map(|all| any_of(all)).collect();
    let unusual: Vec<bool> = p_values.keys().map(|member| unusual[member]).collect();
    let corrected = false_discovery_weighted(&of_hosts, &weights(&unusual));
    let named = |(member, all): (&usize, &Vec<f64>)| (*member, family_wise(all).into_iter());
    let mut verdicts = Verdicts {
        members: &contents.members,
        tolerated,
        named: p_values.iter().map(named).collect(),
        probabilities: p_values.keys().copied().zip(corrected).collect(),
    };
    unjudged.into_iter().map(|model| verdicts.model(contents, model)).collect()
}

/// Returns the weight of each host in the correction for false discoveries. Hosts with unusual
/// facts have a higher weight.
fn weights(unusual: &[bool]) -> Vec<f64> {
    let all = unusual.len() as f64;
    let with = unusual.iter().filter(|has| **has).count() as f64;
    // If more than a quarter of the hosts have unusual facts, these hosts get no higher weight than
    // the others.
    let share = if with > 0.0 { UNUSUAL_SHARE.max(with / all) } else { 0.0 };
    let weight = |has: &bool| {
        if *has { share / with } else { (1.0 - share) / (all - with) }
    };
    unusual.iter().map(weight).collect()
}

/// The index of each member that measured a workload, and its results in this workload.
type OfHosts<'a> = Vec<(usize, &'a [Measurement])>;

fn unjudged(contents: &Contents) -> Vec<Unjudged<'_>> {
    let mut of_models: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, member) in contents.members.iter().enumerate() {
        of_models.entry(&member.model).or_default().push(index);
    }
    let mut measured: BTreeMap<(&str, &Settings), (usize, OfHosts<'_>)> = BTreeMap::new();
    for ((workload, member), results) in &contents.measured {
        let model = contents.members[*member].model.as_str();
        let place = (model, &contents.workloads[*workload].settings);
        let of_workload = measured.entry(place).or_insert_with(|| (*workload, Vec::new()));
        of_workload.1.push((*member, results));
    }
    let moments = moments(contents);
    let mut rows: BTreeMap<&str, Vec<Row>> = BTreeMap::new();
    for ((model, _), (workload, hosts)) in measured {
        rows.entry(model).or_default().push(row(workload, &hosts, &moments));
    }
    let mut all = Vec::new();
    for (model, rows) in rows {
        let members = of_models.remove(model).unwrap_or_default();
        let of_members: Vec<&Member> = members.iter().map(|m| &contents.members[*m]).collect();
        let facts = Facts::of(&of_members);
        let contrasts = contrasts_of(contents, &members, &rows);
        all.push(Unjudged { members, rows, facts, contrasts, model });
    }
    all
}

/// For each member, finds when its mean rate, mean tail latency and mean scatter last changed. Each
/// mean covers all workloads of the member.
fn moments(contents: &Contents) -> HashMap<usize, Moments> {
    let mut of_members: BTreeMap<usize, Vec<&[Measurement]>> = BTreeMap::new();
    for ((_, member), results) in &contents.measured {
        of_members.entry(*member).or_default().push(results);
    }
    let mut of_models: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for member in of_members.keys() {
        of_models.entry(&contents.members[*member].model).or_default().push(*member);
    }
    let mut all = HashMap::new();
    for members in of_models.into_values() {
        let results = |member| of_members.remove(member).unwrap_or_default();
        let hosts: Vec<Vec<&[Measurement]>> = members.iter().map(results).collect();
        all.extend(members.into_iter().zip(Moments::of_hosts(&hosts)));
    }
    all
}

/// Compares the values of all hosts in a workload.
fn row(
    workload: usize,
    hosts: &[(usize, &[Measurement])],
    moments: &HashMap<usize, Moments>,
) -> Row {
    let of_member = |(member, _): &(usize, _)| moments.get(member).copied().unwrap_or_default();
    let moments: Vec<Moments> = hosts.iter().map(of_member).collect();
    let results: Vec<&[Measurement]> = hosts.iter().map(|(_, all)| *all).collect();
    let rates = present::rates(&results, &moments);
    let entry = |((member, _), rate): (&(usize, &[Measurement]), &Option<Present>)| Entry {
        member: *member,
        runs: rate.map_or(0, |rate| rate.runs),
        error: rate.map_or(0.0, |rate| rate.error),
        values: Vec::new(),
    };
    let mut entries: Vec<Entry> = hosts.iter().zip(&rates).map(entry).collect();
    let logs: Vec<f64> = rates.iter().flatten().map(|rate| rate.value.ln()).collect();
    let is_compared = compare(&mut entries, FleetQuantity::Rate, &rates);
    let which = usize::from(2 * with_tail(hosts, 1) >= hosts.len());
    let tails = present::tails(&results, &moments, which);
    let has_tail = compare(&mut entries, FleetQuantity::TailLatency, &tails);
    compare(&mut entries, FleetQuantity::Scatter, &present::scatters(&results, &moments));
    for (host, rate) in rates.iter().enumerate() {
        let Some(since) = rate.and_then(|rate| rate.since_unix_ns) else { continue };
        let Some(standing) = present::change(&results, host, since) else { continue };
        let (quantity, since_unix_ns) = (FleetQuantity::Change, Some(since));
        let value = standing.ratio.value;
        entries[host].values.push(Value { quantity, value, standing, since_unix_ns });
    }
    Row {
        workload,
        scatter: median_absolute_deviation(&logs).filter(|_| is_compared),
        tail_percentile: has_tail.then_some([99.0, 99.9][which]),
        entries,
    }
}

/// Returns the number of hosts with a tail latency in all of their runs. `which` selects p99 (0) or
/// p99.9 (1).
fn with_tail(hosts: &[(usize, &[Measurement])], which: usize) -> usize {
    let has = |all: &[Measurement]| all.iter().all(|result| result.tails_ns[which].is_some());
    hosts.iter().filter(|(_, all)| has(all)).count()
}

/// Adds the values of a quantity to the entries. Returns false if too few hosts have the quantity.
fn compare(entries: &mut [Entry], quantity: FleetQuantity, all: &[Option<Present>]) -> bool {
    let known: Vec<(usize, Present)> =
        all.iter().enumerate().filter_map(|(host, now)| Some((host, (*now)?))).collect();
    let values: Vec<f64> = known.iter().map(|(_, now)| now.value).collect();
    let errors = errors(&known);
    let Some(standings) = standings(&values, &errors, 1) else { return false };
    for ((host, now), standing) in known.into_iter().zip(standings) {
        let p_value = match quantity {
            FleetQuantity::Rate | FleetQuantity::Change => standing.p_value,
            // A low tail latency or scatter does not make a host odd, so the test is one-sided.
            _ if standing.ratio.value > 1.0 => standing.p_value / 2.0,
            _ => 1.0,
        };
        let (value, since_unix_ns) = (now.value, now.since_unix_ns);
        let standing = Standing { p_value, ..standing };
        entries[host].values.push(Value { quantity, value, standing, since_unix_ns });
    }
    true
}

/// Returns the standard error of the logarithm of each value. The spread of a host with few runs is
/// often too small by chance. Each error is therefore at least the error that follows from the
/// median spread of all hosts and the number of runs of the host.
fn errors(known: &[(usize, Present)]) -> Vec<f64> {
    let spreads = known.iter().filter(|(_, now)| now.runs >= SPREAD_RUNS_MIN);
    let spreads: Vec<f64> = spreads.map(|(_, now)| now.error * (now.runs as f64).sqrt()).collect();
    let usual = median(&spreads).unwrap_or(0.0);
    known.iter().map(|(_, now)| now.error.max(usual / (now.runs as f64).sqrt())).collect()
}

fn contrasts_of(
    contents: &Contents,
    members: &[usize],
    rows: &[Row],
) -> HashMap<usize, Vec<Contrasted>> {
    let mut parts: HashMap<usize, Vec<Part<'_>>> = HashMap::new();
    for row in rows {
        let Some(scatter) = row.scatter else { continue };
        let key = &contents.workloads[row.workload].key;
        for entry in &row.entries {
            let Some(rate) = entry.values.first() else { continue };
            let log = rate.standing.ratio.value.ln();
            let part = Part { key, log, error: entry.error, scatter };
            parts.entry(entry.member).or_default().push(part);
        }
    }
    let of_member = |member: &usize| parts.remove(member).unwrap_or_default();
    let of_members: Vec<Vec<Part<'_>>> = members.iter().map(of_member).collect();
    members.iter().copied().zip(contrasts(&of_members)).collect()
}

impl Unjudged<'_> {
    /// Calls the function `each` once for every value of every member. Its arguments are the index
    /// of the member and the p-value. The order of the values of a member is always the same.
    fn each_p_value(&self, mut each: impl FnMut(usize, f64)) {
        for entry in self.rows.iter().flat_map(|row| &row.entries) {
            entry.values.iter().for_each(|value| each(entry.member, value.standing.p_value));
        }
        for (member, contrasts) in &self.contrasts {
            contrasts.iter().for_each(|found| each(*member, found.standing.p_value));
        }
    }
}

/// The corrected p-values of all members, from which the verdicts are derived.
struct Verdicts<'a> {
    members: &'a [Member],
    tolerated: f64,
    /// The p-value of each host, corrected for the number of hosts.
    probabilities: HashMap<usize, f64>,
    /// The p-values of the values of each host, in the order of [`Unjudged::each_p_value`]. They
    /// are corrected for the number of values of the host.
    named: HashMap<usize, std::vec::IntoIter<f64>>,
}

/// Counts the workloads in which a member is odd, and records how it is odd.
#[derive(Default)]
struct Tally {
    workloads: usize,
    odd: usize,
    is_slower: bool,
    is_faster: bool,
    logs: f64,
    since_unix_ns: Option<i64>,
    contrasts: Vec<FleetContrast>,
}

impl Verdicts<'_> {
    /// Checks whether a member is odd in its next value. Must be called once for each value, in the
    /// order of [`Unjudged::each_p_value`].
    fn is_next_odd(&mut self, member: usize) -> bool {
        let named = self.named.get_mut(&member).and_then(Iterator::next);
        let is_odd = |p_value: &f64| *p_value <= FALSE_DISCOVERIES;
        self.probabilities.get(&member).is_some_and(is_odd) && named.as_ref().is_some_and(is_odd)
    }

    fn model(&mut self, contents: &Contents, unjudged: Unjudged<'_>) -> Judged {
        let mut tallies: HashMap<usize, Tally> = HashMap::new();
        let mut model = FleetModel {
            model: unjudged.model.to_owned(),
            hosts: Vec::new(),
            workloads: Vec::new(),
            too_few_hosts: Vec::new(),
            distinguishing: Vec::new(),
        };
        let mut origins = Vec::new();
        for row in unjudged.rows {
            let words = contents.workloads[row.workload].key.describe();
            if row.scatter.is_none() {
                model.too_few_hosts.push(words);
                continue;
            }
            let members = row.entries.iter().map(|entry| entry.member).collect();
            origins.push(Origin { workload: row.workload, members });
            model.workloads.push(self.workload(words, row, &mut tallies));
        }
        for (member, contrasts) in unjudged.contrasts {
            let tally = tallies.entry(member).or_default();
            for found in contrasts {
                let ratio = found.standing.ratio.value;
                if self.is_next_odd(member) && self.differs(FleetQuantity::Rate, ratio) {
                    tally.is_slower |= found.is_slower;
                    tally.is_faster |= !found.is_slower;
                    tally.contrasts.push(contrast(&found));
                }
            }
        }
        let mut hosts: Vec<(usize, FleetHost)> = unjudged
            .members
            .iter()
            .map(|member| (*member, self.host(*member, tallies.remove(member).unwrap_or_default())))
            .collect();
        let verdicts: Vec<Oddness> = hosts.iter().map(|(_, host)| host.verdict).collect();
        model.distinguishing = unjudged.facts.distinguishing(&verdicts);
        for (index, (_, host)) in hosts.iter_mut().enumerate() {
            if host.verdict.is_odd() {
                host.unusual = unjudged.facts.unusual(index);
            }
        }
        hosts.sort_by(|(_, a), (_, b)| {
            let by_ratio = a.ratio.unwrap_or(1.0).total_cmp(&b.ratio.unwrap_or(1.0));
            a.verdict.cmp(&b.verdict).then(b.odd.cmp(&a.odd)).then(by_ratio)
        });
        let (members, hosts) = hosts.into_iter().unzip();
        model.hosts = hosts;
        Judged { model, origins, members }
    }

    /// Checks whether a ratio differs from 1 by more than the tolerance. For tail latency and
    /// scatter, only an increase counts.
    fn differs(&self, quantity: FleetQuantity, ratio: f64) -> bool {
        let limit = match quantity {
            FleetQuantity::Rate | FleetQuantity::Change => self.tolerated,
            FleetQuantity::TailLatency => self.tolerated.max(TAIL_TOLERATED),
            FleetQuantity::Scatter => self.tolerated.max(SCATTER_TOLERATED),
        };
        let both = matches!(quantity, FleetQuantity::Rate | FleetQuantity::Change);
        ratio > 1.0 + limit || both && ratio < 1.0 / (1.0 + limit)
    }

    fn workload(
        &mut self,
        workload: String,
        row: Row,
        tallies: &mut HashMap<usize, Tally>,
    ) -> FleetWorkload {
        let mut hosts = Vec::new();
        let mut rates = Vec::new();
        for entry in row.entries {
            let member = &self.members[entry.member];
            let (host, target) = (member.host.clone(), member.target.clone());
            let mut values = Vec::new();
            for value in entry.values {
                let Standing { ratio, p_value } = value.standing;
                let is_odd = self.is_next_odd(entry.member);
                values.push(FleetValue {
                    quantity: value.quantity,
                    value: value.value,
                    ratio: ratio.value,
                    ratio_low: ratio.low,
                    ratio_high: ratio.high,
                    probability: p_value,
                    is_odd: is_odd && self.differs(value.quantity, ratio.value),
                    since_unix_ns: value.since_unix_ns,
                });
            }
            let result = FleetResult { host, target, runs: entry.runs, values };
            tallies.entry(entry.member).or_default().add(&result);
            rates.extend(result.value(FleetQuantity::Rate).map(|rate| rate.value));
            hosts.push(result);
        }
        FleetWorkload {
            workload,
            median_bytes_per_s: median(&rates).unwrap_or_default(),
            tail_percentile: row.tail_percentile,
            hosts,
        }
    }

    fn host(&self, member: usize, tally: Tally) -> FleetHost {
        let is_unsteady = tally.odd > 0;
        let verdict = match (tally.is_slower, tally.is_faster) {
            _ if tally.workloads == 0 => Oddness::NotCompared,
            (true, true) => Oddness::SlowerAndFaster,
            (true, false) => Oddness::Slower,
            (false, true) => Oddness::Faster,
            (false, false) if is_unsteady => Oddness::Unsteady,
            (false, false) => Oddness::Alike,
        };
        FleetHost {
            host: self.members[member].host.clone(),
            target: self.members[member].target.clone(),
            verdict,
            probability: self.probabilities.get(&member).copied(),
            workloads: tally.workloads,
            odd: tally.odd,
            ratio: (tally.workloads > 0).then(|| (tally.logs / tally.workloads as f64).exp()),
            since_unix_ns: tally.since_unix_ns,
            contrasts: tally.contrasts,
            ..FleetHost::default()
        }
    }
}

impl Tally {
    fn add(&mut self, result: &FleetResult) {
        self.workloads += 1;
        self.odd += usize::from(result.is_odd());
        self.logs += result.value(FleetQuantity::Rate).map_or(0.0, |rate| rate.ratio.ln());
        for value in result.values.iter().filter(|value| value.is_odd) {
            if matches!(value.quantity, FleetQuantity::Rate | FleetQuantity::Change) {
                self.is_slower |= value.ratio < 1.0;
                self.is_faster |= value.ratio > 1.0;
            }
            self.since_unix_ns = match (self.since_unix_ns, value.since_unix_ns) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (one, other) => one.or(other),
            };
        }
    }
}

fn contrast(found: &Contrasted) -> FleetContrast {
    let Standing { ratio, p_value } = found.standing;
    FleetContrast {
        contrast: found.contrast,
        ratio: ratio.value,
        ratio_low: ratio.low,
        ratio_high: ratio.high,
        probability: p_value,
    }
}
