//! A request and its completion: two small plain structs.
//!
//! A request names a buffer slot owned by the engine, never a pointer. A completion carries the
//! kernel's result (bytes moved, or a negated error number) and nothing else. Short transfers and
//! EAGAIN are handled once, by the worker, for all I/O engines.

/// The direction of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(u8)]
pub enum Op {
    /// From the target into the slot.
    Read = 0,
    /// From the slot to the target.
    Write = 1,
}

impl Op {
    /// Both directions, reads first.
    pub const ALL: [Op; 2] = [Op::Read, Op::Write];

    /// "read" or "write".
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

/// One transfer between a slot and the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Position in the target (bytes).
    pub offset: u64,
    /// How much to move (bytes).
    pub length: u32,
    /// Position inside the slot (bytes); nonzero when the rest of a short transfer is requested.
    pub within: u32,
    /// Which slot of the engine.
    pub slot: u32,
    /// Index of the file among the files of the engine; 0 for a single file.
    pub file: u16,
    /// Whether the request reads or writes.
    pub op: Op,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The slot named by the request.
    pub slot: u32,
    /// Bytes moved (0 at the end of a file), or a negated error number.
    pub result: i32,
}

impl Completion {
    /// Bytes moved, or the error.
    pub fn outcome(&self) -> Result<u32, std::io::Error> {
        if self.result >= 0 {
            Ok(self.result as u32)
        } else {
            Err(std::io::Error::from_raw_os_error(-self.result))
        }
    }
}
