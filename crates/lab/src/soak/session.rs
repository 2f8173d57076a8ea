//! Runs a command together with the soaker, and takes readings before, during and after the
//! command.
//!
//! The command stays in the control group and session of this process. Only the spinners, which are
//! the processes of the soaker, run at the lowest priority.

use analysis::units;
use std::ffi::OsString;
use std::io;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cpucost::descendants::Descendants;
use cpucost::procstat::ProcStat;
use cpucost::{Declined, Soaker, SoakerReading, affinity, rusage};
use ioengine::{Clock, Monotonic};

use super::{Readings, Soaked};
use crate::console::Console;
use crate::failure::{Exit, Failure, Outcome};
use crate::interrupt::Interrupt;

/// A command, and how its CPU time is measured.
#[derive(Clone, Debug)]
pub struct SoakOptions {
    /// The command and its arguments. Never empty.
    pub command: Vec<OsString>,
    /// Time for which the background load is measured before and after the command (ns).
    pub settle_ns: u64,
    /// Whether the command runs without the soaker. There is then no upper bound.
    pub unsoaked: bool,
    /// Whether the standard output of the command is sent to standard error.
    pub stdout_to_stderr: bool,
    /// Whether only warnings and errors are printed.
    pub quiet: bool,
}

/// A calibrated soaker, and the background load that it measured before the command.
struct Ready {
    soaker: Soaker,
    before: SoakerReading,
}

fn ready(options: &SoakOptions, clock: Monotonic) -> Result<Ready, Declined> {
    if options.unsoaked {
        let (reason, remedy) = ("--unsoaked was specified".into(), "drop it".into());
        return Err(Declined { reason, remedy });
    }
    let mut soaker = Soaker::start()?;
    soaker.calibrate(&|duration| clock.sleep(duration), &|| clock.now_ns())?;
    let before = background(&mut soaker, options.settle_ns, clock)?;
    Ok(Ready { soaker, before })
}

fn background(
    soaker: &mut Soaker,
    settle_ns: u64,
    clock: Monotonic,
) -> Result<SoakerReading, Declined> {
    let settle = Duration::from_nanos(settle_ns);
    soaker.background(settle, &|duration| clock.sleep(duration), &|| clock.now_ns())
}

/// Runs the command once, with all measurements.
///
/// # Errors
/// The command cannot be run, or the user interrupted the program before the command started.
pub fn run(options: &SoakOptions, interrupt: &Interrupt) -> Outcome<Readings> {
    let clock = Monotonic::new();
    if !options.unsoaked {
        let settle = units::time(options.settle_ns as f64);
        Console::new(options.quiet).say(format!("measuring the background load for {settle}"));
    }
    let mut ready = ready(options, clock);
    if interrupt.is_set() {
        return Err(Failure::interrupted());
    }
    let machine_before = ProcStat::read().ok();
    // Only processes that start after this point count as descendants. The soaker's processes are
    // already running, so they are not counted.
    let descendants = Descendants::adopt().ok();
    let start_ns = clock.now_ns();
    let started = match &mut ready {
        Ok(ready) => ready.soaker.begin(start_ns),
        Err(declined) => Err(declined.clone()),
    };
    let (status, process) = rusage::wait_for(start(options)?)
        .map_err(|e| Failure::failed(format!("waiting for the command: {e}")))?;
    let end_ns = clock.now_ns();
    let ended = started.and_then(|()| {
        let Ready { soaker, before } = ready.as_mut().map_err(|declined| declined.clone())?;
        let during = soaker.end(end_ns)?;
        let before = before.clone();
        Ok((soaker, before, during))
    });
    let machine = machine_before.zip(ProcStat::read().ok());
    let left_behind = descendants.and_then(|descendants| descendants.left_behind().ok());
    let left_behind = left_behind.unwrap_or_default();
    let soaked = ended.and_then(|(soaker, before, during)| {
        Ok(Soaked { before, during, after: background(soaker, options.settle_ns, clock)? })
    });
    let cpus = affinity::allowed_cpus();
    let elapsed_ns = end_ns - start_ns;
    Ok(Readings { status, elapsed_ns, cpus, process, left_behind, machine, soaked })
}

fn start(options: &SoakOptions) -> Outcome<Child> {
    let name: &OsString = &options.command[0];
    let mut command = Command::new(name);
    command.args(&options.command[1..]);
    if options.stdout_to_stderr {
        command.stdout(Stdio::from(io::stderr()));
    }
    command.spawn().map_err(|error| {
        let (cause, name) = (ioengine::error::cause(&error), name.display());
        match error.kind() {
            io::ErrorKind::NotFound => Failure::new(
                Exit::Command(127),
                format!("{name}: not found; use a program in the PATH, or specify a path"),
            ),
            _ => Failure::new(
                Exit::Command(126),
                format!("running {name}: {cause}; make it an executable program (chmod +x)"),
            ),
        }
    })
}
