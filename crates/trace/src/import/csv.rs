//! Imports the CSV that `export` writes: a line with the names of the columns, then a line for each
//! request.
//!
//! A field whose value is unknown is empty. Text that contains commas, quotes or line ends is
//! quoted (RFC 4180). Columns are identified by name. Only `start_ns` and `operation` are required,
//! so other programs may leave out the other columns. The values of missing columns count as
//! unknown.

use std::borrow::Cow;
use std::io::Write;

use crate::error::TraceError;
use crate::import::lines::Lines;
use crate::import::sink::{Sink, bare};
use crate::request::{Call, Operation, Request};

/// The names of the columns, in the order in which `export` writes them.
pub(crate) const COLUMNS: [&str; 14] = [
    "start_ns",
    "latency_ns",
    "process",
    "thread",
    "call",
    "operation",
    "file",
    "offset",
    "bytes",
    "result",
    "direct",
    "durable",
    "device_bytes",
    "sleeps",
];

/// Returns whether `line` contains the names of the required columns, as the first line of a CSV
/// trace must.
pub(crate) fn is_header(line: &str) -> bool {
    let mut names = line.split(',').map(str::trim);
    names.clone().any(|name| name == "start_ns") && names.any(|name| name == "operation")
}

/// Reads a CSV file.
///
/// # Errors
/// If a line does not match the format, or if the trace cannot be written.
pub(crate) fn read<W: Write + Send>(
    lines: &mut Lines<'_>,
    sink: &mut Sink<W>,
) -> Result<(), TraceError> {
    const NAMES: &str = "the names of the columns, including start_ns and operation";
    if !lines.next()? || !is_header(lines.text().trim_start_matches('\u{feff}')) {
        return Err(lines.bad(NAMES));
    }
    let names = lines.text().trim_start_matches('\u{feff}').split(',');
    let mut places = Vec::new();
    for name in names {
        let place = COLUMNS.iter().position(|known| *known == name.trim());
        let place = place.filter(|place| !places.contains(place));
        places.push(place.ok_or_else(|| {
            lines.bad("only the columns start_ns, latency_ns, .., and each column at most once")
        })?);
    }
    while lines.next()? {
        while lines.text().bytes().filter(|byte| *byte == b'"').count() % 2 == 1 {
            lines.push_end();
            if !lines.append()? {
                return Err(lines.bad("a closing quote at the end of a quoted field"));
            }
        }
        if lines.text().trim().is_empty() {
            continue;
        }
        let mut fields: [Cow<'_, str>; COLUMNS.len()] = Default::default();
        let found = split(lines.text());
        let found = found.filter(|found| found.len() == places.len());
        let found = found.ok_or_else(|| lines.bad("as many fields as there are columns"))?;
        for (place, field) in places.iter().zip(found) {
            fields[*place] = field;
        }
        let file = sink.file(&fields[6]);
        let request = request(&fields).map_err(|expected| lines.bad(expected))?;
        sink.push(&Request { file, ..request })?;
    }
    Ok(())
}

/// Parses the fields of a request, except for the name of the file.
fn request(fields: &[Cow<'_, str>; COLUMNS.len()]) -> Result<Request, &'static str> {
    let field = |at: usize| fields[at].trim();
    let number = |at: usize, expected| match field(at) {
        "" => Ok(None),
        text => text.parse::<u64>().map(Some).map_err(|_| expected),
    };
    let id = |at: usize, expected| match field(at) {
        "" => Ok(0),
        text => text.parse::<u32>().map_err(|_| expected),
    };
    let flag = |at: usize, expected| match field(at) {
        "" | "false" | "0" => Ok(false),
        "true" | "1" => Ok(true),
        _ => Err(expected),
    };
    let operation = Operation::named(field(5)).ok_or("the name of an operation, such as read")?;
    let start_ns = number(0, "a whole number as start_ns")?.ok_or("a value of start_ns")?;
    Ok(Request {
        latency_ns: number(1, "a whole number as latency_ns")?,
        process: id(2, "a whole number as process")?,
        thread: id(3, "a whole number as thread")?,
        call: match field(4) {
            "" => Call::UNKNOWN,
            name => Call::named(name).ok_or("the name of a call, such as pread64")?,
        },
        offset: number(7, "a whole number as offset")?,
        bytes: number(8, "a whole number as bytes")?.unwrap_or(0),
        result: match field(9) {
            "" => None,
            text => Some(text.parse().map_err(|_| "a whole number as result")?),
        },
        direct: flag(10, "true or false as direct")?,
        durable: flag(11, "true or false as durable")?,
        device_bytes: number(12, "a whole number as device_bytes")?,
        sleeps: number(13, "a whole number as sleeps")?,
        ..bare(start_ns, operation, crate::request::FileId(0))
    })
}

/// Splits a line into its fields. None if a quote is in the wrong position.
fn split(mut line: &str) -> Option<Vec<Cow<'_, str>>> {
    let mut fields = Vec::new();
    loop {
        let Some(quoted) = line.strip_prefix('"') else {
            let end = line.find(',').unwrap_or(line.len());
            if line[..end].contains('"') {
                return None;
            }
            fields.push(Cow::Borrowed(&line[..end]));
            match line[end..].strip_prefix(',') {
                Some(rest) => line = rest,
                None => return Some(fields),
            }
            continue;
        };
        let mut text = String::new();
        let mut rest = quoted;
        loop {
            let (part, behind) = rest.split_once('"')?;
            text.push_str(part);
            match behind.strip_prefix('"') {
                Some(behind) => {
                    text.push('"');
                    rest = behind;
                }
                None => {
                    rest = behind;
                    break;
                }
            }
        }
        fields.push(Cow::Owned(text));
        if rest.trim().is_empty() {
            return Some(fields);
        }
        line = rest.strip_prefix(',')?;
    }
}
