//! The login to an iSCSI target: exchange of names, authentication by password (CHAP) if the target
//! requires it, and negotiation of limits.
//!
//! Source: RFC 7143, sections 6.3 (login phase), 11.12 and 11.13 (Login Request and Response), 12.1
//! (authentication), 12.1.3 (CHAP with MD5, see also RFC 1994) and 13 (keys). A login has two
//! stages, security negotiation and operational negotiation. In each stage, client and target
//! exchange texts of the form `key=value` several times. The target decides when a stage ends.

use std::hash::{BuildHasher, Hasher, RandomState};

use md5::{Digest, Md5};

use crate::error::Error;
use crate::network::iscsi::pdu::{
    HEADER_BYTES, Header, IMMEDIATE, LOGIN_REQUEST, LOGIN_RESPONSE, Numbers, TASK_TAG, padding,
};
use crate::network::iscsi::session::{Limits, RECEIVE_SEGMENT_BYTES};
use crate::network::wire::{Wire, printable};
use crate::network::{Access, Credentials};

/// The codes of the login stages (section 11.12.3).
const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;
/// Flags of a Login Request or Response (sections 11.12.1, 11.12.2). TRANSIT: the stage ends.
/// CONTINUES: the text continues in the next PDU.
const TRANSIT: u8 = 0x80;
const CONTINUES: u8 = 0x40;
/// The offsets of the session identifier (ISID) and of the status in a Login Response (sections
/// 11.12.5, 11.13.5).
const SESSION_ID: usize = 8;
const STATUS_CLASS: usize = 36;
const STATUS_DETAIL: usize = 37;

/// The maximum length of a text that this client sends (bytes). This is the limit of a data segment
/// before negotiation (section 13.12).
const SENT_TEXT_BYTES_MAX: usize = 8192;
/// The maximum length of a text that the target may send in one answer, including all continuations
/// (bytes).
const RECEIVED_TEXT_BYTES_MAX: usize = 64 << 10;
/// The maximum number of PDUs that the target may send during the login. Usually it sends 2, or 4
/// with a password.
const ROUNDS_MAX: u32 = 32;
/// The maximum length of the name of a target or initiator (section 4.2.7.1; bytes).
const NAME_BYTES_MAX: usize = 223;
/// The maximum length of a CHAP challenge (section 12.1.3; bytes).
const CHALLENGE_BYTES_MAX: usize = 1024;

/// The allowed lengths of segments and bursts (sections 13.12 to 13.14; bytes).
const LENGTHS: std::ops::RangeInclusive<u32> = 512..=0xff_ffff;
/// The MaxBurstLength that this client offers (bytes). This is the limit of the protocol, rounded
/// down to whole pages.
const BURST_BYTES: u32 = 0xff_f000;
/// The FirstBurstLength that this client offers, which limits the unsolicited data of a write
/// (bytes).
const FIRST_BURST_BYTES: u32 = 256 << 10;

/// The keys for which this client accepts only one value. Other values would be useful only with
/// digests or several connections.
const FIXED: [(&str, &str); 7] = [
    ("HeaderDigest", "None"),
    ("DataDigest", "None"),
    ("MaxConnections", "1"),
    ("MaxOutstandingR2T", "1"),
    ("DataPDUInOrder", "Yes"),
    ("DataSequenceInOrder", "Yes"),
    ("ErrorRecoveryLevel", "0"),
];

/// The file with the iSCSI initiator name of this host on Linux. Targets admit initiators by name,
/// and an administrator has usually allowed this name.
const INITIATOR_NAME_FILE: &str = "/etc/iscsi/initiatorname.iscsi";
/// The initiator name that is used if the host has no initiator name.
const INITIATOR_NAME: &str = "iqn.2026-01.io.github.halfpower:initiator";

/// Logs in to a target and creates a new session.
///
/// # Errors
/// If the target refuses the login, or violates the protocol.
pub(super) fn log_in(
    wire: &mut Wire,
    access: &Access,
    target: &str,
) -> Result<(Limits, Numbers), Error> {
    if target.is_empty() || target.len() > NAME_BYTES_MAX {
        let what = format!("a target name must have 1 to {NAME_BYTES_MAX} characters");
        return Err(wire.refused(what, "use the form iscsi://HOST/TARGET-NAME/LUN"));
    }
    let mut login = Login {
        wire,
        access,
        target,
        initiator: initiator_name(std::fs::read_to_string(INITIATOR_NAME_FILE).ok().as_deref()),
        numbers: Numbers::new(),
        session_id: session_id(),
        rounds: 0,
    };
    login.security()?;
    let limits = login.operational()?;
    Ok((limits, login.numbers))
}

/// Returns the initiator name from `file`, the content of [`INITIATOR_NAME_FILE`]. If the file has
/// no valid name, returns the built-in name.
fn initiator_name(file: Option<&str>) -> String {
    let mut lines = file.unwrap_or_default().lines();
    let found = lines.find_map(|line| line.trim().strip_prefix("InitiatorName="));
    let is_valid =
        |name: &&str| !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains('\0');
    found.map(str::trim).filter(is_valid).unwrap_or(INITIATOR_NAME).to_owned()
}

/// Returns a random session identifier (section 11.12.5). A second session of this host with the
/// same identifier would end the first session.
fn session_id() -> [u8; 6] {
    let random = RandomState::new().build_hasher().finish().to_be_bytes();
    [0x80, random[0], random[1], random[2], random[3], random[4]]
}

struct Login<'a> {
    wire: &'a mut Wire,
    access: &'a Access,
    target: &'a str,
    initiator: String,
    numbers: Numbers,
    session_id: [u8; 6],
    rounds: u32,
}

/// The target's answer to a Login Request.
struct Reply {
    keys: Vec<(String, String)>,
    /// Whether the target ended the stage.
    is_last: bool,
}

impl Reply {
    fn value(&self, key: &str) -> Option<&str> {
        self.keys.iter().find(|(known, _)| known == key).map(|(_, value)| &**value)
    }
}

impl Login<'_> {
    /// Performs the security stage, in which the client sends its name and the target may require a
    /// password.
    fn security(&mut self) -> Result<(), Error> {
        let (initiator, target) = (self.initiator.clone(), self.target);
        let credentials = self.access.credentials.as_ref();
        let methods = if credentials.is_some() { "CHAP,None" } else { "None" };
        let keys = [
            ("InitiatorName", &*initiator),
            ("SessionType", "Normal"),
            ("TargetName", target),
            ("AuthMethod", methods),
        ];
        let mut reply = self.exchange(SECURITY, credentials.is_none(), &keys)?;
        match (reply.value("AuthMethod"), credentials) {
            (None | Some("None"), _) => {}
            (Some("CHAP"), Some(credentials)) => reply = self.chap(credentials)?,
            (Some("Reject"), None) => return Err(self.refusal(2, 1, &[])),
            (Some(method), _) => {
                let method = printable(method.as_bytes());
                let what = format!("the target chose the method '{method}', which was not offered");
                let remedy = "in the target, set the authentication to CHAP with MD5 or to None";
                return Err(self.wire.refused(what, remedy));
            }
        }
        while !reply.is_last {
            reply = self.exchange(SECURITY, true, &[])?;
        }
        Ok(())
    }

    /// Performs the CHAP authentication with MD5 (section 12.1.3). The client sends a digest of the
    /// password and the challenge, but never the password.
    fn chap(&mut self, credentials: &Credentials) -> Result<Reply, Error> {
        // MD5 has the number 5 in the registry of PPP authentication algorithms.
        let reply = self.exchange(SECURITY, false, &[("CHAP_A", "5")])?;
        if reply.value("CHAP_A") != Some("5") {
            let what = "the target does not use CHAP with MD5";
            let remedy = "in the target, set the authentication to CHAP with MD5 or to None";
            return Err(self.wire.refused(what, remedy));
        }
        let identifier = reply.value("CHAP_I").and_then(number);
        let identifier = identifier.and_then(|identifier| u8::try_from(identifier).ok());
        let challenge = reply.value("CHAP_C").and_then(binary);
        let (Some(identifier), Some(challenge)) = (identifier, challenge) else {
            return Err(self.wire.violated("sent no valid CHAP challenge"));
        };
        let response = chap_response(identifier, &credentials.password, &challenge);
        let keys = [("CHAP_N", &*credentials.user), ("CHAP_R", &*response)];
        self.exchange(SECURITY, true, &keys)
    }

    /// Performs the operational stage, in which the limits of the session are negotiated.
    fn operational(&mut self) -> Result<Limits, Error> {
        let segment = RECEIVE_SEGMENT_BYTES.to_string();
        let (burst, first_burst) = (BURST_BYTES.to_string(), FIRST_BURST_BYTES.to_string());
        let mut keys = FIXED.to_vec();
        keys.extend([
            ("InitialR2T", "No"),
            ("ImmediateData", "Yes"),
            ("MaxRecvDataSegmentLength", &*segment),
            ("MaxBurstLength", &*burst),
            ("FirstBurstLength", &*first_burst),
            ("DefaultTime2Wait", "0"),
            ("DefaultTime2Retain", "0"),
        ]);
        let mut limits = Limits::default();
        let mut reply = self.exchange(OPERATIONAL, true, &keys)?;
        loop {
            let mut unknown = Vec::new();
            for (key, value) in &reply.keys {
                match limits.learn(key, value) {
                    Ok(true) => {}
                    Ok(false) => unknown.push((&**key, "NotUnderstood")),
                    Err(()) => return Err(self.disagreement(key, value)),
                }
            }
            if reply.is_last {
                limits.first_burst_bytes = limits.first_burst_bytes.min(limits.burst_bytes);
                return Ok(limits);
            }
            reply = self.exchange(OPERATIONAL, true, &unknown)?;
        }
    }

    /// Returns the error for a value that this client cannot use.
    fn disagreement(&self, key: &str, value: &str) -> Error {
        match FIXED.iter().find(|(known, _)| *known == key) {
            Some((_, fixed)) => {
                let value = printable(value.as_bytes());
                let what =
                    format!("the target requires {key}={value}, but this client needs {fixed}");
                self.wire.refused(what, "change this setting of the target")
            }
            None => {
                let text = printable(format!("{key}={value}").as_bytes());
                self.wire.violated(&format!("answered the login with {text}"))
            }
        }
    }

    /// Sends a Login Request and receives the answer, including all continuations.
    fn exchange(
        &mut self,
        stage: u8,
        may_end: bool,
        keys: &[(&str, &str)],
    ) -> Result<Reply, Error> {
        let next_stage = if stage == SECURITY { OPERATIONAL } else { FULL_FEATURE };
        let mut text = Vec::new();
        for (key, value) in keys {
            text.extend(format!("{key}={value}\0").into_bytes());
        }
        if text.len() > SENT_TEXT_BYTES_MAX {
            let what = format!("the login text has more than {SENT_TEXT_BYTES_MAX} bytes");
            return Err(self.wire.refused(what, "use a shorter user name"));
        }
        let end = if may_end { TRANSIT | next_stage } else { 0 };
        self.send(stage << 2 | end, &text)?;
        let mut answer = Vec::new();
        loop {
            let (header, data) = self.receive()?;
            answer.extend(data);
            if answer.len() > RECEIVED_TEXT_BYTES_MAX {
                return Err(self.wire.violated("sent a login text that is too long"));
            }
            let flags = header.flags();
            if header.byte(STATUS_CLASS) != 0 {
                let detail = header.byte(STATUS_DETAIL);
                return Err(self.refusal(header.byte(STATUS_CLASS), detail, &parse(&answer)));
            }
            if flags & CONTINUES != 0 {
                self.send(stage << 2, &[])?;
                continue;
            }
            let is_last = flags & TRANSIT != 0;
            if is_last && (!may_end || flags & 0b11 != next_stage) {
                return Err(self.wire.violated("ended a stage of the login too early"));
            }
            return Ok(Reply { keys: parse(&answer), is_last });
        }
    }

    fn send(&mut self, flags: u8, text: &[u8]) -> Result<(), Error> {
        let header = Header::new(LOGIN_REQUEST | IMMEDIATE, flags)
            .with_bytes(SESSION_ID, &self.session_id)
            .with_data(text.len() as u32)
            .with(TASK_TAG, 0);
        let mut message = self.numbers.stamp(header).to_vec();
        message.extend(text);
        message.resize(message.len() + padding(text.len() as u32), 0);
        self.wire.send(&message)
    }

    fn receive(&mut self) -> Result<(Header, Vec<u8>), Error> {
        self.rounds += 1;
        if self.rounds > ROUNDS_MAX {
            return Err(self.wire.violated("does not end the login"));
        }
        let header = Header::parse(&self.wire.receive(HEADER_BYTES)?);
        let header = header.filter(|header| header.opcode() == LOGIN_RESPONSE);
        let Some(header) = header else {
            return Err(self.wire.violated("did not answer the iSCSI login"));
        };
        let length = header.data_bytes();
        if length as usize > RECEIVED_TEXT_BYTES_MAX {
            return Err(self.wire.violated(&format!("sent a login text of {length} bytes")));
        }
        self.wire.receive(header.extra_bytes())?;
        let mut data = self.wire.receive(length as usize + padding(length))?;
        data.truncate(length as usize);
        self.numbers.learn_window(&header);
        self.numbers.learn_status(&header);
        Ok((header, data))
    }

    /// Returns the error for a status other than success (section 11.13.5).
    fn refusal(&self, class: u8, detail: u8, keys: &[(String, String)]) -> Error {
        let (target, initiator) = (self.target, &self.initiator);
        let (what, remedy) = match (class, detail) {
            (1, _) => return self.redirection(keys),
            (2, 1) if self.access.credentials.is_some() => (
                "the target refuses the user or the password".to_owned(),
                "check the user in the address and HALFPOWER_PASSWORD".to_owned(),
            ),
            (2, 1) => (
                "the target requires a user and a password".to_owned(),
                "use the form iscsi://USER@HOST/.. and set HALFPOWER_PASSWORD".to_owned(),
            ),
            (2, 2) => (
                format!("the target does not admit the initiator {initiator}"),
                "add this initiator name, or the address of this host, to the target's access list"
                    .to_owned(),
            ),
            (2, 3) => (
                format!("there is no target '{target}' for the initiator {initiator}"),
                "check the name of the target, and whether it admits this initiator".to_owned(),
            ),
            (2, 4) => (
                format!("the target '{target}' was removed"),
                "check the name of the target".to_owned(),
            ),
            (2, 6) | (3, 2) => (
                "the target has no room for another session".to_owned(),
                "end other sessions, or use fewer threads".to_owned(),
            ),
            (3, 1) => ("the target is out of service now".to_owned(), "try again later".to_owned()),
            _ => (
                format!("the target refused the login (status 0x{class:02x}{detail:02x})"),
                "check the log of the target".to_owned(),
            ),
        };
        self.wire.refused(what, &remedy)
    }

    /// Returns the error for a target that has moved to another address. The client does not follow
    /// the redirection, so that it never measures a server that the user did not specify.
    fn redirection(&self, keys: &[(String, String)]) -> Error {
        let address = keys.iter().find(|(key, _)| key == "TargetAddress");
        // An example of a value is `192.0.2.1:3260,1`, where 1 is the portal group (section 13.8).
        let server = address.and_then(|(_, value)| value.split(',').next()).unwrap_or_default();
        let server = printable(server.as_bytes());
        let remedy = if server.is_empty() {
            "look up the new address in the settings of the target".to_owned()
        } else {
            format!("use iscsi://{server}/{}", self.access.address.path)
        };
        self.wire.refused("the target has moved to another address", &remedy)
    }
}

impl Default for Limits {
    /// Returns the protocol's defaults (section 13). They apply to keys that the target does not
    /// answer.
    fn default() -> Limits {
        Limits {
            send_segment_bytes: 8192,
            burst_bytes: 256 << 10,
            first_burst_bytes: 64 << 10,
            waits_for_r2t: true,
            sends_immediate: true,
        }
    }
}

impl Limits {
    /// Stores the value of a key that the target sent. Returns false if the key is unknown and
    /// needs an answer, and an error if the value is not acceptable.
    fn learn(&mut self, key: &str, value: &str) -> Result<bool, ()> {
        let length = |limit: u32| {
            let length = number(value).filter(|length| LENGTHS.contains(length));
            length.filter(|length| *length <= limit).ok_or(())
        };
        let is_yes = || match value {
            "Yes" => Ok(true),
            "No" => Ok(false),
            _ => Err(()),
        };
        if let Some((_, fixed)) = FIXED.iter().find(|(known, _)| *known == key) {
            // If the target does not know the key, the protocol's default applies, which equals
            // `fixed`.
            let agrees = value == *fixed || matches!(value, "NotUnderstood" | "Irrelevant");
            return if agrees { Ok(true) } else { Err(()) };
        }
        match key {
            "MaxRecvDataSegmentLength" => self.send_segment_bytes = length(u32::MAX)?,
            "MaxBurstLength" => self.burst_bytes = length(BURST_BYTES)?,
            // The key has no meaning if the client sends no unsolicited data.
            "FirstBurstLength" if value == "Irrelevant" => {}
            "FirstBurstLength" => self.first_burst_bytes = length(FIRST_BURST_BYTES)?,
            "InitialR2T" => self.waits_for_r2t = is_yes()?,
            "ImmediateData" => self.sends_immediate = is_yes()?,
            "DefaultTime2Wait" | "DefaultTime2Retain" => {}
            "TargetAlias" | "TargetAddress" | "TargetPortalGroupTag" => {}
            _ => return Ok(matches!(value, "NotUnderstood" | "Irrelevant" | "Reject")),
        }
        Ok(true)
    }
}

/// Splits a text into `key=value` pairs, each of which ends with a zero byte (section 6.1).
fn parse(text: &[u8]) -> Vec<(String, String)> {
    let texts = text.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let pair = |text: std::borrow::Cow<'_, str>| {
        text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()))
    };
    texts.filter_map(pair).collect()
}

/// Parses a decimal number, or a hexadecimal number after 0x (section 6.1).
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Parses binary data, which is hexadecimal after 0x, or Base64 after 0b (section 6.1). None if the
/// data is invalid, empty or longer than a CHAP challenge may be.
fn binary(text: &str) -> Option<Vec<u8>> {
    let (prefix, digits) = text.split_at_checked(2)?;
    let bytes = match prefix {
        "0x" | "0X" => hexadecimal(digits)?,
        "0b" | "0B" => base64(digits)?,
        _ => return None,
    };
    (1..=CHALLENGE_BYTES_MAX).contains(&bytes.len()).then_some(bytes)
}

/// Decodes pairs of hexadecimal digits. If the number of digits is odd, the first digit alone forms
/// a byte.
fn hexadecimal(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let mut values = digits.as_bytes().iter().map(digit).collect::<Option<Vec<u32>>>()?;
    if values.len() % 2 == 1 {
        values.insert(0, 0);
    }
    Some(values.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}

/// Decodes Base64 (RFC 4648), with or without padding.
fn base64(digits: &str) -> Option<Vec<u8>> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for digit in digits.trim_end_matches('=').bytes() {
        let value = ALPHABET.iter().position(|known| *known == digit)?;
        bits = bits << 6 | value as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes)
}

/// Returns the response to a CHAP challenge (RFC 1994, section 4.1), in hexadecimal.
fn chap_response(identifier: u8, password: &str, challenge: &[u8]) -> String {
    let mut digest = Md5::new();
    digest.update([identifier]);
    digest.update(password.as_bytes());
    digest.update(challenge);
    let digits = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("0x{digits}")
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpStream};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::network::iscsi::test_target::{login_response, pdu};

    const SUCCESS: [u8; 2] = [0, 0];

    fn access(credentials: Option<(&str, &str)>) -> Access {
        let address = "iscsi://host/t/1?timeout=5".parse().unwrap();
        let credentials = credentials.map(|(user, password)| Credentials {
            user: user.to_owned(),
            password: password.to_owned(),
        });
        Access { address, credentials, writable: false, durable: false }
    }

    /// Logs in to a simulated target that sends these answers. Returns the outcome, and what the
    /// client sent.
    fn exchange(answers: &[Vec<u8>], access: &Access) -> (Result<Limits, Error>, Vec<u8>) {
        let (client, mut server) = UnixStream::pair().unwrap();
        let stream = TcpStream::from(OwnedFd::from(client));
        let mut wire = Wire::over(stream, &access.address).unwrap();
        server.write_all(&answers.concat()).unwrap();
        server.shutdown(Shutdown::Write).unwrap();
        let outcome = log_in(&mut wire, access, "iqn.2026-01.test:t");
        drop(wire);
        let mut sent = Vec::new();
        // The result is ignored. If the client left answers unread, this read ends with an error,
        // but only after the server has received everything that the client sent.
        let _ = server.read_to_end(&mut sent);
        (outcome.map(|(limits, _)| limits), sent)
    }

    #[track_caller]
    fn refusal(answers: &[Vec<u8>], credentials: Option<(&str, &str)>) -> String {
        exchange(answers, &access(credentials)).0.expect_err("no login").to_string()
    }

    /// Returns the flags and texts of the Login Requests in `sent`.
    fn requests(mut sent: &[u8]) -> Vec<(u8, String)> {
        let mut requests = Vec::new();
        while !sent.is_empty() {
            let header = Header::parse(&sent[..48]).unwrap();
            assert_eq!(header.byte(0), 0x43, "an immediate Login Request");
            let length = header.data_bytes() as usize;
            let text = String::from_utf8(sent[48..48 + length].to_vec()).unwrap();
            requests.push((header.flags(), text));
            sent = &sent[48 + length + padding(length as u32)..];
        }
        requests
    }

    #[test]
    fn a_login_without_a_password_takes_two_exchanges() {
        let keys = "HeaderDigest=None\0InitialR2T=No\0ImmediateData=No\0MaxBurstLength=65536\0\
                    FirstBurstLength=131072\0MaxRecvDataSegmentLength=0x1000\0";
        let answers = [
            login_response(0x81, SUCCESS, "TargetPortalGroupTag=1\0AuthMethod=None\0"),
            login_response(0x87, SUCCESS, keys),
        ];
        let (limits, sent) = exchange(&answers, &access(None));
        let expected = Limits {
            send_segment_bytes: 4096,
            burst_bytes: 65_536,
            first_burst_bytes: 65_536,
            waits_for_r2t: false,
            sends_immediate: false,
        };
        assert_eq!(limits.unwrap(), expected);
        let requests = requests(&sent);
        assert_eq!(requests.len(), 2);
        assert_eq!((requests[0].0, requests[1].0), (0x81, 0x87));
        assert!(requests[0].1.contains("\0TargetName=iqn.2026-01.test:t\0AuthMethod=None\0"));
        assert!(requests[1].1.contains("\0InitialR2T=No\0ImmediateData=Yes\0"));
    }

    #[test]
    fn a_password_is_answered_by_a_digest() {
        // The digest was computed independently: md5(0x27, "a secret of 12+", 00 01 .. 0f).
        const RESPONSE: &str = "CHAP_N=anna\0CHAP_R=0xb6f2fd6ad4cc8191e68cc571a5b57a33\0";
        for challenge in ["0x000102030405060708090a0b0c0d0e0f", "0bAAECAwQFBgcICQoLDA0ODw=="] {
            let challenge = format!("CHAP_A=5\0CHAP_I=39\0CHAP_C={challenge}\0");
            let answers = [
                login_response(0x00, SUCCESS, "AuthMethod=CHAP\0"),
                login_response(0x00, SUCCESS, &challenge),
                // The target needs another exchange to end the stage.
                login_response(0x00, SUCCESS, ""),
                login_response(0x81, SUCCESS, ""),
                login_response(0x87, SUCCESS, ""),
            ];
            let (limits, sent) = exchange(&answers, &access(Some(("anna", "a secret of 12+"))));
            assert_eq!(limits.unwrap(), Limits::default());
            let requests = requests(&sent);
            assert_eq!(requests[0].0, 0x00);
            assert_eq!(requests[1], (0x00, "CHAP_A=5\0".to_owned()));
            assert_eq!(requests[2], (0x81, RESPONSE.to_owned()));
            assert_eq!(requests[3], (0x81, String::new()));
        }
    }

    #[test]
    fn invalid_challenges_are_refused() {
        let long = format!("0x{}", "00".repeat(1025));
        for keys in [
            "CHAP_I=1\0",
            "CHAP_I=256\0CHAP_C=0x00\0",
            "CHAP_I=1\0CHAP_C=0x0g\0",
            "CHAP_I=1\0CHAP_C=0b*\0",
            "CHAP_I=1\0CHAP_C=0x\0",
            "CHAP_I=1\0CHAP_C=\u{e4}\u{e4}\0",
            &format!("CHAP_I=1\0CHAP_C={long}\0"),
        ] {
            let answers = [
                login_response(0x00, SUCCESS, "AuthMethod=CHAP\0"),
                login_response(0x00, SUCCESS, &format!("CHAP_A=5\0{keys}")),
            ];
            let wrong = refusal(&answers, Some(("anna", "x")));
            assert!(wrong.contains("no valid CHAP challenge"), "{keys}: {wrong}");
        }
        let answers = [
            login_response(0x00, SUCCESS, "AuthMethod=CHAP\0"),
            login_response(0x00, SUCCESS, "CHAP_A=7\0"),
        ];
        assert!(refusal(&answers, Some(("anna", "x"))).contains("CHAP with MD5"));
    }

    #[test]
    fn a_target_that_refuses_is_understood() {
        let status = |class, detail, text| vec![login_response(0, [class, detail], text)];
        let says = |answers: Vec<Vec<u8>>, what: &str| {
            let wrong = refusal(&answers, None);
            assert!(wrong.contains(what) && wrong.lines().count() == 1, "{what}: {wrong}");
        };
        says(status(2, 1, ""), "requires a user and a password");
        says(status(2, 2, ""), "does not admit the initiator iqn.");
        says(status(2, 3, ""), "no target 'iqn.2026-01.test:t'");
        says(status(3, 1, ""), "out of service");
        says(status(3, 2, ""), "no room for another session");
        says(status(2, 9, ""), "status 0x0209");
        says(status(1, 1, "TargetAddress=[::1]:99,1\0"), "use iscsi://[::1]:99/t/1");
        says(status(1, 2, "TargetAddress=a\nb,1\0"), "use iscsi://a\\nb/t/1");
        says(status(1, 2, ""), "moved to another address; look up the new address");
        says(vec![login_response(0, SUCCESS, "AuthMethod=Reject\0")], "requires a user");
        says(vec![login_response(0, SUCCESS, "AuthMethod=KRB5\0")], "method 'KRB5'");
        let wrong = refusal(&status(2, 1, ""), Some(("anna", "secret")));
        assert!(wrong.contains("the user or the password") && !wrong.contains("secret"));
    }

    #[test]
    fn a_target_that_breaks_the_protocol_is_refused() {
        let security = || login_response(0x81, SUCCESS, "AuthMethod=None\0");
        let says = |answers: Vec<Vec<u8>>, what: &str| {
            let wrong = refusal(&answers, None);
            assert!(wrong.contains(what), "{what}: {wrong}");
        };
        says(vec![pdu(0x21, 0x80, &[], &[])], "did not answer the iSCSI login");
        says(vec![login_response(0x83, SUCCESS, "")], "ended a stage of the login too early");
        says(vec![login_response(0x00, SUCCESS, ""); 40], "does not end the login");
        says(vec![login_response(0x40, SUCCESS, "a=b"); 40], "does not end the login");
        let long = login_response(0x40, SUCCESS, &"a".repeat(40_000));
        says(vec![long.clone(), long], "sent a login text that is too long");
        let mut huge = login_response(0x81, SUCCESS, "");
        huge[5] = 0xff;
        says(vec![huge], "login text of 16711680 bytes");
        for key in
            ["HeaderDigest=CRC32C", "DataDigest=Reject", "MaxConnections=2", "DataPDUInOrder=No"]
        {
            let answer = login_response(0x87, SUCCESS, &format!("{key}\0"));
            says(vec![security(), answer], &format!("the target requires {key}, but "));
        }
        for key in [
            "InitialR2T=Perhaps",
            "MaxBurstLength=511",
            "MaxBurstLength=16777215",
            "FirstBurstLength=262145",
            "MaxRecvDataSegmentLength=16777216",
            "MaxRecvDataSegmentLength=-1",
        ] {
            let answer = login_response(0x87, SUCCESS, &format!("{key}\0"));
            says(vec![security(), answer], &format!("answered the login with {key}"));
        }
    }

    #[test]
    fn texts_continue_and_unknown_keys_are_answered() {
        let answers = [
            login_response(0x81, SUCCESS, "AuthMethod=None\0"),
            login_response(0x44, SUCCESS, "X-com.test=1\0IFMarker=NotUnderstood\0InitialR"),
            login_response(0x04, SUCCESS, "2T=No\0no equals sign\0"),
            login_response(0x87, SUCCESS, "FirstBurstLength=Irrelevant\0"),
        ];
        let (limits, sent) = exchange(&answers, &access(None));
        assert_eq!(limits.unwrap(), Limits { waits_for_r2t: false, ..Limits::default() });
        let requests = requests(&sent);
        assert_eq!(requests[2], (0x04, String::new()), "asks for the rest of the text");
        assert_eq!(requests[3], (0x87, "X-com.test=NotUnderstood\0".to_owned()));
    }

    #[test]
    fn the_initiator_has_the_name_of_its_host() {
        let file = "# comment\nInitiatorName=iqn.2004-10.test:host \n";
        assert_eq!(initiator_name(Some(file)), "iqn.2004-10.test:host");
        assert_eq!(initiator_name(Some("#InitiatorName=x\n")), INITIATOR_NAME);
        assert_eq!(initiator_name(Some("InitiatorName=\n")), INITIATOR_NAME);
        assert_eq!(initiator_name(None), INITIATOR_NAME);
        assert_ne!(session_id(), session_id());
    }

    #[test]
    fn long_names_are_refused() {
        let long = "u".repeat(9000);
        let answers = [
            login_response(0x00, SUCCESS, "AuthMethod=CHAP\0"),
            login_response(0x00, SUCCESS, "CHAP_A=5\0CHAP_I=1\0CHAP_C=0x00\0"),
        ];
        assert!(refusal(&answers, Some((&long, "x"))).contains("use a shorter user name"));
    }
}
