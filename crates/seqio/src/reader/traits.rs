//! The reader as the traits of the standard library have it. [`BufRead`] lends the block itself;
//! [`Read`] copies out of it, or reads straight into the program's memory.

use std::io::{self, BufRead, Read, Seek, SeekFrom};

use super::{Reader, Way};

impl BufRead for Reader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.used >= self.way.data().len() && !self.advance()? {
            return Ok(&[]);
        }
        let used = self.used;
        Ok(&self.way.data()[used..])
    }

    fn consume(&mut self, amount: usize) {
        self.used = (self.used + amount).min(self.way.data().len());
    }
}

impl Read for Reader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        if self.used >= self.way.data().len() {
            if let Some(read) = self.read_straight(into) {
                return read;
            }
            if let Way::Plain(plain) = &mut self.way {
                plain.expect(into.len());
            }
        }
        let ready = self.fill_buf()?;
        let amount = ready.len().min(into.len());
        into[..amount].copy_from_slice(&ready[..amount]);
        self.consume(amount);
        Ok(amount)
    }

    fn read_to_end(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        let before = into.len();
        loop {
            let used = self.used;
            into.extend_from_slice(&self.way.data()[used..]);
            self.used = self.way.data().len();
            let is_sequential = self.is_sequential();
            let Way::Plain(plain) = &mut self.way else {
                if self.advance()? {
                    continue;
                }
                return Ok(into.len() - before);
            };
            if is_sequential {
                self.advance()?;
                continue;
            }
            // Straight into the program's memory: all that is left of the file and one byte more,
            // so that its end is seen; then little, as long as it grows.
            let wanted = plain.left().clamp(GROWN_BYTES, MOST_AT_ONCE_BYTES) as usize + 1;
            let start = into.len();
            into.resize(start + wanted, 0);
            let read = plain.read_straight(&mut into[start..]);
            into.truncate(start + *read.as_ref().unwrap_or(&0));
            self.used = 0;
            if read? == 0 {
                return Ok(into.len() - before);
            }
        }
    }
}

/// How much is asked for where nothing should be left, and at the most (bytes).
const GROWN_BYTES: u64 = 511;
const MOST_AT_ONCE_BYTES: u64 = 1 << 20;

impl Seek for Reader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let offset = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(by) => self.position().checked_add_signed(by),
            SeekFrom::End(by) => self.size()?.checked_add_signed(by),
        };
        let offset = offset.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "seeking to before the beginning")
        })?;
        self.go_to(offset)?;
        Ok(offset)
    }

    fn stream_position(&mut self) -> io::Result<u64> {
        Ok(self.position())
    }
}
