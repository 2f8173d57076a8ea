//! Decodes the kernel's trace records into events of storage requests.

use crate::format::{Field, Format};

/// The direction of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush, a discard or another operation that transfers no data.
    Other,
}

/// A range of sectors on a device, and the direction of the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Device number in the kernel's internal format (see [`kernel_dev`]).
    pub dev: u32,
    /// Number of the first sector (sectors of 512 bytes).
    pub sector: u64,
    /// Length of the range (sectors of 512 bytes).
    pub sectors: u32,
    /// Direction of the transfer.
    pub op: Op,
}

/// The values that identify an io_uring request in its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UringRequest {
    /// Kernel address of the ring.
    pub ring: u64,
    /// Kernel address of the request. 0 if the kernel does not report this address.
    pub request: u64,
    /// The `user_data` that the program passed with the request.
    pub user_data: u64,
}

/// The kind of an event, with its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A bio was submitted to the block layer.
    BioQueued(Range),
    /// The block layer allocated a new request for a bio or for the first part of a bio.
    Accepted(Range),
    /// A bio was merged into an existing request.
    Merged(Range),
    /// A request was inserted into the I/O scheduler.
    Inserted(Range),
    /// A request was issued to the driver.
    Issued(Range),
    /// The device completed a request or the first part of a request.
    Completed(Range),
    /// The driver returned a request, which will be issued again.
    Requeued(Range),
    /// io_uring took a request from the submission queue.
    UringSubmitted(UringRequest),
    /// io_uring passed a request to one of its worker threads.
    UringPunted(UringRequest),
    /// io_uring put a completion into the completion queue.
    UringCompleted(UringRequest),
    /// A sleeping thread is being woken. The value is the ID of that thread.
    Woken(i32),
}

/// A traced event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time of the event (ns of `CLOCK_MONOTONIC`).
    pub at_ns: u64,
    /// Number of the CPU on which the event occurred.
    pub cpu: u32,
    /// ID of the thread that the CPU was running. For an event in an interrupt handler, this is the
    /// interrupted thread.
    pub thread: i32,
    /// The kind of the event, with its data.
    pub what: What,
}

/// Converts a device number (major, minor) to the kernel's internal format, which events contain.
pub fn kernel_dev((major, minor): (u32, u32)) -> u32 {
    (major << 20) | (minor & 0xF_FFFF)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    BioQueued,
    Accepted,
    Merged,
    Inserted,
    Issued,
    Completed,
    Requeued,
    UringSubmitted,
    UringPunted,
    UringCompleted,
    Woken,
}

/// A tracepoint of the kernel that a trace can enable.
#[derive(Debug)]
pub struct Tracepoint {
    /// Name of the tracepoint's directory under `events` in tracefs.
    pub group: &'static str,
    /// Names of the tracepoint in different kernel versions, newest first.
    pub names: &'static [&'static str],
    /// Whether tracing is impossible without this tracepoint.
    pub needed: bool,
    kind: Kind,
}

const fn block(name: &'static [&'static str], kind: Kind, needed: bool) -> Tracepoint {
    Tracepoint { group: "block", names: name, needed, kind }
}

const fn uring(names: &'static [&'static str], kind: Kind) -> Tracepoint {
    Tracepoint { group: "io_uring", names, needed: true, kind }
}

/// All tracepoints that a trace can enable.
pub const TRACEPOINTS: [Tracepoint; 12] = [
    block(&["block_bio_queue"], Kind::BioQueued, true),
    block(&["block_getrq"], Kind::Accepted, true),
    block(&["block_bio_backmerge"], Kind::Merged, false),
    block(&["block_bio_frontmerge"], Kind::Merged, false),
    block(&["block_rq_insert"], Kind::Inserted, true),
    block(&["block_rq_issue"], Kind::Issued, true),
    block(&["block_rq_complete"], Kind::Completed, true),
    block(&["block_rq_requeue"], Kind::Requeued, false),
    uring(&["io_uring_submit_req", "io_uring_submit_sqe"], Kind::UringSubmitted),
    uring(&["io_uring_queue_async_work"], Kind::UringPunted),
    uring(&["io_uring_complete"], Kind::UringCompleted),
    Tracepoint { group: "sched", names: &["sched_waking"], needed: true, kind: Kind::Woken },
];

#[derive(Clone, Debug)]
struct Decoder {
    id: u16,
    kind: Kind,
    thread: Field,
    /// Locations of the decoded fields. For block events, these are dev, sector, nr_sector and
    /// rwbs. For io_uring events, they are ctx, req, user_data and again user_data. If the kernel
    /// has no req, ctx is used instead of req. For wake-ups, all four are pid.
    fields: [Field; 4],
}

/// Decodes the records of a trace.
#[derive(Clone, Debug, Default)]
pub struct Decoders {
    decoders: Vec<Decoder>,
}

impl Decoders {
    /// Adds the format of a tracepoint. Returns false if a required field is missing, so that the
    /// records of the tracepoint cannot be decoded.
    pub fn learn(&mut self, tracepoint: &Tracepoint, format: &Format) -> bool {
        let decoder = decoder(tracepoint.kind, format);
        let known = decoder.is_some();
        self.decoders.extend(decoder);
        known
    }

    /// Decodes a record. Returns None if the kind of the record is unknown or the record is
    /// damaged.
    #[inline]
    pub fn decode(&self, at_ns: u64, cpu: u32, record: &[u8]) -> Option<Event> {
        let id = u16::from_ne_bytes(*record.first_chunk()?);
        let decoder = self.decoders.iter().find(|decoder| decoder.id == id)?;
        let thread = decoder.thread.number(record)? as i32;
        Some(Event { at_ns, cpu, thread, what: decoder.what(record)? })
    }
}

fn decoder(kind: Kind, format: &Format) -> Option<Decoder> {
    let (id, thread) = (format.id?, format.field("common_pid")?);
    let field = |name| format.field(name);
    let fields = match kind {
        Kind::Woken => [field("pid")?; 4],
        Kind::UringSubmitted | Kind::UringPunted | Kind::UringCompleted => {
            let (ring, user_data) = (field("ctx")?, field("user_data")?);
            [ring, field("req").unwrap_or(ring), user_data, user_data]
        }
        _ => [field("dev")?, field("sector")?, field("nr_sector")?, field("rwbs")?],
    };
    Some(Decoder { id, kind, thread, fields })
}

impl Decoder {
    #[inline]
    fn what(&self, record: &[u8]) -> Option<What> {
        let variant: fn(Range) -> What = match self.kind {
            Kind::BioQueued => What::BioQueued,
            Kind::Accepted => What::Accepted,
            Kind::Merged => What::Merged,
            Kind::Inserted => What::Inserted,
            Kind::Issued => What::Issued,
            Kind::Completed => What::Completed,
            Kind::Requeued => What::Requeued,
            Kind::UringSubmitted => return Some(What::UringSubmitted(self.uring(record)?)),
            Kind::UringPunted => return Some(What::UringPunted(self.uring(record)?)),
            Kind::UringCompleted => return Some(What::UringCompleted(self.uring(record)?)),
            Kind::Woken => return Some(What::Woken(self.fields[0].number(record)? as i32)),
        };
        let [dev, sector, sectors, rwbs] = self.fields;
        Some(variant(Range {
            dev: dev.number(record)? as u32,
            sector: sector.number(record)?,
            sectors: sectors.number(record)? as u32,
            op: op(rwbs.of(record)?),
        }))
    }

    fn uring(&self, record: &[u8]) -> Option<UringRequest> {
        let [ring, request, user_data, _] = self.fields;
        let known = ring != request;
        Some(UringRequest {
            ring: ring.number(record)?,
            request: if known { request.number(record)? } else { 0 },
            user_data: user_data.number(record)?,
        })
    }
}

/// Parses `rwbs`, the kernel's letters for the type of a request, for example `WS`. If other
/// letters follow an initial `F`, that `F` means a flush before the request.
fn op(rwbs: &[u8]) -> Op {
    let letters = match rwbs {
        [b'F', rest @ ..] if rest.first().is_some_and(|next| *next != 0) => rest,
        all => all,
    };
    match letters.first() {
        Some(b'R') => Op::Read,
        Some(b'W') => Op::Write,
        _ => Op::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISSUE: &str = "name: block_rq_issue\nID: 7\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
        \tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;\n\
        \tfield:char rwbs[10];\toffset:28;\tsize:10;\tsigned:0;\n";

    fn record(dev: u32, sector: u64, sectors: u32, rwbs: &str) -> Vec<u8> {
        let mut record = vec![0; 40];
        record[..2].copy_from_slice(&7_u16.to_ne_bytes());
        record[4..8].copy_from_slice(&42_i32.to_ne_bytes());
        record[8..12].copy_from_slice(&dev.to_ne_bytes());
        record[16..24].copy_from_slice(&sector.to_ne_bytes());
        record[24..28].copy_from_slice(&sectors.to_ne_bytes());
        record[28..28 + rwbs.len()].copy_from_slice(rwbs.as_bytes());
        record
    }

    #[test]
    fn a_record_is_decoded_by_its_format() {
        let mut decoders = Decoders::default();
        let tracepoint = TRACEPOINTS.iter().find(|t| t.names == ["block_rq_issue"]).unwrap();
        assert!(decoders.learn(tracepoint, &Format::parse(ISSUE)));
        assert!(!decoders.learn(tracepoint, &Format::parse(&ISSUE.replace("rwbs", "flags"))));
        let dev = kernel_dev((254, 3));
        let event = decoders.decode(99, 1, &record(dev, 2048, 8, "WS")).unwrap();
        let range = Range { dev: (254 << 20) | 3, sector: 2048, sectors: 8, op: Op::Write };
        assert_eq!(event, Event { at_ns: 99, cpu: 1, thread: 42, what: What::Issued(range) });
        assert_eq!(decoders.decode(99, 1, &record(dev, 2048, 8, "WS")[..30]), None, "truncated");
        assert_eq!(decoders.decode(99, 1, &[8, 0, 0, 0]), None, "unknown kind");
    }

    #[test]
    fn a_write_with_preflush_is_a_write() {
        assert_eq!(op(b"FWS\0"), Op::Write);
        assert_eq!(op(b"WFS\0"), Op::Write);
        assert_eq!(op(b"RA\0"), Op::Read);
        assert_eq!(op(b"F\0"), Op::Other);
        assert_eq!(op(b"FF\0"), Op::Other);
        assert_eq!(op(b"D\0"), Op::Other);
        assert_eq!(op(b""), Op::Other);
    }
}
