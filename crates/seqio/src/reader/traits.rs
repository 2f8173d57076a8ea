//! The reader as the traits of the standard library have it. [`BufRead`] lends the block itself;
//! [`Read`] copies out of it.

use std::io::{self, BufRead, Read, Seek, SeekFrom};

use super::Reader;

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
        let ready = self.fill_buf()?;
        let amount = ready.len().min(into.len());
        into[..amount].copy_from_slice(&ready[..amount]);
        self.consume(amount);
        Ok(amount)
    }
}

impl Seek for Reader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let place = match to {
            SeekFrom::Start(place) => Some(place),
            SeekFrom::Current(by) => self.position().checked_add_signed(by),
            SeekFrom::End(by) => self.size()?.checked_add_signed(by),
        };
        let place = place.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "seeking to before the beginning")
        })?;
        self.go_to(place)?;
        Ok(place)
    }

    fn stream_position(&mut self) -> io::Result<u64> {
        Ok(self.position())
    }
}
