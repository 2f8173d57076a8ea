//! What a target is, by its name. Nothing is opened here.
//!
//! Every verb takes targets by name: a directory, a file or block device, a simulated system
//! (`sim:SYSTEM,key=value,..`), or a reference device in this process (`truth:KEY=VALUE,..`).

use std::path::{Path, PathBuf};

use crate::failure::{Failure, Outcome};
use crate::reference_device::{self, ReferenceDevice};
use crate::simulated_target;

/// What the name of a target stands for.
#[derive(Clone, Debug)]
pub enum TargetSpec {
    /// A directory: a test file is made in it, and removed afterwards.
    Directory(PathBuf),
    /// A file or block device that exists.
    Existing(PathBuf),
    /// A simulated system, in virtual time.
    Simulated(PathBuf),
    /// A device in this process whose behaviour is a formula.
    Reference(Box<ReferenceDevice>),
}

impl TargetSpec {
    /// What a name stands for. Whether a file exists is seen when it is opened.
    ///
    /// # Errors
    /// Usage, for a reference device that is none.
    pub fn of(name: &Path) -> Outcome<TargetSpec> {
        if simulated_target::is_simulated(name) {
            Ok(TargetSpec::Simulated(name.to_path_buf()))
        } else if reference_device::is_reference(name) {
            let device = ReferenceDevice::parse(&name.to_string_lossy())?;
            Ok(TargetSpec::Reference(Box::new(device)))
        } else if name.is_dir() {
            Ok(TargetSpec::Directory(name.to_path_buf()))
        } else {
            Ok(TargetSpec::Existing(name.to_path_buf()))
        }
    }

    /// Whether it is a path of this host: storage behind a kernel, whose data may be lost.
    pub fn is_on_host(&self) -> bool {
        matches!(self, TargetSpec::Directory(_) | TargetSpec::Existing(_))
    }
}

/// Refuses simulated systems and reference devices where a path of this host is meant.
///
/// # Errors
/// Usage, with the remedy.
pub fn check_on_host(name: &Path) -> Outcome<()> {
    let remedy = match TargetSpec::of(name)? {
        TargetSpec::Directory(_) | TargetSpec::Existing(_) => return Ok(()),
        TargetSpec::Reference(_) => {
            "reference devices are for run, sweep and mount; mount it (halfpower mount truth:... \
             DIR) and name the file"
        }
        TargetSpec::Simulated(_) => {
            "simulated systems are for run, sweep, survey, simulate, whatif and mount; name a \
             file, device or directory"
        }
    };
    Err(Failure::usage(format!("{}: {remedy}", name.display())))
}

/// What a run measures: targets of one kind.
#[derive(Clone, Debug)]
pub enum JobTargets {
    /// None: the I/O engine `null` does no I/O.
    Nothing,
    /// Paths of this host.
    Host(Vec<PathBuf>),
    /// Reference devices in this process.
    Reference(Vec<ReferenceDevice>),
    /// One simulated system.
    Simulated(Box<simulated_target::SimulatedTarget>),
}

impl JobTargets {
    /// The paths of this host; none where nothing of it is measured.
    pub fn paths(&self) -> &[PathBuf] {
        match self {
            JobTargets::Host(paths) => paths,
            _ => &[],
        }
    }

    /// How many there are, at least 1.
    pub fn count(&self) -> usize {
        match self {
            JobTargets::Host(paths) => paths.len(),
            JobTargets::Reference(devices) => devices.len(),
            JobTargets::Nothing | JobTargets::Simulated(_) => 1,
        }
    }

    /// The simulated system, where it is one.
    pub fn simulated(&self) -> Option<&simulated_target::SimulatedTarget> {
        match self {
            JobTargets::Simulated(system) => Some(system),
            _ => None,
        }
    }

    /// Whether anything outside of this process is measured: not by the I/O engine `null`, nor on
    /// reference devices.
    pub fn does_io(&self) -> bool {
        !matches!(self, JobTargets::Nothing | JobTargets::Reference(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_what_a_target_is() {
        let of = |name: &str| TargetSpec::of(Path::new(name));
        assert!(matches!(of("sim:nt4-ultrawide").unwrap(), TargetSpec::Simulated(_)));
        assert!(matches!(of("truth:fixed=1ms").unwrap(), TargetSpec::Reference(_)));
        assert!(matches!(of("/").unwrap(), TargetSpec::Directory(_)));
        assert!(matches!(of("/no/such/file").unwrap(), TargetSpec::Existing(_)));
        assert!(matches!(of("./truth:x").unwrap(), TargetSpec::Existing(_)));
        assert!(of("truth:speed=9").unwrap_err().message.contains("speed"));
    }

    #[test]
    fn only_paths_of_this_host_pass_where_one_is_meant() {
        assert!(check_on_host(Path::new(".")).is_ok());
        assert!(check_on_host(Path::new("sim:x")).unwrap_err().message.contains("name a file"));
        assert!(check_on_host(Path::new("truth:")).unwrap_err().message.contains("mount"));
    }
}
