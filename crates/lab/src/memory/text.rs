//! Formats the text that `halfpower memory` prints: the results, the plan (`--plan`), and a warning
//! if other programs disturbed the measurement.

use analysis::units;
use memspeed::Kernel;

use super::{Curve, GridPoint, Level, MemoryPlan, MemoryReadings, MemorySpec};

/// Number of bytes in one MB, the unit of the tables.
const MB: f64 = 1e6;
/// A rate counts as disturbed if its fastest sample exceeds its median by more than this factor.
const DISTURBED_TIMES: f64 = 1.25;
/// Share of disturbed rates above which a warning is printed. A few rates are disturbed even on an
/// idle machine.
const DISTURBED_MAX: f64 = 1.0 / 3.0;

/// Formats the results as text.
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
        text += "file access and memcpy with a buffer of 64 KiB (MB/s)\n";
    }
    for path in &readings.paths {
        let (name, rate) = (path.name, path.bytes_per_s.value / MB);
        text += &format!(
            "  {name:<21} {rate:>9.0}  (file or array of {})\n",
            units::size(path.file_bytes)
        );
    }
    let pages = match readings.huge_share {
        Some(share) => format!("{:.0}% of the memory on huge pages", share * 100.0),
        None => "share of huge pages unknown".to_owned(),
    };
    text + &format!(
        "\nEach byte is counted once; instruction set {}; {pages}.\n",
        readings.isa.name()
    )
}

/// Formats the table for one thread count. Each row is a loop such as copy or triad, and each
/// column is a working set.
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

/// Returns lines of text that say what would be measured and how long it would take.
pub fn plan_lines(spec: &MemorySpec, plan: &MemoryPlan) -> Vec<String> {
    let mut lines = Vec::new();
    let kernels: Vec<&str> = spec.kernels.iter().map(|kernel| kernel.name()).collect();
    for (threads, levels) in &plan.rows {
        let set = |level: &Level| format!("{} ({})", units::size(level.set_bytes), level.name);
        let sets: Vec<String> = levels.iter().map(set).collect();
        let threads = units::counted(*threads as u64, "thread");
        lines.push(format!("{} over {} with {threads}", kernels.join(", "), sets.join(", ")));
    }
    for kernel in &spec.curves {
        let (from, to) = (plan.sizes.first(), plan.sizes.last());
        let size = |bytes: Option<&u64>| units::size(bytes.copied().unwrap_or(0));
        lines.push(format!(
            "{kernel} on working sets from {} to {}, to find the caches",
            size(from),
            size(to)
        ));
    }
    if let Some(folder) = &spec.folder {
        lines.push(format!(
            "write an unnamed file of {} in {} and another in memory, and remove both at the end",
            units::size(plan.file_bytes),
            folder.display()
        ));
    }
    lines.push(format!(
        "would use up to {} of memory and take about {}; nothing was done",
        units::size(plan.most_bytes),
        units::time(plan.takes_ns as f64)
    ));
    lines
}

/// Returns a warning if many rates vary widely.
pub fn warning(readings: &MemoryReadings) -> Option<String> {
    let disturbed = readings.table.iter().filter(|cell| is_disturbed(cell)).count();
    (disturbed as f64 > DISTURBED_MAX * readings.table.len() as f64).then(|| {
        format!(
            "{disturbed} of {} rates vary widely because other programs are running; try again \
             when the machine is idle, or use the values of best_bytes_per_s in the output of \
             --json",
            readings.table.len()
        )
    })
}

/// Returns true if at least half of the samples were much slower than the fastest sample.
fn is_disturbed(cell: &GridPoint) -> bool {
    cell.best_bytes_per_s > DISTURBED_TIMES * cell.bytes_per_s.value
}
