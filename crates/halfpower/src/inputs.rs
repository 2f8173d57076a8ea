//! What `cat`, `checksum` and `copy` read: files by name, and standard input as `-`.

use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use filecopy::stream::Input;
use ioengine::open_file;
use lab::failure::{Failure, Outcome};
use seqio::Options;

/// Whether a name stands for standard input.
pub fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// How a name is shown.
pub fn shown(path: &Path) -> String {
    if is_stdin(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// The files that were named, or standard input where none was.
pub fn named(files: &[PathBuf]) -> Vec<PathBuf> {
    if files.is_empty() { vec![PathBuf::from("-")] } else { files.to_vec() }
}

/// How much there is to read in a file or device, where that is known (bytes).
pub fn size_of(path: &Path) -> Option<u64> {
    let metadata = fs::metadata(path).ok().filter(|_| !is_stdin(path))?;
    // Nothing else is opened just to look: a pipe would wait for its writer.
    match metadata.file_type().is_block_device() {
        true => File::open(path).and_then(|file| open_file::size_bytes(&file)).ok(),
        false => metadata.is_file().then_some(metadata.len()),
    }
}

/// Opens a file by name, or what is left of standard input.
///
/// # Errors
/// What the system says, with the name.
pub fn open(path: &Path, options: &Options) -> Result<Input, filecopy::Problem> {
    if is_stdin(path) { Input::stdin(options) } else { Input::open(path, options) }
}

/// Refuses to send data to a standard output that was closed before the program began: the system
/// puts a device there that swallows everything.
pub fn check_stdout() -> Outcome<()> {
    match ioengine::stdio::stdout_was_closed() {
        true => Err(Failure::failed("standard output is closed; send it to a file or a pipe")),
        false => Ok(()),
    }
}
