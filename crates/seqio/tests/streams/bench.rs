//! What the tests are made of: ways through the kernel, contents, and folders on a file system with
//! direct I/O where there is one.

use std::io::Read;

use proptest::prelude::*;
use seqio::{Cache, Options, Personality, Reader};
use tempfile::TempDir;

/// A folder on the disk of the build, where direct I/O is real.
pub fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A way through the kernel.
pub fn way() -> impl Strategy<Value = Options> {
    let caches = prop::sample::select(vec![Cache::Auto, Cache::Direct, Cache::Buffered]);
    let personalities = prop::sample::select(vec![
        None,
        Some(Personality::Sync),
        Some(Personality::Threads),
        Some(Personality::Libaio),
        Some(Personality::IoUring),
    ]);
    let sizes =
        prop::sample::select(vec![None, Some(4096), Some(12288), Some(65536), Some(1 << 20)]);
    let depths = prop::sample::select(vec![None, Some(1), Some(2), Some(5)]);
    (caches, personalities, sizes, depths).prop_map(|(cache, personality, size, depth)| {
        let mut options = Options::new().cache(cache);
        if let Some(personality) = personality.filter(|p| p.availability().available) {
            options = options.personality(personality);
        }
        if let Some(size) = size {
            options = options.request_bytes(size);
        }
        if let Some(depth) = depth {
            options = options.depth(depth);
        }
        options
    })
}

/// Bytes that tell where they belong.
pub fn content(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut content = Vec::with_capacity(bytes + 8);
    while content.len() < bytes {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        content.extend_from_slice(&(state ^ (state >> 29)).to_le_bytes());
    }
    content.truncate(bytes);
    content
}

/// All that a reader gives, block by block.
pub fn blocks(reader: &mut Reader) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(block) = reader.next_block()? {
        assert_eq!(block.offset(), all.len() as u64, "blocks follow each other");
        assert!(!block.is_hole() || block.iter().all(|byte| *byte == 0), "a hole holds zeros");
        all.extend_from_slice(&block);
    }
    Ok(all)
}

/// All that a reader gives by [`Read`], in parts of so many bytes.
pub fn parts(reader: &mut Reader, bytes: usize) -> std::io::Result<Vec<u8>> {
    let (mut all, mut part) = (Vec::new(), vec![0; bytes]);
    loop {
        match reader.read(&mut part)? {
            0 => return Ok(all),
            read => all.extend_from_slice(&part[..read]),
        }
    }
}

/// Whether two long byte strings are the same, without printing them when they are not.
pub fn same(found: &[u8], wanted: &[u8]) -> Result<(), TestCaseError> {
    let first = found.iter().zip(wanted).position(|(found, wanted)| found != wanted);
    prop_assert_eq!(first, None, "the first byte that differs");
    prop_assert_eq!(found.len(), wanted.len());
    Ok(())
}
