//! Writing through the page cache, one request at a time, by the calling thread: for what is small,
//! in memory, appended, or without offsets.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::opened::Opened;

/// A file that is written through the page cache.
#[derive(Debug)]
pub(super) struct Plain {
    file: Arc<File>,
    /// Writes name an offset; those of pipes and of files that are appended to do not.
    has_offsets: bool,
    buffer: Vec<u8>,
    capacity: usize,
    /// Where what is in the buffer begins, how much it is, and what of it has been written (bytes).
    begin: u64,
    filled: usize,
    flushed: usize,
    /// How far the stream reaches (bytes).
    end: u64,
    /// Blocks may be reserved beyond that.
    has_reserve: bool,
    is_regular: bool,
}

impl Plain {
    /// A writer from a position on; space is reserved for a size that is known beforehand.
    pub fn new(
        opened: &Opened,
        request_bytes: u32,
        position: u64,
        size: Option<u64>,
    ) -> io::Result<Plain> {
        let end = if opened.is_regular { opened.size()? } else { 0 };
        let has_reserve = match size {
            Some(size) if size > end => opened.reserve(end, size - end, false)?,
            _ => false,
        };
        Ok(Plain {
            file: Arc::clone(&opened.file),
            has_offsets: opened.has_offsets && !opened.appends,
            buffer: Vec::new(),
            capacity: request_bytes as usize,
            begin: if opened.appends { end } else { position },
            filled: 0,
            flushed: 0,
            end,
            has_reserve,
            is_regular: opened.is_regular,
        })
    }

    pub fn position(&self) -> u64 {
        self.begin + self.filled as u64
    }

    /// Where what it holds begins (bytes).
    pub fn begin(&self) -> u64 {
        self.begin
    }

    /// What it holds.
    pub fn held(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    pub fn is_full(&self) -> bool {
        self.filled == self.capacity
    }

    pub fn is_flushed(&self) -> bool {
        self.flushed == self.filled
    }

    pub fn space(&mut self) -> &mut [u8] {
        if self.buffer.len() < self.capacity {
            // The first bytes of many small files need only a little of it.
            let wanted = (2 * self.filled).max(16 << 10).min(self.capacity);
            self.buffer.resize(wanted.max(self.buffer.len()), 0);
        }
        &mut self.buffer[self.filled..]
    }

    pub fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.buffer.len() - self.filled, "more than there was space for");
        self.filled += bytes;
    }

    pub fn flush(&mut self) -> io::Result<()> {
        let data = &self.buffer[self.flushed..self.filled];
        if data.is_empty() {
            return Ok(());
        }
        match self.has_offsets {
            true => self.file.write_all_at(data, self.begin + self.flushed as u64)?,
            false => (&*self.file).write_all(data)?,
        }
        self.flushed = self.filled;
        self.end = self.end.max(self.position());
        if self.is_full() || !self.has_offsets {
            (self.begin, self.filled, self.flushed) = (self.position(), 0, 0);
        }
        Ok(())
    }

    /// Goes on at another offset; all is flushed.
    pub fn go_to(&mut self, offset: u64) -> io::Result<()> {
        if !self.has_offsets {
            // A file that is appended to has positions, but all that is written goes to its end.
            let error = io::Error::new(io::ErrorKind::NotSeekable, "a stream has no offsets");
            return if self.is_regular { Ok(()) } else { Err(error) };
        }
        (self.begin, self.filled, self.flushed) = (offset, 0, 0);
        Ok(())
    }

    /// How far the stream reaches (bytes).
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Gives back what is reserved beyond what was written; all is flushed.
    pub fn give_back(&mut self) -> io::Result<u64> {
        if std::mem::take(&mut self.has_reserve) {
            self.file.set_len(self.end)?;
        }
        Ok(self.end)
    }
}
