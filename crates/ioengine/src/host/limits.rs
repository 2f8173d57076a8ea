//! Limits of this process, and the kernel's count of dirtied page cache. The limits are checked
//! before a measurement; the count is read before and after it.

use crate::sys;

/// The file-size limit of this process (bytes); u64::MAX without one.
pub fn file_size_limit() -> u64 {
    sys::file_size_limit()
}

/// How much memory this process may still map (bytes); None without a limit.
pub fn address_space_left() -> Option<u64> {
    let limit = sys::address_space_limit();
    if limit == u64::MAX {
        return None;
    }
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"))?;
    let mapped_kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(limit.saturating_sub(mapped_kib << 10))
}

/// How much page cache was dirtied since boot (bytes; nr_dirtied in /proc/vmstat); None if not
/// reported.
pub fn dirtied_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/vmstat").ok()?;
    let pages = text.lines().find_map(|line| line.strip_prefix("nr_dirtied "))?;
    Some(pages.trim().parse::<u64>().ok()? * sys::page_bytes())
}
