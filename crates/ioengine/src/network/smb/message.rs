//! Messages of SMB 2: encodes and decodes headers, and finds the messages in the received stream.
//!
//! Source: MS-SMB2. Numbers are little-endian, except the length in the transport header, which is
//! big-endian. A server may send several messages in one frame (section 3.2.5.1.9).

/// The size of the transport header (bytes). The header consists of a zero byte and the length of
/// the frame (section 2.1).
pub(super) const TRANSPORT_BYTES: usize = 4;
/// The size of the header of a message (bytes; section 2.2.1).
pub(super) const HEADER_BYTES: usize = 64;

/// Commands (section 2.2.1.2).
pub(super) const NEGOTIATE: u16 = 0;
pub(super) const SESSION_SETUP: u16 = 1;
pub(super) const TREE_CONNECT: u16 = 3;
pub(super) const CREATE: u16 = 5;
pub(super) const FLUSH: u16 = 7;
pub(super) const READ: u16 = 8;
pub(super) const WRITE: u16 = 9;

/// SMB2_FLAGS_SERVER_TO_REDIR: the message is a response (section 2.2.1.2).
const FLAG_RESPONSE: u32 = 1;
/// SMB2_FLAGS_ASYNC_COMMAND: the request is processed asynchronously (section 2.2.1.1).
pub(super) const FLAG_ASYNC: u32 = 1 << 1;
/// SMB2_FLAGS_SIGNED: the message has a signature (section 2.2.1.2).
pub(super) const FLAG_SIGNED: u32 = 1 << 3;

/// "\xfeSMB", the first bytes of a message (section 2.2.1.2).
const PROTOCOL_ID: [u8; 4] = [0xfe, b'S', b'M', b'B'];
/// Offsets of the fields in the header (bytes).
const AT_CREDIT_CHARGE: usize = 6;
const AT_STATUS: usize = 8;
const AT_COMMAND: usize = 12;
const AT_CREDITS: usize = 14;
pub(super) const AT_FLAGS: usize = 16;
const AT_NEXT_COMMAND: usize = 20;
const AT_MESSAGE_ID: usize = 24;
const AT_TREE_ID: usize = 36;
const AT_SESSION_ID: usize = 40;
/// The offset of the signature in the header (bytes). The signature is the last field.
pub(super) const AT_SIGNATURE: usize = 48;
/// The message identifier of an oplock break notification, which is not a response to a request
/// (section 2.2.23).
const UNREQUESTED: u64 = u64::MAX;

/// A request under construction: the transport header, the header and the body.
#[derive(Debug)]
pub(super) struct Message(Vec<u8>);

/// The fields of a request's header that differ between requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestHeader {
    pub command: u16,
    pub credit_charge: u16,
    pub credit_request: u16,
    pub message_id: u64,
    pub tree_id: u32,
    pub session_id: u64,
}

impl Message {
    /// Begins a request. `structure_bytes` is the field StructureSize, with which the body begins.
    pub(super) fn new(structure_bytes: u16) -> Message {
        let mut bytes = Vec::with_capacity(128);
        bytes.resize(TRANSPORT_BYTES + HEADER_BYTES, 0);
        Message(bytes).u16(structure_bytes)
    }

    pub(super) fn u8(self, value: u8) -> Message {
        self.bytes(&[value])
    }

    pub(super) fn u16(self, value: u16) -> Message {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn u32(self, value: u32) -> Message {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn u64(self, value: u64) -> Message {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn bytes(mut self, bytes: &[u8]) -> Message {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Fills in the transport header and the header, and returns the bytes. `payload_bytes` is the
    /// size of the payload, which the caller sends after these bytes.
    pub(super) fn finish(self, header: &RequestHeader, payload_bytes: usize) -> Vec<u8> {
        let mut bytes = self.0;
        let length = (bytes.len() - TRANSPORT_BYTES + payload_bytes) as u32;
        bytes[..TRANSPORT_BYTES].copy_from_slice(&length.to_be_bytes());
        let mut put = |at: usize, value: &[u8]| {
            bytes[TRANSPORT_BYTES + at..][..value.len()].copy_from_slice(value);
        };
        put(0, &PROTOCOL_ID);
        put(4, &(HEADER_BYTES as u16).to_le_bytes());
        put(AT_CREDIT_CHARGE, &header.credit_charge.to_le_bytes());
        put(AT_COMMAND, &header.command.to_le_bytes());
        put(AT_CREDITS, &header.credit_request.to_le_bytes());
        put(AT_MESSAGE_ID, &header.message_id.to_le_bytes());
        put(AT_TREE_ID, &header.tree_id.to_le_bytes());
        put(AT_SESSION_ID, &header.session_id.to_le_bytes());
        bytes
    }
}

/// The header of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub status: u32,
    pub command: u16,
    pub credits: u16,
    pub flags: u32,
    pub message_id: u64,
    pub tree_id: u32,
    pub session_id: u64,
}

impl Header {
    /// Parses a header of [`HEADER_BYTES`] bytes. Returns the header, and the offset of the next
    /// message in the frame. The offset is 0 if there is no next message.
    fn parse(bytes: &[u8]) -> Result<(Header, usize), &'static str> {
        match bytes.get(..4) {
            Some(id) if id == PROTOCOL_ID => {}
            Some([0xff, b'S', b'M', b'B']) => return Err("speaks only SMB 1"),
            Some([0xfd, b'S', b'M', b'B']) => return Err("sent an encrypted message"),
            _ => return Err("does not speak SMB"),
        }
        let header = Header {
            status: le32(bytes, AT_STATUS)?,
            command: le16(bytes, AT_COMMAND)?,
            credits: le16(bytes, AT_CREDITS)?,
            flags: le32(bytes, AT_FLAGS)?,
            message_id: le64(bytes, AT_MESSAGE_ID)?,
            tree_id: le32(bytes, AT_TREE_ID)?,
            session_id: le64(bytes, AT_SESSION_ID)?,
        };
        if le16(bytes, 4)? as usize != HEADER_BYTES || header.flags & FLAG_RESPONSE == 0 {
            return Err("sent a header that is not a response header");
        }
        Ok((header, le32(bytes, AT_NEXT_COMMAND)? as usize))
    }

    /// Returns whether the server sent the message without a request.
    pub(super) fn is_unrequested(&self) -> bool {
        self.message_id == UNREQUESTED
    }

    pub(super) fn is_signed(&self) -> bool {
        self.flags & FLAG_SIGNED != 0
    }
}

/// Finds the messages in the frames that the server sends.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The number of bytes that follow the current message in its frame.
    left: usize,
}

impl Frames {
    /// Returns the size of the next message's header (bytes). For the first message of a frame, the
    /// size includes the transport header.
    pub(super) fn header_bytes(&self) -> usize {
        if self.left == 0 { TRANSPORT_BYTES + HEADER_BYTES } else { HEADER_BYTES }
    }

    /// Parses the header of the next message. Returns the header, and the number of bytes of the
    /// message after the header.
    ///
    /// # Errors
    /// The server violated the protocol. The error completes a sentence that begins with "the
    /// server".
    pub(super) fn begin(&mut self, bytes: &[u8]) -> Result<(Header, usize), &'static str> {
        let mut left = self.left;
        let mut bytes = bytes;
        if left == 0 {
            let Some((&[0, high, middle, low], rest)) = bytes.split_first_chunk::<4>() else {
                return Err("does not speak SMB");
            };
            left = u32::from_be_bytes([0, high, middle, low]) as usize;
            bytes = rest;
        }
        if left < HEADER_BYTES {
            return Err("sent a message without a header");
        }
        let (header, next) = Header::parse(bytes)?;
        let length = if next == 0 { left } else { next };
        let aligned = next % 8 == 0 && next <= left.saturating_sub(HEADER_BYTES);
        if length < HEADER_BYTES || !aligned {
            return Err("sent messages that do not fit into their frame");
        }
        self.left = left - length;
        Ok((header, length - HEADER_BYTES))
    }
}

const SHORT: &str = "sent a message that is too short";

pub(super) fn le16(bytes: &[u8], at: usize) -> Result<u16, &'static str> {
    Ok(u16::from_le_bytes(array(bytes, at)?))
}

pub(super) fn le32(bytes: &[u8], at: usize) -> Result<u32, &'static str> {
    Ok(u32::from_le_bytes(array(bytes, at)?))
}

pub(super) fn le64(bytes: &[u8], at: usize) -> Result<u64, &'static str> {
    Ok(u64::from_le_bytes(array(bytes, at)?))
}

/// Returns the `BYTES` bytes at position `at`, or an error if `bytes` is too short.
pub(super) fn array<const BYTES: usize>(
    bytes: &[u8],
    at: usize,
) -> Result<[u8; BYTES], &'static str> {
    bytes.get(at..).and_then(|rest| rest.first_chunk().copied()).ok_or(SHORT)
}

/// Returns `length` bytes of the body. `offset` is their offset from the beginning of the header,
/// which precedes the body.
///
/// # Errors
/// These bytes are not inside the body.
pub(super) fn named(body: &[u8], offset: u16, length: u16) -> Result<&[u8], &'static str> {
    if length == 0 {
        return Ok(&[]);
    }
    let start = usize::from(offset).checked_sub(HEADER_BYTES).ok_or(SHORT)?;
    body.get(start..).and_then(|rest| rest.get(..usize::from(length))).ok_or(SHORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a response without a body, with its transport header.
    fn response() -> Vec<u8> {
        let mut bytes = vec![0, 0, 0, 64];
        bytes.extend(b"\xfeSMB\x40\0\x01\0\x22\0\0\xc0\x08\0\x05\0\x01\0\0\0\0\0\0\0");
        bytes.extend(b"\x07\0\0\0\0\0\0\0\0\0\0\0\x03\0\0\0\x99\0\0\0\0\0\0\0");
        bytes.extend([0; 16]);
        bytes
    }

    #[test]
    fn a_header_has_its_fields_where_the_specification_puts_them() {
        let (header, rest) = Frames::default().begin(&response()).unwrap();
        let expected = Header {
            status: 0xc000_0022,
            command: READ,
            credits: 5,
            flags: 1,
            message_id: 7,
            tree_id: 3,
            session_id: 0x99,
        };
        assert_eq!((header, rest), (expected, 0));
        let header = RequestHeader {
            command: WRITE,
            credit_charge: 2,
            credit_request: 0x0102,
            message_id: 9,
            tree_id: 4,
            session_id: 5,
        };
        let bytes = Message::new(49).u8(7).finish(&header, 0x01_0000);
        let mut expected = vec![0, 1, 0, 67];
        expected.extend(b"\xfeSMB\x40\0\x02\0\0\0\0\0\x09\0\x02\x01\0\0\0\0\0\0\0\0");
        expected.extend(b"\x09\0\0\0\0\0\0\0\0\0\0\0\x04\0\0\0\x05\0\0\0\0\0\0\0");
        expected.extend([0; 16]);
        expected.extend([49, 0, 7]);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn wrong_headers_are_named() {
        let wrong = |change: fn(&mut Vec<u8>)| {
            let mut bytes = response();
            change(&mut bytes);
            Frames::default().begin(&bytes).expect_err("the header is wrong")
        };
        assert_eq!(wrong(|b| b[0] = 0x85), "does not speak SMB");
        assert_eq!(wrong(|b| b[4] = 0xff), "speaks only SMB 1");
        assert_eq!(wrong(|b| b[4] = 0xfd), "sent an encrypted message");
        assert_eq!(wrong(|b| b[4] = b'H'), "does not speak SMB");
        assert_eq!(wrong(|b| b[3] = 63), "sent a message without a header");
        assert!(wrong(|b| b[8] = 65).contains("not a response header"));
        assert!(wrong(|b| b[20] = 0).contains("not a response header"));
        assert_eq!(wrong(|b| b.truncate(40)), SHORT);
        // These offsets of the next message are after the end of the frame, inside the current
        // message, or not a multiple of 8.
        assert!(wrong(|b| b[24] = 64).contains("do not fit"));
        assert!(wrong(|b| b[25] = 0xff).contains("do not fit"));
        assert!(wrong(|b| (b[3], b[24]) = (200, 8)).contains("do not fit"));
        assert!(wrong(|b| (b[3], b[24]) = (200, 68)).contains("do not fit"));
        // The last message of the frame is too short for a header.
        assert!(wrong(|b| (b[3], b[24]) = (135, 72)).contains("do not fit"));
    }

    #[test]
    fn the_messages_of_one_frame_are_separated() {
        let mut bytes = response();
        (bytes[3], bytes[24]) = (64 + 8 + 64 + 5, 72);
        let mut frames = Frames::default();
        assert_eq!(frames.header_bytes(), 68);
        assert_eq!(frames.begin(&bytes).unwrap().1, 8);
        assert_eq!(frames.header_bytes(), 64);
        assert_eq!(frames.begin(&response()[4..]).unwrap().1, 5);
        assert_eq!(frames.header_bytes(), 68);
    }

    #[test]
    fn a_range_outside_of_the_message_is_refused() {
        assert_eq!(named(&[1, 2, 3], 65, 2), Ok(&[2, 3][..]));
        assert_eq!(named(&[1, 2, 3], 0, 0), Ok(&[][..]));
        for (offset, length) in [(63, 1), (66, 2), (65, u16::MAX), (u16::MAX, 1)] {
            assert_eq!(named(&[1, 2, 3], offset, length), Err(SHORT));
        }
    }
}
