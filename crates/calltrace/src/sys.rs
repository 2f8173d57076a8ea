//! Calls bpf(2) to create maps, load programs and attach them to tracepoints, and reads the ring
//! buffer. All `unsafe` code of this crate is here. The arguments have the layout of `union
//! bpf_attr` in `include/uapi/linux/bpf.h`.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP: libc::c_int = 1;
const MAP_UPDATE: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;

const PROG_RAW_TRACEPOINT: u32 = 17;

/// License that is declared to the kernel. With this license, the programs may call helper
/// functions that are reserved for GPL programs.
const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";
/// Size of the log in which the kernel explains why it refuses a program (bytes).
const LOG_BYTES: usize = 1 << 20;

/// Arguments of bpf(2) (`union bpf_attr`).
#[repr(C, align(8))]
struct Arguments([u8; 128]);

impl Arguments {
    fn new() -> Arguments {
        Arguments([0; 128])
    }

    fn word(mut self, at: usize, value: u32) -> Arguments {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn address<T>(mut self, at: usize, value: *const T) -> Arguments {
        self.0[at..at + 8].copy_from_slice(&(value as u64).to_ne_bytes());
        self
    }

    fn call(&self, command: libc::c_int) -> io::Result<libc::c_long> {
        // SAFETY: the arguments have the size of the kernel's union, and all addresses in them are
        // those of memory that lives until the call returns.
        let result = unsafe {
            libc::syscall(libc::SYS_bpf, command, self.0.as_ptr(), self.0.len() as libc::c_uint)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }

    fn open(&self, command: libc::c_int) -> io::Result<OwnedFd> {
        let descriptor = self.call(command)? as RawFd;
        // SAFETY: the kernel has just created this descriptor for this call, and nothing else owns
        // it.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// A hash table.
    Hash = 1,
    /// An array, indexed by a 32-bit number.
    Array = 2,
    /// A ring buffer. Its size in bytes is passed as the number of entries.
    Ring = 27,
}

/// A map that the programs and this process share.
#[derive(Debug)]
pub struct Map {
    descriptor: OwnedFd,
    key_bytes: usize,
    value_bytes: usize,
}

impl Map {
    pub fn new(kind: MapKind, key_bytes: u32, value_bytes: u32, entries: u32) -> io::Result<Map> {
        let arguments = Arguments::new()
            .word(0, kind as u32)
            .word(4, key_bytes)
            .word(8, value_bytes)
            .word(12, entries);
        let descriptor = arguments.open(MAP_CREATE)?;
        Ok(Map { descriptor, key_bytes: key_bytes as usize, value_bytes: value_bytes as usize })
    }

    /// Returns the file descriptor with which BPF programs refer to this map.
    pub fn descriptor(&self) -> i32 {
        self.descriptor.as_raw_fd()
    }

    pub fn set(&self, key: u32, value: u64) -> io::Result<()> {
        assert!(self.key_bytes == 4 && self.value_bytes == 8, "keys need 4 bytes, values 8 bytes");
        let arguments = Arguments::new()
            .word(0, self.descriptor.as_raw_fd() as u32)
            .address(8, ptr::from_ref(&key))
            .address(16, ptr::from_ref(&value));
        arguments.call(MAP_UPDATE).map(drop)
    }

    pub fn get(&self, key: u32) -> Option<u64> {
        assert!(self.key_bytes == 4 && self.value_bytes == 8, "keys need 4 bytes, values 8 bytes");
        let mut value = 0_u64;
        let arguments = Arguments::new()
            .word(0, self.descriptor.as_raw_fd() as u32)
            .address(8, ptr::from_ref(&key))
            .address(16, ptr::from_mut(&mut value).cast_const());
        arguments.call(MAP_LOOKUP).ok().map(|_| value)
    }
}

/// A program that runs at a tracepoint until this value is dropped.
#[derive(Debug)]
pub struct Attached {
    _program: OwnedFd,
    _link: OwnedFd,
}

/// Loads a program and attaches it to a tracepoint. An error contains the kernel's reason.
pub fn attach(instructions: &[u64], tracepoint: &str) -> io::Result<Attached> {
    let program = load(instructions).map_err(|error| {
        io::Error::new(error.kind(), format!("loading the program for {tracepoint}: {error}"))
    })?;
    let name = CString::new(tracepoint)?;
    let arguments = Arguments::new().address(0, name.as_ptr()).word(8, program.as_raw_fd() as u32);
    let link = arguments.open(RAW_TRACEPOINT_OPEN)?;
    Ok(Attached { _program: program, _link: link })
}

fn load(instructions: &[u64]) -> io::Result<OwnedFd> {
    let arguments = || {
        Arguments::new()
            .word(0, PROG_RAW_TRACEPOINT)
            .word(4, instructions.len() as u32)
            .address(8, instructions.as_ptr())
            .address(16, LICENSE.as_ptr())
    };
    let error = match arguments().open(PROG_LOAD) {
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => error,
        Err(error) if !is_privileged() => return Err(error),
        Err(error) => error,
        loaded => return loaded,
    };
    let mut log = vec![0_u8; LOG_BYTES];
    let logged = arguments()
        .word(24, 1)
        .word(28, LOG_BYTES as u32)
        .address(32, log.as_mut_ptr())
        .open(PROG_LOAD);
    if logged.is_ok() {
        return logged;
    }
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(0);
    let log = String::from_utf8_lossy(&log[..end]);
    let lines: Vec<&str> = log.lines().filter(|line| !line.starts_with("processed ")).collect();
    let tail = lines[lines.len().saturating_sub(12)..].join(" | ");
    Err(io::Error::new(error.kind(), format!("{error}: {tail}")))
}

fn is_privileged() -> bool {
    // SAFETY: geteuid takes no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Removes the limit on locked memory, because maps count towards this limit before Linux 5.11.
/// Errors are ignored. If a map then exceeds the limit, its creation fails with an error.
pub fn allow_locked_memory() {
    let all = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: setrlimit reads one rlimit, which lives until the call returns.
    unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const all) };
}

/// Returns the size of a memory page (bytes).
pub fn page_bytes() -> usize {
    // SAFETY: sysconf takes a constant and returns a number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Flag in the length of a record: the BPF program is still writing the record.
const BUSY: u32 = 1 << 31;
/// Flag in the length of a record: the BPF program discarded the record.
const DISCARDED: u32 = 1 << 30;
/// Length of the header of a record (bytes).
const HEADER_BYTES: usize = 8;

/// The reader of a ring buffer (kernel document `bpf/ringbuf.rst`).
#[derive(Debug)]
pub struct Ring {
    map: Map,
    /// Memory page to which this process writes its read position.
    consumer: *mut libc::c_void,
    /// Memory page with the write position of the kernel. The data follow this page, mapped twice
    /// in a row.
    producer: *mut libc::c_void,
    page_bytes: usize,
    data_bytes: usize,
    position: u64,
}

// SAFETY: the mappings belong to this value alone.
unsafe impl Send for Ring {}

impl Ring {
    /// Creates a ring buffer of `bytes` bytes, which must be a power of two and a multiple of the
    /// page size.
    pub fn new(bytes: u32) -> io::Result<Ring> {
        let map = Map::new(MapKind::Ring, 0, 0, bytes)?;
        let page_bytes = page_bytes();
        let data_bytes = bytes as usize;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let consumer = mapping(&map, page_bytes, rights, 0)?;
        let producer_bytes = page_bytes + 2 * data_bytes;
        let producer = match mapping(&map, producer_bytes, libc::PROT_READ, page_bytes) {
            Ok(producer) => producer,
            Err(error) => {
                // SAFETY: this memory was mapped above with this length, and nothing uses it.
                unsafe { libc::munmap(consumer, page_bytes) };
                return Err(error);
            }
        };
        Ok(Ring { map, consumer, producer, page_bytes, data_bytes, position: 0 })
    }

    /// Returns the file descriptor with which BPF programs refer to this map.
    pub fn descriptor(&self) -> i32 {
        self.map.descriptor()
    }

    /// Returns the number of bytes written so far, including records that are still being written.
    pub fn written(&self) -> u64 {
        // SAFETY: as in `read`.
        unsafe { AtomicU64::from_ptr(self.producer.cast()) }.load(Ordering::Acquire)
    }

    /// Returns the number of bytes read so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Calls `visit` with each complete record, up to `most` of them, and frees their space.
    /// Returns the number of records.
    pub fn read(&mut self, most: usize, mut visit: impl FnMut(&[u8])) -> usize {
        // SAFETY: both pages are mapped until drop. Each page starts with an aligned 64-bit number,
        // which the kernel accesses atomically.
        let (ours, theirs) = unsafe {
            (AtomicU64::from_ptr(self.consumer.cast()), AtomicU64::from_ptr(self.producer.cast()))
        };
        let mut count = 0;
        while count < most && self.position < theirs.load(Ordering::Acquire) {
            let at = self.position as usize & (self.data_bytes - 1);
            // SAFETY: `at` is within the data, headers are aligned to 8 bytes, and the kernel
            // writes the length atomically.
            let record = unsafe { self.producer.cast::<u8>().add(self.page_bytes + at) };
            // SAFETY: as above.
            let length = unsafe { AtomicU32::from_ptr(record.cast()) }.load(Ordering::Acquire);
            if length & BUSY != 0 {
                break;
            }
            let bytes = (length & !DISCARDED) as usize;
            if length & DISCARDED == 0 {
                // SAFETY: the data are mapped twice in a row, so a record that starts within them
                // is contiguous. The record is not changed before its space is given back below.
                visit(unsafe { std::slice::from_raw_parts(record.add(HEADER_BYTES), bytes) });
                count += 1;
            }
            self.position += (HEADER_BYTES + bytes).next_multiple_of(8) as u64;
            ours.store(self.position, Ordering::Release);
        }
        count
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: both mappings were created with these lengths, and nothing else refers to them.
        unsafe {
            libc::munmap(self.consumer, self.page_bytes);
            libc::munmap(self.producer, self.page_bytes + 2 * self.data_bytes);
        }
    }
}

fn mapping(
    map: &Map,
    bytes: usize,
    rights: libc::c_int,
    at: usize,
) -> io::Result<*mut libc::c_void> {
    // SAFETY: mmap maps new memory at an address that the kernel chooses.
    let address = unsafe {
        libc::mmap(ptr::null_mut(), bytes, rights, libc::MAP_SHARED, map.descriptor(), at as i64)
    };
    if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(address) }
}
