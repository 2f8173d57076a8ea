//! Defines [`CpuMeter`], the interface to a source of CPU readings.
//!
//! A meter is read at the start and at the end of an interval, and [`CpuSample::since`] turns the
//! two readings into a [`CpuUsage`]. Differences saturate at zero, so that a counter that decreases
//! by a rounding error does not become a huge cost. This module makes no system calls. `HostMeter`
//! makes the system calls, and a simulator can replace `HostMeter`.

/// A source of CPU readings: this host, or a simulated host.
pub trait CpuMeter {
    /// Reads every counter. `now_ns` is the caller's monotonic time, real or simulated (ns). It
    /// becomes the time of the sample.
    fn sample(&self, now_ns: u64) -> CpuSample;
}

/// The values of the counters at one time. The counters start at arbitrary values, so only
/// differences between two samples of the same meter are meaningful.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuSample {
    /// Time of the sample (ns of the caller's monotonic clock).
    pub at_ns: u64,
    /// CPU time charged to all threads of this process, user and system.
    pub process_ns: u64,
    /// User time, included in `process_ns`.
    pub process_user_ns: u64,
    /// System time, included in `process_ns`.
    pub process_system_ns: u64,
    /// Idle time of the machine's CPUs, including I/O wait, summed over CPUs. None if `/proc/stat`
    /// cannot be read.
    pub machine_idle_ns: Option<u64>,
    /// Number of CPUs that are online.
    pub cpus: u32,
    /// Time in hardware and software interrupts, summed over CPUs. None if `/proc/stat` cannot be
    /// read.
    pub interrupt_ns: Option<u64>,
    /// User time of all processes (`user` and `nice` in `/proc/stat`), summed over CPUs. The kernel
    /// estimates this time from samples.
    pub machine_user_ns: Option<u64>,
    /// Time that the hypervisor took from the CPUs (steal time), summed over CPUs.
    pub stolen_ns: Option<u64>,
    /// Time for which the live threads of this process were ready to run but waited for a CPU,
    /// summed over threads.
    pub run_delay_ns: Option<u64>,
    /// Instructions retired by this process, user and kernel. None if the host cannot count them.
    pub instructions: Option<u64>,
    /// CPU cycles spent by this process, user and kernel. None if the host cannot count them.
    pub cycles: Option<u64>,
}

/// CPU use in the interval between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CpuUsage {
    /// Length of the interval (ns).
    pub elapsed_ns: u64,
    /// CPU time charged to the process. It is a lower bound of the cost, because kernel threads and
    /// interrupts that work for the process are not included.
    pub process_ns: u64,
    /// User time. The sum of user and system time is `process_ns`.
    pub user_ns: u64,
    /// System time, included in `process_ns`.
    pub system_ns: u64,
    /// Busy time of the whole machine: `elapsed_ns` × CPUs − idle time, at least 0. It includes the
    /// work of all other programs. A soaker gives a tighter upper bound of the cost.
    pub machine_ns: Option<u64>,
    /// Interrupt time of the whole machine.
    pub interrupt_ns: Option<u64>,
    /// User time of other processes, as a measure of the load by other programs. Their system time
    /// is not included, because kernel threads that work for this process have only system time.
    /// The kernel estimates user time from samples, and the estimate tends to be too low.
    pub others_user_ns: Option<u64>,
    /// Steal time, summed over CPUs.
    pub stolen_ns: Option<u64>,
    /// Time for which threads of the process were ready to run but waited for a CPU. Threads that
    /// have ended are not included.
    pub run_delay_ns: Option<u64>,
    /// CPU time that was available: elapsed time × number of CPUs.
    pub available_ns: u64,
    /// Instructions retired by the process.
    pub instructions: Option<u64>,
    /// CPU cycles spent by the process.
    pub cycles: Option<u64>,
}

impl CpuSample {
    /// Returns the CPU use between `earlier` and `self`, two samples of the same meter. Differences
    /// saturate at zero. A value that is missing in either sample is None.
    pub fn since(&self, earlier: &CpuSample) -> CpuUsage {
        let elapsed_ns = self.at_ns.saturating_sub(earlier.at_ns);
        let process_ns = self.process_ns.saturating_sub(earlier.process_ns);
        let user_ns = self.process_user_ns.saturating_sub(earlier.process_user_ns).min(process_ns);
        let available_ns = elapsed_ns.saturating_mul(u64::from(self.cpus));
        let machine_ns = difference(self.machine_idle_ns, earlier.machine_idle_ns)
            .map(|idle_ns| available_ns.saturating_sub(idle_ns));
        let others_user_ns = difference(self.machine_user_ns, earlier.machine_user_ns)
            .map(|all_ns| all_ns.saturating_sub(user_ns));
        CpuUsage {
            elapsed_ns,
            process_ns,
            user_ns,
            system_ns: process_ns - user_ns,
            machine_ns,
            interrupt_ns: difference(self.interrupt_ns, earlier.interrupt_ns),
            others_user_ns,
            stolen_ns: difference(self.stolen_ns, earlier.stolen_ns),
            run_delay_ns: difference(self.run_delay_ns, earlier.run_delay_ns),
            available_ns,
            instructions: difference(self.instructions, earlier.instructions),
            cycles: difference(self.cycles, earlier.cycles),
        }
    }
}

fn difference(later: Option<u64>, earlier: Option<u64>) -> Option<u64> {
    Some(later?.saturating_sub(earlier?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_sample() -> impl Strategy<Value = CpuSample> {
        (
            any::<(u64, u64, u64, u64)>(),
            any::<Option<u64>>(),
            any::<u32>(),
            any::<Option<u64>>(),
            any::<(Option<u64>, Option<u64>)>(),
        )
            .prop_map(|(times, machine_idle_ns, cpus, interrupt_ns, counters)| CpuSample {
                at_ns: times.0,
                process_ns: times.1,
                process_user_ns: times.2,
                process_system_ns: times.3,
                machine_idle_ns,
                cpus,
                interrupt_ns,
                instructions: counters.0,
                cycles: counters.1,
                ..CpuSample::default()
            })
    }

    #[test]
    fn usage_is_the_difference_of_two_samples() {
        let earlier = CpuSample {
            at_ns: 1_000,
            process_ns: 100,
            process_user_ns: 60,
            process_system_ns: 40,
            machine_idle_ns: Some(5_000),
            cpus: 2,
            interrupt_ns: Some(7),
            machine_user_ns: Some(1_000),
            stolen_ns: Some(3),
            run_delay_ns: Some(40),
            instructions: Some(900),
            cycles: None,
        };
        let later = CpuSample {
            at_ns: 2_000,
            process_ns: 700,
            process_user_ns: 260,
            process_system_ns: 440,
            machine_idle_ns: Some(6_200),
            interrupt_ns: Some(27),
            machine_user_ns: Some(1_350),
            stolen_ns: Some(4),
            run_delay_ns: Some(90),
            instructions: Some(2_900),
            ..earlier
        };
        let usage = later.since(&earlier);
        assert_eq!(
            usage,
            CpuUsage {
                elapsed_ns: 1_000,
                process_ns: 600,
                user_ns: 200,
                system_ns: 400,
                machine_ns: Some(800),
                interrupt_ns: Some(20),
                others_user_ns: Some(150),
                stolen_ns: Some(1),
                run_delay_ns: Some(50),
                available_ns: 2_000,
                instructions: Some(2_000),
                cycles: None,
            }
        );
    }

    #[test]
    fn idle_time_beyond_the_interval_is_an_idle_machine() {
        let earlier = CpuSample { cpus: 1, machine_idle_ns: Some(0), ..CpuSample::default() };
        let later = CpuSample { at_ns: 10, machine_idle_ns: Some(15), ..earlier };
        assert_eq!(later.since(&earlier).machine_ns, Some(0));
    }

    proptest! {
        #[test]
        fn any_two_samples_have_a_usage_whose_parts_add_up(
            a in any_sample(),
            b in any_sample(),
        ) {
            let usage = b.since(&a);
            prop_assert_eq!(usage.user_ns + usage.system_ns, usage.process_ns);
            prop_assert!(usage.elapsed_ns <= b.at_ns);
            let whole_ns = usage.elapsed_ns.saturating_mul(u64::from(b.cpus));
            prop_assert!(usage.machine_ns.unwrap_or(0) <= whole_ns);
            prop_assert_eq!(
                usage.machine_ns.is_some(),
                a.machine_idle_ns.is_some() && b.machine_idle_ns.is_some()
            );
        }

        #[test]
        fn no_time_at_all_costs_nothing(a in any_sample()) {
            let usage = a.since(&a);
            prop_assert_eq!((usage.elapsed_ns, usage.process_ns), (0, 0));
        }
    }
}
