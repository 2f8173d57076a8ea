//! Refuses flags that contradict each other or have no effect. The targets are not examined.

use ioengine::EngineKind;
use workload::{Distribution, Pattern};

use super::Axes;
use crate::experiment::{Allocation, Experiment, HostParameters};
use crate::failure::{Failure, Outcome};
use crate::rank_trial::RankFiles;
use crate::ranks;
use crate::target::JobTargets;

/// Refuses `--ioengine mmap` for a file that grows, because a memory mapping has a fixed size.
pub fn mapping(axes: &[Axes], allocation: Allocation) -> Outcome<()> {
    let maps = axes.iter().any(|axes| axes.engine_kind == Some(EngineKind::Mmap));
    if maps && allocation.grows() {
        return Err(Failure::usage(
            "--ioengine mmap cannot make a file grow; use --allocation preallocated, or another \
             --ioengine",
        ));
    }
    Ok(())
}

/// Refuses `--verify` for trials whose blocks cannot be checked. All trials must either only read
/// or only write, with the same request size and number of threads.
pub fn verify(experiment: &Experiment, axes: &[Axes]) -> Outcome<()> {
    let mixed = axes.iter().any(|a| !matches!(a.read_percent, 0 | 100))
        || axes.iter().any(|a| a.read_percent != axes[0].read_percent);
    if experiment.verify && mixed {
        return Err(Failure::usage(
            "--verify works with reads or with writes, not with a mix; run --rw write --verify \
             first, then --rw read --verify",
        ));
    }
    let shape = |a: &Axes| (a.request_bytes, a.threads);
    if experiment.verify && axes.iter().any(|a| shape(a) != shape(&axes[0])) {
        return Err(Failure::usage(
            "--verify needs the same request size and number of threads in all trials; use one \
             --bs and one --numjobs",
        ));
    }
    if experiment.verify && experiment.zero_buffers {
        return Err(Failure::usage("--verify and --zero-buffers exclude each other; drop one"));
    }
    let reads = axes.iter().any(|axes| axes.read_percent == 100);
    let makes_a_file = experiment.targets.iter().find(|target| target.is_dir());
    if let Some(folder) = makes_a_file.filter(|_| experiment.verify && reads) {
        return Err(Failure::usage(format!(
            "--verify with --rw read checks blocks that an earlier run with --verify wrote, but \
             the test file in {} is new; use the file of the earlier run as the target, or use \
             --rw write, which also reads the written blocks back",
            folder.display()
        )));
    }
    Ok(())
}

/// Refuses flags that do not work with MPI. Without MPI, refuses --rank-files and --rank-shift.
pub fn ranks(experiment: &Experiment, targets: &JobTargets) -> Outcome<()> {
    let shares = experiment.rank_files.is_some_and(|files| files != RankFiles::Own);
    if ranks::of_environment().is_none() {
        if experiment.rank_files.is_some() || experiment.rank_shift > 0 {
            return Err(Failure::usage(
                "--rank-files and --rank-shift are for runs of several ranks; add --mpi and start \
                 the ranks with mpirun, or drop these flags",
            ));
        }
        return Ok(());
    }
    let cannot = [
        (experiment.soaker, "--soaker takes CPU time from other ranks of the host; drop --soaker"),
        (experiment.log.is_some(), "--log can record only one process; drop --log"),
        (
            experiment.steady_state,
            "--steady-state would end at a different time on each rank; use --ramp-time instead",
        ),
        (
            experiment.host != HostParameters::default(),
            "ranks cannot change settings of their hosts; change them before the run",
        ),
        (
            experiment.verify && (shares || experiment.rank_shift > 0),
            "--verify needs a separate file for each rank; drop --rank-files and --rank-shift",
        ),
        (
            shares && experiment.allocation.grows(),
            "ranks that share a file cannot make it grow; use --allocation preallocated",
        ),
        (
            targets.simulated().is_some(),
            "a simulated system has its own hosts and cannot use MPI ranks; drop --mpi",
        ),
    ];
    match cannot.iter().find(|(is_asked, _)| *is_asked) {
        Some((_, why)) => Err(Failure::usage(format!("with --mpi: {why}"))),
        None => Ok(()),
    }
}

/// Refuses flags that have no effect, because the user probably made a mistake.
pub fn without_effect(experiment: &Experiment, axes: &[Axes]) -> Outcome<()> {
    let only_reads = axes.iter().all(|axes| axes.read_percent == 100);
    let only_random = axes.iter().all(|axes| axes.pattern == Pattern::Random);
    let found = [
        (
            experiment.zero_buffers && only_reads,
            "--zero-buffers is for written data, but --rw only reads",
        ),
        (
            experiment.stride_bytes.is_some() && only_random,
            "--stride is for sequential requests, but --rw is random",
        ),
    ];
    refuse_vain(&found)
}

fn refuse_vain(found: &[(bool, &str)]) -> Outcome<()> {
    match found.iter().find(|(is_vain, _)| *is_vain) {
        Some((_, why)) => Err(Failure::usage(format!("{why}; drop it"))),
        None => Ok(()),
    }
}

/// Checks that the flags for request sizes, random access and think times fit together.
pub fn skew(experiment: &Experiment, axes: &[Axes]) -> Outcome<()> {
    if experiment.request_bytes.is_some() && experiment.request_sizes.is_some() {
        return Err(Failure::usage("--bs and --bssplit exclude each other; drop one"));
    }
    let random = axes.iter().any(|axes| axes.pattern == Pattern::Random);
    if experiment.distribution != Distribution::Even && !random {
        return Err(Failure::usage(format!(
            "--random-distribution {} is for random requests; use --rw randread, randwrite or \
             randrw",
            experiment.distribution
        )));
    }
    if experiment.think_requests.is_some() && experiment.think_ns.is_none() {
        return Err(Failure::usage(
            "--thinktime-blocks sets how often to pause; also set the length of the pause, such \
             as --thinktime 100us",
        ));
    }
    Ok(())
}
