//! Finds the files below directories, for commands that read files without copying them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Paths that cannot be read, each with the reason.
pub type Unreadable = Vec<(PathBuf, String)>;

/// Returns the files in `named`, and all files below the directories in `named`. The files of a
/// directory are sorted by name. Symbolic links are not followed. `is_file` decides whether a path
/// in `named` is a file.
pub fn files(named: &[PathBuf], is_file: impl Fn(&Path) -> bool) -> (Vec<PathBuf>, Unreadable) {
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    for path in named {
        if is_file(path) {
            found.push(path.clone());
        } else if let Err(error) = walk(path, &mut found, &mut unreadable) {
            unreadable.push((path.clone(), error));
        }
    }
    (found, unreadable)
}

fn walk(
    folder: &Path,
    found: &mut Vec<PathBuf>,
    unreadable: &mut Unreadable,
) -> Result<(), String> {
    let failed = |error: io::Error| {
        format!("reading {}: {}", folder.display(), ioengine::error::cause(&error))
    };
    let entries = fs::read_dir(folder).map_err(failed)?;
    let mut entries = entries.collect::<io::Result<Vec<_>>>().map_err(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            if let Err(error) = walk(&entry.path(), found, unreadable) {
                unreadable.push((entry.path(), error));
            }
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_all_levels_are_found_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("b/c")).unwrap();
        for name in ["z", "a", "b/c/d"] {
            fs::write(path(name), "x").unwrap();
        }
        std::os::unix::fs::symlink("a", path("link")).unwrap();
        let named = [path("z"), folder.path().to_path_buf(), path("none")];
        let (found, unreadable) = files(&named, |path| path.is_file());
        assert_eq!(found, [path("z"), path("a"), path("b/c/d"), path("z")]);
        assert_eq!(unreadable.len(), 1);
    }
}
