//! The `mmap` I/O engine: copies data between a slot and a shared mapping of the file, one request
//! at a time.
//!
//! The kernel reads a page on first access, even if a write then overwrites the whole page. It
//! writes a changed page back later or on a flush. The mapping keeps the length that the file had
//! when the engine was created. A write beyond this length fails with ENOSPC, and a read beyond it
//! returns 0 bytes.
//!
//! If a page cannot be accessed (the file was truncated, the device failed, or no space is left for
//! a hole), the request fails or is short, and the program continues. The kernel does not report
//! the cause, so the engine derives it from the size of the file and the free space. A deadline
//! cannot interrupt a copy.

use std::fs::File;
use std::sync::Arc;

use crate::buffer::SlotBuffers;
use crate::engine::{Engine, EngineSpec, Setup};
use crate::error::Error;
use crate::mapped::MappedFile;
use crate::mode::Hint;
use crate::request::{Completion, Op, Request};
use crate::sys;

/// The `mmap` I/O engine: copies data between a slot and a shared mapping of the file, one request
/// at a time.
#[derive(Debug)]
pub struct Mmap {
    file: Arc<File>,
    mapped: MappedFile,
    writable: bool,
    buffers: SlotBuffers,
}

// SAFETY: the mapping is accessed only within `submit_and_wait`, which takes `&mut self`.
unsafe impl Sync for Mmap {}

impl Mmap {
    /// Maps a whole open file and applies `hint` to the mapping.
    pub fn new(file: Arc<File>, spec: &EngineSpec, hint: Hint) -> Result<Self, Error> {
        let buffers = SlotBuffers::new(spec.depth, spec.slot_bytes as usize, spec.pages)?;
        let writable = sys::is_writable(&file);
        let mapped = sys::size_bytes(&file).and_then(|size| MappedFile::new(&file, size, writable));
        let mapped = mapped.map_err(|e| {
            Error::io("mapping the target", e).with_remedy(
                "use a smaller target, raise the limit on memory (ulimit -v), or use `engine` \
                 sync",
            )
        })?;
        let advised = match hint {
            Hint::Sequential => mapped.advise(libc::MADV_SEQUENTIAL),
            Hint::Random => mapped.advise(libc::MADV_RANDOM),
            Hint::WillNeed => mapped.advise(libc::MADV_WILLNEED),
            // A new mapping has no pages to drop, and madvise(2) has no equivalent of
            // POSIX_FADV_NOREUSE. Both hints were already applied to the file.
            Hint::Normal | Hint::NoReuse | Hint::DontNeed => Ok(()),
        };
        advised.map_err(|e| Error::io("calling madvise on the mapping of the target", e))?;
        Ok(Mmap { file, mapped, writable, buffers })
    }

    /// Transfers one request. Returns the number of bytes transferred, or a negated error number.
    fn transfer(&mut self, request: &Request) -> i32 {
        let Request { offset, op, within, .. } = *request;
        if op == Op::Write && !self.writable {
            return -libc::EBADF;
        }
        let mapped = self.mapped.length().saturating_sub(offset);
        let length = u64::from(request.length).min(mapped) as usize;
        if length == 0 {
            return if op == Op::Write { -libc::ENOSPC } else { 0 };
        }
        let from = within as usize;
        let memory = &mut self.buffers.slot_mut(request.slot)[from..from + length];
        let copied = match op {
            Op::Read => self.mapped.read(offset, memory),
            Op::Write => self.mapped.write(offset, memory),
        };
        match copied {
            Ok(()) => length as i32,
            Err(_) => self.result_after_fault(offset, length as u64, op),
        }
    }

    /// Returns the result of a copy that failed because a page is inaccessible. The cause is
    /// derived from the size of the file and the free space.
    #[cold]
    fn result_after_fault(&self, offset: u64, length: u64, op: Op) -> i32 {
        if self.mapped.repair(&self.file).is_err() {
            return -libc::EIO;
        }
        let left = sys::size_bytes(&self.file).unwrap_or(0).saturating_sub(offset);
        if left < length {
            return left as i32;
        }
        let full = sys::free_bytes(&self.file).is_ok_and(|free| free < length);
        if op == Op::Write && full { -libc::ENOSPC } else { -libc::EIO }
    }
}

impl Engine for Mmap {
    fn slots(&self) -> u32 {
        self.buffers.slots()
    }

    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        self.buffers.slot_mut(slot)
    }

    fn setup(&self) -> Setup {
        let (buffer_bytes, huge_bytes) = self.buffers.pages();
        Setup { features: "MAP_SHARED".to_owned(), buffer_bytes, huge_bytes }
    }

    #[inline]
    fn in_flight(&self) -> u32 {
        0
    }

    #[inline]
    fn submit_and_wait(
        &mut self,
        batch: &[Request],
        _at_least: u32,
        _until_ns: Option<u64>,
        done: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        for request in batch {
            let result = self.transfer(request);
            done.push(Completion { slot: request.slot, result });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::buffer::BufferPages;
    use crate::engine::{EngineKind, EngineOptions};

    fn engine_on(file: &File) -> Mmap {
        let spec = EngineSpec {
            engine_kind: EngineKind::Mmap,
            depth: 1,
            slot_bytes: 8192,
            pages: BufferPages::Small,
            options: EngineOptions::default(),
        };
        Mmap::new(Arc::new(file.try_clone().unwrap()), &spec, Hint::Normal).unwrap()
    }

    fn result(engine: &mut Mmap, op: Op, offset: u64, length: u32) -> i32 {
        let request = Request { offset, length, within: 0, slot: 0, file: 0, op };
        let mut done = Vec::new();
        engine.submit_and_wait(&[request], 1, None, &mut done).unwrap();
        done[0].result
    }

    fn file_of(bytes: usize) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; bytes]).unwrap();
        file
    }

    #[test]
    fn a_write_beyond_the_end_fails_and_does_not_grow_the_file() {
        let file = file_of(12_288);
        let mut engine = engine_on(&file);
        assert_eq!(result(&mut engine, Op::Write, 8192, 8192), 4096, "written up to the end");
        assert_eq!(result(&mut engine, Op::Write, 12_288, 4096), -libc::ENOSPC);
        assert_eq!(file.metadata().unwrap().len(), 12_288);
    }

    #[test]
    fn truncating_a_mapped_file_shortens_requests_instead_of_crashing() {
        let file = file_of(65_536);
        let mut engine = engine_on(&file);
        assert_eq!(result(&mut engine, Op::Read, 32_768, 8192), 8192);
        file.set_len(36_864).unwrap();
        assert_eq!(result(&mut engine, Op::Read, 32_768, 8192), 4096, "the remaining part is read");
        assert_eq!(result(&mut engine, Op::Read, 40_960, 8192), 0, "nothing is read past the end");
        assert_eq!(result(&mut engine, Op::Write, 40_960, 4096), 0, "no write past the end");
        assert_eq!(result(&mut engine, Op::Read, 0, 8192), 8192, "the remaining data is readable");
        assert_eq!(file.metadata().unwrap().len(), 36_864);
    }

    #[test]
    fn a_write_reaches_the_file_at_its_place() {
        let file = file_of(16_384);
        let mut engine = engine_on(&file);
        engine.buffer(0).fill(0xEE);
        assert_eq!(result(&mut engine, Op::Write, 4096, 4096), 4096);
        let mut bytes = [0; 4098];
        file.read_exact_at(&mut bytes, 4095).unwrap();
        assert_eq!((bytes[0], bytes[1], bytes[4096], bytes[4097]), (7, 0xEE, 0xEE, 7));
    }
}
