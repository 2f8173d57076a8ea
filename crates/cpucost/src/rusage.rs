//! Reads the CPU time charged to this process, or to a command that it started.
//!
//! The total time of this process is read from `CLOCK_PROCESS_CPUTIME_ID`, and does not include
//! child processes. It is split into user and system time in the ratio that getrusage(2) reports,
//! because many kernels only sample these two times at the timer tick. The time of a command is
//! read from wait4(2) and includes all descendants that were waited for.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use crate::sys;

/// CPU time of this process or of a command, including threads that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessTime {
    /// Total CPU time, which is `user_ns + system_ns`.
    pub total_ns: u64,
    /// Time in user mode.
    pub user_ns: u64,
    /// Time in the kernel.
    pub system_ns: u64,
}

impl ProcessTime {
    /// Reads the CPU time of this process. This takes about a microsecond, so call it at the start
    /// and at the end of an interval, not for each request.
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

    /// Splits `total_ns` in the ratio of `user_ns` to `system_ns`. If both are 0, the whole total
    /// becomes user time.
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

/// Waits for a command to end. Returns its exit status and its CPU time, which includes all
/// descendants that were waited for.
///
/// # Errors
/// The command was already waited for.
pub fn wait_for(child: Child) -> io::Result<(ExitStatus, ProcessTime)> {
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    // Dropping the child closes its standard input, as Child::wait does. Otherwise a command that
    // reads its whole input would wait forever.
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
    fn the_status_of_a_command_is_returned() {
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
