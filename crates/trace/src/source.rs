//! The input of the Parquet reader: a trace file, or bytes in memory. A range that extends past the
//! end of the file is refused before memory is allocated, so a corrupt length cannot exhaust the
//! memory.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

/// Number of bytes that are read at once for a page header. The page headers that this crate writes
/// have about 30 bytes.
const AHEAD: usize = 256;

/// Maximum length of a page (bytes). Longer pages are refused. The writer starts a new page after
/// about 1 MiB.
const PAGE_MOST: usize = 16 << 20;

/// A file, or bytes in memory.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// A file and its length (bytes).
    File(Arc<File>, u64),
    Memory(Bytes),
}

impl Source {
    /// Returns `length` bytes at offset `start`. The caller has checked that the range is in the
    /// file.
    pub(crate) fn range(&self, start: u64, length: usize) -> io::Result<Bytes> {
        match self {
            Source::File(file, _) => {
                let mut buffer = vec![0; length];
                file.read_exact_at(&mut buffer, start)?;
                Ok(buffer.into())
            }
            Source::Memory(bytes) => Ok(bytes.slice(start as usize..start as usize + length)),
        }
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        match self {
            Source::File(file, _) => file.read_at(buffer, at),
            Source::Memory(bytes) => {
                let at = usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
                (&bytes[at..]).read(buffer)
            }
        }
    }
}

impl Length for Source {
    fn len(&self) -> u64 {
        match self {
            Source::File(_, length) => *length,
            Source::Memory(bytes) => bytes.len() as u64,
        }
    }
}

impl ChunkReader for Source {
    type T = Cursor;

    fn get_read(&self, start: u64) -> Result<Cursor> {
        Ok(Cursor { source: self.clone(), at: start, ahead: [0; AHEAD], used: 0, filled: 0 })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let end = start.checked_add(length as u64);
        if length > PAGE_MOST || end.is_none_or(|end| end > self.len()) {
            let why = format!("a page of {length} bytes at offset {start} is too long");
            return Err(ParquetError::General(why));
        }
        Ok(self.range(start, length)?)
    }
}

/// Reads a source sequentially from a given offset. The buffer is small because only page headers
/// are read in this way.
pub(crate) struct Cursor {
    source: Source,
    at: u64,
    ahead: [u8; AHEAD],
    used: usize,
    filled: usize,
}

impl Read for Cursor {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.used == self.filled {
            self.filled = self.source.read_at(&mut self.ahead, self.at)?;
            self.used = 0;
            self.at += self.filled as u64;
        }
        let taken = (&self.ahead[self.used..self.filled]).read(buffer)?;
        self.used += taken;
        Ok(taken)
    }
}
