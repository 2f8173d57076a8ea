//! The spinner processes of a soaker: one child process pinned to each CPU.
//!
//! Spinners start parked. A parked spinner sleeps and costs nothing; a running one counts units of
//! work in shared memory. Calibration and priority are up to the caller. Dropping the value kills
//! and reaps the processes; the kernel kills them if this process dies first.

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
    /// Units of work.
    pub(crate) units: u64,
    /// CPU time charged to the spinner.
    pub(crate) cpu_ns: u64,
}

impl Spinners {
    /// Starts a parked spinner at normal priority on each of `cpus`.
    pub(crate) fn start(cpus: &[usize]) -> io::Result<Spinners> {
        let board = SharedBoard::new(cpus.len())?;
        let pids = sys::fork_spinners(&board)?;
        let spinners = Spinners { board, pids, cpus: cpus.to_vec() };
        // They inherit the policy of this process. Control groups accept no real-time processes, so
        // they get the normal one.
        spinners.pids.iter().try_for_each(|&pid| sys::set_normal_policy(pid))?;
        spinners.pin()?;
        Ok(spinners)
    }

    /// Pins each spinner to its CPU: at the start, and again after a move to another cgroup, which
    /// may have widened its affinity mask.
    pub(crate) fn pin(&self) -> io::Result<()> {
        self.pids.iter().zip(&self.cpus).try_for_each(|(&pid, &cpu)| sys::pin(pid, &[cpu]))
    }

    /// Gives all spinners the SCHED_IDLE policy, which ranks them last within their task group.
    pub(crate) fn set_idle_policy(&self) -> io::Result<()> {
        self.pids.iter().try_for_each(|&pid| sys::set_idle_policy(pid))
    }

    /// The process ids, in the order of the CPUs. The first is the session leader of all.
    pub(crate) fn pids(&self) -> &[i32] {
        &self.pids
    }

    /// The CPUs, in the order given.
    pub(crate) fn cpus(&self) -> &[usize] {
        &self.cpus
    }

    /// Starts spinning on all CPUs.
    pub(crate) fn run(&self) {
        for spinner in self.board.spinners() {
            spinner.running.store(1, Ordering::Release);
            sys::futex_wake(&spinner.running);
        }
    }

    /// Tells all spinners to park; each parks when it next gets the CPU.
    pub(crate) fn stop(&self) {
        for spinner in self.board.spinners() {
            spinner.running.store(0, Ordering::Release);
        }
    }

    /// The last published progress of each spinner. Units and CPU time belong together, and are
    /// some milliseconds old while the spinner runs. `None` while the spinner writes them.
    pub(crate) fn noted(&self) -> Vec<Option<Progress>> {
        let noted = |spinner: &sys::SpinnerState| {
            spinner.read_published().map(|(units, cpu_ns)| Progress { units, cpu_ns })
        };
        self.board.spinners().iter().map(noted).collect()
    }

    /// The units done so far. Must be fast, as it is read at the edges of an interval.
    pub(crate) fn units(&self) -> Vec<u64> {
        self.board.spinners().iter().map(|spinner| spinner.units.load(Ordering::Relaxed)).collect()
    }

    /// CPU time charged to each spinner by the kernel, up to one timer tick old.
    pub(crate) fn charged_ns(&self) -> io::Result<Vec<u64>> {
        self.pids.iter().map(|&pid| sys::process_cpu_ns_of(pid)).collect()
    }

    /// Whether all spinners are still alive.
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

    /// Gives the calling thread real-time priority; false if that is not permitted.
    fn become_real_time() -> bool {
        let link = std::fs::read_link("/proc/thread-self").unwrap();
        let mut chrt = std::process::Command::new("chrt");
        chrt.args(["--rr", "--pid", "1"]).arg(link.file_name().unwrap());
        chrt.stderr(std::process::Stdio::null());
        chrt.status().is_ok_and(|status| status.success())
    }

    #[test]
    fn spinners_of_a_real_time_program_have_normal_priority() {
        // The priority is that of a thread, which ends with this test.
        let policies = std::thread::spawn(|| {
            let spinners = become_real_time().then(|| Spinners::start(&allowed_cpus()).unwrap())?;
            let policy = |pid: &i32| {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
                // Field 41 is the policy. Field 2, the name in brackets, may have spaces. proc(5).
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
