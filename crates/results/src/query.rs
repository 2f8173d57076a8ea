//! Reads stored rows.
//!
//! A run is selected by its number or by the text that a user types. The caller computes all
//! statistics.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, Params, Transaction};

use crate::error::Error;
use crate::row::{
    Columns, LatencyRow, PointEnd, PointId, PointRow, RunBrief, RunHead, RunId, RunRow, SeriesRow,
    TrialId, TrialRates, TrialRow,
};
use crate::store::Store;

/// Minimum length of a uuid prefix that selects a run (characters).
const IDENTIFIER_LENGTH_MIN: usize = 4;
/// Minimum length of a uuid prefix that consists only of digits (characters). A shorter string of
/// digits can only select a run by its number or label.
const IDENTIFIER_DIGITS_MIN: usize = 8;

/// A read transaction, in which all queries see the same state of the database. See
/// [`Store::snapshot`].
#[derive(Debug)]
pub struct Snapshot<'a>(#[expect(dead_code, reason = "ends when it is dropped")] Transaction<'a>);

impl Store {
    /// Returns all runs, newest first.
    ///
    /// # Errors
    /// If the database is locked or damaged.
    pub fn runs(&self) -> Result<Vec<RunRow>, Error> {
        let columns = RunRow::COLUMNS.join(", ");
        let sql = format!("SELECT {columns} FROM run ORDER BY started_unix_ns DESC, id DESC");
        self.select_sql(&sql, [], |row| RunRow::read_from(row, 0))
    }

    /// Calls `each` with the [`RunHead`] of every run, in ascending order of the run numbers. Only
    /// one row at a time is in memory.
    ///
    /// # Errors
    /// If the database is locked or damaged.
    pub fn each_run_head(&self, each: impl FnMut(RunHead)) -> Result<(), Error> {
        self.each_record("run ORDER BY id", each)
    }

    /// Calls `each` with the [`RunBrief`] of every run, newest first. Only one row at a time is in
    /// memory.
    ///
    /// # Errors
    /// If the database is locked or damaged.
    pub fn each_run_brief(&self, each: impl FnMut(RunBrief)) -> Result<(), Error> {
        self.each_record("run ORDER BY started_unix_ns DESC, id DESC", each)
    }

    fn each_record<R: Columns>(&self, from: &str, mut each: impl FnMut(R)) -> Result<(), Error> {
        let sql = format!("SELECT {} FROM {from}", R::COLUMNS.join(", "));
        let mut read = || -> rusqlite::Result<()> {
            let mut statement = self.connection().prepare(&sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                each(R::read_from(row, 0)?);
            }
            Ok(())
        };
        read().map_err(|error| self.error(error))
    }

    /// Returns the runs with the label `label`, newest first.
    ///
    /// # Errors
    /// If the database is locked or damaged.
    pub fn runs_with_label(&self, label: &str) -> Result<Vec<RunRow>, Error> {
        let labelled = "run WHERE label = ? ORDER BY started_unix_ns DESC, id DESC";
        self.select(labelled, [label], RunRow::read)
    }

    /// Finds the run that `selector` specifies. A selector is `latest`, the number of a run, a
    /// label, or the first characters of a uuid (at least 4, or 8 if all are digits). The number of
    /// an existing run has priority over labels and uuids.
    ///
    /// # Errors
    /// [`Error::RunNotFound`] if no run matches, [`Error::RunAmbiguous`] if several runs match.
    /// Other errors if the database is locked or damaged.
    pub fn run(&self, selector: &str) -> Result<RunRow, Error> {
        let selector = selector.trim();
        if selector.is_empty() {
            return Err(self.no_run(selector));
        }
        if selector == "latest" {
            let newest = "run ORDER BY started_unix_ns DESC, id DESC LIMIT 1";
            let run = self.select(newest, [], RunRow::read)?.pop();
            return run.ok_or_else(|| self.no_run(selector));
        }
        if let Ok(id) = selector.parse::<i64>()
            && let Some(run) = self.select("run WHERE id = ?", [id], RunRow::read)?.pop()
        {
            return Ok(run);
        }
        // A short number is meant as the number of a run, so it must not match a uuid that happens
        // to start with the same digits.
        let is_number = selector.bytes().all(|byte| byte.is_ascii_digit());
        let length_min = if is_number { IDENTIFIER_DIGITS_MIN } else { IDENTIFIER_LENGTH_MIN };
        let prefix = selector.to_ascii_lowercase();
        let named = "run WHERE label = ?1 OR lower(uuid) = ?2 \
                     OR (length(?2) >= ?3 AND substr(lower(uuid), 1, length(?2)) = ?2) ORDER BY id";
        let mut runs = self.select(named, (selector, prefix, length_min), RunRow::read)?;
        match runs.len() {
            0 => Err(self.no_run(selector)),
            1 => Ok(runs.remove(0)),
            _ => Err(Error::RunAmbiguous {
                path: self.path().to_path_buf(),
                selector: selector.to_owned(),
                runs: runs.iter().map(|run| run.id.0).collect(),
            }),
        }
    }

    /// Begins a read transaction. Until the result is dropped, all queries see the same state of
    /// the database, and the lock on the database is taken only once.
    ///
    /// # Errors
    /// If the database is locked or damaged.
    pub fn snapshot(&self) -> Result<Snapshot<'_>, Error> {
        let transaction = self.connection().unchecked_transaction();
        transaction.map(Snapshot).map_err(|error| self.error(error))
    }

    /// Returns the points of a run and their ids, in plan order.
    ///
    /// # Errors
    /// If the database is locked or damaged. For an unknown run, the result is empty.
    pub fn points(&self, run: RunId) -> Result<Vec<(PointId, PointRow)>, Error> {
        let sql = with_id::<PointRow>("point WHERE run_id = ? ORDER BY ordinal");
        self.select_sql(&sql, [run], |row| Ok((row.get(0)?, PointRow::read_from(row, 1)?)))
    }

    /// Returns the verdict of a point. There is no verdict while the run is in progress.
    ///
    /// # Errors
    /// If there is no such point, or the database is locked or damaged.
    pub fn point_end(&self, point: PointId) -> Result<PointEnd, Error> {
        let sql = "SELECT * FROM point WHERE id = ?";
        let end = self.connection().query_row(sql, [point], PointEnd::read);
        end.map_err(|error| self.error(error))
    }

    /// Returns the trials of a point and their ids, in ascending order of the ordinal.
    ///
    /// # Errors
    /// If the database is locked or damaged. For an unknown point, the result is empty.
    pub fn trials(&self, point: PointId) -> Result<Vec<(TrialId, TrialRow)>, Error> {
        let sql = with_id::<TrialRow>("trial WHERE point_id = ? ORDER BY ordinal");
        self.select_sql(&sql, [point], |row| Ok((row.get(0)?, TrialRow::read_from(row, 1)?)))
    }

    /// Returns the trials of a point in ascending order of the ordinal, with only the columns that
    /// comparisons need.
    ///
    /// # Errors
    /// If the database is locked or damaged. For an unknown point, the result is empty.
    pub fn trial_rates(&self, point: PointId) -> Result<Vec<TrialRates>, Error> {
        let columns = TrialRates::COLUMNS.join(", ");
        let sql = format!("SELECT {columns} FROM trial WHERE point_id = ? ORDER BY ordinal");
        self.select_sql(&sql, [point], |row| TrialRates::read_from(row, 0))
    }

    /// Returns how many points and how many trials are stored for a run.
    ///
    /// # Errors
    /// If the database is locked or damaged. For an unknown run, both counts are 0.
    pub fn counts(&self, run: RunId) -> Result<(u64, u64), Error> {
        let counts = "SELECT count(DISTINCT point.id), count(trial.id) FROM point \
                      LEFT JOIN trial ON trial.point_id = point.id WHERE point.run_id = ?";
        self.connection()
            .query_row(counts, [run], |row| Ok((row.get(0)?, row.get(1)?)))
            .map_err(|error| self.error(error))
    }

    /// Returns how many points and how many trials each run has. Runs without points are omitted.
    ///
    /// # Errors
    /// If the database is locked or damaged.
    pub fn all_counts(&self) -> Result<BTreeMap<RunId, (u64, u64)>, Error> {
        let counts = "SELECT run_id, count(*), sum((SELECT count(*) FROM trial \
                      WHERE trial.point_id = point.id)) FROM point GROUP BY run_id";
        let rows = || -> rusqlite::Result<BTreeMap<RunId, (u64, u64)>> {
            let mut statement = self.connection().prepare(counts)?;
            let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, (row.get(1)?, row.get(2)?)));
            statement.query_map([], row)?.collect()
        };
        rows().map_err(|error| self.error(error))
    }

    /// Returns the latency histogram of a trial: first reads, then writes, each in ascending order
    /// of latency.
    ///
    /// # Errors
    /// If the database is locked or damaged. For an unknown trial, the result is empty.
    pub fn latency(&self, trial: TrialId) -> Result<Vec<LatencyRow>, Error> {
        let of_trial = "latency WHERE trial_id = ? ORDER BY operation, low_ns";
        self.select(of_trial, [trial], LatencyRow::read)
    }

    /// Returns the intervals of a trial in order of time.
    ///
    /// # Errors
    /// If the database is locked or damaged. For an unknown trial, the result is empty.
    pub fn series(&self, trial: TrialId) -> Result<Vec<SeriesRow>, Error> {
        self.select("series WHERE trial_id = ? ORDER BY ordinal", [trial], SeriesRow::read)
    }

    /// Checks whether a run with this number exists.
    pub(crate) fn has_run(&self, run: RunId) -> Result<bool, Error> {
        self.connection()
            .query_row("SELECT 1 FROM run WHERE id = ?", [run], |_| Ok(()))
            .optional()
            .map(|found| found.is_some())
            .map_err(|error| self.error(error))
    }

    /// Runs `SELECT * FROM {what}` and converts each row with `read`.
    pub(crate) fn select<T>(
        &self,
        what: &str,
        parameters: impl Params,
        read: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Error> {
        self.select_sql(&format!("SELECT * FROM {what}"), parameters, read)
    }

    fn select_sql<T>(
        &self,
        sql: &str,
        parameters: impl Params,
        read: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Error> {
        let rows = || -> rusqlite::Result<Vec<T>> {
            // The prepared statement is cached, so that SQLite does not parse it again for each
            // point.
            let mut statement = self.connection().prepare_cached(sql)?;
            statement.query_map(parameters, read)?.collect()
        };
        rows().map_err(|error| self.error(error))
    }
}

/// Returns the SQL query that selects the id and the columns of `R`.
fn with_id<R: Columns>(from: &str) -> String {
    format!("SELECT id, {} FROM {from}", R::COLUMNS.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{a_point, a_series, an_end, sample_histogram, sample_run, sample_trial};
    use crate::row::{Operation, RunKind, RunState, Verdict};
    use crate::store::tests::a_store_with_a_point;

    #[test]
    fn points_and_trials_of_a_run_are_counted() {
        let (mut store, run, point) = a_store_with_a_point();
        let other = store.begin_run(&sample_run("other", 2)).unwrap();
        assert_eq!(store.counts(other).unwrap(), (0, 0));
        assert_eq!(store.counts(run).unwrap(), (1, 0));
        for ordinal in 0..3 {
            store.add_trial(point, &sample_trial(ordinal), &sample_histogram(2), &[]).unwrap();
        }
        store.add_point(run, &a_point(7)).unwrap();
        assert_eq!(store.counts(run).unwrap(), (2, 3));
    }

    fn a_store_with_runs(uuids: &[(&str, i64)]) -> Store {
        let mut store = Store::in_memory().unwrap();
        for (uuid, started_unix_ns) in uuids {
            store.begin_run(&sample_run(uuid, *started_unix_ns)).unwrap();
        }
        store
    }

    fn number(store: &Store, sql: &str) -> f64 {
        store.connection().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_run_comes_back_as_it_was_written_at_its_beginning_and_at_its_end() {
        let mut store = Store::in_memory().unwrap();
        let begun = sample_run("0a0b", 10);
        let id = store.begin_run(&begun).unwrap();
        let mut expected = RunRow {
            id,
            uuid: begun.uuid,
            kind: begun.kind,
            command_line: begun.command_line,
            label: begun.label,
            started_unix_ns: begun.started_unix_ns,
            finished_unix_ns: None,
            state: RunState::Running,
            version: begun.version,
            schema: begun.schema,
            seed: begun.seed,
            pid: begun.pid,
            boot_id: begun.boot_id,
            host_json: begun.host_json,
            target_json: begun.target_json,
            settings_json: begun.settings_json,
            findings_json: None,
            verdict: None,
            verdict_reasons_json: "[]".into(),
            note: None,
        };
        assert_eq!(store.runs().unwrap(), [expected.clone()]);

        let end = an_end();
        store.finish_run(id, &end, &[]).unwrap();
        expected.state = end.state;
        expected.finished_unix_ns = Some(end.finished_unix_ns);
        expected.findings_json = end.findings_json;
        expected.verdict = end.verdict;
        expected.verdict_reasons_json = end.verdict_reasons_json;
        assert_eq!(store.runs().unwrap(), [expected]);
    }

    #[test]
    fn every_word_of_a_run_comes_back() {
        let mut store = Store::in_memory().unwrap();
        for (i, kind) in [RunKind::Run, RunKind::Survey, RunKind::Sweep].into_iter().enumerate() {
            let mut run = sample_run(&i.to_string(), 0);
            (run.kind, run.label) = (kind, None);
            let id = store.begin_run(&run).unwrap();
            assert_eq!(store.run(&id.to_string()).unwrap().kind, kind);
            assert_eq!(store.run(&id.to_string()).unwrap().label, None);
        }
        let id = store.run("latest").unwrap().id;
        for state in [RunState::Finished, RunState::Interrupted, RunState::Failed] {
            for verdict in [Verdict::Valid, Verdict::Suspect, Verdict::Invalid] {
                let mut end = an_end();
                (end.state, end.verdict) = (state, Some(verdict));
                store.finish_run(id, &end, &[]).unwrap();
                let run = store.run("latest").unwrap();
                assert_eq!((run.state, run.verdict), (state, Some(verdict)));
            }
        }
    }

    #[test]
    fn points_come_back_in_the_order_of_the_plan() {
        let mut store = Store::in_memory().unwrap();
        let run = store.begin_run(&sample_run("u", 0)).unwrap();
        let mut closed_loop = a_point(0);
        (closed_loop.rate_requests_per_s, closed_loop.operation) = (None, Operation::Write);
        let second = store.add_point(run, &a_point(1)).unwrap();
        let first = store.add_point(run, &closed_loop).unwrap();
        assert_eq!(store.points(run).unwrap(), [(first, closed_loop), (second, a_point(1))]);
    }

    #[test]
    fn a_trial_comes_back_with_its_histogram_and_series() {
        let (mut store, _, point) = a_store_with_a_point();
        let mut histogram = sample_histogram(5);
        let write = LatencyRow { operation: Operation::Write, ..histogram[0].clone() };
        histogram.push(write);
        let id = store.add_trial(point, &sample_trial(0), &histogram, &a_series(3)).unwrap();
        assert_eq!(store.trials(point).unwrap(), [(id, sample_trial(0))]);
        let rates = store.trial_rates(point).unwrap();
        assert_eq!(rates.len(), 1);
        assert_eq!(rates[0].elapsed_ns, sample_trial(0).elapsed_ns);
        assert_eq!(rates[0].full_queue_bytes_per_s, sample_trial(0).full_queue_bytes_per_s);
        assert_eq!(store.latency(id).unwrap(), histogram);
        assert_eq!(store.series(id).unwrap(), a_series(3));
    }

    #[test]
    fn what_a_trial_did_not_measure_comes_back_as_none() {
        let (mut store, _, point) = a_store_with_a_point();
        let mut trial = sample_trial(0);
        for unmeasured in [
            &mut trial.accepted_ns,
            &mut trial.cpu_machine_ns,
            &mut trial.cpu_soaker_ns,
            &mut trial.instructions,
            &mut trial.cycles,
            &mut trial.device_reads,
            &mut trial.device_read_merges,
            &mut trial.device_read_sectors,
            &mut trial.device_writes,
            &mut trial.device_write_merges,
            &mut trial.device_write_sectors,
            &mut trial.resident_before_bytes,
            &mut trial.resident_after_bytes,
        ] {
            *unmeasured = None;
        }
        let id = store.add_trial(point, &trial, &[], &[]).unwrap();
        assert_eq!(store.trials(point).unwrap(), [(id, trial)]);
    }

    #[test]
    fn runs_are_listed_newest_first_and_the_later_entry_first_among_equals() {
        let store = a_store_with_runs(&[("b", 20), ("c", 30), ("a", 10), ("d", 30)]);
        let uuids: Vec<_> = store.runs().unwrap().into_iter().map(|run| run.uuid).collect();
        assert_eq!(uuids, ["d", "c", "b", "a"]);
        let label = sample_run("a", 1).label.unwrap();
        assert_eq!(store.runs_with_label(&label).unwrap(), store.runs().unwrap());
        assert!(store.runs_with_label("none").unwrap().is_empty());
        assert_eq!(store.run("latest").unwrap().uuid, "d");
    }

    #[test]
    fn the_heads_of_all_runs_come_in_the_order_of_their_numbers() {
        let store = a_store_with_runs(&[("b", 20), ("c", 30), ("a", 10)]);
        let mut heads = Vec::new();
        store.each_run_head(|head| heads.push(head)).unwrap();
        let uuids: Vec<&str> = heads.iter().map(|head| head.uuid.as_str()).collect();
        assert_eq!(uuids, ["b", "c", "a"]);
        let row = store.run("b").unwrap();
        assert_eq!(
            (&heads[0].host_json, &heads[0].target_json),
            (&row.host_json, &row.target_json)
        );
        assert_eq!((heads[0].id, heads[0].started_unix_ns), (row.id, 20));
    }

    #[test]
    fn a_run_is_found_by_number_and_by_the_start_of_its_uuid_in_either_case() {
        let store = a_store_with_runs(&[("abcd-1", 1), ("abce-2", 2)]);
        assert_eq!(store.run("1").unwrap().uuid, "abcd-1");
        assert_eq!(store.run("abcd-1").unwrap().uuid, "abcd-1");
        assert_eq!(store.run(" ABCE ").unwrap().uuid, "abce-2");
    }

    #[test]
    fn a_short_number_means_the_run_of_that_number_whatever_uuids_start_with() {
        let store = a_store_with_runs(&[("2aaa", 1), ("1bbb", 2), ("3ccc", 3), ("9ddd", 4)]);
        assert_eq!(store.run("2").unwrap().uuid, "1bbb");
        assert!(matches!(store.run("9").unwrap_err(), Error::RunNotFound { .. }));
        let store = a_store_with_runs(&[("12345678-a", 1)]);
        assert_eq!(store.run("12345678").unwrap().uuid, "12345678-a");
    }

    #[test]
    fn a_start_that_several_uuids_share_is_ambiguous() {
        let store = a_store_with_runs(&[("abcd-1", 1), ("abcd-2", 2)]);
        let error = store.run("abcd").unwrap_err();
        assert!(matches!(error, Error::RunAmbiguous { .. }), "{error}");
    }

    #[test]
    fn a_selector_that_fits_no_run_says_what_would() {
        let store = a_store_with_runs(&[("abcd-1", 1)]);
        for selector in ["", " ", "%", "_bcd", "bcd", "99", "-1", "abcd-12", "Latest"] {
            let error = store.run(selector).unwrap_err();
            assert!(matches!(error, Error::RunNotFound { .. }), "{selector:?}: {error}");
            assert!(error.to_string().contains("\"latest\""), "{error}");
        }
        let empty = Store::in_memory().unwrap();
        assert!(matches!(empty.run("latest").unwrap_err(), Error::RunNotFound { .. }));
    }

    #[test]
    fn the_trial_view_derives_the_rates() {
        let (mut store, _, point) = a_store_with_a_point();
        store.add_trial(point, &sample_trial(0), &[], &[]).unwrap();
        let of = |column: &str| number(&store, &format!("SELECT {column} FROM trial_summary"));
        assert_eq!(of("throughput_bytes_per_s"), 32_768_000.0);
        assert_eq!(of("requests_per_s"), 8000.0);
        assert_eq!(of("cpu_ns_per_request"), 500.0);
        assert_eq!(of("cpu_ns_per_byte"), 2_000_000.0 / 16_384_000.0);
        assert_eq!(of("request_bytes"), 4096.0);
        assert_eq!(of("started_utc = '2023-11-14 22:13:20'"), 1.0);
    }

    #[test]
    fn the_trial_view_has_the_rates_of_a_full_queue_where_no_flush_belongs_to_the_trial() {
        for (accepted_ns, rates) in [(None, (3e7, 7500.0)), (Some(1), (32_768_000.0, 8000.0))] {
            let (mut store, _, point) = a_store_with_a_point();
            let full = TrialRow {
                accepted_ns,
                full_queue_start_ns: Some(1000),
                full_queue_end_ns: Some(2000),
                full_queue_bytes_per_s: Some(3e7),
                full_queue_requests_per_s: Some(7500.0),
                ..sample_trial(0)
            };
            let id = store.add_trial(point, &full, &[], &[]).unwrap();
            assert_eq!(store.trials(point).unwrap(), [(id, full)]);
            let of = |column: &str| number(&store, &format!("SELECT {column} FROM trial_summary"));
            assert_eq!((of("throughput_bytes_per_s"), of("requests_per_s")), rates);
        }
    }

    #[test]
    fn the_trial_view_has_null_rates_for_a_trial_that_did_nothing() {
        let (mut store, _, point) = a_store_with_a_point();
        let idle = TrialRow { bytes: 0, requests: 0, elapsed_ns: 0, ..sample_trial(0) };
        store.add_trial(point, &idle, &[], &[]).unwrap();
        let sql = "SELECT count(*) + count(requests_per_s) + count(throughput_bytes_per_s) \
                   + count(cpu_ns_per_request) + count(cpu_ns_per_byte) FROM trial_summary";
        assert_eq!(number(&store, sql), 1.0);
        assert_eq!(number(&store, "SELECT count(*) FROM point_summary"), 0.0);
    }

    #[test]
    fn the_point_view_takes_the_median_of_the_trials_without_the_soaked_ones() {
        let (mut store, _, point) = a_store_with_a_point();
        // Each trial takes one second, so the number of bytes is also the throughput in bytes/s.
        // Trials with an even ordinal are not soaked (see `TrialRow::soaked`).
        for (i, bytes) in [70, 10, 40, 60].into_iter().enumerate() {
            let ordinal = 2 * i as u32;
            let trial = TrialRow { bytes, elapsed_ns: 1_000_000_000, ..sample_trial(ordinal) };
            store.add_trial(point, &trial, &[], &[]).unwrap();
        }
        store.add_trial(point, &sample_trial(1), &[], &[]).unwrap();
        let of = |column: &str, soaked: u8| {
            let sql = format!("SELECT {column} FROM point_summary WHERE soaked = {soaked}");
            number(&store, &sql)
        };
        assert_eq!(of("trials", 0), 4.0);
        assert_eq!(of("throughput_median_bytes_per_s", 0), 50.0);
        assert_eq!(of("throughput_min_bytes_per_s", 0), 10.0);
        assert_eq!(of("throughput_max_bytes_per_s", 0), 70.0);
        assert_eq!(of("valid_trials", 0), 0.0);
        assert_eq!(of("trials", 1), 1.0);
        assert_eq!(of("throughput_median_bytes_per_s", 1), 32_768_000.0);
    }

    #[test]
    fn the_latency_view_accumulates_to_one_and_the_series_view_gives_rates() {
        let (mut store, _, point) = a_store_with_a_point();
        store.add_trial(point, &sample_trial(0), &sample_histogram(3), &a_series(1)).unwrap();
        let share = |low: u32| {
            let sql =
                format!("SELECT cumulative_share FROM latency_cumulative WHERE low_ns = {low}");
            number(&store, &sql)
        };
        assert_eq!(share(0), 1.0 / 6.0);
        assert_eq!(share(10), 3.0 / 6.0);
        assert_eq!(share(20), 1.0);
        assert_eq!(number(&store, "SELECT requests_per_s FROM series_rate"), 2e7);
        assert_eq!(number(&store, "SELECT throughput_bytes_per_s FROM series_rate"), 8192e7);
    }
}
