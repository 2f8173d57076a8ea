//! `halfpower classic cacheflush`: drops a file from the page cache and reports how much of the
//! file is still cached.
//!
//! The papers' program read a scratch file until the cache contained nothing else. Here the
//! kernel drops the pages of one file and reports how many remain. With `--read`, the file is then
//! read once through the cache. The second paper measured buffered reads in this way.

use analysis::units;
use std::path::Path;

use clap::Parser;
use ioengine::{Caching, HostTarget, Target};
use lab::console;
use lab::failure::{Exit, Failure, Outcome};
use lab::json;
use lab::target;
use papers::classic::text;
use papers::classic::trace::{TraceLine, header};
use serde::Serialize;

use crate::cli::classic::CacheflushArgs;
use crate::cli::{Cli, RunArgs, Verb};
use crate::command::run;

/// The text that is printed if no file is specified.
const EXPLANATION: &str = "\
The papers' cacheflush read a scratch file before each buffered test, so that nothing of the test's
file was left in the file system's cache; cached data would have made the test faster than the
disk. No file was specified, so nothing was done:
  halfpower classic cacheflush FILE    drop all of FILE from the page cache, and verify this
  halfpower run FILE --direct=0        drops FILE before each trial, unless --invalidate=0";

/// The document of `--json`.
#[derive(Debug, Serialize)]
struct Flushed {
    target: String,
    size_bytes: u64,
    resident_before_bytes: Option<u64>,
    resident_after_bytes: Option<u64>,
    dropped_all_caches: bool,
}

/// Drops the file from the page cache and prints how much was cached before and after.
pub fn execute(args: &CacheflushArgs) -> Outcome {
    let Some(path) = &args.target else {
        console::data(EXPLANATION);
        return Ok(Exit::Ok);
    };
    let target = open(path)?;
    let name = path.display();
    if args.plan {
        console::data(&format!(
            "would flush {name} to its device, drop its pages from the page cache, and, as root, \
             drop all clean caches if pages remain; nothing was done"
        ));
        return Ok(Exit::Ok);
    }
    let scrub = target.scrub()?;
    if args.json {
        console::data(&json::print(&Flushed {
            target: name.to_string(),
            size_bytes: target.size_bytes(),
            resident_before_bytes: scrub.resident_before_bytes,
            resident_after_bytes: scrub.resident_after_bytes,
            dropped_all_caches: scrub.dropped_all_caches,
        }));
    } else {
        let bytes = |bytes: Option<u64>| bytes.map_or("an unknown part".to_owned(), units::size);
        let all = if scrub.dropped_all_caches { "; all clean caches were dropped" } else { "" };
        console::data(&format!(
            "{name}: {} of {} were in the page cache, {} remain there{all}",
            bytes(scrub.resident_before_bytes),
            units::size(target.size_bytes()),
            bytes(scrub.resident_after_bytes)
        ));
    }
    match scrub.resident_after_bytes {
        Some(0) if args.read => read(path, target.size_bytes(), &args.note),
        Some(0) => Ok(Exit::Ok),
        Some(left) => Err(Failure::failed(format!(
            "{} of {name} cannot be dropped from the page cache, because the file is in a file \
             system in memory, is mapped, or is mounted; use a file that is on a disk and that no \
             program has open",
            units::size(left)
        ))),
        None => Err(Failure::failed(format!(
            "the system does not report how much of {name} is cached; use a file or block device"
        ))),
    }
}

/// Reads the whole file once, in blocks of 64 KiB, and prints throughput, CPU use and a CSV line.
fn read(path: &Path, bytes: u64, note: &str) -> Outcome {
    let words = format!(
        "halfpower run --rw read --bs 64k --iodepth 1 --ioengine sync --direct=0 --size {bytes} \
         --trials 1 --no-store --quiet"
    );
    let cli = Cli::try_parse_from(words.split_whitespace());
    let cli = cli.map_err(|error| Failure::usage(error.to_string()))?;
    let Verb::Run(run) = cli.verb else {
        return Err(Failure::usage("use halfpower run"));
    };
    let run = RunArgs { targets: vec![path.to_path_buf()], ..run };
    run::execute_shown_by(&run, &|measured| {
        let Some(point) = measured.points.first() else { return Ok(()) };
        let file_bytes = measured.facts.iter().map(|fact| fact.size_bytes).sum();
        for trial in &point.trials {
            let lines = text::metrics(trial, false).into_iter().chain(text::utilisation(trial));
            lines.for_each(|line| console::data(&line));
            console::data(&header());
            let line = TraceLine::of(&point.key, trial, file_bytes, note);
            console::data(&line.to_string());
        }
        Ok(())
    })
}

fn open(path: &Path) -> Outcome<HostTarget> {
    target::check_on_host(path)?;
    if path.is_dir() {
        return Err(Failure::usage(format!(
            "{} is a directory; specify a file in it",
            path.display()
        )));
    }
    Ok(HostTarget::open(path, false, Caching::Buffered)?)
}
