//! `halfpower classic memspeed`: the rows of the papers' table of memory bandwidth, on one CPU and
//! partly on all CPUs.
//!
//! memspeed had eight tests: five on one thread (load and store of doubles, read and write of a
//! temporary file, copy) and three of these on all CPUs. Table 2 of the earlier paper has two more
//! rows, which access one word per cache line.

use analysis::units;
use lab::console::{self, Console};
use lab::failure::{Exit, Outcome};
use lab::interrupt::Interrupt;
use lab::json;
use lab::memory::{self, MemoryReadings, MemorySpec};
use lab::trials::Lab;
use memspeed::Kernel;
use serde::Serialize;

use crate::cli::classic::MemspeedArgs;

/// Bytes per MB as in the papers.
const MB: f64 = 1048576.0;

/// The measurement that fills a row of the table.
#[derive(Clone, Copy)]
enum Source {
    Kernel(Kernel),
    Path(&'static str),
}

/// A row of the papers' Table 2: its name there, and memspeed's test numbers (1 to 8) for one
/// thread and for all CPUs.
struct Row {
    name: &'static str,
    source: Source,
    alone: Option<u32>,
    together: Option<u32>,
}

const fn row(name: &'static str, source: Source, alone: Option<u32>, together: Option<u32>) -> Row {
    Row { name, source, alone, together }
}

/// The rows of the papers' Table 2, in order.
const ROWS: [Row; 7] = [
    row("Unrolled DOUBLE load", Source::Kernel(Kernel::Load), Some(1), Some(6)),
    row("Unrolled cache line read miss", Source::Kernel(Kernel::TouchRead), None, None),
    row("Temporary file read", Source::Path("temporary-file-read"), Some(3), None),
    row("Unrolled DOUBLE store", Source::Kernel(Kernel::Store), Some(2), Some(7)),
    row("Unrolled cache line write miss", Source::Kernel(Kernel::TouchWrite), None, None),
    row("Temporary file write", Source::Path("temporary-file-write"), Some(4), None),
    row("Memcopy", Source::Kernel(Kernel::Copy), Some(5), Some(8)),
];

/// The results as JSON.
#[derive(Serialize)]
struct Tests<'a> {
    set_bytes: Option<u64>,
    tests: &'a [Result],
}

/// A measured row of the table.
#[derive(Serialize)]
struct Result {
    name: &'static str,
    test: Option<u32>,
    threads: usize,
    bytes_per_s: f64,
}

/// Measures and prints.
pub fn execute(args: &MemspeedArgs) -> Outcome {
    let spec = spec(args)?;
    let plan = memory::plan(&spec)?;
    if args.output.plan {
        let set = spec.set_bytes.first().copied().unwrap_or(0);
        console::data(&format!(
            "{} rows with {} per thread, on {:?} threads; write an unnamed file of {} in {}, and \
            one in memory, both removed at the end; about {}; nothing was done",
            ROWS.len(),
            units::size(set),
            spec.threads,
            units::size(plan.file_bytes),
            args.dir.display(),
            units::time(plan.takes_ns as f64)
        ));
        return Ok(Exit::Ok);
    }
    let console = Console::new(args.output.quiet);
    let lab = Lab::new(console, Interrupt::install());
    let readings = memory::measure(&lab, &spec)?;
    readings.skipped.iter().for_each(|skipped| console.say(format!("left out {skipped}")));
    let results = results(&readings);
    if args.output.json {
        let set_bytes = spec.set_bytes.first().copied();
        console::data(&json::print(&Tests { set_bytes, tests: &results }));
    } else {
        print(&results);
    }
    Ok(if readings.interrupted { Exit::Interrupted } else { Exit::Ok })
}

/// The kernels of all table rows with one working set: the given size, or a size far above all
/// caches.
fn spec(args: &MemspeedArgs) -> Outcome<MemorySpec> {
    let kernel = |row: &Row| match row.source {
        Source::Kernel(kernel) => Some(kernel),
        Source::Path(_) => None,
    };
    let mut spec = MemorySpec {
        kernels: ROWS.iter().filter_map(kernel).collect(),
        curves: Vec::new(),
        folder: Some(args.dir.clone()),
        ..MemorySpec::of_this_host(args.quick)
    };
    let far = |rows: &[(usize, Vec<memory::Level>)]| {
        let last = rows.iter().filter_map(|(_, levels)| Some(levels.last()?.set_bytes));
        last.min()
    };
    spec.set_bytes = match args.size {
        Some(bytes) => vec![bytes],
        None => far(&memory::plan(&spec)?.rows).into_iter().collect(),
    };
    Ok(spec)
}

fn results(readings: &MemoryReadings) -> Vec<Result> {
    let on = |row: &Row, together: bool| {
        let test = if together { row.together } else { row.alone };
        let (threads, bytes_per_s) = match row.source {
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
        Some(Result { name: row.name, test, threads, bytes_per_s })
    };
    let alone = ROWS.iter().filter_map(|row| on(row, false));
    let together = ROWS.iter().filter(|row| row.together.is_some());
    alone.chain(together.filter_map(|row| on(row, true))).collect()
}

fn print(results: &[Result]) {
    console::data(&format!("{:<32} {:>7} {:>13} {:>9}", "", "threads", "memspeed test", "MBps"));
    for result in results {
        let test = result.test.map_or("-".to_owned(), |test| test.to_string());
        console::data(&format!(
            "{:<32} {:>7} {test:>13} {:>9.0}",
            result.name,
            result.threads,
            result.bytes_per_s / MB
        ));
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
        let table = include_str!("../../../../papers/data/riedel97_table02_memory.csv");
        let mut rows = ROWS.iter();
        for line in table.lines().skip(1).step_by(2) {
            let name = rows.next().unwrap().name;
            assert!(line.starts_with(name), "{name} is not {line}");
        }
        assert!(rows.next().is_none());
    }
}
