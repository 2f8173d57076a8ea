//! Queries about open files, for programs that open their files themselves.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::sys;
use crate::target::Alignment;

/// The alignment of direct requests to a file, independent of its open flags. None if the file
/// system has no direct I/O, or the kernel does not report it (before Linux 6.1).
pub fn direct_alignment(file: &File) -> Option<Alignment> {
    let (memory_bytes, offset_bytes) = sys::direct_alignment(file)?;
    (offset_bytes > 0).then_some(Alignment { memory_bytes, offset_bytes })
}

/// Opens a handle (O_PATH) of the file at a path below an open folder. The kernel refuses a path
/// that leaves the folder or leads through a symbolic link. Opening the handle has no side effects,
/// so its metadata can be checked before anything is read.
///
/// # Errors
/// The system call's error: EXDEV for a path that leaves the folder, ELOOP for a symbolic link,
/// ENOSYS before Linux 5.6.
pub fn open_beneath(folder: &File, path: &Path) -> io::Result<File> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    Ok(File::from(sys::open_beneath(folder, &path)?))
}

/// How much of a file is in the page cache (bytes).
///
/// # Errors
/// If the kernel refuses: only the owner and users with write access may ask (mincore(2)).
pub fn resident_bytes(file: &File) -> io::Result<u64> {
    sys::resident_bytes(file, sys::size_bytes(file)?)
}

/// Bytes of a range of an open file that are in the page cache.
///
/// # Errors
/// The system call's error. The call always fails before Linux 6.5, which introduced cachestat(2).
pub fn resident_bytes_of_part(file: &File, offset: u64, length: u64) -> io::Result<u64> {
    sys::resident_bytes_of_part(file, offset, length)
}

/// Number of positions at which a large file is sampled. Counting the pages of the whole file would
/// take milliseconds per GiB.
const SAMPLES: u64 = 64;
/// Bytes sampled at each position.
const SAMPLE_BYTES: u64 = 1 << 20;

/// Estimates how much of a file of `size_bytes` is in the page cache (bytes). Small files are
/// counted exactly; large files are sampled at regular distances.
///
/// # Errors
/// As [`resident_bytes`].
pub fn about_resident_bytes(file: &File, size_bytes: u64) -> io::Result<u64> {
    if size_bytes <= 2 * SAMPLES * SAMPLE_BYTES {
        return sys::resident_bytes(file, size_bytes);
    }
    let mut resident = 0;
    for sample in 0..SAMPLES {
        let offset = size_bytes / SAMPLES * sample / SAMPLE_BYTES * SAMPLE_BYTES;
        match sys::resident_bytes_of_part(file, offset, SAMPLE_BYTES) {
            Ok(bytes) => resident += bytes,
            // No cachestat(2) in this kernel: count the whole file.
            Err(_) => return sys::resident_bytes(file, size_bytes),
        }
    }
    let share = resident as f64 / (SAMPLES * SAMPLE_BYTES) as f64;
    Ok((size_bytes as f64 * share) as u64)
}

/// The size of a file or block device (bytes).
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
        assert_eq!(resident_bytes(&file).unwrap(), 12_288, "in whole pages");
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
