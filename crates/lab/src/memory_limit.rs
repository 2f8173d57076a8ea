//! How much memory buffers may take: what the limits of this process leave.
//!
//! An allocation beyond the address space fails in the midst of it all, and one beyond the limit of
//! a control group gets the program killed: so both are looked at before anything is made.

use ioengine::cgroup;
use ioengine::host::address_space_left;

/// What else of a limit on the address space the program takes (bytes): libraries, the database,
/// results.
const SPARE_MAPPED_BYTES: u64 = 64 << 20;
/// What else of a control group's memory (bytes): the same, as far as it is touched, and what the
/// kernel keeps for it.
const SPARE_RESIDENT_BYTES: u64 = 24 << 20;

/// Buffers of a series of measurements take this share of what is left: the next ones are made
/// while the kernel still has those before.
const SHARE_OF_SERIES: u64 = 3;

/// A limit, and what it leaves for buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// For buffers and threads (bytes).
    pub bytes: u64,
    /// What limits it, and how it is raised.
    pub what: &'static str,
}

impl Limit {
    /// What the buffers of any one of a series of measurements may take (bytes).
    pub fn of_series(&self) -> u64 {
        self.bytes / SHARE_OF_SERIES
    }
}

/// The narrowest limit on memory; None where nothing limits it but the machine.
pub fn narrowest() -> Option<Limit> {
    let mapped = address_space_left().map(|left| Limit {
        bytes: left.saturating_sub(SPARE_MAPPED_BYTES),
        what: "the limit on its address space (ulimit -v)",
    });
    let resident = cgroup::Groups::of_this_process().memory_left_bytes().map(|left| Limit {
        bytes: left.saturating_sub(SPARE_RESIDENT_BYTES),
        what: "the memory limit of its control group (memory.max)",
    });
    mapped.into_iter().chain(resident).min_by_key(|limit| limit.bytes)
}
