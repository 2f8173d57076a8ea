//! Manages the spinner processes of a soaker: one child process pinned to each CPU.
//!
//! Spinners start parked. A parked spinner sleeps and uses no CPU time. A running spinner counts
//! units of work in shared memory. The caller must calibrate the spinners and set their priority.
//! Dropping [`Spinners`] kills and reaps the processes. If this process dies first, the kernel
//! kills them.

use std::io;
use std::sync::atomic::Ordering;

use crate::sys::{self, SharedBoard};

/// The spinner processes, one per CPU, running or parked.
pub(crate) struct Spinners {
    board: SharedBoard,
    pids: Vec<i32>,
    cpus: Vec<usize>,
}

/// The work of one spinner since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Number of units of work done.
    pub(crate) units: u64,
    /// CPU time charged to the spinner (ns).
    pub(crate) cpu_ns: u64,
}

impl Spinners {
    /// Starts a parked spinner at normal priority on each of `cpus`.
    pub(crate) fn start(cpus: &[usize]) -> io::Result<Spinners> {
        let board = SharedBoard::new(cpus.len())?;
        let pids = sys::fork_spinners(&board)?;
        let spinners = Spinners { board, pids, cpus: cpus.to_vec() };
        // Spinners inherit the scheduling policy of this process. They get the normal policy here,
        // because control groups accept no real-time processes.
        spinners.pids.iter().try_for_each(|&pid| sys::set_normal_policy(pid))?;
        spinners.pin()?;
        Ok(spinners)
    }

    /// Pins each spinner to its CPU. This is done at the start, and again after a move to another
    /// control group, because the move may widen the affinity mask.
    pub(crate) fn pin(&self) -> io::Result<()> {
        self.pids.iter().zip(&self.cpus).try_for_each(|(&pid, &cpu)| sys::pin(pid, &[cpu]))
    }

    /// Gives all spinners the SCHED_IDLE policy, which ranks them last within their task group.
    pub(crate) fn set_idle_policy(&self) -> io::Result<()> {
        self.pids.iter().try_for_each(|&pid| sys::set_idle_policy(pid))
    }

    /// Returns the process ids, in the order of the CPUs. The first process is the session leader
    /// of all spinners.
    pub(crate) fn pids(&self) -> &[i32] {
        &self.pids
    }

    /// Returns the CPUs in the order that was passed to [`Spinners::start`].
    pub(crate) fn cpus(&self) -> &[usize] {
        &self.cpus
    }

    /// Wakes all spinners.
    pub(crate) fn run(&self) {
        for spinner in self.board.spinners() {
            spinner.running.store(1, Ordering::Release);
            sys::futex_wake(&spinner.running);
        }
    }

    /// Tells all spinners to park. Each spinner parks when it next gets the CPU.
    pub(crate) fn stop(&self) {
        for spinner in self.board.spinners() {
            spinner.running.store(0, Ordering::Release);
        }
    }

    /// Returns the last published progress of each spinner, which may be some milliseconds old.
    /// `None` for a spinner that is publishing its progress at this moment.
    pub(crate) fn noted(&self) -> Vec<Option<Progress>> {
        let noted = |spinner: &sys::SpinnerState| {
            spinner.read_published().map(|(units, cpu_ns)| Progress { units, cpu_ns })
        };
        self.board.spinners().iter().map(noted).collect()
    }

    /// Returns the number of units of work that each spinner has done.
    pub(crate) fn units(&self) -> Vec<u64> {
        self.board.spinners().iter().map(|spinner| spinner.units.load(Ordering::Relaxed)).collect()
    }

    /// Returns the CPU time that the kernel charged to each spinner (ns). While a spinner runs, its
    /// value may be one timer tick old.
    pub(crate) fn charged_ns(&self) -> io::Result<Vec<u64>> {
        self.pids.iter().map(|&pid| sys::process_cpu_ns_of(pid)).collect()
    }

    /// Checks whether all spinners are still alive.
    pub(crate) fn is_whole(&self) -> bool {
        self.pids.iter().all(|&pid| sys::child_runs(pid))
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        sys::kill_and_reap(&self.pids);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity::allowed_cpus;

    /// Gives the calling thread real-time priority. Returns false if this is not permitted.
    fn become_real_time() -> bool {
        let link = std::fs::read_link("/proc/thread-self").unwrap();
        let mut chrt = std::process::Command::new("chrt");
        chrt.args(["--rr", "--pid", "1"]).arg(link.file_name().unwrap());
        chrt.stderr(std::process::Stdio::null());
        chrt.status().is_ok_and(|status| status.success())
    }

    #[test]
    fn spinners_of_a_real_time_program_have_normal_priority() {
        // The test changes the priority of a separate thread, so that other tests keep their
        // priority.
        let policies = std::thread::spawn(|| {
            let spinners = become_real_time().then(|| Spinners::start(&allowed_cpus()).unwrap())?;
            let policy = |pid: &i32| {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
                // Field 41 is the policy. Field 2, the name in brackets, may contain spaces
                // (proc(5)).
                let after_name = stat.rsplit_once(')').unwrap().1;
                after_name.split_whitespace().nth(41 - 3).unwrap().to_owned()
            };
            Some(spinners.pids().iter().map(policy).collect::<Vec<_>>())
        });
        match policies.join().unwrap() {
            Some(policies) => assert!(policies.iter().all(|policy| policy == "0"), "{policies:?}"),
            None => eprintln!("skipped: real-time priority needs root and chrt"),
        }
    }

    #[test]
    fn spinners_work_once_told_to_run() {
        let spinners = Spinners::start(&allowed_cpus()).unwrap();
        spinners.run();
        let worked = |progress: Progress| progress.units > 0 && progress.cpu_ns > 0;
        while !spinners.noted().iter().all(|progress| progress.is_some_and(worked)) {
            std::thread::yield_now();
        }
        let cpu_ns = spinners.charged_ns().unwrap();
        assert!(cpu_ns.iter().all(|&cpu_ns| cpu_ns > 0));
        spinners.stop();
        assert!(spinners.is_whole());
    }

    #[test]
    fn a_killed_spinner_is_detected() {
        let spinners = Spinners::start(&allowed_cpus()[..1]).unwrap();
        let pid = spinners.pids()[0].to_string();
        let killed = std::process::Command::new("sh").args(["-c", "kill -9 $0", &pid]).status();
        assert!(killed.unwrap().success());
        while spinners.is_whole() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn an_impossible_cpu_is_an_error_and_leaves_no_child() {
        assert!(Spinners::start(&[8000]).is_err());
    }
}
