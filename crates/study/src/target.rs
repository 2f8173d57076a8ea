//! The targets of studies. A target is a directory with a test file, an existing file or device, a
//! simulated system, a reference device, or a file or disk of a server. Each target is prepared
//! once for all studies.

use analysis::units;
use std::path::{Path, PathBuf};

use ioengine::network::Address;
use ioengine::{Caching, HostTarget, Target};
use lab::bench;
use lab::failure::{Failure, Outcome};
use lab::guard::Consent;
use lab::machine::TargetFacts;
use lab::network_target;
use lab::reference_device::SIZE_BYTES;
use lab::scratch::{self, Scratch};
use lab::simulated_target;
use lab::target::TargetSpec;
use lab::trials::Lab;
use lab::truth;

/// Time limit for writing a test file of the default size (ns).
const LAYOUT_NS: u64 = 15_000_000_000;

/// A target of a study, prepared once for all studies.
#[derive(Debug)]
pub struct StudyTarget {
    /// The target as given on the command line.
    pub name: PathBuf,
    /// The kind of the target.
    pub kind: Kind,
}

/// The kind of a study's target.
#[derive(Debug)]
pub enum Kind {
    /// The target is a directory with a fully written test file. More files can be created in the
    /// directory.
    Directory {
        /// The test file.
        scratch: Scratch,
        /// Size of the test file (bytes).
        bytes: u64,
    },
    /// The target is an existing file or device.
    Existing,
    /// The target is a simulated system.
    Simulated,
    /// The target is a file, disk or object of a server.
    Network(Box<Address>),
    /// The target is a reference device: a model device whose performance is known. It runs within
    /// this process.
    Reference {
        /// The reference device, opened to read its properties.
        device: Box<HostTarget>,
    },
}

impl StudyTarget {
    /// Checks that `name` can be a target. Creates nothing.
    ///
    /// # Errors
    /// If `name` cannot be a target. The message has the remedy.
    pub fn check(name: &Path, consent: &Consent) -> Outcome<()> {
        match TargetSpec::of(name)? {
            TargetSpec::Simulated(_) => {
                simulated_target::parse(&name.to_string_lossy(), &[])?.system()?;
                Ok(())
            }
            TargetSpec::Reference(_) | TargetSpec::Network(_) => Ok(()),
            TargetSpec::Directory(_) | TargetSpec::Existing(_) => bench::check_path(name, consent),
        }
    }

    /// Prepares a target. In a directory, writes a test file of `size` bytes. If `size` is None,
    /// the file has the default size. In this case, it has at most `most` bytes, and writing stops
    /// after 15 s.
    ///
    /// # Errors
    /// If `name` cannot be a target, there is not enough space, or the user interrupts the study.
    pub fn ready(
        name: &Path,
        size: Option<u64>,
        (most, seed): (u64, u64),
        consent: &Consent,
        lab: &Lab,
    ) -> Outcome<StudyTarget> {
        let kind = match TargetSpec::of(name)? {
            TargetSpec::Simulated(_) => Kind::Simulated,
            TargetSpec::Network(address) => Kind::Network(address),
            TargetSpec::Reference(device) => {
                let bytes = size.or(truth::span_bytes(&device.truth)).unwrap_or(SIZE_BYTES);
                Kind::Reference { device: Box::new(device.open(bytes)) }
            }
            TargetSpec::Directory(folder) => {
                bench::check_path(name, consent)?;
                lay_out(&folder, size, (most, seed), lab)?
            }
            TargetSpec::Existing(_) => {
                bench::check_path(name, consent)?;
                Kind::Existing
            }
        };
        Ok(StudyTarget { name: name.to_path_buf(), kind })
    }

    /// Returns the path of the measured file or device. For other targets, returns the name.
    pub fn path(&self) -> &Path {
        match &self.kind {
            Kind::Directory { scratch, .. } => scratch.path(),
            _ => &self.name,
        }
    }

    /// Returns the directory in which more files can be created. None if the target is not a
    /// directory.
    pub fn folder(&self) -> Option<&Path> {
        matches!(self.kind, Kind::Directory { .. }).then_some(&*self.name)
    }

    /// Checks whether the target is a file, device or directory of this host.
    pub fn is_real(&self) -> bool {
        matches!(self.kind, Kind::Directory { .. } | Kind::Existing)
    }

    /// Checks whether the target is on a server.
    pub fn is_network(&self) -> bool {
        matches!(self.kind, Kind::Network(_))
    }

    /// Checks whether the target is a simulated system.
    pub fn is_simulated(&self) -> bool {
        matches!(self.kind, Kind::Simulated)
    }

    /// Returns the size of the target (bytes). None for a simulated system, or if the target cannot
    /// be opened.
    pub fn bytes(&self) -> Option<u64> {
        match &self.kind {
            Kind::Reference { device } => Some(device.size_bytes()),
            Kind::Directory { bytes, .. } => Some(*bytes),
            Kind::Existing | Kind::Network(_) => self.open().ok().map(|target| target.size_bytes()),
            Kind::Simulated => None,
        }
    }

    /// Opens the target read-only, to inspect it.
    ///
    /// # Errors
    /// If opening fails, or if the target is a simulated system or a reference device.
    pub fn open(&self) -> Outcome<HostTarget> {
        match &self.kind {
            Kind::Network(address) => {
                network_target::open(address, false, false, &Consent::default())
            }
            Kind::Simulated | Kind::Reference { .. } => {
                let name = self.name.display();
                Err(Failure::usage(format!("{name} is not a file of this host; specify a file")))
            }
            _ => Ok(HostTarget::open(self.path(), false, Caching::Buffered)?),
        }
    }

    /// Returns the properties of the target, with its canonical name. The properties of a simulated
    /// system are unknown before it runs.
    pub fn facts(&self) -> TargetFacts {
        let name = self.name.canonicalize().unwrap_or_else(|_| self.name.clone());
        let facts = match &self.kind {
            Kind::Reference { device } => TargetFacts::of(device),
            _ => self.open().map(|target| TargetFacts::of(&target)).unwrap_or_default(),
        };
        TargetFacts { name: name.display().to_string(), ..facts }
    }
}

fn lay_out(folder: &Path, size: Option<u64>, (most, seed): (u64, u64), lab: &Lab) -> Outcome<Kind> {
    let bytes = match size {
        Some(size) => size,
        None => lab.smallest(bench::default_size(folder)?.min(most))?,
    };
    scratch::check_room(folder, bytes)?;
    lab.console.say(format!(
        "laying out a test file of {} in {}; it is removed afterwards",
        units::size(bytes),
        folder.display()
    ));
    let scratch = Scratch::make(folder, bytes)?;
    let laid_out = scratch.lay_out(lab, bytes, seed, size.is_none().then_some(LAYOUT_NS))?;
    Ok(Kind::Directory { scratch, bytes: lab.smallest(laid_out.bytes)? })
}
