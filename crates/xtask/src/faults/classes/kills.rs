//! Fault classes that stop the program at random moments with kill -9 and other signals.
//!
//! After each kill, the database must be intact and contain every trial that could be read from it
//! just before the kill. The next run must mark the killed run as interrupted. `halfpower clean`
//! must remove exactly the leftover test files, and a second `halfpower clean` must remove nothing.
//! A user's file in the same directory must not change.

use super::Class;
use crate::faults::device::{LoopDevice, system};
use crate::faults::place::{Context, KIB, MIB, Place, noise};
use crate::faults::running::{Ended, Running, pause};
use crate::faults::tally::{Check, Missing, Tally, ensure};
use anyhow::{Result, bail};
use nix::sys::signal::Signal;
use std::fs;

pub const CLASSES: &[Class] = &[
    Class {
        word: "kill-layout",
        fault: "kill -9 while a test file is written",
        made: "`run . --size 512m` is killed at a random moment",
        must: "`clean` removes exactly the leftover file; a second `clean` removes nothing",
        run: |context| kills(context, context.kills / 5, &LAYOUT),
    },
    Class {
        word: "kill-run",
        fault: "kill -9 while a run measures",
        made: "reads, buffered writes, mixed workloads and `--verify` are killed at a random \
               moment",
        must: "no stored trial is lost; the database is intact; `clean` removes exactly the \
               leftover files",
        run: |context| kills(context, context.kills * 9 / 20, &RUNS),
    },
    Class {
        word: "kill-sweep",
        fault: "kill -9 while a sweep measures",
        made: "a `sweep` of six points on a file or on `null` is killed at a random moment",
        must: "no stored trial is lost; the database is intact; `clean` removes exactly the \
               leftover files",
        run: |context| kills(context, context.kills / 4, &SWEEPS),
    },
    Class {
        word: "kill-survey",
        fault: "kill -9 during a survey",
        made: "`survey . --quick` is killed at a random moment",
        must: "no stored trial is lost; the database is intact; `clean` removes exactly the \
               leftover files",
        run: |context| kills(context, context.kills / 10, &SURVEYS),
    },
    Class {
        word: "kill-settings",
        fault: "kill -9 while a host setting is temporarily changed",
        made: "`run /dev/loopN --read-ahead SIZE` is killed at a random moment",
        must: "`restore` restores the former value; a second `restore` changes nothing",
        run: kills_with_settings,
    },
    Class {
        word: "sigint",
        fault: "Ctrl-C (SIGINT)",
        made: "runs, sweeps and surveys are interrupted at a random moment",
        must: "exit 130; finished trials are stored; no files are left behind",
        run: |context| signals(context, Signal::SIGINT),
    },
    Class {
        word: "sigterm",
        fault: "SIGTERM and SIGHUP",
        made: "runs, sweeps and surveys are interrupted at a random moment",
        must: "exit 130; finished trials are stored; no files are left behind",
        run: |context| signals(context, Signal::SIGTERM),
    },
];

/// Commands that are killed, and the maximum delay before each kill.
struct Victims {
    lines: &'static [&'static str],
    /// Maximum delay between the creation of the first file and the kill (ms). The delay is random.
    within_ms: u64,
}

const LAYOUT: Victims = Victims {
    lines: &["run . --size 512m --trials 1", "run . --size 512m --direct=0 --rw write --trials 1"],
    within_ms: 250,
};
const RUNS: Victims = Victims {
    lines: &[
        "run . --rw randread --iodepth 4 --size 4m --time-based --runtime 0.03 --trials 400",
        "run . --rw write --direct=0 --size 4m --time-based --runtime 0.03 --trials 400",
        "run . --rw randrw --ioengine threads --iodepth 4 --size 4m --time-based --runtime 0.03 \
         --trials 400",
        "run . --rw write --bs 64k --size 1m --trials 2000 --verify",
    ],
    within_ms: 700,
};
const SWEEPS: Victims = Victims {
    lines: &[
        "sweep . --bs 4k,64k --iodepth 1,4,8 --size 4m --time-based --runtime 0.02 --trials 99",
        "sweep --ioengine null --bs 4k,8k --iodepth 1,2,4 --runtime 0.003 --trials 999",
    ],
    within_ms: 700,
};
const SURVEYS: Victims = Victims { lines: &["survey . --quick --size 64m"], within_ms: 6000 };

/// Name of a user's file that must not be changed.
const PRECIOUS: &str = "precious";

fn kills(context: &Context, count: u32, victims: &Victims) -> Result<Tally> {
    let mut tally = Tally::default();
    for number in 0..count.max(1) {
        let place = context.place()?;
        place.file(PRECIOUS, 64 * KIB)?;
        let line = victims.lines[number as usize % victims.lines.len()];
        let running = start_and_wait(&place, line)?;
        pause(context.below(victims.within_ms));
        let acknowledged = place.runs("halfpower.db");
        running.signal(Signal::SIGKILL)?;
        let ended = running.ended()?;
        let what = format!("kill {number}: {line}");
        tally.detected(&what, was_killed(&ended));
        let acknowledged = acknowledged.map(|runs| runs.iter().map(|run| run.trials).sum());
        tally.detected(&what, acknowledged.as_ref().map(drop).map_err(Clone::clone));
        after_a_kill(&mut tally, &place, &what, acknowledged.unwrap_or(0));
    }
    Ok(tally)
}

/// Checks that SIGKILL ended the program, and that the program had not already ended by itself.
fn was_killed(ended: &Ended) -> Check {
    ensure(ended.signal == Some(Signal::SIGKILL as i32), || {
        format!(
            "SIGKILL did not end the program: exit code {:?}, signal {:?}",
            ended.code, ended.signal
        )
    })
}

/// Starts a command and waits until it has created its first file.
fn start_and_wait(place: &Place<'_>, line: &str) -> Result<Running> {
    let mut running = place.start(&format!("{line} --quiet"))?;
    let files = || fs::read_dir(place.work()).map_or(0, Iterator::count);
    if !running.until(|_| files() > 1)? {
        bail!("`{line}` was not killed: the program ended or timed out before it created a file");
    }
    Ok(running)
}

fn after_a_kill(tally: &mut Tally, place: &Place<'_>, what: &str, acknowledged: u64) {
    tally.kept(what, database_is_intact(place, acknowledged));
    tally.also_detected(what, next_run_marks_it(place));
    tally.kept(what, clean_is_exact(place));
    let precious = fs::read(place.path(PRECIOUS)).is_ok_and(|now| now == noise(64 * KIB));
    tally.kept(what, ensure(precious, || "the user's file was changed".to_string()));
}

/// Checks that the database can be opened with its write-ahead log, contains at least
/// `acknowledged` trials, and passes SQLite's integrity check.
fn database_is_intact(place: &Place<'_>, acknowledged: u64) -> Check {
    let trials: u64 = place.runs("halfpower.db")?.iter().map(|run| run.trials).sum();
    ensure(trials >= acknowledged, || {
        format!(
            "the database had {acknowledged} trials before the signal and has {trials} after it"
        )
    })?;
    let db = place.path("halfpower.db");
    if !db.exists() {
        return Ok(());
    }
    // Without sqlite3, the integrity check is skipped.
    let checked = system(&["sqlite3", &db.display().to_string(), "PRAGMA integrity_check"]);
    let said = match checked {
        Err(error) if error.to_string().starts_with("needs") => "ok".to_string(),
        Err(error) => error.to_string(),
        Ok(said) => said,
    };
    ensure(said == "ok", || format!("the integrity check of the database reports: {said}"))
}

fn next_run_marks_it(place: &Place<'_>) -> Check {
    let before = place.runs("halfpower.db")?;
    let next = place.run("run --ioengine null --runtime 0.01 --trials 1 --quiet");
    next.map_err(|error| error.to_string())?.ends_with(0)?;
    let after = place.runs("halfpower.db")?;
    ensure(after.len() == before.len() + 1, || {
        let (before, after) = (before.len(), after.len());
        format!("after one more run, `runs list` shows {after} runs instead of {}", before + 1)
    })?;
    let states: Vec<&str> = after.iter().map(|run| run.state.as_str()).collect();
    let marked = states.first() == Some(&"finished")
        && states[1..].iter().all(|state| matches!(*state, "interrupted" | "finished"))
        && before
            .iter()
            .zip(&states[1..])
            .all(|(b, now)| b.state != "running" || *now == "interrupted");
    ensure(marked, || {
        format!("the killed run is not marked as interrupted; states of the runs: {states:?}")
    })
}

fn clean_is_exact(place: &Place<'_>) -> Check {
    let strays = crate::faults::place::strays(&place.work());
    let clean = || place.run("clean").map_err(|error| error.to_string());
    let first = clean()?;
    first.ends_with(0)?;
    let removed = first.stdout.lines().filter(|line| line.starts_with("removed")).count();
    let named = strays.iter().all(|stray| first.stdout.contains(stray.as_str()));
    ensure(removed == strays.len() && named, || {
        format!("leftover test files: {strays:?}, but clean printed: {}", first.stdout.trim())
    })?;
    place.is_tidy()?;
    let again = clean()?;
    again.ends_with(0)?;
    ensure(again.stdout.trim() == "nothing to clean", || again.stdout.clone())
}

fn kills_with_settings(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    let place = context.place()?;
    if place.run("restore --help")?.code != Some(0) {
        bail!(Missing("this program has no subcommand `restore`".to_string()));
    }
    for number in 0..if context.quick { 2 } else { 10 } {
        let (place, device) = (context.place()?, LoopDevice::new(context, 8 * MIB)?);
        let setting = device.path.replacen("/dev/", "/sys/block/", 1) + "/queue/read_ahead_kb";
        let before = fs::read_to_string(&setting)?;
        let line = format!(
            "run {} --read-ahead 1m --rw read --time-based --runtime 0.1 --trials 100 --quiet",
            device.path
        );
        let mut running = place.start(&line)?;
        let read = || fs::read_to_string(&setting).unwrap_or_default();
        let changed = running.until(|_| read() != before)?;
        pause(context.below(200));
        running.signal(Signal::SIGKILL)?;
        let ended = running.ended()?;
        let what = format!("kill {number}: {line}");
        tally.detected(&what, was_killed(&ended));
        tally.detected(&what, ensure(changed, || "the setting was never changed".to_string()));
        let restored = place.run("restore")?;
        tally.kept(&what, restored.ends_with(0));
        tally.kept(
            &what,
            ensure(read() == before, || {
                format!("the setting was {before} before the run and {} after `restore`", read())
            }),
        );
        tally.kept(&what, place.run("restore")?.ends_with(0));
    }
    Ok(tally)
}

fn signals(context: &Context, signal: Signal) -> Result<Tally> {
    let mut tally = Tally::default();
    let lines = [RUNS.lines, SWEEPS.lines, LAYOUT.lines, SURVEYS.lines].concat();
    let count = if context.quick { 6 } else { 30 };
    for number in 0..count {
        let place = context.place()?;
        place.file(PRECIOUS, 64 * KIB)?;
        let line = lines[number % lines.len()];
        let running = start_and_wait(&place, line)?;
        pause(context.below(700));
        let acknowledged = place.runs("halfpower.db");
        let hang_up = signal == Signal::SIGTERM && number % 3 == 2;
        running.signal(if hang_up { Signal::SIGHUP } else { signal })?;
        let ended = running.ended()?;
        let what = format!("{signal} {number}: {line}");
        tally.detected(&what, ended.ends_with(130));
        tally.kept(&what, place.is_tidy());
        tally.kept(
            &what,
            is_in_order(&place, acknowledged.map(|runs| runs.iter().map(|run| run.trials).sum())),
        );
        let precious = fs::read(place.path(PRECIOUS)).is_ok_and(|now| now == noise(64 * KIB));
        tally.kept(&what, ensure(precious, || "the user's file was changed".to_string()));
    }
    Ok(tally)
}

/// Checks the database after a signal. If there is a database, it must be intact and without a
/// write-ahead log, and its newest run must be stored as interrupted.
fn is_in_order(place: &Place<'_>, acknowledged: Result<u64, String>) -> Check {
    database_is_intact(place, acknowledged?)?;
    if place.path("halfpower.db").exists() {
        place.newest_is("interrupted")?;
        let log = place.path("halfpower.db-wal").exists();
        ensure(!log, || "the database still has a write-ahead log".to_string())?;
    }
    Ok(())
}
