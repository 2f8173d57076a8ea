//! Formats runs and points as text. The list of runs is also available as JSON.

use std::io::Write;

use analysis::histogram::Histogram;
use analysis::units;
use ioengine::Op;
use results::{RunRow, Store};
use serde::Serialize;

use crate::check::Check;
use crate::date;
use crate::failure::Outcome;
use crate::json;
use crate::point::Point;
use crate::recorder;

/// A stored run, as `runs list --json` prints it.
#[derive(Debug, Serialize)]
struct ListedRun {
    id: i64,
    uuid: String,
    kind: &'static str,
    state: &'static str,
    label: Option<String>,
    note: Option<String>,
    started_unix_ns: i64,
    finished_unix_ns: Option<i64>,
    command_line: String,
    points: u64,
    trials: u64,
    verdict: Option<&'static str>,
    verdict_reasons: Vec<String>,
}

impl ListedRun {
    fn new(row: RunRow, points: u64, trials: u64) -> Self {
        ListedRun {
            id: row.id.0,
            uuid: row.uuid,
            kind: row.kind.as_str(),
            state: row.state.as_str(),
            label: row.label,
            note: row.note,
            started_unix_ns: row.started_unix_ns,
            finished_unix_ns: row.finished_unix_ns,
            command_line: row.command_line,
            points,
            trials,
            verdict_reasons: serde_json::from_str(&row.verdict_reasons_json).unwrap_or_default(),
            verdict: row.verdict.map(results::Verdict::as_str),
        }
    }
}

/// Writes the list of all runs, newest first, as one line per run or as one JSON document.
///
/// # Errors
/// The database cannot be read, or `out` cannot be written.
pub fn write_list(store: &Store, as_json: bool, out: &mut impl Write) -> Outcome<()> {
    let rows = store.runs()?;
    let text = if as_json {
        let counts = store.all_counts()?;
        let document = |row: RunRow| {
            let (points, trials) = counts.get(&row.id).copied().unwrap_or_default();
            ListedRun::new(row, points, trials)
        };
        json::print(&rows.into_iter().map(document).collect::<Vec<ListedRun>>()) + "\n"
    } else {
        rows.iter().map(|row| run_line(row) + "\n").collect()
    };
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    Ok(written.map_err(results::Error::from)?)
}

/// Formats a run as one line of the list.
pub fn run_line(row: &RunRow) -> String {
    let verdict = row.verdict.map_or("-", results::Verdict::as_str);
    let started = date::utc(row.started_unix_ns);
    let label = row.label.as_ref().map(|label| format!("  [{label}]")).unwrap_or_default();
    format!(
        "{:>4}  {started}  {:<6} {:<11} {verdict:<7} {}{label}",
        row.id.0, row.kind, row.state, row.command_line
    )
}

/// Formats a run in full: its seed, target and host, the reasons for its verdict, and a line for
/// each point.
///
/// # Errors
/// The database cannot be read.
pub fn run_in_full(store: &Store, row: &RunRow) -> Outcome<Vec<String>> {
    let reasons: Vec<String> = serde_json::from_str(&row.verdict_reasons_json).unwrap_or_default();
    let host: crate::machine::Host = serde_json::from_str(&row.host_json).unwrap_or_default();
    let target: crate::machine::TargetFacts =
        serde_json::from_str(&row.target_json).unwrap_or_default();
    let mut lines = vec![
        run_line(row),
        format!("uuid {}, halfpower {}, seed {}", row.uuid, row.version, row.seed.0),
        format!("{} ({}) on {}, Linux {}", target.name, target.place(), host.name, host.kernel),
    ];
    lines.extend(row.note.iter().map(|note| format!("note: {note}")));
    lines.extend(reasons.iter().map(|reason| format!("verdict: {reason}")));
    for point in recorder::load(store, row.id)? {
        if !point.trials.is_empty() {
            lines.push(point_line(&point, None, &[50.0, 99.0]));
        }
    }
    Ok(lines)
}

/// Minimum relative half-width of a confidence interval that is printed as a number (percent). A
/// smaller one would be rounded to 0.0%.
const SPREAD_SHOWN_MIN: f64 = 0.05;

/// Formats the lines about a replay: its duration compared with that of the recorded program, and
/// the number and latencies of its reads, writes and flushes. Empty if the point is not a replay,
/// or if the replay was interrupted.
pub fn replay_lines(point: &Point) -> Vec<String> {
    let Some(replay) = &point.key.workload.replay else { return Vec::new() };
    let trials = point.unsoaked();
    if trials.iter().any(|trial| trial.verdict.reason(Check::Interrupted).is_some()) {
        return Vec::new();
    }
    let mut elapsed: Vec<u64> = trials.iter().map(|trial| trial.elapsed_ns).collect();
    elapsed.sort_unstable();
    let Some(took_ns) = elapsed.get(elapsed.len() / 2) else { return Vec::new() };
    let (took_ns, recorded_ns) = (*took_ns as f64, replay.description.recorded_ns as f64);
    let mut lines = vec![format!(
        "  took {}, {:.2} times as long as the recorded program ({})",
        units::time(took_ns),
        took_ns / recorded_ns.max(1.0),
        units::time(recorded_ns)
    )];
    let mut flushes = Histogram::new();
    trials.iter().filter_map(|trial| trial.live.as_ref()).for_each(|l| flushes.merge(&l.flushes));
    let all = [
        ("reads", point.latency(Some(Op::Read))),
        ("writes", point.latency(Some(Op::Write))),
        ("flushes", flushes),
    ];
    for (name, latency) in all.iter().filter(|(_, latency)| latency.count() > 0) {
        let quantile = |q| units::time(latency.quantile(q).unwrap_or(0) as f64);
        let mean_count = latency.count() as f64 / trials.len() as f64;
        lines.push(format!(
            "  {name:<8} {}, p50 {}, p99 {}",
            units::count(mean_count),
            quantile(0.5),
            quantile(0.99)
        ));
    }
    lines
}

/// Formats the result of a point as one line: rate, latency percentiles, CPU time and verdict.
pub fn point_line(point: &Point, pap_bytes_per_s: Option<f64>, percentiles: &[f64]) -> String {
    let summary = point.summary();
    let percentile = |p: &f64| {
        let found = summary.latency.quantile(p / 100.0);
        let time = found.map_or_else(|| "-".into(), |ns| units::time(ns as f64));
        format!("p{p} {time}")
    };
    let percentiles: Vec<String> = percentiles.iter().map(percentile).collect();
    let rate = summary.bytes_per_s;
    let spread = match (point.unsoaked().len(), 100.0 * rate.half_width_relative()) {
        (1, _) => String::new(),
        // On a simulated system, all trials may give exactly the same result. A spread of zero then
        // says nothing about the precision.
        (_, percent) if percent < SPREAD_SHOWN_MIN && point.key.is_simulated => String::new(),
        (_, percent) if percent < SPREAD_SHOWN_MIN => " +-<0.1%".to_owned(),
        (_, percent) => format!(" +-{percent:.1}%"),
    };
    let cpu = match (summary.cpu_lower_ns, summary.cpu_upper_ns) {
        (Some(low), Some(high)) => format!("{} to {}", units::time(low), units::time(high)),
        (Some(low), None) => units::time(low),
        _ => "-".to_owned(),
    };
    let share = pap_bytes_per_s.map(|pap| format!(", {:.0}% of PAP", 100.0 * rate.value / pap));
    let reasons = match summary.verdict.reasons.as_slice() {
        [] => String::new(),
        reasons => format!(" ({})", reasons.join("; ")),
    };
    format!(
        "{}: {}{spread}{}, {} requests/s, {}, CPU {cpu}/request, {}{reasons}",
        point.key.describe(),
        units::rate(rate.value),
        share.unwrap_or_default(),
        units::count(summary.requests_per_s.value),
        percentiles.join(", "),
        summary.verdict.state.word(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::testing::point;

    #[test]
    fn equal_trials_show_no_interval_of_zero() {
        let line = |bytes: &[u64], is_simulated| {
            let mut point = point(bytes);
            point.key.is_simulated = is_simulated;
            point_line(&point, None, &[50.0])
        };
        let same = [4096 * 1000; 3];
        assert!(!line(&same, true).contains("+-"), "{}", line(&same, true));
        assert!(line(&same, false).contains(" +-<0.1%,"), "{}", line(&same, false));
        let differs = [4096 * 1000, 4096 * 1010, 4096 * 1020];
        assert!(line(&differs, true).contains(" +-1.0%,"), "{}", line(&differs, true));
    }
}
