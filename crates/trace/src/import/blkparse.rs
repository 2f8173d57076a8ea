//! Imports the output of blkparse in the default format, which the manual page blkparse(1)
//! describes under "OUTPUT DESCRIPTION AND FORMATTING".
//!
//! A line is `MAJ,MIN CPU SEQUENCE SECONDS.NANOSECONDS PID ACTION RWBS SECTOR + SECTORS [PROCESS]`.
//! In completions, the brackets contain an error number instead of the name of a process. Before
//! the brackets, some versions print the time since an earlier event of the request, in
//! parentheses. In requests without data, `+ SECTORS` is missing. Actions other than Q, M, F, D, R
//! and C are skipped, because they neither begin nor end a request. Messages of the kernel, lines
//! about input files, and the summary at the end are also skipped. [`crate::import::pairs`]
//! describes how requests are derived from the events.

use std::io::Write;

use crate::error::TraceError;
use crate::import::lines::{Lines, seconds_ns};
use crate::import::pairs::{Event, Pairs, SECTOR, Stage, durable, operation};
use crate::import::sink::Sink;
use crate::request::Operation;

/// Actions of blkparse that are skipped, because they neither begin nor end a request.
const OTHER_ACTIONS: &str = "GISPUTXABmi";

struct Fields<'a> {
    device: (u32, u32),
    at_ns: u64,
    process: u32,
    action: &'a str,
    letters: &'a str,
    rest: &'a str,
}

fn fields(line: &str) -> Option<Fields<'_>> {
    let mut rest = line;
    let mut word = || {
        let text = rest.trim_start();
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        rest = &text[end..];
        Some(&text[..end]).filter(|word| !word.is_empty())
    };
    let (major, minor) = word()?.split_once(',')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let _cpu: u32 = word()?.parse().ok()?;
    let _sequence: u64 = word()?.parse().ok()?;
    let at_ns = seconds_ns(word()?)?;
    let process = word()?.parse().ok()?;
    let (action, letters) = (word()?, word()?);
    Some(Fields { device, at_ns, process, action, letters, rest: rest.trim() })
}

/// Returns whether the line describes an event.
pub(crate) fn is_event(line: &str) -> bool {
    fields(line).is_some_and(|fields| fields.action.len() <= 2)
}

/// Reads the output of blkparse.
///
/// # Errors
/// If a line does not match the format, or if the trace cannot be written.
pub(crate) fn read<W: Write + Send>(
    lines: &mut Lines<'_>,
    sink: &mut Sink<W>,
) -> Result<(), TraceError> {
    sink.times_of_any_clock();
    let mut pairs = Pairs::default();
    while lines.next()? {
        let line = lines.text().trim();
        if line.starts_with("CPU") && line.ends_with(':') || line.starts_with("Total (") {
            break;
        }
        if line.is_empty() || line.starts_with("Input file ") {
            continue;
        }
        let fields = fields(line).ok_or_else(|| lines.bad(EXPECTED))?;
        let stage = match fields.action {
            "Q" => Stage::Queued,
            "M" | "F" => Stage::Merged,
            "D" => Stage::Issued,
            "R" => Stage::Requeued,
            "C" => Stage::Completed(0),
            "UT" => continue,
            action if action.len() == 1 && OTHER_ACTIONS.contains(action) => continue,
            _ => return Err(lines.bad("one of the actions of blkparse, such as Q, D or C")),
        };
        let (range, tail) = fields.rest.split_once('[').unwrap_or((fields.rest, ""));
        let tail = tail.trim_end().strip_suffix(']').unwrap_or(tail);
        let stage = match stage {
            Stage::Completed(_) => {
                let error = tail.trim().parse().ok().and_then(error_number);
                Stage::Completed(error.ok_or_else(|| lines.bad("an error number in brackets"))?)
            }
            stage => {
                sink.process(fields.process, tail);
                stage
            }
        };
        let Some((sector, sectors)) = sectors(range) else {
            return Err(lines.bad("a sector and a number of sectors after the action"));
        };
        let bytes = sectors.saturating_mul(SECTOR);
        let Some(operation) = operation(fields.letters, bytes) else { continue };
        let moves_nothing = bytes == 0 && operation != Operation::Flush;
        if moves_nothing && !matches!(stage, Stage::Completed(_)) {
            // The event is not I/O, but a command that a program sent directly to the device.
            continue;
        }
        let event = Event {
            at_ns: fields.at_ns,
            stage,
            operation,
            device: fields.device,
            sector: if operation == Operation::Flush { 0 } else { sector },
            bytes,
            process: fields.process,
            durable: durable(fields.letters),
        };
        pairs.add(&event, sink)?;
    }
    pairs.end_of_trace(sink);
    Ok(())
}

const EXPECTED: &str = "an event such as '8,0 3 11 0.009507758 697 D W 223490 + 8 [name]'";

/// Parses the sector and the number of sectors from `SECTOR + SECTORS` or `SECTOR`. Returns 0 for
/// both if there is no sector. A time in parentheses at the end is ignored.
fn sectors(range: &str) -> Option<(u64, u64)> {
    let range = range.split_once('(').map_or(range, |(range, _)| range).trim();
    if range.is_empty() {
        return Some((0, 0));
    }
    let (sector, sectors) = range.split_once('+').unwrap_or((range, "0"));
    Some((sector.trim().parse().ok()?, sectors.trim().parse().ok()?))
}

/// Converts an error number in the output of blkparse. Returns 0 or a negative error number. The
/// kernel stores errors in 16 bits, and blkparse prints these bits as an unsigned number, for
/// example 65531 for -5.
pub(crate) fn error_number(printed: i64) -> Option<i64> {
    let negative = match printed {
        -4095..=0 => printed,
        1..=4095 => -printed,
        61441..=65535 => printed - 65536,
        _ => return None,
    };
    Some(negative)
}
