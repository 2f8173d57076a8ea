//! The CPU time charged to this process, or to a command that it ran.
//!
//! The sum comes from `CLOCK_PROCESS_CPUTIME_ID`, which the scheduler keeps to the nanosecond.
//! The division into user and system comes from getrusage(2), which many kernels only sample at
//! the timer tick; so its ratio is applied to the exact sum. Children are not included.
//! A command's time comes from wait4(2), with that of all descendants that were waited for.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use crate::sys;

/// CPU time of this process since it started, all threads, living and dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessTime {
    /// All of it; equals `user_ns + system_ns`.
    pub total_ns: u64,
    /// In user mode.
    pub user_ns: u64,
    /// In the kernel.
    pub system_ns: u64,
}

impl ProcessTime {
    /// Reads the clocks of this process now. About a microsecond: for the edges of an interval,
    /// not for each request.
    pub fn now() -> ProcessTime {
        let (user_ns, system_ns) = sys::rusage_self_ns();
        ProcessTime::split(sys::process_cpu_ns(), user_ns, system_ns)
    }

    /// Adds time in user mode and in the kernel.
    pub fn add(&mut self, user_ns: u64, system_ns: u64) {
        self.user_ns = self.user_ns.saturating_add(user_ns);
        self.system_ns = self.system_ns.saturating_add(system_ns);
        self.total_ns = self.user_ns.saturating_add(self.system_ns);
    }

    /// Divides `total_ns` in the ratio of `user_ns` to `system_ns`; with no ratio known yet, all
    /// of it is user time.
    fn split(total_ns: u64, user_ns: u64, system_ns: u64) -> ProcessTime {
        let sum_ns = u128::from(user_ns) + u128::from(system_ns);
        let user_part = u128::from(total_ns) * u128::from(user_ns);
        let user_ns = match user_part.checked_div(sum_ns) {
            Some(part) => u64::try_from(part).expect("a share of a u64 fits in a u64"),
            None => total_ns,
        };
        ProcessTime { total_ns, user_ns, system_ns: total_ns - user_ns }
    }
}

/// Waits for a command to end: how it ended, and the CPU time of it and of all descendants that
/// were waited for. What it left running, or disowned, is not in it.
///
/// # Errors
/// It was waited for already.
pub fn wait_for(child: Child) -> io::Result<(ExitStatus, ProcessTime)> {
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    // As Child::wait does, so that a command which reads its input to the end can end.
    drop(child);
    let (status, user_ns, system_ns) = sys::wait_for(pid)?;
    let time = ProcessTime { total_ns: user_ns + system_ns, user_ns, system_ns };
    Ok((ExitStatus::from_raw(status), time))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spinning_is_charged_as_user_time_and_system_calls_as_system_time() {
        let before = ProcessTime::now();
        let mut calls = 0u64;
        while ProcessTime::now().total_ns < before.total_ns + 50_000_000 {
            std::hint::black_box((0..200_000u64).fold(1, |a, b| a ^ b));
            calls += 1;
        }
        let after = ProcessTime::now();
        assert!(calls > 0);
        assert!(after.user_ns > before.user_ns);
        assert_eq!(after.user_ns + after.system_ns, after.total_ns);
    }

    fn shell(script: &str) -> (ExitStatus, ProcessTime) {
        wait_for(Command::new("sh").args(["-c", script]).spawn().unwrap()).unwrap()
    }

    #[test]
    fn a_command_is_charged_for_the_descendants_it_waited_for() {
        let spin = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        let (status, own) = shell(spin);
        assert!(status.success() && own.user_ns > 10_000_000, "{own:?}");
        let (_, waited) = shell(&format!("sh -c '{spin}'; true"));
        assert!(waited.total_ns > own.total_ns / 3, "{waited:?} of {own:?}");
        let (_, left) = shell(&format!("sh -c '{spin}' & exit 0"));
        assert!(left.total_ns < own.total_ns / 3, "{left:?} of {own:?}");
    }

    #[test]
    fn how_a_command_ended_is_told() {
        assert_eq!(shell("exit 7").0.code(), Some(7));
        assert_eq!(shell("kill -9 $$").0.signal(), Some(9));
    }

    proptest! {
        #[test]
        fn the_parts_always_add_up_and_keep_their_ratio(
            total in any::<u64>(), user in any::<u64>(), system in any::<u64>(),
        ) {
            let time = ProcessTime::split(total, user, system);
            prop_assert_eq!(time.user_ns + time.system_ns, total);
            if user > 0 && system == 0 {
                prop_assert_eq!(time.user_ns, total);
            }
            if user > system {
                prop_assert!(time.user_ns >= total / 2);
            }
        }
    }
}
