//! The writer: blocks in order, on their way to the storage while the program fills the next.

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

/// Writes a file from its beginning on, as fast as its storage can.
///
/// [`Writer::space`] lends memory to fill, [`Writer::advance`] says how much of it was filled;
/// [`std::io::Write`] and [`std::io::Seek`] are there too, so that a writer takes the place of
/// `BufWriter<File>`. [`Writer::finish`] writes what is left and says whether all went well;
/// dropping a writer does the same and says nothing.
///
/// The file is never larger than what was written to it, and what was flushed can be read by
/// others. Space is reserved ahead beyond its end, invisibly, and given back by `finish` and by
/// dropping.
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
    way: Way,
    /// One file, or the members of a stripe.
    files: Vec<Opened>,
    options: Options,
    plan: Plan,
    /// The first error: nothing is written after it.
    failed: Option<Repeated>,
    /// The program opened the file, so its position moves as by writing.
    is_given: bool,
}

/// How the bytes go.
#[derive(Debug)]
enum Way {
    Plain(Plain),
    Deep(Box<Deep>),
    Closed,
}

impl Options {
    /// Creates a file for writing, or empties the one that is there.
    ///
    /// # Errors
    /// What the system says of creating it; with [`Options::size`] also that there is no room.
    pub fn create(&self, path: impl AsRef<Path>) -> io::Result<Writer> {
        self.create_by(path.as_ref(), OpenOptions::new().write(true).create(true).truncate(true))
    }

    /// Creates a file for writing where there is none.
    ///
    /// # Errors
    /// As [`Options::create`]; and that there is one.
    pub fn create_new(&self, path: impl AsRef<Path>) -> io::Result<Writer> {
        self.create_by(path.as_ref(), OpenOptions::new().write(true).create_new(true))
    }

    /// Writes at the end of a file, which is created if there is none. Each write of the system
    /// goes to wherever the end is by then, so that several programs may append to one file.
    ///
    /// # Errors
    /// As [`Options::create`].
    pub fn append(&self, path: impl AsRef<Path>) -> io::Result<Writer> {
        self.writer(OpenOptions::new().append(true).create(true).open(path)?)
    }

    fn create_by(&self, path: &Path, how: &OpenOptions) -> io::Result<Writer> {
        Writer::new(self, Opened::new(how.open(path)?, true)?, 0)
    }

    /// Writes to an open file from its position on, which moves with the writer when that is
    /// flushed; a file that was opened for appending is written at its end. What the file holds
    /// elsewhere stays.
    ///
    /// # Errors
    /// What the system says of looking at it.
    pub fn writer(&self, file: File) -> io::Result<Writer> {
        let (opened, position) = Opened::given(file, true)?;
        let mut writer = Writer::new(self, opened, position)?;
        writer.is_given = true;
        Ok(writer)
    }

    /// Writes one stream to several new files: `chunk_bytes` to each in turn.
    ///
    /// # Errors
    /// As [`Options::create`], or that there is no such stripe.
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
        let (way, options) = (Way::Deep(Box::new(deep)), self.clone());
        Ok(Writer { way, files, options, plan, failed: None, is_given: false })
    }
}

impl Writer {
    /// Creates a file, or empties the one that is there, with the default [`Options`].
    ///
    /// # Errors
    /// What the system says of creating it.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Writer> {
        Options::new().create(path)
    }

    fn new(options: &Options, opened: Opened, position: u64) -> io::Result<Writer> {
        let mut plan = options.plan(Op::Write, &opened, options.size);
        // What the file system declines is found out now, for `plan` to tell.
        plan.direct &= !plan.direct || opened.paths(true).direct.is_some();
        // Until there is enough for a request, nobody knows whether there ever will be.
        let plain = Plain::new(&opened, plan.request_bytes, position, options.size)?;
        let mut writer = Writer {
            way: Way::Plain(plain),
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

    /// How it writes, and why so.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Where the next byte goes (bytes); in a file that is appended to, as far as this writer
    /// knows.
    pub fn position(&self) -> u64 {
        match &self.way {
            Way::Plain(plain) => plain.position(),
            Way::Deep(deep) => deep.position(),
            Way::Closed => 0,
        }
    }

    /// The file; of a stripe the first member.
    pub fn get_ref(&self) -> &File {
        &self.files[0].file
    }

    /// Writes what is left and gives the file back, of a stripe the first member.
    ///
    /// # Errors
    /// What the system says of writing.
    pub fn into_inner(mut self) -> io::Result<File> {
        self.close()?;
        let opened = self.files.swap_remove(0);
        drop(self);
        opened.into_file()
    }

    /// Memory to fill with what comes next, never empty; what it holds is of no meaning.
    ///
    /// # Errors
    /// What the system says of writing earlier blocks.
    pub fn space(&mut self) -> io::Result<&mut [u8]> {
        self.make_room()?;
        Ok(match &mut self.way {
            Way::Plain(plain) => plain.space(),
            Way::Deep(deep) => deep.space(),
            Way::Closed => &mut [],
        })
    }

    /// Whether there is space without waiting for the storage.
    ///
    /// # Errors
    /// What the system says of writing earlier blocks.
    pub fn has_room(&mut self) -> io::Result<bool> {
        self.attempt(|writer| match &mut writer.way {
            Way::Plain(plain) => Ok(!plain.is_full()),
            Way::Deep(deep) => deep.has_room(),
            Way::Closed => Ok(true),
        })
    }

    /// Whether the system has all that was written.
    pub fn is_flushed(&self) -> bool {
        match &self.way {
            Way::Plain(plain) => plain.is_flushed(),
            Way::Deep(deep) => deep.is_flushed(),
            Way::Closed => true,
        }
    }

    /// So many bytes of the space were filled.
    ///
    /// # Panics
    /// If there was less space.
    pub fn advance(&mut self, bytes: usize) {
        match &mut self.way {
            Way::Plain(plain) => plain.advance(bytes),
            Way::Deep(deep) => deep.advance(bytes),
            Way::Closed => {}
        }
    }

    /// Hands all that was written to the system: other programs see it.
    ///
    /// # Errors
    /// What the system says of writing.
    pub fn flush_all(&mut self) -> io::Result<()> {
        self.attempt(|writer| match &mut writer.way {
            Way::Plain(plain) => plain.flush(),
            Way::Deep(deep) => deep.flush(),
            Way::Closed => Ok(()),
        })?;
        if let (true, [file]) = (self.is_given, self.files.as_slice()) {
            file.set_position(self.position());
        }
        Ok(())
    }

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// What the system says of writing or of the flush.
    pub fn sync_data(&mut self) -> io::Result<()> {
        self.flush_all()?;
        self.attempt(|writer| writer.files.iter().try_for_each(|opened| opened.file.sync_data()))
    }

    /// Writes what is left and, if [`Options::durable`] was set, makes the file durable. Gives its
    /// size (bytes).
    ///
    /// # Errors
    /// What the system says of any of it: the file is then not what was written.
    pub fn finish(mut self) -> io::Result<u64> {
        let bytes = self.close()?;
        if self.options.durable {
            self.attempt(|writer| {
                writer.files.iter().try_for_each(|opened| match opened.has_offsets {
                    true => opened.file.sync_all(),
                    false => Ok(()),
                })
            })?;
        }
        Ok(bytes)
    }

    fn close(&mut self) -> io::Result<u64> {
        if matches!(self.way, Way::Closed) {
            return Ok(0);
        }
        let closed = self.flush_all().and_then(|()| {
            self.attempt(|writer| match &mut writer.way {
                Way::Plain(plain) => plain.give_back(),
                Way::Deep(deep) => deep.give_back(),
                Way::Closed => Ok(0),
            })
        });
        // After a failure, too, nothing stays reserved.
        match std::mem::replace(&mut self.way, Way::Closed) {
            Way::Deep(mut deep) => drop(deep.give_back()),
            Way::Plain(mut plain) => drop(plain.give_back()),
            Way::Closed => {}
        }
        closed
    }

    /// Sees to it that there is space: writes the block that is full.
    fn make_room(&mut self) -> io::Result<()> {
        self.attempt(|writer| match &mut writer.way {
            Way::Plain(plain) if !plain.is_full() => Ok(()),
            Way::Plain(plain) => {
                if !writer.plan.uses_requests() {
                    return plain.flush();
                }
                writer.go_deep()?;
                match &mut writer.way {
                    Way::Plain(plain) => plain.flush(),
                    Way::Deep(deep) => deep.make_room(),
                    Way::Closed => Ok(()),
                }
            }
            Way::Deep(deep) => deep.make_room(),
            Way::Closed => Ok(()),
        })
    }

    /// There is enough for requests: from now on they go out while the program fills the next. As
    /// long as all memory for that is in use elsewhere, the page cache is used.
    fn go_deep(&mut self) -> io::Result<()> {
        let Way::Plain(plain) = &mut self.way else { return Ok(()) };
        if !self.plan.uses_requests() {
            return Ok(());
        }
        match Deep::new(&self.options, &self.files[0], plain.begin(), &mut self.plan)? {
            Some(mut deep) => {
                deep.begin_with(plain.held())?;
                self.way = Way::Deep(Box::new(deep));
            }
            None => {
                let why = "other files have all the memory for direct requests";
                self.plan = Plan::buffered(self.plan.request_bytes, why);
            }
        }
        Ok(())
    }

    /// Does something, unless an earlier call failed; remembers its error.
    fn attempt<T>(&mut self, what: impl FnOnce(&mut Writer) -> io::Result<T>) -> io::Result<T> {
        if let Some(failed) = &self.failed {
            return Err(failed.error());
        }
        what(self).inspect_err(|error| self.failed = Some(Repeated::of(error)))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Whoever wants to know calls `finish`.
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
