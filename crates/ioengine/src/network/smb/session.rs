//! The state of a connection that all messages share: identifiers, credits and signatures.
//!
//! Source: MS-SMB2. A request uses one message identifier and one credit for each 64 KiB of payload
//! (section 3.2.4.1.5). The server grants credits with each response (section 3.2.5.1.4). This
//! client requests enough credits to keep many requests of maximum size outstanding (section
//! 3.2.4.1.2).

use crate::error::{Error, ErrorKind};
use crate::network::wire::Wire;

use super::message::{FLAG_ASYNC, Frames, HEADER_BYTES, Header, Message, RequestHeader};
use super::signing::{Signer, Verifier};
use super::status;

/// The payload that one credit allows (bytes; section 3.1.5.2).
pub(super) const CREDIT_BYTES: u32 = 64 << 10;
/// The client always tries to have at least this number of credits. Each credit allows one
/// outstanding request of at most 64 KiB.
const CREDITS_MIN: u32 = 512;
/// The client never tries to have more credits than this number. Common servers do not grant more.
const CREDITS_MAX: u32 = 8192;
/// The client tries to have enough credits for this number of outstanding requests of the largest
/// size.
const LARGE_REQUESTS: u32 = 64;
/// The maximum number of credits that one message requests.
const CREDITS_ASKED_MAX: u32 = 512;
/// The maximum size of a response, without the data of a read (bytes).
pub(super) const RESPONSE_BYTES_MAX: usize = 64 << 10;
/// The maximum number of messages that the server may send in reply to one request of the set-up.
const ANSWERS_MAX: usize = 4;

/// The state of a connection that all its messages share.
#[derive(Debug)]
pub(super) struct Session {
    pub session_id: u64,
    pub tree_id: u32,
    /// Signs and verifies messages. None if messages are not signed, for example because the user
    /// is a guest.
    pub signer: Option<Signer>,
    /// Whether a request may use several credits (SMB2_GLOBAL_CAP_LARGE_MTU).
    pub multi_credit: bool,
    pub frames: Frames,
    next_message_id: u64,
    /// The number of credits that can be used now.
    credits: u32,
    /// The sum of [`Sent::asked`] over the outstanding requests.
    asked: u32,
    /// The largest number of credits that one request has needed so far.
    largest_charge: u32,
}

/// A message that was sent, with the values that are needed to process its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub message_id: u64,
    pub command: u16,
    /// The number of credits that the message has requested. 0 after the first response.
    pub asked: u32,
    /// Whether the server has sent an interim response, so that the final response follows later.
    pub interim: bool,
}

/// The kind of a response.
pub(super) enum Arrival {
    /// The final response. The verifier checks its signature. None if messages are not signed.
    Final(Option<Verifier>),
    /// An interim response. The server sends the final response later.
    Interim,
}

/// A response during the set-up.
#[derive(Debug)]
pub(super) struct Reply {
    pub header: Header,
    /// The header as it was received. The signature of the message covers these bytes too.
    pub head: [u8; HEADER_BYTES],
    pub body: Vec<u8>,
}

impl Session {
    /// Returns the state of a new connection, which has one credit (section 3.2.5.1.4).
    pub(super) fn new() -> Session {
        Session {
            session_id: 0,
            tree_id: 0,
            signer: None,
            multi_credit: false,
            frames: Frames::default(),
            next_message_id: 0,
            credits: 1,
            asked: 0,
            largest_charge: 1,
        }
    }

    /// Returns a connection with `credits` credits. A request may use several of them.
    #[cfg(test)]
    pub(super) fn with_credits(credits: u32) -> Session {
        Session { multi_credit: true, credits, ..Session::new() }
    }

    pub(super) fn credits(&self) -> u32 {
        self.credits
    }

    /// Returns the number of credits that a request needs. `payload_bytes` is the size of the
    /// payload of the request or of its response (section 3.1.5.2).
    fn charge(&self, payload_bytes: u32) -> u32 {
        if self.multi_credit { payload_bytes.div_ceil(CREDIT_BYTES).max(1) } else { 1 }
    }

    /// Returns whether the credits suffice for another request of the largest size so far.
    pub(super) fn has_credits(&self) -> bool {
        self.credits >= self.largest_charge
    }

    /// Returns `payload_bytes`, or fewer bytes if the credits do not suffice. While requests are
    /// outstanding, a new request waits for credits ([`Session::has_credits`]). Without outstanding
    /// requests, the server would send no further credits, so the new request must be shortened.
    pub(super) fn affordable(&mut self, payload_bytes: u32) -> u32 {
        self.largest_charge = self.largest_charge.max(self.charge(payload_bytes));
        payload_bytes.min(self.credits.max(1).saturating_mul(CREDIT_BYTES))
    }

    /// Encodes a request. The caller sends the returned bytes, and then `payload`. `payload_bytes`
    /// is the size of the payload, or of the data that a read requests.
    pub(super) fn request(
        &mut self,
        command: u16,
        message: Message,
        payload: &[u8],
        payload_bytes: u32,
    ) -> (Vec<u8>, Sent) {
        let charge = self.charge(payload_bytes);
        self.credits = self.credits.saturating_sub(charge);
        let wanted = (LARGE_REQUESTS * self.largest_charge).clamp(CREDITS_MIN, CREDITS_MAX);
        let missing = wanted.saturating_sub(self.credits + self.asked);
        let asked = missing.clamp(1, CREDITS_ASKED_MAX);
        self.asked += asked;
        let message_id = self.next_message_id;
        self.next_message_id += u64::from(charge);
        let header = RequestHeader {
            command,
            credit_charge: if self.multi_credit { charge as u16 } else { 0 },
            credit_request: asked as u16,
            message_id,
            tree_id: self.tree_id,
            session_id: self.session_id,
        };
        let mut bytes = message.finish(&header, payload.len());
        if let Some(signer) = &self.signer {
            signer.sign(&mut bytes, payload);
        }
        (bytes, Sent { message_id, command, asked, interim: false })
    }

    /// Checks the header of a response, and adds the credits that the response grants. `head`
    /// contains the bytes of the header.
    ///
    /// # Errors
    /// The server violated the protocol. The error completes a sentence that begins with "the
    /// server".
    pub(super) fn accept(
        &mut self,
        sent: &mut Sent,
        header: &Header,
        head: &[u8; HEADER_BYTES],
    ) -> Result<Arrival, String> {
        if header.command != sent.command {
            return Err("sent the response to another command".to_owned());
        }
        let is_interim = header.status == status::PENDING;
        if is_interim && (header.flags & FLAG_ASYNC == 0 || sent.interim) {
            return Err("sent an invalid interim response".to_owned());
        }
        let granted = self.credits + u32::from(header.credits);
        self.credits = granted.min(CREDITS_MAX);
        self.asked -= sent.asked;
        sent.asked = 0;
        if is_interim {
            sent.interim = true;
            return Ok(Arrival::Interim);
        }
        let Some(signer) = &self.signer else { return Ok(Arrival::Final(None)) };
        if !header.is_signed() {
            let status = status::name(header.status);
            return Err(format!("sent a response without a signature ({status})"));
        }
        Ok(Arrival::Final(Some(signer.verifier(head))))
    }

    /// Sends a request of the set-up, and waits for its response.
    ///
    /// # Errors
    /// The connection broke, or the server violated the protocol. A request that the server refuses
    /// is not an error: the status is in the response.
    pub(super) fn exchange(
        &mut self,
        wire: &mut Wire,
        command: u16,
        message: Message,
    ) -> Result<Reply, Error> {
        if self.credits == 0 {
            return Err(wire.violated("granted no credits, so no request can be sent"));
        }
        let (bytes, mut sent) = self.request(command, message, &[], 0);
        wire.send(&bytes)?;
        for _ in 0..ANSWERS_MAX {
            let head = wire.receive(self.frames.header_bytes())?;
            let (header, rest) = self.frames.begin(&head).map_err(|what| wire.violated(what))?;
            if rest > RESPONSE_BYTES_MAX {
                return Err(wire.violated("sent a response that is too long"));
            }
            let body = wire.receive(rest)?;
            if header.is_unrequested() {
                continue;
            }
            if header.message_id != sent.message_id {
                return Err(wire.violated("sent a reply to a request that is not outstanding"));
            }
            let head = *head.last_chunk().expect("the first bytes of a message contain its header");
            let accepted = self.accept(&mut sent, &header, &head);
            let Arrival::Final(verifier) = accepted.map_err(|what| wire.violated(&what))? else {
                continue;
            };
            let reply = Reply { header, head, body };
            if verifier.is_some_and(|verifier| !reply.is_verified_by(verifier)) {
                return Err(wrong_signature(&wire.name));
            }
            return Ok(reply);
        }
        Err(wire.violated("sent too many other messages before the response to a request"))
    }
}

/// Returns the error for a message that was changed in transit or signed with another key.
pub(super) fn wrong_signature(name: &str) -> Error {
    Error::new(ErrorKind::Io, format!("{name}: the server sent a message with a wrong signature"))
        .with_remedy("check whether a proxy between this host and the server changes messages")
}

impl Reply {
    /// Returns whether the signature is right. The verifier has already processed the header.
    pub(super) fn is_verified_by(&self, mut verifier: Verifier) -> bool {
        verifier.update(&self.body);
        verifier.matches()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::smb::message::{READ, TRANSPORT_BYTES, WRITE, le16, le64};

    fn response(sent: &Sent, credits: u16) -> Header {
        Header {
            status: 0,
            command: sent.command,
            credits,
            flags: 1,
            message_id: sent.message_id,
            tree_id: 0,
            session_id: 0,
        }
    }

    #[test]
    fn a_large_request_uses_an_identifier_and_a_credit_for_each_64_kib() {
        let mut session = Session::with_credits(600);
        let expected = [(1, 1), (65_536, 1), (65_537, 2), (1 << 20, 16), (8 << 20, 128)];
        let mut next = 0;
        for (bytes, charge) in expected {
            let (credits, length) = (session.credits(), session.affordable(bytes));
            let (message, sent) = session.request(READ, Message::new(49), &[], length);
            let header = &message[TRANSPORT_BYTES..];
            assert_eq!((length, le16(header, 6)), (bytes, Ok(charge)));
            assert_eq!((le64(header, 24), sent.message_id), (Ok(next), next));
            assert_eq!(session.credits(), credits - u32::from(charge));
            next += u64::from(charge);
        }
        let mut session = Session::new();
        let (message, _) = session.request(READ, Message::new(49), &[], CREDIT_BYTES);
        assert_eq!(
            le16(&message[TRANSPORT_BYTES..], 6),
            Ok(0),
            "without LARGE_MTU, the field is reserved and 0"
        );
        assert_eq!((session.next_message_id, session.credits()), (1, 0));
    }

    #[test]
    fn the_credits_converge_to_those_that_are_wanted() {
        let mut session = Session::with_credits(1);
        let mut largest = 0;
        for round in 0..200_u32 {
            let bytes = if round < 100 { 4096 } else { 1 << 20 };
            let mut outstanding = Vec::new();
            while outstanding.is_empty() || (session.has_credits() && outstanding.len() < 40) {
                let bytes = session.affordable(bytes);
                outstanding.push(session.request(READ, Message::new(49), &[], bytes).1);
            }
            largest = outstanding.len();
            for mut sent in outstanding {
                let granted = response(&sent, sent.asked as u16);
                session.accept(&mut sent, &granted, &[0; HEADER_BYTES]).unwrap();
            }
            let wanted = if round < 100 { 512 } else { 1024 };
            assert!(session.credits() <= wanted, "{} credits", session.credits());
            assert!(round % 100 < 50 || session.credits() == wanted);
        }
        assert_eq!(largest, 40, "40 requests of 16 credits fit into 1024 credits");
    }

    #[test]
    fn a_request_is_cut_to_what_the_credits_pay_for() {
        let mut session = Session::with_credits(3);
        assert!(session.has_credits());
        assert_eq!(session.affordable(1 << 20), 3 << 16);
        assert!(!session.has_credits(), "another request needs 16 credits");
        session.credits = 16;
        assert!(session.has_credits());
    }

    #[test]
    fn a_later_response_may_be_announced_once() {
        let mut session = Session::with_credits(600);
        let (_, mut sent) = session.request(WRITE, Message::new(49), &[], 0);
        let mut header = response(&sent, 7);
        (header.status, header.flags) = (status::PENDING, 3);
        let mut accept = |sent: &mut Sent, header: &Header| {
            session.accept(sent, header, &[0; HEADER_BYTES]).map(|_| session.credits())
        };
        assert_eq!(accept(&mut sent, &header), Ok(599 + 7));
        assert!(accept(&mut sent, &header).is_err());
        let last = response(&sent, 0);
        assert_eq!(accept(&mut sent, &last), Ok(599 + 7));
        let other = Header { command: READ, ..response(&sent, 0) };
        assert!(accept(&mut sent, &other).is_err());
    }

    #[test]
    fn a_response_must_be_signed_where_requests_are() {
        let mut session =
            Session { signer: Some(Signer::new(&[1; 16])), ..Session::with_credits(600) };
        let (_, mut sent) = session.request(READ, Message::new(49), &[], 4096);
        let header = Header { status: status::ACCESS_DENIED, ..response(&sent, 1) };
        let refused = session.accept(&mut sent, &header, &[0; HEADER_BYTES]);
        let what = refused.err().unwrap();
        assert_eq!(what, "sent a response without a signature (STATUS_ACCESS_DENIED)");
        let signed = Header { flags: 9, ..header };
        let arrival = session.accept(&mut sent, &signed, &[0; HEADER_BYTES]).unwrap();
        let Arrival::Final(Some(verifier)) = arrival else { panic!("not verified") };
        assert!(!verifier.matches());
    }
}
