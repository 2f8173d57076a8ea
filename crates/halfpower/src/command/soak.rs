//! `halfpower soak`: runs a command and reports bounds on its CPU cost. The lower bound is the CPU
//! time of its processes. The upper bound is the CPU time that idle-priority busy loops lose while
//! the command runs. The measurement is in `lab::soak`.
//!
//! The report is written to stderr, and the command's output is unchanged. With `--json`, the
//! document is written to stdout, and the command's output to stderr.

use analysis::units;
use cpucost::affinity;
use lab::console::{self, Console};
use lab::failure::{Exit, Failure, Outcome};
use lab::interrupt::Interrupt;
use lab::json;
use lab::machine::Host;
use lab::soak::session::{self, SoakOptions};
use lab::soak::text;

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
    let options = SoakOptions {
        command: args.command.clone(),
        settle_ns: args.settle,
        unsoaked: args.unsoaked,
        stdout_to_stderr: args.json,
        quiet: args.quiet,
    };
    let readings = session::run(&options, &interrupt)?;
    let document = readings.document(command, Host::read());
    if args.json {
        console::data(&json::print(&document));
    } else {
        Console::new(false).say(text(&document));
    }
    Ok(exit_of(document.exit_code, document.signal))
}

/// Returns the exit code that a shell would return: the code of the command, or 128 plus the
/// signal.
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
        console::data(&format!(
            "would start an idle-priority spinner on each of the CPUs {cpus:?}"
        ));
        console::data(&format!(
            "would measure the background load for {settle} before and after the command"
        ));
    }
    console::data(&format!("would run {command}; nothing was done"));
    Ok(Exit::Ok)
}
