//! Memory and cache bandwidth: which sets and threads to measure, and what came of it.
//!
//! The crate `memspeed` moves the bytes; here sets follow from the caches that the kernel tells of
//! (`levels`), the steps in a curve over all sizes say where caches really end, and the way of the
//! same bytes through the file system is measured beside them (`paths`). Rates count bytes once,
//! as `memspeed` defines it.

pub mod document;
mod levels;
mod paths;

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use analysis::bootstrap::median_interval;
use analysis::cachesteps::{self, Plateau};
use analysis::interval::{CONFIDENCE, Interval};
use ioengine::{Clock, Monotonic};
use memspeed::caches::{self, Cache};
use memspeed::{Case, Isa, Kernel, LEAST_SET_BYTES, Pages, Plan, Reading, World};

use crate::console::Progress;
use crate::failure::{Failure, Outcome, check_not_under_dev};
use crate::interrupt::Interrupt;
use crate::trials::Lab;

pub use levels::Level;
pub use paths::{PATHS, PathReading};

/// Sizes to the octave of a curve.
const SIZES_TO_THE_OCTAVE: u32 = 4;
/// Curves begin at this set (bytes).
const CURVE_FROM_BYTES: u64 = 4096;
/// Samples of each case in the normal form, and in the quick one.
const REPEATS: [usize; 2] = [15, 7];
/// Length of a sample (ns): shorter than the turn that another program gets on the CPU, so that a
/// busy machine spoils some samples and not all.
const SAMPLE_NS: u64 = 1_000_000;
/// Seed of the intervals: the same samples always give the same ones.
const SEED: u64 = 1;
/// Largest share of the memory that is free for use.
const MEMORY_SHARE_MOST: f64 = 0.5;

/// What to measure.
#[derive(Clone, Debug)]
pub struct MemorySpec {
    /// Kernels of the table.
    pub kernels: Vec<Kernel>,
    /// Working sets of a thread (bytes); empty: one for each cache, and one for memory.
    pub set_bytes: Vec<u64>,
    /// Numbers of threads of the table.
    pub threads: Vec<usize>,
    /// CPUs that threads are pinned to, in turn.
    pub cpus: Vec<usize>,
    /// Pages behind the arrays.
    pub pages: Pages,
    /// How far past the start of a page arrays begin (bytes).
    pub offset_bytes: usize,
    /// Kernels whose curve over all sizes is measured, on one thread.
    pub curves: Vec<Kernel>,
    /// Where the hot file lies, if the paths through the file system are measured.
    pub folder: Option<PathBuf>,
    /// Fewer and shorter samples.
    pub quick: bool,
}

impl MemorySpec {
    /// Everything, on one thread and on all CPUs of this process.
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

/// A kernel over one set.
#[derive(Clone, Debug)]
pub struct GridPoint {
    /// The kernel.
    pub kernel: Kernel,
    /// Where the set lies, and its size.
    pub level: Level,
    /// Threads, each over a set of its own.
    pub threads: usize,
    /// Median rate of all threads together, bytes counted once (bytes per second).
    pub bytes_per_s: Interval,
    /// The fastest sample (bytes per second, once).
    pub best_bytes_per_s: f64,
    /// The median as traffic: bytes read and written (bytes per second).
    pub traffic_bytes_per_s: f64,
    /// Samples.
    pub samples: usize,
}

/// Rates of a kernel over all sizes, on one thread.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The kernel.
    pub kernel: Kernel,
    /// Set (bytes) and median rate (bytes per second, once), sizes ascending.
    pub points: Vec<(u64, f64)>,
    /// The caches found; a step lies between two neighbours.
    pub plateaus: Vec<Plateau>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct MemoryReadings {
    /// Caches of the first CPU, as the kernel tells.
    pub caches: Vec<Cache>,
    /// Instructions that were used.
    pub isa: Isa,
    /// Share of the memory on huge pages, where it can be told.
    pub huge_share: Option<f64>,
    /// The table.
    pub table: Vec<GridPoint>,
    /// The curves.
    pub curves: Vec<Curve>,
    /// The same bytes through the file system.
    pub paths: Vec<PathReading>,
    /// What was left out, each with reason and remedy.
    pub skipped: Vec<String>,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
}

/// What will be measured of a spec on this host.
#[derive(Clone, Debug)]
pub struct MemoryPlan {
    /// Caches of the first CPU.
    pub caches: Vec<Cache>,
    /// Number of threads and the sets of each.
    pub rows: Vec<(usize, Vec<Level>)>,
    /// Sizes of the curves (bytes).
    pub sizes: Vec<u64>,
    /// Size of each file (bytes).
    pub file_bytes: u64,
    /// The most memory that is in use at once (bytes).
    pub most_bytes: u64,
    /// About how long it takes (ns).
    pub takes_ns: u64,
}

/// Resolves a spec against the caches and the free memory of this host.
///
/// # Errors
/// A set is too small, or all sets of the threads together too large; the folder is under /dev.
pub fn plan(spec: &MemorySpec) -> Outcome<MemoryPlan> {
    if let Some(folder) = &spec.folder {
        check_not_under_dev(&folder.join("file"), "--dir")?;
    }
    let caches = caches::of_cpu(spec.cpus.first().copied().unwrap_or(0));
    let available = levels::available_bytes();
    let limit = available.map_or(u64::MAX, |bytes| (bytes as f64 * MEMORY_SHARE_MOST) as u64);
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
            "the sets take {} of memory, and more than half of the {} that is free would disturb \
             others: use a smaller --size or fewer --threads",
            units::size(most_bytes),
            units::size(available.unwrap_or(0))
        )));
    }
    if let Some(set) = spec.set_bytes.iter().find(|set| **set < LEAST_SET_BYTES as u64) {
        return Err(Failure::usage(format!(
            "--size {set}: a working set holds 4096 bytes at least; write 4k or more"
        )));
    }
    let file_bytes = paths::file_bytes(far);
    let mut plan = MemoryPlan { caches, rows, sizes, file_bytes, most_bytes, takes_ns: 0 };
    plan.takes_ns = takes_ns(spec, &plan);
    Ok(plan)
}

/// About so many bytes a second are moved in memory, to foretell how long it takes; a guess.
const GUESSED_BYTES_PER_S: f64 = 10e9;

fn takes_ns(spec: &MemorySpec, plan: &MemoryPlan) -> u64 {
    let form = usize::from(spec.quick);
    // One pass before and one sample, or two passes where that is longer; the first visit twice.
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

/// Measures a spec on this host: the table, then the curves, then the paths. An order to stop
/// keeps what there is.
///
/// # Errors
/// See [`plan`]; or memory or threads cannot be had.
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

/// What all parts of a measurement share.
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
                // It may have gone offline since; the thread then runs where the kernel puts it.
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

/// None where there is no sample.
fn cell(reading: &Reading, level: &Level) -> Option<GridPoint> {
    let rates = &reading.once_bytes_per_s;
    let bytes_per_s = median_interval(rates, CONFIDENCE, SEED)?;
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
