//! Errors are the system's own, as in `std::fs`: `kind()` and `raw_os_error()` tell what happened.
//! Whoever opened a file knows its name and adds it; [`CopyError`] tells which of two files failed.

use std::fmt;
use std::io;

/// The failure of an engine as an error of `std`.
pub(crate) fn of_engine(error: ioengine::Error) -> io::Error {
    match error.errno() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::new(io::ErrorKind::InvalidInput, error),
    }
}

/// An error that can be reported again by every later call, which `io::Error` itself cannot.
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

/// Which side of a copy failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The file that is read.
    Source,
    /// The file that is written.
    Destination,
    /// The [`Watch`](crate::copy::Watch) ended the copy.
    Watcher,
}

/// Why a copy ended early.
#[derive(Debug)]
pub struct CopyError {
    /// Which side failed.
    pub side: Side,
    /// Where in the file (bytes); None where no single place is to blame.
    pub offset: Option<u64>,
    source: io::Error,
}

impl CopyError {
    pub(crate) fn new(side: Side, offset: impl Into<Option<u64>>, source: io::Error) -> CopyError {
        CopyError { side, offset: offset.into(), source }
    }

    /// What the system said.
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
    /// What the system said, with its number; which file it was about is lost.
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
