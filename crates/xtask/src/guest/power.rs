//! Power cuts: a guest copies files and stores results while its drive logs every write; then the
//! guest is killed. From the log an image is made for moments before the kill, as a power cut
//! leaves it: all that was flushed, and a random part of the rest. A second guest looks at the
//! images: no copy may be half, and nothing may be lost that had been reported as done.

use super::kernel::Kernel;
use super::machine::{Contents, Laboratory, RESULTS, step_text, steps, tail};
use super::write_log::{self, WriteLog};
use crate::faults::running::pause;
use crate::faults::tally::Stopped;
use crate::repository;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;

/// Commands of the guest that writes, and of the guest that looks.
const WRITER: &str = include_str!("power_writer.sh");
const CHECKER: &str = include_str!("power_checker.sh");
/// Size of the drive (bytes), and of its log.
const DRIVE_BYTES: u64 = 256 << 20;
const LOG_BYTES: u64 = 16 << 30;
/// Moments that are looked at after each kill; as many drives the second guest has.
const CUTS_PER_KILL: usize = 10;
/// The guest is killed in this time after its first operation (ms).
const KILL_AFTER_MS: std::ops::Range<u64> = 6_000..20_000;
/// How often the results are read (ms).
const TICK_MS: u64 = 2;
/// Kinds of operations, in the order of the checker's arguments.
const KINDS: [&str; 4] = ["file", "resumed", "tree", "run"];

/// Operations that were reported as done, and how many entries the log had then.
#[derive(Debug, Default)]
struct Reported {
    done: Vec<(String, u64, usize)>,
    begun_at: usize,
}

impl Reported {
    /// The last operation of each kind that had been reported when the log had `count` entries.
    fn before(&self, count: usize) -> [u64; KINDS.len()] {
        KINDS.map(|kind| {
            let of_kind = self.done.iter().filter(|(of, _, at)| of == kind && *at <= count);
            of_kind.map(|(_, number, _)| *number).max().unwrap_or(0)
        })
    }
}

/// What came of the campaign.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Power cuts that were looked at.
    pub cuts: usize,
    /// Operations that had been reported before the cuts, by kind.
    pub reported: BTreeMap<&'static str, u64>,
    /// What was wrong.
    pub faults: Vec<String>,
}

/// Cuts the power `cuts` times.
///
/// # Errors
/// A guest does not work, or Ctrl-C.
pub fn run(laboratory: &Laboratory, kernel: &Kernel, cuts: usize, seed: u64) -> Result<Outcome> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut outcome = Outcome::default();
    while outcome.cuts < cuts {
        let folder = tempfile::tempdir_in(&laboratory.work)?;
        let base = folder.path().join("base");
        File::create_new(&base)?.set_len(DRIVE_BYTES)?;
        repository::output_of(Command::new("mkfs.ext4").arg("-q").arg(&base))
            .context("mkfs.ext4 is needed: install the package e2fsprogs")?;
        let kill_after_ms = random.u64(KILL_AFTER_MS);
        let reported = write_until_killed(laboratory, kernel, folder.path(), kill_after_ms)?;
        let log = WriteLog::open(&folder.path().join("log"))?;
        let count = CUTS_PER_KILL.min(cuts - outcome.cuts);
        let moments = random_moments(&mut random, reported.begun_at..log.entries.len(), count);
        let images = Images { base: &base, log: &log, moments: &moments };
        look(laboratory, kernel, &images, &reported, &mut random, &mut outcome)?;
        println!(
            "killed after {:.1} s, {} writes and flushes: {} cuts, {} faults so far",
            kill_after_ms as f64 / 1000.0,
            log.entries.len(),
            outcome.cuts,
            outcome.faults.len()
        );
    }
    Ok(outcome)
}

/// Random moments, the last one at the end: the moment of the kill itself.
fn random_moments(
    random: &mut fastrand::Rng,
    range: std::ops::Range<usize>,
    count: usize,
) -> Vec<usize> {
    let end = range.end;
    (0..count).map(|at| if at == 0 { end } else { random.usize(range.start..=end) }).collect()
}

/// Boots the guest that writes, and kills it.
fn write_until_killed(
    laboratory: &Laboratory,
    kernel: &Kernel,
    folder: &Path,
    kill_after_ms: u64,
) -> Result<Reported> {
    let at = |name: &str| folder.join(name).display().to_string();
    fs::copy(at("base"), at("drive"))?;
    let log = folder.join("log");
    File::create_new(&log)?.set_len(LOG_BYTES)?;
    let mut qemu = laboratory.qemu(kernel, "q35", "", folder)?;
    for node in [
        format!("driver=file,node-name=drive-file,filename={}", at("drive")),
        "driver=raw,node-name=drive-raw,file=drive-file".to_owned(),
        format!("driver=file,node-name=log-file,filename={}", at("log")),
        "driver=blklogwrites,node-name=d0,file=drive-raw,log=log-file,log-sector-size=512,\
         log-super-update-interval=1"
            .to_owned(),
    ] {
        qemu.args(["-blockdev", &node]);
    }
    qemu.args(["-device", "virtio-blk-pci,drive=d0,write-cache=on"]);
    let modules = ["virtio_blk", "ext4"].map(str::to_owned);
    let contents = Contents { modules: &modules, script: WRITER, ..Contents::default() };
    let mut running = laboratory.boot(qemu, kernel, &contents, folder)?;
    let mut reported = Reported::default();
    let (mut read, mut left_ms) = (0, None);
    for _ in 0..laboratory.patience_ms / TICK_MS {
        let text = fs::read_to_string(folder.join(RESULTS)).unwrap_or_default();
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        for line in text[read..whole].lines() {
            let (kind, number) = line.split_once(' ').context("a guest that says nonsense")?;
            // The log's head counts an entry before its write is reported to the guest, so all that
            // the operation wrote is counted.
            let entries = write_log::count(&log)? as usize;
            match kind {
                "begun" => (reported.begun_at, left_ms) = (entries, Some(kill_after_ms)),
                kind => reported.done.push((kind.to_owned(), number.parse()?, entries)),
            }
        }
        read = whole;
        if left_ms == Some(0) {
            return Ok(reported);
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
    bail!("the guest that writes does not: {}", tail(&running.said()))
}

/// Where images come from: the drive before the first guest, its log, and the moments.
struct Images<'a> {
    base: &'a Path,
    log: &'a WriteLog,
    moments: &'a [usize],
}

/// Makes an image for each moment and lets the second guest look at all.
fn look(
    laboratory: &Laboratory,
    kernel: &Kernel,
    images: &Images<'_>,
    reported: &Reported,
    random: &mut fastrand::Rng,
    outcome: &mut Outcome,
) -> Result<()> {
    let Images { base, log, moments } = *images;
    let folder = tempfile::tempdir_in(&laboratory.work)?;
    let mut qemu = laboratory.qemu(kernel, "q35", "", folder.path())?;
    let mut expected = String::new();
    for (number, moment) in moments.iter().enumerate() {
        let path = folder.path().join(format!("d{number}"));
        fs::copy(base, &path)?;
        let image = File::options().write(true).open(&path)?;
        log.apply(&image, *moment, false, || random.bool())?;
        qemu.arg("-drive");
        qemu.arg(format!("if=none,id=d{number},format=raw,file={}", path.display()));
        qemu.args(["-device", &format!("virtio-blk-pci,drive=d{number}")]);
        let letter = char::from(b'a' + number as u8);
        let before = reported.before(*moment);
        let [file, resumed, tree, run] = before;
        expected += &format!("vd{letter} {file} {resumed} {tree} {run}\n");
        for (kind, count) in KINDS.into_iter().zip(before) {
            *outcome.reported.entry(kind).or_default() += count;
        }
    }
    let modules = ["virtio_blk", "ext4"].map(str::to_owned);
    let files = [("/expected".to_owned(), expected.into_bytes())];
    let script = step_text(0, CHECKER) + "finish\n";
    let contents =
        Contents { modules: &modules, files: &files, script: &script, ..Contents::default() };
    let running = laboratory.boot(qemu, kernel, &contents, folder.path())?;
    let ended = running.ended_within(laboratory.patience_ms, |_| {})?;
    let sent = fs::read(folder.path().join(RESULTS)).unwrap_or_default();
    let found = steps(&sent).into_iter().next();
    let step = found.with_context(|| format!("the guest that looks does not: {}", ended.stdout))?;
    let (looked, wrong): (Vec<&str>, Vec<&str>) =
        step.output.lines().partition(|line| line.ends_with(": looked at"));
    ensure!(looked.len() == moments.len(), "not all drives were looked at: {}", step.output);
    outcome.cuts += moments.len();
    outcome.faults.extend(wrong.iter().map(|line| (*line).to_owned()));
    wrong.iter().for_each(|line| println!("  {line}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_reported_before_a_moment_must_be_there() {
        let done = |kind: &str, number, at| (kind.to_owned(), number, at);
        let done = vec![done("file", 1, 10), done("run", 1, 20), done("file", 2, 30)];
        let reported = Reported { done, begun_at: 5 };
        assert_eq!(reported.before(9), [0, 0, 0, 0]);
        assert_eq!(reported.before(25), [1, 0, 0, 1]);
        assert_eq!(reported.before(30), [2, 0, 0, 1]);
    }
}
