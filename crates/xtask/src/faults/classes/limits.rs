//! Fault classes in which `ulimit` limits the memory, the open files or the file size of the
//! process.

use super::Class;
use crate::faults::place::{Context, ENGINES, Place};
use crate::faults::running::Ended;
use crate::faults::tally::{Check, Tally, ensure};
use anyhow::Result;

pub const CLASSES: &[Class] = &[
    Class {
        word: "memory",
        fault: "a limit on memory",
        made: "`ulimit -v` smaller than the buffers",
        must: "the run fails with a one-line message that includes a remedy; no files are left \
               behind",
        run: memory,
    },
    Class {
        word: "open-files",
        fault: "a limit on open files",
        made: "`ulimit -n` from 4 to 19",
        must: "the run succeeds, or fails with a one-line message; no files are left behind",
        run: open_files,
    },
    Class {
        word: "file-size",
        fault: "a limit on file sizes",
        made: "`ulimit -f` smaller than the test file or the database",
        must: "the run fails with a one-line message that includes a remedy; no files are left \
               behind",
        run: file_size,
    },
];

/// Checks that the program failed with one error line that contains these words. Any exit code
/// except 0 is accepted.
fn fails_clearly(ended: &Ended, words: &[&str]) -> Check {
    ended.fails(ended.code.filter(|code| *code != 0).unwrap_or(1), words)
}

fn limited(place: &Place<'_>, limit: &str, line: &str) -> Result<Ended> {
    place.start_command(place.shell(limit, line, ""))?.ended()
}

fn memory(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    for engine in context.some(&ENGINES) {
        for (kib, flags) in
            [(150_000, "--bs 256m --size 256m"), (400_000, "--bs 8m --numjobs 64 --size 512m")]
        {
            let place = context.place()?;
            let line = format!("run . --rw read {flags} --ioengine {engine} --trials 1 --quiet");
            let ended = limited(&place, &format!("ulimit -v {kib}"), &line)?;
            let what = format!("ulimit -v {kib}: {line}");
            tally.detected(&what, fails_clearly(&ended, &[";"]));
            tally.kept(&what, place.is_tidy());
        }
    }
    Ok(tally)
}

fn open_files(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    for count in 4..if context.quick { 10 } else { 20 } {
        for flags in ["--ioengine io_uring", "--ioengine threads --iodepth 4 --numjobs 2"] {
            let place = context.place()?;
            let line = format!("run . --rw randread --size 1m {flags} --trials 1 --quiet");
            let ended = limited(&place, &format!("ulimit -n {count}"), &line)?;
            let what = format!("ulimit -n {count}: {line}");
            let reported = match ended.code {
                Some(0) => Ok(()),
                _ => fails_clearly(&ended, &["too many open files", ";"]),
            };
            tally.detected(&what, reported);
            tally.kept(&what, place.is_tidy());
            let log = place.path("halfpower.db-wal").exists();
            tally.kept(
                &what,
                ensure(!log || ended.code != Some(0), || {
                    "a write-ahead log was left behind".to_string()
                }),
            );
        }
    }
    Ok(tally)
}

fn file_size(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    for blocks in [8, 64, 1024, 4096] {
        for (line, words) in [
            ("run . --size 8m --trials 1 --quiet", "exceeds the file-size limit"),
            (
                "run . --size 8m --rw write --direct=0 --no-store --trials 1 --quiet",
                "exceeds the file-size limit",
            ),
            (
                "sweep --ioengine null --bs 4k,8k,16k --runtime 0.002 --trials 400 --quiet",
                "halfpower.db",
            ),
        ] {
            let place = context.place()?;
            let ended = limited(&place, &format!("ulimit -f {blocks}"), line)?;
            let what = format!("ulimit -f {blocks}: {line}");
            tally.detected(&what, fails_clearly(&ended, &[words, ";"]));
            tally.kept(&what, place.is_tidy());
        }
    }
    Ok(tally)
}
