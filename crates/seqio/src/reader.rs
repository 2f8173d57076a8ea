//! The reader, which returns the blocks of a file in order and keeps several requests in flight.
//!
//! There are two implementations. `deep` keeps requests in flight. `plain` reads on demand through
//! the page cache. Sequential reads use `deep`, unless the plan is to read one request at a time
//! through the page cache. After a seek, the reader uses `plain` until enough bytes have been read
//! sequentially, so that random access costs no more than with `std`.

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

/// Number of bytes that must be read sequentially after a seek before the reader switches to
/// `deep`. For fewer bytes, `deep` costs more than it saves.
const SEQUENTIAL_BYTES: u64 = 512 << 10;
/// Minimum size of a read that bypasses the buffer of the reader (bytes).
const DIRECT_TO_CALLER_BYTES: usize = 32 << 10;
/// Request size if the memory limit for direct requests is reached (bytes).
const SCARCE_BYTES: u32 = 64 << 10;

/// Reads a file sequentially, as fast as its storage allows.
///
/// [`Reader::next_block`] lends filled memory without copying. [`std::io::Read`],
/// [`std::io::BufRead`] and [`std::io::Seek`] are implemented too, so a reader can replace
/// `BufReader<File>`. [`Options`] control how the file is read, and [`Reader::plan`] reports how it
/// is read.
///
/// A file may grow or shrink while it is read. The reader returns the data that exist when it
/// reaches a position. After an error, [`Reader::position`] is the position of the error, and the
/// next call tries again.
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
    /// One file, or the files of a stripe.
    files: Vec<Opened>,
    options: Options,
    plan: Plan,
    mode: Mode,
    /// Keeps the `deep` implementation for later use while `plain` is used after a seek. None at
    /// other times.
    parked: Option<Box<Deep>>,
    /// Number of bytes of the current block that the program has already received.
    used: usize,
    /// Number of bytes read sequentially since the last seek. It starts at the maximum, so that a
    /// stream without seeks always counts as sequential.
    sequential_bytes: u64,
    /// Whether the caller passed an open file. The reader then updates the position of that file.
    is_given: bool,
}

/// The implementation that the reader uses at present.
enum Mode {
    Plain(Plain),
    Deep(Box<Deep>),
}

/// A block of bytes of a file. The block is valid until the next call on the reader.
#[derive(Debug)]
pub struct Block<'a> {
    data: &'a [u8],
    offset: u64,
    is_hole: bool,
}

impl Block<'_> {
    /// Returns the offset of the block in the file (bytes).
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns whether the block is a hole. All bytes of a hole are zero.
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
    /// If the file cannot be opened.
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<Reader> {
        Reader::new(self, Opened::new(File::open(path)?, false)?, 0)
    }

    /// Creates a reader that starts at the current position of an open file. When the reader is
    /// dropped, the position of the file is set to the next unread byte.
    ///
    /// # Errors
    /// If the type, size or position of the file cannot be determined.
    pub fn reader(&self, file: File) -> io::Result<Reader> {
        let (opened, position) = Opened::given(file, false)?;
        let mut reader = Reader::new(self, opened, position)?;
        reader.is_given = true;
        Ok(reader)
    }

    /// Reads several files as one stream, round-robin in chunks of `chunk_bytes`. The files must
    /// have the layout that [`Options::create_striped`] writes.
    ///
    /// # Errors
    /// If a file cannot be opened, or if the sizes of the files do not form a stripe.
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
            mode: Mode::Deep(deep),
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
    /// If the file cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Reader> {
        Options::new().open(path)
    }

    fn new(options: &Options, opened: Opened, position: u64) -> io::Result<Reader> {
        let size = if opened.has_offsets { Some(opened.size_at_opening()?) } else { None };
        let mut plan = options.plan(Op::Read, &opened, size);
        // The file is opened with O_DIRECT now, so that `plan` reports whether direct I/O works.
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
            mode: Mode::Plain(plain),
            parked: None,
            used: 0,
            sequential_bytes: u64::MAX,
            is_given: false,
        })
    }

    /// Returns how the file is read, and why.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the offset of the next byte in the stream (bytes).
    pub fn position(&self) -> u64 {
        self.mode.offset() + self.used as u64
    }

    /// Returns a reference to the file. For a stripe, this is the first file.
    pub fn get_ref(&self) -> &File {
        &self.files[0].file
    }

    /// Returns the file. For a stripe, this is the first file. If the file is seekable, its
    /// position is set to the next unread byte.
    ///
    /// # Errors
    /// If the file descriptor cannot be duplicated.
    pub fn into_inner(mut self) -> io::Result<File> {
        self.is_given = true;
        self.update_file_position();
        let opened = self.files.swap_remove(0);
        (self.mode, self.parked) = (Mode::Plain(Plain::empty()), None);
        drop(self);
        opened.into_file()
    }

    /// Updates the position of a file that the caller opened.
    fn update_file_position(&mut self) {
        if let (true, [file]) = (self.is_given, self.files.as_slice()) {
            file.set_position(self.position());
            self.is_given = false;
        }
    }

    /// Returns the unread part of the current block. If the program has received the whole block,
    /// returns the next block. Returns None at the end of the stream.
    ///
    /// # Errors
    /// If reading fails. The next call tries the same bytes again.
    pub fn next_block(&mut self) -> io::Result<Option<Block<'_>>> {
        if self.used >= self.mode.data().len() && !self.advance()? {
            return Ok(None);
        }
        let (offset, is_hole, from) = (self.position(), self.mode.is_hole(), self.used);
        let data = self.mode.data();
        self.used = data.len();
        let data = &data[from..];
        Ok(Some(Block { data, offset, is_hole }))
    }

    /// Returns whether the next read can return without waiting for the storage. It may return data
    /// or report the end of the file.
    ///
    /// # Errors
    /// If completed requests cannot be collected.
    pub fn is_at_hand(&mut self) -> io::Result<bool> {
        if self.used < self.mode.data().len() {
            return Ok(true);
        }
        match &mut self.mode {
            Mode::Plain(_) => Ok(false),
            Mode::Deep(deep) => deep.is_at_hand(),
        }
    }

    /// Moves to the next block. Returns false at the end of the stream.
    fn advance(&mut self) -> io::Result<bool> {
        if self.is_sequential() {
            self.go_deep()?;
        }
        let advanced = match &mut self.mode {
            Mode::Plain(plain) => plain.advance(),
            Mode::Deep(deep) => deep.advance(),
        };
        self.used = 0;
        let length = self.mode.data().len() as u64;
        self.sequential_bytes = self.sequential_bytes.saturating_add(length);
        advanced
    }

    /// Returns whether the reader should switch to `deep`.
    fn is_sequential(&self) -> bool {
        let is_plain = matches!(self.mode, Mode::Plain(_));
        is_plain && self.plan.uses_requests() && self.sequential_bytes >= SEQUENTIAL_BYTES
    }

    /// Switches to `deep`. If the memory limit for direct requests is reached, switches to smaller
    /// reads through the page cache instead.
    fn go_deep(&mut self) -> io::Result<()> {
        let Mode::Plain(plain) = &self.mode else { return Ok(()) };
        let offset = plain.end();
        let deep = match self.parked.take() {
            Some(parked) => Some(parked),
            None => Deep::new(&self.options, &self.files[0], &self.plan)?.map(Box::new),
        };
        match deep {
            Some(mut deep) => {
                deep.move_to(offset);
                self.plan = deep.plan().clone();
                self.mode = Mode::Deep(deep);
            }
            None => {
                let why = "the memory limit for direct requests is reached";
                self.plan = Plan::buffered(SCARCE_BYTES, why);
                self.mode =
                    Mode::Plain(Plain::new(&self.files[0], &self.plan, offset, None, false));
            }
        }
        Ok(())
    }

    /// Reads directly into the memory of the caller if the read is large and `plain` is in use.
    /// Otherwise returns None without reading.
    fn read_into_caller(&mut self, into: &mut [u8]) -> Option<io::Result<usize>> {
        if into.len() < DIRECT_TO_CALLER_BYTES || self.is_sequential() {
            return None;
        }
        let Mode::Plain(plain) = &mut self.mode else { return None };
        let read = plain.read_into_caller(into);
        self.used = 0;
        if let Ok(bytes) = read {
            self.sequential_bytes = self.sequential_bytes.saturating_add(bytes as u64);
        }
        Some(read)
    }

    fn move_to(&mut self, offset: u64) -> io::Result<()> {
        let begin = self.mode.offset();
        let within = offset.checked_sub(begin).filter(|at| *at <= self.mode.data().len() as u64);
        if let Some(within) = within {
            self.used = within as usize;
            return Ok(());
        }
        self.used = 0;
        if let Mode::Plain(plain) = &mut self.mode {
            self.sequential_bytes = 0;
            return plain.move_to(offset);
        }
        let plain = Plain::after_seek(&self.files[0], &self.plan, offset);
        let Mode::Deep(mut deep) = std::mem::replace(&mut self.mode, Mode::Plain(plain)) else {
            return Ok(());
        };
        let is_stripe = self.files.len() > 1;
        if is_stripe {
            deep.move_to(offset);
        }
        if is_stripe || deep.skip_to(offset) {
            self.mode = Mode::Deep(deep);
            return Ok(());
        }
        deep.stop();
        self.parked = Some(deep);
        self.sequential_bytes = 0;
        Ok(())
    }

    /// Returns the current size of the stream (bytes).
    ///
    /// # Errors
    /// If the stream has no size (a pipe), or if the size cannot be determined.
    pub fn size(&self) -> io::Result<u64> {
        match &self.mode {
            Mode::Plain(plain) => plain.size(),
            Mode::Deep(deep) => deep.size(),
        }
    }
}

impl Mode {
    fn offset(&self) -> u64 {
        match self {
            Mode::Plain(plain) => plain.offset(),
            Mode::Deep(deep) => deep.offset(),
        }
    }

    /// Returns the current block. The result is empty before the first block.
    fn data(&mut self) -> &[u8] {
        match self {
            Mode::Plain(plain) => plain.data(),
            Mode::Deep(deep) => deep.data(),
        }
    }

    fn is_hole(&self) -> bool {
        match self {
            Mode::Plain(_) => false,
            Mode::Deep(deep) => deep.is_hole(),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.update_file_position();
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
