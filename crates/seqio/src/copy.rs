//! Copies a file with the first of these methods that is possible: shared blocks (reflink), a copy
//! by the file server, a pipeline of concurrent reads and writes, or single reads and writes
//! through the page cache.
//!
//! The pipeline reads a block into a buffer and writes it from the same buffer. If both files use
//! direct I/O, the data are not copied in memory. Blocks are read ahead in file order. A block is
//! written after the [`Watch`] has seen it. Holes are preserved.

mod buffered;
mod pipeline;

use std::fs::File;
use std::io;
use std::path::Path;

use ioengine::Op;
use rustix::fs::{copy_file_range, ioctl_ficlone};
use rustix::io::Errno;

pub use crate::error::{CopyError, Side};
use crate::holes::Holes;
use crate::opened::Opened;
use crate::options::{Cache, Options, Plan};
use crate::storage::Kind;

/// Maximum number of bytes of one copy_file_range(2) call. Progress is reported between calls.
const ASKED_BYTES: u64 = 32 << 20;

/// How the data were copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Both files share the same blocks until one of the files is modified.
    Reflink,
    /// The file server copied the data (copy_file_range(2)).
    Server,
    /// The data were read and written with several requests in flight.
    Pipeline,
    /// The data passed through the page cache, one piece at a time.
    Cached,
}

impl Method {
    /// Returns a short description of the method.
    pub fn name(self) -> &'static str {
        match self {
            Method::Reflink => "reflink",
            Method::Server => "by the file server",
            Method::Pipeline => "pipeline",
            Method::Cached => "through the page cache",
        }
    }
}

/// Result of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Size of the copied file (bytes).
    pub bytes: u64,
    /// Number of bytes that were copied. Holes and shared blocks are not counted.
    pub moved_bytes: u64,
    /// How the data were copied.
    pub method: Method,
    /// Description of the method and its requests, for users.
    pub how: String,
}

/// Observes a copy. The methods are called in file order. An error from a method stops the copy.
pub trait Watch {
    /// Returns whether the watcher needs to see the data. If so, the data are read even if both
    /// files could share blocks.
    fn wants_data(&self) -> bool {
        false
    }

    /// Receives the next bytes before they are written. Called only if [`Watch::wants_data`]
    /// returns true.
    ///
    /// # Errors
    /// An error stops the copy.
    fn data(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let _ = (offset, data);
        Ok(())
    }

    /// Reports that the next `bytes` bytes have been read, but perhaps not written yet.
    ///
    /// # Errors
    /// An error stops the copy.
    fn moved(&mut self, offset: u64, bytes: u64) -> io::Result<()> {
        let _ = (offset, bytes);
        Ok(())
    }

    /// Reports that the next `bytes` bytes are a hole: zeros without stored data.
    ///
    /// # Errors
    /// An error stops the copy.
    fn hole(&mut self, offset: u64, bytes: u64) -> io::Result<()> {
        let _ = (offset, bytes);
        Ok(())
    }

    /// Reports that all data before the offset `up_to` have been written to the destination file.
    ///
    /// # Errors
    /// An error stops the copy.
    fn written(&mut self, up_to: u64) -> io::Result<()> {
        let _ = up_to;
        Ok(())
    }
}

/// A watcher that ignores everything.
#[derive(Clone, Copy, Debug)]
pub struct NoWatch;

impl Watch for NoWatch {}

/// Copies the data and permissions of a file to a new or existing file, like [`std::fs::copy`] but
/// faster. Returns the size of the file (bytes).
///
/// # Errors
/// Any error of opening, reading or writing. Data written before the error remain in the file.
pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    let source = File::open(from)?;
    let target = File::create(to)?;
    let copied = Options::new().copy(&source, &target, 0, &mut NoWatch)?;
    target.set_permissions(source.metadata()?.permissions())?;
    Ok(copied.bytes)
}

type Result<T> = std::result::Result<T, CopyError>;

fn on_source(offset: impl Into<Option<u64>>) -> impl FnOnce(io::Error) -> CopyError {
    let offset = offset.into();
    move |error| CopyError::new(Side::Source, offset, error)
}

fn on_target(offset: impl Into<Option<u64>>) -> impl FnOnce(io::Error) -> CopyError {
    let offset = offset.into();
    move |error| CopyError::new(Side::Destination, offset, error)
}

fn by_watcher(error: io::Error) -> CopyError {
    CopyError::new(Side::Watcher, None, error)
}

impl Options {
    /// Copies the data of `source`, from the offset `begin` to the end, to the same offsets of
    /// `target`. Sets the size of `target` to the size of `source`. The data of `target` before
    /// `begin` are kept. Both files must be seekable.
    ///
    /// # Errors
    /// Any error of reading the source or writing the target, or an error from the watcher.
    pub fn copy(
        &self,
        source: &File,
        target: &File,
        begin: u64,
        watch: &mut dyn Watch,
    ) -> Result<Copied> {
        let open = |file: &File, writable| Opened::new(file.try_clone()?, writable);
        let source = open(source, false).map_err(on_source(None))?;
        let target = open(target, true).map_err(on_target(None))?;
        let size = source.size().map_err(on_source(None))?;
        let mut copying = Copying { options: self, source, target, begin, size };
        if begin == 0
            && !watch.wants_data()
            && let Some(copied) = copying.copy_in_kernel(watch)?
        {
            return Ok(copied);
        }
        let reading = self.plan(Op::Read, &copying.source, Some(size));
        let writing = self.plan(Op::Write, &copying.target, Some(size));
        if reading.uses_requests() || writing.uses_requests() {
            let copied = pipeline::run(&mut copying, &reading, &writing, watch)?;
            if let Some(copied) = copied {
                return Ok(copied);
            }
        }
        let plan = Plan::buffered(Options::BUFFERED_BYTES, &reading.why);
        buffered::run(&mut copying, &plan, watch)
    }
}

/// A copy in progress.
#[derive(Debug)]
struct Copying<'a> {
    options: &'a Options,
    source: Opened,
    target: Opened,
    /// Offset at which the copy starts (bytes).
    begin: u64,
    /// Size of the source when it was last checked (bytes).
    size: u64,
}

impl Copying<'_> {
    /// Lets the file system share blocks, or lets the file server copy the data. Returns None if
    /// the data must pass through this host.
    fn copy_in_kernel(&self, watch: &mut dyn Watch) -> Result<Option<Copied>> {
        let (source, target, size) = (&self.source, &self.target, self.size);
        if !source.is_regular
            || !target.is_regular
            || size == 0
            || self.options.cache != Cache::Auto
        {
            return Ok(None);
        }
        let copied = |method: Method| Copied {
            bytes: size,
            moved_bytes: 0,
            method,
            how: method.name().to_owned(),
        };
        if ioctl_ficlone(&*target.file, &*source.file).is_ok() {
            watch.written(size).map_err(by_watcher)?;
            return Ok(Some(copied(Method::Reflink)));
        }
        let is_served = source.storage().kind == Kind::Network
            && source.storage() == target.storage()
            && !source.storage().file_system.starts_with("fuse");
        if !is_served {
            return Ok(None);
        }
        let mut at = 0;
        while at < size {
            match self.copy_range(at, size - at) {
                Ok(0) => break,
                Ok(moved) => {
                    watch.moved(at, moved).map_err(by_watcher)?;
                    at += moved;
                    watch.written(at).map_err(by_watcher)?;
                }
                Err(_) if at == 0 => return Ok(None),
                Err(error) => return Err(on_target(at)(error.into())),
            }
        }
        Ok(Some(Copied { bytes: at, moved_bytes: at, ..copied(Method::Server) }))
    }

    /// Lets the kernel copy at most `bytes` bytes that start at `offset`. Returns the number of
    /// bytes copied.
    fn copy_range(&self, offset: u64, bytes: u64) -> std::result::Result<u64, Errno> {
        let (mut from, mut to) = (offset, offset);
        let most = bytes.min(ASKED_BYTES) as usize;
        loop {
            let (source, target) = (&*self.source.file, &*self.target.file);
            match copy_file_range(source, Some(&mut from), target, Some(&mut to), most) {
                Err(Errno::INTR) => {}
                moved => return moved.map(|bytes| bytes as u64),
            }
        }
    }

    /// Returns the holes of the source, or no holes if the copy does not preserve them.
    fn holes(&self) -> Holes {
        if self.options.keep_holes.unwrap_or(true) && self.target.is_regular {
            self.source.with_own_position().map_or_else(Holes::none, |file| Holes::of(&file))
        } else {
            Holes::none()
        }
    }

    /// Truncates the destination to the offset at which the copy starts.
    fn empty_target(&self) -> io::Result<()> {
        if self.target.is_regular && self.target.size()? > self.begin {
            self.target.file.set_len(self.begin)
        } else {
            Ok(())
        }
    }

    /// Truncates the destination to the offset at which the copy starts. Then reserves space,
    /// unless the source is sparse. If no space was reserved and no other program reads the
    /// destination before the copy ends (`unseen`), sets the size of the destination.
    fn make_room(&self, is_sparse: bool) -> io::Result<()> {
        if !self.target.is_regular {
            return Ok(());
        }
        self.empty_target()?;
        let (now, unseen) = (self.target.size()?, self.options.unseen);
        if self.size <= now {
            return Ok(());
        }
        let reserved = !is_sparse && self.target.reserve(now, self.size - now, unseen)?;
        if unseen && !reserved {
            // The size is set now, because writes beyond the end of a file cannot run concurrently.
            return self.target.file.set_len(self.size);
        }
        Ok(())
    }

    /// Checks the size of the source again. Returns whether the source has grown.
    fn has_grown(&mut self) -> io::Result<bool> {
        let before = std::mem::replace(&mut self.size, self.source.size()?);
        Ok(self.size > before)
    }

    /// Sets the size of the destination, which also releases reserved blocks beyond this size.
    fn set_size(&self, size: u64) -> io::Result<()> {
        if self.target.is_regular { self.target.file.set_len(size) } else { Ok(()) }
    }
}
