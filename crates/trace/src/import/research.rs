//! Imports traces of block devices that were published for research. They are CSV files with one
//! request per line.
//!
//! - **MSR Cambridge** (README of the MSR Cambridge traces in the IOTTA repository of SNIA;
//!   Narayanan et al., "Write Off-Loading", FAST 2008):
//!   `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`. Timestamps are Windows file
//!   times (units of 100 ns since 1601). Response times have the same unit. Offset and size are in
//!   bytes.
//! - **Systor '17** (README of the traces in the IOTTA repository; Lee et al., "Understanding
//!   Storage Traffic Characteristics on Enterprise Virtual Desktop Infrastructure", SYSTOR 2017):
//!   `Timestamp,Response,IOType,LUN,Offset,Size`. Timestamps are seconds since 1970. Response times
//!   are in seconds. The type is R, W or empty. Offset and size are in bytes. The first line is a
//!   header with the names of the fields.
//! - **Alibaba** (README of the Alibaba block traces; Li et al., "An In-Depth Analysis of Cloud
//!   Block Storage Workloads", IISWC 2020): `device_id,opcode,offset,length,timestamp`. The opcode
//!   is R or W. Offset and length are in bytes. Timestamps are microseconds since 1970.
//! - **Tencent** (README of the CBS traces in the IOTTA repository; Zhang et al., "OSCA", USENIX
//!   ATC 2020): `Timestamp,Offset,Size,IOType,VolumeID`. Timestamps are whole seconds since 1970.
//!   Offset and size are in sectors of 512 bytes. The type is 0 for reads and 1 for writes.
//!
//! Lines need not be sorted by time. Empty lines and a header in the first line are skipped.

use std::io::Write;

use crate::error::TraceError;
use crate::import::lines::{Lines, SECOND_NS, fields, seconds_ns};
use crate::import::sink::{Sink, block};
use crate::request::{Operation, Request};

/// Size of a sector in Tencent's traces (bytes).
const SECTOR: u64 = 512;

/// Time from 1601 to 1970 (units of 100 ns).
const EPOCH_TICKS: u64 = 116_444_736_000_000_000;

/// The format of a published trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Published {
    Msr,
    Systor,
    Alibaba,
    Tencent,
}

impl Published {
    fn header(self) -> &'static str {
        match self {
            Published::Msr => "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime",
            Published::Systor => "Timestamp,Response,IOType,LUN,Offset,Size",
            Published::Alibaba => "device_id,opcode,offset,length,timestamp",
            Published::Tencent => "Timestamp,Offset,Size,IOType,VolumeID",
        }
    }

    /// Returns whether a line is the header or a request of this format.
    pub(crate) fn begins_with(self, line: &str) -> bool {
        is_header(self, line) || parse(self, line).is_some()
    }
}

fn is_header(format: Published, line: &str) -> bool {
    let squeezed: String = line.chars().filter(|c| !c.is_whitespace()).collect();
    squeezed.eq_ignore_ascii_case(format.header())
}

/// The fields of a line, with times in ns and lengths in bytes.
struct Row<'a> {
    start_ns: u64,
    latency_ns: Option<u64>,
    /// None if the type field is empty.
    operation: Option<Operation>,
    /// Parts of the volume name, which are concatenated. In an MSR trace, `usr`, `_` and `0` become
    /// `usr_0`.
    volume: [&'a str; 3],
    offset: u64,
    bytes: u64,
}

/// Reads a published trace.
///
/// # Errors
/// If a line does not match the format, or if the trace cannot be written.
pub(crate) fn read<W: Write + Send>(
    format: Published,
    lines: &mut Lines<'_>,
    sink: &mut Sink<W>,
) -> Result<(), TraceError> {
    sink.times_since_1970();
    let mut volume = String::new();
    while lines.next()? {
        if lines.text().trim().is_empty() || lines.number() == 1 && is_header(format, lines.text())
        {
            continue;
        }
        let row = parse(format, lines.text()).ok_or_else(|| lines.bad(format.header()))?;
        let Some(operation) = row.operation else {
            sink.lose("requests without an operation type", 1);
            continue;
        };
        volume.clear();
        row.volume.iter().for_each(|part| volume.push_str(part));
        let request = block(row.start_ns, operation, sink.file(&volume), row.offset, row.bytes);
        sink.push(&Request { latency_ns: row.latency_ns, ..request })?;
    }
    match format {
        Published::Tencent => sink.note("times are whole seconds"),
        Published::Alibaba => sink.note("the trace does not record how long requests took"),
        Published::Msr | Published::Systor => {}
    }
    Ok(())
}

fn parse(format: Published, line: &str) -> Option<Row<'_>> {
    let number = |text: &str| text.parse::<u64>().ok();
    match format {
        Published::Msr => {
            let [time, host, disk, kind, offset, bytes, response] = fields(line)?;
            Some(Row {
                start_ns: number(time)?.checked_sub(EPOCH_TICKS)?.checked_mul(100)?,
                latency_ns: Some(number(response)?.checked_mul(100)?),
                operation: Some(operation(kind, "Read", "Write")?),
                volume: [host, "_", disk],
                offset: number(offset)?,
                bytes: number(bytes)?,
            })
        }
        Published::Systor => {
            let [time, response, kind, lun, offset, bytes] = fields(line)?;
            let kind = if kind.is_empty() { None } else { Some(operation(kind, "R", "W")?) };
            let latency_ns = if response.is_empty() { None } else { Some(seconds_ns(response)?) };
            Some(Row {
                start_ns: seconds_ns(time)?,
                latency_ns,
                operation: kind,
                volume: ["lun", lun, ""],
                offset: number(offset)?,
                bytes: number(bytes)?,
            })
        }
        Published::Alibaba => {
            let [device, opcode, offset, bytes, time] = fields(line)?;
            number(device)?;
            Some(Row {
                start_ns: number(time)?.checked_mul(1000)?,
                latency_ns: None,
                operation: Some(operation(opcode, "R", "W")?),
                volume: ["device", device, ""],
                offset: number(offset)?,
                bytes: number(bytes)?,
            })
        }
        Published::Tencent => {
            let [time, offset, sectors, kind, volume] = fields(line)?;
            number(volume)?;
            Some(Row {
                start_ns: number(time)?.checked_mul(SECOND_NS)?,
                latency_ns: None,
                operation: Some(operation(kind, "0", "1")?),
                volume: ["volume", volume, ""],
                offset: number(offset)?.checked_mul(SECTOR)?,
                bytes: number(sectors)?.checked_mul(SECTOR)?,
            })
        }
    }
}

fn operation(text: &str, read: &str, write: &str) -> Option<Operation> {
    if text.eq_ignore_ascii_case(read) {
        Some(Operation::Read)
    } else {
        text.eq_ignore_ascii_case(write).then_some(Operation::Write)
    }
}
