//! Writes a trace as a Parquet file, request by request, in bounded memory.
//!
//! Requests are pushed when they complete, and stored in the order of their start. So the writer
//! holds back each request that another one could still overtake: until the caller says that none
//! will ([`TraceWriter::advance`]), or until [`HELD_MOST`] requests are held. A request that comes
//! later than that is stored after requests that started later, and [`Header::out_of_order`] counts
//! it.
//!
//! The file has a temporary name in the same folder until it is finished, so that half a trace is
//! never taken for a whole one.

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

/// Maximum number of requests that are held back. 65,536 requests are 6 MiB, and no kernel keeps as
/// many in flight.
pub const HELD_MOST: usize = 1 << 16;

/// Requests of one row group, which are in memory at a time (12 MiB).
const GROUP_ROWS: usize = 1 << 17;

/// Values that are converted at a time.
const BATCH: usize = 4096;

/// Maximum length of all names of files together (bytes).
const NAMES_MOST: usize = 8 << 20;

/// Maximum length of a name (bytes): the longest path of Linux.
const NAME_MOST: usize = 4096;

/// The name of all files beyond these limits.
const OTHER_FILES: &str = "(other files)";

/// A request that is held back, since one that started earlier may still come. Requests that start
/// at the same time keep the order in which they were pushed.
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

/// The names of the files so far.
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

    /// The number of a file in the trace. A file that was not added gets an empty name.
    fn known(&mut self, file: FileId) -> FileId {
        let at = (file.0 as usize).min(FILES_MOST - 1);
        if at >= self.names.len() {
            self.names.resize(at + 1, Bytes::new());
        }
        FileId(at as u32)
    }
}

/// The beginning of a text, at most `most` bytes long.
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

/// A file under its temporary name; removed unless it was finished.
struct Partial {
    partial: PathBuf,
    path: PathBuf,
    finished: bool,
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.finished {
            // If it cannot be removed, it stays; nothing more can be done.
            let _ = fs::remove_file(&self.partial);
        }
    }
}

impl TraceWriter<File> {
    /// Starts a trace that will be the file `path`. Until [`TraceWriter::finish`], its name has the
    /// ending `.PID.partial`; it is removed if the writer is dropped before.
    ///
    /// # Errors
    /// `path` exists, or a file cannot be made beside it.
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

    /// Writes what is left and the header, and gives the file its name. Returns the completed
    /// header: with the number of requests, the duration, the depth, the requests out of order, and
    /// the names and ends of files.
    ///
    /// # Errors
    /// The file cannot be written or renamed, or a file of its name was made meanwhile.
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
                // Some file systems have no hard links.
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
    /// Starts a trace that is written to `out`; messages call it `name`.
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

    /// Says that the times of requests do not count from the start of the trace, but come from some
    /// clock. The trace then starts with its first request, whose time [`TraceWriter::base_ns`]
    /// returns.
    pub fn start_at_first(&mut self) {
        self.starts_at_first = true;
    }

    /// The time of the first request, if [`TraceWriter::start_at_first`] was called and the first
    /// request is no longer held back.
    pub fn base_ns(&self) -> Option<u64> {
        self.base_ns
    }

    /// Adds a file, and returns the number that requests refer to. Each call adds a new file, since
    /// two files may have the same name. Beyond [`FILES_MOST`] files or 8 MiB of names, all further
    /// files count as one, called `(other files)`.
    pub fn add_file(&mut self, name: &str) -> FileId {
        self.names.add(name)
    }

    /// Adds a request. Its file comes from [`TraceWriter::add_file`]; a file that was not added
    /// there has no name.
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

    /// Says that no later request starts before `low_water_ns`, so that all earlier ones are
    /// stored.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn advance(&mut self, low_water_ns: u64) -> Result<(), TraceError> {
        while self.held.peek().is_some_and(|Reverse(held)| held.start_ns < low_water_ns) {
            self.release_first()?;
        }
        Ok(())
    }

    /// Writes the requests that are left and the header. Returns the completed header and the
    /// output.
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
    ParquetError::General("more columns than in the schema".to_owned())
}

#[cfg(test)]
mod tests;
