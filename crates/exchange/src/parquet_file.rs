//! Exports a table of stored runs as an Apache Parquet file, for pandas, DuckDB and Spark.
//!
//! The columns are the same as in the CSV export. All columns are optional, because values that
//! were not measured are NULL. Rows are written in groups, so memory use does not grow with the
//! number of rows.

use std::io::Write;
use std::sync::Arc;

use lab::failure::{Failure, Outcome};
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};
use results::{Cell, Kind, RunId, Store, Table};

/// Number of rows per row group. A whole group is held in memory.
const GROUP_ROWS: usize = 65_536;

/// A column of one row group.
struct Column {
    values: Values,
    /// Definition level of each row: 1 if the row has a value, 0 if it is NULL.
    levels: Vec<i16>,
}

enum Values {
    Integers(Vec<i64>),
    Reals(Vec<f64>),
    Texts(Vec<ByteArray>),
}

impl Column {
    fn new(kind: Kind) -> Column {
        let values = match kind {
            Kind::Integer => Values::Integers(Vec::new()),
            Kind::Real => Values::Reals(Vec::new()),
            Kind::Text => Values::Texts(Vec::new()),
        };
        Column { values, levels: Vec::new() }
    }

    /// Adds a value. A value that the column's type cannot hold is stored as NULL.
    fn push(&mut self, cell: Cell<'_>) {
        let is_value = match (&mut self.values, cell) {
            (Values::Integers(all), Cell::Integer(number)) => put(all, number),
            (Values::Reals(all), Cell::Integer(number)) => put(all, number as f64),
            (Values::Reals(all), Cell::Real(number)) => put(all, number),
            (Values::Texts(all), Cell::Text(text)) => put(all, text.into()),
            (Values::Texts(all), Cell::Integer(number)) => {
                put(all, number.to_string().as_str().into())
            }
            (Values::Texts(all), Cell::Real(number)) => {
                put(all, number.to_string().as_str().into())
            }
            (Values::Integers(_) | Values::Reals(_), _) | (_, Cell::Null) => false,
        };
        self.levels.push(i16::from(is_value));
    }
}

fn put<T>(all: &mut Vec<T>, value: T) -> bool {
    all.push(value);
    true
}

/// Writes a table of several runs.
///
/// # Errors
/// The database cannot be read, or the destination cannot be written.
pub fn write(
    store: &Store,
    runs: &[RunId],
    table: Table,
    out: &mut (impl Write + Send),
) -> Outcome<()> {
    let failed =
        |error: ParquetError| Failure::failed(format!("writing the Parquet file: {error}"));
    let kinds = store.kinds(runs, table)?;
    let schema = schema(&store.columns(table)?, &kinds).map_err(failed)?;
    let mut file = SerializedFileWriter::new(out, schema, Arc::default()).map_err(failed)?;
    let new_group = || -> Vec<Column> { kinds.iter().map(|kind| Column::new(*kind)).collect() };
    let mut group = new_group();
    for run in runs {
        store.each_row(*run, table, |_, cells| {
            group.iter_mut().zip(cells).for_each(|(column, cell)| column.push(*cell));
            if group.first().is_some_and(|column| column.levels.len() == GROUP_ROWS) {
                write_group(&mut file, &std::mem::replace(&mut group, new_group()))?;
            }
            Ok(())
        })?;
    }
    if group.first().is_some_and(|column| !column.levels.is_empty()) {
        write_group(&mut file, &group).map_err(failed)?;
    }
    file.close().map(|_| ()).map_err(failed)
}

fn schema(names: &[String], kinds: &[Kind]) -> Result<TypePtr> {
    let column = |(name, kind): (&String, &Kind)| {
        let (physical, logical) = match kind {
            Kind::Integer => (Physical::INT64, None),
            Kind::Real => (Physical::DOUBLE, None),
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let column = Type::primitive_type_builder(name, physical).with_logical_type(logical);
        column.with_repetition(Repetition::OPTIONAL).build().map(Arc::new)
    };
    let columns: Result<Vec<TypePtr>> = names.iter().zip(kinds).map(column).collect();
    Type::group_type_builder("halfpower").with_fields(columns?).build().map(Arc::new)
}

fn write_group<W: Write + Send>(
    file: &mut SerializedFileWriter<W>,
    group: &[Column],
) -> Result<()> {
    let mut rows = file.next_row_group()?;
    for column in group {
        match &column.values {
            Values::Integers(values) => write_column::<Int64Type, _>(&mut rows, column, values)?,
            Values::Reals(values) => write_column::<DoubleType, _>(&mut rows, column, values)?,
            Values::Texts(values) => write_column::<ByteArrayType, _>(&mut rows, column, values)?,
        }
    }
    rows.close().map(|_| ())
}

fn write_column<T: DataType, W: Write + Send>(
    rows: &mut parquet::file::writer::SerializedRowGroupWriter<'_, W>,
    column: &Column,
    values: &[T::T],
) -> Result<()> {
    let Some(mut writer) = rows.next_column()? else {
        return Err(ParquetError::General("the table has more columns than the schema".to_owned()));
    };
    writer.typed::<T>().write_batch(values, Some(&column.levels), None)?;
    writer.close()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::{Destination, import};
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use std::fs::{self, File};

    const FIO: &str = r#"{"fio version": "fio-3.33", "timestamp": 1795518014, "jobs": [
        {"jobname": "a, \"b\"", "read": {"io_bytes": 4096000, "total_ios": 1000, "runtime": 500,
         "clat_ns": {"min": 5, "max": 900, "mean": 100.5, "N": 1000,
         "percentile": {"50.0": 100, "99.0": 800}}}},
        {"jobname": "c", "write": {"io_bytes": 8192, "total_ios": 2, "runtime": 7}}]}"#;

    /// Reads a Parquet file as CSV fields. NULL becomes an empty field.
    fn rows_of(path: &std::path::Path) -> Vec<Vec<String>> {
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        let row = |row: parquet::record::Row| {
            let text = |field: &parquet::record::Field| match field {
                parquet::record::Field::Null => String::new(),
                parquet::record::Field::Str(text) => text.clone(),
                parquet::record::Field::Double(number) => number.to_string(),
                other => other.to_string(),
            };
            row.get_column_iter().map(|(_, field)| text(field)).collect()
        };
        reader.get_row_iter(None).unwrap().map(|found| row(found.unwrap())).collect()
    }

    #[test]
    fn each_table_has_the_rows_of_csv() {
        let folder = tempfile::tempdir().unwrap();
        let (file, db) = (folder.path().join("a.json"), folder.path().join("a.db"));
        fs::write(&file, FIO).unwrap();
        import(&[file], &Destination { db: db.clone(), label: None, host: None }, false).unwrap();
        let store = Store::open_read_only(&db).unwrap();
        let runs: Vec<RunId> = store.runs().unwrap().iter().map(|run| run.id).collect();
        for (name, table) in Table::NAMED {
            let path = folder.path().join(name);
            write(&store, &runs, table, &mut File::create(&path).unwrap()).unwrap();
            let mut csv = Vec::new();
            store.export_csv(&runs, table, &mut csv).unwrap();
            let mut csv = csv::Reader::from_reader(csv.as_slice());
            let expected: Vec<Vec<String>> =
                csv.records().map(|row| row.unwrap().iter().map(str::to_owned).collect()).collect();
            assert_eq!(rows_of(&path), expected, "{name}");
            // The imported fio JSON has no intervals, so only the table `intervals` is empty.
            assert_eq!(expected.is_empty(), name == "intervals");
        }
    }

    #[test]
    fn a_destination_that_fails_is_reported_as_such() {
        let store = Store::open(tempfile::tempdir().unwrap().path().join("a.db")).unwrap();
        let mut no_room: &mut [u8] = &mut [0; 10];
        let failure = write(&store, &[], Table::Points, &mut no_room).unwrap_err();
        assert!(failure.message.starts_with("writing the Parquet file: "), "{failure}");
    }
}
