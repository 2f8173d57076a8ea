//! `halfpower memory`: measures the throughput of several kernels for each cache level and thread
//! count, and the throughput of cached files. Also lists the caches.

use analysis::units;
use lab::console::{self, Console};
use lab::experiment::parameters;
use lab::failure::{Exit, Failure, Outcome};
use lab::interrupt::Interrupt;
use lab::json;
use lab::memory::document::MemoryDocument;
use lab::memory::{self, MemorySpec};
use lab::trials::Lab;
use memspeed::{Kernel, Pages};

use crate::cli::memory::MemoryArgs;

const THREADS_MAX: u64 = 4096;

pub fn execute(args: &MemoryArgs) -> Outcome {
    let spec = spec(args)?;
    let plan = memory::plan(&spec)?;
    if args.output.plan {
        memory::text::plan_lines(&spec, &plan).iter().for_each(|line| console::data(line));
        return Ok(Exit::Ok);
    }
    let console = Console::new(args.output.quiet);
    let lab = Lab::new(console, Interrupt::install());
    let readings = memory::measure(&lab, &spec)?;
    readings.skipped.iter().for_each(|skipped| console.say(format!("skipped {skipped}")));
    memory::text::warning(&readings).iter().for_each(|warning| console.warn(warning));
    if args.output.json {
        console::data(&json::print(&MemoryDocument::of(&spec, &args.buffer_pages, &readings)));
    } else {
        console::data(memory::text::of(&spec, &readings).trim_end());
    }
    Ok(if readings.interrupted { Exit::Interrupted } else { Exit::Ok })
}

/// Returns the measurements that the flags select.
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
                 remove {kernel} from --kernel"
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
            return Err(Failure::usage(format!(
                "--threads {list}: each number of threads must be from 1 to {THREADS_MAX}"
            )));
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
            "--offset {}: use a multiple of 8 bytes, below 4096 bytes",
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
