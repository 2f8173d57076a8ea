//! Reads, writes and flushes an open file.
//!
//! Source: MS-SMB2, sections 2.2.17 to 2.2.22. A response contains the message identifier of its
//! request. The data of a read is received directly into the memory of its request. If messages are
//! signed, a request completes only after the signature of its response has been verified.

use std::collections::VecDeque;

use crate::error::Error;
use crate::network::protocol::{FLUSH_SLOT, Outbox, Protocol, Step};
use crate::network::wire::violated;
use crate::request::{Completion, Op, Request};

use super::message::{FLUSH, HEADER_BYTES, Header, Message, READ, WRITE, le16, le32};
use super::session::{Arrival, RESPONSE_BYTES_MAX, Sent, Session, wrong_signature};
use super::signing::Verifier;
use super::status;

/// The size of the fields that precede the data in the body of a READ response (bytes; section
/// 2.2.20).
const READ_BYTES: usize = 16;
/// The minimum offset of the data in a READ response, from the beginning of the header (bytes).
const DATA_OFFSET: u8 = (HEADER_BYTES + READ_BYTES) as u8;
/// The offset of the data in a WRITE request, from the beginning of the header (bytes; section
/// 2.2.21).
const WRITE_OFFSET: u16 = HEADER_BYTES as u16 + 48;
/// The field StructureSize of requests and responses (bytes; sections 2.2.17 to 2.2.22).
const READ_REQUEST: u16 = 49;
const READ_RESPONSE: u16 = 17;
const WRITE_REQUEST: u16 = 49;
const WRITE_RESPONSE: u16 = 17;
const FLUSH_REQUEST: u16 = 24;
const FLUSH_RESPONSE: u16 = 4;

/// An open file on one connection.
#[derive(Debug)]
pub(super) struct Transfer {
    name: String,
    session: Session,
    file: [u8; 16],
    can_flush: bool,
    request_bytes_max: u32,
    outstanding_max: u32,
    /// The requests that have no final response yet, in the order in which they were sent.
    pending: VecDeque<Pending>,
    stage: Stage,
    /// The final response that is being received. None between two final responses.
    current: Option<Incoming>,
}

/// A request that has no final response yet.
#[derive(Debug)]
struct Pending {
    sent: Sent,
    slot: u32,
    length: u32,
}

/// A final response that is being received.
#[derive(Debug)]
struct Incoming {
    request: Pending,
    status: u32,
    verifier: Option<Verifier>,
    /// The number of bytes of the message that no step has requested yet.
    rest: usize,
    /// The size of the data in the message (bytes).
    data: u32,
}

/// The part of a message that the next bytes belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Header,
    /// The body of a message that completes no request.
    Ignored,
    /// The body of a response without data.
    Body,
    /// The fields that precede the gap and the data in the body of a READ response.
    ReadBody,
    /// The unused bytes before the data of a READ response.
    Gap,
    /// The bytes after the data of a READ response.
    Tail,
}

impl Transfer {
    pub(super) fn new(
        name: String,
        session: Session,
        file: [u8; 16],
        can_flush: bool,
        request_bytes_max: u32,
    ) -> Transfer {
        let outstanding_max = session.credits().max(1);
        Transfer {
            name,
            session,
            file,
            can_flush,
            request_bytes_max,
            outstanding_max,
            pending: VecDeque::new(),
            stage: Stage::Header,
            current: None,
        }
    }

    fn wrong(&self, what: &str) -> Error {
        violated(&self.name, what)
    }

    /// Adds the message of a request to `out`, and adds the request to the pending requests.
    fn send(
        &mut self,
        command: u16,
        message: Message,
        payload: &[u8],
        (slot, length): (u32, u32),
        out: &mut Outbox,
    ) {
        let (bytes, sent) = self.session.request(command, message, payload, length);
        self.pending.push_back(Pending { sent, slot, length });
        out.bytes(bytes);
    }

    /// Processes the header of a message.
    fn begin(&mut self, bytes: &[u8]) -> Result<Step, Error> {
        let (header, rest) = self.session.frames.begin(bytes).map_err(|what| self.wrong(what))?;
        let head = bytes.last_chunk().expect("the first bytes of a message contain its header");
        let is_read = header.command == READ && header.status == status::SUCCESS;
        if rest > RESPONSE_BYTES_MAX && !is_read {
            return Err(self.wrong("sent a response that is too long"));
        }
        let arrival = self.arrival(&header, head)?;
        let Some((request, verifier)) = arrival else {
            if rest > RESPONSE_BYTES_MAX {
                return Err(self.wrong("sent a message that is too long"));
            }
            self.stage = Stage::Ignored;
            return Ok(Step::Take(rest));
        };
        self.current = Some(Incoming { request, status: header.status, verifier, rest, data: 0 });
        self.stage = if is_read { Stage::ReadBody } else { Stage::Body };
        self.take(if is_read { READ_BYTES } else { rest })
    }

    /// Finds the request that a message completes. None if the message completes no request.
    fn arrival(
        &mut self,
        header: &Header,
        head: &[u8; HEADER_BYTES],
    ) -> Result<Option<(Pending, Option<Verifier>)>, Error> {
        if header.is_unrequested() {
            return Ok(None);
        }
        let is_answered = |pending: &Pending| pending.sent.message_id == header.message_id;
        let Some(index) = self.pending.iter().position(is_answered) else {
            return Err(self.wrong("sent a reply to a request that is not outstanding"));
        };
        let sent = &mut self.pending[index].sent;
        let arrival = self.session.accept(sent, header, head);
        match arrival.map_err(|what| self.wrong(&what))? {
            Arrival::Interim => Ok(None),
            Arrival::Final(verifier) => {
                let request = self.pending.remove(index).expect("the index was just found");
                if self.pending.is_empty() && self.session.credits() == 0 {
                    return Err(self.wrong("granted no credits, so no request can be sent"));
                }
                Ok(Some((request, verifier)))
            }
        }
    }

    /// Returns the step that receives the next `count` bytes of the current message.
    fn take(&mut self, count: usize) -> Result<Step, Error> {
        let rest = self.current.as_mut().map(|current| &mut current.rest);
        match rest.and_then(|rest| Some((rest.checked_sub(count)?, rest))) {
            Some((left, rest)) => *rest = left,
            None => return Err(self.wrong("sent a message that is too short")),
        }
        Ok(Step::Take(count))
    }

    /// Processes the fields that precede the data in the body of a READ response.
    fn read_body(&mut self, bytes: &[u8]) -> Result<Step, Error> {
        let Some(current) = &mut self.current else { return Err(self.wrong("sent no header")) };
        let (offset, length) = (bytes[2], le32(bytes, 4));
        let length = length.map_err(|what| violated(&self.name, what))?;
        if le16(bytes, 0) != Ok(READ_RESPONSE) {
            return Err(self.wrong("sent an invalid response to READ"));
        }
        if length > current.request.length {
            return Err(self.wrong("sent more data than was requested"));
        }
        let gap = match (length, offset.checked_sub(DATA_OFFSET)) {
            (0, _) => 0,
            (_, Some(gap)) => usize::from(gap),
            (_, None) => return Err(self.wrong("sent data that overlaps the header")),
        };
        let tail = current.rest.checked_sub(gap + length as usize);
        if tail.is_none_or(|tail| tail > RESPONSE_BYTES_MAX) {
            return Err(self.wrong("sent a message whose length does not match its data"));
        }
        current.data = length;
        self.stage = Stage::Gap;
        self.take(gap)
    }

    /// Returns the step that receives the data of a READ response. If there is no data, returns the
    /// step that receives the end of the message.
    fn data(&mut self) -> Result<Step, Error> {
        match &mut self.current {
            Some(Incoming { request, data, rest, .. }) if *data > 0 => {
                *rest = rest.saturating_sub(*data as usize);
                Ok(Step::Fill { slot: request.slot, within: 0, length: *data })
            }
            _ => self.tail(),
        }
    }

    fn tail(&mut self) -> Result<Step, Error> {
        self.stage = Stage::Tail;
        let rest = self.current.as_ref().map_or(0, |current| current.rest);
        self.take(rest)
    }

    /// Verifies the signature of the current message, and completes its request.
    fn complete(&mut self, body: &[u8]) -> Result<Step, Error> {
        let Some(current) = self.current.take() else { return Err(self.wrong("sent no header")) };
        if current.verifier.is_some_and(|verifier| !verifier.matches()) {
            return Err(wrong_signature(&self.name));
        }
        let Pending { sent, slot, length } = current.request;
        let result = match (current.status, sent.command) {
            (status::SUCCESS, READ) => current.data as i32,
            (status::SUCCESS, command) => {
                outcome(command, body, length).map_err(|what| self.wrong(what))?
            }
            (status::END_OF_FILE, READ) => 0,
            (status, _) => -status::errno(status),
        };
        self.stage = Stage::Header;
        Ok(Step::Complete(Completion { slot, result }))
    }

    /// Adds a part of the current message to the verification of its signature.
    fn verify(&mut self, part: &[u8]) {
        if let Some(Incoming { verifier: Some(verifier), .. }) = &mut self.current {
            verifier.update(part);
        }
    }
}

/// Parses the body of a WRITE or FLUSH response. Returns the number of bytes that were written.
fn outcome(command: u16, body: &[u8], length: u32) -> Result<i32, &'static str> {
    let structure = le16(body, 0)?;
    if command == FLUSH {
        return if structure == FLUSH_RESPONSE {
            Ok(0)
        } else {
            Err("sent an invalid response to FLUSH")
        };
    }
    let count = le32(body, 4)?;
    if structure != WRITE_RESPONSE || count == 0 || count > length {
        return Err("reports an invalid number of written bytes");
    }
    Ok(count as i32)
}

impl Protocol for Transfer {
    fn outstanding_max(&self) -> u32 {
        self.outstanding_max
    }

    fn has_room(&self) -> bool {
        self.pending.is_empty() || self.session.has_credits()
    }

    fn request(&mut self, request: &Request, payload: &[u8], out: &mut Outbox) {
        let length = request.length.min(self.request_bytes_max);
        let length = self.session.affordable(length);
        match request.op {
            Op::Read => {
                // The fields after the file identifier are 0: the minimum number of bytes to read,
                // the channel, the remaining bytes, the channel information and a buffer of one
                // byte (section 2.2.19).
                let message = Message::new(READ_REQUEST).u8(DATA_OFFSET).u8(0).u32(length);
                let message = message.u64(request.offset).bytes(&self.file);
                let message = message.u32(0).u32(0).u32(0).u16(0).u16(0).u8(0);
                self.send(READ, message, &[], (request.slot, length), out);
            }
            Op::Write => {
                // The fields after the file identifier are 0: the channel, the remaining bytes, the
                // channel information and the flags (section 2.2.21). Write-through was requested
                // when the file was opened, because the flag of a single write is valid only for
                // unbuffered files (section 3.3.5.13).
                let message = Message::new(WRITE_REQUEST).u16(WRITE_OFFSET).u32(length);
                let message = message.u64(request.offset).bytes(&self.file);
                let message = message.u32(0).u32(0).u16(0).u16(0).u32(0);
                let payload = payload.get(..length as usize).unwrap_or(payload);
                self.send(WRITE, message, payload, (request.slot, length), out);
                out.slot(request.slot, 0, length);
            }
        }
    }

    /// A file that is open for reading only cannot be flushed (section 3.3.5.11).
    fn flush(&mut self, out: &mut Outbox) -> bool {
        if self.can_flush {
            let message = Message::new(FLUSH_REQUEST).u16(0).u32(0).bytes(&self.file);
            self.send(FLUSH, message, &[], (FLUSH_SLOT, 0), out);
        }
        self.can_flush
    }

    fn header_bytes(&self) -> usize {
        self.session.frames.header_bytes()
    }

    fn took(&mut self, bytes: &[u8], _out: &mut Outbox) -> Result<Step, Error> {
        if self.stage != Stage::Header {
            self.verify(bytes);
        }
        match self.stage {
            Stage::Header => self.begin(bytes),
            Stage::Ignored => {
                self.stage = Stage::Header;
                Ok(Step::Next)
            }
            Stage::ReadBody => self.read_body(bytes),
            Stage::Gap => self.data(),
            Stage::Body | Stage::Tail => self.complete(bytes),
        }
    }

    fn filled(&mut self, payload: &[u8], _out: &mut Outbox) -> Result<Step, Error> {
        self.verify(payload);
        self.tail()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::smb::message::TRANSPORT_BYTES;
    use crate::network::smb::signing::Signer;

    const FILE: [u8; 16] = *b"PERSIST1VOLATIL1";
    const KEY: [u8; 16] = [7; 16];

    fn transfer(is_signed: bool) -> Transfer {
        let mut session = Session::with_credits(600);
        (session.session_id, session.tree_id) = (0x55, 0x66);
        session.signer = is_signed.then(|| Signer::new(&KEY));
        Transfer::new("smb://h/s/f".to_owned(), session, FILE, true, 8 << 20)
    }

    fn request(op: Op, slot: u32, length: u32) -> Request {
        Request { offset: 0x1_0000_0000, length, within: 0, slot, file: 0, op }
    }

    /// Returns the bytes that the protocol sends for a request.
    fn added(transfer: &mut Transfer, request: &Request, payload: &[u8]) -> Vec<u8> {
        let mut out = Outbox::default();
        transfer.request(request, payload, &mut out);
        let mut bytes = Vec::new();
        for part in &out.parts {
            match part {
                crate::network::protocol::Part::Bytes { bytes: part, .. } => bytes.extend(part),
                crate::network::protocol::Part::Slot { within, length, .. } => {
                    bytes.extend(&payload[*within as usize..][..*length as usize]);
                }
            }
        }
        bytes
    }

    /// Returns a response with its transport header.
    fn response(command: u16, message_id: u64, status: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER_BYTES + body.len()) as u32).to_be_bytes().to_vec();
        bytes.extend(b"\xfeSMB\x40\0\x01\0");
        bytes.extend(status.to_le_bytes());
        bytes.extend(command.to_le_bytes());
        bytes.extend([1, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(message_id.to_le_bytes());
        bytes.extend([0; 32]);
        bytes.extend(body);
        bytes
    }

    /// Returns the body of a READ response, with `gap` bytes before the data and `tail` bytes after
    /// the data.
    fn read_body(gap: u8, data: &[u8], tail: usize) -> Vec<u8> {
        let mut body = vec![17, 0, 80 + gap, 0];
        body.extend((data.len() as u32).to_le_bytes());
        body.extend([0; 8]);
        body.resize(body.len() + usize::from(gap), 0);
        body.extend(data);
        body.resize(body.len() + tail, 0);
        body
    }

    fn write_body(count: u32) -> Vec<u8> {
        [&[17, 0, 0, 0], &count.to_le_bytes()[..], &[0; 8]].concat()
    }

    fn signed(mut bytes: Vec<u8>) -> Vec<u8> {
        Signer::new(&KEY).sign(&mut bytes, &[]);
        bytes
    }

    /// Passes received bytes to the protocol, as a `Link` does. Returns the completions and the
    /// data of reads.
    fn receive(
        transfer: &mut Transfer,
        mut bytes: &[u8],
    ) -> Result<(Vec<Completion>, Vec<u8>), String> {
        let (mut done, mut data, mut out) = (Vec::new(), Vec::new(), Outbox::default());
        let mut step = Step::Next;
        loop {
            let mut split = |count: usize| {
                let (now, later) = bytes.split_at_checked(count)?;
                bytes = later;
                Some(now)
            };
            let next = match step {
                Step::Take(count) => match split(count) {
                    Some(now) => transfer.took(now, &mut out),
                    None => return Ok((done, data)),
                },
                Step::Fill { within, length, .. } => match split(length as usize) {
                    Some(now) => {
                        assert_eq!(within, 0);
                        data.extend(now);
                        transfer.filled(now, &mut out)
                    }
                    None => return Ok((done, data)),
                },
                Step::Complete(completion) => {
                    done.push(completion);
                    Ok(Step::Next)
                }
                Step::Next => Ok(Step::Take(transfer.header_bytes())),
                Step::Until { .. } => panic!("this protocol never requests `Until`"),
            };
            step = next.map_err(|error| error.to_string())?;
        }
    }

    fn completion(slot: u32, result: i32) -> Completion {
        Completion { slot, result }
    }

    #[test]
    fn requests_are_encoded_as_the_specification_says() {
        let mut transfer = transfer(false);
        let header = |command: u8, charge: u8, id: u8| {
            let mut bytes = vec![0xfe, b'S', b'M', b'B', 64, 0, charge, 0, 0, 0, 0, 0];
            bytes.extend([command, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, id, 0, 0, 0, 0, 0, 0, 0]);
            bytes.extend(b"\0\0\0\0\x66\0\0\0\x55\0\0\0\0\0\0\0");
            bytes.extend([0; 16]);
            bytes
        };
        // The number of requested credits is set to 0, because this test does not check it.
        let without_credits = |mut bytes: Vec<u8>| {
            bytes[TRANSPORT_BYTES + 14..][..2].fill(0);
            bytes
        };
        let mut expected = vec![0, 0, 0, 64 + 49];
        expected.extend(header(8, 2, 0));
        expected.extend(b"\x31\0\x50\0\0\0\x02\0\0\0\0\0\x01\0\0\0PERSIST1VOLATIL1");
        expected.extend([0; 17]);
        let bytes = added(&mut transfer, &request(Op::Read, 3, 0x02_0000), &[]);
        assert_eq!(without_credits(bytes), expected);
        let mut expected = vec![0, 0, 0, 64 + 48 + 5];
        expected.extend(header(9, 1, 2));
        expected.extend(b"\x31\0\x70\0\x05\0\0\0\0\0\0\0\x01\0\0\0PERSIST1VOLATIL1");
        expected.extend(b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0abcde");
        let bytes = added(&mut transfer, &request(Op::Write, 4, 5), b"abcde");
        assert_eq!(without_credits(bytes), expected);
        let mut out = Outbox::default();
        assert!(transfer.flush(&mut out));
        let Some(crate::network::protocol::Part::Bytes { bytes, .. }) = out.parts.pop_front()
        else {
            panic!("no message");
        };
        let mut expected = vec![0, 0, 0, 64 + 24];
        expected.extend(header(7, 1, 3));
        expected.extend(b"\x18\0\0\0\0\0\0\0PERSIST1VOLATIL1");
        assert_eq!(without_credits(bytes), expected);
        transfer.can_flush = false;
        assert!(!transfer.flush(&mut out));
    }

    #[test]
    fn responses_complete_their_requests_in_any_order() {
        let mut transfer = transfer(false);
        added(&mut transfer, &request(Op::Read, 3, 100), &[]);
        added(&mut transfer, &request(Op::Write, 4, 5), b"abcde");
        assert!(transfer.flush(&mut Outbox::default()));
        added(&mut transfer, &request(Op::Read, 5, 100), &[]);
        let answers = [
            response(FLUSH, 2, 0, &[4, 0, 0, 0]),
            response(WRITE, 1, 0, &write_body(4)),
            response(READ, 3, status::END_OF_FILE, &[9, 0, 0, 0, 0, 0, 0, 0, 0]),
            response(READ, 0, 0, &read_body(8, b"data", 3)),
        ];
        let (done, data) = receive(&mut transfer, &answers.concat()).unwrap();
        let expected =
            [completion(FLUSH_SLOT, 0), completion(4, 4), completion(5, 0), completion(3, 4)];
        assert_eq!((&done[..], &data[..]), (&expected[..], &b"data"[..]));
        assert!(transfer.pending.is_empty() && transfer.has_room());
    }

    #[test]
    fn a_failed_request_completes_with_its_error_number() {
        let mut transfer = transfer(true);
        for (id, status, errno) in [(0, 0xc000_007f, libc::ENOSPC), (1, 0xc0de_c0de, libc::EIO)] {
            added(&mut transfer, &request(Op::Write, 0, 1), b"x");
            let answer = signed(response(WRITE, id, status, &[9, 0, 0, 0, 0, 0, 0, 0, 0]));
            assert_eq!(receive(&mut transfer, &answer).unwrap().0, [completion(0, -errno)]);
        }
    }

    #[test]
    fn a_frame_may_have_several_messages_and_a_request_a_later_response() {
        let mut transfer = transfer(true);
        added(&mut transfer, &request(Op::Read, 1, 9), &[]);
        added(&mut transfer, &request(Op::Read, 2, 9), &[]);
        // Interim responses are not signed.
        let mut later = response(READ, 0, status::PENDING, &[9, 0, 0, 0, 0, 0, 0, 0, 0]);
        later[TRANSPORT_BYTES + 16] |= 2;
        // The notification of an oplock break, which answers no request, is not signed either.
        let oplock = response(18, u64::MAX, 0, &[24, 0, 0, 0]);
        let mut first = response(READ, 1, 0, &read_body(0, b"12345678", 0));
        first[TRANSPORT_BYTES + 20] = 64 + 16 + 8;
        let first = signed(first);
        let last = signed(response(READ, 0, 0, &read_body(0, b"abc", 5)));
        let mut frame = [&first[..], &last[4..]].concat();
        frame[3] = (frame.len() - 4) as u8;
        let bytes = [later, oplock, frame].concat();
        let (done, data) = receive(&mut transfer, &bytes).unwrap();
        assert_eq!(done, [completion(2, 8), completion(1, 3)]);
        assert_eq!(data, b"12345678abc");
    }

    #[test]
    fn signatures_cover_header_body_and_data() {
        // The first response is unchanged. Each other response has one changed bit: in the credits,
        // the session, the signature, a field of the body, the gap, the data or the tail.
        for changed in [None, Some(14), Some(40), Some(50), Some(76), Some(80), Some(84), Some(88)]
        {
            let mut transfer = transfer(true);
            added(&mut transfer, &request(Op::Read, 1, 9), &[]);
            let mut answer = signed(response(READ, 0, 0, &read_body(3, b"data", 3)));
            if let Some(changed) = changed {
                answer[TRANSPORT_BYTES + changed] ^= 1;
            }
            match (receive(&mut transfer, &answer), changed) {
                (Ok((done, data)), None) => {
                    assert_eq!((&done[..], &data[..]), (&[completion(1, 4)][..], &b"data"[..]));
                }
                (Err(error), Some(_)) => assert!(error.contains("a wrong signature"), "{error}"),
                (other, _) => panic!("{other:?} with a change at {changed:?}"),
            }
        }
    }

    #[test]
    fn wrong_responses_end_the_connection() {
        let wrong = |answer: Vec<u8>, what: &str| {
            let mut transfer = transfer(false);
            added(&mut transfer, &request(Op::Read, 0, 100), &[]);
            added(&mut transfer, &request(Op::Write, 1, 5), b"abcde");
            let error = receive(&mut transfer, &answer).expect_err(what);
            assert!(error.contains(what), "{error} instead of {what}");
        };
        let read = |body: &[u8]| response(READ, 0, 0, body);
        wrong(response(READ, 7, 0, &read_body(0, b"data", 0)), "not outstanding");
        wrong(response(WRITE, 0, 0, &write_body(1)), "another command");
        wrong(read(&read_body(0, &[0; 101], 0)), "more data than was requested");
        wrong(read(&[17, 0, 80, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), "does not match its data");
        wrong(read(&[17, 0, 90, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]), "more data");
        wrong(read(&[17, 0, 79, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]), "overlaps the header");
        wrong(
            read(&[16, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            "invalid response to READ",
        );
        wrong(read(&[17, 0, 80]), "too short");
        wrong(read(&read_body(0, b"x", 70_000)), "does not match its data");
        wrong(response(READ, 0, status::ACCESS_DENIED, &[0; 70_000]), "too long");
        wrong(response(READ, u64::MAX, 0, &[0; 70_000]), "too long");
        wrong(response(WRITE, 1, 0, &write_body(6)), "an invalid number of written");
        wrong(response(WRITE, 1, 0, &write_body(0)), "an invalid number of written");
        wrong(response(WRITE, 1, 0, &[17, 0, 0]), "too short");
        wrong(response(WRITE, 1, 0, &[]), "too short");
        wrong(response(READ, 0, status::PENDING, &[]), "an invalid interim response");
        let twice = response(READ, 0, status::ACCESS_DENIED, &[9, 0, 0, 0, 0, 0, 0, 0, 0]);
        wrong([&twice[..], &twice].concat(), "not outstanding");
        wrong(vec![1; 68], "does not speak SMB");
    }

    #[test]
    fn a_server_that_grants_no_credit_to_an_idle_connection_is_refused() {
        let mut transfer = Transfer { session: Session::with_credits(1), ..transfer(false) };
        added(&mut transfer, &request(Op::Read, 0, 100), &[]);
        assert!(!transfer.has_room(), "no credit is left");
        let mut answer = response(READ, 0, 0, &read_body(0, b"data", 0));
        answer[TRANSPORT_BYTES + 14] = 0;
        let error = receive(&mut transfer, &answer).expect_err("no credit");
        assert!(error.contains("granted no credit"), "{error}");
    }

    #[test]
    fn a_request_is_shortened_to_the_largest_size() {
        let mut transfer = transfer(true);
        let bytes = vec![3; 9 << 20];
        let sent = added(&mut transfer, &request(Op::Write, 0, 9 << 20), &bytes);
        assert_eq!(sent.len(), TRANSPORT_BYTES + HEADER_BYTES + 48 + (8 << 20));
        let head = sent[TRANSPORT_BYTES..][..HEADER_BYTES].try_into().unwrap();
        let mut verifier = Signer::new(&KEY).verifier(&head);
        verifier.update(&sent[TRANSPORT_BYTES + HEADER_BYTES..]);
        assert!(verifier.matches());
    }
}
