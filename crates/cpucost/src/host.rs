//! Measures the CPU use of this host. A sample combines process time, `/proc/stat` and hardware
//! counters.
//!
//! If the host does not provide a counter, its value in the sample is None, and
//! [`HostMeter::missing`] reports the cause and a remedy. Take samples only at the start and at the
//! end of an interval, because a sample takes tens of microseconds.

use crate::meter::{CpuMeter, CpuSample};
use crate::perf::PerfCounters;
use crate::procstat::ProcStat;
use crate::rusage::ProcessTime;
use crate::schedstat;
use crate::sys;

/// Reads the counters of this host and this process.
///
/// Create the meter before the worker threads, because hardware counters count only the thread that
/// creates the meter and the threads that it starts later. The other readings cover all threads.
#[derive(Debug)]
pub struct HostMeter {
    counters: Result<PerfCounters, String>,
}

impl HostMeter {
    /// Opens the hardware counters, if the host has them.
    pub fn new() -> HostMeter {
        HostMeter { counters: PerfCounters::open() }
    }

    /// Returns one line for each missing reading, with the cause and the remedy.
    pub fn missing(&self) -> Vec<String> {
        let counters = self.counters.as_ref().err().cloned();
        let machine = ProcStat::read().err().map(|error| {
            format!("busy time of the machine: {error}; mount /proc so that /proc/stat is readable")
        });
        machine.into_iter().chain(counters).collect()
    }
}

impl Default for HostMeter {
    fn default() -> Self {
        HostMeter::new()
    }
}

impl CpuMeter for HostMeter {
    fn sample(&self, now_ns: u64) -> CpuSample {
        let run_delay_ns = schedstat::run_delay_ns();
        let process = ProcessTime::now();
        let machine = ProcStat::read().ok();
        let online = machine.as_ref().and_then(|stat| u32::try_from(stat.cpus.len()).ok());
        CpuSample {
            at_ns: now_ns,
            process_ns: process.total_ns,
            process_user_ns: process.user_ns,
            process_system_ns: process.system_ns,
            machine_idle_ns: machine.as_ref().map(|stat| stat.total.idle_ns),
            cpus: online.unwrap_or_else(sys::online_cpus),
            interrupt_ns: machine.as_ref().map(|stat| stat.total.interrupt_ns),
            machine_user_ns: machine.as_ref().map(|stat| stat.total.user_ns),
            stolen_ns: machine.as_ref().map(|stat| stat.total.stolen_ns),
            run_delay_ns,
            instructions: self.counters.as_ref().ok().and_then(PerfCounters::instructions),
            cycles: self.counters.as_ref().ok().and_then(PerfCounters::cycles),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_thread_costs_process_and_machine_time() {
        let meter = HostMeter::new();
        let clock = std::time::Duration::from_millis(200);
        let before = meter.sample(0);
        let end_ns = sys::process_cpu_ns() + clock.as_nanos() as u64;
        std::thread::spawn(move || while sys::process_cpu_ns() < end_ns {}).join().unwrap();
        // The interval is given as 60 s, which is longer than the work takes even on a busy
        // machine.
        let usage = meter.sample(60_000_000_000).since(&before);
        assert!(usage.process_ns >= 200_000_000, "{usage:?}");
        assert_eq!(usage.user_ns + usage.system_ns, usage.process_ns);
        assert!(usage.machine_ns > Some(0), "{usage:?}");
        assert_eq!(usage.instructions.is_some(), meter.counters.is_ok());
    }

    #[test]
    fn what_is_missing_is_what_the_sample_lacks() {
        let meter = HostMeter::new();
        let sample = meter.sample(5);
        assert_eq!(sample.at_ns, 5);
        let lacking = usize::from(sample.machine_idle_ns.is_none())
            + usize::from(sample.instructions.is_none());
        assert_eq!(meter.missing().len(), lacking, "{:?}", meter.missing());
    }
}
