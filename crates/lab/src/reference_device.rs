//! Reference devices as targets: `truth:KEY=VALUE,..`, several of them side by side, and the
//! one behind `--ioengine delay`.
//!
//! They live in the generator's process and are served by the I/O engine `delay`: no file, no
//! device and no data are behind them.

use std::path::{Path, PathBuf};

use ioengine::engine::DelayDevice;
use ioengine::truth::Truth;
use ioengine::{EngineKind, HostTarget};

use crate::experiment::Experiment;
use crate::failure::{Failure, Outcome};
use crate::truth;

/// What the name of such a target begins with.
pub const PREFIX: &str = "truth:";
/// Size of a device for which none is given (bytes).
pub const SIZE_BYTES: u64 = 1 << 30;

/// A reference device, under its name.
#[derive(Clone, Debug)]
pub struct ReferenceDevice {
    /// As it was typed, or described where it was not.
    pub name: String,
    /// What it does.
    pub truth: Truth,
}

impl ReferenceDevice {
    /// The device that a word such as `truth:fixed=1ms,rate=100MB/s` names.
    ///
    /// # Errors
    /// Usage, when it is no such device.
    pub fn parse(word: &str) -> Outcome<ReferenceDevice> {
        let keys = word.strip_prefix(PREFIX).unwrap_or(word);
        let truth =
            truth::parse_truth(keys).map_err(|error| Failure::usage(format!("{word}: {error}")))?;
        Ok(ReferenceDevice { name: word.to_owned(), truth })
    }

    /// The device at rest, which holds so much or its whole span, whichever is more (bytes).
    pub fn open(&self, bytes: u64) -> HostTarget {
        let bytes = bytes.max(truth::span_bytes(&self.truth).unwrap_or(0));
        HostTarget::delay(bytes, DelayDevice::new(self.truth.clone())).called(self.name.clone())
    }
}

/// Whether the name of a target is that of a reference device.
pub fn is_reference(target: &Path) -> bool {
    target.to_string_lossy().starts_with(PREFIX)
}

/// The devices that a run or sweep with these I/O engines measures; none where it measures
/// something else.
///
/// # Errors
/// Usage: devices beside other targets, under another I/O engine, described twice, or asked to
/// keep data.
pub fn devices(
    experiment: &Experiment,
    engine_kinds: &[Option<EngineKind>],
) -> Outcome<Vec<ReferenceDevice>> {
    let targets = &experiment.targets;
    let named: Vec<_> = targets.iter().filter(|target| is_reference(target)).collect();
    let devices = match named.is_empty() {
        true => described(experiment, engine_kinds)?,
        false => {
            check_named(experiment, named.len() == targets.len())?;
            let parse = |target: &&PathBuf| ReferenceDevice::parse(&target.to_string_lossy());
            named.iter().map(parse).collect::<Outcome<_>>()?
        }
    };
    if experiment.verify && !devices.is_empty() {
        return Err(Failure::usage(
            "a reference device in this process keeps no data to verify; drop --verify, or \
             mount such a device as a file: halfpower mount truth:... DIR",
        ));
    }
    Ok(devices)
}

/// Named devices need no other word, and take none.
fn check_named(experiment: &Experiment, alone: bool) -> Outcome<()> {
    if !alone {
        return Err(Failure::usage(
            "reference devices (truth:...) and other targets are not measured together; \
             measure them one by one",
        ));
    }
    if experiment.truth.is_some() {
        return Err(Failure::usage(
            "a target truth:... says itself what it does; drop --truth, or the target",
        ));
    }
    let is_other = |kind: &&EngineKind| **kind != EngineKind::Delay;
    if let Some(other) = experiment.engine_kinds.iter().flatten().find(is_other) {
        return Err(Failure::usage(format!(
            "--ioengine {other}: a reference device is in this process and served by delay \
             alone; drop --ioengine, or mount it as a file: halfpower mount truth:... DIR"
        )));
    }
    Ok(())
}

/// The device of `--ioengine delay`, which needs no target and shares it with nobody.
fn described(
    experiment: &Experiment,
    engine_kinds: &[Option<EngineKind>],
) -> Outcome<Vec<ReferenceDevice>> {
    let is_delay = |engine_kind: &Option<EngineKind>| *engine_kind == Some(EngineKind::Delay);
    let (some, all) = (engine_kinds.iter().any(is_delay), engine_kinds.iter().all(is_delay));
    if some && (!all || !experiment.targets.is_empty()) {
        return Err(Failure::usage(
            "--ioengine delay is a device of its own; name no target but truth:..., and no other \
             I/O engine",
        ));
    }
    if experiment.truth.is_some() && !all {
        return Err(Failure::usage("--truth describes the device of --ioengine delay; add that"));
    }
    let truth = experiment.truth.clone().unwrap_or_default();
    let name = format!("device of {}", truth::describe(&truth));
    Ok(if all { vec![ReferenceDevice { name, truth }] } else { Vec::new() })
}

/// The region that all devices hold from `offset` on, if none is asked for: all of the smallest
/// span (bytes).
///
/// # Errors
/// Usage, when nothing is left of it.
pub fn region_bytes(devices: &[ReferenceDevice], offset: u64) -> Outcome<u64> {
    let spans = devices.iter().filter_map(|device| truth::span_bytes(&device.truth));
    match spans.min() {
        None => Ok(SIZE_BYTES),
        Some(span) if span > offset => Ok(span - offset),
        Some(span) => Err(Failure::usage(format!(
            "--offset {offset} is at or beyond the span of {span} bytes; use a smaller --offset, \
             or give --size"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_names_a_device_and_its_size_is_its_span_at_least() {
        let device = ReferenceDevice::parse("truth:span=2g,zones=2m@50/1m@100").unwrap();
        let size = |bytes: u64| ioengine::Target::size_bytes(&device.open(bytes));
        assert_eq!((size(1), size(3 << 30)), (2 << 30, 3 << 30));
        assert!(is_reference(Path::new("truth:")) && !is_reference(Path::new("./truth:")));
        let failure = ReferenceDevice::parse("truth:speed=9").unwrap_err();
        assert!(failure.message.contains("truth:speed=9: 'speed'"), "{failure}");
    }

    #[test]
    fn the_region_is_the_smallest_span_behind_the_offset() {
        let devices = ["truth:span=2m,zones=1m@100", "truth:span=1m,zones=1m@100", "truth:"];
        let devices = devices.map(|word| ReferenceDevice::parse(word).unwrap());
        assert_eq!(region_bytes(&devices, 4096).unwrap(), (1 << 20) - 4096);
        assert_eq!(region_bytes(&devices[2..], 1 << 40).unwrap(), SIZE_BYTES);
        assert!(region_bytes(&devices, 1 << 20).is_err());
    }
}
