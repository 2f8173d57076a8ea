//! A client for SMB version 2.1 (dialect 0x0210).
//!
//! Source: MS-SMB2. The set-up negotiates the dialect, authenticates (`ntlm`, wrapped in `spnego`),
//! connects to the share and opens the file. Then `transfer` reads and writes. The server limits
//! the number of outstanding requests by the credits that it grants (`session`). The client caches
//! nothing, because it requests no oplock and no lease. If the user is authenticated, messages are
//! signed in both directions. Messages of guests are not signed, because a guest has no key.
//! Encryption is not supported, because it requires version 3.0.

mod message;
mod signing;
mod status;
mod session;
mod spnego;
mod ntlm;
mod transfer;

use crate::error::Error;
use crate::network::protocol::Opened;
use crate::network::wire::Wire;
use crate::network::{Access, RemoteInfo};

use message::{CREATE, Message, NEGOTIATE, SESSION_SETUP, TREE_CONNECT};
use message::{HEADER_BYTES, array, le16, le32, le64, named};
use ntlm::{Challenge, Login, Nonce, utf16};
use session::{CREDIT_BYTES, Reply, Session};
use signing::Signer;
use transfer::Transfer;

/// The dialect 2.1 (MS-SMB2 2.2.3).
const DIALECT: u16 = 0x0210;
/// SMB2_NEGOTIATE_SIGNING_ENABLED (MS-SMB2 2.2.3).
const SIGNING_ENABLED: u16 = 1;
/// SMB2_GLOBAL_CAP_LARGE_MTU: the server allows requests of more than 64 KiB (MS-SMB2 2.2.4).
const CAPABILITY_LARGE_MTU: u32 = 4;
/// SMB2_SESSION_FLAG_IS_GUEST and SMB2_SESSION_FLAG_IS_NULL (MS-SMB2 2.2.6).
const SESSION_GUEST: u16 = 1;
const SESSION_ANONYMOUS: u16 = 2;
/// SMB2_SHARE_TYPE_DISK (MS-SMB2 2.2.10).
const SHARE_DISK: u8 = 1;

/// Access rights to a file (MS-SMB2 2.2.13.1.1).
const FILE_READ_DATA: u32 = 1;
const FILE_WRITE_DATA: u32 = 1 << 1;
const FILE_READ_ATTRIBUTES: u32 = 1 << 7;
const SYNCHRONIZE: u32 = 1 << 20;
/// Impersonation level "Impersonation" (MS-SMB2 2.2.13).
const IMPERSONATION: u32 = 2;
/// Allows other clients to read, write and delete the file while it is open (MS-SMB2 2.2.13).
const SHARE_ALL: u32 = 7;
/// FILE_OPEN: opens the file only if it exists (MS-SMB2 2.2.13).
const FILE_OPEN: u32 = 1;
/// Options of CREATE (MS-SMB2 2.2.13). FILE_NON_DIRECTORY_FILE refuses directories. With
/// FILE_WRITE_THROUGH, the server makes each write durable before it responds.
const FILE_NON_DIRECTORY_FILE: u32 = 1 << 6;
const FILE_WRITE_THROUGH: u32 = 1 << 1;
/// FILE_ATTRIBUTE_DIRECTORY (MS-FSCC 2.6).
const ATTRIBUTE_DIRECTORY: u32 = 1 << 4;

/// The maximum size of a request (bytes). Common servers do not allow more.
const REQUEST_BYTES_MAX: u32 = 8 << 20;
/// The maximum length of the name of a user, domain, share or file (characters). With this limit,
/// all lengths in messages fit into 16 bits.
const NAME_CHARACTERS_MAX: usize = 4096;

/// What the server reports in its response to NEGOTIATE.
struct Server {
    request_bytes_max: u32,
    /// The server's time (in units of 100 ns since 1601).
    time: [u8; 8],
}

/// The kind of login that the server has accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    User,
    Guest,
    Anonymous,
}

impl Identity {
    fn name(self) -> &'static str {
        match self {
            Identity::User => "signed",
            Identity::Guest => "guest",
            Identity::Anonymous => "anonymous",
        }
    }
}

/// Authenticates with the server, and opens the file.
pub(super) fn open(mut wire: Wire, access: &Access) -> Result<Opened, Error> {
    let (share, path) = access.address.first_and_rest();
    if share.is_empty() || path.trim_start_matches('/').is_empty() {
        let what = "the address must contain a share and a file";
        return Err(wire.refused(what, "use smb://[USER@]HOST[:PORT]/SHARE/PATH/FILE"));
    }
    let user = user(access);
    let names = [&access.address.host, user.user, user.domain, user.password, &access.address.path];
    if names.iter().any(|name| name.chars().count() > NAME_CHARACTERS_MAX) {
        let what = format!("a name has more than {NAME_CHARACTERS_MAX} characters");
        return Err(wire.refused(what, "shorten the names in the address and the user name"));
    }
    let mut session = Session::new();
    let server = negotiate(&mut session, &mut wire)?;
    let identity = authenticate(&mut session, &mut wire, user, server.time)?;
    let rights = connect_tree(&mut session, &mut wire, &access.address.host, share)?;
    if access.writable && rights & FILE_WRITE_DATA == 0 {
        let what = format!("the share '{share}' is read-only{}", for_user(user, identity));
        return Err(wire.refused(what, "use `rw=read`, or use another share or user"));
    }
    let reply = create(&mut session, &mut wire, access, path)?;
    if reply.header.status != status::SUCCESS {
        return Err(not_opened(&wire, access, reply.header.status, &for_user(user, identity)));
    }
    let (file, size_bytes) = opened(&reply.body).map_err(|what| wire.violated(what))?;
    let (credits, request_bytes_max) = (session.credits(), server.request_bytes_max);
    if credits == 0 {
        return Err(wire.violated("granted no credits, so no request can be sent"));
    }
    let features = format!(
        "SMB 2.1, {}, {credits} credits, requests up to {} KiB",
        identity.name(),
        request_bytes_max >> 10
    );
    let info = RemoteInfo { size_bytes, block_bytes: 1, request_bytes_max, features };
    let name = access.address.to_string();
    let transfer = Transfer::new(name, session, file, access.writable, request_bytes_max);
    Ok(Opened { wire, protocol: Box::new(transfer), info })
}

/// Returns the user in the address, or else the user in the credentials. If the name of the user is
/// empty, the client is anonymous.
fn user(access: &Access) -> Login<'_> {
    let credentials = access.credentials.as_ref();
    let of_credentials = credentials.map(|credentials| &*credentials.user);
    let name = access.address.user.as_deref().or(of_credentials).unwrap_or("");
    let (domain, user) = name.split_once('\\').unwrap_or(("", name));
    Login { domain, user, password: credentials.map_or("", |credentials| &credentials.password) }
}

/// Returns the part of an error message that names the user, for example " for the user 'x'".
fn for_user(login: Login<'_>, identity: Identity) -> String {
    match identity {
        Identity::User => format!(" for the user '{}'", login.user),
        Identity::Guest => " for guests".to_owned(),
        Identity::Anonymous => " for anonymous users".to_owned(),
    }
}

/// Negotiates the dialect (MS-SMB2 2.2.3 and 2.2.4).
fn negotiate(session: &mut Session, wire: &mut Wire) -> Result<Server, Error> {
    let message = Message::new(36).u16(1).u16(SIGNING_ENABLED).u16(0).u32(0);
    let message = message.bytes(&random::<16>()?).u64(0).u16(DIALECT);
    let reply = session.exchange(wire, NEGOTIATE, message)?;
    if reply.header.status != status::SUCCESS {
        let what = match reply.header.status {
            status::NOT_SUPPORTED => "the server does not allow SMB 2.1".to_owned(),
            status => format!("the server refused to negotiate SMB 2.1 ({})", status::name(status)),
        };
        return Err(wire.refused(what, "allow version 2.1 (SMB2_10) on the server"));
    }
    let body = &reply.body[..];
    let parse = || {
        if (le16(body, 0)?, le16(body, 4)?) != (65, DIALECT) {
            return Err("chose a version of SMB that was not offered");
        }
        let multi_credit = le32(body, 24)? & CAPABILITY_LARGE_MTU != 0;
        let largest = if multi_credit { REQUEST_BYTES_MAX } else { CREDIT_BYTES };
        let request_bytes_max = le32(body, 32)?.min(le32(body, 36)?).min(largest);
        if request_bytes_max == 0 {
            return Err("allows no reads or writes");
        }
        Ok((multi_credit, Server { request_bytes_max, time: array(body, 40)? }))
    };
    let (multi_credit, server) = parse().map_err(|what| wire.violated(what))?;
    session.multi_credit = multi_credit;
    Ok(server)
}

/// Logs on with NTLM in two rounds (MS-SMB2 2.2.5 and 2.2.6). Afterwards, the messages
/// of an authenticated user are signed. The messages of guests and anonymous clients are not.
fn authenticate(
    session: &mut Session,
    wire: &mut Wire,
    login: Login<'_>,
    time: [u8; 8],
) -> Result<Identity, Error> {
    let token = spnego::first(&ntlm::negotiate());
    let reply = session.exchange(wire, SESSION_SETUP, session_setup(&token))?;
    if reply.header.status != status::MORE_PROCESSING_REQUIRED {
        let status = status::name(reply.header.status);
        let what = format!("the server refused to authenticate with NTLM ({status})");
        return Err(wire.refused(what, "allow NTLMv2 on the server"));
    }
    session.session_id = reply.header.session_id;
    let token = security_buffer(&reply.body).map_err(|what| wire.violated(what))?;
    let challenge = spnego::answer(token).ok_or("sent no NTLM message");
    let challenge = challenge.and_then(Challenge::parse).map_err(|what| wire.violated(what))?;
    let nonce = Nonce { client_challenge: random()?, time };
    let answer = challenge.answer((!login.user.is_empty()).then_some(login), &nonce);
    let signature = answer.signature(&spnego::mechanisms());
    let token = spnego::next(&answer.message, signature);
    let reply = session.exchange(wire, SESSION_SETUP, session_setup(&token))?;
    if reply.header.status != status::SUCCESS {
        return Err(not_logged_on(wire, login, reply.header.status));
    }
    let flags = le16(&reply.body, 2).map_err(|what| wire.violated(what))?;
    let key = answer.session_key.filter(|_| flags & (SESSION_GUEST | SESSION_ANONYMOUS) == 0);
    let Some(key) = key else {
        let is_guest = flags & SESSION_GUEST != 0;
        return Ok(if is_guest { Identity::Guest } else { Identity::Anonymous });
    };
    let signer = Signer::new(&key);
    if reply.header.is_signed() && !reply.is_verified_by(signer.verifier(&reply.head)) {
        return Err(session::wrong_signature(&wire.name));
    }
    session.signer = Some(signer);
    Ok(Identity::User)
}

/// Returns a SESSION_SETUP request with an authentication token (MS-SMB2 2.2.5).
fn session_setup(token: &[u8]) -> Message {
    let offset = HEADER_BYTES as u16 + 24;
    let message = Message::new(25).u8(0).u8(SIGNING_ENABLED as u8).u32(0).u32(0);
    message.u16(offset).u16(token.len() as u16).u64(0).bytes(token)
}

/// Returns the authentication token in the body of a SESSION_SETUP response (MS-SMB2 2.2.6).
fn security_buffer(body: &[u8]) -> Result<&[u8], &'static str> {
    named(body, le16(body, 4)?, le16(body, 6)?)
}

fn not_logged_on(wire: &Wire, login: Login<'_>, status: u32) -> Error {
    let (user, status_name) = (login.user, status::name(status));
    if user.is_empty() {
        let what = format!("the server does not accept anonymous users ({status_name})");
        let remedy = "specify a user in the address, and the password in HALFPOWER_PASSWORD";
        return wire.refused(what, remedy);
    }
    match status {
        status::LOGON_FAILURE | status::WRONG_PASSWORD | status::NO_SUCH_USER => {
            let what = format!("the server refused the user '{user}' or the password");
            wire.refused(what, "check the user, and the password in HALFPOWER_PASSWORD")
        }
        status::ACCOUNT_DISABLED
        | status::ACCOUNT_LOCKED_OUT
        | status::ACCOUNT_RESTRICTION
        | status::PASSWORD_EXPIRED => {
            let what = format!("the user '{user}' is not allowed to log on ({status_name})");
            wire.refused(what, "check the account on the server")
        }
        _ => {
            let what = format!("the server refused to log on the user '{user}' ({status_name})");
            wire.refused(what, "check the log of the server")
        }
    }
}

/// Connects to the share (MS-SMB2 2.2.9 and 2.2.10), and returns the user's access rights to the
/// share.
fn connect_tree(
    session: &mut Session,
    wire: &mut Wire,
    host: &str,
    share: &str,
) -> Result<u32, Error> {
    let path = utf16(&format!("\\\\{host}\\{share}"));
    let message = Message::new(9).u16(0).u16(HEADER_BYTES as u16 + 8);
    let message = message.u16(path.len() as u16).bytes(&path);
    let reply = session.exchange(wire, TREE_CONNECT, message)?;
    match reply.header.status {
        status::SUCCESS => {}
        status::BAD_NETWORK_NAME => {
            let what = format!("there is no share '{share}'");
            return Err(wire.refused(what, "check the name of the share"));
        }
        status::ACCESS_DENIED => {
            let what = format!("the server denies this user access to the share '{share}'");
            let remedy = "use another user, or check whether the share requires encryption";
            return Err(wire.refused(what, remedy));
        }
        status => {
            let what = format!("the server refused the share '{share}' ({})", status::name(status));
            return Err(wire.refused(what, "check the log of the server"));
        }
    }
    session.tree_id = reply.header.tree_id;
    let parse = || Ok((le16(&reply.body, 0)?, array::<1>(&reply.body, 2)?, le32(&reply.body, 12)?));
    match parse().map_err(|what: &str| wire.violated(what))? {
        (16, [SHARE_DISK], rights) => Ok(rights),
        (16, _, _) => {
            let what = format!("the share '{share}' is not a file share");
            Err(wire.refused(what, "specify a file share"))
        }
        _ => Err(wire.violated("sent an invalid response to TREE_CONNECT")),
    }
}

/// Sends a CREATE request, which opens the file, and returns the response (MS-SMB2 2.2.13).
fn create(
    session: &mut Session,
    wire: &mut Wire,
    access: &Access,
    path: &str,
) -> Result<Reply, Error> {
    let name = utf16(&path.trim_start_matches('/').replace('/', "\\"));
    let write = if access.writable { FILE_WRITE_DATA } else { 0 };
    let rights = FILE_READ_DATA | FILE_READ_ATTRIBUTES | SYNCHRONIZE | write;
    let durable = if access.durable { FILE_WRITE_THROUGH } else { 0 };
    // The request contains no oplock, no flags, no attributes and no contexts. The name is the last
    // field. This field must have at least one byte, so only an empty name would need padding.
    let message = Message::new(57).u8(0).u8(0).u32(IMPERSONATION).u64(0).u64(0).u32(rights).u32(0);
    let message = message.u32(SHARE_ALL).u32(FILE_OPEN).u32(FILE_NON_DIRECTORY_FILE | durable);
    let message = message.u16(HEADER_BYTES as u16 + 56).u16(name.len() as u16).u32(0).u32(0);
    session.exchange(wire, CREATE, message.bytes(&name))
}

/// Returns the identifier and the size of the file from the body of a CREATE response (MS-SMB2
/// 2.2.14).
fn opened(body: &[u8]) -> Result<([u8; 16], u64), &'static str> {
    if le16(body, 0)? != 89 || le32(body, 56)? & ATTRIBUTE_DIRECTORY != 0 {
        return Err("opened something that is not a file");
    }
    Ok((array(body, 64)?, le64(body, 48)?))
}

fn not_opened(wire: &Wire, access: &Access, status: u32, for_user: &str) -> Error {
    let (share, path) = access.address.first_and_rest();
    match status {
        status::OBJECT_NAME_NOT_FOUND
        | status::OBJECT_PATH_NOT_FOUND
        | status::OBJECT_NAME_INVALID
        | status::OBJECT_PATH_INVALID => {
            let what = format!("there is no file '{path}' in the share '{share}'");
            wire.refused(what, "check the path; the file must exist")
        }
        status::FILE_IS_A_DIRECTORY => {
            wire.refused(format!("'{path}' is a directory"), "specify a file")
        }
        status::ACCESS_DENIED | status::MEDIA_WRITE_PROTECTED if access.writable => {
            let what = format!("'{path}' is not writable{for_user}");
            wire.refused(what, "use `rw=read`, or check the permissions")
        }
        status::ACCESS_DENIED => {
            let what = format!("'{path}' is not readable{for_user}");
            wire.refused(what, "check the permissions")
        }
        status::SHARING_VIOLATION => {
            let what = format!("another client uses '{path}' and denies shared access");
            wire.refused(what, "close the file in that client")
        }
        status::PATH_NOT_COVERED => {
            let what = format!("'{path}' is on another server (DFS)");
            wire.refused(what, "use the address of that server")
        }
        status => {
            let what = format!("the server refused to open '{path}' ({})", status::name(status));
            wire.refused(what, "check the log of the server")
        }
    }
}

/// Returns random bytes from the operating system.
fn random<const BYTES: usize>() -> Result<[u8; BYTES], Error> {
    let mut bytes = [0; BYTES];
    // SAFETY: the kernel writes at most `BYTES` bytes into the array. Up to 256 bytes are always
    // returned in full.
    let count = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), BYTES, 0) };
    if count != BYTES as libc::ssize_t {
        return Err(Error::io("getting random numbers", std::io::Error::last_os_error()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Shutdown, TcpStream};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::fuzz::network_server;
    use crate::network::{Credentials, Link, Scheme, Slots, connect_over};
    use crate::request::{Completion, Op, Request};

    /// The bytes that Samba 4.17 sent to a guest, in hexadecimal. The guest opened a file of 96
    /// bytes, read it and wrote it. Every 8 bytes of the file contain their own offset.
    const RECORDED: &[&str] = &[
        "000000cafe534d42400000000000000000000100010000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000004100010010020000746573740000000000000000",
        "00000000070000000000800000008000000080009a3b2365c37cdd01000000000000000080004a0000000000",
        "604806062b0601050502a03e303ca00e300c060a2b06010401823702020aa32a3028a0261b246e6f745f6465",
        "66696e65645f696e5f5246433431373840706c656173655f69676e6f7265000000d9fe534d42400001001600",
        "00c0010001000100000000000000010000000000000000000000000000001753af7c00000000000000000000",
        "000000000000000000000900000048009100a1818e30818ba0030a0101a10c060a2b06010401823702020aa2",
        "7604744e544c4d5353500002000000080008003800000015828aa21a4289e1514b77b1000000000000000034",
        "00340040000000060100000000000f5400450053005400020008005400450053005400010008005400450053",
        "0054000400000003000400680070000700080024512465c37cdd010000000000000051fe534d424000010000",
        "000000010000020100000000000000020000000000000000000000000000001753af7c000000000000000000",
        "00000000000000000000000900010048000900a1073005a0030a010000000050fe534d424000010000000000",
        "030001000100000000000000030000000000000000000000453c1eb41753af7c000000000000000000000000",
        "0000000000000000100001000000000000000000ff011f0000000098fe534d42400001000000000005000100",
        "0100000000000000040000000000000000000000453c1eb41753af7c00000000000000000000000000000000",
        "000000005900000001000000bc959964c37cdd01bc959964c37cdd01bc6b1d65c37cdd01bc6b1d65c37cdd01",
        "0010000000000000600000000000000080000000000000006ac88cd50000000013fb027e0000000000000000",
        "00000000000000b0fe534d424000010000000000080001000100000000000000050000000000000000000000",
        "453c1eb41753af7c000000000000000000000000000000000000000011005000600000000000000000000000",
        "0000000000000000080000000000000010000000000000001800000000000000200000000000000028000000",
        "0000000030000000000000003800000000000000400000000000000048000000000000005000000000000000",
        "580000000000000000000050fe534d4240000100000000000900010001000000000000000600000000000000",
        "00000000453c1eb41753af7c0000000000000000000000000000000000000000110000006000000000000000",
        "00000000",
    ];
    /// The positions at which the recorded messages begin.
    const SESSION_SETUP_1: usize = 206;
    const SESSION_SETUP_2: usize = 427;
    const TREE_CONNECT: usize = 512;
    const CREATE: usize = 596;
    const READ: usize = 752;
    /// The positions of the status, the credits and the body in a message.
    const STATUS: usize = 12;
    const CREDITS: usize = 18;
    const BODY: usize = 68;

    fn recorded() -> Vec<u8> {
        let digits = RECORDED.concat();
        let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        (0..digits.len()).step_by(2).map(byte).collect()
    }

    /// Returns the recorded bytes, overwritten with `other` from position `at`.
    fn with(at: usize, other: &[u8]) -> Vec<u8> {
        let mut bytes = recorded();
        bytes[at..at + other.len()].copy_from_slice(other);
        bytes
    }

    /// Connects to a server that sends `bytes` and ignores the requests. Passes the result to
    /// `act`.
    fn replay<T>(bytes: &[u8], act: impl FnOnce(Result<(Link, RemoteInfo), Error>) -> T) -> T {
        let (client, mut server) = UnixStream::pair().unwrap();
        server.write_all(bytes).unwrap();
        server.shutdown(Shutdown::Write).unwrap();
        let address = "smb://server/a/b?timeout=5".parse().unwrap();
        let wire = Wire::over(TcpStream::from(OwnedFd::from(client)), &address).unwrap();
        let credentials = Credentials { user: "user".to_owned(), password: "x".to_owned() };
        let access =
            Access { address, credentials: Some(credentials), writable: true, durable: false };
        act(connect_over(wire, &access))
    }

    fn refused(bytes: &[u8]) -> String {
        let error = replay(bytes, |connected| connected.map(|(_, info)| info));
        error.expect_err("the server is refused").to_string()
    }

    #[test]
    fn a_recorded_conversation_is_understood() {
        replay(&recorded(), |connected| {
            let (mut link, info) = connected.unwrap();
            let features = "SMB 2.1, guest, 512 credits, requests up to 8192 KiB";
            assert_eq!((info.size_bytes, &*info.features), (96, features));
            let mut memory = [[0xee_u8; 4096]; 2];
            let (mut slots, mut done) = (Slots::new(2), Vec::new());
            for (slot, op) in [(0, Op::Read), (1, Op::Write)] {
                let request = Request { offset: 0, length: 4096, within: 0, slot, file: 0, op };
                // SAFETY: the memory outlives the slots, and no other code uses it while requests
                // are outstanding.
                unsafe { slots.begin(slot, memory[slot as usize].as_mut_ptr(), 4096) };
                link.add(&request, &slots);
            }
            while done.len() < 2 {
                link.send(&slots).unwrap();
                link.wait(&mut slots, &mut done).unwrap();
            }
            let both = [0, 1].map(|slot| Completion { slot, result: 96 });
            assert_eq!(done, both);
            assert_eq!(memory[0][88..104], *b"\x58\0\0\0\0\0\0\0\xee\xee\xee\xee\xee\xee\xee\xee");
        });
    }

    #[test]
    fn refusals_of_the_server_are_named() {
        let named = |at: usize, other: &[u8], what: &str| {
            let message = refused(&with(at, other));
            assert!(message.contains(what), "{message}");
        };
        let status = |at: usize, status: u32, what: &str| {
            named(at + STATUS, &status.to_le_bytes(), what);
        };
        status(0, status::NOT_SUPPORTED, "the server does not allow SMB 2.1; allow version 2.1");
        status(SESSION_SETUP_1, 0xc0de_c0de, "to authenticate with NTLM (status 0xc0dec0de)");
        status(SESSION_SETUP_2, status::LOGON_FAILURE, "refused the user 'user' or the password");
        status(
            SESSION_SETUP_2,
            status::ACCOUNT_DISABLED,
            "is not allowed to log on (STATUS_ACCOUNT_DISABLED)",
        );
        status(TREE_CONNECT, status::BAD_NETWORK_NAME, "there is no share 'a'");
        status(TREE_CONNECT, status::ACCESS_DENIED, "denies this user access to the share 'a'");
        named(TREE_CONNECT + BODY + 2, &[3], "the share 'a' is not a file share");
        named(TREE_CONNECT + BODY + 12, &[0xa9, 0, 0x12, 0], "'a' is read-only for guests");
        status(CREATE, status::OBJECT_NAME_NOT_FOUND, "there is no file 'b' in the share 'a'");
        status(CREATE, status::FILE_IS_A_DIRECTORY, "'b' is a directory");
        status(CREATE, status::ACCESS_DENIED, "'b' is not writable for guests");
        status(CREATE, status::SHARING_VIOLATION, "another client uses 'b'");
        status(CREATE, status::PATH_NOT_COVERED, "'b' is on another server (DFS)");
        status(CREATE, status::INVALID_PARAMETER, "open 'b' (STATUS_INVALID_PARAMETER)");
    }

    #[test]
    fn violations_during_the_set_up_are_named() {
        let named = |at: usize, other: &[u8], what: &str| {
            let message = refused(&with(at, other));
            assert!(message.contains(what), "{message}");
        };
        named(BODY + 4, &[0x02], "chose a version of SMB that was not offered");
        named(BODY + 32, &[0; 4], "allows no reads or writes");
        named(CREDITS, &[0], "granted no credit");
        let mut bytes = with(SESSION_SETUP_2 + CREDITS, &[1, 0]);
        bytes[CREATE + CREDITS] = 0;
        assert!(refused(&bytes).contains("granted no credit"));
        named(1, &[0xff], "sent a response that is too long");
        named(SESSION_SETUP_1 + BODY + 4, &[0xff, 0xff], "sent a message that is too short");
        named(SESSION_SETUP_1 + BODY + 8, &[0xa0], "sent no NTLM message");
        named(SESSION_SETUP_1 + 106, b"n", "sent no NTLM challenge");
        named(SESSION_SETUP_2 + 28, &[9], "sent a reply to a request that is not outstanding");
        named(SESSION_SETUP_2 + 16, &[9], "sent the response to another command");
        // If all session flags are 0, the user is authenticated, so the client requires signatures.
        named(SESSION_SETUP_2 + BODY + 2, &[0], "sent a response without a signature (status 0x0");
        let mut bytes = with(SESSION_SETUP_2 + BODY + 2, &[0]);
        bytes[SESSION_SETUP_2 + 20] |= message::FLAG_SIGNED as u8;
        assert!(refused(&bytes).contains("sent a message with a wrong signature"));
        named(CREATE + BODY + 56, &[0x10], "opened something that is not a file");
        let recorded = recorded();
        for length in [0, 3, 100, SESSION_SETUP_1, CREATE + 70, READ - 1] {
            let message = refused(&recorded[..length]);
            assert!(message.contains("closed the connection"), "{length} bytes: {message}");
        }
    }

    /// Returns a generator of pseudo-random numbers for tests (xorshift).
    fn random_numbers(mut state: u64) -> impl FnMut(usize) -> usize {
        move |below| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as usize % below
        }
    }

    #[test]
    fn no_bytes_of_a_server_make_the_client_panic() {
        let scheme = Scheme::ALL.iter().position(|scheme| *scheme == Scheme::Smb).unwrap() as u8;
        let (recorded, mut random) = (recorded(), random_numbers(0x9e37_79b9_7f4a_7c15));
        for round in 0..4000 {
            let mut bytes = recorded.clone();
            for _ in 0..=random(4) {
                let at = random(bytes.len());
                match random(6) {
                    0 => bytes[at] ^= 1 << random(8),
                    1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random(5)],
                    2 => bytes.truncate(at + 1),
                    3 => drop(bytes.drain(at..(at + 1 + random(16)).min(bytes.len() - 1).max(at))),
                    4 => drop(bytes.splice(at..at, [0xff; 8])),
                    _ => bytes.extend_from_within(at..),
                }
            }
            if round % 10 == 0 {
                bytes = (0..random(2000)).map(|_| random(256) as u8).collect();
            }
            bytes.insert(0, scheme);
            network_server(&bytes);
        }
    }
}
