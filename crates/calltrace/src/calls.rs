//! The system calls that are traced: their numbers, which argument is the descriptor, and how their
//! arguments become a request.

use trace::Operation;

/// System calls with this number or a higher one are ignored; all traced ones have lower numbers.
pub const NUMBERS: u32 = 512;

/// The number of `io_pgetevents`, which libc does not have.
const IO_PGETEVENTS: libc::c_long = if cfg!(target_arch = "x86_64") { 333 } else { 292 };

/// How a call is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The file is that of a descriptor.
    Descriptor,
    /// The file is that of the descriptor that the call returns.
    Open,
    /// The requests are those of Linux native asynchronous I/O, one for each `struct iocb` in
    /// memory.
    AioSubmit,
    /// The completions of Linux native asynchronous I/O are in memory.
    AioReap,
    /// The file is the current folder after the call.
    Folder,
    /// No file.
    Plain,
}

/// Where the offset of a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// In an argument.
    Argument(usize),
    /// It is the position of the descriptor after the call, less the bytes that were moved.
    Position,
    /// As [`At::Position`], but unknown if an argument points to an offset. The numbers are those
    /// of this argument for the descriptor and for the second one; None: there is no such argument.
    PositionUnless([Option<usize>; 2]),
    /// Nowhere.
    Nowhere,
}

/// A system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced {
    /// Its number on this machine.
    pub number: u32,
    /// Its name, as in [`trace::Call`].
    pub name: &'static str,
    /// What it does.
    pub operation: Operation,
    /// How it is traced.
    pub kind: Kind,
    /// The argument with the descriptor; with the folder, for calls that open a file.
    pub descriptor: Option<usize>,
    /// The argument with a second descriptor, which is written.
    pub second: Option<usize>,
    /// The argument with the path.
    pub path: Option<usize>,
    /// Where the offset is.
    pub offset: At,
    /// The argument with the length; None: the result is the length.
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

    /// A call that opens a path in a folder, or (None) in the current folder.
    const fn opens(mut self, folder: Option<usize>, path: usize) -> Traced {
        self.kind = Kind::Open;
        self.descriptor = folder;
        self.path = Some(path);
        self
    }
}

/// All traced calls.
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

/// Offsets of the six arguments in the piece of the registers that programs save (bytes).
#[cfg(target_arch = "x86_64")]
pub const ARGUMENTS: [u8; 6] = [56, 48, 40, 0, 16, 8];
/// Where that piece, [`REGISTER_BYTES`] long, begins in `struct pt_regs` (bytes): at r10.
#[cfg(target_arch = "x86_64")]
pub const REGISTERS_AT: i32 = 56;

/// Offsets of the six arguments in the piece of the registers that programs save (bytes).
#[cfg(not(target_arch = "x86_64"))]
pub const ARGUMENTS: [u8; 6] = [0, 8, 16, 24, 32, 40];
/// Where that piece, [`REGISTER_BYTES`] long, begins in `struct pt_regs` (bytes): at x0.
#[cfg(not(target_arch = "x86_64"))]
pub const REGISTERS_AT: i32 = 0;

/// Length of the piece of the registers with the arguments (bytes).
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
