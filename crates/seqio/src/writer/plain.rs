//! Writes a file through the page cache, one request at a time in the calling thread. This is used
//! for files that are small, in memory, not seekable, or opened for appending.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::opened::Opened;

/// A file that is written through the page cache.
#[derive(Debug)]
pub(super) struct Plain {
    file: Arc<File>,
    /// Whether each write specifies an offset. False for pipes and for files that are opened for
    /// appending.
    has_offsets: bool,
    buffer: Vec<u8>,
    capacity: usize,
    /// Offset of the start of the buffer in the stream (bytes).
    begin: u64,
    /// Number of bytes that the caller has put into the buffer.
    filled: usize,
    /// Number of bytes at the start of the buffer that are already written to the file.
    flushed: usize,
    /// Offset of the end of the stream (bytes).
    end: u64,
    /// Whether disk space was reserved beyond the end of the file. Such space must be released.
    has_reserve: bool,
    is_regular: bool,
}

impl Plain {
    /// Creates a writer that starts at `position`. If the final size is known, disk space is
    /// reserved.
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

    pub fn begin(&self) -> u64 {
        self.begin
    }

    /// Returns the data in the buffer, including data that are already flushed.
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
            // The buffer grows on demand, because small files need only a small buffer.
            let wanted = (2 * self.filled).max(16 << 10).min(self.capacity);
            self.buffer.resize(wanted.max(self.buffer.len()), 0);
        }
        &mut self.buffer[self.filled..]
    }

    pub fn advance(&mut self, bytes: usize) {
        assert!(
            bytes <= self.buffer.len() - self.filled,
            "the buffer is too small for these bytes"
        );
        self.filled += bytes;
    }

    pub fn flush(&mut self) -> io::Result<()> {
        let data = &self.buffer[self.flushed..self.filled];
        if data.is_empty() {
            return Ok(());
        }
        if self.has_offsets {
            self.file.write_all_at(data, self.begin + self.flushed as u64)?;
        } else {
            (&*self.file).write_all(data)?;
        }
        self.flushed = self.filled;
        self.end = self.end.max(self.position());
        if self.is_full() || !self.has_offsets {
            (self.begin, self.filled, self.flushed) = (self.position(), 0, 0);
        }
        Ok(())
    }

    /// Moves to another offset. The caller must have flushed the buffer.
    pub fn move_to(&mut self, offset: u64) -> io::Result<()> {
        if !self.has_offsets {
            // A seek in a file that was opened for appending has no effect, because all writes are
            // made at the end of the file.
            let error = io::Error::new(io::ErrorKind::NotSeekable, "this file is not seekable");
            return if self.is_regular { Ok(()) } else { Err(error) };
        }
        (self.begin, self.filled, self.flushed) = (offset, 0, 0);
        Ok(())
    }

    pub fn end(&self) -> u64 {
        self.end
    }

    /// Releases the disk space that is reserved beyond the end of the stream. Returns the offset of
    /// the end (bytes). The caller must have flushed the buffer.
    pub fn give_back(&mut self) -> io::Result<u64> {
        if std::mem::take(&mut self.has_reserve) {
            self.file.set_len(self.end)?;
        }
        Ok(self.end)
    }
}
