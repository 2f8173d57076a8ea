//! A shared mapping of a file. Failed page faults in the mapping cause errors, not crashes.
//!
//! If the file was truncated after mapping, or its device fails, the kernel sends SIGBUS to the
//! thread that accesses the page. A signal handler, installed with the first mapping, checks
//! whether the address is in the range that this thread is copying. If so, the handler maps
//! anonymous memory over the rest of the range and marks the copy as failed. The copy then finishes
//! and returns an error. All other SIGBUS signals are passed to the previous handler. The anonymous
//! memory stays in the mapping until [`MappedFile::repair`] is called.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence};

use crate::sys;

/// The error if a page of the mapping is inaccessible, because the file was truncated or its device
/// failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault;

/// A mapping of the first bytes of a file. Dropping the value removes the mapping.
#[derive(Debug)]
pub struct MappedFile {
    base: *mut u8,
    length: usize,
    writable: bool,
}

// SAFETY: this value owns the mapping, and nothing in it is tied to a thread.
unsafe impl Send for MappedFile {}
// SAFETY: shared references only read or write the memory. Concurrent writes are harmless, because
// another process can also change the file at any time. The guard of a copy is thread-local.
unsafe impl Sync for MappedFile {}

/// The range that this thread is copying. With it, the signal handler recognises faults of the
/// copy.
#[derive(Clone, Copy)]
struct Guard {
    base: usize,
    length: usize,
    page_bytes: usize,
    faulted: bool,
}

const IDLE: Guard = Guard { base: 0, length: 0, page_bytes: 1, faulted: false };

thread_local! {
    // The initial value is a constant and there is no destructor, so a signal handler can safely
    // access the variable.
    static GUARD: Cell<Guard> = const { Cell::new(IDLE) };
}

/// The SIGBUS handler that was installed before the handler of this module.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

impl MappedFile {
    /// Maps the first `length` bytes of a file. The data is not read yet.
    pub fn new(file: &File, length: u64, writable: bool) -> io::Result<MappedFile> {
        PREVIOUS.get_or_init(install_handler);
        let too_large = |_| io::Error::from_raw_os_error(libc::ENOMEM);
        let length = usize::try_from(length).map_err(too_large)?;
        let mut mapped = MappedFile { base: ptr::null_mut(), length, writable };
        if length > 0 {
            mapped.base = mapped.map(file, ptr::null_mut(), 0)?;
        }
        Ok(mapped)
    }

    fn map(&self, file: &File, at: *mut u8, flags: libc::c_int) -> io::Result<*mut u8> {
        let write = if self.writable { libc::PROT_WRITE } else { 0 };
        let (protection, flags) = (libc::PROT_READ | write, libc::MAP_SHARED | flags);
        let fd = file.as_raw_fd();
        // SAFETY: the call maps at an address that the kernel chooses, or over the whole mapping of
        // this value.
        let base = unsafe { libc::mmap(at.cast(), self.length, protection, flags, fd, 0) };
        if base == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(base.cast()) }
    }

    /// Returns the length of the mapping (bytes).
    pub fn length(&self) -> u64 {
        self.length as u64
    }

    /// Calls madvise(2) for the whole mapping.
    pub fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        if self.length == 0 {
            return Ok(());
        }
        // SAFETY: the advice is for the shared mapping of this value, and changes no content.
        match unsafe { libc::madvise(self.base.cast(), self.length, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Copies `into.len()` bytes at `offset` of the mapping into memory.
    ///
    /// # Panics
    /// If the range is not mapped.
    #[inline]
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        let from = self.at(offset, into.len());
        guarded(from, into.len(), || {
            // SAFETY: both ranges are valid and have this length, only this call accesses `into`,
            // and the handler deals with faults in the mapping. Other processes may change the file
            // meanwhile, which is harmless because every value of a byte is valid.
            unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
        })
    }

    /// Calls `look` on bytes of the mapping without copying them. The bytes may change meanwhile if
    /// another program writes to the file. If a page is inaccessible, all bytes from this page to
    /// the end of the range are zeros.
    ///
    /// # Errors
    /// If a page was inaccessible. The result of `look` is then dropped.
    ///
    /// # Panics
    /// If the range is not mapped.
    pub fn lend<T>(
        &self,
        offset: u64,
        length: usize,
        look: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, Fault> {
        let from = self.at(offset, length);
        let mut seen = None;
        guarded(from, length, || {
            // SAFETY: the range stays mapped while this value lives, and the handler deals with
            // faults in it. Other processes may change the file meanwhile. Every value of a byte is
            // valid, and the documentation tells callers that `look` must not rely on stable
            // content.
            seen = Some(look(unsafe { std::slice::from_raw_parts(from, length) }));
        })?;
        seen.ok_or(Fault)
    }

    /// Copies memory into the mapping at `offset`.
    ///
    /// # Panics
    /// If the range is not mapped, or the mapping is read-only.
    #[inline]
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), Fault> {
        assert!(self.writable, "the mapping is read-only");
        let into = self.at(offset, from.len());
        guarded(into, from.len(), || {
            // SAFETY: as in `read`, with source and destination swapped. The mapping is writable.
            unsafe { ptr::copy_nonoverlapping(from.as_ptr(), into, from.len()) };
        })
    }

    #[inline]
    fn at(&self, offset: u64, length: usize) -> *mut u8 {
        let mapped = self.length as u64;
        assert!(offset <= mapped && length as u64 <= mapped - offset, "range beyond the mapping");
        // SAFETY: the assertion above checks that the offset is inside the mapping.
        unsafe { self.base.add(offset as usize) }
    }

    /// Maps the file again at the same address, after a fault.
    pub fn repair(&self, file: &File) -> io::Result<()> {
        self.map(file, self.base, libc::MAP_FIXED).map(drop)
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        if self.length > 0 {
            // SAFETY: base and length are those of this value's mapping, which is unmapped only
            // here.
            unsafe { libc::munmap(self.base.cast(), self.length) };
        }
    }
}

/// Runs `copy`, which accesses the range `base..base + length` of a mapping. Returns an error if a
/// page was inaccessible.
#[inline]
fn guarded(base: *mut u8, length: usize, copy: impl FnOnce()) -> Result<(), Fault> {
    let page_bytes = PAGE_BYTES.get().copied().unwrap_or(4096);
    GUARD.set(Guard { base: base as usize, length, page_bytes, faulted: false });
    // The signal handler interrupts this thread during the copy. A compiler fence suffices, because
    // both run on the same thread.
    compiler_fence(Ordering::SeqCst);
    copy();
    compiler_fence(Ordering::SeqCst);
    if GUARD.replace(IDLE).faulted { Err(Fault) } else { Ok(()) }
}

/// The size of a memory page (bytes). It is queried only once, because every copy needs it.
static PAGE_BYTES: OnceLock<usize> = OnceLock::new();

fn install_handler() -> libc::sigaction {
    PAGE_BYTES.get_or_init(|| sys::page_bytes() as usize);
    // SAFETY: an all-zero value is valid for the plain C struct sigaction, and both values outlive
    // the call. The handler does only what a signal handler may do.
    unsafe {
        let mut previous: libc::sigaction = std::mem::zeroed();
        let mut ours: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = on_bus_error as *const () as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &ours, &mut previous);
        previous
    }
}

/// Handles SIGBUS. Uses only system calls and memory of this thread.
extern "C" fn on_bus_error(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid siginfo, which contains the address of the fault.
    let address = unsafe { (*info).si_addr() } as usize;
    let guard = GUARD.get();
    let end = guard.base.saturating_add(guard.length);
    let first = guard.base / guard.page_bytes * guard.page_bytes;
    if guard.length > 0 && (first..end).contains(&address) {
        let page = address / guard.page_bytes * guard.page_bytes;
        let errno = sys::errno();
        // SAFETY: the page belongs to the mapping that this thread is copying from or to.
        if unsafe { replace_by_memory(page, end - page) } {
            GUARD.set(Guard { faulted: true, ..guard });
            sys::set_errno(errno);
            return;
        }
    }
    pass_on(signal, info, context);
}

/// Maps zeroed memory over inaccessible pages. Returns true if this succeeded.
///
/// # Safety
/// `address` must be the beginning of a page in a mapping that the caller owns, and the range of
/// `length` bytes must end within the mapping.
unsafe fn replace_by_memory(address: usize, length: usize) -> bool {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the caller owns the mapping, and every byte of the mapping stays mapped.
    let got = unsafe { libc::mmap(address as *mut _, length, protection, flags, -1, 0) };
    got != libc::MAP_FAILED
}

/// Passes the signal to the previous handler. If there was none, restores the default action. The
/// access then faults again, which ends the program.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let default = || {
        // SAFETY: the call restores the default action, which a signal handler may do.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    };
    let Some(previous) = PREVIOUS.get() else { return default() };
    match previous.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => default(),
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            type WithInfo = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            // SAFETY: a handler installed with SA_SIGINFO has this signature.
            let handler: WithInfo = unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: a handler installed without SA_SIGINFO has this signature.
            let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const PAGE: usize = 4096;

    fn file_of(pages: usize) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![0xA5; pages * PAGE]).unwrap();
        file
    }

    #[test]
    fn what_is_written_through_a_mapping_is_in_the_file() {
        use std::os::unix::fs::FileExt;
        let file = file_of(4);
        let mapped = MappedFile::new(&file, 4 * PAGE as u64, true).unwrap();
        mapped.write(PAGE as u64 + 7, b"here").unwrap();
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, PAGE as u64 + 7).unwrap();
        assert_eq!(&bytes, b"here");
    }

    #[test]
    fn a_truncated_file_faults_and_the_rest_is_still_readable() {
        let file = file_of(64);
        let mapped = MappedFile::new(&file, 64 * PAGE as u64, true).unwrap();
        let mut memory = vec![0; 16 * PAGE];
        mapped.read(32 * PAGE as u64, &mut memory).unwrap();
        file.set_len(40 * PAGE as u64).unwrap();
        assert_eq!(mapped.read(32 * PAGE as u64, &mut memory), Err(Fault));
        assert!(memory[..8 * PAGE].iter().all(|byte| *byte == 0xA5), "the file's data was copied");
        mapped.repair(&file).unwrap();
        mapped.read(0, &mut memory).unwrap();
        assert!(memory.iter().all(|byte| *byte == 0xA5));
        assert_eq!(mapped.write(39 * PAGE as u64, &memory), Err(Fault));
        mapped.repair(&file).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 40 * PAGE as u64, "the file did not grow");
    }

    #[test]
    fn lending_a_truncated_range_faults() {
        let file = file_of(16);
        let mapped = MappedFile::new(&file, 16 * PAGE as u64, false).unwrap();
        let sum = |bytes: &[u8]| bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        assert_eq!(mapped.lend(5, 8 * PAGE, sum), Ok(8 * PAGE as u64 * 0xA5));
        assert_eq!(mapped.lend(0, 0, sum), Ok(0));
        file.set_len(4 * PAGE as u64).unwrap();
        assert_eq!(mapped.lend(0, 8 * PAGE, sum), Err(Fault));
        mapped.repair(&file).unwrap();
        assert_eq!(mapped.lend(0, 4 * PAGE, sum), Ok(4 * PAGE as u64 * 0xA5));
    }

    #[test]
    fn faults_are_per_thread() {
        let file = file_of(16);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let file = &file;
                scope.spawn(move || {
                    // Every second thread maps beyond the end of the file.
                    let pages = if thread % 2 == 0 { 16 } else { 32 };
                    let mapped = MappedFile::new(file, pages * PAGE as u64, false).unwrap();
                    let mut memory = vec![0; PAGE];
                    for _ in 0..200 {
                        let read = mapped.read((pages - 1) * PAGE as u64, &mut memory);
                        assert_eq!(read.is_err(), pages == 32);
                        mapped.repair(file).unwrap();
                    }
                });
            }
        });
    }

    #[test]
    fn an_empty_file_maps_to_nothing() {
        let mapped = MappedFile::new(&file_of(0), 0, true).unwrap();
        assert_eq!(mapped.length(), 0);
        mapped.advise(libc::MADV_RANDOM).unwrap();
    }
}
