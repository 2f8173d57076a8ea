//! Counts the instructions and cycles of this process with hardware counters.
//!
//! [`PerfCounters::open`] opens two counters with perf_event_open(2). They count the calling thread
//! and the threads that it starts later, but not child processes. Both counters need hardware
//! support, which most virtual machines lack, and permission to count in kernel mode. If the kernel
//! multiplexes a counter, the counter runs only part of the time, and its value is extrapolated to
//! the whole time.

use std::fs::File;
use std::io::{self, Read};

use crate::sys;

/// Event type `PERF_TYPE_HARDWARE` and two of its events, from linux/perf_event.h.
const HARDWARE: u32 = 0;
const CPU_CYCLES: u64 = 0;
const INSTRUCTIONS: u64 = 1;

/// The open counters of instructions and cycles.
#[derive(Debug)]
pub struct PerfCounters {
    instructions: File,
    cycles: File,
}

impl PerfCounters {
    /// Opens both counters on the calling thread. Other threads that already exist are not counted.
    ///
    /// # Errors
    /// A counter cannot be opened. The text has the reason and the remedy.
    pub fn open() -> Result<PerfCounters, String> {
        let open = |event| sys::perf_open(HARDWARE, event).map_err(|error| explain(&error));
        Ok(PerfCounters { instructions: open(INSTRUCTIONS)?, cycles: open(CPU_CYCLES)? })
    }

    /// Returns the number of instructions retired since the counters were opened, user and kernel.
    pub fn instructions(&self) -> Option<u64> {
        read_scaled(&self.instructions).ok().flatten()
    }

    /// Returns the number of CPU cycles since the counters were opened, user and kernel.
    pub fn cycles(&self) -> Option<u64> {
        read_scaled(&self.cycles).ok().flatten()
    }
}

/// Reads a counter. `None` if the counter was enabled but never counted.
fn read_scaled(mut counter: &File) -> io::Result<Option<u64>> {
    let mut bytes = [0u8; 24];
    // The kernel requires that all three words are read with a single call.
    counter.read_exact(&mut bytes)?;
    let word = |index: usize| {
        let bytes = bytes[index * 8..][..8].try_into().expect("three words of 8 bytes");
        u64::from_ne_bytes(bytes)
    };
    Ok(scale(word(0), word(1), word(2)))
}

/// Extrapolates a multiplexed counter to the whole time for which it was enabled.
fn scale(value: u64, enabled_ns: u64, counting_ns: u64) -> Option<u64> {
    if counting_ns == 0 {
        return (enabled_ns == 0).then_some(0);
    }
    let scaled = u128::from(value) * u128::from(enabled_ns.max(counting_ns));
    u64::try_from(scaled / u128::from(counting_ns)).ok()
}

/// Returns the reason why a counter could not be opened, and the remedy.
fn explain(error: &io::Error) -> String {
    let reason = match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::ENXIO) => {
            "the CPU offers no hardware counters here; give the virtual machine a virtual PMU, or \
             measure on the host"
        }
        Some(libc::EACCES | libc::EPERM) => {
            "not permitted; set kernel.perf_event_paranoid to 1 or less, or add CAP_PERFMON"
        }
        Some(libc::EINVAL) => "the kernel cannot exclude child processes; use Linux 5.13 or later",
        Some(libc::ENOSYS) => "the kernel has no perf events; use a kernel with CONFIG_PERF_EVENTS",
        _ => return format!("instructions and cycles: {error}"),
    };
    format!("instructions and cycles: {reason}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Opens the counter `PERF_COUNT_SW_TASK_CLOCK` of type `PERF_TYPE_SOFTWARE`, which counts ns
    /// and needs no hardware.
    fn open_task_clock() -> Option<File> {
        match sys::perf_open(1, 1) {
            Ok(counter) => Some(counter),
            Err(error) => {
                println!("skipped: {}", explain(&error));
                None
            }
        }
    }

    fn burn_cpu_ns(ns: u64) {
        let end_ns = sys::process_cpu_ns() + ns;
        while sys::process_cpu_ns() < end_ns {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn threads_are_counted_and_child_processes_are_not() {
        let Some(counter) = open_task_clock() else { return };
        std::thread::spawn(|| burn_cpu_ns(120_000_000)).join().unwrap();
        let after_thread = read_scaled(&counter).unwrap().unwrap();
        assert!(after_thread > 10_000_000, "the thread's time is missing: {after_thread}");

        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let mut child = std::process::Command::new("sh").args(["-c", script]).spawn().unwrap();
        child.wait().unwrap();
        let after_child = read_scaled(&counter).unwrap().unwrap();
        assert!(after_child - after_thread < 50_000_000, "{after_thread} then {after_child}");
    }

    #[test]
    fn without_counters_the_reason_names_a_remedy() {
        let told = explain(&io::Error::from_raw_os_error(libc::EACCES));
        assert!(told.contains("perf_event_paranoid"), "{told}");
        match PerfCounters::open() {
            Ok(counters) => {
                burn_cpu_ns(1_000_000);
                assert!(counters.instructions() > Some(0));
            }
            Err(reason) => assert!(reason.starts_with("instructions and cycles: "), "{reason}"),
        }
    }

    #[test]
    fn a_counter_that_never_counted_has_no_value() {
        assert_eq!(scale(0, 10, 0), None);
        assert_eq!(scale(0, 0, 0), Some(0));
        assert_eq!(scale(100, 40, 10), Some(400));
    }

    proptest! {
        #[test]
        fn scaling_never_lowers_a_count(
            value in 0u64..1 << 50,
            counting in 1u64..1 << 40,
            more in 0u64..1000,
        ) {
            prop_assert!(scale(value, counting + more, counting).unwrap() >= value);
        }
    }
}
