//! Collects evidence about odd hosts: bimodal workloads (with fast and slow trials), reasons for
//! suspect results that few other hosts have, and facts that changed when the host became odd. The
//! trials of these hosts are read again, because they were not kept in memory.

use std::collections::{BTreeMap, HashMap};

use analysis::levels::two_levels;
use lab::failure::Outcome;
use lab::point::Trial;
use lab::recorder::RatesReader;
use results::{RunId, Store};

use super::contents::{Contents, Run, words_of};
use super::document::{
    ChangedFact, FleetDoubt, FleetHost, FleetLevels, FleetModel, FleetQuantity, FleetResult,
};
use super::judge::{Judged, Origin};
use crate::matching;
use crate::side::{self, RunFacts, Side};

/// Maximum number of odd hosts for which evidence is collected.
const HOSTS_MAX: usize = 300;
/// A doubt is rare if at most this share of the other hosts has it.
const OTHERS_MAX: f64 = 0.1;

/// Adds the evidence to at most `HOSTS_MAX` odd hosts.
///
/// # Errors
/// A database cannot be read.
pub fn add(contents: &Contents, judged: &mut [Judged]) -> Outcome<()> {
    let mut runs: HashMap<usize, Vec<Run>> = HashMap::new();
    for run in &contents.runs {
        runs.entry(run.member).or_default().push(*run);
    }
    let doubts = Doubts::of(contents);
    let mut left = HOSTS_MAX;
    for Judged { model, origins, members } in judged {
        let odd = model.hosts.iter().enumerate().filter(|(_, host)| host.verdict.is_odd());
        let odd: Vec<usize> = odd.map(|(index, _)| index).take(left).collect();
        left -= odd.len();
        for index in odd {
            let mut runs = runs.get(&members[index]).cloned().unwrap_or_default();
            runs.sort_by_key(|run| (run.started_unix_ns, run.id));
            let of_host = OfHost { contents, member: members[index], runs };
            let mut host = std::mem::take(&mut model.hosts[index]);
            host.changed = of_host.changed(host.since_unix_ns)?;
            for (place, origin) in origins.iter().enumerate() {
                of_host.add_workload(&mut host, model, (place, origin), &doubts)?;
            }
            model.hosts[index] = host;
        }
    }
    Ok(())
}

/// The runs with suspect results, for each host.
struct Doubts {
    /// Start times of the runs with a suspect result (ns since 1970). The outer key is the workload
    /// and the reason, and the inner key is the member.
    runs_with: HashMap<(usize, usize), BTreeMap<usize, Vec<i64>>>,
}

struct RareDoubt {
    reason: usize,
    runs_with: usize,
    runs: usize,
    others_with: usize,
}

impl Doubts {
    fn of(contents: &Contents) -> Doubts {
        let mut runs_with: HashMap<(usize, usize), BTreeMap<usize, Vec<i64>>> = HashMap::new();
        for doubt in &contents.doubts {
            let of_reason = runs_with.entry((doubt.workload, doubt.reason)).or_default();
            of_reason.entry(doubt.member).or_default().push(doubt.started_unix_ns);
        }
        Doubts { runs_with }
    }

    /// Returns the doubts that are common on a host and rare on other hosts. A doubt is common on a
    /// host if at least half of the host's runs have it. A doubt is rare if it is common on at most
    /// a tenth of the other hosts. Runs of the host before `since` are ignored.
    fn rare(
        &self,
        contents: &Contents,
        origin: &Origin,
        host: usize,
        since: i64,
    ) -> Vec<RareDoubt> {
        let runs = |member: usize, since: i64| {
            let all = contents.measured.get(&(origin.workload, member));
            all.map_or(0, |all| all.iter().filter(|run| run.started_unix_ns >= since).count())
        };
        let mut found = Vec::new();
        for ((_, reason), with) in self.runs_with.iter().filter(|(k, _)| k.0 == origin.workload) {
            let runs_with = |member: usize, since: i64| {
                with.get(&member)
                    .map_or(0, |starts| starts.iter().filter(|at| **at >= since).count())
            };
            let is_common = |member: usize, since: i64| {
                let with = runs_with(member, since);
                with > 0 && 2 * with >= runs(member, since)
            };
            let others = origin.members.iter().filter(|member| **member != host);
            let others_with = others.filter(|member| is_common(**member, i64::MIN)).count();
            let is_rare = others_with as f64 <= OTHERS_MAX * (origin.members.len() - 1) as f64;
            if is_rare && is_common(host, since) {
                let (runs_with, runs) = (runs_with(host, since), runs(host, since));
                found.push(RareDoubt { reason: *reason, runs_with, runs, others_with });
            }
        }
        found.sort_unstable_by_key(|doubt| doubt.reason);
        found
    }
}

/// An odd host with its runs.
struct OfHost<'a> {
    contents: &'a Contents,
    member: usize,
    /// Runs of the host, the oldest first.
    runs: Vec<Run>,
}

impl OfHost<'_> {
    /// Returns the facts that changed in the run that began at `since_unix_ns`.
    fn changed(&self, since_unix_ns: Option<i64>) -> Outcome<Vec<ChangedFact>> {
        let since = since_unix_ns.unwrap_or(i64::MIN);
        let first = self.runs.iter().position(|run| run.started_unix_ns == since);
        let Some(first) = first.filter(|first| *first > 0) else { return Ok(Vec::new()) };
        let facts = |run: &Run| -> Outcome<Side> {
            let store = Store::open_read_only(&self.contents.databases[run.database])?;
            Ok(Side::of_runs(vec![RunFacts::of(store.run(&run.id.to_string())?)]))
        };
        let (before, after) = (facts(&self.runs[first - 1])?, facts(&self.runs[first])?);
        let differences = side::differences(&before, &after).into_iter();
        Ok(differences.map(|(fact, before, after)| ChangedFact { fact, before, after }).collect())
    }

    /// Adds the evidence from one workload. Does nothing if the host is not odd in this workload.
    fn add_workload(
        &self,
        host: &mut FleetHost,
        model: &FleetModel,
        (place, origin): (usize, &Origin),
        doubts: &Doubts,
    ) -> Outcome<()> {
        let workload = &model.workloads[place];
        let index = origin.members.iter().position(|member| *member == self.member);
        let Some(result) = index.map(|index| &workload.hosts[index]) else { return Ok(()) };
        if !result.is_odd() {
            return Ok(());
        }
        let odd = result.values.iter().filter(|value| value.is_odd);
        let since = odd.filter_map(|value| value.since_unix_ns).min().unwrap_or(i64::MIN);
        let rare = doubts.rare(self.contents, origin, self.member, since);
        let scatter = result.value(FleetQuantity::Scatter).filter(|value| value.is_odd);
        if rare.is_empty() && scatter.is_none() {
            return Ok(());
        }
        let trials = self.trials(origin.workload)?;
        let words = workload.workload.clone();
        host.levels.extend(scatter.and_then(|_| levels(words.clone(), &trials, result)));
        for RareDoubt { reason, runs_with, runs, others_with } in rare {
            let text = &self.contents.reasons[reason];
            let mut all = trials.iter().rev().flat_map(|trial| &trial.verdict.reasons);
            // The stored reason has no numbers. If the reason comes from a trial, the text with the
            // numbers is shown instead.
            let reason = all.find(|reason| words_of(reason) == *text).unwrap_or(text).clone();
            let (workload, others) = (words.clone(), origin.members.len() - 1);
            host.doubts.push(FleetDoubt { workload, reason, runs_with, runs, others_with, others });
        }
        Ok(())
    }

    /// Reads the trials of a workload that ran without a soaker, the oldest first.
    fn trials(&self, workload: usize) -> Outcome<Vec<Trial>> {
        let settings = &self.contents.workloads[workload].settings;
        let mut all = Vec::new();
        for runs in self.runs.chunk_by(|a, b| a.database == b.database) {
            let store = Store::open_read_only(&self.contents.databases[runs[0].database])?;
            let mut reader = RatesReader::default();
            for run in runs {
                let is_wanted = |key: &_| matching::settings_of(key) == *settings;
                for (_, trials) in reader.read(&store, RunId(run.id), is_wanted)? {
                    all.extend(trials.into_iter().filter(|trial| !trial.soaked));
                }
            }
        }
        Ok(all)
    }
}

/// Returns the rates of the fast and of the slow trials since the scatter last changed. None if the
/// trials are not clearly bimodal.
fn levels(workload: String, trials: &[Trial], result: &FleetResult) -> Option<FleetLevels> {
    let since = result.value(FleetQuantity::Scatter)?.since_unix_ns.unwrap_or(i64::MIN);
    let now = trials.iter().filter(|trial| trial.started_unix_ns >= since);
    let rates: Vec<f64> = now.map(Trial::bytes_per_s).collect();
    let found = two_levels(&rates)?;
    Some(FleetLevels {
        workload,
        low_bytes_per_s: found.low,
        high_bytes_per_s: found.high,
        share_low: found.share_low,
        trials: rates.len(),
    })
}
