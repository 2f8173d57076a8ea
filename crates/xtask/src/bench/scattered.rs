//! Scattered memory, as on a machine that has been up for days.
//!
//! A request of 4 KiB pages is as many segments as its pages lie apart, and a device takes only so
//! many (virtio: 254). On a machine that just started neighbours follow each other, by luck, and a
//! program that never asks for huge pages gets them in effect; later it does not.

use anyhow::{Context, Result};
use nix::fcntl::{FallocateFlags, fallocate};
use std::fs::File;
use std::io::Write;

/// A file system in memory, of pages that are 4 KiB where nobody asked for others (shmem).
const MEMORY: &str = "/dev/shm";
/// Half of it is free afterwards, each page alone: far more than a benchmark takes (bytes).
const BYTES: u64 = 1 << 30;
const PAGE_BYTES: u64 = 4096;

/// Takes memory and gives every other page of it back: pages that are held by a file, so that their
/// neighbours are free and alone until it is dropped.
pub fn memory() -> Result<File> {
    every_other_page(BYTES)
}

fn every_other_page(bytes: u64) -> Result<File> {
    let in_memory = || format!("cannot set {} MiB of {MEMORY} aside", bytes >> 20);
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
