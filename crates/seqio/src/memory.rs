//! Limits the memory for the direct requests of all readers, writers and copies of a process.
//!
//! The first streams get requests of the size and number that suit their storage. When memory
//! becomes scarce, streams get fewer and then smaller requests. When no memory is left, a file is
//! read or written through the page cache with a small buffer.

use std::sync::{Mutex, OnceLock, PoisonError};

use ioengine::cgroup;

/// Default limit on the memory for requests (bytes).
const LIMIT_BYTES: u64 = 256 << 20;
/// The default limit is at most the available memory divided by this number. This protects small
/// machines and small cgroups.
const SHARE_OF_MEMORY: u64 = 8;
/// Minimum number of slots (buffers for one request) of a stream. With fewer slots, at most one
/// request could be in flight while the program uses a block.
const SLOTS_MIN: u32 = 3;
/// Minimum request size (bytes). Requests that must fit the limit are not made smaller than this.
const REQUEST_BYTES_MIN: u32 = 256 << 10;

#[derive(Debug)]
struct Budget {
    /// Limit on the memory for requests (bytes). None until the program sets a limit.
    limit: Option<u64>,
    used: u64,
}

static BUDGET: Mutex<Budget> = Mutex::new(Budget { limit: None, used: 0 });

fn budget() -> std::sync::MutexGuard<'static, Budget> {
    BUDGET.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the memory limit for the direct requests of all readers, writers and copies of this process
/// (bytes). The default is 256 MiB, but at most an eighth of the memory that this process may use.
/// Memory that an [`Options`](crate::Options) explicitly requests is always granted.
pub fn set_memory_limit(bytes: u64) {
    budget().limit = Some(bytes);
}

fn default_limit() -> u64 {
    static DEFAULT: OnceLock<u64> = OnceLock::new();
    *DEFAULT.get_or_init(|| {
        cgroup::memory_limit_bytes()
            .map_or(LIMIT_BYTES, |all| LIMIT_BYTES.min(all / SHARE_OF_MEMORY))
    })
}

/// Memory that is reserved for the requests of a stream. It is released when this value is dropped.
#[derive(Debug)]
pub(crate) struct Grant {
    /// Size of a slot, which holds one request (bytes).
    pub request_bytes: u32,
    /// Number of slots.
    pub slots: u32,
    bytes: u64,
}

impl Grant {
    /// Grants `slots` slots of `request_bytes` bytes, regardless of the limit.
    pub fn whole(request_bytes: u32, slots: u32) -> Grant {
        let bytes = u64::from(request_bytes) * u64::from(slots);
        budget().used += bytes;
        Grant { request_bytes, slots, bytes }
    }

    /// Grants at most `slots` slots of at most `request_bytes` bytes, so that the limit is kept.
    /// Returns None if too little memory is left.
    pub fn up_to(request_bytes: u32, slots: u32) -> Option<Grant> {
        let mut budget = budget();
        let limit = budget.limit.unwrap_or_else(default_limit);
        let (request_bytes, slots) = fit(limit.saturating_sub(budget.used), request_bytes, slots)?;
        let bytes = u64::from(request_bytes) * u64::from(slots);
        budget.used += bytes;
        Some(Grant { request_bytes, slots, bytes })
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        budget().used -= self.bytes;
    }
}

/// Returns the request size and the number of slots that fit into half of the remaining memory, so
/// that memory is left for later streams. None if even the smallest requests do not fit.
fn fit(left_bytes: u64, request_bytes: u32, slots: u32) -> Option<(u32, u32)> {
    let most = left_bytes / 2;
    let mut request_bytes = request_bytes;
    loop {
        let fitting = most / u64::from(request_bytes);
        if fitting >= u64::from(slots.min(SLOTS_MIN)) {
            return Some((request_bytes, slots.min(u32::try_from(fitting).unwrap_or(u32::MAX))));
        }
        if request_bytes <= REQUEST_BYTES_MIN {
            return None;
        }
        request_bytes = (request_bytes / 2).next_multiple_of(4096).max(REQUEST_BYTES_MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn requests_get_fewer_then_smaller_and_then_there_are_none() {
        let fit = |left| fit(left, 1 << 20, 9);
        assert_eq!(fit(256 * MIB), Some((1 << 20, 9)));
        assert_eq!(fit(10 * MIB), Some((1 << 20, 5)));
        assert_eq!(fit(6 * MIB), Some((1 << 20, 3)));
        assert_eq!(fit(5 * MIB), Some((512 << 10, 5)));
        assert_eq!(fit(2 * MIB), Some((256 << 10, 4)));
        assert_eq!(fit(MIB), None);
    }

    #[test]
    fn many_at_once_never_take_more_than_the_limit_and_give_it_back() {
        let before = budget().used;
        let grants: Vec<Grant> = (0..2000).filter_map(|_| Grant::up_to(1 << 20, 9)).collect();
        let limit = default_limit();
        assert!(grants.len() > 20, "{}", grants.len());
        assert!(budget().used <= limit, "{} of {limit}", budget().used);
        drop(grants);
        let explicit = Grant::whole(64 << 20, 16);
        assert_eq!(explicit.bytes, 1 << 30);
        drop(explicit);
        // Other tests of this process reserve memory at the same time, so `used` may exceed
        // `before`.
        assert!(budget().used <= before + limit);
    }
}
