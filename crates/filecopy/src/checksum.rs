//! Computes BLAKE3 checksums on all CPUs.
//!
//! BLAKE3 is a tree hash, so several threads can hash different pieces of a file. Pieces in the
//! page cache are hashed through a memory mapping, without a copy. Other data are read in blocks:
//! while all threads hash a block, the next blocks are read.

use std::fs::File;
use std::io;

use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root,
};
use blake3::{Hash, Hasher};
use ioengine::mapped::MappedFile;
use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};
use rayon::slice::ParallelSlice;

use crate::problem::Problem;
use crate::stream::Input;

/// Size of a piece that one thread hashes (bytes). The hash tree requires a power of two.
const PART_BYTES: usize = 512 << 10;
/// Number of pieces to hash from the page cache between two calls of the progress callback.
const PARTS_AT_ONCE: u64 = 256;
/// Pieces are hashed through a memory mapping if at least this share of their pages (7 of 8) is in
/// the page cache. Page faults read the rest.
const RESIDENT_SHARE: (u64, u64) = (7, 8);

/// Computes the BLAKE3 checksum from the current position of an input to its end. Returns the
/// checksum and the number of hashed bytes. `watch` is called repeatedly with the number of bytes
/// hashed so far.
///
/// # Errors
/// A read error, with the name of the input and the offset.
pub fn checksum(input: &mut Input, mut watch: impl FnMut(u64)) -> Result<(Hash, u64), Problem> {
    let mut tree = Tree::default();
    let begin = input.reader().position();
    let is_from_its_start = begin == 0 && !input.plan().direct;
    if is_from_its_start
        && let Ok(size) = input.reader().size()
        && size >= PART_BYTES as u64
    {
        let file = input.reader().get_ref();
        let mapped = MappedFile::new(file, size, false).ok();
        while let Some(parts) =
            mapped.as_ref().and_then(|mapped| cached_parts(file, mapped, tree.parts))
        {
            parts.into_iter().for_each(|part| tree.push(&part));
            watch(tree.bytes());
        }
        let seek = io::Seek::seek(input.reader_mut(), io::SeekFrom::Start(tree.bytes()));
        seek.map_err(|error| input.failed(&error))?;
    }
    while let Some(block) = input.next_block()? {
        tree.update(&block);
        watch(tree.bytes());
    }
    let bytes = tree.bytes();
    Ok((tree.finish(), bytes))
}

/// Hashes pieces of the memory mapping, beginning with the piece number `first`. None if too few
/// pages of the pieces are in the page cache, or if a piece cannot be read.
fn cached_parts(file: &File, mapped: &MappedFile, first: u64) -> Option<Vec<Part>> {
    let last = (mapped.length() / PART_BYTES as u64).min(first + PARTS_AT_ONCE);
    let (at, length) = (first * PART_BYTES as u64, (last - first) * PART_BYTES as u64);
    let resident = ioengine::open_file::resident_bytes_of_part(file, at, length).ok()?;
    if length == 0 || resident < length / RESIDENT_SHARE.1 * RESIDENT_SHARE.0 {
        return None;
    }
    let hash = |index: u64| {
        let at = index * PART_BYTES as u64;
        mapped.lend(at, PART_BYTES, |data| Part::of(data, index)).ok()
    };
    let numbers: Vec<u64> = (first..last).collect();
    // Each thread takes one piece at a time, so that all threads finish at about the same time.
    numbers.into_par_iter().with_max_len(1).map(hash).collect()
}

/// The hash of a piece of a file.
struct Part {
    value: ChainingValue,
    /// The hash of a file that consists of this piece only. None unless this is the first piece.
    alone: Option<Hash>,
}

impl Part {
    fn of(data: &[u8], index: u64) -> Part {
        let mut hasher = Hasher::new();
        hasher.set_input_offset(index * PART_BYTES as u64).update(data);
        let alone = (index == 0).then(|| Hasher::new().update(data).finalize());
        Part { value: hasher.finalize_non_root(), alone }
    }
}

/// The hash tree of the data added so far. Only the hashes of complete subtrees are kept, from left
/// to right.
#[derive(Default)]
struct Tree {
    subtrees: Vec<ChainingValue>,
    parts: u64,
    alone: Option<Hash>,
    /// The bytes after the last complete piece.
    partial: Vec<u8>,
}

impl Tree {
    fn bytes(&self) -> u64 {
        self.parts * PART_BYTES as u64 + self.partial.len() as u64
    }

    /// Adds the next bytes of the content.
    fn update(&mut self, data: &[u8]) {
        let mut data = data;
        if !self.partial.is_empty() {
            let missing = (PART_BYTES - self.partial.len()).min(data.len());
            self.partial.extend_from_slice(&data[..missing]);
            data = &data[missing..];
            if self.partial.len() < PART_BYTES {
                return;
            }
            self.push(&Part::of(&self.partial, self.parts));
            self.partial.clear();
        }
        let parts = data.par_chunks_exact(PART_BYTES);
        self.partial.extend_from_slice(parts.remainder());
        let first = self.parts;
        let parts: Vec<Part> = match data.len() / PART_BYTES {
            // For a single piece, more threads would not help.
            0 | 1 => data.chunks_exact(PART_BYTES).map(|part| Part::of(part, first)).collect(),
            _ => {
                let hash = |(index, part)| Part::of(part, first + index as u64);
                parts.enumerate().map(hash).collect()
            }
        };
        parts.into_iter().for_each(|part| self.push(&part));
    }

    fn push(&mut self, part: &Part) {
        self.join_complete();
        self.subtrees.push(part.value);
        self.alone = part.alone.filter(|_| self.parts == 0).or(self.alone);
        self.parts += 1;
    }

    /// Joins complete subtrees of equal size. Must be called only if more data follow, because the
    /// root of the tree is hashed differently.
    fn join_complete(&mut self) {
        while self.subtrees.len() > self.parts.count_ones() as usize {
            let right = self.subtrees.pop();
            if let (Some(left), Some(right)) = (self.subtrees.pop(), right) {
                self.subtrees.push(merge_subtrees_non_root(&left, &right, Mode::Hash));
            }
        }
    }

    fn finish(mut self) -> Hash {
        match (self.parts, self.partial.is_empty(), self.alone) {
            (0, ..) => return blake3::hash(&self.partial),
            (1, true, Some(hash)) => return hash,
            _ => {}
        }
        if !self.partial.is_empty() {
            self.join_complete();
            self.subtrees.push(Part::of(&self.partial, self.parts).value);
        }
        let mut right = self.subtrees.pop().unwrap_or_default();
        while self.subtrees.len() > 1 {
            let left = self.subtrees.pop().unwrap_or_default();
            right = merge_subtrees_non_root(&left, &right, Mode::Hash);
        }
        merge_subtrees_root(&self.subtrees[0], &right, Mode::Hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use seqio::{Cache, Options};

    fn content(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|index| (index / 1000 + index) as u8).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn the_hash_is_that_of_the_blake3_library_however_the_bytes_are_split(
            parts in 0..20_usize, more in prop_oneof![Just(0), Just(1), 0..PART_BYTES],
            cut in prop_oneof![1000..5000_usize, Just(PART_BYTES), 1..4_000_000_usize],
        ) {
            let data = content(parts * PART_BYTES + more);
            let mut tree = Tree::default();
            data.chunks(cut).for_each(|piece| tree.update(piece));
            prop_assert_eq!(tree.bytes(), data.len() as u64);
            prop_assert_eq!(tree.finish(), blake3::hash(&data));
        }
    }

    #[test]
    fn cached_and_uncached_files_have_the_hash_of_the_blake3_library() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        for bytes in [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 70 * PART_BYTES + 77] {
            let data = content(bytes);
            std::fs::write(&path, &data).unwrap();
            for cache in [Cache::Buffered, Cache::Direct] {
                let mut input = Input::open(&path, &Options::new().cache(cache)).unwrap();
                let mut seen = 0;
                let (hash, read) = checksum(&mut input, |bytes| seen = bytes).unwrap();
                assert_eq!((hash, read), (blake3::hash(&data), bytes as u64), "{cache:?}");
                assert_eq!(seen, read);
            }
        }
    }
}
