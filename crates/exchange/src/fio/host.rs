//! Gives job files access to the files, environment variables and hardware facts of this host.

use std::fs::File;
use std::io::{Error, ErrorKind, Read};
use std::path::{Path, PathBuf};

use lab::bench;
use lab::failure::{Failure, Outcome};

use crate::fio::job_file::{self, Jobs, Surroundings};

/// Maximum size of a job file (bytes).
const BYTES_MAX: usize = 1 << 20;

/// Returns true if a target is a job file: a file whose name ends in `.fio`, or a small text file
/// that begins with a section.
pub fn is_job_file(path: &Path) -> bool {
    let is_named = path.extension().is_some_and(|end| end == "fio");
    path.is_file() && (is_named || bench::is_fio_job(path))
}

/// Reads and parses job files.
///
/// # Errors
/// A path is not a job file, or a job file has a mistake.
pub fn read_jobs(paths: &[PathBuf]) -> Outcome<Vec<Jobs>> {
    if let Some(other) = paths.iter().find(|path| !is_job_file(path)) {
        return Err(Failure::usage(format!(
            "{} is not a fio job file, but another target is a fio job file; specify only job \
             files, or only files and devices",
            other.display()
        )));
    }
    let parse = |path: &PathBuf| job_file::parse(path, &Host.read(path, BYTES_MAX)?, &Host);
    paths.iter().map(parse).collect()
}

/// The files, environment variables and hardware facts of this host.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host;

impl Surroundings for Host {
    fn read(&self, path: &Path, bytes_max: usize) -> Outcome<String> {
        let failed = |error: Error| {
            let (cause, path) = (ioengine::error::cause(&error), path.display());
            Failure::usage(format!("reading the job file {path}: {cause}; specify a fio job file"))
        };
        // The file type is checked before the file is opened, because opening a pipe would block.
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Err(failed(ErrorKind::InvalidInput.into()));
        }
        let mut text = String::new();
        let file = File::open(path).map_err(failed)?;
        file.take(bytes_max as u64 + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() > bytes_max {
            return Err(Failure::usage(format!(
                "{} is too large for a job file; split the file",
                path.display()
            )));
        }
        Ok(text)
    }

    fn variable(&self, name: &str) -> Option<String> {
        let is_name = !name.is_empty() && !name.contains(['=', '\0']);
        is_name.then(|| std::env::var(name).ok()).flatten()
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn page_bytes(&self) -> u64 {
        rustix::param::page_size() as u64
    }

    fn memory_mib(&self) -> u64 {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or(0) / 1024
    }

    fn cpus(&self) -> u64 {
        std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_and_a_large_file_are_no_job_files() {
        assert!(Host.read(Path::new("/dev/zero"), 10).unwrap_err().message.contains("/dev/zero: "));
        let this = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert!(Host.read(&this, 1 << 20).unwrap().contains("halfpower-exchange"));
        assert!(Host.read(&this, 10).unwrap_err().message.contains("too large"));
    }

    #[test]
    fn the_machine_has_pages_memory_and_cpus() {
        assert!(Host.page_bytes().is_power_of_two() && Host.memory_mib() > 0 && Host.cpus() > 0);
        assert_eq!(Host.variable("a=b\0"), None);
    }
}
