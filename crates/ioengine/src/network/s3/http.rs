//! Parses the status line and the header of an HTTP response, and the sizes of chunks.
//!
//! Source: RFC 9112 (HTTP/1.1) and RFC 9110 (HTTP semantics). The parser is stricter than the RFCs
//! require: lines must end with CR LF, and the length of the body must be unambiguous. Otherwise
//! the beginning of the next response might not be found.

/// The length of the version and the status code at the beginning of a response (bytes; RFC 9112,
/// section 4).
pub(super) const STATUS_BYTES: usize = "HTTP/1.1 200".len();
/// The bytes that end a header (RFC 9112, section 2.1).
pub(super) const HEAD_END: &[u8] = b"\r\n\r\n";
pub(super) const LINE_END: &[u8] = b"\r\n";
/// The maximum size of a header (bytes). S3 servers send less than 1 KiB, plus at most 2 KiB of
/// user metadata.
pub(super) const HEAD_BYTES_MAX: usize = 16 << 10;
/// The maximum length of a line with a chunk size or a trailer field in a chunked body (bytes).
pub(super) const LINE_BYTES_MAX: usize = 1 << 10;
/// The maximum number of fields in the trailer of a chunked body.
pub(super) const TRAILERS_MAX: usize = 32;

/// The header fields that the parser evaluates.
const FIELDS: [&str; 7] = [
    "content-length",
    "transfer-encoding",
    "connection",
    "content-range",
    "etag",
    "location",
    "x-amz-bucket-region",
];

/// What is wrong with a response. The text completes a sentence that begins with "the server", for
/// example "sent an incomplete header".
pub(super) type Flaw = &'static str;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Status {
    /// The status code, such as 200.
    pub code: u16,
    /// Whether the connection stays open by default, as in HTTP/1.1.
    keeps_alive: bool,
}

impl Status {
    /// Returns whether another response to the same request follows (RFC 9110, section 15.2).
    pub(super) fn is_interim(self) -> bool {
        (100..200).contains(&self.code)
    }
}

/// What determines the end of a body (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::network) enum Framing {
    /// The body has this many bytes.
    Length(u64),
    /// The body consists of chunks, each preceded by its size.
    Chunked,
    /// The body ends when the server closes the connection.
    UntilClosed,
}

/// The part of an object that a body contains (RFC 9110, section 14.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::network) struct ContentRange {
    /// The position of the first byte.
    pub first: u64,
    /// The position of the last byte (inclusive).
    pub last: u64,
    /// The size of the object (bytes). None if the server does not report it.
    pub total: Option<u64>,
}

/// The header of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::network) struct Head {
    /// The status code, such as 200.
    pub status: u16,
    /// What determines the end of the body. `Length(0)` if the response has no body.
    pub framing: Framing,
    /// Whether the server closes the connection after this response (RFC 9112, section 9.3).
    pub closes: bool,
    /// The value of `Content-Length` (bytes). In a response to HEAD, this is the size of the
    /// object.
    pub length: Option<u64>,
    pub range: Option<ContentRange>,
    pub etag: Option<String>,
    pub location: Option<String>,
    /// The value of `x-amz-bucket-region`.
    pub region: Option<String>,
}

/// Returns whether these are the first bytes of a TLS record (RFC 8446, section 5.1).
pub(super) fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [0x14..=0x17, 3, ..])
}

/// Parses the first [`STATUS_BYTES`] bytes of a response.
pub(super) fn status(start: &[u8]) -> Result<Status, Flaw> {
    let (version, code) = start.split_at_checked(9).unwrap_or_default();
    let keeps_alive = match version {
        b"HTTP/1.0 " => false,
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'1'..=b'9', b' '] => true,
        _ => return Err("does not speak HTTP/1.1"),
    };
    match *code {
        [a @ b'1'..=b'5', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
            let digit = |byte: u8| u16::from(byte - b'0');
            Ok(Status { code: digit(a) * 100 + digit(b) * 10 + digit(c), keeps_alive })
        }
        _ => Err("sent a status that is not a number"),
    }
}

/// Parses `rest`, the bytes from the status code to the end of the header. `bodyless` is set if the
/// request was HEAD, because a response to HEAD has no body.
pub(super) fn head(status: Status, rest: &[u8], bodyless: bool) -> Result<Head, Flaw> {
    let rest = rest.strip_suffix(HEAD_END).ok_or("sent an incomplete header")?;
    let text = String::from_utf8_lossy(rest);
    let mut head = Head {
        status: status.code,
        framing: Framing::UntilClosed,
        closes: !status.keeps_alive,
        length: None,
        range: None,
        etag: None,
        location: None,
        region: None,
    };
    let mut chunked = false;
    for line in text.split("\r\n").skip(1) {
        let (name, value) = line.split_once(':').ok_or("sent a header line without a colon")?;
        if name.is_empty() || name.contains([' ', '\t']) || line.contains(['\r', '\n', '\0']) {
            return Err("sent a header field that is not well-formed");
        }
        let value = value.trim_matches([' ', '\t']);
        let known = FIELDS.into_iter().find(|known| known.eq_ignore_ascii_case(name));
        match known.unwrap_or_default() {
            "content-length" => head.learn_length(value)?,
            "transfer-encoding" if value.eq_ignore_ascii_case("chunked") && !chunked => {
                chunked = true;
            }
            "transfer-encoding" => return Err("sent a body in an unknown transfer encoding"),
            "connection" => head.learn_connection(value),
            "content-range" => head.range = content_range(value),
            "etag" => head.etag = Some(value.to_owned()),
            "location" => head.location = Some(value.to_owned()),
            "x-amz-bucket-region" => head.region = Some(value.to_owned()),
            _ => {}
        }
    }
    head.framing = match (chunked, head.length) {
        (true, Some(_)) => return Err("sent a chunked body with a Content-Length"),
        _ if bodyless || status.is_interim() || matches!(status.code, 204 | 304) => {
            Framing::Length(0)
        }
        (true, None) => Framing::Chunked,
        (false, Some(length)) => Framing::Length(length),
        (false, None) => Framing::UntilClosed,
    };
    head.closes |= head.framing == Framing::UntilClosed;
    Ok(head)
}

impl Head {
    fn learn_length(&mut self, value: &str) -> Result<(), Flaw> {
        let length = number(value).ok_or("sent a Content-Length that is not a number of bytes")?;
        match self.length.replace(length) {
            Some(other) if other != length => Err("sent two different values of Content-Length"),
            _ => Ok(()),
        }
    }

    fn learn_connection(&mut self, value: &str) {
        for option in value.split(',').map(str::trim) {
            if option.eq_ignore_ascii_case("close") {
                self.closes = true;
            } else if option.eq_ignore_ascii_case("keep-alive") {
                self.closes = false;
            }
        }
    }
}

/// Parses a decimal number without a sign.
fn number(text: &str) -> Option<u64> {
    let all_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| text.parse().ok())?
}

fn content_range(value: &str) -> Option<ContentRange> {
    let (range, total) = value.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last) = (number(first)?, number(last)?);
    let total = if total == "*" { None } else { Some(number(total)?) };
    (first <= last && total.is_none_or(|total| last < total)).then_some(ContentRange {
        first,
        last,
        total,
    })
}

/// Returns the size of a chunk from the line that precedes the chunk (bytes). The last chunk has
/// size 0 (RFC 9112, section 7.1).
pub(super) fn chunk_bytes(line: &[u8]) -> Result<u64, Flaw> {
    let wrong = "sent a chunk without a valid size";
    let line = line.strip_suffix(LINE_END).ok_or(wrong)?;
    let text = std::str::from_utf8(line).map_err(|_| wrong)?;
    let size = text.split(';').next().unwrap_or_default().trim_end_matches([' ', '\t']);
    if size.is_empty() || size.len() > 16 || !size.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong);
    }
    u64::from_str_radix(size, 16).map_err(|_| wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str, bodyless: bool) -> Result<Head, Flaw> {
        let (start, rest) = text.as_bytes().split_at(STATUS_BYTES);
        head(status(start)?, rest, bodyless)
    }

    #[test]
    fn a_part_of_an_object_is_understood() {
        let text = "HTTP/1.1 206 Partial Content\r\ncontent-length: 10\r\nETag: \"a\"\r\n\
                    Content-Range: bytes 90-99/100\r\nServer:\tX \r\n\r\n";
        let head = parsed(text, false).unwrap();
        assert_eq!((head.status, head.framing), (206, Framing::Length(10)));
        let range = ContentRange { first: 90, last: 99, total: Some(100) };
        assert_eq!((head.range, head.etag.as_deref()), (Some(range), Some("\"a\"")));
        assert!(!head.closes);
    }

    #[test]
    fn the_end_of_a_body_is_known_or_the_connection_ends() {
        let head = parsed("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", false).unwrap();
        assert_eq!((head.framing, head.closes), (Framing::Chunked, false));
        let head = parsed("HTTP/1.1 200 \r\n\r\n", false).unwrap();
        assert_eq!((head.framing, head.closes), (Framing::UntilClosed, true));
        let head = parsed("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", true).unwrap();
        assert_eq!((head.framing, head.length), (Framing::Length(0), Some(7)));
        let head = parsed("HTTP/1.1 204 No\r\nConnection: x, Close\r\n\r\n", false).unwrap();
        assert_eq!((head.framing, head.closes), (Framing::Length(0), true));
        let old = "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n";
        assert!(parsed(&format!("{old}\r\n"), false).unwrap().closes);
        assert!(!parsed(&format!("{old}Connection: keep-alive\r\n\r\n"), false).unwrap().closes);
    }

    #[test]
    fn what_leaves_the_length_in_doubt_is_an_error() {
        for fields in [
            "Content-Length: -5",
            "Content-Length: +5",
            "Content-Length: 5, 5",
            "Content-Length: 99999999999999999999999",
            "Content-Length:",
            "Content-Length: 5\r\nContent-Length: 6",
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Content-Length : 5",
            " folded: 5",
            "x: a\nContent-Length: 5",
            "no colon",
        ] {
            let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
            assert!(parsed(&text, false).is_err(), "{fields}");
        }
    }

    #[test]
    fn other_protocols_are_recognised() {
        assert!(is_tls(b"\x15\x03\x03\0\x02\x02\x28") && !is_tls(b"HTTP/1.1"));
        assert!(status(b"NBDMAGICIHAV").unwrap_err().contains("HTTP"));
        assert!(status(b"HTTP/2.0 200").is_err() && status(b"HTTP/1.1 2x0").is_err());
        assert!(status(b"HTTP/1.1 20").is_err() && status(b"").is_err());
    }

    #[test]
    fn ranges_that_contradict_themselves_are_none() {
        assert!(content_range("bytes 0-9/10").is_some() && content_range("bytes 0-9/*").is_some());
        for wrong in ["bytes 9-0/10", "bytes 0-9/9", "bytes */10", "0-9/10", "bytes 0-/10"] {
            assert_eq!(content_range(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sizes_of_chunks_are_hexadecimal() {
        assert_eq!(chunk_bytes(b"1aF\r\n"), Ok(0x1af));
        assert_eq!(chunk_bytes(b"10 ;name=value\r\n"), Ok(16));
        assert_eq!(chunk_bytes(b"ffffffffffffffff\r\n"), Ok(u64::MAX));
        for wrong in
            [&b"\r\n"[..], b"-1\r\n", b"0x10\r\n", b"10000000000000000\r\n", b"1", b"\xff\r\n"]
        {
            assert!(chunk_bytes(wrong).is_err());
        }
    }

    proptest! {
        #[test]
        fn no_header_makes_the_parser_panic(
            code in "[1-5][0-9]{2}",
            fields in "((Content-Length|Transfer-Encoding|Content-Range|x): ?[ -~]{0,20}\r\n){0,4}",
            rest in ".{0,20}",
        ) {
            let _ = parsed(&format!("HTTP/1.1 {code}{rest}\r\n{fields}\r\n"), false);
            let _ = chunk_bytes(rest.as_bytes());
        }
    }
}
