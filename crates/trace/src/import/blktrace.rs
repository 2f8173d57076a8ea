//! Imports files of blktrace, of either byte order. There is one file for each CPU:
//! `NAME.blktrace.0` and so on.
//!
//! A file is a sequence of records (`struct blk_io_trace` in include/uapi/linux/blktrace_api.h of
//! Linux). A record has 48 bytes. Its first four bytes are a magic number that includes the version
//! (0x65617407) and also shows the byte order. Its last field is the length of the data that follow
//! the record. The records of each file are sorted by time, and the importer merges the files. Some
//! records are notes of the kernel, which contain the name of a process or the time of day.
//! [`crate::import::pairs`] describes how requests are derived from the events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Read, Write};

use crate::error::TraceError;
use crate::import::blkparse::error_number;
use crate::import::lines::SECOND_NS;
use crate::import::pairs::{Event, Pairs, Stage};
use crate::import::sink::Sink;
use crate::request::Operation;

/// Magic number that includes the version. It has the byte order of the whole file.
const MAGIC: u32 = 0x6561_7407;

/// Size of a record without the data that follow it (bytes).
const RECORD: usize = 48;

// Bits of the action field. The upper 16 bits are BLK_TC_*. CGROUP is __BLK_TA_CGROUP in the lower
// 16 bits.
const WRITE: u32 = 1 << 17;
const FLUSH: u32 = 1 << 18;
const PASSED_THROUGH: u32 = 1 << 25;
const NOTIFY: u32 = 1 << 26;
const DISCARD: u32 = 1 << 29;
const FUA: u32 = 1 << 31;
const READ: u32 = 1 << 16;
const CGROUP: u32 = 1 << 8;

// Types of notes, in the lower 16 bits of the action field.
const NOTE_PROCESS: u32 = 0;
const NOTE_TIME: u32 = 1;

/// Returns whether a file that begins with `head` is a file of blktrace.
pub(crate) fn begins(head: &[u8]) -> bool {
    head.first_chunk().is_some_and(|bytes| {
        let number = u32::from_le_bytes(*bytes);
        number == MAGIC || number.swap_bytes() == MAGIC
    })
}

/// An input file of blktrace.
pub(crate) struct Input<'a> {
    pub name: String,
    pub bytes: Box<dyn Read + 'a>,
}

struct Record {
    at_ns: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    process: u32,
    device: u32,
    error: u16,
    big_endian: bool,
    data: Vec<u8>,
}

struct Records<'a> {
    input: Input<'a>,
    at: u64,
}

impl Records<'_> {
    fn bad(&self, why: &str) -> TraceError {
        TraceError::Record { name: self.input.name.clone(), at: self.at, why: why.to_owned() }
    }

    /// Fills the buffer from the file. Returns false if the file has no more bytes, and an error if
    /// it has too few bytes to fill the buffer.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<bool, TraceError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.input.bytes.read(&mut buffer[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(self.bad("the file ends within a record")),
                Ok(read) => filled += read,
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(TraceError::reading(&self.input.name, cause)),
            }
        }
        Ok(true)
    }

    fn next(&mut self) -> Result<Option<Record>, TraceError> {
        let mut raw = [0; RECORD];
        if !self.fill(&mut raw)? {
            return Ok(None);
        }
        let long = |at: usize| raw[at..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        let word = |at: usize| raw[at..].first_chunk().map_or(0, |b| u32::from_le_bytes(*b));
        let half = |at: usize| raw[at..].first_chunk().map_or(0, |b| u16::from_le_bytes(*b));
        let big_endian = match word(0) {
            MAGIC => false,
            number if number.swap_bytes() == MAGIC => true,
            _ => return Err(self.bad("this is not a record of blktrace, version 7")),
        };
        let long = |at| if big_endian { long(at).swap_bytes() } else { long(at) };
        let word = |at| if big_endian { word(at).swap_bytes() } else { word(at) };
        let half = |at| if big_endian { half(at).swap_bytes() } else { half(at) };
        let mut record = Record {
            at_ns: long(8),
            sector: long(16),
            bytes: word(24),
            action: word(28),
            process: word(32),
            device: word(36),
            error: half(44),
            big_endian,
            data: vec![0; usize::from(half(46))],
        };
        let mut data = std::mem::take(&mut record.data);
        if !data.is_empty() && !self.fill(&mut data)? {
            return Err(self.bad("the file ends within a record"));
        }
        self.at += (RECORD + data.len()) as u64;
        Ok(Some(Record { data, ..record }))
    }
}

/// Reads the files of one trace.
///
/// # Errors
/// If a file is not a file of blktrace, or if the trace cannot be written.
pub(crate) fn read<W: Write + Send>(
    inputs: Vec<Input<'_>>,
    sink: &mut Sink<W>,
) -> Result<(), TraceError> {
    sink.times_of_any_clock();
    let mut files: Vec<Records<'_>> =
        inputs.into_iter().map(|input| Records { input, at: 0 }).collect();
    let mut next: Vec<Option<Record>> = Vec::new();
    let mut order = BinaryHeap::new();
    for (at, file) in files.iter_mut().enumerate() {
        let record = file.next()?;
        order.extend(record.as_ref().map(|record| Reverse((record.at_ns, at))));
        next.push(record);
    }
    let mut pairs = Pairs::default();
    while let Some(Reverse((_, at))) = order.pop() {
        let Some(record) = next[at].take() else { continue };
        next[at] = files[at].next()?;
        order.extend(next[at].as_ref().map(|record| Reverse((record.at_ns, at))));
        if record.action & NOTIFY != 0 {
            note(&record, sink);
        } else if let Some(event) = event(&record) {
            pairs.add(&event, sink)?;
        }
    }
    pairs.end_of_trace(sink);
    Ok(())
}

fn note<W: Write + Send>(record: &Record, sink: &mut Sink<W>) {
    match record.action & 0xffff & !CGROUP {
        NOTE_PROCESS => {
            let name = record.data.split(|byte| *byte == 0).next().unwrap_or_default();
            sink.process(record.process, &String::from_utf8_lossy(name));
        }
        NOTE_TIME => {
            let Some(bytes) = record.data.first_chunk::<8>() else { return };
            let word = |at: usize| {
                let word = bytes[at..].first_chunk().map_or(0, |b| u32::from_le_bytes(*b));
                u64::from(if record.big_endian { word.swap_bytes() } else { word })
            };
            let unix_ns = word(0) * SECOND_NS + word(4);
            if let Some(zero) = unix_ns.checked_sub(record.at_ns) {
                sink.clock_started(zero);
            }
        }
        _ => {}
    }
}

fn event(record: &Record) -> Option<Event> {
    let action = record.action;
    if action & PASSED_THROUGH != 0 {
        return None;
    }
    let stage = match action & 0xffff & !CGROUP {
        1 => Stage::Queued,
        2 | 3 => Stage::Merged,
        6 => Stage::Requeued,
        7 => Stage::Issued,
        8 => {
            let error = i64::from(record.error);
            Stage::Completed(error_number(error).unwrap_or(-error))
        }
        _ => return None,
    };
    let bytes = u64::from(record.bytes);
    let operation = if action & DISCARD != 0 {
        Operation::Discard
    } else if action & FLUSH != 0 && bytes == 0 {
        Operation::Flush
    } else if action & WRITE != 0 {
        Operation::Write
    } else if action & READ != 0 {
        Operation::Read
    } else {
        return None;
    };
    let moves_nothing = bytes == 0 && operation != Operation::Flush;
    if moves_nothing && !matches!(stage, Stage::Completed(_)) {
        return None;
    }
    Some(Event {
        at_ns: record.at_ns,
        stage,
        operation,
        device: (record.device >> 20, record.device & 0xf_ffff),
        sector: if operation == Operation::Flush { 0 } else { record.sector },
        bytes,
        process: record.process,
        durable: action & FUA != 0,
    })
}
