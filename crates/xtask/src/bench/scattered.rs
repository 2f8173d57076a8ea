//! Scattered memory, as on a machine that has been up for days.
//!
//! A request needs one segment per physically contiguous run of pages, and a device accepts a
//! limited number of segments (virtio: 254). On a freshly booted machine, neighbouring pages are
//! often contiguous, so a program gets large segments without huge pages; later it does not.

use anyhow::{Context, Result};
use nix::fcntl::{FallocateFlags, fallocate};
use std::fs::File;
use std::io::Write;

/// A file system in memory with 4 KiB pages by default (shmem).
const MEMORY: &str = "/dev/shm";
/// Memory to allocate (bytes). Half of it is freed again in single pages, which is far more than a
/// benchmark uses.
const BYTES: u64 = 1 << 30;
/// Size of a page (bytes).
const PAGE_BYTES: u64 = 4096;

/// Fills a file in memory and punches out every second page, so that free pages are not contiguous
/// until the file is dropped.
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
