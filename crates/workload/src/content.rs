//! Generates the content of written blocks, and verifies blocks that are read back.
//!
//! The buffer of each slot is filled with random bytes once. Before each write, the offset and a
//! write counter are stored at the start of every 4 KiB of the request. No two written blocks are
//! equal, so a device gains nothing from compression or deduplication.
//!
//! A verified block has a header (magic number, length, offset, seed and write counter) and a
//! CRC-32 of the whole block. Verification finds blocks that were never written, blocks that were
//! written to a wrong offset, and blocks that were changed.

use crate::random::Stream;
use crate::written::Expected;

/// Size of the blocks that [`stamp`] makes unique, and maximum size of verified blocks (bytes).
pub const BLOCK_BYTES: usize = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"halfpowr");
const HEADER_BYTES: usize = 40;

/// Returns the size of verified blocks for a request size: the largest power of two that divides
/// the request size, at most [`BLOCK_BYTES`]. None if this is less than 64 bytes.
pub fn block_bytes(request_bytes: u32) -> Option<usize> {
    let largest = 1_usize << request_bytes.trailing_zeros().min(BLOCK_BYTES.trailing_zeros());
    (largest >= 64).then_some(largest)
}

/// Fills memory with random bytes.
pub fn fill(memory: &mut [u8], seed: u64) {
    let mut stream = Stream::new(seed);
    for chunk in memory.chunks_mut(8) {
        chunk.copy_from_slice(&stream.next_u64().to_le_bytes()[..chunk.len()]);
    }
}

/// Writes the offset and the write counter `number` to the start of every 4 KiB of a request, so
/// that all written blocks differ.
#[inline]
pub fn stamp(memory: &mut [u8], offset: u64, number: u64) {
    let mut at = offset;
    for block in memory.chunks_mut(BLOCK_BYTES) {
        if let Some(head) = block.first_chunk_mut::<16>() {
            head[..8].copy_from_slice(&at.to_le_bytes());
            head[8..].copy_from_slice(&number.to_le_bytes());
        }
        at += BLOCK_BYTES as u64;
    }
}

/// Writes a header and a checksum into each block of a request's buffer, so that [`check`] can
/// verify the blocks.
pub fn seal(memory: &mut [u8], block_bytes: usize, offset: u64, seed: u64, number: u64) {
    let mut at = offset;
    for block in memory.chunks_exact_mut(block_bytes) {
        let fields = [MAGIC, block_bytes as u64, at, seed, number];
        for (place, field) in block.chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        // The checksum is stored in the upper 32 bits of the length field, and is computed with
        // these bits set to 0.
        block[12..16].fill(0);
        let sum = crc32fast::hash(block);
        block[12..16].copy_from_slice(&sum.to_le_bytes());
        at += block_bytes as u64;
    }
}

/// The kind of damage that was found in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Damage {
    /// The block has no valid header: no verified block was ever written at this offset, or the
    /// header was destroyed.
    NotSealed,
    /// The block is valid, but was written for another offset.
    Astray {
        /// The offset for which the block was written (bytes).
        belongs_at: u64,
    },
    /// The content does not match the checksum.
    Corrupt,
    /// The block is valid but old: a later write to this offset was lost.
    Stale,
}

/// A damaged block and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Mismatch {
    /// Offset of the block in the target (bytes).
    pub offset: u64,
    /// The kind of damage.
    pub damage: Damage,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let offset = self.offset;
        match self.damage {
            Damage::NotSealed => write!(f, "there is no verified block at offset {offset}"),
            Damage::Astray { belongs_at } => {
                write!(f, "the block at offset {offset} was written for offset {belongs_at}")
            }
            Damage::Corrupt => write!(f, "the block at offset {offset} is corrupt"),
            Damage::Stale => write!(
                f,
                "the block at offset {offset} is stale: a later write to \
                this block was lost"
            ),
        }
    }
}

/// The result of checking blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Number of checked blocks.
    pub blocks: u64,
    /// Number of damaged blocks.
    pub damaged: u64,
    /// The first damaged block. None if no block is damaged.
    pub first: Option<Mismatch>,
}

/// Checks the blocks in a request's buffer. `expected` returns what the block at an offset must
/// contain. A valid block whose seed differs from the expected seed is stale.
pub fn check(
    memory: &mut [u8],
    block_bytes: usize,
    offset: u64,
    expected: impl Fn(u64) -> Expected,
) -> Checked {
    let (mut checked, mut at) = (Checked::default(), offset);
    for block in memory.chunks_exact_mut(block_bytes) {
        let seed = match expected(at) {
            Expected::Nothing => None,
            Expected::Sealed => Some(None),
            Expected::SealedWith(seed) => Some(Some(seed)),
        };
        if let Some(seed) = seed {
            checked.blocks += 1;
            if let Some(damage) = damage(block, at, seed) {
                checked.damaged += 1;
                checked.first = checked.first.or(Some(Mismatch { offset: at, damage }));
            }
        }
        at += block_bytes as u64;
    }
    checked
}

fn damage(block: &mut [u8], offset: u64, seed: Option<u64>) -> Option<Damage> {
    let word = |at: usize, block: &[u8]| {
        let bytes = block[at..at + 8].try_into().expect("eight bytes were cut out");
        u64::from_le_bytes(bytes)
    };
    debug_assert!(block.len() >= HEADER_BYTES);
    if word(0, block) != MAGIC {
        return Some(Damage::NotSealed);
    }
    let length_and_sum = word(8, block);
    let (length, sum) = (length_and_sum as u32, (length_and_sum >> 32) as u32);
    block[12..16].fill(0);
    let whole = length as usize == block.len() && crc32fast::hash(block) == sum;
    block[12..16].copy_from_slice(&sum.to_le_bytes());
    let belongs_at = word(16, block);
    match (whole, belongs_at == offset) {
        (true, true) if seed.is_some_and(|seed| seed != word(24, block)) => Some(Damage::Stale),
        (true, true) => None,
        (true, false) => Some(Damage::Astray { belongs_at }),
        (false, _) => Some(Damage::Corrupt),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sealed(offset: u64) -> Vec<u8> {
        let mut memory = vec![0; 16384];
        fill(&mut memory, 1);
        seal(&mut memory, BLOCK_BYTES, offset, 9, 3);
        memory
    }

    #[test]
    fn a_sealed_request_is_valid_only_at_its_offset_and_seed() {
        let mut memory = sealed(8192);
        let mut check = |offset, expected| {
            let checked = check(&mut memory, BLOCK_BYTES, offset, |_| expected);
            (checked.blocks, checked.damaged, checked.first.map(|first| first.damage))
        };
        assert_eq!(check(8192, Expected::SealedWith(9)), (4, 0, None));
        assert_eq!(check(8192, Expected::SealedWith(8)), (4, 4, Some(Damage::Stale)));
        let astray = Damage::Astray { belongs_at: 8192 };
        assert_eq!(check(0, Expected::Sealed), (4, 4, Some(astray)));
        assert_eq!(check(0, Expected::Nothing), (0, 0, None));
    }

    #[test]
    fn blocks_that_were_never_written_are_reported() {
        let checked = check(&mut vec![0; 8192], BLOCK_BYTES, 0, |_| Expected::Sealed);
        assert_eq!((checked.damaged, checked.first.unwrap().damage), (2, Damage::NotSealed));
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_found_in_its_block(bit in 0_usize..16384 * 8) {
            let mut memory = sealed(0);
            memory[bit / 8] ^= 1 << (bit % 8);
            let checked = check(&mut memory, BLOCK_BYTES, 0, |_| Expected::Sealed);
            prop_assert_eq!(checked.damaged, 1);
            let block = bit / 8 / BLOCK_BYTES * BLOCK_BYTES;
            prop_assert_eq!(checked.first.unwrap().offset, block as u64);
        }
    }

    #[test]
    fn stamps_differ_between_blocks_and_between_writes() {
        let mut one = vec![0; 8192];
        stamp(&mut one, 0, 1);
        assert_ne!(one[..4096], one[4096..]);
        let mut two = vec![0; 8192];
        stamp(&mut two, 0, 2);
        assert_ne!(one, two);
    }

    #[test]
    fn small_and_odd_request_sizes_get_smaller_blocks() {
        assert_eq!(block_bytes(1 << 20), Some(4096));
        assert_eq!(block_bytes(512), Some(512));
        assert_eq!(block_bytes(5 * 512), Some(512));
        assert_eq!(block_bytes(1000), None);
    }

    #[test]
    fn random_fill_does_not_compress_to_a_pattern() {
        let mut memory = vec![0_u8; 1 << 16];
        fill(&mut memory, 5);
        let ones: u32 = memory.iter().map(|byte| byte.count_ones()).sum();
        assert!(ones.abs_diff(1 << 18) < 4000, "{ones} of {} bits", 1 << 19);
    }
}
