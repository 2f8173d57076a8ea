//! `halfpower soak`: runs a command and reports bounds of the CPU time it cost. The lower bound is
//! the CPU time of its processes, the upper bound the time that idle-priority spinners lost.
//!
//! The command stays in the control group and session of this process; only the spinners are moved
//! to the lowest priority. The report goes to stderr and the command keeps stdout; `--json` swaps
//! the two.

use analysis::units;
use std::ffi::OsString;
use std::io;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cpucost::descendants::Descendants;
use cpucost::procstat::ProcStat;
use cpucost::{Declined, Soaker, SoakerReading, affinity, rusage};
use ioengine::{Clock, Monotonic};
use lab::console::{self, Console};
use lab::failure::{Exit, Failure, Outcome};
use lab::interrupt::Interrupt;
use lab::json;
use lab::machine::Host;
use lab::soak::{Readings, Soaked, text};

use crate::cli::SoakArgs;

pub fn execute(args: &SoakArgs) -> Outcome {
    if args.settle == 0 && !args.unsoaked {
        return Err(Failure::usage("--settle 0 measures no background load; use at least 300ms"));
    }
    let command: Vec<String> =
        args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    if args.plan {
        return plan(args, &command.join(" "));
    }
    let interrupt = Interrupt::beside_a_command();
    let readings = run(args, &interrupt)?;
    let document = readings.document(command, Host::read());
    if args.json {
        console::data(&json::print(&document));
    } else {
        Console::new(false).say(text(&document));
    }
    Ok(exit_of(document.exit_code, document.signal))
}

/// Exit code as in a shell: the code of the command, or 128 plus the signal.
fn exit_of(code: Option<i32>, signal: Option<i32>) -> Exit {
    match code.unwrap_or_else(|| 128 + signal.unwrap_or_default()) {
        0 => Exit::Ok,
        code => Exit::Command(code as u8),
    }
}

fn plan(args: &SoakArgs, command: &str) -> Outcome {
    let cpus = affinity::allowed_cpus();
    if !args.unsoaked {
        let settle = units::time(args.settle as f64);
        console::data(&format!("start an idle-priority spinner on each of the CPUs {cpus:?}"));
        console::data(&format!("measure the background load for {settle} before and after"));
    }
    console::data(&format!("run {command}; nothing was done"));
    Ok(Exit::Ok)
}

/// A calibrated soaker and the background load before the command.
struct Ready {
    soaker: Soaker,
    before: SoakerReading,
}

fn ready(args: &SoakArgs, clock: Monotonic) -> Result<Ready, Declined> {
    if args.unsoaked {
        let (reason, remedy) = ("--unsoaked was given".into(), "drop it".into());
        return Err(Declined { reason, remedy });
    }
    let mut soaker = Soaker::start()?;
    soaker.calibrate(&|duration| clock.sleep(duration), &|| clock.now_ns())?;
    let before = background(&mut soaker, args.settle, clock)?;
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
fn run(args: &SoakArgs, interrupt: &Interrupt) -> Outcome<Readings> {
    let clock = Monotonic::new();
    if !args.unsoaked {
        let settle = units::time(args.settle as f64);
        Console::new(args.quiet).say(format!("measuring the background load for {settle}"));
    }
    let mut ready = ready(args, clock);
    if interrupt.is_set() {
        return Err(Failure::interrupted());
    }
    let machine_before = ProcStat::read().ok();
    // Called after the start of the spinners, which are children too but must not count.
    let descendants = Descendants::adopt().ok();
    let start_ns = clock.now_ns();
    let started = match &mut ready {
        Ok(ready) => ready.soaker.begin(start_ns),
        Err(declined) => Err(declined.clone()),
    };
    let (status, process) =
        rusage::wait_for(start(args)?).map_err(|e| Failure::failed(format!("waiting: {e}")))?;
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
        Ok(Soaked { before, during, after: background(soaker, args.settle, clock)? })
    });
    let cpus = affinity::allowed_cpus();
    let elapsed_ns = end_ns - start_ns;
    Ok(Readings { status, elapsed_ns, cpus, process, left_behind, machine, soaked })
}

fn start(args: &SoakArgs) -> Outcome<Child> {
    let name: &OsString = &args.command[0];
    let mut command = Command::new(name);
    command.args(&args.command[1..]);
    if args.json {
        command.stdout(Stdio::from(io::stderr()));
    }
    command.spawn().map_err(|error| {
        let (cause, name) = (ioengine::error::cause(&error), name.display());
        match error.kind() {
            io::ErrorKind::NotFound => Failure::new(
                Exit::Command(127),
                format!("{name}: not found; name a program in the PATH, or give its path"),
            ),
            _ => Failure::new(
                Exit::Command(126),
                format!("running {name}: {cause}; make it an executable program (chmod +x)"),
            ),
        }
    })
}
