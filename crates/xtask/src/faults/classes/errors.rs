//! Fault classes of requests that fail with an error of the device or the kernel: EIO, ENOSPC,
//! EAGAIN or EINTR.

use super::Class;
use crate::faults::device::Served;
use crate::faults::place::{Context, ENGINES};
use crate::faults::tally::{Check, Tally, ensure};
use anyhow::Result;
use serde_json::Value;

pub const CLASSES: &[Class] = &[
    Class {
        word: "eio-read",
        fault: "EIO on the nth read",
        made: "`--inject read-eio@n` with four I/O engines",
        must: "exit 1; the message states offset and cause; the run is stored as failed",
        run: |context| nth(context, &Nth::READ),
    },
    Class {
        word: "eio-write",
        fault: "EIO on the nth write",
        made: "`--inject write-eio@n` with four I/O engines",
        must: "exit 1; the message states offset and cause; the run is stored as failed",
        run: |context| nth(context, &Nth::WRITE),
    },
    Class {
        word: "eio-fuse",
        fault: "a device that answers EIO",
        made: "a file served over FUSE by another process",
        must: "exit 1; the message states offset and cause; the run is stored as failed",
        run: eio_of_a_device,
    },
    Class {
        word: "enospc",
        fault: "ENOSPC in the middle of a run",
        made: "`--inject write-enospc@n` with four I/O engines",
        must: "exit 1; the message states offset, cause and remedy; the run is stored as failed",
        run: |context| nth(context, &Nth::NO_SPACE),
    },
    Class {
        word: "eagain",
        fault: "EAGAIN, either 1,000 times in a row or forever",
        made: "`--inject eagain@nxCOUNT` with four I/O engines",
        must: "1,000 times: the run succeeds and counts 1,000 retries; forever: exit 1, no hang",
        run: |context| storm(context, "eagain", "temporarily unavailable"),
    },
    Class {
        word: "eintr",
        fault: "EINTR, either 1,000 times in a row or forever",
        made: "`--inject eintr@nxCOUNT` with four I/O engines",
        must: "1,000 times: the run succeeds and counts 1,000 retries; forever: exit 1, no hang",
        run: |context| storm(context, "eintr", "interrupted system call"),
    },
];

/// A fault that is injected into the nth request, and the expected error.
struct Nth {
    rw: &'static str,
    fault: &'static str,
    verb: &'static str,
    cause: &'static str,
}

impl Nth {
    const READ: Nth =
        Nth { rw: "read", fault: "read-eio", verb: "reading", cause: "input/output error" };
    const WRITE: Nth =
        Nth { rw: "write", fault: "write-eio", verb: "writing", cause: "input/output error" };
    const NO_SPACE: Nth =
        Nth { rw: "write", fault: "write-enospc", verb: "writing", cause: "free space" };
}

fn nth(context: &Context, nth: &Nth) -> Result<Tally> {
    let mut tally = Tally::default();
    let Nth { rw, fault, verb, cause } = nth;
    for engine in context.some(&ENGINES) {
        for number in [0_u64, 7, 255] {
            let place = context.place()?;
            let line = format!(
                "run . --rw {rw} --bs 4k --size 1m --ioengine {engine} --trials 2 --quiet \
                 --inject {fault}@{number}"
            );
            let at = format!("{verb} at offset {}:", number * 4096);
            tally.detected(&line, place.run(&line)?.fails(1, &[&at, cause]));
            tally.also_detected(&line, place.newest_is("failed"));
            tally.kept(&line, place.is_tidy());
        }
    }
    Ok(tally)
}

fn eio_of_a_device(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    for engine in context.some(&ENGINES) {
        for (rw, verb, number) in [("read", "reading", 0_u64), ("write", "writing", 100)] {
            let place = context.place()?;
            let flags = format!("--size 4m --inject {rw}-eio@{number}");
            let device = Served::new(context, "fixed=20us", &flags)?;
            let file = device.file();
            let line = format!(
                "run {file} --overwrite={file} --rw {rw} --bs 4k --size 1m --ioengine {engine} \
                 --trials 1 --allow-holes --quiet"
            );
            let at = format!("{verb} at offset {}:", number * 4096);
            let ended = place.run(&line)?;
            tally.detected(&line, ended.fails(1, &[&at, "input/output error"]));
            tally.also_detected(&line, place.newest_is("failed"));
        }
    }
    Ok(tally)
}

fn storm(context: &Context, fault: &str, cause: &str) -> Result<Tally> {
    let mut tally = Tally::default();
    for engine in context.some(&ENGINES) {
        for rw in ["read", "write"] {
            let place = context.place()?;
            let common = format!(
                "run . --rw {rw} --bs 4k --size 1m --ioengine {engine} --trials 1 --quiet --json"
            );
            let line = format!("{common} --inject {fault}@5x1000");
            let document = place.run(&line)?.document();
            tally.detected(&line, document.and_then(|document| retried(&document, 1000)));
            let line = format!("{common} --inject {fault}@5x1000000000");
            tally.detected(&line, place.run(&line)?.fails(1, &[cause, "; "]));
            tally.also_detected(&line, place.newest_is("failed"));
            tally.kept(&line, place.is_tidy());
        }
    }
    Ok(tally)
}

/// Checks that the first trial transferred all bytes and counted `wanted` retries.
fn retried(document: &Value, wanted: u64) -> Check {
    let trial = &document["trials"][0];
    let (bytes, retries) = (trial["bytes"].as_u64(), trial["retries"].as_u64());
    ensure(bytes == Some(1 << 20) && retries == Some(wanted), || {
        format!(
            "the trial has {bytes:?} bytes and {retries:?} retries, not 1 MiB and {wanted} retries"
        )
    })
}
