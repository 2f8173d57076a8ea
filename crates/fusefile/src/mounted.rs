//! Mounting the file, and taking it away again, also while a program that has ended still holds
//! it for a moment.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fuser::{BackgroundSession, Config, MountOption, Session};
use ioengine::{Monotonic, mount};

use crate::files::{Files, Spec};

/// How often, and how long apart, is looked whether the last user of the file has gone.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// What the system's table of mounts names as the source of ours.
pub const SOURCE: &str = "halfpower";

/// A file that is being served; dropping it unmounts.
pub struct Mounted {
    folder: PathBuf,
    /// Device number of the mounted file system: another one there is none of ours.
    device: u64,
    file: PathBuf,
    session: Option<BackgroundSession>,
}

/// Serves a file in an empty folder.
///
/// # Errors
/// Without FUSE in the kernel, without the right to mount, or where `folder` is no empty folder.
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
    /// The file.
    pub fn path(&self) -> &Path {
        &self.file
    }

    /// Whether it is still there: somebody else may take it away too.
    pub fn is_there(&self) -> bool {
        fs::metadata(&self.folder).is_ok_and(|folder| folder.dev() == self.device)
    }

    /// Takes the mount away, out of sight at once, and waits until the last request has been
    /// answered. A file that stays open elsewhere for longer than two seconds loses its device
    /// all the same.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn unmount(mut self) -> io::Result<()> {
        let Some(session) = self.session.take() else { return Ok(()) };
        if self.is_there() {
            mount::unmount(&self.folder, true)?;
        }
        // A program that has ended may hold its files a little longer: the kernel takes rings
        // down in its own time.
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
            // Nobody is left to hear of a failure; `unmount` tells.
            let _ = mount::unmount(&self.folder, true);
        }
    }
}
