//! Wrappers of raw system calls.
//!
//! A wrapper is an unsafe function if the caller must keep memory valid for the kernel.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::ptr;

/// Returns the result of a system call, or the error if the result is negative.
pub fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Reads the time-stamp counter (TSC). Returns 0 on architectures other than x86-64.
#[inline]
pub fn tsc() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: RDTSC reads a register and exists on every x86-64 CPU.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        0
    }
}

fn clock_ns(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the duration of the call.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Sets the I/O priority of the calling thread. Class and level are packed as in ioprio_set(2).
pub fn set_io_priority(packed: u16) -> io::Result<()> {
    const WHO_PROCESS: libc::c_int = 1;
    // SAFETY: the call takes three numbers and changes only the calling thread.
    let result =
        unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, libc::c_int::from(packed)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns the I/O priority of the calling thread, packed as in ioprio_set(2).
#[cfg(test)]
pub fn io_priority() -> io::Result<u16> {
    const WHO_PROCESS: libc::c_int = 1;
    // SAFETY: the call takes two numbers and changes nothing.
    let result = unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as u16) }
}

/// Reads `CLOCK_MONOTONIC` (ns).
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC) as u64
}

/// Reads `CLOCK_REALTIME` (ns since 1970).
pub fn realtime_ns() -> i64 {
    clock_ns(libc::CLOCK_REALTIME)
}

/// Returns the CPU time of the calling thread (ns).
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID) as u64
}

/// Reads `CLOCK_BOOTTIME` (ns), which unlike `CLOCK_MONOTONIC` includes the time in suspend.
pub fn boot_ns() -> u64 {
    clock_ns(libc::CLOCK_BOOTTIME) as u64
}

/// Returns the TSC and `CLOCK_MONOTONIC` (ns) at the same moment. Uses the fastest of 16 attempts.
pub fn tsc_and_monotonic() -> (u64, u64) {
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..16 {
        let before = tsc();
        let ns = monotonic_ns();
        let width = tsc().saturating_sub(before);
        if width < best.0 {
            best = (width, before + width / 2, ns);
        }
    }
    (best.1, best.2)
}

/// Sleeps for `ns` nanoseconds, or until a signal arrives.
pub fn sleep_ns(ns: u64) {
    let time = libc::timespec {
        tv_sec: (ns / 1_000_000_000) as _,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: `time` is valid for the duration of the call; the call does not write the remainder.
    unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &time, ptr::null_mut()) };
}

/// Returns whether the effective user may write to the file `path`. If `folder` is true, `path` is
/// a directory, and the result is whether the user may create files in this directory.
pub fn may_write(path: &CStr, folder: bool) -> bool {
    let mode = if folder { libc::W_OK | libc::X_OK } else { libc::W_OK };
    // SAFETY: `path` is a string that ends with a zero byte.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), mode, libc::AT_EACCESS) == 0 }
}

/// Opens a path below the directory `folder` (openat2(2), O_PATH). Opening has no side effects, not
/// even on a device or a FIFO. The kernel refuses a path that leaves `folder` or contains a
/// symbolic link. Before Linux 5.6, the call fails with ENOSYS.
pub fn open_beneath(folder: &File, path: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: open_how is a plain C struct, for which all zeros are valid.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_PATH | libc::O_CLOEXEC) as u64;
    how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS | libc::RESOLVE_NO_SYMLINKS;
    let bytes = size_of::<libc::open_how>();
    let fd = folder.as_raw_fd();
    // SAFETY: `path` ends with a zero byte, and `how` has `bytes` bytes and outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_openat2, fd, path.as_ptr(), &raw const how, bytes) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel returned a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Unmounts a file system (umount2(2)). A lazy unmount removes the mount from the directory tree at
/// once, and completes when no process uses the mount any more.
pub fn unmount(folder: &CStr, lazily: bool) -> io::Result<()> {
    let flags = if lazily { libc::MNT_DETACH } else { 0 };
    // SAFETY: `folder` is a string that ends with a zero byte.
    match unsafe { libc::umount2(folder.as_ptr(), flags | libc::UMOUNT_NOFOLLOW) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads or writes at an offset, with flags of preadv2(2). Returns the number of bytes transferred,
/// or a negated error number.
///
/// # Safety
/// The memory `base..base + length` must stay valid, and must not be used elsewhere, until the call
/// returns.
pub unsafe fn transfer(
    fd: RawFd,
    write: bool,
    base: *mut u8,
    length: usize,
    offset: u64,
    flags: i32,
) -> i32 {
    let offset = offset as libc::off64_t;
    let part = libc::iovec { iov_base: base.cast(), iov_len: length };
    // SAFETY: the caller guarantees a valid buffer, and the kernel checks the descriptor.
    let moved = unsafe {
        match (write, flags) {
            (true, 0) => libc::pwrite64(fd, base.cast(), length, offset),
            (false, 0) => libc::pread64(fd, base.cast(), length, offset),
            (true, flags) => libc::pwritev2(fd, &raw const part, 1, offset, flags),
            (false, flags) => libc::preadv2(fd, &raw const part, 1, offset, flags),
        }
    };
    if moved < 0 { -errno() } else { moved as i32 }
}

/// Checks whether uncached reads (RWF_DONTCACHE) work, by reading past the end of the file. Fails
/// with EOPNOTSUPP if the kernel or the file system does not support the flag.
pub fn reads_uncached(file: &File) -> io::Result<()> {
    let mut byte = 0_u8;
    let beyond = i64::MAX as u64 / 2;
    // SAFETY: the byte outlives the call.
    let moved =
        unsafe { transfer(file.as_raw_fd(), false, &raw mut byte, 1, beyond, libc::RWF_DONTCACHE) };
    if moved < 0 { Err(io::Error::from_raw_os_error(-moved)) } else { Ok(()) }
}

/// Returns the error number of the calling thread's last failed call.
pub fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Sets the calling thread's errno, for example to restore it at the end of a signal handler.
pub fn set_errno(errno: i32) {
    // SAFETY: the location belongs to this thread.
    unsafe { *libc::__errno_location() = errno };
}

/// Returns the alignments of memory and of offsets for direct I/O (bytes), from statx(2). Both are
/// 0 if the file does not support direct I/O. None if the kernel does not report STATX_DIOALIGN.
pub fn direct_alignment(file: &File) -> Option<(u32, u32)> {
    // SAFETY: statx is a plain C struct, for which all zeros are valid.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    let (flags, mask) = (libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN);
    // SAFETY: the path is an empty C string and `stat` outlives the call.
    let result = unsafe { libc::statx(file.as_raw_fd(), c"".as_ptr(), flags, mask, &mut stat) };
    let told = result == 0 && stat.stx_mask & libc::STATX_DIOALIGN != 0;
    told.then_some((stat.stx_dio_mem_align, stat.stx_dio_offset_align))
}

/// The attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownAttributes {
    /// The file type and the permission bits.
    pub mode: u32,
    /// The device number of the file system.
    pub device: u64,
    pub inode: u64,
    /// The number of the device that a device file refers to.
    pub rdev: u64,
}

/// Reads the attributes of a file (statx(2), AT_STATX_DONT_SYNC). Sends no request to the server of
/// a network file system, because that could hang. If statx is not available (before Linux 4.11, or
/// in some containers), the server may get a request.
pub fn known_attributes(path: &Path) -> Option<KnownAttributes> {
    let name = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: statx is a plain C struct, for which all zeros are valid.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    let (flags, mask) = (libc::AT_STATX_DONT_SYNC, libc::STATX_BASIC_STATS);
    // SAFETY: the path is a C string, and the path and `stat` outlive the call.
    let result = unsafe { libc::statx(libc::AT_FDCWD, name.as_ptr(), flags, mask, &mut stat) };
    if result == 0 {
        return Some(KnownAttributes {
            mode: stat.stx_mode.into(),
            device: libc::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            rdev: libc::makedev(stat.stx_rdev_major, stat.stx_rdev_minor),
        });
    }
    // If statx is missing, glibc emulates the call, but rejects AT_STATX_DONT_SYNC (EINVAL).
    let why = io::Error::last_os_error().raw_os_error();
    let lacks_call = matches!(why, Some(libc::ENOSYS | libc::EPERM | libc::EINVAL));
    let known = std::fs::metadata(path).ok().filter(|_| lacks_call)?;
    let (mode, device) = (known.mode(), known.dev());
    Some(KnownAttributes { mode, device, inode: known.ino(), rdev: known.rdev() })
}

/// Returns the size of a block device (bytes).
pub fn block_device_bytes(file: &File) -> io::Result<u64> {
    const BLKGETSIZE64: libc::Ioctl = 0x8008_1272_u32 as libc::Ioctl;
    let mut bytes = 0_u64;
    // SAFETY: BLKGETSIZE64 writes one u64 through the pointer.
    check(unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64, &mut bytes) })?;
    Ok(bytes)
}

/// Returns `lo_device`, `lo_inode` and `lo_rdevice` of a loop device: the device number and inode
/// of its backing file, and the number of the backing device (0 for a regular file).
pub fn loop_backing(file: &File) -> io::Result<(u64, u64, u64)> {
    const LOOP_GET_STATUS64: libc::Ioctl = 0x4c05;
    // struct loop_info64 of linux/loop.h: 232 bytes, starting with these three fields.
    let mut info = [0_u64; 29];
    // SAFETY: LOOP_GET_STATUS64 writes one loop_info64 through the pointer. Devices other than loop
    // devices reject the ioctl and write nothing.
    check(unsafe { libc::ioctl(file.as_raw_fd(), LOOP_GET_STATUS64, info.as_mut_ptr()) })?;
    Ok((info[0], info[1], info[2]))
}

/// Returns the number of a free loop device (loop(4), LOOP_CTL_GET_FREE).
pub fn free_loop(control: &File) -> io::Result<u32> {
    const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4c82;
    // SAFETY: LOOP_CTL_GET_FREE takes no argument and returns a number.
    let number = check(unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) })?;
    Ok(number as u32)
}

/// Attaches a file read-only to a free loop device (LOOP_CONFIGURE), with direct I/O if possible.
/// The file is detached when the device is closed for the last time.
pub fn configure_loop(device: &File, backing: &File) -> io::Result<()> {
    const LOOP_CONFIGURE: libc::Ioctl = 0x4c0a;
    const READ_ONLY: u64 = 1;
    const AUTOCLEAR: u64 = 4;
    const DIRECT_IO: u64 = 16;
    // struct loop_config of linux/loop.h (304 bytes): the descriptor, the block size, and a
    // loop_info64. The flags are the upper half of word 7.
    let mut config = [0_u64; 38];
    config[0] = u64::from(backing.as_raw_fd() as u32);
    config[7] = (READ_ONLY | AUTOCLEAR | DIRECT_IO) << 32;
    // SAFETY: LOOP_CONFIGURE reads one loop_config through the pointer, and does not keep the
    // pointer.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, config.as_ptr()) })?;
    Ok(())
}

/// Creates a detached bind mount of a directory (open_tree(2)). The mount is accessible only
/// through the descriptor, and is removed when the descriptor is closed.
pub fn clone_tree(folder: &CStr) -> io::Result<OwnedFd> {
    const OPEN_TREE_CLONE: libc::c_uint = 1;
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC as libc::c_uint;
    // SAFETY: `folder` is a string that ends with a zero byte.
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, folder.as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel returned a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Returns the size of a file or block device (bytes).
pub fn size_bytes(file: &File) -> io::Result<u64> {
    let metadata = file.metadata()?;
    if metadata.file_type().is_block_device() {
        block_device_bytes(file)
    } else {
        Ok(metadata.len())
    }
}

/// Returns whether a file was opened for writing.
pub fn is_writable(file: &File) -> bool {
    // SAFETY: F_GETFL takes no pointer.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    flags >= 0 && matches!(flags & libc::O_ACCMODE, libc::O_WRONLY | libc::O_RDWR)
}

/// Calls fallocate(2).
pub fn fallocate(file: &File, mode: libc::c_int, offset: u64, length: u64) -> io::Result<()> {
    let (offset, length) = (offset as libc::off64_t, length as libc::off64_t);
    // SAFETY: no memory is passed.
    check(unsafe { libc::fallocate64(file.as_raw_fd(), mode, offset, length) }).map(drop)
}

/// Punches a hole into a file without changing its size (fallocate(2), FALLOC_FL_PUNCH_HOLE).
pub fn punch(file: &File, offset: u64, length: u64) -> io::Result<()> {
    fallocate(file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, offset, length)
}

/// Calls posix_fadvise(2) for `length` bytes at `offset`. A length of 0 means up to the end.
pub fn fadvise(file: &File, advice: libc::c_int, offset: u64, length: u64) -> io::Result<()> {
    let [offset, length] = [offset, length].map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
    // SAFETY: no memory is passed.
    match unsafe { libc::posix_fadvise64(file.as_raw_fd(), offset, length, advice) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Returns how much of a file is in the page cache (bytes). Uses cachestat(2), or mincore(2) on
/// kernels before 6.5. If the user neither owns the file nor may write to it, cachestat(2) fails,
/// but mincore(2) reports the whole file as resident.
pub fn resident_bytes(file: &File, file_bytes: u64) -> io::Result<u64> {
    // A length of 0 means up to the end of the file.
    match resident_bytes_of_part(file, 0, 0) {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
            resident_bytes_by_mincore(file, file_bytes)
        }
        told => told,
    }
}

/// Returns how much of a range of a file is in the page cache (bytes; cachestat(2)).
pub fn resident_bytes_of_part(file: &File, offset: u64, length: u64) -> io::Result<u64> {
    const SYS_CACHESTAT: libc::c_long = 451;
    let range = [offset, length];
    let mut counts = [0_u64; 5];
    let fd = libc::c_long::from(file.as_raw_fd());
    // SAFETY: cachestat(fd, range, stat, flags) reads two and writes five u64.
    let result =
        unsafe { libc::syscall(SYS_CACHESTAT, fd, range.as_ptr(), counts.as_mut_ptr(), 0_i64) };
    match (result, errno()) {
        (0, _) => Ok(counts[0] * page_bytes()),
        (_, error) => Err(io::Error::from_raw_os_error(error)),
    }
}

fn resident_bytes_by_mincore(file: &File, file_bytes: u64) -> io::Result<u64> {
    if file_bytes == 0 {
        return Ok(0);
    }
    let length = file_bytes as usize;
    let mut resident = vec![0_u8; length.div_ceil(page_bytes() as usize)];
    // SAFETY: the mapping is only queried, never read; it is unmapped before returning, and
    // `resident` has one byte per page as mincore(2) requires.
    let result = unsafe {
        let fd = file.as_raw_fd();
        let base = libc::mmap(ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, fd, 0);
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let result = libc::mincore(base, length, resident.as_mut_ptr());
        libc::munmap(base, length);
        result
    };
    check(result)?;
    Ok(resident.iter().filter(|page| **page & 1 == 1).count() as u64 * page_bytes())
}

/// Returns the size of a memory page (bytes).
pub fn page_bytes() -> u64 {
    // SAFETY: sysconf takes no pointer.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}

/// Returns the file-size limit of this process (bytes), or u64::MAX if there is none.
pub fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit64 { rlim_cur: u64::MAX, rlim_max: u64::MAX };
    // SAFETY: `limit` outlives the call.
    unsafe { libc::getrlimit64(libc::RLIMIT_FSIZE, &mut limit) };
    limit.rlim_cur
}

/// Returns the address-space limit of this process (bytes), or u64::MAX if there is none.
pub fn address_space_limit() -> u64 {
    let mut limit = libc::rlimit64 { rlim_cur: u64::MAX, rlim_max: u64::MAX };
    // SAFETY: `limit` outlives the call; on failure it keeps its initial value.
    unsafe { libc::getrlimit64(libc::RLIMIT_AS, &mut limit) };
    limit.rlim_cur
}

/// Returns the statistics of the file system that contains `file`.
fn file_system(file: &File) -> io::Result<libc::statvfs64> {
    // SAFETY: statvfs64 is a plain C struct, for which all zeros are valid.
    let mut stat: libc::statvfs64 = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` outlives the call.
    check(unsafe { libc::fstatvfs64(file.as_raw_fd(), &mut stat) })?;
    Ok(stat)
}

/// Returns the free space for unprivileged users on the file system of `file` (bytes).
pub fn free_bytes(file: &File) -> io::Result<u64> {
    file_system(file).map(|stat| stat.f_bavail * stat.f_frsize)
}

/// Returns the block size in which the file system of `file` counts space (bytes).
pub fn block_bytes(file: &File) -> io::Result<u64> {
    file_system(file).map(|stat| stat.f_frsize)
}

/// An extent of a file, as FIEMAP reports it.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// The position in the file (bytes).
    pub logical: u64,
    /// The position on the device of the file system (bytes).
    pub physical: u64,
    /// The length of the extent (bytes).
    pub length: u64,
    /// `FIEMAP_EXTENT_*` flags.
    pub flags: u32,
}

/// Returns the extents of a file from offset `start` on, but at most 256
/// (Documentation/filesystems/fiemap.rst).
pub fn extents(file: &File, start: u64) -> io::Result<Vec<Extent>> {
    const FS_IOC_FIEMAP: libc::Ioctl = 0xC020_660B_u32 as libc::Ioctl;
    const MANY: usize = 256;
    const HEAD: usize = 4; // struct fiemap is 32 bytes = 4 words
    const EACH: usize = 7; // struct fiemap_extent is 56 bytes = 7 words
    let mut words = vec![0_u64; HEAD + EACH * MANY];
    words[0] = start;
    words[1] = u64::MAX - start;
    words[2] = 1; // FIEMAP_FLAG_SYNC: allocate blocks for dirty pages first
    words[3] = MANY as u64; // fm_extent_count in the low half, fm_reserved in the high
    // SAFETY: `words` has room for the header and `MANY` extents.
    check(unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, words.as_mut_ptr()) })?;
    let mapped = (words[2] >> 32) as usize;
    let extent = |i: usize| {
        let at = &words[HEAD + EACH * i..];
        Extent { logical: at[0], physical: at[1], length: at[2], flags: at[5] as u32 }
    };
    Ok((0..mapped.min(MANY)).map(extent).collect())
}

/// Linux native AIO: io_setup(2) and the related system calls, which libc does not wrap.
pub mod aio {
    use super::{check, errno};
    use std::io;
    use std::ptr;

    /// struct iocb of linux/aio_abi.h, with the field order of little-endian machines.
    #[repr(C)]
    #[derive(Clone, Copy, Debug, Default)]
    pub struct Iocb {
        /// A value that the kernel copies to `Event::data`.
        pub data: u64,
        pub key: u32,
        /// Flags of preadv2(2).
        pub rw_flags: u32,
        /// The operation: 0 for pread, 1 for pwrite.
        pub opcode: u16,
        pub priority: i16,
        pub fd: u32,
        /// The address of the buffer.
        pub buffer: u64,
        /// The length of the request (bytes).
        pub length: u64,
        /// The offset in the file (bytes).
        pub offset: i64,
        pub reserved: u64,
        /// IOCB_FLAG_RESFD if the kernel signals completions through `event_fd`, otherwise 0.
        pub flags: u32,
        pub event_fd: u32,
    }

    /// struct io_event of linux/aio_abi.h.
    #[repr(C)]
    #[derive(Clone, Copy, Debug, Default)]
    pub struct Event {
        /// The field `data` of the iocb.
        pub data: u64,
        /// The address of the iocb.
        pub iocb: u64,
        /// The number of bytes transferred, or a negated error number.
        pub result: i64,
        pub result2: i64,
    }

    /// An AIO context. Dropping it calls io_destroy(2), which waits for the requests in flight.
    #[derive(Debug)]
    pub struct Context(u64);

    impl Context {
        /// Creates a context for up to `depth` requests in flight.
        pub fn new(depth: u32) -> io::Result<Context> {
            let mut context = 0_u64;
            let depth = i64::from(depth);
            // SAFETY: io_setup writes one word through the pointer, which starts as 0.
            check(unsafe { libc::syscall(libc::SYS_io_setup, depth, &mut context) } as i32)?;
            Ok(Context(context))
        }

        /// Submits requests. Returns how many the kernel accepted, or a negated error number.
        ///
        /// # Safety
        /// Each pointer must point to a live iocb. Its buffer must stay valid, and must not be used
        /// elsewhere, until the event of the request has been reaped.
        pub unsafe fn submit(&self, iocbs: &[*mut Iocb]) -> i32 {
            let count = iocbs.len() as i64;
            // SAFETY: the caller guarantees live iocbs and valid buffers. The kernel reads the
            // array only during the call.
            let taken =
                unsafe { libc::syscall(libc::SYS_io_submit, self.0, count, iocbs.as_ptr()) };
            if taken < 0 { -errno() } else { taken as i32 }
        }

        /// Waits for at least `at_least` events, or until the timeout. Returns how many were
        /// written to `events`, or a negated error number.
        pub fn events(&self, at_least: u32, events: &mut [Event], timeout_ns: Option<u64>) -> i32 {
            let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            let timeout = match timeout_ns {
                Some(ns) => {
                    time.tv_sec = (ns / 1_000_000_000) as _;
                    time.tv_nsec = (ns % 1_000_000_000) as libc::c_long;
                    &raw mut time
                }
                None => ptr::null_mut(),
            };
            let (low, high) = (i64::from(at_least), events.len() as i64);
            // SAFETY: the kernel writes at most `high` events into the slice.
            let got = unsafe {
                let events = events.as_mut_ptr();
                libc::syscall(libc::SYS_io_getevents, self.0, low, high, events, timeout)
            };
            if got < 0 { -errno() } else { got as i32 }
        }
    }

    impl Drop for Context {
        fn drop(&mut self) {
            // SAFETY: nobody else owns the context, and it is destroyed only here.
            unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
        }
    }
}

/// Calls io_uring_enter(2), and registers the descriptor of a ring. The crate `io-uring` does not
/// suffice: it keeps a registration only in its `Submitter`, which is created anew for each call.
pub mod ring {
    use std::io;
    use std::os::fd::RawFd;
    use std::ptr;

    /// Flag of io_uring_enter(2): the call also waits for completions.
    pub const ENTER_GETEVENTS: u32 = 1 << 0;
    /// Flag of io_uring_enter(2): the call wakes the SQPOLL thread.
    pub const ENTER_SQ_WAKEUP: u32 = 1 << 1;
    /// Flag of io_uring_enter(2): the argument is a `GeteventsArg`.
    const ENTER_EXT_ARG: u32 = 1 << 3;
    /// Flag of io_uring_enter(2): the descriptor is the index of a registered ring.
    const ENTER_REGISTERED_RING: u32 = 1 << 4;
    const REGISTER_RING_FDS: libc::c_uint = 20;
    const UNREGISTER_RING_FDS: libc::c_uint = 21;

    /// struct io_uring_getevents_arg of linux/io_uring.h.
    #[repr(C)]
    struct GeteventsArg {
        sigmask: u64,
        sigmask_size: u32,
        min_wait_us: u32,
        timeout: *const libc::timespec,
    }

    /// The descriptor of a ring, or the ring's index in this thread's list of registered rings.
    #[derive(Clone, Copy, Debug)]
    pub struct Handle {
        number: i32,
        registered: bool,
    }

    impl Handle {
        /// Registers the ring for the calling thread, if the kernel supports this (since 5.18).
        pub fn new(fd: RawFd) -> Handle {
            let mut update = [u64::from(u32::MAX), fd as u64]; // offset and resv, data
            // SAFETY: the kernel reads one io_uring_rsrc_update and writes its offset back.
            let registered = unsafe {
                let update = update.as_mut_ptr();
                libc::syscall(libc::SYS_io_uring_register, fd, REGISTER_RING_FDS, update, 1)
            };
            match registered {
                1 => Handle { number: update[0] as u32 as i32, registered: true },
                _ => Handle { number: fd, registered: false },
            }
        }

        /// Returns a handle to a ring that is not registered. Every thread can use this handle.
        pub fn of_any_thread(fd: RawFd) -> Handle {
            Handle { number: fd, registered: false }
        }

        /// Returns whether the registration succeeded.
        pub fn is_registered(self) -> bool {
            self.registered
        }

        /// Undoes the registration. `fd` is the descriptor of the ring.
        pub fn unregister(self, fd: RawFd) {
            if self.registered {
                let update = [self.number as u64, 0];
                // SAFETY: the kernel reads one io_uring_rsrc_update.
                unsafe {
                    let update = update.as_ptr();
                    libc::syscall(libc::SYS_io_uring_register, fd, UNREGISTER_RING_FDS, update, 1);
                }
            }
        }

        /// Submits `to_submit` entries. With `ENTER_GETEVENTS` in `flags`, also waits for `wanted`
        /// completions or the timeout.
        #[inline]
        pub fn enter(
            self,
            to_submit: u32,
            wanted: u32,
            flags: u32,
            timeout_ns: Option<u64>,
        ) -> io::Result<u32> {
            let flags = if self.registered { flags | ENTER_REGISTERED_RING } else { flags };
            let Some(ns) = timeout_ns else {
                return self.call(to_submit, wanted, flags, ptr::null(), 0);
            };
            let timeout = libc::timespec {
                tv_sec: (ns / 1_000_000_000) as _,
                tv_nsec: (ns % 1_000_000_000) as libc::c_long,
            };
            let arg = GeteventsArg {
                sigmask: 0,
                sigmask_size: 8,
                min_wait_us: 0,
                timeout: &raw const timeout,
            };
            let size = size_of::<GeteventsArg>();
            self.call(to_submit, wanted, flags | ENTER_EXT_ARG, &raw const arg, size)
        }

        #[inline]
        fn call(
            self,
            to_submit: u32,
            wanted: u32,
            flags: u32,
            arg: *const GeteventsArg,
            size: usize,
        ) -> io::Result<u32> {
            let number = i64::from(self.number);
            let (to_submit, wanted) = (u64::from(to_submit), u64::from(wanted));
            let flags = u64::from(flags);
            // SAFETY: `arg` is null or points to a live argument of `size` bytes; the caller
            // promised valid buffers when it pushed the entries.
            let taken = unsafe {
                let call = libc::SYS_io_uring_enter;
                libc::syscall(call, number, to_submit, wanted, flags, arg, size)
            };
            if taken < 0 { Err(io::Error::last_os_error()) } else { Ok(taken as u32) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn cachestat_and_mincore_report_a_written_file_as_resident() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 64 * 1024]).unwrap();
        assert_eq!(resident_bytes(&file, 64 * 1024).unwrap(), 64 * 1024);
        assert_eq!(resident_bytes_by_mincore(&file, 64 * 1024).unwrap(), 64 * 1024);
    }

    #[test]
    fn the_iocb_has_the_size_that_the_kernel_demands() {
        assert_eq!(size_of::<aio::Iocb>(), 64);
        assert_eq!(size_of::<aio::Event>(), 32);
    }
}
