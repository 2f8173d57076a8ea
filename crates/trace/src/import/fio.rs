//! Imports logs of fio (`write_iolog`, `read_iolog`), versions 2 and 3, which the manual page
//! fio(1) describes under "Trace file format".
//!
//! The first line of version 2 is `fio version 2 iolog`. The other lines have the forms `FILE add`,
//! `FILE open`, `FILE close`, and `FILE ACTION OFFSET LENGTH`, where the action is read, write,
//! trim, sync, datasync or wait. In a `wait` line, the offset is a time in microseconds by which
//! all following requests are delayed. In version 3, each line after the first begins with a time,
//! and there is no `wait`. The manual does not state the unit of this time, but fio 3.33 writes
//! microseconds.
//!
//! A log does not record which process made a request, how long a request took, or whether the
//! request was direct.

use std::io::Write;

use crate::error::TraceError;
use crate::import::lines::Lines;
use crate::import::sink::{Sink, bare};
use crate::request::{Call, Operation, Request};

const MICROSECOND_NS: u64 = 1000;

/// Returns the version of a log whose first line is `line`. None if this is not a log of fio.
pub(crate) fn version(line: &str) -> Option<u32> {
    match line.trim() {
        "fio version 2 iolog" => Some(2),
        "fio version 3 iolog" => Some(3),
        _ => None,
    }
}

/// Reads a log.
///
/// # Errors
/// If a line does not match the format, or if the trace cannot be written.
pub(crate) fn read<W: Write + Send>(
    lines: &mut Lines<'_>,
    sink: &mut Sink<W>,
) -> Result<(), TraceError> {
    if !lines.next()? {
        return Err(lines.bad("'fio version 2 iolog' or 'fio version 3 iolog'"));
    }
    let Some(version) = version(lines.text()) else {
        return Err(lines.bad("'fio version 2 iolog' or 'fio version 3 iolog'"));
    };
    let mut waited_ns: u64 = 0;
    while lines.next()? {
        let mut words = lines.text().split_whitespace();
        let at_ns = match version {
            3 => {
                let Some(time) = words.next() else { continue };
                let time = time.parse::<u64>().ok();
                let time = time.and_then(|time| time.checked_mul(MICROSECOND_NS));
                time.ok_or_else(|| lines.bad("a time in microseconds, a file and an action"))?
            }
            _ => waited_ns,
        };
        let Some(file) = words.next() else { continue };
        let Some(action) = words.next() else { return Err(lines.bad("a file and an action")) };
        let numbers: Vec<Option<u64>> = words.map(|word| word.parse().ok()).collect();
        let (offset, bytes) = match (action, numbers.as_slice()) {
            ("add", []) => {
                sink.file(file);
                continue;
            }
            ("open" | "close" | "sync" | "datasync", []) => (0, 0),
            (_, [Some(offset), Some(bytes)]) => (*offset, *bytes),
            _ => return Err(lines.bad("an offset and a length after the action")),
        };
        if action == "wait" && version == 2 {
            waited_ns = waited_ns.saturating_add(offset.saturating_mul(MICROSECOND_NS));
            continue;
        }
        let Some((operation, call)) = meaning(action) else {
            return Err(lines.bad(
                "read, write, trim, sync, datasync, add, open, close or, in version 2, wait",
            ));
        };
        let moves = operation.moves_data() || operation == Operation::Discard;
        let request = bare(at_ns, operation, sink.file(file));
        let offset = moves.then_some(offset);
        sink.push(&Request { call, offset, bytes: if moves { bytes } else { 0 }, ..request })?;
    }
    sink.note("the log does not record how long requests took, nor whether they were direct");
    Ok(())
}

fn meaning(action: &str) -> Option<(Operation, Call)> {
    let call = |name| Call::named(name).unwrap_or(Call::UNKNOWN);
    Some(match action {
        "read" => (Operation::Read, Call::UNKNOWN),
        "write" => (Operation::Write, Call::UNKNOWN),
        "trim" => (Operation::Discard, Call::UNKNOWN),
        "sync" => (Operation::Flush, call("fsync")),
        "datasync" => (Operation::Flush, call("fdatasync")),
        "sync_file_range" => (Operation::Flush, call("sync_file_range")),
        "open" => (Operation::Open, call("open")),
        "close" => (Operation::Close, call("close")),
        _ => return None,
    })
}
