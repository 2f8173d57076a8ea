//! The folder that a peer serves. Only regular files below this folder can be opened.
//!
//! The kernel itself refuses `..`, absolute paths and symbolic links when it opens a path below the
//! folder. Therefore no file outside of the folder is opened, even if somebody moves files at that
//! moment. The type of the file is checked before the file is opened for reading, because opening a
//! FIFO could block, and opening a device can have side effects.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Component, Path, PathBuf};

use ioengine::open_file::open_beneath;

use crate::failure::{Failure, Outcome};

/// Maximum length of a path (bytes).
const PATH_BYTES_MAX: usize = 1024;

/// A folder whose files may be read.
#[derive(Debug)]
pub struct Folder {
    handle: File,
}

/// A regular file below a folder. The file stays open, so that its path stays valid.
#[derive(Debug)]
pub struct FileBelow {
    handle: File,
}

impl FileBelow {
    /// Returns a path that leads to this file even if the file is renamed or replaced.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.handle.as_raw_fd()))
    }
}

impl Folder {
    /// Opens the folder that is served.
    ///
    /// # Errors
    /// The path does not exist or is not a folder (exit code `Usage`), or the kernel cannot confine
    /// paths to a folder (exit code `Refused`).
    pub fn open(path: &Path) -> Outcome<Folder> {
        let failed = |error: std::io::Error| {
            let (cause, path) = (ioengine::error::cause(&error), path.display());
            Failure::usage(format!("--dir {path}: {cause}; use an existing folder"))
        };
        if !std::fs::metadata(path).map_err(failed)?.is_dir() {
            return Err(failed(std::io::Error::from_raw_os_error(libc::ENOTDIR)));
        }
        let folder = Folder { handle: File::open(path).map_err(failed)? };
        match open_beneath(&folder.handle, Path::new(".")) {
            Ok(_) => Ok(folder),
            Err(error) => Err(Failure::refused(format!(
                "this kernel cannot confine a path to a folder (openat2: {}); use Linux 5.6 or \
                 newer",
                ioengine::error::cause(&error)
            ))),
        }
    }

    /// Opens a regular file below the folder.
    ///
    /// # Errors
    /// The reason why the path is refused, with the remedy.
    pub fn file(&self, path: &str) -> Result<FileBelow, String> {
        check(path)?;
        let shown = path.escape_debug();
        let remedy = "specify an existing regular file below the folder of the peer";
        let handle = open_beneath(&self.handle, Path::new(path)).map_err(|error| {
            let cause = match error.raw_os_error() {
                Some(libc::ELOOP) => "the path leads through a symbolic link".to_owned(),
                Some(libc::EXDEV) => "the path leads out of the folder".to_owned(),
                _ => ioengine::error::cause(&error),
            };
            format!("{shown}: {cause}; {remedy}")
        })?;
        let is_file = handle.metadata().is_ok_and(|metadata| metadata.is_file());
        if !is_file {
            return Err(format!("{shown} is not a regular file; {remedy}"));
        }
        Ok(FileBelow { handle })
    }
}

/// Refuses a path that is empty, absolute or too long, or that contains `..` or a zero byte.
///
/// # Errors
/// The reason, with the remedy.
pub fn check(path: &str) -> Result<(), String> {
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    let plain = !path.is_empty() && Path::new(path).components().all(is_plain);
    if plain && path.len() <= PATH_BYTES_MAX && !path.contains('\0') {
        return Ok(());
    }
    Err("the path must be relative, without '..', and shorter than 1 KiB; specify a file below \
         the folder of the peer"
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;
    use std::io::Read;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    fn served() -> (tempfile::TempDir, Folder) {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("secret"), "secret").unwrap();
        let folder = place.path().join("served");
        std::fs::create_dir_all(folder.join("deep")).unwrap();
        std::fs::write(folder.join("deep/data"), "data").unwrap();
        let served = Folder::open(&folder).unwrap();
        (place, served)
    }

    #[test]
    fn a_regular_file_below_the_folder_is_opened_and_stays_the_same_after_a_rename() {
        let (place, folder) = served();
        let file = folder.file("deep/data").unwrap();
        let data = place.path().join("served/deep/data");
        std::fs::rename(&data, place.path().join("moved")).unwrap();
        std::fs::write(&data, "other").unwrap();
        let mut text = String::new();
        File::open(file.path()).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "data");
    }

    #[test]
    fn no_path_leads_out_of_the_folder() {
        let (place, folder) = served();
        let inside = |name: &str| place.path().join("served").join(name);
        symlink("../secret", inside("link")).unwrap();
        symlink("..", inside("up")).unwrap();
        symlink("deep/data", inside("harmless")).unwrap();
        symlink("/proc/self/fd", inside("fds")).unwrap();
        let secret = place.path().join("secret").display().to_string();
        let tricks = [
            "../secret",
            "deep/../../secret",
            "deep/../deep/data",
            "link",
            "up/secret",
            "harmless",
            "fds/0",
            "/proc/self/fd/0",
            "/dev/null",
            "",
            ".",
            "deep",
            "deep\0/data",
            &secret,
            &"x/".repeat(1000),
        ];
        for path in tricks {
            let refused = folder.file(path).unwrap_err();
            assert!(refused.contains(';'), "{path}: no remedy: {refused}");
        }
    }

    #[test]
    fn a_fifo_is_refused_and_does_not_block() {
        let (place, folder) = served();
        let fifo = place.path().join("served/fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        assert!(folder.file("fifo").unwrap_err().contains("not a regular file"));
    }

    #[test]
    fn a_device_below_the_folder_is_refused() {
        let folder = Folder::open(Path::new("/dev")).unwrap();
        assert!(folder.file("null").unwrap_err().contains("not a regular file"));
    }

    #[test]
    fn only_a_folder_can_be_served() {
        let (place, _) = served();
        for name in ["secret", "missing"] {
            let refused = Folder::open(&place.path().join(name)).unwrap_err();
            assert_eq!(refused.exit, Exit::Usage);
        }
    }
}
