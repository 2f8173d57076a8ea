//! What the system tells of a file that is open, for programs that open their files themselves.

use std::fs::File;
use std::io;

use crate::sys;
use crate::target::Alignment;

/// What direct requests to a file must be aligned to, whatever flags it is open with; None where
/// its file system offers no direct I/O, or does not tell (Linux before 6.1).
pub fn direct_alignment(file: &File) -> Option<Alignment> {
    let (memory_bytes, offset_bytes) = sys::direct_alignment(file)?;
    (offset_bytes > 0).then_some(Alignment { memory_bytes, offset_bytes })
}

/// How much of a file is in the page cache (bytes).
///
/// # Errors
/// Where the system does not tell: only a file's owner is told, and who may write it.
pub fn resident_bytes(file: &File) -> io::Result<u64> {
    sys::resident_bytes(file, sys::size_bytes(file)?)
}

/// The size of a file or block device (bytes).
///
/// # Errors
/// What the system says.
pub fn size_bytes(file: &File) -> io::Result<u64> {
    sys::size_bytes(file)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_that_was_just_written_is_resident_and_as_large_as_it_is() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 10_000]).unwrap();
        assert_eq!(size_bytes(&file).unwrap(), 10_000);
        assert_eq!(resident_bytes(&file).unwrap(), 12_288, "in whole pages");
        let alignment = direct_alignment(&file);
        assert!(alignment.is_none_or(|a| a.offset_bytes.is_power_of_two()), "{alignment:?}");
    }
}
