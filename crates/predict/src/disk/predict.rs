//! Measures and simulates the workloads that test a calibrated disk. None of these workloads is
//! used in the fit.

use analysis::units;
use lab::failure::Outcome;
use simulator::{CalibrationPoint, System};
use workload::{Pattern, Workload};

use super::probe::{Probe, SimulatedDisk};

/// Duration of a read-only trial (ns).
const TRIAL_NS: u64 = 5_000_000_000;
/// Duration of a trial with writes (ns). It is longer, because the writes first fill the cache.
const WRITE_TRIAL_NS: u64 = 20_000_000_000;
/// Number of trials of each workload.
const TRIALS: u64 = 2;

/// A workload with its measured and its simulated rate.
#[derive(Clone, Debug)]
pub struct Predicted {
    /// The workload.
    pub workload: Workload,
    /// Measured rate: the mean of the trials [bytes per second].
    pub measured: f64,
    /// Simulated rate: the mean of the trials [bytes per second].
    pub simulated: f64,
    /// Mean absolute deviation of the measured trials from their mean, as a share of the mean.
    pub spread: f64,
}

/// A workload: share of reads (percent), whether offsets are random, request size (bytes), queue
/// depth, and start and length of the region (shares of the disk size).
type Row = (u8, bool, u32, u32, f64, f64);

/// Workloads that test a calibration. They differ in request size, queue depth, region, and mix of
/// reads and writes.
const LOADS: [Row; 18] = [
    (100, true, 4 << 10, 1, 0.0, 1.0),
    (100, true, 64 << 10, 1, 0.0, 1.0),
    (100, true, 512 << 10, 1, 0.0, 1.0),
    (100, true, 8 << 10, 4, 0.0, 1.0),
    (100, true, 16 << 10, 16, 0.0, 1.0),
    (100, true, 4 << 10, 1, 0.45, 0.02),
    (100, true, 4 << 10, 8, 0.7, 0.2),
    (100, false, 64 << 10, 1, 0.0, 1.0),
    (100, false, 256 << 10, 1, 0.5, 0.5),
    (100, false, 1 << 20, 2, 0.95, 0.05),
    (100, false, 8 << 10, 4, 0.2, 0.5),
    (0, true, 4 << 10, 1, 0.0, 1.0),
    (0, true, 64 << 10, 4, 0.0, 0.3),
    (0, false, 128 << 10, 1, 0.1, 0.5),
    (0, false, 1 << 20, 2, 0.6, 0.4),
    (70, true, 8 << 10, 4, 0.0, 1.0),
    (50, true, 4 << 10, 16, 0.3, 0.4),
    (90, true, 64 << 10, 1, 0.0, 1.0),
];

/// Returns the workloads for a disk. If the disk may not be written, workloads with writes are left
/// out.
fn loads(probe: &dyn Probe) -> Vec<Workload> {
    let size = probe.size_bytes();
    let may = |row: &&Row| row.0 == 100 || probe.may_write();
    let load = |row: &Row| {
        let (read_percent, is_random, request_bytes, depth, from, share) = *row;
        let unit = 1_u64 << 20;
        let offset = (size as f64 * from) as u64 / unit * unit;
        let bytes = ((size as f64 * share) as u64).min(size - offset) / unit * unit;
        Workload {
            pattern: if is_random { Pattern::Random } else { Pattern::Sequential },
            read_percent,
            request_bytes,
            depth,
            region_offset: offset,
            region_bytes: bytes,
            limit_ns: Some(if read_percent == 100 { TRIAL_NS } else { WRITE_TRIAL_NS }),
            ..Workload::default()
        }
    };
    LOADS.iter().filter(may).map(load).collect()
}

/// Measures and simulates all workloads.
///
/// # Errors
/// If a workload could not be measured or simulated.
pub fn predict(probe: &mut dyn Probe, system: &System) -> Outcome<Vec<Predicted>> {
    let mut all = Vec::new();
    for workload in loads(probe) {
        let mut measured = Vec::new();
        for trial in 0..TRIALS {
            probe.drain()?;
            measured.push(probe.load(&Workload { seed: 100 + trial, ..workload.clone() })?);
        }
        let simulated = simulate(system, &workload)?;
        let mean = measured.iter().sum::<f64>() / measured.len() as f64;
        let away = measured.iter().map(|rate| (rate / mean - 1.0).abs()).sum::<f64>();
        let spread = away / measured.len() as f64;
        all.push(Predicted { workload, measured: mean, simulated, spread });
    }
    Ok(all)
}

/// Simulates a workload on an initially idle system. Returns the mean rate of the trials
/// [bytes per second].
///
/// # Errors
/// If the workload does not fit the system.
pub fn simulate(system: &System, workload: &Workload) -> Outcome<f64> {
    let mut sum = 0.0;
    for trial in 0..TRIALS {
        let mut disk = SimulatedDisk::new(system, 1000 + trial, true)?;
        sum += disk.load(&Workload { seed: 200 + trial, ..workload.clone() })?;
    }
    Ok(sum / TRIALS as f64)
}

impl Predicted {
    /// Describes the workload in one line.
    pub fn describe(&self) -> String {
        let load = &self.workload;
        let [size, from, span] =
            [u64::from(load.request_bytes), load.region_offset, load.region_bytes].map(units::size);
        let mix = match load.read_percent {
            0 | 100 => String::new(),
            percent => format!(" {percent}% reads"),
        };
        format!("{}{mix} {size}, depth {}, {span} at offset {from}", load.rw(), load.depth)
    }

    /// Converts the workload and its rates to a calibration point for the system file.
    pub fn point(&self) -> CalibrationPoint {
        CalibrationPoint {
            read_percent: self.workload.read_percent,
            pattern: self.workload.pattern.to_string(),
            request_bytes: u64::from(self.workload.request_bytes),
            outstanding: self.workload.depth,
            hosts: 1,
            held_out: true,
            measured_bytes_per_s: self.measured.round(),
            simulated_bytes_per_s: self.simulated.round(),
        }
    }
}
