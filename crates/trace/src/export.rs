//! Writes traces for other tools: as CSV for spreadsheets and scripts, and as logs that fio
//! replays.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{self, Write};

use crate::error::TraceError;
use crate::import::csv::COLUMNS;
use crate::reader::TraceReader;
use crate::request::{Call, Operation, Request};

const MICROSECOND_NS: u64 = 1000;

/// How many requests an export wrote, and how many it left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Number of requests that were written.
    pub requests: u64,
    /// Number of requests that were left out, because the format cannot express them or a replay
    /// does not need them.
    pub left_out: u64,
}

/// Writes a trace as CSV. The first line contains the names of the columns, and each further line
/// is a request. Unknown values are empty fields. `name` is the name of `out` in error messages.
///
/// # Errors
/// If the trace is damaged, or if `out` cannot be written.
pub fn csv(trace: TraceReader, out: &mut impl Write, name: &str) -> Result<Exported, TraceError> {
    let fail = |cause| TraceError::writing(name, cause);
    let files: Vec<String> =
        trace.header().files.iter().map(|file| quoted(&file.name).into_owned()).collect();
    let mut exported = Exported::default();
    writeln!(out, "{}", COLUMNS.join(",")).map_err(fail)?;
    for request in trace {
        let request = request?;
        let file = files.get(request.file.0 as usize).map_or("", String::as_str);
        csv_line(out, &request, file).map_err(fail)?;
        exported.requests += 1;
    }
    out.flush().map_err(fail)?;
    Ok(exported)
}

fn csv_line(out: &mut impl Write, request: &Request, file: &str) -> io::Result<()> {
    write!(out, "{},", request.start_ns)?;
    optional(out, request.latency_ns)?;
    let (call, operation) = (request.call.name(), request.operation.name());
    write!(out, "{},{},{call},{operation},{file},", request.process, request.thread)?;
    optional(out, request.offset)?;
    write!(out, "{},", request.bytes)?;
    optional(out, request.result)?;
    write!(out, "{},{},", request.direct, request.durable)?;
    optional(out, request.device_bytes)?;
    match request.sleeps {
        Some(sleeps) => writeln!(out, "{sleeps}"),
        None => writeln!(out),
    }
}

fn optional(out: &mut impl Write, value: Option<impl std::fmt::Display>) -> io::Result<()> {
    match value {
        Some(value) => write!(out, "{value},"),
        None => write!(out, ","),
    }
}

fn quoted(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"', '\n', '\r']) {
        Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(text)
    }
}

/// Writes a trace as a log of fio, version 3, which `fio --read_iolog` replays. The log contains
/// all flushes, and the reads, writes and discards whose offset is known. All other requests are
/// left out. The log opens each file before the first request of the file, and closes all files at
/// the end. Times are in microseconds. `name` is the name of `out` in error messages.
///
/// If `halfpower watch` recorded the trace, block layer requests and page faults are also left out,
/// because other requests cause them. Failed requests, and reads and writes that moved no data, are
/// left out as well. The length of each read or write in the log is then the number of bytes that
/// the request moved.
///
/// fio splits lines at whitespace, so whitespace and control characters in file names become `_`. A
/// file without a name is called `file-N`.
///
/// # Errors
/// If the trace is damaged, or if `out` cannot be written.
pub fn fio_log(
    trace: TraceReader,
    out: &mut impl Write,
    name: &str,
) -> Result<Exported, TraceError> {
    let fail = |cause| TraceError::writing(name, cause);
    let files = fio_names(&trace);
    let is_watched = trace.header().source == "watch";
    let (mut exported, mut opened) = (Exported::default(), BTreeSet::new());
    writeln!(out, "fio version 3 iolog").map_err(fail)?;
    let mut last_us = 0;
    for request in trace {
        let request = request?;
        let file = files.get(request.file.0 as usize);
        let action = fio_action(&request).filter(|_| !is_watched || is_replayed(&request));
        let (Some(file), Some((action, offset))) = (file, action) else {
            exported.left_out += 1;
            continue;
        };
        // fio requires that times do not decrease.
        last_us = last_us.max(request.start_ns / MICROSECOND_NS);
        if opened.insert(file) {
            writeln!(out, "{last_us} {file} add\n{last_us} {file} open").map_err(fail)?;
        }
        let bytes = match action {
            "sync" | "datasync" => 0,
            _ if is_watched => request.moved_bytes(),
            _ => request.bytes,
        };
        writeln!(out, "{last_us} {file} {action} {offset} {bytes}").map_err(fail)?;
        exported.requests += 1;
    }
    for file in opened {
        writeln!(out, "{last_us} {file} close").map_err(fail)?;
    }
    out.flush().map_err(fail)?;
    Ok(exported)
}

/// Returns whether a replay of a trace of `halfpower watch` needs this request.
fn is_replayed(request: &Request) -> bool {
    let is_block = request.call == Call::BLOCK;
    let moves_nothing = request.operation.moves_data() && request.moved_bytes() == 0;
    let failed = request.result.is_some_and(|result| result < 0);
    !is_block && !failed && !moves_nothing && request.call != Call::PAGE_FAULT
}

fn fio_names(trace: &TraceReader) -> Vec<String> {
    let name = |(at, file): (usize, &crate::request::File)| match file.name.as_str() {
        "" => format!("file-{at}"),
        name => name.replace(|c: char| c.is_whitespace() || c.is_control(), "_"),
    };
    trace.header().files.iter().enumerate().map(name).collect()
}

fn fio_action(request: &Request) -> Option<(&'static str, u64)> {
    let action = match request.operation {
        Operation::Read => "read",
        Operation::Write => "write",
        Operation::Discard => "trim",
        Operation::Flush => {
            let data_only = request.call.name() == "fdatasync";
            return Some((if data_only { "datasync" } else { "sync" }, 0));
        }
        _ => return None,
    };
    Some((action, request.offset?))
}

#[cfg(test)]
mod tests;
