//! `halfpower memory`: memory rates of several kernels by cache level and threads, the caches
//! found, and the rates of the same bytes through the file system.

use analysis::units;
use lab::console::{self, Console};
use lab::experiment::parameters;
use lab::failure::{Exit, Failure, Outcome};
use lab::interrupt::Interrupt;
use lab::json;
use lab::memory::document::MemoryDocument;
use lab::memory::{self, GridPoint, MemoryPlan, MemorySpec};
use lab::trials::Lab;
use memspeed::{Kernel, Pages};

use crate::cli::memory::MemoryArgs;

/// Maximum number of threads; each needs a stack and waits for all others at barriers.
const THREADS_MAX: u64 = 4096;
/// A rate is disturbed if its fastest sample exceeds its median by this factor.
const DISTURBED_TIMES: f64 = 1.25;
/// Share of disturbed rates above which a warning is printed; a few occur on a quiet machine too.
const DISTURBED_MAX: f64 = 1.0 / 3.0;

pub fn execute(args: &MemoryArgs) -> Outcome {
    let spec = spec(args)?;
    let plan = memory::plan(&spec)?;
    if args.output.plan {
        print_plan(&spec, &plan);
        return Ok(Exit::Ok);
    }
    let console = Console::new(args.output.quiet);
    let lab = Lab::new(console, Interrupt::install());
    let readings = memory::measure(&lab, &spec)?;
    readings.skipped.iter().for_each(|skipped| console.say(format!("skipped {skipped}")));
    let disturbed = readings.table.iter().filter(|cell| is_disturbed(cell)).count();
    if disturbed as f64 > DISTURBED_MAX * readings.table.len() as f64 {
        console.warn(format!(
            "{disturbed} of {} rates vary widely, so something else is running; try again when the \
             machine is idle, or use best_bytes_per_s of --json",
            readings.table.len()
        ));
    }
    if args.output.json {
        console::data(&json::print(&MemoryDocument::of(&spec, &args.buffer_pages, &readings)));
    } else {
        console::data(memory::text::of(&spec, &readings).trim_end());
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
                 drop this kernel"
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
        if counts.iter().any(|count| !(1..=THREADS_MAX).contains(count)) {
            return Err(Failure::usage(format!("--threads {list}: use 1 to {THREADS_MAX}")));
        }
        spec.threads = counts.into_iter().map(|count| count as usize).collect();
    }
    if let Some(list) = &args.cpus_allowed {
        spec.cpus = parameters::cpus(list)
            .map_err(|why| Failure::usage(format!("--cpus-allowed {list}: {why}")))?;
        parameters::check_cpus(&spec.cpus)?;
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
