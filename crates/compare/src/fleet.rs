//! Which hosts of a fleet are odd, in what, since when, and what distinguishes them.
//!
//! A host is compared with the other hosts that have a target of the same model, workload by
//! workload. Its rate is that of its runs since its last change (see [`crate::history`]). Odd is
//! what differs from the median of the hosts by more than is tolerated, and by more than chance
//! explains after correction for all hosts and workloads (false-discovery rate 5%).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use analysis::comparison::{FALSE_DISCOVERIES, false_discovery};
use analysis::fleet::{HOSTS_MIN, Standing, chance_of_association, standings};
use analysis::quantile::median;
use analysis::units;
use lab::failure::{Failure, Outcome};
use lab::json::Program;
use lab::point::State;
use results::Store;
use schemars::JsonSchema;
use serde::Serialize;

use crate::history::{self, PastResult};
use crate::matching::Settings;
use crate::side::RunFacts;

/// Half-width of a 95% interval in standard errors.
const ERRORS_OF_HALF_WIDTH: f64 = 1.96;
/// Maximum share of the other hosts that may have a fact by which odd hosts are told apart.
const OTHERS_MAX: f64 = 0.1;
/// Maximum number of facts that are named for the odd hosts of a model.
const FACTS_MAX: usize = 5;
/// Workloads that are named for an odd host on the terminal.
const WORKLOADS_SHOWN: usize = 3;

/// What is compared.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// The databases.
    pub databases: Vec<PathBuf>,
    /// Words that the description of a workload must contain.
    pub words: Vec<String>,
    /// Differences up to this share are no difference.
    pub tolerated: f64,
}

/// The output of `fleet --json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FleetDocument {
    /// The program.
    pub halfpower: Program,
    /// The databases.
    pub databases: Vec<String>,
    /// Differences up to this share are no difference.
    pub tolerated: f64,
    /// Number of results (a workload in a run) that were compared.
    pub results: usize,
    /// Number of these that are suspect.
    pub suspect: usize,
    /// Number of results that were left out because they are invalid.
    pub invalid: usize,
    /// The models, that with the most hosts first.
    pub models: Vec<FleetModel>,
}

/// All hosts with a target of one model.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FleetModel {
    /// The model.
    pub model: String,
    /// The hosts, the oddest first.
    pub hosts: Vec<FleetHost>,
    /// The workloads that at least five hosts measured.
    pub workloads: Vec<FleetWorkload>,
    /// Workloads that fewer hosts measured, so that they are not compared.
    pub too_few_hosts: Vec<String>,
    /// What the odd hosts have in common and few others have.
    pub distinguishing: Vec<Distinguishing>,
}

/// A host with a target.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FleetHost {
    /// Name of the host.
    pub host: String,
    /// The target on it: device and file system, or simulated system.
    pub target: String,
    /// Whether it is odd.
    pub verdict: Oddness,
    /// Number of workloads in which it is compared.
    pub workloads: usize,
    /// Number of workloads in which it is odd.
    pub odd: usize,
    /// Geometric mean of its ratios to the medians; null if none is compared.
    pub ratio: Option<f64>,
    /// Start of the first run of its present rate (ns since 1970), the earliest of all workloads in
    /// which it is odd; null if it has had this rate since its first run.
    pub since_unix_ns: Option<i64>,
}

/// Whether a host is odd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Oddness {
    /// Slower than the median in at least one workload, and not faster in any.
    Slower,
    /// Slower in some workloads and faster in others.
    SlowerAndFaster,
    /// Faster than the median in at least one workload, and not slower in any.
    Faster,
    /// Like the others.
    Alike,
    /// No workload of it was measured on enough hosts.
    NotCompared,
}

impl Oddness {
    fn of(slower: usize, faster: usize, compared: usize) -> Oddness {
        match (slower, faster) {
            (0, 0) if compared == 0 => Oddness::NotCompared,
            (0, 0) => Oddness::Alike,
            (_, 0) => Oddness::Slower,
            (0, _) => Oddness::Faster,
            _ => Oddness::SlowerAndFaster,
        }
    }

    /// Whether the host is odd.
    pub fn is_odd(self) -> bool {
        matches!(self, Oddness::Slower | Oddness::Faster | Oddness::SlowerAndFaster)
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Oddness::Slower => "slower",
            Oddness::SlowerAndFaster => "slower and faster",
            Oddness::Faster => "faster",
            Oddness::Alike => "like the others",
            Oddness::NotCompared => "not compared",
        }
    }
}

/// A workload on all hosts of a model.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FleetWorkload {
    /// The workload in words.
    pub workload: String,
    /// Median rate of the hosts (bytes per second).
    pub median_bytes_per_s: f64,
    /// The hosts that measured it.
    pub hosts: Vec<FleetResult>,
}

/// A workload on one host.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FleetResult {
    /// Name of the host.
    pub host: String,
    /// The target on it.
    pub target: String,
    /// Rate of its runs since its last change (bytes per second): their median.
    pub bytes_per_s: f64,
    /// The number of these runs.
    pub runs: usize,
    /// Rate divided by the median of all hosts.
    pub ratio: f64,
    /// Lower bound of the ratio (95%).
    pub ratio_low: f64,
    /// Upper bound of the ratio (95%).
    pub ratio_high: f64,
    /// Probability that a host like the others is as far from the median, after correction for all
    /// hosts and workloads.
    pub probability: f64,
    /// Whether the host is odd in this workload.
    pub is_odd: bool,
    /// Start of the first run since its last change (ns since 1970); null if it never changed.
    pub since_unix_ns: Option<i64>,
}

/// A fact that odd hosts have and few others.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Distinguishing {
    /// Which odd hosts: slower, faster, or slower and faster.
    pub hosts: Oddness,
    /// Name of the fact.
    pub fact: String,
    /// Its value.
    pub value: String,
    /// Number of these odd hosts with the value.
    pub odd_with: usize,
    /// Number of these odd hosts.
    pub odd: usize,
    /// Number of other hosts with the value.
    pub others_with: usize,
    /// Number of other hosts.
    pub others: usize,
    /// Probability that chance explains this, for this fact alone.
    pub probability: f64,
}

/// A host with a target, and its results so far.
struct Member {
    host: String,
    target: String,
    model: String,
    /// Facts of its newest run.
    facts: Vec<(String, String)>,
    newest_unix_ns: i64,
}

/// A workload on one model: its description, and the results of each member, the oldest first.
type Measured = BTreeMap<(String, Settings), (String, BTreeMap<usize, Vec<PastResult>>)>;

/// What the databases contain.
#[derive(Default)]
struct Contents {
    /// Identifiers of the runs that were read.
    seen: HashSet<String>,
    members: Vec<Member>,
    measured: Measured,
    results: usize,
    suspect: usize,
    invalid: usize,
}

/// Compares the hosts of a fleet.
///
/// # Errors
/// A database that cannot be read, or nothing to compare.
pub fn load(question: &Question) -> Outcome<FleetDocument> {
    let mut contents = Contents::default();
    for path in &question.databases {
        contents.read(path, &question.words)?;
    }
    let Contents { members, measured, results, suspect, invalid, .. } = contents;
    if measured.is_empty() {
        let words = question.words.join(" ");
        return Err(Failure::failed(match words.as_str() {
            "" => "the databases have no usable result; run halfpower survey on each host".into(),
            _ => format!("no workload contains '{words}'; leave out some of these words"),
        }));
    }
    let mut models = compared(&members, measured, question.tolerated);
    models.sort_by_key(|model| std::cmp::Reverse(model.hosts.len()));
    Ok(FleetDocument {
        halfpower: Program::this(),
        databases: question.databases.iter().map(|path| path.display().to_string()).collect(),
        tolerated: question.tolerated,
        results,
        suspect,
        invalid,
        models,
    })
}

impl Contents {
    /// Adds the runs of a database, except those that an earlier database had.
    fn read(&mut self, path: &Path, words: &[String]) -> Outcome<()> {
        let store = Store::open_read_only(path)?;
        let _snapshot = store.snapshot()?;
        let mut rows = store.runs()?;
        rows.retain(|row| self.seen.insert(row.uuid.clone()));
        rows.sort_by_key(|row| (row.started_unix_ns, row.id));
        let runs: Vec<RunFacts> = rows.into_iter().map(RunFacts::of).collect();
        let of_runs: Vec<usize> =
            runs.iter().map(|run| member_of(&mut self.members, run)).collect();
        for series in history::all_series(&store, &runs, words)? {
            for (run, result) in series.results {
                // An invalid result is not of this workload, so it says nothing about the host.
                if result.verdict == State::Invalid.word() {
                    self.invalid += 1;
                    continue;
                }
                self.results += 1;
                self.suspect += usize::from(result.verdict == State::Suspect.word());
                let member = of_runs[run];
                let place = (self.members[member].model.clone(), series.settings.clone());
                let (_, results) = self
                    .measured
                    .entry(place)
                    .or_insert_with(|| (series.workload.clone(), BTreeMap::new()));
                results.entry(member).or_default().push(result);
            }
        }
        Ok(())
    }
}

/// Doubts about the results in one sentence each.
pub fn doubts(fleet: &FleetDocument) -> Vec<String> {
    let mut doubts = Vec::new();
    if fleet.suspect > 0 {
        let (suspect, all) = (fleet.suspect, units::counted(fleet.results as u64, "result"));
        doubts.push(format!(
            "{suspect} of {all} are suspect (halfpower runs show names the reasons)"
        ));
    }
    if fleet.invalid > 0 {
        let invalid = units::counted(fleet.invalid as u64, "invalid result");
        doubts.push(format!("{invalid} left out"));
    }
    doubts
}

/// The index of the member to which a run belongs.
fn member_of(members: &mut Vec<Member>, run: &RunFacts) -> usize {
    let (host, target) = (run.host.name.clone(), run.target_identity());
    let known = members.iter().position(|m| m.host == host && m.target == target);
    let index = known.unwrap_or(members.len());
    if known.is_none() {
        let (model, facts) = (run.model(), Vec::new());
        members.push(Member { host, target, model, facts, newest_unix_ns: i64::MIN });
    }
    let member = &mut members[index];
    if run.started_unix_ns >= member.newest_unix_ns {
        member.newest_unix_ns = run.started_unix_ns;
        member.facts = run.named();
    }
    index
}

/// The present rate of a member in a workload.
struct Present {
    bytes_per_s: f64,
    /// Standard error of its logarithm.
    error: f64,
    runs: usize,
    since_unix_ns: Option<i64>,
}

/// The rate of the runs since the last change.
fn present(results: &mut [PastResult]) -> Option<Present> {
    results.sort_by_key(|result| result.started_unix_ns);
    let rates: Vec<f64> = results.iter().map(|result| result.bytes_per_s).collect();
    let change = history::moments(&rates).last().map(|(place, _)| *place);
    let now = &results[change.unwrap_or(0)..];
    let rates = &rates[change.unwrap_or(0)..];
    let bytes_per_s = median(rates)?;
    let logs: Vec<f64> = rates.iter().map(|rate| rate.ln()).collect();
    let error = if let [only] = now {
        (only.bytes_per_s_high / only.bytes_per_s_low).ln() / (2.0 * ERRORS_OF_HALF_WIDTH)
    } else {
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        (squares / (logs.len() - 1) as f64 / logs.len() as f64).sqrt()
    };
    let error = if error.is_finite() { error } else { 0.0 };
    let since_unix_ns = change.map(|place| results[place].started_unix_ns);
    Some(Present { bytes_per_s, error, runs: now.len(), since_unix_ns })
}

/// A workload with the members that measured it, and where each stands; no standings if there are
/// too few.
struct Row {
    model: String,
    workload: String,
    members: Vec<(usize, Present)>,
    standings: Option<Vec<Standing>>,
}

fn compared(members: &[Member], measured: Measured, tolerated: f64) -> Vec<FleetModel> {
    let row = |((model, _), (workload, results)): ((String, Settings), (String, _))| {
        let results: BTreeMap<usize, Vec<PastResult>> = results;
        let of_member = |(member, mut results): (usize, Vec<PastResult>)| {
            present(&mut results).filter(|now| now.bytes_per_s > 0.0).map(|now| (member, now))
        };
        let of_members: Vec<(usize, Present)> = results.into_iter().filter_map(of_member).collect();
        let values: Vec<f64> = of_members.iter().map(|(_, now)| now.bytes_per_s).collect();
        let errors: Vec<f64> = of_members.iter().map(|(_, now)| now.error).collect();
        let standings = standings(&values, &errors);
        Row { model, workload, members: of_members, standings }
    };
    let rows: Vec<Row> = measured.into_iter().map(row).collect();
    let p_values: Vec<f64> =
        rows.iter().flat_map(|row| row.standings.iter().flatten()).map(|s| s.p_value).collect();
    let mut corrected = false_discovery(&p_values).into_iter();
    let mut models: BTreeMap<String, FleetModel> = BTreeMap::new();
    for row in rows {
        let model = models.entry(row.model.clone()).or_insert_with(|| FleetModel {
            model: row.model.clone(),
            hosts: Vec::new(),
            workloads: Vec::new(),
            too_few_hosts: Vec::new(),
            distinguishing: Vec::new(),
        });
        match &row.standings {
            Some(standings) => {
                let workload = workload(members, &row, standings, &mut corrected, tolerated);
                model.workloads.push(workload);
            }
            None => model.too_few_hosts.push(row.workload),
        }
    }
    for model in models.values_mut() {
        let of_model: Vec<&Member> = members.iter().filter(|m| m.model == model.model).collect();
        model.hosts = of_model.iter().map(|member| host(member, &model.workloads)).collect();
        let of_host: Vec<(&Member, Oddness)> =
            of_model.iter().copied().zip(model.hosts.iter().map(|host| host.verdict)).collect();
        model.distinguishing = distinguishing(&of_host);
        model.hosts.sort_by(|a, b| {
            let by_ratio = a.ratio.unwrap_or(1.0).total_cmp(&b.ratio.unwrap_or(1.0));
            a.verdict.cmp(&b.verdict).then(b.odd.cmp(&a.odd)).then(by_ratio)
        });
    }
    models.into_values().collect()
}

fn workload(
    members: &[Member],
    row: &Row,
    standings: &[Standing],
    corrected: &mut impl Iterator<Item = f64>,
    tolerated: f64,
) -> FleetWorkload {
    let rates: Vec<f64> = row.members.iter().map(|(_, now)| now.bytes_per_s).collect();
    let hosts = row.members.iter().zip(standings).map(|((member, now), standing)| {
        let (ratio, probability) = (standing.ratio, corrected.next().unwrap_or(1.0));
        let differs = ratio.value > 1.0 + tolerated || ratio.value < 1.0 / (1.0 + tolerated);
        FleetResult {
            host: members[*member].host.clone(),
            target: members[*member].target.clone(),
            bytes_per_s: now.bytes_per_s,
            runs: now.runs,
            ratio: ratio.value,
            ratio_low: ratio.low,
            ratio_high: ratio.high,
            probability,
            is_odd: differs && probability <= FALSE_DISCOVERIES,
            since_unix_ns: now.since_unix_ns,
        }
    });
    FleetWorkload {
        workload: row.workload.clone(),
        hosts: hosts.collect(),
        median_bytes_per_s: median(&rates).unwrap_or_default(),
    }
}

fn host(member: &Member, workloads: &[FleetWorkload]) -> FleetHost {
    let of_host = |workload| result_of(workload, &member.host, &member.target);
    let results: Vec<&FleetResult> = workloads.iter().filter_map(of_host).collect();
    let odd = || results.iter().filter(|result| result.is_odd);
    let slower = odd().filter(|result| result.ratio < 1.0).count();
    let logs = results.iter().map(|result| result.ratio.ln());
    let mean = logs.sum::<f64>() / results.len() as f64;
    FleetHost {
        host: member.host.clone(),
        target: member.target.clone(),
        verdict: Oddness::of(slower, odd().count() - slower, results.len()),
        workloads: results.len(),
        odd: odd().count(),
        ratio: (!results.is_empty()).then(|| mean.exp()),
        since_unix_ns: odd().filter_map(|result| result.since_unix_ns).min(),
    }
}

/// The result of a host in a workload.
pub fn result_of<'a>(
    workload: &'a FleetWorkload,
    host: &str,
    target: &str,
) -> Option<&'a FleetResult> {
    workload.hosts.iter().find(|result| result.host == host && result.target == target)
}

/// The facts that most odd hosts and few others have, the least probable first.
fn distinguishing(hosts: &[(&Member, Oddness)]) -> Vec<Distinguishing> {
    let mut values: BTreeMap<(&str, &str), BTreeSet<usize>> = BTreeMap::new();
    let mut of_name: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (index, (member, _)) in hosts.iter().enumerate() {
        for (name, value) in &member.facts {
            values.entry((name, value)).or_default().insert(index);
            of_name.entry(name).or_default().insert(value);
        }
    }
    // A fact with another value on most hosts, such as a serial number, explains nothing.
    values.retain(|(name, _), with| {
        2 * of_name[name].len() <= hosts.len().max(4) && with.len() < hosts.len()
    });
    let tried = values.len() as f64;
    let mut found = Vec::new();
    for kind in [Oddness::Slower, Oddness::SlowerAndFaster, Oddness::Faster] {
        let is_of_kind = |index: &&usize| hosts[**index].1 == kind;
        let odd = hosts.iter().filter(|(_, verdict)| *verdict == kind).count();
        let others = hosts.len() - odd;
        let mut of_kind: Vec<Distinguishing> = values
            .iter()
            .map(|((fact, value), with)| {
                let odd_with = with.iter().filter(is_of_kind).count();
                let counts = [odd_with, odd, with.len(), hosts.len()].map(|count| count as u64);
                Distinguishing {
                    hosts: kind,
                    fact: (*fact).to_owned(),
                    value: (*value).to_owned(),
                    odd_with,
                    odd,
                    others_with: with.len() - odd_with,
                    others,
                    probability: chance_of_association(counts[0], counts[1], counts[2], counts[3]),
                }
            })
            .filter(|it| {
                let is_rare_elsewhere = it.others_with as f64 <= OTHERS_MAX * it.others as f64;
                let is_no_chance = it.probability * tried <= FALSE_DISCOVERIES;
                it.odd_with > 0 && (is_no_chance || it.odd_with == odd && is_rare_elsewhere)
            })
            .collect();
        of_kind.sort_by(|a, b| a.probability.total_cmp(&b.probability));
        of_kind.truncate(FACTS_MAX);
        found.extend(of_kind);
    }
    found
}

/// The answer as lines for the terminal.
pub fn lines(fleet: &FleetDocument) -> Vec<String> {
    let mut lines = Vec::new();
    for model in &fleet.models {
        let count = |number: usize, what: &str| units::counted(number as u64, what);
        let odd = model.hosts.iter().filter(|host| host.verdict.is_odd()).count();
        let hosts = count(model.hosts.len(), "host");
        let workloads = count(model.workloads.len(), "workload");
        if !lines.is_empty() {
            lines.push(String::new());
        }
        if model.workloads.is_empty() {
            lines.push(format!(
                "{}: {hosts}; a comparison needs {HOSTS_MIN} hosts that measured the same workload",
                model.model
            ));
            continue;
        }
        lines.push(format!("{}: {odd} of {hosts} odd in {workloads}", model.model));
        for host in model.hosts.iter().filter(|host| host.verdict.is_odd()) {
            lines.extend(host_lines(host, model));
        }
        lines.extend(model.distinguishing.iter().map(fact_line));
        if !model.too_few_hosts.is_empty() {
            let left_out = count(model.too_few_hosts.len(), "workload");
            lines.push(format!("  {left_out} on fewer than {HOSTS_MIN} hosts: not compared"));
        }
    }
    lines.extend(doubts(fleet));
    lines
}

fn host_lines(host: &FleetHost, model: &FleetModel) -> Vec<String> {
    let since = host.since_unix_ns.map(|at| format!(", since {} UTC", lab::date::utc(at)));
    let mut lines = vec![format!(
        "  {} ({}): {} in {} of {}{}",
        host.host,
        host.target,
        host.verdict.words(),
        host.odd,
        units::counted(host.workloads as u64, "workload"),
        since.unwrap_or_default()
    )];
    let mut odd: Vec<(&str, &FleetResult)> = model
        .workloads
        .iter()
        .filter_map(|of| Some((of.workload.as_str(), result_of(of, &host.host, &host.target)?)))
        .filter(|(_, result)| result.is_odd)
        .collect();
    odd.sort_by(|(_, a), (_, b)| b.ratio.ln().abs().total_cmp(&a.ratio.ln().abs()));
    lines.extend(odd.iter().take(WORKLOADS_SHOWN).map(|(workload, result)| {
        format!(
            "    {workload}: {:.2} times the median ({:.2} to {:.2}), {}",
            result.ratio,
            result.ratio_low,
            result.ratio_high,
            units::rate_mib(result.bytes_per_s)
        )
    }));
    if odd.len() > WORKLOADS_SHOWN {
        lines.push(format!("    and {} more", odd.len() - WORKLOADS_SHOWN));
    }
    lines
}

/// A fact in one line.
pub fn fact_line(it: &Distinguishing) -> String {
    format!(
        "  {} of {} {} hosts have {} = {}, and {} of the {} others (by chance: {:.2}%)",
        it.odd_with,
        it.odd,
        it.hosts.words(),
        it.fact,
        it.value,
        it.others_with,
        it.others,
        100.0 * it.probability
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds in a day (ns).
    const DAY_NS: i64 = 86_400_000_000_000;

    fn result(day: i64, bytes_per_s: f64) -> PastResult {
        PastResult {
            run: day,
            started_unix_ns: day * DAY_NS,
            bytes_per_s,
            bytes_per_s_low: bytes_per_s * 0.99,
            bytes_per_s_high: bytes_per_s * 1.01,
            verdict: "valid",
        }
    }

    /// Rates around a mean that differ by up to 1% in an order that depends on `host`.
    fn around(mean: f64, host: usize, day: i64) -> f64 {
        mean * (1.0 + ((host as f64 * 7.0 + day as f64 * 3.0) % 11.0 - 5.0) / 500.0)
    }

    /// Twenty hosts, each measured on eight days. `rate` gives the rate of a host on a day.
    fn fleet(
        rate: impl Fn(usize, i64) -> f64,
        firmware: impl Fn(usize) -> &'static str,
    ) -> FleetModel {
        let member = |host: usize| Member {
            host: format!("host{host}"),
            target: "xfs on nvme0n1".to_owned(),
            model: "X".to_owned(),
            facts: vec![
                ("target device firmware".to_owned(), firmware(host).to_owned()),
                ("target device serial".to_owned(), format!("S{host}")),
                ("host kernel".to_owned(), "6.1".to_owned()),
            ],
            newest_unix_ns: 0,
        };
        let members: Vec<Member> = (0..20).map(member).collect();
        let of_host = |host| (1..=8).map(|day| result(day, rate(host, day))).collect();
        let results = (0..20).map(|host| (host, of_host(host))).collect();
        let place = ("X".to_owned(), Settings::new());
        let measured = Measured::from([(place, ("read 4 KiB".to_owned(), results))]);
        compared(&members, measured, 0.05).remove(0)
    }

    #[test]
    fn hosts_that_became_slower_are_named_with_the_day_and_their_firmware() {
        let is_odd = |host: usize| host == 3 || host == 11;
        let model = fleet(
            |host, day| around(if is_odd(host) && day >= 5 { 7e8 } else { 1e9 }, host, day),
            |host| if is_odd(host) { "2.0" } else { "1.0" },
        );
        let odd: Vec<(&str, Oddness, Option<i64>)> = model
            .hosts
            .iter()
            .filter(|host| host.verdict.is_odd())
            .map(|host| (host.host.as_str(), host.verdict, host.since_unix_ns))
            .collect();
        let since = Some(5 * DAY_NS);
        assert_eq!(odd, [("host3", Oddness::Slower, since), ("host11", Oddness::Slower, since)]);
        let [fact] = model.distinguishing.as_slice() else { panic!("{:?}", model.distinguishing) };
        assert_eq!((fact.fact.as_str(), fact.value.as_str()), ("target device firmware", "2.0"));
        assert_eq!((fact.odd_with, fact.odd, fact.others_with, fact.others), (2, 2, 0, 18));
        let text = lines(&document(model)).join("\n");
        assert!(text.contains("2 of 20 hosts odd in 1 workload"), "{text}");
        assert!(
            text.contains("host3 (xfs on nvme0n1): slower in 1 of 1 workload, since"),
            "{text}"
        );
        assert!(text.contains("3 of 160 results are suspect"), "{text}");
        assert!(text.contains("2 of 2 slower hosts have target device firmware = 2.0"), "{text}");
    }

    #[test]
    fn hosts_that_differ_by_less_than_is_tolerated_are_alike() {
        let rate = |host, day| around(if host == 3 { 0.97e9 } else { 1e9 }, host, day);
        let model = fleet(rate, |_| "1.0");
        assert!(model.hosts.iter().all(|host| host.verdict == Oddness::Alike));
        assert!(model.distinguishing.is_empty());
    }

    #[test]
    fn a_host_that_is_slow_since_its_first_run_has_no_day() {
        let rate = |host, day| around(if host == 0 { 2e9 } else { 1e9 }, host, day);
        let model = fleet(rate, |_| "1.0");
        let first = &model.hosts[0];
        assert_eq!((first.host.as_str(), first.verdict), ("host0", Oddness::Faster));
        assert_eq!((first.odd, first.since_unix_ns), (1, None));
        assert!((first.ratio.unwrap() - 2.0).abs() < 0.05);
    }

    #[test]
    fn a_single_run_counts_with_the_interval_of_its_trials() {
        let mut one = [result(1, 1e9)];
        let now = present(&mut one).unwrap();
        assert!((now.error - 0.0051).abs() < 1e-4, "{}", now.error);
        assert_eq!((now.runs, now.since_unix_ns), (1, None));
    }

    fn document(model: FleetModel) -> FleetDocument {
        FleetDocument {
            halfpower: Program::this(),
            databases: vec!["a.db".to_owned()],
            tolerated: 0.05,
            results: 160,
            suspect: 3,
            invalid: 0,
            models: vec![model],
        }
    }
}
