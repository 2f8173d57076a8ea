//! Encodes calls of the NFS 4.1 procedure COMPOUND, and decodes their replies.
//!
//! A call is an RPC message (RFC 5531, section 9) in a record of one fragment (section 11). The
//! credential in the message contains the user and the groups of this process (AUTH_SYS, appendix
//! A). The server runs the operations of a call in order until an operation fails (RFC 8881,
//! section 16.2). In a session the first operation is SEQUENCE, which contains the slot of the
//! session (section 18.46).

use std::fs;

use super::xdr::{Decoder, Encoder, Flaw};

/// The bit that is set in the record mark of the last fragment of a record (RFC 5531, section 11).
pub(super) const LAST_FRAGMENT: u32 = 1 << 31;
/// The size of a record mark (bytes).
pub(super) const MARK_BYTES: usize = 4;

/// Message types (RFC 5531, section 9).
const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;
/// The RPC numbers of the NFS program, its version and its procedure COMPOUND (RFC 8881, section
/// 16).
const PROGRAM: u32 = 100_003;
const VERSION: u32 = 4;
const COMPOUND: u32 = 1;
const MINOR_VERSION: u32 = 1;
/// Flavors of credentials and verifiers (RFC 5531, section 8.2).
const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;
/// The maximum length of a verifier's body (bytes; RFC 5531, section 8.2).
const VERIFIER_BYTES_MAX: u32 = 400;
/// The maximum length of the machine name that is sent (bytes). AUTH_SYS allows 255.
const MACHINE_BYTES_MAX: usize = 64;
/// The maximum number of supplementary groups in AUTH_SYS (RFC 5531, appendix A).
const GROUPS_MAX: usize = 16;
/// The maximum length of a reply's tag (bytes). The tag should be empty, because a server repeats
/// the tag of the call and this client sends an empty tag.
const TAG_BYTES_MAX: u32 = 1024;

/// The numbers of the operations (RFC 8881, section 16.2.3 and chapter 18).
pub(super) const COMMIT: u32 = 5;
pub(super) const GETATTR: u32 = 9;
pub(super) const GETFH: u32 = 10;
pub(super) const LOOKUP: u32 = 15;
pub(super) const OPEN: u32 = 18;
pub(super) const PUTFH: u32 = 22;
pub(super) const PUTROOTFH: u32 = 24;
pub(super) const READ: u32 = 25;
pub(super) const WRITE: u32 = 38;
pub(super) const EXCHANGE_ID: u32 = 42;
pub(super) const CREATE_SESSION: u32 = 43;
pub(super) const SEQUENCE: u32 = 53;
pub(super) const RECLAIM_COMPLETE: u32 = 58;

/// The number of bytes before the data in a reply to READ, if the reply's verifier and tag are
/// empty. The record mark is not counted.
pub(super) const READ_HEAD_BYTES: u32 = 104;

/// The identifier of a session (RFC 8881, section 2.10).
pub(super) type SessionId = [u8; 16];

/// The user for whom the calls are made.
#[derive(Debug)]
pub(super) struct Caller {
    /// The encoded credential, followed by an empty verifier.
    credential: Vec<u8>,
}

impl Caller {
    /// Returns the user of this process, with its group and supplementary groups.
    pub(super) fn of_this_process() -> Caller {
        // SAFETY: both calls take no arguments and always succeed.
        let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        Caller::new(machine().as_bytes(), user, group, &groups())
    }

    #[cfg(test)]
    pub(super) fn of_test() -> Caller {
        Caller::new(b"test", 1, 2, &[])
    }

    fn new(machine: &[u8], user: u32, group: u32, groups: &[u32]) -> Caller {
        let machine = &machine[..machine.len().min(MACHINE_BYTES_MAX)];
        let groups = &groups[..groups.len().min(GROUPS_MAX)];
        let mut body = Encoder::default();
        // The first word is the stamp, whose value is arbitrary.
        body.word(0).opaque(machine).word(user).word(group).word(groups.len() as u32);
        for group in groups {
            body.word(*group);
        }
        let mut credential = Encoder::default();
        credential.word(AUTH_SYS).opaque(&body.0).word(AUTH_NONE).word(0);
        Caller { credential: credential.0 }
    }

    /// Begins a call. `operations` is the number of operations that the calling code then appends.
    pub(super) fn begin(&self, xid: u32, operations: u32) -> Encoder {
        let mut call = Encoder::with_capacity(512);
        // The first word is the record mark, which `finish` sets.
        call.word(0).word(xid).word(CALL).word(RPC_VERSION);
        call.word(PROGRAM).word(VERSION).word(COMPOUND).fixed(&self.credential);
        call.opaque(b"").word(MINOR_VERSION).word(operations);
        call
    }
}

/// Sets the record mark of a call, and returns the bytes of the call. The caller must send
/// `following_bytes` more bytes after them, which belong to the same call.
pub(super) fn finish(call: Encoder, following_bytes: u32) -> Vec<u8> {
    let mut bytes = call.0;
    let length = (bytes.len() - MARK_BYTES) as u32 + following_bytes;
    bytes[..MARK_BYTES].copy_from_slice(&(length | LAST_FRAGMENT).to_be_bytes());
    bytes
}

/// Returns the host name of this machine.
pub(super) fn machine() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// Returns the supplementary groups of this process.
fn groups() -> Vec<u32> {
    // SAFETY: with a size of 0 the call only returns the number of groups.
    let count = unsafe { libc::getgroups(0, std::ptr::null_mut()) };
    let mut groups = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: the array has as many elements as the first argument states.
    let count = unsafe { libc::getgroups(groups.len() as libc::c_int, groups.as_mut_ptr()) };
    groups.truncate(usize::try_from(count).unwrap_or(0));
    groups
}

/// The beginning of a reply, up to the results of the operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    /// The transaction identifier of the call.
    pub xid: u32,
    /// Whether the server executed the call.
    pub outcome: Outcome,
}

/// Whether the server executed a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The results of `count` operations follow. `status` is the status of the last operation.
    Results { status: u32, count: u32 },
    /// The server did not execute the call. The strings are the reason and the remedy.
    Refused(&'static str, &'static str),
}

/// Reads a reply up to the results of its operations.
pub(super) fn reply(decoder: &mut Decoder<'_>) -> Result<Reply, Flaw> {
    let xid = decoder.word()?;
    if decoder.word()? != REPLY {
        return Err(Flaw::Wrong("sent a message that is not an RPC reply"));
    }
    let outcome = match decoder.word()? {
        // MSG_ACCEPTED
        0 => accepted(decoder)?,
        // MSG_DENIED
        1 => match decoder.word()? {
            1 => Outcome::Refused(
                "the server refuses the credential of this user (AUTH_SYS)",
                "allow sec=sys for the export",
            ),
            _ => Outcome::Refused("the server does not speak RPC version 2", "check the port"),
        },
        _ => return Err(Flaw::Wrong("sent an RPC reply with an undefined status")),
    };
    Ok(Reply { xid, outcome })
}

fn accepted(decoder: &mut Decoder<'_>) -> Result<Outcome, Flaw> {
    let _flavor = decoder.word()?;
    decoder.opaque(VERIFIER_BYTES_MAX)?;
    Ok(match decoder.word()? {
        // SUCCESS
        0 => {
            let status = decoder.word()?;
            decoder.opaque(TAG_BYTES_MAX)?;
            Outcome::Results { status, count: decoder.word()? }
        }
        // PROG_UNAVAIL
        1 => Outcome::Refused("the server does not offer NFS", "check the port"),
        // PROG_MISMATCH
        2 => {
            Outcome::Refused("the server does not offer NFS 4", "enable version 4.1 on the server")
        }
        // PROC_UNAVAIL, GARBAGE_ARGS, SYSTEM_ERR
        3..=5 => {
            Outcome::Refused("the server could not execute a call", "check the log of the server")
        }
        _ => return Err(Flaw::Wrong("sent an RPC reply with an undefined status")),
    })
}

/// Checks that the next result in a reply belongs to `operation`, and returns the status of this
/// operation.
pub(super) fn result(decoder: &mut Decoder<'_>, operation: u32) -> Result<u32, Flaw> {
    if decoder.word()? != operation {
        return Err(Flaw::Wrong("sent the result of another operation"));
    }
    decoder.word()
}

/// The position of a call in a session: its slot, and its number in this slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// The identifier of the session.
    pub session: SessionId,
    /// The sequence number of the call in its slot.
    pub sequence: u32,
    /// The number of the slot.
    pub slot: u32,
}

impl Turn {
    /// Adds the operation SEQUENCE to a call. `highest_slot` is the highest slot with an
    /// outstanding call. The server need not cache the reply (the last word is 0), because no call
    /// is sent twice.
    pub(super) fn encode(&self, highest_slot: u32, call: &mut Encoder) {
        call.word(SEQUENCE).fixed(&self.session).word(self.sequence).word(self.slot);
        call.word(highest_slot).word(0);
    }
}

/// The result of SEQUENCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sequenced {
    /// SEQUENCE succeeded. `target_slot` is the highest slot that the server wants the client to
    /// use.
    Run { target_slot: u32 },
    /// SEQUENCE failed with this status. The call does not use up the sequence number of its slot.
    Failed(u32),
}

/// Reads the result of SEQUENCE, and checks that it belongs to `turn`.
pub(super) fn sequenced(decoder: &mut Decoder<'_>, turn: &Turn) -> Result<Sequenced, Flaw> {
    let status = result(decoder, SEQUENCE)?;
    if status != 0 {
        return Ok(Sequenced::Failed(status));
    }
    let (session, sequence, slot) = (decoder.array()?, decoder.word()?, decoder.word()?);
    if (Turn { session, sequence, slot }) != *turn {
        return Err(Flaw::Wrong("sent a reply to a request that is not outstanding"));
    }
    let _highest_slot = decoder.word()?;
    let target_slot = decoder.word()?;
    let _status_flags = decoder.word()?;
    Ok(Sequenced::Run { target_slot })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Turn = Turn { session: *b"0123456789abcdef", sequence: 7, slot: 2 };

    #[test]
    fn a_call_is_encoded_as_in_the_specification() {
        let mut call = Caller::new(b"host1", 1000, 100, &[4]).begin(0x0102_0304, 1);
        TURN.encode(3, &mut call);
        let expected: Vec<u8> = [
            // The record mark: this is the last fragment, of 128 bytes. 120 bytes of the fragment
            // are in this array, and 8 bytes follow.
            &b"\x80\0\0\x80"[..],
            // xid, CALL, RPC 2, program 100003, version 4, procedure 1.
            b"\x01\x02\x03\x04\0\0\0\0\0\0\0\x02\0\x01\x86\xa3\0\0\0\x04\0\0\0\x01",
            // AUTH_SYS with 32 bytes: stamp, machine, user, group, one supplementary group.
            b"\0\0\0\x01\0\0\0\x20\0\0\0\0\0\0\0\x05host1\0\0\0",
            b"\0\0\x03\xe8\0\0\0\x64\0\0\0\x01\0\0\0\x04",
            // AUTH_NONE, an empty tag, minor version 1, one operation.
            b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x01",
            // SEQUENCE: session, sequence number, slot, highest slot, no caching of the reply.
            b"\0\0\0\x35",
            b"0123456789abcdef\0\0\0\x07\0\0\0\x02\0\0\0\x03\0\0\0\0",
        ]
        .concat();
        assert_eq!(finish(call, 8), expected);
    }

    #[test]
    fn a_reply_is_read_up_to_its_results() {
        let bytes: Vec<u8> = [
            &b"\x01\x02\x03\x04\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"[..],
            b"\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x35\0\0\0\0",
            b"0123456789abcdef\0\0\0\x07\0\0\0\x02\0\0\0\x3f\0\0\0\x1f\0\0\0\0",
        ]
        .concat();
        let mut decoder = Decoder::new(&bytes);
        let outcome = Outcome::Results { status: 0, count: 1 };
        assert_eq!(reply(&mut decoder), Ok(Reply { xid: 0x0102_0304, outcome }));
        let other = Turn { slot: 3, ..TURN };
        assert!(matches!(sequenced(&mut decoder.clone(), &other), Err(Flaw::Wrong(_))));
        assert_eq!(sequenced(&mut decoder, &TURN), Ok(Sequenced::Run { target_slot: 31 }));
        for length in 0..bytes.len() {
            let mut decoder = Decoder::new(&bytes[..length]);
            let read = reply(&mut decoder).and_then(|_| sequenced(&mut decoder, &TURN));
            assert!(matches!(read, Err(Flaw::Short(needed)) if needed > length), "{length}");
        }
    }

    #[test]
    fn refusals_of_rpc_are_named() {
        let refused = |words: &[u32]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            match reply(&mut Decoder::new(&bytes)).unwrap().outcome {
                Outcome::Refused(what, _) => what,
                results => panic!("{results:?}"),
            }
        };
        assert!(refused(&[9, 1, 1, 1, 5]).contains("refuses the credential"));
        assert!(refused(&[9, 1, 1, 0, 2, 2]).contains("RPC version 2"));
        assert!(refused(&[9, 1, 0, 0, 0, 1]).contains("not offer NFS"));
        assert!(refused(&[9, 1, 0, 0, 0, 2, 3, 3]).contains("not offer NFS 4"));
        assert!(refused(&[9, 1, 0, 0, 0, 5]).contains("could not execute"));
    }
}
