//! A sequential stream of offsets that several workers share (`placement` interlocked). Each
//! request takes the next offset, so that the workers together visit every block once per pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The position in a shared sequential stream: the offset of the next request. All clones of a
/// cursor share the position.
#[derive(Clone, Debug, Default)]
pub struct Cursor(Arc<AtomicU64>);

impl Cursor {
    /// Takes the next `length` bytes of a region and returns their offset within the region. At the
    /// end of the region, the cursor starts again at the beginning.
    #[inline(never)]
    pub fn take(&self, length: u64, region_bytes: u64) -> u64 {
        let offset_for = |at: u64| if at + length > region_bytes { 0 } else { at };
        // Relaxed ordering is enough, because the counter publishes no other data.
        let next = |at| Some(offset_for(at) + length);
        let (Ok(at) | Err(at)) = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        offset_for(at)
    }
}

/// Two cursors are equal if they belong to the same stream.
impl PartialEq for Cursor {
    fn eq(&self, other: &Cursor) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_together_take_every_block_once_in_each_pass() {
        let (cursor, blocks) = (Cursor::default(), 1000);
        let take = || (0..2 * blocks / 4).map(|_| cursor.take(8, 8 * blocks)).collect::<Vec<_>>();
        let mut taken: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        taken.sort_unstable();
        assert!(taken.into_iter().eq((0..2 * blocks).map(|n| n / 2 * 8)));
    }
}
