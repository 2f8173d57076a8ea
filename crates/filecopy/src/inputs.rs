//! Opens the inputs of subcommands: files, devices, and standard input (`-`).

use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use ioengine::open_file;
use seqio::Options;

use crate::problem::Problem;
use crate::stream::Input;

/// Returns true if the path is `-`, which means standard input.
pub fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Formats a path for messages.
pub fn shown(path: &Path) -> String {
    if is_stdin(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// Returns the size of a file or block device (bytes). None if the size is not known.
pub fn size_of(path: &Path) -> Option<u64> {
    let metadata = fs::metadata(path).ok().filter(|_| !is_stdin(path))?;
    // Only block devices are opened, because opening a named pipe would wait for a writer.
    if metadata.file_type().is_block_device() {
        return File::open(path).and_then(|file| open_file::size_bytes(&file)).ok();
    }
    metadata.is_file().then_some(metadata.len())
}

/// Opens a file, or standard input at its current position.
///
/// # Errors
/// The input cannot be opened.
pub fn open(path: &Path, options: &Options) -> Result<Input, Problem> {
    if is_stdin(path) { Input::stdin(options) } else { Input::open(path, options) }
}
