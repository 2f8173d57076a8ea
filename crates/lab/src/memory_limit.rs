//! Determines how much memory the buffers may use under the memory limits of this process.
//!
//! If an allocation exceeds the address-space limit, the run fails. If it exceeds the memory limit
//! of the control group, the kernel kills the program. Both limits are therefore checked before
//! anything is allocated.

use ioengine::buffer;
use ioengine::cgroup;
use ioengine::clock::{Clock, Monotonic};
use ioengine::host::address_space_left;

/// Address space that is reserved for libraries, the database and results (bytes).
const SPARE_MAPPED_BYTES: u64 = 64 << 20;
/// Memory of the control group that is reserved for the kernel and for other memory of the process
/// (bytes).
const SPARE_RESIDENT_BYTES: u64 = 24 << 20;

/// The buffers of one measurement in a series may use the available memory divided by this number.
/// On a busy machine, the kernel frees the buffers of closed io_uring rings late, so the buffers of
/// several measurements can exist at the same time.
const SHARE_OF_SERIES: u64 = 5;

/// Maximum time to wait for the kernel to free the memory of closed io_uring rings (ns).
const PATIENCE_NS: u64 = 5_000_000_000;
/// Time between two checks of the free memory while waiting (ns).
const PAUSE_NS: u64 = 10_000_000;

/// A memory limit of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Memory that the limit leaves for buffers and threads (bytes).
    pub bytes: u64,
    /// Name of the limit and of the setting that controls it, for messages.
    pub what: &'static str,
}

impl Limit {
    /// Returns the maximum size of the buffers of each measurement in a series (bytes).
    pub fn of_series(&self) -> u64 {
        self.bytes / SHARE_OF_SERIES
    }
}

/// Returns the memory limit that leaves the least memory, or None if this process has no limit.
///
/// If there is a limit, also empties and disables the pool of unused buffers, because they count as
/// used memory.
pub fn narrowest() -> Option<Limit> {
    lowest()?;
    buffer::limit_pool(0);
    lowest()
}

/// Waits until `bytes` bytes of memory are free in the control group, but at most five seconds.
///
/// On a busy machine, the kernel frees the buffers of a closed io_uring ring late. Without the
/// wait, a series of measurements could exceed the memory limit, and the kernel would kill the
/// program.
pub fn wait_for(bytes: u64) {
    let clock = Monotonic::new();
    let end_ns = clock.now_ns() + PATIENCE_NS;
    let is_free = || {
        let free = cgroup::Groups::of_this_process().memory_free_bytes();
        free.is_none_or(|free| free >= bytes)
    };
    while !is_free() && clock.now_ns() < end_ns {
        clock.sleep_until(clock.now_ns() + PAUSE_NS);
    }
}

fn lowest() -> Option<Limit> {
    let mapped = address_space_left().map(|left| Limit {
        bytes: left.saturating_sub(SPARE_MAPPED_BYTES),
        what: "the address-space limit of the process (ulimit -v)",
    });
    let resident = cgroup::Groups::of_this_process().memory_left_bytes().map(|left| Limit {
        bytes: left.saturating_sub(SPARE_RESIDENT_BYTES),
        what: "the memory limit of the control group (memory.max)",
    });
    mapped.into_iter().chain(resident).min_by_key(|limit| limit.bytes)
}
