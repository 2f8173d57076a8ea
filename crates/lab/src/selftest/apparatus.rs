//! Measurements of the self-test: single trials on a reference device, and medians over several
//! rounds of trials.

use analysis::quantile::median;
use ioengine::{EngineKind, HostTarget};
use workload::{Pattern, Workload};

use crate::failure::{Exit, Failure, Outcome};
use crate::point::{State, Trial};
use crate::selftest::devices::Source;
use crate::selftest::devices::{self, Device};
use crate::trials::{Lab, Setting};

/// Size of the devices (bytes).
pub const DEVICE_BYTES: u64 = 256 << 20;
/// The largest number of requests in flight (bytes of buffers stay small).
pub const DEEP: u32 = 32;

/// One trial to be made.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Share of reads (percent).
    pub read_percent: u8,
    /// Size of each request (bytes).
    pub request_bytes: u32,
    /// Requests outstanding.
    pub depth: u32,
    /// In which order.
    pub pattern: Pattern,
    /// Part of the device (bytes).
    pub region_bytes: u64,
    /// How long (ns).
    pub limit_ns: Option<u64>,
    /// How much (bytes).
    pub limit_bytes: Option<u64>,
    /// Not counted at the start (ns).
    pub warm_up_ns: u64,
    /// With the soaker beside it.
    pub soaked: bool,
}

impl Probe {
    /// Random reads for so many milliseconds.
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

/// The laboratory and where its devices come from.
pub struct Apparatus<'a> {
    /// Makes the trials.
    pub lab: &'a Lab,
    /// FUSE or in process.
    pub source: Source,
}

impl Apparatus<'_> {
    /// A device as it would be typed behind `--truth`.
    pub fn device(&self, truth: &str) -> Outcome<Device> {
        devices::open(self.source, truth, DEVICE_BYTES)
    }

    /// One trial on a device.
    pub fn trial(&self, device: &Device, probe: Probe) -> Outcome<Trial> {
        self.trial_on(&device.target, device.engine_kind, probe)
    }

    /// One trial on any target.
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
            return Err(Failure::failed(format!("the device failed: {failure}")));
        }
        // The wrong thing was measured: no figure of it may pass.
        if trial.verdict.state == State::Invalid {
            let why = trial.verdict.reasons.join("; ");
            return Err(Failure::new(Exit::Invalid, format!("a trial is invalid: {why}")));
        }
        Ok(trial)
    }

    /// Median latency of a trial (ns).
    pub fn latency_ns(&self, device: &Device, probe: Probe) -> Outcome<f64> {
        let trial = self.trial(device, probe)?;
        Ok(trial.latency().quantile(0.5).map_or(f64::NAN, |ns| ns as f64))
    }

    /// Medians of a measurement on a device and on the one at zero delay, in turn.
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

/// The median, not a number where there is none.
pub fn middle(values: &[f64]) -> f64 {
    median(values).unwrap_or(f64::NAN)
}
