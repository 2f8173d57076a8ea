//! Parses simulated targets such as `sim:nt4-ultrawide,disks=4`, and checks the flags that are used
//! with them.
//!
//! The syntax is `sim:SYSTEM,key=value,..`. SYSTEM is the name of a built-in system, or the path of
//! a system file. A path contains a slash or ends in `.toml`. The simulated system itself is
//! created later, separately for each trial.

use std::collections::BTreeMap;
use std::path::Path;

use ioengine::{BufferPages, Caching};
use simulator::system::{Allocated, CachingChoice};
use simulator::{Description, System};

use crate::experiment::{Allocation, EngineParameters, Experiment, HostParameters, PageCache};
use crate::failure::{Failure, Outcome};
use crate::guard::Consent;
use crate::text_file;

/// Prefix of the names of simulated targets.
pub const PREFIX: &str = "sim:";
/// Prefix of the keys that describe the page cache of Linux in a system file.
const LINUX_CACHE: &str = "host.cache.linux.";
/// The command that prints an example of a system file.
const EXAMPLE: &str = "halfpower simulate --show nt4-ultrawide";

/// A built-in system or a system from a file, with the changes that the target's name contains.
#[derive(Clone, Debug)]
struct Named {
    description: Description,
    /// New values of the changed keys of the system file.
    changes: BTreeMap<String, String>,
}

/// A simulated system as the target of a run.
#[derive(Clone, Debug)]
pub struct SimulatedTarget {
    /// Name of the target as typed.
    pub name: String,
    /// The simulated system, with all changes.
    pub system: System,
    /// Whether requests are buffered or direct, and whether writes are durable before they
    /// complete.
    pub caching: Caching,
    /// New values of the changed keys of the system file.
    pub changes: BTreeMap<String, String>,
}

impl SimulatedTarget {
    /// Returns the simulated system that is the target of a run or sweep. None if all targets are
    /// real.
    ///
    /// # Errors
    ///
    /// The system is unknown, there are several targets, or a flag does not apply to simulated
    /// systems.
    pub fn of(experiment: &Experiment) -> Outcome<Option<SimulatedTarget>> {
        let targets = &experiment.targets;
        let Some(target) = targets.iter().find(|target| is_simulated(target)) else {
            return Ok(None);
        };
        if targets.len() > 1 {
            return Err(Failure::usage(format!(
                "{} cannot be measured together with other targets; measure it alone (to simulate \
                 four devices, append ,disks=4)",
                target.display()
            )));
        }
        let name = target.to_string_lossy().into_owned();
        let Named { mut description, mut changes } = named(&name, &[])?;
        let refuses = !description.keys().iter().any(|key| key.starts_with(LINUX_CACHE));
        check_flags(experiment, refuses || experiment.direct != Some(false))?;
        let mut change = |key: &str, value: String| -> Outcome<()> {
            description.set(key, &value)?;
            changes.insert(key.to_owned(), value);
            Ok(())
        };
        match experiment.allocation {
            Allocation::Extend => change("allocation", "extend".to_owned())?,
            // If only the last block was written, the file system zeroes the other blocks before
            // data are written to them. The simulator models this.
            Allocation::LastBlock => change("allocation", "zeroed".to_owned())?,
            Allocation::Existing | Allocation::Truncate | Allocation::Reserve => {}
        }
        if let Some(direct) = experiment.direct {
            change("caching", if direct { "direct" } else { "buffered" }.to_owned())?;
        }
        if let Some(chunk) = experiment.chunk_bytes {
            change("volume", "stripe".to_owned())?;
            change("chunk", chunk.to_string())?;
        }
        let wanted = experiment.size_bytes.unwrap_or(0).saturating_add(experiment.offset_bytes);
        let place = SimulatedTarget::new(name, &description, changes, wanted)?;
        let caching = Caching::of(place.caching.is_direct(), experiment.write_through);
        Ok(Some(SimulatedTarget { caching, ..place }))
    }

    /// Returns the simulated system that is the target of a survey. None if the target is real. The
    /// simulated file is at least as large as `--size`.
    ///
    /// # Errors
    ///
    /// The system is unknown, or a flag does not apply to it.
    pub fn of_survey(experiment: &Experiment) -> Outcome<Option<SimulatedTarget>> {
        let Some(target) = experiment.targets.iter().find(|target| is_simulated(target)) else {
            return Ok(None);
        };
        refuse(&foreign(experiment))?;
        let name = target.to_string_lossy().into_owned();
        let Named { description, changes } = named(&name, &[])?;
        Ok(Some(SimulatedTarget::new(
            name,
            &description,
            changes,
            experiment.size_bytes.unwrap_or(0),
        )?))
    }

    /// Creates a target whose file is at least as large as the requested region, like a test file
    /// in a directory.
    fn new(
        name: String,
        description: &Description,
        changes: BTreeMap<String, String>,
        region_bytes: u64,
    ) -> Outcome<SimulatedTarget> {
        let mut system = description.system()?;
        system.setup.file_size = system.setup.file_size.max(region_bytes);
        let caching = Caching::of(system.setup.caching == CachingChoice::Direct, false);
        Ok(SimulatedTarget { name, system, caching, changes })
    }

    /// Whether writes grow the file.
    pub fn grows(&self) -> bool {
        self.system.setup.allocation == Allocated::Extend
    }
}

/// Fails if a flag concerns this host or stored data. If `refuses_flushes` is true, also fails for
/// flags that flush between writes, because only the simulated page cache of Linux models such
/// flushes.
fn check_flags(experiment: &Experiment, refuses_flushes: bool) -> Outcome<()> {
    let allocation = experiment.allocation;
    let mut engine = experiment.engine;
    if !refuses_flushes {
        (engine.fsync, engine.fdatasync) = (None, None);
    }
    refuse(&[
        (experiment.verify, "--verify", "stores no data to verify"),
        (experiment.faults.is_some(), "--inject", "cannot inject faults"),
        (!experiment.cpus.is_empty(), "--cpus-allowed", "does not use CPUs of this host"),
        (experiment.hint.is_some(), "--hint", "has no kernel that takes hints"),
        (experiment.engine_kinds != [None], "--ioengine", "uses no I/O engine of this host"),
        (allocation == Allocation::Truncate, "--allocation truncate", "has no blocks to release"),
        (allocation == Allocation::Reserve, "--allocation fallocate", "has no blocks to reserve"),
        (experiment.soaker, "--soaker", "computes both bounds of its CPU cost without a soaker"),
        (experiment.zero_buffers, "--zero-buffers", "stores no data"),
        (!experiment.invalidate, "--invalidate=0", "begins each trial with a cold cache"),
        (
            engine != EngineParameters::default(),
            "the flags listed under 'Engine' in halfpower run --help",
            "uses no I/O engine of this host and flushes only at the end",
        ),
        (
            experiment.page_cache == Some(PageCache::Warm),
            "--page-cache warm",
            "begins each trial with a cold cache",
        ),
        (
            experiment.host != HostParameters::default(),
            "the flags listed under 'Host' in halfpower run --help",
            "does not use the settings of this host",
        ),
    ])?;
    refuse(&foreign(experiment))
}

/// A flag: whether the user specified it, its name, and why it does not apply to a simulated
/// system.
type Refused = (bool, &'static str, &'static str);

/// Lists flags that apply to no simulated system.
fn foreign(experiment: &Experiment) -> [Refused; 4] {
    let consents = experiment.consent != Consent::default();
    [
        (consents, "--overwrite and --destroy-data-on", "has no data that could be lost"),
        (experiment.buffer_pages == BufferPages::Small, "--buffer-pages", "has no memory pages"),
        (experiment.allow_holes, "--allow-holes", "has no holes"),
        (experiment.endurance_bytes.is_some(), "--endurance", "has no drive that wears out"),
    ]
}

/// Fails if the user specified one of the flags. The message contains the first such flag.
fn refuse(flags: &[Refused]) -> Outcome<()> {
    match flags.iter().find(|(given, ..)| *given) {
        Some((_, flag, why)) => {
            Err(Failure::usage(format!("a simulated system {why}; drop {flag}")))
        }
        None => Ok(()),
    }
}

/// Whether the name of a target specifies a simulated system.
pub fn is_simulated(target: &Path) -> bool {
    target.to_string_lossy().starts_with(PREFIX)
}

/// Parses a name such as `sim:nt4-ultrawide,disks=4`, and applies further changes.
///
/// # Errors
///
/// The system is unknown, or a change is invalid.
pub fn parse(text: &str, changes: &[String]) -> Outcome<Description> {
    Ok(named(text, changes)?.description)
}

/// Like [`parse`], but also returns the changes.
///
/// # Errors
///
/// As for [`parse`].
fn named(text: &str, further: &[String]) -> Outcome<Named> {
    let mut parts = text.strip_prefix(PREFIX).unwrap_or(text).split(',');
    let mut description = load(parts.next().unwrap_or_default().trim())?;
    let mut changes = BTreeMap::new();
    for part in parts.chain(further.iter().map(String::as_str)) {
        let (key, value) = part.split_once('=').ok_or_else(|| {
            let what = format!("{text}: '{part}' is not a change; write KEY=VALUE, as in disks=4");
            Failure::usage(what)
        })?;
        let (key, value) = (key.trim(), value.trim());
        description.set(key, value)?;
        changes.insert(key.to_owned(), value.to_owned());
    }
    Ok(Named { description, changes })
}

/// Returns a built-in system, or reads a system from a system file.
fn load(system: &str) -> Outcome<Description> {
    Ok(Description::read(&file_of(system)?, system)?)
}

/// Returns the text of a system file or of a built-in system.
///
/// # Errors
/// The file does not exist or cannot be read.
pub fn file_of(system: &str) -> Outcome<String> {
    if system.contains('/') || system.ends_with(".toml") {
        text_file::read(Path::new(system), "system file", EXAMPLE)
    } else {
        Ok(Description::file(system)?.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_names_a_system_and_changes_it() {
        let system = |text: &str| parse(text, &[]).unwrap().system().unwrap();
        assert_eq!(system("sim:nt4-ultrawide").setup.disks, 1);
        let changed = system("sim:nt4-ultrawide,disks=4, volume=stripe ,drive.rotation=5400");
        assert_eq!(changed.setup.disks, 4);
        let changes = named("sim:nt4-ultrawide,disks=4", &["disks=2".to_owned()]).unwrap().changes;
        assert_eq!(changes.into_iter().collect::<Vec<_>>(), [("disks".into(), "2".into())]);
    }

    #[test]
    fn unknown_systems_are_refused_with_the_remedy() {
        for (text, remedy) in [
            ("sim:nothing", "nt4-ultrawide"),
            ("sim:", "nt4-ultrawide"),
            ("sim:nt4-ultrawide,", "KEY=VALUE"),
            ("sim:nt4-ultrawide,disks", "KEY=VALUE"),
            ("sim:nt4-ultrawide,wheels=4", "disks"),
            ("sim:nt4-ultrawide,disks=many", "whole number"),
            ("sim:./missing.toml", "specify a TOML file"),
        ] {
            let failure = parse(text, &[]).unwrap_err();
            assert_eq!(failure.exit, crate::failure::Exit::Usage, "{text}: {failure}");
            assert!(failure.message.contains(remedy), "{text}: {failure}");
        }
    }

    #[test]
    fn a_system_file_of_the_user_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        std::fs::write(&path, "name = 'mine'").unwrap();
        let text = format!("sim:{}", path.display());
        assert!(parse(&text, &[]).unwrap().system().is_err(), "the file has only a name");
        assert!(is_simulated(Path::new(&text)) && !is_simulated(&path));
    }
}
