//! Flags of `memory`: kernels, working sets, threads, page size, and the directory for the
//! page-cache tests.

use analysis::units;
use std::path::PathBuf;

use clap::Args;

use crate::cli::OutputArgs;

/// Flags of `memory`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower memory                       caches, memory and files in memory, about 10 s
  halfpower memory --quick               about 3 s
  halfpower memory --kernel copy,nt-copy --size 256m --threads 1,2,4
  halfpower memory --kernel load --size 4k..256m
  halfpower memory --kernel triad --size 192m --buffer-pages system      with default pages

Kernels: load, touch-read, store, touch-write, nt-store, memset, copy, nt-copy, triad. A size covers
all arrays of a thread, so copy copies one half of the size to the other half. Rates count bytes in
the usual way: for copy, the copied bytes; for triad, 24 bytes per element; for touch, one cache
line per access. The output of --json also has the memory traffic. Each thread has its own arrays.
With --kernel or --size, only the table of kernels is measured.")]
pub struct MemoryArgs {
    /// Take fewer and shorter samples (about 3 s in total)
    #[arg(long, help_heading = "Time")]
    pub quick: bool,
    /// Measure only these memory operations (kernels), such as copy,triad
    #[arg(long, value_name = "NAME,..", help_heading = "Workload")]
    pub kernel: Option<String>,
    /// Sizes of the working set of each thread, such as 16k,256m or 4k..256m [default: half of each
    /// cache, and a size far larger than all caches]
    #[arg(long, value_name = "SIZE,..", help_heading = "Workload")]
    pub size: Option<String>,
    /// Thread counts to measure, such as 1,2,4 [default: 1, and the number of CPUs]
    #[arg(long, value_name = "N,..", help_heading = "Workload")]
    pub threads: Option<String>,
    /// Page size of the arrays; system means the default of this system
    #[arg(long, value_name = "huge|4k|system", default_value = "huge",
          value_parser = ["huge", "4k", "system"], help_heading = "Workload")]
    pub buffer_pages: String,
    /// Offset of the arrays from the start of a page: a multiple of 8 bytes, below 4k. For kernels
    /// with non-temporal stores, it is rounded down to a cache line
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, default_value = "0",
          help_heading = "Workload")]
    pub offset: u64,
    /// Pin threads to these CPUs in turn: 0,2 or 0-3 [default: all CPUs of this process]
    #[arg(long, value_name = "LIST", help_heading = "Workload")]
    pub cpus_allowed: Option<String>,
    /// Directory for an unnamed test file, which is read from the page cache
    #[arg(long, value_name = "DIR", default_value = ".", help_heading = "Workload")]
    pub dir: PathBuf,
    /// How results are printed.
    #[command(flatten)]
    pub output: OutputArgs,
}
