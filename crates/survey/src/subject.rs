//! The opened target of a survey, with its limits on what can be measured. The target is a file or
//! device of this host (opened in both caching modes), a file or disk on a server, or a simulated
//! system.

use analysis::units;
use ioengine::target::Coverage;
use ioengine::{Caching, EngineKind, HostTarget, Target};
use lab::failure::{Failure, Outcome};
use lab::machine::TargetFacts;
use lab::memory_limit;
use lab::simulated;
use lab::simulated_target::SimulatedTarget;
use lab::trials::Place;

use crate::grid::{self, Limits};

/// The target of a survey, opened for buffered and for direct I/O.
#[derive(Debug)]
pub enum Modes {
    /// A file or device of this host.
    Host {
        /// The target opened for buffered I/O.
        buffered: Box<HostTarget>,
        /// The target opened with O_DIRECT. None if the file system does not support O_DIRECT.
        direct: Option<Box<HostTarget>>,
    },
    /// A file or disk on a server, which is never cached on this host.
    Network(Box<HostTarget>),
    /// A simulated system.
    Simulated {
        /// The system, accessed through its simulated file-system cache.
        buffered: Box<SimulatedTarget>,
        /// The system, accessed without its simulated file-system cache.
        direct: Box<SimulatedTarget>,
    },
}

/// The opened target of a survey, with its limits.
#[derive(Debug)]
pub struct Subject {
    /// The target, opened for buffered and for direct I/O.
    pub modes: Modes,
    /// Size of the measured region, from offset 0 (bytes).
    pub region_bytes: u64,
    /// Limits on request size, bytes in flight, direct I/O and writes.
    pub limits: Limits,
    /// Sizes of holes and of unwritten blocks in the region. None if the file system does not
    /// report them.
    pub coverage: Option<Coverage>,
}

impl Subject {
    /// Opens a file or device for buffered and, if supported, direct I/O.
    ///
    /// # Errors
    /// If the target cannot be opened, or if it is smaller than 1 MiB.
    pub fn open(path: &std::path::Path, write: bool, region: Option<u64>) -> Outcome<Subject> {
        let buffered = HostTarget::open(path, write, Caching::Buffered)?;
        let direct = ioengine::host::offers_direct(path)
            .then(|| HostTarget::open(path, write, Caching::Direct))
            .transpose()?;
        let whole = buffered.size_bytes();
        let region_bytes = region.unwrap_or(whole).min(whole);
        check_size(&path.display().to_string(), region_bytes)?;
        let granule = direct.as_ref().map_or(1, |target| target.alignment().offset_bytes);
        let limits = Limits {
            request_bytes_min: granule.max(512),
            region_bytes,
            in_flight_bytes_max: in_flight_bytes_max(),
            buffered: true,
            direct: direct.is_some(),
            write,
            zones: buffered.zones().filter(|zones| zones.sequential_from_bytes < region_bytes),
        };
        let coverage = buffered.coverage(0, region_bytes);
        let (buffered, direct) = (Box::new(buffered), direct.map(Box::new));
        Ok(Subject { modes: Modes::Host { buffered, direct }, region_bytes, limits, coverage })
    }

    /// Creates the subject for an opened file or disk on a server.
    ///
    /// # Errors
    /// If the target is smaller than 1 MiB.
    pub fn network(target: HostTarget, write: bool, region: Option<u64>) -> Outcome<Subject> {
        let whole = target.size_bytes();
        let region_bytes = region.unwrap_or(whole).min(whole);
        check_size(target.name(), region_bytes)?;
        let limits = Limits {
            request_bytes_min: target.alignment().offset_bytes.max(512),
            region_bytes,
            in_flight_bytes_max: in_flight_bytes_max(),
            buffered: false,
            direct: true,
            write,
            zones: None,
        };
        Ok(Subject {
            modes: Modes::Network(Box::new(target)),
            region_bytes,
            limits,
            coverage: None,
        })
    }

    /// Creates the subject for a simulated system.
    pub fn simulated(place: &SimulatedTarget, region: Option<u64>) -> Subject {
        let region_bytes = region.unwrap_or(place.system.setup.file_size);
        let in_mode = |caching| Box::new(SimulatedTarget { caching, ..place.clone() });
        let modes = Modes::Simulated {
            buffered: in_mode(Caching::Buffered),
            direct: in_mode(Caching::Direct),
        };
        let limits = Limits {
            request_bytes_min: 512,
            region_bytes,
            in_flight_bytes_max: grid::IN_FLIGHT_BYTES_MAX,
            buffered: true,
            direct: true,
            write: true,
            zones: None,
        };
        Subject { modes, region_bytes, limits, coverage: None }
    }

    /// Replaces the limits of this target with the combined limits of all ranks.
    pub fn narrow(&mut self, limits: Limits) {
        (self.limits, self.region_bytes) = (limits, limits.region_bytes);
        self.coverage = match &self.modes {
            Modes::Host { buffered, .. } => buffered.coverage(0, self.region_bytes),
            Modes::Network(_) | Modes::Simulated { .. } => None,
        };
    }

    /// Returns the number of files of a simulated system. None for other targets.
    pub fn simulated_files(&self) -> Option<u64> {
        match &self.modes {
            Modes::Simulated { direct, .. } => Some(direct.system.setup.files().into()),
            Modes::Host { .. } | Modes::Network(_) => None,
        }
    }

    /// Returns whether the target is a simulated system.
    pub fn is_simulated(&self) -> bool {
        matches!(self.modes, Modes::Simulated { .. })
    }

    /// Returns the kind of I/O engine for direct requests.
    pub fn engine_kind(&self) -> EngineKind {
        match self.modes {
            Modes::Host { .. } => EngineKind::best(true),
            Modes::Network(_) => EngineKind::Network,
            Modes::Simulated { .. } => EngineKind::IoUring,
        }
    }

    /// Returns whether the target is on a server.
    pub fn is_network(&self) -> bool {
        matches!(self.modes, Modes::Network(_))
    }

    /// Returns the target opened for direct I/O if `wants_direct` is set and the target supports
    /// direct I/O. Otherwise returns the target opened for buffered I/O. A target on a server has
    /// only one handle, which is always returned.
    pub fn place(&self, wants_direct: bool) -> Place<'_> {
        match &self.modes {
            Modes::Host { buffered, direct } => {
                let direct = direct.as_deref().filter(|_| wants_direct);
                Place::Host(vec![direct.unwrap_or(buffered)])
            }
            Modes::Network(target) => Place::Host(vec![target]),
            Modes::Simulated { direct, .. } if wants_direct => Place::Simulated(direct),
            Modes::Simulated { buffered, .. } => Place::Simulated(buffered),
        }
    }

    /// Returns all open handles of the target.
    pub fn opened(&self) -> impl Iterator<Item = &HostTarget> {
        let (buffered, direct) = match &self.modes {
            Modes::Host { buffered, direct } => (Some(buffered.as_ref()), direct.as_deref()),
            Modes::Network(target) => (None, Some(target.as_ref())),
            Modes::Simulated { .. } => (None, None),
        };
        direct.into_iter().chain(buffered)
    }

    /// Returns the properties of the target. Uses the handle for direct I/O if there is one.
    pub fn facts(&self) -> TargetFacts {
        match self.place(true) {
            Place::Host(targets) => TargetFacts::of(targets[0]),
            Place::Simulated(place) => simulated::facts(place),
        }
    }
}

/// Fails if the region is too small for a survey.
fn check_size(name: &str, region_bytes: u64) -> Outcome<()> {
    if region_bytes < 1 << 20 {
        return Err(Failure::usage(format!(
            "{name} has only {}; a survey needs a target of at least 1 MiB",
            units::size(region_bytes)
        )));
    }
    Ok(())
}

/// Returns the maximum total size of the buffers in flight on this host (bytes). A memory limit can
/// lower this maximum.
pub fn in_flight_bytes_max() -> u64 {
    let limit = memory_limit::narrowest().map_or(u64::MAX, |limit| limit.of_series());
    grid::IN_FLIGHT_BYTES_MAX.min(limit)
}

/// Explains why buffered and random writes are not measured on a device whose zones must be written
/// in order. None for other devices.
pub fn unordered_writes(limits: &Limits) -> Option<String> {
    let zones = limits.zones.filter(|_| limits.write)?;
    let zone = units::size(zones.zone_bytes);
    Some(format!("each zone of the device ({zone}) must be written in order"))
}

/// Returns a note for the user if a memory limit lowered the maximum number of bytes in flight.
pub fn narrowed(limits: &Limits) -> Option<String> {
    let limit = memory_limit::narrowest()?;
    let is_less = limits.in_flight_bytes_max < grid::IN_FLIGHT_BYTES_MAX;
    is_less.then(|| {
        let most = units::size(limits.in_flight_bytes_max);
        format!(
            "workloads with more than {most} of data in flight, because {} is too low; raise this \
             limit",
            limit.what
        )
    })
}
