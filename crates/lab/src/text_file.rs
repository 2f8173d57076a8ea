//! Reads the small text files that users write: system files and price lists.
//!
//! Devices and pipes are refused, because reading them could block or never end. Very large files
//! are refused too.

use std::fs::File;
use std::io::{Error, ErrorKind, Read};
use std::path::Path;

use crate::failure::{Failure, Outcome};

/// Maximum size of a file (bytes). A larger file is probably not a system file or price list.
const BYTES_MAX: u64 = 1 << 20;

/// Reads the text of a file. Error messages contain `what`, the kind of file, and `example`, the
/// command that prints an example.
///
/// # Errors
/// A usage error if the file is missing, is not a regular file, is not text, or is too large.
pub fn read(path: &Path, what: &str, example: &str) -> Outcome<String> {
    let failed = |error: Error| {
        let (cause, path) = (ioengine::error::cause(&error), path.display());
        Failure::usage(format!("reading the {what} {path}: {cause}; specify a TOML file"))
    };
    // The type of the file is checked first, because opening a pipe would block.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(failed(ErrorKind::InvalidInput.into()));
    }
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(Failure::usage(format!(
            "{} is too large for a {what}; use a smaller file ({example} prints an example)",
            path.display()
        )));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_large_files_are_refused() {
        let refused = |path: &Path| read(path, "price list", "x").unwrap_err().message;
        assert!(refused(Path::new("/dev/zero")).contains("reading the price list /dev/zero"));
        let folder = tempfile::tempdir().unwrap();
        let large = folder.path().join("large");
        std::fs::write(&large, vec![b' '; BYTES_MAX as usize + 1]).unwrap();
        assert!(refused(&large).contains("too large for a price list"));
        std::fs::write(&large, "a = 1").unwrap();
        assert_eq!(read(&large, "price list", "x").unwrap(), "a = 1");
    }
}
