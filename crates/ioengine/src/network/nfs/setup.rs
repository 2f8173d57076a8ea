//! Opens a file on an NFS 4.1 server: registers a new client, creates a session, follows the path
//! from the root of the exports, and opens the file.
//!
//! Each connection registers as a separate client, so that no state of an earlier connection
//! interferes. The server forgets the client some time after the client's lease has expired.

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

/// The number of slots that the client requests for a session. It limits the number of outstanding
/// requests on one connection. 64 is the maximum, because the busy slots are bits of a 64-bit
/// number.
pub(super) const SLOTS_MAX: u32 = 64;
/// The maximum payload of one request (bytes).
const PAYLOAD_BYTES_MAX: u32 = 1 << 20;
/// The space in a message for everything except the payload (bytes). A call needs less than 500
/// bytes. A reply needs 104 bytes, or a few hundred more if the server sends a verifier.
const HEAD_BYTES: u32 = 1024;
/// The maximum message size that the client requests (bytes). Linux servers allow 4096 bytes in
/// addition to the payload.
const MESSAGE_BYTES: u32 = PAYLOAD_BYTES_MAX + 4096;
/// The maximum payload of a request is rounded down to a multiple of this size (bytes).
const UNIT_BYTES: u32 = 4096;
/// The maximum size of a cached reply, which the client must specify when it creates a session
/// (bytes). The client never asks the server to cache a reply.
const KEPT_BYTES: u32 = 1024;
/// The maximum number of operations in a call. The longest call that this client makes consists of
/// SEQUENCE, PUTFH, LOOKUP, GETFH and GETATTR.
const OPERATIONS_MAX: u32 = 5;
/// The maximum size of a reply while a file is opened (bytes). Servers send a few hundred bytes.
const REPLY_BYTES_MAX: usize = 16 << 10;
/// The maximum size of a file handle (bytes; NFS4_FHSIZE in RFC 8881, section 3.1).
const HANDLE_BYTES_MAX: u32 = 128;
/// The maximum lengths of a bit map (words) and of a list of attributes (bytes) that the client
/// accepts. The requested attributes have a bit map of 1 word and a list of 32 bytes.
const MAP_WORDS_MAX: u32 = 8;
const ATTRIBUTES_BYTES_MAX: u32 = 256;
/// The first and the longest pause before a call is repeated because the server is busy (ns). Each
/// pause is twice as long as the previous one, up to the longest.
const PAUSE_NS: u64 = 50_000_000;
const PAUSE_NS_MAX: u64 = 1_000_000_000;

/// EXCHGID4_FLAG_USE_NON_PNFS: all data is transferred through this server (RFC 8881, section
/// 18.35).
const USE_NON_PNFS: u32 = 0x0001_0000;
/// SP4_NONE: the client's state on the server is protected only by the client's credential.
const PROTECT_NONE: u32 = 0;
/// The RPC program number for callbacks from the server. CREATE_SESSION requires a number, but this
/// client accepts no callbacks.
const CALLBACK_PROGRAM: u32 = 0x4000_0000;
/// Attributes (RFC 8881, sections 5.6 and 5.7), as bits of the first word of a bit map.
const TYPE: u32 = 1 << 1;
const SIZE: u32 = 1 << 4;
const LEASE_TIME: u32 = 1 << 10;
const MAX_READ: u32 = 1 << 30;
const MAX_WRITE: u32 = 1 << 31;
/// File types (nfs_ftype4; RFC 8881, section 3.2).
const REGULAR: u32 = 1;
const FOLDER: u32 = 2;
const LINK: u32 = 5;
/// Arguments of OPEN (RFC 8881, section 18.16). The client requests the access that it needs and no
/// delegation, denies no access to other clients, creates no file, and opens the file of the
/// current file handle.
const ACCESS_READ: u32 = 1;
const ACCESS_BOTH: u32 = 3;
const WANT_NO_DELEGATION: u32 = 0x0400;
const DENY_NONE: u32 = 0;
const NO_CREATE: u32 = 0;
const CLAIM_CURRENT: u32 = 4;
/// OPEN_DELEGATE_NONE and OPEN_DELEGATE_NONE_EXT: the server has granted no delegation.
const NO_DELEGATION: [u32; 2] = [0, 3];

/// A session with a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    /// The identifier of the session.
    pub id: SessionId,
    /// The number of slots, from 1 to [`SLOTS_MAX`].
    pub slots: u32,
    /// The sequence number of the last call in slot 0. The set-up uses only this slot.
    pub sequence: u32,
    /// The maximum payload of a request (bytes).
    payload_bytes: u32,
}

/// An open file.
#[derive(Clone, Debug)]
pub(super) struct OpenFile {
    /// The file handle, which identifies the file in requests.
    pub handle: Vec<u8>,
    /// The stateid from OPEN, which proves in requests that this client has opened the file.
    pub stateid: [u8; 16],
    /// The size of the file (bytes).
    pub size_bytes: u64,
    /// The maximum size of a request (bytes).
    pub request_bytes_max: u32,
    /// The lease time: how long the server keeps the file open if the client sends no request.
    pub lease: Duration,
}

/// Creates a session and opens the file that the address specifies.
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
    /// Returns a session that has made `sequence` calls, all in slot 0.
    pub(super) fn of_test(id: SessionId, slots: u32, sequence: u32) -> Session {
        Session { id, slots, sequence, payload_bytes: 0 }
    }
}

/// A client that is registered with the server.
#[derive(Clone, Copy, Debug)]
struct Client {
    id: u64,
    /// The sequence number that the client must use in its next CREATE_SESSION.
    sequence: u32,
}

/// The attributes that the client requests for a file.
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
    /// The position in `record` at which the results after SEQUENCE begin.
    at: usize,
}

/// Makes the calls of the set-up, one at a time.
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
        // The name must differ from the names of all other clients, including earlier clients of
        // this process.
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
            _ => Err(self.wire.violated("requires state protection other than SP4_NONE")),
        }
    }

    /// Creates a session (RFC 8881, section 18.36). The session has no callback channel, so the
    /// server cannot grant delegations or layouts, which it would have to recall with a callback.
    fn create_session(&mut self, client: Client) -> Result<Session, Error> {
        let mut operation = Encoder::default();
        operation.word(CREATE_SESSION).hyper(client.id).word(client.sequence).word(0);
        // The request contains two lists: the attributes of the channel for calls, and those of the
        // channel for callbacks. Each list contains: header padding, the maximum sizes of a
        // request, a reply and a cached reply, the maximum numbers of operations and slots, and the
        // number of RDMA attributes.
        let forward = [0, MESSAGE_BYTES, MESSAGE_BYTES, KEPT_BYTES, OPERATIONS_MAX, SLOTS_MAX, 0];
        let back = [0, 4096, 4096, 0, 2, 1, 0];
        for attribute in forward.into_iter().chain(back) {
            operation.word(attribute);
        }
        // The list of credentials for callbacks has one entry: AUTH_NONE.
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
            return Err(self.wire.refused(what, "raise these limits on the server"));
        }
        Ok(Session { id, slots: slots.min(SLOTS_MAX), sequence: 0, payload_bytes })
    }

    /// Tells the server that this client has no state to reclaim after a restart of the server (RFC
    /// 8881, section 18.51). Before this call, the server refuses to open files.
    fn reclaim_complete(&mut self) -> Result<(), Error> {
        let mut operation = Encoder::default();
        operation.word(RECLAIM_COMPLETE).word(0);
        let doing = "finishing the registration";
        self.call_unless(doing, &[operation], COMPLETE_ALREADY).map(drop)
    }

    /// Looks up each part of the path, and opens the file.
    fn open_file(
        &mut self,
        client_id: u64,
        access: &Access,
        payload_bytes: u32,
    ) -> Result<OpenFile, Error> {
        let mut names = access.address.path.split('/').filter(|name| !name.is_empty()).peekable();
        if names.peek().is_none() {
            return Err(self.wire.refused("the address contains no file path", "append the path"));
        }
        let answer = self.call("reading the root directory", &[plain(PUTROOTFH), plain(GETFH)])?;
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
            return Err(self.wire.violated("sent no attributes of the file"));
        };
        match attributes.kind {
            REGULAR => {}
            FOLDER => return Err(self.wire.refused("this is a directory", "specify a file")),
            LINK => {
                let what = "this is a symbolic link";
                return Err(self.wire.refused(what, "specify its target instead"));
            }
            _ => return Err(self.wire.refused("not a regular file", "specify a regular file")),
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

    /// Opens the file that `handle` identifies (RFC 8881, section 18.16).
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
            // These bytes are the change_info4 of the directory (atomic, before, after) and the
            // flags of the result.
            results.fixed(4 + 8 + 8 + 4)?;
            bit_map(results)?;
            Ok((stateid, results.word()?))
        });
        let (stateid, delegation) = self.sound(read)?;
        if !NO_DELEGATION.contains(&delegation) {
            let what = "the server grants a delegation that this client did not request";
            return Err(self.wire.refused(what, "disable delegations on the server"));
        }
        Ok(stateid)
    }

    /// Makes a call. All of its operations must succeed.
    fn call(&mut self, doing: &str, operations: &[Encoder]) -> Result<Answer, Error> {
        self.call_unless(doing, operations, OK)
    }

    /// Makes a call that must end with the status [`OK`] or with the status in the parameter `or`.
    /// While the server is busy, the call is repeated until the timeout of the connection has
    /// passed.
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

    /// Makes a call once. If there is a session, the call uses slot 0. Returns the status of the
    /// last operation that the server executed, and the reply.
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
        // A server that does not support the minor version sends no result at all.
        if let (Some(turn), true) = (turn, results > 0) {
            let sequenced = self.sound(sequenced(&mut decoder, &turn))?;
            if let (Sequenced::Run { .. }, Some(session)) = (sequenced, &mut self.session) {
                session.sequence = turn.sequence;
            }
        }
        let at = decoder.position();
        Ok((status, Answer { record, at }))
    }

    /// Receives a whole message, which may consist of several fragments (RFC 5531, section 11).
    fn record(&mut self) -> Result<Vec<u8>, Error> {
        let mut record = Vec::new();
        loop {
            let mark = self.wire.receive(MARK_BYTES)?;
            let mark = Decoder::new(&mark).word().expect("four bytes were received");
            let (length, is_last) = ((mark & !LAST_FRAGMENT) as usize, mark & LAST_FRAGMENT != 0);
            if record.len() + length > REPLY_BYTES_MAX || (length == 0 && !is_last) {
                let what = format!("sent a fragment of an invalid length ({length} bytes)");
                return Err(self.wire.violated(&what));
            }
            record.extend(self.wire.receive(length)?);
            if is_last {
                return Ok(record);
            }
        }
    }

    /// Converts a failure to decode a reply into an error for the user.
    fn sound<T>(&self, read: Result<T, Flaw>) -> Result<T, Error> {
        read.map_err(|flaw| match flaw {
            Flaw::Short(_) => self.wire.violated("sent a reply that is cut short"),
            Flaw::Wrong(what) => self.wire.violated(what),
        })
    }
}

impl Answer {
    /// Checks that the first result belongs to the operation `first`, and that this operation
    /// succeeded. Then calls `read` to decode the rest.
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

/// Checks that the next result belongs to `operation`, and that this operation succeeded.
fn succeeded(results: &mut Decoder<'_>, operation: u32) -> Result<(), Flaw> {
    match result(results, operation)? {
        OK => Ok(()),
        _ => Err(Flaw::Wrong("reports both success and failure of a call")),
    }
}

/// Returns an operation without arguments. The caller may append arguments.
fn plain(operation: u32) -> Encoder {
    let mut encoder = Encoder::default();
    encoder.word(operation);
    encoder
}

/// Returns the operation that sets the current file handle (RFC 8881, section 18.19).
fn put(handle: &[u8]) -> Encoder {
    let mut operation = plain(PUTFH);
    operation.opaque(handle);
    operation
}

/// Returns the operation that looks up a name in the directory of the current file handle (RFC
/// 8881, section 18.13).
fn look_up(name: &str) -> Encoder {
    let mut operation = plain(LOOKUP);
    operation.opaque(name.as_bytes());
    operation
}

/// Reads the file handle from the result of GETFH (RFC 8881, section 18.8).
fn handle(results: &mut Decoder<'_>) -> Result<Vec<u8>, Flaw> {
    succeeded(results, GETFH)?;
    Ok(results.opaque(HANDLE_BYTES_MAX)?.to_vec())
}

/// Reads a bit map, and returns its first word. All other words must be zero.
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
            _ => return Err(Flaw::Wrong("sent attributes that were not requested")),
        }
    }
    Ok(first)
}

/// Reads the result of GETATTR (RFC 8881, section 18.7). The values are in the order of their bits
/// in the bit map.
fn attributes(results: &mut Decoder<'_>) -> Result<Attributes, Flaw> {
    let map = bit_map(results)?;
    let mut values = Decoder::new(results.opaque(ATTRIBUTES_BYTES_MAX)?);
    if map & !(TYPE | SIZE | LEASE_TIME | MAX_READ | MAX_WRITE) != 0 {
        return Err(Flaw::Wrong("sent attributes that were not requested"));
    }
    let has = |attribute| map & attribute != 0;
    if !has(TYPE) || !has(SIZE) || !has(LEASE_TIME) {
        return Err(Flaw::Wrong("does not report type, size and lease time of the file"));
    }
    let (kind, size_bytes, lease_s) = (values.word()?, values.hyper()?, values.word()?);
    let read_max = if has(MAX_READ) { values.hyper()? } else { u64::MAX };
    let write_max = if has(MAX_WRITE) { values.hyper()? } else { u64::MAX };
    Ok(Attributes { kind, size_bytes, lease_s, request_bytes_max: read_max.min(write_max) })
}
