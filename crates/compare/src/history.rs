//! A point over time: its rate in each run on one host and target, when the rate changed, and which
//! facts changed at the same time.
//!
//! A run counts once, with the median of its trials, because the trials of one run share the state
//! of the host. A change needs three runs on each side and a probability below 1% after correction
//! for the number of possible moments (Bonferroni). The parts before and after it are searched
//! again.

use analysis::units;
use std::collections::BTreeMap;
use std::path::Path;

use analysis::comparison::{RatioTest, ratio_test};
use analysis::interval::Interval;
use lab::failure::{Failure, Outcome};
use lab::json::Program;
use lab::point::Point;
use lab::point_key::PointKey;
use lab::recorder::{self, KnownKeys};
use results::Store;
use schemars::JsonSchema;
use serde::Serialize;

use crate::matching::{self, Settings};
use crate::side::{self, RunFacts, Side};

/// Runs needed before and after a change.
const RUNS_MIN: usize = 3;
/// Maximum probability that chance causes a change, over all moments.
const PROBABILITY_MAX: f64 = 0.01;

/// Selects the points that are shown.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Words that the workload's description must contain.
    pub words: Vec<String>,
    /// Name of the host; None for the host of the newest run.
    pub host: Option<String>,
    /// Name or place of the target, as `runs` prints it; None for the target of the newest run.
    pub target: Option<String>,
}

/// The output of `history --json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HistoryDocument {
    /// The program.
    pub halfpower: Program,
    /// The host.
    pub host: String,
    /// The target.
    pub target: String,
    /// The points, each over time.
    pub points: Vec<PointHistory>,
}

/// A point over time.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PointHistory {
    /// The workload in words.
    pub workload: String,
    /// The runs that measured it, the oldest first.
    pub runs: Vec<PastResult>,
    /// When the rate changed.
    pub changes: Vec<ChangeOverTime>,
}

/// The result of a point in a run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PastResult {
    /// Number of the run.
    pub run: i64,
    /// Start of the run (ns since 1970).
    pub started_unix_ns: i64,
    /// Median rate of the trials (bytes per second).
    pub bytes_per_s: f64,
    /// Lower bound of the median.
    pub bytes_per_s_low: f64,
    /// Upper bound of the median.
    pub bytes_per_s_high: f64,
    /// Verdict on the point in this run.
    pub verdict: &'static str,
}

/// A moment at which the rate changed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ChangeOverTime {
    /// Number of the first run after the change.
    pub run: i64,
    /// Start of that run (ns since 1970).
    pub started_unix_ns: i64,
    /// Rate after the change divided by the rate before.
    pub ratio: f64,
    /// Lower bound of the ratio (95%).
    pub ratio_low: f64,
    /// Upper bound of the ratio (95%).
    pub ratio_high: f64,
    /// Probability that chance causes such a change, over all moments.
    pub probability: f64,
    /// Facts that changed between the last run before and the first one after: name, before, after.
    pub facts: Vec<(String, String, String)>,
}

/// A run with its points.
struct Past {
    facts: RunFacts,
    points: Vec<Point>,
}

/// Reads the history of the points that a filter selects.
///
/// # Errors
/// No such run or point, or a database that cannot be read.
pub fn load(db: &Path, filter: &Filter) -> Outcome<HistoryDocument> {
    let store = Store::open_read_only(db)?;
    let _snapshot = store.snapshot()?;
    let mut rows = store.runs()?;
    rows.sort_by_key(|row| (row.started_unix_ns, row.id));
    let facts: Vec<RunFacts> = rows.into_iter().map(RunFacts::of).collect();
    let is_wanted = |run: &&RunFacts| {
        let host = filter.host.as_ref().is_none_or(|host| *host == run.host.name);
        host && filter.target.as_ref().is_none_or(|target| *target == run.target_identity())
    };
    let Some(newest) = facts.iter().rfind(is_wanted) else {
        return Err(nothing(db, &facts));
    };
    let (host, target) = (newest.host.name.clone(), newest.target_identity());
    let same = |run: &RunFacts| run.host.name == host && run.target_identity() == target;
    let (mut runs, mut known) = (Vec::new(), KnownKeys::default());
    for facts in facts.iter().filter(|run| same(run)) {
        let is_named = |key: &PointKey| is_named(key, &filter.words);
        let run = results::RunId(facts.id());
        let points = recorder::load_rates(&store, run, &mut known, is_named)?;
        runs.push(Past { facts: facts.clone(), points: matching::together(points) });
    }
    let points = histories(&runs);
    if points.is_empty() {
        let words = filter.words.join(" ");
        return Err(Failure::failed(format!(
            "no point of {target} on {host} contains '{words}'; halfpower history shows all points"
        )));
    }
    Ok(HistoryDocument { halfpower: Program::this(), host, target, points })
}

fn nothing(db: &Path, facts: &[RunFacts]) -> Failure {
    let mut known: Vec<String> = facts
        .iter()
        .map(|run| format!("--host '{}' --target '{}'", run.host.name, run.target_identity()))
        .collect();
    known.sort();
    known.dedup();
    let db = db.display();
    match known.as_slice() {
        [] => Failure::failed(format!("{db} contains no run; run halfpower survey first")),
        known => Failure::failed(format!("{db} has no such run; it has {}", known.join("; "))),
    }
}

/// Whether the description of a workload contains all words.
fn is_named(key: &PointKey, words: &[String]) -> bool {
    let text = key.describe();
    words.iter().all(|word| text.contains(word.as_str()))
}

fn histories(runs: &[Past]) -> Vec<PointHistory> {
    let mut groups: Vec<(&Point, Vec<(&Past, &Point)>)> = Vec::new();
    let mut places: BTreeMap<Settings, usize> = BTreeMap::new();
    for run in runs {
        for point in run.points.iter().filter(|point| !point.trials.is_empty()) {
            let place = *places.entry(matching::settings_of(point)).or_insert(groups.len());
            match groups.get_mut(place) {
                Some((_, group)) => group.push((run, point)),
                None => groups.push((point, vec![(run, point)])),
            }
        }
    }
    groups.into_iter().map(|(point, group)| history(point, &group)).collect()
}

fn history(point: &Point, group: &[(&Past, &Point)]) -> PointHistory {
    let runs: Vec<PastResult> = group
        .iter()
        .map(|(run, point)| {
            let (Interval { value, low, high }, verdict) = point.rate_and_verdict();
            PastResult {
                run: run.facts.id(),
                started_unix_ns: run.facts.started_unix_ns,
                bytes_per_s: value,
                bytes_per_s_low: low,
                bytes_per_s_high: high,
                verdict: verdict.state.word(),
            }
        })
        .collect();
    let rates: Vec<f64> = runs.iter().map(|run| run.bytes_per_s).collect();
    let alone = |run: &Past| Side::of_runs(vec![run.facts.clone()]);
    let changes = moments(&rates)
        .into_iter()
        .map(|(index, test)| ChangeOverTime {
            run: runs[index].run,
            started_unix_ns: runs[index].started_unix_ns,
            ratio: test.ratio.value,
            ratio_low: test.ratio.low,
            ratio_high: test.ratio.high,
            probability: test.p_value,
            facts: side::differences(&alone(group[index - 1].0), &alone(group[index].0)),
        })
        .collect();
    PointHistory { workload: point.key.describe(), runs, changes }
}

/// The indices at which a series changes. The ratio of each change compares the part that begins
/// there with the part before, up to the neighbouring changes. The p-value is corrected for the
/// number of moments.
fn moments(rates: &[f64]) -> Vec<(usize, RatioTest)> {
    let mut indices = Vec::new();
    search(rates, 0, rates.len(), &mut indices);
    indices.sort_unstable();
    let edges: Vec<usize> =
        [0].into_iter().chain(indices.iter().copied()).chain([rates.len()]).collect();
    let test = |edges: &[usize]| {
        let (before, after) = (&rates[edges[0]..edges[1]], &rates[edges[1]..edges[2]]);
        let test = ratio_test(before, after)?;
        let tried = (before.len() + after.len() + 1 - 2 * RUNS_MIN) as f64;
        Some((edges[1], RatioTest { p_value: (test.p_value * tried).min(1.0), ..test }))
    };
    edges.windows(3).filter_map(test).collect()
}

fn search(rates: &[f64], from: usize, to: usize, found: &mut Vec<usize>) {
    if to - from < 2 * RUNS_MIN {
        return;
    }
    let splits = from + RUNS_MIN..=to - RUNS_MIN;
    let tried = splits.clone().count() as f64;
    let tests = splits.filter_map(|split| {
        let test = ratio_test(&rates[from..split], &rates[split..to])?;
        Some((split, test.p_value))
    });
    let Some((split, p_value)) = tests.min_by(|a, b| a.1.total_cmp(&b.1)) else { return };
    if p_value * tried <= PROBABILITY_MAX {
        search(rates, from, split, found);
        found.push(split);
        search(rates, split, to, found);
    }
}

/// The history as lines for the terminal: one line per point, or all runs if there is one point.
pub fn lines(history: &HistoryDocument) -> Vec<String> {
    let mut lines = vec![format!("{} on {}", history.target, history.host)];
    let in_full = history.points.len() == 1;
    for point in &history.points {
        lines.push(String::new());
        let rates: Vec<f64> = point.runs.iter().map(|run| run.bytes_per_s).collect();
        let runs = units::counted(point.runs.len() as u64, "run");
        lines.push(format!("{}  {}  {runs}", point.workload, sparkline(&rates)));
        if in_full {
            lines.extend(point.runs.iter().map(run_line));
        }
        lines.extend(point.changes.iter().flat_map(change_lines));
        if point.changes.is_empty() {
            let last = point.runs.last().map_or(0.0, |run| run.bytes_per_s);
            let why = match point.runs.len() {
                few if few < 2 * RUNS_MIN => " (too few runs to find one: 6 are needed)",
                _ => "",
            };
            lines.push(format!("  last {}; no change found{why}", units::rate_mib(last)));
        }
    }
    lines
}

fn run_line(run: &PastResult) -> String {
    format!(
        "  run {:<5} {}  {} ({} to {}) {}",
        run.run,
        lab::date::utc(run.started_unix_ns),
        units::rate_mib(run.bytes_per_s),
        units::rate_mib(run.bytes_per_s_low),
        units::rate_mib(run.bytes_per_s_high),
        run.verdict,
    )
}

fn change_lines(change: &ChangeOverTime) -> Vec<String> {
    let percent = crate::text::percent;
    let mut lines = vec![format!(
        "  from run {} ({}): {} ({} to {})",
        change.run,
        lab::date::utc(change.started_unix_ns),
        percent(change.ratio),
        percent(change.ratio_low),
        percent(change.ratio_high),
    )];
    let fact = |(name, before, after): &(String, String, String)| {
        format!("    {name}: {before} -> {after}")
    };
    lines.extend(change.facts.iter().map(fact));
    lines
}

/// Rates as a row of bars; the highest rate is a full bar.
fn sparkline(rates: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let highest = rates.iter().copied().fold(0.0, f64::max);
    let bar = |rate: &f64| BARS[((rate / highest * 8.0).ceil() as usize).clamp(1, 8) - 1];
    rates.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_needs_three_runs_on_each_side() {
        let found = moments(&[100.0, 101.0, 99.0, 80.0, 81.0, 79.5]);
        assert_eq!(found.len(), 1);
        let (index, test) = found[0];
        assert_eq!(index, 3);
        assert!(test.ratio.high < 0.85 && test.ratio.low > 0.75, "{test:?}");
        assert!(moments(&[100.0, 101.0, 99.0, 80.0, 81.0]).is_empty());
    }

    #[test]
    fn two_changes_are_found_and_noise_is_none() {
        let levels = [100.0, 50.0, 80.0];
        let rates: Vec<f64> = levels
            .iter()
            .flat_map(|level| [1.0, 1.01, 0.99, 1.005].map(|noise| level * noise))
            .collect();
        let indices: Vec<usize> = moments(&rates).into_iter().map(|(index, _)| index).collect();
        assert_eq!(indices, [4, 8]);
        assert!(moments(&[100.0, 103.0, 97.0, 101.0, 99.0, 104.0, 98.0, 100.5]).is_empty());
        assert!(moments(&[]).is_empty());
    }

    #[test]
    fn a_sparkline_shows_the_highest_rate_in_full() {
        assert_eq!(sparkline(&[100.0, 50.0, 1.0]), "█▄▁");
    }
}
