//! Implements the standard library traits [`Write`] and [`Seek`] for the writer. A write copies
//! data into the current block. A seek first flushes all data.

use std::io::{self, Seek, SeekFrom, Write};

use super::{Mode, Writer};

impl Write for Writer {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if data.is_empty() {
            return Ok(0);
        }
        let space = self.space()?;
        let amount = space.len().min(data.len());
        space[..amount].copy_from_slice(&data[..amount]);
        self.advance(amount);
        Ok(amount)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flush_all()
    }
}

impl Seek for Writer {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        if matches!(to, SeekFrom::Current(0)) {
            return Ok(self.position());
        }
        self.flush_all()?;
        let offset = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(by) => self.position().checked_add_signed(by),
            SeekFrom::End(by) => self.end()?.checked_add_signed(by),
        };
        let offset = offset.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "cannot seek to a negative offset")
        })?;
        self.attempt(|writer| match &mut writer.mode {
            Mode::Plain(plain) => plain.move_to(offset),
            Mode::Deep(deep) => deep.move_to(offset),
            Mode::Closed => Ok(()),
        })?;
        Ok(offset)
    }

    fn stream_position(&mut self) -> io::Result<u64> {
        Ok(self.position())
    }
}

impl Writer {
    /// Returns the offset of the current end of the stream (bytes). Space that is reserved beyond
    /// the end does not count.
    fn end(&self) -> io::Result<u64> {
        match &self.mode {
            _ if !self.files[0].is_regular => self.files[0].size(),
            Mode::Deep(deep) => Ok(deep.end()),
            Mode::Plain(plain) => Ok(plain.end()),
            Mode::Closed => Ok(0),
        }
    }
}
