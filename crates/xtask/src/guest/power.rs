//! Simulates power cuts. A guest copies files, changes a setting and stores results. Meanwhile,
//! QEMU logs all writes to the drive of the guest. Then the guest is killed. For several moments
//! before the kill, a disk image is created from the log. The image contains what a power cut at
//! that moment leaves: all flushed writes, and a random part of the unflushed writes. A second
//! guest checks the images. No copy may be incomplete, no operation that was reported as done may
//! be lost, and `restore` must restore the setting.

use super::kernel::Kernel;
use super::logged::{self, Image, Reports};
use super::machine::Laboratory;
use super::write_log::WriteLog;
use crate::repository;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::Command;

/// Shell commands of the guest that writes.
const WRITER: &str = include_str!("power_writer.sh");
/// Shell commands of the guest that checks the images.
const CHECKER: &str = include_str!("power_checker.sh");
const DRIVE_BYTES: u64 = 256 << 20;
/// Number of power cuts that are simulated from the log of each killed guest.
const CUTS_PER_KILL: usize = 10;
/// A guest is killed at a random time in this range after its operations have begun (ms).
const KILL_AFTER_MS: std::ops::Range<u64> = 6_000..20_000;
/// Kinds of operations that the guest reports, in the order of the columns of `/expected`, which
/// the checking guest reads.
const KINDS: [&str; 4] = ["file", "resumed", "tree", "run"];
/// Kind of the report that the guest sends after it has changed a setting.
const CHANGED: &str = "changed";
/// Kind of the report that the guest sends before it restores the setting.
const HELD: &str = "held";
/// Size of the second drive (bytes). The guest changes the mode of this drive's write cache.
const CACHE_SIZE: u64 = 16 << 20;

/// The results of all simulated power cuts.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Number of power cuts whose images were checked.
    pub cuts: usize,
    /// Number of power cuts at which a changed setting had not been restored yet.
    pub settings: usize,
    /// Number of operations that were reported as done before the power cuts, by kind.
    pub reported: BTreeMap<&'static str, u64>,
    /// Messages about lost or incomplete data and settings.
    pub faults: Vec<String>,
}

/// For each kind, returns the number of the last operation that was reported while the log had at
/// most `count` entries. The number is 0 if there was no such operation.
fn done_before(reports: &Reports, count: usize) -> [u64; KINDS.len()] {
    KINDS.map(|kind| reports.last(kind, count).unwrap_or(0))
}

/// Returns whether a setting was changed and not yet restored when the log had `count` entries.
fn is_changed(reports: &Reports, count: usize) -> bool {
    reports.last(CHANGED, count).is_some_and(|number| {
        reports
            .all
            .iter()
            .any(|one| one.kind == HELD && one.number == number && count < one.entries)
    })
}

/// Simulates `cuts` power cuts and checks the images.
///
/// # Errors
/// If a guest fails, or a signal stops the campaign.
pub fn run(laboratory: &Laboratory, kernel: &Kernel, cuts: usize, seed: u64) -> Result<Outcome> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut outcome = Outcome::default();
    while outcome.cuts < cuts {
        let folder = tempfile::tempdir_in(&laboratory.work)?;
        let base = folder.path().join("base");
        File::create_new(&base)?.set_len(DRIVE_BYTES)?;
        repository::output_of(Command::new("mkfs.ext4").arg("-q").arg(&base))
            .context("cannot create an ext4 file system; install the package e2fsprogs")?;
        let kill_after_ms = random.u64(KILL_AFTER_MS);
        let writer = logged::Writer {
            script: WRITER,
            modules: &modules(),
            arguments: &cache_drive(folder.path())?,
            kill_after_ms,
        };
        let reports = writer.run(laboratory, kernel, &base, folder.path())?;
        let log = WriteLog::open(&folder.path().join(logged::LOG))?;
        let count = CUTS_PER_KILL.min(cuts - outcome.cuts);
        let moments = random_moments(&mut random, &reports, log.entries.len(), count);
        let images = Images { base: &base, log: &log, moments: &moments };
        look(laboratory, kernel, &images, &reports, &mut random, &mut outcome)?;
        println!(
            "guest killed after {:.1} s ({} writes and flushes); total so far: {} power cuts, {} \
             faults",
            kill_after_ms as f64 / 1000.0,
            log.entries.len(),
            outcome.cuts,
            outcome.faults.len()
        );
    }
    Ok(outcome)
}

/// Returns the kernel modules that both guests need.
fn modules() -> [String; 2] {
    ["virtio_blk", "ext4"].map(str::to_owned)
}

/// Returns the QEMU arguments for the second drive.
fn cache_drive(folder: &Path) -> Result<Vec<String>> {
    let path = folder.join("cache");
    File::create(&path)?.set_len(CACHE_SIZE)?;
    let drive = format!("if=none,id=cache,format=raw,file={}", path.display());
    let device = "virtio-blk-pci,drive=cache,serial=cache,config-wce=on".to_owned();
    Ok(vec!["-drive".to_owned(), drive, "-device".to_owned(), device])
}

/// Returns random moments for power cuts. A moment is the number of log entries before the cut. The
/// first moment is the end of the log, when the guest was killed. Every third moment is chosen from
/// the moments at which a setting was changed and not yet restored, if there are any.
fn random_moments(
    random: &mut fastrand::Rng,
    reports: &Reports,
    end: usize,
    count: usize,
) -> Vec<usize> {
    let all = reports.begun_at..=end;
    let changed: Vec<usize> = all.clone().filter(|moment| is_changed(reports, *moment)).collect();
    let moment = |at: usize| match (at, at % 3, changed.as_slice()) {
        (0, _, _) => end,
        (_, 2, [_, ..]) => changed[random.usize(..changed.len())],
        _ => random.usize(all.clone()),
    };
    (0..count).map(moment).collect()
}

/// The data from which disk images are created.
struct Images<'a> {
    /// Image of the drive before the first guest was started.
    base: &'a Path,
    log: &'a WriteLog,
    moments: &'a [usize],
}

/// Creates an image for each moment and checks all images in the second guest.
fn look(
    laboratory: &Laboratory,
    kernel: &Kernel,
    images: &Images<'_>,
    reports: &Reports,
    random: &mut fastrand::Rng,
    outcome: &mut Outcome,
) -> Result<()> {
    let Images { base, log, moments } = *images;
    let folder = tempfile::tempdir_in(&laboratory.work)?;
    let mut drives = Vec::new();
    let mut expected = String::new();
    for (number, moment) in moments.iter().enumerate() {
        let image = Image::copy_of(base, folder.path(), number)?;
        log.apply(&image.file, *moment, false, || random.bool())?;
        let before = done_before(reports, *moment);
        let is_changed = is_changed(reports, *moment);
        outcome.settings += usize::from(is_changed);
        let [file, resumed, tree, run] = before;
        let setting = u8::from(is_changed);
        expected += &format!("{} {file} {resumed} {tree} {run} {setting}\n", image.name);
        for (kind, count) in KINDS.into_iter().zip(before) {
            *outcome.reported.entry(kind).or_default() += count;
        }
        drives.push(image);
    }
    let checker = logged::Checker {
        script: CHECKER,
        modules: &modules(),
        arguments: &cache_drive(folder.path())?,
        files: &[("/expected".to_owned(), expected.into_bytes())],
    };
    let output = checker.run(laboratory, kernel, &drives, folder.path())?;
    let (looked, wrong): (Vec<&str>, Vec<&str>) =
        output.lines().partition(|line| line.ends_with(": looked at"));
    ensure!(looked.len() == moments.len(), "not all drives were checked: {output}");
    outcome.cuts += moments.len();
    outcome.faults.extend(wrong.iter().map(|line| (*line).to_owned()));
    wrong.iter().for_each(|line| println!("  {line}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::logged::Report;
    use super::*;

    fn reports(all: &[(&str, u64, usize)]) -> Reports {
        let of = |(kind, number, entries): &(&str, u64, usize)| Report {
            kind: (*kind).to_owned(),
            number: *number,
            entries: *entries,
        };
        Reports { all: all.iter().map(of).collect(), begun_at: 5 }
    }

    #[test]
    fn only_what_was_reported_before_a_moment_must_be_there() {
        let reports = reports(&[("file", 1, 10), ("run", 1, 20), ("file", 2, 30)]);
        assert_eq!(done_before(&reports, 9), [0, 0, 0, 0]);
        assert_eq!(done_before(&reports, 25), [1, 0, 0, 1]);
        assert_eq!(done_before(&reports, 30), [2, 0, 0, 1]);
    }

    #[test]
    fn a_setting_is_known_to_be_changed_only_while_the_guest_holds_it() {
        let reports = reports(&[(CHANGED, 1, 10), (HELD, 1, 20), (CHANGED, 2, 30)]);
        for (moment, expected) in [(9, false), (10, true), (19, true), (20, false), (35, false)] {
            assert_eq!(is_changed(&reports, moment), expected, "{moment}");
        }
    }

    #[test]
    fn the_kill_itself_and_changed_settings_are_among_the_moments() {
        let reports = reports(&[(CHANGED, 1, 10), (HELD, 1, 20)]);
        let moments = random_moments(&mut fastrand::Rng::with_seed(1), &reports, 1000, 9);
        assert_eq!((moments.len(), moments[0]), (9, 1000));
        assert!([2, 5, 8].iter().all(|at| (10..20).contains(&moments[*at])), "{moments:?}");
        assert!(moments.iter().all(|moment| (5..=1000).contains(moment)), "{moments:?}");
    }
}
