//! Records the blocks that verified writes have written, so that reads verify exactly these blocks.
//!
//! Each trial stores its own seed in the blocks that it writes. There is a bitmap for every target
//! and seed, with one bit per block. Memory is allocated only for the parts of a bitmap in which a
//! block was written.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Number of bits in a page of a bitmap. A page is allocated when its first bit is set.
const PAGE_BITS: u64 = 1 << 18;
const WORD_BITS: u64 = u64::BITS as u64;
const WORDS: usize = (PAGE_BITS / WORD_BITS) as usize;

type Page = OnceLock<Box<[AtomicU64]>>;

/// Record of the blocks that all trials of a run have written.
#[derive(Debug)]
pub struct Written {
    block_bytes: u64,
    /// Offset of the first block (bytes).
    begin: u64,
    blocks: u64,
    maps: Mutex<Vec<Map>>,
}

#[derive(Clone, Debug)]
struct Map {
    target: usize,
    seed: u64,
    pages: Arc<[Page]>,
}

/// The content that a verified read must find in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The block was not written and may have any content.
    Nothing,
    /// The block must come from a verified write with any seed.
    Sealed,
    /// The block must come from a verified write with this seed.
    SealedWith(u64),
}

impl Written {
    /// Creates an empty record of the blocks in `region` (byte offsets, the same for all targets).
    pub fn new(block_bytes: u64, region: std::ops::Range<u64>) -> Written {
        let blocks = (region.end - region.start).div_ceil(block_bytes);
        Written { block_bytes, begin: region.start, blocks, maps: Mutex::default() }
    }

    fn maps(&self) -> MutexGuard<'_, Vec<Map>> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a marker for a worker that writes blocks with `seed` to a target.
    pub(crate) fn marker(&self, target: usize, seed: u64) -> Marker {
        let mut maps = self.maps();
        let known = maps.iter().find(|map| (map.target, map.seed) == (target, seed)).cloned();
        let map = known.unwrap_or_else(|| {
            let pages = (0..self.blocks.div_ceil(PAGE_BITS)).map(|_| Page::new()).collect();
            maps.push(Map { target, seed, pages });
            maps[maps.len() - 1].clone()
        });
        Marker { block_bytes: self.block_bytes, begin: self.begin, map }
    }

    /// Returns the expected contents of a target's blocks, for a worker that reads them back.
    pub(crate) fn expectations(&self, target: usize) -> Expectations {
        let of_target = self.maps().iter().filter(|map| map.target == target).cloned().collect();
        Expectations { block_bytes: self.block_bytes, begin: self.begin, maps: of_target }
    }

    /// Forgets all blocks. Called after the files were emptied.
    pub fn clear(&self) {
        self.maps().clear();
    }

    /// Returns the end offset of the last written block on any target (bytes), or 0 if no block was
    /// written.
    pub fn end_of_last_block(&self) -> u64 {
        let last =
            |map: &Map| map.last().map_or(0, |block| self.begin + (block + 1) * self.block_bytes);
        self.maps().iter().map(last).max().unwrap_or(0)
    }
}

/// Two records are equal only if they are the same object in memory.
impl PartialEq for Written {
    fn eq(&self, other: &Written) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Map {
    fn set(&self, block: u64) {
        let Some(page) = self.pages.get((block / PAGE_BITS) as usize) else { return };
        let words = page.get_or_init(|| (0..WORDS).map(|_| AtomicU64::new(0)).collect());
        let bit = block % PAGE_BITS;
        words[(bit / WORD_BITS) as usize].fetch_or(1 << (bit % WORD_BITS), Ordering::Relaxed);
    }

    fn has(&self, block: u64) -> bool {
        let page = self.pages.get((block / PAGE_BITS) as usize).and_then(OnceLock::get);
        let bit = block % PAGE_BITS;
        page.is_some_and(|words| {
            let word = words[(bit / WORD_BITS) as usize].load(Ordering::Relaxed);
            word & (1 << (bit % WORD_BITS)) != 0
        })
    }

    fn last(&self) -> Option<u64> {
        let (number, words) =
            self.pages.iter().enumerate().rev().find_map(|(n, page)| Some((n, page.get()?)))?;
        let is_set = |word: &AtomicU64| word.load(Ordering::Relaxed) != 0;
        let index = words.iter().rposition(is_set)?;
        let highest =
            WORD_BITS - 1 - u64::from(words[index].load(Ordering::Relaxed).leading_zeros());
        Some(number as u64 * PAGE_BITS + index as u64 * WORD_BITS + highest)
    }
}

/// Marks the blocks that a worker has written.
#[derive(Clone, Debug)]
pub(crate) struct Marker {
    block_bytes: u64,
    begin: u64,
    map: Map,
}

impl Marker {
    /// Marks the blocks of a completed write.
    pub fn mark(&self, offset: u64, length: u64) {
        let first = (offset - self.begin) / self.block_bytes;
        (first..first + length / self.block_bytes).for_each(|block| self.map.set(block));
    }
}

/// The expected contents of a target's blocks.
#[derive(Clone, Debug)]
pub(crate) struct Expectations {
    block_bytes: u64,
    begin: u64,
    /// The bitmaps of the trials, in the order of the trials. A block has the seed of the last
    /// trial that wrote it.
    maps: Vec<Map>,
}

impl Expectations {
    /// Returns the expected content of the block at an offset.
    pub fn of(&self, offset: u64) -> Expected {
        let block = (offset - self.begin) / self.block_bytes;
        let last = self.maps.iter().rev().find(|map| map.has(block));
        last.map_or(Expected::Nothing, |map| Expected::SealedWith(map.seed))
    }

    /// Returns true if any block of a request was written.
    pub fn any(&self, offset: u64, length: u64) -> bool {
        let first = (offset - self.begin) / self.block_bytes;
        (first..first + length / self.block_bytes)
            .any(|block| self.maps.iter().any(|map| map.has(block)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn exactly_the_written_blocks_are_expected_with_the_seed_of_the_last_trial(
            writes in prop::collection::vec(
                (0..2_usize, 0..3_u64, 0..300_000_u64, 1..40_u64), 0..20),
            looks in prop::collection::vec(0..300_100_u64, 1..50),
        ) {
            let (block, begin, blocks) = (512, 100, 300_100);
            let written = Written::new(block, begin..begin + blocks * block);
            let mut model: HashMap<(usize, u64), u64> = HashMap::new();
            let mut by_trial = writes.clone();
            by_trial.sort_by_key(|(_, seed, ..)| *seed);
            for (target, seed, first, count) in by_trial {
                written.marker(target, seed).mark(begin + first * block, count * block);
                model.extend((first..first + count).map(|at| ((target, at), seed)));
            }
            let touched = writes.iter().flat_map(|(_, _, first, count)| *first..first + count);
            for at in looks.into_iter().chain(touched) {
                for target in 0..2 {
                    let expected = model
                        .get(&(target, at))
                        .map_or(Expected::Nothing, |seed| Expected::SealedWith(*seed));
                    let expectations = written.expectations(target);
                    prop_assert_eq!(expectations.of(begin + at * block), expected);
                    let is_written = expected != Expected::Nothing;
                    prop_assert_eq!(expectations.any(begin + at * block, block), is_written);
                }
            }
            let last = model.keys().map(|(_, at)| begin + (at + 1) * block).max().unwrap_or(0);
            prop_assert_eq!(written.end_of_last_block(), last);
        }
    }
}
