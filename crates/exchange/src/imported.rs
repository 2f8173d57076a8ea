//! Converts the results of another tool to points and trials, which halfpower stores. The
//! information that the tool did not report is listed.
//!
//! The tool's output is stored with the run, so that an export in the same format loses nothing.
//! The uuid of the run is computed from this output, so that a second import of the same file is
//! recognised.

use std::collections::BTreeMap;

use analysis::histogram::{Exact, Histogram, bucket_bounds, bucket_index};
use analysis::units;
use lab::check::Check;
use lab::failure::{Failure, Outcome};
use lab::json;
use lab::machine::{Host, TargetFacts};
use lab::point::{Point, State, Trial, Verdict};
use lab::point_key::PointKey;
use lab::record;
use lab::recorder::JSON_SCHEMA;
use lab::workload_document::WorkloadDocument;
use results::{Import, NewRun, OriginRow, RunEnd, RunId, RunKind, RunRow, RunState, Seed, Store};

/// Host name that is stored if the tool does not report the host.
pub const UNKNOWN_HOST: &str = "unknown";

/// The results of one run of another tool on one host.
#[derive(Clone, Debug)]
pub struct Imported {
    /// Name and version of the tool, such as `fio-3.33`.
    pub tool: String,
    /// Format of the document, such as `fio-json`.
    pub format: &'static str,
    /// Short description of the command or the workload.
    pub title: String,
    /// Start of the run, or its end if the tool reports only the end (ns since 1970).
    pub started_unix_ns: i64,
    /// The known facts about the host.
    pub host: Host,
    /// The known facts about the target.
    pub target: TargetFacts,
    /// The points, each with its trials.
    pub points: Vec<Point>,
    /// Information that the tool did not report, one short phrase each.
    pub missing: Vec<String>,
    /// The part of the tool's output that this run was created from.
    pub document: String,
    /// Text of fio's logs that were used for the points. The text is not stored, but the uuid of
    /// the run depends on it.
    pub supplement: String,
}

/// The result of storing a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// The stored run.
    pub run: RunRow,
    /// Whether this call stored the run. False if the run was stored before.
    pub is_new: bool,
}

impl Imported {
    /// Sets the name of the host, unless the tool reported the host.
    pub fn name_host(&mut self, name: &str) {
        if self.host.name == UNKNOWN_HOST {
            name.clone_into(&mut self.host.name);
        }
    }

    /// Gives each trial the verdict `suspect`, because halfpower could not check the trial.
    pub fn doubt(&mut self) {
        let tool = &self.tool;
        let reason = format!(
            "measured by {tool}: caching, unwritten blocks and steady state were not checked"
        );
        let trials = self.points.iter_mut().flat_map(|point| &mut point.trials);
        trials.for_each(|trial| trial.verdict.flag(State::Suspect, Check::Imported, &reason));
    }

    /// Stores the run, unless the same output was stored before.
    ///
    /// # Errors
    /// The run has no results, or the database cannot be written.
    pub fn store(&self, store: &mut Store, file: &str, label: Option<&str>) -> Outcome<Stored> {
        let import = self.rows(file, label);
        let known = store.runs()?.into_iter().find(|run| run.uuid == import.run.uuid);
        if let Some(run) = known {
            return Ok(Stored { run, is_new: false });
        }
        let id: RunId = store.add_import(&import)?;
        Ok(Stored { run: store.run(&id.to_string())?, is_new: true })
    }

    fn rows(&self, file: &str, label: Option<&str>) -> Import {
        let mut verdict = Verdict::default();
        self.points.iter().for_each(|point| verdict.merge(&point.summary().verdict));
        let (word, reasons) = record::verdict_row(&verdict);
        let trials = |point: &Point| point.trials.iter().map(record::trial_rows).collect();
        let elapsed_ns = self.points.iter().flat_map(|point| &point.trials);
        let elapsed_ns = elapsed_ns.map(|trial| trial.elapsed_ns).max().unwrap_or(0);
        let finished = self.started_unix_ns.saturating_add_unsigned(elapsed_ns);
        Import {
            run: NewRun {
                uuid: self.uuid(),
                kind: RunKind::Import,
                command_line: format!("{}: {}", self.tool, self.title),
                label: label.map(str::to_owned),
                started_unix_ns: self.started_unix_ns,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                schema: JSON_SCHEMA,
                seed: Seed(0),
                pid: std::process::id(),
                boot_id: String::new(),
                host_json: json_text(&self.host),
                target_json: json_text(&self.target),
                settings_json: "{}".to_owned(),
            },
            end: RunEnd {
                state: RunState::Finished,
                finished_unix_ns: finished,
                findings_json: None,
                verdict: Some(word),
                verdict_reasons_json: reasons,
            },
            origin: OriginRow {
                tool: self.tool.clone(),
                format: self.format.to_owned(),
                file: file.to_owned(),
                missing_json: json_text(&self.missing),
                document: self.document.clone(),
            },
            points: (0..)
                .zip(&self.points)
                .map(|(ordinal, point)| {
                    let end = record::point_end(Some(&point.summary().verdict));
                    (WorkloadDocument::from(&point.key).row(ordinal), end, trials(point))
                })
                .collect(),
        }
    }

    /// Computes a uuid from the tool's output and the name of the host.
    fn uuid(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.host.name.as_bytes()).update(&[0]).update(self.document.as_bytes());
        hasher.update(self.supplement.as_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        uuid::Builder::from_custom_bytes(bytes).into_uuid().to_string()
    }

    /// Describes the run in one line.
    pub fn describe(&self) -> String {
        let points = units::counted(self.points.len() as u64, "point");
        let missing = match self.missing.as_slice() {
            [] => String::new(),
            missing => format!("; not reported: {}", missing.join(", ")),
        };
        format!("{}, {}: {points}{missing}", self.tool, self.title)
    }
}

/// Serializes facts as JSON. This cannot fail, because all map keys are text.
fn json_text(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Converts a time in the tool's output from seconds to ns. `what` is the subject of the error
/// message, for example `runtime`.
///
/// # Errors
/// The number is negative, not finite, or too large to be stored.
pub fn time_ns(what: &str, seconds: f64) -> Outcome<u64> {
    let ns = seconds * 1e9;
    if ns.is_finite() && (0.0..i64::MAX as f64).contains(&ns) {
        return Ok(ns.round() as u64);
    }
    Err(Failure::failed(format!(
        "{what} is {seconds:?} s; the file is damaged, so create it again"
    )))
}

/// Builds a latency histogram from percentiles. The requests between two percentiles are counted at
/// the upper percentile, so that [`Histogram::quantile`] returns the given percentiles.
///
/// `percentiles` are pairs of a share (0 to 1) and a latency (ns), in any order. Latencies are
/// clamped to the range from `min_ns` to `max_ns`.
pub fn histogram(
    count: u64,
    (min_ns, max_ns): (u64, u64),
    mean_ns: f64,
    percentiles: &[(f64, u64)],
) -> Histogram {
    if count == 0 || max_ns < min_ns {
        return Histogram::default();
    }
    let mut sorted: Vec<(f64, u64)> =
        percentiles.iter().copied().filter(|(share, _)| (0.0..=1.0).contains(share)).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut counts = vec![(min_ns, 1)];
    let (mut counted, mut latest_ns) = (1, min_ns);
    for (share, ns) in sorted {
        let rank = ((share * count as f64).next_down().ceil() as u64).min(count - 1);
        latest_ns = ns.clamp(latest_ns, max_ns);
        counts.push((latest_ns, rank.saturating_sub(counted)));
        counted = counted.max(rank);
    }
    counts.push((max_ns, count - counted));
    of_counts(counts, (min_ns, max_ns), mean_ns)
}

/// Builds a latency histogram. `counts` are pairs of a latency (ns) and the number of requests with
/// this latency. The given minimum, maximum and mean are used unless they contradict the counts.
pub fn of_counts(
    counts: impl IntoIterator<Item = (u64, u64)>,
    (min_ns, max_ns): (u64, u64),
    mean_ns: f64,
) -> Histogram {
    let counts: Vec<(u64, u64)> = counts.into_iter().filter(|(_, n)| *n > 0).collect();
    let (mut buckets, mut overflow, mut count) = (BTreeMap::<u64, u64>::new(), 0_u64, 0_u64);
    for (ns, n) in &counts {
        let counter = match bucket_bounds(bucket_index(*ns)) {
            Some((low_ns, _)) => buckets.entry(low_ns).or_default(),
            None => &mut overflow,
        };
        *counter = counter.saturating_add(*n);
        count = count.saturating_add(*n);
    }
    let sum_ns = (mean_ns.max(0.0) * count as f64).round() as u128;
    let exact = Exact { overflow, min_ns, max_ns, sum_ns };
    Histogram::from_buckets(buckets, Some(exact)).unwrap_or_else(|_| {
        let mut rough = Histogram::default();
        counts.iter().for_each(|(ns, n)| rough.record_n(*ns, *n));
        rough
    })
}

/// Groups trials by their settings. Trials with the same settings belong to one point.
#[derive(Clone, Debug, Default)]
pub struct Trials {
    /// The points, in the order of their first trials.
    pub points: Vec<Point>,
    places: BTreeMap<Vec<(String, String)>, usize>,
}

impl Trials {
    /// Adds a trial to the point with the same settings, or to a new point.
    pub fn add(&mut self, key: PointKey, trial: Trial) {
        let settings = json::facts("", &WorkloadDocument::from(&key)).1;
        let place = *self.places.entry(settings).or_insert(self.points.len());
        match self.points.get_mut(place) {
            Some(point) => {
                let ordinal = point.trials.len() as u32;
                point.trials.push(Trial { ordinal, ..trial });
            }
            None => self.points.push(Point { key, trials: vec![trial] }),
        }
    }
}

/// Adds the trial of another thread that ran the same workload at the same time. The counts are
/// summed. The elapsed time is that of the slower thread.
pub fn add_threads(all: &mut Trial, other: &Trial) {
    for (mine, theirs) in all.directions.iter_mut().zip(&other.directions) {
        mine.bytes = mine.bytes.saturating_add(theirs.bytes);
        mine.requests = mine.requests.saturating_add(theirs.requests);
        mine.latency.merge(&theirs.latency);
    }
    all.errors = all.errors.saturating_add(other.errors);
    all.short_transfers = all.short_transfers.saturating_add(other.short_transfers);
    all.elapsed_ns = all.elapsed_ns.max(other.elapsed_ns);
    all.cpu.elapsed_ns = all.elapsed_ns;
    all.cpu.process_ns = all.cpu.process_ns.saturating_add(other.cpu.process_ns);
    all.cpu.user_ns = all.cpu.user_ns.saturating_add(other.cpu.user_ns);
    all.cpu.system_ns = all.cpu.system_ns.saturating_add(other.cpu.system_ns);
    all.verdict.merge(&other.verdict);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_histogram_of_percentiles_returns_them() {
        let stated = [(0.5, 100_000), (0.99, 900_000), (0.999, 2_000_000)];
        let histogram = histogram(10_000, (50_000, 5_000_000), 123_456.0, &stated);
        for (share, ns) in stated {
            let found = histogram.quantile(share).unwrap() as f64;
            assert!((found / ns as f64 - 1.0).abs() < 0.005, "{share}: {found}");
        }
        assert_eq!((histogram.min(), histogram.max()), (Some(50_000), Some(5_000_000)));
        assert_eq!((histogram.count(), histogram.mean()), (10_000, Some(123_456.0)));
    }

    proptest! {
        #[test]
        fn a_histogram_of_any_percentiles_counts_every_request(
            count in 0_u64..100_000,
            limits in (any::<u64>(), any::<u64>()),
            mean_ns in any::<f64>(),
            percentiles in proptest::collection::vec((any::<f64>(), any::<u64>()), 0..20),
        ) {
            let made = histogram(count, limits, mean_ns, &percentiles);
            prop_assert_eq!(made.count(), if limits.1 < limits.0 { 0 } else { count });
        }
    }

    #[test]
    fn impossible_times_are_refused() {
        for seconds in [-1.0, f64::NAN, f64::INFINITY, 1e12] {
            assert!(time_ns("runtime", seconds).unwrap_err().message.contains("runtime"));
        }
        assert_eq!(time_ns("runtime", 1.5).unwrap(), 1_500_000_000);
    }
}
