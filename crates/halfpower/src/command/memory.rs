//! `halfpower memory`: memory rates of several kernels by cache level and threads, the caches
//! found, and the rates of the same bytes through the file system.

use lab::console::{self, Console};
use lab::experiment::parameters;
use lab::failure::{Exit, Failure, Outcome};
use lab::interrupt::Interrupt;
use lab::json::{self, IntervalDocument, Program};
use lab::machine::Host;
use lab::memory::{self, Curve, GridPoint, MemoryPlan, MemoryReadings, MemorySpec};
use lab::trials::Lab;
use memspeed::{Kernel, Pages};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::memory::MemoryArgs;

/// Most threads; each needs a stack and waits for all others at barriers.
const THREADS_MOST: u64 = 4096;
/// A rate is disturbed if its fastest sample exceeds its median by this factor.
const DISTURBED_TIMES: f64 = 1.25;
/// Share of disturbed rates above which a warning is printed; a few occur on a quiet machine too.
const DISTURBED_MOST: f64 = 1.0 / 3.0;
/// Unit of the table (bytes).
const MB: f64 = 1e6;

/// What `memory --json` prints.
#[derive(Serialize, JsonSchema)]
pub struct MemoryDocument {
    /// The program.
    pub halfpower: Program,
    /// The machine.
    pub host: Host,
    /// Instruction set of the kernels: portable, avx2 or avx512.
    pub instructions: String,
    /// Requested pages: huge, 4k or system.
    pub buffer_pages: String,
    /// Share of the memory on huge pages; null if unknown.
    pub huge_share: Option<f64>,
    /// Offset of arrays from the start of a page.
    pub offset_bytes: u64,
    /// CPUs to which threads were pinned in turn.
    pub cpus: Vec<usize>,
    /// Data caches of the first of them, as reported by Linux.
    pub caches: Vec<CacheDocument>,
    /// Kernels by working set and threads.
    pub table: Vec<CellDocument>,
    /// Rates by working set, on one thread.
    pub curves: Vec<CurveDocument>,
    /// Rates through the file system, and of the same copies without it.
    pub paths: Vec<PathDocument>,
    /// Measurements that were skipped, each with reason and remedy.
    pub skipped: Vec<String>,
    /// Whether it was interrupted.
    pub interrupted: bool,
}

/// A cache.
#[derive(Serialize, JsonSchema)]
pub struct CacheDocument {
    /// Level; 1 is closest to the CPU.
    pub level: u32,
    /// Its size.
    pub bytes: u64,
    /// CPUs that share it.
    pub shared_by: u32,
}

/// The rate of a kernel on one working set.
#[derive(Serialize, JsonSchema)]
pub struct CellDocument {
    /// The kernel.
    pub kernel: String,
    /// Memory level that should hold the set: L1, L2, L3 or DRAM.
    pub level: String,
    /// Size of all arrays of one thread.
    pub set_bytes: u64,
    /// Threads, each with a set of its own.
    pub threads: u64,
    /// Number of samples.
    pub samples: u64,
    /// Rate of all threads together, bytes counted once: for a copy its bytes, for the triad 24 per
    /// element.
    pub bytes_per_s: IntervalDocument,
    /// Rate of the fastest sample, bytes counted once.
    pub best_bytes_per_s: f64,
    /// Median rate of bytes read and written.
    pub traffic_bytes_per_s: f64,
}

/// Rates of a kernel by working set.
#[derive(Serialize, JsonSchema)]
pub struct CurveDocument {
    /// The kernel.
    pub kernel: String,
    /// Its points, in ascending order of size.
    pub points: Vec<CurvePointDocument>,
    /// Ranges of sets with about the same rate; a cache level ends between two of them.
    pub plateaus: Vec<PlateauDocument>,
}

/// A point of a curve.
#[derive(Serialize, JsonSchema)]
pub struct CurvePointDocument {
    /// Size of the set.
    pub set_bytes: u64,
    /// Median rate, bytes counted once.
    pub bytes_per_s: f64,
}

/// A range of sets with about the same rate.
#[derive(Serialize, JsonSchema)]
pub struct PlateauDocument {
    /// The smallest set.
    pub from_bytes: u64,
    /// The largest set.
    pub to_bytes: u64,
    /// Median rate, bytes counted once.
    pub bytes_per_s: f64,
}

/// A data path.
#[derive(Serialize, JsonSchema)]
pub struct PathDocument {
    /// temporary-file-read, temporary-file-write, hot-file-read, memcpy-to-buffer or
    /// memcpy-from-buffer, in pieces of 64 KiB to or from one buffer.
    pub name: String,
    /// Size of the file or array.
    pub file_bytes: u64,
    /// Number of samples.
    pub samples: u64,
    /// Rate, bytes counted once.
    pub bytes_per_s: IntervalDocument,
}

/// Runs the command.
pub fn execute(args: &MemoryArgs) -> Outcome {
    let spec = spec(args)?;
    let plan = memory::plan(&spec)?;
    if args.plan {
        print_plan(&spec, &plan);
        return Ok(Exit::Ok);
    }
    let console = Console::new(args.quiet);
    let lab = Lab::new(console, Interrupt::install());
    let readings = memory::measure(&lab, &spec)?;
    readings.skipped.iter().for_each(|skipped| console.say(format!("skipped {skipped}")));
    let disturbed = readings.table.iter().filter(|cell| is_disturbed(cell)).count();
    if disturbed as f64 > DISTURBED_MOST * readings.table.len() as f64 {
        console.warn(format!(
            "{disturbed} of {} rates vary widely, so something else is running; try again when the \
             machine is idle, or use best_bytes_per_s of --json",
            readings.table.len()
        ));
    }
    if args.json {
        console::data(&json::print(&document(args, &spec, &readings)));
    } else {
        console::data(text(&spec, &readings).trim_end());
    }
    Ok(if readings.interrupted { Exit::Interrupted } else { Exit::Ok })
}

/// Whether other programs have slowed down at least half of the samples.
fn is_disturbed(cell: &GridPoint) -> bool {
    cell.best_bytes_per_s > DISTURBED_TIMES * cell.bytes_per_s.value
}

/// The measurements that the flags ask for.
fn spec(args: &MemoryArgs) -> Outcome<MemorySpec> {
    let mut spec = MemorySpec::of_this_host(args.quick);
    if let Some(list) = &args.kernel {
        let names = list.split(',').map(|name| name.trim().parse::<Kernel>());
        let kernels = names.collect::<Result<Vec<_>, _>>();
        let kernels = kernels.map_err(|e| Failure::usage(format!("--kernel {list}: {e}")))?;
        let isa = memspeed::Isa::detect();
        if let Some(kernel) = kernels.iter().find(|kernel| !isa.has(**kernel)) {
            return Err(Failure::usage(format!(
                "--kernel {kernel}: this CPU has no vector instructions that bypass the caches; \
                 leave it out"
            )));
        }
        spec.kernels = kernels;
    }
    if let Some(list) = &args.size {
        let sizes = units::parse_list(list, units::parse_size);
        spec.set_bytes = sizes.map_err(|e| Failure::usage(format!("--size {list}: {e}")))?;
    }
    if let Some(list) = &args.threads {
        let number =
            |text: &str| text.trim().parse().map_err(|_| format!("'{text}' is not a number"));
        let counts = units::parse_list(list, number);
        let counts = counts.map_err(|e| Failure::usage(format!("--threads {list}: {e}")))?;
        if counts.iter().any(|count| !(1..=THREADS_MOST).contains(count)) {
            return Err(Failure::usage(format!("--threads {list}: use 1 to {THREADS_MOST}")));
        }
        spec.threads = counts.into_iter().map(|count| count as usize).collect();
    }
    if let Some(list) = &args.cpus_allowed {
        spec.cpus = parameters::cpus(list)
            .map_err(|why| Failure::usage(format!("--cpus-allowed {list}: {why}")))?;
    }
    if args.offset >= 4096 || !args.offset.is_multiple_of(8) {
        return Err(Failure::usage(format!(
            "--offset {}: use a multiple of 8 below 4096",
            args.offset
        )));
    }
    spec.offset_bytes = args.offset as usize;
    spec.pages = match args.buffer_pages.as_str() {
        "4k" => Pages::Small,
        "system" => Pages::System,
        _ => Pages::Huge,
    };
    spec.folder = Some(args.dir.clone());
    if args.kernel.is_some() || args.size.is_some() {
        spec.curves.clear();
        spec.folder = None;
    }
    Ok(spec)
}

fn print_plan(spec: &MemorySpec, plan: &MemoryPlan) {
    let kernels: Vec<&str> = spec.kernels.iter().map(|kernel| kernel.name()).collect();
    for (threads, levels) in &plan.rows {
        let set =
            |level: &memory::Level| format!("{} ({})", units::size(level.set_bytes), level.name);
        let sets: Vec<String> = levels.iter().map(set).collect();
        let threads = units::counted(*threads as u64, "thread");
        console::data(&format!("{} over {} with {threads}", kernels.join(", "), sets.join(", ")));
    }
    for kernel in &spec.curves {
        let (from, to) = (plan.sizes.first(), plan.sizes.last());
        let size = |bytes: Option<&u64>| units::size(bytes.copied().unwrap_or(0));
        console::data(&format!("{kernel} over {} to {}, to find the caches", size(from), size(to)));
    }
    if let Some(folder) = &spec.folder {
        console::data(&format!(
            "write an unnamed file of {} in {}, which disappears at the end, and one in memory",
            units::size(plan.file_bytes),
            folder.display()
        ));
    }
    console::data(&format!(
        "uses up to {} of memory and takes about {}; nothing was done",
        units::size(plan.most_bytes),
        units::time(plan.takes_ns as f64)
    ));
}

fn document(args: &MemoryArgs, spec: &MemorySpec, readings: &MemoryReadings) -> MemoryDocument {
    let cache = |cache: &memspeed::caches::Cache| CacheDocument {
        level: cache.level,
        bytes: cache.bytes,
        shared_by: cache.shared_by,
    };
    let path = |path: &memory::PathReading| PathDocument {
        name: path.name.to_owned(),
        file_bytes: path.file_bytes,
        samples: path.samples as u64,
        bytes_per_s: path.bytes_per_s.into(),
    };
    MemoryDocument {
        halfpower: Program::this(),
        host: Host::read(),
        instructions: readings.isa.name().to_owned(),
        buffer_pages: args.buffer_pages.clone(),
        huge_share: readings.huge_share,
        offset_bytes: spec.offset_bytes as u64,
        cpus: spec.cpus.clone(),
        caches: readings.caches.iter().map(cache).collect(),
        table: readings.table.iter().map(cell_document).collect(),
        curves: readings.curves.iter().map(curve_document).collect(),
        paths: readings.paths.iter().map(path).collect(),
        skipped: readings.skipped.clone(),
        interrupted: readings.interrupted,
    }
}

fn cell_document(cell: &GridPoint) -> CellDocument {
    CellDocument {
        kernel: cell.kernel.name().to_owned(),
        level: cell.level.name.clone(),
        set_bytes: cell.level.set_bytes,
        threads: cell.threads as u64,
        samples: cell.samples as u64,
        bytes_per_s: cell.bytes_per_s.into(),
        best_bytes_per_s: cell.best_bytes_per_s,
        traffic_bytes_per_s: cell.traffic_bytes_per_s,
    }
}

fn curve_document(curve: &Curve) -> CurveDocument {
    let point =
        |&(set_bytes, bytes_per_s): &(u64, f64)| CurvePointDocument { set_bytes, bytes_per_s };
    let plateau = |plateau: &analysis::cachesteps::Plateau| PlateauDocument {
        from_bytes: plateau.from_bytes,
        to_bytes: plateau.to_bytes,
        bytes_per_s: plateau.rate,
    };
    CurveDocument {
        kernel: curve.kernel.name().to_owned(),
        points: curve.points.iter().map(point).collect(),
        plateaus: curve.plateaus.iter().map(plateau).collect(),
    }
}

/// The output: tables, caches found, paths.
fn text(spec: &MemorySpec, readings: &MemoryReadings) -> String {
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
    let mut levels: Vec<&memory::Level> = Vec::new();
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
