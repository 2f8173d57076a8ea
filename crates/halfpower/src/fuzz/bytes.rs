//! Decodes fuzz input into numbers, flags and texts. Every input is valid, and a small change of
//! the input changes few values.

/// The remaining input; zeros follow its end.
pub struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    /// Whether the input is used up.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// The next flag.
    pub fn flag(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    /// A number of up to 63 bits; all magnitudes are equally likely.
    pub fn number(&mut self) -> u64 {
        let length = usize::from(self.byte() % 9);
        let value = (0..length).fold(0, |value, _| value << 8 | u64::from(self.byte()));
        value & i64::MAX as u64
    }

    /// A text with a length prefix, of limited length (bytes).
    pub fn text(&mut self, most: usize) -> String {
        let length = usize::from(self.byte()) << 8 | usize::from(self.byte());
        let (text, rest) = self.0.split_at(length.min(most).min(self.0.len()));
        self.0 = rest;
        String::from_utf8_lossy(text).into_owned()
    }
}
