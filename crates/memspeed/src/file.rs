//! An unnamed file in memory. It takes the role of the temporary file in the papers' memory test.

use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;

/// Creates an empty file on the kernel's internal tmpfs with memfd_create(2). The file is deleted
/// when it is closed.
///
/// # Errors
/// The kernel does not create the file, for example because too many files are open or because a
/// sandbox forbids it.
pub fn in_memory() -> io::Result<File> {
    // SAFETY: the name is a string that ends with a zero byte.
    let fd = unsafe { libc::memfd_create(c"halfpower".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, so nobody else owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn what_is_written_is_read_back() {
        let file = in_memory().unwrap();
        file.write_all_at(b"memory", 4096).unwrap();
        let mut back = [0; 6];
        file.read_exact_at(&mut back, 4096).unwrap();
        assert_eq!(&back, b"memory");
    }
}
