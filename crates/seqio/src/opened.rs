//! A file that is open for reading or writing, what is known of it, and the second descriptor of it
//! that goes past the page cache.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::sync::{Arc, OnceLock};

use ioengine::open_file;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom, fallocate, fcntl_getfl, seek};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::requests::{ALIGNMENT_MOST, FilePaths};
use crate::storage::{Kind, Storage};

/// An open file.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub file: Arc<File>,
    /// Requests may name an offset: a regular file or a block device.
    pub has_offsets: bool,
    pub is_regular: bool,
    /// Every write goes to the end of the file, whatever offset it names (O_APPEND).
    pub appends: bool,
    /// The size of a regular file when it was opened (bytes).
    size_then: u64,
    writable: bool,
    storage: OnceLock<Arc<Storage>>,
}

impl Opened {
    /// A file that was opened here, for reading or for writing.
    pub fn new(file: File, writable: bool) -> io::Result<Opened> {
        let metadata = file.metadata()?;
        Ok(Opened::with_metadata(file, writable, &metadata))
    }

    fn with_metadata(file: File, writable: bool, metadata: &Metadata) -> Opened {
        let kind = metadata.file_type();
        Opened {
            file: Arc::new(file),
            has_offsets: kind.is_file() || kind.is_block_device(),
            is_regular: kind.is_file(),
            appends: false,
            size_then: metadata.len(),
            writable,
            storage: OnceLock::new(),
        }
    }

    /// A file that somebody else opened, with its position in the file (bytes).
    pub fn given(file: File, writable: bool) -> io::Result<(Opened, u64)> {
        let appends = writable && fcntl_getfl(&file)?.contains(OFlags::APPEND);
        let opened = Opened { appends, ..Opened::new(file, writable)? };
        let position =
            if opened.has_offsets { seek(&*opened.file, SeekFrom::Current(0))? } else { 0 };
        Ok((opened, position))
    }

    /// Moves the position of the open file, as reading and writing it there would have done.
    pub fn set_position(&self, position: u64) {
        if self.has_offsets && !self.appends {
            // Only a descriptor without a position declines, and nobody misses it there.
            let _ = seek(&*self.file, SeekFrom::Start(position));
        }
    }

    /// The open file alone, or another descriptor of it where requests still share it.
    pub fn into_file(self) -> io::Result<File> {
        Arc::try_unwrap(self.file).or_else(|shared| shared.try_clone())
    }

    /// How large it was when it was opened (bytes).
    pub fn size_at_opening(&self) -> io::Result<u64> {
        if self.is_regular { Ok(self.size_then) } else { self.size() }
    }

    /// How large it is now (bytes).
    pub fn size(&self) -> io::Result<u64> {
        open_file::size_bytes(&self.file)
    }

    /// What lies beneath it, looked up when first asked.
    pub fn storage(&self) -> &Arc<Storage> {
        self.storage.get_or_init(|| {
            let unknown = || Storage {
                kind: Kind::Other,
                identity: String::new(),
                file_system: String::new(),
            };
            Storage::of(&self.file).unwrap_or_else(|_| Arc::new(unknown()))
        })
    }

    /// Whether its file system may have direct I/O: it can still decline it.
    pub fn may_be_direct(&self) -> bool {
        let told = open_file::direct_alignment(&self.file);
        let refused = told.is_some_and(|told| u64::from(told.offset_bytes) > ALIGNMENT_MOST);
        self.has_offsets && !refused && !self.appends && self.storage().kind != Kind::Memory
    }

    /// Whether at least half of so many bytes are in the page cache.
    pub fn is_mostly_cached(&self, size: u64) -> bool {
        self.resident(size).is_some_and(|resident| resident * 2 >= size)
    }

    /// How much of it is in the page cache; all or nothing, by a few samples, where the system
    /// does not tell (bytes).
    fn resident(&self, size: u64) -> Option<u64> {
        open_file::about_resident_bytes(&self.file, size).ok().or_else(|| {
            let offsets = [0, size / 3, size / 3 * 2, size.saturating_sub(1)];
            let is_here = |offset: u64| {
                let mut byte = [0_u8];
                let into = &mut [IoSliceMut::new(&mut byte)];
                preadv2(&self.file, into, offset, ReadWriteFlags::NOWAIT).is_ok()
            };
            Some(if offsets.into_iter().all(is_here) { size } else { 0 })
        })
    }

    /// Whether nothing of it is in the page cache, as far as the system tells.
    pub fn is_cold(&self, size: u64) -> bool {
        // A look at a few places is enough for a hot file; counting pages takes its time.
        self.resident(size) == Some(0)
            && open_file::resident_bytes(&self.file).is_ok_and(|bytes| bytes == 0)
    }

    /// Both descriptors of it; the direct one where it is wanted and possible.
    pub fn paths(&self, direct: bool) -> FilePaths {
        let direct = if direct { self.open_direct().ok() } else { None };
        FilePaths { direct, buffered: Arc::clone(&self.file) }
    }

    /// The same file opened once more with O_DIRECT, and the alignment of requests to it (bytes).
    fn open_direct(&self) -> io::Result<(Arc<File>, u32)> {
        let file = self.open_again(OFlags::DIRECT)?;
        let told = open_file::direct_alignment(&file);
        // Where nobody tells, what suits every device.
        let alignment = told.map_or(ALIGNMENT_MOST as u32, |told| told.offset_bytes.max(512));
        Ok((Arc::new(file), alignment))
    }

    /// The same file with a position of its own; None where /proc is not mounted.
    pub fn apart(&self) -> Option<Arc<File>> {
        self.open_again(OFlags::empty()).ok().map(Arc::new)
    }

    fn open_again(&self, flags: OFlags) -> io::Result<File> {
        let itself = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let mut options = OpenOptions::new();
        options.read(!self.writable).write(self.writable).custom_flags(flags.bits() as i32);
        options.open(itself)
    }

    /// Reserves blocks for a part of it; visibly, so that its size covers them, or beyond its end.
    /// False where the file system cannot.
    ///
    /// # Errors
    /// Where there is no room for them.
    pub fn reserve(&self, from: u64, length: u64, visibly: bool) -> io::Result<bool> {
        if length == 0 || !self.is_regular {
            return Ok(false);
        }
        let flags = if visibly { FallocateFlags::empty() } else { FallocateFlags::KEEP_SIZE };
        match fallocate(&*self.file, flags, from, length) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
