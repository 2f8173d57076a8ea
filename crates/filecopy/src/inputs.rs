//! Inputs as users name them: files and devices, and standard input as `-`.
//!
//! All programs that read them open, name and measure their inputs in the same way.

use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use ioengine::open_file;
use seqio::Options;

use crate::problem::Problem;
use crate::stream::Input;

/// Whether a path means standard input.
pub fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The path as shown to users.
pub fn shown(path: &Path) -> String {
    if is_stdin(path) { "standard input".to_owned() } else { path.display().to_string() }
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
pub fn open(path: &Path, options: &Options) -> Result<Input, Problem> {
    if is_stdin(path) { Input::stdin(options) } else { Input::open(path, options) }
}
