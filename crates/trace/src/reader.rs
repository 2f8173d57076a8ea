//! Reads a trace request by request. Memory is bounded: only one page of each column is in memory.
//!
//! A trace can be damaged, truncated or malicious. Sizes are compared with the length of the file
//! before anything is allocated (`pages.rs`, `source.rs`). The Parquet library may still panic on
//! unexpected input, so panics of the library are caught and returned as errors. After an error,
//! the reader yields nothing.

use std::fs::File;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parquet::column::reader::{ColumnReaderImpl, get_column_reader, get_typed_column_reader};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, Length, SerializedPageReader};

use crate::columns::{ADDED, COLUMNS, Column, HEADER_KEY, VERSION, VERSION_KEY, schema};
use crate::error::{TraceError, one_line};
use crate::pages::CheckedPages;
use crate::request::{Call, FileId, Header, Operation, Request};
use crate::source::Source;

/// Maximum number of requests that are decoded in one step.
const BATCH: usize = 4096;

/// Maximum length of the Parquet footer (bytes). The footer has the trace header, with all file
/// names, and the positions of the columns. The maximum is enough for more than a billion requests.
const FOOTER_MOST: u64 = 64 << 20;

/// The four bytes at both ends of a Parquet file.
const MAGIC: &[u8] = b"PAR1";

/// Number of bytes after the footer: the length of the footer (4 bytes) and [`MAGIC`].
const TAIL: u64 = 8;

/// Iterates over the requests of a trace in the order of the file. The first error ends the
/// iteration.
pub struct TraceReader {
    source: Arc<Source>,
    name: String,
    metadata: ParquetMetaData,
    /// For each column in `COLUMNS`, the index of the column in the file. None if the file lacks
    /// the column.
    places: Vec<Option<usize>>,
    header: Header,
    next_group: usize,
    group: Option<Group>,
    batch: Vec<Request>,
    at: usize,
    yielded: u64,
    ended: bool,
}

impl TraceReader {
    /// Opens the trace in a file.
    ///
    /// # Errors
    /// If the file cannot be read, if it is not a trace, or if its header is invalid.
    pub fn open(path: &Path) -> Result<TraceReader, TraceError> {
        let name = path.display().to_string();
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = opened.map_err(|cause| TraceError::reading(&name, cause))?;
        if !metadata.is_file() {
            return Err(not_a_trace(&name, "it is not a regular file"));
        }
        TraceReader::of(Source::File(Arc::new(file), metadata.len()), name)
    }

    /// Opens the trace in `bytes`. `name` is the name of the trace in error messages.
    ///
    /// # Errors
    /// If the bytes are not a trace, or if the header is invalid.
    pub fn of_bytes(bytes: impl Into<Bytes>, name: &str) -> Result<TraceReader, TraceError> {
        TraceReader::of(Source::Memory(bytes.into()), name.to_owned())
    }

    fn of(source: Source, name: String) -> Result<TraceReader, TraceError> {
        let metadata = footer(&source, &name)?;
        let header = header(&metadata, &name)?;
        let in_header = |why: String| TraceError::Damaged {
            name: name.clone(),
            place: "in its header".to_owned(),
            why,
        };
        let places = places(&metadata).map_err(&in_header)?;
        check_groups(&metadata, &places, source.len()).map_err(&in_header)?;
        let rows: u64 = metadata.row_groups().iter().map(|group| group.num_rows() as u64).sum();
        if rows != header.requests {
            return Err(in_header(format!(
                "the header counts {} requests, but the file has {rows}",
                header.requests
            )));
        }
        Ok(TraceReader {
            source: Arc::new(source),
            name,
            metadata,
            places,
            header,
            next_group: 0,
            group: None,
            batch: Vec::new(),
            at: 0,
            yielded: 0,
            ended: false,
        })
    }

    /// Returns the header, which has facts about the whole trace.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Decodes the next batch of requests. Returns false at the end of the trace.
    fn fill(&mut self) -> ParquetResult<bool> {
        self.batch.clear();
        self.at = 0;
        loop {
            if let Some(group) = &mut self.group {
                if group.rows_left > 0 {
                    return group.read(&mut self.batch, self.header.files.len()).map(|()| true);
                }
                self.group = None;
            }
            let Some(metadata) = self.metadata.row_groups().get(self.next_group) else {
                return Ok(false);
            };
            self.group = Some(Group::open(&self.source, metadata, &self.places)?);
            self.next_group += 1;
        }
    }
}

impl Iterator for TraceReader {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Result<Request, TraceError>> {
        if let Some(request) = self.batch.get(self.at) {
            self.at += 1;
            self.yielded += 1;
            return Some(Ok(*request));
        }
        if self.ended {
            return None;
        }
        match guarded(|| self.fill()) {
            Ok(true) => return self.next(),
            Ok(false) => self.ended = true,
            Err(cause) => {
                self.ended = true;
                self.batch.clear();
                return Some(Err(TraceError::Damaged {
                    name: self.name.clone(),
                    place: format!("after request {}", self.yielded),
                    why: one_line(&cause.to_string()),
                }));
            }
        }
        None
    }
}

/// Runs code of the Parquet library and converts a panic to an error.
fn guarded<T>(part: impl FnOnce() -> ParquetResult<T>) -> ParquetResult<T> {
    let unforeseen = || ParquetError::General("its content is invalid".to_owned());
    panic::catch_unwind(AssertUnwindSafe(part)).unwrap_or_else(|_| Err(unforeseen()))
}

fn not_a_trace(name: &str, why: &str) -> TraceError {
    TraceError::NotATrace { name: name.to_owned(), why: why.to_owned() }
}

/// Reads the footer, which lists the columns and row groups with their positions in the file.
fn footer(source: &Source, name: &str) -> Result<ParquetMetaData, TraceError> {
    let length = source.len();
    let bytes_at = |at: u64, length: u64| {
        let bytes = source.get_bytes(at, length as usize);
        bytes.map_err(|cause| not_a_trace(name, &one_line(&cause.to_string())))
    };
    if length < MAGIC.len() as u64 + TAIL || bytes_at(0, 4)? != MAGIC {
        return Err(not_a_trace(name, "it is not a Parquet file"));
    }
    let tail = bytes_at(length - TAIL, TAIL)?;
    if &tail[4..] != MAGIC {
        return Err(not_a_trace(name, "the end of the file is missing"));
    }
    let footer = u64::from(tail.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)));
    if footer > (length - TAIL - MAGIC.len() as u64).min(FOOTER_MOST) {
        return Err(not_a_trace(name, "its footer is longer than the file or longer than 64 MiB"));
    }
    let bytes = source.range(length - TAIL - footer, footer as usize);
    let bytes = bytes.map_err(|cause| TraceError::reading(name, cause))?;
    guarded(|| ParquetMetaDataReader::decode_metadata(&bytes))
        .map_err(|cause| not_a_trace(name, &one_line(&cause.to_string())))
}

fn header(metadata: &ParquetMetaData, name: &str) -> Result<Header, TraceError> {
    let of_key = |key: &str| {
        let mut entries = metadata.file_metadata().key_value_metadata()?.iter();
        entries.find(|entry| entry.key == key)?.value.as_deref()
    };
    let missing = || not_a_trace(name, "it is a Parquet file without the header of a trace");
    let version = of_key(VERSION_KEY).ok_or_else(missing)?;
    if version != VERSION {
        let why = format!("it has format version {}, not {VERSION}", one_line(version));
        return Err(not_a_trace(name, &why));
    }
    let text = of_key(HEADER_KEY).ok_or_else(missing)?;
    serde_json::from_str(text).map_err(|cause| TraceError::Damaged {
        name: name.to_owned(),
        place: "in its header".to_owned(),
        why: one_line(&cause.to_string()),
    })
}

/// Finds the columns of a trace by their names, and checks their types. Returns None for a column
/// that is missing because it was added to the format later.
fn places(metadata: &ParquetMetaData) -> Result<Vec<Option<usize>>, String> {
    let found = metadata.file_metadata().schema_descr();
    let wanted = schema().map_err(|cause| cause.to_string())?;
    let place = |(column, wanted): (&Column, &parquet::schema::types::TypePtr)| {
        let by_name = |at: &usize| found.column(*at).path().string() == column.name;
        let Some(at) = (0..found.num_columns()).find(by_name) else {
            let missing = || format!("the column {} is missing", column.name);
            return ADDED.contains(&column.name).then_some(None).ok_or_else(missing);
        };
        let leaf = found.column(at);
        let same = leaf.physical_type() == wanted.get_physical_type()
            && leaf.max_rep_level() == 0
            && leaf.max_def_level() == i16::from(column.nullable);
        same.then_some(Some(at))
            .ok_or_else(|| format!("the column {} has the wrong type", column.name))
    };
    COLUMNS.iter().zip(wanted.get_fields()).map(place).collect()
}

/// Checks that the data of all columns is within the file.
fn check_groups(
    metadata: &ParquetMetaData,
    places: &[Option<usize>],
    length: u64,
) -> Result<(), String> {
    for group in metadata.row_groups() {
        if group.num_rows() < 0 || group.num_rows() > i64::from(u32::MAX) {
            return Err(format!("a row group has {} rows", group.num_rows()));
        }
        for (place, column) in places.iter().zip(&COLUMNS) {
            let Some(place) = *place else { continue };
            let Some(chunk) = group.columns().get(place) else {
                return Err(format!("a row group lacks the column {}", column.name));
            };
            let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
            let end = start.checked_add(chunk.compressed_size());
            let end = end.and_then(|end| u64::try_from(end).ok());
            let within = start >= 0
                && chunk.compressed_size() >= 0
                && chunk.data_page_offset() >= 0
                && end.is_some_and(|end| end <= length);
            if !within || chunk.column_type() != chunk.column_descr().physical_type() {
                return Err(format!("the column {} extends beyond the file", column.name));
            }
        }
    }
    Ok(())
}

/// Decodes one column of a row group.
struct Values<T: DataType> {
    /// None if the file does not have this column.
    reader: Option<ColumnReaderImpl<T>>,
    values: Vec<T::T>,
    levels: Vec<i16>,
    nullable: bool,
}

impl<T: DataType> Values<T> {
    fn open(
        source: &Arc<Source>,
        group: &RowGroupMetaData,
        places: &[Option<usize>],
        name: &str,
    ) -> ParquetResult<Values<T>> {
        let known = COLUMNS.iter().zip(places).find(|(column, _)| column.name == name);
        let missing = || ParquetError::General(format!("the column {name} is missing"));
        let (column, place) = known.ok_or_else(missing)?;
        let reader = match place {
            None => None,
            Some(place) => {
                let chunk = group.column(*place);
                let rows = group.num_rows() as usize;
                let pages = SerializedPageReader::new(Arc::clone(source), chunk, rows, None)?;
                let pages = CheckedPages::new(pages, column.kind, column.nullable);
                let reader = get_column_reader(chunk.column_descr_ptr(), Box::new(pages));
                Some(get_typed_column_reader(reader))
            }
        };
        Ok(Values { reader, values: Vec::new(), levels: Vec::new(), nullable: column.nullable })
    }

    /// Reads the values of the next `rows` rows.
    fn read(&mut self, rows: usize) -> ParquetResult<()> {
        self.values.clear();
        self.levels.clear();
        let Some(reader) = &mut self.reader else {
            self.levels.resize(rows, 0);
            return Ok(());
        };
        let levels = self.nullable.then_some(&mut self.levels);
        let (records, values, _) = reader.read_records(rows, levels, None, &mut self.values)?;
        let marked = self.levels.iter().filter(|level| **level == 1).count();
        let expected = if self.nullable { marked } else { rows };
        if records != rows || values != expected || self.values.len() != expected {
            return Err(ParquetError::General("a column has too few values".to_owned()));
        }
        Ok(())
    }
}

/// Yields the value of each row of a nullable column. Yields None for a row without a value.
struct Gaps<'a> {
    values: std::slice::Iter<'a, i64>,
    levels: std::slice::Iter<'a, i16>,
}

impl Gaps<'_> {
    fn of(column: &Values<Int64Type>) -> Gaps<'_> {
        Gaps { values: column.values.iter(), levels: column.levels.iter() }
    }

    fn next(&mut self) -> Option<i64> {
        if *self.levels.next()? == 1 { self.values.next().copied() } else { None }
    }
}

/// Decodes all columns of a row group.
struct Group {
    rows_left: usize,
    start_ns: Values<Int64Type>,
    latency_ns: Values<Int64Type>,
    process: Values<Int32Type>,
    thread: Values<Int32Type>,
    call: Values<ByteArrayType>,
    operation: Values<ByteArrayType>,
    file_id: Values<Int32Type>,
    offset: Values<Int64Type>,
    bytes: Values<Int64Type>,
    result: Values<Int64Type>,
    direct: Values<BoolType>,
    durable: Values<BoolType>,
    device_bytes: Values<Int64Type>,
    sleeps: Values<Int64Type>,
}

impl Group {
    fn open(
        source: &Arc<Source>,
        metadata: &RowGroupMetaData,
        places: &[Option<usize>],
    ) -> ParquetResult<Group> {
        macro_rules! column {
            ($name:literal) => {
                Values::open(source, metadata, places, $name)?
            };
        }
        Ok(Group {
            rows_left: metadata.num_rows() as usize,
            start_ns: column!("start_ns"),
            latency_ns: column!("latency_ns"),
            process: column!("process"),
            thread: column!("thread"),
            call: column!("call"),
            operation: column!("operation"),
            file_id: column!("file_id"),
            offset: column!("offset"),
            bytes: column!("bytes"),
            result: column!("result"),
            direct: column!("direct"),
            durable: column!("durable"),
            device_bytes: column!("device_bytes"),
            sleeps: column!("sleeps"),
        })
    }

    /// Decodes the next rows. The group must have at least one more row.
    fn read(&mut self, into: &mut Vec<Request>, files: usize) -> ParquetResult<()> {
        let rows = self.rows_left.min(BATCH);
        self.rows_left -= rows;
        self.start_ns.read(rows)?;
        self.latency_ns.read(rows)?;
        self.process.read(rows)?;
        self.thread.read(rows)?;
        self.call.read(rows)?;
        self.operation.read(rows)?;
        self.file_id.read(rows)?;
        self.offset.read(rows)?;
        self.bytes.read(rows)?;
        self.result.read(rows)?;
        self.direct.read(rows)?;
        self.durable.read(rows)?;
        self.device_bytes.read(rows)?;
        self.sleeps.read(rows)?;
        let mut latencies = Gaps::of(&self.latency_ns);
        let mut offsets = Gaps::of(&self.offset);
        let mut results = Gaps::of(&self.result);
        let mut device_bytes = Gaps::of(&self.device_bytes);
        let mut sleeps = Gaps::of(&self.sleeps);
        let mut calls = Names::new("call", Call::named);
        let mut operations = Names::new("operation", Operation::named);
        for at in 0..rows {
            let file = self.file_id.values[at].cast_unsigned();
            if file as usize >= files {
                return Err(ParquetError::General(format!("there is no file {file}")));
            }
            into.push(Request {
                start_ns: self.start_ns.values[at].cast_unsigned(),
                latency_ns: latencies.next().map(i64::cast_unsigned),
                process: self.process.values[at].cast_unsigned(),
                thread: self.thread.values[at].cast_unsigned(),
                call: calls.named(&self.call.values[at])?,
                operation: operations.named(&self.operation.values[at])?,
                file: FileId(file),
                offset: offsets.next().map(i64::cast_unsigned),
                bytes: self.bytes.values[at].cast_unsigned(),
                result: results.next(),
                direct: self.direct.values[at],
                durable: self.durable.values[at],
                device_bytes: device_bytes.next().map(i64::cast_unsigned),
                sleeps: sleeps.next().map(i64::cast_unsigned),
            });
        }
        Ok(())
    }
}

/// Maps names in a trace to values, for example `pread64` to a [`Call`]. Each name is looked up
/// only once in a batch, because a trace has few different names.
struct Names<'a, T> {
    what: &'static str,
    meaning: fn(&str) -> Option<T>,
    known: Vec<(&'a [u8], T)>,
}

impl<'a, T: Copy> Names<'a, T> {
    fn new(what: &'static str, meaning: fn(&str) -> Option<T>) -> Names<'a, T> {
        Names { what, meaning, known: Vec::new() }
    }

    fn named(&mut self, name: &'a ByteArray) -> ParquetResult<T> {
        let name = name.data();
        if let Some((_, known)) = self.known.iter().find(|(known, _)| *known == name) {
            return Ok(*known);
        }
        let meaning = std::str::from_utf8(name).ok().and_then(self.meaning);
        let Some(meaning) = meaning else {
            let name = String::from_utf8_lossy(name);
            return Err(ParquetError::General(format!("unknown {} '{name}'", self.what)));
        };
        self.known.push((name, meaning));
        Ok(meaning)
    }
}

#[cfg(test)]
mod tests;
