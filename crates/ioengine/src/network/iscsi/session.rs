//! An iSCSI session with one connection, after the login. It converts requests to SCSI commands,
//! and the PDUs (protocol data units) of the target to completions.
//!
//! Source: RFC 7143, sections 4.2 and 11. The initiator task tag of a command is the slot number of
//! its request. The target sends the data of a read in Data-In PDUs, which are received directly
//! into the memory of the slot. The status arrives with the last Data-In PDU or in a SCSI Response.
//! The client sends the first part of a write's data with the command, up to the negotiated limits.
//! It sends the rest in Data-Out PDUs when the target requests data with an R2T (Ready To
//! Transfer). Error recovery level 0 is negotiated, so every violation of the protocol ends the
//! connection.
//!
//! The client reads from a connection only while a request is outstanding, so it does not answer
//! pings on an idle connection. The target may close such a connection, usually after 20 s: 15 s
//! until it sends a ping, and 5 s until the ping times out. The next request then fails.

use crate::error::{Error, ErrorKind};
use crate::network::iscsi::pdu::{
    ASYNC_MESSAGE, BUFFER_OFFSET, COMMAND_BLOCK, COMMAND_READS, COMMAND_SIMPLE, COMMAND_WRITES,
    DATA_IN, DATA_NUMBER, DATA_OUT, DESIRED_BYTES, EXPECTED_BYTES, FINAL, HAS_STATUS, HEADER_BYTES,
    Header, IMMEDIATE, LUN, NO_TAG, NOP_IN, NOP_OUT, Numbers, OVERFLOW, READY_TO_TRANSFER, REJECT,
    RESIDUAL_BYTES, SCSI_COMMAND, SCSI_RESPONSE, TASK_TAG, TRANSFER_TAG, UNDERFLOW, padding,
};
use crate::network::iscsi::scsi::{self, CommandBlock, Failure};
use crate::network::protocol::{FLUSH_SLOT, Outbox, Protocol, Step};
use crate::network::wire::violated;
use crate::request::{Completion, Op, Request};

/// MaxRecvDataSegmentLength: the largest data segment that this client accepts (bytes).
pub(super) const RECEIVE_SEGMENT_BYTES: u32 = 256 << 10;
/// The task tag of a flush. It differs from every slot number and from the reserved tag [`NO_TAG`].
const FLUSH_TAG: u32 = NO_TAG - 1;
/// The maximum number of consecutive PDUs that neither transfer data nor complete a command.
/// Targets send a ping about every 15 s, and pings accumulate while a connection is idle.
const IDLE_PDUS_MAX: u32 = 10_000;
/// The maximum number of retries if the disk answers a flush with a unit attention.
const FLUSH_RETRIES_MAX: u32 = 10;

/// The negotiated limits of data transfers (RFC 7143, section 13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// MaxRecvDataSegmentLength of the target: the largest data segment that the target accepts
    /// (bytes).
    pub send_segment_bytes: u32,
    /// MaxBurstLength: the largest amount of data that the target may request with one R2T (bytes).
    pub burst_bytes: u32,
    /// FirstBurstLength: the largest amount of data that a write may send without an R2T (bytes).
    pub first_burst_bytes: u32,
    /// InitialR2T: whether Data-Out PDUs are sent only after an R2T.
    pub waits_for_r2t: bool,
    /// ImmediateData: whether the PDU of a command may contain data.
    pub sends_immediate: bool,
}

/// The properties of a disk that are needed to send requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Disk {
    /// The block size (bytes, at least 1).
    pub block_bytes: u32,
    /// The maximum transfer size of one command, a multiple of the block size (bytes).
    pub request_bytes_max: u32,
    /// Whether writes are sent with the FUA bit.
    pub fua: bool,
    /// Whether the disk reports that it has no write cache. Then a flush has no effect.
    pub is_write_through: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    /// A command of the set-up, for example INQUIRY. Its answer may be shorter than requested.
    Query,
    Flush,
}

/// A command that the target has not completed yet.
#[derive(Clone, Copy, Debug)]
struct Task {
    kind: Kind,
    /// The expected data transfer length (bytes).
    length: u32,
    /// The number of bytes received so far (read) or added to the outbox so far (write).
    moved: u32,
}

/// What the next bytes from the target contain.
#[derive(Clone, Copy, Debug)]
enum Awaited {
    Header,
    /// The additional header segments, data and padding of a PDU other than Data-In.
    Rest(Header),
    /// The additional header segments of a Data-In.
    Extra(Header),
    /// The data of a Data-In, which is received into the slot.
    Data(Header),
    /// The padding of a Data-In.
    Padding(Header),
}

#[derive(Debug)]
pub(super) struct Session {
    name: String,
    lun: [u8; 8],
    limits: Limits,
    numbers: Numbers,
    disk: Disk,
    tasks: Vec<Option<Task>>,
    flush: Option<Task>,
    flush_retries: u32,
    awaited: Awaited,
    idle_pdus: u32,
    window: u32,
    failure: Option<Failure>,
}

impl Session {
    /// Creates a session after its login. The properties of the disk are not known yet.
    pub(super) fn new(name: String, lun: [u8; 8], limits: Limits, numbers: Numbers) -> Session {
        let disk =
            Disk { block_bytes: 1, request_bytes_max: 0, fua: false, is_write_through: false };
        Session {
            name,
            lun,
            limits,
            numbers,
            disk,
            tasks: Vec::new(),
            flush: None,
            flush_retries: 0,
            awaited: Awaited::Header,
            idle_pdus: 0,
            window: 1,
            failure: None,
        }
    }

    /// Ends the set-up. All later requests use the properties in `disk`.
    pub(super) fn begin(&mut self, disk: Disk) {
        self.disk = disk;
        self.window = self.numbers.window().max(1);
    }

    /// Adds a command of the set-up, for example INQUIRY, to the outbox. Its answer has at most
    /// `bytes` bytes. Its completion has slot number 0.
    pub(super) fn query(&mut self, block: &CommandBlock, bytes: u32, out: &mut Outbox) {
        let task = Task { kind: Kind::Query, length: bytes, moved: 0 };
        self.begin_task(0, task);
        let flags = FINAL | COMMAND_SIMPLE | if bytes > 0 { COMMAND_READS } else { 0 };
        out.bytes(self.command(flags, 0, bytes, block).to_vec());
    }

    /// Returns and removes the failure of the last command. None if the command succeeded, or if
    /// the failure was already removed.
    pub(super) fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    fn begin_task(&mut self, tag: u32, task: Task) {
        if tag == FLUSH_TAG {
            self.flush = Some(task);
            return;
        }
        let index = tag as usize;
        if self.tasks.len() <= index {
            self.tasks.resize(index + 1, None);
        }
        self.tasks[index] = Some(task);
    }

    fn task(&mut self, tag: u32) -> Option<&mut Option<Task>> {
        if tag == FLUSH_TAG { Some(&mut self.flush) } else { self.tasks.get_mut(tag as usize) }
    }

    /// Returns the outstanding command to which a PDU belongs.
    fn outstanding(&mut self, header: &Header) -> Result<&mut Task, Error> {
        let tag = header.number(TASK_TAG);
        // `ok_or` would construct the error even for a valid PDU, and copy the name each time.
        if !matches!(self.task(tag), Some(Some(_))) {
            return Err(violated(&self.name, "sent a reply to a request that is not outstanding"));
        }
        Ok(self.task(tag).and_then(Option::as_mut).expect("the task was found above"))
    }

    /// Returns the header of a SCSI Command PDU (section 11.3) with the next command number.
    fn command(&mut self, flags: u8, tag: u32, bytes: u32, block: &CommandBlock) -> Header {
        let header = Header::new(SCSI_COMMAND, flags)
            .with_bytes(LUN, &self.lun)
            .with(TASK_TAG, tag)
            .with(EXPECTED_BYTES, bytes)
            .with_bytes(COMMAND_BLOCK, block);
        let header = self.numbers.stamp(header);
        self.numbers.next_command();
        header
    }

    /// Adds a write command and the data that needs no R2T: first the data in the PDU of the
    /// command, then Data-Out PDUs (sections 11.3.4, 13.10, 13.11 and 13.14).
    fn write(&mut self, slot: u32, length: u32, block: &CommandBlock, out: &mut Outbox) {
        let limits = self.limits;
        let burst = length.min(limits.first_burst_bytes);
        let immediate =
            if limits.sends_immediate { burst.min(limits.send_segment_bytes) } else { 0 };
        let unsolicited = if limits.waits_for_r2t { immediate } else { burst };
        let last = if unsolicited == immediate { FINAL } else { 0 };
        let flags = last | COMMAND_WRITES | COMMAND_SIMPLE;
        out.bytes(self.command(flags, slot, length, block).with_data(immediate).to_vec());
        out.slot(slot, 0, immediate);
        out.bytes(vec![0; padding(immediate)]);
        self.data_out(slot, NO_TAG, immediate, unsolicited - immediate, out);
        self.begin_task(slot, Task { kind: Kind::Write, length, moved: unsolicited });
    }

    fn add_flush(&mut self, out: &mut Outbox) {
        self.begin_task(FLUSH_TAG, Task { kind: Kind::Flush, length: 0, moved: 0 });
        let block = scsi::synchronize_cache();
        out.bytes(self.command(FINAL | COMMAND_SIMPLE, FLUSH_TAG, 0, &block).to_vec());
    }

    /// Adds a sequence of Data-Out PDUs (section 11.7).
    fn data_out(&self, slot: u32, tag: u32, offset: u32, length: u32, out: &mut Outbox) {
        let end = offset + length;
        let (mut at, mut number) = (offset, 0);
        while at < end {
            let bytes = (end - at).min(self.limits.send_segment_bytes);
            let flags = if at + bytes == end { FINAL } else { 0 };
            let mut header = Header::new(DATA_OUT, flags)
                .with_data(bytes)
                .with(TASK_TAG, slot)
                .with(TRANSFER_TAG, tag)
                .with(DATA_NUMBER, number)
                .with(BUFFER_OFFSET, at);
            if tag != NO_TAG {
                header = header.with_bytes(LUN, &self.lun);
            }
            out.bytes(self.numbers.stamp_data(header).to_vec());
            out.slot(slot, at, bytes);
            out.bytes(vec![0; padding(bytes)]);
            at += bytes;
            number += 1;
        }
    }

    /// Starts to process a PDU whose header has arrived.
    fn begin_pdu(&mut self, header: Header, out: &mut Outbox) -> Result<Step, Error> {
        self.numbers.learn_window(&header);
        self.idle_pdus += 1;
        if self.idle_pdus > IDLE_PDUS_MAX {
            let what = format!("sent {IDLE_PDUS_MAX} messages that answer no request");
            return Err(violated(&self.name, &what));
        }
        let (extra, data) = (header.extra_bytes(), header.data_bytes());
        if data > RECEIVE_SEGMENT_BYTES {
            let what = format!("sent a data segment of {data} bytes");
            return Err(violated(&self.name, &what));
        }
        if header.opcode() == DATA_IN {
            if extra == 0 {
                return self.data_in(header);
            }
            self.awaited = Awaited::Extra(header);
            return Ok(Step::Take(extra));
        }
        let rest = extra + data as usize + padding(data);
        if rest == 0 {
            return self.message(&header, &[], out);
        }
        self.awaited = Awaited::Rest(header);
        Ok(Step::Take(rest))
    }

    /// Processes the header of a Data-In PDU (section 11.7). Data arrives in order, because
    /// DataPDUInOrder and DataSequenceInOrder were negotiated as Yes.
    fn data_in(&mut self, header: Header) -> Result<Step, Error> {
        let (slot, length) = (header.number(TASK_TAG), header.data_bytes());
        let within = header.number(BUFFER_OFFSET);
        let task = *self.outstanding(&header)?;
        if !matches!(task.kind, Kind::Read | Kind::Query) {
            return Err(violated(&self.name, "sent data for a request that is not a read"));
        }
        if length == 0 {
            return self.data_arrived(&header);
        }
        if within != task.moved || length > task.length - task.moved {
            return Err(violated(&self.name, "sent data that was not requested"));
        }
        self.awaited = Awaited::Data(header);
        Ok(Step::Fill { slot, within, length })
    }

    /// Processes the end of a Data-In PDU. If the PDU contains the status, completes the command.
    fn data_arrived(&mut self, header: &Header) -> Result<Step, Error> {
        if header.flags() & HAS_STATUS == 0 {
            return Ok(Step::Next);
        }
        self.numbers.learn_status(header);
        // A Data-In PDU has no sense data. A SCSI Response can have sense data (section
        // 11.7.1).
        self.complete(header, Failure::of(header.byte(3), &[]))
    }

    /// Processes a complete PDU other than Data-In.
    fn message(&mut self, header: &Header, data: &[u8], out: &mut Outbox) -> Result<Step, Error> {
        match header.opcode() {
            SCSI_RESPONSE => self.response(header, data, out),
            READY_TO_TRANSFER => self.ready_to_transfer(header, out),
            NOP_IN => self.ping(header, out),
            ASYNC_MESSAGE => self.async_message(header),
            REJECT => {
                let reason = header.byte(2);
                Err(violated(&self.name, &format!("rejected a message (reason 0x{reason:02x})")))
            }
            opcode => {
                let what = format!("sent a message of unknown type 0x{opcode:02x}");
                Err(violated(&self.name, &what))
            }
        }
    }

    /// Processes a SCSI Response (section 11.4). `data` contains the length of the sense data,
    /// followed by the sense data.
    fn response(&mut self, header: &Header, data: &[u8], out: &mut Outbox) -> Result<Step, Error> {
        self.numbers.learn_status(header);
        let sense = match data {
            [high, low, sense @ ..] => {
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                &sense[..length.min(sense.len())]
            }
            _ => &[],
        };
        let was_executed = header.byte(2) == 0;
        let failure = if was_executed {
            Failure::of(header.byte(3), sense)
        } else {
            Some(Failure::of_target())
        };
        let is_news = failure.is_some_and(|why| why.is_unit_attention());
        let is_flush = self.flush.is_some() && header.number(TASK_TAG) == FLUSH_TAG;
        if is_flush && is_news && self.flush_retries < FLUSH_RETRIES_MAX {
            self.flush_retries += 1;
            self.add_flush(out);
            return Ok(Step::Next);
        }
        self.complete(header, failure)
    }

    /// Processes an R2T (section 11.8), in which the target requests the next part of a write.
    fn ready_to_transfer(&mut self, header: &Header, out: &mut Outbox) -> Result<Step, Error> {
        let (offset, bytes) = (header.number(BUFFER_OFFSET), header.number(DESIRED_BYTES));
        let burst_bytes = self.limits.burst_bytes;
        let task = self.outstanding(header)?;
        let left = task.length - task.moved;
        let is_next = task.kind == Kind::Write && offset == task.moved;
        if !is_next || bytes == 0 || bytes > left.min(burst_bytes) {
            let what = format!("requested {bytes} bytes at offset {offset} out of turn");
            return Err(violated(&self.name, &what));
        }
        task.moved += bytes;
        self.idle_pdus = 0;
        let (slot, tag) = (header.number(TASK_TAG), header.number(TRANSFER_TAG));
        self.data_out(slot, tag, offset, bytes, out);
        Ok(Step::Next)
    }

    /// Processes a NOP-In (a ping). It must be answered if it has a target transfer tag (sections
    /// 11.18 and 11.19).
    fn ping(&mut self, header: &Header, out: &mut Outbox) -> Result<Step, Error> {
        if header.number(TASK_TAG) != NO_TAG {
            return Err(violated(&self.name, "answered a ping that was not sent"));
        }
        let tag = header.number(TRANSFER_TAG);
        if tag != NO_TAG {
            let answer = Header::new(NOP_OUT | IMMEDIATE, FINAL)
                .with_bytes(LUN, header.lun())
                .with(TASK_TAG, NO_TAG)
                .with(TRANSFER_TAG, tag);
            out.bytes(self.numbers.stamp(answer).to_vec());
        }
        Ok(Step::Next)
    }

    /// Processes an asynchronous message (section 11.9.1). Event 0 (sense data) and event 255
    /// (vendor-specific) are ignored. All other events are errors, because they end the connection
    /// or the commands on it.
    fn async_message(&mut self, header: &Header) -> Result<Step, Error> {
        self.numbers.learn_status(header);
        let what = match header.byte(36) {
            0 | 255 => return Ok(Step::Next),
            1 => "the target requests a logout",
            2 => "the target drops the connection",
            3 => "the target drops the session",
            4 => "the target requests a new negotiation",
            5 => "the target ends all outstanding requests",
            _ => "the target reports an unknown event",
        };
        Err(Error::new(ErrorKind::Io, format!("{}: {what}", self.name))
            .with_remedy("check the log of the target"))
    }

    /// Completes the command to which a PDU with a status belongs. `failure` is None if the command
    /// succeeded.
    fn complete(&mut self, header: &Header, failure: Option<Failure>) -> Result<Step, Error> {
        let task = *self.outstanding(header)?;
        let tag = header.number(TASK_TAG);
        let result = match failure {
            None => self.transferred(header, &task)?,
            Some(failure) => -failure.errno(),
        };
        let was_needless =
            failure.is_some_and(|why| why.is_unknown_command()) && self.disk.is_write_through;
        let result = if task.kind == Kind::Flush && was_needless { 0 } else { result };
        self.failure = failure;
        self.idle_pdus = 0;
        if let Some(entry) = self.task(tag) {
            *entry = None;
        }
        let slot = if tag == FLUSH_TAG { FLUSH_SLOT } else { tag };
        Ok(Step::Complete(Completion { slot, result }))
    }

    /// Returns the number of bytes that a successful command transferred. Checks the residual count
    /// (section 11.4.5).
    fn transferred(&self, header: &Header, task: &Task) -> Result<i32, Error> {
        let (flags, residual) = (header.flags(), header.number(RESIDUAL_BYTES));
        if flags & OVERFLOW != 0 && task.kind != Kind::Query {
            let what = "has more data than the command requested";
            return Err(violated(&self.name, what));
        }
        let missing = if flags & UNDERFLOW != 0 { residual } else { 0 };
        let transferred = task.length.checked_sub(missing);
        let fits = match task.kind {
            Kind::Read => transferred == Some(task.moved),
            Kind::Write => transferred.is_some_and(|bytes| bytes <= task.moved),
            Kind::Query | Kind::Flush => true,
        };
        if !fits {
            let what = format!(
                "transferred {} of {} bytes of a request, but reported {missing} bytes as missing",
                task.moved, task.length
            );
            return Err(violated(&self.name, &what));
        }
        let bytes = if task.kind == Kind::Query { Some(task.moved) } else { transferred };
        Ok(bytes.unwrap_or(0).cast_signed())
    }
}

impl Protocol for Session {
    fn outstanding_max(&self) -> u32 {
        self.window
    }

    fn has_room(&self) -> bool {
        self.numbers.window() > 0
    }

    fn request(&mut self, request: &Request, _payload: &[u8], out: &mut Outbox) {
        let Disk { block_bytes, request_bytes_max, fua, .. } = self.disk;
        let blocks = request.length.min(request_bytes_max) / block_bytes;
        let (length, first_block) = (blocks * block_bytes, request.offset / u64::from(block_bytes));
        let fua = fua && request.op == Op::Write;
        let block = scsi::transfer(request.op, first_block, blocks, fua);
        match request.op {
            Op::Read => {
                let task = Task { kind: Kind::Read, length, moved: 0 };
                self.begin_task(request.slot, task);
                let flags = FINAL | COMMAND_READS | COMMAND_SIMPLE;
                out.bytes(self.command(flags, request.slot, length, &block).to_vec());
            }
            Op::Write => self.write(request.slot, length, &block, out),
        }
    }

    fn flush(&mut self, out: &mut Outbox) -> bool {
        self.flush_retries = 0;
        self.add_flush(out);
        true
    }

    fn header_bytes(&self) -> usize {
        HEADER_BYTES
    }

    fn took(&mut self, bytes: &[u8], out: &mut Outbox) -> Result<Step, Error> {
        match std::mem::replace(&mut self.awaited, Awaited::Header) {
            Awaited::Header => {
                let header = Header::parse(bytes);
                let header = header.ok_or_else(|| violated(&self.name, "sent a short header"))?;
                self.begin_pdu(header, out)
            }
            Awaited::Rest(header) => {
                let data = bytes.get(header.extra_bytes()..).unwrap_or_default();
                let data = data.get(..header.data_bytes() as usize).unwrap_or_default();
                self.message(&header, data, out)
            }
            Awaited::Extra(header) => self.data_in(header),
            Awaited::Data(header) | Awaited::Padding(header) => self.data_arrived(&header),
        }
    }

    fn filled(&mut self, payload: &[u8], _out: &mut Outbox) -> Result<Step, Error> {
        let Awaited::Data(header) = std::mem::replace(&mut self.awaited, Awaited::Header) else {
            return Err(violated(&self.name, "sent data that was not requested"));
        };
        let padding = padding(header.data_bytes());
        let task = self.outstanding(&header)?;
        task.moved += payload.len() as u32;
        self.idle_pdus = 0;
        if padding > 0 {
            self.awaited = Awaited::Padding(header);
            return Ok(Step::Take(padding));
        }
        self.data_arrived(&header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::iscsi::pdu::{COMMAND_NUMBER, EXPECTED_STATUS_NUMBER, LOGIN_RESPONSE};
    use crate::network::iscsi::test_target::pdu;
    use crate::network::protocol::Part;

    const KIB: u32 = 1024;
    const LIMITS: Limits = Limits {
        send_segment_bytes: 8 * KIB,
        burst_bytes: 64 * KIB,
        first_burst_bytes: 16 * KIB,
        waits_for_r2t: true,
        sends_immediate: true,
    };
    const DISK: Disk =
        Disk { block_bytes: 512, request_bytes_max: 1 << 20, fua: false, is_write_through: false };
    const NO_REQUEST: &str = "a request that is not outstanding";

    fn session(limits: Limits, disk: Disk) -> Session {
        let mut numbers = Numbers::new();
        let login = Header::parse(&pdu(LOGIN_RESPONSE, 0, &[(24, 6)], &[])).unwrap();
        numbers.learn_window(&login);
        numbers.learn_status(&login);
        let mut session =
            Session::new("iscsi://h/t/5".to_owned(), [0, 5, 0, 0, 0, 0, 0, 0], limits, numbers);
        session.begin(disk);
        session
    }

    fn request(op: Op, slot: u32, offset: u64, length: u32) -> Request {
        Request { offset, length, within: 0, slot, file: 0, op }
    }

    /// Returns a session with an outstanding read of 4 KiB in slot 3.
    fn reading() -> Session {
        let mut session = session(LIMITS, DISK);
        session.request(&request(Op::Read, 3, 0, 4096), &[], &mut Outbox::default());
        session
    }

    /// Returns a session with an outstanding write in slot 3, and the PDUs that it sends.
    fn writing(limits: Limits, length: u32) -> (Session, Vec<Sent>) {
        let (mut session, mut out) = (session(limits, DISK), Outbox::default());
        session.request(&request(Op::Write, 3, 0, length), &[], &mut out);
        (session, sent(&mut out))
    }

    /// A PDU in an outbox. `data` is the offset and the length of its data in the memory of the
    /// slot.
    #[derive(Debug, PartialEq)]
    struct Sent {
        header: Vec<u8>,
        data: (u32, u32),
        padding: usize,
    }

    fn sent(out: &mut Outbox) -> Vec<Sent> {
        let mut pdus: Vec<Sent> = Vec::new();
        for part in out.parts.drain(..) {
            match (part, pdus.last_mut()) {
                (Part::Slot { slot, within, length }, Some(pdu)) => {
                    assert_eq!(slot, 3);
                    pdu.data = (within, length);
                }
                (Part::Bytes { bytes, .. }, Some(pdu)) if bytes.len() < 4 => {
                    pdu.padding = bytes.len();
                }
                (Part::Bytes { bytes, .. }, _) => {
                    pdus.push(Sent { header: bytes, data: (0, 0), padding: 0 });
                }
                (part, None) => panic!("data without a header: {part:?}"),
            }
        }
        for pdu in &pdus {
            let header = Header::parse(&pdu.header).unwrap();
            assert_eq!(header.data_bytes(), pdu.data.1, "{pdu:?}");
            assert_eq!(pdu.padding, padding(pdu.data.1), "{pdu:?}");
        }
        pdus
    }

    /// Passes the PDUs in `bytes` to the session and returns the completions.
    fn receive(
        session: &mut Session,
        bytes: &[u8],
        out: &mut Outbox,
    ) -> Result<Vec<Completion>, Error> {
        let (mut step, mut rest, mut done) = (Step::Next, bytes, Vec::new());
        loop {
            step = match step {
                Step::Next if rest.is_empty() => return Ok(done),
                Step::Next => Step::Take(session.header_bytes()),
                Step::Take(count) => {
                    let (now, later) = rest.split_at(count);
                    rest = later;
                    session.took(now, out)?
                }
                Step::Fill { slot, length, .. } => {
                    assert_eq!(slot, 3);
                    let (now, later) = rest.split_at(length as usize);
                    rest = later;
                    session.filled(now, out)?
                }
                Step::Complete(completion) => {
                    done.push(completion);
                    Step::Next
                }
                Step::Until { .. } => panic!("the lengths of all parts are known"),
            };
        }
    }

    #[track_caller]
    fn completes(session: &mut Session, bytes: &[u8], slot: u32, result: i32) {
        let done = receive(session, bytes, &mut Outbox::default()).unwrap();
        assert_eq!(done, [Completion { slot, result }]);
    }

    #[track_caller]
    fn breaks(session: &mut Session, bytes: &[u8], what: &str) {
        let error = receive(session, bytes, &mut Outbox::default()).expect_err("an error");
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains(what), "{error}");
    }

    fn data_in(flags: u8, offset: u32, bytes: usize) -> Vec<u8> {
        pdu(DATA_IN, flags, &[(TASK_TAG, 3), (BUFFER_OFFSET, offset)], &vec![7; bytes])
    }

    fn response(flags: u8, status: u8, residual: u32, data: &[u8]) -> Vec<u8> {
        let first = u32::from_be_bytes([SCSI_RESPONSE, FINAL | flags, 0, status]);
        let numbers = [(0, first), (TASK_TAG, 3), (RESIDUAL_BYTES, residual)];
        pdu(SCSI_RESPONSE, 0, &numbers, data)
    }

    #[test]
    fn a_read_has_the_bytes_of_the_specification() {
        let (mut session, mut out) = (session(LIMITS, DISK), Outbox::default());
        session.request(&request(Op::Read, 3, 0x20_0000, 4096), &[], &mut out);
        #[rustfmt::skip]
        let expected = [
            0x01, 0xc1, 0, 0, 0, 0, 0, 0, // SCSI Command, final, reads, Simple
            0, 5, 0, 0, 0, 0, 0, 0, // logical unit 5
            0, 0, 0, 3, 0, 0, 0x10, 0, // task tag, 4096 bytes
            0, 0, 0, 1, 0, 0, 0, 7, // CmdSN, ExpStatSN
            0x88, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 8, 0, 0, // READ (16), block 4096, 8 blocks
        ];
        assert_eq!(sent(&mut out), [Sent { header: expected.to_vec(), data: (0, 0), padding: 0 }]);
        session.request(&request(Op::Read, 4, 0, 2 << 20), &[], &mut out);
        let second = Header::parse(&sent(&mut out)[0].header).unwrap();
        assert_eq!(second.number(COMMAND_NUMBER), 2);
        assert_eq!(second.number(EXPECTED_BYTES), 1 << 20, "the request is shortened");
    }

    #[test]
    fn data_comes_in_pieces_with_the_status_at_the_end_or_after_it() {
        let pieces = [data_in(0, 0, 1024), data_in(FINAL, 1024, 2049), data_in(0x81, 3073, 1023)];
        completes(&mut reading(), &pieces.concat(), 3, 4096);
        let whole = [data_in(FINAL, 0, 4096), response(0, 0, 0, &[])].concat();
        completes(&mut reading(), &whole, 3, 4096);
        let empty = [data_in(FINAL, 0, 4096), data_in(0x81, 4096, 0)].concat();
        completes(&mut reading(), &empty, 3, 4096);
        // Additional header segments are skipped.
        let mut extra = data_in(0x81, 0, 4096);
        extra[4] = 2;
        extra.splice(48..48, [0xff; 8]);
        completes(&mut reading(), &extra, 3, 4096);
        let mut session = reading();
        completes(&mut session, &whole, 3, 4096);
        breaks(&mut session, &whole, NO_REQUEST);
    }

    #[test]
    fn residual_counts_are_checked() {
        let with_residual = |flags, bytes, residual| {
            let numbers = [(TASK_TAG, 3), (RESIDUAL_BYTES, residual)];
            pdu(DATA_IN, FINAL | HAS_STATUS | flags, &numbers, &vec![7; bytes])
        };
        completes(&mut reading(), &with_residual(UNDERFLOW, 1024, 3072), 3, 1024);
        let incomplete = "transferred 1024 of 4096 bytes of a request, but reported";
        breaks(&mut reading(), &with_residual(0, 1024, 0), incomplete);
        breaks(&mut reading(), &with_residual(UNDERFLOW, 1024, 3000), incomplete);
        breaks(&mut reading(), &with_residual(UNDERFLOW, 1024, 5000), incomplete);
        breaks(&mut reading(), &with_residual(OVERFLOW, 4096, 1), "more data");
        breaks(&mut reading(), &response(0, 0, 0, &[]), "transferred 0 of 4096 bytes");
        let (mut session, _) = writing(LIMITS, 4096);
        completes(&mut session, &response(UNDERFLOW, 0, 512, &[]), 3, 3584);
        let (mut session, _) = writing(LIMITS, 16 * KIB);
        breaks(&mut session, &response(0, 0, 0, &[]), "transferred 8192 of 16384 bytes");
    }

    #[test]
    fn data_that_does_not_fit_ends_the_connection() {
        breaks(&mut reading(), &data_in(0, 512, 512), "not requested");
        breaks(&mut reading(), &data_in(0, 0, 4100), "not requested");
        let twice = [data_in(0, 0, 4096), data_in(0, 4096, 4)].concat();
        breaks(&mut reading(), &twice, "not requested");
        for tag in [2, 4, FLUSH_TAG, NO_TAG] {
            let bytes = pdu(DATA_IN, 0, &[(TASK_TAG, tag)], &[0; 512]);
            breaks(&mut reading(), &bytes, NO_REQUEST);
            breaks(&mut reading(), &pdu(SCSI_RESPONSE, FINAL, &[(TASK_TAG, tag)], &[]), NO_REQUEST);
            let ask = pdu(READY_TO_TRANSFER, FINAL, &[(TASK_TAG, tag), (DESIRED_BYTES, 8)], &[]);
            breaks(&mut reading(), &ask, NO_REQUEST);
        }
        let (mut session, _) = writing(LIMITS, 4096);
        breaks(&mut session, &data_in(0, 0, 512), "not a read");
        let mut long = data_in(0, 0, 4);
        long[5..8].copy_from_slice(&[4, 0, 1]);
        breaks(&mut reading(), &long, "a data segment of 262145 bytes");
        breaks(&mut reading(), &pdu(0x3e, 0, &[], &[]), "unknown type 0x3e");
        breaks(&mut reading(), &pdu(REJECT, FINAL, &[(0, 0x3f80_0400)], &[0; 48]), "0x04");
        assert!(reading().took(&[0; 47], &mut Outbox::default()).is_err());
        assert!(reading().filled(&[0; 512], &mut Outbox::default()).is_err());
    }

    /// Returns the operation code, flags, data offset, data length and target transfer tag of each
    /// PDU.
    fn summary(sent: &[Sent]) -> Vec<(u8, u8, u32, u32, u32)> {
        let of = |pdu: &Sent| {
            let header = Header::parse(&pdu.header).unwrap();
            let tag = header.number(TRANSFER_TAG);
            if header.opcode() == DATA_OUT {
                assert_eq!(header.number(BUFFER_OFFSET), pdu.data.0);
                assert_eq!(header.number(EXPECTED_STATUS_NUMBER), 7);
            }
            (header.opcode(), header.flags(), pdu.data.0, pdu.data.1, tag)
        };
        sent.iter().map(of).collect()
    }

    #[test]
    fn a_write_sends_what_was_negotiated_without_being_asked() {
        let of = |waits_for_r2t, sends_immediate, length| {
            let limits = Limits { waits_for_r2t, sends_immediate, ..LIMITS };
            summary(&writing(limits, length).1)
        };
        const LAST: u8 = 0xa1;
        const MORE: u8 = 0x21;
        let (k8, k16, k20, k4) = (8 * KIB, 16 * KIB, 20 * KIB, 4 * KIB);
        assert_eq!(of(true, true, k4), [(1, LAST, 0, k4, k4)]);
        assert_eq!(of(true, true, k20), [(1, LAST, 0, k8, k20)]);
        assert_eq!(of(true, false, k20), [(1, LAST, 0, 0, k20)]);
        assert_eq!(of(false, true, k4), [(1, LAST, 0, k4, k4)]);
        let both = [(1, MORE, 0, k8, k20), (5, FINAL, k8, k8, NO_TAG)];
        assert_eq!(of(false, true, k20), both);
        let apart = [(1, MORE, 0, 0, k16), (5, 0, 0, k8, NO_TAG), (5, FINAL, k8, k8, NO_TAG)];
        assert_eq!(of(false, false, k16), apart);
        let limits = Limits { send_segment_bytes: 514, first_burst_bytes: 1023, ..LIMITS };
        let (_, sent) = writing(Limits { waits_for_r2t: false, ..limits }, 4096);
        let odd = [(1, MORE, 0, 514, 4096), (5, FINAL, 514, 509, NO_TAG)];
        assert_eq!(summary(&sent), odd, "with padding");
    }

    fn ask(offset: u32, bytes: u32) -> Vec<u8> {
        let numbers =
            [(TASK_TAG, 3), (TRANSFER_TAG, 9), (BUFFER_OFFSET, offset), (DESIRED_BYTES, bytes)];
        pdu(READY_TO_TRANSFER, FINAL, &numbers, &[])
    }

    #[test]
    fn the_rest_of_a_write_is_sent_as_the_target_asks() {
        let (mut session, _) = writing(LIMITS, 30 * KIB);
        let mut out = Outbox::default();
        let done = receive(&mut session, &ask(8 * KIB, 20 * KIB), &mut out).unwrap();
        assert!(done.is_empty());
        let pdus = sent(&mut out);
        assert_eq!(pdus[1].header[8..16], [0, 5, 0, 0, 0, 0, 0, 0]);
        assert_eq!(pdus[2].header[36..40], [0, 0, 0, 2], "the third PDU of the sequence");
        let k = KIB;
        let expected =
            [(5, 0, 8 * k, 8 * k, 9), (5, 0, 16 * k, 8 * k, 9), (5, FINAL, 24 * k, 4 * k, 9)];
        assert_eq!(summary(&pdus), expected);
        receive(&mut session, &ask(28 * KIB, 2 * KIB), &mut out).unwrap();
        assert_eq!(summary(&sent(&mut out)), [(5, FINAL, 28 * k, 2 * k, 9)]);
        breaks(&mut session, &ask(30 * KIB, 1), "out of turn");
        completes(&mut session, &response(0, 0, 0, &[]), 3, 30 * 1024);
    }

    #[test]
    fn a_target_that_asks_for_other_data_ends_the_connection() {
        for (offset, bytes) in
            [(0, 512), (9 * KIB, 512), (8 * KIB, 0), (8 * KIB, 65 * KIB), (8 * KIB, u32::MAX)]
        {
            breaks(&mut writing(LIMITS, 128 * KIB).0, &ask(offset, bytes), "out of turn");
        }
        breaks(&mut writing(LIMITS, 9 * KIB).0, &ask(8 * KIB, 2 * KIB), "out of turn");
        breaks(&mut reading(), &ask(0, 512), "out of turn");
    }

    #[test]
    fn failures_become_error_numbers() {
        let sense = |key, code| [0, 4, 0x72, key, code, 0];
        completes(&mut reading(), &response(0, 2, 0, &sense(3, 0x11)), 3, -libc::EIO);
        completes(&mut reading(), &response(0, 2, 0, &sense(6, 0x29)), 3, -libc::EAGAIN);
        completes(&mut reading(), &response(0, 2, 0, &[]), 3, -libc::EIO);
        completes(&mut reading(), &response(0, 2, 0, &[0xff, 0xff, 0x70]), 3, -libc::EIO);
        completes(&mut reading(), &response(0, 0x28, 0, &[]), 3, -libc::EAGAIN);
        completes(&mut reading(), &response(0, 0x18, 0, &[]), 3, -libc::EBUSY);
        let mut failed = response(0, 0, 0, &[]);
        failed[2] = 1;
        completes(&mut reading(), &failed, 3, -libc::EIO);
        let (mut session, _) = writing(LIMITS, 4096);
        completes(&mut session, &response(0, 2, 0, &sense(7, 0x27)), 3, -libc::EROFS);
    }

    #[test]
    fn durable_writes_have_the_fua_bit() {
        let (mut session, mut out) =
            (session(LIMITS, Disk { fua: true, ..DISK }), Outbox::default());
        session.request(&request(Op::Write, 3, 0, 512), &[], &mut out);
        session.request(&request(Op::Read, 3, 0, 512), &[], &mut out);
        let pdus = sent(&mut out);
        assert_eq!(
            (&pdus[0].header[32..34], &pdus[1].header[32..34]),
            (&[0x8a, 8][..], &[0x88, 0][..])
        );
    }

    #[test]
    fn a_flush_is_repeated_after_news_and_needless_without_a_cache() {
        let answer = |status, key, code| {
            let mut bytes = response(0, status, 0, &[0, 4, 0x72, key, code, 0]);
            bytes[16..20].copy_from_slice(&FLUSH_TAG.to_be_bytes());
            bytes
        };
        let flushing = |is_write_through| {
            let (mut session, mut out) =
                (session(LIMITS, Disk { is_write_through, ..DISK }), Outbox::default());
            assert!(session.flush(&mut out));
            assert_eq!(sent(&mut out)[0].header[32], 0x91);
            session
        };
        let mut session = flushing(false);
        for _ in 0..FLUSH_RETRIES_MAX {
            let mut out = Outbox::default();
            assert_eq!(receive(&mut session, &answer(2, 6, 0x29), &mut out).unwrap(), []);
            assert_eq!(sent(&mut out)[0].header[32], 0x91);
        }
        completes(&mut session, &answer(2, 6, 0x29), FLUSH_SLOT, -libc::EAGAIN);
        breaks(&mut session, &answer(0, 0, 0), NO_REQUEST);
        completes(&mut flushing(false), &answer(0, 0, 0), FLUSH_SLOT, 0);
        completes(&mut flushing(false), &answer(2, 5, 0x20), FLUSH_SLOT, -libc::EOPNOTSUPP);
        completes(&mut flushing(true), &answer(2, 5, 0x20), FLUSH_SLOT, 0);
        completes(&mut flushing(true), &answer(2, 3, 0x0c), FLUSH_SLOT, -libc::EIO);
    }

    #[test]
    fn pings_are_answered_if_they_want_an_answer() {
        let (mut session, mut out) = (reading(), Outbox::default());
        let ping = |task, transfer| {
            let numbers = [(TASK_TAG, task), (TRANSFER_TAG, transfer), (LUN, 0x0005_0000)];
            pdu(NOP_IN, FINAL, &numbers, &[])
        };
        receive(&mut session, &ping(NO_TAG, 0x1234), &mut out).unwrap();
        #[rustfmt::skip]
        let expected = [
            0x40, 0x80, 0, 0, 0, 0, 0, 0, // NOP-Out, immediate
            0, 5, 0, 0, 0, 0, 0, 0,
            0xff, 0xff, 0xff, 0xff, 0, 0, 0x12, 0x34,
            0, 0, 0, 2, 0, 0, 0, 7, // CmdSN is not used up
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(sent(&mut out)[0].header, expected);
        receive(&mut session, &ping(NO_TAG, NO_TAG), &mut out).unwrap();
        assert!(out.is_empty());
        breaks(&mut session, &ping(0, NO_TAG), "a ping that was not sent");
        let endless = ping(NO_TAG, NO_TAG).repeat(IDLE_PDUS_MAX as usize + 1);
        breaks(&mut reading(), &endless, "10000 messages that answer no request");
        breaks(&mut reading(), &data_in(0, 0, 0).repeat(10_001), "10000 messages");
    }

    #[test]
    fn a_target_that_asks_for_a_logout_is_named() {
        let message = |event: u8| {
            pdu(ASYNC_MESSAGE, FINAL, &[(TASK_TAG, NO_TAG), (36, u32::from(event) << 24)], &[0; 20])
        };
        for (event, what) in
            [(1, "a logout"), (2, "drops the connection"), (3, "the session"), (9, "unknown")]
        {
            breaks(&mut reading(), &message(event), what);
        }
        let mut session = reading();
        for event in [0, 255] {
            assert_eq!(receive(&mut session, &message(event), &mut Outbox::default()).unwrap(), []);
        }
    }

    #[test]
    fn commands_wait_for_the_window() {
        let mut session = session(LIMITS, DISK);
        assert_eq!(session.outstanding_max(), 64);
        for slot in 0..64 {
            assert!(session.has_room());
            session.request(&request(Op::Read, slot, 0, 512), &[], &mut Outbox::default());
        }
        assert!(!session.has_room());
        let opened =
            pdu(NOP_IN, FINAL, &[(TASK_TAG, NO_TAG), (TRANSFER_TAG, NO_TAG), (32, 65)], &[]);
        receive(&mut session, &opened, &mut Outbox::default()).unwrap();
        assert!(session.has_room());
    }
}
