//! NTLM version 2: authenticates with a password, and derives the key for signatures.
//!
//! Source: MS-NLMP. The protocol has three messages: the client's NEGOTIATE, the server's CHALLENGE
//! and the client's AUTHENTICATE (section 2.2.1). The session key is derived from the password and
//! the challenges. The optional key exchange is not used (section 2.2.2.5, flag V). The caller
//! passes the time and the random numbers.

use hmac::{Hmac, Mac};
use md4::{Digest, Md4};
use md5::Md5;

use super::message::{array, le16, le32};

/// The first bytes of each message (section 2.2.1).
const SIGNATURE: [u8; 8] = *b"NTLMSSP\0";
/// Types of messages (section 2.2.1).
const TYPE_NEGOTIATE: u32 = 1;
const TYPE_CHALLENGE: u32 = 2;
const TYPE_AUTHENTICATE: u32 = 3;

/// Flag (section 2.2.2.5, like all flags below): text is encoded as UTF-16.
const UNICODE: u32 = 1;
/// Flag: the challenge contains the name of the server.
const REQUEST_TARGET: u32 = 1 << 2;
/// Flag: the client requests a key for signatures.
const SIGN: u32 = 1 << 4;
/// Flag: the client authenticates with NTLM.
const NTLM: u32 = 1 << 9;
/// Flag: the client is anonymous.
const ANONYMOUS: u32 = 1 << 11;
/// Flag: a session key is derived even if no messages are signed.
const ALWAYS_SIGN: u32 = 1 << 15;
/// Flag: the session security of NTLM version 2 is used.
const EXTENDED_SECURITY: u32 = 1 << 19;
/// Flag: the challenge contains information about the server, as pairs of identifier and value.
const TARGET_INFO: u32 = 1 << 23;
/// Flags: keys of 128 bits and of 56 bits are supported.
const BITS_128: u32 = 1 << 29;
const BITS_56: u32 = 1 << 31;
/// The flags that this client requests.
const FLAGS: u32 = UNICODE
    | REQUEST_TARGET
    | SIGN
    | NTLM
    | ALWAYS_SIGN
    | EXTENDED_SECURITY
    | TARGET_INFO
    | BITS_128
    | BITS_56;

/// Identifiers of the pairs in a challenge (AV_PAIR; section 2.2.2.1).
const PAIR_END: u16 = 0;
const PAIR_FLAGS: u16 = 6;
const PAIR_TIME: u16 = 7;
/// A flag in the value of [`PAIR_FLAGS`]: the AUTHENTICATE message has a message integrity code
/// (MIC; section 2.2.2.1).
const HAS_MIC: u32 = 2;

/// The maximum size of the pairs in a challenge (bytes). The client's answer repeats the pairs, and
/// its length must fit into 16 bits. Servers send a few hundred bytes.
const INFO_BYTES_MAX: u16 = 16 << 10;
/// The size of an AUTHENTICATE message without its payload, and the offset of its MIC (bytes;
/// section 2.2.1.3).
const AUTHENTICATE_BYTES: usize = 88;
const AT_MIC: usize = 72;

/// The name and the password of a user.
#[derive(Clone, Copy)]
pub(super) struct Login<'a> {
    /// The domain or the server that the user belongs to. Empty for the server's own domain.
    pub domain: &'a str,
    pub user: &'a str,
    pub password: &'a str,
}

/// The values that differ between two authentications of the same user.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nonce {
    /// A random number.
    pub client_challenge: [u8; 8],
    /// The server's time (in units of 100 ns since 1601).
    pub time: [u8; 8],
}

/// The server's CHALLENGE message (section 2.2.1.2).
#[derive(Debug)]
pub(super) struct Challenge<'a> {
    message: &'a [u8],
    flags: u32,
    server_challenge: [u8; 8],
    /// Identifier and value of each pair, without the final [`PAIR_END`].
    pairs: Vec<(u16, &'a [u8])>,
}

/// The client's last message, and the session key that both sides derive.
pub(super) struct Authentication {
    pub message: Vec<u8>,
    /// The session key. None for an anonymous client.
    pub session_key: Option<[u8; 16]>,
    /// Whether the message has a message integrity code (MIC). If it has, the list of SPNEGO
    /// mechanisms must be signed.
    pub has_mic: bool,
}

/// Returns the NEGOTIATE message (section 2.2.1.1), without domain and workstation names.
pub(super) fn negotiate() -> Vec<u8> {
    let mut message = SIGNATURE.to_vec();
    message.extend(TYPE_NEGOTIATE.to_le_bytes());
    message.extend(FLAGS.to_le_bytes());
    message.extend([0; 16]);
    message
}

impl<'a> Challenge<'a> {
    /// Parses a CHALLENGE message.
    ///
    /// # Errors
    /// The server violated the protocol. The error completes a sentence that begins with "the
    /// server".
    pub(super) fn parse(message: &'a [u8]) -> Result<Challenge<'a>, &'static str> {
        if !message.starts_with(&SIGNATURE) || le32(message, 8)? != TYPE_CHALLENGE {
            return Err("sent no NTLM challenge");
        }
        let flags = le32(message, 20)?;
        if flags & UNICODE == 0 || flags & EXTENDED_SECURITY == 0 {
            return Err("offers only an old version of NTLM");
        }
        let mut pairs = Vec::new();
        if flags & TARGET_INFO != 0 {
            let (length, offset) = (le16(message, 40)?, le32(message, 44)?);
            if length > INFO_BYTES_MAX {
                return Err("sent an NTLM challenge that is too long");
            }
            let info = message.get(offset as usize..).and_then(|m| m.get(..usize::from(length)));
            pairs = parse_pairs(info.ok_or("sent an NTLM challenge that is too short")?)?;
        }
        Ok(Challenge { message, flags, server_challenge: array(message, 24)?, pairs })
    }

    /// Returns the answer for a user, or for an anonymous client if `login` is None (section
    /// 3.1.5.1.2).
    pub(super) fn answer(&self, login: Option<Login<'_>>, nonce: &Nonce) -> Authentication {
        let flags = self.flags & FLAGS;
        let Some(login) = login else {
            let message = authenticate(flags | ANONYMOUS, &[&[0], &[], &[], &[], &[], &[]]);
            return Authentication { message, session_key: None, has_mic: false };
        };
        let server_time = self.pairs.iter().find(|(id, _)| *id == PAIR_TIME);
        let server_time = server_time.and_then(|(_, value)| (*value).try_into().ok());
        let nonce = Nonce { time: server_time.unwrap_or(nonce.time), ..*nonce };
        let key = response_key(login);
        let (nt_response, session_key) = self.nt_response(&key, &nonce, server_time.is_some());
        // If the server has sent its time, the LM response is all zeros (section 3.1.5.1.2).
        let lm_response = match server_time {
            Some(_) => vec![0; 24],
            None => lm_response(&key, &self.server_challenge, &nonce.client_challenge),
        };
        let (domain, user) = (utf16(login.domain), utf16(login.user));
        let mut message =
            authenticate(flags, &[&lm_response, &nt_response, &domain, &user, &[], &[]]);
        let has_mic = server_time.is_some();
        if has_mic {
            let mic = hmac_md5(&session_key, &[&negotiate(), self.message, &message]);
            message[AT_MIC..][..16].copy_from_slice(&mic);
        }
        Authentication { message, session_key: Some(session_key), has_mic }
    }

    /// Returns the NTLMv2 response and the session key (sections 2.2.2.7, 2.2.2.8 and 3.3.2).
    fn nt_response(&self, key: &[u8; 16], nonce: &Nonce, has_mic: bool) -> (Vec<u8>, [u8; 16]) {
        let mut blob = vec![1, 1, 0, 0, 0, 0, 0, 0];
        blob.extend(nonce.time);
        blob.extend(nonce.client_challenge);
        blob.extend([0; 4]);
        let mut pair = |id: u16, value: &[u8]| {
            blob.extend(id.to_le_bytes());
            blob.extend((value.len() as u16).to_le_bytes());
            blob.extend(value);
        };
        let mut pair_flags = if has_mic { HAS_MIC } else { 0 };
        for (id, value) in &self.pairs {
            match (*id, <[u8; 4]>::try_from(*value)) {
                (PAIR_FLAGS, Ok(value)) => pair_flags |= u32::from_le_bytes(value),
                (id, _) => pair(id, value),
            }
        }
        if pair_flags != 0 {
            pair(PAIR_FLAGS, &pair_flags.to_le_bytes());
        }
        pair(PAIR_END, &[]);
        blob.extend([0; 4]);
        let proof = hmac_md5(key, &[&self.server_challenge, &blob]);
        let session_key = hmac_md5(key, &[&proof]);
        ([&proof[..], &blob].concat(), session_key)
    }
}

impl Authentication {
    /// Returns the signature of `signed`, the list of SPNEGO mechanisms (sections 2.2.2.9.2 and
    /// 3.4.4.2). None if no signature is required.
    pub(super) fn signature(&self, signed: &[u8]) -> Option<[u8; 16]> {
        let key = signing_key(&self.session_key.filter(|_| self.has_mic)?);
        let (version, number) = (1_u32.to_le_bytes(), [0; 4]);
        let checksum = hmac_md5(&key, &[&number, signed]);
        let mut signature = [0; 16];
        signature[..4].copy_from_slice(&version);
        signature[4..12].copy_from_slice(&checksum[..8]);
        signature[12..].copy_from_slice(&number);
        Some(signature)
    }
}

/// Returns the client's signing key (SIGNKEY; section 3.4.5.2).
fn signing_key(session_key: &[u8; 16]) -> [u8; 16] {
    let constant = b"session key to client-to-server signing key magic constant\0";
    Md5::new().chain_update(session_key).chain_update(constant).finalize().into()
}

/// Parses pairs of identifier and value up to the final pair (section 2.2.2.1).
fn parse_pairs(mut info: &[u8]) -> Result<Vec<(u16, &[u8])>, &'static str> {
    let mut pairs = Vec::new();
    loop {
        let (id, length) = (le16(info, 0)?, usize::from(le16(info, 2)?));
        if id == PAIR_END {
            return Ok(pairs);
        }
        let rest = &info[4..];
        let (value, behind) =
            rest.split_at_checked(length).ok_or("sent an NTLM challenge that is too short")?;
        pairs.push((id, value));
        info = behind;
    }
}

/// Returns an AUTHENTICATE message (section 2.2.1.3). `fields` contains the LM response, NT
/// response, domain, user, workstation and session key.
fn authenticate(flags: u32, fields: &[&[u8]; 6]) -> Vec<u8> {
    let mut message = SIGNATURE.to_vec();
    message.extend(TYPE_AUTHENTICATE.to_le_bytes());
    let mut offset = AUTHENTICATE_BYTES;
    for field in fields {
        let length = (field.len() as u16).to_le_bytes();
        message.extend([length, length].concat());
        message.extend((offset as u32).to_le_bytes());
        offset += field.len();
    }
    message.extend(flags.to_le_bytes());
    // The version stays zero. The MIC is zero until it has been computed over this message.
    message.resize(AUTHENTICATE_BYTES, 0);
    fields.iter().for_each(|field| message.extend_from_slice(field));
    message
}

/// Derives the key NTOWFv2 from user, domain and password (section 3.3.2).
fn response_key(login: Login<'_>) -> [u8; 16] {
    let password_hash = Md4::digest(utf16(login.password));
    let user = utf16(&upper_case(login.user));
    hmac_md5(&password_hash, &[&user, &utf16(login.domain)])
}

/// Returns the LMv2 response (section 3.3.2).
fn lm_response(key: &[u8; 16], server_challenge: &[u8; 8], client_challenge: &[u8; 8]) -> Vec<u8> {
    let proof = hmac_md5(key, &[server_challenge, client_challenge]);
    [&proof[..], client_challenge].concat()
}

/// Converts text to upper case. A character whose upper case consists of several characters stays
/// unchanged.
fn upper_case(text: &str) -> String {
    let upper = |character: char| {
        let mut upper = character.to_uppercase();
        upper.next().filter(|_| upper.next().is_none()).unwrap_or(character)
    };
    text.chars().map(upper).collect()
}

/// Encodes text as little-endian UTF-16, without a terminating zero.
pub(super) fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

fn hmac_md5(key: &[u8], parts: &[&[u8]]) -> [u8; 16] {
    let mut mac = Hmac::<Md5>::new_from_slice(key).expect("HMAC takes keys of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The user of the example in section 4.2.1.
    const LOGIN: Login<'_> = Login { domain: "Domain", user: "User", password: "Password" };
    const NONCE: Nonce = Nonce { client_challenge: [0xaa; 8], time: [0; 8] };

    /// Returns a challenge with the pairs of section 4.2.4, followed by the pairs in `further`.
    fn challenge(further: &[u8]) -> Vec<u8> {
        let mut info = vec![2, 0, 12, 0];
        info.extend(utf16("Domain"));
        info.extend([1, 0, 12, 0]);
        info.extend(utf16("Server"));
        info.extend(further);
        info.extend([0; 4]);
        let mut message = b"NTLMSSP\0\x02\0\0\0\x0c\0\x0c\0\x38\0\0\0\x33\x82\x8a\xe2".to_vec();
        message.extend(b"\x01\x23\x45\x67\x89\xab\xcd\xef\0\0\0\0\0\0\0\0");
        message.extend([info.len() as u8, 0, info.len() as u8, 0, 0x44, 0, 0, 0]);
        message.extend(b"\x06\0\x70\x17\0\0\0\x0f");
        message.extend(utf16("Server"));
        message.extend(info);
        message
    }

    #[test]
    fn keys_and_responses_are_those_of_the_specification() {
        // The expected values are those of sections 4.2.4.1.1, 4.2.4.2.2, 4.2.4.2.1 and 4.2.4.1.2.
        let key = response_key(LOGIN);
        let expected = *b"\x0c\x86\x8a\x40\x3b\xfd\x7a\x93\xa3\0\x1e\xf2\x2e\xf0\x2e\x3f";
        assert_eq!(key, expected);
        let message = challenge(&[]);
        let challenge = Challenge::parse(&message).unwrap();
        let (response, session_key) = challenge.nt_response(&key, &NONCE, false);
        let proof = b"\x68\xcd\x0a\xb8\x51\xe5\x1c\x96\xaa\xbc\x92\x7b\xeb\xef\x6a\x1c";
        assert_eq!(response[..16], proof[..]);
        let expected = *b"\x8d\xe4\x0c\xca\xdb\xc1\x4a\x82\xf1\x5c\xb0\xad\x0d\xe9\x5c\xa3";
        assert_eq!(session_key, expected);
        let lm = lm_response(&key, &challenge.server_challenge, &NONCE.client_challenge);
        let mut expected =
            b"\x86\xc3\x50\x97\xac\x9c\xec\x10\x25\x54\x76\x4a\x57\xcc\xcc\x19".to_vec();
        expected.extend([0xaa; 8]);
        assert_eq!(lm, expected);
    }

    #[test]
    fn the_key_of_signatures_is_that_of_the_specification() {
        // The expected key is that of section 4.2.4.4.
        let expected = *b"\x47\x88\xdc\x86\x1b\x47\x82\xf3\x5d\x43\xfd\x98\xfe\x1a\x2d\x39";
        assert_eq!(signing_key(&[0x55; 16]), expected);
        let mut answer =
            Authentication { message: vec![], session_key: Some([0x55; 16]), has_mic: true };
        let signature = answer.signature(b"list").unwrap();
        let checksum = hmac_md5(&expected, &[b"\0\0\0\0list"]);
        assert_eq!(signature[..4], [1, 0, 0, 0]);
        assert_eq!((&signature[4..12], &signature[12..]), (&checksum[..8], &[0; 4][..]));
        answer.has_mic = false;
        assert_eq!(answer.signature(b"list"), None);
    }

    #[test]
    fn the_last_message_has_its_fields_where_they_are_named() {
        let message = challenge(&[]);
        let answer = Challenge::parse(&message).unwrap().answer(Some(LOGIN), &NONCE).message;
        assert!(answer.starts_with(b"NTLMSSP\0\x03\0\0\0\x18\0\x18\0\x58\0\0\0"));
        let field = |at: usize| {
            let (length, offset) = (answer[at] as usize, answer[at + 4] as usize);
            &answer[offset..offset + length]
        };
        assert_eq!((field(28), field(36)), (&utf16("Domain")[..], &utf16("User")[..]));
        assert_eq!((field(44), field(52)), (&[][..], &[][..]));
        // The flags are those that both sides support. Without the server's time there is no MIC.
        assert_eq!(answer[60..64], [0x11, 0x82, 0x88, 0xa0]);
        assert_eq!(answer[64..88], [0; 24]);
    }

    #[test]
    fn the_time_of_the_server_is_used_and_the_messages_are_protected() {
        let message = challenge(b"\x07\0\x08\0\x01\x02\x03\x04\x05\x06\x07\x08");
        let challenge = Challenge::parse(&message).unwrap();
        let answer = challenge.answer(Some(LOGIN), &NONCE);
        let mut bytes = answer.message;
        // The LM response is zero. The NT response contains the server's time and the flags.
        assert_eq!(bytes[88..112], [0; 24]);
        assert_eq!(bytes[112 + 24..112 + 32], [1, 2, 3, 4, 5, 6, 7, 8]);
        let flags = [6, 0, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(bytes.windows(12).filter(|window| *window == flags).count(), 1);
        let mic: [u8; 16] = array(&bytes, AT_MIC).unwrap();
        bytes[AT_MIC..][..16].fill(0);
        let key = answer.session_key.unwrap();
        assert_eq!(mic, hmac_md5(&key, &[&negotiate(), &message, &bytes]));
    }

    #[test]
    fn an_anonymous_client_has_no_key_and_one_zero_byte_as_response() {
        let message = challenge(&[]);
        let answer = Challenge::parse(&message).unwrap().answer(None, &NONCE);
        assert_eq!((answer.session_key, answer.message.len()), (None, 89));
        assert_eq!(answer.message[12..20], [1, 0, 1, 0, 88, 0, 0, 0]);
        assert_eq!(answer.message[20..28], [0, 0, 0, 0, 89, 0, 0, 0]);
        assert_eq!(answer.message[61] & 8, 8);
    }

    #[test]
    fn truncated_challenges_are_refused() {
        let message = challenge(&[]);
        for length in 0..message.len() {
            assert!(Challenge::parse(&message[..length]).is_err(), "{length} bytes");
        }
        let mut other = message.clone();
        other[40] -= 4;
        assert!(Challenge::parse(&other).is_err(), "the pairs have no end");
        let mut other = message.clone();
        other[41] = 0x41;
        assert!(Challenge::parse(&other).is_err(), "too much information");
        let mut other = message;
        other[44..48].fill(0xff);
        assert!(Challenge::parse(&other).is_err(), "the information lies outside the message");
    }

    #[test]
    fn upper_case_keeps_the_number_of_characters() {
        assert_eq!(upper_case("aé-ßǆ1"), "AÉ-ßǄ1");
    }
}
