//! `halfpower mount`: serves a reference device or a simulated system as a file over FUSE, for any
//! program. The command runs until it receives a signal, the file is unmounted, or standard input
//! ends (only with `--until-eof`).

use analysis::units;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fusefile::{KnownTruth, Mounted, Spec, Timing, mounted};
use ioengine::Monotonic;
use ioengine::fault::{Fault, FaultPlan};
use ioengine::truth::Truth;
use lab::console::{self, Console};
use lab::failure::{Exit, Failure, Outcome};
use lab::interrupt::Interrupt;
use lab::journal::Recorded;
use lab::reference_device;
use lab::simulated;
use lab::simulated_target;
use lab::truth;
use predict::time_machine::{PathCost, TimeMachine};
use simulator::{Driver, System};

use crate::cli::mount::MountArgs;

const FILE_NAME: &str = "device";
/// Interval at which the server checks whether to stop.
const TICK: Duration = Duration::from_millis(20);

/// The model that determines the latency of the file's requests.
enum Model {
    Truth(Box<Truth>),
    System(Box<System>),
}

impl Model {
    fn of(args: &MountArgs) -> Outcome<Model> {
        if let Some(text) = args.system.strip_prefix("sim:") {
            let description = simulated_target::parse(text, &args.set)?;
            return Ok(Model::System(Box::new(description.system()?)));
        }
        let Some(text) = args.system.strip_prefix(reference_device::PREFIX) else {
            return Err(Failure::usage(format!(
                "unknown target '{}'; use sim:SYSTEM, or truth:KEY=VALUE,.. with {}",
                args.system,
                truth::TRUTH_WORDS
            )));
        };
        let needs_system = !args.set.is_empty() || args.speed.is_some() || args.path_cost.is_some();
        if needs_system {
            return Err(Failure::usage(
                "--set, --speed and --path-cost need a simulated system, such as \
                 sim:nt4-ultrawide; write the properties of a reference device into the target, \
                 such as truth:fixed=1ms",
            ));
        }
        let truth = truth::parse_truth(text).map_err(Failure::usage)?;
        Ok(Model::Truth(Box::new(truth)))
    }

    /// Returns the size of the file (bytes).
    fn size_bytes(&self, args: &MountArgs) -> Outcome<u64> {
        let system = match self {
            Model::Truth(truth) => {
                let span_bytes = truth::span_bytes(truth).unwrap_or(reference_device::SIZE_BYTES);
                return Ok(args.size.unwrap_or(span_bytes));
            }
            Model::System(system) => system,
        };
        let driver = Driver::new(system, simulated::caching_of(system), args.seed);
        let size_bytes = args.size.unwrap_or(driver.size_bytes());
        if size_bytes > driver.most_bytes() {
            let (size, most) = (units::size(size_bytes), units::size(driver.most_bytes()));
            return Err(Failure::usage(format!(
                "--size {size}: the capacity of {} is {most}; use a smaller size, or add disks",
                system.name
            )));
        }
        Ok(size_bytes)
    }

    /// Returns the alignment of direct I/O (bytes). The disks of the simulated systems have
    /// 512-byte sectors.
    fn block_bytes(&self) -> u32 {
        match self {
            Model::Truth(_) => 4096,
            Model::System(_) => 512,
        }
    }

    fn describe(&self, args: &MountArgs) -> String {
        match self {
            Model::Truth(truth) => truth::describe(truth),
            Model::System(system) => {
                let title = &system.title;
                format!("{}: {title}; speed {}", system.name, args.speed.unwrap_or(1.0))
            }
        }
    }

    /// Returns the timing of the served file. For a simulated system, the overhead of this machine
    /// is the value of `--path-cost` or is measured.
    fn timing(&self, args: &MountArgs, console: Console) -> Outcome<Box<dyn Timing>> {
        let system = match self {
            Model::Truth(truth) => return Ok(Box::new(KnownTruth::new(Truth::clone(truth)))),
            Model::System(system) => system,
        };
        let path = match args.path_cost {
            Some(ns) => PathCost::of(ns),
            None => PathCost::measure(&args.folder).map_err(|e| cannot_mount(args, &e))?,
        };
        let [read, write] = path.fixed_ns.map(units::time);
        console.say(format!(
            "this machine's own overhead is subtracted from each request: {read} per read, \
             {write} per write"
        ));
        let speed = args.speed.unwrap_or(1.0);
        Ok(Box::new(TimeMachine::new(system, args.seed, speed, path)))
    }
}

fn cannot_mount(args: &MountArgs, error: &std::io::Error) -> Failure {
    let (cause, folder) = (ioengine::error::cause(error), args.folder.display());
    if error.raw_os_error() == Some(libc::ENOTCONN) {
        return Failure::failed(format!(
            "mounting on {folder}: {cause}: a killed server left its mount there; run halfpower \
             clean, or fusermount3 -u {folder} (umount {folder} as root)"
        ));
    }
    Failure::failed(format!(
        "mounting on {folder}: {cause}; use an empty folder of your own, and install fuse3 \
         (fusermount3) unless you are root"
    ))
}

fn faults_of(args: &MountArgs) -> Outcome<FaultPlan> {
    let faults = args.inject.clone().unwrap_or_default();
    if faults.rules.iter().any(|rule| matches!(rule.fault, Fault::Twice | Fault::Late(_))) {
        return Err(Failure::usage(
            "a mounted file cannot have the faults `twice` and `late`; use them with halfpower run",
        ));
    }
    Ok(faults)
}

pub fn execute(args: &MountArgs) -> Outcome {
    let model = Model::of(args)?;
    let (faults, size_bytes) = (faults_of(args)?, model.size_bytes(args)?);
    if args.plan {
        let (size, file) = (units::size(size_bytes), args.folder.join(FILE_NAME));
        console::data(&format!("would serve {}, {size}, {}", file.display(), model.describe(args)));
        console::data("would keep the content of the file in memory; nothing was done");
        return Ok(Exit::Ok);
    }
    // A second signal must not end the program before the file is unmounted.
    let interrupt = Interrupt::until_all_is_put_away();
    let folder = args.folder.canonicalize().map_err(|e| cannot_mount(args, &e))?;
    let recorded = Recorded::about_to_mount(&folder);
    let served = serve(args, &model, size_bytes, faults).inspect_err(|_| recorded.undone())?;
    console::data(&served.path().display().to_string());
    wait_for_the_end(args, &served, &interrupt);
    served.unmount().map_err(|error| {
        let (cause, folder) = (ioengine::error::cause(&error), args.folder.display());
        Failure::failed(format!("unmounting {folder}: {cause}; run fusermount3 -u {folder}"))
    })?;
    recorded.undone();
    if args.remove_folder {
        // The folder is removed here, because the process that created the folder may have ended.
        // A folder that is not empty is kept.
        let _ = std::fs::remove_dir(&folder);
    }
    Ok(Exit::Ok)
}

fn serve(args: &MountArgs, model: &Model, size_bytes: u64, faults: FaultPlan) -> Outcome<Mounted> {
    let timing = model.timing(args, Console::new(args.quiet))?;
    let block_bytes = model.block_bytes();
    let spec = Spec { name: FILE_NAME.to_owned(), size_bytes, block_bytes, timing, faults };
    mounted::mount(&args.folder, spec).map_err(|e| cannot_mount(args, &e))
}

/// Waits until a signal arrives, the file is unmounted, or standard input ends (`--until-eof`).
fn wait_for_the_end(args: &MountArgs, served: &Mounted, interrupt: &Interrupt) {
    let (clock, at_eof) = (Monotonic::new(), Arc::new(AtomicBool::new(false)));
    if args.until_eof {
        let at_eof = Arc::clone(&at_eof);
        std::thread::spawn(move || {
            // The contents of standard input are ignored. Only its end matters.
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            at_eof.store(true, Ordering::Relaxed);
        });
    }
    while !interrupt.is_set() && !at_eof.load(Ordering::Relaxed) && served.is_there() {
        clock.sleep(TICK);
    }
}
