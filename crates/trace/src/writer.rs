//! Writes a trace as a Parquet file, request by request, in bounded memory.
//!
//! Requests are pushed when they complete, but stored in the order of their start times. The writer
//! therefore holds back each request while a request that started earlier may still be pushed. The
//! oldest requests are stored when the caller declares that no earlier request will follow
//! ([`TraceWriter::advance`]), or when more than [`HELD_MOST`] requests are held. A request that is
//! pushed too late is stored after requests that started later, and is counted in
//! [`Header::out_of_order`].
//!
//! Until the trace is finished, the file has a temporary name in the same directory. An incomplete
//! trace is therefore never mistaken for a complete one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};

use crate::columns::{self, HEADER_KEY, VERSION, VERSION_KEY};
use crate::error::TraceError;
use crate::request::{FILES_MOST, FileId, Header, Request};
use crate::statistics::Statistics;

/// Maximum number of requests that are held back. They use 6 MiB of memory. In practice, fewer
/// requests are in flight at the same time.
pub const HELD_MOST: usize = 1 << 16;

/// Number of requests in a row group of the Parquet file. The writer holds one row group in memory
/// (12 MiB).
const GROUP_ROWS: usize = 1 << 17;

/// Maximum number of values that are converted and written to a column in one call.
const BATCH: usize = 4096;

/// Maximum total length of all file names (bytes).
const NAMES_MOST: usize = 8 << 20;

/// Maximum length of a file name, equal to the maximum length of a path in Linux (bytes).
const NAME_MOST: usize = 4096;

/// Name of the entry that all files beyond [`FILES_MOST`] or [`NAMES_MOST`] share.
const OTHER_FILES: &str = "(other files)";

/// A request that is held back because a request that started earlier may still be pushed. Requests
/// with the same start time keep the order in which they were pushed.
#[derive(PartialEq, Eq)]
struct Held {
    start_ns: u64,
    number: u64,
    request: Request,
}

impl Ord for Held {
    fn cmp(&self, other: &Held) -> std::cmp::Ordering {
        (self.start_ns, self.number).cmp(&(other.start_ns, other.number))
    }
}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Names of the files that were added.
#[derive(Default)]
struct Names {
    names: Vec<Bytes>,
    bytes: usize,
    others: Option<FileId>,
}

impl Names {
    fn add(&mut self, name: &str) -> FileId {
        if let Some(others) = self.others {
            return others;
        }
        let id = FileId(self.names.len().min(FILES_MOST - 1) as u32);
        let name = cut(name, NAME_MOST);
        if self.names.len() + 1 >= FILES_MOST || self.bytes + name.len() > NAMES_MOST {
            self.others = Some(id);
            self.names.truncate(FILES_MOST - 1);
            self.names.push(Bytes::from_static(OTHER_FILES.as_bytes()));
        } else {
            self.bytes += name.len();
            self.names.push(Bytes::copy_from_slice(name.as_bytes()));
        }
        id
    }

    /// Returns the id that the trace uses for a file. A file that was not added gets an empty name.
    fn known(&mut self, file: FileId) -> FileId {
        let at = (file.0 as usize).min(FILES_MOST - 1);
        if at >= self.names.len() {
            self.names.resize(at + 1, Bytes::new());
        }
        FileId(at as u32)
    }
}

/// Returns at most the first `most` bytes of a text, shortened so that no character is split.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

/// Writes a trace to a file, or to any [`Write`].
pub struct TraceWriter<W: Write + Send = File> {
    parquet: SerializedFileWriter<W>,
    name: String,
    held: BinaryHeap<Reverse<Held>>,
    pushed: u64,
    rows: Vec<Request>,
    names: Names,
    statistics: Statistics,
    starts_at_first: bool,
    base_ns: Option<u64>,
    files: Option<Partial>,
}

/// The temporary file of a trace. When this value is dropped, the temporary file is removed, unless
/// it was renamed.
struct Partial {
    partial: PathBuf,
    path: PathBuf,
    finished: bool,
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.finished {
            // If the removal fails, the temporary file stays. `drop` cannot report the error.
            let _ = fs::remove_file(&self.partial);
        }
    }
}

impl TraceWriter<File> {
    /// Starts a trace that will be stored as `path`. Until [`TraceWriter::finish`] is called, the
    /// file name has the suffix `.PID.partial`. If the writer is dropped before that, the file is
    /// removed.
    ///
    /// # Errors
    /// `path` exists, or a file cannot be created in its directory.
    pub fn create(path: &Path) -> Result<TraceWriter, TraceError> {
        let name = path.display().to_string();
        if path.symlink_metadata().is_ok() {
            return Err(TraceError::Exists { name });
        }
        let mut partial = path.as_os_str().to_owned();
        partial.push(format!(".{}.partial", std::process::id()));
        let partial = PathBuf::from(partial);
        let file = OpenOptions::new().write(true).create_new(true).open(&partial);
        let file = file.map_err(|cause| TraceError::writing(&name, cause))?;
        let files = Partial { partial, path: path.to_owned(), finished: false };
        let mut writer = TraceWriter::to(file, &name)?;
        writer.files = Some(files);
        Ok(writer)
    }

    /// Writes the remaining requests and the header, and gives the file its final name. Returns the
    /// header with the number of requests, the duration, the maximum depth, the number of requests
    /// out of order, and the name and the end of each file.
    ///
    /// # Errors
    /// The file cannot be written or renamed, or a file named `path` was created meanwhile.
    pub fn finish(mut self, header: Header) -> Result<Header, TraceError> {
        let files = self.files.take();
        let name = self.name.clone();
        let (header, file) = self.finish_into(header)?;
        let fail = |cause: io::Error| TraceError::writing(&name, cause);
        file.sync_all().map_err(fail)?;
        if let Some(mut files) = files {
            // A hard link, unlike a rename, does not replace a file that was created meanwhile.
            match fs::hard_link(&files.partial, &files.path) {
                Ok(()) => {}
                Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(TraceError::Exists { name });
                }
                // Some file systems do not support hard links.
                Err(_) => {
                    fs::rename(&files.partial, &files.path).map_err(fail)?;
                    files.finished = true;
                }
            }
        }
        Ok(header)
    }
}

impl<W: Write + Send> TraceWriter<W> {
    /// Starts a trace that is written to `out`. Error messages call the output `name`.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn to(out: W, name: &str) -> Result<TraceWriter<W>, TraceError> {
        let start =
            || SerializedFileWriter::new(out, columns::schema()?, columns::properties().into());
        let parquet = start().map_err(|cause| TraceError::encoding(name, &cause))?;
        Ok(TraceWriter {
            parquet,
            name: name.to_owned(),
            held: BinaryHeap::new(),
            pushed: 0,
            rows: Vec::new(),
            names: Names::default(),
            statistics: Statistics::default(),
            starts_at_first: false,
            base_ns: None,
            files: None,
        })
    }

    /// Declares that the start times of requests are readings of a clock, not times since the start
    /// of the trace. The trace then starts at its first request, and [`TraceWriter::base_ns`]
    /// returns the clock time of that request.
    pub fn start_at_first(&mut self) {
        self.starts_at_first = true;
    }

    /// Returns the clock time of the first request. None if [`TraceWriter::start_at_first`] was not
    /// called, or if the first request is still held back.
    pub fn base_ns(&self) -> Option<u64> {
        self.base_ns
    }

    /// Adds a file and returns the id by which requests refer to it. Each call adds a new file,
    /// because two files may have the same name. After [`FILES_MOST`] files or 8 MiB of names, all
    /// further files share one entry, named `(other files)`.
    pub fn add_file(&mut self, name: &str) -> FileId {
        self.names.add(name)
    }

    /// Adds a request. Its file id must come from [`TraceWriter::add_file`]. Otherwise, the file
    /// has an empty name in the trace.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn push(&mut self, request: &Request) -> Result<(), TraceError> {
        let number = self.pushed;
        self.pushed += 1;
        self.held.push(Reverse(Held { start_ns: request.start_ns, number, request: *request }));
        if self.held.len() > HELD_MOST {
            self.release_first()?;
        }
        Ok(())
    }

    /// Declares that all further requests start at `low_water_ns` or later. Requests that started
    /// before are no longer held back.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn advance(&mut self, low_water_ns: u64) -> Result<(), TraceError> {
        while self.held.peek().is_some_and(|Reverse(held)| held.start_ns < low_water_ns) {
            self.release_first()?;
        }
        Ok(())
    }

    /// Writes the remaining requests and the header. Returns the completed header and the output.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish_into(mut self, mut header: Header) -> Result<(Header, W), TraceError> {
        while !self.held.is_empty() {
            self.release_first()?;
        }
        self.write_group()?;
        if header.files.len() < self.names.names.len() {
            header.files.resize_with(self.names.names.len(), Default::default);
        }
        for (file, name) in header.files.iter_mut().zip(&self.names.names) {
            if file.name.is_empty() {
                file.name = String::from_utf8_lossy(name).into_owned();
            }
        }
        self.statistics.complete(&mut header);
        let text = serde_json::to_string(&header).map_err(|cause| TraceError::Encode {
            name: self.name.clone(),
            why: cause.to_string(),
        })?;
        for (key, value) in [(VERSION_KEY, VERSION.to_owned()), (HEADER_KEY, text)] {
            self.parquet.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
        }
        let out = self.parquet.into_inner();
        let out = out.map_err(|cause| TraceError::encoding(&self.name, &cause))?;
        Ok((header, out))
    }

    fn release_first(&mut self) -> Result<(), TraceError> {
        let Some(Reverse(Held { mut request, .. })) = self.held.pop() else { return Ok(()) };
        if self.starts_at_first {
            let base = *self.base_ns.get_or_insert(request.start_ns);
            request.start_ns = request.start_ns.saturating_sub(base);
        }
        request.file = self.names.known(request.file);
        self.statistics.add(&request);
        self.rows.push(request);
        if self.rows.len() == GROUP_ROWS { self.write_group() } else { Ok(()) }
    }

    fn write_group(&mut self) -> Result<(), TraceError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let written = write_rows(&mut self.parquet, &self.rows, &self.names.names);
        self.rows.clear();
        written.map_err(|cause| TraceError::encoding(&self.name, &cause))
    }
}

type Group<'a, W> = SerializedRowGroupWriter<'a, W>;

fn write_rows<W: Write + Send>(
    file: &mut SerializedFileWriter<W>,
    rows: &[Request],
    names: &[Bytes],
) -> Result<(), ParquetError> {
    let mut group = file.next_row_group()?;
    let text = |name: &'static str| ByteArray::from(Bytes::from_static(name.as_bytes()));
    let file_name = |row: &Request| {
        ByteArray::from(names.get(row.file.0 as usize).cloned().unwrap_or_default())
    };
    let out = &mut group;
    numbers(out, rows, |row| row.start_ns)?;
    optional_numbers(out, rows, |row| row.latency_ns.map(u64::cast_signed))?;
    column::<Int32Type, _>(out, rows, |row| row.process.cast_signed())?;
    column::<Int32Type, _>(out, rows, |row| row.thread.cast_signed())?;
    column::<ByteArrayType, _>(out, rows, |row| text(row.call.name()))?;
    column::<ByteArrayType, _>(out, rows, |row| text(row.operation.name()))?;
    column::<Int32Type, _>(out, rows, |row| row.file.0.cast_signed())?;
    column::<ByteArrayType, _>(out, rows, file_name)?;
    optional_numbers(out, rows, |row| row.offset.map(u64::cast_signed))?;
    numbers(out, rows, |row| row.bytes)?;
    optional_numbers(out, rows, |row| row.result)?;
    column::<BoolType, _>(out, rows, |row| row.direct)?;
    column::<BoolType, _>(out, rows, |row| row.durable)?;
    optional_numbers(out, rows, |row| row.device_bytes.map(u64::cast_signed))?;
    optional_numbers(out, rows, |row| row.sleeps.map(u64::cast_signed))?;
    group.close().map(|_| ())
}

fn numbers<W: Write + Send>(
    group: &mut Group<'_, W>,
    rows: &[Request],
    value: impl Fn(&Request) -> u64,
) -> Result<(), ParquetError> {
    column::<Int64Type, _>(group, rows, |row| value(row).cast_signed())
}

fn column<T: DataType, W: Write + Send>(
    group: &mut Group<'_, W>,
    rows: &[Request],
    value: impl Fn(&Request) -> T::T,
) -> Result<(), ParquetError> {
    let Some(mut writer) = group.next_column()? else { return Err(too_many()) };
    let mut values: Vec<T::T> = Vec::with_capacity(BATCH.min(rows.len()));
    for batch in rows.chunks(BATCH) {
        values.clear();
        values.extend(batch.iter().map(&value));
        writer.typed::<T>().write_batch(&values, None, None)?;
    }
    writer.close()
}

fn optional_numbers<W: Write + Send>(
    group: &mut Group<'_, W>,
    rows: &[Request],
    value: impl Fn(&Request) -> Option<i64>,
) -> Result<(), ParquetError> {
    let Some(mut writer) = group.next_column()? else { return Err(too_many()) };
    let (mut values, mut levels) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
    for batch in rows.chunks(BATCH) {
        values.clear();
        values.extend(batch.iter().filter_map(&value));
        levels.clear();
        levels.extend(batch.iter().map(|row| i16::from(value(row).is_some())));
        writer.typed::<Int64Type>().write_batch(&values, Some(&levels), None)?;
    }
    writer.close()
}

fn too_many() -> ParquetError {
    ParquetError::General("there are more columns than the schema defines".to_owned())
}

#[cfg(test)]
mod tests;
