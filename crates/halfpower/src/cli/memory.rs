//! What can be typed after `halfpower memory`: kernels, sizes, threads, pages.

use std::path::PathBuf;

use clap::Args;

/// Flags of `memory`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower memory                       caches, memory and files in memory, about 10 s
  halfpower memory --quick               about 3 s
  halfpower memory --kernel copy,nt-copy --size 256m --threads 1,2,4
  halfpower memory --kernel load --size 4k..256m
  halfpower memory --kernel triad --size 192m --buffer-pages system      as a program gets it

Kernels: load, touch-read, store, touch-write, nt-store, memset, copy, nt-copy, triad. A size is
that of all arrays of a thread together, so copy moves half of it to the other half. Rates count
bytes once, as each kernel is usually quoted: a copy its bytes, the triad 24 for an element, a touch
the line that it moves; --json has the traffic too. Each thread has arrays of its own. With --kernel
or --size only the table is measured.")]
pub struct MemoryArgs {
    /// Fewer and shorter samples, about 3 s
    #[arg(long, help_heading = "Time")]
    pub quick: bool,
    /// Only these kernels
    #[arg(long, value_name = "NAME,..", help_heading = "Workload")]
    pub kernel: Option<String>,
    /// Working sets of a thread, such as 16k,256m or 4k..256m [default: half of each cache, and
    /// one far larger than all]
    #[arg(long, value_name = "SIZE,..", help_heading = "Workload")]
    pub size: Option<String>,
    /// Threads at once [default: 1, and one for each CPU]
    #[arg(long, value_name = "N,..", help_heading = "Workload")]
    pub threads: Option<String>,
    /// Memory pages behind the arrays; system: what a program gets that asks for nothing
    #[arg(long, value_name = "huge|4k|system", default_value = "huge",
          value_parser = ["huge", "4k", "system"], help_heading = "Workload")]
    pub buffer_pages: String,
    /// Begin arrays so far past the start of a page: a multiple of 8 bytes below 4k. What passes
    /// the caches begins at the line before
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, default_value = "0",
          help_heading = "Workload")]
    pub offset: u64,
    /// Pin threads to these CPUs in turn: 0,2 or 0-3 [default: all of this process]
    #[arg(long, value_name = "LIST", help_heading = "Workload")]
    pub cpus_allowed: Option<String>,
    /// Where a file without a name is laid out, to be read from the page cache
    #[arg(long, value_name = "DIR", default_value = ".", help_heading = "Workload")]
    pub dir: PathBuf,
    /// Print one JSON document instead of text
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Say nothing but the result, warnings and errors
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
    /// Print what would be done and do nothing
    #[arg(long, help_heading = "Output")]
    pub plan: bool,
}
