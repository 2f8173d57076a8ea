//! Classifies targets by name, without opening them.
//!
//! A target is the name of a directory, a file or block device, a simulated system
//! (`sim:SYSTEM,key=value,..`), a reference device in this process (`truth:KEY=VALUE,..`), or a
//! file or disk on a server (`nbd://HOST/EXPORT`).

use std::path::{Path, PathBuf};

use ioengine::network::Address;

use crate::failure::{Failure, Outcome};
use crate::network_target;
use crate::reference_device::{self, ReferenceDevice};
use crate::simulated_target;

/// The kind of a target, derived from its name.
#[derive(Clone, Debug)]
pub enum TargetSpec {
    /// A directory, in which a test file is created and removed afterwards.
    Directory(PathBuf),
    /// An existing file or block device.
    Existing(PathBuf),
    /// A simulated system, which runs in virtual time.
    Simulated(PathBuf),
    /// A reference device in this process, whose delays are computed.
    Reference(Box<ReferenceDevice>),
    /// A file, disk or object on a server.
    Network(Box<Address>),
}

impl TargetSpec {
    /// Classifies a name. Does not check whether a file exists.
    ///
    /// # Errors
    /// A usage error for an invalid reference device or address.
    pub fn of(name: &Path) -> Outcome<TargetSpec> {
        if simulated_target::is_simulated(name) {
            Ok(TargetSpec::Simulated(name.to_path_buf()))
        } else if reference_device::is_reference(name) {
            let device = ReferenceDevice::parse(&name.to_string_lossy())?;
            Ok(TargetSpec::Reference(Box::new(device)))
        } else if network_target::is_network(name) {
            Ok(TargetSpec::Network(Box::new(network_target::parse(name)?)))
        } else if name.is_dir() {
            Ok(TargetSpec::Directory(name.to_path_buf()))
        } else {
            Ok(TargetSpec::Existing(name.to_path_buf()))
        }
    }

    /// Whether the target is a path of this host, where writing could destroy data.
    pub fn is_on_host(&self) -> bool {
        matches!(self, TargetSpec::Directory(_) | TargetSpec::Existing(_))
    }
}

/// Checks that a target is a path of this host, and not a simulated system, a reference device or a
/// network target.
///
/// # Errors
/// A usage error with the remedy.
pub fn check_on_host(name: &Path) -> Outcome<()> {
    let remedy = match TargetSpec::of(name)? {
        TargetSpec::Directory(_) | TargetSpec::Existing(_) => return Ok(()),
        TargetSpec::Reference(_) => {
            "reference devices work only with run, sweep and mount; mount the device (halfpower \
             mount truth:... DIR) and use the file DIR/device"
        }
        TargetSpec::Simulated(_) => {
            "simulated systems work only with run, sweep, survey, study, replay, simulate, whatif \
             and mount; use a file, device or directory"
        }
        TargetSpec::Network(_) => {
            "network targets work only with run, sweep, survey, study and target; mount the share \
             and use a file on it"
        }
    };
    Err(Failure::usage(format!("{}: {remedy}", name.display())))
}

/// The targets of a run, which are all of the same kind.
#[derive(Clone, Debug)]
pub enum JobTargets {
    /// There are no targets, because the I/O engine is `null`.
    Nothing,
    /// Paths of this host.
    Host(Vec<PathBuf>),
    /// Reference devices in this process.
    Reference(Vec<ReferenceDevice>),
    /// Files, disks or objects on servers.
    Network(Vec<Address>),
    /// One simulated system.
    Simulated(Box<simulated_target::SimulatedTarget>),
}

impl JobTargets {
    /// Returns the paths of this host. Empty for other targets.
    pub fn paths(&self) -> &[PathBuf] {
        match self {
            JobTargets::Host(paths) => paths,
            _ => &[],
        }
    }

    /// Returns the number of targets. It is 1 for the I/O engine `null`, which has no target.
    pub fn count(&self) -> usize {
        match self {
            JobTargets::Host(paths) => paths.len(),
            JobTargets::Reference(devices) => devices.len(),
            JobTargets::Network(addresses) => addresses.len(),
            JobTargets::Nothing | JobTargets::Simulated(_) => 1,
        }
    }

    /// Returns the simulated system. None for other targets.
    pub fn simulated(&self) -> Option<&simulated_target::SimulatedTarget> {
        match self {
            JobTargets::Simulated(system) => Some(system),
            _ => None,
        }
    }

    /// Whether the run does I/O outside of this process. False for the I/O engine `null` and for
    /// reference devices.
    pub fn does_io(&self) -> bool {
        !matches!(self, JobTargets::Nothing | JobTargets::Reference(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_a_target_follows_from_its_name() {
        let of = |name: &str| TargetSpec::of(Path::new(name));
        assert!(matches!(of("sim:nt4-ultrawide").unwrap(), TargetSpec::Simulated(_)));
        assert!(matches!(of("truth:fixed=1ms").unwrap(), TargetSpec::Reference(_)));
        assert!(matches!(of("nbd://host/x").unwrap(), TargetSpec::Network(_)));
        assert!(of("nbd://host:x/").unwrap_err().message.contains("followed by a port"));
        assert!(matches!(of("/").unwrap(), TargetSpec::Directory(_)));
        assert!(matches!(of("/no/such/file").unwrap(), TargetSpec::Existing(_)));
        assert!(matches!(of("./truth:x").unwrap(), TargetSpec::Existing(_)));
        assert!(of("truth:speed=9").unwrap_err().message.contains("speed"));
    }

    #[test]
    fn only_paths_of_this_host_pass_as_paths() {
        assert!(check_on_host(Path::new(".")).is_ok());
        assert!(check_on_host(Path::new("sim:x")).unwrap_err().message.contains("use a file"));
        assert!(check_on_host(Path::new("truth:")).unwrap_err().message.contains("mount"));
        assert!(check_on_host(Path::new("nbd://h/")).unwrap_err().message.contains("mount"));
    }
}
