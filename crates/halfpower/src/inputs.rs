//! Inputs of `cat` and `checksum`: the files on the command line, or standard input, which is
//! written as `-`.

use std::path::PathBuf;

/// Returns the files on the command line, or `-` (standard input) if there are none.
pub fn named(files: &[PathBuf]) -> Vec<PathBuf> {
    if files.is_empty() { vec![PathBuf::from("-")] } else { files.to_vec() }
}
