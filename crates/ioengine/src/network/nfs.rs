//! A client for version 4.1 of the Network File System (NFS).
//!
//! Source: RFC 8881 (NFS 4.1), RFC 5531 (RPC), RFC 4506 (XDR). The module `setup` opens a file.
//! Afterwards each request is one call with the operations SEQUENCE, PUTFH, and READ or WRITE. A
//! call occupies a slot of the NFS session until its reply arrives. Session slots are not the slots
//! of the engine's buffers, and have different numbers. The xid (transaction identifier) of a call
//! contains the number of its session slot. Replies may arrive in any order.
//!
//! The client requests no delegation and no layout, and caches nothing. The client never sends a
//! call twice, so the engine fails if the connection breaks. Each call renews the lease of the
//! client. If the client is idle for longer than the lease, the server discards the session, and
//! the engine fails too.

mod compound;
#[cfg(test)]
mod recorded;
mod setup;
mod status;
mod xdr;

use compound::{
    COMMIT, Caller, LAST_FRAGMENT, MARK_BYTES, Outcome, PUTFH, READ, READ_HEAD_BYTES, Reply,
    Sequenced, Turn, WRITE, finish, reply, result, sequenced,
};
use setup::{OpenFile, Session, set_up};
use status::{DELAY, OK, describe, ends_the_connection, errno};
use xdr::{Decoder, Encoder, Flaw, padding};

use crate::error::{Error, ErrorKind};
use crate::network::protocol::{FLUSH_SLOT, Opened, Outbox, Protocol, Step};
use crate::network::wire::{Wire, violated};
use crate::network::{Access, RemoteInfo};
use crate::request::{Completion, Op, Request};

/// Values of `stable`, which say how durable a write must be when the server replies (RFC 8881,
/// section 18.32): not durable (UNSTABLE4), or durable with all metadata (FILE_SYNC4).
const UNSTABLE: u32 = 0;
const FILE_SYNC: u32 = 2;
/// An xid contains the session slot in its low bits. This is the count of these bits.
const SLOT_BITS: u32 = setup::SLOTS_MAX.ilog2();

/// The state of one connection.
#[derive(Debug)]
struct Nfs {
    name: String,
    caller: Caller,
    session: Session,
    file: OpenFile,
    stable: u32,
    /// The slots of the session.
    slots: Vec<Slot>,
    /// A bit mask of the session slots that have an outstanding call.
    busy: u64,
    /// The highest session slot that the server wants the client to use.
    target_slot: u32,
    /// The server's write verifier, which changes if the server may have lost unflushed writes.
    /// None before the first write.
    write_verifier: Option<[u8; 8]>,
    record: Record,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The sequence number of the last call in this slot.
    sequence: u32,
    call: Call,
}

/// The last call in a session slot.
#[derive(Clone, Copy, Debug)]
struct Call {
    kind: Kind,
    /// The slot number of the request in the engine, or [`FLUSH_SLOT`].
    slot: u32,
    /// The number of bytes to read or to write.
    length: u32,
}

/// The last operation of a call. A flush is a COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Flush,
}

/// The reply that is being received. A reply is a record of one or more fragments (RFC 5531,
/// section 11).
#[derive(Debug)]
struct Record {
    /// The number of bytes of the current fragment that have not arrived yet.
    left: u32,
    /// Whether the current fragment is the last one of the record.
    is_last: bool,
    /// Whether the next bytes are a record mark, which begins a fragment.
    at_mark: bool,
    head: Vec<u8>,
    part: Part,
}

/// The part of a reply that the next bytes belong to.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// The head: everything before the data. It can be parsed when `needed` bytes have arrived.
    Head { needed: usize },
    /// The data of a read. The slot has received `moved` of `length` bytes.
    Data { slot: u32, moved: u32, length: u32 },
    /// The padding after the data. `left` bytes of the padding have not arrived yet. Afterwards
    /// `completion` is reported.
    Padding { left: u32, completion: Completion },
}

/// The result of a call, as the head of its reply reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// SEQUENCE failed, so the server did not execute the call.
    NotRun { status: u32 },
    /// PUTFH or the last operation failed.
    Failed { status: u32 },
    /// The read succeeded, and `length` bytes of data follow.
    Data { length: u32 },
    /// The server has received `length` bytes of the write.
    Written { length: u32, stable: u32, verifier: [u8; 8] },
    /// All writes to the file are durable.
    Flushed { verifier: [u8; 8] },
}

/// Creates a session and opens the file.
pub(super) fn open(mut wire: Wire, access: &Access) -> Result<Opened, Error> {
    let caller = Caller::of_this_process();
    let (session, file) = set_up(&mut wire, &caller, access)?;
    let size_text = match file.request_bytes_max {
        bytes if bytes % (1 << 20) == 0 => format!("{} MiB", bytes >> 20),
        bytes if bytes % (1 << 10) == 0 => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} bytes"),
    };
    let info = RemoteInfo {
        size_bytes: file.size_bytes,
        block_bytes: 1,
        request_bytes_max: file.request_bytes_max,
        features: format!("NFS 4.1, {} slots, requests up to {size_text}", session.slots),
    };
    let stable = if access.durable { FILE_SYNC } else { UNSTABLE };
    let protocol = Nfs::new(access.address.to_string(), caller, session, file, stable);
    Ok(Opened { wire, protocol: Box::new(protocol), info })
}

impl Nfs {
    fn new(name: String, caller: Caller, session: Session, file: OpenFile, stable: u32) -> Nfs {
        let unused = Slot { sequence: 0, call: Call { kind: Kind::Flush, slot: 0, length: 0 } };
        let mut slots = vec![unused; session.slots as usize];
        slots[0].sequence = session.sequence;
        Nfs {
            name,
            caller,
            target_slot: session.slots - 1,
            session,
            file,
            stable,
            slots,
            busy: 0,
            write_verifier: None,
            record: Record::new(),
        }
    }

    /// Returns the lowest session slot without an outstanding call, as RFC 8881 recommends (section
    /// 2.10.6.1). If no slot is free, returns the number of slots.
    fn free_slot(&self) -> u32 {
        self.busy.trailing_ones()
    }

    /// Begins a call in the lowest free slot of the session, with the operations SEQUENCE and
    /// PUTFH. The caller appends one more operation.
    fn begin(&mut self, call: Call) -> Encoder {
        let number = self.free_slot();
        let slot = &mut self.slots[number as usize];
        slot.sequence = slot.sequence.wrapping_add(1);
        slot.call = call;
        self.busy |= 1 << number;
        let highest_slot = self.busy.ilog2();
        let turn = self.turn(number);
        let mut message = self.caller.begin(xid(&turn), 3);
        turn.encode(highest_slot, &mut message);
        message.word(PUTFH).opaque(&self.file.handle);
        message
    }

    fn turn(&self, slot: u32) -> Turn {
        let sequence = self.slots[slot as usize].sequence;
        Turn { session: self.session.id, sequence, slot }
    }

    /// Reads a record mark, which begins a fragment.
    fn mark(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mark = Decoder::new(bytes).word().map_err(|flaw| self.flawed(flaw))?;
        let record = &mut self.record;
        (record.left, record.is_last) = (mark & !LAST_FRAGMENT, mark & LAST_FRAGMENT != 0);
        record.at_mark = false;
        // A server could send empty fragments forever, so an empty fragment is an error.
        if record.left == 0 && !record.is_last {
            return Err(violated(&self.name, "sent an empty fragment"));
        }
        if let (Part::Head { needed: 0 }, true) = (record.part, record.head.is_empty()) {
            record.part = Part::Head { needed: record.left.clamp(1, READ_HEAD_BYTES) as usize };
        }
        Ok(())
    }

    /// Returns what to receive next.
    fn next(&mut self) -> Result<Step, Error> {
        let record = &mut self.record;
        if record.left == 0 && !record.is_last {
            record.at_mark = true;
            return Ok(Step::Take(MARK_BYTES));
        }
        let step = match record.part {
            Part::Head { needed } => {
                let missing = (needed - record.head.len()).min(record.left as usize);
                Step::Take(missing)
            }
            Part::Data { slot, moved, length } => {
                Step::Fill { slot, within: moved, length: (length - moved).min(record.left) }
            }
            Part::Padding { left, .. } if record.left > left => {
                return Err(violated(&self.name, "sent more bytes than belong to the reply"));
            }
            Part::Padding { left, .. } if left > 0 => Step::Take(record.left as usize),
            Part::Padding { completion, .. } => {
                record.reset();
                return Ok(Step::Complete(completion));
            }
        };
        match step {
            Step::Take(0) | Step::Fill { length: 0, .. } => {
                Err(violated(&self.name, "sent a reply that is cut short"))
            }
            step => Ok(step),
        }
    }

    /// Processes the head of a reply. If the head is incomplete, requests more bytes.
    fn read_head(&mut self) -> Result<(), Error> {
        let (number, target_slot, answer) = match self.answer(&self.record.head) {
            Ok(answer) => answer,
            Err(Flaw::Short(needed)) => {
                self.record.part = Part::Head { needed };
                return Ok(());
            }
            Err(flaw) => return Err(self.flawed(flaw)),
        };
        self.busy &= !(1 << number);
        self.target_slot = target_slot;
        let Call { slot, .. } = self.slots[number as usize].call;
        let result = match answer {
            Answer::Data { length } if length > 0 => {
                self.record.part = Part::Data { slot, moved: 0, length };
                return Ok(());
            }
            Answer::Data { .. } | Answer::Flushed { .. } => 0,
            Answer::Written { length, .. } => length as i32,
            Answer::NotRun { status: DELAY } => {
                // A call whose SEQUENCE failed does not use up a sequence number (RFC 8881, section
                // 18.46).
                let slot = &mut self.slots[number as usize];
                slot.sequence = slot.sequence.wrapping_sub(1);
                -libc::EAGAIN
            }
            Answer::NotRun { status } => return Err(self.discarded(status)),
            Answer::Failed { status } if ends_the_connection(status) => {
                return Err(self.discarded(status));
            }
            Answer::Failed { status } => -errno(status),
        };
        self.check_written(answer)?;
        let completion = Completion { slot, result };
        self.record.part = Part::Padding { left: 0, completion };
        Ok(())
    }

    /// Parses the head of a reply. Returns the slot of the session, the highest slot that the
    /// server wants the client to use, and the result of the call.
    fn answer(&self, head: &[u8]) -> Result<(u32, u32, Answer), Flaw> {
        let mut decoder = Decoder::new(head);
        let Reply { xid: number, outcome } = reply(&mut decoder)?;
        let slot = number % (1 << SLOT_BITS);
        let is_outstanding = self.busy & (1 << slot) != 0 && xid(&self.turn(slot)) == number;
        if !is_outstanding {
            return Err(Flaw::Wrong("sent a reply to a request that is not outstanding"));
        }
        if let Outcome::Refused(what, _) = outcome {
            return Err(Flaw::Wrong(what));
        }
        let target_slot = match sequenced(&mut decoder, &self.turn(slot))? {
            Sequenced::Run { target_slot } => target_slot,
            Sequenced::Failed(status) => {
                return Ok((slot, self.target_slot, Answer::NotRun { status }));
            }
        };
        let answer = self.last_result(&mut decoder, self.slots[slot as usize].call)?;
        Ok((slot, target_slot, answer))
    }

    /// Reads the results of the operations after SEQUENCE.
    fn last_result(&self, decoder: &mut Decoder<'_>, call: Call) -> Result<Answer, Flaw> {
        let operation = match call.kind {
            Kind::Read => READ,
            Kind::Write => WRITE,
            Kind::Flush => COMMIT,
        };
        for operation in [PUTFH, operation] {
            let status = result(decoder, operation)?;
            if status != OK {
                return Ok(Answer::Failed { status });
            }
        }
        let length = match call.kind {
            Kind::Read => {
                let _at_end = decoder.word()?;
                decoder.word()?
            }
            Kind::Write => decoder.word()?,
            Kind::Flush => 0,
        };
        if length > call.length {
            return Err(Flaw::Wrong("transferred more bytes than were requested"));
        }
        Ok(match call.kind {
            Kind::Read => Answer::Data { length },
            Kind::Write => {
                let stable = decoder.word()?;
                Answer::Written { length, stable, verifier: decoder.array()? }
            }
            Kind::Flush => Answer::Flushed { verifier: decoder.array()? },
        })
    }

    /// Checks that a write is as durable as requested, and that the server cannot have lost an
    /// earlier write (RFC 8881, section 18.32).
    fn check_written(&mut self, answer: Answer) -> Result<(), Error> {
        let verifier = match answer {
            Answer::Written { stable, .. } if stable < self.stable => {
                return Err(violated(&self.name, "did not make a write durable as requested"));
            }
            // If this connection has made no writes, the verifier of a flush does not matter.
            Answer::Flushed { verifier } if self.write_verifier.is_some() => verifier,
            Answer::Written { stable: UNSTABLE, verifier, .. } => verifier,
            _ => return Ok(()),
        };
        if *self.write_verifier.get_or_insert(verifier) != verifier {
            let what = "the server was restarted and may have lost writes that were not flushed";
            return Err(Error::new(ErrorKind::Io, format!("{}: {what}", self.name))
                .with_remedy("repeat the measurement"));
        }
        Ok(())
    }

    fn flawed(&self, flaw: Flaw) -> Error {
        match flaw {
            Flaw::Short(_) => violated(&self.name, "sent a reply that is cut short"),
            Flaw::Wrong(what) => violated(&self.name, what),
        }
    }

    /// Returns the error for a session or an open file that the server has discarded.
    fn discarded(&self, status: u32) -> Error {
        let (name, lease_s) = (&self.name, self.file.lease.as_secs());
        let what = format!("{name}: the server has discarded the session or the open file");
        let remedy = format!(
            "start again, and keep pauses between requests shorter than the server's lease time \
             of {lease_s} s"
        );
        Error::new(ErrorKind::Io, format!("{what}: {}", describe(status))).with_remedy(remedy)
    }
}

impl Record {
    /// Returns the state before the first byte of a reply.
    fn new() -> Record {
        let part = Part::Head { needed: 0 };
        Record { left: 0, is_last: false, at_mark: true, head: Vec::new(), part }
    }

    /// Returns to the state before the first byte of a reply, and keeps the allocated memory.
    fn reset(&mut self) {
        let mut head = std::mem::take(&mut self.head);
        head.clear();
        *self = Record { head, ..Record::new() };
    }
}

/// Returns the xid of a call, which contains its sequence number and its slot.
fn xid(turn: &Turn) -> u32 {
    turn.sequence << SLOT_BITS | turn.slot
}

impl Protocol for Nfs {
    fn outstanding_max(&self) -> u32 {
        self.session.slots
    }

    fn has_room(&self) -> bool {
        let free_slot = self.free_slot();
        free_slot < self.session.slots && free_slot <= self.target_slot
    }

    /// Returns false, although a COMMIT covers the whole file. Only the write verifier shows
    /// whether the server has lost unflushed writes, and each connection knows only the verifier
    /// of its own writes.
    fn flushes_for_all(&self) -> bool {
        false
    }

    fn request(&mut self, request: &Request, _payload: &[u8], out: &mut Outbox) {
        let Request { slot, offset, .. } = *request;
        let length = request.length.min(self.file.request_bytes_max);
        let kind = match request.op {
            Op::Read => Kind::Read,
            Op::Write => Kind::Write,
        };
        let mut message = self.begin(Call { kind, slot, length });
        if kind == Kind::Read {
            message.word(READ).fixed(&self.file.stateid).hyper(offset).word(length);
            return out.bytes(finish(message, 0));
        }
        message.word(WRITE).fixed(&self.file.stateid).hyper(offset);
        message.word(self.stable).word(length);
        let padding = padding(length);
        out.bytes(finish(message, length + padding));
        out.slot(slot, 0, length);
        out.bytes(vec![0; padding as usize]);
    }

    fn flush(&mut self, out: &mut Outbox) -> bool {
        let mut message = self.begin(Call { kind: Kind::Flush, slot: FLUSH_SLOT, length: 0 });
        // Offset 0 and length 0 mean the whole file (RFC 8881, section 18.3).
        message.word(COMMIT).hyper(0).word(0);
        out.bytes(finish(message, 0));
        true
    }

    fn header_bytes(&self) -> usize {
        MARK_BYTES
    }

    fn took(&mut self, bytes: &[u8], _out: &mut Outbox) -> Result<Step, Error> {
        if self.record.at_mark {
            self.mark(bytes)?;
            return self.next();
        }
        self.record.left -= bytes.len() as u32;
        match &mut self.record.part {
            Part::Padding { left, .. } => *left -= bytes.len() as u32,
            Part::Data { .. } => {}
            Part::Head { needed } => {
                self.record.head.extend(bytes);
                if self.record.head.len() >= *needed {
                    self.read_head()?;
                }
            }
        }
        self.next()
    }

    fn filled(&mut self, payload: &[u8], _out: &mut Outbox) -> Result<Step, Error> {
        let filled = payload.len() as u32;
        self.record.left -= filled;
        if let Part::Data { slot, moved, length } = &mut self.record.part {
            *moved += filled;
            if *moved == *length {
                let completion = Completion { slot: *slot, result: *length as i32 };
                self.record.part = Part::Padding { left: padding(*length), completion };
            }
        }
        self.next()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Shutdown, TcpStream};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::network::protocol::Part as Sent;
    use crate::network::{Link, Slots, connect_over};

    const SESSION: [u8; 16] = *b"session of tests";
    const STATEID: [u8; 16] = *b"stateid of tests";

    /// Returns a connection with an open file and no outstanding call.
    fn opened(stable: u32) -> Nfs {
        let session = Session::of_test(SESSION, 3, 7);
        let file = OpenFile {
            handle: b"handle".to_vec(),
            stateid: STATEID,
            size_bytes: 1 << 20,
            request_bytes_max: 8192,
            lease: Duration::from_secs(90),
        };
        Nfs::new("nfs://test/file".to_owned(), Caller::of_test(), session, file, stable)
    }

    /// Issues a request at offset 4096 of the file, and returns its message.
    fn issue(nfs: &mut Nfs, op: Op, slot: u32, length: u32) -> Vec<u8> {
        let mut out = Outbox::default();
        let request = Request { offset: 4096, length, within: 0, slot, file: 0, op };
        nfs.request(&request, &[], &mut out);
        message(out)
    }

    /// Returns the bytes of a message. Data of slot 0 is replaced by the letter A, of slot 1 by B,
    /// and so on.
    fn message(out: Outbox) -> Vec<u8> {
        let mut message = Vec::new();
        for part in out.parts {
            match part {
                Sent::Bytes { bytes, .. } => message.extend(bytes),
                Sent::Slot { slot, length, .. } => {
                    message.extend(vec![b'A' + slot as u8; length as usize]);
                }
            }
        }
        message
    }

    /// Returns the reply to call number `sequence` in a session slot, without the record mark.
    fn answer(slot: u32, sequence: u32, status: u32, last: &[u32], data: &[u8]) -> Vec<u8> {
        let mut reply = Encoder::default();
        reply.word(sequence << 6 | slot).word(1).word(0).word(0).word(0).word(0);
        reply.word(status).word(0).word(3);
        reply.word(53).word(0).fixed(&SESSION).word(sequence).word(slot);
        reply.word(2).word(2).word(0);
        reply.word(22).word(0);
        for word in last {
            reply.word(*word);
        }
        reply.fixed(data);
        reply.0
    }

    fn whole(reply: &[u8]) -> Vec<u8> {
        fragment(reply, true)
    }

    fn fragment(bytes: &[u8], is_last: bool) -> Vec<u8> {
        let mark = bytes.len() as u32 | if is_last { LAST_FRAGMENT } else { 0 };
        [&mark.to_be_bytes()[..], bytes].concat()
    }

    /// Passes bytes to the protocol, as a connection does. Returns the completions and the data of
    /// all reads.
    fn receive(nfs: &mut Nfs, mut bytes: &[u8]) -> Result<(Vec<Completion>, Vec<u8>), Error> {
        let (mut done, mut data) = (Vec::new(), Vec::new());
        let mut out = Outbox::default();
        let mut step = Step::Take(nfs.header_bytes());
        loop {
            let wanted = match step {
                Step::Take(count) => count,
                Step::Fill { length, .. } => length as usize,
                _ => 0,
            };
            let Some((now, rest)) = bytes.split_at_checked(wanted) else { return Ok((done, data)) };
            bytes = rest;
            step = match step {
                Step::Take(_) => nfs.took(now, &mut out)?,
                Step::Fill { within, .. } => {
                    assert!(within == 0 || within as usize == data.len());
                    data.extend(now);
                    nfs.filled(now, &mut out)?
                }
                Step::Complete(completion) => {
                    done.push(completion);
                    Step::Next
                }
                Step::Next => Step::Take(nfs.header_bytes()),
                Step::Until { .. } => panic!("this protocol never requests `Until`"),
            };
        }
    }

    fn completed(nfs: &mut Nfs, reply: &[u8]) -> Completion {
        receive(nfs, &whole(reply)).unwrap().0[0]
    }

    fn error(nfs: &mut Nfs, bytes: &[u8]) -> String {
        receive(nfs, bytes).expect_err("the reply is wrong").to_string()
    }

    #[test]
    fn requests_are_encoded_as_in_the_specification() {
        let mut nfs = opened(FILE_SYNC);
        let begin = nfs.caller.begin(0, 0).0.len() - 4;
        let read = issue(&mut nfs, Op::Read, 5, 9000);
        // This is the eighth call in slot 0, and it has three operations.
        assert_eq!(read[4..8], (8_u32 << 6).to_be_bytes());
        assert_eq!(read[begin..begin + 4], 3_u32.to_be_bytes());
        let expected: Vec<u8> = [
            &b"\0\0\0\x35session of tests\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0\0"[..],
            b"\0\0\0\x16\0\0\0\x06handle\0\0",
            // The request is for 9000 bytes, but the server accepts at most 8192 bytes.
            b"\0\0\0\x19stateid of tests\0\0\0\0\0\0\x10\0\0\0\x20\0",
        ]
        .concat();
        assert_eq!(read[begin + 4..], expected);
        assert_eq!(read[..4], (LAST_FRAGMENT | (read.len() as u32 - 4)).to_be_bytes());

        let write = issue(&mut nfs, Op::Write, 2, 5);
        let expected: Vec<u8> = [
            &b"\0\0\0\x35session of tests\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\0"[..],
            b"\0\0\0\x16\0\0\0\x06handle\0\0",
            b"\0\0\0\x26stateid of tests\0\0\0\0\0\0\x10\0",
            // FILE_SYNC4, the length, five bytes of data, and the padding.
            b"\0\0\0\x02\0\0\0\x05CCCCC\0\0\0",
        ]
        .concat();
        assert_eq!(write[begin + 4..], expected);
        assert_eq!(write[..4], (LAST_FRAGMENT | (write.len() as u32 - 4)).to_be_bytes());

        let mut out = Outbox::default();
        assert!(nfs.flush(&mut out));
        let commit = message(out);
        assert_eq!(commit[commit.len() - 16..], *b"\0\0\0\x05\0\0\0\0\0\0\0\0\0\0\0\0");
    }

    #[test]
    fn replies_may_come_in_any_order_and_slots_of_the_session_are_used_again() {
        let mut nfs = opened(UNSTABLE);
        for slot in [30, 31, 32] {
            assert!(nfs.has_room());
            issue(&mut nfs, Op::Read, slot, 4);
        }
        assert!(!nfs.has_room(), "three slots allow three requests");
        let done = completed(&mut nfs, &answer(1, 1, 0, &[25, 0, 0, 4], b"abcd"));
        assert_eq!(done, Completion { slot: 31, result: 4 });
        assert!(nfs.has_room());
        let write = issue(&mut nfs, Op::Write, 33, 4);
        assert_eq!(write[4..8], (2_u32 << 6 | 1).to_be_bytes(), "the second call in slot 1");
        let done = completed(&mut nfs, &answer(2, 1, 0, &[25, 0, 1, 0], b""));
        assert_eq!(done, Completion { slot: 32, result: 0 });
        let done = completed(&mut nfs, &answer(1, 2, 0, &[38, 0, 4, 0, 8, 8], b""));
        assert_eq!(done, Completion { slot: 33, result: 4 });
        let done = completed(&mut nfs, &answer(0, 8, 0, &[25, 0, 0, 4], b"abcd"));
        assert_eq!(done, Completion { slot: 30, result: 4 });
    }

    #[test]
    fn a_server_that_wants_fewer_slots_gets_fewer_requests() {
        let mut nfs = opened(UNSTABLE);
        issue(&mut nfs, Op::Read, 0, 4);
        let mut reply = answer(0, 8, 0, &[25, 0, 0, 4], b"abcd");
        // These bytes contain the highest slot that the server wants the client to use.
        reply[72..76].copy_from_slice(&[0; 4]);
        completed(&mut nfs, &reply);
        assert!(nfs.has_room(), "one slot remains");
        issue(&mut nfs, Op::Read, 0, 4);
        assert!(!nfs.has_room());
    }

    proptest! {
        #[test]
        fn a_reply_may_be_cut_into_fragments_anywhere(
            length in 1_usize..40, first in 1_usize..150, second in 1_usize..150
        ) {
            let mut nfs = opened(UNSTABLE);
            issue(&mut nfs, Op::Read, 4, 40);
            let data: Vec<u8> = (1..=length as u8).collect();
            let padded: Vec<u8> =
                [&data[..], &[0; 3][..padding(length as u32) as usize]].concat();
            let reply = answer(0, 8, 0, &[25, 0, 0, length as u32], &padded);
            let first = first.min(reply.len() - 1);
            let second = (first + second).min(reply.len());
            let last = &reply[second..];
            let bytes = [
                fragment(&reply[..first], false),
                fragment(&reply[first..second], last.is_empty()),
                if last.is_empty() { Vec::new() } else { fragment(last, true) },
            ]
            .concat();
            let (done, read) = receive(&mut nfs, &bytes).unwrap();
            prop_assert_eq!(done, [Completion { slot: 4, result: length as i32 }]);
            prop_assert_eq!(read, data);
        }

        #[test]
        fn no_bytes_make_the_protocol_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0_usize..116, bit in 0..8
        ) {
            let mut nfs = opened(UNSTABLE);
            issue(&mut nfs, Op::Read, 0, 4);
            let _ = receive(&mut nfs, &bytes);
            let mut nfs = opened(UNSTABLE);
            issue(&mut nfs, Op::Read, 0, 4);
            let mut reply = whole(&answer(0, 8, 0, &[25, 0, 0, 4], b"abcd"));
            let at = at.min(reply.len() - 1);
            reply[at] ^= 1_u8 << bit;
            let _ = receive(&mut nfs, &[reply, bytes].concat());
        }
    }

    #[test]
    fn a_failed_request_completes_with_its_error_number() {
        for (status, errno) in [(28, libc::ENOSPC), (13, libc::EACCES), (70, libc::ESTALE)] {
            let mut nfs = opened(UNSTABLE);
            issue(&mut nfs, Op::Write, 6, 4);
            let done = completed(&mut nfs, &answer(0, 8, status, &[38, status], b""));
            assert_eq!(done, Completion { slot: 6, result: -errno });
            assert!(nfs.has_room());
        }
    }

    #[test]
    fn a_busy_server_is_asked_again_with_the_same_number() {
        let mut nfs = opened(UNSTABLE);
        let first = issue(&mut nfs, Op::Read, 6, 4);
        let mut reply = answer(0, 8, DELAY, &[], b"");
        reply.truncate(36);
        reply.extend([0, 0, 0, 53]);
        reply.extend(DELAY.to_be_bytes());
        assert_eq!(completed(&mut nfs, &reply), Completion { slot: 6, result: -libc::EAGAIN });
        assert_eq!(issue(&mut nfs, Op::Read, 6, 4), first);
        // If SEQUENCE succeeds and only READ fails, the call uses up its sequence number.
        let busy = answer(0, 8, DELAY, &[25, DELAY], b"");
        assert_eq!(completed(&mut nfs, &busy), Completion { slot: 6, result: -libc::EAGAIN });
        assert_ne!(issue(&mut nfs, Op::Read, 6, 4), first);
    }

    #[test]
    fn a_discarded_session_or_file_ends_the_connection() {
        let mut nfs = opened(UNSTABLE);
        issue(&mut nfs, Op::Read, 6, 4);
        let mut reply = answer(0, 8, 10_052, &[], b"");
        reply.truncate(36);
        reply.extend([0, 0, 0, 53]);
        reply.extend(10_052_u32.to_be_bytes());
        let message = error(&mut nfs, &whole(&reply));
        assert!(message.contains("the session has expired (NFS4ERR_BADSESSION)"), "{message}");
        assert!(message.contains("; start again") && message.contains("90 s"), "{message}");
        let mut nfs = opened(UNSTABLE);
        issue(&mut nfs, Op::Read, 6, 4);
        let message = error(&mut nfs, &whole(&answer(0, 8, 10_011, &[25, 10_011], b"")));
        assert!(message.contains("the lease has expired (NFS4ERR_EXPIRED)"), "{message}");
    }

    #[test]
    fn wrong_replies_end_the_connection() {
        let read = |length: u32, data: &[u8]| answer(0, 8, 0, &[25, 0, 0, length], data);
        let unknown_slot = answer(9, 8, 0, &[25, 0, 0, 4], b"abcd");
        let unknown_number = answer(0, 7, 0, &[25, 0, 0, 4], b"abcd");
        let mut other_session = read(4, b"abcd");
        other_session[44] ^= 1;
        let other_operation = answer(0, 8, 0, &[38, 0, 0, 4], b"abcd");
        let mut call = read(4, b"abcd");
        call[7] = 0;
        let cases = [
            (whole(&unknown_slot), "not outstanding"),
            (whole(&unknown_number), "not outstanding"),
            (whole(&other_session), "not outstanding"),
            (whole(&other_operation), "another operation"),
            (whole(&call), "not an RPC reply"),
            (whole(&read(5, b"abcdefgh")), "transferred more bytes"),
            (whole(&read(u32::MAX, b"abcd")), "transferred more bytes"),
            (whole(&read(4, b"abcdefgh")), "more bytes than belong"),
            (whole(&read(4, b"ab")), "cut short"),
            (whole(&read(3, b"abc")), "cut short"),
            (whole(&read(4, b"abcd")[..50]), "cut short"),
            (whole(b""), "cut short"),
            (fragment(b"", false), "empty fragment"),
        ];
        for (bytes, expected) in cases {
            let mut nfs = opened(UNSTABLE);
            issue(&mut nfs, Op::Read, 0, 4);
            let message = error(&mut nfs, &bytes);
            assert!(message.contains(expected), "{expected}: {message}");
        }
        let mut nfs = opened(UNSTABLE);
        let message = error(&mut nfs, &whole(&read(4, b"abcd")));
        assert!(message.contains("not outstanding"), "no request was sent: {message}");
    }

    #[test]
    fn writes_are_as_durable_as_asked_for_and_not_lost() {
        let mut nfs = opened(FILE_SYNC);
        issue(&mut nfs, Op::Write, 0, 4);
        let message = error(&mut nfs, &whole(&answer(0, 8, 0, &[38, 0, 4, 1, 8, 8], b"")));
        assert!(message.contains("did not make a write durable"), "{message}");
        // Durable writes cannot be lost, so a new verifier does not matter.
        let mut nfs = opened(FILE_SYNC);
        for (sequence, verifier) in [(8, 1), (9, 2)] {
            issue(&mut nfs, Op::Write, 0, 4);
            completed(&mut nfs, &answer(0, sequence, 0, &[38, 0, 4, 2, 0, verifier], b""));
        }
        let mut nfs = opened(UNSTABLE);
        nfs.flush(&mut Outbox::default());
        let done = completed(&mut nfs, &answer(0, 8, 0, &[5, 0, 9, 9], b""));
        assert_eq!(done, Completion { slot: FLUSH_SLOT, result: 0 });
        issue(&mut nfs, Op::Write, 0, 4);
        completed(&mut nfs, &answer(0, 9, 0, &[38, 0, 4, 0, 8, 8], b""));
        nfs.flush(&mut Outbox::default());
        let message = error(&mut nfs, &whole(&answer(0, 10, 0, &[5, 0, 8, 9], b"")));
        assert!(message.contains("may have lost writes"), "{message}");
    }

    /// Connects to a server that sends `bytes` and ignores the requests. The last value of the
    /// result is the server's socket, which must live as long as the connection.
    fn connect_to(bytes: &[u8]) -> Result<(Link, RemoteInfo, UnixStream), Error> {
        let address = "nfs://test/a/b?timeout=2".parse().unwrap();
        let (client, mut server) = UnixStream::pair().unwrap();
        server.write_all(bytes).unwrap();
        server.shutdown(Shutdown::Write).unwrap();
        let wire = Wire::over(TcpStream::from(OwnedFd::from(client)), &address).unwrap();
        let access = Access { address, credentials: None, writable: true, durable: false };
        let (link, info) = connect_over(wire, &access)?;
        Ok((link, info, server))
    }

    /// Opens a file on a server that sends `bytes`, then reads 4 KiB and writes 4 KiB. Returns the
    /// completions and the first 16 bytes that were read.
    fn converse_with(bytes: &[u8]) -> Result<(Vec<Completion>, Vec<u8>), Error> {
        let (mut link, _, _server) = connect_to(bytes)?;
        let mut memory = [[0_u8; 4096]; 2];
        let (mut slots, mut done) = (Slots::new(2), Vec::new());
        for (slot, op) in [(0, Op::Read), (1, Op::Write)] {
            let request = Request { offset: 0, length: 4096, within: 0, slot, file: 0, op };
            // SAFETY: the memory outlives the slots, and nothing else uses it.
            unsafe { slots.begin(slot, memory[slot as usize].as_mut_ptr(), 4096) };
            link.add(&request, &slots);
        }
        while link.outstanding() > 0 {
            link.send(&slots)?;
            link.wait(&mut slots, &mut done)?;
        }
        Ok((done, memory[0][..16].to_vec()))
    }

    #[test]
    fn the_replies_of_a_real_server_are_understood() {
        let bytes = recorded::replies().concat();
        let (_, info, _server) = connect_to(&bytes).unwrap();
        assert_eq!(info.features, "NFS 4.1, 64 slots, requests up to 1 MiB");
        assert_eq!((info.size_bytes, info.block_bytes, info.request_bytes_max), (4096, 1, 1 << 20));
        let (done, read) = converse_with(&bytes).unwrap();
        let read_and_write =
            [Completion { slot: 0, result: 16 }, Completion { slot: 1, result: 4096 }];
        assert_eq!((&done[..], &read[..]), (&read_and_write[..], &b"sixteen bytes..\n"[..]));
    }

    #[test]
    fn replies_cut_short_anywhere_are_an_error() {
        let bytes = recorded::replies().concat();
        for length in 0..bytes.len() {
            let message = converse_with(&bytes[..length]).expect_err("cut short").to_string();
            assert!(message.contains("closed the connection"), "{length}: {message}");
        }
    }

    #[test]
    fn a_server_that_grants_other_than_asked_for_is_refused() {
        let with = |reply: usize, at: usize, word: u32| {
            let mut replies = recorded::replies();
            // `at` is an offset in the message. The 4 bytes of the record mark precede the message.
            replies[reply][4 + at..8 + at].copy_from_slice(&word.to_be_bytes());
            replies.concat()
        };
        let end = recorded::replies()[6].len() - 4;
        for (reply, at, word, expected) in [
            (0, 0, 9, "answered a call that was not made"),
            (0, 60, 1, "requires state protection"),
            (1, 72, 5000, "messages of 5000 bytes"),
            (1, 84, 2, "2 operations per message"),
            (1, 88, 0, "only 0 slots"),
            (
                0,
                24,
                10_021,
                "the server does not support NFS 4.1 (NFS4ERR_MINOR_VERS_MISMATCH); enable",
            ),
            (5, 24, 2, "looking up 'b': there is no such file or directory (NFS4ERR_NOENT)"),
            (5, 104, 129, "longer than the protocol allows"),
            (5, 144, 0, "does not report type, size and lease time"),
            (5, 144, u32::MAX, "not requested"),
            (5, 152, 2, "this is a directory; specify a file"),
            (5, 152, 5, "this is a symbolic link"),
            (5, 152, 6, "not a regular file"),
            (6, end - 8, 1, "grants a delegation"),
        ] {
            let message = connect_to(&with(reply, at, word)).expect_err(expected).to_string();
            assert!(message.contains(expected), "{expected}: {message}");
        }
        let features = |bytes: &[u8]| connect_to(bytes).unwrap().1.features;
        assert!(features(&with(1, 88, u32::MAX)).contains("64 slots"));
        assert!(features(&with(1, 76, 70_000)).contains("up to 64 KiB"));
    }

    #[test]
    fn a_busy_server_is_asked_again_while_a_file_is_opened() {
        let mut replies = recorded::replies();
        for reply in &mut replies[3..7] {
            reply[7] += 1;
        }
        let mut busy = replies[2][..48].to_vec();
        busy[..4].copy_from_slice(&(LAST_FRAGMENT | 44).to_be_bytes());
        busy[7] = 4;
        for at in [28, 44] {
            busy[at..at + 4].copy_from_slice(&DELAY.to_be_bytes());
        }
        replies.insert(3, busy);
        assert_eq!(converse_with(&replies.concat()).unwrap().0.len(), 2);
    }

    #[test]
    fn no_server_makes_the_client_panic() {
        let recorded = recorded::replies().concat();
        let mut seed = 1_u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % below
        };
        // The first byte of the fuzz input selects the protocol. NFS has index 1 in `Scheme::ALL`.
        for _ in 0..2000 {
            let bytes: Vec<u8> = (0..random(400)).map(|_| random(256) as u8).collect();
            crate::fuzz::network_server(&[&[1], &bytes[..]].concat());
        }
        for _ in 0..4000 {
            let mut bytes = recorded.clone();
            for _ in 0..=random(3) {
                let at = random(bytes.len());
                bytes[at] = [0, 1, 0x7f, 0x80, 0xff, random(256) as u8][random(6)];
            }
            crate::fuzz::network_server(&[&[1], &bytes[..]].concat());
        }
    }
}
