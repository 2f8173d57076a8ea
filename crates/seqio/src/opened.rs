//! An open file. Finds its size, its storage and the amount of its data in the page cache, and
//! opens a second descriptor with O_DIRECT.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::sync::{Arc, OnceLock};

use ioengine::open_file;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom, fallocate, fcntl_getfl, seek};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::requests::{ALIGNMENT_MAX, FilePaths};
use crate::storage::{Kind, Storage};

#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub file: Arc<File>,
    /// Whether requests can have an offset. This is true for regular files and block devices.
    pub has_offsets: bool,
    pub is_regular: bool,
    /// Whether writes go to the end of the file, regardless of their offset (O_APPEND).
    pub appends: bool,
    /// Size of a regular file when it was opened (bytes).
    size_then: u64,
    writable: bool,
    storage: OnceLock<Arc<Storage>>,
}

impl Opened {
    /// Wraps a file that this crate opened.
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

    /// Wraps a file that the caller opened, and returns its position (bytes).
    pub fn given(file: File, writable: bool) -> io::Result<(Opened, u64)> {
        let appends = writable && fcntl_getfl(&file)?.contains(OFlags::APPEND);
        let opened = Opened { appends, ..Opened::new(file, writable)? };
        let position =
            if opened.has_offsets { seek(&*opened.file, SeekFrom::Current(0))? } else { 0 };
        Ok((opened, position))
    }

    /// Sets the position of the file descriptor, as if the file had been read or written up to this
    /// position.
    pub fn set_position(&self, position: u64) {
        if self.has_offsets && !self.appends {
            // Seeking fails only for descriptors without a position, so the error can be ignored.
            let _ = seek(&*self.file, SeekFrom::Start(position));
        }
    }

    /// Returns the file, or a duplicate of the descriptor if requests still use the file.
    pub fn into_file(self) -> io::Result<File> {
        Arc::try_unwrap(self.file).or_else(|shared| shared.try_clone())
    }

    /// Returns the size of the file when it was opened (bytes).
    pub fn size_at_opening(&self) -> io::Result<u64> {
        if self.is_regular { Ok(self.size_then) } else { self.size() }
    }

    /// Returns the current size of the file (bytes).
    pub fn size(&self) -> io::Result<u64> {
        open_file::size_bytes(&self.file)
    }

    /// Returns the storage that holds the file. The first call looks it up.
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

    /// Returns whether the file system may support direct I/O. Opening with O_DIRECT can still
    /// fail.
    pub fn may_be_direct(&self) -> bool {
        let told = open_file::direct_alignment(&self.file);
        let refused = told.is_some_and(|told| u64::from(told.offset_bytes) > ALIGNMENT_MAX);
        self.has_offsets && !refused && !self.appends && self.storage().kind != Kind::Memory
    }

    /// Returns whether at least half of the first `size` bytes are in the page cache.
    pub fn is_mostly_cached(&self, size: u64) -> bool {
        self.resident(size).is_some_and(|resident| resident * 2 >= size)
    }

    /// Returns the number of bytes in the page cache. If the kernel has no cachestat(2), checks
    /// only four bytes of the file, and returns `size` if all four are in the page cache, and 0
    /// otherwise.
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

    /// Returns whether no page of the file is in the page cache.
    pub fn is_cold(&self, size: u64) -> bool {
        // The first check is quick. Only if it finds nothing in the page cache, the file is checked
        // page by page, which takes longer.
        self.resident(size) == Some(0)
            && open_file::resident_bytes(&self.file).is_ok_and(|bytes| bytes == 0)
    }

    /// Returns the buffered descriptor, and a direct descriptor if `direct` is true and O_DIRECT is
    /// supported.
    pub fn paths(&self, direct: bool) -> FilePaths {
        let direct = if direct { self.open_direct().ok() } else { None };
        FilePaths { direct, buffered: Arc::clone(&self.file) }
    }

    /// Opens the file again with O_DIRECT. Returns the descriptor and the alignment that its
    /// requests need (bytes).
    fn open_direct(&self) -> io::Result<(Arc<File>, u32)> {
        let file = self.open_again(OFlags::DIRECT)?;
        let told = open_file::direct_alignment(&file);
        // If the alignment is unknown, use an alignment that suits every device.
        let alignment = told.map_or(ALIGNMENT_MAX as u32, |told| told.offset_bytes.max(512));
        Ok((Arc::new(file), alignment))
    }

    /// Opens a second descriptor of the file, with a separate position. Returns None if /proc is
    /// not mounted.
    pub fn with_own_position(&self) -> Option<Arc<File>> {
        self.open_again(OFlags::empty()).ok().map(Arc::new)
    }

    fn open_again(&self, flags: OFlags) -> io::Result<File> {
        let itself = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let mut options = OpenOptions::new();
        options.read(!self.writable).write(self.writable).custom_flags(flags.bits() as i32);
        options.open(itself)
    }

    /// Reserves blocks for a range of the file. If `visibly` is true, the file size grows to cover
    /// the range. Returns false if the file system cannot reserve blocks.
    ///
    /// # Errors
    ///
    /// If there is no space.
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
