//! Exports runs as tables for spreadsheets, notebooks and other programs. There is one table each
//! for points, trials, intervals and histogram buckets. Every row also contains the settings of its
//! workload.
//!
//! The columns are those of the SQL views `points`, `trials`, `intervals` and `latency_buckets`.
//! Each row is written as soon as it is read, so the memory use does not grow with the number of
//! rows. CSV follows RFC 4180, but lines end with `\n`. NULL is an empty field in CSV, and `null`
//! in NDJSON.

use std::io::{self, Write};

use rusqlite::types::ValueRef;

use crate::error::Error;
use crate::row::RunId;
use crate::store::Store;

/// A table of a run that can be exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// One row for each point (workload).
    Points,
    /// One row for each trial.
    Trials,
    /// One row for each interval of a trial.
    Intervals,
    /// One row for each bucket of a trial's latency histogram.
    Latency,
}

impl Table {
    /// All tables with their names.
    pub const NAMED: [(&'static str, Table); 4] = [
        ("points", Table::Points),
        ("trials", Table::Trials),
        ("intervals", Table::Intervals),
        ("latency", Table::Latency),
    ];

    /// Returns the SQL query for the rows of a run. The query has one parameter, the run's number.
    fn sql(self) -> &'static str {
        match self {
            Self::Points => "SELECT * FROM points WHERE run_id = ? ORDER BY point_id",
            Self::Trials => {
                "SELECT * FROM trials WHERE run_id = ? ORDER BY point_ordinal, trial_ordinal"
            }
            Self::Intervals => {
                "SELECT * FROM intervals WHERE run_id = ? \
                 ORDER BY point_id, trial_ordinal, interval_ordinal"
            }
            Self::Latency => {
                "SELECT * FROM latency_buckets WHERE run_id = ? \
                 ORDER BY point_id, trial_ordinal, operation, low_ns"
            }
        }
    }
}

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Whole numbers.
    Integer,
    /// Floating-point numbers.
    Real,
    /// Text.
    Text,
}

/// The value of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cell<'a> {
    /// A value that was not measured.
    Null,
    /// A whole number.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// Text.
    Text(&'a str),
}

impl Store {
    /// Calls `row` for each row of a run's table, with the column names and the cells.
    ///
    /// # Errors
    /// [`Error::RunNotFound`] if the run does not exist, [`Error::Export`] if `row` fails. Other
    /// errors if the database is locked or damaged.
    pub fn each_row(
        &self,
        run: RunId,
        table: Table,
        mut row: impl FnMut(&[&str], &[Cell<'_>]) -> io::Result<()>,
    ) -> Result<(), Error> {
        if !self.has_run(run)? {
            return Err(self.no_run(&run.to_string()));
        }
        let failed = |error| self.error(error);
        let mut statement = self.connection().prepare(table.sql()).map_err(failed)?;
        let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut rows = statement.query([run]).map_err(failed)?;
        while let Some(values) = rows.next().map_err(failed)? {
            let cells: Result<Vec<Cell<'_>>, rusqlite::Error> =
                (0..names.len()).map(|column| cell(values.get_ref(column)?)).collect();
            row(&names, &cells.map_err(failed)?)?;
        }
        Ok(())
    }

    /// Returns the names of the columns of a table.
    ///
    /// # Errors
    /// If the database is locked or damaged.
    pub fn columns(&self, table: Table) -> Result<Vec<String>, Error> {
        let statement = self.connection().prepare(table.sql()).map_err(|e| self.error(e))?;
        Ok(statement.column_names().map(str::to_owned).collect())
    }

    /// Returns the type of each column. For a stored column, this is the type in the schema. For a
    /// computed column, it is the narrowest type that can hold all values of the column in `runs`.
    ///
    /// # Errors
    /// The errors of [`Store::each_row`].
    pub fn kinds(&self, runs: &[RunId], table: Table) -> Result<Vec<Kind>, Error> {
        let statement = self.connection().prepare(table.sql()).map_err(|e| self.error(e))?;
        let mut kinds: Vec<Option<Kind>> =
            statement.columns().map(|column| declared_kind(column.decl_type()?)).collect();
        let is_declared: Vec<bool> = kinds.iter().map(Option::is_some).collect();
        for run in runs {
            self.each_row(*run, table, |_, cells| {
                for ((kind, cell), is_declared) in kinds.iter_mut().zip(cells).zip(&is_declared) {
                    if !is_declared {
                        *kind = cell.widened(*kind);
                    }
                }
                Ok(())
            })?;
        }
        Ok(kinds.into_iter().map(|kind| kind.unwrap_or(Kind::Real)).collect())
    }

    /// Writes a table of several runs as CSV: a header line, then the rows.
    ///
    /// # Errors
    /// The errors of [`Store::each_row`].
    pub fn export_csv(
        &self,
        runs: &[RunId],
        table: Table,
        out: &mut impl Write,
    ) -> Result<(), Error> {
        let columns = self.columns(table)?;
        let mut csv = csv::Writer::from_writer(out);
        let mut is_begun = false;
        for run in runs {
            self.each_row(*run, table, |_, cells| {
                if !std::mem::replace(&mut is_begun, true) {
                    csv.write_record(&columns)?;
                }
                cells.iter().try_for_each(|cell| write_field(&mut csv, *cell))?;
                Ok(csv.write_record(None::<&[u8]>)?)
            })?;
        }
        if !is_begun {
            csv.write_record(&columns).map_err(io::Error::from)?;
        }
        Ok(csv.flush()?)
    }

    /// Writes a table of several runs as NDJSON. Each row becomes a JSON object on its own line.
    ///
    /// # Errors
    /// The errors of [`Store::each_row`].
    pub fn export_ndjson(
        &self,
        runs: &[RunId],
        table: Table,
        out: &mut impl Write,
    ) -> Result<(), Error> {
        for run in runs {
            self.each_row(*run, table, |names, cells| {
                let fields: Vec<String> = names
                    .iter()
                    .zip(cells)
                    .map(|(name, cell)| format!("\"{name}\":{}", cell.json()))
                    .collect();
                writeln!(out, "{{{}}}", fields.join(","))
            })?;
        }
        Ok(out.flush()?)
    }
}

/// Parses an SQL column type. Returns None for types that the schema does not use.
fn declared_kind(name: &str) -> Option<Kind> {
    match name {
        "INTEGER" => Some(Kind::Integer),
        "REAL" => Some(Kind::Real),
        "TEXT" => Some(Kind::Text),
        _ => None,
    }
}

impl Cell<'_> {
    /// Returns the narrowest type that can hold this value and all values of the type `known`.
    fn widened(self, known: Option<Kind>) -> Option<Kind> {
        match (known, self) {
            (_, Cell::Null) => known,
            (Some(Kind::Text), _) | (_, Cell::Text(_)) => Some(Kind::Text),
            (Some(Kind::Real), _) | (_, Cell::Real(_)) => Some(Kind::Real),
            (_, Cell::Integer(_)) => Some(Kind::Integer),
        }
    }

    /// Formats the value as JSON. Numbers that JSON cannot express (infinity) become null.
    fn json(self) -> String {
        match self {
            Cell::Null => "null".to_owned(),
            Cell::Integer(number) => number.to_string(),
            Cell::Real(number) if number.is_finite() => number.to_string(),
            Cell::Real(_) => "null".to_owned(),
            Cell::Text(text) => serde_json::to_string(text).unwrap_or_default(),
        }
    }
}

fn cell(value: ValueRef<'_>) -> rusqlite::Result<Cell<'_>> {
    Ok(match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(number) => Cell::Integer(number),
        ValueRef::Real(number) => Cell::Real(number),
        ValueRef::Text(_) | ValueRef::Blob(_) => Cell::Text(value.as_str()?),
    })
}

fn write_field<W: Write>(csv: &mut csv::Writer<W>, cell: Cell<'_>) -> csv::Result<()> {
    match cell {
        Cell::Null => csv.write_field(""),
        Cell::Integer(number) => csv.write_field(number.to_string()),
        Cell::Real(number) => csv.write_field(number.to_string()),
        Cell::Text(text) => csv.write_field(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{a_point, a_series, sample_histogram, sample_run, sample_trial};
    use crate::row::TrialRow;
    use crate::store::tests::a_store_with_a_point;

    fn csv_of(store: &Store, run: RunId, table: Table) -> String {
        let mut out = Vec::new();
        store.export_csv(&[run], table, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn column(csv: &str, name: &str) -> Vec<String> {
        let mut reader = csv::Reader::from_reader(csv.as_bytes());
        let at = reader.headers().unwrap().iter().position(|column| column == name).unwrap();
        reader.records().map(|record| record.unwrap()[at].to_owned()).collect()
    }

    #[test]
    fn each_row_has_the_workload_and_a_unit_in_each_name() {
        let (mut store, run, point) = a_store_with_a_point();
        store.add_trial(point, &sample_trial(0), &sample_histogram(2), &a_series(2)).unwrap();
        for (_, table) in Table::NAMED {
            let csv = csv_of(&store, run, table);
            assert!(column(&csv, "rw").iter().all(|rw| rw == "randrw"), "{table:?}");
            assert!(column(&csv, "request_bytes").iter().all(|bytes| bytes == "4096"));
            assert!(!csv.contains('{'), "a column contains JSON: {csv}");
        }
        assert_eq!(column(&csv_of(&store, run, Table::Latency), "count"), ["1", "2"]);
        assert_eq!(column(&csv_of(&store, run, Table::Intervals), "interval_ordinal"), ["0", "1"]);
    }

    #[test]
    fn missing_measurements_are_empty_in_csv_and_null_in_ndjson() {
        let (mut store, run, point) = a_store_with_a_point();
        let trial = TrialRow { cycles: None, ..sample_trial(0) };
        store.add_trial(point, &trial, &[], &[]).unwrap();
        let nulls = |ndjson: &str| -> usize {
            let row: serde_json::Value = serde_json::from_str(ndjson).unwrap();
            row.as_object().unwrap().values().filter(|value| value.is_null()).count()
        };
        let mut out = Vec::new();
        store.export_ndjson(&[run], Table::Trials, &mut out).unwrap();
        let csv = csv_of(&store, run, Table::Trials);
        let record = csv::Reader::from_reader(csv.as_bytes()).records().next().unwrap().unwrap();
        let empty = record.iter().filter(|field| field.is_empty()).count();
        assert_eq!(nulls(&String::from_utf8(out).unwrap()), empty);
        assert!(empty > 0);
    }

    #[test]
    fn several_runs_share_one_header_and_others_stay_out() {
        let (mut store, run, point) = a_store_with_a_point();
        store.add_trial(point, &sample_trial(0), &sample_histogram(1), &a_series(1)).unwrap();
        let other = store.begin_run(&sample_run("other", 20)).unwrap();
        let point = store.add_point(other, &a_point(0)).unwrap();
        store.add_trial(point, &sample_trial(0), &sample_histogram(1), &a_series(1)).unwrap();
        for (_, table) in Table::NAMED {
            let both = |runs: &[RunId]| {
                let mut out = Vec::new();
                store.export_csv(runs, table, &mut out).unwrap();
                column(&String::from_utf8(out).unwrap(), "run_id")
            };
            assert_eq!(both(&[run, other]), ["1", "2"], "{table:?}");
            assert_eq!(both(&[other]), ["2"], "{table:?}");
            assert!(both(&[]).is_empty());
        }
    }

    #[test]
    fn an_unknown_run_is_an_error_and_writes_nothing() {
        let (store, _, _) = a_store_with_a_point();
        let mut out = Vec::new();
        let error = store.export_csv(&[RunId(99)], Table::Points, &mut out).unwrap_err();
        assert!(matches!(error, Error::RunNotFound { .. }));
        assert!(out.is_empty());
    }

    #[test]
    fn a_destination_that_fails_is_reported_as_such() {
        let (store, run, _) = a_store_with_a_point();
        let mut no_room: &mut [u8] = &mut [0; 10];
        let error = store.export_csv(&[run], Table::Points, &mut no_room).unwrap_err();
        assert!(matches!(error, Error::Export(_)), "{error}");
    }
}
