//! Measures the bandwidth of memory and caches.
//!
//! The crate `memspeed` runs loops such as copy and triad, which are called kernels, and measures
//! their rates. Each kernel is measured with one working set per cache and one in main memory
//! (`levels`). Some kernels are also measured as a curve over the working-set size: a step in the
//! curve shows the real size of a cache. For comparison, `paths` measures reads and writes of
//! cached files. A copy counts each byte once (see `memspeed`).

pub mod document;
mod levels;
mod paths;
pub mod text;

use analysis::units;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use analysis::bootstrap::median_interval;
use analysis::cachesteps::{self, Plateau};
use analysis::interval::{CONFIDENCE, Interval};
use ioengine::{Clock, Monotonic};
use memspeed::caches::{self, Cache};
use memspeed::{Case, Isa, Kernel, Pages, Plan, Reading, SET_BYTES_MIN, World};

use crate::console::Progress;
use crate::failure::{Failure, Outcome, check_not_under_dev};
use crate::interrupt::Interrupt;
use crate::trials::Lab;

pub use levels::Level;
pub use paths::{PATHS, PathReading};

/// Number of points of a curve per doubling of the working-set size.
const SIZES_TO_THE_OCTAVE: u32 = 4;
/// Size of the smallest working set of a curve (bytes).
const CURVE_FROM_BYTES: u64 = 4096;
/// Number of samples of each measurement: normally, and with `quick`.
const REPEATS: [usize; 2] = [15, 7];
/// Length of a sample (ns). A sample is shorter than a scheduler time slice, so that some samples
/// are undisturbed even on a busy machine.
const SAMPLE_NS: u64 = 1_000_000;
/// Maximum share of the available memory that a measurement uses.
const MEMORY_SHARE_MAX: f64 = 0.5;

/// What to measure: loops such as copy and triad, working sets, thread counts and file access.
#[derive(Clone, Debug)]
pub struct MemorySpec {
    /// Loops, such as copy and triad, to measure with each working set and thread count.
    pub kernels: Vec<Kernel>,
    /// Working-set sizes of a thread (bytes). If empty, one size for each cache and one for main
    /// memory are selected.
    pub set_bytes: Vec<u64>,
    /// Thread counts to measure.
    pub threads: Vec<usize>,
    /// CPUs that threads are pinned to, round robin.
    pub cpus: Vec<usize>,
    /// Page size of the memory that holds the arrays.
    pub pages: Pages,
    /// Offset of the arrays from the start of a page (bytes).
    pub offset_bytes: usize,
    /// Loops, such as copy and triad, to measure with one thread as a curve over the working-set
    /// size.
    pub curves: Vec<Kernel>,
    /// Folder for the test file. None if file access is not measured.
    pub folder: Option<PathBuf>,
    /// Whether to take fewer samples.
    pub quick: bool,
}

impl MemorySpec {
    /// Returns a spec that measures everything, with one thread and with one thread per CPU that
    /// this process may use.
    pub fn of_this_host(quick: bool) -> MemorySpec {
        let cpus = cpucost::affinity::allowed_cpus();
        let isa = Isa::detect();
        let all = cpus.len().max(1);
        MemorySpec {
            kernels: Kernel::ALL.into_iter().filter(|kernel| isa.has(*kernel)).collect(),
            set_bytes: Vec::new(),
            threads: if all > 1 { vec![1, all] } else { vec![1] },
            cpus,
            pages: Pages::Huge,
            offset_bytes: 0,
            curves: if quick { vec![Kernel::Load] } else { vec![Kernel::Load, Kernel::Copy] },
            folder: Some(PathBuf::from(".")),
            quick,
        }
    }
}

/// The rate of one loop, such as copy or triad, on one working set.
#[derive(Clone, Debug)]
pub struct GridPoint {
    /// The measured loop, such as copy or triad.
    pub kernel: Kernel,
    /// The working set: its size, and the cache level or memory that holds it.
    pub level: Level,
    /// Number of threads, each with its own working set.
    pub threads: usize,
    /// Median total rate of all threads (bytes per second). A copy counts each byte once.
    pub bytes_per_s: Interval,
    /// Total rate in the fastest sample (bytes per second). A copy counts each byte once.
    pub best_bytes_per_s: f64,
    /// Median memory traffic: bytes read plus bytes written, per second. A copy counts each byte
    /// twice.
    pub traffic_bytes_per_s: f64,
    /// Number of samples.
    pub samples: usize,
}

/// Rates of one loop, such as copy or triad, over the working-set size, with one thread.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The measured loop, such as copy or triad.
    pub kernel: Kernel,
    /// Working-set sizes in ascending order (bytes), each with the median rate (bytes per second).
    /// A copy counts each byte once.
    pub points: Vec<(u64, f64)>,
    /// Ranges of sizes with about the same rate. The size of a cache lies between two ranges.
    pub plateaus: Vec<Plateau>,
}

/// All results of a measurement.
#[derive(Clone, Debug)]
pub struct MemoryReadings {
    /// Caches of the first CPU, as reported by Linux.
    pub caches: Vec<Cache>,
    /// Instruction set of the measured loops.
    pub isa: Isa,
    /// Share of the test memory that was on huge pages; None if unknown.
    pub huge_share: Option<f64>,
    /// Rate for each loop, working set and thread count.
    pub table: Vec<GridPoint>,
    /// Rates as curves over the working-set size.
    pub curves: Vec<Curve>,
    /// Rates of file access, and of `memcpy` for comparison.
    pub paths: Vec<PathReading>,
    /// Skipped measurements, each with reason and remedy.
    pub skipped: Vec<String>,
    /// Whether the measurement was interrupted.
    pub interrupted: bool,
}

/// The sizes, memory and time that a [`MemorySpec`] needs on this host.
#[derive(Clone, Debug)]
pub struct MemoryPlan {
    /// Caches of the first CPU, as reported by Linux.
    pub caches: Vec<Cache>,
    /// Thread counts, each with its working sets.
    pub rows: Vec<(usize, Vec<Level>)>,
    /// Working-set sizes of the curves (bytes).
    pub sizes: Vec<u64>,
    /// Size of each test file (bytes).
    pub file_bytes: u64,
    /// Maximum memory in use at the same time (bytes).
    pub most_bytes: u64,
    /// Estimated duration (ns).
    pub takes_ns: u64,
}

/// Selects the working sets for a spec, from the caches and the free memory of this host.
///
/// # Errors
/// A working set is too small, the working sets of all threads need more than half of the free
/// memory, or the folder is under /dev.
pub fn plan(spec: &MemorySpec) -> Outcome<MemoryPlan> {
    if let Some(folder) = &spec.folder {
        check_not_under_dev(&folder.join("file"), "--dir")?;
    }
    let caches = caches::of_cpu(spec.cpus.first().copied().unwrap_or(0));
    let available = levels::available_bytes();
    let limit = available.map_or(u64::MAX, |bytes| (bytes as f64 * MEMORY_SHARE_MAX) as u64);
    let sets = |threads: usize| match spec.set_bytes.as_slice() {
        [] => levels::of_machine(&caches, threads, limit / threads as u64),
        sizes => sizes.iter().map(|set| levels::place(&caches, threads, *set)).collect(),
    };
    let rows: Vec<(usize, Vec<Level>)> =
        spec.threads.iter().map(|&threads| (threads, sets(threads))).collect();
    let alone = levels::of_machine(&caches, 1, limit);
    let far = alone.last().map_or(CURVE_FROM_BYTES, |level| level.set_bytes);
    let sizes =
        if spec.curves.is_empty() { Vec::new() } else { levels::sizes(CURVE_FROM_BYTES, far) };
    let of_row = |(threads, sets): &(usize, Vec<Level>)| {
        let largest = sets.iter().map(|level| level.set_bytes).max().unwrap_or(0);
        largest.saturating_mul(*threads as u64)
    };
    let most_bytes = rows.iter().map(of_row).chain(sizes.last().copied()).max().unwrap_or(0);
    if most_bytes > limit {
        return Err(Failure::usage(format!(
            "the working sets take {} of memory, more than half of the {} that is free; use a \
             smaller --size or fewer --threads",
            units::size(most_bytes),
            units::size(available.unwrap_or(0))
        )));
    }
    if let Some(set) = spec.set_bytes.iter().find(|set| **set < SET_BYTES_MIN as u64) {
        return Err(Failure::usage(format!(
            "--size {set} is too small: a working set needs at least 4096 bytes; use 4k or more"
        )));
    }
    let file_bytes = paths::file_bytes(far);
    let mut plan = MemoryPlan { caches, rows, sizes, file_bytes, most_bytes, takes_ns: 0 };
    plan.takes_ns = takes_ns(spec, &plan);
    Ok(plan)
}

/// Memory rate that the estimate of the duration assumes (bytes per second).
const GUESSED_BYTES_PER_S: f64 = 10e9;

fn takes_ns(spec: &MemorySpec, plan: &MemoryPlan) -> u64 {
    let form = usize::from(spec.quick);
    // A sample lasts `sample_ns`, but at least one pass over the working set. The warm-up takes as
    // long as one sample.
    let cell = |sample_ns: u64, set_bytes: u64| {
        let pass_ns = set_bytes as f64 / GUESSED_BYTES_PER_S * 1e9;
        (REPEATS[form] as f64 + 1.0) * (sample_ns as f64).max(pass_ns)
    };
    let rows = plan.rows.iter().flat_map(|(_, levels)| levels);
    let table: f64 = rows.map(|level| cell(SAMPLE_NS, level.set_bytes)).sum();
    let curve: f64 = plan.sizes.iter().map(|size| cell(SAMPLE_NS, *size)).sum();
    let paths =
        if spec.folder.is_some() { cell(0, plan.file_bytes) * PATHS.len() as f64 } else { 0.0 };
    (table * spec.kernels.len() as f64 + curve * spec.curves.len() as f64 + paths) as u64
}

/// Performs the measurements of a spec. If the user interrupts them, returns the results obtained
/// until then.
///
/// # Errors
/// All errors of [`plan`]. Also, memory, threads or a test file cannot be created.
pub fn measure(lab: &Lab, spec: &MemorySpec) -> Outcome<MemoryReadings> {
    let plan = plan(spec)?;
    let mut readings = MemoryReadings {
        caches: plan.caches.clone(),
        isa: Isa::detect(),
        huge_share: None,
        table: Vec::new(),
        curves: Vec::new(),
        paths: Vec::new(),
        skipped: Vec::new(),
        interrupted: false,
    };
    let bench = Bench {
        clock: lab.clock,
        interrupt: &lab.interrupt,
        spec,
        progress: Mutex::new(lab.console.progress(plan.takes_ns)),
    };
    for (threads, levels) in &plan.rows {
        bench.table(*threads, levels, &mut readings)?;
    }
    for kernel in &spec.curves {
        readings.curves.extend(bench.curve(*kernel, &plan.sizes)?);
    }
    if let Some(folder) = spec.folder.as_ref().filter(|_| !lab.interrupt.is_set()) {
        let repeats = REPEATS[usize::from(spec.quick)];
        bench.tell("file system");
        let (paths, skipped) = paths::measure(lab, folder, plan.file_bytes, repeats)?;
        readings.paths = paths;
        readings.skipped.extend(skipped);
    }
    bench.progress.into_inner().unwrap_or_else(PoisonError::into_inner).finish();
    readings.interrupted = lab.interrupt.is_set();
    Ok(readings)
}

/// State shared by all measurements of a run.
struct Bench<'a> {
    clock: Monotonic,
    interrupt: &'a Interrupt,
    spec: &'a MemorySpec,
    progress: Mutex<Progress>,
}

impl Bench<'_> {
    fn tell(&self, what: &str) {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).update(what);
    }

    fn run(&self, what: &str, cases: &[Case], threads: usize) -> Outcome<Vec<Reading>> {
        let spec = self.spec;
        let form = usize::from(spec.quick);
        let pin = |number: usize| {
            if let Some(cpu) = spec.cpus.get(number % spec.cpus.len().max(1)) {
                // If this fails, for example because the CPU went offline, the thread runs on any
                // CPU.
                let _ = cpucost::affinity::pin_current_thread(&[*cpu]);
            }
        };
        let stop = || {
            self.tell(what);
            self.interrupt.is_set()
        };
        let plan = Plan {
            cases,
            threads,
            isa: Isa::detect(),
            pages: spec.pages,
            offset_bytes: spec.offset_bytes,
            repeats: REPEATS[form],
            sample_ns: SAMPLE_NS,
        };
        let now_ns = || self.clock.now_ns();
        memspeed::measure(&plan, &World { now_ns: &now_ns, pin: &pin, stop: &stop }).map_err(|e| {
            let cause = ioengine::error::cause(&e);
            Failure::failed(format!(
                "measuring memory with {threads} threads: {cause}; use a smaller --size or fewer \
                 --threads"
            ))
        })
    }

    fn table(
        &self,
        threads: usize,
        levels: &[Level],
        readings: &mut MemoryReadings,
    ) -> Outcome<()> {
        if self.interrupt.is_set() {
            return Ok(());
        }
        let of_kernel = |&kernel: &Kernel| {
            levels.iter().map(move |level| Case { kernel, set_bytes: level.set_bytes as usize })
        };
        let cases: Vec<Case> = self.spec.kernels.iter().flat_map(of_kernel).collect();
        let what = format!("kernels with {threads} threads");
        let measured = self.run(&what, &cases, threads)?;
        readings.huge_share = measured.first().and_then(|reading| reading.huge_share);
        let levels = self.spec.kernels.iter().flat_map(|_| levels);
        readings.table.extend(measured.iter().zip(levels).filter_map(|(r, level)| cell(r, level)));
        Ok(())
    }

    fn curve(&self, kernel: Kernel, sizes: &[u64]) -> Outcome<Option<Curve>> {
        if self.interrupt.is_set() {
            return Ok(None);
        }
        let case = |size: &u64| Case { kernel, set_bytes: *size as usize };
        let cases: Vec<Case> = sizes.iter().map(case).collect();
        let measured = self.run(&format!("{kernel} by size"), &cases, 1)?;
        let point = |reading: &Reading| {
            let rate = analysis::quantile::median(&reading.once_bytes_per_s)?;
            Some((reading.case.set_bytes as u64, rate))
        };
        let points: Vec<(u64, f64)> = measured.iter().filter_map(point).collect();
        let plateaus = cachesteps::plateaus(&points);
        Ok(Some(Curve { kernel, points, plateaus }))
    }
}

/// Returns the result of one measurement, or None if there are no samples.
fn cell(reading: &Reading, level: &Level) -> Option<GridPoint> {
    let rates = &reading.once_bytes_per_s;
    let bytes_per_s = median_interval(rates, CONFIDENCE)?;
    Some(GridPoint {
        kernel: reading.case.kernel,
        level: level.clone(),
        threads: reading.threads,
        bytes_per_s,
        best_bytes_per_s: rates.iter().copied().fold(0.0, f64::max),
        traffic_bytes_per_s: bytes_per_s.value * reading.traffic_per_once,
        samples: rates.len(),
    })
}
