//! Reading through the page cache, one request at a time, by the thread that asks: for what is
//! small, hot or has no places.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use ioengine::open_file;

use crate::opened::Opened;
use crate::options::Plan;

/// The alignment of the buffer (bytes).
const PAGE_BYTES: usize = 4096;

/// See the module.
#[derive(Debug)]
pub(super) struct Plain {
    file: Arc<File>,
    has_places: bool,
    buffer: Vec<u8>,
    /// Where in the buffer a page begins: the system copies fastest to there.
    page: usize,
    /// Where what is in the buffer comes from, and how much it is (bytes).
    offset: u64,
    filled: usize,
}

impl Plain {
    pub fn new(opened: &Opened, plan: &Plan) -> Plain {
        let file = Arc::clone(&opened.file);
        let buffer = vec![0; plan.request_bytes as usize + PAGE_BYTES];
        let page = buffer.as_ptr().align_offset(PAGE_BYTES);
        Plain { file, has_places: opened.has_places, buffer, page, offset: 0, filled: 0 }
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    pub fn data(&self) -> &[u8] {
        &self.buffer[self.page..][..self.filled]
    }

    pub fn size(&self) -> io::Result<u64> {
        match self.has_places {
            true => open_file::size_bytes(&self.file),
            false => Err(io::Error::new(io::ErrorKind::NotSeekable, "a stream has no size")),
        }
    }

    pub fn advance(&mut self) -> io::Result<bool> {
        self.offset += self.filled as u64;
        self.filled = 0;
        let request_bytes = self.buffer.len() - PAGE_BYTES;
        let into = &mut self.buffer[self.page..][..request_bytes];
        loop {
            let read = match self.has_places {
                true => self.file.read_at(into, self.offset),
                false => (&*self.file).read(into),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(read) => {
                    self.filled = read;
                    return Ok(read > 0);
                }
            }
        }
    }

    pub fn go_to(&mut self, place: u64) -> io::Result<()> {
        if !self.has_places {
            return Err(io::Error::new(io::ErrorKind::NotSeekable, "a stream has no places"));
        }
        (self.offset, self.filled) = (place, 0);
        Ok(())
    }
}
