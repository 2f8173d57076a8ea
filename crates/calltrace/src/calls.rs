//! Lists the traced system calls, and which of their arguments are the descriptor, the path, the
//! offset and the length.

use trace::Operation;

/// Length of the table that the BPF programs index by system call number. All traced calls have
/// lower numbers.
pub const NUMBERS: u32 = 512;

/// The number of the system call `io_pgetevents`, for which libc has no constant.
const IO_PGETEVENTS: libc::c_long = if cfg!(target_arch = "x86_64") { 333 } else { 292 };

/// How a call is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The call acts on an open file, whose descriptor is an argument.
    Descriptor,
    /// The call opens a file and returns its descriptor.
    Open,
    /// The call submits libaio requests. Each request is a `struct iocb` in memory.
    AioSubmit,
    /// The call returns the completions of libaio requests.
    AioReap,
    /// The call changes the working directory. The recorded file is the new working directory.
    Folder,
    /// The call has no descriptor argument, for example `sync`.
    Plain,
}

/// How the offset of a request is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The offset is the argument with this index.
    Argument(usize),
    /// The offset is the file position after the call, minus the number of bytes that the call
    /// moved.
    Position,
    /// Like [`At::Position`], but the offset is unknown if the program passes a pointer to an
    /// offset. Element 0 is the index of this pointer argument for the first descriptor, and
    /// element 1 for the second descriptor. None if the call has no such argument.
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
    pub operation: Operation,
    pub kind: Kind,
    /// Index of the descriptor argument. For calls that open a file, this is the directory in which
    /// a relative path starts. None if there is no such argument.
    pub descriptor: Option<usize>,
    /// Index of the destination descriptor, for calls that copy between files, such as `sendfile`.
    /// None for all other calls.
    pub second: Option<usize>,
    /// Index of the path argument. None if there is no such argument.
    pub path: Option<usize>,
    pub offset: At,
    /// Index of the length argument. None if there is no such argument. The length of a read or
    /// write is then the result of the call.
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

    /// Makes this a call that opens a file. `folder` is the index of the directory descriptor, or
    /// None if relative paths start in the working directory. `path` is the index of the path.
    const fn opens(mut self, folder: Option<usize>, path: usize) -> Traced {
        self.kind = Kind::Open;
        self.descriptor = folder;
        self.path = Some(path);
        self
    }
}

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

/// Offsets of the six arguments of a system call in the saved registers (bytes).
#[cfg(target_arch = "x86_64")]
pub const ARGUMENTS: [u8; 6] = [56, 48, 40, 0, 16, 8];
/// Offset in `struct pt_regs` of r10, the first saved register (bytes).
#[cfg(target_arch = "x86_64")]
pub const REGISTERS_AT: i32 = 56;

/// Offsets of the six arguments of a system call in the saved registers (bytes).
#[cfg(not(target_arch = "x86_64"))]
pub const ARGUMENTS: [u8; 6] = [0, 8, 16, 24, 32, 40];
/// Offset in `struct pt_regs` of x0, the first saved register (bytes).
#[cfg(not(target_arch = "x86_64"))]
pub const REGISTERS_AT: i32 = 0;

/// Total size of the saved registers (bytes).
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
