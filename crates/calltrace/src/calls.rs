//! The traced system calls: their numbers, which argument is the file descriptor, and how the
//! arguments become a request.

use trace::Operation;

/// Size of the table of system calls. All traced calls have lower numbers, and calls with this
/// number or a higher one are ignored.
pub const NUMBERS: u32 = 512;

/// The number of the system call `io_pgetevents`, for which libc has no constant.
const IO_PGETEVENTS: libc::c_long = if cfg!(target_arch = "x86_64") { 333 } else { 292 };

/// How a call is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The call acts on the file of a descriptor that it receives.
    Descriptor,
    /// The call opens a file and returns its descriptor.
    Open,
    /// The call submits requests of Linux native asynchronous I/O. Each request is a `struct iocb`
    /// in memory.
    AioSubmit,
    /// The call takes completions of Linux native asynchronous I/O and writes them to memory.
    AioReap,
    /// The call changes the working directory. The file is the working directory after the call.
    Folder,
    /// The call has no file.
    Plain,
}

/// How the offset of a request is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The offset is the argument with this index.
    Argument(usize),
    /// The offset is the position of the descriptor after the call, minus the bytes that were
    /// moved.
    Position,
    /// As [`At::Position`], but the offset is unknown if the call receives a pointer to an offset.
    /// For the first and for the second descriptor, the array contains the index of the argument
    /// that may be such a pointer. None if the call has no such argument.
    PositionUnless([Option<usize>; 2]),
    /// The request has no offset.
    Nowhere,
}

/// A traced system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced {
    /// Number of the call on this architecture.
    pub number: u32,
    /// Name of the call, as in [`trace::Call`].
    pub name: &'static str,
    /// Operation that the call performs.
    pub operation: Operation,
    /// How the call is traced.
    pub kind: Kind,
    /// Index of the argument with the descriptor. For calls that open a file, this is the
    /// descriptor of the directory. None if there is no such argument.
    pub descriptor: Option<usize>,
    /// Index of the argument with a second descriptor, to which the call writes. None if there is
    /// no such argument.
    pub second: Option<usize>,
    /// Index of the argument with the path. None if there is no such argument.
    pub path: Option<usize>,
    /// How the offset is found.
    pub offset: At,
    /// Index of the argument with the length. None if the result of the call is the length.
    pub length: Option<usize>,
}

const fn call(number: libc::c_long, name: &'static str, operation: Operation) -> Traced {
    Traced {
        number: number as u32,
        name,
        operation,
        kind: Kind::Descriptor,
        descriptor: Some(0),
        second: None,
        path: None,
        offset: At::Nowhere,
        length: None,
    }
}

impl Traced {
    const fn at(mut self, offset: At) -> Traced {
        self.offset = offset;
        self
    }

    const fn length(mut self, argument: usize) -> Traced {
        self.length = Some(argument);
        self
    }

    const fn kind(mut self, kind: Kind) -> Traced {
        self.kind = kind;
        self
    }

    /// Makes this a call that opens a path. `folder` is the argument with the descriptor of the
    /// directory, or None if the path is relative to the working directory. `path` is the argument
    /// with the path.
    const fn opens(mut self, folder: Option<usize>, path: usize) -> Traced {
        self.kind = Kind::Open;
        self.descriptor = folder;
        self.path = Some(path);
        self
    }
}

/// Returns all traced calls.
pub fn all() -> Vec<Traced> {
    use Operation::{Advise, Allocate, Flush, Open, Read, Truncate, Write};
    let all = vec![
        call(libc::SYS_read, "read", Read).at(At::Position).length(2),
        call(libc::SYS_write, "write", Write).at(At::Position).length(2),
        call(libc::SYS_pread64, "pread64", Read).at(At::Argument(3)).length(2),
        call(libc::SYS_pwrite64, "pwrite64", Write).at(At::Argument(3)).length(2),
        call(libc::SYS_readv, "readv", Read).at(At::Position),
        call(libc::SYS_writev, "writev", Write).at(At::Position),
        call(libc::SYS_preadv, "preadv", Read).at(At::Argument(3)),
        call(libc::SYS_pwritev, "pwritev", Write).at(At::Argument(3)),
        call(libc::SYS_preadv2, "preadv2", Read).at(At::Argument(3)),
        call(libc::SYS_pwritev2, "pwritev2", Write).at(At::Argument(3)),
        Traced {
            descriptor: Some(1),
            second: Some(0),
            ..call(libc::SYS_sendfile, "sendfile", Read).at(At::PositionUnless([Some(2), None]))
        },
        Traced {
            second: Some(2),
            ..call(libc::SYS_copy_file_range, "copy_file_range", Read)
                .at(At::PositionUnless([Some(1), Some(3)]))
        },
        call(libc::SYS_fsync, "fsync", Flush),
        call(libc::SYS_fdatasync, "fdatasync", Flush),
        call(libc::SYS_sync_file_range, "sync_file_range", Flush).at(At::Argument(1)).length(2),
        call(libc::SYS_syncfs, "syncfs", Flush),
        call(libc::SYS_msync, "msync", Flush).kind(Kind::Plain).length(1),
        call(libc::SYS_sync, "sync", Flush).kind(Kind::Plain),
        call(libc::SYS_ftruncate, "ftruncate", Truncate).length(1),
        call(libc::SYS_fallocate, "fallocate", Allocate).at(At::Argument(2)).length(3),
        call(libc::SYS_fadvise64, "fadvise64", Advise).at(At::Argument(1)).length(2),
        call(libc::SYS_readahead, "readahead", Advise).at(At::Argument(1)).length(2),
        call(libc::SYS_openat, "openat", Open).opens(Some(0), 1),
        call(libc::SYS_openat2, "openat2", Open).opens(Some(0), 1),
        call(libc::SYS_fchdir, "fchdir", Open).kind(Kind::Folder),
        Traced { path: Some(0), ..call(libc::SYS_chdir, "chdir", Open).kind(Kind::Folder) },
        call(libc::SYS_io_submit, "io_submit", Read).kind(Kind::AioSubmit),
        call(libc::SYS_io_getevents, "io_getevents", Read).kind(Kind::AioReap),
        call(IO_PGETEVENTS, "io_getevents", Read).kind(Kind::AioReap),
    ];
    #[cfg(target_arch = "x86_64")]
    let old = vec![
        call(libc::SYS_open, "open", Open).opens(None, 0),
        call(libc::SYS_creat, "creat", Open).opens(None, 0),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let old = Vec::new();
    [all, old].concat()
}

/// Offsets of the six arguments within the saved part of the registers (bytes).
#[cfg(target_arch = "x86_64")]
pub const ARGUMENTS: [u8; 6] = [56, 48, 40, 0, 16, 8];
/// Offset in `struct pt_regs` at which the saved part begins (bytes): the register r10.
#[cfg(target_arch = "x86_64")]
pub const REGISTERS_AT: i32 = 56;

/// Offsets of the six arguments within the saved part of the registers (bytes).
#[cfg(not(target_arch = "x86_64"))]
pub const ARGUMENTS: [u8; 6] = [0, 8, 16, 24, 32, 40];
/// Offset in `struct pt_regs` at which the saved part begins (bytes): the register x0.
#[cfg(not(target_arch = "x86_64"))]
pub const REGISTERS_AT: i32 = 0;

/// Length of the saved part of the registers, which contains the arguments (bytes).
pub const REGISTER_BYTES: i32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_has_a_name_in_traces_and_a_number_of_its_own() {
        let all = all();
        let mut numbers: Vec<u32> = all.iter().map(|call| call.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), all.len());
        assert!(numbers.iter().all(|number| *number < NUMBERS));
        for call in all {
            let is_request = !matches!(call.kind, Kind::AioReap | Kind::Folder);
            let is_named = trace::Call::named(call.name).is_some();
            assert!(is_named || !is_request, "{}", call.name);
        }
    }
}
