//! The writer: blocks in order, several of them on their way to the storage while the program fills
//! the next.

mod deep;
mod plain;
mod traits;

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use ioengine::{Op, Personality};

use crate::error;
use crate::opened::Opened;
use crate::options::{Options, Plan};
use deep::Deep;
use plain::Plain;

/// Writes a file from its beginning on, as fast as its storage can.
///
/// [`Writer::space`] lends memory to fill, [`Writer::advance`] says how much of it was filled;
/// [`std::io::Write`] and [`std::io::Seek`] stand beside them, so that a writer takes the place of
/// `BufWriter<File>`. [`Writer::finish`] writes what is left and says whether all went well;
/// dropping a writer does the same and says nothing.
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
    opened: Vec<Opened>,
    options: Options,
    plan: Plan,
    /// What went wrong before: nothing goes on after that.
    failed: Option<Failed>,
}

/// How the bytes go.
#[derive(Debug)]
enum Way {
    Plain(Plain),
    Deep(Box<Deep>),
    Gone,
}

/// What is said again of a failure.
#[derive(Debug)]
struct Failed(io::ErrorKind, String);

impl Options {
    /// Creates a file for writing, or empties the one that is there.
    ///
    /// # Errors
    /// What the system says of making it, with its name; with [`Options::size`] also that there is
    /// no room for it.
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

    fn create_by(&self, path: &Path, how: &OpenOptions) -> io::Result<Writer> {
        let on = |error| error::on("creating", path, error);
        let file = how.open(path).map_err(on)?;
        Writer::with(self, Opened::new(file, path, true).map_err(on)?).map_err(on)
    }

    /// Writes to a file that is open for writing, from its beginning if it has places, else from
    /// where it stands. What it held beyond what is written stays.
    ///
    /// # Errors
    /// What the system says of looking at it.
    pub fn writer(&self, file: File) -> io::Result<Writer> {
        Writer::with(self, Opened::new(file, Path::new("an open file"), true)?)
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
        let create = |path: &P| {
            let path = path.as_ref();
            let opened = File::create(path).and_then(|file| Opened::new(file, path, true));
            opened.map_err(|error| error::on("creating", path, error))
        };
        let opened = paths.iter().map(create).collect::<io::Result<Vec<Opened>>>()?;
        let layout = ioengine::stripe::Layout::new(opened.len(), chunk_bytes);
        let layout = layout.map_err(error::of_engine)?;
        let mut plan = self.plan(Op::Write, &opened[0].found(None, self));
        plan.fit_chunk(chunk_bytes, opened.len());
        let deep = Deep::new(self, &opened, Some(layout), &mut plan)?;
        let way = Way::Deep(Box::new(deep));
        Ok(Writer { way, opened, options: self.clone(), plan, failed: None })
    }
}

impl Writer {
    /// Creates a file, or empties the one that is there, with nothing said: see [`Options`].
    ///
    /// # Errors
    /// What the system says of making it, with its name.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Writer> {
        Options::new().create(path)
    }

    fn with(options: &Options, opened: Opened) -> io::Result<Writer> {
        let mut plan = options.plan(Op::Write, &opened.found(options.size, options));
        let is_deep = plan.personality != Personality::Sync || plan.direct;
        let way = if opened.has_places && is_deep && options.size.is_some_and(|size| size > 0) {
            let members = std::slice::from_ref(&opened);
            Way::Deep(Box::new(Deep::new(options, members, None, &mut plan)?))
        } else {
            // Until there is enough for a request, nobody knows whether there ever will be.
            Way::Plain(Plain::new(&opened, plan.request_bytes, options.size)?)
        };
        Ok(Writer { way, opened: vec![opened], options: options.clone(), plan, failed: None })
    }

    /// How it writes, and why so.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Where the next byte goes (bytes).
    pub fn position(&self) -> u64 {
        match &self.way {
            Way::Plain(plain) => plain.position(),
            Way::Deep(deep) => deep.position(),
            Way::Gone => 0,
        }
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
            Way::Gone => &mut [],
        })
    }

    /// Whether there is space without waiting for the storage.
    ///
    /// # Errors
    /// What the system says of writing earlier blocks.
    pub fn has_room(&mut self) -> io::Result<bool> {
        self.attempt("writing", |writer| match &mut writer.way {
            Way::Plain(plain) => Ok(!plain.is_full()),
            Way::Deep(deep) => deep.has_room(),
            Way::Gone => Ok(true),
        })
    }

    /// Whether the system has all that was written.
    pub fn is_flushed(&self) -> bool {
        match &self.way {
            Way::Plain(plain) => plain.is_flushed(),
            Way::Deep(deep) => deep.is_flushed(),
            Way::Gone => true,
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
            Way::Gone => {}
        }
    }

    /// Hands all that was written to the system: other programs see it.
    ///
    /// # Errors
    /// What the system says of writing.
    pub fn flush_all(&mut self) -> io::Result<()> {
        self.attempt("writing", |writer| match &mut writer.way {
            Way::Plain(plain) => plain.flush(),
            Way::Deep(deep) => deep.flush(),
            Way::Gone => Ok(()),
        })
    }

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// What the system says of writing or of the flush.
    pub fn sync_data(&mut self) -> io::Result<()> {
        self.flush_all()?;
        self.attempt("flushing", |writer| {
            writer.opened.iter().try_for_each(|opened| opened.file.sync_data())
        })
    }

    /// Writes what is left, sets the size of the file to what it holds, and makes it durable if
    /// that was asked for. Gives its size (bytes).
    ///
    /// # Errors
    /// What the system says of any of it: the file is then not what was written.
    pub fn finish(mut self) -> io::Result<u64> {
        let bytes = self.close()?;
        if self.options.durable {
            self.attempt("flushing", |writer| {
                writer.opened.iter().try_for_each(|opened| match opened.has_places {
                    true => opened.file.sync_all(),
                    false => Ok(()),
                })
            })?;
        }
        Ok(bytes)
    }

    fn close(&mut self) -> io::Result<u64> {
        if matches!(self.way, Way::Gone) {
            return Ok(0);
        }
        let closed = self.flush_all().and_then(|()| {
            self.attempt("setting the size of", |writer| match &mut writer.way {
                Way::Plain(plain) => plain.set_size(),
                Way::Deep(deep) => deep.set_size(),
                Way::Gone => Ok(0),
            })
        });
        // After a failure, too, nothing stays reserved.
        match std::mem::replace(&mut self.way, Way::Gone) {
            Way::Deep(mut deep) => drop(deep.set_size()),
            Way::Plain(mut plain) => drop(plain.set_size()),
            Way::Gone => {}
        }
        closed
    }

    /// Sees to it that there is space: writes the block that is full.
    fn make_room(&mut self) -> io::Result<()> {
        self.attempt("writing", |writer| match &mut writer.way {
            Way::Plain(plain) if !plain.is_full() => Ok(()),
            Way::Plain(plain) => {
                if writer.plan.direct || writer.plan.personality != Personality::Sync {
                    return writer.go_deep();
                }
                plain.flush()
            }
            Way::Deep(deep) => deep.make_room(),
            Way::Gone => Ok(()),
        })
    }

    /// There is enough for a request: from now on several are kept outstanding.
    fn go_deep(&mut self) -> io::Result<()> {
        let Way::Plain(plain) = &mut self.way else { return Ok(()) };
        if !self.opened[0].has_places {
            return plain.flush();
        }
        let mut deep = Deep::new(&self.options, &self.opened, None, &mut self.plan)?;
        deep.begin_with(plain.begin(), plain.held())?;
        self.way = Way::Deep(Box::new(deep));
        self.make_room()
    }

    /// Does something, unless something went wrong before; remembers if it does now.
    fn attempt<T>(
        &mut self,
        doing: &str,
        what: impl FnOnce(&mut Writer) -> io::Result<T>,
    ) -> io::Result<T> {
        if let Some(Failed(kind, text)) = &self.failed {
            return Err(io::Error::new(*kind, text.clone()));
        }
        what(self).map_err(|error| {
            let path: &PathBuf = &self.opened[0].path;
            let error = match self.failed {
                Some(_) => error,
                None => error::on(doing, path, error),
            };
            self.failed = Some(Failed(error.kind(), error.to_string()));
            error
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Whoever wants to know calls `finish`.
        drop(self.close());
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writer of {} ({})", self.opened[0].path.display(), self.plan)
    }
}
