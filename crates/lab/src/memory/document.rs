//! The document that `memory --json` prints: the rates of memory and caches, and of reads and
//! writes of cached files.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Curve, GridPoint, MemoryReadings, MemorySpec, PathReading};
use crate::json::{IntervalDocument, Program};
use crate::machine::Host;

/// The document that `memory --json` prints.
#[derive(Serialize, JsonSchema)]
pub struct MemoryDocument {
    /// The program that wrote the document.
    pub halfpower: Program,
    /// The machine that ran the measurement.
    pub host: Host,
    /// Instruction set of the measured loops: portable, avx2 or avx512.
    pub instructions: String,
    /// Requested page size of the buffers: huge, 4k or system.
    pub buffer_pages: String,
    /// Share of the test memory that was on huge pages; null if unknown.
    pub huge_share: Option<f64>,
    /// Offset of the arrays from the start of a page (bytes).
    pub offset_bytes: u64,
    /// CPUs to which threads were pinned, round robin.
    pub cpus: Vec<usize>,
    /// Data caches of the first CPU in `cpus`, as reported by Linux.
    pub caches: Vec<CacheDocument>,
    /// Rate for each loop (such as copy and triad), working set and thread count.
    pub table: Vec<CellDocument>,
    /// Rates with one thread, as curves over the working-set size.
    pub curves: Vec<CurveDocument>,
    /// Rates of reads and writes of cached files, and of `memcpy` for comparison.
    pub paths: Vec<PathDocument>,
    /// Measurements that were skipped, each with reason and remedy.
    pub skipped: Vec<String>,
    /// Whether the measurement was interrupted.
    pub interrupted: bool,
}

/// A data cache.
#[derive(Serialize, JsonSchema)]
pub struct CacheDocument {
    /// Level of the cache; 1 is closest to the CPU.
    pub level: u32,
    /// Size of the cache (bytes).
    pub bytes: u64,
    /// Number of CPUs that share the cache.
    pub shared_by: u32,
}

/// The rate of one loop, such as copy or triad, on one working set.
#[derive(Serialize, JsonSchema)]
pub struct CellDocument {
    /// Name of the measured loop, such as copy or triad.
    pub kernel: String,
    /// Cache that is large enough for the working set (L1, L2 or L3), or DRAM.
    pub level: String,
    /// Total size of the arrays of one thread (bytes).
    pub set_bytes: u64,
    /// Number of threads. Each thread has a separate working set.
    pub threads: u64,
    /// Number of samples.
    pub samples: u64,
    /// Median total rate of all threads (bytes per second). A copy counts each byte once. The triad
    /// counts 24 bytes per element.
    pub bytes_per_s: IntervalDocument,
    /// Total rate in the fastest sample (bytes per second), counted as in `bytes_per_s`.
    pub best_bytes_per_s: f64,
    /// Median memory traffic: bytes read plus bytes written, per second. A copy counts each byte
    /// twice.
    pub traffic_bytes_per_s: f64,
}

/// Rates of one loop, such as copy or triad, over the working-set size.
#[derive(Serialize, JsonSchema)]
pub struct CurveDocument {
    /// Name of the measured loop, such as copy or triad.
    pub kernel: String,
    /// Rates of the curve, in ascending order of working-set size.
    pub points: Vec<CurvePointDocument>,
    /// Ranges of sizes with about the same rate. The size of a cache lies between two ranges.
    pub plateaus: Vec<PlateauDocument>,
}

/// The rate at one working-set size.
#[derive(Serialize, JsonSchema)]
pub struct CurvePointDocument {
    /// Size of the working set (bytes).
    pub set_bytes: u64,
    /// Median rate (bytes per second). A copy counts each byte once.
    pub bytes_per_s: f64,
}

/// A range of working-set sizes with about the same rate.
#[derive(Serialize, JsonSchema)]
pub struct PlateauDocument {
    /// Smallest working-set size of the range (bytes).
    pub from_bytes: u64,
    /// Largest working-set size of the range (bytes).
    pub to_bytes: u64,
    /// Median rate (bytes per second). A copy counts each byte once.
    pub bytes_per_s: f64,
}

/// The rate of reads or writes of a cached file, or of `memcpy` for comparison.
#[derive(Serialize, JsonSchema)]
pub struct PathDocument {
    /// Name of the measurement: temporary-file-read, temporary-file-write, hot-file-read,
    /// memcpy-to-buffer or memcpy-from-buffer. Each request moves 64 KiB to or from one buffer.
    pub name: String,
    /// Size of the file or array (bytes).
    pub file_bytes: u64,
    /// Number of samples.
    pub samples: u64,
    /// Median rate (bytes of the file or array per second).
    pub bytes_per_s: IntervalDocument,
}

impl MemoryDocument {
    /// Returns the document of a measurement. `buffer_pages` is the requested page size.
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
