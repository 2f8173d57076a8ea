//! What `memory --json` prints: kernels by working set and threads, the caches found, and the paths
//! through the file system.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Curve, GridPoint, MemoryReadings, MemorySpec, PathReading};
use crate::json::{IntervalDocument, Program};
use crate::machine::Host;

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
    /// Data caches of the first of these CPUs, as reported by Linux.
    pub caches: Vec<CacheDocument>,
    /// Kernels by working set and threads.
    pub table: Vec<CellDocument>,
    /// Rates by working set, on one thread.
    pub curves: Vec<CurveDocument>,
    /// Rates through the file system, and of the same copies without it.
    pub paths: Vec<PathDocument>,
    /// Measurements that were skipped, each with reason and remedy.
    pub skipped: Vec<String>,
    /// Whether the measurement was interrupted.
    pub interrupted: bool,
}

/// A cache.
#[derive(Serialize, JsonSchema)]
pub struct CacheDocument {
    /// Level; 1 is closest to the CPU.
    pub level: u32,
    /// Size of the cache.
    pub bytes: u64,
    /// Number of CPUs that share the cache.
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
    /// Number of threads; each has a working set of its own.
    pub threads: u64,
    /// Number of samples.
    pub samples: u64,
    /// Rate of all threads together. Each byte is counted once: a copy counts the bytes copied, the
    /// triad 24 bytes per element.
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
    /// Rates of the curve, in ascending order of working-set size.
    pub points: Vec<CurvePointDocument>,
    /// Ranges of sets with about the same rate; a cache level ends between two of them.
    pub plateaus: Vec<PlateauDocument>,
}

/// The rate at one working-set size.
#[derive(Serialize, JsonSchema)]
pub struct CurvePointDocument {
    /// Size of the working set.
    pub set_bytes: u64,
    /// Median rate, bytes counted once.
    pub bytes_per_s: f64,
}

/// A range of working-set sizes with about the same rate.
#[derive(Serialize, JsonSchema)]
pub struct PlateauDocument {
    /// The smallest working set.
    pub from_bytes: u64,
    /// The largest working set.
    pub to_bytes: u64,
    /// Median rate, bytes counted once.
    pub bytes_per_s: f64,
}

/// The rate of a data path through the file system.
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

impl MemoryDocument {
    /// The document of a measurement with the requested pages.
    pub fn of(spec: &MemorySpec, buffer_pages: &str, readings: &MemoryReadings) -> MemoryDocument {
        let cache = |cache: &memspeed::caches::Cache| CacheDocument {
            level: cache.level,
            bytes: cache.bytes,
            shared_by: cache.shared_by,
        };
        let path = |path: &PathReading| PathDocument {
            name: path.name.to_owned(),
            file_bytes: path.file_bytes,
            samples: path.samples as u64,
            bytes_per_s: path.bytes_per_s.into(),
        };
        MemoryDocument {
            halfpower: Program::this(),
            host: Host::read(),
            instructions: readings.isa.name().to_owned(),
            buffer_pages: buffer_pages.to_owned(),
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
