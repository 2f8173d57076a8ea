//! How fast this machine copies memory: the top of the ladder.
//!
//! A copy between two buffers far larger than the caches, one thread, the bytes counted once (as
//! `memcpy` is usually quoted; the traffic is twice that). The best of a few passes counts,
//! because everything that disturbs a copy makes it slower.

use ioengine::{Clock, Monotonic};

/// Size of each buffer (bytes).
const BUFFER_BYTES: usize = 64 << 20;
const PASSES: u32 = 5;

/// Bytes copied per second.
pub fn copy_bytes_per_s(clock: Monotonic) -> f64 {
    let from = vec![1_u8; BUFFER_BYTES];
    let mut to = vec![0_u8; BUFFER_BYTES];
    let mut best_ns = u64::MAX;
    for _ in 0..PASSES {
        let start = clock.now_ns();
        std::hint::black_box(&mut to).copy_from_slice(std::hint::black_box(&from));
        best_ns = best_ns.min(clock.now_ns() - start);
    }
    BUFFER_BYTES as f64 * 1e9 / best_ns.max(1) as f64
}
