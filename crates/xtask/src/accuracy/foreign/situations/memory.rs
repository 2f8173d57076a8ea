//! Situations in which requests are served from memory instead of a device, or in which buffers are
//! not on huge pages.

use super::Situation;
use super::gear::{QUIET, alarm, python, run_and_check, with_command};
use crate::accuracy::foreign::server::{Server, Target};
use crate::faults::device::{LoopDevice, system, unmount};
use crate::faults::place::{Context, MIB, noise};
use crate::faults::tally::Check;
use anyhow::Result;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// The situations of this module. Each situation triggers a different check of halfpower.
pub const SITUATIONS: &[Situation] = &[
    Situation {
        word: "tmpfs",
        wrong: "the target lies in memory",
        made: "a file on a tmpfs is read",
        must: "suspect: the target lies in memory",
        says: &["lies in memory (tmpfs)"],
        run: tmpfs_read,
    },
    Situation {
        word: "loop-fuse",
        wrong: "direct requests are served from memory",
        made: "a loop device without direct I/O that was already read once; nbdfuse serves its \
               image file",
        must: "suspect: the image is in the page cache, or is read through the page cache",
        says: &["is in the page cache", "its image through the page cache"],
        run: loop_on_fuse,
    },
    Situation {
        word: "wrap",
        wrong: "a region is read repeatedly with buffered I/O, on a device without I/O counters",
        made: "sequential buffered reads of a 16 MiB file served by nbdfuse",
        must: "invalid: repeated reads come from the page cache",
        says: &["repeated reads come from the page cache"],
        run: wrap,
    },
    Situation {
        word: "huge-pages",
        wrong: "the buffers are not on huge pages",
        made: "huge pages are switched off for the process (prctl)",
        must: "suspect: the buffers are not on huge pages",
        says: &["of buffers lie on huge pages"],
        run: huge_pages,
    },
];

/// A mounted tmpfs, unmounted on drop.
pub struct Tmpfs(TempDir);

impl Tmpfs {
    /// Mounts a tmpfs and creates a file of `bytes` random bytes on it. Returns the tmpfs and the
    /// path of the file.
    pub fn with_file(context: &Context, bytes: u64) -> Result<(Tmpfs, PathBuf)> {
        let folder = tempfile::tempdir_in(&context.folder)?;
        let point = folder.path().display().to_string();
        system(&["mount", "-t", "tmpfs", "-o", "size=256m", "halfpower-accuracy", &point])?;
        let tmpfs = Tmpfs(folder);
        let file = tmpfs.0.path().join("data");
        fs::write(&file, noise(bytes))?;
        Ok((tmpfs, file))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        unmount(self.0.path());
    }
}

fn tmpfs_read(context: &Context, says: &[&str]) -> Result<Check> {
    let (_tmpfs, file) = Tmpfs::with_file(context, 32 * MIB)?;
    let line = format!("run {} --rw randread --bs 4k --runtime 0.5", file.display());
    run_and_check(context, &line, says)
}

fn loop_on_fuse(context: &Context, says: &[&str]) -> Result<Check> {
    let server = Server::nbdkit(context, "--filter=delay memory 64M rdelay=1ms")?;
    let device = LoopDevice::on(PathBuf::from(server.file()))?;
    let target = Target::new(device.path.clone(), vec![Box::new(device), Box::new(server)]);
    // After this read the page cache holds the image, so no request reaches the server.
    std::io::copy(&mut fs::File::open(&target.path)?, &mut std::io::sink())?;
    let line = format!("run {} --rw randread --bs 4k --iodepth 4 --runtime 1", target.path);
    run_and_check(context, &line, says)
}

fn wrap(context: &Context, says: &[&str]) -> Result<Check> {
    let server = Server::nbdkit(context, "--filter=delay memory 16M rdelay=1ms")?;
    let line =
        format!("run {} --rw read --bs 64k --direct=0 --time-based --runtime 1", server.file());
    run_and_check(context, &line, says)
}

/// Python script that disables huge pages for its process (PR_SET_THP_DISABLE) and then executes a
/// program in this process.
const WITHOUT_HUGE_PAGES: &str = "\
import ctypes, os, sys
if ctypes.CDLL(None).prctl(41, 1, 0, 0, 0) != 0:
    sys.exit('prctl failed')
os.execv(sys.argv[1], sys.argv[1:])
";

fn huge_pages(context: &Context, says: &[&str]) -> Result<Check> {
    let server = Server::nbdkit(context, "--filter=delay memory 64M rdelay=1ms")?;
    let place = context.place()?;
    let line = format!("run {} --rw read --bs 1m --iodepth 4 --runtime 0.5 {QUIET}", server.file());
    let mut command = Command::new(python()?);
    command.args(["-c", WITHOUT_HUGE_PAGES]).arg(&context.program).args(line.split_whitespace());
    Ok(with_command(&line, alarm(&place.start_command(command)?.ended()?, says)))
}
