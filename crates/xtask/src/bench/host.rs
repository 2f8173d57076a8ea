//! Describes the machine of a benchmark, selects the core to run on, and creates test files.

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, PosixFadviseAdvice, fallocate, posix_fadvise};
use std::fs::{File, OpenOptions, create_dir_all, remove_dir_all, remove_file, rename};
use std::io::{ErrorKind, Write};
use std::ops::RangeInclusive;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of bytes written between two checks of the stop flag.
const CHUNK_BYTES: usize = 1 << 20;

/// Describes CPU model, core, kernel, file system and fio version on one line.
pub fn description(folder: &Path, core: usize) -> Result<String> {
    let fio = first_line(Command::new("fio").arg("--version"))
        .context("fio is needed: install the package `fio`")?;
    Ok(format!("core {core} of {}, {fio}", machine(folder)))
}

/// Describes CPU model, kernel and file system on one line.
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

/// Returns the last core that this process may use. Benchmarks run on this core because the first
/// cores handle more interrupts.
pub fn last_allowed_core() -> Result<usize> {
    let status =
        std::fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
    last_core(&status).context("/proc/self/status lists no allowed core")
}

fn last_core(status: &str) -> Option<usize> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

/// Returns the path of a program on the PATH. None if the program is not found.
pub fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Creates a sparse file without data blocks.
pub fn make_sparse_file(path: &Path, bytes: u64) -> Result<()> {
    let file = File::create_new(path).with_context(|| format!("cannot create {path:?}"))?;
    file.set_len(bytes).with_context(|| format!("cannot extend {path:?}"))
}

/// Creates a file of incompressible data, flushes the file, and drops it from the page cache. Stops
/// early, without an error, once `is_stopped` returns true.
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

/// Size of a write with direct I/O (bytes).
const DIRECT_BYTES: usize = 4 << 20;
/// Alignment of buffers for direct I/O (bytes).
const ALIGNMENT_BYTES: usize = 4096;

/// Creates a file of incompressible data. The file is preallocated and written with direct I/O, so
/// that it is contiguous on the device. Stops early, without an error, once `is_stopped` returns
/// true.
///
/// `bytes` must be a multiple of 4096. If the file system does not support direct I/O, the file is
/// written through the page cache.
pub fn make_laid_out_file(path: &Path, bytes: u64, is_stopped: impl Fn() -> bool) -> Result<()> {
    let cannot = || format!("cannot write {bytes} bytes to {path:?}");
    let open = |flags: OFlag| {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).custom_flags(flags.bits()).open(path)
    };
    let file = open(OFlag::O_DIRECT).or_else(|_| open(OFlag::empty()));
    let mut file = file.with_context(|| format!("cannot create {path:?}"))?;
    let reserved = fallocate(&file, FallocateFlags::empty(), 0, i64::try_from(bytes)?);
    if reserved == Err(Errno::ENOSPC) {
        bail!("no space for {bytes} bytes in {path:?}; choose another folder with --dir");
    }
    let mut random = fastrand::Rng::with_seed(bytes);
    let mut memory = vec![0; DIRECT_BYTES + ALIGNMENT_BYTES];
    let begin = memory.as_ptr().align_offset(ALIGNMENT_BYTES);
    let chunk = &mut memory[begin..begin + DIRECT_BYTES];
    let mut left = bytes;
    while left > 0 && !is_stopped() {
        random.fill(chunk);
        let length = left.min(DIRECT_BYTES as u64);
        file.write_all(&chunk[..length as usize]).with_context(cannot)?;
        left -= length;
    }
    file.sync_all().with_context(cannot)
}

/// Creates a directory tree with files of random sizes. Stops early, without an error, once `stop`
/// is set.
pub fn make_tree(
    path: &Path,
    files: u32,
    folders: u32,
    kib: RangeInclusive<u32>,
    stop: &AtomicBool,
) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(files.into());
    let mut data = vec![0; *kib.end() as usize * 1024];
    random.fill(&mut data);
    for number in 0..files {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let folder = path.join(format!("folder-{:03}", number % folders));
        if number < folders {
            create_dir_all(&folder).with_context(|| format!("cannot create {folder:?}"))?;
        }
        let bytes = random.usize(*kib.start() as usize * 1024..=data.len());
        let file = folder.join(format!("file-{number:05}"));
        std::fs::write(&file, &data[..bytes]).with_context(|| format!("cannot write {file:?}"))?;
    }
    Ok(())
}

/// Moves a file or a directory tree into a folder and truncates all moved files, which frees their
/// data but keeps their inodes. The folder is created if it does not exist.
pub fn empty_into(path: &Path, folder: &Path) -> Result<()> {
    create_dir_all(folder).with_context(|| format!("cannot create {folder:?}"))?;
    let number = folder.read_dir().map_or(0, Iterator::count);
    let place = folder.join(number.to_string());
    rename(path, &place).with_context(|| format!("cannot move {path:?}"))?;
    empty(&place).with_context(|| format!("cannot empty {place:?}"))
}

fn empty(path: &Path) -> std::io::Result<()> {
    if !path.is_dir() {
        return File::options().write(true).open(path)?.set_len(0);
    }
    for entry in path.read_dir()? {
        empty(&entry?.path())?;
    }
    Ok(())
}

/// Removes a file or a directory tree if it exists.
pub fn remove(path: &Path) -> Result<()> {
    let removed = if path.is_dir() { remove_dir_all(path) } else { remove_file(path) };
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {path:?}"))
        }
        _ => Ok(()),
    }
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
        assert!(make_sparse_file(&sparse, 1).is_err(), "an existing file must not be overwritten");
    }

    #[test]
    fn a_tree_has_its_files_in_its_folders() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        make_tree(&tree, 10, 3, 1..=2, &AtomicBool::new(false)).unwrap();
        let folders: Vec<_> = std::fs::read_dir(&tree).unwrap().flatten().collect();
        let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder.path()).unwrap());
        let sizes: Vec<u64> = files.map(|file| file.unwrap().metadata().unwrap().len()).collect();
        assert_eq!((folders.len(), sizes.len()), (3, 10));
        assert!(sizes.iter().all(|bytes| (1024..=2048).contains(bytes)), "{sizes:?}");
        remove(&tree).unwrap();
        assert!(!tree.exists());
    }

    #[test]
    fn moved_files_keep_their_names_and_free_their_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let (made, spent) = (folder.path().join("made"), folder.path().join("spent"));
        for number in 0..2 {
            make_tree(&made, 4, 2, 8..=8, &AtomicBool::new(false)).unwrap();
            empty_into(&made, &spent).unwrap();
            let file = spent.join(number.to_string()).join("folder-001/file-00003");
            let metadata = std::fs::metadata(file).unwrap();
            assert_eq!((metadata.len(), metadata.blocks()), (0, 0));
        }
        assert!(!made.exists());
    }

    #[test]
    fn a_preallocated_file_has_its_size_and_blocks_and_can_be_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("whole");
        make_laid_out_file(&path, 5 << 20, || false).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 5 << 20);
        let data = std::fs::read(&path).unwrap();
        assert_ne!(data[..4096], data[(4 << 20)..(4 << 20) + 4096]);
        assert!(make_laid_out_file(&path, 4096, || false).is_err(), "overwrote an existing file");
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert!(!path.exists());
    }
}
