//! Situations in which a device stalls, changes its rate, is too slow for the requested
//! percentiles, is too fast for the load generator, or is used by another program.

use super::Situation;
use super::gear::{QUIET, alarm, run_and_check, with_command};
use crate::accuracy::foreign::server::{Server, Target};
use crate::faults::device::soon;
use crate::faults::place::Context;
use crate::faults::running::{Ended, pause};
use crate::faults::tally::{Check, Missing};
use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The situations of this module. Each situation triggers a different check of halfpower.
pub const SITUATIONS: &[Situation] = &[
    Situation {
        word: "trials-differ",
        wrong: "the trials differ",
        made: "the limit of nbdkit's rate filter changes each second",
        must: "suspect: noisy",
        says: &["noisy: +-"],
        run: trials_differ,
    },
    Situation {
        word: "stall",
        wrong: "no request completes for a second",
        made: "the server is stopped by SIGSTOP for a second",
        must: "suspect: no request completed",
        says: &["no request completed for"],
        run: stall,
    },
    Situation {
        word: "falls",
        wrong: "the rate drops during a trial",
        made: "the limit of nbdkit's rate filter is halved in the middle of the trial",
        must: "suspect: the rate fell",
        says: &["the rate fell from"],
        run: |context, says| changes(context, says, [200, 100]),
    },
    Situation {
        word: "rises",
        wrong: "the rate rises within a trial",
        made: "the limit of nbdkit's rate filter is doubled in the middle of the trial",
        must: "suspect: the rate rose",
        says: &["the rate rose from"],
        run: |context, says| changes(context, says, [100, 200]),
    },
    Situation {
        word: "drifts",
        wrong: "the rate drifts within a trial",
        made: "the limit of nbdkit's rate filter is lowered in ten steps",
        must: "suspect: the rate drifted",
        says: &["the rate drifted by"],
        run: drifts,
    },
    Situation {
        word: "generator",
        wrong: "the load generator limits the rate",
        made: "a zram device, which completes requests in the submit call",
        must: "suspect: the CPU may be the limit",
        says: &["the CPU may be the limit"],
        run: generator,
    },
    Situation {
        word: "at-once",
        wrong: "requests complete in the call that submits them",
        made: "libaio, depth 8, on a zram device",
        must: "suspect: the depth was not reached",
        says: &["completed inside the submit call"],
        run: at_once,
    },
    Situation {
        word: "percentile",
        wrong: "too few requests for the highest percentile",
        made: "nbdkit with a delay of 100 ms, trials of 1 s",
        must: "suspect: too few requests for the percentile",
        says: &["requests; percentile"],
        run: percentile,
    },
    Situation {
        word: "others-used",
        wrong: "another program uses the device",
        made: "fio reads the same loop device during the run",
        must: "suspect: other programs used the device",
        says: &["other programs used the device"],
        run: others_used,
    },
];

/// Starts nbdkit with a rate limit (Mbit/s) that can be changed later.
fn adjustable(context: &Context, megabits_per_s: u64) -> Result<Server> {
    let server = Server::nbdkit(
        context,
        "--filter=rate memory 64M rate=100000000 burstiness=0.1 rate-file={folder}/rate",
    )?;
    server.set_rate(megabits_per_s * 1_000_000)?;
    Ok(server)
}

/// Runs `halfpower LINE` and meanwhile changes the rate limit of the server. Each element of
/// `rates` is a pause (ms), followed by the limit to set after the pause (Mbit/s).
fn with_rates(
    context: &Context,
    server: &Server,
    line: &str,
    rates: impl Iterator<Item = (u64, u64)>,
) -> Result<Ended> {
    let place = context.place()?;
    let running = place.start(&format!("{line} {QUIET}"))?;
    for (milliseconds, rate) in rates {
        pause(milliseconds);
        server.set_rate(rate * 1_000_000)?;
    }
    running.ended()
}

fn trials_differ(context: &Context, says: &[&str]) -> Result<Check> {
    let server = adjustable(context, 200)?;
    let line = format!("run {} --rw randread --bs 64k --trials 6 --runtime 0.7", server.file());
    let rates = [80, 200, 80, 200].map(|rate| (1000, rate));
    let ended = with_rates(context, &server, &line, rates.into_iter())?;
    Ok(with_command(&line, alarm(&ended, says)))
}

fn stall(context: &Context, says: &[&str]) -> Result<Check> {
    let mut server = Server::nbdkit(context, "--filter=delay memory 64M rdelay=2ms")?;
    let place = context.place()?;
    let line = format!(
        "run {} --rw randread --bs 4k --iodepth 4 --trials 1 --runtime 4 {QUIET}",
        server.file()
    );
    let running = place.start(&line)?;
    pause(2000);
    server.signal(Signal::SIGSTOP)?;
    pause(1000);
    server.signal(Signal::SIGCONT)?;
    Ok(with_command(&line, alarm(&running.ended()?, says)))
}

/// Changes the rate limit from `before` to `after` (Mbit/s) in the middle of the trial.
fn changes(context: &Context, says: &[&str], [before, after]: [u64; 2]) -> Result<Check> {
    let server = adjustable(context, before)?;
    let line = format!("run {} --rw randread --bs 64k --trials 1 --runtime 4", server.file());
    let ended = with_rates(context, &server, &line, [(2300, after)].into_iter())?;
    Ok(with_command(&line, alarm(&ended, says)))
}

fn drifts(context: &Context, says: &[&str]) -> Result<Check> {
    let server = adjustable(context, 200)?;
    let line = format!("run {} --rw randread --bs 64k --trials 1 --runtime 5", server.file());
    let rates = (1..=10).map(|step| (500, 200 - step * 10));
    let ended = with_rates(context, &server, &line, rates)?;
    Ok(with_command(&line, alarm(&ended, says)))
}

/// A zram device (a compressed block device in memory), removed on drop.
pub struct Zram(String);

/// Folder with the kernel's interface to create and remove zram devices.
const ZRAM: &str = "/sys/class/zram-control";

impl Zram {
    /// Creates a zram device, which completes requests within the submitting call.
    pub fn new(bytes: u64) -> Result<Zram> {
        let Ok(number) = fs::read_to_string(format!("{ZRAM}/hot_add")) else {
            return Err(Missing("this kernel cannot create zram devices".to_string()).into());
        };
        let zram = Zram(number.trim().to_string());
        let size = format!("/sys/block/zram{}/disksize", zram.0);
        fs::write(&size, bytes.to_string()).context("cannot set the size of the zram device")?;
        anyhow::ensure!(soon(|| Path::new(&zram.path()).exists()), "{} is missing", zram.path());
        Ok(zram)
    }

    /// Returns the path of the device.
    pub fn path(&self) -> String {
        format!("/dev/zram{}", self.0)
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        if !soon(|| fs::write(format!("{ZRAM}/hot_remove"), &self.0).is_ok()) {
            eprintln!("cannot remove {}", self.path());
        }
    }
}

fn generator(context: &Context, says: &[&str]) -> Result<Check> {
    let zram = Zram::new(64 << 20)?;
    let line = format!("run {} --rw randread --bs 4k --ioengine sync --runtime 1", zram.path());
    run_and_check(context, &line, says)
}

fn at_once(context: &Context, says: &[&str]) -> Result<Check> {
    let zram = Zram::new(64 << 20)?;
    let path = zram.path();
    let line =
        format!("run {path} --rw randread --bs 4k --ioengine libaio --iodepth 8 --runtime 0.5");
    run_and_check(context, &line, says)
}

fn percentile(context: &Context, says: &[&str]) -> Result<Check> {
    let server = Server::nbdkit(context, "--filter=delay memory 64M rdelay=100ms")?;
    let line = format!("run {} --rw randread --bs 4k --runtime 1", server.file());
    run_and_check(context, &line, says)
}

fn others_used(context: &Context, says: &[&str]) -> Result<Check> {
    let server = Server::nbdkit(context, "--filter=delay memory 64M rdelay=1ms")?;
    let target = Target::loop_on(server)?;
    let place = context.place()?;
    let mut fio = Command::new("fio");
    fio.args(["--name=beside", "--direct=1", "--rw=randread", "--bs=64k", "--ioengine=psync"]);
    // With --thread, the job ends together with fio. A job in a separate process would outlive fio.
    fio.args(["--time_based", "--runtime=60", "--thread"])
        .arg(format!("--filename={}", target.path));
    let _fio = place.start_command(fio)?;
    pause(1000);
    let line = format!("run {} --rw randread --bs 64k --runtime 1 {QUIET}", target.path);
    Ok(with_command(&line, alarm(&place.run(&line)?, says)))
}
