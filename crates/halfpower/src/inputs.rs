//! Inputs of `cat`, `checksum` and `copy`: named files and devices, and standard input as `-`.
//!
//! All of them open, name and measure their inputs in the same way.

use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use filecopy::stream::Input;
use ioengine::open_file;
use lab::failure::{Failure, Outcome};
use seqio::Options;

/// Whether a path means standard input.
pub fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The path as shown to users.
pub fn shown(path: &Path) -> String {
    if is_stdin(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// The named files, or standard input if none was named.
pub fn named(files: &[PathBuf]) -> Vec<PathBuf> {
    if files.is_empty() { vec![PathBuf::from("-")] } else { files.to_vec() }
}

/// Size of a file or device, if known (bytes).
pub fn size_of(path: &Path) -> Option<u64> {
    let metadata = fs::metadata(path).ok().filter(|_| !is_stdin(path))?;
    // Only block devices are opened: opening a named pipe would wait for its writer.
    if metadata.file_type().is_block_device() {
        return File::open(path).and_then(|file| open_file::size_bytes(&file)).ok();
    }
    metadata.is_file().then_some(metadata.len())
}

/// Opens a file, or standard input at its current position.
///
/// # Errors
/// The error of the system, with the path.
pub fn open(path: &Path, options: &Options) -> Result<Input, filecopy::Problem> {
    if is_stdin(path) { Input::stdin(options) } else { Input::open(path, options) }
}

/// Fails if standard output was closed when the program started. The Rust runtime opens /dev/null
/// in its place, so output would be lost silently.
///
/// # Errors
/// A closed standard output.
pub fn check_stdout() -> Outcome<()> {
    if ioengine::stdio::stdout_was_closed() {
        return Err(Failure::failed("standard output is closed; redirect it to a file or a pipe"));
    }
    Ok(())
}
