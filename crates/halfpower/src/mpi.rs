//! `--mpi`: the process that mpirun or srun started becomes the relay of a rank, and starts the
//! measuring process as its child ([`lab::ranks`]). Only a build with the feature `mpi` has it.

use exchange::fio::host::is_job_file;
use lab::failure::{Failure, Outcome};

use crate::cli::Verb;

/// Whether a verb is to run on all ranks of a launcher of MPI.
///
/// # Errors
/// A verb that measures with one process.
pub fn is_asked(verb: &Verb) -> Outcome<bool> {
    let (asked, can) = match verb {
        Verb::Run(args) | Verb::Sweep(args) => {
            let is_job = args.targets.iter().any(|path| is_job_file(path));
            (args.common.mpi, args.study_plan.is_none() && !is_job)
        }
        Verb::Survey(args) => (args.common.mpi, false),
        Verb::Study(args) => (args.common.mpi, false),
        Verb::Simulate(args) => (args.run.common.mpi, false),
        _ => (false, true),
    };
    if asked && !can {
        return Err(Failure::usage(
            "--mpi is for workloads of halfpower run and sweep; surveys, studies, simulations and \
             job files of fio use one process; drop --mpi",
        ));
    }
    Ok(asked)
}

/// Becomes the relay of a rank; returns the exit code of the run on rank 0.
///
/// # Errors
/// This build has no MPI, MPI cannot start, or the measuring process cannot be started.
#[cfg(not(feature = "mpi"))]
pub fn relay() -> Outcome {
    Err(Failure::usage(
        "this halfpower was built without MPI; install an MPI library and libclang (Debian: \
         libopenmpi-dev libclang-dev), build with cargo build --release --features mpi, and start \
         that program",
    ))
}

/// Becomes the relay of a rank; returns the exit code of the run on rank 0.
///
/// # Errors
/// MPI cannot start, or the measuring process cannot be started.
#[cfg(feature = "mpi")]
pub fn relay() -> Outcome {
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use lab::failure::Exit;
    use lab::interrupt::Interrupt;
    use lab::ranks::relay::{Ended, Transport as _, carry};
    use mpi::topology::Communicator;

    let interrupt = Interrupt::until_all_is_put_away();
    let universe = mpi::initialize();
    let universe = universe.ok_or_else(|| Failure::failed("MPI was started twice"))?;
    let mut transport = transport::Mpi::new(universe.world());
    let program = std::env::current_exe();
    let program = program.map_err(|error| Failure::failed(format!("this program: {error}")))?;
    let mut words = std::env::args_os();
    let mut command = Command::new(program);
    command.arg0(words.next().unwrap_or_default()).args(words);
    if transport.rank() > 0 {
        command.args(["--no-store", "--quiet"]);
    }
    let Ended { code, all_alive } = carry(&mut transport, &mut command, &interrupt)?;
    let exit = if transport.rank() == 0 { Exit::Command(code) } else { Exit::Ok };
    if !all_alive {
        // Finalising MPI would wait for the lost ranks for ever.
        universe.world().abort(i32::from(code.max(1)));
    }
    Ok(exit)
}

#[cfg(feature = "mpi")]
mod transport {
    //! Messages over MPI, sent and received without waiting inside the library, which would spin.

    use std::collections::VecDeque;
    use std::time::Duration;

    use ioengine::Monotonic;
    use lab::ranks::relay::Transport;
    use mpi::datatype::Equivalence;
    use mpi::point_to_point::{Destination, Source};
    use mpi::topology::{Communicator, SimpleCommunicator};

    /// Sleep between two looks at a message that is being sent.
    const SLEEP: Duration = Duration::from_micros(50);

    /// The relays of an MPI run.
    pub struct Mpi {
        world: SimpleCommunicator,
        /// Messages that arrived while another one was being sent.
        arrived: VecDeque<(u32, Vec<u8>)>,
    }

    impl Mpi {
        /// All ranks of the run.
        pub fn new(world: SimpleCommunicator) -> Mpi {
            Mpi { world, arrived: VecDeque::new() }
        }

        /// Receives a message if one has arrived.
        fn probe(world: &SimpleCommunicator) -> Option<(u32, Vec<u8>)> {
            let (message, status) = world.any_process().immediate_matched_probe()?;
            let mut bytes = vec![0_u8; status.count(u8::equivalent_datatype()) as usize];
            message.matched_receive_into(&mut bytes[..]);
            Some((status.source_rank() as u32, bytes))
        }
    }

    impl Transport for Mpi {
        fn rank(&self) -> u32 {
            self.world.rank() as u32
        }

        fn count(&self) -> u32 {
            self.world.size() as u32
        }

        fn send(&mut self, to: u32, message: &[u8]) {
            let Mpi { world, arrived } = self;
            let clock = Monotonic::uncalibrated();
            mpi::request::scope(|scope| {
                let mut sent = world.process_at_rank(to as i32).immediate_send(scope, message);
                // A large message needs the receiver. Two relays that send to each other must
                // therefore both receive while they send.
                while let Err(pending) = sent.test() {
                    sent = pending;
                    match Mpi::probe(world) {
                        Some(message) => arrived.push_back(message),
                        None => clock.sleep(SLEEP),
                    }
                }
            });
        }

        fn receive(&mut self) -> Option<(u32, Vec<u8>)> {
            self.arrived.pop_front().or_else(|| Mpi::probe(&self.world))
        }
    }
}
