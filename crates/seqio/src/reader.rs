//! The reader: blocks in order, several requests ahead.
//!
//! What a program sees is the same on both ways below it: `deep` keeps requests outstanding,
//! `plain` reads as the program asks. Neither hides an error or makes up a byte.

mod deep;
mod plain;
mod traits;

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use ioengine::{Op, Personality};

use crate::error;
use crate::opened::Opened;
use crate::options::{Options, Plan};
use deep::Deep;
use plain::Plain;

/// Reads a file from its beginning to its end, as fast as its storage can.
///
/// [`Reader::next_block`] lends filled memory without copying it; [`std::io::Read`],
/// [`std::io::BufRead`] and [`std::io::Seek`] stand beside it, so that a reader takes the place of
/// `BufReader<File>`. How it reads is decided by [`Options`]; [`Reader::plan`] tells.
///
/// A file may grow or shrink while it is read: what is there when the reader comes by is read.
///
/// # Examples
/// ```
/// # fn main() -> std::io::Result<()> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("data");
/// # std::fs::write(&path, vec![7; 100_000])?;
/// let mut reader = seqio::Reader::open(&path)?;
/// let mut sum = 0_u64;
/// while let Some(block) = reader.next_block()? {
///     sum += block.iter().map(|byte| u64::from(*byte)).sum::<u64>();
/// }
/// assert_eq!(sum, 700_000);
/// # Ok(())
/// # }
/// ```
pub struct Reader {
    way: Way,
    path: PathBuf,
    plan: Plan,
    /// Of the present block, what has been handed out (bytes).
    used: usize,
}

/// How the bytes come.
enum Way {
    Plain(Plain),
    Deep(Box<Deep>),
}

/// Bytes of a file, lent until the next call on the reader.
#[derive(Debug)]
pub struct Block<'a> {
    data: &'a [u8],
    offset: u64,
    hole: bool,
}

impl Block<'_> {
    /// Where in the file it begins (bytes).
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Nothing is stored there: all of it are zeros.
    pub fn is_hole(&self) -> bool {
        self.hole
    }
}

impl Deref for Block<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.data
    }
}

impl Options {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// What the system says of opening it, with its name.
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<Reader> {
        let path = path.as_ref();
        let on = |error| error::on("opening", path, error);
        let file = File::open(path).map_err(on)?;
        Reader::with(self, &Opened::new(file, path, false).map_err(on)?).map_err(on)
    }

    /// Reads a file that is open, from its beginning if it has places, else from where it stands.
    ///
    /// # Errors
    /// What the system says of looking at it.
    pub fn reader(&self, file: File) -> io::Result<Reader> {
        Reader::with(self, &Opened::new(file, Path::new("an open file"), false)?)
    }

    /// Reads files as one stream: `chunk_bytes` of each in turn, as [`Options::create_striped`]
    /// wrote them.
    ///
    /// # Errors
    /// What the system says of opening one of them, or that their sizes are not those of a stripe.
    pub fn open_striped<P: AsRef<Path>>(
        &self,
        paths: &[P],
        chunk_bytes: u64,
    ) -> io::Result<Reader> {
        let open = |path: &P| {
            let path = path.as_ref();
            let opened = File::open(path).and_then(|file| Opened::new(file, path, false));
            opened.map_err(|error| error::on("opening", path, error))
        };
        let members = paths.iter().map(open).collect::<io::Result<Vec<Opened>>>()?;
        let deep = Deep::striped(self, &members, chunk_bytes)?;
        let (plan, path) = (deep.plan().clone(), members[0].path.clone());
        Ok(Reader { way: Way::Deep(Box::new(deep)), path, plan, used: 0 })
    }
}

impl Reader {
    /// Opens a file with nothing said: see [`Options`].
    ///
    /// # Errors
    /// What the system says of opening it, with its name.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Reader> {
        Options::new().open(path)
    }

    fn with(options: &Options, opened: &Opened) -> io::Result<Reader> {
        let size = if opened.has_places { Some(opened.size()?) } else { None };
        let found = opened.found(size, options);
        let plan = options.plan(Op::Read, &found);
        let path = opened.path.clone();
        let is_deep = plan.personality != Personality::Sync || plan.direct;
        let (way, plan) = match size {
            Some(size) if is_deep => {
                let deep = Deep::new(options, opened, size, plan)?;
                let plan = deep.plan().clone();
                (Way::Deep(Box::new(deep)), plan)
            }
            _ => {
                let asks = options.leave_cache && opened.regular && !plan.direct;
                // A look where that is enough, for counting takes its time.
                let cold = |size| opened.resident(size) == Some(0) && opened.is_cold();
                let forgets = asks && size.is_some_and(|size| size > 0 && cold(size));
                (Way::Plain(Plain::new(opened, &plan, forgets)), plan)
            }
        };
        Ok(Reader { way, path, plan, used: 0 })
    }

    /// How it reads, and why so.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Where in the stream the next byte comes from (bytes).
    pub fn position(&self) -> u64 {
        self.way.offset() + self.used as u64
    }

    /// The next bytes: what is left of the present block, else the next one. None at the end.
    ///
    /// # Errors
    /// What the system says of reading; the same bytes are asked for again by the next call.
    pub fn next_block(&mut self) -> io::Result<Option<Block<'_>>> {
        if self.used >= self.way.data().len() && !self.advance()? {
            return Ok(None);
        }
        let (offset, hole, from) = (self.position(), self.way.is_hole(), self.used);
        let data = self.way.data();
        self.used = data.len();
        let data = &data[from..];
        Ok(Some(Block { data, offset, hole }))
    }

    /// Whether the next bytes, or the end of a file, can be had without waiting for the storage.
    ///
    /// # Errors
    /// What the system says of looking.
    pub fn is_at_hand(&mut self) -> io::Result<bool> {
        if self.used < self.way.data().len() {
            return Ok(true);
        }
        match &mut self.way {
            Way::Plain(_) => Ok(false),
            Way::Deep(deep) => deep.is_at_hand(),
        }
    }

    /// Makes the next block the present one; whether there is one.
    fn advance(&mut self) -> io::Result<bool> {
        let advanced = match &mut self.way {
            Way::Plain(plain) => plain.advance(),
            Way::Deep(deep) => deep.advance(),
        };
        self.used = 0;
        advanced.map_err(|error| error::on("reading", &self.path, error))
    }

    /// Goes on from another place (bytes).
    fn go_to(&mut self, place: u64) -> io::Result<()> {
        let begin = self.way.offset();
        let within = place.checked_sub(begin).filter(|at| *at <= self.way.data().len() as u64);
        if let Some(within) = within {
            self.used = within as usize;
            return Ok(());
        }
        self.used = 0;
        match &mut self.way {
            Way::Plain(plain) => plain.go_to(place),
            Way::Deep(deep) => {
                deep.go_to(place);
                Ok(())
            }
        }
    }

    /// How large the stream is now, where it has an end that is known (bytes).
    ///
    /// # Errors
    /// What the system says, or that the stream is no file.
    pub fn size(&self) -> io::Result<u64> {
        match &self.way {
            Way::Plain(plain) => plain.size(),
            Way::Deep(deep) => deep.size(),
        }
    }
}

impl Way {
    /// Where the present block begins (bytes).
    fn offset(&self) -> u64 {
        match self {
            Way::Plain(plain) => plain.offset(),
            Way::Deep(deep) => deep.offset(),
        }
    }

    /// The present block; empty before the first.
    fn data(&mut self) -> &[u8] {
        match self {
            Way::Plain(plain) => plain.data(),
            Way::Deep(deep) => deep.data(),
        }
    }

    fn is_hole(&self) -> bool {
        match self {
            Way::Plain(_) => false,
            Way::Deep(deep) => deep.is_hole(),
        }
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reader of {} ({})", self.path.display(), self.plan)
    }
}
