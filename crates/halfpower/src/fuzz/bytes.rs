//! What a fuzz target reads its input with: numbers, flags and texts out of any bytes, so that
//! every input means something and a small change of it changes little.

/// Bytes taken one by one; zeros when there are no more.
pub struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    /// Whether all have been taken.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next one.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Yes or no.
    pub fn flag(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    /// A number of 63 bits, the small ones as likely as the large ones.
    pub fn number(&mut self) -> u64 {
        let length = usize::from(self.byte() % 9);
        let value = (0..length).fold(0, |value, _| value << 8 | u64::from(self.byte()));
        value & i64::MAX as u64
    }

    /// A text of at most so many bytes, behind its length.
    pub fn text(&mut self, most: usize) -> String {
        let length = usize::from(self.byte()) << 8 | usize::from(self.byte());
        let (text, rest) = self.0.split_at(length.min(most).min(self.0.len()));
        self.0 = rest;
        String::from_utf8_lossy(text).into_owned()
    }
}
