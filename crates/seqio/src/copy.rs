//! Copying what one file holds to another: by sharing its blocks where the file system can, by
//! letting a file server do it, else by reading and writing at once through the same memory.
//!
//! In the pipeline a block is read into a slot and written from it: nothing is moved in memory
//! where both files are past the page cache. Reads run ahead in the order of the file; a write goes
//! out as soon as the watcher has seen its block. Holes stay holes.

mod pipeline;
mod small;

use std::fs::File;
use std::io;
use std::path::Path;

use ioengine::Op;
use rustix::fs::{copy_file_range, ioctl_ficlone};
use rustix::io::Errno;

use crate::error;
use crate::holes::Holes;
use crate::opened::Opened;
use crate::options::{Cache, Options, Plan};
use crate::storage::Kind;
use pipeline::Pipeline;

/// How the bytes were copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The file system shares the blocks of both files until one is changed.
    Reflink,
    /// The file server copied them (copy_file_range(2)).
    Server,
    /// They were read and written, several requests outstanding.
    Pipeline,
    /// They were read and written through the page cache, one piece after the other.
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
    /// Of it, what was read and written: holes were not (bytes).
    pub moved_bytes: u64,
    /// How.
    pub method: Method,
    /// How it was read, and how it was written, in words.
    pub how: String,
}

/// Sees what is copied, in the order of the file, before it is written.
pub trait Watch {
    /// Whether it must see the data themselves: then they are read even where blocks could be
    /// shared.
    fn wants_data(&self) -> bool {
        false
    }

    /// Bytes that come next. An error ends the copy with it.
    ///
    /// # Errors
    /// Whatever the watcher has against going on.
    fn data(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let _ = (offset, data);
        Ok(())
    }

    /// So many zeros come next, of which nothing is stored.
    ///
    /// # Errors
    /// As for data.
    fn hole(&mut self, offset: u64, bytes: u64) -> io::Result<()> {
        let _ = (offset, bytes);
        Ok(())
    }

    /// All before this place has been handed to the destination, and is in the file.
    ///
    /// # Errors
    /// As for data.
    fn written(&mut self, up_to: u64) -> io::Result<()> {
        let _ = up_to;
        Ok(())
    }
}

/// Looks the other way.
#[derive(Clone, Copy, Debug)]
pub struct NoWatch;

impl Watch for NoWatch {}

/// Copies a file to a new one, or into the one that is there, with its permissions: as
/// [`std::fs::copy`], faster. Gives its size (bytes).
///
/// # Errors
/// What the system says of opening, reading or writing, with the name of the file. What was written
/// by then stays; `halfpower copy` is the one that never leaves half a file.
pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    let (from, to) = (from.as_ref(), to.as_ref());
    let source = File::open(from).map_err(|error| error::on("opening", from, error))?;
    let target = File::create(to).map_err(|error| error::on("creating", to, error))?;
    let copied = Options::new().copy((&source, from), (&target, to), 0, &mut NoWatch)?;
    let metadata = source.metadata().map_err(|error| error::on("looking at", from, error))?;
    let allowed = target.set_permissions(metadata.permissions());
    allowed.map_err(|error| error::on("setting the permissions of", to, error))?;
    Ok(copied.bytes)
}

/// A file that is open, with its name for messages.
pub type Named<'a> = (&'a File, &'a Path);

impl Options {
    /// Copies what one file holds, from a place on, to the same places of another, and sets its
    /// size. Both have places; what the other holds before that place stays.
    ///
    /// # Errors
    /// What the system says of reading or writing, with the name of the file; or what the watcher
    /// has against it.
    pub fn copy(
        &self,
        (source, from): Named,
        (target, to): Named,
        begin: u64,
        watch: &mut dyn Watch,
    ) -> io::Result<Copied> {
        let open = |file: &File, path: &Path, writable| {
            let opened = file.try_clone().and_then(|file| Opened::new(file, path, writable));
            opened.map_err(|error| error::on("looking at", path, error))
        };
        let (source, target) = (open(source, from, false)?, open(target, to, true)?);
        let size = source.size().map_err(|error| error::on("looking at", from, error))?;
        if begin == 0
            && !watch.wants_data()
            && let Some(copied) = self.by_the_system(&source, &target, size)?
        {
            watch.written(size)?;
            return Ok(copied);
        }
        let reading = self.plan(Op::Read, &source.found(Some(size), self));
        let writing = self.plan(Op::Write, &target.found(Some(size), self));
        let deep = |plan: &Plan| plan.direct || self.asks_for_requests();
        let mut copying = Copying { options: self, source, target, begin, size };
        if deep(&reading) || deep(&writing) {
            Pipeline::run(&mut copying, &reading, &writing, watch)
        } else {
            small::run(&mut copying, &reading, watch)
        }
    }

    /// Lets the system copy where it need not move the bytes through this host.
    fn by_the_system(
        &self,
        source: &Opened,
        target: &Opened,
        size: u64,
    ) -> io::Result<Option<Copied>> {
        if !source.regular || !target.regular || size == 0 || self.cache != Cache::Auto {
            return Ok(None);
        }
        let copied = |method: Method| Copied {
            bytes: size,
            moved_bytes: 0,
            method,
            how: method.name().to_owned(),
        };
        if ioctl_ficlone(&*target.file, &*source.file).is_ok() {
            return Ok(Some(copied(Method::Reflink)));
        }
        let served = source.storage.kind == Kind::Network
            && source.storage == target.storage
            && !source.storage.file_system.starts_with("fuse");
        if !served {
            return Ok(None);
        }
        let (mut from, mut to) = (0, 0);
        while from < size {
            let most = (size - from).min(1 << 30) as usize;
            let moved =
                copy_file_range(&*source.file, Some(&mut from), &*target.file, Some(&mut to), most);
            match moved {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) if to == 0 => return Ok(None),
                Err(error) => return Err(error::on("writing", &target.path, error.into())),
            }
        }
        Ok(Some(Copied { bytes: to, moved_bytes: to, ..copied(Method::Server) }))
    }
}

/// What is copied by reading and writing.
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
    /// The holes of the source that are to stay holes.
    fn holes(&self) -> Holes {
        match self.options.keep_holes.unwrap_or(true) && self.target.regular {
            true => self.source.apart().map_or_else(Holes::none, |file| Holes::of(&file)),
            false => Holes::none(),
        }
    }

    /// Drops what the destination holds from where the copy begins, and makes room there: blocks,
    /// or only a size where there are to be holes.
    fn make_room(&self, sparse: bool) -> io::Result<()> {
        if !self.target.regular {
            return Ok(());
        }
        self.empty_target()?;
        let now = self.target.size()?;
        let reserves = !sparse && !self.options.exact_size && self.size > now;
        let reserved = reserves && self.target.reserve(now, self.size - now)?;
        match reserved || self.options.exact_size || self.size <= now {
            true => Ok(()),
            // A write within the file does not wait for the one before it.
            false => self.target.file.set_len(self.size),
        }
    }

    /// Drops what the destination holds from where the copy begins.
    fn empty_target(&self) -> io::Result<()> {
        match self.target.regular && self.target.size()? > self.begin {
            true => self.target.file.set_len(self.begin),
            false => Ok(()),
        }
    }

    /// Whether the source is longer by now than it was; looks at it again.
    fn has_grown(&mut self) -> io::Result<bool> {
        let before = std::mem::replace(&mut self.size, self.source.size()?);
        Ok(self.size > before)
    }

    /// The destination is as long as what was read.
    fn set_size(&self, size: u64) -> io::Result<()> {
        match self.target.regular && self.target.size()? != size {
            true => self.target.file.set_len(size),
            false => Ok(()),
        }
    }

    fn on_source(&self, error: io::Error) -> io::Error {
        error::on("reading", &self.source.path, error)
    }

    fn on_target(&self, error: io::Error) -> io::Error {
        error::on("writing", &self.target.path, error)
    }
}
