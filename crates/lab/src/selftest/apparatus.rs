//! Runs single trials on reference devices for the self-test, and computes medians over several
//! rounds of trials.

use analysis::quantile::median;
use ioengine::{EngineKind, HostTarget};
use workload::{Pattern, Workload};

use crate::failure::{Exit, Failure, Outcome};
use crate::point::{State, Trial};
use crate::selftest::devices::Source;
use crate::selftest::devices::{self, Device};
use crate::trials::{Lab, Setting};

/// Size of the reference devices (bytes).
pub const DEVICE_BYTES: u64 = 256 << 20;
/// The largest queue depth of the self-test. It is limited to keep the buffers small.
pub const DEEP: u32 = 32;

/// The settings of one trial.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Share of reads (percent).
    pub read_percent: u8,
    /// Size of each request (bytes).
    pub request_bytes: u32,
    /// Queue depth of the trial.
    pub depth: u32,
    /// Order in which the offsets are accessed.
    pub pattern: Pattern,
    /// Size of the accessed region (bytes).
    pub region_bytes: u64,
    /// Length of the trial (ns). None if the trial has no time limit.
    pub limit_ns: Option<u64>,
    /// Number of bytes after which the trial ends. None if the trial has no such limit.
    pub limit_bytes: Option<u64>,
    /// Length of the warm-up, which is not counted (ns).
    pub warm_up_ns: u64,
    /// Whether the soaker runs during the trial and uses all CPU time that is left over.
    pub soaked: bool,
}

impl Probe {
    /// Returns the settings of a trial of random reads that lasts `milliseconds` ms.
    pub fn reads(request_bytes: u32, depth: u32, milliseconds: u64) -> Probe {
        Probe {
            read_percent: 100,
            request_bytes,
            depth,
            pattern: Pattern::Random,
            region_bytes: DEVICE_BYTES,
            limit_ns: Some(milliseconds * 1_000_000),
            limit_bytes: None,
            warm_up_ns: 0,
            soaked: false,
        }
    }
}

/// Runs trials on reference devices.
pub struct Apparatus<'a> {
    /// The lab that runs the trials.
    pub lab: &'a Lab,
    /// How the devices are served: over FUSE or in this process.
    pub source: Source,
}

impl Apparatus<'_> {
    /// Creates a device with the given parameters, in the syntax of `--truth`.
    pub fn device(&self, truth: &str) -> Outcome<Device> {
        devices::open(self.source, truth, DEVICE_BYTES)
    }

    /// Runs one trial on a device.
    pub fn trial(&self, device: &Device, probe: Probe) -> Outcome<Trial> {
        self.trial_on(&device.target, device.engine_kind, probe)
    }

    /// Runs one trial on any target.
    pub fn trial_on(
        &self,
        target: &HostTarget,
        engine_kind: EngineKind,
        probe: Probe,
    ) -> Outcome<Trial> {
        let workload = Workload {
            engine_kind,
            pattern: probe.pattern,
            read_percent: probe.read_percent,
            request_bytes: probe.request_bytes,
            depth: probe.depth,
            region_bytes: probe.region_bytes,
            limit_ns: probe.limit_ns,
            limit_bytes: probe.limit_bytes,
            warm_up_ns: probe.warm_up_ns,
            interval_ns: 20_000_000,
            ..Workload::default()
        };
        let setting = Setting { soaked: probe.soaked, ..Setting::new(target, workload) };
        let trial = self.lab.trial(&setting, &mut |_| {})?;
        if self.lab.interrupt.is_set() {
            return Err(Failure::interrupted());
        }
        if let Some(failure) = trial.failure() {
            return Err(Failure::failed(format!("a request failed: {failure}")));
        }
        // The values of an invalid trial must not be used.
        if trial.verdict.state == State::Invalid {
            let why = trial.verdict.reasons.join("; ");
            return Err(Failure::new(Exit::Invalid, format!("a trial is invalid: {why}")));
        }
        Ok(trial)
    }

    /// Runs one trial on a device, and returns its median latency (ns).
    pub fn latency_ns(&self, device: &Device, probe: Probe) -> Outcome<f64> {
        let trial = self.trial(device, probe)?;
        Ok(trial.latency().quantile(0.5).map_or(f64::NAN, |ns| ns as f64))
    }

    /// Measures alternately on the reference device (`measure(true)`) and on a device with zero
    /// delay (`measure(false)`). Returns the median of each.
    pub fn in_turn(
        &self,
        rounds: u32,
        mut measure: impl FnMut(bool) -> Outcome<f64>,
    ) -> Outcome<(f64, f64)> {
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            with.push(measure(true)?);
            without.push(measure(false)?);
        }
        Ok((middle(&with), middle(&without)))
    }
}

/// Returns the median. NaN if there are no values.
pub fn middle(values: &[f64]) -> f64 {
    median(values).unwrap_or(f64::NAN)
}
