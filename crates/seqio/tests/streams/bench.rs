//! Test fixtures: options of readers and writers, file contents, and temporary directories on a
//! file system that usually supports direct I/O.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

use ioengine::fault::{Fault, FaultPlan, FaultRule};
use proptest::prelude::*;
use seqio::{Cache, EngineKind, Options, Reader};
use tempfile::TempDir;

const EINTR: i32 = 4;
const EAGAIN: i32 = 11;

/// Creates a temporary directory in Cargo's target directory, where direct I/O usually works.
pub fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Generates options that select different code paths.
pub fn way() -> impl Strategy<Value = Options> {
    let caches = prop::sample::select(vec![Cache::Auto, Cache::Direct, Cache::Buffered]);
    let engine_kinds = prop::sample::select(vec![
        None,
        Some(EngineKind::Sync),
        Some(EngineKind::Threads),
        Some(EngineKind::Libaio),
        Some(EngineKind::IoUring),
    ]);
    let sizes =
        prop::sample::select(vec![None, Some(4096), Some(12288), Some(65536), Some(1 << 20)]);
    let depths = prop::sample::select(vec![None, Some(1), Some(2), Some(5)]);
    (caches, engine_kinds, sizes, depths).prop_map(|(cache, engine_kind, size, depth)| {
        let mut options = Options::new().cache(cache);
        if let Some(engine_kind) = engine_kind.filter(|p| p.availability().available) {
            options = options.engine_kind(engine_kind);
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

/// Returns pseudo-random bytes.
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

/// Reads to the end of the file, block by block. Returns all bytes.
pub fn blocks(reader: &mut Reader) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(block) = reader.next_block()? {
        assert_eq!(block.offset(), all.len() as u64, "blocks are contiguous");
        assert!(!block.is_hole() || block.iter().all(|byte| *byte == 0), "a hole contains zeros");
        all.extend_from_slice(&block);
    }
    Ok(all)
}

/// Reads to the end of the file through [`Read`], in parts of up to `bytes` bytes. Returns all
/// bytes.
pub fn parts(reader: &mut Reader, bytes: usize) -> std::io::Result<Vec<u8>> {
    let (mut all, mut part) = (Vec::new(), vec![0; bytes]);
    loop {
        match reader.read(&mut part)? {
            0 => return Ok(all),
            read => all.extend_from_slice(&part[..read]),
        }
    }
}

/// Compares two long byte strings without printing them if they differ.
pub fn assert_same(found: &[u8], wanted: &[u8]) -> Result<(), TestCaseError> {
    let first = found.iter().zip(wanted).position(|(found, wanted)| found != wanted);
    prop_assert_eq!(first, None, "index of the first byte that differs");
    prop_assert_eq!(found.len(), wanted.len());
    Ok(())
}

/// A description of a test file with data and holes.
#[derive(Clone, Debug)]
pub struct Made {
    stretches: Vec<(bool, usize)>,
    seed: u64,
}

impl Made {
    /// Writes data and holes to `file`. Returns the contents.
    pub fn write(&self, file: &File) -> Vec<u8> {
        let mut all = Vec::new();
        for (hole, bytes) in &self.stretches {
            if *hole {
                all.resize(all.len() + bytes, 0);
            } else {
                let part = content(*bytes, self.seed + all.len() as u64);
                file.write_all_at(&part, all.len() as u64).unwrap();
                all.extend_from_slice(&part);
            }
        }
        file.set_len(all.len() as u64).unwrap();
        all
    }
}

/// Generates descriptions of files of different sizes, with and without holes.
pub fn made() -> impl Strategy<Value = Made> {
    let size = prop_oneof![
        1 => 0..3_usize,
        2 => 0..20_000_usize,
        3 => 0..400_000_usize,
        1 => (0..40_usize).prop_map(|pages| pages * 65536),
        1 => 1_000_000..2_500_000_usize,
    ];
    let stretch = (prop::bool::weighted(0.3), size);
    (prop::collection::vec(stretch, 0..4), any::<u64>())
        .prop_map(|(stretches, seed)| Made { stretches, seed: seed >> 8 })
}

/// Generates faults that the library must hide from its caller.
pub fn harmless() -> impl Strategy<Value = FaultPlan> {
    let fault = prop_oneof![
        (1..70_000_u32).prop_map(Fault::Short),
        prop::sample::select(vec![EINTR, EAGAIN]).prop_map(Fault::Errno),
        Just(Fault::Late(2)),
    ];
    let rule = (fault, 0..12_u64, 1..4_u64).prop_map(|(fault, first, count)| FaultRule {
        fault,
        only: None,
        first,
        count,
    });
    let rules = prop::collection::vec(rule, 0..4);
    prop::option::weighted(0.5, rules)
        .prop_map(|rules| FaultPlan { rules: rules.unwrap_or_default() })
}
