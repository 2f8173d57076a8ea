//! Regression tests: situations that an earlier version of halfpower did not report. Each situation
//! needs only one run of halfpower.

use super::Situation;
use super::gear::{contains_any, run_and_check, short, with_command};
use super::host::{io_max, waited};
use super::memory::Tmpfs;
use crate::accuracy::foreign::server::Server;
use crate::faults::device::{LoopDevice, Volume};
use crate::faults::place::{Context, MIB};
use crate::faults::running::pause;
use crate::faults::tally::{Check, ensure};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::fs;

/// The situations of this module.
pub const SITUATIONS: &[Situation] = &[
    Situation {
        word: "again-wrap",
        wrong: "random buffered reads hit the page cache, on a device without I/O counters",
        made: "random buffered reads of an 8 MiB file served by nbdfuse, depth 8",
        must: "invalid: repeated reads come from the page cache",
        says: &["repeated reads come from the page cache"],
        run: wrap,
    },
    Situation {
        word: "again-loop",
        wrong: "a loop device without direct I/O",
        made: "direct random reads of a loop device whose image file is on the disk",
        must: "suspect: the image is in the page cache",
        says: &["is in the page cache"],
        run: loop_on_disk,
    },
    Situation {
        word: "again-btrfs",
        wrong: "btrfs on a loop device without direct I/O",
        made: "direct random writes to a test file on btrfs",
        must: "suspect: served by the page cache",
        says: &["is in the page cache", "went through the page cache"],
        run: btrfs,
    },
    Situation {
        word: "again-tmpfs",
        wrong: "writes to tmpfs",
        made: "a file on a tmpfs is written",
        must: "suspect: the target lies in memory",
        says: &["lies in memory (tmpfs)"],
        run: tmpfs_write,
    },
    Situation {
        word: "again-one",
        wrong: "one request in one trial",
        made: "`--size 4k --trials 1` on nbdkit with a delay of 1 ms",
        must: "suspect: all trials together have only one request",
        says: &["all trials together have only 1 request"],
        run: one_request,
    },
    Situation {
        word: "again-hog",
        wrong: "a busy loop on the same CPU",
        made: "random reads from nbdkit, depth 8; a busy loop also uses the program's only CPU",
        must: "suspect: the threads waited for a CPU",
        says: &["waited for a CPU"],
        run: |context, says| {
            let server = Server::nbdkit(context, "memory 64M")?;
            waited(context, says, &server.file(), 8)
        },
    },
    Situation {
        word: "again-io-max",
        wrong: "an I/O limit of the program's control group",
        made: "a cgroup limits the program to 8 MB/s; sequential reads of 1 MiB",
        must: "suspect: the limit of the control group was measured",
        says: &["the control group limits"],
        run: |context, says| io_max(context, says, "--rw read --bs 1m --iodepth 4"),
    },
    Situation {
        word: "again-left",
        wrong: "`soak` runs a command that leaves a process running",
        made: "`sh` starts a busy loop of 3 s in the background and exits",
        must: "the PID of the remaining process is reported, or its CPU time is included in the \
               upper bound of the CPU time",
        says: &["the command left a process running, ", " processes running, "],
        run: left_behind,
    },
];

fn wrap(context: &Context, says: &[&str]) -> Result<Check> {
    let server = Server::nbdkit(context, "--filter=delay memory 8M rdelay=1ms")?;
    let line = format!(
        "run {} --rw randread --bs 4k --direct=0 --iodepth 8 --ioengine threads --time-based \
         --runtime 1",
        server.file()
    );
    run_and_check(context, &line, says)
}

fn loop_on_disk(context: &Context, says: &[&str]) -> Result<Check> {
    let device = LoopDevice::new(context, 64 * MIB)?;
    let line = format!("run {} --rw randread --bs 4k --iodepth 4 --runtime 1", device.path);
    run_and_check(context, &line, says)
}

fn btrfs(context: &Context, says: &[&str]) -> Result<Check> {
    let device = LoopDevice::new(context, 512 * MIB)?;
    let volume = Volume::on(context, device, &["mkfs.btrfs", "--quiet", "--force"])?;
    let folder = volume.folder().display().to_string();
    let line = format!("run {folder} --size 64m --rw randwrite --bs 16k --iodepth 4 --runtime 1");
    run_and_check(context, &line, says)
}

fn tmpfs_write(context: &Context, says: &[&str]) -> Result<Check> {
    let (_tmpfs, file) = Tmpfs::with_file(context, 32 * MIB)?;
    let file = file.display();
    let line = format!("run {file} --overwrite={file} --rw randwrite --bs 4k --runtime 0.5");
    run_and_check(context, &line, says)
}

fn one_request(context: &Context, says: &[&str]) -> Result<Check> {
    let server = Server::nbdkit(context, "--filter=delay memory 64M rdelay=1ms")?;
    let line = format!("run {} --rw read --bs 4k --size 4k --trials 1", server.file());
    run_and_check(context, &line, says)
}

/// Script that exits while a busy loop still runs in the background. The loop ends after 3 s.
const LEAVES: &str = "timeout 3 sh -c 'while :; do :; done' &\n";
/// Duration of the busy loop in `LEAVES` (ms).
const LOOP_MS: u64 = 3000;
/// If the reported upper bound of the CPU time is at least this value (ns), the bound includes the
/// busy loop.
const LOOP_NS: f64 = 2.4e9;

fn left_behind(context: &Context, says: &[&str]) -> Result<Check> {
    let place = context.place()?;
    fs::write(place.path("leaves"), LEAVES).context("cannot write the script")?;
    let line = "soak --json -- sh leaves";
    let ended = place.run(line)?;
    // The busy loop must end before the next measurement.
    pause(LOOP_MS);
    let said = format!("{} {}", ended.stdout, ended.stderr);
    let document: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
    let upper = document["cpu_ns"]["upper"].as_f64().unwrap_or(0.0);
    Ok(with_command(
        line,
        ensure(upper >= LOOP_NS || contains_any(&said, says), || {
            let verdict = short(&document["verdict"].to_string());
            format!("the upper bound on CPU time is {:.0} ms; verdict: {verdict}", upper / 1e6)
        }),
    ))
}
