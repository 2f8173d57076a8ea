//! Fault classes of short transfers, and of completions that are late, duplicate or missing.

use super::Class;
use crate::faults::device::Served;
use crate::faults::place::{Context, ENGINES, MIB, Place};
use crate::faults::tally::{Check, Missing, Tally, ensure};
use anyhow::{Result, bail};
use serde_json::Value;

pub const CLASSES: &[Class] = &[
    Class {
        word: "short-read",
        fault: "short reads",
        made: "`--inject read-short:4k@n` in the run or in a FUSE server, with `--verify`",
        must: "short reads are continued and counted; all bytes are correct",
        run: short_reads,
    },
    Class {
        word: "short-write",
        fault: "short writes",
        made: "`--inject write-short:4k@n`, `--verify`",
        must: "short writes are continued and counted; every block is read back correctly",
        run: short_writes,
    },
    Class {
        word: "reordered",
        fault: "completions out of order",
        made: "`--inject late:COUNT@n`, depth 8, `--verify`",
        must: "no error; every request is counted once",
        run: reordered,
    },
    Class {
        word: "duplicate",
        fault: "a request that completes twice",
        made: "`--inject twice@n` with four I/O engines",
        must: "exit 1; the message states the offset",
        run: duplicate,
    },
    Class {
        word: "stall",
        fault: "a device that hangs for a while, up to 30 s",
        made: "`--inject hang:TIME@n` in the run or in a FUSE server",
        must: "the run waits; the maximum latency and the verdict show the stall",
        run: stall,
    },
    Class {
        word: "never",
        fault: "a request that is never answered",
        made: "`--inject never@n` with and without a time limit, and in a FUSE server",
        must: "exit 1 within two minutes; the message says that the device does not answer",
        run: never,
    },
];

/// Returns the queue depth of the tests: 8, or 1 for the I/O engine `sync`, whose maximum is 1.
pub fn depth(engine: &str) -> u32 {
    if engine == "sync" { 1 } else { 8 }
}

/// Creates a file `data` of 1 MiB, filled with blocks that `--verify` can check.
pub fn sealed(place: &Place<'_>) -> Result<()> {
    place.file("data", MIB)?;
    place.prepare("run data --overwrite=data --rw write --bs 64k --size 1m --trials 1 --verify -q")
}

/// Checks that the first trial transferred 1 MiB in 16 requests, with `short` short transfers.
fn is_complete(document: &Value, short: u64) -> Check {
    let trial = &document["trials"][0];
    let counts = ["bytes", "requests", "short_transfers"].map(|field| trial[field].as_u64());
    ensure(counts == [Some(MIB), Some(16), Some(short)], || {
        format!("expected 1 MiB, 16 requests and {short} short transfers, but got {counts:?}")
    })
}

fn short_reads(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    for engine in context.some(&ENGINES) {
        let place = context.place()?;
        sealed(&place)?;
        let depth = depth(engine);
        for (at, count) in [(0, 1), (3, 5), (7, 12)] {
            let line = format!(
                "run data --rw read --bs 64k --size 1m --iodepth {depth} --ioengine {engine} \
                 --trials 1 --verify --quiet --json --inject read-short:4k@{at}x{count}"
            );
            let document = place.run(&line)?.document();
            tally.detected(&line, document.and_then(|document| is_complete(&document, count)));
        }
    }
    let place = context.place()?;
    let device = Served::new(context, "fixed=20us", "--size 1m --inject read-short:4k@0x9")?;
    let file = device.file();
    // The number of short transfers is not checked, because the kernel may handle short replies of
    // a FUSE server in several ways.
    let line = format!(
        "run {file} --overwrite={file} --rw write --bs 64k --size 1m --trials 1 --verify --quiet"
    );
    tally.detected(&line, place.run(&line)?.ends_with(0));
    Ok(tally)
}

fn short_writes(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    for engine in context.some(&ENGINES) {
        let depth = depth(engine);
        for (rw, at, count) in [("write", 0, 1), ("write", 3, 5), ("randwrite", 7, 12)] {
            let place = context.place()?;
            let line = format!(
                "run . --rw {rw} --bs 64k --size 1m --iodepth {depth} --ioengine {engine} \
                 --trials 1 --verify --quiet --json --inject write-short:4k@{at}x{count}"
            );
            let document = place.run(&line)?.document();
            tally.detected(&line, document.and_then(|document| is_complete(&document, count)));
            tally.kept(&line, place.is_tidy());
        }
    }
    Ok(tally)
}

fn reordered(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    for engine in context.some(&ENGINES[..3]) {
        for fault in ["late:1@0x16", "late:5@2x7", "late:100@3"] {
            let place = context.place()?;
            sealed(&place)?;
            for (rw, flags) in [("read", ""), ("write", "--overwrite=data")] {
                let line = format!(
                    "run data {flags} --rw {rw} --bs 64k --size 1m --iodepth 8 --ioengine \
                     {engine} --trials 1 --verify --quiet --json --inject {rw}-{fault}"
                );
                let document = place.run(&line)?.document();
                tally.detected(&line, document.and_then(|document| is_complete(&document, 0)));
            }
        }
    }
    Ok(tally)
}

fn duplicate(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    for engine in context.some(&ENGINES) {
        for number in [0_u64, 9, 15] {
            let place = context.place()?;
            let line = format!(
                "run . --rw read --bs 64k --size 1m --ioengine {engine} --trials 1 --quiet \
                 --inject twice@{number}"
            );
            let words = format!("the read at offset {} was completed twice", number << 16);
            tally.detected(&line, place.run(&line)?.fails(1, &[&words, "; "]));
            tally.also_detected(&line, place.newest_is("failed"));
            tally.kept(&line, place.is_tidy());
        }
    }
    Ok(tally)
}

/// Checks that the maximum latency is at least as long as the stall.
fn shows(document: &Value, milliseconds: u64) -> Check {
    let max = document["trials"][0]["latency_ns"]["max"].as_u64().unwrap_or(0);
    ensure(max >= milliseconds * 1_000_000, || {
        format!("the maximum latency is {max} ns, less than {milliseconds} ms")
    })
}

fn stall(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    for engine in context.some(&ENGINES) {
        for milliseconds in [300_u64, 1500] {
            let place = context.place()?;
            let line = format!(
                "run . --rw read --bs 64k --size 1m --ioengine {engine} --trials 1 --quiet --json \
                 --inject hang:{milliseconds}ms@5"
            );
            let document = place.run(&line)?.document();
            tally.detected(&line, document.and_then(|document| shows(&document, milliseconds)));
        }
    }
    for milliseconds in if context.quick { vec![1500] } else { vec![1500, 30_000] } {
        let place = context.place()?;
        let flags = format!("--size 1m --inject hang:{milliseconds}ms@50");
        let device = Served::new(context, "fixed=100us", &flags)?;
        let line = format!(
            "run {} --rw read --bs 4k --time-based --runtime 2 --trials 1 --allow-holes --quiet \
             --json",
            device.file()
        );
        let document = place.run(&line)?.document();
        let reported = document.and_then(|document| {
            shows(&document, milliseconds)?;
            let reasons = document["verdict"]["reasons"].to_string();
            ensure(reasons.contains("no request completed for"), || {
                format!("the verdict does not report the stall: {reasons}")
            })
        });
        tally.detected(&line, reported);
    }
    Ok(tally)
}

/// Time limit of a run with a request that never completes (ms). halfpower gives up after one
/// minute, and waits up to half a minute more for the requests in flight.
const NEVER_MS: u64 = 120_000;

/// Tests requests that never complete. All runs are started at the same time, because they only
/// wait.
fn never(context: &Context) -> Result<Tally> {
    if context.quick {
        bail!(Missing(
            "--quick skips this class, because it takes a minute and a half".to_string()
        ));
    }
    let mut tally = Tally::default();
    let places: Vec<Place<'_>> = (0..7).map(|_| context.place()).collect::<Result<_>>()?;
    let device = Served::new(context, "fixed=20us", "--size 1m --inject never@9")?;
    let mut lines: Vec<String> = ENGINES
        .map(|engine| {
            let depth = depth(engine);
            format!(
                "run . --rw read --bs 64k --size 1m --iodepth {depth} --ioengine {engine} \
                 --trials 1 --quiet --inject never@5"
            )
        })
        .to_vec();
    lines.push("run . --rw write --size 1m --runtime 1 --trials 1 -q --inject never@5".to_string());
    lines.push(
        "run . --rw read --size 1m --rate-iops 100 --trials 1 -q --inject never@5".to_string(),
    );
    lines.push(format!("run {} --size 1m --trials 1 --allow-holes --quiet", device.file()));
    let mut all = Vec::new();
    for (place, line) in places.iter().zip(&lines) {
        all.push(place.start(line)?);
    }
    for ((place, line), running) in places.iter().zip(&lines).zip(all) {
        let ended = running.ended_within(NEVER_MS, |_| {})?;
        tally.detected(line, ended.fails(1, &["has not answered", "60 s"]));
        tally.also_detected(line, place.newest_is("failed"));
        tally.kept(line, place.is_tidy());
    }
    Ok(tally)
}
