//! Implements the standard library traits [`BufRead`], [`Read`] and [`Seek`] for the reader.
//! [`BufRead`] lends the current block without copying. [`Read`] copies from the block, or reads
//! directly into the memory of the caller.

use std::io::{self, BufRead, Read, Seek, SeekFrom};

use super::{Mode, Reader};

impl BufRead for Reader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.used >= self.mode.data().len() && !self.advance()? {
            return Ok(&[]);
        }
        let used = self.used;
        Ok(&self.mode.data()[used..])
    }

    fn consume(&mut self, amount: usize) {
        self.used = (self.used + amount).min(self.mode.data().len());
    }
}

impl Read for Reader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        if self.used >= self.mode.data().len() {
            if let Some(read) = self.read_into_caller(into) {
                return read;
            }
            if let Mode::Plain(plain) = &mut self.mode {
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
            into.extend_from_slice(&self.mode.data()[used..]);
            self.used = self.mode.data().len();
            let is_sequential = self.is_sequential();
            let Mode::Plain(plain) = &mut self.mode else {
                if self.advance()? {
                    continue;
                }
                return Ok(into.len() - before);
            };
            if is_sequential {
                self.advance()?;
                continue;
            }
            // The data are read directly into the caller's memory. If the file has grown, small
            // reads follow after the expected end.
            let wanted = plain.left().clamp(GROWN_BYTES, READ_BYTES_MAX) as usize + 1;
            let start = into.len();
            into.resize(start + wanted, 0);
            let read = plain.read_into_caller(&mut into[start..]);
            into.truncate(start + *read.as_ref().unwrap_or(&0));
            self.used = 0;
            if read? == 0 {
                return Ok(into.len() - before);
            }
        }
    }
}

/// Minimum size of a read in `read_to_end` (bytes). Reads beyond the expected end of the file have
/// this size. One byte is added to each read, to detect the end of the file.
const GROWN_BYTES: u64 = 511;
/// Maximum size of a read in `read_to_end`, without the added byte (bytes).
const READ_BYTES_MAX: u64 = 1 << 20;

impl Seek for Reader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let offset = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(by) => self.position().checked_add_signed(by),
            SeekFrom::End(by) => self.size()?.checked_add_signed(by),
        };
        let offset = offset.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "cannot seek to a negative offset")
        })?;
        self.move_to(offset)?;
        Ok(offset)
    }

    fn stream_position(&mut self) -> io::Result<u64> {
        Ok(self.position())
    }
}
