//! The writer, which writes blocks in order while the program fills the next block. `deep` keeps
//! requests in flight. `plain` writes through the page cache.

mod deep;
mod plain;
mod traits;

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use ioengine::Op;

use crate::error::{self, Repeated};
use crate::opened::Opened;
use crate::options::{Options, Plan};
use deep::Deep;
use plain::Plain;

/// Writes a file sequentially, as fast as its storage allows.
///
/// [`Writer::space`] lends memory to fill, and [`Writer::advance`] appends the filled bytes.
/// [`std::io::Write`] and [`std::io::Seek`] are implemented too, so a writer can replace
/// `BufWriter<File>`. [`Writer::finish`] writes the remaining data and returns any error. Dropping
/// a writer also writes the remaining data, but ignores errors.
///
/// The file size never exceeds the written bytes, except with [`Options::unseen`] or a stripe.
/// After a flush, other programs can read the written bytes. Disk space is reserved beyond the end
/// of the file without changing the file size. [`Writer::finish`] and drop release this space.
///
/// # Examples
/// ```
/// # fn main() -> std::io::Result<()> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("data");
/// use std::io::Write;
///
/// let mut writer = seqio::Writer::create(&path)?;
/// for number in 0..1000 {
///     writeln!(writer, "{number}")?;
/// }
/// let bytes = writer.finish()?;
/// assert_eq!(bytes, std::fs::metadata(&path)?.len());
/// # Ok(())
/// # }
/// ```
pub struct Writer {
    mode: Mode,
    /// One file, or the files of a stripe.
    files: Vec<Opened>,
    options: Options,
    plan: Plan,
    /// The first error. Nothing is written after an error.
    failed: Option<Repeated>,
    /// Whether the caller passed an open file. The writer then updates the position of that file.
    is_given: bool,
}

/// The implementation that the writer uses at present.
#[derive(Debug)]
enum Mode {
    Plain(Plain),
    Deep(Box<Deep>),
    Closed,
}

impl Options {
    /// Creates a file for writing, or truncates an existing one.
    ///
    /// # Errors
    /// If the file cannot be created. With [`Options::size`], also if there is not enough space.
    pub fn create(&self, path: impl AsRef<Path>) -> io::Result<Writer> {
        self.create_by(path.as_ref(), OpenOptions::new().write(true).create(true).truncate(true))
    }

    /// Creates a new file for writing.
    ///
    /// # Errors
    /// The errors of [`Options::create`]. Also if the file exists.
    pub fn create_new(&self, path: impl AsRef<Path>) -> io::Result<Writer> {
        self.create_by(path.as_ref(), OpenOptions::new().write(true).create_new(true))
    }

    /// Opens a file for appending, and creates the file if it does not exist. Each write is made at
    /// the current end of the file, so several programs may append to one file.
    ///
    /// # Errors
    /// The errors of [`Options::create`].
    pub fn append(&self, path: impl AsRef<Path>) -> io::Result<Writer> {
        self.writer(OpenOptions::new().append(true).create(true).open(path)?)
    }

    fn create_by(&self, path: &Path, how: &OpenOptions) -> io::Result<Writer> {
        Writer::new(self, Opened::new(how.open(path)?, true)?, 0)
    }

    /// Creates a writer that starts at the current position of an open file. If the file was opened
    /// for appending, the writer starts at the end. Contents that are not overwritten are kept. A
    /// flush updates the position of the file.
    ///
    /// # Errors
    /// If the type, size or position of the file cannot be determined.
    pub fn writer(&self, file: File) -> io::Result<Writer> {
        let (opened, position) = Opened::given(file, true)?;
        let mut writer = Writer::new(self, opened, position)?;
        writer.is_given = true;
        Ok(writer)
    }

    /// Writes one stream to several new files, round-robin in chunks of `chunk_bytes`.
    ///
    /// # Errors
    /// The errors of [`Options::create`]. Also if there are no files or too many files, or if
    /// `chunk_bytes` is 0.
    pub fn create_striped<P: AsRef<Path>>(
        &self,
        paths: &[P],
        chunk_bytes: u64,
    ) -> io::Result<Writer> {
        let create = |path: &P| Opened::new(File::create(path)?, true);
        let files = paths.iter().map(create).collect::<io::Result<Vec<Opened>>>()?;
        let layout = ioengine::stripe::Layout::new(files.len(), chunk_bytes);
        let layout = layout.map_err(error::of_engine)?;
        let mut plan = self.plan(Op::Write, &files[0], None);
        plan.fit_chunk(chunk_bytes, files.len());
        let deep = Deep::striped(self, &files, layout, &mut plan)?;
        let (mode, options) = (Mode::Deep(Box::new(deep)), self.clone());
        Ok(Writer { mode, files, options, plan, failed: None, is_given: false })
    }
}

impl Writer {
    /// Creates a file, or truncates an existing one, with the default [`Options`].
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Writer> {
        Options::new().create(path)
    }

    fn new(options: &Options, opened: Opened, position: u64) -> io::Result<Writer> {
        let mut plan = options.plan(Op::Write, &opened, options.size);
        // The file is opened with O_DIRECT now, so that `plan` reports whether direct I/O works.
        plan.direct &= !plan.direct || opened.paths(true).direct.is_some();
        // The writer starts with `plain`, because the file may stay smaller than one request.
        let plain = Plain::new(&opened, plan.request_bytes, position, options.size)?;
        let mut writer = Writer {
            mode: Mode::Plain(plain),
            files: vec![opened],
            options: options.clone(),
            plan,
            failed: None,
            is_given: false,
        };
        if options.size.is_some_and(|size| size >= Options::SMALL_BYTES) {
            writer.go_deep()?;
        }
        Ok(writer)
    }

    /// Returns how the file is written, and why.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the offset of the next byte (bytes). For a file that was opened for appending, the
    /// data that other programs append are not counted.
    pub fn position(&self) -> u64 {
        match &self.mode {
            Mode::Plain(plain) => plain.position(),
            Mode::Deep(deep) => deep.position(),
            Mode::Closed => 0,
        }
    }

    /// Returns a reference to the file. For a stripe, this is the first file.
    pub fn get_ref(&self) -> &File {
        &self.files[0].file
    }

    /// Writes the remaining data and returns the file. For a stripe, this is the first file.
    ///
    /// # Errors
    /// If writing fails.
    pub fn into_inner(mut self) -> io::Result<File> {
        self.close()?;
        let opened = self.files.swap_remove(0);
        drop(self);
        opened.into_file()
    }

    /// Returns memory for the next bytes. The memory is never empty, and its contents are
    /// undefined.
    ///
    /// # Errors
    /// If writing an earlier block failed.
    pub fn space(&mut self) -> io::Result<&mut [u8]> {
        self.make_room()?;
        Ok(match &mut self.mode {
            Mode::Plain(plain) => plain.space(),
            Mode::Deep(deep) => deep.space(),
            Mode::Closed => &mut [],
        })
    }

    /// Returns whether space is available without waiting for the storage.
    ///
    /// # Errors
    /// If writing an earlier block failed.
    pub fn has_room(&mut self) -> io::Result<bool> {
        self.attempt(|writer| match &mut writer.mode {
            Mode::Plain(plain) => Ok(!plain.is_full()),
            Mode::Deep(deep) => deep.has_room(),
            Mode::Closed => Ok(true),
        })
    }

    /// Returns whether all written bytes were passed to the kernel.
    pub fn is_flushed(&self) -> bool {
        match &self.mode {
            Mode::Plain(plain) => plain.is_flushed(),
            Mode::Deep(deep) => deep.is_flushed(),
            Mode::Closed => true,
        }
    }

    /// Appends the first `bytes` bytes of [`Writer::space`] to the stream. The program must have
    /// filled these bytes.
    ///
    /// # Panics
    /// If the space is smaller than `bytes`.
    pub fn advance(&mut self, bytes: usize) {
        match &mut self.mode {
            Mode::Plain(plain) => plain.advance(bytes),
            Mode::Deep(deep) => deep.advance(bytes),
            Mode::Closed => {}
        }
    }

    /// Passes all written bytes to the kernel, so that other programs can read them.
    ///
    /// # Errors
    /// If writing fails.
    pub fn flush_all(&mut self) -> io::Result<()> {
        self.attempt(|writer| match &mut writer.mode {
            Mode::Plain(plain) => plain.flush(),
            Mode::Deep(deep) => deep.flush(),
            Mode::Closed => Ok(()),
        })?;
        if let (true, [file]) = (self.is_given, self.files.as_slice()) {
            file.set_position(self.position());
        }
        Ok(())
    }

    /// Waits until all written bytes are on stable storage (fdatasync).
    ///
    /// # Errors
    /// If writing or syncing fails.
    pub fn sync_data(&mut self) -> io::Result<()> {
        self.flush_all()?;
        self.attempt(|writer| writer.files.iter().try_for_each(|opened| opened.file.sync_data()))
    }

    /// Writes the remaining data. With [`Options::durable`], also waits until the file is on stable
    /// storage. Returns the size of the file (bytes).
    ///
    /// # Errors
    /// If writing or syncing fails. After an error, the file is incomplete.
    pub fn finish(mut self) -> io::Result<u64> {
        let bytes = self.close()?;
        if self.options.durable {
            self.attempt(|writer| {
                writer.files.iter().try_for_each(|opened| {
                    if opened.has_offsets { opened.file.sync_all() } else { Ok(()) }
                })
            })?;
        }
        Ok(bytes)
    }

    fn close(&mut self) -> io::Result<u64> {
        if matches!(self.mode, Mode::Closed) {
            return Ok(0);
        }
        let closed = self.flush_all().and_then(|()| {
            self.attempt(|writer| match &mut writer.mode {
                Mode::Plain(plain) => plain.give_back(),
                Mode::Deep(deep) => deep.give_back(),
                Mode::Closed => Ok(0),
            })
        });
        // The reserved space is released even after a failure.
        match std::mem::replace(&mut self.mode, Mode::Closed) {
            Mode::Deep(mut deep) => drop(deep.give_back()),
            Mode::Plain(mut plain) => drop(plain.give_back()),
            Mode::Closed => {}
        }
        closed
    }

    /// Ensures that there is space. Writes the current block if it is full.
    fn make_room(&mut self) -> io::Result<()> {
        self.attempt(|writer| match &mut writer.mode {
            Mode::Plain(plain) if !plain.is_full() => Ok(()),
            Mode::Plain(plain) => {
                if !writer.plan.uses_requests() {
                    return plain.flush();
                }
                writer.go_deep()?;
                match &mut writer.mode {
                    Mode::Plain(plain) => plain.flush(),
                    Mode::Deep(deep) => deep.make_room(),
                    Mode::Closed => Ok(()),
                }
            }
            Mode::Deep(deep) => deep.make_room(),
            Mode::Closed => Ok(()),
        })
    }

    /// Switches to `deep`, unless the plan is to write one request at a time through the page
    /// cache. If the memory limit for direct requests is reached, the writer stays with `plain`.
    fn go_deep(&mut self) -> io::Result<()> {
        let Mode::Plain(plain) = &mut self.mode else { return Ok(()) };
        if !self.plan.uses_requests() {
            return Ok(());
        }
        match Deep::new(&self.options, &self.files[0], plain.begin(), &mut self.plan)? {
            Some(mut deep) => {
                deep.begin_with(plain.held())?;
                self.mode = Mode::Deep(Box::new(deep));
            }
            None => {
                let why = "the memory limit for direct requests is reached";
                self.plan = Plan::buffered(self.plan.request_bytes, why);
            }
        }
        Ok(())
    }

    /// Runs an operation, unless an earlier operation failed. If the operation fails, every later
    /// call returns the same error.
    fn attempt<T>(&mut self, what: impl FnOnce(&mut Writer) -> io::Result<T>) -> io::Result<T> {
        if let Some(failed) = &self.failed {
            return Err(failed.error());
        }
        what(self).inspect_err(|error| self.failed = Some(Repeated::of(error)))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The error is ignored. Callers who need the error call `finish`.
        drop(self.close());
    }
}

impl AsFd for Writer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.get_ref().as_fd()
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writer ({})", self.plan)
    }
}
