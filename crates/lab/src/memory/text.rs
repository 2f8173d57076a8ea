//! The rates of the memory as text: a table for each number of threads, the caches found, and the
//! rates of the same bytes through the file system.

use analysis::units;
use memspeed::Kernel;

use super::{Curve, GridPoint, Level, MemoryReadings, MemorySpec};

/// Unit of the table (bytes).
const MB: f64 = 1e6;

/// The text of the readings.
pub fn of(spec: &MemorySpec, readings: &MemoryReadings) -> String {
    let mut text = String::new();
    for threads in &spec.threads {
        let cells: Vec<&GridPoint> =
            readings.table.iter().filter(|cell| cell.threads == *threads).collect();
        text += &table(*threads, &cells);
    }
    for curve in &readings.curves {
        text += &plateaus_text(curve);
    }
    if !readings.paths.is_empty() {
        text += "pieces of 64 KiB from or to one buffer (MB/s)\n";
    }
    for path in &readings.paths {
        let (name, rate) = (path.name, path.bytes_per_s.value / MB);
        text += &format!("  {name:<21} {rate:>9.0}  {} of it\n", units::size(path.file_bytes));
    }
    let pages = match readings.huge_share {
        Some(share) => format!("{:.0}% of the memory on huge pages", share * 100.0),
        None => "share of huge pages unknown".to_owned(),
    };
    text + &format!("\nBytes counted once; {}; {pages}.\n", readings.isa.name())
}

/// The table for a number of threads: a row per kernel, a column per working set.
fn table(threads: usize, cells: &[&GridPoint]) -> String {
    let mut levels: Vec<&Level> = Vec::new();
    let mut kernels: Vec<Kernel> = Vec::new();
    for cell in cells {
        if !levels.contains(&&cell.level) {
            levels.push(&cell.level);
        }
        if !kernels.contains(&cell.kernel) {
            kernels.push(cell.kernel);
        }
    }
    let mut text = format!("{} (MB/s)\n  {:<12}", units::counted(threads as u64, "thread"), "");
    for level in &levels {
        text += &format!(" {:>14}", format!("{} {}", level.name, units::size(level.set_bytes)));
    }
    for kernel in kernels {
        text += &format!("\n  {:<12}", kernel.name());
        for level in &levels {
            let matches = |cell: &&&GridPoint| cell.kernel == kernel && cell.level == **level;
            let rate = cells.iter().find(matches).map(|cell| cell.bytes_per_s.value / MB);
            text += &rate.map_or(format!(" {:>14}", "-"), |rate| format!(" {rate:>14.0}"));
        }
    }
    text + "\n\n"
}

/// The plateaus of a curve as text.
fn plateaus_text(curve: &Curve) -> String {
    let mut text = format!("{} by working set, 1 thread (MB/s)\n", curve.kernel);
    for plateau in &curve.plateaus {
        let (from, to) = (units::size(plateau.from_bytes), units::size(plateau.to_bytes));
        text += &format!("  {:<21} {:>9.0}\n", format!("{from} to {to}"), plateau.rate / MB);
    }
    if curve.plateaus.is_empty() {
        text += "  too few sizes to find caches\n";
    }
    text + "\n"
}
