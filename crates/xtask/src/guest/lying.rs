//! Tests whether `--verify` detects drives that ignore flushes. A guest writes blocks with
//! `--verify` and flushes them. Then the power is cut, and the drive loses a part of the flushed
//! writes. A second guest reads the blocks back with `--verify`, which must report exactly the lost
//! blocks. Drives that execute flushes are also tested: `--verify` must not report any blocks on
//! them.

use super::kernel::Kernel;
use super::logged::{self, Image};
use super::machine::Laboratory;
use super::write_log::{Entry, WriteLog};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::fs::File;

/// Shell commands of the guest that writes the blocks.
const WRITER: &str = "halfpower run /dev/vda --rw write --bs 4k --size 4m \
    --fdatasync 16 --verify --trials 1 --no-store --quiet --destroy-data-on=logged >/tmp/text 2>&1
[ $? -eq 0 -o $? -eq 5 ] && echo \"done 1\" >&3
echo \"begun 0\" >&3
sleep 1000
";
/// Shell commands of the guest that reads the blocks back.
const READER: &str = "while read -r drive; do
    halfpower run /dev/$drive --rw read --bs 4k --size 4m --verify --trials 1 --no-store --quiet \
        >/tmp/text 2>&1
    echo \"$drive $? $(grep -o 'failed: [0-9]*' /tmp/text | cut -c 9-) \\
$(grep -o 'at offset [0-9]*' /tmp/text | cut -c 11-)\"
done </expected
";
const DRIVE_BYTES: u64 = 16 << 20;
/// Block size of the commands above (bytes).
const BLOCK_BYTES: u64 = 4096;
/// Maximum number of drives that the second guest checks. The first drive executes flushes, and the
/// other drives ignore flushes.
const DRIVES: usize = 11;
/// Fractions of the writes that survive a power cut on a drive that ignores flushes.
const KEPT_SHARES: [f64; 3] = [0.5, 0.9, 0.99];
/// Time between the end of `halfpower` in the first guest and the power cut (ms).
const KILL_AFTER_MS: u64 = 100;

/// Exit codes of a run in which all blocks are correct: 0 if its result is valid, 5 if not.
const INTACT: [&str; 2] = ["0", "5"];
/// Exit code of a run that found damaged blocks.
const DAMAGED: &str = "4";

/// The results of all tested drives.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Number of drives that lost blocks because the drives ignored flushes.
    pub tries: usize,
    /// Number of drives counted in `tries` for which the number of lost blocks and the offset of
    /// the first lost block were reported correctly.
    pub caught: usize,
    /// Number of drives that lost no blocks.
    pub honest: usize,
    /// Number of drives without lost blocks for which no damage was reported.
    pub intact: usize,
    /// Total number of lost blocks on all drives.
    pub lost_blocks: usize,
    /// Messages about drives for which `--verify` did not report exactly the lost blocks.
    pub faults: Vec<String>,
}

/// Repeats the test until `tries` drives have lost blocks because the drives ignored flushes.
///
/// # Errors
/// If a guest fails, or a signal stops the campaign.
pub fn run(laboratory: &Laboratory, kernel: &Kernel, tries: usize, seed: u64) -> Result<Outcome> {
    let modules = ["virtio_blk".to_owned()];
    let mut random = fastrand::Rng::with_seed(seed);
    let mut outcome = Outcome::default();
    while outcome.tries < tries {
        let folder = tempfile::tempdir_in(&laboratory.work)?;
        let base = folder.path().join("base");
        File::create_new(&base)?.set_len(DRIVE_BYTES)?;
        let writer = logged::Writer {
            script: WRITER,
            modules: &modules,
            arguments: &[],
            kill_after_ms: KILL_AFTER_MS,
        };
        let reports = writer.run(laboratory, kernel, &base, folder.path())?;
        ensure!(
            reports.last("done", usize::MAX).is_some(),
            "halfpower failed in the writing guest"
        );
        let log = WriteLog::open(&folder.path().join(logged::LOG))?;
        let (mut images, mut lost) = (Vec::new(), Vec::new());
        for number in 0..DRIVES.min(tries - outcome.tries + 1) {
            let image = Image::copy_of(&base, folder.path(), number)?;
            let kept_share = KEPT_SHARES[number % KEPT_SHARES.len()];
            let keeps = || random.f64() < kept_share;
            let entries = log.apply(&image.file, log.entries.len(), number > 0, keeps)?;
            lost.push(blocks_of(&entries));
            images.push(image);
        }
        let names: String = images.iter().map(|image| format!("{}\n", image.name)).collect();
        let checker = logged::Checker {
            script: READER,
            modules: &modules,
            arguments: &[],
            files: &[("/expected".to_owned(), names.into_bytes())],
        };
        let output = checker.run(laboratory, kernel, &images, folder.path())?;
        outcome.judge(&output, &lost)?;
    }
    Ok(outcome)
}

/// Returns the numbers of the blocks to which the logged writes belong.
fn blocks_of(entries: &[Entry]) -> BTreeSet<u64> {
    let blocks = |entry: &Entry| {
        entry.offset / BLOCK_BYTES..(entry.offset + entry.bytes).div_ceil(BLOCK_BYTES)
    };
    entries.iter().flat_map(blocks).collect()
}

impl Outcome {
    /// Compares the output of the second guest with the lost blocks of each drive. The output has a
    /// line "NAME EXIT-CODE DAMAGED-BLOCKS FIRST-OFFSET" for each drive. The first drive executes
    /// flushes.
    fn judge(&mut self, output: &str, lost: &[BTreeSet<u64>]) -> Result<()> {
        ensure!(
            output.lines().count() == lost.len(),
            "the output has no line for some drives: {output}"
        );
        ensure!(lost[0].is_empty(), "halfpower ended before its last blocks were flushed");
        for (line, lost) in output.lines().zip(lost) {
            let mut words = line.split(' ').skip(1);
            let code =
                words.next().context("a line printed by the checking guest has no exit code")?;
            let damaged: usize = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
            let offset = words.next().and_then(|word| word.parse::<u64>().ok());
            let is_right = match lost.first() {
                None => INTACT.contains(&code),
                Some(first) => code == DAMAGED && offset == Some(first * BLOCK_BYTES),
            };
            let is_right = is_right && damaged == lost.len();
            if !is_right {
                let fault =
                    format!("{} blocks were lost, but the guest reported: {line}", lost.len());
                println!("  {fault}");
                self.faults.push(fault);
            }
            let (all, right) = if lost.is_empty() {
                (&mut self.honest, &mut self.intact)
            } else {
                (&mut self.tries, &mut self.caught)
            };
            *all += 1;
            *right += usize::from(is_right);
            self.lost_blocks += lost.len();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_lost_blocks_must_be_found() {
        let lost = [BTreeSet::new(), BTreeSet::from([7, 9])];
        let mut outcome = Outcome::default();
        outcome.judge("vda 5 \nvdb 4 2 28672\n", &lost).unwrap();
        assert_eq!((outcome.tries, outcome.honest, outcome.lost_blocks), (1, 1, 2));
        assert_eq!((outcome.caught, outcome.intact), (1, 1));
        assert!(outcome.faults.is_empty(), "{outcome:?}");
        for wrong in
            ["vda 4 1 0\nvdb 4 2 28672\n", "vda 0 \nvdb 4 1 28672\n", "vda 0 \nvdb 4 2 0\n"]
        {
            let mut outcome = Outcome::default();
            outcome.judge(wrong, &lost).unwrap();
            assert_eq!(outcome.faults.len(), 1, "{wrong}");
            assert_eq!(outcome.caught + outcome.intact, 1, "{wrong}");
        }
        assert!(Outcome::default().judge("vda 0 \n", &lost).is_err());
    }
}
