//! The reader: blocks in order, several requests ahead.
//!
//! There are two ways below it: `deep` keeps requests in flight, `plain` reads as the program asks,
//! through the page cache. A stream that is read in sequence goes the deep way where its plan says
//! so; a seek goes back to the plain one, so that random access costs what it costs with `std`,
//! until enough has been read in sequence again.

mod deep;
mod plain;
mod traits;

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use ioengine::Op;

use crate::opened::Opened;
use crate::options::{Options, Plan};
use deep::Deep;
use plain::Plain;

/// After a seek so much must be read in sequence before requests are kept in flight again (bytes):
/// setting them up and reading ahead costs more than a short visit gains.
const SEQUENTIAL_BYTES: u64 = 512 << 10;
/// A program that reads at least so much at once gets it straight into its own memory (bytes).
const STRAIGHT_BYTES: usize = 32 << 10;
/// The request size where the memory for direct requests is used up (bytes).
const SCARCE_BYTES: u32 = 64 << 10;

/// Reads a file from its beginning to its end, as fast as its storage can.
///
/// [`Reader::next_block`] lends filled memory without copying it; [`std::io::Read`],
/// [`std::io::BufRead`] and [`std::io::Seek`] are there too, so that a reader takes the place of
/// `BufReader<File>`. [`Options`] decides how it reads; [`Reader::plan`] tells.
///
/// A file may grow or shrink while it is read: what is there when the reader comes by is read.
/// After an error [`Reader::position`] is where it happened, and the next call tries again.
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
    /// One file, or the members of a stripe.
    files: Vec<Opened>,
    options: Options,
    plan: Plan,
    way: Way,
    /// The deep way while a seek keeps the reader on the plain one.
    parked: Option<Box<Deep>>,
    /// How much of the present block has been handed out (bytes).
    used: usize,
    /// How much was read in sequence since the last seek; at the beginning, more than enough
    /// (bytes).
    sequential_bytes: u64,
    /// The program opened the file, so its position moves as by reading.
    is_given: bool,
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
    is_hole: bool,
}

impl Block<'_> {
    /// Where in the file it begins (bytes).
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Nothing is stored there: all of it are zeros.
    pub fn is_hole(&self) -> bool {
        self.is_hole
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
    /// What the system says of opening it.
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<Reader> {
        Reader::new(self, Opened::new(File::open(path)?, false)?, 0)
    }

    /// Reads an open file from its position on, which moves with the reader when that is dropped.
    ///
    /// # Errors
    /// What the system says of looking at it.
    pub fn reader(&self, file: File) -> io::Result<Reader> {
        let (opened, position) = Opened::given(file, false)?;
        let mut reader = Reader::new(self, opened, position)?;
        reader.is_given = true;
        Ok(reader)
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
        let open = |path: &P| Opened::new(File::open(path)?, false);
        let files = paths.iter().map(open).collect::<io::Result<Vec<Opened>>>()?;
        let deep = Box::new(Deep::striped(self, &files, chunk_bytes)?);
        Ok(Reader {
            files,
            options: self.clone(),
            plan: deep.plan().clone(),
            way: Way::Deep(deep),
            parked: None,
            used: 0,
            sequential_bytes: u64::MAX,
            is_given: false,
        })
    }
}

impl Reader {
    /// Opens a file with the default [`Options`].
    ///
    /// # Errors
    /// What the system says of opening it.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Reader> {
        Options::new().open(path)
    }

    fn new(options: &Options, opened: Opened, position: u64) -> io::Result<Reader> {
        let size = if opened.has_offsets { Some(opened.size_at_opening()?) } else { None };
        let mut plan = options.plan(Op::Read, &opened, size);
        // What the file system declines is found out now, for `plan` to tell.
        plan.direct &= !plan.direct || opened.paths(true).direct.is_some();
        let left = size.map(|size| size.saturating_sub(position));
        let leaves = options.leave_cache
            && opened.is_regular
            && !plan.direct
            && left.is_some_and(|left| left > 0 && opened.is_cold(left));
        let plain = Plain::new(&opened, &plan, position, left, leaves);
        Ok(Reader {
            files: vec![opened],
            options: options.clone(),
            plan,
            way: Way::Plain(plain),
            parked: None,
            used: 0,
            sequential_bytes: u64::MAX,
            is_given: false,
        })
    }

    /// How it reads, and why so.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Where in the stream the next byte comes from (bytes).
    pub fn position(&self) -> u64 {
        self.way.offset() + self.used as u64
    }

    /// The file; of a stripe the first member.
    pub fn get_ref(&self) -> &File {
        &self.files[0].file
    }

    /// Gives the file back, of a stripe the first member. Its position is that of the next byte
    /// that was not read, where it has one.
    ///
    /// # Errors
    /// What the system says of moving its position.
    pub fn into_inner(mut self) -> io::Result<File> {
        self.is_given = true;
        self.leave();
        let opened = self.files.swap_remove(0);
        (self.way, self.parked) = (Way::Plain(Plain::empty()), None);
        drop(self);
        opened.into_file()
    }

    /// The position of a file that the program opened goes where the reader is.
    fn leave(&mut self) {
        if let (true, [file]) = (self.is_given, self.files.as_slice()) {
            file.set_position(self.position());
            self.is_given = false;
        }
    }

    /// The next bytes: what is left of the present block, else the next one. None at the end.
    ///
    /// # Errors
    /// What the system says of reading; the same bytes are asked for again by the next call.
    pub fn next_block(&mut self) -> io::Result<Option<Block<'_>>> {
        if self.used >= self.way.data().len() && !self.advance()? {
            return Ok(None);
        }
        let (offset, is_hole, from) = (self.position(), self.way.is_hole(), self.used);
        let data = self.way.data();
        self.used = data.len();
        let data = &data[from..];
        Ok(Some(Block { data, offset, is_hole }))
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
        if self.is_sequential() {
            self.go_deep()?;
        }
        let advanced = match &mut self.way {
            Way::Plain(plain) => plain.advance(),
            Way::Deep(deep) => deep.advance(),
        };
        self.used = 0;
        let length = self.way.data().len() as u64;
        self.sequential_bytes = self.sequential_bytes.saturating_add(length);
        advanced
    }

    /// Whether requests should be in flight and are not.
    fn is_sequential(&self) -> bool {
        let is_plain = matches!(self.way, Way::Plain(_));
        is_plain && self.plan.uses_requests() && self.sequential_bytes >= SEQUENTIAL_BYTES
    }

    /// From now on requests are kept in flight, as far as there is memory for them.
    fn go_deep(&mut self) -> io::Result<()> {
        let Way::Plain(plain) = &self.way else { return Ok(()) };
        let offset = plain.end();
        let deep = match self.parked.take() {
            Some(parked) => Some(parked),
            None => Deep::new(&self.options, &self.files[0], &self.plan)?.map(Box::new),
        };
        match deep {
            Some(mut deep) => {
                deep.go_to(offset);
                self.plan = deep.plan().clone();
                self.way = Way::Deep(deep);
            }
            None => {
                let why = "other files have all the memory for direct requests";
                self.plan = Plan::buffered(SCARCE_BYTES, why);
                self.way = Way::Plain(Plain::new(&self.files[0], &self.plan, offset, None, false));
            }
        }
        Ok(())
    }

    /// Reads straight into the program's memory, where nothing is lost by that; None elsewhere.
    fn read_straight(&mut self, into: &mut [u8]) -> Option<io::Result<usize>> {
        if into.len() < STRAIGHT_BYTES || self.is_sequential() {
            return None;
        }
        let Way::Plain(plain) = &mut self.way else { return None };
        let read = plain.read_straight(into);
        self.used = 0;
        if let Ok(bytes) = read {
            self.sequential_bytes = self.sequential_bytes.saturating_add(bytes as u64);
        }
        Some(read)
    }

    /// Goes on from another offset (bytes).
    fn go_to(&mut self, offset: u64) -> io::Result<()> {
        let begin = self.way.offset();
        let within = offset.checked_sub(begin).filter(|at| *at <= self.way.data().len() as u64);
        if let Some(within) = within {
            self.used = within as usize;
            return Ok(());
        }
        self.used = 0;
        if let Way::Plain(plain) = &mut self.way {
            self.sequential_bytes = 0;
            return plain.go_to(offset);
        }
        let plain = Plain::after_seek(&self.files[0], &self.plan, offset);
        let Way::Deep(mut deep) = std::mem::replace(&mut self.way, Way::Plain(plain)) else {
            return Ok(());
        };
        let is_stripe = self.files.len() > 1;
        if is_stripe {
            deep.go_to(offset);
        }
        if is_stripe || deep.skip_to(offset) {
            self.way = Way::Deep(deep);
            return Ok(());
        }
        deep.stop();
        self.parked = Some(deep);
        self.sequential_bytes = 0;
        Ok(())
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

impl Drop for Reader {
    fn drop(&mut self) {
        self.leave();
    }
}

impl AsFd for Reader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.get_ref().as_fd()
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reader ({})", self.plan)
    }
}
