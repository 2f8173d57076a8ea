//! A file that is open for reading or writing, with what was found of it, and the second way to it
//! past the page cache.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ioengine::open_file;
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::flight::{Build, Flight, GRANULE_MOST, Road};
use crate::options::{Cache, Found, Options, Plan};
use crate::storage::{Kind, Storage};

/// Requests in flight over files that are open, as was planned: one slot more than are outstanding
/// at the most, for the program. The plan becomes what is true.
pub(crate) fn flight(members: &[Opened], options: &Options, plan: &mut Plan) -> io::Result<Flight> {
    let roads: Vec<Road> = members.iter().map(|member| member.road(plan.direct)).collect();
    let build = Build {
        personality: options.personality,
        slots: plan.depth_most + 1,
        slot_bytes: plan.request_bytes,
        faults: options.faults.clone(),
    };
    let flight = Flight::new(&roads, &build)?;
    plan.personality = flight.personality();
    plan.direct &= flight.is_direct(0);
    Ok(flight)
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub file: Arc<File>,
    /// For messages.
    pub path: PathBuf,
    /// Requests may name a place in it: a regular file or a block device.
    pub has_places: bool,
    pub regular: bool,
    pub storage: Arc<Storage>,
    writable: bool,
}

impl Opened {
    /// A file that is open.
    pub fn new(file: File, path: &Path, writable: bool) -> io::Result<Opened> {
        let metadata = file.metadata()?;
        Ok(Opened::looked_at(file, path, writable, &metadata))
    }

    /// The same, where it has been looked at.
    pub fn looked_at(file: File, path: &Path, writable: bool, metadata: &Metadata) -> Opened {
        let kind = metadata.file_type();
        let storage = Storage::beneath(&file, metadata);
        Opened {
            file: Arc::new(file),
            path: path.to_path_buf(),
            has_places: kind.is_file() || kind.is_block_device(),
            regular: kind.is_file(),
            storage,
            writable,
        }
    }

    /// How large it is now (bytes).
    pub fn size(&self) -> io::Result<u64> {
        open_file::size_bytes(&self.file)
    }

    /// What decides how it is read or written; `size` as far as it is known.
    pub fn found(&self, size: Option<u64>, options: &Options) -> Found {
        let large = size.is_some_and(|size| size >= Options::SMALL_BYTES);
        let told = open_file::direct_alignment(&self.file);
        let refused = told.is_some_and(|a| u64::from(a.offset_bytes) > GRANULE_MOST);
        let direct = self.has_places && !refused && self.storage.kind != Kind::Memory;
        let asks = !self.writable && options.cache == Cache::Auto && large && direct;
        let resident = if asks { size.and_then(|size| self.resident(size)) } else { None };
        Found { direct, size, resident, storage: Arc::clone(&self.storage) }
    }

    /// How much of it is in the page cache; all or nothing, by a few samples, where the system
    /// does not tell (bytes).
    pub fn resident(&self, size: u64) -> Option<u64> {
        open_file::about_resident_bytes(&self.file, size).ok().or_else(|| {
            let places = [0, size / 3, size / 3 * 2, size.saturating_sub(1)];
            let here = |place: u64| {
                let mut byte = [0_u8];
                let into = &mut [IoSliceMut::new(&mut byte)];
                preadv2(&self.file, into, place, ReadWriteFlags::NOWAIT).is_ok()
            };
            Some(if places.into_iter().all(here) { size } else { 0 })
        })
    }

    /// Whether nothing of it is in the page cache, as far as the system tells.
    pub fn is_cold(&self) -> bool {
        open_file::resident_bytes(&self.file).is_ok_and(|bytes| bytes == 0)
    }

    /// Both ways to it; the direct one where that is wanted and can be had.
    pub fn road(&self, direct: bool) -> Road {
        let direct = if direct { self.open_direct().ok() } else { None };
        Road { direct, buffered: Arc::clone(&self.file) }
    }

    /// The same file, opened once more with O_DIRECT, and the alignment of requests to it (bytes).
    fn open_direct(&self) -> io::Result<(Arc<File>, u32)> {
        let itself = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let flags = OFlags::DIRECT.bits() as i32;
        let file = OpenOptions::new()
            .read(!self.writable)
            .write(self.writable)
            .custom_flags(flags)
            .open(itself)?;
        let told = open_file::direct_alignment(&file);
        // Where nobody tells, what suits everyone.
        let granule = told.map_or(GRANULE_MOST as u32, |told| told.offset_bytes.max(512));
        Ok((Arc::new(file), granule))
    }

    /// The same file with a position of its own; None where /proc is not there.
    pub fn apart(&self) -> Option<Arc<File>> {
        let itself = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let opened = OpenOptions::new().read(!self.writable).write(self.writable).open(itself);
        opened.ok().map(Arc::new)
    }

    /// Reserves blocks for a part of it; false where the file system cannot.
    ///
    /// # Errors
    /// Where there is no room for them.
    pub fn reserve(&self, from: u64, length: u64) -> io::Result<bool> {
        if length == 0 || !self.regular {
            return Ok(false);
        }
        match fallocate(&*self.file, FallocateFlags::empty(), from, length) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
