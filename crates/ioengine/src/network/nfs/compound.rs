//! Calls of the procedure COMPOUND of NFS 4.1, and their replies.
//!
//! A call is an RPC message (RFC 5531, section 9) in one fragment of a record (section 11), with
//! the user and group of this process as credential (AUTH_SYS, appendix A). Its operations are run
//! in order until one fails (RFC 8881, section 16.2). The first one is SEQUENCE, which names the
//! slot of the session (section 18.46).

use std::fs;

use super::xdr::{Decoder, Encoder, Flaw};

/// The bit of a record mark that says that the fragment is the last one (RFC 5531, section 11).
pub(super) const LAST_FRAGMENT: u32 = 1 << 31;
/// Size of a record mark (bytes).
pub(super) const MARK_BYTES: usize = 4;

/// Message types (RFC 5531, section 9).
const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;
/// The NFS program, its version and the procedure COMPOUND (RFC 8881, section 16).
const PROGRAM: u32 = 100_003;
const VERSION: u32 = 4;
const COMPOUND: u32 = 1;
const MINOR_VERSION: u32 = 1;
/// Flavors of credentials and verifiers (RFC 5531, section 8.2).
const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;
/// The longest body of a verifier (RFC 5531, section 8.2) (bytes).
const VERIFIER_BYTES_MAX: u32 = 400;
/// The longest machine name that is sent (bytes). AUTH_SYS allows 255.
const MACHINE_BYTES_MAX: usize = 64;
/// The most supplementary groups of AUTH_SYS (RFC 5531, appendix A).
const GROUPS_MAX: usize = 16;
/// The longest tag of a reply that is accepted (bytes). Calls have no tag, so replies have none
/// either.
const TAG_BYTES_MAX: u32 = 1024;

/// Numbers of operations (RFC 8881, section 16.2.3, and the sections of chapter 18).
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

/// Size of the head of the reply to a call with one READ: everything in front of the data, without
/// the record mark, with an empty verifier and an empty tag (bytes).
pub(super) const READ_HEAD_BYTES: u32 = 104;

/// A session of the server (RFC 8881, section 2.10).
pub(super) type SessionId = [u8; 16];

/// Who makes the calls.
#[derive(Debug)]
pub(super) struct Caller {
    /// The encoded credential, and an empty verifier.
    credential: Vec<u8>,
}

impl Caller {
    /// The user, the group and the supplementary groups of this process.
    pub(super) fn of_this_process() -> Caller {
        // SAFETY: both calls take nothing and always succeed.
        let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        Caller::new(machine().as_bytes(), user, group, &groups())
    }

    /// A caller for tests.
    #[cfg(test)]
    pub(super) fn of_test() -> Caller {
        Caller::new(b"test", 1, 2, &[])
    }

    fn new(machine: &[u8], user: u32, group: u32, groups: &[u32]) -> Caller {
        let machine = &machine[..machine.len().min(MACHINE_BYTES_MAX)];
        let groups = &groups[..groups.len().min(GROUPS_MAX)];
        let mut body = Encoder::default();
        // The stamp is arbitrary.
        body.word(0).opaque(machine).word(user).word(group).word(groups.len() as u32);
        for group in groups {
            body.word(*group);
        }
        let mut credential = Encoder::default();
        credential.word(AUTH_SYS).opaque(&body.0).word(AUTH_NONE).word(0);
        Caller { credential: credential.0 }
    }

    /// Begins a call of `operations` operations.
    pub(super) fn begin(&self, xid: u32, operations: u32) -> Encoder {
        let mut call = Encoder::with_capacity(512);
        // The record mark follows in `finish`.
        call.word(0).word(xid).word(CALL).word(RPC_VERSION);
        call.word(PROGRAM).word(VERSION).word(COMPOUND).fixed(&self.credential);
        call.opaque(b"").word(MINOR_VERSION).word(operations);
        call
    }
}

/// Completes the bytes of a call, after which `following_bytes` more bytes of it are sent.
pub(super) fn finish(call: Encoder, following_bytes: u32) -> Vec<u8> {
    let mut bytes = call.0;
    let length = (bytes.len() - MARK_BYTES) as u32 + following_bytes;
    bytes[..MARK_BYTES].copy_from_slice(&(length | LAST_FRAGMENT).to_be_bytes());
    bytes
}

/// The name of this machine.
pub(super) fn machine() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// The supplementary groups of this process.
fn groups() -> Vec<u32> {
    // SAFETY: with a size of 0 the call only returns the number of groups.
    let count = unsafe { libc::getgroups(0, std::ptr::null_mut()) };
    let mut groups = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: the array has as many elements as the call is told.
    let count = unsafe { libc::getgroups(groups.len() as libc::c_int, groups.as_mut_ptr()) };
    groups.truncate(usize::try_from(count).unwrap_or(0));
    groups
}

/// The first part of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    /// The number of the call.
    pub xid: u32,
    /// How the call went.
    pub outcome: Outcome,
}

/// How a call went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The results of the operations follow. `status` is that of the last one.
    Results { status: u32, count: u32 },
    /// The server did not run the call: what is wrong, and the remedy.
    Refused(&'static str, &'static str),
}

/// Reads a reply up to the results of its operations.
pub(super) fn reply(decoder: &mut Decoder<'_>) -> Result<Reply, Flaw> {
    let xid = decoder.word()?;
    if decoder.word()? != REPLY {
        return Err(Flaw::Wrong("sent something else than a reply of RPC"));
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
        _ => return Err(Flaw::Wrong("sent a reply of RPC that is not defined")),
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
        1 => Outcome::Refused("the server has no NFS", "check the port"),
        // PROG_MISMATCH
        2 => Outcome::Refused("the server has no NFS 4", "enable version 4.1 on the server"),
        // PROC_UNAVAIL, GARBAGE_ARGS, SYSTEM_ERR
        3..=5 => {
            Outcome::Refused("the server could not run a call", "look into the log of the server")
        }
        _ => return Err(Flaw::Wrong("sent a reply of RPC that is not defined")),
    })
}

/// Reads the number of an operation in a reply, and returns its status.
pub(super) fn result(decoder: &mut Decoder<'_>, operation: u32) -> Result<u32, Flaw> {
    if decoder.word()? != operation {
        return Err(Flaw::Wrong("sent the result of another operation"));
    }
    decoder.word()
}

/// The slot of a session that a call uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// The session.
    pub session: SessionId,
    /// The sequence number of the call in its slot.
    pub sequence: u32,
    /// The slot.
    pub slot: u32,
}

impl Turn {
    /// Adds the operation SEQUENCE. `highest_slot` is the highest slot with an outstanding call.
    /// The server need not keep the reply, because calls are never sent again.
    pub(super) fn encode(&self, highest_slot: u32, call: &mut Encoder) {
        call.word(SEQUENCE).fixed(&self.session).word(self.sequence).word(self.slot);
        call.word(highest_slot).word(0);
    }
}

/// The result of SEQUENCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sequenced {
    /// The other operations were run. `target_slot` is the highest slot that the server wants the
    /// client to use.
    Run { target_slot: u32 },
    /// SEQUENCE failed with this status. The call does not use up the sequence number of its slot.
    Failed(u32),
}

/// Reads the result of SEQUENCE, which must be that of `turn`.
pub(super) fn sequenced(decoder: &mut Decoder<'_>, turn: &Turn) -> Result<Sequenced, Flaw> {
    let status = result(decoder, SEQUENCE)?;
    if status != 0 {
        return Ok(Sequenced::Failed(status));
    }
    let (session, sequence, slot) = (decoder.array()?, decoder.word()?, decoder.word()?);
    if (Turn { session, sequence, slot }) != *turn {
        return Err(Flaw::Wrong("answered a request that is not outstanding"));
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
            // The record mark: the last fragment, 120 bytes; 8 more follow.
            &b"\x80\0\0\x80"[..],
            // xid, CALL, RPC 2, program 100003, version 4, procedure 1.
            b"\x01\x02\x03\x04\0\0\0\0\0\0\0\x02\0\x01\x86\xa3\0\0\0\x04\0\0\0\x01",
            // AUTH_SYS of 32 bytes: stamp, machine, user, group, one more group.
            b"\0\0\0\x01\0\0\0\x20\0\0\0\0\0\0\0\x05host1\0\0\0",
            b"\0\0\x03\xe8\0\0\0\x64\0\0\0\x01\0\0\0\x04",
            // AUTH_NONE, no tag, minor version 1, one operation.
            b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x01",
            // SEQUENCE: session, sequence, slot, highest slot, not to be kept.
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
        assert!(refused(&[9, 1, 0, 0, 0, 1]).contains("no NFS"));
        assert!(refused(&[9, 1, 0, 0, 0, 2, 3, 3]).contains("no NFS 4"));
        assert!(refused(&[9, 1, 0, 0, 0, 5]).contains("could not run"));
    }
}
