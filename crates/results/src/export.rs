//! CSV export of runs, for spreadsheets and programs without SQLite.
//!
//! The columns have the same names as in the database, so exports can be joined on their ids. NULL
//! is an empty field. Rows are written as they are read, so memory does not grow with the number of
//! rows.

use std::io::{self, Write};

use rusqlite::types::ValueRef;

use crate::error::Error;
use crate::row::RunId;
use crate::store::Store;

/// A table of a run that can be exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// The points (workloads) of the run.
    Points,
    /// The trials of the points.
    Trials,
    /// The latency histograms of the trials.
    Latency,
    /// The per-interval series of the trials.
    Series,
}

impl Table {
    /// Selects the rows of one run (the parameter), in plan order.
    fn sql(self) -> &'static str {
        match self {
            Self::Points => "SELECT * FROM point WHERE run_id = ? ORDER BY ordinal",
            Self::Trials => {
                "SELECT trial.* FROM trial JOIN point ON point.id = point_id WHERE run_id = ? \
                 ORDER BY point.ordinal, trial.ordinal"
            }
            Self::Latency => {
                "SELECT latency.* FROM latency JOIN trial ON trial.id = trial_id \
                 JOIN point ON point.id = point_id WHERE run_id = ? \
                 ORDER BY point.ordinal, trial.ordinal, latency.operation, low_ns"
            }
            Self::Series => {
                "SELECT series.* FROM series JOIN trial ON trial.id = trial_id \
                 JOIN point ON point.id = point_id WHERE run_id = ? \
                 ORDER BY point.ordinal, trial.ordinal, series.ordinal"
            }
        }
    }
}

impl Store {
    /// Writes one table of a run as CSV: a header line, then the rows (RFC 4180, with `\n` as line
    /// end).
    ///
    /// # Errors
    /// [`Error::RunNotFound`]; [`Error::Export`] if `out` fails; lock, damage.
    pub fn export_csv(&self, run: RunId, what: Table, out: &mut impl Write) -> Result<(), Error> {
        if !self.has_run(run)? {
            return Err(self.no_run(&run.to_string()));
        }
        let failed = |error| self.error(error);
        let mut statement = self.connection().prepare(what.sql()).map_err(failed)?;
        let columns = statement.column_count();
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(statement.column_names()).map_err(io::Error::from)?;
        let mut rows = statement.query([run]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            for column in 0..columns {
                let value = row.get_ref(column).map_err(failed)?;
                write_field(&mut csv, value).map_err(io::Error::from)?;
            }
            csv.write_record(None::<&[u8]>).map_err(io::Error::from)?;
        }
        Ok(csv.flush()?)
    }
}

fn write_field<W: Write>(csv: &mut csv::Writer<W>, value: ValueRef<'_>) -> csv::Result<()> {
    match value {
        ValueRef::Null => csv.write_field(""),
        ValueRef::Integer(number) => csv.write_field(number.to_string()),
        ValueRef::Real(number) => csv.write_field(number.to_string()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => csv.write_field(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{a_point, a_series, sample_histogram, sample_run, sample_trial};
    use crate::row::{Columns, PointEnd, PointRow, SeriesRow, TrialRow};
    use crate::store::tests::a_store_with_a_point;

    fn csv_of(store: &Store, run: RunId, what: Table) -> String {
        let mut out = Vec::new();
        store.export_csv(run, what, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn records(csv: &str) -> Vec<csv::StringRecord> {
        csv::Reader::from_reader(csv.as_bytes()).records().map(Result::unwrap).collect()
    }

    fn header(keys: &str, columns: &[&str]) -> String {
        format!("{keys},{}", columns.join(","))
    }

    #[test]
    fn points_are_exported_under_the_names_of_the_schema_with_their_json_quoted() {
        let (store, run, _) = a_store_with_a_point();
        let csv = csv_of(&store, run, Table::Points);
        let columns = [PointRow::COLUMNS, PointEnd::COLUMNS].concat();
        assert_eq!(csv.lines().next().unwrap(), header("id,run_id", &columns));
        assert_eq!(
            csv.lines().nth(1).unwrap(),
            "1,1,0,randrw,mix,random,4096,32,2,io_uring,direct,1073741824,70,1234.5,\
             9223372036854775808,\"{\"\"rw\"\":\"\"randrw\"\"}\",,[]"
        );
    }

    #[test]
    fn missing_measurements_are_empty_fields() {
        let (mut store, run, point) = a_store_with_a_point();
        let trial = TrialRow { cycles: None, ..sample_trial(0) };
        store.add_trial(point, &trial, &[], &[]).unwrap();
        let csv = csv_of(&store, run, Table::Trials);
        assert_eq!(csv.lines().next().unwrap(), header("id,point_id", TrialRow::COLUMNS));
        let cycles = csv.lines().next().unwrap().split(',').position(|name| name == "cycles");
        assert_eq!(&records(&csv)[0][cycles.unwrap()], "");
        assert_eq!(&records(&csv)[0][cycles.unwrap() - 1], "303");
    }

    #[test]
    fn histograms_and_series_are_exported_trial_by_trial() {
        let (mut store, run, point) = a_store_with_a_point();
        for ordinal in [1, 0] {
            store
                .add_trial(point, &sample_trial(ordinal), &sample_histogram(2), &a_series(2))
                .unwrap();
        }
        assert_eq!(
            csv_of(&store, run, Table::Latency),
            "trial_id,operation,low_ns,high_ns,count\n\
             2,read,0,9,1\n2,read,10,19,2\n1,read,0,9,1\n1,read,10,19,2\n"
        );
        let csv = csv_of(&store, run, Table::Series);
        assert_eq!(csv.lines().next().unwrap(), header("trial_id", SeriesRow::COLUMNS));
        assert_eq!(csv.lines().nth(2).unwrap(), "2,1,100,100,8192,2");
    }

    #[test]
    fn only_the_run_that_was_asked_for_is_exported() {
        let (mut store, run, point) = a_store_with_a_point();
        store.add_trial(point, &sample_trial(0), &sample_histogram(1), &a_series(1)).unwrap();
        let other = store.begin_run(&sample_run("other", 20)).unwrap();
        store.add_point(other, &a_point(0)).unwrap();
        assert_eq!(records(&csv_of(&store, run, Table::Points)).len(), 1);
        assert_eq!(records(&csv_of(&store, other, Table::Points)).len(), 1);
        for what in [Table::Trials, Table::Latency, Table::Series] {
            assert_eq!(records(&csv_of(&store, run, what)).len(), 1, "{what:?}");
            assert_eq!(records(&csv_of(&store, other, what)).len(), 0, "{what:?}");
        }
    }

    #[test]
    fn an_unknown_run_is_an_error_and_writes_nothing() {
        let (store, _, _) = a_store_with_a_point();
        let mut out = Vec::new();
        let error = store.export_csv(RunId(99), Table::Points, &mut out).unwrap_err();
        assert!(matches!(error, Error::RunNotFound { .. }));
        assert!(out.is_empty());
    }

    #[test]
    fn a_destination_that_fails_is_reported_as_such() {
        let (store, run, _) = a_store_with_a_point();
        let mut no_room: &mut [u8] = &mut [0; 10];
        let error = store.export_csv(run, Table::Points, &mut no_room).unwrap_err();
        assert!(matches!(error, Error::Export(_)), "{error}");
    }
}
