//! Copies small files through one buffer, with few system calls. If the kernel supports
//! RWF_DONTCACHE and the settings allow it, the copied pages do not stay in the page cache.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};

use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};
use seqio::copy::{Side, Watch};

use crate::directory::EntryInfo;
use crate::settings::Settings;
use crate::watcher::Watcher;

/// Maximum size of a file that is copied through the buffer (bytes).
const SMALL_BYTES: u64 = 1 << 20;
/// RWF_DONTCACHE of linux/fs.h (since Linux 6.14).
const DONT_CACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// The copy buffer of a thread.
#[derive(Debug)]
pub(crate) struct Buffer {
    memory: Vec<u8>,
    /// Flags for reads. Cleared when a file system does not support them.
    read_flags: ReadWriteFlags,
    /// Flags for writes. Cleared when a file system does not support them.
    write_flags: ReadWriteFlags,
}

/// Where a copy failed (source or destination), at which offset (bytes), and the error.
pub(crate) type Failed = (Side, u64, std::io::Error);

impl Buffer {
    /// Creates a buffer for a session. Unless the settings keep copied data in the page cache,
    /// reads use RWF_DONTCACHE. Writes use this flag only if the session also flushes its copies.
    /// With this flag, the kernel starts writing to the device at once. This shortens the flush,
    /// but slows down the reads of the source.
    pub fn new(settings: &Settings) -> Buffer {
        let flags = |stays| if stays { ReadWriteFlags::empty() } else { DONT_CACHE };
        Buffer {
            memory: Vec::new(),
            read_flags: flags(settings.cached),
            write_flags: flags(settings.cached || !settings.sync),
        }
    }

    /// Returns true if a file is small and has no holes.
    pub fn suits(info: &EntryInfo) -> bool {
        info.is_file() && info.size <= SMALL_BYTES && !info.is_sparse()
    }

    /// Copies the content of a file to a new file. If the source grew after it was listed, the
    /// added data are copied too.
    pub fn copy(
        &mut self,
        source: &File,
        target: &File,
        watcher: &mut Watcher,
    ) -> Result<(), Failed> {
        let by_watcher = |error| (Side::Watcher, 0, error);
        // The buffer is one byte larger than the largest small file, so that the first read also
        // detects the end of the file.
        self.memory.resize(SMALL_BYTES as usize + 1, 0);
        let mut at = 0;
        loop {
            let read = self.read(source, at)?;
            if read > 0 {
                watcher.data(at, &self.memory[..read]).map_err(by_watcher)?;
                watcher.moved(at, read as u64).map_err(by_watcher)?;
                self.write(target, read, at)?;
                at += read as u64;
                watcher.written(at).map_err(by_watcher)?;
            }
            if read < self.memory.len() {
                return Ok(());
            }
        }
    }

    /// Reads until the buffer is full or the file ends. Returns the number of bytes read.
    fn read(&mut self, file: &File, at: u64) -> Result<usize, Failed> {
        let mut filled = 0;
        while filled < self.memory.len() {
            let asked = self.memory.len() - filled;
            let into = &mut [IoSliceMut::new(&mut self.memory[filled..])];
            match preadv2(file, into, at + filled as u64, self.read_flags) {
                Ok(0) => break,
                Ok(read) => {
                    filled += read;
                    // A regular file returns a short read only at its end.
                    if read < asked {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) if !self.read_flags.is_empty() => {
                    self.read_flags = ReadWriteFlags::empty();
                }
                Err(error) => return Err((Side::Source, at + filled as u64, error.into())),
            }
        }
        Ok(filled)
    }

    fn write(&mut self, file: &File, bytes: usize, at: u64) -> Result<(), Failed> {
        let mut done = 0;
        while done < bytes {
            let offset = at + done as u64;
            let failed = |error: std::io::Error| (Side::Destination, offset, error);
            match pwritev2(
                file,
                &[IoSlice::new(&self.memory[done..bytes])],
                offset,
                self.write_flags,
            ) {
                Ok(0) => return Err(failed(std::io::ErrorKind::WriteZero.into())),
                Ok(written) => done += written,
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) if !self.write_flags.is_empty() => {
                    self.write_flags = ReadWriteFlags::empty();
                }
                Err(error) => return Err(failed(error.into())),
            }
        }
        Ok(())
    }
}
