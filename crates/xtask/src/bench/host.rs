//! The machine under the benchmark: the line that names it, the core to run on, the test files.

use anyhow::{Context, Result, bail};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes written between two looks at the stop flag.
const CHUNK_BYTES: usize = 1 << 20;

/// CPU model, core, kernel, file system and fio version on one line.
pub fn description(folder: &Path, core: usize) -> Result<String> {
    let fio = first_line(Command::new("fio").arg("--version"))
        .context("fio is needed: install the package `fio`")?;
    Ok(format!("core {core} of {}, {fio}", machine(folder)))
}

/// CPU model, kernel and file system on one line.
pub fn machine(folder: &Path) -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu_model(&cpuinfo).unwrap_or("unknown CPU");
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut findmnt = Command::new("findmnt");
    findmnt.args(["--noheadings", "--output", "FSTYPE,SOURCE", "--target"]).arg(folder);
    let mount = first_line(&mut findmnt).unwrap_or_else(|_| "unknown file system".to_string());
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mount = mount.split_whitespace().collect::<Vec<_>>().join(" on ");
    format!("{cpus} x {cpu}, Linux {}, {mount}", kernel.trim())
}

fn cpu_model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(": ").map(|(_, model)| model)
}

fn first_line(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.lines().next() {
        Some(line) if output.status.success() => Ok(line.to_string()),
        _ => bail!("{command:?} failed"),
    }
}

/// The last core this process may use: the first ones serve more interrupts.
pub fn last_allowed_core() -> Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status").context("no /proc/self/status")?;
    last_core(&status).context("/proc/self/status names no allowed core")
}

fn last_core(status: &str) -> Option<usize> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

/// A program's place on the PATH, if it is there.
pub fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// A file of holes.
pub fn make_sparse_file(path: &Path, bytes: u64) -> Result<()> {
    let file = File::create_new(path).with_context(|| format!("cannot create {path:?}"))?;
    file.set_len(bytes).with_context(|| format!("cannot extend {path:?}"))
}

/// A file of incompressible data that is on the device and not in the page cache. Stops early,
/// without an error, once `is_stopped` says so.
pub fn make_full_file(path: &Path, bytes: u64, is_stopped: impl Fn() -> bool) -> Result<()> {
    let mut file = File::create_new(path).with_context(|| format!("cannot create {path:?}"))?;
    let mut random = fastrand::Rng::with_seed(bytes);
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut left = bytes;
    while left > 0 && !is_stopped() {
        random.fill(&mut chunk);
        let length = left.min(CHUNK_BYTES as u64);
        file.write_all(&chunk[..length as usize])
            .with_context(|| format!("cannot write {bytes} bytes to {path:?}"))?;
        left -= length;
    }
    file.sync_all().with_context(|| format!("cannot flush {path:?}"))?;
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)
        .with_context(|| format!("cannot drop the cached pages of {path:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_last_core_is_read_from_ranges_and_lists() {
        assert_eq!(last_core("Name:\tx\nCpus_allowed_list:\t0-3\n"), Some(3));
        assert_eq!(last_core("Cpus_allowed_list:\t0,2-5,9\n"), Some(9));
        assert_eq!(last_core("Cpus_allowed_list:\t0\n"), Some(0));
        assert_eq!(last_core("Name:\tx\n"), None);
    }

    #[test]
    fn the_cpu_model_is_the_text_after_the_colon() {
        let cpuinfo = "processor\t: 0\nmodel name\t: AMD EPYC: 7000\n";
        assert_eq!(cpu_model(cpuinfo), Some("AMD EPYC: 7000"));
        assert_eq!(cpu_model("processor\t: 0\n"), None);
    }

    #[test]
    fn a_full_file_has_its_size_and_noise_and_a_sparse_one_has_no_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let full = folder.path().join("full");
        let bytes = CHUNK_BYTES as u64 + 10;
        make_full_file(&full, bytes, || false).unwrap();
        let data = std::fs::read(&full).unwrap();
        assert_eq!(data.len() as u64, bytes);
        assert_ne!(data[..4096], data[4096..8192]);
        let sparse = folder.path().join("sparse");
        make_sparse_file(&sparse, bytes).unwrap();
        let metadata = std::fs::metadata(&sparse).unwrap();
        assert_eq!((metadata.len(), metadata.blocks()), (bytes, 0));
        assert!(make_sparse_file(&sparse, 1).is_err(), "an existing file is never overwritten");
    }
}
