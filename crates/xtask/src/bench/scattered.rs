//! Fragments free memory, to imitate a machine that has been up for days.
//!
//! A request has one memory segment for each sequence of physically contiguous pages, and a device
//! accepts a limited number of segments per request (virtio: 254). On a freshly booted machine,
//! neighbouring pages of a buffer are often physically contiguous, so segments are large even
//! without huge pages. After days of use, only huge pages give large segments.

use anyhow::{Context, Result};
use nix::fcntl::{FallocateFlags, fallocate};
use std::fs::File;
use std::io::Write;

/// Mount point of a tmpfs, which uses 4 KiB pages by default.
const MEMORY: &str = "/dev/shm";
/// Amount of memory to allocate (bytes). Every second page is freed again. The freed half is far
/// more memory than a benchmark uses.
const BYTES: u64 = 1 << 30;
const PAGE_BYTES: u64 = 4096;

/// Fills a file in memory and frees every second page of the file. The freed pages are not
/// contiguous until the returned file is dropped, which also frees the other pages.
pub fn memory() -> Result<File> {
    every_other_page(BYTES)
}

fn every_other_page(bytes: u64) -> Result<File> {
    let in_memory = || format!("cannot allocate {} MiB in {MEMORY}", bytes >> 20);
    let mut pages = tempfile::tempfile_in(MEMORY).with_context(in_memory)?;
    let piece = vec![1; 1 << 20];
    for _ in 0..bytes >> 20 {
        pages.write_all(&piece).with_context(in_memory)?;
    }
    let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    for at in (0..bytes).step_by(2 * PAGE_BYTES as usize) {
        fallocate(&pages, punch, at as i64, PAGE_BYTES as i64).with_context(in_memory)?;
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn every_other_page_is_free_again() {
        let Ok(pages) = every_other_page(4 << 20) else {
            eprintln!("skipped: nothing can be written to {MEMORY}");
            return;
        };
        let metadata = pages.metadata().unwrap();
        assert_eq!((metadata.len(), metadata.blocks() * 512), (4 << 20, 2 << 20));
    }
}
