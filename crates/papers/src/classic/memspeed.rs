//! Formats memory bandwidths like Table 2 of the first paper.
//!
//! The paper measured the table with its program memspeed, which had eight tests. Five tests ran on
//! one thread: load and store of doubles, read and write of a temporary file, and copy. Three tests
//! ran on all CPUs: load, store and copy. The table has two more rows, which access one word per
//! cache line. `lab::memory` measures all rows.

use analysis::units;
use std::path::Path;

use lab::failure::Outcome;
use lab::memory::{self, MemoryPlan, MemoryReadings, MemorySpec};
use memspeed::Kernel;
use serde::Serialize;

/// The size of a MB in the papers (bytes).
const MB: f64 = 1048576.0;

/// The measurement that a row of the table shows.
#[derive(Clone, Copy)]
enum Source {
    Kernel(Kernel),
    Path(&'static str),
}

/// A row of Table 2. memspeed numbered its tests from 1 to 8. `alone` is the number of the test on
/// one thread, and `together` is the number of the test on all CPUs. None if memspeed had no such
/// test.
struct Row {
    name: &'static str,
    source: Source,
    alone: Option<u32>,
    together: Option<u32>,
}

impl Row {
    /// Returns the result of the row on all CPUs if `together` is set, or else on one thread. None
    /// if the row was not measured.
    fn test(&self, readings: &MemoryReadings, together: bool) -> Option<MemspeedTest> {
        let test = if together { self.together } else { self.alone };
        let (threads, bytes_per_s) = match self.source {
            Source::Path(name) => {
                let path = readings.paths.iter().find(|path| path.name == name && !together)?;
                (1, path.bytes_per_s.value)
            }
            Source::Kernel(kernel) => {
                let of_row = readings.table.iter().filter(|cell| cell.kernel == kernel);
                let mut cells = of_row.filter(|cell| (cell.threads > 1) == together);
                let cell = cells.next()?;
                (cell.threads, cell.bytes_per_s.value)
            }
        };
        Some(MemspeedTest { name: self.name, test, threads, bytes_per_s })
    }
}

const fn row(name: &'static str, source: Source, alone: Option<u32>, together: Option<u32>) -> Row {
    Row { name, source, alone, together }
}

const ROWS: [Row; 7] = [
    row("Unrolled DOUBLE load", Source::Kernel(Kernel::Load), Some(1), Some(6)),
    row("Unrolled cache line read miss", Source::Kernel(Kernel::TouchRead), None, None),
    row("Temporary file read", Source::Path("temporary-file-read"), Some(3), None),
    row("Unrolled DOUBLE store", Source::Kernel(Kernel::Store), Some(2), Some(7)),
    row("Unrolled cache line write miss", Source::Kernel(Kernel::TouchWrite), None, None),
    row("Temporary file write", Source::Path("temporary-file-write"), Some(4), None),
    row("Memcopy", Source::Kernel(Kernel::Copy), Some(5), Some(8)),
];

/// The measured rows of the table, as JSON.
#[derive(Debug, Serialize)]
pub struct MemspeedTable {
    set_bytes: Option<u64>,
    tests: Vec<MemspeedTest>,
}

#[derive(Debug, Serialize)]
struct MemspeedTest {
    name: &'static str,
    test: Option<u32>,
    threads: usize,
    bytes_per_s: f64,
}

/// Returns the settings for a measurement of all rows of the table. All rows use a working set of
/// `size` bytes. By default, the working set is much larger than all caches. The temporary file is
/// written in `folder`.
///
/// # Errors
/// As for [`memory::plan`].
pub fn spec(size: Option<u64>, folder: &Path, quick: bool) -> Outcome<MemorySpec> {
    let kernel = |row: &Row| match row.source {
        Source::Kernel(kernel) => Some(kernel),
        Source::Path(_) => None,
    };
    let mut spec = MemorySpec {
        kernels: ROWS.iter().filter_map(kernel).collect(),
        curves: Vec::new(),
        folder: Some(folder.to_path_buf()),
        ..MemorySpec::of_this_host(quick)
    };
    let far = |rows: &[(usize, Vec<memory::Level>)]| {
        let last = rows.iter().filter_map(|(_, levels)| Some(levels.last()?.set_bytes));
        last.min()
    };
    spec.set_bytes = match size {
        Some(bytes) => vec![bytes],
        None => far(&memory::plan(&spec)?.rows).into_iter().collect(),
    };
    Ok(spec)
}

/// Returns the line that `--plan` prints.
pub fn plan_line(spec: &MemorySpec, plan: &MemoryPlan) -> String {
    let set = spec.set_bytes.first().copied().unwrap_or(0);
    let folder = spec.folder.as_deref().unwrap_or(Path::new("."));
    format!(
        "would measure the {} rows of the table, with {} per thread, on {:?} threads; would write \
         an unnamed file of {} in {} and another in memory, and remove both at the end; would take \
         about {}; nothing was done",
        ROWS.len(),
        units::size(set),
        spec.threads,
        units::size(plan.file_bytes),
        folder.display(),
        units::time(plan.takes_ns as f64)
    )
}

impl MemspeedTable {
    /// Returns the table with the rows that were measured.
    pub fn of(spec: &MemorySpec, readings: &MemoryReadings) -> MemspeedTable {
        let alone = ROWS.iter().filter_map(|row| row.test(readings, false));
        let together = ROWS.iter().filter(|row| row.together.is_some());
        let together = together.filter_map(|row| row.test(readings, true));
        let set_bytes = spec.set_bytes.first().copied();
        MemspeedTable { set_bytes, tests: alone.chain(together).collect() }
    }

    /// Formats the table as text.
    pub fn lines(&self) -> Vec<String> {
        let head = format!("{:<32} {:>7} {:>13} {:>9}", "", "threads", "memspeed test", "MBps");
        let line = |row: &MemspeedTest| {
            let test = row.test.map_or("-".to_owned(), |test| test.to_string());
            let (threads, mbps) = (row.threads, row.bytes_per_s / MB);
            format!("{:<32} {threads:>7} {test:>13} {mbps:>9.0}", row.name)
        };
        std::iter::once(head).chain(self.tests.iter().map(line)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_eight_tests_of_memspeed_each_have_one_row() {
        let numbers = ROWS.iter().flat_map(|row| [row.alone, row.together]).flatten();
        let mut numbers: Vec<u32> = numbers.collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn the_rows_are_those_of_the_published_table() {
        let table = include_str!("../../data/riedel97_table02_memory.csv");
        let mut rows = ROWS.iter();
        for line in table.lines().skip(1).step_by(2) {
            let name = rows.next().unwrap().name;
            assert!(line.starts_with(name), "{name} is not {line}");
        }
        assert!(rows.next().is_none());
    }
}
