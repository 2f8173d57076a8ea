//! SPNEGO: wraps the messages of an authentication protocol in DER.
//!
//! Source: RFC 4178, section 4.2, and X.690 for DER. The client offers only the mechanism NTLM. If
//! the NTLM messages have a message integrity code (MIC), a server requires a signature over the
//! list of mechanisms.

/// The object identifier of SPNEGO, 1.3.6.1.5.5.2, with its tag and length (RFC 4178, section 3).
const SPNEGO: [u8; 8] = [0x06, 6, 0x2b, 6, 1, 5, 5, 2];
/// The object identifier of NTLM, 1.3.6.1.4.1.311.2.2.10, with its tag and length (MS-NLMP 1.9).
const NTLM: [u8; 12] = [0x06, 10, 0x2b, 6, 1, 4, 1, 0x82, 0x37, 2, 2, 10];

/// DER tags.
const TAG_APPLICATION: u8 = 0x60;
const TAG_OCTETS: u8 = 0x04;
const TAG_SEQUENCE: u8 = 0x30;
const TAG_0: u8 = 0xa0;
const TAG_1: u8 = 0xa1;
const TAG_2: u8 = 0xa2;
const TAG_3: u8 = 0xa3;

/// Wraps the first NTLM message in a NegTokenInit (RFC 4178, section 4.2.1).
pub(super) fn first(message: &[u8]) -> Vec<u8> {
    let mechanisms = wrapped(TAG_0, &mechanisms());
    let token = wrapped(TAG_2, &wrapped(TAG_OCTETS, message));
    let init = wrapped(TAG_0, &wrapped(TAG_SEQUENCE, &[mechanisms, token].concat()));
    wrapped(TAG_APPLICATION, &[&SPNEGO[..], &init].concat())
}

/// Returns the encoded list of mechanisms, which the client sends and signs (RFC 4178, sections 4.1
/// and 4.2.2).
pub(super) fn mechanisms() -> Vec<u8> {
    wrapped(TAG_SEQUENCE, &NTLM)
}

/// Wraps a later NTLM message in a NegTokenResp (RFC 4178, section 4.2.2). `signature` is the
/// signature of the list of mechanisms.
pub(super) fn next(message: &[u8], signature: Option<[u8; 16]>) -> Vec<u8> {
    let mut fields = wrapped(TAG_2, &wrapped(TAG_OCTETS, message));
    if let Some(signature) = signature {
        fields.extend(wrapped(TAG_3, &wrapped(TAG_OCTETS, &signature)));
    }
    wrapped(TAG_1, &wrapped(TAG_SEQUENCE, &fields))
}

/// Returns the responseToken in a NegTokenResp of the server. None if `token` contains no
/// responseToken or is malformed.
pub(super) fn answer(token: &[u8]) -> Option<&[u8]> {
    let mut fields = inside(TAG_SEQUENCE, inside(TAG_1, token)?)?;
    while !fields.is_empty() {
        let (tag, content, rest) = element(fields)?;
        if tag == TAG_2 {
            return inside(TAG_OCTETS, content);
        }
        fields = rest;
    }
    None
}

/// Encodes a DER element: tag, length and content.
fn wrapped(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let mut bytes = vec![tag];
    match length {
        0..0x80 => bytes.push(length as u8),
        0x80..0x100 => bytes.extend([0x81, length as u8]),
        _ => bytes.extend([0x82, (length >> 8) as u8, length as u8]),
    }
    bytes.extend_from_slice(content);
    bytes
}

/// Returns the content of the first element. None if the element does not have the tag `expected`.
fn inside(expected: u8, bytes: &[u8]) -> Option<&[u8]> {
    element(bytes).and_then(|(tag, content, _)| (tag == expected).then_some(content))
}

/// Splits off the first element. Returns its tag, its content, and the bytes after the element.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, short], mut rest) = bytes.split_first_chunk::<2>()?;
    let mut length = usize::from(short);
    if short >= 0x80 {
        let size = usize::from(short & 0x7f);
        let (digits, behind) = rest.split_at_checked(size).filter(|_| (1..=3).contains(&size))?;
        length = digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit));
        rest = behind;
    }
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_wrapped_as_the_rfc_says() {
        let mut expected = b"\x60\x25\x06\x06\x2b\x06\x01\x05\x05\x02".to_vec();
        expected.extend(b"\xa0\x1b\x30\x19\xa0\x0e\x30\x0c\x06\x0a\x2b\x06\x01\x04\x01");
        expected.extend(b"\x82\x37\x02\x02\x0a\xa2\x07\x04\x05abcde");
        assert_eq!(first(b"abcde"), expected);
        assert_eq!(next(b"abc", None), b"\xa1\x09\x30\x07\xa2\x05\x04\x03abc");
        let mut signed = b"\xa1\x1d\x30\x1b\xa2\x05\x04\x03abc\xa3\x12\x04\x10".to_vec();
        signed.extend([9; 16]);
        assert_eq!(next(b"abc", Some([9; 16])), signed);
        let long = next(&[7; 300], None);
        assert_eq!(long[..4], [0xa1, 0x82, 0x01, 0x38]);
        assert_eq!(answer(&long), Some(&[7; 300][..]));
        assert_eq!(answer(&next(&[7; 200], Some([1; 16]))), Some(&[7; 200][..]));
    }

    #[test]
    fn the_message_of_the_server_is_found_among_other_fields() {
        let mut token = b"\xa1\x1a\x30\x18\xa0\x03\x0a\x01\x01\xa1\x0c".to_vec();
        token.extend(NTLM);
        token.extend(b"\xa2\x03\x04\x01x");
        assert_eq!(answer(&token), Some(&b"x"[..]));
    }

    #[test]
    fn malformed_tokens_have_no_answer() {
        let token = next(&[7; 300], None);
        for length in 0..token.len() {
            assert_eq!(answer(&token[..length]), None, "{length} bytes");
        }
        // These tokens have no responseToken, or an indefinite, overlong or excessive length.
        assert_eq!(answer(b"\xa1\x07\x30\x05\xa0\x03\x0a\x01\x00"), None);
        assert_eq!(answer(b"\xa1\x80\x30\x00\x00\x00"), None);
        assert_eq!(answer(b"\xa1\x84\xff\xff\xff\xff\x30\x00"), None);
        assert_eq!(answer(b"\xa1\xff\x30"), None);
        assert_eq!(answer(b""), None);
    }
}
