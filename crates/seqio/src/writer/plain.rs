//! Writing through the page cache, one request at a time, by the thread that writes: for what is
//! small, in memory or has no places.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::opened::Opened;

/// See the module.
#[derive(Debug)]
pub(super) struct Plain {
    file: Arc<File>,
    has_places: bool,
    buffer: Vec<u8>,
    capacity: usize,
    /// Where what is in the buffer begins, how much it is, and what of it has been written (bytes).
    begin: u64,
    filled: usize,
    flushed: usize,
    /// How far the stream reaches (bytes).
    end: u64,
    /// The file may be larger than that.
    is_ahead: bool,
}

impl Plain {
    /// A writer to whatever is open; space is reserved for a size that is foretold.
    pub fn new(opened: &Opened, request_bytes: u32, size: Option<u64>) -> io::Result<Plain> {
        let end = if opened.regular { opened.size()? } else { 0 };
        let is_ahead = match size {
            Some(size) if size > end => opened.reserve(end, size - end)?,
            _ => false,
        };
        Ok(Plain {
            file: Arc::clone(&opened.file),
            has_places: opened.has_places,
            buffer: Vec::new(),
            capacity: request_bytes as usize,
            begin: 0,
            filled: 0,
            flushed: 0,
            end,
            is_ahead,
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
            // The first bytes of many small files need no more than a little of it.
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
        match self.has_places {
            true => self.file.write_all_at(data, self.begin + self.flushed as u64)?,
            false => (&*self.file).write_all(data)?,
        }
        self.flushed = self.filled;
        self.end = self.end.max(self.position());
        if self.is_full() || !self.has_places {
            (self.begin, self.filled, self.flushed) = (self.position(), 0, 0);
        }
        Ok(())
    }

    /// Goes on at another place; all is flushed.
    pub fn go_to(&mut self, place: u64) -> io::Result<()> {
        if !self.has_places {
            return Err(io::Error::new(io::ErrorKind::NotSeekable, "a stream has no places"));
        }
        (self.begin, self.filled, self.flushed) = (place, 0, 0);
        Ok(())
    }

    /// How far the stream reaches (bytes).
    pub fn end(&self) -> u64 {
        self.end
    }

    /// What was reserved beyond what was written is given back; all is flushed.
    pub fn set_size(&mut self) -> io::Result<u64> {
        if std::mem::take(&mut self.is_ahead) {
            self.file.set_len(self.end)?;
        }
        Ok(self.end)
    }
}
