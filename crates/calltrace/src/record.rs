//! Defines and parses the records that the BPF programs write. All fields have the byte order of
//! the machine.

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A system call without a more specific kind, such as `read` or `sync`.
    Call = 1,
    /// A system call that opened a file or changed the working directory.
    Open,
    /// A request that was submitted to libaio.
    AioSubmit,
    /// A libaio completion that `io_getevents` returned.
    AioReap,
    /// A request of io_uring, from submission to completion.
    Uring,
    /// A request of the block layer, from issue to completion.
    Block,
    /// A watched process created another process.
    Fork,
    /// A watched process executed a program.
    Exec,
    /// A page fault in a mapped file.
    Fault,
    /// A watched process ended.
    Exit,
}

// Offsets of fields that all records have. The kind of the record is at offset 0, and the thread
// and process ids are at offset 8.
pub(crate) const START: i16 = 16;
pub(crate) const END: i16 = 24;

// Offsets of the fields in system call records.
pub(crate) const NUMBER: i16 = 32;
pub(crate) const RESULT: i16 = 40;
pub(crate) const REGISTERS: i16 = 48;
pub(crate) const FILE: i16 = 112;
pub(crate) const DEVICE_BYTES: i16 = 144;
pub(crate) const SLEEPS: i16 = 152;
pub(crate) const CALL_BYTES: usize = 160;

// Offsets of the additional fields in records of opened files.
pub(crate) const FOLDER: i16 = 160;
pub(crate) const PATH: i16 = 176;
/// Maximum length of a recorded path, including its final zero (bytes).
pub(crate) const PATH_BYTES: usize = 512;
pub(crate) const OPEN_BYTES: usize = PATH as usize + PATH_BYTES;

// Offsets of the fields in libaio records.
pub(crate) const AIO_REQUEST: i16 = 32;
pub(crate) const AIO_RESULT: i16 = 40;
pub(crate) const AIO_REAP_BYTES: usize = 48;
pub(crate) const AIO_OPCODE: i16 = 40;
pub(crate) const AIO_LENGTH: i16 = 48;
pub(crate) const AIO_FILE: i16 = 64;
pub(crate) const AIO_SUBMIT_BYTES: usize = 96;

// Offsets of the fields in io_uring records.
pub(crate) const URING_OPCODE: i16 = 32;
pub(crate) const URING_RESULT: i16 = 56;
pub(crate) const URING_FILE: i16 = 64;
pub(crate) const URING_BYTES: usize = 96;

// Offsets of the fields in block layer records. The flags, the sector and the length follow the
// device.
pub(crate) const BLOCK_DEVICE: i16 = 32;
pub(crate) const BLOCK_ERROR: i16 = 56;
pub(crate) const BLOCK_BYTES: usize = 64;

// Offsets of the fields in process records.
pub(crate) const CHILD: i16 = 32;
pub(crate) const NAME: i16 = 32;
pub(crate) const PROCESS_BYTES: usize = 48;

// Offsets of the fields in page fault records.
pub(crate) const FAULT_PAGE: i16 = 32;
pub(crate) const FAULT_FILE: i16 = 40;
pub(crate) const FAULT_BYTES: usize = 72;

/// The identity of a file: its file system and its inode number. A block device is identified by
/// its device number and the inode number 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inode {
    /// Device number of the file system or of the block device, in the kernel's internal format.
    pub device: u32,
    /// Inode number, or 0 for a device.
    pub number: u64,
}

/// The state of a file when a record was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileState {
    /// Identity of the file.
    pub inode: Inode,
    /// Type and permissions of the file (`inode(7)`).
    pub mode: u16,
    /// Flags with which the file was opened.
    pub flags: u32,
    /// Current file position (bytes).
    pub position: u64,
}

impl FileState {
    /// Checks whether this is a regular file.
    pub fn is_regular(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }

    /// Checks whether this is a block device.
    pub fn is_device(&self) -> bool {
        self.mode & 0o170_000 == 0o060_000
    }

    /// Checks whether this is a directory.
    pub fn is_folder(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }
}

/// A record that a BPF program wrote to the ring buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Process id.
    pub process: u32,
    /// Thread id.
    pub thread: u32,
    /// Start of the event (ns of `CLOCK_MONOTONIC`).
    pub start_ns: u64,
    /// End of the event (ns of `CLOCK_MONOTONIC`).
    pub end_ns: u64,
    /// The event that happened.
    pub what: What<'a>,
}

/// The event that a record describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// A system call.
    Call(Call),
    /// A file was opened, or the working directory was changed.
    Open {
        /// The call. Its `file` is the opened file or the new working directory.
        call: Call,
        /// The directory in which a relative path starts. Zero if the working directory was
        /// changed.
        folder: Inode,
        /// Path that the program passed to the call. Empty if the call has no path, or if the path
        /// could not be read.
        path: &'a [u8],
    },
    /// A request was submitted to libaio.
    AioSubmit {
        /// Address of the request.
        request: u64,
        /// Code of the operation, such as `IOCB_CMD_PREAD` (`linux/aio_abi.h`).
        opcode: u16,
        /// Length (bytes).
        bytes: u64,
        /// Offset (bytes).
        offset: u64,
        /// State of the file.
        file: FileState,
    },
    /// `io_getevents` returned the completion of a libaio request.
    AioReap {
        /// Address of the request.
        request: u64,
        /// Result of the request.
        result: i64,
    },
    /// A request of io_uring.
    Uring {
        /// Code of the operation (`enum io_uring_op`).
        opcode: u8,
        /// Length (bytes), or the number of buffers if the operation is vectored.
        length: u32,
        /// Offset (bytes). All bits are set if the request uses the file position.
        offset: u64,
        /// Result of the request.
        result: i32,
        /// State of the file.
        file: FileState,
    },
    /// A request of the block layer.
    Block {
        /// Device number, in the kernel's internal format.
        device: u32,
        /// Flags of the request. The lowest 8 bits are the operation (`enum req_op`).
        flags: u32,
        /// Number of the first sector (512 bytes each).
        sector: u64,
        /// Length (bytes).
        bytes: u32,
        /// Whether the request failed.
        failed: bool,
    },
    /// A process was created.
    Fork {
        /// Process id of the new process.
        child: u32,
    },
    /// A program was executed. The field is the new name of the process.
    Exec(&'a [u8]),
    /// The process ended.
    Exit,
    /// A page fault in a mapped file.
    Fault {
        /// Index of the page in the file.
        page: u64,
        /// State of the file.
        file: FileState,
    },
}

/// A system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Number of the system call.
    pub number: u32,
    /// Whether this record is for the second descriptor of the call. Also true if the call has no
    /// descriptor.
    pub is_second: bool,
    /// Value that the call returned.
    pub result: i64,
    /// Arguments of the call.
    pub arguments: [u64; 6],
    /// State of the file after the call. All fields are zero if the call has no file.
    pub file: FileState,
    /// Total length of the reads and writes that the thread submitted to block devices during the
    /// call (bytes).
    pub device_bytes: u64,
    /// Number of times that the thread slept during the call (its voluntary context switches).
    pub sleeps: u64,
}

impl Record<'_> {
    /// Parses a record. None if the record is too short or of an unknown kind.
    pub fn read(data: &[u8]) -> Option<Record<'_>> {
        let ids = long(data, 8)?;
        let what = match long(data, 0)? {
            1 => What::Call(call(data)?),
            2 => What::Open {
                call: call(data)?,
                folder: Inode { number: long(data, FOLDER)?, device: word(data, FOLDER + 8)? },
                path: text(data, PATH)?,
            },
            3 => What::AioSubmit {
                request: long(data, AIO_REQUEST)?,
                opcode: word(data, AIO_OPCODE)? as u16,
                bytes: long(data, AIO_LENGTH)?,
                offset: long(data, AIO_LENGTH + 8)?,
                file: file(data, AIO_FILE)?,
            },
            4 => What::AioReap {
                request: long(data, AIO_REQUEST)?,
                result: long(data, AIO_RESULT)? as i64,
            },
            5 => What::Uring {
                opcode: long(data, URING_OPCODE)? as u8,
                length: long(data, URING_OPCODE + 8)? as u32,
                offset: long(data, URING_OPCODE + 16)?,
                result: word(data, URING_RESULT)? as i32,
                file: file(data, URING_FILE)?,
            },
            6 => What::Block {
                device: word(data, BLOCK_DEVICE)?,
                flags: word(data, BLOCK_DEVICE + 4)?,
                sector: long(data, BLOCK_DEVICE + 8)?,
                bytes: long(data, BLOCK_DEVICE + 16)? as u32,
                failed: word(data, BLOCK_ERROR)? != 0,
            },
            7 => What::Fork { child: long(data, CHILD)? as u32 },
            8 => What::Exec(text(data, NAME)?),
            10 => What::Exit,
            9 => What::Fault { page: long(data, FAULT_PAGE)?, file: file(data, FAULT_FILE)? },
            _ => return None,
        };
        let (process, thread) = ((ids >> 32) as u32, ids as u32);
        let (start_ns, end_ns) = (long(data, START)?, long(data, END)?);
        Some(Record { process, thread, start_ns, end_ns, what })
    }
}

fn call(data: &[u8]) -> Option<Call> {
    let mut arguments = [0; 6];
    for (argument, place) in arguments.iter_mut().zip(crate::calls::ARGUMENTS) {
        *argument = long(data, REGISTERS + i16::from(place))?;
    }
    Some(Call {
        number: word(data, NUMBER)?,
        is_second: word(data, NUMBER + 4)? != 0,
        result: long(data, RESULT)? as i64,
        arguments,
        file: file(data, FILE)?,
        device_bytes: long(data, DEVICE_BYTES)?,
        sleeps: long(data, SLEEPS)?,
    })
}

fn file(data: &[u8], at: i16) -> Option<FileState> {
    Some(FileState {
        inode: Inode { number: long(data, at)?, device: word(data, at + 8)? },
        mode: word(data, at + 12)? as u16,
        flags: word(data, at + 16)?,
        position: long(data, at + 24)?,
    })
}

/// Returns the bytes from offset `at` up to the first zero byte.
fn text(data: &[u8], at: i16) -> Option<&[u8]> {
    let rest = data.get(at as usize..)?;
    let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
    Some(&rest[..end])
}

fn word(data: &[u8], at: i16) -> Option<u32> {
    Some(u32::from_ne_bytes(*data.get(at as usize..)?.first_chunk()?))
}

fn long(data: &[u8], at: i16) -> Option<u64> {
    Some(u64::from_ne_bytes(*data.get(at as usize..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_call_is_read_with_its_arguments_and_its_file() {
        let mut data = vec![0; CALL_BYTES];
        let mut put = |at: i16, value: u64| {
            data[at as usize..at as usize + 8].copy_from_slice(&value.to_ne_bytes());
        };
        put(0, Kind::Call as u64);
        put(8, (7 << 32) | 9);
        put(START, 100);
        put(END, 150);
        put(NUMBER, 17);
        put(RESULT, (-5_i64) as u64);
        put(REGISTERS + i16::from(crate::calls::ARGUMENTS[3]), 4096);
        put(FILE, 1234);
        put(FILE + 8, (0o100_644 << 32) | 55);
        put(FILE + 16, 0o40_000);
        put(DEVICE_BYTES, 8192);
        put(SLEEPS, 2);
        let record = Record::read(&data).unwrap();
        assert_eq!((record.process, record.thread), (7, 9));
        assert_eq!((record.start_ns, record.end_ns), (100, 150));
        let What::Call(call) = record.what else { panic!("{record:?}") };
        assert_eq!((call.number, call.result, call.arguments[3]), (17, -5, 4096));
        assert_eq!(call.file.inode, Inode { device: 55, number: 1234 });
        assert!(call.file.is_regular() && !call.file.is_device());
        assert_eq!((call.file.flags, call.device_bytes, call.sleeps), (0o40_000, 8192, 2));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(
            kind in 0_u64..12, mut bytes in proptest::collection::vec(any::<u8>(), 0..800),
        ) {
            for (at, byte) in kind.to_ne_bytes().into_iter().enumerate() {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            let _ = Record::read(&bytes);
        }
    }
}
