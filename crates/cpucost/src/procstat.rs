//! Reads the machine's CPU time from `/proc/stat`.
//!
//! Results use only idle time, because the kernel measures it exactly. The kernel samples busy time
//! at the timer tick, so busy time can be 60% too low at partial load. Idle time is the sum of
//! `idle` and `iowait`, because a CPU that waits for a disk does no work (proc_stat(5)). User and
//! steal time are used only to detect other load.

use std::{fs, io};

use crate::sys;

/// CPU times since boot (ns), of one CPU or summed over all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuLine {
    /// Idle time, including I/O wait.
    pub idle_ns: u64,
    /// Time in hardware and software interrupts. 0 if the kernel does not measure this time.
    pub interrupt_ns: u64,
    /// Time in software interrupts, included in `interrupt_ns`.
    pub soft_interrupt_ns: u64,
    /// System time of all processes, without interrupts. The kernel estimates this time from
    /// samples.
    pub system_ns: u64,
    /// User time of all processes (`user` and `nice`). The kernel estimates this time from samples.
    pub user_ns: u64,
    /// Steal time. 0 if the hypervisor does not report it.
    pub stolen_ns: u64,
}

/// The CPU lines of `/proc/stat`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcStat {
    /// The sum over all CPUs, as reported by the kernel.
    pub total: CpuLine,
    /// Index and times of each online CPU.
    pub cpus: Vec<(usize, CpuLine)>,
}

impl ProcStat {
    /// Reads and parses `/proc/stat`.
    ///
    /// # Errors
    /// The file cannot be read, or has no CPU lines (`InvalidData`).
    pub fn read() -> io::Result<ProcStat> {
        let text = fs::read_to_string("/proc/stat")?;
        ProcStat::parse(&text, sys::ticks_per_second()).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "/proc/stat has no CPU lines")
        })
    }

    /// Parses the text of `/proc/stat`. Malformed lines are skipped. None if the line for all CPUs
    /// (`cpu`) is missing, or if there is no line for a single CPU (such as `cpu0`).
    pub fn parse(text: &str, ticks_per_second: u64) -> Option<ProcStat> {
        let tick_ns = 1_000_000_000 / ticks_per_second.max(1);
        let mut total = None;
        let mut cpus = Vec::new();
        for line in text.lines() {
            let Some((name, fields)) = line.split_once(' ') else { continue };
            let Some(number) = name.strip_prefix("cpu") else { continue };
            let Some(times) = parse_fields(fields, tick_ns) else { continue };
            if number.is_empty() {
                total = Some(times);
            } else if let Ok(cpu) = number.parse() {
                cpus.push((cpu, times));
            }
        }
        if cpus.is_empty() {
            return None;
        }
        Some(ProcStat { total: total?, cpus })
    }

    /// Returns the idle time of a CPU. None if the CPU is not online.
    pub fn idle_ns(&self, cpu: usize) -> Option<u64> {
        self.cpus.iter().find(|(number, _)| *number == cpu).map(|(_, line)| line.idle_ns)
    }
}

/// Parses the fields of a CPU line: user nice system idle iowait irq softirq steal. Further fields
/// are ignored. Kernels before 2.6 have only the fields up to idle.
fn parse_fields(fields: &str, tick_ns: u64) -> Option<CpuLine> {
    let mut ticks = [0u64; 8];
    let mut count = 0;
    for (slot, field) in ticks.iter_mut().zip(fields.split_ascii_whitespace()) {
        *slot = field.parse().ok()?;
        count += 1;
    }
    let [user, nice, system, idle, iowait, irq, softirq, stolen] = ticks;
    (count >= 4).then(|| CpuLine {
        idle_ns: idle.saturating_add(iowait).saturating_mul(tick_ns),
        interrupt_ns: irq.saturating_add(softirq).saturating_mul(tick_ns),
        soft_interrupt_ns: softirq.saturating_mul(tick_ns),
        system_ns: system.saturating_mul(tick_ns),
        user_ns: user.saturating_add(nice).saturating_mul(tick_ns),
        stolen_ns: stolen.saturating_mul(tick_ns),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TWO_CPUS: &str = "cpu  30 1 20 500 40 3 4 9 0 0\n\
        cpu0 10 0 10 300 10 1 2 0 0 0\n\
        cpu3 20 1 10 200 30 2 2 0 0 0\n\
        intr 5 0 1\nctxt 77\n";

    #[test]
    fn idle_includes_waiting_for_io_and_interrupts_are_summed() {
        let stat = ProcStat::parse(TWO_CPUS, 100).unwrap();
        let total = CpuLine {
            idle_ns: 5_400_000_000,
            interrupt_ns: 70_000_000,
            soft_interrupt_ns: 40_000_000,
            system_ns: 200_000_000,
            user_ns: 310_000_000,
            stolen_ns: 90_000_000,
        };
        assert_eq!(stat.total, total);
        assert_eq!(stat.cpus.len(), 2);
        assert_eq!(stat.idle_ns(3), Some(2_300_000_000));
        assert_eq!(stat.idle_ns(1), None);
    }

    #[test]
    fn a_torn_line_is_skipped_and_text_without_cpus_is_nothing() {
        let torn = "cpu 1 1 1 1\ncpu0 1 1 x 1\ncpu1 1 1 1 9\ncpuidle 1 2 3 4\n";
        assert_eq!(ProcStat::parse(torn, 100).unwrap().cpus.len(), 1);
        assert_eq!(ProcStat::parse("cpu 1 1 1 1\n", 100), None);
        assert_eq!(ProcStat::parse("", 100), None);
    }

    #[test]
    fn this_host_reports_its_own_cpus() {
        let stat = ProcStat::read().unwrap();
        assert_eq!(stat.cpus.len(), sys::online_cpus() as usize);
        let sum_ns: u64 = stat.cpus.iter().map(|(_, line)| line.idle_ns).sum();
        let rounding_ns = 10_000_000 * (stat.cpus.len() as u64 + 1) * 2;
        assert!(stat.total.idle_ns.abs_diff(sum_ns) <= rounding_ns);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(
            text in "(cpu[0-9]{0,30}( [0-9x ]{0,40})?\n|[ -~\n]{0,20}){0,8}",
            ticks in any::<u64>(),
        ) {
            if let Some(stat) = ProcStat::parse(&text, ticks) {
                prop_assert!(!stat.cpus.is_empty());
            }
        }

        #[test]
        fn what_is_written_is_read_back(
            idle in 0u64..1 << 40,
            wait in 0u64..1 << 30,
            cpu in 0usize..4096,
        ) {
            let line = format!("1 2 3 {idle} {wait} 6 7 8 9 10");
            let stat = ProcStat::parse(&format!("cpu  {line}\ncpu{cpu} {line}\n"), 1000).unwrap();
            prop_assert_eq!(stat.idle_ns(cpu), Some((idle + wait) * 1_000_000));
            prop_assert_eq!(stat.total.interrupt_ns, 13_000_000);
        }
    }
}
