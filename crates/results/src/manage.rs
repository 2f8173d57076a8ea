//! Imports, labels, annotates, merges and deletes runs, sets baselines, and compacts the database.
//!
//! Each change is one transaction. A merge copies runs from another database, with all their
//! points, trials, histograms and series. The other database is only read.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Transaction, params_from_iter};

use crate::error::Error;
use crate::row::{
    Columns, LatencyRow, NewRun, OriginRow, PointEnd, PointRow, RunEnd, RunId, RunRow, RunState,
    SeriesRow, TrialRow,
};
use crate::store::{Store, insert, update};

/// The result of [`Store::merge`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Number of runs that were copied because this database did not have them.
    pub added: u64,
    /// Number of runs that were not copied because this database already had them.
    pub known: u64,
    /// Number of runs that were replaced because this database had a less complete copy:
    /// unfinished, or with fewer trials.
    pub replaced: u64,
}

/// A run of another tool, which [`Store::add_import`] stores.
#[derive(Clone, Debug)]
pub struct Import {
    /// The run. Its uuid is computed from the tool's output, so that a second import of the same
    /// output is recognised.
    pub run: NewRun,
    /// End time, state, findings and verdict of the run.
    pub end: RunEnd,
    /// The file and the tool from which the run was imported.
    pub origin: OriginRow,
    /// The points with their verdicts and trials.
    pub points: Vec<(PointRow, PointEnd, Vec<ImportedTrial>)>,
}

/// A trial with its histogram and series.
pub type ImportedTrial = (TrialRow, Vec<LatencyRow>, Vec<SeriesRow>);

impl Store {
    /// Stores a run of another tool, with all its points and trials, in one transaction.
    ///
    /// # Errors
    /// If a run with this uuid exists, the disk is full, or the database is locked or damaged. The
    /// database is then unchanged.
    pub fn add_import(&mut self, import: &Import) -> Result<RunId, Error> {
        self.write(|transaction| {
            insert(transaction, "run", ("state", &RunState::Finished), [&import.run])?;
            let run = RunId(transaction.last_insert_rowid());
            insert(transaction, "origin", ("run_id", &run), [&import.origin])?;
            for (point, end, trials) in &import.points {
                insert(transaction, "point", ("run_id", &run), [point])?;
                let point = transaction.last_insert_rowid();
                update(transaction, "point", &point, end)?;
                for (trial, latency, series) in trials {
                    insert(transaction, "trial", ("point_id", &point), [trial])?;
                    let trial = transaction.last_insert_rowid();
                    insert(transaction, "latency", ("trial_id", &trial), latency)?;
                    insert(transaction, "series", ("trial_id", &trial), series)?;
                }
            }
            update(transaction, "run", &run, &import.end)?;
            Ok(run)
        })
    }

    /// Returns the origin of a run. None if the run was not imported.
    ///
    /// # Errors
    /// If the database is locked or damaged.
    pub fn origin(&self, run: RunId) -> Result<Option<OriginRow>, Error> {
        Ok(self.select("origin WHERE run_id = ?", [run], OriginRow::read)?.pop())
    }

    /// Sets the baseline `name` to a run. An earlier baseline of this name is replaced.
    ///
    /// # Errors
    /// [`Error::RunNotFound`] if the run does not exist. Other errors if the disk is full, or the
    /// database is locked or damaged.
    pub fn set_baseline(&mut self, name: &str, run: RunId) -> Result<(), Error> {
        if !self.has_run(run)? {
            return Err(self.no_run(&run.to_string()));
        }
        let sql = "INSERT OR REPLACE INTO baseline (name, run_id) VALUES (?, ?)";
        self.write(|transaction| transaction.execute(sql, (name, run)).map(drop))
    }

    /// Removes a baseline, but not its run. Returns true if the baseline existed.
    ///
    /// # Errors
    /// If the disk is full, or the database is locked or damaged.
    pub fn remove_baseline(&mut self, name: &str) -> Result<bool, Error> {
        self.write(|transaction| {
            transaction.execute("DELETE FROM baseline WHERE name = ?", [name]).map(|rows| rows > 0)
        })
    }

    /// Returns the baselines with their runs, sorted by name.
    ///
    /// # Errors
    /// If the database is locked or damaged.
    pub fn baselines(&self) -> Result<Vec<(String, RunRow)>, Error> {
        let rows = "run JOIN baseline ON baseline.run_id = run.id ORDER BY baseline.name";
        self.select(rows, [], |row| Ok((row.get("name")?, RunRow::read(row)?)))
    }

    /// Sets the label of a run. `None` removes the label.
    ///
    /// # Errors
    /// [`Error::RunNotFound`] if the run does not exist. Other errors if the disk is full, or the
    /// database is locked or damaged.
    pub fn set_label(&mut self, run: RunId, label: Option<&str>) -> Result<(), Error> {
        let changed = self.write(|transaction| {
            transaction.execute("UPDATE run SET label = ? WHERE id = ?", (label, run))
        })?;
        if changed == 0 { Err(self.no_run(&run.to_string())) } else { Ok(()) }
    }

    /// Returns the runs to delete, newest first: the runs that `names` selects, and all old runs. A
    /// run is old if it started before `before_unix_ns` (ns since 1970) and is not among the newest
    /// `keep` runs. If `before_unix_ns` or `keep` is `None`, only the remaining condition applies.
    /// If both are `None`, no run is old. A run in progress is never returned.
    ///
    /// # Errors
    /// If a name does not select exactly one run, or the database is locked or damaged.
    pub fn runs_to_delete(
        &self,
        names: &[String],
        before_unix_ns: Option<i64>,
        keep: Option<usize>,
    ) -> Result<Vec<RunRow>, Error> {
        let named: Result<Vec<RunId>, _> =
            names.iter().map(|name| self.run(name).map(|row| row.id)).collect();
        let named = named?;
        let rows = self.runs()?.into_iter().enumerate().filter(|(index, row)| {
            let is_old = before_unix_ns.map(|limit_ns| row.started_unix_ns < limit_ns);
            let is_over = keep.map(|count| *index >= count);
            let is_beyond = match (is_old, is_over) {
                (Some(is_old), Some(is_over)) => is_old && is_over,
                (one, other) => one.or(other).unwrap_or(false),
            };
            (named.contains(&row.id) || is_beyond) && row.state != RunState::Running
        });
        Ok(rows.map(|(_, row)| row).collect())
    }

    /// Sets the user's note on a run. `None` removes the note.
    ///
    /// # Errors
    /// [`Error::RunNotFound`] if the run does not exist. Other errors if the disk is full, or the
    /// database is locked or damaged.
    pub fn set_note(&mut self, run: RunId, note: Option<&str>) -> Result<(), Error> {
        let changed = self.write(|transaction| {
            transaction.execute("UPDATE run SET note = ? WHERE id = ?", (note, run))
        })?;
        if changed == 0 { Err(self.no_run(&run.to_string())) } else { Ok(()) }
    }

    /// Deletes runs with all their points and trials. The file does not become smaller until
    /// [`Store::vacuum`] is called.
    ///
    /// # Errors
    /// If the disk is full, or the database is locked or damaged. Either all runs are deleted or
    /// none.
    pub fn delete_runs(&mut self, runs: &[RunId]) -> Result<(), Error> {
        self.write(|transaction| {
            let mut delete = transaction.prepare("DELETE FROM run WHERE id = ?")?;
            runs.iter().try_for_each(|run| delete.execute([run]).map(drop))
        })
    }

    /// Copies the runs of `other` that this database does not have. A run that this database has is
    /// replaced if the run in `other` is more complete: finished, or with more trials.
    ///
    /// # Errors
    /// If the disk is full, or one of the databases is locked or damaged. This database is then
    /// unchanged.
    pub fn merge(&mut self, other: &Store) -> Result<Merged, Error> {
        let runs = other.runs()?;
        let from = other.connection();
        self.write(|transaction| {
            // The transaction makes all reads see the same state of the other database.
            let from = from.unchecked_transaction()?;
            let from = &from;
            let mut merged = Merged::default();
            for run in runs.iter().rev() {
                match completeness(transaction, &run.uuid)? {
                    None => merged.added += 1,
                    Some(here) if Some(here) >= completeness(from, &run.uuid)? => {
                        merged.known += 1;
                        continue;
                    }
                    Some(_) => {
                        transaction.execute("DELETE FROM run WHERE uuid = ?", [&run.uuid])?;
                        merged.replaced += 1;
                    }
                }
                for (_, new) in copied(from, transaction, Rows::of("run", "id", run.id.0), None)? {
                    copied(from, transaction, Rows::of("origin", "run_id", run.id.0), Some(new))?;
                    let points = Rows::of("point", "run_id", run.id.0);
                    for (old, new) in copied(from, transaction, points, Some(new))? {
                        copy_trials(from, transaction, old, new)?;
                    }
                }
            }
            Ok(merged)
        })
    }

    /// Returns the space of deleted runs to the file system.
    ///
    /// # Errors
    /// If the disk is full (SQLite needs space for a second copy of the database), or the database
    /// is locked or damaged.
    pub fn vacuum(&mut self) -> Result<(), Error> {
        self.connection().execute_batch("VACUUM").map_err(|error| self.error(error))
    }
}

/// Returns how complete a stored run is: whether it is finished or failed, and its number of
/// trials. A more complete run has a greater value. None if there is no such run.
fn completeness(of: &Connection, uuid: &str) -> rusqlite::Result<Option<(bool, i64)>> {
    let sql = "SELECT state IN ('finished', 'failed'), (SELECT count(*) FROM trial \
               JOIN point ON point.id = trial.point_id WHERE point.run_id = run.id) \
               FROM run WHERE uuid = ?";
    of.query_row(sql, [uuid], |row| Ok((row.get(0)?, row.get(1)?))).optional()
}

/// The rows of `table` in which `column` has the value `value`.
#[derive(Clone, Copy)]
struct Rows {
    table: &'static str,
    column: &'static str,
    value: i64,
}

impl Rows {
    fn of(table: &'static str, column: &'static str, value: i64) -> Rows {
        Rows { table, column, value }
    }
}

fn copy_trials(
    from: &Connection,
    to: &Transaction<'_>,
    old_point: i64,
    new_point: i64,
) -> rusqlite::Result<()> {
    for (old, new) in copied(from, to, Rows::of("trial", "point_id", old_point), Some(new_point))? {
        for table in ["latency", "series"] {
            copied(from, to, Rows::of(table, "trial_id", old), Some(new))?;
        }
    }
    Ok(())
}

/// Copies rows from one database to another. If `parent` is given, the copies have the value
/// `parent` in `column`. Returns the old and the new id of each row. The old id is 0 if the table
/// has no ids.
fn copied(
    from: &Connection,
    to: &Transaction<'_>,
    Rows { table, column, value }: Rows,
    parent: Option<i64>,
) -> rusqlite::Result<Vec<(i64, i64)>> {
    let mut select = from.prepare(&format!("SELECT * FROM {table} WHERE {column} = ?"))?;
    let names: Vec<String> = select.column_names().map(str::to_owned).collect();
    let kept: Vec<usize> = (0..names.len()).filter(|index| names[*index] != "id").collect();
    let columns: Vec<&str> = kept.iter().map(|index| names[*index].as_str()).collect();
    let mut insert = to.prepare(&format!(
        "INSERT INTO {table} ({}) VALUES ({})",
        columns.join(", "),
        vec!["?"; columns.len()].join(", ")
    ))?;
    let id = names.iter().position(|name| name == "id");
    let mut rows = select.query([value])?;
    let mut ids = Vec::new();
    while let Some(row) = rows.next()? {
        let values: Vec<Value> = kept
            .iter()
            .map(|index| match parent {
                Some(parent) if names[*index] == column => Ok(Value::Integer(parent)),
                _ => row.get(*index),
            })
            .collect::<rusqlite::Result<_>>()?;
        insert.execute(params_from_iter(values))?;
        let old = id.map_or(Ok(0), |index| row.get(index))?;
        ids.push((old, to.last_insert_rowid()));
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn an_import(uuid: &str) -> Import {
        let origin = OriginRow {
            tool: "fio-3.33".into(),
            format: "fio-json".into(),
            file: "a.json".into(),
            missing_json: "[]".into(),
            document: "{}".into(),
        };
        let trial = (sample_trial(0), sample_histogram(2), a_series(2));
        let a_verdict = PointEnd { verdict: None, verdict_reasons_json: "[]".into() };
        let points = vec![(a_point(0), a_verdict, vec![trial])];
        Import { run: sample_run(uuid, 5), end: an_end(), origin, points }
    }

    #[test]
    fn an_import_is_stored_whole_with_its_origin_which_merging_keeps() {
        let mut store = Store::in_memory().unwrap();
        let run = store.add_import(&an_import("a")).unwrap();
        assert_eq!(store.origin(run).unwrap().unwrap().tool, "fio-3.33");
        assert_eq!(store.counts(run).unwrap(), (1, 1));
        let mut other = Store::in_memory().unwrap();
        other.merge(&store).unwrap();
        let copy = other.run("latest").unwrap().id;
        assert_eq!(other.origin(copy).unwrap(), store.origin(run).unwrap());
        other.delete_runs(&[copy]).unwrap();
        assert_eq!(other.origin(copy).unwrap(), None);
    }

    #[test]
    fn a_baseline_names_a_run_until_it_is_set_again_or_the_run_is_deleted() {
        let mut store = with_runs(&["a", "b"]);
        let named = |store: &Store| -> Vec<(String, String)> {
            let all = store.baselines().unwrap().into_iter();
            all.map(|(name, run)| (name, run.uuid)).collect()
        };
        let [a, b] =
            ["a", "b"].map(|uuid| store.runs().unwrap().into_iter().find(|r| r.uuid == uuid));
        store.set_baseline("x", a.unwrap().id).unwrap();
        assert_eq!(named(&store), [("x".to_owned(), "a".to_owned())]);
        let b = b.unwrap().id;
        store.set_baseline("x", b).unwrap();
        assert_eq!(named(&store), [("x".to_owned(), "b".to_owned())]);
        store.delete_runs(&[b]).unwrap();
        assert_eq!(named(&store), []);
        assert!(!store.remove_baseline("x").unwrap());
        assert!(store.set_baseline("x", b).is_err());
    }

    #[test]
    fn a_second_import_of_the_same_output_changes_nothing() {
        let mut store = Store::in_memory().unwrap();
        store.add_import(&an_import("a")).unwrap();
        let before = content(&store);
        assert!(store.add_import(&an_import("a")).is_err());
        assert_eq!(content(&store), before);
    }
    use crate::fixture::{a_point, a_series, an_end, sample_histogram, sample_run, sample_trial};

    fn with_runs(uuids: &[&str]) -> Store {
        let mut store = Store::in_memory().unwrap();
        for (index, uuid) in uuids.iter().enumerate() {
            let run = store.begin_run(&sample_run(uuid, index as i64)).unwrap();
            for ordinal in 0..2 {
                let point = store.add_point(run, &a_point(ordinal)).unwrap();
                let trial = sample_trial(ordinal);
                store.add_trial(point, &trial, &sample_histogram(3), &a_series(2)).unwrap();
            }
        }
        store
    }

    fn content(store: &Store) -> Vec<String> {
        let mut all = Vec::new();
        for run in store.runs().unwrap() {
            for (point, row) in store.points(run.id).unwrap() {
                for (trial, values) in store.trials(point).unwrap() {
                    let (latency, series) = (store.latency(trial), store.series(trial));
                    all.push(format!("{} {row:?} {values:?} {latency:?} {series:?}", run.uuid));
                }
            }
        }
        all.sort();
        all
    }

    #[test]
    fn merging_copies_every_row_and_merging_again_changes_nothing() {
        let (mut one, two) = (with_runs(&["a", "b"]), with_runs(&["b", "c", "d"]));
        assert_eq!(one.merge(&two).unwrap(), Merged { added: 2, known: 1, replaced: 0 });
        assert_eq!(content(&one), content(&with_runs(&["a", "b", "c", "d"])));
        assert_eq!(one.merge(&two).unwrap(), Merged { added: 0, known: 3, replaced: 0 });
        assert_eq!(content(&two), content(&with_runs(&["b", "c", "d"])));
    }

    #[test]
    fn a_run_that_was_copied_in_progress_is_replaced_by_its_finished_form() {
        let (mut all, mut host) = (Store::in_memory().unwrap(), with_runs(&["a"]));
        all.merge(&host).unwrap();
        let run = host.run("a").unwrap().id;
        let point = host.add_point(run, &a_point(2)).unwrap();
        host.add_trial(point, &sample_trial(0), &sample_histogram(3), &a_series(2)).unwrap();
        let replaced = Merged { added: 0, known: 0, replaced: 1 };
        assert_eq!(all.merge(&host).unwrap(), replaced, "more trials");
        host.finish_run(run, &an_end(), &[]).unwrap();
        assert_eq!(all.merge(&host).unwrap(), replaced, "finished");
        assert_eq!(all.run("a").unwrap().state, RunState::Finished);
        assert_eq!(content(&all), content(&host));
        // A less complete copy does not replace a more complete run.
        let older = with_runs(&["a"]);
        assert_eq!(all.merge(&older).unwrap(), Merged { added: 0, known: 1, replaced: 0 });
    }

    #[test]
    fn a_label_that_is_also_the_beginning_of_a_uuid_is_ambiguous_and_one_of_digits_is_found() {
        let mut store = with_runs(&["aaaa-1", "bbbb-2"]);
        store.set_label(RunId(1), Some("bbbb")).unwrap();
        let error = store.run("bbbb").unwrap_err();
        assert!(error.to_string().contains("1, 2"), "{error}");
        assert!(store.run("bb").is_err(), "a uuid prefix needs at least four characters");
        store.set_label(RunId(1), Some("2024")).unwrap();
        assert_eq!(store.run("2024").unwrap().id, RunId(1));
    }

    #[test]
    fn a_deleted_run_takes_its_trials_with_it_and_no_others() {
        let mut store = with_runs(&["a", "b"]);
        let first = store.run("a").unwrap().id;
        store.delete_runs(&[first]).unwrap();
        store.vacuum().unwrap();
        assert_eq!(content(&store), content(&with_runs(&["b"])));
        let rows = "SELECT count(*) FROM latency";
        let left: u32 = store.connection().query_row(rows, [], |row| row.get(0)).unwrap();
        assert_eq!(left, 6);
    }

    #[test]
    fn a_label_is_set_and_removed() {
        let mut store = with_runs(&["a"]);
        let run = store.run("a").unwrap().id;
        store.set_label(run, Some("before")).unwrap();
        assert_eq!(store.run("before").unwrap().id, run);
        store.set_label(run, None).unwrap();
        assert!(store.run("before").is_err());
        assert!(store.set_label(RunId(99), Some("x")).is_err());
    }

    #[test]
    fn a_label_of_several_runs_is_ambiguous() {
        let mut store = with_runs(&["a", "b"]);
        for name in ["a", "b"] {
            let run = store.run(name).unwrap().id;
            store.set_label(run, Some("twice")).unwrap();
        }
        assert!(matches!(store.run("twice"), Err(Error::RunAmbiguous { .. })));
    }
}
