//! Errors: `std::io::Error`, so that the traits of the standard library can carry them, each with
//! the system's own kind and a sentence that names the file.

use std::fmt;
use std::io;
use std::path::Path;

/// A failure with what was attempted; its cause is the system's.
#[derive(Debug)]
struct Attempt {
    what: String,
    source: io::Error,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, ioengine::error::cause(&self.source))
    }
}

impl std::error::Error for Attempt {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// The same failure, saying what was attempted on which file.
pub(crate) fn on(doing: &str, path: &Path, source: io::Error) -> io::Error {
    let what = format!("{doing} {}", path.display());
    io::Error::new(source.kind(), Attempt { what, source })
}

/// What an engine could not do.
pub(crate) fn of_engine(error: ioengine::Error) -> io::Error {
    let kind = error.errno().map(io::Error::from_raw_os_error);
    io::Error::new(kind.map_or(io::ErrorKind::Other, |source| source.kind()), error)
}

/// The system's error number beneath an error of this crate, where a system call failed: what
/// [`std::io::Error::raw_os_error`] gives for errors without a sentence.
pub fn raw_os_error(error: &io::Error) -> Option<i32> {
    error.raw_os_error().or_else(|| {
        let inner = error.get_ref()?;
        match inner.downcast_ref::<Attempt>() {
            Some(attempt) => raw_os_error(&attempt.source),
            None => inner.downcast_ref::<ioengine::Error>()?.errno(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_file_and_keeps_kind_and_number() {
        let full = io::Error::from_raw_os_error(28);
        let error = on("writing", Path::new("/data/x"), full);
        assert_eq!(error.to_string(), "writing /data/x: no space left on device");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(raw_os_error(&error), Some(28));
        assert_eq!(raw_os_error(&io::Error::other("x")), None);
    }
}
