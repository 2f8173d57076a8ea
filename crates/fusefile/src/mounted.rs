//! Mounts and unmounts the served file. A program that has just ended may keep the file open for a
//! moment, so unmounting waits until the file is closed.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fuser::{BackgroundSession, Config, MountOption, Session};
use ioengine::{Monotonic, mount};

use crate::files::{Files, Spec};

/// Maximum number of times that `unmount` checks whether the file is closed.
const TRIES: u32 = 100;
/// Time between two checks in `unmount`.
const PAUSE: Duration = Duration::from_millis(20);

/// Source of the mount, the first column of /proc/mounts.
pub const SOURCE: &str = "halfpower";

/// A mounted file. Dropping this value unmounts the file.
pub struct Mounted {
    folder: PathBuf,
    /// Device number of the mounted file system. Used to check whether this file system is still
    /// mounted.
    device: u64,
    file: PathBuf,
    session: Option<BackgroundSession>,
}

/// Mounts a file system with one file on an empty folder, and serves the file.
///
/// # Errors
/// When the kernel has no FUSE, mounting is not permitted, or `folder` is not an empty folder.
pub fn mount(folder: &Path, spec: Spec) -> io::Result<Mounted> {
    if fs::read_dir(folder)?.next().is_some() {
        return Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, "the folder is not empty"));
    }
    let metadata = fs::metadata(folder)?;
    let owner = (metadata.uid(), metadata.gid());
    let mut config = Config::default();
    let name = MountOption::FSName(SOURCE.to_owned());
    let kind = MountOption::Subtype("halfpower".to_owned());
    config.mount_options = vec![name, kind, MountOption::NoDev, MountOption::NoSuid];
    let file = folder.join(&spec.name);
    let files = Files::new(spec, owner)?;
    let folder_name = folder.canonicalize()?;
    let session = Session::new(files, folder, &config)?.spawn()?;
    let device = fs::metadata(&folder_name)?.dev();
    Ok(Mounted { folder: folder_name, device, file, session: Some(session) })
}

impl Mounted {
    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.file
    }

    /// Checks whether the file is still mounted. Another program may have unmounted it.
    pub fn is_there(&self) -> bool {
        fs::metadata(&self.folder).is_ok_and(|folder| folder.dev() == self.device)
    }

    /// Unmounts the file, and waits up to two seconds until all programs have closed it. A program
    /// that still has it open then loses access.
    ///
    /// # Errors
    /// When the system refuses to unmount.
    pub fn unmount(mut self) -> io::Result<()> {
        let Some(session) = self.session.take() else { return Ok(()) };
        if self.is_there() {
            mount::unmount(&self.folder, true)?;
        }
        // The kernel releases io_uring rings asynchronously, so the files of a program that has
        // ended may stay open a little longer.
        let clock = Monotonic::new();
        for _ in 0..TRIES {
            if session.guard.is_finished() {
                return session.join();
            }
            clock.sleep(PAUSE);
        }
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.session.is_some() && self.is_there() {
            // A destructor cannot report errors. Callers that need them call `unmount`.
            let _ = mount::unmount(&self.folder, true);
        }
    }
}
