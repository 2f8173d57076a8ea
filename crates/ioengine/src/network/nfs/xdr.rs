//! XDR (RFC 4506), the encoding of RPC messages: big-endian values, padded to multiples of four
//! bytes.
//!
//! A [`Decoder`] reads bytes of an untrusted server, and never reads beyond the received bytes. If
//! the message is incomplete, the error contains the number of bytes that are needed. So a message
//! can be decoded while it is still arriving.

/// Why a value cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// The message is incomplete. At least this many bytes are needed in total.
    Short(usize),
    /// The server violated the protocol. The text completes a sentence that begins with "the
    /// server".
    Wrong(&'static str),
}

/// Returns the number of padding bytes after `length` bytes of variable-length data (RFC 4506,
/// section 4.10).
pub(super) fn padding(length: u32) -> u32 {
    length.wrapping_neg() % 4
}

/// A message under construction.
#[derive(Clone, Debug, Default)]
pub(super) struct Encoder(pub(super) Vec<u8>);

impl Encoder {
    /// Returns an empty message with room for `bytes` bytes.
    pub(super) fn with_capacity(bytes: usize) -> Encoder {
        Encoder(Vec::with_capacity(bytes))
    }

    /// Adds an unsigned integer, an enumeration or a boolean (sections 4.2 to 4.4).
    pub(super) fn word(&mut self, value: u32) -> &mut Encoder {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// Adds an unsigned hyper integer (section 4.5).
    pub(super) fn hyper(&mut self, value: u64) -> &mut Encoder {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// Adds fixed-length data (section 4.9). The number of bytes must be a multiple of four,
    /// because no padding is added.
    pub(super) fn fixed(&mut self, bytes: &[u8]) -> &mut Encoder {
        self.0.extend(bytes);
        self
    }

    /// Adds variable-length data: the length, the bytes, and the padding (section 4.10).
    pub(super) fn opaque(&mut self, bytes: &[u8]) -> &mut Encoder {
        let length = bytes.len() as u32;
        self.word(length).fixed(bytes);
        self.fixed(&[0; 3][..padding(length) as usize])
    }
}

/// Reads the values of a message in order.
#[derive(Clone, Debug)]
pub(super) struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Decoder<'a> {
    /// Returns a decoder at the beginning of `bytes`.
    pub(super) fn new(bytes: &'a [u8]) -> Decoder<'a> {
        Decoder { bytes, at: 0 }
    }

    /// Returns the number of bytes that have been read.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Reads the next `length` bytes.
    pub(super) fn fixed(&mut self, length: usize) -> Result<&'a [u8], Flaw> {
        let end = self.at.checked_add(length).ok_or(Flaw::Wrong("sent an impossible length"))?;
        let bytes = self.bytes.get(self.at..end).ok_or(Flaw::Short(end))?;
        self.at = end;
        Ok(bytes)
    }

    /// Reads the next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Flaw> {
        Ok(self.fixed(N)?.try_into().expect("`fixed` returns exactly `N` bytes"))
    }

    /// Reads an unsigned integer, an enumeration or a boolean.
    pub(super) fn word(&mut self) -> Result<u32, Flaw> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// Reads an unsigned hyper integer.
    pub(super) fn hyper(&mut self) -> Result<u64, Flaw> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// Reads variable-length data of at most `most` bytes, and skips its padding.
    pub(super) fn opaque(&mut self, most: u32) -> Result<&'a [u8], Flaw> {
        let length = self.word()?;
        if length > most {
            return Err(Flaw::Wrong("sent a value that is longer than the protocol allows"));
        }
        let bytes = self.fixed(length as usize)?;
        self.fixed(padding(length) as usize)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_encoded_as_in_the_specification() {
        let mut message = Encoder::default();
        message.word(259).hyper(0x0102_0304_0506_0708).fixed(b"abcd").opaque(b"sillyprog");
        // The encoding of "sillyprog" is that of the example in RFC 4506, section 7.
        let expected = b"\0\0\x01\x03\x01\x02\x03\x04\x05\x06\x07\x08abcd\0\0\0\x09sillyprog\0\0\0";
        assert_eq!(message.0, expected);
        let mut decoder = Decoder::new(&message.0);
        assert_eq!(decoder.word(), Ok(259));
        assert_eq!(decoder.hyper(), Ok(0x0102_0304_0506_0708));
        assert_eq!(decoder.array(), Ok(*b"abcd"));
        assert_eq!(decoder.opaque(9), Ok(&b"sillyprog"[..]));
        assert_eq!(decoder.word(), Err(Flaw::Short(expected.len() + 4)));
    }

    #[test]
    fn padding_completes_four_bytes() {
        assert_eq!([0, 1, 2, 3, 4, 5, u32::MAX].map(padding), [0, 3, 2, 1, 0, 3, 1]);
    }

    #[test]
    fn a_length_beyond_the_limit_or_the_message_is_a_flaw() {
        let long = b"\xff\xff\xff\xffabcd";
        assert!(matches!(Decoder::new(long).opaque(8), Err(Flaw::Wrong(_))));
        assert_eq!(Decoder::new(long).opaque(u32::MAX), Err(Flaw::Short(4 + u32::MAX as usize)));
        assert_eq!(Decoder::new(b"\0\0\0\x05abcde").opaque(8), Err(Flaw::Short(12)));
        let mut end = Decoder { bytes: long, at: 5 };
        assert!(matches!(end.fixed(usize::MAX), Err(Flaw::Wrong(_))));
    }
}
