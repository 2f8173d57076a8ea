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

/// How much of a part of an open file is in the page cache (bytes).
///
/// # Errors
/// What the system says; before Linux 6.5 it cannot say it (cachestat(2)).
pub fn resident_bytes_of_part(file: &File, offset: u64, length: u64) -> io::Result<u64> {
    sys::resident_bytes_of_part(file, offset, length)
}

/// At how many places a large file is looked at, and how much of it at each (bytes): counting the
/// pages of a whole one takes milliseconds for each GiB.
const LOOKS: u64 = 64;
const LOOK_BYTES: u64 = 1 << 20;

/// About how much of a file of so many bytes is in the page cache (bytes): exactly where the file
/// is small, else by looking at places all over it.
///
/// # Errors
/// As [`resident_bytes`].
pub fn about_resident_bytes(file: &File, size_bytes: u64) -> io::Result<u64> {
    if size_bytes <= 2 * LOOKS * LOOK_BYTES {
        return sys::resident_bytes(file, size_bytes);
    }
    let mut resident = 0;
    for look in 0..LOOKS {
        let offset = size_bytes / LOOKS * look / LOOK_BYTES * LOOK_BYTES;
        match sys::resident_bytes_of_part(file, offset, LOOK_BYTES) {
            Ok(bytes) => resident += bytes,
            // A kernel that does not tell of parts.
            Err(_) => return sys::resident_bytes(file, size_bytes),
        }
    }
    let share = resident as f64 / (LOOKS * LOOK_BYTES) as f64;
    Ok((size_bytes as f64 * share) as u64)
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
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_file_that_was_just_written_is_resident_and_as_large_as_it_is() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 10_000]).unwrap();
        assert_eq!(size_bytes(&file).unwrap(), 10_000);
        assert_eq!(resident_bytes(&file).unwrap(), 12_288, "in whole pages");
        assert_eq!(about_resident_bytes(&file, 10_000).unwrap(), 12_288);
        let alignment = direct_alignment(&file);
        assert!(alignment.is_none_or(|a| a.offset_bytes.is_power_of_two()), "{alignment:?}");
    }

    #[test]
    fn a_large_file_is_looked_at_in_places() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 30).unwrap();
        assert_eq!(about_resident_bytes(&file, 1 << 30).unwrap(), 0);
        let look = vec![1; LOOK_BYTES as usize];
        for place in [5, 40] {
            file.write_all_at(&look, (16 << 20) * place).unwrap();
        }
        assert_eq!(about_resident_bytes(&file, 1 << 30).unwrap(), (1 << 30) / LOOKS * 2);
    }
}
