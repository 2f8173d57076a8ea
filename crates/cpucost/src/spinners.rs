//! The spinners of one soaker: a child process pinned to each CPU.
//!
//! A crew is started parked. While it runs, each member counts units of work in shared memory;
//! parked, it sleeps and costs nothing. What the counts mean, and at which priority the members
//! run, is for others to decide. Dropping the crew ends and reaps the members, and the kernel
//! ends them should this process die first.

use std::io;
use std::sync::atomic::Ordering;

use crate::sys::{self, Board};

/// Running or parked spinners, one for each CPU.
pub(crate) struct Crew {
    board: Board,
    pids: Vec<i32>,
    cpus: Vec<usize>,
}

/// What one member has done since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Units of work.
    pub(crate) units: u64,
    /// CPU time it was charged.
    pub(crate) cpu_ns: u64,
}

impl Crew {
    /// Starts a parked spinner, at normal priority, on each of `cpus`.
    pub(crate) fn start(cpus: &[usize]) -> io::Result<Crew> {
        let board = Board::new(cpus.len())?;
        let pids = sys::fork_spinners(&board)?;
        let crew = Crew { board, pids, cpus: cpus.to_vec() };
        crew.pin()?;
        Ok(crew)
    }

    /// Binds each member to its CPU: at the start, and again after a move to another cgroup, which
    /// may have widened its mask.
    pub(crate) fn pin(&self) -> io::Result<()> {
        self.pids.iter().zip(&self.cpus).try_for_each(|(&pid, &cpu)| sys::pin(pid, &[cpu]))
    }

    /// Gives all members idle priority within their task group.
    pub(crate) fn set_idle_policy(&self) -> io::Result<()> {
        self.pids.iter().try_for_each(|&pid| sys::set_idle_policy(pid))
    }

    /// The process ids, in the order of the CPUs. The first leads the session of all.
    pub(crate) fn pids(&self) -> &[i32] {
        &self.pids
    }

    /// The CPUs, in the order given.
    pub(crate) fn cpus(&self) -> &[usize] {
        &self.cpus
    }

    /// Lets all members spin.
    pub(crate) fn run(&self) {
        for line in self.board.lines() {
            line.running.store(1, Ordering::Release);
            sys::futex_wake(&line.running);
        }
    }

    /// Tells all members to park; each does so when it next gets the CPU.
    pub(crate) fn stop(&self) {
        for line in self.board.lines() {
            line.running.store(0, Ordering::Release);
        }
    }

    /// The last note each member made of its progress: some milliseconds old while it runs, and
    /// both numbers of the same moment. `None` if it is just being written.
    pub(crate) fn noted(&self) -> Vec<Option<Progress>> {
        let noted =
            |line: &sys::Line| line.read_note().map(|(units, cpu_ns)| Progress { units, cpu_ns });
        self.board.lines().iter().map(noted).collect()
    }

    /// The units done so far, running or not. The one reading that must be quick.
    pub(crate) fn units(&self) -> Vec<u64> {
        self.board.lines().iter().map(|line| line.units.load(Ordering::Relaxed)).collect()
    }

    /// CPU time each member was charged, as the system tells it: up to a timer tick old.
    pub(crate) fn charged_ns(&self) -> io::Result<Vec<u64>> {
        self.pids.iter().map(|&pid| sys::process_cpu_ns_of(pid)).collect()
    }

    /// Whether every member still lives.
    pub(crate) fn is_whole(&self) -> bool {
        self.pids.iter().all(|&pid| sys::child_runs(pid))
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        sys::kill_and_reap(&self.pids);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity::allowed_cpus;

    #[test]
    fn members_work_once_told_to_run() {
        let crew = Crew::start(&allowed_cpus()).unwrap();
        crew.run();
        let worked = |progress: Progress| progress.units > 0 && progress.cpu_ns > 0;
        while !crew.noted().iter().all(|progress| progress.is_some_and(worked)) {
            std::thread::yield_now();
        }
        let cpu_ns = crew.charged_ns().unwrap();
        assert!(cpu_ns.iter().all(|&cpu_ns| cpu_ns > 0));
        crew.stop();
        assert!(crew.is_whole());
    }

    #[test]
    fn a_crew_that_lost_a_member_says_so() {
        let crew = Crew::start(&allowed_cpus()[..1]).unwrap();
        let pid = crew.pids()[0].to_string();
        let killed = std::process::Command::new("sh").args(["-c", "kill -9 $0", &pid]).status();
        assert!(killed.unwrap().success());
        while crew.is_whole() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn an_impossible_cpu_is_an_error_and_leaves_no_child() {
        assert!(Crew::start(&[8000]).is_err());
    }
}
