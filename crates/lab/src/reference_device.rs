//! Reference devices, which are model devices with known performance. The user specifies them as
//! targets (`truth:KEY=VALUE,..`) or with `--ioengine delay`.
//!
//! A reference device exists only within this process, where the I/O engine `delay` serves its
//! requests. It has no file and stores no data.

use std::path::{Path, PathBuf};

use ioengine::engine::DelayDevice;
use ioengine::truth::Truth;
use ioengine::{EngineKind, HostTarget};

use crate::experiment::Experiment;
use crate::failure::{Failure, Outcome};
use crate::truth;

/// Prefix of the names of reference devices.
pub const PREFIX: &str = "truth:";
/// Default size of a device (bytes).
pub const SIZE_BYTES: u64 = 1 << 30;

/// A reference device with its name.
#[derive(Clone, Debug)]
pub struct ReferenceDevice {
    /// Name of the device as typed, or a description for `--ioengine delay`.
    pub name: String,
    /// Behaviour of the device.
    pub truth: Truth,
}

impl ReferenceDevice {
    /// Parses the name of a reference device, such as `truth:fixed=1ms,rate=100MB/s`.
    ///
    /// # Errors
    /// A usage error if the name is invalid.
    pub fn parse(word: &str) -> Outcome<ReferenceDevice> {
        let keys = word.strip_prefix(PREFIX).unwrap_or(word);
        let truth =
            truth::parse_truth(keys).map_err(|error| Failure::usage(format!("{word}: {error}")))?;
        Ok(ReferenceDevice { name: word.to_owned(), truth })
    }

    /// Opens a new device. Its size is `bytes`, or the size that its zones span if that is larger.
    pub fn open(&self, bytes: u64) -> HostTarget {
        let bytes = bytes.max(truth::span_bytes(&self.truth).unwrap_or(0));
        HostTarget::delay(bytes, DelayDevice::new(self.truth.clone())).called(self.name.clone())
    }
}

/// Returns true if a target is the name of a reference device.
pub fn is_reference(target: &Path) -> bool {
    target.to_string_lossy().starts_with(PREFIX)
}

/// Returns the reference devices of an experiment that uses the I/O engines `engine_kinds`. Empty
/// if the targets are not reference devices.
///
/// # Errors
/// A usage error if reference devices are used together with other targets, another I/O engine or
/// data verification, or if a target and `--truth` both describe a device.
pub fn devices(
    experiment: &Experiment,
    engine_kinds: &[Option<EngineKind>],
) -> Outcome<Vec<ReferenceDevice>> {
    let targets = &experiment.targets;
    let named: Vec<_> = targets.iter().filter(|target| is_reference(target)).collect();
    let devices = if named.is_empty() {
        described(experiment, engine_kinds)?
    } else {
        check_named(experiment, named.len() == targets.len())?;
        let parse = |target: &&PathBuf| ReferenceDevice::parse(&target.to_string_lossy());
        named.iter().map(parse).collect::<Outcome<_>>()?
    };
    if experiment.verify && !devices.is_empty() {
        return Err(Failure::usage(
            "a reference device that is not mounted stores no data to verify; drop --verify, or \
             mount the device as a file: halfpower mount truth:... DIR",
        ));
    }
    Ok(devices)
}

/// Checks that the other parameters of an experiment fit reference devices as targets. `alone` is
/// true if all targets are reference devices.
fn check_named(experiment: &Experiment, alone: bool) -> Outcome<()> {
    if !alone {
        return Err(Failure::usage(
            "reference devices (truth:...) cannot be measured together with other targets; measure \
             them one by one",
        ));
    }
    if experiment.truth.is_some() {
        return Err(Failure::usage(
            "the target truth:... and --truth both describe a device; drop --truth or the target",
        ));
    }
    let is_other = |kind: &&EngineKind| **kind != EngineKind::Delay;
    if let Some(other) = experiment.engine_kinds.iter().flatten().find(is_other) {
        return Err(Failure::usage(format!(
            "a reference device that is not mounted works only with --ioengine delay, not {other}; \
             drop --ioengine, or mount the device as a file: halfpower mount truth:... DIR"
        )));
    }
    Ok(())
}

/// Returns the device of `--ioengine delay`, which needs no target and accepts none. Empty for
/// other I/O engines.
fn described(
    experiment: &Experiment,
    engine_kinds: &[Option<EngineKind>],
) -> Outcome<Vec<ReferenceDevice>> {
    let is_delay = |engine_kind: &Option<EngineKind>| *engine_kind == Some(EngineKind::Delay);
    let (some, all) = (engine_kinds.iter().any(is_delay), engine_kinds.iter().all(is_delay));
    if some && (!all || !experiment.targets.is_empty()) {
        return Err(Failure::usage(
            "--ioengine delay creates its own device, so it works only without targets and without \
             other I/O engines; drop the targets and the other I/O engines, or use the target \
             truth:... without --ioengine",
        ));
    }
    if experiment.truth.is_some() && !all {
        return Err(Failure::usage(
            "--truth describes the device of --ioengine delay; add --ioengine delay",
        ));
    }
    let truth = experiment.truth.clone().unwrap_or_default();
    let name = format!("device of {}", truth::describe(&truth));
    Ok(if all { vec![ReferenceDevice { name, truth }] } else { Vec::new() })
}

/// Returns the default size of the region that is accessed on every device (bytes). The region
/// begins at `offset` and ends at the end of the zones. If several devices have zones, the smallest
/// end counts. If no device has zones, the region has [`SIZE_BYTES`] bytes.
///
/// # Errors
/// A usage error if the offset is not inside the zones.
pub fn region_bytes(devices: &[ReferenceDevice], offset: u64) -> Outcome<u64> {
    let spans = devices.iter().filter_map(|device| truth::span_bytes(&device.truth));
    match spans.min() {
        None => Ok(SIZE_BYTES),
        Some(span) if span > offset => Ok(span - offset),
        Some(span) => Err(Failure::usage(format!(
            "--offset {offset} is not inside the zones of the device, which end at {span} bytes; \
             use a smaller --offset, or enlarge the device with --size"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_at_least_as_large_as_its_span() {
        let device = ReferenceDevice::parse("truth:span=2g,zones=2m@50/1m@100").unwrap();
        let size = |bytes: u64| ioengine::Target::size_bytes(&device.open(bytes));
        assert_eq!((size(1), size(3 << 30)), (2 << 30, 3 << 30));
        assert!(is_reference(Path::new("truth:")) && !is_reference(Path::new("./truth:")));
        let failure = ReferenceDevice::parse("truth:speed=9").unwrap_err();
        assert!(failure.message.contains("truth:speed=9: unknown property 'speed'"), "{failure}");
    }

    #[test]
    fn the_region_ends_at_the_smallest_span() {
        let devices = ["truth:span=2m,zones=1m@100", "truth:span=1m,zones=1m@100", "truth:"];
        let devices = devices.map(|word| ReferenceDevice::parse(word).unwrap());
        assert_eq!(region_bytes(&devices, 4096).unwrap(), (1 << 20) - 4096);
        assert_eq!(region_bytes(&devices[2..], 1 << 40).unwrap(), SIZE_BYTES);
        assert!(region_bytes(&devices, 1 << 20).is_err());
    }
}
