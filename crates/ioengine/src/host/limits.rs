//! Reads resource limits of this process, and the amount of page cache that was dirtied since boot.

use crate::sys;

/// Returns the file-size limit of this process (bytes), or u64::MAX if there is no limit.
pub fn file_size_limit() -> u64 {
    sys::file_size_limit()
}

/// Returns how much more memory this process may map (bytes). None if there is no limit.
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

/// Returns the amount of page cache that was dirtied since boot (bytes). None if the kernel does
/// not report `nr_dirtied` in /proc/vmstat.
pub fn dirtied_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/vmstat").ok()?;
    let pages = text.lines().find_map(|line| line.strip_prefix("nr_dirtied "))?;
    Some(pages.trim().parse::<u64>().ok()? * sys::page_bytes())
}
