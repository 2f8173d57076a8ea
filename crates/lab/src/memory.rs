//! Measures memory and cache bandwidth: selects working sets and thread counts, and holds the
//! results.
//!
//! The crate `memspeed` moves the bytes. Working sets are selected from the caches that the kernel
//! reports (`levels`). Steps in a curve of the rate over the working-set size show the real cache
//! sizes. Reads and copies of cached files through the file system are measured for comparison
//! (`paths`). Rates count each byte once, as defined in `memspeed`.

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

/// Number of working-set sizes in a curve for each doubling of the size.
const SIZES_TO_THE_OCTAVE: u32 = 4;
/// Size of the smallest working set of a curve (bytes).
const CURVE_FROM_BYTES: u64 = 4096;
/// Number of samples per case, normally and with `quick`.
const REPEATS: [usize; 2] = [15, 7];
/// Length of a sample (ns). It is shorter than a scheduler time slice, so that on a busy machine
/// some samples stay undisturbed.
const SAMPLE_NS: u64 = 1_000_000;
/// Maximum share of the available memory that a measurement uses.
const MEMORY_SHARE_MAX: f64 = 0.5;

/// The kernels, working sets, threads and data paths to measure.
#[derive(Clone, Debug)]
pub struct MemorySpec {
    /// Kernels (loops such as copy and triad) that are measured for the table.
    pub kernels: Vec<Kernel>,
    /// Sizes of the working set of each thread (bytes). If empty, one size per cache and one size
    /// for main memory are selected.
    pub set_bytes: Vec<u64>,
    /// Numbers of threads. The table has one measurement for each.
    pub threads: Vec<usize>,
    /// CPUs that threads are pinned to, round robin.
    pub cpus: Vec<usize>,
    /// Page size of the memory that holds the arrays.
    pub pages: Pages,
    /// Offset of the arrays from the start of a page (bytes).
    pub offset_bytes: usize,
    /// Kernels (loops such as copy and triad) that are measured over all working-set sizes, with
    /// one thread.
    pub curves: Vec<Kernel>,
    /// Folder for the cached test file. None: data paths through the file system are not measured.
    pub folder: Option<PathBuf>,
    /// Whether to take fewer samples.
    pub quick: bool,
}

impl MemorySpec {
    /// Returns the spec of all measurements, with one thread and with one thread per CPU of this
    /// process.
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

/// The rate of a kernel (a loop such as copy or triad) on one working set.
#[derive(Clone, Debug)]
pub struct GridPoint {
    /// The measured loop, such as copy or triad.
    pub kernel: Kernel,
    /// The working set: its size, and the cache level or memory that holds it.
    pub level: Level,
    /// Number of threads, each with its own working set.
    pub threads: usize,
    /// Median rate of all threads together (bytes per second), each byte counted once.
    pub bytes_per_s: Interval,
    /// Rate of the fastest sample (bytes per second), each byte counted once.
    pub best_bytes_per_s: f64,
    /// Median traffic: bytes read plus bytes written (bytes per second).
    pub traffic_bytes_per_s: f64,
    /// Number of samples.
    pub samples: usize,
}

/// Rates of a kernel (a loop such as copy or triad) over all working-set sizes, with one thread.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The measured loop, such as copy or triad.
    pub kernel: Kernel,
    /// Pairs of working-set size (bytes) and median rate (bytes per second, each byte counted
    /// once), in ascending order of size.
    pub points: Vec<(u64, f64)>,
    /// Plateaus of the curve. A cache level ends between two plateaus.
    pub plateaus: Vec<Plateau>,
}

/// All results of a measurement.
#[derive(Clone, Debug)]
pub struct MemoryReadings {
    /// Caches of the first CPU, as reported by Linux.
    pub caches: Vec<Cache>,
    /// Instruction set that the kernels used.
    pub isa: Isa,
    /// Share of the memory on huge pages; None if unknown.
    pub huge_share: Option<f64>,
    /// Results by kernel (a loop such as copy or triad), working set and thread count.
    pub table: Vec<GridPoint>,
    /// Rates over all working-set sizes.
    pub curves: Vec<Curve>,
    /// Rates of the data paths through the file system.
    pub paths: Vec<PathReading>,
    /// Skipped measurements, each with reason and remedy.
    pub skipped: Vec<String>,
    /// Whether the measurement was interrupted.
    pub interrupted: bool,
}

/// A [`MemorySpec`] resolved for this host.
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

/// Resolves a spec against the caches and the free memory of this host.
///
/// # Errors
/// A working set is too small, all threads together use too much memory, or the folder is under
/// /dev.
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

/// Assumed memory rate for the estimated duration (bytes per second).
const GUESSED_BYTES_PER_S: f64 = 10e9;

fn takes_ns(spec: &MemorySpec, plan: &MemoryPlan) -> u64 {
    let form = usize::from(spec.quick);
    // A sample takes `sample_ns`, or one pass over the working set if that is longer. The warm-up
    // takes as long as one more sample.
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

/// Measures a spec on this host: first the table, then the curves, then the data paths. If
/// interrupted, returns the results obtained until then.
///
/// # Errors
/// The same errors as for [`plan`], or memory or threads cannot be allocated.
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

/// Returns the result of one case, or None if there are no samples.
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
