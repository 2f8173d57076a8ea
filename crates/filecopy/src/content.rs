//! Computes a checksum of a file's content. Holes count as zeros, but are not read.
//!
//! The content is hashed in blocks. For consecutive blocks of zeros, only their number is hashed.
//! The checksum therefore does not depend on whether zeros are stored or are holes, and a hole of
//! terabytes is hashed at once.

const BLOCK_BYTES: usize = 64 << 10;
/// Prefix that is hashed before a block with data.
const DATA: [u8; 1] = [1];
/// Prefix that is hashed before the number of consecutive zero blocks.
const ZEROS: [u8; 1] = [0];

/// Computes the checksum of content that is added in order.
#[derive(Clone, Debug)]
pub(crate) struct ContentHasher {
    hasher: blake3::Hasher,
    /// The bytes after the last complete block.
    partial: Vec<u8>,
    zero_blocks: u64,
    bytes: u64,
}

impl ContentHasher {
    pub fn new() -> ContentHasher {
        ContentHasher {
            hasher: blake3::Hasher::new(),
            partial: Vec::with_capacity(BLOCK_BYTES),
            zero_blocks: 0,
            bytes: 0,
        }
    }

    /// Returns the number of bytes added so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn data(&mut self, data: &[u8]) {
        self.bytes += data.len() as u64;
        let mut data = data;
        if !self.partial.is_empty() {
            let missing = (BLOCK_BYTES - self.partial.len()).min(data.len());
            self.partial.extend_from_slice(&data[..missing]);
            data = &data[missing..];
            if self.partial.len() < BLOCK_BYTES {
                return;
            }
            let block = std::mem::take(&mut self.partial);
            self.block(&block);
            self.partial = block;
            self.partial.clear();
        }
        let mut blocks = data.chunks_exact(BLOCK_BYTES);
        for block in &mut blocks {
            self.block(block);
        }
        self.partial.extend_from_slice(blocks.remainder());
    }

    /// Adds `bytes` zeros.
    pub fn zeros(&mut self, bytes: u64) {
        let zeros = [0; 4096];
        let mut left = bytes;
        let missing = (BLOCK_BYTES - self.partial.len()) % BLOCK_BYTES;
        let mut first = (missing as u64).min(left);
        left -= first;
        while first > 0 {
            let part = first.min(zeros.len() as u64);
            self.data(&zeros[..part as usize]);
            first -= part;
        }
        let blocks = left / BLOCK_BYTES as u64;
        self.zero_blocks += blocks;
        self.bytes += blocks * BLOCK_BYTES as u64;
        let mut rest = left % BLOCK_BYTES as u64;
        while rest > 0 {
            let part = rest.min(zeros.len() as u64);
            self.data(&zeros[..part as usize]);
            rest -= part;
        }
    }

    fn block(&mut self, block: &[u8]) {
        if is_zeros(block) {
            self.zero_blocks += 1;
            return;
        }
        self.close_zeros();
        self.hasher.update(&DATA).update(block);
    }

    fn close_zeros(&mut self) {
        let blocks = std::mem::take(&mut self.zero_blocks);
        if blocks > 0 {
            self.hasher.update(&ZEROS).update(&blocks.to_le_bytes());
        }
    }

    pub fn finish(mut self) -> blake3::Hash {
        self.close_zeros();
        let partial = std::mem::take(&mut self.partial);
        self.hasher.update(&DATA).update(&partial).update(&self.bytes.to_le_bytes());
        self.hasher.finalize()
    }
}

fn is_zeros(block: &[u8]) -> bool {
    // The compiler can vectorise the inner loop, because it has no branches. In a block with data,
    // the outer loop usually ends after the first step.
    let mut steps = block.chunks(4096);
    steps.all(|step| step.iter().fold(0, |all, byte| all | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of_parts(parts: &[(bool, Vec<u8>, u64)], as_holes: bool) -> blake3::Hash {
        let mut hasher = ContentHasher::new();
        for (is_hole, data, zeros) in parts {
            match (is_hole, as_holes) {
                (true, true) => hasher.zeros(*zeros),
                (true, false) => hasher.data(&vec![0; *zeros as usize]),
                (false, _) => hasher.data(data),
            }
        }
        hasher.finish()
    }

    proptest! {
        #[test]
        fn holes_count_as_zeros_however_the_content_is_split(
            parts in prop::collection::vec(
                (any::<bool>(), prop::collection::vec(0..3_u8, 0..9000), 0..300_000_u64), 0..6),
            cut in 1..70_000_usize,
        ) {
            let whole: Vec<u8> = parts.iter().flat_map(|(is_hole, data, zeros)| {
                if *is_hole { vec![0; *zeros as usize] } else { data.clone() }
            }).collect();
            let mut pieces = ContentHasher::new();
            whole.chunks(cut).for_each(|piece| pieces.data(piece));
            prop_assert_eq!(pieces.bytes(), whole.len() as u64);
            let wanted = pieces.finish();
            prop_assert_eq!(of_parts(&parts, true), wanted);
            prop_assert_eq!(of_parts(&parts, false), wanted);
            let mut longer = ContentHasher::new();
            longer.data(&whole);
            longer.zeros(1);
            prop_assert_ne!(longer.finish(), wanted);
            if let Some(last) = whole.len().checked_sub(1) {
                let mut other = whole;
                other[last / 2] ^= 1;
                let mut changed = ContentHasher::new();
                changed.data(&other);
                prop_assert_ne!(changed.finish(), wanted);
            }
        }
    }

    #[test]
    fn terabytes_of_holes_take_no_time() {
        let sum = |bytes: u64| {
            let mut hasher = ContentHasher::new();
            hasher.data(b"x");
            hasher.zeros(bytes);
            hasher.finish()
        };
        assert_ne!(sum(1 << 60), sum((1 << 60) + (64 << 10)));
    }
}
