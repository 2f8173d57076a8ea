//! Runs the two guests that a test of power cuts needs. The first guest writes to its drive until
//! the guest is killed, and QEMU logs every write. The second guest checks disk images that are
//! created from this log.

use super::kernel::Kernel;
use super::machine::{
    Contents, CrashedAtBoot, Laboratory, RESULTS, booted, step_text, steps, tail,
};
use super::write_log;
use crate::faults::running::pause;
use crate::faults::tally::Stopped;
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Name of the log of writes, in the folder of a guest.
pub const LOG: &str = "log";
/// Size of the file for the log (bytes).
const LOG_BYTES: u64 = 16 << 30;
/// Time between two reads of the reports (ms).
const TICK_MS: u64 = 2;
/// Kind of the report that the guest sends when its operations begin.
const BEGUN: &str = "begun";

/// A report of the guest that an operation is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Kind of the completed operation.
    pub kind: String,
    /// Number of the operation. The operations of each kind are numbered separately.
    pub number: u64,
    /// Number of entries in the log when the report arrived. By then, the log contained all writes
    /// of the operation.
    pub entries: usize,
}

/// All reports of a guest.
#[derive(Debug, Default)]
pub struct Reports {
    /// The reports in the order of their arrival.
    pub all: Vec<Report>,
    /// Number of entries in the log when the operations began.
    pub begun_at: usize,
}

impl Reports {
    /// Returns the number of the last operation of this kind that was reported while the log had at
    /// most `count` entries. None if there was no such operation.
    pub fn last(&self, kind: &str, count: usize) -> Option<u64> {
        let of_kind = self.all.iter().filter(|one| one.kind == kind && one.entries <= count);
        of_kind.map(|one| one.number).max()
    }
}

/// A guest that writes to the drive `/dev/vda`. QEMU logs every write to this drive.
pub struct Writer<'a> {
    /// Shell commands of the guest. They write reports to file descriptor 3: "begun 0" at the
    /// beginning, and "KIND NUMBER" after each operation.
    pub script: &'a str,
    pub modules: &'a [String],
    /// Additional arguments of QEMU.
    pub arguments: &'a [String],
    /// Time between the report "begun" and the kill of the guest (ms).
    pub kill_after_ms: u64,
}

impl Writer<'_> {
    /// Boots the guest with a copy of the image `base` as its drive. Kills the guest
    /// `kill_after_ms` milliseconds after the report "begun". The log is then in `folder`.
    ///
    /// # Errors
    /// If the guest fails, or a signal stops the campaign.
    pub fn run(
        &self,
        laboratory: &Laboratory,
        kernel: &Kernel,
        base: &Path,
        folder: &Path,
    ) -> Result<Reports> {
        booted(|| self.run_once(laboratory, kernel, base, folder))
    }

    fn run_once(
        &self,
        laboratory: &Laboratory,
        kernel: &Kernel,
        base: &Path,
        folder: &Path,
    ) -> Result<Reports> {
        let at = |name: &str| folder.join(name).display().to_string();
        fs::copy(base, at("drive"))?;
        File::create(at(LOG))?.set_len(LOG_BYTES)?;
        let mut qemu = laboratory.qemu(kernel, None, "", folder);
        for node in [
            format!("driver=file,node-name=drive-file,filename={}", at("drive")),
            "driver=raw,node-name=drive-raw,file=drive-file".to_owned(),
            format!("driver=file,node-name=log-file,filename={}", at(LOG)),
            "driver=blklogwrites,node-name=d0,file=drive-raw,log=log-file,log-sector-size=512,\
             log-super-update-interval=1"
                .to_owned(),
        ] {
            qemu.args(["-blockdev", &node]);
        }
        qemu.args(["-device", "virtio-blk-pci,drive=d0,serial=logged,write-cache=on"]);
        qemu.args(self.arguments);
        let contents =
            Contents { modules: self.modules, script: self.script, ..Contents::default() };
        let mut running = laboratory.boot(qemu, kernel, &contents, folder)?;
        let mut reports = Reports::default();
        let (mut read, mut left_ms) = (0, None);
        for _ in 0..laboratory.patience_ms / TICK_MS {
            let text = fs::read_to_string(folder.join(RESULTS)).unwrap_or_default();
            let whole = text.rfind('\n').map_or(0, |end| end + 1);
            for line in text[read..whole].lines() {
                let (kind, number) = line.split_once(' ').context("a malformed report")?;
                // QEMU updates the number of entries before it completes a write. So the number
                // includes all writes of a completed operation.
                let entries = write_log::count(&folder.join(LOG))? as usize;
                let report = Report { kind: kind.to_owned(), number: number.parse()?, entries };
                if kind == BEGUN {
                    (reports.begun_at, left_ms) = (entries, Some(self.kill_after_ms));
                } else {
                    reports.all.push(report);
                }
            }
            read = whole;
            if left_ms == Some(0) {
                return Ok(reports);
            }
            left_ms = left_ms.map(|ms: u64| ms.saturating_sub(TICK_MS));
            if running.child.try_wait()?.is_some() || laboratory.stop.load(Ordering::Relaxed) {
                break;
            }
            pause(TICK_MS);
        }
        if laboratory.stop.load(Ordering::Relaxed) {
            return Err(Stopped.into());
        }
        let console = running.said();
        if let Some(crash) = CrashedAtBoot::seen_on(&console).filter(|_| left_ms.is_none()) {
            return Err(crash.into());
        }
        bail!("the writing guest failed: {}", tail(&console))
    }
}

/// A disk image that a guest checks.
pub struct Image {
    pub file: File,
    path: PathBuf,
    /// Name of the drive in the guest that checks the image ("vda").
    pub name: String,
}

impl Image {
    /// Copies a disk image. The copy becomes drive `number` of the guest that checks the images.
    ///
    /// # Errors
    /// If the copy fails.
    pub fn copy_of(base: &Path, folder: &Path, number: usize) -> Result<Image> {
        let path = folder.join(format!("d{number}"));
        fs::copy(base, &path)?;
        let file = File::options().write(true).open(&path)?;
        Ok(Image { file, path, name: format!("vd{}", char::from(b'a' + number as u8)) })
    }
}

/// A guest that checks disk images.
pub struct Checker<'a> {
    /// Shell commands of the guest.
    pub script: &'a str,
    pub modules: &'a [String],
    /// Additional arguments of QEMU, after those for the images.
    pub arguments: &'a [String],
    /// Path and content of files that the commands read.
    pub files: &'a [(String, Vec<u8>)],
}

impl Checker<'_> {
    /// Boots the guest and returns the output of its commands.
    ///
    /// # Errors
    /// If the guest fails, or a signal stops the campaign.
    pub fn run(
        &self,
        laboratory: &Laboratory,
        kernel: &Kernel,
        images: &[Image],
        folder: &Path,
    ) -> Result<String> {
        booted(|| self.run_once(laboratory, kernel, images, folder))
    }

    fn run_once(
        &self,
        laboratory: &Laboratory,
        kernel: &Kernel,
        images: &[Image],
        folder: &Path,
    ) -> Result<String> {
        let mut qemu = laboratory.qemu(kernel, None, "", folder);
        for (number, image) in images.iter().enumerate() {
            qemu.arg("-drive");
            qemu.arg(format!("if=none,id=d{number},format=raw,file={}", image.path.display()));
            qemu.args(["-device", &format!("virtio-blk-pci,drive=d{number}")]);
        }
        qemu.args(self.arguments);
        let script = step_text(0, self.script) + "finish\n";
        let contents = Contents {
            modules: self.modules,
            files: self.files,
            script: &script,
            ..Contents::default()
        };
        let running = laboratory.boot(qemu, kernel, &contents, folder)?;
        let ended = running.ended_within(laboratory.patience_ms, |_| {})?;
        let sent = fs::read(folder.join(RESULTS)).unwrap_or_default();
        match (steps(&sent).into_iter().next(), CrashedAtBoot::seen_on(&ended.stdout)) {
            (Some(step), _) => Ok(step.output),
            (None, Some(crash)) => Err(crash.into()),
            (None, None) => bail!("the checking guest failed: {}", tail(&ended.stdout)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_report_of_a_kind_is_that_before_a_moment() {
        let report = |number, entries| Report { kind: "file".to_owned(), number, entries };
        let reports = Reports { all: vec![report(1, 10), report(2, 30)], begun_at: 5 };
        assert_eq!(reports.last("file", 9), None);
        assert_eq!(reports.last("file", 10), Some(1));
        assert_eq!(reports.last("file", 30), Some(2));
        assert_eq!(reports.last("tree", 30), None);
    }
}
