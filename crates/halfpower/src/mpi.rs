//! `--mpi`: measures on all ranks that mpirun or srun starts. Each process that they start becomes
//! the relay of a rank. The relay starts a child process, the worker, which measures (see
//! [`lab::ranks`]). This needs a build with the feature `mpi`.

use std::ffi::OsString;
use std::time::Duration;

use exchange::fio::host::is_job_file;
use ioengine::Monotonic;
use lab::failure::{Failure, Outcome};
use study::catalogue::Study;
use study::requested::RequestedStudy;

use crate::cli::Verb;

/// Environment variables that contain the rank of a process, one for each launcher.
const RANKS: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];
/// Environment variables that contain the rank of a process within its host, one for each launcher.
const LOCAL_RANKS: [&str; 3] = ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];
/// How long a rank waits before it exits if another rank prints the error message. Launchers kill
/// all ranks when the first rank fails, so the other rank needs time to print.
const YIELD: Duration = Duration::from_millis(500);

/// Which ranks have the same failure. MPI has not started yet, so ranks cannot ask each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All ranks have the failure, such as a wrong flag.
    Everywhere,
    /// All ranks of a host have the failure, such as a file that is missing on this host.
    Host,
}

/// Returns true if another rank prints the same failure in place of this rank. Before returning
/// true, waits so that the other rank has time to print. Called before MPI starts.
pub fn is_left_to_another(words: &[OsString], scope: Scope) -> bool {
    let asked = words.iter().take_while(|word| *word != "--").any(|word| word == "--mpi");
    let leaves = asked
        && lab::ranks::of_environment().is_none()
        && has_predecessor(scope, |name| std::env::var(name).ok());
    if leaves {
        Monotonic::uncalibrated().sleep(YIELD);
    }
    leaves
}

/// Returns true if a rank with a lower number has the same failure.
fn has_predecessor(scope: Scope, variable: impl Fn(&str) -> Option<String>) -> bool {
    let number = |names: &[&str]| names.iter().find_map(|name| variable(name)?.parse::<u32>().ok());
    let number = match scope {
        Scope::Everywhere => number(&RANKS),
        Scope::Host => number(&LOCAL_RANKS),
    };
    number.is_some_and(|number| number > 0)
}

/// Returns true if `--mpi` was specified. The subcommand then runs on all ranks of an MPI launcher.
///
/// # Errors
/// The subcommand, study or job file runs in one process only, or this build has no MPI.
pub fn is_asked(verb: &Verb) -> Outcome<bool> {
    let common = match verb {
        Verb::Run(args) | Verb::Sweep(args) => &args.common,
        Verb::Survey(args) => &args.common,
        Verb::Study(args) => &args.common,
        Verb::Simulate(args) => &args.run.common,
        _ => return Ok(false),
    };
    if !common.mpi {
        return Ok(false);
    }
    let studies = match verb {
        Verb::Simulate(_) => {
            return Err(Failure::usage(
                "a simulated system has its own hosts and cannot use MPI ranks; drop --mpi",
            ));
        }
        Verb::Run(args) | Verb::Sweep(args) => {
            if args.targets.iter().any(|path| is_job_file(path)) {
                return Err(Failure::usage(
                    "a fio job file runs in one process only; drop --mpi, or convert its jobs to \
                     flags of halfpower run (--showcmd prints these flags)",
                ));
            }
            let plan = args.study_plan.as_ref();
            plan.map(|(path, text)| RequestedStudy::of_file(path, text)).into_iter().collect()
        }
        Verb::Study(args) => args.name.as_deref().map_or(Ok(Vec::new()), RequestedStudy::named),
        _ => Ok(Vec::new()),
    };
    let studies = studies?;
    studies.iter().filter_map(|one| one.study).try_for_each(Study::check_ranks)?;
    // A worker does not use MPI, so only a relay needs a build with MPI.
    if lab::ranks::of_environment().is_none() {
        check_built()?;
    }
    Ok(true)
}

/// Returns an error if this is a build without MPI.
fn check_built() -> Outcome<()> {
    if cfg!(feature = "mpi") {
        return Ok(());
    }
    Err(Failure::usage(
        "this halfpower was built without MPI; install an MPI library and libclang (Debian: \
         libopenmpi-dev libclang-dev), build with cargo build --release --features mpi, and run \
         the new program",
    ))
}

/// Replaces the relay in a build without MPI. This function is never called, because [`is_asked`]
/// returns an error in such a build.
///
/// # Errors
/// This build has no MPI.
#[cfg(not(feature = "mpi"))]
pub fn relay() -> Outcome {
    check_built().map(|()| lab::failure::Exit::Usage)
}

/// Makes this process the relay of a rank. On rank 0, returns the exit code of the run.
///
/// # Errors
/// MPI or the worker cannot be started.
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
    let program =
        program.map_err(|error| Failure::failed(format!("cannot locate halfpower: {error}")))?;
    let mut words = std::env::args_os();
    let mut command = Command::new(program);
    command.arg0(words.next().unwrap_or_default()).args(words);
    if transport.rank() > 0 {
        command.args(["--no-store", "--quiet"]);
    }
    let Ended { code, all_alive } = carry(&mut transport, &mut command, &interrupt)?;
    let exit = if transport.rank() == 0 { Exit::Command(code) } else { Exit::Ok };
    if !all_alive {
        // MPI_Finalize would wait for the lost ranks forever.
        universe.world().abort(i32::from(code.max(1)));
    }
    Ok(exit)
}

#[cfg(feature = "mpi")]
mod transport {
    //! Messages over MPI. They are sent and received with nonblocking calls, because the blocking
    //! calls of MPI libraries busy-wait.

    use std::collections::VecDeque;
    use std::time::Duration;

    use ioengine::Monotonic;
    use lab::ranks::relay::Transport;
    use mpi::datatype::Equivalence;
    use mpi::point_to_point::{Destination, Source};
    use mpi::topology::{Communicator, SimpleCommunicator};

    /// Time to sleep between two checks whether a message has been sent.
    const SLEEP: Duration = Duration::from_micros(50);

    /// The connection of this relay to the relays of the other ranks.
    pub struct Mpi {
        world: SimpleCommunicator,
        /// Messages that arrived while this relay was sending, each with the rank of its sender.
        arrived: VecDeque<(u32, Vec<u8>)>,
    }

    impl Mpi {
        /// Creates the transport between all ranks of the run.
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

        fn send(&mut self, to: u32, message: &[u8], give_up: &mut dyn FnMut() -> Option<u8>) {
            let Mpi { world, arrived } = self;
            let clock = Monotonic::uncalibrated();
            mpi::request::scope(|scope| {
                let mut sent = world.process_at_rank(to as i32).immediate_send(scope, message);
                // MPI sends a large message only when the receiver accepts it. Two relays that send
                // to each other would block forever if they did not receive while they send.
                while let Err(pending) = sent.test() {
                    sent = pending;
                    if let Some(code) = give_up() {
                        // No rank will receive the message, so all ranks are ended.
                        world.abort(i32::from(code));
                    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn launched(set: &[(&'static str, &'static str)]) -> impl Fn(&str) -> Option<String> {
        let set = set.to_vec();
        move |name| set.iter().find(|(one, _)| *one == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn a_failure_of_all_ranks_is_left_to_rank_0_and_one_of_a_host_to_its_first_rank() {
        let second_host = [("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_LOCAL_RANK", "0")];
        assert!(has_predecessor(Scope::Everywhere, launched(&second_host)));
        assert!(!has_predecessor(Scope::Host, launched(&second_host)));
        let last = [("PMI_RANK", "3"), ("MPI_LOCALRANKID", "1")];
        assert!(has_predecessor(Scope::Host, launched(&last)));
        assert!(!has_predecessor(Scope::Everywhere, launched(&[("SLURM_PROCID", "0")])));
    }

    #[test]
    fn a_rank_of_an_unknown_launcher_reports_its_own_failures() {
        assert!(!has_predecessor(Scope::Everywhere, launched(&[])));
        assert!(!has_predecessor(Scope::Host, launched(&[("PMI_RANK", "3")])));
    }

    #[test]
    fn a_rank_that_an_srun_step_started_through_mpirun_has_the_rank_of_mpirun() {
        let nested = [("SLURM_PROCID", "1"), ("OMPI_COMM_WORLD_RANK", "0")];
        assert!(!has_predecessor(Scope::Everywhere, launched(&nested)));
    }
}
