//! `halfpower mount`: a device of known truth as a real file, for any program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fusefile::{Spec, mounted};
use ioengine::Monotonic;
use ioengine::fault::Fault;
use ioengine::truth::Schedule;

use crate::cli::MountArgs;
use crate::console;
use crate::failure::{Exit, Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::{truth, units};

/// Name of the file in the folder.
const FILE_NAME: &str = "device";
/// How often an order to stop is looked for.
const TICK: Duration = Duration::from_millis(20);

/// Serves the file until it is told to stop.
pub fn execute(args: &MountArgs) -> Outcome {
    let Some(text) = args.system.strip_prefix("truth:") else {
        return Err(Failure::usage(format!(
            "{}: write truth:KEY=VALUE,.. with {}; simulated systems are not in this version",
            args.system,
            truth::TRUTH_WORDS
        )));
    };
    let device = truth::parse_truth(text).map_err(Failure::usage)?;
    let faults = args.inject.clone().unwrap_or_default();
    if faults.rules.iter().any(|rule| matches!(rule.fault, Fault::Twice | Fault::Late(_))) {
        return Err(Failure::usage(
            "--inject twice and late are not for a served file, since the kernel keeps its \
             requests apart; use them with halfpower run",
        ));
    }
    let file = args.folder.join(FILE_NAME);
    if args.plan {
        let (size, file) = (units::size(args.size), file.display());
        console::data(&format!("serve {file}, {size}, {}", truth::describe(&device)));
        console::data("its content lives in memory; nothing was done");
        return Ok(Exit::Ok);
    }
    let interrupt = Interrupt::install();
    let spec = Spec {
        name: FILE_NAME.to_owned(),
        size_bytes: args.size,
        timing: Box::new(Schedule::new(device)),
        faults,
    };
    let served = mounted::mount(&args.folder, spec).map_err(|error| {
        let (cause, folder) = (ioengine::error::cause(&error), args.folder.display());
        Failure::failed(format!(
            "mounting on {folder}: {cause}; name an empty folder of your own, and install fuse3 \
             (fusermount3) where you are not root"
        ))
    })?;
    console::data(&served.path().display().to_string());
    let (clock, at_eof) = (Monotonic::new(), Arc::new(AtomicBool::new(false)));
    if args.until_eof {
        let at_eof = Arc::clone(&at_eof);
        std::thread::spawn(move || {
            // Nothing is expected but the end.
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            at_eof.store(true, Ordering::Relaxed);
        });
    }
    while !interrupt.is_set() && !at_eof.load(Ordering::Relaxed) && served.is_there() {
        clock.sleep(TICK);
    }
    served.unmount().map_err(|error| {
        let (cause, folder) = (ioengine::error::cause(&error), args.folder.display());
        Failure::failed(format!("unmounting {folder}: {cause}; type: fusermount3 -u {folder}"))
    })?;
    Ok(Exit::Ok)
}
