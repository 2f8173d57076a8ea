//! Selects the sizes of working sets: one for each cache and one for main memory. Also finds the
//! cache that holds a given working set.

use memspeed::SET_BYTES_MIN;
use memspeed::caches::Cache;

use super::SIZES_TO_THE_OCTAVE;

/// Size of the working set in main memory, as a multiple of a thread's share of the largest cache.
const FAR_TIMES: u64 = 4;
/// Minimum size of the working set in main memory (bytes). A smaller set could fit into a cache
/// that Linux does not report.
const FAR_MIN_BYTES: u64 = 32 << 20;
/// Maximum size of the working set in main memory (bytes), which limits the duration of the
/// measurement.
const FAR_MAX_BYTES: u64 = 1 << 30;
/// Size of the working set in main memory if Linux reports no cache (bytes).
const FAR_UNKNOWN_BYTES: u64 = 256 << 20;
/// Working-set sizes of curves are multiples of this size (bytes).
const SIZE_STEP_BYTES: u64 = 1024;

/// A working set and the cache or memory that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// Name of the first cache that is large enough for the working set (L1, L2, L3), or DRAM if no
    /// cache is. Threads that share a cache have equal shares of it.
    pub name: String,
    /// Total size of the arrays of one thread (bytes).
    pub set_bytes: u64,
}

/// Returns a thread's share of a cache (bytes). Assumes that as many threads as possible run on the
/// CPUs that share the cache.
fn share(cache: &Cache, threads: usize) -> u64 {
    cache.bytes / u64::from(cache.shared_by).min(threads as u64).max(1)
}

/// Returns one working set for each cache and one for main memory.
///
/// The working set for a cache is half as large as a thread's share of the cache. It is omitted if
/// it also fits into a thread's share of the previous cache. The working set for main memory has at
/// most `most_bytes` bytes.
pub fn of_machine(caches: &[Cache], threads: usize, most_bytes: u64) -> Vec<Level> {
    let mut levels: Vec<Level> = Vec::new();
    let mut before = 0;
    for cache in caches {
        let set_bytes = share(cache, threads) / 2;
        if set_bytes > before && set_bytes >= SET_BYTES_MIN as u64 {
            levels.push(Level { name: format!("L{}", cache.level), set_bytes });
            before = 2 * set_bytes;
        }
    }
    let last = caches.iter().map(|cache| share(cache, threads)).max();
    let far = last.map_or(FAR_UNKNOWN_BYTES, |last| last.saturating_mul(FAR_TIMES));
    let set_bytes = far.clamp(FAR_MIN_BYTES, FAR_MAX_BYTES).min(most_bytes);
    levels.push(Level { name: "DRAM".to_owned(), set_bytes });
    levels
}

/// Returns a working set of `set_bytes` bytes, with the name of the cache or memory that holds it.
pub fn place(caches: &[Cache], threads: usize, set_bytes: u64) -> Level {
    let fits = caches.iter().find(|cache| set_bytes <= share(cache, threads));
    let name = fits.map_or("DRAM".to_owned(), |cache| format!("L{}", cache.level));
    Level { name, set_bytes }
}

/// Returns the working-set sizes of a curve (bytes), equally spaced on a logarithmic scale.
pub fn sizes(from: u64, to: u64) -> Vec<u64> {
    let size = |index: u32| {
        let exact = from as f64 * 2_f64.powf(f64::from(index) / f64::from(SIZES_TO_THE_OCTAVE));
        (exact / SIZE_STEP_BYTES as f64).round() as u64 * SIZE_STEP_BYTES
    };
    let mut sizes: Vec<u64> = (0..).map(size).take_while(|size| *size <= to).collect();
    sizes.dedup();
    sizes
}

/// Reads how much memory is available without swapping (MemAvailable, bytes).
pub fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    fn machine() -> Vec<Cache> {
        let cache = |level, bytes, shared_by| Cache { level, bytes, shared_by };
        vec![cache(1, 48 * KIB, 1), cache(2, MIB, 1), cache(3, 32 * MIB, 8)]
    }

    fn names_and_sizes(levels: &[Level]) -> Vec<(&str, u64)> {
        levels.iter().map(|level| (level.name.as_str(), level.set_bytes)).collect()
    }

    #[test]
    fn a_single_thread_has_each_whole_cache() {
        let levels = of_machine(&machine(), 1, u64::MAX);
        let expected = [("L1", 24 * KIB), ("L2", 512 * KIB), ("L3", 16 * MIB), ("DRAM", 128 * MIB)];
        assert_eq!(names_and_sizes(&levels), expected);
    }

    #[test]
    fn threads_divide_a_cache_among_the_cpus_that_share_it() {
        let levels = of_machine(&machine(), 16, u64::MAX);
        let expected = [("L1", 24 * KIB), ("L2", 512 * KIB), ("L3", 2 * MIB), ("DRAM", 32 * MIB)];
        assert_eq!(names_and_sizes(&levels), expected);
    }

    #[test]
    fn a_cache_with_no_larger_share_than_the_previous_level_is_left_out() {
        let mut caches = machine();
        caches[2].bytes = 8 * MIB;
        let names: Vec<String> =
            of_machine(&caches, 8, u64::MAX).into_iter().map(|level| level.name).collect();
        assert_eq!(names, ["L1", "L2", "DRAM"]);
    }

    #[test]
    fn without_known_caches_there_is_only_a_limited_set_for_memory() {
        assert_eq!(names_and_sizes(&of_machine(&[], 1, 64 * MIB)), [("DRAM", 64 * MIB)]);
    }

    #[test]
    fn a_set_is_assigned_to_the_first_cache_that_holds_it() {
        let name = |threads, bytes| place(&machine(), threads, bytes).name;
        assert_eq!(name(1, 48 * KIB), "L1");
        assert_eq!(name(1, 48 * KIB + 1), "L2");
        assert_eq!(name(1, 32 * MIB), "L3");
        assert_eq!(name(8, 32 * MIB), "DRAM");
    }

    #[test]
    fn sizes_ascend_by_quarters_of_an_octave() {
        let sizes = sizes(4 * KIB, 64 * KIB);
        assert_eq!(sizes[..5], [4096, 5120, 6144, 7168, 8192]);
        assert_eq!((sizes.len(), sizes[16]), (17, 64 * KIB));
        assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
