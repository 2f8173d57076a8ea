//! Simulated systems as targets: `sim:SYSTEM,key=value,..`, and what of the flags fits them.
//!
//! SYSTEM is a name that comes with the program or a file of the user's own, which has a slash in
//! its path or ends in `.toml`. Nothing is built here: a place is what each trial builds its world
//! from.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use ioengine::{BufferPages, Caching};
use simulator::system::{Allocated, CachingChoice};
use simulator::{Description, System};

use crate::experiment::{Allocation, EngineParameters, Experiment, HostParameters, PageCache};
use crate::failure::{Failure, Outcome};
use crate::guard::Consent;

/// What the name of a simulated target begins with.
pub const PREFIX: &str = "sim:";
/// The largest system file (bytes): what is larger is something else.
const BYTES_MAX: u64 = 1 << 20;

/// A system as it was named, with what was changed in it.
#[derive(Clone, Debug)]
struct Named {
    description: Description,
    /// By key.
    changes: BTreeMap<String, String>,
}

/// A simulated system as the place of a run.
#[derive(Clone, Debug)]
pub struct SimulatedTarget {
    /// As it was named.
    pub name: String,
    /// The system.
    pub system: System,
    /// Through its file-system cache or past it, and whether writes are durable at once.
    pub caching: Caching,
    /// What was changed in its file, by key.
    pub changes: BTreeMap<String, String>,
}

impl SimulatedTarget {
    /// The place that the targets of a run or sweep name; None where they are real.
    ///
    /// # Errors
    /// When there is no such system, several targets, or a flag that means nothing there.
    pub fn of(experiment: &Experiment) -> Outcome<Option<SimulatedTarget>> {
        let targets = &experiment.targets;
        let Some(target) = targets.iter().find(|target| is_simulated(target)) else {
            return Ok(None);
        };
        if targets.len() > 1 {
            return Err(Failure::usage(format!(
                "{} is a world of its own and no place for other targets; name it alone (disks=4 \
                 puts more devices into it)",
                target.display()
            )));
        }
        check_flags(experiment)?;
        let name = target.to_string_lossy().into_owned();
        let Named { mut description, mut changes } = named(&name, &[])?;
        let mut change = |key: &str, value: String| -> Outcome<()> {
            description.set(key, &value)?;
            changes.insert(key.to_owned(), value);
            Ok(())
        };
        match experiment.allocation {
            Allocation::Extend => change("allocation", "extend".to_owned())?,
            // Every block up to the last one is zeroed before it is written.
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

    /// The place that the target of a survey names, None where it is real; its file holds
    /// `--size` at least.
    ///
    /// # Errors
    /// When there is no such system, or a flag that means nothing there.
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

    /// As a test file in a directory, the file is as large as the region that is asked for.
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

/// Refuses flags that are about this host, or about data.
fn check_flags(experiment: &Experiment) -> Outcome<()> {
    let allocation = experiment.allocation;
    refuse(&[
        (experiment.verify, "--verify", "keeps no data to verify"),
        (experiment.faults.is_some(), "--inject", "suffers no faults"),
        (!experiment.cpus.is_empty(), "--cpus-allowed", "has no CPUs of this host"),
        (experiment.hint.is_some(), "--hint", "has no kernel to be told"),
        (experiment.engine_kinds != [None], "--ioengine", "issues requests in its own way"),
        (allocation == Allocation::Truncate, "--allocation truncate", "has no blocks to give back"),
        (allocation == Allocation::Reserve, "--allocation fallocate", "has no blocks to reserve"),
        (experiment.soaker, "--soaker", "tells both bounds of its CPU cost without one"),
        (experiment.zero_buffers, "--zero-buffers", "keeps no data"),
        (!experiment.invalidate, "--invalidate=0", "begins each trial with a cold cache"),
        (
            experiment.engine != EngineParameters::default(),
            "the flags under Engine (halfpower run --help)",
            "issues requests in its own way and flushes at the end",
        ),
        (
            experiment.page_cache == Some(PageCache::Warm),
            "--page-cache warm",
            "begins each trial with a cold cache",
        ),
        (
            experiment.host != HostParameters::default(),
            "the flags under Host (halfpower run --help)",
            "is not this host",
        ),
    ])?;
    refuse(&foreign(experiment))
}

/// A flag, whether it was given, and why a simulated system has no use for it.
type Refused = (bool, &'static str, &'static str);

/// What of the flags of every verb means nothing there.
fn foreign(experiment: &Experiment) -> [Refused; 4] {
    let consents = experiment.consent != Consent::default();
    [
        (consents, "--overwrite and --destroy-data-on", "holds nothing that could be lost"),
        (experiment.buffer_pages == BufferPages::Small, "--buffer-pages", "has no memory pages"),
        (experiment.allow_holes, "--allow-holes", "has no holes"),
        (experiment.endurance_bytes.is_some(), "--endurance", "wears no drive"),
    ]
}

/// Refuses the first that was given.
fn refuse(flags: &[Refused]) -> Outcome<()> {
    match flags.iter().find(|(given, ..)| *given) {
        Some((_, flag, why)) => {
            Err(Failure::usage(format!("a simulated system {why}; drop {flag}")))
        }
        None => Ok(()),
    }
}

/// Whether a target is a simulated system.
pub fn is_simulated(target: &Path) -> bool {
    target.to_string_lossy().starts_with(PREFIX)
}

/// The system that a word such as `sim:nt4-ultrawide,disks=4` names, with further changes.
///
/// # Errors
/// When there is none of that name, or it cannot be what is asked of it.
pub fn parse(text: &str, changes: &[String]) -> Outcome<Description> {
    Ok(named(text, changes)?.description)
}

/// The same, with what was changed.
///
/// # Errors
/// See [`parse`].
fn named(text: &str, further: &[String]) -> Outcome<Named> {
    let mut parts = text.strip_prefix(PREFIX).unwrap_or(text).split(',');
    let mut description = load(parts.next().unwrap_or_default().trim())?;
    let mut changes = BTreeMap::new();
    for part in parts.chain(further.iter().map(String::as_str)) {
        let (key, value) = part.split_once('=').ok_or_else(|| {
            let what = format!("{text}: '{part}' is no change; write KEY=VALUE, as in disks=4");
            Failure::usage(what)
        })?;
        let (key, value) = (key.trim(), value.trim());
        description.set(key, value)?;
        changes.insert(key.to_owned(), value.to_owned());
    }
    Ok(Named { description, changes })
}

/// A system that comes with the program, or one of the user's own from its file.
fn load(system: &str) -> Outcome<Description> {
    Ok(Description::read(&file_of(system)?, system)?)
}

/// The text of a system file.
///
/// # Errors
/// The file does not exist or cannot be read.
pub fn file_of(system: &str) -> Outcome<String> {
    if system.contains('/') || system.ends_with(".toml") {
        read(Path::new(system))
    } else {
        Ok(Description::file(system)?.to_owned())
    }
}

/// The text of a file, up to the maximum size of a system file.
fn read(path: &Path) -> Outcome<String> {
    let failed = |error: std::io::Error| {
        let (cause, path) = (ioengine::error::cause(&error), path.display());
        Failure::usage(format!("reading the system file {path}: {cause}; name a file of TOML"))
    };
    // Checked first, because reading a pipe would block.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(failed(std::io::ErrorKind::InvalidInput.into()));
    }
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(Failure::usage(format!(
            "{} is too large for a system file; name one (halfpower simulate --show nt4-ultrawide \
             prints an example)",
            path.display()
        )));
    }
    Ok(text)
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
    fn what_names_no_system_is_refused_with_the_remedy() {
        for (text, remedy) in [
            ("sim:nothing", "nt4-ultrawide"),
            ("sim:", "nt4-ultrawide"),
            ("sim:nt4-ultrawide,", "KEY=VALUE"),
            ("sim:nt4-ultrawide,disks", "KEY=VALUE"),
            ("sim:nt4-ultrawide,wheels=4", "disks"),
            ("sim:nt4-ultrawide,disks=many", "whole number"),
            ("sim:./missing.toml", "name a file"),
        ] {
            let failure = parse(text, &[]).unwrap_err();
            assert_eq!(failure.exit, crate::failure::Exit::Usage, "{text}: {failure}");
            assert!(failure.message.contains(remedy), "{text}: {failure}");
        }
    }

    #[test]
    fn a_system_of_ones_own_is_read_from_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        std::fs::write(&path, "name = 'mine'").unwrap();
        let text = format!("sim:{}", path.display());
        assert!(parse(&text, &[]).unwrap().system().is_err(), "it lacks everything");
        assert!(is_simulated(Path::new(&text)) && !is_simulated(&path));
    }
}
