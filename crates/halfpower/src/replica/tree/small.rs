//! Small files of a tree: read whole into one buffer and written from it, without a request more
//! than it takes; and without leaving pages in the cache, where the kernel has a flag for that.

use std::fs::{File, Metadata};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};
use seqio::copy::Watch;

use crate::replica::Settings;
use crate::replica::watch::Eyes;

/// Files up to this size are copied so (bytes).
const SMALL_BYTES: u64 = 1 << 20;
/// RWF_DONTCACHE of linux/fs.h (Linux 6.14).
const DONT_CACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// A thread's buffer.
#[derive(Debug)]
pub struct Buffer {
    memory: Vec<u8>,
    /// Flags of requests; fewer where a file system declines them.
    read_flags: ReadWriteFlags,
    write_flags: ReadWriteFlags,
}

impl Buffer {
    /// A buffer for a tree. What is read leaves the page cache as it was. What is written leaves
    /// it too where all is flushed in the end, which then has less to do; where nobody waits for
    /// the device, writing at once would only be in the way of reading.
    pub fn new(settings: &Settings) -> Buffer {
        let flags = |stay| if stay { ReadWriteFlags::empty() } else { DONT_CACHE };
        // A byte more, so that the end is seen by the first read.
        Buffer {
            memory: vec![0; SMALL_BYTES as usize + 1],
            read_flags: flags(settings.cached),
            write_flags: flags(settings.cached || !settings.sync),
        }
    }

    /// Whether a file is one for it: small, and without holes.
    pub fn suits(metadata: &Metadata) -> bool {
        let has_holes = metadata.blocks() * 512 < metadata.size() && metadata.size() > 4096;
        metadata.is_file() && metadata.size() <= SMALL_BYTES && !has_holes
    }

    /// Copies what one file holds to a new one, however long it has become.
    pub fn copy(
        &mut self,
        (source, from): (&File, &Path),
        (target, to): (&File, &Path),
        eyes: &mut Eyes,
    ) -> io::Result<()> {
        let named = |doing: &str, path: &Path, error: io::Error| {
            let cause = ioengine::error::cause(&error);
            io::Error::new(error.kind(), format!("{doing} {}: {cause}", path.display()))
        };
        let mut at = 0;
        loop {
            let read = self.read(source, at).map_err(|error| named("reading", from, error))?;
            if read > 0 {
                eyes.data(at, &self.memory[..read])?;
                self.write(target, read, at).map_err(|error| named("writing", to, error))?;
                at += read as u64;
                eyes.written(at)?;
            }
            if read < self.memory.len() {
                return Ok(());
            }
        }
    }

    /// Fills the buffer; less only at the end of the file.
    fn read(&mut self, file: &File, at: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < self.memory.len() {
            let into = &mut [IoSliceMut::new(&mut self.memory[filled..])];
            match preadv2(file, into, at + filled as u64, self.read_flags) {
                Ok(0) => break,
                Ok(read) => {
                    let asked = self.memory.len() - filled;
                    filled += read;
                    // A regular file gives less only where it ends.
                    if read < asked {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) if !self.read_flags.is_empty() => {
                    self.read_flags = ReadWriteFlags::empty();
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(filled)
    }

    fn write(&mut self, file: &File, bytes: usize, at: u64) -> io::Result<()> {
        let mut done = 0;
        while done < bytes {
            let from = &[IoSlice::new(&self.memory[done..bytes])];
            match pwritev2(file, from, at + done as u64, self.write_flags) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => done += written,
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) if !self.write_flags.is_empty() => {
                    self.write_flags = ReadWriteFlags::empty();
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
