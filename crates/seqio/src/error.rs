//! Errors of this crate. As in `std::fs`, errors are `io::Error` values that contain the system's
//! error number, but not the name of the file. [`CopyError`] also says which of the two files
//! failed.

use std::fmt;
use std::io;

/// Converts an error of an I/O engine to a system error.
pub(crate) fn of_engine(error: ioengine::Error) -> io::Error {
    match error.errno() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::new(io::ErrorKind::InvalidInput, error),
    }
}

/// The parts of an error that are kept, because an `io::Error` cannot be cloned. Every later call
/// creates the same error from these parts.
#[derive(Debug)]
pub(crate) struct Repeated {
    number: Option<i32>,
    kind: io::ErrorKind,
    text: String,
}

impl Repeated {
    pub fn of(error: &io::Error) -> Repeated {
        let (number, kind) = (error.raw_os_error(), error.kind());
        Repeated { number, kind, text: error.to_string() }
    }

    pub fn error(&self) -> io::Error {
        match self.number {
            Some(number) => io::Error::from_raw_os_error(number),
            None => io::Error::new(self.kind, self.text.clone()),
        }
    }
}

/// The part of a copy that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Reading from the source failed.
    Source,
    /// Writing to the destination failed.
    Destination,
    /// The [`Watch`](crate::copy::Watch) stopped the copy.
    Watcher,
}

/// Why a copy stopped early.
#[derive(Debug)]
pub struct CopyError {
    /// The part of the copy that failed.
    pub side: Side,
    /// Offset at which the copy failed (bytes). None if unknown.
    pub offset: Option<u64>,
    source: io::Error,
}

impl CopyError {
    pub(crate) fn new(side: Side, offset: impl Into<Option<u64>>, source: io::Error) -> CopyError {
        CopyError { side, offset: offset.into(), source }
    }

    /// Returns the system error.
    pub fn error(&self) -> &io::Error {
        &self.source
    }
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.side {
            Side::Source => "reading",
            Side::Destination => "writing",
            Side::Watcher => return self.source.fmt(f),
        })?;
        if let Some(offset) = self.offset {
            write!(f, " at byte {offset}")?;
        }
        write!(f, ": {}", self.source)
    }
}

impl std::error::Error for CopyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl From<CopyError> for io::Error {
    /// Returns the system error with its number. The information about which file failed is lost.
    fn from(error: CopyError) -> io::Error {
        error.source
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_number_and_says_which_side_and_where() {
        let error = CopyError::new(Side::Destination, 4096, io::Error::from_raw_os_error(28));
        assert!(error.to_string().starts_with("writing at byte 4096: No space left"), "{error}");
        assert_eq!(io::Error::from(error).raw_os_error(), Some(28));
        let first = io::Error::from_raw_os_error(5);
        assert_eq!(Repeated::of(&first).error().raw_os_error(), Some(5));
    }
}
