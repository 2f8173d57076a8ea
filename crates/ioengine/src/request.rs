//! Requests and their completions.
//!
//! A request contains no pointer, but the index of one of the engine's buffers (slots). A
//! completion contains the kernel's result: the number of bytes transferred, or a negated error
//! number. The worker that uses an I/O engine handles short transfers and EAGAIN, so the engine
//! need not handle them.

/// The direction of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(u8)]
pub enum Op {
    /// Reads from the target into the buffer.
    Read = 0,
    /// Writes from the buffer to the target.
    Write = 1,
}

impl Op {
    /// Both directions, reads first.
    pub const ALL: [Op; 2] = [Op::Read, Op::Write];

    /// Returns "read" or "write".
    pub fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
        }
    }
}

impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A read or write between the target and one of the engine's buffers (slots).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The offset in the target (bytes).
    pub offset: u64,
    /// The number of bytes to transfer.
    pub length: u32,
    /// The offset in the slot's buffer (bytes). Greater than 0 if this request continues a short
    /// transfer.
    pub within: u32,
    /// The index of the slot.
    pub slot: u32,
    /// The index of the file in the engine's list of files. 0 if the engine has a single file.
    pub file: u16,
    /// Whether the request reads or writes.
    pub op: Op,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The slot of the request.
    pub slot: u32,
    /// The number of bytes transferred (0 at the end of a file), or a negated error number.
    pub result: i32,
}

impl Completion {
    /// Returns the number of bytes transferred, or the error.
    pub fn outcome(&self) -> Result<u32, std::io::Error> {
        if self.result >= 0 {
            Ok(self.result as u32)
        } else {
            Err(std::io::Error::from_raw_os_error(-self.result))
        }
    }
}
