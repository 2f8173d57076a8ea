//! Measures how fast this host copies memory. This rate is the first rung of the bottleneck ladder,
//! which lists the components between memory and device.
//!
//! One thread copies between two buffers far larger than the caches. Each copied byte counts once,
//! as usual for `memcpy`, although it is read and written. The result is the rate of the fastest
//! pass, because any disturbance slows a copy. The buffers have the system's default page size.

use ioengine::{Clock, Monotonic};
use lab::memory_limit;
use memspeed::{Case, Isa, Kernel, Pages, Plan, World};

/// Total size of both buffers (bytes).
const SET_BYTES: usize = 128 << 20;
const PASSES: usize = 5;
/// Minimum total size of both buffers if a memory limit leaves less than `SET_BYTES` (bytes).
/// Smaller buffers would fit into caches.
const SET_BYTES_MIN: usize = 48 << 20;

/// Measures how many bytes per second one thread copies. None if there is too little memory.
pub fn copy_bytes_per_s(clock: Monotonic) -> Option<f64> {
    let limit = memory_limit::narrowest().map_or(u64::MAX, |limit| limit.bytes / 2);
    let set_bytes = SET_BYTES.min(usize::try_from(limit).unwrap_or(usize::MAX)) >> 20 << 20;
    if set_bytes < SET_BYTES_MIN {
        return None;
    }
    let cases = [Case { kernel: Kernel::Copy, set_bytes }];
    let plan = Plan {
        cases: &cases,
        threads: 1,
        isa: Isa::detect(),
        pages: Pages::System,
        offset_bytes: 0,
        repeats: PASSES,
        sample_ns: 1,
    };
    let world = World { now_ns: &|| clock.now_ns(), pin: &|_| (), stop: &|| false };
    let readings = memspeed::measure(&plan, &world).ok()?;
    readings.first()?.once_bytes_per_s.iter().copied().reduce(f64::max)
}
