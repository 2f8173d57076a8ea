//! Situations in which other programs use the CPUs, a control group limits the program, or a run is
//! interrupted or has too few trials or requests.

use super::Situation;
use super::device::Zram;
use super::gear::{Group, QUIET, alarm, hog, run_and_check, with_command};
use crate::accuracy::foreign::server::{Server, Target};
use crate::bench::host::last_allowed_core;
use crate::faults::place::Context;
use crate::faults::running::pause;
use crate::faults::tally::Check;
use anyhow::Result;
use nix::sys::signal::Signal;

/// The situations of this module. Each situation triggers a different check of halfpower.
pub const SITUATIONS: &[Situation] = &[
    Situation {
        word: "io-max",
        wrong: "a limit of the control group is measured instead of the device",
        made: "a cgroup limits the program to 8 MB/s; direct reads of 64 KiB on a loop device",
        must: "suspect: the limit of the control group was measured",
        says: &["the control group limits"],
        run: |context, says| io_max(context, says, "--rw randread --bs 64k --iodepth 4"),
    },
    Situation {
        word: "cpu-quota",
        wrong: "the program is throttled by the CPU quota of its control group",
        made: "a cgroup limits the program to 5% of a CPU",
        must: "suspect: the CPU quota held the program back",
        says: &["held the program back"],
        run: cpu_quota,
    },
    Situation {
        word: "one-trial",
        wrong: "only one trial",
        made: "`--trials 1` on nbdkit with a delay of 1 ms",
        must: "suspect: only one trial",
        says: &["one trial does not show the scatter between trials"],
        run: one_trial,
    },
    Situation {
        word: "few-requests",
        wrong: "very few requests",
        made: "three trials of one request each",
        must: "suspect: too few requests in all trials",
        says: &["all trials together have only"],
        run: few_requests,
    },
    Situation {
        word: "waited",
        wrong: "the threads wait for a CPU",
        made: "random reads of a zram device; a busy loop also uses the program's only CPU",
        must: "suspect: the threads waited for a CPU",
        says: &["waited for a CPU"],
        run: |context, says| waited(context, says, &Zram::new(64 << 20)?.path(), 1),
    },
    Situation {
        word: "computed",
        wrong: "other programs use the CPU",
        made: "two busy loops during the run",
        must: "suspect: other programs used the CPUs",
        says: &["other programs used"],
        run: computed,
    },
    Situation {
        word: "interrupted",
        wrong: "the run is interrupted",
        made: "SIGINT in the second trial",
        must: "suspect: interrupted",
        says: &["interrupted"],
        run: interrupted,
    },
];

/// Runs halfpower in a control group that limits reads to 8 MB/s, and checks the report.
pub fn io_max(context: &Context, says: &[&str], load: &str) -> Result<Check> {
    let target = Target::loop_on(Server::nbdkit(context, "memory 64M")?)?;
    let group = Group::reads(&target.path, 8_000_000)?;
    let place = context.place()?;
    let line = format!("run {} {load} --runtime 1 {QUIET}", target.path);
    let ended = place.start_command(place.shell(&group.enter(), &line, ""))?.ended()?;
    Ok(with_command(&line, alarm(&ended, says)))
}

fn cpu_quota(context: &Context, says: &[&str]) -> Result<Check> {
    let server = Server::nbdkit(context, "memory 64M")?;
    let group = Group::cpu(5)?;
    let place = context.place()?;
    let line =
        format!("run {} --rw randread --bs 4k --iodepth 8 --runtime 1 {QUIET}", server.file());
    let ended = place.start_command(place.shell(&group.enter(), &line, ""))?.ended()?;
    Ok(with_command(&line, alarm(&ended, says)))
}

fn one_trial(context: &Context, says: &[&str]) -> Result<Check> {
    let server = Server::nbdkit(context, "--filter=delay memory 64M rdelay=1ms")?;
    let line = format!("run {} --rw randread --bs 4k --trials 1 --runtime 0.5", server.file());
    run_and_check(context, &line, says)
}

fn few_requests(context: &Context, says: &[&str]) -> Result<Check> {
    let server = Server::nbdkit(context, "--filter=delay memory 64M rdelay=200ms")?;
    let line = format!("run {} --rw randread --bs 4k --trials 3 --runtime 0.1", server.file());
    run_and_check(context, &line, says)
}

/// Runs halfpower on the same CPU as a busy loop, and checks the report.
pub fn waited(context: &Context, says: &[&str], path: &str, depth: u32) -> Result<Check> {
    let place = context.place()?;
    let cpu = last_allowed_core()?;
    let _hog = hog(&place, Some(cpu))?;
    let line = format!(
        "run {path} --rw randread --bs 4k --iodepth {depth} --runtime 0.5 --cpus-allowed {cpu} \
         {QUIET}"
    );
    Ok(with_command(&line, alarm(&place.run(&line)?, says)))
}

fn computed(context: &Context, says: &[&str]) -> Result<Check> {
    let server = Server::nbdkit(context, "--filter=delay memory 64M rdelay=1ms")?;
    let place = context.place()?;
    let _hogs = [hog(&place, None)?, hog(&place, None)?];
    let line = format!("run {} --rw randread --bs 4k --runtime 0.5 {QUIET}", server.file());
    Ok(with_command(&line, alarm(&place.run(&line)?, says)))
}

fn interrupted(context: &Context, says: &[&str]) -> Result<Check> {
    let server = Server::nbdkit(context, "--filter=delay memory 64M rdelay=1ms")?;
    let place = context.place()?;
    let line = format!("run {} --rw randread --bs 4k --runtime 2 {QUIET}", server.file());
    let running = place.start(&line)?;
    pause(3000);
    running.signal(Signal::SIGINT)?;
    Ok(with_command(&line, alarm(&running.ended()?, says)))
}
