//! The data caches of a CPU as the kernel reports them. In a virtual machine, the reported caches
//! may differ from the caches of the real CPU.

use std::fs;
use std::path::Path;

/// A data or unified cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// The level of the cache. Level 1 is nearest to the CPU.
    pub level: u32,
    /// The size of the cache (bytes).
    pub bytes: u64,
    /// The number of CPUs that share the cache.
    pub shared_by: u32,
}

/// Returns the data and unified caches of a CPU, the nearest cache first. The list is empty if the
/// kernel reports none.
pub fn of_cpu(cpu: usize) -> Vec<Cache> {
    read(Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}/cache")))
}

fn read(folder: &Path) -> Vec<Cache> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut caches: Vec<Cache> =
        entries.flatten().filter_map(|entry| cache(&entry.path())).collect();
    caches.sort_by_key(|cache| cache.level);
    caches
}

fn cache(folder: &Path) -> Option<Cache> {
    let text = |name: &str| fs::read_to_string(folder.join(name)).ok();
    if text("type")?.trim() == "Instruction" {
        return None;
    }
    let shared_by = text("shared_cpu_list").map_or(1, |list| count(list.trim()));
    Some(Cache {
        level: text("level")?.trim().parse().ok()?,
        bytes: size(&text("size")?)?,
        shared_by,
    })
}

/// Parses a size in the kernel's format, such as `48K`, `2M` or `512`.
fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, factor) = match text.strip_suffix('K') {
        Some(number) => (number, 1 << 10),
        None => text.strip_suffix('M').map_or((text, 1), |number| (number, 1 << 20)),
    };
    number.parse::<u64>().ok()?.checked_mul(factor).filter(|bytes| *bytes > 0)
}

/// Returns the number of CPUs in a list such as `0-3,8`. Returns 1 if the list cannot be parsed.
fn count(list: &str) -> u32 {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    let sum = list.split(',').try_fold(0_u32, |sum, text| sum.checked_add(part(text)?));
    sum.unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_caches_are_read_nearest_first_without_instruction_caches() {
        let folder = std::env::temp_dir().join(format!("halfpower-caches-{}", std::process::id()));
        let made = [
            ("index0", "Unified", "3", "32768K", "0-7"),
            ("index1", "Data", "1", "48K", "0,8"),
            ("index2", "Instruction", "1", "32K", "0,8"),
            ("index3", "Unified", "2", "2M", "0"),
        ];
        for (name, kind, level, size, shared) in made {
            let index = folder.join(name);
            fs::create_dir_all(&index).unwrap();
            let facts = [("type", kind), ("level", level), ("size", size)];
            for (file, text) in facts.into_iter().chain([("shared_cpu_list", shared)]) {
                fs::write(index.join(file), format!("{text}\n")).unwrap();
            }
        }
        let caches = read(&folder);
        fs::remove_dir_all(&folder).unwrap();
        let expected = [(1, 48 << 10, 2), (2, 2 << 20, 1), (3, 32 << 20, 8)];
        let expected = expected.map(|(level, bytes, shared_by)| Cache { level, bytes, shared_by });
        assert_eq!(caches, expected);
        assert_eq!(read(&folder), []);
    }

    #[test]
    fn malformed_sizes_and_lists_are_rejected() {
        assert_eq!(size("0K"), None);
        assert_eq!(size("99999999999999999999K"), None);
        assert_eq!(size("18446744073709551615K"), None);
        assert_eq!(count("0-3,8"), 5);
        assert_eq!(count("9-1"), 1);
        assert_eq!(count("0-4294967295"), 1);
    }
}
