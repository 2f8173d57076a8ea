//! Follows a point over time: the rate in each run on one host and target, the times at which the
//! rate changed, and the facts that changed at the same time.
//!
//! The rate of a run is the median of its trials. The trials do not count separately, because they
//! are not independent. A change is found if there are at least three runs before and after it, and
//! if the probability that it is due to chance is at most 1%, corrected for the number of tested
//! places between runs (Bonferroni). The runs before and after a change are then searched for
//! further changes.

use analysis::units;
use std::collections::BTreeMap;

use analysis::comparison::{Noise, RatioTest, cuts, ratio_test};
use analysis::interval::Interval;
use lab::failure::{Failure, Outcome};
use lab::json::Program;
use lab::point::Point;
use lab::point_key::PointKey;
use lab::recorder::RatesReader;
use results::{RunHead, Store};
use schemars::JsonSchema;
use serde::Serialize;

use crate::matching::{self, Settings};
use crate::side::{self, RunFacts, Side};

/// Minimum number of runs before and after a change.
pub(crate) const RUNS_MIN: usize = 3;
/// Maximum probability that a change is due to chance, corrected for the number of tested places
/// between runs.
const PROBABILITY_MAX: f64 = 0.01;

/// Selects the points that are shown.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Words that the workload's description must contain.
    pub words: Vec<String>,
    /// Name of the host. None selects the host of the newest run.
    pub host: Option<String>,
    /// The target, as printed by [`lines`]. None selects the target of the newest run.
    pub target: Option<String>,
    /// Maximum number of runs. If there are more runs, the newest are used. None selects all runs.
    pub runs_max: Option<usize>,
}

/// The output of `history --json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HistoryDocument {
    /// The program that made the document.
    pub halfpower: Program,
    /// Name of the host.
    pub host: String,
    /// The target on the host.
    pub target: String,
    /// The points with their results over time.
    pub points: Vec<PointHistory>,
}

/// The results of a point over time.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PointHistory {
    /// Description of the workload.
    pub workload: String,
    /// The results of the runs that measured the point, the oldest first.
    pub runs: Vec<PastResult>,
    /// The changes of the rate.
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
    /// Lower bound of the 95% interval of the median rate (bytes per second).
    pub bytes_per_s_low: f64,
    /// Upper bound of the 95% interval of the median rate (bytes per second).
    pub bytes_per_s_high: f64,
    /// Verdict on the point in this run.
    pub verdict: &'static str,
}

/// A change of the rate.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ChangeOverTime {
    /// Number of the first run after the change.
    pub run: i64,
    /// Start of the first run after the change (ns since 1970).
    pub started_unix_ns: i64,
    /// Rate after the change, divided by the rate before the change.
    pub ratio: f64,
    /// Lower bound of the ratio (95%).
    pub ratio_low: f64,
    /// Upper bound of the ratio (95%).
    pub ratio_high: f64,
    /// Probability that the change is due to chance, corrected for the number of tested places
    /// between runs.
    pub probability: f64,
    /// Facts that differ between the last run before the change and the first run after it: name,
    /// value before, value after.
    pub facts: Vec<(String, String, String)>,
}

/// A point with its results in all runs that measured it.
pub(crate) struct Series {
    pub settings: Settings,
    pub workload: String,
    /// Index of each run, and the result of the point in that run.
    pub results: Vec<(usize, PastResult)>,
}

/// Reads the history of the points that a filter selects.
///
/// # Errors
/// No run or point matches the filter, or the database cannot be read.
pub fn load(store: &Store, filter: &Filter) -> Outcome<HistoryDocument> {
    let _snapshot = store.snapshot()?;
    let is_on = |head: &RunHead, host: &str| side::host_name(&head.host_json) == host;
    let mut heads = Vec::new();
    store.each_run_head(|head| {
        if filter.host.as_ref().is_none_or(|host| is_on(&head, host)) {
            heads.push(head);
        }
    })?;
    heads.sort_by_key(|head| (head.started_unix_ns, head.id));
    // Parsing the facts takes longer than reading the row, so only the necessary facts are parsed.
    let is_of =
        |run: &RunFacts| filter.target.as_ref().is_none_or(|it| *it == run.target_identity());
    let mut facts = heads.iter().rev().map(|head| RunFacts::of_head(head.clone()));
    let Some(newest) = facts.find(is_of) else { return Err(nothing(store)?) };
    let (host, target) = (newest.host.name.clone(), newest.target_identity());
    heads.retain(|head| is_on(head, &host));
    let mut runs: Vec<RunFacts> = heads.into_iter().map(RunFacts::of_head).collect();
    runs.retain(|run| run.target_identity() == target);
    runs.drain(..runs.len().saturating_sub(filter.runs_max.unwrap_or(usize::MAX)));
    let points: Vec<PointHistory> = all_series(store, &runs, &filter.words)?
        .into_iter()
        .map(|series| history(&runs, series))
        .collect();
    if points.is_empty() {
        let words = filter.words.join(" ");
        return Err(Failure::failed(format!(
            "no workload of {target} on {host} contains '{words}'; without words, halfpower \
             history shows all points"
        )));
    }
    Ok(HistoryDocument { halfpower: Program::this(), host, target, points })
}

/// Reads the results of `runs` with several threads. The runs must be sorted by time.
pub(crate) fn all_series(
    store: &Store,
    runs: &[RunFacts],
    words: &[String],
) -> Outcome<Vec<Series>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let of_a_thread = runs.len().div_ceil(threads).max(1);
    let parts: Vec<Outcome<Vec<Series>>> = std::thread::scope(|scope| {
        let read = |(part, runs)| {
            let store = store.open_again();
            scope.spawn(move || series_of(&store?, part * of_a_thread, runs, words))
        };
        let threads: Vec<_> = runs.chunks(of_a_thread).enumerate().map(read).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(found) => found,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect()
    });
    let mut all: Vec<Series> = Vec::new();
    for series in parts.into_iter().collect::<Outcome<Vec<_>>>()?.into_iter().flatten() {
        match all.iter_mut().find(|known| known.settings == series.settings) {
            Some(known) => known.results.extend(series.results),
            None => all.push(series),
        }
    }
    Ok(all)
}

/// Reads the results of a part of all runs. `first` is the index of the first run of this part.
fn series_of(
    store: &Store,
    first: usize,
    runs: &[RunFacts],
    words: &[String],
) -> Outcome<Vec<Series>> {
    let _snapshot = store.snapshot()?;
    let (mut reader, mut all) = (RatesReader::default(), Vec::<Series>::new());
    // For each workload of the reader, the index of its series. Workloads share a series if they
    // differ only in settings that are not compared, such as the seed.
    let mut places: Vec<usize> = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        let id = results::RunId(run.id());
        let mut of_run: BTreeMap<usize, Point> = BTreeMap::new();
        for (number, trials) in reader.read(store, id, |key| is_named(key, words))? {
            let key = &reader.keys()[number];
            if number == places.len() {
                let settings = matching::settings_of(key);
                let known = all.iter().position(|series| series.settings == settings);
                places.push(known.unwrap_or(all.len()));
                if known.is_none() {
                    all.push(Series { settings, workload: key.describe(), results: Vec::new() });
                }
            }
            let place = of_run.entry(places[number]);
            place
                .or_insert_with(|| Point { key: key.clone(), trials: Vec::new() })
                .trials
                .extend(trials);
        }
        for (place, point) in of_run.into_iter().filter(|(_, point)| !point.trials.is_empty()) {
            all[place].results.push((first + index, PastResult::of(run, &point)));
        }
    }
    all.retain(|series| !series.results.is_empty());
    Ok(all)
}

impl PastResult {
    fn of(run: &RunFacts, point: &Point) -> PastResult {
        let (Interval { value, low, high }, verdict) = point.rate_and_verdict();
        PastResult {
            run: run.id(),
            started_unix_ns: run.started_unix_ns,
            bytes_per_s: value,
            bytes_per_s_low: low,
            bytes_per_s_high: high,
            verdict: verdict.state.word(),
        }
    }
}

fn nothing(store: &Store) -> Outcome<Failure> {
    let mut known: Vec<String> = Vec::new();
    store.each_run_head(|head| {
        let run = RunFacts::of_head(head);
        known.push(format!("--host '{}' --target '{}'", run.host.name, run.target_identity()));
    })?;
    known.sort();
    known.dedup();
    let db = store.path().display();
    Ok(match known.as_slice() {
        [] => Failure::failed(format!("{db} contains no run; run halfpower survey first")),
        known => {
            Failure::failed(format!("{db} has no such run; select one with {}", known.join(" or ")))
        }
    })
}

/// Checks whether the description of a workload contains all `words`.
fn is_named(key: &PointKey, words: &[String]) -> bool {
    let text = key.describe();
    words.iter().all(|word| text.contains(word.as_str()))
}

fn history(runs: &[RunFacts], series: Series) -> PointHistory {
    let (indices, results): (Vec<usize>, Vec<PastResult>) = series.results.into_iter().unzip();
    let rates: Vec<f64> = results.iter().map(|result| result.bytes_per_s).collect();
    let alone = |place: usize| Side::of_runs(vec![runs[indices[place]].clone()]);
    let changes = moments(&rates)
        .into_iter()
        .map(|(place, test)| ChangeOverTime {
            run: results[place].run,
            started_unix_ns: results[place].started_unix_ns,
            ratio: test.ratio.value,
            ratio_low: test.ratio.low,
            ratio_high: test.ratio.high,
            probability: test.p_value,
            facts: side::differences(&alone(place - 1), &alone(place)),
        })
        .collect();
    PointHistory { workload: series.workload, runs: results, changes }
}

/// Finds the changes of a series. For each change, returns the index of the first rate after the
/// change, and a test. The test compares the rates between the previous change and this change with
/// the rates between this change and the next change. The p-value is corrected for the number of
/// tested places between rates.
fn moments(rates: &[f64]) -> Vec<(usize, RatioTest)> {
    let indices = change_indices(rates, None);
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

/// Returns the indices at which a series changes, in ascending order. `noise` is an estimate of the
/// noise from other series, if there is one.
pub(crate) fn change_indices(rates: &[f64], noise: Option<&Noise>) -> Vec<usize> {
    let mut indices = Vec::new();
    search(rates, noise, (0, rates.len()), &mut indices);
    indices.sort_unstable();
    indices
}

fn search(
    rates: &[f64],
    noise: Option<&Noise>,
    (from, to): (usize, usize),
    found: &mut Vec<usize>,
) {
    if to - from < 2 * RUNS_MIN {
        return;
    }
    let cuts = cuts(&rates[from..to], RUNS_MIN, noise);
    let tried = cuts.len() as f64;
    let Some((cut, p_value)) = cuts.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)) else { return };
    let split = from + cut;
    if p_value * tried <= PROBABILITY_MAX {
        search(rates, noise, (from, split), found);
        found.push(split);
        search(rates, noise, (split, to), found);
    }
}

/// Formats the history as lines for the terminal: a summary of each point, and all runs if there is
/// only one point.
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
                few if few < 2 * RUNS_MIN => " (too few runs: at least 6 are needed)",
                _ => "",
            };
            lines.push(format!("  last rate {}; no change found{why}", units::rate_mib(last)));
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
        "  change starting with run {} ({}): {} ({} to {})",
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

/// Draws rates as a row of bars. The highest rate is a full bar.
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
