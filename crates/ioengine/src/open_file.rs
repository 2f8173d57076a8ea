//! Opens files below a directory, and queries open files: size, alignment for direct I/O, and
//! amount in the page cache.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::sys;
use crate::target::Alignment;

/// Returns the alignment that a file requires for direct I/O. The file need not be opened with
/// O_DIRECT. None if the file system does not support direct I/O, or if the kernel does not report
/// the alignment (before Linux 6.1).
pub fn direct_alignment(file: &File) -> Option<Alignment> {
    let (memory_bytes, offset_bytes) = sys::direct_alignment(file)?;
    (offset_bytes > 0).then_some(Alignment { memory_bytes, offset_bytes })
}

/// Opens a file below an open directory with O_PATH. The kernel refuses a path that leaves the
/// directory or contains a symbolic link. Opening with O_PATH has no side effects, so the caller
/// can check the metadata before anything is read.
///
/// # Errors
/// The system call's error: EXDEV for a path that leaves the directory, ELOOP for a symbolic link,
/// ENOSYS before Linux 5.6.
pub fn open_beneath(folder: &File, path: &Path) -> io::Result<File> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    Ok(File::from(sys::open_beneath(folder, &path)?))
}

/// Returns how much of a file is in the page cache (bytes). Uses cachestat(2), or mincore(2) on
/// kernels before 6.5.
///
/// # Errors
/// The system call's error. If the user neither owns the file nor may write to it, cachestat(2)
/// fails, but mincore(2) reports the whole file as resident.
pub fn resident_bytes(file: &File) -> io::Result<u64> {
    sys::resident_bytes(file, sys::size_bytes(file)?)
}

/// Returns how much of a range of a file is in the page cache (bytes).
///
/// # Errors
/// The system call's error. The call always fails before Linux 6.5, which introduced cachestat(2).
pub fn resident_bytes_of_part(file: &File, offset: u64, length: u64) -> io::Result<u64> {
    sys::resident_bytes_of_part(file, offset, length)
}

/// The number of positions at which a large file is sampled. Counting the pages of the whole file
/// would take milliseconds per GiB.
const SAMPLES: u64 = 64;
/// The number of bytes that are sampled at each position.
const SAMPLE_BYTES: u64 = 1 << 20;

/// Estimates how much of a file of `size_bytes` bytes is in the page cache (bytes). Counts all
/// pages of a file of up to 128 MiB. Samples a larger file at 64 evenly spaced positions.
///
/// # Errors
/// The same errors as for [`resident_bytes`].
pub fn about_resident_bytes(file: &File, size_bytes: u64) -> io::Result<u64> {
    if size_bytes <= 2 * SAMPLES * SAMPLE_BYTES {
        return sys::resident_bytes(file, size_bytes);
    }
    let mut resident = 0;
    for sample in 0..SAMPLES {
        let offset = size_bytes / SAMPLES * sample / SAMPLE_BYTES * SAMPLE_BYTES;
        match sys::resident_bytes_of_part(file, offset, SAMPLE_BYTES) {
            Ok(bytes) => resident += bytes,
            // This kernel does not support cachestat(2), so the whole file is counted.
            Err(_) => return sys::resident_bytes(file, size_bytes),
        }
    }
    let share = resident as f64 / (SAMPLES * SAMPLE_BYTES) as f64;
    Ok((size_bytes as f64 * share) as u64)
}

/// Returns the size of a file or block device (bytes).
///
/// # Errors
/// The system call's error.
pub fn size_bytes(file: &File) -> io::Result<u64> {
    sys::size_bytes(file)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_file_that_was_just_written_is_resident() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 10_000]).unwrap();
        assert_eq!(size_bytes(&file).unwrap(), 10_000);
        assert_eq!(resident_bytes(&file).unwrap(), 12_288, "the result is in whole pages");
        assert_eq!(about_resident_bytes(&file, 10_000).unwrap(), 12_288);
        let alignment = direct_alignment(&file);
        assert!(alignment.is_none_or(|a| a.offset_bytes.is_power_of_two()), "{alignment:?}");
    }

    #[test]
    fn a_large_file_is_sampled() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 30).unwrap();
        assert_eq!(about_resident_bytes(&file, 1 << 30).unwrap(), 0);
        let sample = vec![1; SAMPLE_BYTES as usize];
        for place in [5, 40] {
            file.write_all_at(&sample, (16 << 20) * place).unwrap();
        }
        assert_eq!(about_resident_bytes(&file, 1 << 30).unwrap(), (1 << 30) / SAMPLES * 2);
    }
}
