//! Receives requests, file names, lost events and notes from an importer, and writes them as a
//! trace.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;

use crate::error::TraceError;
use crate::request::{Call, FILES_MOST, FileId, Header, Loss, Operation, Process, Request};
use crate::writer::TraceWriter;

/// Maximum number of processes whose names are stored.
const PROCESSES_MOST: usize = 1 << 16;

/// Writes a trace of the requests that an importer reads.
pub(crate) struct Sink<W: Write + Send> {
    writer: TraceWriter<W>,
    files: HashMap<String, FileId>,
    processes: BTreeMap<u32, String>,
    lost: BTreeMap<&'static str, u64>,
    notes: Vec<String>,
    unix_times: bool,
    started_unix_ns: Option<u64>,
}

impl<W: Write + Send> Sink<W> {
    /// Creates a sink that writes to `writer`.
    pub(crate) fn new(writer: TraceWriter<W>) -> Sink<W> {
        Sink {
            writer,
            files: HashMap::new(),
            processes: BTreeMap::new(),
            lost: BTreeMap::new(),
            notes: Vec::new(),
            unix_times: false,
            started_unix_ns: None,
        }
    }

    /// Declares that the times of requests are nanoseconds since 1970.
    pub(crate) fn times_since_1970(&mut self) {
        self.unix_times = true;
        self.writer.start_at_first();
    }

    /// Declares that the times of requests are readings of a clock that started at an arbitrary
    /// time.
    pub(crate) fn times_of_any_clock(&mut self) {
        self.writer.start_at_first();
    }

    /// Sets the time at which the clock of the trace was zero (ns since 1970). Later calls have no
    /// effect.
    pub(crate) fn clock_started(&mut self, unix_ns: u64) {
        self.started_unix_ns.get_or_insert(unix_ns);
    }

    /// Returns the id of the file with this name. Adds the file if it is new.
    pub(crate) fn file(&mut self, name: &str) -> FileId {
        if let Some(known) = self.files.get(name) {
            return *known;
        }
        let file = self.writer.add_file(name);
        if self.files.len() < FILES_MOST {
            self.files.insert(name.to_owned(), file);
        }
        file
    }

    /// Stores the name of a process.
    pub(crate) fn process(&mut self, id: u32, name: &str) {
        if id != 0 && !name.is_empty() && self.processes.len() < PROCESSES_MOST {
            self.processes.entry(id).or_insert_with(|| name.to_owned());
        }
    }

    /// Adds a request.
    pub(crate) fn push(&mut self, request: &Request) -> Result<(), TraceError> {
        self.writer.push(request)
    }

    /// Adds `count` to the number of events that were lost for this cause.
    pub(crate) fn lose(&mut self, cause: &'static str, count: u64) {
        if count > 0 {
            *self.lost.entry(cause).or_default() += count;
        }
    }

    /// Adds a note for users of the trace.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Ends the import. The caller must finish the returned writer with the returned header.
    pub(crate) fn end(mut self, source: &str) -> Result<(TraceWriter<W>, Header), TraceError> {
        self.writer.advance(u64::MAX)?;
        let base_ns = self.writer.base_ns();
        let started_unix_ns = match self.started_unix_ns {
            Some(zero) => zero.checked_add(base_ns.unwrap_or(0)),
            None => base_ns.filter(|_| self.unix_times),
        };
        let processes = self.processes.into_iter().map(|(id, name)| Process { id, name });
        let lost = self.lost.into_iter();
        let header = Header {
            source: source.to_owned(),
            started_unix_ns,
            processes: processes.collect(),
            lost: lost.map(|(cause, count)| Loss { cause: cause.to_owned(), count }).collect(),
            notes: self.notes,
            ..Header::default()
        };
        Ok((self.writer, header))
    }
}

/// Returns a request with only a start time, an operation and a file. Importers set the other
/// fields that their formats contain.
pub(crate) fn bare(start_ns: u64, operation: Operation, file: FileId) -> Request {
    Request {
        start_ns,
        latency_ns: None,
        process: 0,
        thread: 0,
        call: Call::UNKNOWN,
        operation,
        file,
        offset: None,
        bytes: 0,
        result: None,
        direct: false,
        durable: false,
        device_bytes: None,
        sleeps: None,
    }
}

/// Returns a request of a block device. The request was recorded below the page cache. It is
/// therefore marked as direct, so that a replay bypasses the page cache too.
pub(crate) fn block(
    start_ns: u64,
    operation: Operation,
    file: FileId,
    offset: u64,
    bytes: u64,
) -> Request {
    let offset = Some(offset);
    let bare = bare(start_ns, operation, file);
    Request { call: Call::BLOCK, offset, bytes, direct: true, ..bare }
}
