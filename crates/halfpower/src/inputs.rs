//! Inputs of `cat` and `checksum`: the named files, or standard input as `-`.

use std::path::PathBuf;

/// The named files, or standard input if none was named.
pub fn named(files: &[PathBuf]) -> Vec<PathBuf> {
    if files.is_empty() { vec![PathBuf::from("-")] } else { files.to_vec() }
}
