//! Copying what one file holds to another: by sharing its blocks where the file system can, by
//! letting a file server do it, else by reading and writing at once through the same memory.
//!
//! In the pipeline a block is read into a slot and written from it: nothing is moved in memory
//! where both files are past the page cache. Reads run ahead in the order of the file; a write goes
//! out as soon as the watcher has seen its block. Holes stay holes.

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

/// The system is asked to copy so much at a time (bytes): a watcher sees progress in between.
const ASKED_BYTES: u64 = 32 << 20;

/// How the bytes were copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The file system shares the blocks of both files until one is changed.
    Reflink,
    /// The file server copied them (copy_file_range(2)).
    Server,
    /// They were read and written, several requests in flight.
    Pipeline,
    /// They were copied through the page cache, one piece after the other.
    Cached,
}

impl Method {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Method::Reflink => "reflink",
            Method::Server => "by the file server",
            Method::Pipeline => "pipeline",
            Method::Cached => "through the page cache",
        }
    }
}

/// What was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The size of the file (bytes).
    pub bytes: u64,
    /// How much of it was read and written: not holes, nor shared blocks (bytes).
    pub moved_bytes: u64,
    /// How.
    pub method: Method,
    /// How it was read, and how it was written, in words.
    pub how: String,
}

/// Sees a copy go on, in the order of the file. An error of its ends the copy.
pub trait Watch {
    /// Whether it must see the data themselves. Then they are read even where blocks could be
    /// shared.
    fn wants_data(&self) -> bool {
        false
    }

    /// The bytes that come next, before they are written; only for those that want data.
    ///
    /// # Errors
    /// The watcher ends the copy.
    fn data(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let _ = (offset, data);
        Ok(())
    }

    /// So many bytes come next that are read and written.
    ///
    /// # Errors
    /// The watcher ends the copy.
    fn moved(&mut self, offset: u64, bytes: u64) -> io::Result<()> {
        let _ = (offset, bytes);
        Ok(())
    }

    /// So many zeros come next, of which nothing is stored.
    ///
    /// # Errors
    /// The watcher ends the copy.
    fn hole(&mut self, offset: u64, bytes: u64) -> io::Result<()> {
        let _ = (offset, bytes);
        Ok(())
    }

    /// All before this offset has been handed to the destination, and is in the file.
    ///
    /// # Errors
    /// The watcher ends the copy.
    fn written(&mut self, up_to: u64) -> io::Result<()> {
        let _ = up_to;
        Ok(())
    }
}

/// A watcher that ignores everything.
#[derive(Clone, Copy, Debug)]
pub struct NoWatch;

impl Watch for NoWatch {}

/// Copies a file to a new one, or into the one that is there, with its permissions: as
/// [`std::fs::copy`], faster. Gives its size (bytes).
///
/// # Errors
/// What the system says of opening, reading or writing. What was written by then stays.
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
    /// Copies what one file holds, from an offset on, to the same offsets of another, and sets its
    /// size. Both have offsets; what the other holds before that offset stays.
    ///
    /// # Errors
    /// What the system says of reading or writing, and of which file; or why the watcher ended it.
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
            && let Some(copied) = copying.by_the_system(watch)?
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

/// What is to be copied.
#[derive(Debug)]
struct Copying<'a> {
    options: &'a Options,
    source: Opened,
    target: Opened,
    /// From where on (bytes).
    begin: u64,
    /// Where the source ends, as last seen (bytes).
    size: u64,
}

impl Copying<'_> {
    /// Lets the system copy where it need not move the bytes through this host.
    fn by_the_system(&self, watch: &mut dyn Watch) -> Result<Option<Copied>> {
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
            match self.ask_to_copy(at, size - at) {
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

    /// Asks the system to copy from an offset on; how much it did (bytes).
    fn ask_to_copy(&self, offset: u64, bytes: u64) -> std::result::Result<u64, Errno> {
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

    /// The holes of the source that are to stay holes.
    fn holes(&self) -> Holes {
        match self.options.keep_holes.unwrap_or(true) && self.target.is_regular {
            true => self.source.apart().map_or_else(Holes::none, |file| Holes::of(&file)),
            false => Holes::none(),
        }
    }

    /// Drops what the destination holds from where the copy begins.
    fn empty_target(&self) -> io::Result<()> {
        match self.target.is_regular && self.target.size()? > self.begin {
            true => self.target.file.set_len(self.begin),
            false => Ok(()),
        }
    }

    /// Drops what the destination holds from where the copy begins, and makes room there: blocks,
    /// or only a size where there are to be holes.
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
        match unseen && !reserved {
            // A write within the file does not wait for the one before it.
            true => self.target.file.set_len(self.size),
            false => Ok(()),
        }
    }

    /// Whether the source is longer by now than it was; looks at it again.
    fn has_grown(&mut self) -> io::Result<bool> {
        let before = std::mem::replace(&mut self.size, self.source.size()?);
        Ok(self.size > before)
    }

    /// The destination becomes as long as what was read, and keeps no blocks beyond that.
    fn set_size(&self, size: u64) -> io::Result<()> {
        match self.target.is_regular {
            true => self.target.file.set_len(size),
            false => Ok(()),
        }
    }
}
