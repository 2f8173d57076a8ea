//! Opens a file on a server of NFS 4.1: registers a new client, creates a session, follows the path
//! from the root of the exports, and opens the file.
//!
//! Each connection registers as a client of its own, so that no state of an earlier connection
//! interferes. The server forgets the client some time after its lease has expired.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use super::compound::{
    CREATE_SESSION, Caller, EXCHANGE_ID, GETATTR, GETFH, LAST_FRAGMENT, LOOKUP, MARK_BYTES, OPEN,
    Outcome, PUTFH, PUTROOTFH, RECLAIM_COMPLETE, Sequenced, SessionId, Turn, finish, machine,
    reply, result, sequenced,
};
use super::status::{COMPLETE_ALREADY, DELAY, GRACE, OK, describe, remedy};
use super::xdr::{Decoder, Encoder, Flaw};
use crate::clock::{Clock, Monotonic};
use crate::error::Error;
use crate::network::Access;
use crate::network::wire::Wire;

/// How many slots are requested for a session: the most requests outstanding on one connection.
/// Each slot has a bit in a 64-bit number.
pub(super) const SLOTS_MAX: u32 = 64;
/// The largest payload of one request (bytes).
const PAYLOAD_BYTES_MAX: u32 = 1 << 20;
/// Room in a message for everything but the payload (bytes). A call needs less than 500. A reply
/// needs 104, or a few hundred more if the server sends a verifier.
const HEAD_BYTES: u32 = 1024;
/// The largest message that the client asks the server to allow (bytes). Linux allows a page beyond
/// the payload.
const MESSAGE_BYTES: u32 = PAYLOAD_BYTES_MAX + 4096;
/// Requests are cut to a multiple of this (bytes).
const UNIT_BYTES: u32 = 4096;
/// The largest reply that the server is to cache (bytes). The client never asks for a cached reply.
const KEPT_BYTES: u32 = 1024;
/// The most operations of a call here: SEQUENCE, PUTFH, LOOKUP, GETFH, GETATTR.
const OPERATIONS_MAX: u32 = 5;
/// The longest reply while a file is opened (bytes). Servers send a few hundred bytes.
const REPLY_BYTES_MAX: usize = 16 << 10;
/// The longest file handle (NFS4_FHSIZE; RFC 8881, section 3.1) (bytes).
const HANDLE_BYTES_MAX: u32 = 128;
/// The longest bit map (words) and list of attributes (bytes) that are accepted. Both are longer
/// than what the client asks for.
const MAP_WORDS_MAX: u32 = 8;
const ATTRIBUTES_BYTES_MAX: u32 = 256;
/// If the server is busy, a call is repeated after a pause. These are the first pause and the
/// longest one (ns); each pause is twice as long as the one before it.
const PAUSE_NS: u64 = 50_000_000;
const PAUSE_NS_MAX: u64 = 1_000_000_000;

/// EXCHGID4_FLAG_USE_NON_PNFS: data goes through this server (RFC 8881, section 18.35).
const USE_NON_PNFS: u32 = 0x0001_0000;
/// SP4_NONE: no protection of the client's state beyond its credential.
const PROTECT_NONE: u32 = 0;
/// The RPC program of callbacks from the server, which this client does not accept.
const CALLBACK_PROGRAM: u32 = 0x4000_0000;
/// Attributes (RFC 8881, section 5.6 and 5.7), as bits of the first word of a bit map.
const TYPE: u32 = 1 << 1;
const SIZE: u32 = 1 << 4;
const LEASE_TIME: u32 = 1 << 10;
const MAX_READ: u32 = 1 << 30;
const MAX_WRITE: u32 = 1 << 31;
/// Types of files (RFC 8881, section 3.2, nfs_ftype4).
const REGULAR: u32 = 1;
const FOLDER: u32 = 2;
const LINK: u32 = 5;
/// Arguments of OPEN (RFC 8881, section 18.16): the access, no delegation, no access denied to
/// others, no creation, and the current file handle as the file.
const ACCESS_READ: u32 = 1;
const ACCESS_BOTH: u32 = 3;
const WANT_NO_DELEGATION: u32 = 0x0400;
const DENY_NONE: u32 = 0;
const NO_CREATE: u32 = 0;
const CLAIM_CURRENT: u32 = 4;
/// OPEN_DELEGATE_NONE and OPEN_DELEGATE_NONE_EXT.
const NO_DELEGATION: [u32; 2] = [0, 3];

/// A session with a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    /// Its name.
    pub id: SessionId,
    /// The number of slots, from 1 to [`SLOTS_MAX`].
    pub slots: u32,
    /// The sequence number of the last call in slot 0. No other slot was used.
    pub sequence: u32,
    /// The largest payload of a request (bytes).
    payload_bytes: u32,
}

/// An open file.
#[derive(Clone, Debug)]
pub(super) struct OpenFile {
    /// The file handle, which names the file in requests.
    pub handle: Vec<u8>,
    /// The stateid of the OPEN, which names the right to use the file.
    pub stateid: [u8; 16],
    /// Its size (bytes).
    pub size_bytes: u64,
    /// The largest request (bytes).
    pub request_bytes_max: u32,
    /// How long the server keeps the file open without any request.
    pub lease: Duration,
}

/// Creates a session and opens the file of an address.
pub(super) fn set_up(
    wire: &mut Wire,
    caller: &Caller,
    access: &Access,
) -> Result<(Session, OpenFile), Error> {
    let mut setup = Setup { wire, caller, xid: 0, session: None, clock: Monotonic::new() };
    let client = setup.exchange_id()?;
    let session = setup.create_session(client)?;
    setup.session = Some(session);
    setup.reclaim_complete()?;
    let file = setup.open_file(client.id, access, session.payload_bytes)?;
    Ok((setup.session.unwrap_or(session), file))
}

#[cfg(test)]
impl Session {
    /// A session for tests, whose slot 0 was used for `sequence` calls.
    pub(super) fn of_test(id: SessionId, slots: u32, sequence: u32) -> Session {
        Session { id, slots, sequence, payload_bytes: 0 }
    }
}

/// A client as the server knows it.
#[derive(Clone, Copy, Debug)]
struct Client {
    id: u64,
    /// The sequence number of its next CREATE_SESSION.
    sequence: u32,
}

/// The attributes of a file that the client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attributes {
    kind: u32,
    size_bytes: u64,
    lease_s: u32,
    request_bytes_max: u64,
}

/// The reply to a call whose operations all succeeded.
struct Answer {
    record: Vec<u8>,
    /// Where in `record` the results after SEQUENCE begin.
    at: usize,
}

/// The calls of the set-up, one after the other.
struct Setup<'a> {
    wire: &'a mut Wire,
    caller: &'a Caller,
    xid: u32,
    session: Option<Session>,
    clock: Monotonic,
}

impl Setup<'_> {
    /// Registers a new client (RFC 8881, section 18.35).
    fn exchange_id(&mut self) -> Result<Client, Error> {
        // No other client, not even an earlier one of this process, may have the same name.
        let random = || RandomState::new().hash_one(());
        let name = format!("halfpower {} {} {:016x}", machine(), std::process::id(), random());
        let mut operation = Encoder::default();
        operation.word(EXCHANGE_ID).hyper(random()).opaque(name.as_bytes());
        operation.word(USE_NON_PNFS).word(PROTECT_NONE).word(0);
        let answer = self.call("registering with the server", &[operation])?;
        let read = answer.read(EXCHANGE_ID, |results| {
            let client = Client { id: results.hyper()?, sequence: results.word()? };
            let _flags = results.word()?;
            Ok((client, results.word()?))
        });
        match self.sound(read)? {
            (client, PROTECT_NONE) => Ok(client),
            _ => Err(self.wire.violated("requires a protection of state that was not asked for")),
        }
    }

    /// Creates a session (RFC 8881, section 18.36). It has no channel back to the client, so that
    /// the server grants nothing that it would have to recall.
    fn create_session(&mut self, client: Client) -> Result<Session, Error> {
        let mut operation = Encoder::default();
        operation.word(CREATE_SESSION).hyper(client.id).word(client.sequence).word(0);
        // Padding of the head, largest request, largest reply, largest kept reply, operations,
        // slots, and nothing for RDMA: for calls to the server, then for calls back.
        let forward = [0, MESSAGE_BYTES, MESSAGE_BYTES, KEPT_BYTES, OPERATIONS_MAX, SLOTS_MAX, 0];
        let back = [0, 4096, 4096, 0, 2, 1, 0];
        for attribute in forward.into_iter().chain(back) {
            operation.word(attribute);
        }
        // Callbacks would have one kind of credential: AUTH_NONE.
        operation.word(CALLBACK_PROGRAM).word(1).word(0);
        let answer = self.call("creating a session", &[operation])?;
        let read = answer.read(CREATE_SESSION, |results| {
            let id = results.array()?;
            let (_sequence, _flags, _padding) = (results.word()?, results.word()?, results.word()?);
            let message_bytes = results.word()?.min(results.word()?);
            let _kept = results.word()?;
            let (operations, slots) = (results.word()?, results.word()?);
            Ok((id, message_bytes, operations, slots))
        });
        let (id, message_bytes, operations, slots) = self.sound(read)?;
        let payload_bytes = message_bytes.saturating_sub(HEAD_BYTES).min(PAYLOAD_BYTES_MAX);
        let payload_bytes = payload_bytes - payload_bytes % UNIT_BYTES;
        if slots == 0 || operations < OPERATIONS_MAX || payload_bytes == 0 {
            let what = format!(
                "the server grants only {slots} slots, messages of {message_bytes} bytes and \
                 {operations} operations per message"
            );
            return Err(self.wire.refused(what, "raise the limits of the server"));
        }
        Ok(Session { id, slots: slots.min(SLOTS_MAX), sequence: 0, payload_bytes })
    }

    /// Tells the server that this client has no state to reclaim from before a restart (RFC 8881,
    /// section 18.51). A server refuses to open files before that.
    fn reclaim_complete(&mut self) -> Result<(), Error> {
        let mut operation = Encoder::default();
        operation.word(RECLAIM_COMPLETE).word(0);
        let doing = "finishing the registration";
        self.call_unless(doing, &[operation], COMPLETE_ALREADY).map(drop)
    }

    /// Follows the path and opens the file.
    fn open_file(
        &mut self,
        client_id: u64,
        access: &Access,
        payload_bytes: u32,
    ) -> Result<OpenFile, Error> {
        let mut names = access.address.path.split('/').filter(|name| !name.is_empty()).peekable();
        if names.peek().is_none() {
            return Err(self.wire.refused("the address names no file", "append its path"));
        }
        let answer = self.call("reading the root", &[plain(PUTROOTFH), plain(GETFH)])?;
        let read = answer.read(PUTROOTFH, handle);
        let mut found = (self.sound(read)?, None);
        for name in names {
            let mut last = plain(GETATTR);
            last.word(1).word(TYPE | SIZE | LEASE_TIME | MAX_READ | MAX_WRITE);
            let operations = [put(&found.0), look_up(name), plain(GETFH), last];
            let answer = self.call(&format!("looking up '{name}'"), &operations)?;
            let read = answer.read(PUTFH, |results| {
                succeeded(results, LOOKUP)?;
                let handle = handle(results)?;
                succeeded(results, GETATTR)?;
                Ok((handle, Some(attributes(results)?)))
            });
            found = self.sound(read)?;
        }
        let (handle, Some(attributes)) = found else {
            return Err(self.wire.violated("has no root"));
        };
        match attributes.kind {
            REGULAR => {}
            FOLDER => return Err(self.wire.refused("it is a directory", "name a file")),
            LINK => {
                let what = "it is a symbolic link";
                return Err(self.wire.refused(what, "name the file that it points to"));
            }
            _ => return Err(self.wire.refused("it is no regular file", "name a regular file")),
        }
        let stateid = self.open_handle(client_id, &handle, access.writable)?;
        let at_most = u32::try_from(attributes.request_bytes_max).unwrap_or(u32::MAX);
        Ok(OpenFile {
            handle,
            stateid,
            size_bytes: attributes.size_bytes,
            request_bytes_max: payload_bytes.min(at_most).max(1),
            lease: Duration::from_secs(attributes.lease_s.into()),
        })
    }

    /// Opens the file of a handle (RFC 8881, section 18.16).
    fn open_handle(
        &mut self,
        client_id: u64,
        handle: &[u8],
        writable: bool,
    ) -> Result<[u8; 16], Error> {
        let (rights, doing) = match writable {
            false => (ACCESS_READ, "opening the file for reading"),
            true => (ACCESS_BOTH, "opening the file for reading and writing"),
        };
        let mut operation = plain(OPEN);
        operation.word(0).word(rights | WANT_NO_DELEGATION).word(DENY_NONE);
        operation.hyper(client_id).opaque(b"halfpower").word(NO_CREATE).word(CLAIM_CURRENT);
        let answer = self.call(doing, &[put(handle), operation])?;
        let read = answer.read(PUTFH, |results| {
            succeeded(results, OPEN)?;
            let stateid = results.array()?;
            // The change_info4 of the folder (atomic, before, after), then the flags of the result.
            results.fixed(4 + 8 + 8 + 4)?;
            bit_map(results)?;
            Ok((stateid, results.word()?))
        });
        let (stateid, delegation) = self.sound(read)?;
        if !NO_DELEGATION.contains(&delegation) {
            let what = "the server grants this client a delegation, although it wants none";
            return Err(self.wire.refused(what, "switch off delegations on the server"));
        }
        Ok(stateid)
    }

    /// Runs operations, all of which must succeed.
    fn call(&mut self, doing: &str, operations: &[Encoder]) -> Result<Answer, Error> {
        self.call_unless(doing, operations, OK)
    }

    /// As [`Setup::call`], but the status `or` counts as success too. Repeats the call while the
    /// server is busy, up to the time limit of the address.
    fn call_unless(
        &mut self,
        doing: &str,
        operations: &[Encoder],
        or: u32,
    ) -> Result<Answer, Error> {
        let until_ns = self.clock.now_ns() + self.wire.timeout.as_nanos() as u64;
        let mut pause_ns = PAUSE_NS;
        loop {
            let (status, answer) = self.call_once(operations)?;
            if status == OK || status == or {
                return Ok(answer);
            }
            let now_ns = self.clock.now_ns();
            if !matches!(status, DELAY | GRACE) || now_ns >= until_ns {
                let what = format!("{doing}: {}", describe(status));
                return Err(self.wire.refused(what, remedy(status)));
            }
            self.clock.sleep_until(until_ns.min(now_ns + pause_ns));
            pause_ns = (2 * pause_ns).min(PAUSE_NS_MAX);
        }
    }

    /// Sends a call, in slot 0 of the session if there is one. Returns the status of the last
    /// operation that was run.
    fn call_once(&mut self, operations: &[Encoder]) -> Result<(u32, Answer), Error> {
        self.xid += 1;
        let turn = self.session.map(|Session { id, sequence, .. }| Turn {
            session: id,
            sequence: sequence.wrapping_add(1),
            slot: 0,
        });
        let count = operations.len() as u32 + u32::from(turn.is_some());
        let mut call = self.caller.begin(self.xid, count);
        if let Some(turn) = turn {
            turn.encode(0, &mut call);
        }
        for operation in operations {
            call.fixed(&operation.0);
        }
        self.wire.send(&finish(call, 0))?;
        let record = self.record()?;
        let mut decoder = Decoder::new(&record);
        let reply = self.sound(reply(&mut decoder))?;
        if reply.xid != self.xid {
            return Err(self.wire.violated("answered a call that was not made"));
        }
        let (status, results) = match reply.outcome {
            Outcome::Results { status, count } => (status, count),
            Outcome::Refused(what, remedy) => return Err(self.wire.refused(what, remedy)),
        };
        // A server that does not know the minor version sends no result at all.
        if let (Some(turn), true) = (turn, results > 0) {
            let sequenced = self.sound(sequenced(&mut decoder, &turn))?;
            if let (Sequenced::Run { .. }, Some(session)) = (sequenced, &mut self.session) {
                session.sequence = turn.sequence;
            }
        }
        let at = decoder.position();
        Ok((status, Answer { record, at }))
    }

    /// Receives a whole message, which may come in several fragments (RFC 5531, section 11).
    fn record(&mut self) -> Result<Vec<u8>, Error> {
        let mut record = Vec::new();
        loop {
            let mark = self.wire.receive(MARK_BYTES)?;
            let mark = Decoder::new(&mark).word().expect("four bytes were received");
            let (length, is_last) = ((mark & !LAST_FRAGMENT) as usize, mark & LAST_FRAGMENT != 0);
            if record.len() + length > REPLY_BYTES_MAX || (length == 0 && !is_last) {
                return Err(self.wire.violated(&format!("sent a fragment of {length} bytes")));
            }
            record.extend(self.wire.receive(length)?);
            if is_last {
                return Ok(record);
            }
        }
    }

    /// The value read from a reply, or the error for a reply that cannot be read.
    fn sound<T>(&self, read: Result<T, Flaw>) -> Result<T, Error> {
        read.map_err(|flaw| match flaw {
            Flaw::Short(_) => self.wire.violated("sent a reply that is cut short"),
            Flaw::Wrong(what) => self.wire.violated(what),
        })
    }
}

impl Answer {
    /// Reads the results from that of the operation `first` on.
    fn read<T>(
        &self,
        first: u32,
        read: impl FnOnce(&mut Decoder<'_>) -> Result<T, Flaw>,
    ) -> Result<T, Flaw> {
        let mut results = Decoder::new(&self.record[self.at..]);
        succeeded(&mut results, first)?;
        read(&mut results)
    }
}

/// Reads the beginning of the result of an operation in a reply without failures.
fn succeeded(results: &mut Decoder<'_>, operation: u32) -> Result<(), Flaw> {
    match result(results, operation)? {
        OK => Ok(()),
        _ => Err(Flaw::Wrong("reports success and failure of one call")),
    }
}

/// An operation without arguments, or the beginning of another one.
fn plain(operation: u32) -> Encoder {
    let mut encoder = Encoder::default();
    encoder.word(operation);
    encoder
}

/// The operation that makes a handle the current one (RFC 8881, section 18.19).
fn put(handle: &[u8]) -> Encoder {
    let mut operation = plain(PUTFH);
    operation.opaque(handle);
    operation
}

/// The operation that looks up a name in the current folder (RFC 8881, section 18.13).
fn look_up(name: &str) -> Encoder {
    let mut operation = plain(LOOKUP);
    operation.opaque(name.as_bytes());
    operation
}

/// The result of GETFH (RFC 8881, section 18.8).
fn handle(results: &mut Decoder<'_>) -> Result<Vec<u8>, Flaw> {
    succeeded(results, GETFH)?;
    Ok(results.opaque(HANDLE_BYTES_MAX)?.to_vec())
}

/// A bit map; all but its first word must be zero.
fn bit_map(results: &mut Decoder<'_>) -> Result<u32, Flaw> {
    let words = results.word()?;
    if words > MAP_WORDS_MAX {
        return Err(Flaw::Wrong("sent a bit map that is too long"));
    }
    let mut first = 0;
    for index in 0..words {
        match (index, results.word()?) {
            (0, word) => first = word,
            (_, 0) => {}
            _ => return Err(Flaw::Wrong("sent attributes that were not asked for")),
        }
    }
    Ok(first)
}

/// The result of GETATTR (RFC 8881, section 18.7). Its values are in the order of their bits.
fn attributes(results: &mut Decoder<'_>) -> Result<Attributes, Flaw> {
    let map = bit_map(results)?;
    let mut values = Decoder::new(results.opaque(ATTRIBUTES_BYTES_MAX)?);
    if map & !(TYPE | SIZE | LEASE_TIME | MAX_READ | MAX_WRITE) != 0 {
        return Err(Flaw::Wrong("sent attributes that were not asked for"));
    }
    let has = |attribute| map & attribute != 0;
    if !has(TYPE) || !has(SIZE) || !has(LEASE_TIME) {
        return Err(Flaw::Wrong("does not tell type, size and lease time of the file"));
    }
    let (kind, size_bytes, lease_s) = (values.word()?, values.hyper()?, values.word()?);
    let read_max = if has(MAX_READ) { values.hyper()? } else { u64::MAX };
    let write_max = if has(MAX_WRITE) { values.hyper()? } else { u64::MAX };
    Ok(Attributes { kind, size_bytes, lease_s, request_bytes_max: read_max.min(write_max) })
}
