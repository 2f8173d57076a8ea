//! Reserves huge pages for fio's `iomem=mmaphuge` while a benchmark runs, and restores the pool
//! afterwards.

use anyhow::{Context, Result, bail};

/// File that contains the number of huge pages in the pool (proc_sys_vm(5)).
const POOL: &str = "/proc/sys/vm/nr_hugepages";

/// Reserved huge pages. Dropping the value restores the old size of the pool.
pub struct HugePages {
    before: Option<u64>,
}

impl HugePages {
    /// Enlarges the pool until at least this many huge pages are free. Needs root if the pool is
    /// too small.
    pub fn reserve(pages: u64) -> Result<HugePages> {
        let free = free_pages()?;
        if free >= pages {
            return Ok(HugePages { before: None });
        }
        let text = std::fs::read_to_string(POOL).with_context(|| format!("cannot read {POOL}"))?;
        let before: u64 = text.trim().parse().with_context(|| format!("cannot parse {POOL}"))?;
        let wanted = before + pages - free;
        std::fs::write(POOL, wanted.to_string()).with_context(|| format!("cannot write {POOL}"))?;
        let reserved = HugePages { before: Some(before) };
        match free_pages()? {
            free if free < pages => bail!("only {free} of {pages} huge pages are available"),
            _ => Ok(reserved),
        }
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Some(before) = self.before
            && let Err(error) = std::fs::write(POOL, before.to_string())
        {
            eprintln!("cannot restore {POOL} to {before}: {error}");
        }
    }
}

fn free_pages() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    free_of(&text).context("/proc/meminfo has no line HugePages_Free")
}

fn free_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("HugePages_Free:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_pages_are_read_from_the_line_that_names_them() {
        let text = "HugePages_Total:      64\nHugePages_Free:       60\nHugePages_Rsvd:        0\n";
        assert_eq!(free_of(text), Some(60));
        assert_eq!(free_of("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn nothing_is_changed_where_enough_is_free() {
        let Ok(reserved) = HugePages::reserve(0) else {
            eprintln!("skipped: this kernel has no huge pages");
            return;
        };
        assert_eq!(reserved.before, None);
    }
}
