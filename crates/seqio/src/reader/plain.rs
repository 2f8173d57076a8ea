//! Reads through the page cache, with one request at a time in the calling thread. This is used for
//! small, cached or non-seekable files, and for the first reads after a seek.

use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use ioengine::open_file;
use rustix::fs::{Advice, fadvise};

use crate::opened::Opened;
use crate::options::Plan;

/// Alignment of the buffer (bytes). The kernel copies fastest to the start of a page.
const PAGE_BYTES: usize = 4096;
/// Number of bytes after which the pages that were read are dropped from the page cache. Dropping
/// them more often would disturb the kernel's read-ahead.
const DROP_CACHE_BYTES: u64 = 8 << 20;
/// Size of the first read after a seek if the program does not specify a size (bytes).
const AFTER_SEEK_BYTES: usize = 8 << 10;

#[derive(Debug)]
pub(super) struct Plain {
    /// The file. None after the file was returned to the caller.
    file: Option<Arc<File>>,
    has_offsets: bool,
    buffer: Vec<u8>,
    /// Position in `buffer` at which the data start (bytes). For large reads, the data start at a
    /// page boundary in memory.
    page: usize,
    /// Size of the next read (bytes).
    next_bytes: usize,
    /// Maximum size of a read (bytes).
    request_bytes: usize,
    /// Position in the file at which the data in the buffer start (bytes).
    offset: u64,
    /// Length of the data in the buffer (bytes).
    filled: usize,
    /// Size of the file when it was opened (bytes). 0 if unknown.
    end_when_opened: u64,
    /// End of the data that were dropped from the page cache (bytes). None if pages are not
    /// dropped.
    dropped_to: Option<u64>,
}

impl Plain {
    /// Creates a reader that starts at `offset`. `left` is the remaining size of the file (bytes),
    /// if known. If `leaves` is true, the reader drops the pages that it brings into the page
    /// cache.
    pub fn new(
        opened: &Opened,
        plan: &Plan,
        offset: u64,
        left: Option<u64>,
        leaves: bool,
    ) -> Plain {
        let request_bytes = plan.request_bytes.min(1 << 20) as usize;
        // A read that fills the buffer doubles the size of the next read. To avoid this if the
        // remaining data are smaller than one request, the first read asks for one byte more than
        // remains. Files in /proc report a size of 0, so a remaining size of 0 is ignored.
        let whole = left.filter(|left| *left > 0 && *left < request_bytes as u64);
        let next_bytes = whole.map_or(request_bytes, |left| left as usize + 1);
        Plain {
            file: Some(Arc::clone(&opened.file)),
            has_offsets: opened.has_offsets,
            buffer: Vec::new(),
            page: 0,
            next_bytes,
            request_bytes,
            offset,
            filled: 0,
            end_when_opened: left.map_or(0, |left| offset + left),
            dropped_to: leaves.then_some(offset),
        }
    }

    /// Creates a reader for use after a seek, with a small first read.
    pub fn after_seek(opened: &Opened, plan: &Plan, offset: u64) -> Plain {
        let mut plain = Plain::new(opened, plan, offset, None, false);
        plain.next_bytes = AFTER_SEEK_BYTES;
        plain
    }

    /// Creates a reader without a file.
    pub fn empty() -> Plain {
        Plain {
            file: None,
            has_offsets: false,
            buffer: Vec::new(),
            page: 0,
            next_bytes: 0,
            request_bytes: 0,
            offset: 0,
            filled: 0,
            end_when_opened: 0,
            dropped_to: None,
        }
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the end of the current block (bytes).
    pub fn end(&self) -> u64 {
        self.offset + self.filled as u64
    }

    /// Returns the number of remaining bytes. The number is wrong if the size of the file has
    /// changed since the file was opened.
    pub fn left(&self) -> u64 {
        self.end_when_opened.saturating_sub(self.end())
    }

    pub fn data(&self) -> &[u8] {
        &self.buffer[self.page..][..self.filled]
    }

    pub fn size(&self) -> io::Result<u64> {
        match &self.file {
            Some(file) if self.has_offsets => open_file::size_bytes(file),
            _ => Err(io::Error::new(io::ErrorKind::NotSeekable, "this file is not seekable")),
        }
    }

    /// Sets the size of the first read after a seek to the number of bytes that the program wants.
    pub fn expect(&mut self, bytes: usize) {
        if self.filled == 0 && self.next_bytes == AFTER_SEEK_BYTES {
            self.next_bytes = bytes.clamp(PAGE_BYTES, self.request_bytes.max(PAGE_BYTES));
        }
    }

    pub fn advance(&mut self) -> io::Result<bool> {
        self.finish_block();
        if self.buffer.len() < self.page + self.next_bytes {
            let is_large = self.next_bytes >= 16 * PAGE_BYTES;
            self.buffer = vec![0; self.next_bytes + if is_large { PAGE_BYTES } else { 0 }];
            self.page = if is_large { self.buffer.as_ptr().align_offset(PAGE_BYTES) } else { 0 };
        }
        let into = &mut self.buffer[self.page..][..self.next_bytes];
        self.filled = read(self.file.as_deref(), self.has_offsets, into, self.offset)?;
        if self.filled == self.next_bytes {
            self.next_bytes = (2 * self.next_bytes).min(self.request_bytes.max(PAGE_BYTES));
        }
        Ok(self.filled > 0)
    }

    /// Reads the next bytes into the caller's memory. There is no current block afterwards.
    pub fn read_into_caller(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.finish_block();
        let bytes = read(self.file.as_deref(), self.has_offsets, into, self.offset)?;
        self.offset += bytes as u64;
        Ok(bytes)
    }

    fn finish_block(&mut self) {
        self.offset = self.end();
        self.filled = 0;
        self.drop_cached_pages();
    }

    pub fn move_to(&mut self, offset: u64) -> io::Result<()> {
        if !self.has_offsets {
            return Err(io::Error::new(io::ErrorKind::NotSeekable, "this file is not seekable"));
        }
        (self.offset, self.filled, self.next_bytes) = (offset, 0, AFTER_SEEK_BYTES);
        Ok(())
    }

    /// Drops the pages that were read since the last drop, if they have at least
    /// [`DROP_CACHE_BYTES`] bytes.
    fn drop_cached_pages(&mut self) {
        let (Some(from), Some(file)) = (self.dropped_to, &self.file) else { return };
        if let Some(length) =
            self.offset.checked_sub(from).filter(|bytes| *bytes >= DROP_CACHE_BYTES)
        {
            // A failure is harmless: the pages only stay in the page cache.
            let _ = fadvise(&**file, from, NonZeroU64::new(length), Advice::DontNeed);
            self.dropped_to = Some(self.offset);
        }
    }
}

fn read(file: Option<&File>, has_offsets: bool, into: &mut [u8], offset: u64) -> io::Result<usize> {
    let Some(mut file) = file else { return Ok(0) };
    loop {
        let read = if has_offsets { file.read_at(into, offset) } else { file.read(into) };
        match read {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        if let (Some(_), Some(file)) = (self.dropped_to, &self.file) {
            let _ = fadvise(&**file, 0, None, Advice::DontNeed);
        }
    }
}
