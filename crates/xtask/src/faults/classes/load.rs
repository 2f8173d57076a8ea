//! Fault classes of extreme conditions: very many requests in flight, very long runs, and clocks
//! that have an offset or are set during a run.

use super::Class;
use crate::faults::device::{Served, system};
use crate::faults::place::{Context, KIB, MIB, Place};
use crate::faults::running::pause;
use crate::faults::tally::{Check, Missing, Tally, ensure};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::cell::Cell;
use std::path::Path;

pub const CLASSES: &[Class] = &[
    Class {
        word: "outstanding",
        fault: "4,096 requests outstanding",
        made: "`--iodepth 4096` with the engines `delay` and `null`, and over FUSE",
        must: "the run completes; rate x latency is the number of requests in flight \
               (Little's law)",
        run: outstanding,
    },
    Class {
        word: "requests",
        fault: "a billion requests",
        made: "a run with `--ioengine null`",
        must: "the run completes; its peak memory is at most 1 MiB higher than with ten million \
               requests",
        run: requests,
    },
    Class {
        word: "clock",
        fault: "a monotonic clock with an offset",
        made: "`unshare --time` with offsets from one second to a hundred years",
        must: "trials take the requested time; the latencies are correct",
        run: clock,
    },
    Class {
        word: "clock-steps",
        fault: "a clock that steps during a run",
        made: "libfaketime steps the wall clock or the monotonic clock by 2 s to one day",
        must: "the verdict is suspect and states the size of the step; the rate is still correct",
        run: clock_steps,
    },
];

fn outstanding(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    let same = "--bs 4k --iodepth 4096 --time-based --runtime 1 --trials 1 --quiet --json";
    for fixed_ms in [20, 50, 100] {
        let place = context.place()?;
        let line = format!("run --ioengine delay --truth fixed={fixed_ms}ms,parallel=4096 {same}");
        let document = place.run(&line)?.document();
        tally.detected(&line, document.and_then(|document| obeys_littles_law(&document)));
    }
    for rw in ["read", "randrw"] {
        let place = context.place()?;
        let line = format!("run --ioengine null --rw {rw} {same}");
        let document = place.run(&line)?.document();
        tally.detected(&line, document.and_then(|document| has_no_errors(&document)));
    }
    for engine in ["io_uring", "libaio"] {
        let place = context.place()?;
        let device = Served::new(context, "fixed=100ms,parallel=4096", "--size 64m")?;
        let line = format!(
            "run {} --rw randread --ioengine {engine} --allow-holes --bs 4k --iodepth 4096 \
             --time-based --runtime 3 --trials 1 --quiet --json",
            device.file()
        );
        let document = place.run(&line)?.document();
        tally.detected(&line, document.and_then(|document| obeys_littles_law(&document)));
    }
    Ok(tally)
}

fn has_no_errors(document: &Value) -> Check {
    let trial = &document["trials"][0];
    let good = trial["errors"].as_u64() == Some(0) && trial["requests"].as_u64() > Some(4096);
    ensure(good, || {
        format!("the trial has {} requests and {} errors", trial["requests"], trial["errors"])
    })
}

/// Checks that the average number of requests in flight, calculated from the rate and the mean
/// latency, is close to the queue depth of 4096.
fn obeys_littles_law(document: &Value) -> Check {
    has_no_errors(document)?;
    let trial = &document["trials"][0];
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let rate = number(&trial["requests"]) / number(&trial["elapsed_ns"]);
    let in_flight = rate * number(&trial["latency_ns"]["mean"]);
    // The average may be below 4096, because fewer requests are in flight at the start and at the
    // end of the trial.
    ensure((3500.0..4200.0).contains(&in_flight), || {
        format!("{in_flight:.0} requests were in flight, not about 4096")
    })
}

fn requests(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    let (few, many) = (10_000_000, if context.quick { 100_000_000 } else { 1_000_000_000 });
    let place = context.place()?;
    for flags in ["--rw randread --iodepth 32", "--rw randrw --iodepth 32 --numjobs 2"] {
        let line = |count: u64| {
            format!(
                "run --ioengine null {flags} --bs 512 --size {} --trials 1 --quiet --json",
                count * 512
            )
        };
        let before = peak_bytes(&place, &line(few), few)?;
        let after = peak_bytes(&place, &line(many), many)?;
        let grown = before.and_then(|before| {
            let after = after?;
            ensure(after <= before + MIB, || {
                format!("the peak memory grew from {before} to {after} bytes")
            })
        });
        tally.detected(&line(many), grown);
    }
    Ok(tally)
}

/// Returns the peak resident memory of a run (bytes). The inner error says that the run failed or
/// did not complete `count` requests.
fn peak_bytes(place: &Place<'_>, line: &str, count: u64) -> Result<Result<u64, String>> {
    let peak = Cell::new(0);
    let ended = place.start(line)?.ended_within(600_000, |pid| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        peak.set(peak.get().max(kib.unwrap_or(0) * KIB));
    })?;
    Ok(ended.document().and_then(|document| {
        let done = document["trials"][0]["requests"].as_u64();
        ensure(done == Some(count), || {
            format!("the trial completed {done:?} requests, not {count}")
        })?;
        Ok(peak.get())
    }))
}

fn clock(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    system(&["unshare", "--time", "--fork", "true"]).context("cannot create a time namespace")?;
    for offset_s in [1, -5, 86_400, 31_557_600, 3_155_760_000_i64] {
        let place = context.place()?;
        let line = "run --ioengine delay --truth fixed=1ms --time-based --runtime 0.5 --trials 1 \
                    --quiet --json";
        let mut command = std::process::Command::new("unshare");
        command.args(["--time", "--fork", "--kill-child"]);
        command.args([format!("--monotonic={offset_s}"), format!("--boottime={offset_s}")]);
        command.arg(&context.program).args(line.split_whitespace());
        let document = place.start_command(command)?.ended()?.document();
        let what = format!("offset {offset_s} s: {line}");
        tally.detected(&what, document.and_then(|document| keeps_time(&document)));
    }
    Ok(tally)
}

/// Checks that the trial took 0.5 to 5 s and that the minimum latency is about 1 to 5 ms. The upper
/// limits leave a margin for a busy machine.
fn keeps_time(document: &Value) -> Check {
    let trial = &document["trials"][0];
    let elapsed = trial["elapsed_ns"].as_u64().unwrap_or(0);
    let least = trial["latency_ns"]["min"].as_u64().unwrap_or(0);
    ensure((500_000_000..5_000_000_000).contains(&elapsed), || {
        format!("the trial took {elapsed} ns")
    })?;
    ensure((990_000..5_000_000).contains(&least), || format!("the minimum latency is {least} ns"))
}

/// Path of libfaketime on Debian.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

fn clock_steps(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    if !Path::new(FAKETIME).exists() {
        return Err(Missing(
            "libfaketime is missing; run: apt-get install libfaketime".to_string(),
        )
        .into());
    }
    for (which, steps) in
        [("wall", [2, 3600, 86_400, -2, -3600]), ("monotonic", [2, 10, 60, -2, -10])]
    {
        for step_s in steps {
            let place = context.place()?;
            let offset = place.path("offset");
            std::fs::write(&offset, "+0")?;
            let line = "run --ioengine delay --truth fixed=1ms --time-based --runtime 2 --trials 1 \
                        --json";
            let mut command = std::process::Command::new(&context.program);
            command.args(line.split_whitespace()).env("LD_PRELOAD", FAKETIME);
            command.env("FAKETIME_TIMESTAMP_FILE", &offset).env("FAKETIME_NO_CACHE", "1");
            if which == "wall" {
                command.env("DONT_FAKE_MONOTONIC", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
            }
            let running = place.start_command(command)?;
            pause(1000);
            std::fs::write(&offset, format!("{step_s:+}"))?;
            let document = running.ended()?.document();
            let reported = document.and_then(|document| reports_the_step(&document, which));
            tally.detected(&format!("{which} {step_s:+} s: {line}"), reported);
        }
    }
    Ok(tally)
}

fn reports_the_step(document: &Value, which: &str) -> Check {
    let words = if which == "wall" { "the wall clock was changed" } else { "the measuring clock" };
    let verdict = &document["verdict"];
    ensure(verdict.to_string().contains(words), || {
        format!("the verdict does not contain {words:?}: {verdict}")
    })?;
    let rate = document["summary"]["requests_per_s"]["median"].as_f64().unwrap_or(0.0);
    ensure((500.0..=1001.0).contains(&rate), || {
        format!("the rate is {rate} requests/s, not about 1000")
    })
}
