//! Decodes fuzz input into numbers, flags and texts. Every input is valid, and a small change of
//! the input changes few of the decoded values.

/// The input that is not decoded yet. After its end, all decoded values are zero or empty.
pub struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    /// Returns true if the whole input has been decoded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub fn flag(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    /// Decodes a number of up to 63 bits. All lengths from 0 to 8 bytes are equally likely.
    pub fn number(&mut self) -> u64 {
        let length = usize::from(self.byte() % 9);
        let value = (0..length).fold(0, |value, _| value << 8 | u64::from(self.byte()));
        value & i64::MAX as u64
    }

    /// Decodes a 2-byte length, and then a text of that length, but at most `most` bytes.
    pub fn text(&mut self, most: usize) -> String {
        let length = usize::from(self.byte()) << 8 | usize::from(self.byte());
        let (text, rest) = self.0.split_at(length.min(most).min(self.0.len()));
        self.0 = rest;
        String::from_utf8_lossy(text).into_owned()
    }
}
