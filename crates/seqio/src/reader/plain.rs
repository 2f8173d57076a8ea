//! Reading through the page cache, one request at a time, by the calling thread: for what is small,
//! cached or without offsets, and for the first reads after a seek.

use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use ioengine::open_file;
use rustix::fs::{Advice, fadvise};

use crate::opened::Opened;
use crate::options::Plan;

/// The alignment of the buffer (bytes): the system copies fastest to the beginning of a page.
const PAGE_BYTES: usize = 4096;
/// So much is read before it is taken out of the page cache again (bytes): enough not to be in the
/// way of reading ahead.
const FORGET_BYTES: u64 = 8 << 20;
/// The first read after a seek where the program does not say how much it wants (bytes).
const AFTER_SEEK_BYTES: usize = 8 << 10;

/// A file that is read through the page cache.
#[derive(Debug)]
pub(super) struct Plain {
    /// None once the file was given back.
    file: Option<Arc<File>>,
    has_offsets: bool,
    buffer: Vec<u8>,
    /// Where in the buffer a page begins.
    page: usize,
    /// Bytes of the next read, and of the largest.
    next_bytes: usize,
    request_bytes: usize,
    /// Where what is in the buffer comes from, and how much it is (bytes).
    offset: u64,
    filled: usize,
    /// Where the file ended when it was opened (bytes).
    end_then: u64,
    /// Up to where what was read is out of the page cache again (bytes); None where it stays.
    forgotten: Option<u64>,
}

impl Plain {
    /// A reader from an offset on, with so much to read as far as is known (bytes). What it
    /// brings into the page cache is taken out again if it `leaves` the cache.
    pub fn new(
        opened: &Opened,
        plan: &Plan,
        offset: u64,
        left: Option<u64>,
        leaves: bool,
    ) -> Plain {
        let request_bytes = plan.request_bytes.min(1 << 20) as usize;
        // One byte more than there is, so that the end is seen by the first read. Files of /proc
        // are said to be empty.
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
            end_then: left.map_or(0, |left| offset + left),
            forgotten: leaves.then_some(offset),
        }
    }

    /// A reader from where the program went; it begins with little.
    pub fn after_seek(opened: &Opened, plan: &Plan, offset: u64) -> Plain {
        let mut plain = Plain::new(opened, plan, offset, None, false);
        plain.next_bytes = AFTER_SEEK_BYTES;
        plain
    }

    /// Nothing to read.
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
            end_then: 0,
            forgotten: None,
        }
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Where the present block ends (bytes).
    pub fn end(&self) -> u64 {
        self.offset + self.filled as u64
    }

    /// About how much is left to read (bytes); exact for a file that does not change.
    pub fn left(&self) -> u64 {
        self.end_then.saturating_sub(self.end())
    }

    pub fn data(&self) -> &[u8] {
        &self.buffer[self.page..][..self.filled]
    }

    pub fn size(&self) -> io::Result<u64> {
        match &self.file {
            Some(file) if self.has_offsets => open_file::size_bytes(file),
            _ => Err(io::Error::new(io::ErrorKind::NotSeekable, "a stream has no size")),
        }
    }

    /// The program wants so much after a seek (bytes).
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

    /// Reads the next bytes into other memory than its own; there is no present block afterwards.
    pub fn read_straight(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.finish_block();
        let bytes = read(self.file.as_deref(), self.has_offsets, into, self.offset)?;
        self.offset += bytes as u64;
        Ok(bytes)
    }

    fn finish_block(&mut self) {
        self.offset = self.end();
        self.filled = 0;
        self.forget();
    }

    pub fn go_to(&mut self, offset: u64) -> io::Result<()> {
        if !self.has_offsets {
            return Err(io::Error::new(io::ErrorKind::NotSeekable, "a stream has no offsets"));
        }
        (self.offset, self.filled, self.next_bytes) = (offset, 0, AFTER_SEEK_BYTES);
        Ok(())
    }

    /// Takes what was read since the last time out of the page cache, where that is enough.
    fn forget(&mut self) {
        let (Some(from), Some(file)) = (self.forgotten, &self.file) else { return };
        if let Some(length) = self.offset.checked_sub(from).filter(|bytes| *bytes >= FORGET_BYTES) {
            // Where the system declines, nothing is lost.
            let _ = fadvise(&**file, from, NonZeroU64::new(length), Advice::DontNeed);
            self.forgotten = Some(self.offset);
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
        if let (Some(_), Some(file)) = (self.forgotten, &self.file) {
            let _ = fadvise(&**file, 0, None, Advice::DontNeed);
        }
    }
}
