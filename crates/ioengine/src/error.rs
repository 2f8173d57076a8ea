//! The error type of this crate.
//!
//! Every message is one line. It says what failed, then the cause, and after a semicolon the
//! remedy, for example `writing /data/x: no space left on device; use a smaller file`.
//! [`ErrorKind`] lets a program choose an exit code without parsing the text.

use std::fmt;
use std::io;

/// The category of a failure, which determines the exit code of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The parameters are invalid, for example queue depth 8 with the engine `sync`, or a path that
    /// does not exist.
    Usage,
    /// The operation was refused because it could destroy data, or because it would create a
    /// regular file under `/dev`.
    Refused,
    /// This kernel, file system or host does not support the operation.
    Unsupported,
    /// No space is left, or a quota or the file-size limit is reached.
    NoSpace,
    /// The file system or device is read-only, or permission is missing.
    NotWritable,
    /// Any other failure.
    Io,
}

/// A failure with its cause and its remedy.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    what: String,
    remedy: Option<String>,
    source: Option<io::Error>,
}

impl Error {
    /// Creates an error that was not reported by a system call.
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Error { kind, what: what.into(), remedy: None, source: None }
    }

    /// Creates an error for a failed system call. The error number determines the kind.
    pub fn io(what: impl Into<String>, source: io::Error) -> Self {
        let kind = match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => ErrorKind::NoSpace,
            Some(libc::EROFS | libc::EACCES | libc::EPERM) => ErrorKind::NotWritable,
            Some(libc::ENOENT | libc::ENOTDIR) => ErrorKind::Usage,
            Some(libc::ENOSYS | libc::EOPNOTSUPP) => ErrorKind::Unsupported,
            _ => ErrorKind::Io,
        };
        Error { kind, what: what.into(), remedy: None, source: Some(source) }
    }

    /// Adds a remedy: what the user can do about the failure.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Changes the kind of the failure.
    #[must_use]
    pub fn of_kind(mut self, kind: ErrorKind) -> Self {
        self.kind = kind;
        self
    }

    /// Returns the category of the failure.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the error number (errno). None if no system call failed.
    pub fn errno(&self) -> Option<i32> {
        self.source.as_ref().and_then(io::Error::raw_os_error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(source) = &self.source {
            write!(f, ": {}", cause(source))?;
        }
        match (self.errno(), &self.remedy) {
            // The process has no file descriptors left, so only this remedy helps, whichever
            // operation failed.
            (Some(libc::EMFILE | libc::ENFILE), _) => {
                f.write_str("; raise the limit on open files (ulimit -n)")
            }
            (_, Some(remedy)) => write!(f, "; {remedy}"),
            (_, None) => Ok(()),
        }
    }
}

/// Returns the text of an error in lower case and without Rust's suffix, for example `no space left
/// on device` instead of `No space left on device (os error 28)`.
pub fn cause(source: &io::Error) -> String {
    // The block layer uses these error numbers for errors that their standard texts do not describe
    // (blk_errors in block/blk-core.c).
    let of_block_layer = match source.raw_os_error() {
        Some(libc::EILSEQ) => Some(
            "the checksum of a block is wrong, or the block was never written, or a name has \
             characters that the file system does not accept (EILSEQ)",
        ),
        Some(libc::ENODATA) => {
            Some("the drive reports a bad block (medium error), or there is no data (ENODATA)")
        }
        Some(libc::EREMOTEIO) => Some("the drive refused or failed the request (EREMOTEIO)"),
        Some(libc::ENOLINK) => Some("the connection to the drive was lost (ENOLINK)"),
        Some(libc::EBADE) => Some("another host has reserved the drive (EBADE)"),
        _ => None,
    };
    if let Some(text) = of_block_layer {
        return text.to_owned();
    }
    let text = source.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|s| s as &(dyn std::error::Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_checksum_is_not_called_a_wrong_character() {
        let text = cause(&io::Error::from_raw_os_error(libc::EILSEQ));
        assert!(text.contains("checksum of a block is wrong"), "{text}");
    }

    #[test]
    fn a_bad_block_is_called_so() {
        let text = cause(&io::Error::from_raw_os_error(libc::ENODATA));
        assert!(text.contains("bad block"), "{text}");
    }

    #[test]
    fn an_error_reads_as_what_cause_and_remedy() {
        let error = Error::io("writing /data/x", io::Error::from_raw_os_error(libc::ENOSPC))
            .with_remedy("free space or give a smaller `region_bytes`");
        assert_eq!(
            error.to_string(),
            "writing /data/x: no space left on device; free space or give a smaller `region_bytes`"
        );
        assert_eq!(error.kind(), ErrorKind::NoSpace);
    }

    #[test]
    fn too_many_open_files_has_one_remedy_whatever_was_attempted() {
        let source = || io::Error::from_raw_os_error(libc::EMFILE);
        for error in [Error::io("x", source()), Error::io("x", source()).with_remedy("pray")] {
            assert!(error.to_string().ends_with("; raise the limit on open files (ulimit -n)"));
        }
    }
}
